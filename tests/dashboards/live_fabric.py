"""A fabric that weft watches, and Prometheus weft: the real aggregator told of made-up hosts, and two real weftd beside them."""

import socket

from tests.dashboards import grafana_files, rule_files
from tests.dashboards.prometheus_server import Prometheus
from tests.integration.agent.harness import Bench, free_port, until
from tests.integration.aggregator_support import Aggregator, FakeAgents
from tests.integration.made_up_fabric import MadeUpFabric, Reporter

# Of a device that the kernel has and libibverbs does not offer here: its ports are shown, and probes go over UDP.
SYSFS = grafana_files.ROOT / "tests/fixtures/sysfs/bnxt"


class LiveFabric(Bench):
    """h1, h2... on l1, l2 and l3, of which s1>l2 loses a fifth, and h3 says that it is overloaded; weftd a1 on l1 and a2 on l2."""

    SICK, LOSS = "s1>l2", 0.2

    def __enter__(self):
        super().__enter__()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self):
        made_up = MadeUpFabric(hosts=6, leaves=3)
        real = "".join(f'[[host]]\nname = "a{n}"\n[[link]]\na = "a{n}/lo"\nb = "l{n}"\na_addresses = ["127.0.0.{n + 1}"]\n'
                       for n in (1, 2))
        topology = self.write("topology.toml", made_up.topology() + real)
        config = self.write("aggregator.toml", f'[fabric]\nname = "lab"\ntopology_file = "{topology}"\n')
        self.aggregator = Aggregator(self.folder, config=config)
        self.callback(self.aggregator.stop)
        told = FakeAgents(self.aggregator.grpc)
        self.callback(told.stop)
        reporter = Reporter(made_up, told)
        self.callback(reporter.close)
        hello = free_port(kind=socket.SOCK_DGRAM)
        self.agents = [self.agent(n, hello_port=hello, targets=[3 - n], aggregator=self.aggregator.grpc, fabric="lab",
                                  flags=("--sys-root", SYSFS)) for n in (1, 2)]
        ports = [agent.metrics_port for agent in self.agents]
        labels = {"fabric": "lab"}
        self.prometheus = Prometheus(self.folder, {"weft-aggregator": self.aggregator.ports[1], "weftd": ports},
                                     rule_files.FILES, labels)
        self.callback(self.prometheus.close)
        alone = self.folder / "alone"
        alone.mkdir()
        self.of_agents_only = Prometheus(alone, {"weftd": ports}, labels=labels)
        self.callback(self.of_agents_only.close)
        until("probes between leaves", lambda: self.prometheus.query('weft_mesh_probes{from_leaf="l1",to_leaf="l2"} > 1000'), 60)
        made_up.loss[self.SICK] = self.LOSS
        made_up.finds.append("h3")
        for subject in (f"link:{self.SICK}", "host:h3"):
            until(f"a finding on {subject}", lambda s=subject: self.prometheus.query(f'weft_finding_active{{subject="{s}"}}'), 90)
        found = self.scraped()
        until("time for rates since", lambda: self.scraped() > found + 10, 60)

    def scraped(self):
        """The last moment, in seconds, at which all targets of both have been scraped."""
        each = [prometheus.query("min(timestamp(up))") for prometheus in (self.prometheus, self.of_agents_only)]
        return min(rows[0][1] if rows else 0 for rows in each)
