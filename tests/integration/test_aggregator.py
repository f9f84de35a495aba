"""weft-aggregator as a real process: streams, restarts, damage, a full disk, slow and hostile clients."""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import unittest
import urllib.request

from tests.integration.aggregator_support import AGGREGATOR, PATIENCE, AggregatorCase, wait_for


class AggregatorProcess(AggregatorCase):
    def test_wrong_flags_and_config_end_with_2_and_a_place(self):
        config = self.folder / "a.toml"
        config.write_text("[fabric]\nname = \"lab\"\nnane = \"x\"\n")
        done = subprocess.run([AGGREGATOR, "--config", config], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a.toml:3:1", done.stderr)
        config.write_text("[localise]\nloss_ratio_raise = 0.001\n")
        done = subprocess.run([AGGREGATOR, "--config", config, "--check-config"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(subprocess.run([AGGREGATOR, "--nonsense"], capture_output=True, check=False).returncode, 2)
        self.assertEqual(subprocess.run([AGGREGATOR, "--help"], capture_output=True, check=False).returncode, 0)

    def test_a_pipe_as_configuration_is_read_to_its_end_and_not_waited_for_for_ever(self):
        nobody = self.folder / "pipe"
        os.mkfifo(nobody)
        done = subprocess.run([AGGREGATOR, "--config", nobody, "--check-config"], capture_output=True, text=True,
                              check=False, timeout=PATIENCE)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"read {nobody}: ", done.stderr)
        done = subprocess.run(["bash", "-c", f"{AGGREGATOR} --check-config --config <(sleep 0.2; echo '[fabric]')"],
                              capture_output=True, text=True, check=False, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_bad_reload_keeps_the_old_and_good_one_is_taken(self):
        config = self.folder / "a.toml"
        topology = self.folder / "t.toml"
        good = 'fabric = "lab"\n[[switch]]\nname = "s1"\n'
        topology.write_text(good)
        config.write_text(f'[fabric]\nname = "lab"\ntopology_file = "{topology}"\n[store]\npath = "{self.folder}/w.db"\n'
                          '[listen]\ngrpc = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\n')
        log = self.folder / "log"
        with open(log, "wb") as out:
            process = subprocess.Popen([AGGREGATOR, "--config", config], stderr=out)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_for("listening", lambda: "listening" in log.read_text())
        port = re.search(r"http_port=(\d+)", log.read_text())[1]

        def rejected():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                return re.search(r"^weft_config_rejected (\d)$", page.read().decode(), re.M)[1]

        topology.write_text("[[swich]]\n")
        process.send_signal(signal.SIGHUP)
        wait_for("the refusal", lambda: "the old one stays" in log.read_text())
        self.assertIn("t.toml:1:", log.read_text())
        topology.write_text(good)
        kept = config.read_text()
        config.write_text(kept + "[localise]\nloss_ratio_raise = 0.01\nloss_ratio_clear = 0.02\n")
        process.send_signal(signal.SIGHUP)
        wait_for("the second refusal", lambda: log.read_text().count("the old one stays") == 2)
        wait_for("the page to say so", lambda: rejected() == "1")
        self.assertRegex(log.read_text(), r"a\.toml:\d+:\d+: 'localise.loss_ratio_clear': must be below")
        config.write_text(kept)
        process.send_signal(signal.SIGHUP)
        wait_for("the reload", lambda: "thresholds reloaded" in log.read_text())
        wait_for("the page to say so", lambda: rejected() == "0")
        self.assertIsNone(process.poll())

    def test_a_changed_threshold_acts_after_the_reload(self):
        config = self.folder / "a.toml"
        config.write_text("[localise]\nloss_ratio_raise = 0.05\nloss_ratio_clear = 0.01\n")
        aggregator = self.aggregator(config=config)
        agents = self.agents(aggregator)
        for name in ("h1", "peer0"):
            agents.tell("open", name, "lab", name, 1)
            agents.wait(name, "welcome")
        sequence = 0

        def state():
            # One of ten probes is lost, all the time; both hosts report.
            nonlocal sequence
            sequence += 1
            agents.tell("batch", "h1", sequence, 1, 1)
            agents.tell("batch", "peer0", sequence, 0)
            for name in ("h1", "peer0"):
                agents.wait(name, "ack", lambda e: e["sequence"] == sequence)
            return {cell["state"] for cell in aggregator.get("/api/v1/mesh")["mesh"]
                    if (cell["from"], cell["to"]) == ("h1/rxe0", "peer0/rxe0")}

        wait_for("10 % are over 5 %", lambda: state() == {"loss"})
        config.write_text("[localise]\nloss_ratio_raise = 0.5\nloss_ratio_clear = 0.01\n")
        aggregator.process.send_signal(signal.SIGHUP)
        wait_for("10 % are under 50 %", lambda: state() == {"ok"})
        config.write_text("[localise]\nloss_ratio_raise = 0.02\nloss_ratio_clear = 0.01\n")
        aggregator.process.send_signal(signal.SIGHUP)
        wait_for("10 % are over 2 %", lambda: state() == {"loss"})
        self.assertEqual(aggregator.log.read_text().count("thresholds reloaded"), 2)

    def test_kill_in_mid_stream_loses_and_doubles_nothing_acknowledged(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("open", "a", "lab", "h1", 7)
        self.assertEqual(agents.wait("a", "welcome")["last_stored"], 0)
        for sequence in range(1, 101):
            agents.tell("batch", "a", sequence, 5)
        agents.wait("a", "ack", lambda e: e["sequence"] >= 20)
        aggregator.kill()
        agents.wait("a", "end")
        acknowledged = max(e["sequence"] for e in agents.seen("a", "ack"))
        aggregator.start()
        agents.tell("open", "b", "lab", "h1", 7)
        last = agents.wait("b", "welcome")["last_stored"]
        self.assertGreaterEqual(last, acknowledged)
        self.assertLessEqual(last, 100)
        # As an agent whose acknowledgement was lost: from an earlier one on, all again.
        for sequence in range(max(1, last - 5), 121):
            agents.tell("batch", "b", sequence, 5)
        agents.wait("b", "ack", lambda e: e["sequence"] == 120)
        wait_for("the counters", lambda: aggregator.metric("weft_stream_records_total") == (120 - last) * 6)
        aggregator.terminate()
        shutil.copy(aggregator.store, self.folder / "copy.db")
        with sqlite3.connect(self.folder / "copy.db") as database:
            self.assertEqual(database.execute("SELECT epoch, last_sequence FROM agents").fetchall(), [(7, 120)])
            self.assertEqual(database.execute("SELECT count(*) FROM journal").fetchone()[0], 120)
        database.close()

    def test_garbage_records_are_dropped_alone_and_counted(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("open", "a", "lab", "h1", 1)
        agents.tell("garbage", "a", 1)
        agents.tell("batch", "a", 2, 1)
        agents.wait("a", "ack", lambda e: e["sequence"] == 2)
        self.assertEqual(sum(e["rejected"] for e in agents.seen("a", "ack")), 4)
        wait_for("the counters", lambda: aggregator.metric('weft_stream_rejected_total{reason="malformed"}') == 2)
        self.assertEqual(aggregator.metric('weft_stream_rejected_total{reason="foreign"}'), 1)
        self.assertEqual(aggregator.metric('weft_stream_rejected_total{reason="unknown"}'), 1)
        wait_for("what is stored", lambda: aggregator.metric("weft_stream_records_total") == 3)
        self.assertEqual(aggregator.metric('weft_stream_batches_total{result="stored"}'), 2)

    def test_wrong_fabric_is_refused_with_the_reason(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("open", "a", "prod", "h1", 1)
        self.assertIn("'prod'", agents.wait("a", "welcome")["refused"])
        agents.wait("a", "end")
        wait_for("the counter", lambda: aggregator.metric('weft_stream_refused_total{reason="fabric"}') == 1)

    def test_bytes_before_hello_end_the_stream(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("silent", "a")
        agents.tell("batch", "a", 1, 1)
        self.assertEqual(agents.wait("a", "end")["code"], 3)
        wait_for("the counter", lambda: aggregator.metric('weft_stream_refused_total{reason="protocol"}') == 1)

    def test_a_stream_without_hello_is_cut_off(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("silent", "a")
        self.assertEqual(agents.wait("a", "end")["code"], 3)

    def test_messages_over_4_mib_end_their_stream_and_nobody_elses(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("open", "good", "lab", "h1", 1)
        agents.wait("good", "welcome")
        before = aggregator.resident_mib()
        for number in range(20):
            name = f"big{number}"
            agents.tell("open", name, "lab", name, 1)
            agents.wait(name, "welcome")
            agents.tell("big", name, 1, 4 + number)
            self.assertEqual(agents.wait(name, "end")["code"], 8)  # RESOURCE_EXHAUSTED
            self.assertEqual(agents.seen(name, "ack"), [])
            agents.tell("batch", "good", number + 1, 1)
            agents.wait("good", "ack", lambda e, n=number: e["sequence"] == n + 1)
        # Of 280 MiB sent none is kept.
        wait_for("memory is given back", lambda: aggregator.resident_mib() < before + 64)
        self.assertEqual(agents.seen("good", "end"), [])
        wait_for("only the good one is left", lambda: aggregator.get("/api/v1/status")["agents"]["connected"] == 1)
        wait_for("the good one's records", lambda: aggregator.metric("weft_stream_records_total") == 20 * 2)

    def test_many_silent_streams_are_cut_off_and_counted_while_others_are_served(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        silent = [f"s{number}" for number in range(100)]
        for name in silent:
            agents.tell("silent", name)
        agents.tell("open", "good", "lab", "h1", 1)
        agents.wait("good", "welcome")
        agents.tell("batch", "good", 1, 1)
        agents.wait("good", "ack", lambda e: e["sequence"] == 1)
        for name in silent:
            self.assertEqual(agents.wait(name, "end")["code"], 3)
        wait_for("each is counted", lambda: aggregator.metric('weft_stream_refused_total{reason="protocol"}') == 100)
        agents.tell("batch", "good", 2, 1)
        agents.wait("good", "ack", lambda e: e["sequence"] == 2)
        self.assertEqual(agents.seen("good", "end"), [])

    def test_of_two_streams_of_one_agent_the_newer_epoch_stands(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("open", "old", "lab", "h1", 5)
        agents.wait("old", "welcome")
        agents.tell("open", "new", "lab", "h1", 6)
        agents.wait("new", "welcome")
        self.assertEqual(agents.wait("old", "end")["code"], 10)
        agents.tell("open", "older", "lab", "h1", 4)
        self.assertIn("newer agent", agents.wait("older", "welcome")["refused"])
        agents.tell("batch", "new", 1, 1)
        agents.wait("new", "ack", lambda e: e["sequence"] == 1)
        self.assertEqual(agents.seen("new", "end"), [])

    def test_200_agents(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        names = [f"h{i}" for i in range(200)]
        for name in names:
            agents.tell("open", name, "lab", name, 1)
        for sequence in range(1, 6):
            for name in names:
                agents.tell("batch", name, sequence, 20)
        for name in names:
            agents.wait(name, "ack", lambda e: e["sequence"] == 5)
        wait_for("all agents", lambda: aggregator.get("/api/v1/status")["agents"]["connected"] == 200)
        wait_for("all records", lambda: aggregator.metric("weft_stream_records_total") == 200 * 5 * 21)
        self.assertEqual(aggregator.get("/api/v1/hosts")["total"] >= 200, True)

    def test_findings_keep_their_id_over_a_kill_and_are_not_doubled(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("open", "a", "lab", "h1", 1)
        agents.tell("finding", "a", 1, "host:h1", "on")
        agents.tell("batch", "a", 2, 1)

        def own():
            return [f for f in aggregator.get("/api/v1/findings?kind=host_overloaded")["findings"]]

        first = wait_for("the finding", own)
        self.assertEqual(len(first), 1)
        self.assertEqual(first[0]["state"], "active")
        aggregator.ask(f"/api/v1/findings/{first[0]['id']}/ack", method="POST")
        aggregator.kill()
        agents.wait("a", "end")
        aggregator.start()
        again = wait_for("the finding after the restart", own)
        self.assertEqual([(f["id"], f["since"], f["acknowledged"]) for f in again],
                         [(first[0]["id"], first[0]["since"], True)])
        agents.tell("open", "b", "lab", "h1", 1)
        agents.wait("b", "welcome")
        agents.tell("batch", "b", 3, 1)
        agents.wait("b", "ack", lambda e: e["sequence"] == 3)
        self.assertEqual(len(own()), 1)
        self.assertEqual(json.loads(aggregator.ask("/api/v1/findings/clear", method="POST"))["cleared"], 1)
        self.assertEqual(own()[0]["state"], "cleared")
        aggregator.kill()
        aggregator.start()
        self.assertEqual([f["state"] for f in own()], ["cleared"])

    def test_a_finding_about_another_host_is_refused(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("open", "a", "lab", "h1", 1)
        agents.tell("finding", "a", 1, "host:h2", "on")
        self.assertEqual(agents.wait("a", "ack")["rejected"], 1)
        self.assertEqual(aggregator.get("/api/v1/findings?kind=host_overloaded")["findings"], [])

    def test_metrics_pass_promtool_with_hostile_text_about(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("open", "a", "lab", "h1", 1)
        agents.tell("finding", "a", 1, "host:h1", "on")
        agents.tell("garbage", "a", 2)
        wait_for("the finding", lambda: "weft_finding_active{" in aggregator.ask("/metrics"))
        if shutil.which("promtool") is None:
            self.skipTest("promtool is not installed (package prometheus)")
        done = subprocess.run(["promtool", "check", "metrics"], input=aggregator.ask("/metrics"), text=True,
                              capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_corrupt_store_is_moved_aside_and_a_new_one_works(self):
        (self.folder / "weft.db").write_bytes(b"not a database " * 1000)
        aggregator = self.aggregator()
        self.assertIn("moved aside", aggregator.log.read_text())
        self.assertTrue(list(self.folder.glob("weft.db.bad-*")))
        self.assertTrue(aggregator.get("/api/v1/status")["store"]["started_empty_after_damage"])
        self.assertEqual(aggregator.metric('weft_store_errors_total{reason="corrupt"}'), 1)
        agents = self.agents(aggregator)
        agents.tell("open", "a", "lab", "h1", 1)
        agents.tell("batch", "a", 1, 1)
        agents.wait("a", "ack")

    def test_full_disk_stops_acknowledging_not_judging_and_recovers(self):
        disk = self.folder / "disk"
        disk.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            self.skipTest(f"no tmpfs may be mounted here: {done.stderr.strip()}")
        self.addCleanup(lambda: subprocess.run(["umount", disk], check=False))
        aggregator = self.aggregator(store=disk / "weft.db")
        self.addCleanup(aggregator.stop)
        agents = self.agents(aggregator)
        agents.tell("open", "a", "lab", "h1", 1)
        agents.tell("batch", "a", 1, 1)
        agents.wait("a", "ack", lambda e: e["sequence"] == 1)
        ballast = disk / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        sequence = 1
        while aggregator.get("/api/v1/status")["store"]["acknowledging"]:
            sequence += 1
            self.assertLess(sequence, 2000)
            agents.tell("batch", "a", sequence, 50)
            time.sleep(0.02)
        self.assertEqual(aggregator.metric("weft_store_acknowledging"), 0)
        self.assertGreater(aggregator.metric('weft_store_errors_total{reason="full"}'), 0)
        # Judging goes on: a finding that came meanwhile is seen.
        sequence += 1
        agents.tell("finding", "a", sequence, "host:h1", "on")
        wait_for("the finding", lambda: aggregator.get("/api/v1/findings?kind=host_overloaded")["findings"])
        self.assertLess(max(e["sequence"] for e in agents.seen("a", "ack")), sequence)
        ballast.unlink()
        agents.wait("a", "ack", lambda e: e["sequence"] == sequence)
        wait_for("the status", lambda: aggregator.get("/api/v1/status")["store"]["acknowledging"])

    def test_slow_readers_hold_up_nobody_else(self):
        aggregator = self.aggregator()
        slow = []
        for _ in range(8):
            client = socket.create_connection(("127.0.0.1", aggregator.ports[1]))
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")  # never ends
            slow.append(client)
            self.addCleanup(client.close)
        begin = time.monotonic()
        self.assertEqual(aggregator.ask("/healthz"), "ok\n")
        self.assertLess(time.monotonic() - begin, 3)
        agents = self.agents(aggregator)
        agents.tell("open", "a", "lab", "h1", 1)
        agents.tell("batch", "a", 1, 1)
        agents.wait("a", "ack")
        status, seconds = aggregator.terminate()
        self.assertEqual(status, 0)
        self.assertLess(seconds, 4)

    def test_second_aggregator_on_the_same_store_or_port_is_refused(self):
        aggregator = self.aggregator()
        done = subprocess.run([AGGREGATOR, "--store", aggregator.store, "--listen-grpc", "127.0.0.1:0",
                               "--listen-http", "127.0.0.1:0"], capture_output=True, text=True, check=False,
                              timeout=PATIENCE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"store {aggregator.store}: in use by another process: stop that one", done.stderr)
        for which in ("grpc", "http"):
            flags = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"}
            flags[which] = f"127.0.0.1:{aggregator.ports[0 if which == 'grpc' else 1]}"
            done = subprocess.run([AGGREGATOR, "--store", self.folder / "other.db", "--listen-grpc", flags["grpc"],
                                   "--listen-http", flags["http"]], capture_output=True, text=True, check=False,
                                  timeout=PATIENCE)
            self.assertEqual(done.returncode, 1, which)
            self.assertIn("address in use", done.stderr)

    def test_sigterm_ends_cleanly_within_two_seconds(self):
        aggregator = self.aggregator()
        agents = self.agents(aggregator)
        agents.tell("open", "a", "lab", "h1", 1)
        agents.tell("batch", "a", 1, 1)
        agents.wait("a", "ack")
        status, seconds = aggregator.terminate()
        self.assertEqual(status, 0)
        self.assertLess(seconds, 4)  # 2 s on a machine of its own
        self.assertEqual(agents.wait("a", "end")["code"], 14)
        self.assertNotIn(" error ", aggregator.log.read_text())


if __name__ == "__main__":
    unittest.main()
