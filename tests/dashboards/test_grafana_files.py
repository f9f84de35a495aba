"""Dashboards as they are in the tree: rendered from their sources, by the rules, and the rules find what is broken."""

import copy
import functools
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tests import node
from tests.dashboards import grafana_files, grafana_rules
from tests.dashboards.grafana_files import FOLDER, RENDERED, ROOT

SOURCES = sorted(FOLDER.glob("*.jsonnet"))
LIBRARIES = sorted(FOLDER.glob("lib/*.libsonnet"))


@functools.cache
def known():
    library = node.run("dashboards", "grafana_library.mjs", {})
    return grafana_rules.Known(grafana_rules.exported(), set(library["units"]))


class Sources(unittest.TestCase):
    def test_what_is_rendered_is_what_the_sources_say(self):
        self.assertEqual({path.stem for path in SOURCES}, {path.stem for path in RENDERED.glob("*")})
        for source in SOURCES:
            with self.subTest(source=source.name):
                done = subprocess.run(["jsonnet", source], text=True, capture_output=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout, (RENDERED / f"{source.stem}.json").read_text(), "run tools/dashboards")

    def test_jsonnetfmt_changes_nothing(self):
        for path in (*SOURCES, *LIBRARIES):
            with self.subTest(path=path.name):
                done = subprocess.run(["jsonnetfmt", path], text=True, capture_output=True, check=True)
                self.assertEqual(done.stdout, path.read_text(), "run jsonnetfmt -i")

    def test_nothing_is_imported_but_our_own(self):
        for path in (*SOURCES, *LIBRARIES):
            for name in re.findall(r"import(?:str)? '([^']+)'", path.read_text()):
                self.assertTrue((path.parent / name).resolve().is_relative_to(FOLDER), f"{path.name} imports {name}")


class Command(unittest.TestCase):
    """tools/dashboards in a tree of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/dashboards", self.root / "tools")
        self.folder = self.root / "dashboards/grafana"
        (self.folder / "rendered").mkdir(parents=True)
        (self.folder / "rendered/gone.json").write_text("old")
        (self.folder / "one.jsonnet").write_text("{ a: 1 + 1 }")

    def run_it(self, *arguments):
        return subprocess.run([self.root / "tools/dashboards", *arguments], text=True, capture_output=True, check=False)

    def rendered(self):
        return {path.name: path.read_text() for path in (self.folder / "rendered").iterdir()}

    def test_a_source_that_is_broken_leaves_all_as_it_was(self):
        (self.folder / "two.jsonnet").write_text("{ a: ")
        done = self.run_it()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("two.jsonnet", done.stderr)
        self.assertEqual(self.rendered(), {"gone.json": "old"})

    def test_words_that_it_does_not_know_are_exit_2_and_help_is_exit_0(self):
        self.assertEqual(self.run_it("--all").returncode, 2)
        self.assertIn("usage: tools/dashboards", self.run_it("--help").stdout)
        self.assertEqual(self.rendered(), {"gone.json": "old"})

    def test_each_source_is_rendered_and_what_has_none_goes(self):
        self.assertEqual(self.run_it().returncode, 0)
        self.assertEqual(self.rendered(), {"one.json": '{\n   "a": 2\n}\n'})


class Rules(unittest.TestCase):
    maxDiff = None

    def complaints(self, dashboards):
        excepted = grafana_rules.exceptions()
        return [one for one in grafana_rules.complaints(dashboards, known())
                if not any(grafana_rules.excepts(exception, one) for exception in excepted)]

    def test_ours_keep_to_them(self):
        self.assertEqual([dashboard["uid"] for dashboard in grafana_files.dashboards()],
                         ["weft-agents", "weft-fabric", "weft-paths"])
        self.assertEqual(self.complaints(grafana_files.dashboards()), [])

    def test_each_exception_has_a_reason_and_is_needed(self):
        all_of_them = grafana_rules.complaints(grafana_files.dashboards(), known())
        for exception in grafana_rules.exceptions():
            with self.subTest(exception=exception):
                self.assertLessEqual(set(exception), {"dashboard", "rule", "place", "reason"})
                self.assertGreater(len(exception["reason"]), 20)
                self.assertTrue(any(grafana_rules.excepts(exception, one) for one in all_of_them))

    def broken(self, change, rule, text):
        """Expects complaints of this rule, with this text, and of no other when the dashboards are changed."""
        dashboards = copy.deepcopy(grafana_files.dashboards())
        change({one["uid"]: one for one in dashboards})
        found = self.complaints(dashboards)
        self.assertEqual({one.rule for one in found}, {rule}, found)
        self.assertTrue(any(text in one.text for one in found), found)

    def replaced(self, old, new, uid="weft-agents"):
        """A change of the text of a dashboard's queries."""
        def change(dashboards):
            count = 0
            for panel in grafana_files.panels(dashboards[uid]):
                for target in panel["targets"]:
                    count += target["expr"].count(old)
                    target["expr"] = target["expr"].replace(old, new)
            self.assertGreater(count, 0, f"{old} stands nowhere")
        return change

    @staticmethod
    def first(dashboard, kind):
        return next(panel for panel in grafana_files.panels(dashboard) if panel["type"] == kind)

    def test_a_metric_or_label_that_nobody_exports_is_found(self):
        self.broken(self.replaced("weft_agent_limitations", "weft_agent_limits"), "metric", "weft_agent_limits")
        self.broken(self.replaced("severity=", "level=", "weft-fabric"), "label", "no label level")

    def test_promql_that_cannot_be_read_is_found(self):
        self.broken(self.replaced("[$__rate_interval])", "[$__rate_interval]"), "promql", "cannot be read")

    def test_a_raw_counter_and_a_range_of_ones_own_are_found(self):
        raw = self.replaced("rate(weft_probe_answered_total{", "abs(weft_probe_answered_total{")

        def change(dashboards):
            raw(dashboards)
            for panel in grafana_files.panels(dashboards["weft-agents"]):
                for target in panel["targets"]:
                    if "weft_probe_answered_total" in target["expr"]:
                        target["expr"] = target["expr"].replace("[$__rate_interval]", "")

        self.broken(change, "counter", "weft_probe_answered_total is a counter")
        self.broken(self.replaced("$__rate_interval", "5m"), "rate-interval", "5m")

    def test_a_query_that_is_not_held_to_job_and_instance_is_found(self):
        self.broken(self.replaced('job=~"$job",', "", "weft-fabric"), "target-job", "not held to job")
        self.broken(self.replaced('instance=~"$instance",', ""), "target-instance", "not held to instance")

    def test_an_unknown_unit_and_a_missing_one_are_found(self):
        def unknown(dashboards):
            self.first(dashboards["weft-agents"], "timeseries")["fieldConfig"]["defaults"]["unit"] = "probes"

        def missing(dashboards):
            del self.first(dashboards["weft-agents"], "timeseries")["fieldConfig"]["defaults"]["unit"]

        def of_a_column(dashboards):
            self.first(dashboards["weft-paths"], "table")["fieldConfig"]["overrides"].pop()

        self.broken(unknown, "panel-units", "'probes'")
        self.broken(missing, "panel-units", "no unit")
        self.broken(of_a_column, "panel-units", "Value #F")

    def test_a_panel_without_words_data_source_or_query_is_found(self):
        for key in ("title", "description"):
            self.broken(lambda dashboards, k=key: self.first(dashboards["weft-paths"], "stat").update({k: ""}),
                        f"panel-{key}", "missing")
        self.broken(lambda dashboards: self.first(dashboards["weft-paths"], "stat").update(datasource={"uid": "mine"}),
                    "panel-datasource", "data source")
        self.broken(lambda dashboards: self.first(dashboards["weft-paths"], "stat").update(targets=[]),
                    "panel-targets", "nothing")

    def test_grafana_43530_and_89085_and_39467_a_uid_or_title_that_is_twice_is_found(self):
        def twice(key):
            return lambda dashboards: dashboards["weft-paths"].update({key: dashboards["weft-agents"][key]})

        self.broken(twice("title"), "unique-title", "twice")
        dashboards = copy.deepcopy(grafana_files.dashboards())
        twice("uid")({one["uid"]: one for one in dashboards})
        self.assertIn("unique-uid", {one.rule for one in self.complaints(dashboards)})

    def test_variables_that_choose_too_little_are_found(self):
        def variable(uid, name, **change):
            return lambda dashboards: grafana_files.variables(dashboards[uid])[name].update(change)

        self.broken(variable("weft-agents", "host", refresh=1), "template-refresh", "time range")
        self.broken(variable("weft-agents", "host", multi=False), "template-several", "one")
        self.broken(variable("weft-agents", "host", allValue=""), "template-several", "every value")
        self.broken(variable("weft-agents", "datasource", query="loki"), "template-datasource", "exactly one")
        self.broken(self.replaced("$host", "$hsot"), "variables", "used and not there")

    def test_links_that_lead_nowhere_or_lose_something_are_found(self):
        def link(change):
            def apply(dashboards):
                next(one for panel in grafana_files.panels(dashboards["weft-paths"])
                     for one in grafana_files.links(panel)).update(change)
            return apply

        self.broken(link({"url": "/d/weft-path?x=1"}), "links", "no dashboard of ours")
        self.broken(link({"url": "/d/weft-agents?${datasource:queryparam}&${fabric:queryparam}&${job:queryparam}"
                                 "&${aggregator:queryparam}&var-host=h1"}), "links", "loses the time range")
        self.broken(link({"url": "/d/weft-agents?${__url_time_range}&${datasource:queryparam}&${job:queryparam}"
                                 "&${aggregator:queryparam}&var-who=h1"}), "links", "sets who")

    def test_a_dashboard_that_can_be_edited_or_overlaps_itself_is_found(self):
        self.broken(lambda dashboards: dashboards["weft-paths"].update(editable=True), "dashboard", "True")
        self.broken(lambda dashboards: dashboards["weft-paths"]["panels"][1]["gridPos"].update(y=0, x=0), "layout", "lies over")
        self.broken(lambda dashboards: dashboards["weft-paths"]["panels"][1].update(id=1), "layout", "one id")


if __name__ == "__main__":
    unittest.main()
