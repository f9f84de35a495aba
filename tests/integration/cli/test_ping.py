"""`weft ping` against `weft responder` over UDP, as an operator uses the two with no agent and no aggregator."""

import contextlib
import os
import pathlib
import re
import socket
import struct
import tempfile
import time
import unittest

from tests.integration.cli_support import (NetworkTest, Process, Wire, free_udp_port, parse_one_object, responder,
                                           weft)

HERE, PEER = "127.0.0.1", "127.0.0.2"


def ping(port, *args, **options):
    return weft("ping", "--transport", "udp", "--hello-port", port, *args, **options)


class PingLoopback(unittest.TestCase):
    def setUp(self):
        self.port = free_udp_port()

    def test_healthy_peer_is_exit_0_with_round_trip_and_delays(self):
        responder(self, PEER, self.port)
        done = ping(self.port, "-c", 20, "-i", "20ms", PEER)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertIn("0 of 20 (0 %) lost", done.stdout)
        for words in ("network round trip", "prober delay", "responder delay", "ECN", "routers"):
            self.assertIn(words, done.stdout)
        self.assertNotIn("nan", done.stdout.lower())

    def test_json_is_one_object_with_the_same_numbers(self):
        responder(self, PEER, self.port)
        done = ping(self.port, "-c", 10, "-i", "20ms", "--json", "--ports", 4, PEER)
        self.assertEqual(done.returncode, 0, done.stderr)
        body = parse_one_object(done.stdout)
        self.assertEqual((body["schema"], body["command"], body["exit_code"]), (1, "ping", 0))
        host = body["hosts"][0]
        self.assertEqual((host["sent"], host["acked"], host["lost"]), (10, 10, 0))
        self.assertEqual(host["network_rtt_ns"]["count"], 10)
        self.assertEqual(host["there"]["hops"], 0)
        self.assertEqual(host["there"]["ecn_capable"], 10)
        self.assertGreater(len({port["port_there"] for port in host["ports"]}), 1)
        self.assertNotIn("error", body)

    def test_several_hosts_at_once_each_get_their_count(self):
        responder(self, PEER, self.port)
        responder(self, "127.0.0.3", self.port)
        done = ping(self.port, "-c", 5, "-i", "20ms", "--json", PEER, "127.0.0.3")
        body = parse_one_object(done.stdout)
        self.assertEqual([(host["host"], host["sent"]) for host in body["hosts"]], [(PEER, 5), ("127.0.0.3", 5)])

    def test_nobody_there_is_exit_3_and_says_what_to_do_mtr_532(self):
        started = time.monotonic()
        done = ping(self.port, "-c", 3, PEER)
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("no answer to the hello", done.stdout)
        self.assertIn("weft responder", done.stdout)
        self.assertLess(time.monotonic() - started, 15)

    def test_nobody_there_in_json_has_the_error_inside_and_exit_3_iperf3_1405(self):
        done = ping(self.port, "-c", 3, "--json", PEER)
        self.assertEqual(done.returncode, 3)
        body = parse_one_object(done.stdout)
        self.assertEqual(body["exit_code"], 3)
        self.assertEqual(body["error"]["kind"], "cannot_measure")
        self.assertIsNone(body["hosts"][0]["network_rtt_ns"])

    def test_one_of_two_hosts_missing_is_exit_3_and_the_other_is_measured(self):
        responder(self, PEER, self.port)
        done = ping(self.port, "-c", 5, "-i", "20ms", "--json", PEER, "127.0.0.9")
        self.assertEqual(done.returncode, 3)
        hosts = parse_one_object(done.stdout)["hosts"]
        self.assertEqual((hosts[0]["acked"], hosts[1]["answered"]), (5, False))

    def test_peer_that_dies_midway_ends_in_time_and_is_named_beside_the_loss_perftest_381(self):
        peer = responder(self, PEER, self.port)
        started = time.monotonic()
        process = Process(self, "ping", "--transport", "udp", "--hello-port", self.port, "-c", 60, "-i", "50ms", PEER)
        process.read_until("#5:", "stdout")
        peer.end()
        out, _ = process.process.communicate(timeout=30)
        self.assertEqual(process.process.returncode, 1, out)
        self.assertLess(time.monotonic() - started, 20)
        self.assertIn(f"trouble: nothing listens on {PEER}:{self.port}", out)

    def test_wrong_key_is_not_answered_and_the_key_is_named_as_a_cause(self):
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = pathlib.Path(folder, "ours"), pathlib.Path(folder, "theirs")
            ours.write_text("11" * 32)
            theirs.write_text("22" * 32)
            responder(self, PEER, self.port, "--key-file", theirs)
            done = ping(self.port, "-c", 3, "--key-file", ours, PEER)
            self.assertEqual(done.returncode, 3)
            self.assertIn("--key-file", done.stdout)
            self.assertNotIn("1111", done.stdout + done.stderr)
            right = ping(self.port, "-c", 3, "-i", "20ms", "--key-file", theirs, PEER)
            self.assertEqual(right.returncode, 0, right.stdout)

    def test_a_named_file_that_is_missing_is_a_usage_error_with_its_name(self):
        for option in ("--key-file", "--topology"):
            with self.subTest(option=option):
                done = ping(self.port, "-c", 3, option, "/nonexistent/file", "--json", PEER)
                self.assertEqual(done.returncode, 2)
                message = parse_one_object(done.stdout)["error"]["message"]
                self.assertIn(option, message)
                self.assertIn("/nonexistent/file", message)

    def test_deadline_before_the_count_is_exit_124(self):
        responder(self, PEER, self.port)
        started = time.monotonic()
        done = ping(self.port, "-c", 1000, "-i", "100ms", "-w", "1s", "--json", PEER)
        self.assertEqual(done.returncode, 124)
        self.assertLess(time.monotonic() - started, 8)
        body = parse_one_object(done.stdout)
        self.assertEqual(body["error"]["kind"], "timeout")
        self.assertGreater(body["hosts"][0]["acked"], 0)

    def test_deadline_without_a_count_ends_the_run_by_what_was_seen(self):
        responder(self, PEER, self.port)
        done = ping(self.port, "-i", "50ms", "-w", "1s", PEER)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_ctrl_c_prints_the_summary_and_exits_by_what_was_seen(self):
        responder(self, PEER, self.port)
        process = Process(self, "ping", "--transport", "udp", "--hello-port", self.port, "-i", "50ms", PEER)
        process.read_until("#3:", "stdout")
        code, out, _ = process.interrupt()
        self.assertEqual(code, 0, out)
        self.assertIn("network round trip", out)

    def test_ctrl_c_before_any_answer_is_exit_3(self):
        process = Process(self, "ping", "--transport", "udp", "--hello-port", self.port, PEER)
        process.read_until("measuring from")
        code, out, _ = process.interrupt()
        self.assertEqual(code, 3, out)

    def test_port_traffic_class_and_quiet_are_kept_on_the_wire_and_on_the_screen(self):
        if os.geteuid() != 0:
            self.skipTest("looking at packets needs root")
        responder(self, PEER, self.port)
        source_port = free_udp_port()
        with contextlib.closing(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))) as tap:
            tap.bind(("lo", 0x0800))
            tap.setblocking(False)
            done = ping(self.port, "-c", 5, "-i", "20ms", "--no-path", "-q", "--port", source_port, "--tclass", 104, PEER)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            classes = set()
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet = tap.recv(65536)
                    if packet[9] == 17 and struct.unpack("!H", packet[20:22])[0] == source_port:
                        classes.add(packet[1])
        self.assertEqual(classes, {104 | 2}, "the class that was asked for, and ECT(0)")
        self.assertNotIn("#1:", done.stdout)
        self.assertIn("0 of 5 (0 %) lost", done.stdout)
        self.assertIn(f"port {source_port},", done.stdout)

    def test_a_timeout_below_the_round_trip_calls_answers_late_and_not_lost(self):
        responder(self, PEER, self.port)
        done = ping(self.port, "-c", 10, "-i", "20ms", "-W", "1us", "--no-path", "--json", PEER)
        host = parse_one_object(done.stdout)["hosts"][0]
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual((host["sent"], host["lost"]), (10, 0))
        self.assertGreater(host["late"], 0)

    def test_a_closed_pipe_ends_it_quietly(self):
        responder(self, PEER, self.port)
        process = Process(self, "ping", "--transport", "udp", "--hello-port", self.port, "-i", "50ms", PEER)
        process.process.stdout.readline()
        process.process.stdout.close()
        self.assertEqual(process.process.wait(timeout=10), 0)
        self.assertNotIn("rror", process.process.stderr.read())

    def test_usage_errors_are_exit_2_on_stderr_and_in_json(self):
        for bad in (["--ports", "0"], ["-i", "fast"], ["--count", "-1"], ["--nonsense"]):
            done = weft("ping", *bad, PEER)
            self.assertEqual(done.returncode, 2, bad)
            self.assertEqual(done.stdout, "")
            self.assertIn("--help", done.stderr)
            body = parse_one_object(weft("ping", "--json", *bad, PEER).stdout)
            self.assertEqual((body["exit_code"], body["error"]["kind"]), (2, "invalid"))
        self.assertEqual(weft("ping").returncode, 2)

    def test_a_host_that_does_not_resolve_is_named(self):
        done = ping(self.port, "-c", 1, "no-such-host.invalid")
        self.assertEqual(done.returncode, 3)
        self.assertIn("no-such-host.invalid", done.stderr)

    def test_a_host_that_does_not_resolve_ends_no_other_and_is_exit_3_with_its_reason(self):
        responder(self, PEER, self.port)
        done = ping(self.port, "-c", 5, "-i", "20ms", "no-such-host.invalid", PEER)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("0 of 5 (0 %) lost", done.stdout)
        self.assertRegex(done.stdout, r"no-such-host\.invalid\n  cannot measure: host no-such-host\.invalid: ")
        self.assertIn("no-such-host.invalid: cannot measure", done.stderr)
        body = parse_one_object(ping(self.port, "-c", 5, "-i", "20ms", "--json", "no-such-host.invalid", PEER).stdout)
        self.assertIn("no-such-host.invalid", body["error"]["message"])
        self.assertEqual([(host["host"], host["answered"], host["acked"]) for host in body["hosts"]],
                         [("no-such-host.invalid", False, 0), (PEER, True, 5)])

    def test_who_stamped_the_probes_is_told_in_text_and_json(self):
        responder(self, PEER, self.port)
        self.assertRegex(ping(self.port, "-c", 5, "-i", "20ms", PEER).stdout, r"timestamps by (the kernel|weft itself)")
        body = parse_one_object(ping(self.port, "-c", 5, "-i", "20ms", "--json", PEER).stdout)
        self.assertIn(body["hosts"][0]["timestamps"], ("kernel", "software"))
        self.assertEqual(body["hosts"][0]["local_why"], "--transport udp")

    def test_an_unknown_device_is_named_with_those_there_are(self):
        done = weft("ping", "--device", "mlx9_9", "-c", 1, PEER)
        self.assertEqual(done.returncode, 3)
        self.assertIn("mlx9_9", done.stderr)
        self.assertIn("RDMA devices:", done.stderr)


class PingUnreachable(NetworkTest):
    """What is no loss of the network: no way there, a way that is taken away, packets that are too large."""

    def setUp(self):
        super().setUp()
        self.add_node("a")

    def ping(self, *args):
        return weft("ping", "--transport", "udp", "--no-path", "--json", *args, netns=self.name("a"))

    def neighbour(self):
        self.add_node("b")
        self.connect("a", "10.99.0.1/30", "b", "10.99.0.2/30")

    def far_host(self):
        """10.88.0.2 on b, so that a reaches it by a route only."""
        self.neighbour()
        self.run_ip("-n", self.name("b"), "addr", "add", "10.88.0.2/32", "dev", "lo")
        self.route("a", "10.88.0.2/32", "via", "10.99.0.2")
        responder(self, "10.88.0.2", 47910, netns=self.name("b"))

    def test_no_route_is_cannot_measure_and_names_the_address(self):
        done = self.ping("-c", 3, "10.77.0.2")
        self.assertEqual(done.returncode, 3)
        message = parse_one_object(done.stdout)["error"]["message"]
        self.assertIn("cannot measure: no route to 10.77.0.2", message)
        self.assertIn("unreachable", message)

    def test_an_unreachable_subnet_is_cannot_measure_with_device_address_and_step(self):
        self.neighbour()
        self.route("a", "default", "via", "10.99.0.2")
        # b knows no way on and says so.
        self.sysctl("b", "net.ipv4.ip_forward", 1)
        done = self.ping("-c", 3, "10.77.0.2")
        self.assertEqual(done.returncode, 3)
        body = parse_one_object(done.stdout)
        self.assertEqual((body["hosts"][0]["sent"], body["hosts"][0]["lost"]), (0, 0))
        for words in ("hello", "10.77.0.2:47910", "a-b (10.99.0.1)"):
            self.assertIn(words, body["error"]["message"])

    def test_a_route_that_is_taken_away_is_no_loss(self):
        self.far_host()
        process = Process(self, "ping", "--transport", "udp", "--no-path", "-i", "50ms", "10.88.0.2",
                          netns=self.name("a"))
        process.read_until("#5:", "stdout")
        self.run_ip("-n", self.name("a"), "route", "replace", "unreachable", "10.88.0.2/32")
        line = process.read_until("not sent", "stdout").splitlines()[-1]
        self.assertIn("10.88.0.2", line)
        self.assertIn("10.99.0.1", line)
        code, out, _ = process.interrupt()
        self.assertIn("0 of ", out)
        self.assertIn("(0 %) lost", out)
        self.assertIn("No route to host", out)
        self.assertEqual(code, 0, out)

    def test_an_interface_that_goes_down_is_no_loss(self):
        self.far_host()
        process = Process(self, "ping", "--transport", "udp", "--no-path", "-i", "50ms", "10.88.0.2",
                          netns=self.name("a"))
        process.read_until("#5:", "stdout")
        self.run_ip("-n", self.name("a"), "link", "set", "a-b", "down")
        process.read_until("not sent", "stdout")
        _, out, _ = process.interrupt()
        self.assertIn("not sent", out)
        # What was on its way when the link went may be lost with it.
        self.assertLessEqual(int(re.search(r"(\d+) of \d+ \(\S+ %\) lost", out).group(1)), 2, out)

    def test_probes_over_the_mtu_are_cannot_measure_and_name_size_and_addresses_rdma_core_586(self):
        self.far_host()
        self.run_ip("-n", self.name("a"), "link", "set", "a-b", "mtu", "800")
        done = self.ping("-c", 5, "-i", "20ms", "--size", 1000, "10.88.0.2")
        self.assertEqual(done.returncode, 3, done.stdout)
        body = parse_one_object(done.stdout)
        host = body["hosts"][0]
        self.assertEqual((host["sent"], host["lost"], host["local_errors"]), (0, 0, 5))
        for words in ("sending 1000 bytes", "10.99.0.1:", "10.88.0.2:", "more than the path MTU"):
            self.assertIn(words, body["error"]["message"])
        self.assertEqual(self.ping("-c", 5, "-i", "20ms", "--size", 700, "10.88.0.2").returncode, 0)


    def test_a_small_mtu_on_the_way_is_cannot_measure_and_no_loss_rdma_core_586(self):
        self.add_node("b")
        self.add_node("r", net__ipv4__ip_forward=1)
        self.connect("a", "10.99.1.2/30", "r", "10.99.1.1/30")
        self.connect("r", "10.99.2.1/30", "b", "10.99.2.2/30")
        for node, way in (("a", "10.99.1.1"), ("b", "10.99.2.1")):
            self.route(node, "default", "via", way)
        for node, port in (("r", "r-b"), ("b", "b-r")):
            self.run_ip("-n", self.name(node), "link", "set", port, "mtu", "800")
        responder(self, "10.99.2.2", 47910, netns=self.name("b"))
        done = self.ping("-c", 20, "-i", "50ms", "--size", 1000, "10.99.2.2")
        self.assertEqual(done.returncode, 3, done.stdout)
        host = parse_one_object(done.stdout)["hosts"][0]
        self.assertEqual((host["lost"], host["local_errors"]), (0, 20))
        self.assertIn("more than the path MTU", host["error"]["message"])


class PingFaultyWire(NetworkTest):
    def setUp(self):
        super().setUp()
        self.add_node("a")
        self.add_node("b")

    def measure(self, faults, count=120):
        Wire(self, self.name("a"), "10.99.0.1/30", self.name("b"), "10.99.0.2/30", faults)
        responder(self, "10.99.0.2", 47910, netns=self.name("b"))
        done = weft("ping", "--transport", "udp", "-c", count, "-i", "10ms", "--json", "--no-path", "10.99.0.2",
                    netns=self.name("a"))
        return done.returncode, parse_one_object(done.stdout)["hosts"][0]

    def test_loss_on_the_way_there_is_exit_1_and_has_its_direction(self):
        code, host = self.measure({"a>b": {"drop_every": 4}})
        self.assertEqual(code, 1)
        self.assertGreater(host["lost"], 15)
        self.assertGreaterEqual(host["lost_there"], host["lost"] - 2)
        self.assertLessEqual(host["lost_back"], 1)

    def test_loss_on_the_way_back_is_exit_1_and_has_its_direction(self):
        code, host = self.measure({"b>a": {"drop_every": 4}})
        self.assertEqual(code, 1)
        self.assertGreater(host["lost"], 10)
        self.assertGreaterEqual(host["lost_back"], host["lost"] - 2)
        self.assertLessEqual(host["lost_there"], 1)

    def test_ce_marks_have_their_direction_and_are_no_loss(self):
        code, host = self.measure({"a>b": {"mark_every": 3}})
        self.assertEqual(code, 1)
        self.assertEqual(host["lost"], 0)
        self.assertAlmostEqual(host["there"]["ce"] / host["there"]["ecn_capable"], 1 / 3, delta=0.1)
        self.assertEqual(host["back"]["ce"], 0)

    def test_bleached_ecn_bits_are_told_in_words_for_that_way_alone(self):
        Wire(self, self.name("a"), "10.99.0.1/30", self.name("b"), "10.99.0.2/30", {"a>b": {"bleach_every": 1}})
        responder(self, "10.99.0.2", 47910, netns=self.name("b"))
        done = weft("ping", "--transport", "udp", "-c", 10, "-i", "20ms", "--no-path", "10.99.0.2", netns=self.name("a"))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"ECN +cannot be measured: ECN bits are cleared on the way +0 of 10 \(0 %\) marked")

    def test_bleached_ecn_bits_are_cannot_measure_never_0_percent(self):
        code, host = self.measure({"a>b": {"bleach_every": 1}}, count=30)
        self.assertEqual(code, 0)
        self.assertEqual(host["there"]["ecn_capable"], 0)
        self.assertEqual(host["there"]["bleached"], 30)
        self.assertGreater(host["back"]["ecn_capable"], 0)


if __name__ == "__main__":
    unittest.main()
