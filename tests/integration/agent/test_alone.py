"""weftd without an aggregator: start, probing by its own list, reload, stop, and every way it may be refused."""

import os
import pathlib
import signal
import socket
import subprocess
import time
import unittest

from tests.integration.agent.harness import Bench, WEFTD, free_port, until


def weftd(*argv):
    return subprocess.run([str(WEFTD), *map(str, argv)], text=True, capture_output=True, timeout=20, check=False)


class Refused(unittest.TestCase):
    def test_bad_configuration_exits_2_with_file_line_and_column(self):
        with Bench() as bench:
            path = bench.write("bad.toml", "[agent]\nname = \"a\"\n[probe]\ntransprt = \"udp\"\n")
            for flags in (["--check-config"], []):
                done = weftd("--config", path, *flags)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"{path}:4:1: unknown key 'probe.transprt'", done.stderr)

    def test_a_pipe_as_configuration_is_read_to_its_end_and_not_waited_for_for_ever(self):
        with Bench() as bench:
            nobody = os.path.join(bench.folder, "pipe")
            os.mkfifo(nobody)
            done = weftd("--config", nobody, "--check-config")
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"read {nobody}: ", done.stderr)
            done = subprocess.run(["bash", "-c", f"{WEFTD} --check-config --config <(sleep 0.2; echo '[agent]')"],
                                  text=True, capture_output=True, timeout=20, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_key_file_open_to_all_is_refused(self):
        with Bench() as bench:
            key = bench.write("key", "a" * 64, mode=0o644)
            path = bench.write("w.toml", f'[fabric]\nkey_file = "{key}"\n')
            done = weftd("--config", path, "--check-config")
            self.assertEqual(done.returncode, 2)
            self.assertIn("chmod", done.stderr)
            self.assertNotIn("a" * 64, done.stderr)

    def test_bad_flags_exit_2_and_help_shows_examples(self):
        self.assertEqual(weftd("--no-such-flag").returncode, 2)
        done = weftd("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("Examples:", done.stdout)
        self.assertTrue(weftd("--version").stdout.startswith("weftd "))

    def test_no_rdma_device_is_listed_with_its_reason(self):
        with Bench() as bench:
            done = weftd("--list-collectors", "--sys-root", bench.folder)
            self.assertEqual(done.returncode, 0)
            line = next(line for line in done.stdout.splitlines() if line.startswith("rdma"))
            self.assertRegex(line, r"^rdma +off +\S.*")

    def test_metrics_port_taken_exits_1_and_names_it(self):
        with Bench() as bench, socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            path = bench.write("w.toml", f'[agent]\nstate_dir = "{bench.folder}"\n'
                                         f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
            done = weftd("--config", path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"127.0.0.1:{port}", done.stderr)


class Running(unittest.TestCase):
    def setUp(self):
        self.bench = self.enterContext(Bench())
        self.hello_port = free_port(kind=socket.SOCK_DGRAM)

    def pair(self, **options):
        first = self.bench.agent(1, targets=[2], hello_port=self.hello_port, **options)
        second = self.bench.agent(2, targets=[1], hello_port=self.hello_port, **options)
        return first, second

    def test_two_agents_probe_each_other_by_their_own_lists(self):
        first, second = self.pair()
        for agent in (first, second):
            until(f"{agent.name} has answers", lambda a=agent: (a.metric("weft_probe_acknowledged_total") or 0) > 20)
            self.assertEqual(agent.get("/healthz"), (200, "ok\n"))
            self.assertIsNotNone(agent.metric("weft_probe_round_trip_seconds"))
            self.assertEqual(agent.metric("weft_stream_state", state="inactive"), 1)
        self.assertEqual(first.metric("weft_probe_lost_total"), 0)

    def test_transport_auto_without_rdma_probes_over_udp_and_says_what_that_misses(self):
        empty = self.bench.folder / "empty"
        kernel = empty / "proc/sys/kernel"
        kernel.mkdir(parents=True)
        (kernel / "osrelease").write_text("6.1.0-of-the-test\n")
        flags = ["--sys-root", empty, "--proc-root", empty / "proc"]
        first, _ = self.pair(transport="auto", flags=flags)
        until("answers over UDP", lambda: (first.metric("weft_probe_acknowledged_total") or 0) > 5)
        self.assertGreater(first.metric("weft_agent_limitations"), 0)
        self.assertIn("no RDMA device is here, so paths are probed over UDP", first.process.log())
        self.assertEqual(first.metric("weft_agent_info", kernel="6.1.0-of-the-test"), 1)

    def test_a_device_whose_driver_blocks_from_the_start_leaves_the_host_to_udp(self):
        sys_root = self.bench.folder / "blocked"
        port = sys_root / "class/infiniband/mlx5_0/ports/1"
        port.mkdir(parents=True)
        os.mkfifo(port / "state")  # who opens it waits for a writer, as in a driver that does not answer
        flags = ["--sys-root", sys_root]
        first, _ = self.pair(transport="auto", flags=flags)
        until("answers over UDP", lambda: (first.metric("weft_probe_acknowledged_total") or 0) > 5)
        log = first.process.log()
        self.assertIn("no port of an RDMA device can be read, so paths are probed over UDP", log)
        self.assertIn("rnic:a1/mlx5_0", log)
        self.assertEqual(first.get("/healthz"), (200, "ok\n"))
        status, seconds = first.process.stop()
        self.assertEqual(status, 0)
        self.assertLess(seconds, 4)

    def test_what_the_kernel_tells_and_what_devices_do_not_give_are_counted(self):
        agent = self.bench.agent(1, hello_port=self.hello_port)
        for source in ("uevent", "link"):
            self.assertEqual(agent.metric("weft_inventory_malformed_total", source=source), 0)
            self.assertIsNotNone(agent.metric("weft_inventory_overruns_total", source=source))
        self.assertIsNotNone(agent.metric("weft_inventory_values_missing_total", reason="absent"))
        self.assertIsNotNone(agent.metric("weft_inventory_values_missing_total", reason="failed"))
        self.assertEqual(agent.metric("weft_metrics_refused_total") or 0, 0)

    def test_wrong_key_gets_no_answer_and_is_counted_by_reason(self):
        good = self.bench.write("good.key", "a" * 64)
        bad = self.bench.write("bad.key", "b" * 64)
        first = self.bench.agent(1, targets=[2], key_file=good, hello_port=self.hello_port)
        second = self.bench.agent(2, key_file=bad, hello_port=self.hello_port)
        until("the stranger is counted", lambda: (second.metric("weft_probe_rejected_total", reason="bad_mac") or 0) > 0)
        self.assertEqual(first.metric("weft_probe_acknowledged_total") or 0, 0)
        self.assertEqual(second.metric("weft_probe_answered_total") or 0, 0)

    def test_hello_port_taken_is_a_limitation_and_heals_by_itself_perftest_383(self):
        taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        taken.bind(("127.0.0.2", self.hello_port))
        agent = self.bench.agent(1, hello_port=self.hello_port)
        agent.process.wait_log(str(self.hello_port))
        self.assertIn("cannot probe from this device", agent.process.log())
        until("a limitation", lambda: (agent.metric("weft_agent_limitations") or 0) > 0)
        taken.close()
        until("open", lambda: agent.metric("weft_probe_endpoint_open") == 1)

    def test_reload_with_a_bad_file_keeps_the_old_and_a_good_one_is_taken(self):
        first, _ = self.pair()
        until("answers", lambda: (first.metric("weft_probe_acknowledged_total") or 0) > 5)
        for bad, words in (("[nonsense]\n", "unknown key 'nonsense'"), ("[log]\nlevel = 7\n", "'log.level' must be a string"),
                           ("[log]\nlevel = \"loud\"\n", "must be one of"), ("[log\n", ":")):
            first.config.write_text(first.text() + bad)
            seen = first.process.log().count("the old one stays")
            first.process.send(signal.SIGHUP)
            until("refused", lambda n=seen: first.process.log().count("the old one stays") > n)
            self.assertIn(words, first.process.log())
            self.assertRegex(first.process.log().splitlines()[-1], rf"{first.config}:\d+:\d+: ")
        until("the page says so", lambda: first.metric("weft_config_rejected") == 1)
        before = first.metric("weft_probe_acknowledged_total")
        until("still probing", lambda: first.metric("weft_probe_acknowledged_total") > before)
        first.options["targets"] = []
        first.config.write_text(first.text())
        first.process.send(signal.SIGHUP)
        first.process.wait_log("read again")
        until("no peers", lambda: first.metric("weft_probe_round_trip_seconds") is None)
        self.assertEqual(first.metric("weft_config_rejected"), 0)

    def test_sigterm_and_sigint_stop_within_two_seconds(self):
        for host, signal_number in ((1, signal.SIGTERM), (2, signal.SIGINT)):
            agent = self.bench.agent(host, hello_port=self.hello_port)
            status, seconds = agent.process.stop(signal_number)
            self.assertEqual(status, 0, agent.process.log())
            self.assertLess(seconds, 2)

    def test_service_manager_hears_ready_status_watchdog_reloading_and_stopping(self):
        path = str(self.bench.folder / "notify")
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        heard.bind(path)
        heard.settimeout(10)
        agent = self.bench.agent(1, hello_port=self.hello_port,
                                 environment={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000"})
        words = []

        def hear(text):
            while not any(text in word for word in words):
                words.append(heard.recv(4096).decode())

        try:
            for text in ("READY=1", "STATUS=aggregator inactive", "WATCHDOG=1"):
                hear(text)
        except TimeoutError:
            if "systemd         off" in weftd("--list-collectors").stdout:
                self.skipTest("built without libsystemd")
            raise
        words.clear()
        agent.process.send(signal.SIGHUP)
        hear("RELOADING=1")
        hear("READY=1")
        agent.process.send(signal.SIGTERM)
        hear("STOPPING=1")
        heard.close()

    def test_idle_agent_wakes_rarely(self):
        agent = self.bench.agent(1, hello_port=self.hello_port)
        until("open", lambda: agent.metric("weft_probe_endpoint_open") == 1)

        def ticks():
            text = pathlib.Path(f"/proc/{agent.process.process.pid}/stat").read_text(encoding="ascii")
            fields = text.rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        before, start = ticks(), time.monotonic()
        time.sleep(3)  # a share of a core needs an interval
        share = (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - start)
        self.assertLess(share, 0.2)


if __name__ == "__main__":
    unittest.main()
