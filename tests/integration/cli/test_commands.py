"""status, responder, mesh, findings, version and help: what an operator sees, exit codes, JSON on every path."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from tests.integration.cli_support import (ROOT, WEFT, NetworkTest, Process, Wire, clean_environment, command,
                                           free_udp_port, parse_one_object, responder, wait_for, weft)

COMMANDS = ("status", "ping", "trace", "mesh", "findings", "responder", "version")
NOBODY = "http://127.0.0.1:9"


def a_hello(test):
    """An authentic hello of a `weft ping` from 127.0.0.1, under the well-known key."""
    port = free_udp_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.3", port))
        peer.settimeout(10)
        asking = Process(test, "ping", "--transport", "udp", "--source", "127.0.0.1", "--hello-port", port, "127.0.0.3")
        hello = peer.recv(4096)
        asking.end()
    return hello


class Help(unittest.TestCase):
    def test_every_command_has_help_with_examples_and_exit_codes(self):
        top = weft("--help")
        self.assertEqual(top.returncode, 0)
        for command in COMMANDS:
            self.assertIn(command, top.stdout)
            done = weft(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn(f"  weft {command}", done.stdout)
            self.assertIn("124 deadline", done.stdout)
            self.assertIn("--json", done.stdout)
            self.assertEqual(done.stderr, "")

    def test_the_id_in_the_help_is_one_as_findings_have_it(self):
        shown = re.search(r"weft findings --ack (\S+)", weft("findings", "--help").stdout).group(1)
        self.assertRegex(shown, r"^f\d+-\d+$")
        self.assertIn(f"[{shown}]", (ROOT / "README.md").read_text())

    def test_no_command_and_unknown_command_are_usage(self):
        self.assertEqual(weft().returncode, 2)
        self.assertEqual(weft("pong").returncode, 2)

    def test_help_into_a_closed_pipe_is_quiet(self):
        done = subprocess.run(f"{WEFT} --help | true", shell=True, capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")


class Colour(unittest.TestCase):
    def test_none_in_a_pipe_and_always_on_demand(self):
        self.assertNotIn("\033", weft("version").stdout)
        self.assertIn("\033", weft("version", "--color", "always").stdout)
        self.assertNotIn("\033", weft("version", "--color=never").stdout)


class Version(unittest.TestCase):
    def test_features_are_listed_with_the_reason_when_off(self):
        body = parse_one_object(weft("version", "--json").stdout)
        self.assertRegex(body["version"], r"^\d+\.\d+\.\d+")
        names = [feature["name"] for feature in body["features"]]
        self.assertIn("rdma", names)
        for feature in body["features"]:
            self.assertTrue(feature["on"] or feature["reason"])


class Status(unittest.TestCase):
    def test_without_rdma_it_says_what_is_missing_and_how_to_get_it(self):
        with tempfile.TemporaryDirectory() as empty:
            done = weft("status", "--sys-root", empty, "--agent", NOBODY, "--json")
        self.assertEqual(done.returncode, 0)
        body = parse_one_object(done.stdout)
        self.assertEqual(body["devices"], [])
        self.assertFalse(body["agent"]["answers"])
        self.assertTrue(any(limit["how"] for limit in body["limitations"]))

    def test_a_port_that_is_down_is_exit_1(self):
        with tempfile.TemporaryDirectory() as folder:
            port = pathlib.Path(folder, "class/infiniband/mlx5_0/ports/1")
            (port / "gids").mkdir(parents=True)
            (port / "state").write_text("1: DOWN\n")
            (port / "link_layer").write_text("Ethernet\n")
            (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
            done = weft("status", "--sys-root", folder, "--agent", NOBODY)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("mlx5_0", done.stdout)
        self.assertRegex(done.stdout.lower(), "down")

    def test_a_silent_port_of_the_agent_is_given_up_in_time_perftest_381(self):
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            started = time.monotonic()
            done = weft("status", "--agent", f"http://127.0.0.1:{deaf.getsockname()[1]}", "--deadline", "500ms", "--json")
            self.assertLess(time.monotonic() - started, 5)
        self.assertFalse(parse_one_object(done.stdout)["agent"]["answers"])


class Responder(unittest.TestCase):
    def test_says_where_it_listens_and_ends_by_itself(self):
        port = free_udp_port()
        done = weft("responder", "--transport", "udp", "--source", "127.0.0.2", "--hello-port", port, "--for", "300ms")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"hello on UDP port {port}", done.stderr)
        self.assertIn("0 probes answered", done.stdout)

    def test_a_taken_port_is_exit_3_and_says_so_perftest_383(self):
        port = free_udp_port()
        responder(self, "127.0.0.2", port)
        done = weft("responder", "--transport", "udp", "--source", "127.0.0.2", "--hello-port", port, "--for", "1s",
                    "--json")
        self.assertEqual(done.returncode, 3)
        self.assertIn(str(port), parse_one_object(done.stdout)["error"]["message"])

    def test_ctrl_c_ends_it_with_the_count_of_answers(self):
        port = free_udp_port()
        process = responder(self, "127.0.0.2", port)
        self.assertEqual(weft("ping", "--transport", "udp", "--hello-port", port, "-c", 3, "-i", "20ms",
                              "127.0.0.2").returncode, 0)
        code, out, _ = process.interrupt()
        self.assertEqual(code, 0)
        self.assertGreaterEqual(int(re.match(r"(\d+) probe", out).group(1)), 3)

    def test_what_it_ignored_is_told_by_reason_wrong_key_other_version_garbage_and_rate(self):
        """The summary must say why a peer gets no answer: the peer itself only hears silence."""
        port = free_udp_port()
        with tempfile.NamedTemporaryFile("w", suffix=".key") as key:
            key.write("b" * 64)
            key.flush()
            process = responder(self, "127.0.0.2", port)
            strange = weft("ping", "--transport", "udp", "--hello-port", port, "-c", 1, "--key-file", key.name,
                           "127.0.0.2")
        self.assertEqual(strange.returncode, 3)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as odd:
            hello = a_hello(self)
            odd.bind(("127.0.0.1", 0))
            odd.sendto(b"\x5a" * len(hello), ("127.0.0.2", port))
            odd.sendto(b"\x5a", ("127.0.0.2", port))
            odd.sendto(hello[:4] + bytes([hello[4] + 1]) + hello[5:], ("127.0.0.2", port))
            for _ in range(3000):
                odd.sendto(hello, ("127.0.0.2", port))
        # Answered in its turn, so everything before has been looked at; and strangers do not lock out a friend.
        self.assertEqual(weft("ping", "--transport", "udp", "--hello-port", port, "-c", 3, "-i", "20ms",
                              "127.0.0.2").returncode, 0)
        code, out, _ = process.interrupt()
        self.assertEqual(code, 0)
        for reason in ("with a wrong key, or damaged", "garbage (not of weft)", "garbage (too short)",
                       "of another version of weft", "over the rate"):
            self.assertRegex(out, rf"[1-9]\d* {re.escape(reason)}")
        self.assertNotRegex(out, r"\b0 ", "reasons that never were are noise")

    def test_rdma_asked_for_where_there_is_none_is_exit_3(self):
        with tempfile.TemporaryDirectory() as empty:
            done = weft("responder", "--transport", "rdma", "--sys-root", empty, "--json")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(parse_one_object(done.stdout)["error"]["kind"], "unsupported")


class Written(unittest.TestCase):
    def test_a_full_disk_is_no_healthy_answer_and_a_closed_pipe_is_one(self):
        for arguments in (["version"], ["--help"], ["version", "--json"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run(command(*arguments), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 3, arguments)
            self.assertIn("No space left on device", done.stderr)
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as closed:
            done = subprocess.run(command("version"), stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class MeshDirect(unittest.TestCase):
    def test_measures_each_host_from_here(self):
        port = free_udp_port()
        responder(self, "127.0.0.2", port)
        done = weft("mesh", "--direct", "--transport", "udp", "--hello-port", port, "--for", "1s", "--ports", 2, "--json",
                    "127.0.0.2")
        self.assertEqual(done.returncode, 0, done.stdout)
        pair = parse_one_object(done.stdout)["pairs"][0]
        self.assertEqual((pair["state"], pair["lost"]), ("ok", 0))
        self.assertGreater(pair["sent"], 5)

    def test_no_host_answers_is_exit_3(self):
        done = weft("mesh", "--direct", "--transport", "udp", "--hello-port", free_udp_port(), "--for", "1s", "--json",
                    "127.0.0.2")
        self.assertEqual(done.returncode, 3)
        body = parse_one_object(done.stdout)
        self.assertEqual(body["pairs"][0]["state"], "silent")
        self.assertIn("error", body)

    def test_a_host_that_does_not_resolve_ends_no_other_and_is_exit_3_with_its_reason(self):
        port = free_udp_port()
        responder(self, "127.0.0.2", port)
        done = weft("mesh", "--direct", "--transport", "udp", "--hello-port", port, "--for", "1s", "--json",
                    "no-such-host.invalid", "127.0.0.2")
        self.assertEqual(done.returncode, 3, done.stdout)
        body = parse_one_object(done.stdout)
        self.assertIn("no-such-host.invalid: cannot measure: host no-such-host.invalid", body["error"]["message"])
        self.assertEqual([(pair["state"], pair["sent"] > 0) for pair in body["pairs"]],
                         [("ok", True), ("unknown", False)])

    def test_options_of_rdma_are_noted_where_udp_was_fallen_back_to(self):
        port = free_udp_port()
        responder(self, "127.0.0.2", port)
        with tempfile.TemporaryDirectory() as empty:
            done = weft("ping", "--sys-root", empty, "--gid", 3, "--device-port", 2, "--hello-port", port, "-c", 3,
                        "-i", "20ms", "127.0.0.2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--gid and --device-port: no meaning over UDP", done.stderr)

    def test_no_host_named_is_usage(self):
        self.assertEqual(weft("mesh", "--direct").returncode, 2)


class AggregatorDown(unittest.TestCase):
    def test_findings_and_mesh_are_exit_3_and_name_what_works_without_it(self):
        for command in ("findings", "mesh"):
            done = weft(command, "--aggregator", NOBODY, "--deadline", "1s")
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertIn("--direct", done.stderr)
            body = parse_one_object(weft(command, "--aggregator", NOBODY, "--deadline", "1s", "--json").stdout)
            self.assertEqual(body["exit_code"], 3)
            self.assertIn("message", body["error"])

    def test_an_aggregator_that_never_answers_is_given_up(self):
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            started = time.monotonic()
            done = weft("findings", "--aggregator", f"http://127.0.0.1:{deaf.getsockname()[1]}", "--deadline", "500ms")
            self.assertLess(time.monotonic() - started, 5)
        self.assertEqual(done.returncode, 3)

    def test_bad_address_and_bad_kind_are_usage(self):
        for address, why in (("nonsense", "no port"), ("7470", "no host"), ("a/b:1", "only a host and a port"),
                             ("ftp://x", "only http"), ("", "empty"), ("h1:99999", "port is no number")):
            for command in ("findings", "mesh"):
                done = weft(command, "--aggregator", address)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(why, done.stderr)
                self.assertIn("127.0.0.1:7470", done.stderr)
        done = weft("findings", "--kind", "gremlins")
        self.assertEqual(done.returncode, 2)
        self.assertIn("link_loss", done.stderr)


class AggregatorHangs(unittest.TestCase):
    """It accepts and never answers. Ctrl-C and SIGTERM end the command at once: its deadline is far away."""

    def serve(self, handle=lambda peer: None):
        """handle gets each connection; what it does not close stays open and silent."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        taken, peers = threading.Semaphore(0), []

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    peers.append(server.accept()[0])
                    handle(peers[-1])
                    taken.release()
            for peer in peers:
                peer.close()

        thread = threading.Thread(target=accept)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown, socket.SHUT_RDWR)  # runs first: it ends the thread
        return f"127.0.0.1:{server.getsockname()[1]}", taken

    def end(self, process, number):
        started = time.monotonic()
        process.process.send_signal(number)
        out, err = process.process.communicate(timeout=30)
        self.assertLess(time.monotonic() - started, 5)
        return process.process.returncode, out, err

    def test_a_signal_ends_the_wait(self):
        for command in (("findings",), ("findings", "--watch"), ("findings", "--ack", "f1-0"), ("mesh",)):
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(command=command, signal=number):
                    address, taken = self.serve()
                    process = Process(self, *command, "--aggregator", address, "--deadline", "10m", "--json")
                    self.assertTrue(taken.acquire(timeout=30))
                    code, out, err = self.end(process, number)
                    self.assertEqual(code, 3, err)
                    self.assertIn("stopped before", parse_one_object(out)["error"]["message"])

    def test_a_watch_that_saw_the_fabric_ends_with_what_it_saw(self):
        answers = [{"schema": 1, "coverage": {"ready": True}}, {"schema": 1, "findings": [], "total": 0}]

        def answer(peer):
            if answers:
                body = json.dumps(answers.pop(0))
                peer.recv(65536)
                peer.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                peer.shutdown(socket.SHUT_WR)

        address, taken = self.serve(answer)
        process = Process(self, "findings", "--watch", "--aggregator", address, "--deadline", "10m")
        for _ in range(3):
            self.assertTrue(taken.acquire(timeout=30))
        code, _, err = self.end(process, signal.SIGINT)
        self.assertEqual(code, 0, err)
        self.assertNotIn("stopped before", err)

    def test_status_does_not_wait_for_a_silent_agent_either(self):
        address, taken = self.serve()
        process = Process(self, "status", "--agent", address, "--deadline", "10m", "--json")
        self.assertTrue(taken.acquire(timeout=30))
        _, out, _ = self.end(process, signal.SIGTERM)
        self.assertFalse(parse_one_object(out)["agent"]["answers"])


class AggregatorUp(unittest.TestCase):
    def setUp(self):
        program = WEFT.parents[1] / "aggregator" / "weft-aggregator"
        if not program.exists():
            self.skipTest(f"{program.name} is not built")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        ports = []
        for _ in range(2):
            with socket.create_server(("127.0.0.1", 0)) as free:
                ports.append(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{ports[0]}"
        process = subprocess.Popen(
            [program, "--store", f"{folder.name}/weft.db", "--listen-http", f"127.0.0.1:{ports[0]}", "--listen-grpc",
             f"127.0.0.1:{ports[1]}"], cwd=ROOT, env=clean_environment(), stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        wait_for(lambda: weft("findings", "--aggregator", self.url, "--deadline", "1s").stdout, "the aggregator")

    def test_nothing_found_before_anything_was_measured_is_not_healthy_sichek_110(self):
        done = weft("findings", "--aggregator", self.url)
        self.assertEqual(done.returncode, 3)
        self.assertIn("not \"healthy\"", done.stdout)
        body = parse_one_object(weft("findings", "--aggregator", self.url, "--json").stdout)
        self.assertEqual((body["exit_code"], body["findings"]), (3, []))
        self.assertEqual(weft("mesh", "--aggregator", self.url).returncode, 3)

    def test_the_address_does_without_a_scheme(self):
        done = weft("findings", "--aggregator", self.url.removeprefix("http://"))
        self.assertEqual(done.returncode, 3)
        self.assertIn("not \"healthy\"", done.stdout)

    def test_acknowledging_an_unknown_finding_is_refused(self):
        done = weft("findings", "--aggregator", self.url, "--ack", "nope")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("nope", done.stderr)

    def test_watch_waits_and_ends_by_ctrl_c(self):
        process = Process(self, "findings", "--watch", "--aggregator", self.url)
        process.read_until("waiting for changes")
        code, _, _ = process.interrupt()
        self.assertEqual(code, 3)


class MeshFaultyWire(NetworkTest):
    """A cable that loses UDP, and machines that share a name."""

    def test_machines_of_one_name_are_told_by_address_and_none_is_accused(self):
        self.add_node("a")
        hosts = {"b": "10.99.0.2", "c": "10.99.1.2"}
        for node, address in hosts.items():
            self.add_node(node)
            self.connect("a", address[:-1] + "1/30", node, address + "/30")
            responder(self, address, 47910, netns=self.name(node), hostname="vm")
        done = weft("mesh", "--direct", "--transport", "udp", "--for", "8s", "--ports", 4, "--json", *hosts.values(),
                    netns=self.name("a"), hostname="vm")
        body = parse_one_object(done.stdout)
        self.assertEqual((done.returncode, body["findings"]), (0, []), body)
        self.assertEqual({pair["to"].split("/")[0] for pair in body["pairs"]}, set(hosts.values()))
        for address in hosts.values():
            self.assertTrue(any(f"{address} calls itself vm" in note for note in body["not_checked"]), body)

    def test_a_lossy_wire_is_seen_as_loss_of_the_pair(self):
        self.add_node("a")
        self.add_node("b")
        Wire(self, self.name("a"), "10.99.0.1/30", self.name("b"), "10.99.0.2/30", {"a>b": {"drop_every": 3}})
        responder(self, "10.99.0.2", 47910, netns=self.name("b"))
        # Probes that are lost while this host is late itself do not count, and the share says so: measured again.
        for _ in range(20):
            done = weft("mesh", "--direct", "--transport", "udp", "--for", "3s", "--ports", 4, "10.99.0.2",
                        netns=self.name("a"))
            if "late itself" not in done.stderr:
                break
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"loss +3\d %")

    def test_ctrl_c_prints_what_was_measured_so_far(self):
        self.add_node("a")
        self.add_node("b")
        Wire(self, self.name("a"), "10.99.0.1/30", self.name("b"), "10.99.0.2/30", {})
        responder(self, "10.99.0.2", 47910, netns=self.name("b"))
        process = Process(self, "mesh", "--direct", "--transport", "udp", "--for", "10m", "10.99.0.2",
                          netns=self.name("a"))
        process.read_until("measuring 1 host")

        def received():
            links = json.loads(subprocess.run(["ip", "-n", self.name("a"), "-j", "-s", "link", "show"], check=True,
                                              capture_output=True, text=True).stdout)
            return sum(link["stats64"]["rx"]["packets"] for link in links if link["ifname"] != "lo")

        wait_for(lambda: received() >= 30, "answers to probes", 60)
        code, out, _ = process.interrupt()
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r" ok +0 % +[1-9]", out)


if __name__ == "__main__":
    unittest.main()
