"""Runs scenarios: prepares, makes the faults, watches, undoes, judges; repeats what the builder spoiled."""

import concurrent.futures
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lab.actions import perform
from lab.channel import Result
from lab.daemons import ApiError, Daemons, Setup
from lab.errors import LabError, ProductError
from lab.fabric import Lab
from lab.scenario import SEVERITIES, Check, Scenario, Step
from lab.topology import FABRIC_GUEST
from lab.verdict import Observation, Observer, describe, judge

TICK_S = 0.25
MAX_REPEATS = 2  # of a run that the builder spoiled
OVERTIME_S = 60.0  # beyond a scenario's duration, for a last command to come back
QUIET_S = 3.0  # no finding for so long before a scenario begins
QUIET_DEADLINE_S = 60.0
API_OUTAGE_S = 10.0
OVERLOADED = "builder overloaded"


class World(Protocol):
    """What the runner needs of a lab with weft in it. Commands answer through futures, never by raising."""

    def submit(self, on: str, command: str, timeout: float) -> concurrent.futures.Future[Result]: ...
    def submit_action(self, step: Step) -> concurrent.futures.Future[Result]: ...
    def prepare(self, setup: Setup) -> None: ...
    def heal(self, touched: Sequence[Step]) -> None: ...
    def findings(self) -> list[dict]: ...
    def clear_findings(self) -> None: ...
    def api_expected(self) -> bool: ...
    def trouble(self) -> list[str]: ...
    def stalled_together(self, since: float, until: float) -> float: ...
    def longest_gaps(self, since: float, until: float) -> dict[str, float]: ...
    def logs(self) -> dict[str, str]: ...
    def say(self, text: str) -> None: ...


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def time(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


@dataclass
class RunResult:
    """One run; report.py turns it into JSON and text."""

    scenario: str
    attempt: int = 1
    valid: bool = True
    reason: str = ""
    failures: list[str] = field(default_factory=list)
    injected_at: float | None = None  # Unix seconds
    found: Observation | None = None
    seconds_to_finding: float | None = None
    others: list[Observation] = field(default_factory=list)
    checks: list[dict] = field(default_factory=list)
    steps: list[dict] = field(default_factory=list)
    gaps: dict[str, float] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.valid and not self.failures


@dataclass
class _Running:
    step: Step
    future: concurrent.futures.Future
    begun: float
    result: Result | None = None


@dataclass
class _Checking:
    check: Check
    future: concurrent.futures.Future | None = None
    done: bool = False
    passed: bool = False
    at: float = 0.0
    last: str = "not run"


class Runner:
    """`world` gives the lab to run on, booting one where there is none; `drop_world` throws a broken one away."""

    def __init__(
        self,
        world: Callable[[], World],
        drop_world: Callable[[], None],
        clock: Clock = time,  # type: ignore[assignment]
    ):
        self._world = world
        self._drop_world = drop_world
        self._clock = clock

    def run(self, scenario: Scenario) -> list[RunResult]:
        """Until a valid run, three at most. All are returned, the last one counts."""
        results: list[RunResult] = []
        for attempt in range(1, MAX_REPEATS + 2):
            result = self._attempt(scenario, attempt)
            results.append(result)
            if result.valid:
                break
        return results

    def _attempt(self, scenario: Scenario, attempt: int) -> RunResult:
        result = RunResult(scenario.name, attempt)
        begun = self._clock.monotonic()
        try:
            world = self._world()
            world.say(f"scenario {scenario.name}" + (f", attempt {attempt}" if attempt > 1 else ""))
            try:
                self._run_once(scenario, world, result)
            except ProductError as error:
                result.failures.append(str(error))
                result.logs = self._logs(world)
                self._drop_world()
        except LabError as error:
            if error.exit_code != LabError.exit_code:
                raise  # an interruption or a missing tool is not for repeating
            result.valid, result.reason = False, f"lab: {error}"
            self._drop_world()
        result.seconds = self._clock.monotonic() - begun
        return result

    def _run_once(self, scenario: Scenario, world: World, result: RunResult) -> None:
        world.prepare(scenario.setup)
        before = self._quieten(world)
        if before is None:
            result.failures.append("the fabric was not quiet before the scenario: " + self._active(world))
            result.logs = self._logs(world)
            self._drop_world()
            return
        observer = Observer(before)
        start = self._clock.monotonic()
        injected = self._watch(scenario, world, observer, result, start)
        end = self._clock.monotonic()
        trouble = [] if result.failures else world.trouble()
        verdict = judge(scenario, injected, list(observer.seen.values()))
        result.failures += verdict.failures + trouble
        result.found, result.others = verdict.found, verdict.others
        if verdict.found is not None:
            result.seconds_to_finding = verdict.found.first_seen - injected
        result.gaps = world.longest_gaps(start, end)
        stalled = world.stalled_together(start, end)
        if stalled > 0:
            result.valid, result.reason = False, OVERLOADED
            world.say(f"all guests stalled together for {stalled:.1f} s: the run does not count")
        result.logs = self._logs(world)
        if scenario.steps:
            world.say("undoing the faults")
            self._undo(scenario, world, result)

    def _watch(self, scenario: Scenario, world: World, observer: Observer, result: RunResult, start: float) -> float:
        """The scenario's own time. Returns the second of the injection."""
        waiting = sorted(scenario.steps, key=lambda s: s.at)
        inject = next((s for s in scenario.steps if s.inject), waiting[0] if waiting else None)
        injected = inject.at if inject else 0.0
        if inject is None:
            result.injected_at = self._clock.time()
        running: list[_Running] = []
        checking = [_Checking(c) for c in scenario.checks]
        answered = start
        while True:
            now = self._clock.monotonic() - start
            while waiting and waiting[0].at <= now:
                step = waiting.pop(0)
                world.say(f"{now:5.1f} s: {step.label}")
                if step is inject:
                    injected, result.injected_at = now, self._clock.time()
                running.append(_Running(step, self._begin(world, step), now))
            self._finish_steps(running, now, result)
            if world.api_expected():
                try:
                    findings = world.findings()
                    answered = self._clock.monotonic()
                    new = observer.update(findings, answered - start, self._clock.time())
                    for observation in new:
                        world.say(f"{now:5.1f} s: found {describe(observation.finding)}")
                except (ApiError, KeyError, TypeError) as error:
                    if self._clock.monotonic() - answered > API_OUTAGE_S:
                        result.failures.append(f"the aggregator's API has failed for {API_OUTAGE_S:.0f} s: {error}")
                        break
            else:
                answered = self._clock.monotonic()
            self._advance_checks(checking, world, now)
            idle = all(r.result for r in running) and all(c.done for c in checking)
            if now >= scenario.duration and idle:
                break
            if now >= scenario.duration + OVERTIME_S:
                result.failures += [f"{r.step.label}: did not return" for r in running if not r.result]
                break
            self._clock.sleep(TICK_S)
        for entry in checking:
            result.checks.append({"check": entry.check.label, "passed": entry.passed, "at_s": round(entry.at, 2)})
            if not entry.passed:
                result.failures.append(f"check {entry.check.label}: {entry.last}")
        return injected

    def _begin(self, world: World, step: Step) -> concurrent.futures.Future:
        return world.submit_action(step) if step.action else world.submit(step.on, step.run, step.timeout)

    def _finish_steps(self, running: Sequence[_Running], now: float, result: RunResult) -> None:
        for entry in running:
            if entry.result is not None or not entry.future.done():
                continue
            answer, step = entry.future.result(), entry.step
            entry.result = answer
            # The channel's own time where it has one: `now` is as coarse as the tick.
            took = answer.seconds or now - entry.begun
            result.steps.append(
                {"step": step.label, "at_s": round(entry.begun, 2), "seconds": round(took, 2), "rc": answer.rc}
            )
            detail = _said(answer)
            if answer.timed_out:
                result.failures.append(f"{step.label}: not back within {step.timeout:g} s {detail}".strip())
            elif step.exit is not None and answer.rc != step.exit:
                result.failures.append(f"{step.label}: exit {answer.rc} instead of {step.exit}: {detail}")
            elif step.within is not None and took > step.within:
                result.failures.append(f"{step.label}: took {took:.1f} s, longer than {step.within:g} s")

    def _advance_checks(self, checking: Sequence[_Checking], world: World, now: float) -> None:
        for entry in checking:
            check = entry.check
            if entry.done or now < check.at:
                continue
            if entry.future is None:
                entry.future = world.submit(check.on, check.run, check.timeout)
            if not entry.future.done():
                continue
            entry.passed, entry.last = _check_result(check, entry.future.result())
            entry.at, entry.future = now, None
            entry.done = entry.passed or now >= check.at + check.within
            if entry.passed:
                world.say(f"{now:5.1f} s: check passed: {check.label}")

    def _quieten(self, world: World) -> list[dict] | None:
        """Clears findings until none comes back for a while. Returns what the API still remembers, None if it fails."""
        deadline = self._clock.monotonic() + QUIET_DEADLINE_S
        quiet_since = None
        while self._clock.monotonic() < deadline:
            try:
                findings = world.findings()
                active = [f for f in findings if f.get("state") == "active" and f.get("severity") != SEVERITIES[0]]
                now = self._clock.monotonic()
                if active or quiet_since is None:
                    world.clear_findings()
                    quiet_since = now
                elif now - quiet_since >= QUIET_S:
                    return findings
            except ApiError:
                quiet_since = None
            self._clock.sleep(TICK_S)
        return None

    def _active(self, world: World) -> str:
        try:
            return ", ".join(describe(f) for f in world.findings() if f.get("state") == "active") or "it changes"
        except ApiError as error:
            return str(error)

    def _undo(self, scenario: Scenario, world: World, result: RunResult) -> None:
        for step in sorted(scenario.steps, key=lambda s: s.at, reverse=True):
            for command in step.undo:
                answer = world.submit(step.on, command, 30.0).result()
                if not answer.ok:
                    detail = answer.err.strip()[-200:]
                    result.warnings.append(f"undo {command!r} on {step.on}: exit {answer.rc} {detail}")
        try:
            world.heal(scenario.steps)
        except LabError as error:
            result.warnings.append(f"the lab could not be put back ({error}); the next scenario gets a new one")
            self._drop_world()

    @staticmethod
    def _logs(world: World) -> dict[str, str]:
        try:
            return world.logs()
        except LabError:
            return {}


def _said(answer: Result) -> str:
    """The ends of both outputs: why, and on what."""
    return "\n".join(text.strip()[-300:] for text in (answer.err, answer.out) if text.strip())


def _check_result(check: Check, answer: Result) -> tuple[bool, str]:
    if answer.timed_out:
        return False, f"not back within {check.timeout:g} s"
    if check.exit is not None and answer.rc != check.exit:
        return False, f"exit {answer.rc} instead of {check.exit}: {_said(answer)}"
    if check.output and not re.search(check.output, answer.out, re.MULTILINE):
        return False, f"the output does not match {check.output!r}: {answer.out.strip()[-300:]}"
    return True, "passed"


class LabWorld:
    """The World of a booted lab."""

    def __init__(self, lab: Lab, daemons: Daemons):
        self._lab, self._daemons = lab, daemons
        # One at a time and in order: a start may have to wait for the end of a slow stop.
        self._actions = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="lab-action")
        self._prepared: Setup | None = None

    def submit(self, on: str, command: str, timeout: float) -> concurrent.futures.Future[Result]:
        return self._lab.submit(on, command, timeout)

    def submit_action(self, step: Step) -> concurrent.futures.Future[Result]:
        return self._actions.submit(self._perform, step)

    def prepare(self, setup: Setup) -> None:
        dead = self._lab.dead_guests()
        if dead:
            raise LabError(f"guests ended by themselves: {', '.join(dead)}")
        if self._prepared != setup:
            self._lab.say("starting weftd on every host and weft-aggregator")
            self._daemons.start(setup)
            self._prepared = setup
        self._daemons.wait_ready()

    def heal(self, touched: Sequence[Step]) -> None:
        topology = self._lab.topology
        guests = {FABRIC_GUEST if s.on in topology.switches else s.on for s in touched if s.run}
        guests &= set(topology.guests)
        links = {s.args["link"] for s in touched if "link" in s.args}
        self._lab.reset_network(guests, links)
        self._daemons.heal({s.on for s in touched})

    def findings(self) -> list[dict]:
        return self._daemons.findings()

    def clear_findings(self) -> None:
        self._daemons.clear_findings()

    def api_expected(self) -> bool:
        return self._daemons.aggregator_up

    def trouble(self) -> list[str]:
        return self._daemons.ended()

    def stalled_together(self, since: float, until: float) -> float:
        return self._lab.stalls.together(since, until)

    def longest_gaps(self, since: float, until: float) -> dict[str, float]:
        return self._lab.stalls.longest(since, until)

    def logs(self) -> dict[str, str]:
        return self._daemons.logs()

    def say(self, text: str) -> None:
        self._lab.say(text)

    def close(self) -> None:
        self._actions.shutdown(wait=False, cancel_futures=True)

    def _perform(self, step: Step) -> Result:
        begun = time.monotonic()
        try:
            perform(self._lab, self._daemons, step.action, step.on, step.args)
        except LabError as error:
            return Result(1, err=str(error), seconds=time.monotonic() - begun)
        return Result(0, seconds=time.monotonic() - begun)
