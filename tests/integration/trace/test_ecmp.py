"""`weft trace` on two leaves and two spines with ECMP on the 5-tuple: the traced hop is the one packets take."""

import socket
import subprocess
import time
import unittest

from tests.integration.cli_support import NetworkTest, Process, parse_one_object, responder, wait_for, weft
from tests.integration.clos import SWITCHES, ClosTest

PORTS = range(49152, 49160)


class TraceEcmp(ClosTest):
    HOSTS = ("h1", "h3")
    SWITCH_SYSCTLS = {}

    def setUp(self):
        super().setUp()
        # A spine answers from its port towards the sender.
        self.spine_of = {"10.1.11.2": "s1", "10.1.12.2": "s2"}

    def relax_icmp(self):
        for switch in SWITCHES:
            self.sysctl(switch, "net.ipv4.icmp_ratelimit", 0)

    def forwarded(self, spine):
        out = subprocess.run(["ip", "netns", "exec", self.name(spine), "cat",
                              f"/sys/class/net/{spine}-l1/statistics/rx_packets"], text=True, capture_output=True,
                             check=True)
        return int(out.stdout)

    def spine_by_counters(self, port, to_port):
        """Sends 25 packets of the 5-tuple and says which spine's counter moved by as much."""
        before = {spine: self.forwarded(spine) for spine in ("s1", "s2")}
        code = ("import socket,sys\n"
                "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                "s.bind(('10.0.1.2',int(sys.argv[1])))\n"
                "for _ in range(25): s.sendto(b'x'*8,('10.0.3.2',int(sys.argv[2])))\n")
        subprocess.run(["ip", "netns", "exec", self.name("h1"), "python3", "-c", code, str(port), str(to_port)],
                       check=True)
        time.sleep(0.1)
        moved = [spine for spine in ("s1", "s2") if self.forwarded(spine) - before[spine] >= 25]
        self.assertEqual(len(moved), 1, f"port {port}")
        return moved[0]

    def trace(self, *args):
        done = weft("trace", "--transport", "udp", "--json", *args, "10.0.3.2", netns=self.name("h1"), timeout=90)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return parse_one_object(done.stdout)

    def check_paths(self, body, to_port=4791):
        spines = set()
        for path in body["paths"]:
            addresses = [hop["address"] for hop in path["hops"]]
            self.assertTrue(path["complete"], path)
            self.assertEqual(len(addresses), 3)
            self.assertEqual(addresses[0], "10.0.1.1")
            self.assertIn(addresses[2], ("10.1.21.1", "10.1.22.1", "10.0.3.1"))
            spine = self.spine_of[addresses[1]]
            self.assertEqual(spine, self.spine_by_counters(path["port"], to_port), f"port {path['port']}")
            spines.add(spine)
        return spines

    def test_traced_spine_of_each_port_is_the_one_its_packets_cross(self):
        self.relax_icmp()
        body = self.trace("--no-probe", "--ports", 8)
        self.assertEqual([path["port"] for path in body["paths"]], list(PORTS))
        self.assertEqual(self.check_paths(body), {"s1", "s2"}, "eight ports took one spine: chance 1 in 128")

    def test_default_icmp_limit_of_routers_is_met_by_pacing(self):
        started = time.monotonic()
        body = self.trace("--no-probe", "--ports", 8)
        self.check_paths(body)
        self.assertLess(time.monotonic() - started, 45)
        # A tracer that does not pace loses most of its 32 answers to the limit.
        self.assertLess(body["packets_sent"] - body["answers"], 8)

    def interrupt_after_answers(self, *args):
        """A trace of eight ports, interrupted when a third of its answers are in; the rest would take ten seconds."""
        process = Process(self, "trace", "--transport", "udp", "--no-probe", "--ports", 8, *args, "10.0.3.2",
                          netns=self.name("h1"))
        wait_for(lambda: self.icmp("h1", "InTimeExcds") >= 8, "answers of routers", 30)
        started = time.monotonic()
        code, out, err = process.interrupt()
        self.assertLess(time.monotonic() - started, 5)
        self.assertEqual(code, 0, out + err)
        return out

    def test_ctrl_c_prints_what_is_known_so_far_and_ends_at_once(self):
        out = self.interrupt_after_answers()
        self.assertRegex(out, r"10\.0\.1\.1 ")
        self.assertIn("fastest answer", out)
        self.assertIn("stopped before every hop was asked", out)

    def test_ctrl_c_with_json_is_still_one_object_that_says_it_is_not_whole(self):
        body = parse_one_object(self.interrupt_after_answers("--json"))
        self.assertFalse(body["finished"])
        self.assertNotIn("error", body)
        self.assertEqual([path["port"] for path in body["paths"]], list(PORTS))
        self.assertIn("10.0.1.1", [hop["address"] for path in body["paths"] for hop in path["hops"]])

    def test_with_a_responder_the_hop_count_is_known_and_the_host_never_sees_a_trace_packet(self):
        self.relax_icmp()
        responder(self, "10.0.3.2", 47910, netns=self.name("h3"))
        before = self.unreachables_sent()
        body = self.trace("--ports", 4)
        self.assertTrue(body["hop_count_from_probes"])
        for path in body["paths"]:
            self.assertTrue(path["complete"], path)
            self.assertEqual(len(path["hops"]), 3)
        self.assertEqual(self.unreachables_sent(), before)

    def unreachables_sent(self):
        return self.icmp("h3", "OutDestUnreachs")

    def icmp(self, node, counter):
        out = subprocess.run(["ip", "netns", "exec", self.name(node), "cat", "/proc/net/snmp"], text=True,
                             capture_output=True, check=True).stdout
        names, values = [line.split() for line in out.splitlines() if line.startswith("Icmp:")]
        return int(values[names.index(counter)])

    def test_a_silent_router_is_unknown_and_no_failure(self):
        self.relax_icmp()
        for spine in ("s1", "s2"):
            # No time exceeded: the router answers nothing of that type.
            self.sysctl(spine, "net.ipv4.icmp_ratelimit", 1000000)
            self.sysctl(spine, "net.ipv4.icmp_ratemask", 0x1818)
            self.exhaust(spine)
        body = self.trace("--no-probe", "--port", 49152)
        hops = body["paths"][0]["hops"]
        self.assertIsNone(hops[1]["address"])
        self.assertGreaterEqual(hops[1]["asked"], 3)
        self.assertEqual(hops[0]["address"], "10.0.1.1")
        self.assertFalse(body["paths"][0]["complete"])

    def exhaust(self, spine):
        """Uses up the spine's answers to h1."""
        code = ("import socket\n"
                "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                "s.setsockopt(socket.IPPROTO_IP,socket.IP_TTL,2)\n"
                "for p in range(40000,40400):\n"
                "  try: s.sendto(b'x',('10.0.3.2',p))\n"
                "  except OSError: pass\n")
        subprocess.run(["ip", "netns", "exec", self.name("h1"), "python3", "-c", code], check=True)

    def test_path_of_ping_is_the_traced_one(self):
        self.relax_icmp()
        responder(self, "10.0.3.2", 47910, netns=self.name("h3"))
        done = weft("ping", "--transport", "udp", "-c", 40, "-i", "50ms", "--ports", 4, "--json", "10.0.3.2",
                    netns=self.name("h1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        host = parse_one_object(done.stdout)["hosts"][0]
        self.assertEqual((host["there"]["hops"], host["back"]["hops"]), (3, 3))
        for port in host["ports"]:
            self.assertRegex(port["way_there"], r"^10\.0\.1\.1 > 10\.1\.1[12]\.2 > ")


class TraceIpv6(NetworkTest):
    def test_ipv6_path_is_traced_by_the_token_in_the_quoted_payload(self):
        for node in ("h1", "r1", "h3"):
            self.add_node(node)
        self.sysctl("r1", "net.ipv6.conf.all.forwarding", 1)
        self.connect("h1", "fd00:1::2/64", "r1", "fd00:1::1/64")
        self.connect("r1", "fd00:3::1/64", "h3", "fd00:3::2/64")
        self.run_ip("-n", self.name("h1"), "-6", "route", "add", "default", "via", "fd00:1::1")
        self.run_ip("-n", self.name("h3"), "-6", "route", "add", "default", "via", "fd00:3::1")
        done = weft("trace", "--transport", "udp", "--json", "--no-probe", "--ports", 2, "fd00:3::2",
                    netns=self.name("h1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for path in parse_one_object(done.stdout)["paths"]:
            self.assertEqual([hop["address"] for hop in path["hops"]], ["fd00:1::1"])
            self.assertTrue(path["complete"])


class TracePermission(unittest.TestCase):
    def test_without_cap_net_raw_the_message_says_how_to_get_it(self):
        done = weft("trace", "--json", "127.0.0.2", user=65534)
        self.assertEqual(done.returncode, 3)
        error = parse_one_object(done.stdout)["error"]
        self.assertEqual(error["kind"], "permission")
        self.assertIn("CAP_NET_RAW", error["message"])
        self.assertIn("setcap", error["message"])


class TraceNobody(NetworkTest):
    def test_nothing_answers_is_exit_3_never_0_mtr_532(self):
        self.add_node("a")
        self.add_node("b")
        self.connect("a", "10.98.0.1/24", "b", "10.98.0.2/24")
        # Takes every packet and says nothing: no forwarding, and no answer for an address that is not its own.
        self.run_ip("-n", self.name("a"), "route", "add", "default", "via", "10.98.0.2")
        done = weft("trace", "--json", "--no-probe", "--port", 50000, "-w", "30s", "10.97.0.1", netns=self.name("a"))
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertEqual(parse_one_object(done.stdout)["error"]["kind"], "cannot_measure")

    def test_an_address_that_nobody_has_is_exit_3_and_this_hosts_own_word_is_no_router(self):
        self.add_node("a")
        self.add_node("b")
        self.connect("a", "10.98.0.1/24", "b", "10.98.0.2/24")
        done = weft("trace", "--json", "--no-probe", "--port", 50000, "-w", "30s", "10.98.0.77", netns=self.name("a"))
        body = parse_one_object(done.stdout)
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertEqual([hop["address"] for hop in body["paths"][0]["hops"] if hop["address"]], [])
        self.assertIn("the next hop does not answer this host", body["error"]["message"])

    def test_ctrl_c_before_any_answer_is_exit_3_and_says_that_nothing_answered(self):
        self.add_node("a")
        self.add_node("b")
        self.connect("a", "10.98.0.1/24", "b", "10.98.0.2/24")
        self.run_ip("-n", self.name("a"), "route", "add", "default", "via", "10.98.0.2")
        process = Process(self, "trace", "--no-probe", "--port", 50000, "-w", "60s", "10.97.0.1", netns=self.name("a"))
        process.read_until("tracing 1 port")
        started = time.monotonic()
        code, out, err = process.interrupt()
        self.assertLess(time.monotonic() - started, 5)
        self.assertEqual(code, 3, out + err)
        self.assertIn("nothing answered", out)
        self.assertIn("stopped before every hop was asked", out)

    def test_deadline_before_the_end_is_exit_124(self):
        self.add_node("a")
        self.add_node("b")
        self.connect("a", "10.98.0.1/24", "b", "10.98.0.2/24")
        self.run_ip("-n", self.name("a"), "route", "add", "default", "via", "10.98.0.2")
        done = weft("trace", "--json", "--no-probe", "--port", 50000, "-w", "1s", "10.97.0.1", netns=self.name("a"))
        self.assertEqual(done.returncode, 124, done.stdout)
        self.assertEqual(parse_one_object(done.stdout)["error"]["kind"], "timeout")


if __name__ == "__main__":
    unittest.main()
