"""`weft mesh --direct` on two leaves and two spines made of namespaces: which link it names, with no aggregator."""

import pathlib
import tempfile
import unittest

from tests.integration.cli_support import NetworkTest, Wire, parse_one_object, responder, weft

SWITCHES = {"l1": "leaf", "l2": "leaf", "s1": "spine", "s2": "spine"}


class MeshLocalises(NetworkTest):
    """h1 on leaf l1; h3 and h4 on leaf l2; the cables of l1 to its spines are Wires; the first does harm on demand."""

    def setUp(self):
        super().setUp()
        self.links = []
        for host in ("h1", "h3", "h4"):
            self.add_node(host)
        for switch in SWITCHES:
            self.add_node(switch, net__ipv4__ip_forward=1, net__ipv4__fib_multipath_hash_policy=1,
                          net__ipv4__icmp_ratelimit=0)
        for host, leaf in (("h1", "l1"), ("h3", "l2"), ("h4", "l2")):
            net = f"10.0.{host[1]}"
            self.cable(host, f"{net}.2/24", leaf, f"{net}.1/24")
            self.route(host, "default", "via", f"{net}.1")

    def cable(self, a, address_a, b, address_b, faults=None):
        if faults is None:
            self.connect(a, address_a, b, address_b)
        else:
            Wire(self, self.name(a), address_a, self.name(b), address_b, faults)
        end = f"{a}/{a}-{b}" if a.startswith("h") else a
        self.links.append(f'[[link]]\na = "{end}"\nb = "{b}"\n'
                          f'a_addresses = ["{address_a.split("/")[0]}"]\nb_addresses = ["{address_b.split("/")[0]}"]\n')

    def fabric(self, faults):
        for leaf in (1, 2):
            for spine in (1, 2):
                self.cable(f"l{leaf}", f"10.1.{leaf}{spine}.1/30", f"s{spine}", f"10.1.{leaf}{spine}.2/30",
                           {1: faults if spine == 1 else {}}.get(leaf))
        for host in (3, 4):
            self.route("l1", f"10.0.{host}.0/24", "nexthop", "via", "10.1.11.2", "nexthop", "via", "10.1.12.2")
        self.route("l2", "10.0.1.0/24", "nexthop", "via", "10.1.21.2", "nexthop", "via", "10.1.22.2")
        for spine in (1, 2):
            self.route(f"s{spine}", "10.0.1.0/24", "via", f"10.1.1{spine}.1")
            for host in (3, 4):
                self.route(f"s{spine}", f"10.0.{host}.0/24", "via", f"10.1.2{spine}.1")

    def measure(self):
        for host in ("h3", "h4"):
            responder(self, f"10.0.{host[1]}.2", 47910, "--ports", 8, netns=self.name(host), hostname=host)
        with tempfile.TemporaryDirectory() as folder:
            topology = pathlib.Path(folder, "fabric.toml")
            topology.write_text('fabric = "t"\n' + "".join(
                f'[[switch]]\nname = "{name}"\ntier = "{tier}"\n' for name, tier in SWITCHES.items()) + "".join(
                    f'[[host]]\nname = "{name}"\n' for name in ("h1", "h3", "h4")) + "".join(self.links))
            done = weft("mesh", "--direct", "--transport", "udp", "--ports", 8, "--for", "15s", "--topology", topology,
                        "--json", "10.0.3.2", "10.0.4.2", netns=self.name("h1"), hostname="h1",
                        timeout=120)
        return done.returncode, parse_one_object(done.stdout)

    @staticmethod
    def blamed_for_loss(body):
        # A wire is a process and may truly be late on a busy builder.
        return {(finding["kind"], finding["subject"]) for finding in body["findings"]
                if finding["kind"] != "link_delay"}

    def test_a_lossy_link_is_seen_and_no_other_is_accused(self):
        self.fabric({"a>b": {"drop_share": 0.25}})
        code, body = self.measure()
        self.assertEqual(code, 1, body)
        self.assertIn("loss", {pair["state"] for pair in body["pairs"]}, body)
        # One prober, and routers that are asked once a second: the links that all its paths share may be told apart, or
        # left open for want of evidence.
        self.assertLessEqual(self.blamed_for_loss(body), {("link_loss", "link:l1>s1"), ("link_loss", "switch:s1")}, body)

    def test_a_healthy_fabric_names_nothing(self):
        self.fabric({})
        _, body = self.measure()
        self.assertEqual(self.blamed_for_loss(body), set(), body)
        self.assertNotIn("loss", {pair["state"] for pair in body["pairs"]}, body)


if __name__ == "__main__":
    unittest.main()
