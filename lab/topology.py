"""The fabric: names, addresses, and the commands that make it real in the guests.

A leaf-spine (Clos) fabric of routed switches. Hosts h1.. are spread evenly over leaves l1.. in order; each leaf has one
link to each spine s1... Link A-B is the interface `A-B` inside A and `B-A` inside B, so `tc` on `s1-l2` in s1 works on
the direction s1>l2.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from lab.errors import UsageError

FABRIC_GUEST = "fabric"
RDMA_DEVICE = "rxe0"
# The management network is QEMU's user-mode network: not 10.0.x, those are the hosts' own subnets.
MANAGEMENT_NET = "192.168.76.0/24"
BUILDER_ADDRESS = "192.168.76.2"
GUEST_ADDRESS = "192.168.76.15"
MAX_HOSTS, MAX_LEAVES, MAX_SPINES = 16, 8, 8


@dataclass(frozen=True)
class End:
    node: str
    interface: str
    address: str
    mac: str


@dataclass(frozen=True)
class Link:
    a: End
    b: End

    @property
    def name(self) -> str:
        return f"{self.a.node}-{self.b.node}"


@dataclass(frozen=True)
class Topology:
    hosts_count: int = 4
    leaves_count: int = 2
    spines_count: int = 2

    def __post_init__(self) -> None:
        for label, value, most in (
            ("hosts", self.hosts_count, MAX_HOSTS),
            ("leaves", self.leaves_count, MAX_LEAVES),
            ("spines", self.spines_count, MAX_SPINES),
        ):
            if not 1 <= value <= most:
                raise UsageError(f"the lab takes 1 to {most} {label}, not {value}")
        if self.leaves_count > self.hosts_count:
            raise UsageError(f"{self.leaves_count} leaves need at least as many hosts, not {self.hosts_count}")

    @property
    def hosts(self) -> list[str]:
        return [f"h{i}" for i in range(1, self.hosts_count + 1)]

    @property
    def leaves(self) -> list[str]:
        return [f"l{i}" for i in range(1, self.leaves_count + 1)]

    @property
    def spines(self) -> list[str]:
        return [f"s{i}" for i in range(1, self.spines_count + 1)]

    @property
    def switches(self) -> list[str]:
        return self.leaves + self.spines

    @property
    def guests(self) -> list[str]:
        return [*self.hosts, FABRIC_GUEST]

    def leaf_of(self, host: str) -> str:
        per_leaf = math.ceil(self.hosts_count / self.leaves_count)
        return f"l{(int(host[1:]) - 1) // per_leaf + 1}"

    def address_of(self, host: str) -> str:
        return f"10.0.{host[1:]}.2"

    @cached_property
    def host_links(self) -> list[Link]:
        links = []
        for number, host in enumerate(self.hosts, 1):
            leaf = self.leaf_of(host)
            links.append(
                Link(
                    End(host, "eth0", f"10.0.{number}.2", f"52:54:00:00:00:{number:02x}"),
                    End(leaf, f"{leaf}-{host}", f"10.0.{number}.1", f"52:54:00:00:01:{number:02x}"),
                )
            )
        return links

    @cached_property
    def fabric_links(self) -> list[Link]:
        links = []
        for i, leaf in enumerate(self.leaves, 1):
            for j, spine in enumerate(self.spines, 1):
                subnet = f"10.1.{10 * i + j}"
                links.append(
                    Link(
                        End(leaf, f"{leaf}-{spine}", f"{subnet}.1", f"02:00:00:{i:02x}:{j:02x}:01"),
                        End(spine, f"{spine}-{leaf}", f"{subnet}.2", f"02:00:00:{i:02x}:{j:02x}:02"),
                    )
                )
        return links

    @property
    def links(self) -> list[Link]:
        return self.host_links + self.fabric_links

    def link(self, name: str) -> Link:
        """By name, ends in either order."""
        for link in self.links:
            if name in (link.name, f"{link.b.node}-{link.a.node}"):
                return link
        raise UsageError(f"no link {name}; the links are {', '.join(link.name for link in self.links)}")

    def management_mac(self, host: str) -> str:
        return f"52:54:00:00:02:{int(host[1:]):02x}"

    def toml(self, fabric_name: str) -> str:
        """The topology file that the aggregator reads."""
        lines = [f'fabric = "{fabric_name}"']
        for tier, names in (("leaf", self.leaves), ("spine", self.spines)):
            for name in names:
                lines += ["", "[[switch]]", f'name = "{name}"', f'tier = "{tier}"']
        for host in self.hosts:
            lines += ["", "[[host]]", f'name = "{host}"']
        for link in self.links:
            a = f"{link.a.node}/{RDMA_DEVICE}" if link in self.host_links else link.a.node
            lines += [
                "", "[[link]]", f'a = "{a}"', f'b = "{link.b.node}"',
                f'a_addresses = ["{link.a.address}"]', f'b_addresses = ["{link.b.address}"]',
            ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def fabric_script(self, reset: bool = False) -> str:
        """Builds every switch in the fabric guest. With `reset` it also puts back what a scenario has bent.

        Few programs, long batches: starting one takes a tenth of a second and more in an emulated guest.
        """
        lines = ["set -eu"]
        if reset:
            for switch in self.switches:
                lines += [f"tc -n {switch} -force -batch - 2>/dev/null <<'BATCH' || true"]
                lines += [f"qdisc del dev {interface} root" for interface in self._interfaces(switch)]
                lines += ["BATCH"]
        else:
            # A card is found by its MAC: the kernel's numbering is not ours.
            lines += [
                "declare -A card",
                'for n in /sys/class/net/*; do read -r mac < "$n/address"; card[$mac]=${n##*/}; done',
                "ip -batch - <<BATCH",
                *(f"netns add {switch}" for switch in self.switches),
                *(
                    f"link set ${{card[{link.b.mac}]}} netns {link.b.node} name {link.b.interface}"
                    for link in self.host_links
                ),
                *(
                    f"link add {link.a.interface} netns {link.a.node} address {link.a.mac} type veth "
                    f"peer name {link.b.interface} netns {link.b.node} address {link.b.mac}"
                    for link in self.fabric_links
                ),
                "BATCH",
            ]
        lines.append(self.routes_script())
        keys = {"ip_forward": 1, "fib_multipath_hash_policy": 1, "icmp_errors_use_inbound_ifaddr": 1}
        writes = "; ".join(f"echo {v} > /proc/sys/net/ipv4/{k}" for k, v in keys.items())
        writes += "; for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done"
        lines.append(f"ip -all netns exec sh -c '{writes}' > /dev/null")
        return "\n".join(lines) + "\n"

    def routes_script(self) -> str:
        """Addresses, neighbours and routes of every switch; safe to run again."""
        lines = ["set -eu"]
        for switch in self.switches:
            lines += [f"ip -n {switch} -batch - <<'BATCH'", *self._switch_batch(switch), "BATCH"]
        return "\n".join(lines) + "\n"

    def _interfaces(self, switch: str) -> list[str]:
        return [end.interface for link in self.links for end in (link.a, link.b) if end.node == switch]

    def _switch_batch(self, switch: str) -> list[str]:
        batch = ["link set lo up"]
        ends = [(link.a, link.b) for link in self.links if link.a.node == switch]
        ends += [(link.b, link.a) for link in self.links if link.b.node == switch]
        for mine, peer in ends:
            prefix = 24 if peer.node in self.hosts else 30
            batch += [
                f"addr replace {mine.address}/{prefix} dev {mine.interface}",
                f"link set {mine.interface} up",
                f"neigh replace {peer.address} lladdr {peer.mac} dev {mine.interface} nud permanent",
            ]
        return batch + self._routes(switch)

    def _routes(self, switch: str) -> list[str]:
        routes = []
        for host in self.hosts:
            leaf, subnet = self.leaf_of(host), f"10.0.{host[1:]}.0/24"
            if switch in self.spines:
                routes.append(f"route replace {subnet} via {self.link(f'{leaf}-{switch}').a.address}")
            elif leaf != switch:
                hops = " ".join(f"nexthop via {self.link(f'{switch}-{spine}').b.address}" for spine in self.spines)
                routes.append(f"route replace {subnet} {hops}")
        return routes

    def icmp_script(self, kernel_default: bool) -> str:
        """The routers' limits on ICMP errors: off, or as the kernel ships them (6 in a burst, then 1/s a peer)."""
        ratelimit, per_second, burst = (1000, 1000, 50) if kernel_default else (0, 100000, 10000)
        lines = [
            f"echo {per_second} > /proc/sys/net/ipv4/icmp_msgs_per_sec",
            f"echo {burst} > /proc/sys/net/ipv4/icmp_msgs_burst",
        ]
        lines.append(f"ip -all netns exec sh -c 'echo {ratelimit} > /proc/sys/net/ipv4/icmp_ratelimit' > /dev/null")
        return "\n".join(lines) + "\n"

    def host_script(self, host: str, reset: bool = False) -> str:
        """Brings a host up: fabric interface, management interface, rxe."""
        link = next(link for link in self.host_links if link.a.node == host)
        mine, gateway = link.a, link.b
        return "\n".join([
            "set -eu",
            # Programs are slow to start in an emulated guest, so bash and one `ip` do it all.
            'mgmt=""; for n in /sys/class/net/*; do read -r mac < "$n/address"',
            f'[[ $mac == {self.management_mac(host)} ]] && mgmt=${{n##*/}}; done',
            "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done",
            *([f"tc qdisc del dev {mine.interface} root 2>/dev/null || true"] if reset else []),
            'rename=""; [[ $mgmt == mgmt ]] || rename="link set $mgmt name mgmt"',
            "ip -batch - <<BATCH",
            "$rename",
            f"addr replace {GUEST_ADDRESS}/{MANAGEMENT_NET.split('/')[1]} dev mgmt",
            "link set mgmt up",
            f"addr replace {mine.address}/24 dev {mine.interface}",
            f"link set {mine.interface} up",
            f"neigh replace {gateway.address} lladdr {gateway.mac} dev {mine.interface} nud permanent",
            f"route replace default via {gateway.address} dev {mine.interface}",
            "BATCH",
            f"[[ -e /sys/class/infiniband/{RDMA_DEVICE} ]] || "
            f"rdma link add {RDMA_DEVICE} type rxe netdev {mine.interface}",
        ]) + "\n"  # fmt: skip
