"""Scenario files: what is read, and that every mistake is refused with its place."""

import tempfile
import unittest
from pathlib import Path

from lab import scenario
from lab.scenario import ScenarioError, parse
from lab.topology import Topology

GOOD = """description = "loss"
duration = 40

[[step]]
at = 3
on = "s1"
run = "tc qdisc replace dev s1-l2 root netem loss 20%"
undo = "tc qdisc del dev s1-l2 root"

[[expect]]
kind = "link_loss"
subject = ["link:s1>l2", "link:*"]
within = 15
"""


def read(text: str) -> scenario.Scenario:
    return parse(text, Path("mine.toml"))


class Refused(unittest.TestCase):
    def refuse(self, text: str, *wanted: str) -> None:
        with self.assertRaises(ScenarioError) as caught:
            read(text)
        for part in wanted:
            self.assertIn(part, str(caught.exception))
        self.assertEqual(caught.exception.exit_code, 2)

    def test_broken_toml_says_where(self):
        self.refuse("duration = \n", "mine.toml", "line 1")

    def test_unknown_key_at_the_top_says_line(self):
        self.refuse("duration = 5\ncolour = 1\n", "mine.toml:2", "'colour'")

    def test_unknown_key_in_the_second_step_says_its_line(self):
        text = GOOD + '\n[[step]]\nat = 4\non = "h1"\nrun = "true"\nundoo = "x"\n'
        self.refuse(text, "mine.toml:19", "'undoo'", "[[step]] 2")

    def test_unknown_table_says_its_line(self):
        self.refuse(GOOD + "\n[extra]\na = 1\n", "mine.toml:15", "'extra'")

    def test_wrong_type_says_what_is_right(self):
        self.refuse(GOOD.replace("at = 3", 'at = "3"'), "mine.toml:5", "at must be a whole number or a number")

    def test_true_is_no_number(self):
        self.refuse(GOOD.replace("within = 15", "within = true"), "mine.toml:13", "within")

    def test_missing_key_points_at_its_table(self):
        self.refuse(GOOD.replace("within = 15\n", ""), "mine.toml:10", "within is missing")

    def test_step_with_run_and_action(self):
        self.refuse(GOOD.replace("at = 3", 'at = 3\naction = "link_down"'), "either run or action")

    def test_unknown_action_lists_the_known(self):
        self.refuse('[[step]]\nat = 1\naction = "unplug"\n', "mine.toml:3", "link_down", "agent_stop")

    def test_action_without_its_parameter(self):
        self.refuse('[[step]]\nat = 1\naction = "link_down"\n', "needs link")

    def test_signal_that_is_none(self):
        self.refuse('[[step]]\nat = 1\non = "h1"\naction = "agent_signal"\nsignal = "9"\n', "mine.toml:5", "STOP")

    def test_run_without_a_place(self):
        self.refuse('[[step]]\nat = 1\nrun = "true"\n', "on is missing")

    def test_two_injections(self):
        step = '[[step]]\nat = 1\non = "h1"\nrun = "true"\ninject = true\n'
        self.refuse(step + step, "only one step")

    def test_duration_shorter_than_what_must_be_seen(self):
        self.refuse(GOOD.replace("duration = 40", "duration = 10"), "mine.toml:2", "from 18")

    def test_no_steps_and_no_duration_is_no_scenario_of_zero_seconds_unnoticed(self):
        self.refuse("duration = 0\n", "needs a duration")

    def test_negative_second(self):
        self.refuse(GOOD.replace("at = 3", "at = -3"), "mine.toml:5", "from 0")

    def test_bad_regular_expression(self):
        self.refuse('duration=9\n[[check]]\non = "h1"\nrun = "true"\nat = 1\noutput = "("\n', "mine.toml:6")

    def test_bad_severity(self):
        self.refuse('duration = 5\n[forbid]\nseverity = "bad"\n', "mine.toml:3", "info, warning, critical, none")

    def test_held_and_cleared_contradict(self):
        self.refuse(GOOD + "held = true\ncleared_by = 30\n", "held and cleared")

    def test_name_that_does_not_exist_lists_what_does(self):
        with self.assertRaisesRegex(ScenarioError, "spine-loss"):
            scenario.find("no-such-fault")

    def test_path_that_does_not_exist(self):
        with self.assertRaisesRegex(ScenarioError, "/nowhere/x.toml"):
            scenario.find("/nowhere/x.toml")

    def test_file_that_is_not_text(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.toml"
            path.write_bytes(b"\xff\xfe")
            with self.assertRaises(ScenarioError):
                scenario.load(path)


class DoesNotFit(unittest.TestCase):
    def refuse(self, text: str, wanted: str, topology: Topology | None = None) -> None:
        with self.assertRaisesRegex(ScenarioError, wanted):
            read(text).check_fits(topology or Topology(4, 2, 2))

    def test_too_few_spines(self):
        self.refuse(GOOD + "\n[needs]\nspines = 2\n", "needs 2 spines, the lab has 1", Topology(4, 2, 1))

    def test_unknown_place(self):
        self.refuse(GOOD.replace('"s1"', '"s9"', 1), "'s9'")

    def test_unknown_link(self):
        self.refuse('[[step]]\nat = 1\naction = "link_down"\nlink = "h3-l9"\n', "no link h3-l9")

    def test_agent_action_on_a_switch(self):
        self.refuse('[[step]]\nat = 1\non = "s1"\naction = "agent_stop"\n', "for a host")

    def test_config_of_a_host_that_is_not_there(self):
        self.refuse('duration = 5\n[config.host.h9.probe]\nx = 1\n', "h9")


class Read(unittest.TestCase):
    def test_all_of_it(self):
        s = read(GOOD)
        self.assertEqual((s.name, s.duration, s.steps[0].undo), ("mine", 40.0, ("tc qdisc del dev s1-l2 root",)))
        self.assertEqual(s.expects[0].subjects, ("link:s1>l2", "link:*"))
        self.assertEqual((s.forbid.severity, s.forbid.kinds), ("warning", ("*",)))
        s.check_fits(Topology())

    def test_duration_follows_from_what_must_be_seen(self):
        self.assertEqual(read(GOOD.replace("duration = 40\n", "")).duration, 3 + 15 + 5)

    def test_options_become_the_daemons_setup(self):
        s = read(
            "duration = 5\n[options]\nno_topology = true\ndefault_icmp_limit = true\n"
            "[config.agent.probe]\nlanes = 8\n[config.host.h2.probe]\nlanes = 2\n"
            "[config.aggregator.judge]\nwindow = 1\n"
        )
        self.assertFalse(s.setup.topology_file)
        self.assertTrue(s.setup.icmp_limit)
        self.assertEqual(s.setup.agent, {"probe": {"lanes": 8}})
        self.assertEqual(s.setup.hosts, {"h2": {"probe": {"lanes": 2}}})
        self.assertEqual(s.setup.aggregator, {"judge": {"window": 1}})

    def test_every_shipped_scenario_fits_the_default_lab(self):
        self.assertGreaterEqual(len(scenario.names()), 12)
        for name in scenario.names():
            with self.subTest(name):
                s = scenario.load(scenario.find(name))
                s.check_fits(Topology())
                self.assertTrue(s.description)
                self.assertEqual(s.name, name)

    def test_the_example_of_the_readme_is_a_scenario(self):
        readme = (Path(scenario.__file__).parent / "README.md").read_text()
        example = readme.split("```toml\n", 1)[1].split("```", 1)[0]
        parse(example, Path("readme.toml")).check_fits(Topology())


if __name__ == "__main__":
    unittest.main()
