"""`weft mesh --direct` on two leaves and two spines made of namespaces: which link it names, with no aggregator."""

import pathlib
import tempfile
import unittest

from tests.integration.cli_support import parse_one_object, responder, weft
from tests.integration.clos import ClosTest


class MeshLocalises(ClosTest):
    """h1 on leaf l1; h3 and h4 on leaf l2."""

    HOSTS = ("h1", "h3", "h4")

    def measure(self):
        for host in ("h3", "h4"):
            responder(self, self.address(host), 47910, "--ports", 8, netns=self.name(host), hostname=host)
        with tempfile.TemporaryDirectory() as folder:
            topology = pathlib.Path(folder, "fabric.toml")
            topology.write_text(self.topology("t"))
            done = weft("mesh", "--direct", "--transport", "udp", "--ports", 8, "--for", "15s", "--topology", topology,
                        "--json", self.address("h3"), self.address("h4"), netns=self.name("h1"), hostname="h1",
                        timeout=120)
        return done.returncode, parse_one_object(done.stdout)

    @staticmethod
    def blamed_for_loss(body):
        # Programs that wait for a CPU of a busy builder may truly be late.
        return {(finding["kind"], finding["subject"]) for finding in body["findings"]
                if finding["kind"] != "link_delay"}

    def test_a_lossy_link_is_seen_and_no_other_is_accused(self):
        self.lose("l1", "s1", 0.25)
        code, body = self.measure()
        self.assertEqual(code, 1, body)
        self.assertIn("loss", {pair["state"] for pair in body["pairs"]}, body)
        # The link drops packets of traces too. A host that was late itself says so, as it may have missed answers.
        lost, dropped = sum(pair["lost"] for pair in body["pairs"]), self.dropped("l1", "s1")
        self.assertLessEqual(lost, dropped, body)
        if not any("late itself" in note for note in body["not_checked"]):
            self.assertGreaterEqual(lost, dropped / 4, body)
        # One prober, and routers that are asked once a second: the links that all its paths share may be told apart, or
        # left open for want of evidence.
        self.assertLessEqual(self.blamed_for_loss(body), {("link_loss", "link:l1>s1"), ("link_loss", "switch:s1")},
                             body)

    def test_a_healthy_fabric_names_nothing(self):
        _, body = self.measure()
        self.assertEqual(self.blamed_for_loss(body), set(), body)
        self.assertNotIn("loss", {pair["state"] for pair in body["pairs"]}, body)


if __name__ == "__main__":
    unittest.main()
