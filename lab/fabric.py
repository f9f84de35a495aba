"""The running lab: guests, commands in them, link switches, teardown. The product's daemons are in daemons.py.

    with Lab(Topology(4, 2, 2)) as lab:
        lab.exec("h1", "ping -c 3 10.0.3.2")
        lab.exec("s1", "tc qdisc replace dev s1-l2 root netem loss 20%")
"""

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from lab import accel, kernel, process
from lab.channel import Gap, Result
from lab.errors import LabError, UsageError
from lab.guest import Guest, GuestSpec, Nic
from lab.stalls import StallMonitor
from lab.topology import BUILDER_ADDRESS, FABRIC_GUEST, MANAGEMENT_NET, GUEST_ADDRESS, RDMA_DEVICE, Topology

HOST_MEMORY_MIB = 512
FABRIC_MEMORY_MIB = 384
BOOT_DEADLINE_S = 180.0
BUILDER = "builder"
RUN_DIR_PREFIX = "weft-lab."


def stderr_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Lab:
    """Owns every guest and the run folder. exec, submit, put and set_link may be called from any thread."""

    def __init__(
        self,
        topology: Topology | None = None,
        *,
        work: Path | None = None,
        progress: Callable[[str], None] = stderr_progress,
        environment: dict[str, str] | None = None,
    ):
        self.topology = topology or Topology()
        self.work = work or kernel.default_work_dir()
        self.stalls = StallMonitor(self.topology.guests)
        # Added to the environment of every command, on the builder or in the guests.
        self.environment = dict(environment or {})
        self.guest_environment = dict(environment or {})
        self.boot_seconds = 0.0
        self.accelerator = ""
        self._started = time.monotonic()
        self._progress = progress
        self._guests: dict[str, Guest] = {}
        self._builder = concurrent.futures.ThreadPoolExecutor(max_workers=16, thread_name_prefix="lab-builder")
        self._builder_processes: set[subprocess.Popen] = set()
        self._lock = threading.Lock()
        self._closed = False
        sweep_dead_runs()
        self.run_dir = Path(tempfile.mkdtemp(prefix=f"{RUN_DIR_PREFIX}{os.getpid()}.", dir=_short_tmp()))
        self.run_dir.chmod(0o755)
        (self.run_dir / "bin").mkdir()

    def __enter__(self) -> "Lab":
        try:
            self.boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def say(self, text: str) -> None:
        self._progress(f"lab: [{time.monotonic() - self._started:5.1f} s] {text}")

    def boot(self) -> None:
        process.require("qemu-system-x86_64", "setpriv", "ip", "tc", "rdma")
        image = kernel.prepare(self.work, self.say)
        arguments = accel.choose(self.work, image)
        self.accelerator = "kvm" if arguments == accel.KVM else "tcg"
        t = self.topology
        self.say(
            f"booting {t.hosts_count} hosts, {t.leaves_count} leaves, {t.spines_count} spines "
            f"({self.accelerator}, kernel {image.release})"
        )
        begun = time.monotonic()
        deadline = begun + BOOT_DEADLINE_S
        self._start(FABRIC_GUEST, FABRIC_MEMORY_MIB, "fabric", self._fabric_nics(), image, arguments)
        self._wait_for_wires(deadline)
        for host in t.hosts:
            self._start(host, HOST_MEMORY_MIB, "host", self._host_nics(host), image, arguments)
        waiting = [FABRIC_GUEST, *t.hosts]
        configured = {}
        for name in waiting:
            self._guests[name].wait_ready(deadline)
            self.say(f"{name} is up (guest uptime {self._guests[name].channel.guest_uptime_s:.1f} s)")
            configured[name] = self.submit(name, self._network_script(name), timeout=60)
        for name, future in configured.items():
            self._must(name, "network set-up", future.result())
        self.set_icmp_limit(kernel_default=False)
        self._check_reachable()
        self.boot_seconds = time.monotonic() - begun
        self.say(f"fabric ready after {self.boot_seconds:.1f} s")

    def reset_network(self, guests: Collection[str] | None = None, links: Collection[str] = ()) -> None:
        """Puts interfaces, routes, neighbours, queue disciplines and rxe devices back to the healthy state.

        In all guests, or in those given; host cables are switched on at both ends, switch links where named.
        """
        named = {self.topology.link(name) for name in links}
        for link in self.topology.links:
            if link in self.topology.host_links or link in named:
                self.set_link(link.name, True)
        names = self.topology.guests if guests is None else sorted(guests)
        futures = {n: self.submit(n, self._network_script(n, reset=True), timeout=60) for n in names}
        for name, future in futures.items():
            self._must(name, "network reset", future.result())

    def exec(self, on: str, command: str | Sequence[str], timeout: float = 30.0) -> Result:
        """Runs a command on a host, on `fabric`, in a switch's network namespace or on the builder."""
        return self.submit(on, command, timeout).result()

    def submit(self, on: str, command: str | Sequence[str], timeout: float = 30.0) -> concurrent.futures.Future:
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        if on == BUILDER:
            return self._builder.submit(self._run_on_builder, argv, timeout)
        guest, netns = (FABRIC_GUEST, on) if on in self.topology.switches else (on, None)
        if guest not in self._guests:
            places = [*self.topology.guests, *self.topology.switches, BUILDER]
            raise UsageError(f"nothing called {on}; commands run on {', '.join(places)}")
        env = {**self.guest_environment, "LAB_RUN_DIR": str(self.run_dir)}
        env["PATH"] = f"{self.run_dir}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return self._guests[guest].channel.submit(argv, timeout, netns=netns, env=env)

    def put(self, guest: str, path: str, data: bytes, mode: int = 0o644) -> None:
        self._must(guest, f"write {path}", self._guests[guest].channel.put(path, data, mode))

    def tail(self, guest: str, path: str, most_bytes: int = 16384) -> concurrent.futures.Future:
        """The end of a file in a guest. Costs the guest next to nothing, unlike a command."""
        return self._guests[guest].channel.tail(path, most_bytes)

    def set_link(self, name: str, up: bool) -> None:
        """A host's cable is switched at both ends by the hypervisor; a switch link by its two interfaces."""
        link = self.topology.link(name)
        if link in self.topology.host_links:
            self._guests[link.a.node].set_link("eth0", up)
            self._guests[FABRIC_GUEST].set_link(f"port-{link.a.node}", up)
            return
        for end in (link.a, link.b):
            state = "up" if up else "down"
            result = self.exec(FABRIC_GUEST, ["ip", "-n", end.node, "link", "set", end.interface, state])
            self._must(end.node, f"{end.interface} {state}", result)
        if up:  # taking an interface down flushed its neighbours and routes; its queue disciplines stay
            self._must(FABRIC_GUEST, "routes", self.exec(FABRIC_GUEST, self.topology.routes_script(), timeout=60))

    def set_icmp_limit(self, kernel_default: bool) -> None:
        script = self.topology.icmp_script(kernel_default)
        self._must(FABRIC_GUEST, "ICMP limits", self.exec(FABRIC_GUEST, script, timeout=60))

    def dead_guests(self) -> list[str]:
        return [name for name, guest in self._guests.items() if guest.qemu is None or guest.qemu.poll() is not None]

    def console_tail(self, guest: str, lines: int = 20) -> str:
        return tail(self._guests[guest].console, lines) if guest in self._guests else ""

    def close(self) -> None:
        """Ends every guest and builder command and removes the run folder. May be called twice."""
        if self._closed:
            return
        self._closed = True
        # QEMU has no state worth keeping: the file system is read-only and the overlay is memory.
        process.stop_all([g.qemu for g in self._guests.values() if g.qemu is not None], grace_s=2.0)
        with self._lock:
            running = list(self._builder_processes)
        process.stop_all(running, grace_s=1.0)
        for guest in self._guests.values():
            guest.close()
        self._builder.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def _start(self, name, memory_mib, role, nics, image, arguments) -> None:
        guest = Guest(GuestSpec(name, memory_mib, nics, role), self.run_dir, self._on_gap)
        self._guests[name] = guest
        guest.start(image, arguments, sys.executable)

    def _on_gap(self, gap: Gap) -> None:
        self.stalls.add(gap)

    def _fabric_nics(self) -> list[Nic]:
        listen = "stream,server=on,addr.type=unix,addr.path="
        return [
            Nic(f"port-{link.a.node}", link.b.mac, f"{listen}{self._wire(link.a.node)}")
            for link in self.topology.host_links
        ]

    def _host_nics(self, host: str) -> list[Nic]:
        link = next(link for link in self.topology.host_links if link.a.node == host)
        return [
            Nic("eth0", link.a.mac, f"stream,server=off,addr.type=unix,addr.path={self._wire(host)}"),
            Nic(
                "mgmt",
                self.topology.management_mac(host),
                f"user,net={MANAGEMENT_NET},host={BUILDER_ADDRESS},dhcpstart={GUEST_ADDRESS},ipv6=off",
            ),
        ]

    def _wire(self, host: str) -> Path:
        return self.run_dir / f"wire.{host}"

    def _wait_for_wires(self, deadline: float) -> None:
        while not all(self._wire(host).exists() for host in self.topology.hosts):
            qemu = self._guests[FABRIC_GUEST].qemu
            if qemu.poll() is not None or time.monotonic() > deadline:
                self._guests[FABRIC_GUEST].wait_ready(0.0)  # says why
            time.sleep(0.02)

    def _network_script(self, name: str, reset: bool = False) -> str:
        t = self.topology
        return t.fabric_script(reset) if name == FABRIC_GUEST else t.host_script(name, reset)

    def _check_reachable(self) -> None:
        first = self.topology.hosts[0]
        targets = " ".join(self.topology.address_of(host) for host in self.topology.hosts[1:])
        if targets:
            script = f'for a in {targets}; do ping -c 1 -W 5 "$a" >/dev/null || {{ echo "$a"; exit 1; }}; done'
            result = self.exec(first, script, timeout=60)
            if not result.ok:
                raise LabError(f"the fabric does not carry packets from {first} to {result.out.strip() or result.err}")

    def _run_on_builder(self, argv: Sequence[str], timeout: float) -> Result:
        begun = time.monotonic()
        env = {**os.environ, **self.environment, "LAB_RUN_DIR": str(self.run_dir)}
        env["PATH"] = f"{self.run_dir}/bin:{env.get('PATH', '')}"
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = process.spawn(argv, log=err, stdout=out.fileno(), env=env)
            with self._lock:
                self._builder_processes.add(child)
            try:
                child.wait(timeout)
                late = False
            except subprocess.TimeoutExpired:
                late = True
                process.stop(child, grace_s=1.0)
            finally:
                with self._lock:
                    self._builder_processes.discard(child)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read(1 << 20).decode("utf-8", "replace"))
        return Result(124 if late else child.returncode, *texts, late, time.monotonic() - begun)

    @staticmethod
    def _must(where: str, what: str, result: Result) -> None:
        if not result.ok:
            detail = (result.err.strip() or result.out.strip() or f"exit {result.rc}")[-600:]
            raise LabError(f"{where}: {what} failed: {detail}")


def tail(path: Path, lines: int) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 400 * lines))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _short_tmp() -> str:
    """A UNIX socket's path holds 107 bytes, so an unusually long TMPDIR will not do."""
    folder = tempfile.gettempdir()
    return folder if len(folder) < 50 and "," not in folder else "/tmp"


def live_runs() -> list[tuple[Path, dict]]:
    """Run folders of labs that are up and take commands (lab/exec), newest first."""
    found = []
    for folder in Path(_short_tmp()).glob(RUN_DIR_PREFIX + "*"):
        try:
            info = json.loads((folder / "lab.json").read_text())
            if _alive(int(info["pid"])):
                found.append((folder, info))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda entry: entry[1].get("started", 0), reverse=True)


def sweep_dead_runs() -> None:
    """Removes the run folders of runners that were killed."""
    for folder in Path(_short_tmp()).glob(RUN_DIR_PREFIX + "*.*"):
        pid = folder.name.removeprefix(RUN_DIR_PREFIX).split(".")[0]
        if pid.isdigit() and not _alive(int(pid)) and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
