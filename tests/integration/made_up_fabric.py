"""A leaf-spine fabric that fake agents tell an aggregator of: its topology file, inventories, traces and windows."""

import threading

FIRST_PORT = 49152


class MadeUpFabric:
    """Hosts h1, h2... by leaf, one port each; probes of a host go to its next peers, one path over each of some spines."""

    def __init__(self, hosts=4, leaves=2, spines=2, peers=3, ports=2, unused=0):
        self.leaves = [f"l{i + 1}" for i in range(leaves)]
        self.spines = [f"s{i + 1}" for i in range(spines + unused)]
        self.crossed = spines  # the rest of them no path takes
        self.hosts = [f"h{i + 1}" for i in range(hosts)]
        self._numbers = {host: i for i, host in enumerate(self.hosts)}
        self.leaf_of = {host: i % leaves for i, host in enumerate(self.hosts)}
        self.peers, self.ports = min(peers, len(self.hosts) - 1), ports
        self.loss = {}  # "s1>l2" -> share of probes
        self.late_ms = {}
        self.finds = []  # hosts whose agents find themselves overloaded, once
        self.silent = set()
        self.sequence = {host: 0 for host in self.hosts}

    def _host_address(self, host, end):
        number = self._numbers[host]
        return f"10.{number // 250}.{number % 250}.{end}"

    def topology(self, fabric="lab"):
        out = [f'fabric = "{fabric}"']
        out += [f'[[switch]]\nname = "{name}"\ntier = "{tier}"' for tier, names in
                (("leaf", self.leaves), ("spine", self.spines)) for name in names]
        for host in self.hosts:
            out.append(f'[[host]]\nname = "{host}"\nrail = "0"\npod = "{self.leaves[self.leaf_of[host]]}"')
            out.append(f'[[link]]\na = "{host}/rxe0"\nb = "{self.leaves[self.leaf_of[host]]}"\n'
                       f'a_addresses = ["{self._host_address(host, 2)}"]\nb_addresses = ["{self._host_address(host, 1)}"]')
        for i, leaf in enumerate(self.leaves):
            for j, spine in enumerate(self.spines):
                out.append(f'[[link]]\na = "{leaf}"\nb = "{spine}"\na_addresses = ["172.{16 + j}.{i}.1"]\n'
                           f'b_addresses = ["172.{16 + j}.{i}.2"]')
        return "\n".join(out) + "\n"

    def _way(self, host, peer, port):
        """Names and the addresses that routers answer from."""
        a, b = self.leaf_of[host], self.leaf_of[peer]
        spine = (port - FIRST_PORT) % self.crossed
        first = self._host_address(host, 1)
        if a == b:
            return [host, self.leaves[a], peer], [first]
        return ([host, self.leaves[a], self.spines[spine], self.leaves[b], peer],
                [first, f"172.{16 + spine}.{a}.2", f"172.{16 + spine}.{b}.1"])

    def paths_of(self, host):
        at = self._numbers[host]
        for step in range(1, self.peers + 1):
            peer = self.hosts[(at + step) % len(self.hosts)]
            for k in range(self.ports):
                port = FIRST_PORT + (at + step + k) % self.crossed
                yield peer, port, port

    def _share(self, way, table):
        return max((table.get(f"{x}>{y}", 0) for x, y in zip(way, way[1:])), default=0)

    def open(self, agents, fabric="lab"):
        for host in self.hosts:
            agents.tell("open", host, fabric, host, 1)

    def introduce(self, agents):
        for host in self.hosts:
            agents.tell("inventory", host, self._host_address(host, 2), self.crossed)
            for peer, out, back in self.paths_of(host):
                agents.tell("trace", host, peer, self._host_address(peer, 2), self._host_address(host, 2), out,
                            ",".join(self._way(host, peer, out)[1]))
                agents.tell("trace", peer, host, self._host_address(host, 2), self._host_address(peer, 2), back,
                            ",".join(self._way(peer, host, back)[1]))

    def report(self, agents, probes=40):
        """One round: every host's windows."""
        for host in self.hosts:
            if host in self.silent:
                continue
            for peer, out, back in self.paths_of(host):
                there, home = self._way(host, peer, out)[0], self._way(peer, host, back)[0]
                sent = probes
                lost_out = 0 if peer in self.silent else round(sent * self._share(there, self.loss))
                lost_back = round((sent - lost_out) * self._share(home, self.loss))
                if peer in self.silent:
                    lost_out, lost_back = sent, 0
                late = max(self._share(there, self.late_ms), self._share(home, self.late_ms))
                rtt = 100 + 20 * (len(there) + self.leaf_of[peer] % 5) + int(late * 1000)
                agents.tell("window", host, peer, out, back, sent, lost_out, lost_back, 0, rtt)
            agents.tell("health", host)
            self.sequence[host] += 1
            agents.tell("send", host, self.sequence[host])
        while self.finds:
            host = self.finds.pop()
            self.sequence[host] += 1
            agents.tell("finding", host, self.sequence[host], f"host:{host}", "on")


class Reporter:
    """Lets all hosts report again and again until it is closed, with traces when it begins."""

    def __init__(self, fabric, agents, every=0.5):
        self.fabric, self.agents, self.every = fabric, agents, every
        self._end = threading.Event()
        fabric.open(agents)
        fabric.introduce(agents)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while True:
            self.fabric.report(self.agents)
            if self._end.wait(self.every):
                return

    def close(self):
        self._end.set()
        self._thread.join()
