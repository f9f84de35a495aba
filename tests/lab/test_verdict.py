"""Verdicts: expected, forbidden, allowed, doubled, too late, lost."""

import unittest
from pathlib import Path

from lab.scenario import parse
from lab.verdict import Observer, judge

STEP = '[[step]]\nat = 2\non = "s1"\nrun = "true"\n'
EXPECT = '[[expect]]\nkind = "link_loss"\nsubject = "link:s1>l2"\nwithin = 10\n'


def finding(number: str = "f1", kind: str = "link_loss", subject: str = "link:s1>l2", **more) -> dict:
    return {"id": number, "kind": kind, "subject": subject, "severity": "critical", "state": "active", **more}


def verdict_of(text: str, *answers: tuple[float, list[dict]], before: list[dict] = (), injected: float = 2.0):
    observer = Observer(before)
    for second, findings in answers:
        observer.update(findings, second, 1000.0 + second)
    return judge(parse(text, Path("x.toml")), injected, list(observer.seen.values()))


class Fails(unittest.TestCase):
    def assert_failure(self, verdict, wanted: str) -> None:
        self.assertFalse(verdict.passed)
        self.assertRegex("\n".join(verdict.failures), wanted)

    def test_nothing_found(self):
        self.assert_failure(verdict_of(STEP + EXPECT, (5, [])), "not found within 10 s")

    def test_found_too_late(self):
        self.assert_failure(verdict_of(STEP + EXPECT, (12.5, [finding()])), "after 10.5 s, later than 10 s")

    def test_found_before_the_fault(self):
        self.assert_failure(verdict_of(STEP + EXPECT, (1, [finding()])), "before the fault")

    def test_other_direction_is_another_finding(self):
        verdict = verdict_of(STEP + EXPECT, (4, [finding(subject="link:l2>s1")]))
        self.assert_failure(verdict, "not found")
        self.assert_failure(verdict, "link:l2>s1 .* must not be found")

    def test_a_second_accused_beside_the_right_one(self):
        other = finding("f2", "rnic_unreachable", "rnic:h3/rxe0")
        self.assert_failure(verdict_of(STEP + EXPECT, (4, [finding(), other])), "rnic:h3/rxe0")

    def test_warning_in_a_healthy_fabric_even_when_it_clears_again(self):
        warning = finding("w", "link_delay", "link:l1>s1", severity="warning")
        cleared = {**warning, "state": "cleared"}
        self.assert_failure(verdict_of("duration = 9\n", (3, [warning]), (5, [cleared])), "must not be found")

    def test_severity_that_nobody_knows_is_not_excused(self):
        self.assert_failure(verdict_of("duration = 9\n", (3, [finding(severity="odd")])), "must not be found")

    def test_doubled_finding(self):
        verdict = verdict_of(STEP + EXPECT, (4, [finding("a")]), (8, [finding("a"), finding("b")]))
        self.assert_failure(verdict, "2 findings")

    def test_finding_lost_before_the_end(self):
        lost = finding(state="cleared")
        verdict = verdict_of(STEP + EXPECT + "held = true\n", (4, [finding()]), (9, [lost]))
        self.assert_failure(verdict, "no longer active")

    def test_finding_that_stays_where_it_must_clear(self):
        text = STEP + EXPECT + "cleared_by = 20\n"
        late = verdict_of(text, (4, [finding()]), (30, [finding(state="cleared")]))
        self.assert_failure(late, "not cleared by second 20")
        self.assert_failure(verdict_of(text, (4, [finding()])), "not cleared by second 20")


class Passes(unittest.TestCase):
    def assert_passed(self, verdict) -> None:
        self.assertEqual(verdict.failures, [])

    def test_found_in_time_and_nothing_else(self):
        verdict = verdict_of(STEP + EXPECT, (4, [finding()]), (6, [finding()]))
        self.assert_passed(verdict)
        self.assertEqual((verdict.found.first_seen, verdict.found.first_seen_wall), (4, 1004.0))
        self.assertEqual(verdict.others, [])

    def test_any_of_several_kinds_and_subjects(self):
        text = STEP + '[[expect]]\nkind = ["a", "b"]\nsubject = ["port:h3/*", "link:h3-l2"]\nwithin = 10\n'
        self.assert_passed(verdict_of(text, (4, [finding(kind="b", subject="port:h3/rxe0/1")])))

    def test_information_is_reported_but_not_forbidden(self):
        verdict = verdict_of("duration = 9\n", (3, [finding("i", "cannot_measure", "host:h1", severity="info")]))
        self.assert_passed(verdict)
        self.assertEqual(len(verdict.others), 1)

    def test_information_can_be_forbidden(self):
        text = 'duration = 9\n[forbid]\nseverity = "info"\n'
        self.assertFalse(verdict_of(text, (3, [finding("i", severity="info")])).passed)

    def test_forbidding_nothing(self):
        self.assert_passed(verdict_of('duration = 9\n[forbid]\nseverity = "none"\n', (3, [finding()])))

    def test_forbidding_only_some_subjects(self):
        text = 'duration = 9\n[forbid]\nsubject = ["link:*", "rnic:*"]\n'
        self.assert_passed(verdict_of(text, (3, [finding(kind="host_silent", subject="host:h3")])))
        self.assertFalse(verdict_of(text, (3, [finding()])).passed)

    def test_an_allowed_companion(self):
        text = STEP + EXPECT + '[[forbid.allow]]\nkind = "link_delay"\nsubject = "link:s1>l2"\n'
        delay = finding("d", "link_delay", severity="warning")
        self.assert_passed(verdict_of(text, (4, [finding(), delay])))
        self.assertFalse(verdict_of(text, (4, [finding(), {**delay, "subject": "link:s2>l2"}])).passed)

    def test_findings_from_before_the_scenario_do_not_count(self):
        old = finding("old", state="cleared")
        self.assert_passed(verdict_of("duration = 9\n", (3, [old]), before=[old]))

    def test_cleared_and_active_again_under_one_id_is_held(self):
        text = STEP + EXPECT + "held = true\n"
        self.assert_passed(verdict_of(text, (4, [finding()]), (6, [finding(state="cleared")]), (8, [finding()])))

    def test_as_many_as_the_scenario_permits(self):
        text = STEP + EXPECT.replace('"link:s1>l2"', '"link:*"') + "at_most = 2\n"
        self.assert_passed(verdict_of(text, (4, [finding("a"), finding("b", subject="link:l2>s1")])))


if __name__ == "__main__":
    unittest.main()
