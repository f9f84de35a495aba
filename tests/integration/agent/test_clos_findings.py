"""weftd on four hosts of a Clos and weft-aggregator beside it: what breaks is named, and nothing else is."""

import concurrent.futures
import datetime
import http.client
import itertools
import json
import re
import signal
import unittest

from tests.integration.agent.harness import AGGREGATOR, WEFTD, Bench, until
from tests.integration.cli_support import enter_netns, inside
from tests.integration.clos import LEAF_OF, ClosTest

MANAGEMENT = "10.9.0.1"
GRPC, HTTP = 7471, 7470
BLAMING = ("warning", "critical")
# True on a builder whose CPUs are taken ("h4 schedules weftd up to 171 ms late"): all four hosts share them.
OF_THE_BUILDER = "host_overloaded"
# When to give up, not how fast it is: what is measured while all four hosts run late accuses nobody.
PATIENCE_S = 240
# What the aggregator's views count is no older than this, and what agents tell now is not much older.
VIEW = datetime.timedelta(seconds=20 + 4)


class Api:
    """The aggregator's HTTP server, asked from its own network namespace: a thread of ours lives there."""

    def __init__(self, test, netns):
        self.pool = concurrent.futures.ThreadPoolExecutor(1, initializer=enter_netns, initargs=(netns,))
        test.addCleanup(self.pool.shutdown)

    def text(self, path):
        return self.pool.submit(self._text, path).result()

    def json(self, path):
        return json.loads(self.text(path))

    @staticmethod
    def _text(path):
        connection = http.client.HTTPConnection(MANAGEMENT, HTTP, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise AssertionError(f"{path}: {answer.status} {body}")
        return body


@unittest.skipUnless(AGGREGATOR.exists() and WEFTD.exists(), "weftd and weft-aggregator are not built")
class ClosFindings(ClosTest):
    def setUp(self):
        super().setUp()
        self.bench = self.enterContext(Bench())
        self.seen = {}  # (kind, subject) -> the finding as it was last told
        self.manage()
        self.start_aggregator()
        self.agents = {host: self.start_agent(host) for host in self.HOSTS}
        self.wait("all agents report and every link is probed", self.ready)

    def manage(self):
        """A network of its own to the aggregator: faults of the fabric never touch what agents report."""
        self.add_node("mgmt")
        self.run_ip("-n", self.name("mgmt"), "addr", "add", f"{MANAGEMENT}/32", "dev", "lo")
        for host in self.HOSTS:
            self.connect(host, f"10.9.{host[1]}.2/30", "mgmt", f"10.9.{host[1]}.1/30")
            self.route(host, f"{MANAGEMENT}/32", "via", f"10.9.{host[1]}.1")

    def start_aggregator(self):
        topology = self.bench.write("fabric.toml", self.topology("clos"))
        config = self.bench.write("aggregator.toml", (
            f'[fabric]\nname = "clos"\ntopology_file = "{topology}"\n'
            f'[listen]\ngrpc = "{MANAGEMENT}:{GRPC}"\nhttp = "{MANAGEMENT}:{HTTP}"\nallow_remote = true\n'
            f'[store]\npath = "{self.bench.folder / "weft.db"}"\n[log]\nlevel = "debug"\n'
            # Programs of a busy builder have been seen to wait 3.4 s for a CPU; that silence is no fault of a host.
            '[localise]\nhost_silent_after = "10s"\n'))
        self.aggregator = self.bench.start([*inside(self.name("mgmt")), AGGREGATOR, "--config", config], "aggregator")
        self.aggregator.wait_log("listening")
        self.api = Api(self, self.name("mgmt"))

    def start_agent(self, host):
        state = self.bench.folder / f"{host}.state"
        state.mkdir(exist_ok=True)
        config = self.bench.write(f"{host}.toml", (
            f'[agent]\nstate_dir = "{state}"\n[fabric]\nname = "clos"\n'
            f'[aggregator]\naddress = "{MANAGEMENT}:{GRPC}"\n'
            f'[probe]\ntransport = "udp"\ninterfaces = ["{host}-{LEAF_OF[host]}"]\n'))
        return self.bench.start([*inside(self.name(host), host), WEFTD, "--config", config], host)

    def ready(self):
        status = self.api.json("/api/v1/status")
        return status["agents"]["reporting"] == len(self.HOSTS) and status["coverage"]["ready"]

    def look(self):
        """Asks for findings, remembers whatever was ever told, and returns the active ones that blame something."""
        told = self.api.json("/api/v1/findings?state=all")["findings"]
        self.seen.update({(finding["kind"], finding["subject"]): finding for finding in told})
        return {(finding["kind"], finding["subject"]) for finding in told
                if finding["state"] == "active" and self.blames(finding["severity"], finding["kind"])}

    @staticmethod
    def blames(severity, kind):
        return severity in BLAMING and kind != OF_THE_BUILDER

    def judged_at(self):
        return datetime.datetime.fromisoformat(self.api.json("/api/v1/status")["judged_at"])

    def watch(self, judgements):
        """Looks on while the aggregator judges so many times; it does once a second."""
        seen = set()

        def judged():
            self.look()
            seen.add(self.judged_at())
            return len(seen) > judgements

        self.wait(f"{judgements} judgements", judged)

    def assert_blamed(self, *expected):
        """Of all that was told since the start: these, and nothing else that blames."""
        self.look()
        blamed = {key for key, finding in self.seen.items() if self.blames(finding["severity"], finding["kind"])}
        self.assertEqual(blamed, set(expected), self.story())

    def story(self):
        """For people: what was found, and what the localiser thought of it."""
        suspected = [line for line in self.aggregator.log().splitlines() if "suspected" in line]
        told = [f"{found['since']} {found['until']} {found['summary']}" for found in self.seen.values()]
        return "\n".join(["", *told, *suspected[-40:]])

    def wait(self, what, condition):
        try:
            return until(what, condition, PATIENCE_S)
        except AssertionError as late:
            raise AssertionError(f"{late}{self.story()}") from late

    def expect(self, kind, subject):
        self.wait(f"{kind} {subject}", lambda: (kind, subject) in self.look())

    def expect_clear(self):
        self.wait("nothing is active any more", lambda: not self.look())

    def state(self, host):
        return {row["host"]: row["state"] for row in self.api.json("/api/v1/hosts")["hosts"]}[host]

    def all_measured_since(self, start):
        """Every pair, both ways, by probes that were sent since then."""
        self.look()
        mesh = self.api.json("/api/v1/mesh")
        if datetime.datetime.fromisoformat(mesh["at"]) < start + VIEW:
            return False
        counted = {tuple(pair[end].split("/")[0] for end in ("from", "to")): pair["sent"] for pair in mesh["mesh"]}
        return all(counted.get(pair, 0) > 0 for pair in itertools.permutations(self.HOSTS, 2))

    def active_series(self):
        """(kind, subject) of each series of weft_finding_active that blames, whatever the order of its labels."""
        active = set()
        for labels, value in re.findall(r"(?m)^weft_finding_active\{(.*)\} (\S+)$", self.api.text("/metrics")):
            have = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if self.blames(have["severity"], have["kind"]):
                self.assertEqual(float(value), 1, labels)
                active.add((have["kind"], have["subject"]))
        return active

    def test_healthy_then_a_spine_link_that_loses_one_way_is_named_alone_until_it_is_mended(self):
        start = self.judged_at()
        self.wait("all pairs are measured", lambda: self.all_measured_since(start))
        self.assert_blamed()
        self.lose("s1", "l2", 0.25)
        found = ("link_loss", "link:s1>l2")
        self.expect(*found)
        self.assertEqual(self.active_series(), {found}, self.story())
        self.watch(5)
        self.heal("s1", "l2")
        self.expect_clear()
        self.wait("the metrics forget it", lambda: not self.active_series())
        self.assert_blamed(found)

    def test_the_cable_of_a_host_that_loses_one_way_is_named_and_no_spine_link(self):
        self.lose("l1", "h2", 0.25)
        found = ("link_loss", "link:l1>h2")
        self.expect(*found)
        self.watch(5)
        self.assert_blamed(found)

    def test_a_weftd_that_stands_still_is_a_silent_host_and_no_link(self):
        self.agents["h3"].send(signal.SIGSTOP)
        self.expect("host_silent", "host:h3")
        self.agents["h3"].send(signal.SIGCONT)
        self.expect_clear()
        self.assert_blamed(("host_silent", "host:h3"))

    def test_after_a_restart_of_one_weftd_all_pairs_are_measured_again_and_nobody_is_blamed(self):
        status, _ = self.agents["h3"].stop(deadline_s=PATIENCE_S)
        self.assertEqual(status, 0, self.agents["h3"].log())
        self.wait("the stop was announced", lambda: self.state("h3") == "restarting")
        self.agents["h3"] = self.start_agent("h3")
        self.wait("it reports again", lambda: self.state("h3") == "reporting")
        again = self.judged_at()
        self.wait("all pairs are measured again", lambda: self.all_measured_since(again))
        self.assert_blamed()


if __name__ == "__main__":
    unittest.main()
