"""Every query of every dashboard, asked of a real Prometheus that scrapes the real programs; and the way by two clicks."""

import copy
import unittest

from tests import node
from tests.dashboards import grafana_files
from tests.dashboards.grafana_questions import ALL, Questions, chosen_by, unanswered
from tests.dashboards.live_fabric import LiveFabric
from tests.dashboards.test_grafana_library import panel


class Live(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.fabric = cls.enterClassContext(LiveFabric())
        cls.now = cls.fabric.scraped()
        cls.dashboards = {one["uid"]: one for one in grafana_files.dashboards()}

    def questions(self, uid, prometheus=None, **chosen):
        return Questions(prometheus or self.fabric.prometheus, self.dashboards[uid], self.now, chosen)

    def drawn(self, uid, title, **chosen):
        """What the library makes of a panel's answers now: {name of a field: its rows}, of all frames."""
        questions = self.questions(uid, **chosen)
        one = panel(uid, title)
        asked = {"panel": one, "variables": questions.values, "answers": questions.answers(one)}
        (frames,) = node.run("dashboards", "grafana_library.mjs", {"panels": [asked]})["panels"]
        return {field["shown"]: field["rows"] for frame in frames for field in frame["fields"]}

    def test_every_variable_offers_values_and_every_query_has_an_answer_that_its_panel_can_show(self):
        for uid in self.dashboards:
            with self.subTest(dashboard=uid):
                self.assertEqual(unanswered(self.questions(uid)), [])

    def test_what_is_offered_is_what_there_is(self):
        offered = self.questions("weft-paths").offered
        self.assertEqual((offered["fabric"], offered["job"]), (["lab"], ["weft-aggregator", "weftd"]))
        self.assertEqual(offered["from_place"], ["a1", "a2", "l1", "l2", "l3"])
        offered = self.questions("weft-agents", host=["a2"]).offered
        self.assertEqual(offered["host"], ["a1", "a2"])
        self.assertEqual(offered["instance"], [f"127.0.0.1:{self.fabric.agents[1].metrics_port}"])

    def test_a_choice_of_one_or_of_several_holds_every_panel_to_it(self):
        for chosen in ({"from_place": ["a1"]}, {"from_place": ["l1"], "to_place": ["l2", "l3"]}, {"to_place": ["a2", "h1"]}):
            with self.subTest(chosen=chosen):
                self.assertEqual(unanswered(self.questions("weft-paths", **chosen)), [])
                rows = self.drawn("weft-paths", "Pairs", **chosen)
                self.assertEqual([cell["text"] for cell in rows["from"]], ["a1"])
        self.assertEqual(self.drawn("weft-paths", "Pairs", from_place=["l3"]), {})
        self.assertEqual([cell["text"] for cell in self.drawn("weft-agents", "Hosts", host=["a2"])["host"]], ["a2"])

    def test_paths_are_shown_with_no_aggregator(self):
        questions = self.questions("weft-paths", self.fabric.of_agents_only)
        self.assertEqual(questions.offered["from_place"], ["a1", "a2"])
        self.assertEqual(unanswered(questions), [("variable aggregator", "offers nothing")])
        self.assertEqual(unanswered(self.questions("weft-paths", self.fabric.of_agents_only, from_place=["a1"], to_place=["a2"])),
                         [("variable aggregator", "offers nothing")])

    def test_with_no_aggregator_nobody_says_that_nothing_was_found(self):
        findings = panel("weft-fabric", "Findings now")
        self.assertEqual(self.questions("weft-fabric", self.fabric.of_agents_only).answers(findings), [[], [], []])
        self.assertEqual([rows[0]["values"][0][1] for rows in self.questions("weft-fabric").answers(findings)], [1, 1, 0])

    def test_from_a_cell_of_the_mesh_two_clicks_lead_to_the_agent(self):
        row, column = "l1", "l2"
        cells = self.drawn("weft-fabric", "Loss")
        at = [cell["text"] for cell in cells["from \\ to"]].index(row)
        sick = cells[column][at]
        self.assertGreater(sick["raw"], 0.01)
        self.assertNotEqual(sick["color"], cells["l3"][at]["color"])
        self.follow(sick, "weft-paths", {"from_place": ["l1"], "to_place": ["l2"]})
        host = self.drawn("weft-paths", "Pairs", from_place=["l1"], to_place=["l2"])["from"][0]
        self.follow(host, "weft-agents", {"host": ["a1"]})

    def test_a_finding_leads_to_the_paths_that_show_it(self):
        found = self.drawn("weft-fabric", "Active findings")
        wanted = {f"link:{self.fabric.SICK}": ("critical", [ALL], ["l2"]), "host:h3": ("warning", ["h3"], [ALL])}
        for subject, (severity, start, end) in wanted.items():
            at = [cell["text"] for cell in found["subject"]].index(subject)
            self.assertEqual(found["severity"][at]["text"], severity)
            uid, chosen = chosen_by(found["subject"][at]["links"][0]["url"])
            self.assertEqual((uid, chosen["from_place"], chosen["to_place"]), ("weft-paths", start, end))
        at = [cell["text"] for cell in found["subject"]].index(f"link:{self.fabric.SICK}")
        self.follow(found["subject"][at], "weft-paths", {"to_place": ["l2"]})

    def follow(self, cell, uid, wanted):
        """Clicks on a cell: where it leads, with what chosen, and every panel there has an answer."""
        there, chosen = chosen_by(cell["links"][0]["url"])
        self.assertEqual(there, uid)
        for name, values in wanted.items():
            self.assertEqual(chosen[name], values)
        self.assertEqual(chosen["aggregator"], [f"127.0.0.1:{self.fabric.aggregator.ports[1]}"])
        self.assertEqual(unanswered(self.questions(uid, **chosen)), [])

    def test_findings_are_annotations_while_they_are_active(self):
        for uid, dashboard in self.dashboards.items():
            (annotation,) = dashboard["annotations"]["list"]
            rows = self.questions(uid).asked(annotation["target"])
            self.assertIn(("link_loss", f"link:{self.fabric.SICK}", "critical"),
                          [(row["labels"]["kind"], row["labels"]["subject"], row["labels"]["severity"]) for row in rows])

    def test_a_query_without_an_answer_or_without_a_label_is_told(self):
        dashboard = copy.deepcopy(self.dashboards["weft-agents"])
        by_title = {one["title"]: one for one in grafana_files.panels(dashboard)}
        of_nobody = by_title["Probes answered"]["targets"][0]
        of_nobody["expr"] = of_nobody["expr"].replace("weft_probe_answered_total", "weft_probe_answers_total")
        by_title["CPU pressure"]["targets"][0]["legendFormat"] = "{{host}} {{rail}}"
        grafana_files.variables(dashboard)["host"]["query"]["query"] = 'label_values(weft_agent_info{job=~"$job"}, name)'
        said = unanswered(Questions(self.fabric.prometheus, dashboard, self.now))
        self.assertEqual(said[:2], [("variable host", "offers nothing"), ("Probes answered A", "no data")])
        self.assertRegex(said[2][1], "^no label rail in ")
        self.assertEqual({place for place, _ in said}, {"variable host", "Probes answered A", "CPU pressure A"})


if __name__ == "__main__":
    unittest.main()
