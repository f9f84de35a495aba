"""Dashboards as Grafana's own packages take them: types, units, value formats, words for values, transformations, links."""

import copy
import unittest

from tests import node
from tests.dashboards import grafana_files

SAMPLES = {  # as people read them
    ("percentunit", 1, 0.153): "15.3%", ("percentunit", 2, 0.0004): "0.04%", ("s", None, 0.00012): "120 µs",
    ("s", None, 0.0213): "21.3 ms", ("s", None, 95): "1.58 mins", ("pps", None, 1234): "1.23 kp/s",
    ("cps", None, 3): "3 c/s", ("bytes", None, 123456): "121 KiB", ("none", None, 17): "17",
}
VARIABLES = {name: ["x"] for name in ("datasource", "fabric", "job", "aggregator")}


def panel(uid, title):
    dashboard = next(one for one in grafana_files.dashboards() if one["uid"] == uid)
    return next(one for one in grafana_files.panels(dashboard) if one["title"] == title)


def row(value, **labels):
    return {"labels": labels, "values": [[1000, value]]}


def drawn(one, *answers):
    """The only frame that Grafana makes of these answers to the queries of a panel, by the name a column is shown by."""
    asked = [{"panel": one, "variables": VARIABLES, "answers": answers}]
    (frame,) = node.run("dashboards", "grafana_library.mjs", {"panels": asked})["panels"][0]
    return {field["shown"]: field for field in frame["fields"]}


def texts(field):
    return [cell["text"] for cell in field["rows"]]


class Types(unittest.TestCase):
    def test_ours_are_of_the_types_of_the_schema(self):
        dashboards = grafana_files.dashboards()
        said = node.run("dashboards", "grafana_types.mjs", dashboards)
        self.assertEqual(dict(zip([one["uid"] for one in dashboards], said)), {one["uid"]: [] for one in dashboards})

    def test_a_wrong_type_and_a_key_that_is_none_are_told(self):
        dashboard = copy.deepcopy(grafana_files.dashboards()[0])
        hosts = next(one for one in dashboard["panels"] if one["type"] == "table")
        timeline = next(one for one in dashboard["panels"] if one["type"] == "state-timeline")
        timeline["options"]["rowHigh"] = 1
        hosts["options"]["cellHeight"] = "tiny"
        hosts["fieldConfig"]["defaults"]["decimals"] = "2"
        dashboard["graphTooltip"] = "shared"
        dashboard["annotations"]["list"][0]["enabled"] = True
        (said,) = node.run("dashboards", "grafana_types.mjs", [dashboard])
        for text in ('dashboard: Type \'string\' is not assignable to type \'DashboardCursorSync', 'Findings: ',
                     'Hosts: Type \'"tiny"\'', 'Hosts: Type \'string\' is not assignable to type \'number'):
            self.assertTrue(any(line.startswith(text) for line in said), (text, said))
        self.assertTrue(any("rowHigh" in line for line in said), said)
        self.assertEqual(len(said), 5, said)


class Formats(unittest.TestCase):
    def test_values_read_as_people_expect(self):
        said = node.run("dashboards", "grafana_library.mjs", {"samples": list(SAMPLES)})
        self.assertEqual(dict(zip(SAMPLES, said["formatted"])), SAMPLES)

    def test_every_unit_that_is_used_has_a_sample(self):
        used = {unit for dashboard in grafana_files.dashboards() for one in grafana_files.panels(dashboard)
                for unit in grafana_files.fields_of(one, "unit").values()}
        self.assertEqual(used, {unit for unit, _, _ in SAMPLES})


class Drawn(unittest.TestCase):
    """Made-up answers, through Grafana's own transformations, overrides and words."""

    def test_the_mesh_is_a_matrix_whose_cells_lead_to_their_paths(self):
        answer = [row(0.153 if (one, other) == ("l1", "l2") else 0, from_leaf=one, to_leaf=other)
                  for one in ("l1", "l2") for other in ("l1", "l2")]
        matrix = drawn(panel("weft-fabric", "Loss"), answer)
        self.assertEqual(list(matrix), ["from \\ to", "l1", "l2"])
        self.assertEqual(texts(matrix["from \\ to"]), ["l1", "l2"])
        self.assertEqual((texts(matrix["l1"]), texts(matrix["l2"])), (["0.0%", "0.0%"], ["15.3%", "0.0%"]))
        sick, well = matrix["l2"]["rows"]
        self.assertNotEqual(sick["color"], well["color"])
        self.assertEqual(matrix["l2"]["custom"]["cellOptions"]["type"], "color-background")
        self.assertEqual([link["url"] for link in sick["links"]], [
            "/d/weft-paths?from=1&to=2&var-datasource=x&var-fabric=x&var-job=x&var-aggregator=x"
            "&var-from_place=l1&var-to_place=l2"])
        self.assertEqual(matrix["from \\ to"]["rows"][0]["links"], [])

    def test_a_pair_of_leaves_without_probes_is_an_empty_cell_and_not_zero(self):
        matrix = drawn(panel("weft-fabric", "Round trip"), [row(0.0002, from_leaf="l1", to_leaf="l2"),
                                                           row(0.0003, from_leaf="l2", to_leaf="l1")])
        self.assertEqual((texts(matrix["l1"]), texts(matrix["l2"])), (["", "300.0 µs"], ["200.0 µs", ""]))

    def test_findings_say_their_severity_and_lead_to_the_places_that_show_them(self):
        labels = {"kind": "link_loss", "subject": "link:s1>l2", "severity": "critical", "from_place": "All", "to_place": "l2"}
        table = drawn(panel("weft-fabric", "Active findings"), [row(3, **labels)])
        self.assertEqual(list(table), ["severity", "kind", "subject", "from", "to"])
        self.assertEqual(texts(table["severity"]), ["critical"])
        (link,) = table["subject"]["rows"][0]["links"]
        self.assertTrue(link["url"].endswith("&var-from_place=All&var-to_place=l2"), link)
        timeline = drawn(panel("weft-fabric", "Findings over time"), [row(3, **labels)])
        self.assertEqual(texts(timeline["link_loss link:s1>l2"]), ["critical"])
        self.assertTrue(timeline["link_loss link:s1>l2"]["rows"][0]["links"][0]["url"].endswith("&var-to_place=l2"))

    def test_what_is_asked_of_a_pair_is_one_row_and_its_hosts_lead_to_their_agents(self):
        pair = {"from_host": "h1", "endpoint": "h1/rxe0", "to_host": "h3", "peer": "h3/rxe0"}
        other = {"from_host": "h1", "endpoint": "h1/rxe0", "to_host": "h4", "peer": "h4/rxe0"}
        answers = [[row(0.0002, **pair), row(0.0004, **other)], [row(0.03, **pair)], [row(0, **pair)], [row(0, **pair)],
                   [row(0.5, **other)], []]
        table = drawn(panel("weft-paths", "Pairs"), *answers)
        self.assertEqual(list(table)[:4], ["from", "port", "to", "port of the peer"])
        self.assertEqual(texts(table["round trip"]), ["200 µs", "400 µs"])
        self.assertEqual(texts(table["lost there"]), ["3%", ""])
        self.assertEqual(texts(table["marked there"]), ["", "50%"])
        (link,) = table["to"]["rows"][1]["links"]
        self.assertEqual(link["title"], "weftd of h4")
        self.assertTrue(link["url"].startswith("/d/weft-agents?") and link["url"].endswith("&var-host=h4"), link)

    def test_hosts_say_what_they_cannot_measure_and_whether_their_stream_is_up(self):
        info = {"host": "h1", "instance": "h1:9435", "version": "0.1.0", "kernel": "6.1.0"}
        table = drawn(panel("weft-agents", "Hosts"), [row(1, **info)], [row(2, host="h1")], [row(0, host="h1")],
                      [row(100, host="h1")], [row(0.02, host="h1")], [row(0.25, host="h1")])
        self.assertEqual({name: texts(field) for name, field in table.items()}, {
            "host": ["h1"], "cannot measure": ["2"], "stream": ["down"], "probes": ["100 p/s"], "CPU": ["2%"],
            "CPU pressure": ["25%"], "version": ["0.1.0"], "kernel": ["6.1.0"], "instance": ["h1:9435"]})


class Provisioning(unittest.TestCase):
    def setUp(self):
        folder = grafana_files.FOLDER / "provisioning"
        paths = [folder / "datasources/weft.yaml", folder / "dashboards/weft.yaml"]
        self.datasources, self.dashboards = node.run("dashboards", "yaml.mjs", [path.read_text() for path in paths])

    def test_the_data_source_is_one_that_the_dashboards_offer_and_not_a_second_default(self):
        self.assertEqual(self.datasources["apiVersion"], 1)
        (source,) = self.datasources["datasources"]
        self.assertEqual((source["type"], source["isDefault"]), ("prometheus", False))
        example = (grafana_files.ROOT / "packaging/config/prometheus.yml").read_text()
        self.assertIn(f"scrape_interval: {source['jsonData']['timeInterval']}", example)

    def test_the_provider_reads_the_folder_that_they_are_installed_in(self):
        self.assertEqual(self.dashboards["apiVersion"], 1)
        (provider,) = self.dashboards["providers"]
        self.assertEqual((provider["type"], provider["allowUiUpdates"]), ("file", False))
        build = (grafana_files.ROOT / "packaging/meson.build").read_text()
        self.assertIn("get_option('datadir') / 'weft/grafana/dashboards'", build)
        self.assertEqual(provider["options"]["path"], "/usr/share/weft/grafana/dashboards")
        for path in grafana_files.RENDERED.glob("*"):
            self.assertIn(f"'../dashboards/grafana/rendered/{path.name}'", build)


if __name__ == "__main__":
    unittest.main()
