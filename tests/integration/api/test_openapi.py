"""docs/openapi.json and the aggregator that serves what it describes, held against each other."""

import http.client
import json
import pathlib
import re
import tempfile
import unittest
import urllib.parse

from tests.integration.aggregator_support import ROOT, Aggregator, FakeAgents, wait_for
from tests.integration.api.schema import Checker
from tests.integration.made_up_fabric import MadeUpFabric, Reporter

DOCUMENT = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
CHECKER = Checker(DOCUMENT)

# What no parameter of the name takes.
BAD = {
    "state": "open", "since": "yesterday", "until": "-5m", "kind": "link_loss,nonsense", "severity": "fatal",
    "subject": "*" * 9, "job": "", "limit": "0", "cursor": "xyz", "from": "", "to": "x" * 801, "group": "rack",
    "host": "", "detail": "all", "Last-Event-ID": "soon",
}


def operations():
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def parameters(operation):
    return [CHECKER.resolve(p) for p in operation.get("parameters", [])]


def values(operation, place):
    return {p["name"]: p for p in parameters(operation) if p["in"] == place}


class Examples(unittest.TestCase):
    def test_every_example_is_as_its_schema_says(self):
        seen = 0
        for method, path, operation in operations():
            for status, response in operation["responses"].items():
                for kind, content in CHECKER.resolve(response)["content"].items():
                    with self.subTest(f"{method} {path} {status} {kind}"):
                        self.assertEqual(CHECKER.problems(content["example"], content["schema"]), [])
                        seen += 1
            for parameter in parameters(operation):
                if "example" in parameter:
                    with self.subTest(f"{method} {path} {parameter['name']}"):
                        self.assertEqual(CHECKER.problems(parameter["example"], parameter["schema"]), [])
        self.assertGreater(seen, 20)

    def test_every_schema_is_used_and_operation_ids_differ(self):
        text = json.dumps(DOCUMENT)
        for part in ("schemas", "parameters", "responses"):
            for name in DOCUMENT["components"][part]:
                self.assertIn(f'"#/components/{part}/{name}"', text)
        ids = [operation["operationId"] for _, _, operation in operations()]
        self.assertEqual(len(ids), len(set(ids)))


class Served(unittest.TestCase):
    """One fabric with a lossy link: every route is asked for real."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="weft-api-")
        cls.addClassCleanup(folder.cleanup)
        fabric = MadeUpFabric(hosts=6, leaves=3)
        topology, config = pathlib.Path(folder.name, "topology.toml"), pathlib.Path(folder.name, "a.toml")
        topology.write_text(fabric.topology())
        config.write_text(f'[fabric]\nname = "lab"\ntopology_file = "{topology}"\n')
        cls.server = Aggregator(folder.name, config=config)
        cls.addClassCleanup(cls.server.stop)
        agents = FakeAgents(cls.server.grpc)
        cls.addClassCleanup(agents.stop)
        fabric.loss["s1>l2"] = 0.3
        cls.addClassCleanup(Reporter(fabric, agents).close)

    def setUp(self):
        self.finding = wait_for("the finding", lambda: self.server.get(
            "/api/v1/findings?kind=link_loss&state=active")["findings"])[0]

    def ask(self, method, path, query=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.ports[1], timeout=30)
        self.addCleanup(connection.close)
        if query:
            path += "?" + urllib.parse.urlencode(query)
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        kind = answer.headers.get_content_type()
        if kind == "text/event-stream":
            return answer, None
        return answer, answer.read()

    def fill(self, path, operation):
        ids = {"/api/v1/findings": self.finding["id"], "/api/v1/hosts": "h1", "/console": "main.js"}
        return re.sub(r"(.*)/\{id\}", lambda m: f"{m[1]}/{ids[m[1]]}", path) if values(operation, "path") else path

    def check(self, method, path, operation, status, query=None, headers=None):
        answer, body = self.ask(method, path, query, headers)
        self.assertEqual(answer.status, status, (body or b"")[:300])
        described = CHECKER.resolve(operation["responses"][str(status)])
        kind = answer.headers.get_content_type()
        self.assertIn(kind, described["content"])
        for header in described.get("headers", {}):
            self.assertIn(header, answer.headers)
        if kind.endswith("json"):
            document = json.loads(body)
            self.assertEqual(CHECKER.problems(document, described["content"][kind]["schema"]), [])
            return document
        return None

    def test_the_server_knows_what_the_file_says_and_nothing_else(self):
        answer, body = self.ask("GET", "/nowhere")
        self.assertEqual(answer.status, 404)
        self.assertEqual(answer.headers.get_content_type(), "application/problem+json")
        described = [f"{method} {path}" for method, path, _ in operations()]
        self.assertEqual(sorted(json.loads(body)["known"]), sorted(described))

    def test_every_route_answers_as_described_with_every_example_of_its_parameters(self):
        for method, path, operation in operations():
            if path.endswith("/clear"):
                continue  # last of all, below
            url = self.fill(path, operation)
            with self.subTest(f"{method} {path}"):
                self.check(method, url, operation, 200)
            for name, parameter in values(operation, "query").items():
                if "example" not in parameter:
                    continue
                with self.subTest(f"{method} {path} {name}"):
                    self.check(method, url, operation, 200, {name: parameter["example"]})
            if values(operation, "header"):
                headers = {n: str(p["example"]) for n, p in values(operation, "header").items()}
                self.check(method, url, operation, 200, headers=headers)
        clear = DOCUMENT["paths"]["/api/v1/findings/clear"]["post"]
        self.assertGreaterEqual(self.check("POST", "/api/v1/findings/clear", clear, 200)["cleared"], 1)

    def test_every_parameter_given_a_bad_value_twice_or_unknown_is_refused_by_name(self):
        for method, path, operation in operations():
            url = self.fill(path, operation)
            if not url.startswith("/api/"):
                continue
            with self.subTest(f"{method} {path} unknown"):
                self.assertEqual(self.check(method, url, operation, 400, {"colour": "red"})["parameter"], "colour")
            for name, parameter in values(operation, "query").items():
                with self.subTest(f"{method} {path} {name}"):
                    bad = self.check(method, url, operation, 400, {name: BAD[name]})
                    self.assertEqual(bad["parameter"], name)
                    self.assertIn(name, bad["detail"])
                    twice = self.check(method, url, operation, 400, [(name, parameter.get("example", "3a")), (name, "x")])
                    self.assertEqual((twice["parameter"], twice["detail"]), (name, f"{name}: given twice"))
            for name in values(operation, "header"):
                self.assertEqual(self.check(method, url, operation, 400, headers={name: BAD[name]})["parameter"], name)

    def test_what_is_not_there_and_who_may_not_command_gets_what_is_described(self):
        for method, path, operation in operations():
            if "404" in operation["responses"]:
                with self.subTest(f"{method} {path} 404"):
                    self.check(method, path.replace("{id}", "none"), operation, 404)
            if "403" in operation["responses"]:
                with self.subTest(f"{method} {path} 403"):
                    self.check(method, self.fill(path, operation), operation, 403,
                               headers={"Origin": "http://evil.example"})

    def test_hosts_are_whole_unless_asked_in_brief(self):
        host = DOCUMENT["components"]["schemas"]["Host"]
        for one in self.server.get("/api/v1/hosts")["hosts"]:
            self.assertEqual(CHECKER.problems(one, host), [])
        self.assertNotEqual(CHECKER.problems(self.server.get("/api/v1/hosts?detail=brief")["hosts"][0], host), [])

    def test_pages_followed_by_next_hold_every_row_once(self):
        keys = {"mesh": ("from", "to"), "links": ("from", "to"), "hosts": ("host",),
                "paths": ("from", "to", "forward_port", "return_port")}
        for name, key in keys.items():
            with self.subTest(name):
                whole = self.server.get(f"/api/v1/{name}")[name]
                rows, url = [], f"/api/v1/{name}?limit=5"
                while url:
                    page = self.server.get(url)
                    self.assertLessEqual(len(page[name]), 5)
                    self.assertEqual(page["total"], len(whole))
                    rows += page[name]
                    url = page["next"]
                self.assertEqual([[r[k] for k in key] for r in rows], [[r[k] for k in key] for r in whole])
                self.assertGreater(len(rows), 5)

    def test_filters_say_the_same_of_findings_as_the_findings_do(self):
        def asked(**query):
            return [f["id"] for f in self.server.get("/api/v1/findings?" + urllib.parse.urlencode(query))["findings"]]
        own = self.finding["id"]
        self.assertEqual(self.finding["subject"], "link:s1>l2")
        for query in ({"subject": "link:s1>l2"}, {"subject": "*:s1>*"}, {"kind": "link_down,link_loss"},
                      {"severity": "critical"}, {"state": "active"}, {"since": "1h"}, {"until": self.finding["raised_at"]}):
            with self.subTest(query):
                self.assertIn(own, asked(**query))
        for query in ({"subject": "link:s2*"}, {"kind": "link_down"}, {"severity": "info"}, {"state": "cleared"},
                      {"until": "1h"}, {"job": "train-7"}):
            with self.subTest(query):
                self.assertNotIn(own, asked(**query))


if __name__ == "__main__":
    unittest.main()
