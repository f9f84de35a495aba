"""The runner on a stand-in lab and a clock of its own: order, repeats, undo, outages."""

import concurrent.futures
import unittest
from pathlib import Path

from lab.channel import Result
from lab.daemons import ApiError
from lab.errors import Interrupted, LabError, ProductError
from lab.report import as_json, counted, summary
from lab.runner import OVERLOADED, Runner
from lab.scenario import parse

LOSS = """name = "loss"
duration = 20
[[step]]
at = 3
on = "s1"
run = "break"
undo = "mend"
[[expect]]
kind = "link_loss"
subject = "link:s1>l2"
within = 10
"""


def finding(number="f1", kind="link_loss", subject="link:s1>l2", severity="critical", state="active") -> dict:
    return {"id": number, "kind": kind, "subject": subject, "severity": severity, "state": state, "summary": ""}


class FakeClock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000.0 + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeWorld:
    """Finds what `shows` says for the seconds since the command `break`, if that was given."""

    def __init__(self, clock, shows=lambda since: [finding()] if since is not None and since >= 2 else []):
        self.clock, self.shows = clock, shows
        self.done: list[str] = []
        self.broken_at = None
        self.answers: dict[str, list[Result] | Result | None] = {}
        self.stalls: list[float] = []
        self.api_fails = self.never_quiet = False
        self.prepare_error: BaseException | None = None
        self.heal_error: LabError | None = None
        self.daemon_trouble: list[str] = []
        self.cleared = 0

    def submit(self, on, command, timeout):
        self.done.append(command)
        if command == "break":
            self.broken_at = self.clock.now
        if command == "mend":
            self.broken_at = None
        future = concurrent.futures.Future()
        answer = self.answers.get(command, Result(0))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if answer is not None:
            future.set_result(answer)
        return future

    def submit_action(self, step):
        return self.submit(step.on, step.action, step.timeout)

    def prepare(self, setup):
        self.done.append("prepare")
        if self.prepare_error:
            raise self.prepare_error

    def heal(self, touched):
        self.done.append("heal")
        if self.heal_error:
            raise self.heal_error

    def findings(self):
        if self.api_fails:
            raise ApiError("refused")
        if self.never_quiet:
            return [finding("old")]
        return self.shows(None if self.broken_at is None else self.clock.now - self.broken_at)

    def clear_findings(self):
        self.cleared += 1

    def api_expected(self):
        return True

    def trouble(self):
        return self.daemon_trouble

    def stalled_together(self, since, until):
        return self.stalls.pop(0) if self.stalls else 0.0

    def longest_gaps(self, since, until):
        return {"h1": 0.5}

    def logs(self):
        return {"h1": "a log"}

    def say(self, text):
        pass


class RunnerCase(unittest.TestCase):
    def setUp(self):
        self.clock = FakeClock()
        self.world = FakeWorld(self.clock)
        self.dropped = 0
        self.runner = Runner(lambda: self.world, self._drop, self.clock)

    def _drop(self):
        self.dropped += 1

    def run_scenario(self, text: str):
        return self.runner.run(parse(text, Path("x.toml")))


class Failures(RunnerCase):
    def assert_failed(self, text: str, wanted: str, runs: int = 1):
        results = self.run_scenario(text)
        self.assertEqual(len(results), runs)
        self.assertFalse(results[-1].passed)
        self.assertRegex("\n".join([*results[-1].failures, results[-1].reason]), wanted)
        return results[-1]

    def test_nothing_found_fails_and_is_undone_all_the_same(self):
        self.world.shows = lambda since: []
        result = self.assert_failed(LOSS, "not found")
        self.assertTrue(result.valid)
        self.assertEqual(self.world.done[-2:], ["mend", "heal"])
        self.assertEqual(result.logs, {"h1": "a log"})

    def test_step_that_fails(self):
        self.world.answers["break"] = Result(2, err="no such device")
        self.assert_failed(LOSS, "exit 2 instead of 0: no such device")

    def test_step_that_fails_says_why_and_on_what(self):
        self.world.answers["break"] = Result(1, err="AssertionError", out="eth0 is DOWN")
        self.assert_failed(LOSS, "exit 1 instead of 0: AssertionError\neth0 is DOWN")

    def test_step_slower_than_it_may_be(self):
        self.world.answers["break"] = Result(0, seconds=2.5)
        self.assert_failed(LOSS.replace('undo = "mend"', 'undo = "mend"\nwithin = 2'), "took 2.5 s, longer than 2 s")

    def test_step_cut_at_its_deadline(self):
        self.world.answers["break"] = Result(124, timed_out=True)
        self.assert_failed(LOSS, "not back within 30 s")

    def test_step_that_never_comes_back_ends_the_run_at_its_deadline(self):
        self.world.answers["break"] = None
        begun = self.clock.now
        self.assert_failed(LOSS, "did not return")
        self.assertLess(self.clock.now - begun, 20 + 60 + 10)

    def test_check_that_never_passes(self):
        self.world.answers["look"] = Result(0, out="down")
        check = '[[check]]\non = "h3"\nrun = "look"\nat = 5\nwithin = 8\noutput = "up"\n'
        self.assert_failed(LOSS + check, "does not match")
        self.assertGreater(self.world.done.count("look"), 3)

    def test_api_that_does_not_answer(self):
        scenario = LOSS + '[[step]]\nat = 4\non = "h1"\nrun = "later"\n'
        world = self.world
        original = world.submit

        def submit(on, command, timeout):
            world.api_fails = world.api_fails or command == "later"
            return original(on, command, timeout)

        world.submit = submit
        self.assert_failed(scenario, "API has failed for 10 s: refused")

    def test_daemon_that_died_during_the_scenario(self):
        self.world.daemon_trouble = ["weftd on h2 ended with 139"]
        self.assert_failed(LOSS, "ended with 139")

    def test_fabric_that_is_not_quiet_before_the_fault(self):
        self.world.never_quiet = True
        self.assert_failed(LOSS, "not quiet before the scenario: link_loss")
        self.assertEqual(self.dropped, 1)

    def test_weft_that_never_gets_ready_is_no_matter_of_luck(self):
        self.world.prepare_error = ProductError("weft is not ready: 3 of 4 agents report")
        self.assert_failed(LOSS, "3 of 4 agents", runs=1)
        self.assertEqual(self.dropped, 1)

    def test_lab_that_cannot_be_put_back_is_thrown_away(self):
        self.world.heal_error = LabError("no route")
        (result,) = self.run_scenario(LOSS)
        self.assertTrue(result.passed)
        self.assertEqual(self.dropped, 1)
        self.assertIn("no route", result.warnings[0])

    def test_failed_undo_is_said(self):
        self.world.answers["mend"] = Result(1, err="busy")
        (result,) = self.run_scenario(LOSS)
        self.assertIn("busy", result.warnings[0])


class Repeats(RunnerCase):
    def test_run_in_which_all_stalled_is_void_and_repeated(self):
        self.world.stalls = [1.5, 0.0]
        first, second = self.run_scenario(LOSS)
        self.assertEqual((first.valid, first.passed, first.reason), (False, False, OVERLOADED))
        self.assertTrue(second.passed)
        self.assertEqual([r.attempt for r in counted([first, second])], [2])

    def test_three_void_runs_are_enough_and_do_not_pass(self):
        self.world.stalls = [1.5, 1.5, 1.5, 1.5]
        results = self.run_scenario(LOSS)
        self.assertEqual([r.valid for r in results], [False] * 3)
        self.assertFalse(counted(results)[0].passed)
        self.assertEqual(len(counted(results)), 1)

    def test_failure_of_the_lab_is_void_and_gets_a_new_lab(self):
        self.world.prepare_error = LabError("guests ended by themselves: h2")
        results = self.run_scenario(LOSS)
        self.assertEqual((len(results), self.dropped), (3, 3))
        self.assertEqual(results[0].reason, "lab: guests ended by themselves: h2")

    def test_interruption_is_passed_on(self):
        self.world.prepare_error = Interrupted("stopped by SIGINT", 130)
        with self.assertRaises(Interrupted):
            self.run_scenario(LOSS)

    def test_void_runs_of_two_scenarios_are_counted_apart(self):
        self.world.stalls = [1.5, 1.5, 1.5, 1.5, 1.5, 1.5]
        results = self.run_scenario(LOSS) + self.run_scenario(LOSS)
        self.assertEqual(len(counted(results)), 2)


class Passes(RunnerCase):
    def test_times_are_counted_from_just_before_the_fault(self):
        (result,) = self.run_scenario(LOSS)
        self.assertEqual(result.failures, [])
        self.assertTrue(2.0 <= result.seconds_to_finding <= 2.5)
        self.assertEqual(result.found.first_seen_wall - result.injected_at, result.seconds_to_finding)

    def test_findings_are_cleared_before_and_the_fault_undone_after(self):
        self.run_scenario(LOSS)
        self.assertGreaterEqual(self.world.cleared, 1)
        self.assertEqual(self.world.done, ["prepare", "break", "mend", "heal"])

    def test_steps_come_in_time_order_and_undo_in_reverse(self):
        text = (
            'duration = 9\n[[step]]\nat = 5\non = "h1"\nrun = "second"\nundo = "undo-second"\n'
            '[[step]]\nat = 1\non = "h1"\nrun = "first"\nundo = ["undo-first", "undo-first-too"]\n'
        )
        self.run_scenario(text)
        self.assertEqual(
            self.world.done, ["prepare", "first", "second", "undo-second", "undo-first", "undo-first-too", "heal"]
        )

    def test_marked_step_is_the_injection(self):
        text = LOSS + '[[step]]\nat = 1\non = "h1"\nrun = "prelude"\n'
        text = text.replace('undo = "mend"', 'undo = "mend"\ninject = true')
        (result,) = self.run_scenario(text)
        self.assertTrue(2.0 <= result.seconds_to_finding <= 2.5)

    def test_check_is_tried_until_it_passes(self):
        self.world.answers["look"] = [Result(1), Result(1), Result(0, out="up")]
        (result,) = self.run_scenario(LOSS + '[[check]]\non = "h3"\nrun = "look"\nat = 5\nwithin = 8\noutput = "^up"\n')
        self.assertEqual(result.failures, [])
        self.assertTrue(result.checks[0]["passed"])

    def test_a_short_outage_of_the_api_is_forgiven(self):
        shows = self.world.shows

        def flaky(since):
            if since is not None and 5 < since < 12:
                raise ApiError("refused")
            return shows(since)

        self.world.shows = flaky
        (result,) = self.run_scenario(LOSS)
        self.assertEqual(result.failures, [])

    def test_healthy_scenario_undoes_nothing(self):
        self.run_scenario("duration = 5\n")
        self.assertEqual(self.world.done, ["prepare"])

    def test_report_has_what_a_program_needs(self):
        (result,) = self.run_scenario(LOSS)
        report = as_json(result)
        self.assertEqual(
            {k: report[k] for k in ("scenario", "passed", "valid", "other_findings")},
            {"scenario": "loss", "passed": True, "valid": True, "other_findings": []},
        )
        self.assertRegex(report["injected_at"], r"^2023-11-1\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual(report["finding"]["subject"], "link:s1>l2")
        self.assertEqual(report["logs"], {"h1": "a log"})
        self.assertIn("PASS  loss  link_loss link:s1>l2", summary([result]))
        self.assertIn("1 of 1 scenario runs passed", summary([result]))


if __name__ == "__main__":
    unittest.main()
