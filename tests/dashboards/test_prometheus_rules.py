"""Rules of dashboards/prometheus: lint, names, and each alert firing, quiet and clearing, by promtool."""

import dataclasses
import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from tests.dashboards import rule_files

STEP_S = 15
# Minutes: bad from START to END, good before and after.
START, FIRES, END, CLEAR, LENGTH = 20, 50, 60, 95, 100


def promtool(*arguments, **options):
    return subprocess.run(["promtool", *map(str, arguments)], text=True, capture_output=True, check=False, **options)


def steps(minutes):
    return minutes * 60 // STEP_S


def gauge(good, bad):
    """A value good, bad and good again; None is a series that is not there."""
    text = {None: "_"}
    parts = ((good, START), (bad, END - START), (good, LENGTH - END))
    return " ".join(f"{text.get(value, value)}x{steps(minutes) - 1}" for value, minutes in parts)


def always(value):
    return f"{value}x{steps(LENGTH) - 1}"


def counter(each=5):
    """A counter that grows only while it is bad."""
    grown = each * (steps(END - START) - 1)
    return f"0x{steps(START) - 1} 0+{each}x{steps(END - START) - 1} {grown}x{steps(LENGTH - END) - 1}"


def stopped(each=5):
    """A counter that grows but while it is bad."""
    first = each * (steps(START) - 1)
    return (f"0+{each}x{steps(START) - 1} {first}x{steps(END - START) - 1} "
            f"{first}+{each}x{steps(LENGTH - END) - 1}")


@dataclasses.dataclass
class Case:
    series: dict
    labels: dict
    values: dict = dataclasses.field(default_factory=dict)  # what $value is written as, by its template


AGENT = {"job": "weftd", "instance": "h1:9435"}
CENTRE = {"job": "weft-aggregator", "instance": "c:7470"}


def name(metric, labels, **more):
    inner = ",".join(f'{key}="{value}"' for key, value in {**labels, **more}.items())
    return f"{metric}{{{inner}}}"


CASES = {
    "WeftAgentDown": Case({name("up", AGENT): gauge(1, 0)}, AGENT),
    "WeftAgentsAbsent": Case({name("up", AGENT): gauge(1, None)}, {"job": "weftd"}),
    "WeftAgentsSilent": Case({name("weft_aggregator_agents", CENTRE, state="silent"): gauge(0, 3),
                              name("weft_aggregator_agents", CENTRE, state="stopped"): always(2)},
                             {**CENTRE, "state": "silent"}, {"$value": "3"}),
    "WeftStreamDown": Case({name("weft_stream_connected", AGENT): gauge(1, 0),
                            name("weft_stream_state", AGENT, state="inactive"): always(0),
                            name("weft_stream_state", AGENT, state="backoff"): gauge(0, 1),
                            name("up", CENTRE): always(1)}, AGENT),
    "WeftNothingProbed": Case({name("weft_probe_sent_total", AGENT, device="rxe0"): stopped(),
                               name("weft_probe_sent_total", AGENT, device="rxe1"): always(7),
                               name("weft_plan_revision", AGENT): always(4)}, AGENT),
    "WeftAggregatorDown": Case({name("up", CENTRE): gauge(1, 0)}, CENTRE),
    "WeftAggregatorAbsent": Case({name("up", CENTRE): gauge(1, None)}, {"job": "weft-aggregator"}),
    "WeftStoreNotAcknowledging": Case({name("weft_store_acknowledging", CENTRE): gauge(1, 0)}, CENTRE),
    "WeftStoreErrors": Case({name("weft_store_errors_total", CENTRE, reason="full"): counter(),
                             name("weft_store_errors_total", CENTRE, reason="other"): always(9)},
                            {**CENTRE, "reason": "full"}),
    "WeftCoverageLow": Case({name("weft_link_covered", CENTRE): gauge(100, 75),
                             name("weft_link_known", CENTRE): always(100)},
                            CENTRE, {"$value | humanizePercentage": "75%"}),
    "WeftJudgingSlow": Case({name("weft_judge_seconds", CENTRE): gauge(0.01, 0.75)}, CENTRE,
                            {"$value | humanizeDuration": "750ms"}),
    "WeftPageStale": Case({name("weft_page_age_seconds", AGENT): gauge(1, 90)}, AGENT,
                          {"$value | humanizeDuration": "1m 30s"}),
    "WeftRecordsDropped": Case({name("weft_stream_dropped_total", AGENT, **{"class": "samples"}): counter(),
                                name("weft_stream_dropped_total", AGENT, **{"class": "oversized"}): always(0)}, AGENT),
    "WeftRecordsRejected": Case({name("weft_stream_rejected_total", CENTRE, reason="foreign"): counter()},
                                {**CENTRE, "reason": "foreign"}),
    "WeftEvidenceDropped": Case({name("weft_localise_dropped_total", CENTRE): counter()}, CENTRE),
    "WeftSeriesOverflow": Case({name("weft_metrics_overflow_total", AGENT, family="weft_peer_sent_total"): counter()},
                               {**AGENT, "family": "weft_peer_sent_total"}),
    "WeftSamplesRefused": Case({name("weft_metrics_refused_total", AGENT): counter()}, AGENT),
    "WeftConfigRejected": Case({name("weft_config_rejected", CENTRE): gauge(0, 1)}, CENTRE),
}

# What looks alike and is no reason to wake anybody.
QUIET = {
    "an agent that was told of no aggregator": (
        "WeftStreamDown", {name("weft_stream_connected", AGENT): always(0),
                           name("weft_stream_state", AGENT, state="inactive"): always(1),
                           name("up", CENTRE): always(1)}),
    "streams that are down because the aggregator is": (
        "WeftStreamDown", {name("weft_stream_connected", AGENT): always(0),
                           name("weft_stream_state", AGENT, state="inactive"): always(0),
                           name("up", CENTRE): always(0)}),
    "the stream of another fabric's agent while that fabric's aggregator is down": (
        "WeftStreamDown", {name("weft_stream_connected", AGENT, fabric="b"): always(0),
                           name("weft_stream_state", AGENT, fabric="b", state="inactive"): always(0),
                           name("up", CENTRE, fabric="a"): always(1),
                           name("up", CENTRE, fabric="b", instance="d:7470"): always(0)}),
    "an agent without a plan": (
        "WeftNothingProbed", {name("weft_probe_sent_total", AGENT, device="rxe0"): always(0),
                              name("weft_plan_revision", AGENT): always(0)}),
    "a fabric of which no link is known yet": (
        "WeftCoverageLow", {name("weft_link_covered", CENTRE): always(0), name("weft_link_known", CENTRE): always(0)}),
    "one of two aggregators": (
        "WeftAggregatorAbsent", {name("up", CENTRE): always(1), name("up", CENTRE, instance="d:7470"): gauge(1, None)}),
    "one record dropped": (
        "WeftRecordsDropped", {name("weft_stream_dropped_total", AGENT, **{"class": "samples"}):
                               f"0x{steps(45)} 1x{steps(LENGTH - 45) - 2}"}),
}


def written(template, labels, values):
    def fill(match):
        what = match[1].strip()
        return labels[what.removeprefix("$labels.")] if what.startswith("$labels.") else values[what]

    return re.sub(r"\{\{(.*?)\}\}", fill, template)


def minutes_of(duration):
    return int(duration.removesuffix("m")) if duration else 0


def moment(minutes):
    return f"{round(minutes * 60)}s"


class Rules(unittest.TestCase):
    maxDiff = None

    def run_tests(self, tests):
        document = {"rule_files": [str(path) for path in rule_files.FILES], "evaluation_interval": f"{STEP_S}s",
                    "tests": [{"interval": f"{STEP_S}s", **test} for test in tests]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tests.yml"  # JSON is YAML
            path.write_text(json.dumps(document))
            done = promtool("test", "rules", path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @staticmethod
    def scenario(title, series, checks):
        return {"name": title, "input_series": [{"series": key, "values": value} for key, value in series.items()],
                "alert_rule_test": [{"eval_time": moment(at), "alertname": alert, "exp_alerts": wanted}
                                    for alert, at, wanted in checks]}

    def test_promtool_finds_nothing_to_say(self):
        done = promtool("check", "rules", "--lint=all", "--lint-fatal", *rule_files.FILES)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_alert_has_a_case(self):
        self.assertEqual(set(CASES) | {"WeftWatchdog"}, set(rule_files.alerts()))

    def test_each_alert_fires_not_too_soon_and_clears(self):
        tests = []
        for alert, rule in rule_files.alerts().items():
            if alert == "WeftWatchdog":
                continue
            case = CASES[alert]
            fired = {"exp_labels": {**case.labels, **rule["labels"]},
                     "exp_annotations": {key: written(text, case.labels, case.values)
                                         for key, text in rule["annotations"].items()}}
            too_soon = START + minutes_of(rule.get("for")) - 0.5
            tests.append(self.scenario(alert, case.series, [(alert, START - 1, []), (alert, too_soon, []),
                                                           (alert, FIRES, [fired]), (alert, CLEAR, [])]))
        self.run_tests(tests)

    def test_what_looks_alike_stays_quiet(self):
        self.run_tests([self.scenario(title, series, [(alert, at, []) for at in (5, 30, FIRES, CLEAR)])
                        for title, (alert, series) in QUIET.items()])

    def test_the_watchdog_always_fires(self):
        rule = rule_files.alerts()["WeftWatchdog"]
        fired = {"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}
        self.run_tests([self.scenario("watchdog", {"up": "0x10"}, [("WeftWatchdog", at, [fired]) for at in (0, 1, 600)])])

    def test_recorded_ratios_are_of_sums_and_nothing_sent_has_none(self):
        series = {name("weft_probe_sent_total", AGENT, device="rxe0"): "0+1500x20",
                  name("weft_probe_sent_total", AGENT, device="rxe1"): "0+300x20",
                  name("weft_probe_lost_total", AGENT, device="rxe0", direction="forward"): "0+15x20",
                  name("weft_probe_lost_total", AGENT, device="rxe0", direction="back"): "0+15x20",
                  name("weft_probe_lost_total", AGENT, device="rxe1", direction="forward"): "0+150x20",
                  name("weft_probe_sent_total", AGENT, device="rxe2"): "0x20",
                  name("weft_probe_lost_total", AGENT, device="rxe2", direction="forward"): "0x20",
                  name("weft_process_cpu_seconds_total", AGENT, mode="user"): "0+3x20",
                  name("weft_process_cpu_seconds_total", AGENT, mode="system"): "0+1.5x20",
                  name("weft_stream_connected", AGENT): "1x20",
                  name("weft_stream_connected", {**AGENT, "instance": "h2:9435"}): "0x20"}
        checks = [
            ("instance_device:weft_probe_lost:ratio_rate1m", [({**AGENT, "device": "rxe0"}, 0.02),
                                                              ({**AGENT, "device": "rxe1"}, 0.5)]),
            ("job:weft_probe_lost:ratio_rate1m", [({"job": "weftd"}, 0.1)]),
            ("instance:weft_process_cpu_seconds:rate5m", [(AGENT, 0.3)]),
            ("job:weft_stream_connected:avg", [({"job": "weftd"}, 0.5)]),
        ]
        self.run_tests([{
            "name": "recorded",
            "input_series": [{"series": key, "values": value} for key, value in series.items()],
            "promql_expr_test": [{"expr": f"round({record}, 0.0001)", "eval_time": "5m",
                                  "exp_samples": [{"labels": name("", labels), "value": value}
                                                  for labels, value in samples]}
                                 for record, samples in checks]}])

    def test_names_in_rules_are_exported_or_recorded(self):
        exported, recorded = rule_files.catalogue(), rule_files.recorded()
        self.assertGreater(len(exported), 40)
        for path in rule_files.FILES:
            for rule in rule_files.rules(path):
                plain, levels = rule_files.names_in(rule["expr"])
                self.assertEqual((plain - exported, levels - set(recorded)), (set(), set()), rule)

    def test_recorded_names_say_level_metric_and_operations(self):
        exported = rule_files.catalogue()
        for record in rule_files.recorded():
            level, metric, operations = record.split(":")
            self.assertRegex(level, r"^[a-z]+(_[a-z]+)*$")
            self.assertTrue({metric, f"{metric}_total"} & exported, record)
            self.assertRegex(operations, r"^(ratio|avg|rate\d+m|ratio_rate\d+m)$")

    def test_no_rule_looks_at_findings_for_those_page_by_themselves(self):
        for path in rule_files.FILES:
            for rule in rule_files.rules(path):
                self.assertNotIn("weft_finding", rule["expr"])

    def test_each_alert_says_how_bad_what_and_where_to_read_on(self):
        headings = {heading.lower() for heading in
                    re.findall(r"^## (\w+)$", (rule_files.ROOT / "docs/own-health.md").read_text(), re.M)}
        for alert, rule in rule_files.alerts().items():
            with self.subTest(alert=alert):
                self.assertIn(rule["labels"]["severity"], ("critical", "warning", "info"))
                self.assertEqual(set(rule["labels"]), {"severity"}, "other labels would be part of its identity")
                self.assertEqual(set(rule["annotations"]), {"summary", "description", "runbook_url"})
                self.assertEqual(rule["annotations"]["runbook_url"], f"docs/own-health.md#{alert.lower()}")
                self.assertIn(alert.lower(), headings)


if __name__ == "__main__":
    unittest.main()
