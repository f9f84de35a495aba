"""`weft findings` and `weft mesh` against a real aggregator that was told something by a stand-in for agents."""

import tempfile
import unittest

from tests.integration import aggregator_support
from tests.integration.cli_support import Process, parse_one_object, wait_for, weft

KIND = "host_overloaded"  # the one that an agent may find itself; others that silence brings are not looked at


class Views(unittest.TestCase):
    def setUp(self):
        for program in (aggregator_support.AGGREGATOR, aggregator_support.FAKE_AGENT):
            if not program.exists():
                self.skipTest(f"{program.name} is not built")
        folder = tempfile.TemporaryDirectory(prefix="weft-views-")
        self.addCleanup(folder.cleanup)
        self.running = aggregator_support.Aggregator(folder.name)
        self.addCleanup(self.running.stop)
        self.url = f"http://127.0.0.1:{self.running.ports[1]}"
        self.told = aggregator_support.FakeAgents(self.running.grpc)
        self.addCleanup(self.told.stop)
        self.told.tell("open", "a", "lab", "h1", 1)
        self.told.wait("a", "welcome")
        self.sequence = 0

    def tell(self, word, *more):
        self.sequence += 1
        self.told.tell(word, "a", self.sequence, *more)
        self.told.wait("a", "ack", lambda event: event["sequence"] >= self.sequence)

    def findings(self, *more):
        return weft("findings", "--aggregator", self.url, "--kind", KIND, *more)

    def listed(self, *more):
        return parse_one_object(self.findings("--json", *more).stdout)["findings"]

    def raise_one(self):
        self.tell("finding", "host:h1", "on")
        return wait_for(self.listed, "the finding", 30)[0]


class Findings(Views):
    def test_a_finding_is_exit_1_and_told_with_subject_id_and_next_step(self):
        found = self.raise_one()
        done = self.findings()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(f"{KIND}  host:h1  [{found['id']}]", done.stdout)
        self.assertIn("weft findings --ack", done.stdout)
        body = parse_one_object(self.findings("--json").stdout)
        self.assertEqual((body["exit_code"], body["findings"][0]["subject"]), (1, "host:h1"))

    def test_hostile_words_of_an_agent_stay_one_line_and_valid_json(self):
        self.raise_one()
        self.assertIn("hostile", self.findings().stdout)
        self.assertNotIn("} \n", self.findings().stdout)
        self.assertIn("hostile", self.listed()[0]["summary"])

    def test_acknowledged_it_no_longer_counts_but_all_shows_it(self):
        found = self.raise_one()
        done = self.findings("--ack", found["id"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"acknowledged {found['id']}: {KIND} host:h1", done.stdout)
        after = self.findings()
        self.assertNotIn("host:h1", after.stdout)
        self.assertNotEqual(after.returncode, 1, after.stdout)
        kept = self.listed("--all")
        self.assertEqual([(f["id"], f["acknowledged"]) for f in kept], [(found["id"], True)])
        self.assertNotEqual(self.findings("--all").returncode, 1)

    def test_acknowledging_answers_with_the_finding_in_json(self):
        found = self.raise_one()
        body = parse_one_object(self.findings("--ack", found["id"], "--json").stdout)
        self.assertEqual((body["exit_code"], body["acknowledged"]["id"]), (0, found["id"]))
        self.assertTrue(body["acknowledged"]["acknowledged"])

    def test_since_leaves_out_what_began_before_and_keeps_what_began_within(self):
        self.raise_one()
        wait_for(lambda: self.listed("--since", "1s") == [], "the finding to be older than a second", 30)
        self.assertEqual(len(self.listed("--since", "1h")), 1)
        self.assertNotEqual(self.findings("--since", "1s").returncode, 1)
        self.assertEqual(self.findings("--since", "1h").returncode, 1)

    def test_all_shows_what_cleared_without_counting_it(self):
        found = self.raise_one()
        self.running.ask("/api/v1/findings/clear", method="POST")
        wait_for(lambda: not self.listed(), "the end of the finding", 30)
        cleared = self.listed("--all")
        self.assertEqual([f["id"] for f in cleared], [found["id"]])
        self.assertIsNotNone(cleared[0]["until"])
        self.assertNotEqual(self.findings("--all").returncode, 1)

    def test_subject_filters_by_a_part_of_it(self):
        self.raise_one()
        self.assertEqual(len(self.listed("--subject", "h1")), 1)
        self.assertEqual(self.listed("--subject", "h2"), [])

    def test_watch_tells_raised_acknowledged_and_cleared_one_line_each(self):
        watch = Process(self, "findings", "--watch", "--aggregator", self.url, "--kind", KIND)
        watch.read_until("waiting for changes")
        found = self.raise_one()
        self.assertIn(f"  raised  {KIND}  host:h1", watch.read_until("raised", "stdout"))
        self.findings("--ack", found["id"])
        self.assertIn(f"  acknowledged  {KIND}  host:h1", watch.read_until("acknowledged", "stdout"))
        self.running.ask("/api/v1/findings/clear", method="POST")
        self.assertIn(f"  cleared  {KIND}  host:h1", watch.read_until("cleared", "stdout"))
        code, _, _ = watch.interrupt()
        self.assertNotEqual(code, 1)

    def test_watch_with_json_is_one_object_a_line_and_ends_with_the_exit_code(self):
        self.raise_one()
        watch = Process(self, "findings", "--watch", "--json", "--aggregator", self.url, "--kind", KIND)
        line = parse_one_object(watch.read_until("raised", "stdout"))
        self.assertEqual((line["change"], line["finding"]["subject"]), ("raised", "host:h1"))
        code, out, _ = watch.interrupt()
        self.assertEqual((code, parse_one_object(out)["exit_code"]), (1, 1))


class Mesh(Views):
    def rows(self, *more):
        return parse_one_object(weft("mesh", "--aggregator", self.url, "--json", *more).stdout)["pairs"]

    def test_pairs_that_agents_measured_are_shown_and_filtered_by_host(self):
        self.tell("batch", 3)
        pairs = wait_for(self.rows, "the pairs", 30)
        self.assertEqual({(pair["from"], pair["to"]) for pair in pairs},
                         {("h1/rxe0", f"peer{i}/rxe0") for i in range(3)})
        self.assertTrue(all(pair["lost"] == 0 and pair["sent"] >= 10 for pair in pairs), pairs)
        self.assertEqual([pair["to"] for pair in self.rows("peer1")], ["peer1/rxe0"])
        self.assertEqual([pair["to"] for pair in self.rows("h1", "peer2")], ["peer2/rxe0"])
        text = weft("mesh", "--aggregator", self.url)
        self.assertIn("h1/rxe0", text.stdout)
        self.assertIn("1.00 ms", text.stdout)

    def test_hosts_that_nobody_measured_are_exit_3_in_words(self):
        self.tell("batch", 1)
        wait_for(self.rows, "the pair", 30)
        done = weft("mesh", "--aggregator", self.url, "nobody")
        self.assertEqual(done.returncode, 3)
        self.assertIn("no measured pair of these hosts", done.stderr)


if __name__ == "__main__":
    unittest.main()
