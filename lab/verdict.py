"""Judges one run of a scenario. Pure: what was seen goes in, the verdict comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from lab.scenario import NOTHING, SEVERITIES, Expect, Forbid, Scenario


@dataclass
class Observation:
    """One finding as the API showed it. Times are seconds since the scenario's start; wall_* are Unix seconds."""

    finding: Mapping
    first_seen: float
    first_seen_wall: float
    cleared_seen: float | None = None


class Observer:
    """Follows the findings by id. Findings that were there before the scenario are none of its business."""

    def __init__(self, before: Sequence[Mapping] = ()):
        self._before = {f["id"] for f in before}
        self.seen: dict[str, Observation] = {}

    def update(self, findings: Sequence[Mapping], now: float, wall: float) -> list[Observation]:
        """Takes one answer of the API; returns what is new in it."""
        new = []
        for finding in findings:
            number = finding["id"]
            if number in self._before:
                continue
            observation = self.seen.get(number)
            if observation is None:
                observation = self.seen[number] = Observation(finding, now, wall)
                new.append(observation)
            observation.finding = finding
            if finding.get("state") == "active":
                observation.cleared_seen = None
            elif observation.cleared_seen is None:
                observation.cleared_seen = now
        return new


@dataclass
class Verdict:
    failures: list[str] = field(default_factory=list)
    found: Observation | None = None  # of the first expectation
    others: list[Observation] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures


def matches(kinds: Sequence[str], subjects: Sequence[str], finding: Mapping) -> bool:
    kind, subject = str(finding.get("kind", "")), str(finding.get("subject", ""))
    return any(fnmatchcase(kind, k) for k in kinds) and any(fnmatchcase(subject, s) for s in subjects)


def describe(finding: Mapping) -> str:
    return f"{finding.get('kind')} {finding.get('subject')} ({finding.get('severity')})"


def is_forbidden(forbid: Forbid, finding: Mapping) -> bool:
    if forbid.severity == NOTHING:
        return False
    severity = finding.get("severity")
    # A severity nobody has heard of is not excused by that.
    rank = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
    if rank < SEVERITIES.index(forbid.severity) or not matches(forbid.kinds, forbid.subjects, finding):
        return False
    return not any(matches(a.kinds, a.subjects, finding) for a in forbid.allow)


def judge(scenario: Scenario, injected: float, observations: Sequence[Observation]) -> Verdict:
    """`injected`: second of the scenario at which the fault was about to be made."""
    verdict = Verdict()
    expected: set[int] = set()
    for index, expect in enumerate(scenario.expects):
        hits = [o for o in observations if matches(expect.kinds, expect.subjects, o.finding)]
        hits.sort(key=lambda o: o.first_seen)
        expected.update(map(id, hits))
        verdict.failures += _judge_expect(expect, hits, injected)
        after = [o for o in hits if o.first_seen >= injected]
        if index == 0 and after:
            verdict.found = after[0]
    verdict.others = [o for o in observations if id(o) not in expected]
    for other in verdict.others:
        if is_forbidden(scenario.forbid, other.finding):
            summary = other.finding.get("summary", "")
            verdict.failures.append(
                f"{other.first_seen:.1f} s: {describe(other.finding)} must not be found: {summary}"
            )
    return verdict


def _judge_expect(expect: Expect, hits: Sequence[Observation], injected: float) -> list[str]:
    wanted = f"{' or '.join(expect.kinds)} on {' or '.join(expect.subjects)}"
    early = [o for o in hits if o.first_seen < injected]
    if early:
        return [f"{describe(early[0].finding)} was found before the fault was made"]
    if not hits:
        return [f"{wanted} was not found within {expect.within:g} s"]
    failures = []
    took = hits[0].first_seen - injected
    if took > expect.within:
        failures.append(f"{describe(hits[0].finding)} was found after {took:.1f} s, later than {expect.within:g} s")
    if len(hits) > expect.at_most:
        failures.append(
            f"{len(hits)} findings where at most {expect.at_most} is right: "
            + ", ".join(f"{describe(o.finding)} at {o.first_seen:.1f} s" for o in hits)
        )
    if expect.held and all(o.cleared_seen is not None for o in hits):
        failures.append(f"{describe(hits[0].finding)} is no longer active at the end")
    if expect.cleared_by is not None:
        late = [o for o in hits if o.cleared_seen is None or o.cleared_seen > expect.cleared_by]
        failures += [f"{describe(o.finding)} was not cleared by second {expect.cleared_by:g}" for o in late]
    return failures
