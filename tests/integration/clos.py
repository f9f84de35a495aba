"""Two leaves and two spines made of network namespaces, with ECMP on the 5-tuple; any link can lose packets one way."""

import json
import subprocess

from tests.integration.cli_support import NetworkTest

SWITCHES = {"l1": "leaf", "l2": "leaf", "s1": "spine", "s2": "spine"}
LEAF_OF = {"h1": "l1", "h2": "l1", "h3": "l2", "h4": "l2"}


class ClosTest(NetworkTest):
    """Link A-B is the interface A-B in A and B-A in B; host hN is 10.0.N.2 and hangs on one leaf."""

    HOSTS = ("h1", "h2", "h3", "h4")
    # Without the kernel's limit of an answer a second: a test is too short for routers to be asked at leisure.
    SWITCH_SYSCTLS = {"net__ipv4__icmp_ratelimit": 0}

    def setUp(self):
        super().setUp()
        self.links = []
        for host in self.HOSTS:
            self.add_node(host)
        for switch in SWITCHES:
            self.add_node(switch, net__ipv4__ip_forward=1, net__ipv4__fib_multipath_hash_policy=1,
                          **self.SWITCH_SYSCTLS)
        for host in self.HOSTS:
            net = self.net(host)
            self.cable(host, f"{net}.2/24", LEAF_OF[host], f"{net}.1/24")
            self.route(host, "default", "via", f"{net}.1")
        for leaf in (1, 2):
            for spine in (1, 2):
                self.cable(f"l{leaf}", f"10.1.{leaf}{spine}.1/30", f"s{spine}", f"10.1.{leaf}{spine}.2/30")
        for host in self.HOSTS:
            near = LEAF_OF[host][1]
            far = "2" if near == "1" else "1"
            self.route(f"l{far}", f"{self.net(host)}.0/24", "nexthop", "via", f"10.1.{far}1.2",
                       "nexthop", "via", f"10.1.{far}2.2")
            for spine in (1, 2):
                self.route(f"s{spine}", f"{self.net(host)}.0/24", "via", f"10.1.{near}{spine}.1")

    @staticmethod
    def net(host):
        return f"10.0.{host[1]}"

    def address(self, host):
        return f"{self.net(host)}.2"

    def cable(self, a, address_a, b, address_b):
        self.connect(a, address_a, b, address_b)
        self.links.append((a, address_a.split("/")[0], b, address_b.split("/")[0]))

    def topology(self, fabric):
        """The topology file of this network; the device of a host is its interface."""
        switches = "".join(f'[[switch]]\nname = "{name}"\ntier = "{tier}"\n' for name, tier in SWITCHES.items())
        hosts = "".join(f'[[host]]\nname = "{name}"\n' for name in self.HOSTS)
        links = "".join(
            f'[[link]]\na = "{f"{a}/{a}-{b}" if a in self.HOSTS else a}"\nb = "{b}"\n'
            f'a_addresses = ["{address_a}"]\nb_addresses = ["{address_b}"]\n'
            for a, address_a, b, address_b in self.links)
        return f'fabric = "{fabric}"\n{switches}{hosts}{links}'

    def tc(self, *args):
        return subprocess.run(["tc", *args], check=True, capture_output=True, text=True).stdout

    def lose(self, source, target, share):
        """From now on the cable loses this share of what source sends to target, whatever it is.

        As packets come in at target, so no sender is told; a classifier in the kernel, so nothing is late by it.
        """
        # Load a random number, and compare: 2 is "drop" and 0 "pass" where the classifier decides (direct action).
        code = f"4,32 0 0 4294963256,53 1 0 {int(share * 2**32)},6 0 0 2,6 0 0 0"
        self.tc("-n", self.name(target), "qdisc", "add", "dev", f"{target}-{source}", "clsact")
        self.tc("-n", self.name(target), "filter", "add", "dev", f"{target}-{source}", "ingress", "bpf", "bytecode",
                code, "da")

    def dropped(self, source, target):
        """Packets that were lost there since lose(), as the kernel counts them."""
        told = json.loads(self.tc("-s", "-j", "-n", self.name(target), "qdisc", "show", "dev", f"{target}-{source}"))
        return next(qdisc["drops"] for qdisc in told if qdisc["kind"] == "clsact")

    def heal(self, source, target):
        self.tc("-n", self.name(target), "qdisc", "del", "dev", f"{target}-{source}", "clsact")
