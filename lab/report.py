"""What a run of the lab leaves behind: JSON for programs, a summary for people."""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path

from lab.runner import RunResult
from lab.verdict import Observation, describe


def timestamp(unix_seconds: float | None) -> str | None:
    """RFC 3339, UTC, milliseconds."""
    if unix_seconds is None:
        return None
    moment = datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def as_json(result: RunResult) -> dict:
    return {
        "scenario": result.scenario,
        "passed": result.passed,
        "valid": result.valid,
        "reason": result.reason or ("; ".join(result.failures) or None),
        "attempt": result.attempt,
        "injected_at": timestamp(result.injected_at),
        "found_at": timestamp(result.found.first_seen_wall) if result.found else None,
        "seconds_to_finding": _rounded(result.seconds_to_finding),
        "finding": dict(result.found.finding) if result.found else None,
        "other_findings": [_other(o) for o in result.others],
        "failures": result.failures,
        "warnings": result.warnings,
        "steps": result.steps,
        "checks": result.checks,
        "guest_gaps_s": result.gaps,
        "seconds": _rounded(result.seconds),
        "logs": result.logs,
    }


def write_json(results: Sequence[RunResult], path: Path) -> None:
    scratch = path.with_name(path.name + ".new")
    scratch.write_text(json.dumps([as_json(r) for r in results], indent=2) + "\n")
    scratch.replace(path)


def counted(results: Sequence[RunResult]) -> list[RunResult]:
    """Without the runs that were repeated."""
    kept = []
    for index, result in enumerate(results):
        repeated = index + 1 < len(results) and results[index + 1].attempt > result.attempt
        if result.valid or not repeated:
            kept.append(result)
    return kept


def summary(results: Sequence[RunResult]) -> str:
    lines = []
    width = max((len(r.scenario) for r in results), default=0)
    for result in results:
        word = "PASS" if result.passed else "FAIL" if result.valid else "VOID"
        text = f"{word}  {result.scenario:{width}}"
        if result.found:
            text += f"  {describe(result.found.finding)} after {result.seconds_to_finding:.1f} s"
        elif result.passed:
            text += "  nothing found, as it should be"
        lines.append(text)
        if not result.valid:
            lines.append(f"      {result.reason}")
        lines += [f"      {text}" for text in (*result.failures, *(f"note: {w}" for w in result.warnings))]
    final = counted(results)
    passed = sum(r.passed for r in final)
    lines.append(f"{passed} of {len(final)} scenario runs passed")
    return "\n".join(lines)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _other(observation: Observation) -> dict:
    return {**observation.finding, "seen_at_s": round(observation.first_seen, 2)}
