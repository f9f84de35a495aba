"""weftd with weft-aggregator: nothing lost and nothing doubled, whichever of the two stops, dies, stalls or lies."""

import datetime
import glob
import json
import pathlib
import re
import signal
import socket
import sqlite3
import time
import unittest
import urllib.request

from tests.integration.agent.harness import AGGREGATOR, Bench, free_port, until

# Threads that gRPC starts when it is busy and ends when it is not.
GRPC_POOLS = ("event_engine", "grpc_global_tim")


def comm(task):
    try:
        return (task / "comm").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
        return GRPC_POOLS[0]


class Aggregator:
    def __init__(self, bench, fabric="test"):
        self.bench = bench
        self.grpc, self.http = free_port(), free_port()
        self.address = f"127.0.0.1:{self.grpc}"
        self.database = bench.folder / "weft.db"
        self.config = bench.write("aggregator.toml",
                                  f'[fabric]\nname = "{fabric}"\n[listen]\ngrpc = "{self.address}"\n'
                                  f'http = "127.0.0.1:{self.http}"\n[store]\npath = "{self.database}"\n'
                                  'retention = "10m"\n')
        self.lives = 0
        self.process = None

    def start(self):
        self.lives += 1
        self.process = self.bench.start([AGGREGATOR, "--config", self.config], f"aggregator-{self.lives}")
        self.process.wait_log("listening")

    def host(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/api/v1/hosts", timeout=5) as answer:
            return next((host for host in json.load(answer)["hosts"] if host["host"] == name), None)

    def state(self, name):
        host = self.host(name)
        return host["state"] if host else None

    def stored(self, name):
        """(last sequence, batches in the journal, epochs) of an agent."""
        database = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=5)
        try:
            row = database.execute("SELECT last_sequence FROM agents WHERE agent = ?", (name,)).fetchone()
            batches, epochs = database.execute(
                "SELECT count(*), count(DISTINCT epoch) FROM journal WHERE agent = ?", (name,)).fetchone()
        finally:
            database.close()
        return (row[0] if row else 0), batches, epochs


@unittest.skipUnless(AGGREGATOR.exists(), f"{AGGREGATOR} is not built")
class Stream(unittest.TestCase):
    def setUp(self):
        self.bench = self.enterContext(Bench())
        self.hello_port = free_port(kind=socket.SOCK_DGRAM)
        self.aggregator = Aggregator(self.bench)

    def agent(self, number=1, **options):
        return self.bench.agent(number, aggregator=self.aggregator.address, hello_port=self.hello_port, **options)

    def connected(self, agent, deadline_s=20):
        until(f"{agent.name} is connected", lambda: agent.metric("weft_stream_connected") == 1, deadline_s)

    def assert_exact(self, *agents):
        """Stops everything; every batch each agent ever sent is in the journal, once."""
        said = {}
        for agent in agents:
            until("the backlog is gone", lambda a=agent: a.metric("weft_stream_waiting") == 0)
            agent.process.stop()
            said[agent.name] = dict(re.findall(r"(\w+)=(\d+)", agent.process.log().rsplit("stream: ended", 1)[1]))
        self.aggregator.process.stop()
        for name, totals in said.items():
            last, batches, epochs = self.aggregator.stored(name)
            self.assertEqual(epochs, 1)
            self.assertEqual(last, int(totals["batches"]), f"a batch is missing: {totals}")
            self.assertLessEqual(batches, last, "a batch is doubled")  # batches without samples are not in the journal
            self.assertEqual((totals["waiting"], totals["dropped"]), ("0", "0"))

    def test_aggregator_down_at_start_costs_nothing(self):
        agents = [self.agent(1, targets=[2]), self.agent(2, targets=[1])]
        until("probing alone", lambda: (agents[0].metric("weft_probe_acknowledged_total") or 0) > 20)
        self.assertGreater(agents[0].metric("weft_stream_waiting"), 0)
        self.aggregator.start()
        for agent in agents:
            self.connected(agent)
        self.assert_exact(*agents)

    def test_plan_is_followed_and_kept_while_the_aggregator_is_killed_and_restarted(self):
        self.aggregator.start()
        agents = [self.agent(1), self.agent(2)]
        until("probing by plan", lambda: (agents[0].metric("weft_probe_acknowledged_total") or 0) > 5)
        self.aggregator.process.stop(signal.SIGKILL)
        until("noticed", lambda: agents[0].metric("weft_stream_connected") == 0)
        sent = agents[0].metric("weft_probe_sent_total")
        until("probing goes on", lambda: agents[0].metric("weft_probe_sent_total") > sent + 5)
        self.aggregator.start()
        for agent in agents:
            self.connected(agent, 15)
        self.assert_exact(*agents)

    def test_aggregator_that_stalls_does_not_stall_the_agent(self):
        self.aggregator.start()
        agent = self.agent(1)
        self.connected(agent)
        self.aggregator.process.send(signal.SIGSTOP)
        try:
            records = agent.metric("weft_stream_records_total")
            until("records pile up",
                  lambda: agent.metric("weft_stream_unacknowledged") + agent.metric("weft_stream_waiting") > 4)
            self.assertEqual(agent.get("/healthz"), (200, "ok\n"))
        finally:
            self.aggregator.process.send(signal.SIGCONT)
        until("more was sent", lambda: agent.metric("weft_stream_records_total") > records)
        self.connected(agent)
        self.assert_exact(agent)

    def test_goodbye_to_an_aggregator_that_does_not_answer_ends_cleanly_in_time_perftest_380(self):
        self.aggregator.start()
        agent = self.agent(1)
        self.connected(agent)
        self.aggregator.process.send(signal.SIGSTOP)
        try:
            until("records wait", lambda: agent.metric("weft_stream_unacknowledged") > 0)
            status, seconds = agent.process.stop()
        finally:
            self.aggregator.process.send(signal.SIGCONT)
        self.assertEqual(status, 0, agent.process.log())
        self.assertLess(seconds, 4)  # 2 s on a machine of its own

    def test_restarts_of_the_aggregator_leave_no_descriptor_thread_or_memory_behind_rpingmesh_6(self):
        self.aggregator.start()
        agents = [self.agent(1), self.agent(2)]
        self.connected(agents[0])
        until("probing", lambda: (agents[0].metric("weft_probe_acknowledged_total") or 0) > 5)
        process = pathlib.Path(f"/proc/{agents[0].process.process.pid}")

        def held():
            """Numbers of descriptors and of threads."""
            threads = [name for task in (process / "task").iterdir() if (name := comm(task)) not in GRPC_POOLS]
            return len(list((process / "fd").iterdir())), len(threads)

        def resident_mib():
            text = (process / "status").read_text(encoding="ascii")
            return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) / 1024

        seen = []
        for _ in range(3):
            self.restart(agents[0])
            seen.append(held())
        most, mib = [max(counts) for counts in zip(*seen)], resident_mib()
        for _ in range(6):
            self.restart(agents[0])
        # A connection of the old and of the new stream may overlap for a moment.
        until(f"no more than {most}", lambda: all(now <= before for now, before in zip(held(), most)))
        # What piled up while nobody listened is sent and freed; what the allocator keeps is little beside a session.
        until("the backlog is gone", lambda: agents[0].metric("weft_stream_waiting") == 0)
        until(f"not much over {mib} MiB", lambda: resident_mib() < mib + 6)

    def restart(self, agent):
        self.aggregator.process.stop(signal.SIGKILL)
        until("noticed", lambda: agent.metric("weft_stream_connected") == 0)
        self.aggregator.start()
        self.connected(agent)

    def test_goodbye_is_heard_and_a_restart_is_a_new_epoch(self):
        self.aggregator.start()
        agent = self.agent(1)
        self.connected(agent)
        status, seconds = agent.process.stop()
        self.assertEqual(status, 0)
        self.assertLess(seconds, 2)
        until("restarting", lambda: self.aggregator.state("a1") == "restarting")
        agent.start()
        until("reporting", lambda: self.aggregator.state("a1") == "reporting")
        agent.process.stop()
        self.aggregator.process.stop()
        self.assertEqual(self.aggregator.stored("a1")[2], 2, "two lives are two epochs")

    def test_agent_killed_and_started_again_reports(self):
        self.aggregator.start()
        agent = self.agent(1)
        self.connected(agent)
        agent.process.stop(signal.SIGKILL)
        until("silent", lambda: self.aggregator.state("a1") == "silent")
        agent.start()
        until("reporting", lambda: self.aggregator.state("a1") == "reporting")

    def test_wrong_fabric_is_refused_with_its_reason_once(self):
        self.aggregator = Aggregator(self.bench, fabric="other")
        self.aggregator.start()
        agent = self.agent(1)
        agent.process.wait_log("the aggregator refuses this agent")
        until("waiting", lambda: agent.metric("weft_stream_state", state="backoff") == 1)
        self.assertIn("other", agent.process.log())

    def test_agent_clock_a_day_off_is_judged_by_receipt(self):
        libraries = glob.glob("/usr/lib/*/faketime/libfaketime*.so.1")
        if not libraries:
            self.skipTest("libfaketime is not installed (package faketime)")
        self.aggregator.start()
        agent = self.agent(1, environment={"LD_PRELOAD": sorted(libraries)[-1], "FAKETIME": "-1d",
                                           "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"})
        self.connected(agent)
        until("reporting", lambda: self.aggregator.state("a1") == "reporting")
        seen = datetime.datetime.fromisoformat(self.aggregator.host("a1")["last_contact"])
        self.assertLess(abs(seen.timestamp() - time.time()), 30)


if __name__ == "__main__":
    unittest.main()
