"""weft in the lab: weftd on every host, weft-aggregator on the builder, their configuration, logs and API."""

import http.client
import json
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from lab import process
from lab.errors import LabError, ProductError, UsageError
from lab.fabric import Lab, tail
from lab.toml_text import dump, merge
from lab.topology import BUILDER_ADDRESS

FABRIC_NAME = "lab"
PROGRAMS = ("weftd", "weft-aggregator", "weft", "weft-bench", "weft-tap")
GUEST_DIR = "/run/weft-lab"
# An emulated guest takes a millisecond of CPU for each packet. This is what four of them can send and still be on time;
# each link gets 25 probes/s or so. Its round trips wander by milliseconds.
AGGREGATOR_DEFAULTS = {"localise": {"probes_per_s_per_endpoint": 24, "delay_floor": "20ms"}}
READY_DEADLINE_S = 120.0
# After a start: agents still trace all paths, and nobody knows yet how long a healthy round trip takes.
SETTLE_S = 15.0
STOP_GRACE_S = 10.0

# Keeps the pid for signals and the exit status for the runner, and outlives the command that started it.
START_AGENT = f"""
cd {GUEST_DIR} || exit 1
rm -f weftd.rc weftd.pid
setsid bash -c 'weftd --config weftd.toml >> weftd.log 2>&1 & echo $! > weftd.pid; wait $!; echo $? > weftd.rc' \
  < /dev/null > /dev/null 2>&1 &
while [[ ! -s weftd.pid ]]; do sleep 0.02; done
"""


class ApiError(Exception):
    """The aggregator did not answer, or not with what was asked for."""


@dataclass(frozen=True)
class Setup:
    """What a scenario may ask of the daemons beyond their faults; equal setups need no restart."""

    topology_file: bool = True
    icmp_limit: bool = False  # the routers' limits as the kernel ships them
    agent: Mapping = field(default_factory=dict)  # merged into every weftd.toml
    hosts: Mapping = field(default_factory=dict)  # host -> merged into that one's
    aggregator: Mapping = field(default_factory=dict)


class Daemons:
    """Owns the daemons of one lab. Not thread-safe, except api(), which may be called from anywhere."""

    def __init__(self, lab: Lab, build: Path):
        self.lab = lab
        self.setup = Setup()
        self.http_port, self.grpc_port = _free_ports(2)
        self._build = build
        self._aggregator: subprocess.Popen | None = None
        self._running: set[str] = set()  # hosts whose weftd ought to run
        self._generation = 0
        self._settled = True
        self._key = secrets.token_hex(32)
        self.aggregator_log = lab.run_dir / "aggregator.log"
        lab.environment["WEFT_API"] = self.url
        lab.guest_environment["WEFT_API"] = f"http://{BUILDER_ADDRESS}:{self.http_port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def install(self) -> None:
        """Copies the programs into the run folder: guests cache what they read, and a rebuild must not reach them."""
        for name in PROGRAMS:
            source = find_program(self._build, name)
            if source is not None:
                shutil.copy2(source, self.lab.run_dir / "bin" / name)
        missing = [n for n in ("weftd", "weft-aggregator") if not (self.lab.run_dir / "bin" / n).exists()]
        if missing:
            raise UsageError(f"{self._build} has no {' and no '.join(missing)}: build first, or give --build DIR")

    def start(self, setup: Setup) -> None:
        """Starts everything afresh under this setup: new store, new logs' section, nothing remembered."""
        self.stop()
        self.setup = setup
        self._generation += 1
        self.lab.set_icmp_limit(setup.icmp_limit)
        self._write_configs()
        self.aggregator_start()
        for host, future in [(h, self._submit_start(h)) for h in self.lab.topology.hosts]:
            self._started(host, future.result())
        self._settled = False

    def stop(self) -> None:
        for host in sorted(self._running):
            self.agent_stop(host)
        self.aggregator_stop()

    def wait_ready(self, deadline_s: float = READY_DEADLINE_S) -> None:
        """Until every agent reports and the plan covers every link; raises with what was still missing."""
        deadline = time.monotonic() + deadline_s
        said = state = ""
        while True:
            try:
                status = self.api("/api/v1/status")
                agents, coverage = status["agents"], status["coverage"]
                state = (
                    f"{agents['reporting']} of {agents['expected']} agents report, "
                    f"{coverage['covered']} of {coverage['links']} links covered"
                )
                enough = agents["reporting"] >= len(self._running) > 0 or not self._running
                if coverage["ready"] and enough:
                    self.lab.say(f"weft is ready: {state}")
                    self._settle()
                    return
            except (ApiError, KeyError, TypeError) as error:
                state = f"the aggregator does not answer yet ({error})"
            if state != said:
                self.lab.say(state)
                said = state
            trouble = self.ended()
            if trouble or time.monotonic() > deadline:
                raise ProductError(f"weft is not ready: {'; '.join(trouble) or state}")
            time.sleep(0.5)

    def ended(self) -> list[str]:
        """Daemons that ought to run and do not."""
        trouble = []
        if self._aggregator is not None and self._aggregator.poll() is not None:
            trouble.append(
                f"weft-aggregator ended with {self._aggregator.returncode}: {tail(self.aggregator_log, 3).strip()}"
            )
        futures = {h: self.lab.tail(h, f"{GUEST_DIR}/weftd.rc") for h in sorted(self._running)}
        for host, future in futures.items():
            result = future.result()
            if result.ok:
                last = self.agent_log(host, 3).strip()
                trouble.append(f"weftd on {host} ended with {result.out.strip()}: {last}")
        return trouble

    def _settle(self) -> None:
        if not self._settled:
            time.sleep(SETTLE_S)
            self._settled = True

    def agent_start(self, host: str) -> None:
        if host not in self._running:
            self._started(host, self._submit_start(host).result())

    def agent_stop(self, host: str, signal_name: str = "TERM") -> None:
        """Ends weftd and waits for its end; a weftd that ignores SIGTERM is killed and that is an error."""
        self._running.discard(host)
        script = f"""
cd {GUEST_DIR} && [[ -s weftd.pid ]] || exit 0
read -r pid < weftd.pid
kill -CONT "$pid" 2> /dev/null; kill -{signal_name} "$pid" 2> /dev/null
for ((i = 0; i < {int(STOP_GRACE_S * 20)}; i++)); do [[ -s weftd.rc ]] && cat weftd.rc && exit 0; sleep 0.05; done
kill -KILL "$pid"; exit 9
"""
        result = self.lab.exec(host, script, timeout=STOP_GRACE_S + 20)
        if result.rc == 9:
            raise ProductError(f"weftd on {host} did not end within {STOP_GRACE_S:.0f} s of SIG{signal_name}")
        if not result.ok:
            raise LabError(f"cannot stop weftd on {host}: {result.err.strip()}")
        if signal_name == "TERM" and result.out.strip() not in ("", "0"):
            last = self.agent_log(host, 3).strip()
            raise ProductError(f"weftd on {host} ended with {result.out.strip()} on SIGTERM: {last}")

    def agent_signal(self, host: str, signal_name: str) -> None:
        result = self.lab.exec(host, f'read -r pid < {GUEST_DIR}/weftd.pid && kill -{signal_name} "$pid"')
        if not result.ok:
            raise LabError(f"cannot send SIG{signal_name} to weftd on {host}: {result.err.strip()}")

    def agent_log(self, host: str, lines: int = 40) -> str:
        return last_lines(self.lab.tail(host, f"{GUEST_DIR}/weftd.log").result().out, lines)

    def aggregator_start(self) -> None:
        if self._aggregator is None:
            program = self.lab.run_dir / "bin" / "weft-aggregator"
            self._aggregator = process.spawn(
                [program, "--config", self.lab.run_dir / "aggregator.toml"], log=self.aggregator_log
            )

    def aggregator_stop(self, grace_s: float = STOP_GRACE_S) -> None:
        if self._aggregator is not None:
            process.stop(self._aggregator, grace_s)
            self._aggregator = None

    def aggregator_kill(self) -> None:
        if self._aggregator is not None:
            self._aggregator.kill()
            self._aggregator.wait(10)
            self._aggregator = None

    def abandon(self) -> None:
        """Ends what runs on the builder; the guests end with the lab."""
        self.aggregator_stop(3.0)
        self._running.clear()

    @property
    def aggregator_up(self) -> bool:
        """Whether it ought to answer."""
        return self._aggregator is not None

    def heal(self, touched: Set[str]) -> None:
        """Back to everything running, after a scenario has stopped or bent what it touched."""
        self.aggregator_start()
        for host in self.lab.topology.hosts:
            if host not in self._running:
                self.agent_start(host)
            elif host in touched:
                self.agent_signal(host, "CONT")

    def logs(self, lines: int = 40) -> dict[str, str]:
        found = {h: self.lab.tail(h, f"{GUEST_DIR}/weftd.log") for h in self.lab.topology.hosts}
        agents = {h: last_lines(f.result().out, lines) for h, f in found.items()}
        return {"aggregator": tail(self.aggregator_log, lines), **agents}

    def api(self, path: str, method: str = "GET", timeout_s: float = 5.0) -> dict:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=timeout_s)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read(16 << 20)
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"{method} {path}: {error}") from error
        finally:
            connection.close()
        if response.status >= 300:
            raise ApiError(f"{method} {path}: HTTP {response.status} {body[:200].decode('utf-8', 'replace')}")
        try:
            return json.loads(body) if body.strip() else {}
        except ValueError as error:
            raise ApiError(f"{method} {path}: not JSON: {error}") from error

    def findings(self) -> list[dict]:
        findings = self.api("/api/v1/findings?state=all").get("findings")
        if not isinstance(findings, list):
            raise ApiError("/api/v1/findings has no list of findings")
        return findings

    def clear_findings(self) -> None:
        self.api("/api/v1/findings/clear", "POST")

    def _submit_start(self, host: str):
        return self.lab.submit(host, START_AGENT, 30)

    def _started(self, host: str, result) -> None:
        if not result.ok:
            raise LabError(f"cannot start weftd on {host}: {result.err.strip()}")
        self._running.add(host)

    def _write_configs(self) -> None:
        run_dir = self.lab.run_dir
        (run_dir / "topology.toml").write_text(self.lab.topology.toml(FABRIC_NAME))
        (run_dir / "fabric.key").touch(0o600)
        (run_dir / "fabric.key").write_text(self._key + "\n")
        fabric = {"name": FABRIC_NAME}
        if self.setup.topology_file:
            fabric["topology_file"] = str(run_dir / "topology.toml")
        aggregator = {
            "fabric": fabric,
            "listen": {"grpc": f"127.0.0.1:{self.grpc_port}", "http": f"127.0.0.1:{self.http_port}"},
            "store": {"path": str(run_dir / f"weft-{self._generation}.db")},
            **AGGREGATOR_DEFAULTS,
        }
        (run_dir / "aggregator.toml").write_text(dump(merge(aggregator, self.setup.aggregator)))
        for host in self.lab.topology.hosts:
            config = merge(merge(self._agent_config(host), self.setup.agent), self.setup.hosts.get(host, {}))
            self.lab.put(host, f"{GUEST_DIR}/fabric.key", f"{self._key}\n".encode(), 0o600)
            self.lab.put(host, f"{GUEST_DIR}/weftd.toml", dump(config).encode())

    def _agent_config(self, host: str) -> dict:
        return {
            "agent": {"name": host, "state_dir": "/run/weft"},
            "fabric": {"name": FABRIC_NAME, "key_file": f"{GUEST_DIR}/fabric.key"},
            "aggregator": {"address": f"{BUILDER_ADDRESS}:{self.grpc_port}"},
            "metrics": {"listen": "127.0.0.1:9435"},
            "probe": {"transport": "rdma"},
        }


def last_lines(text: str, lines: int) -> str:
    return "\n".join(text.splitlines()[-lines:])


def find_program(build: Path, name: str) -> Path | None:
    """An executable of the build directory, wherever in it the build system has put it."""
    for pattern in (name, f"*/{name}", f"*/*/{name}"):
        for path in sorted(build.glob(pattern)):
            if path.is_file():
                return path
    return None


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for entry in sockets:
            entry.bind(("127.0.0.1", 0))
        return [entry.getsockname()[1] for entry in sockets]
    finally:
        for entry in sockets:
            entry.close()


def start_daemons(lab: Lab, build: Path, setup: Setup | None = None) -> Daemons:
    """Installs and starts weft on a booted lab and waits until it is ready."""
    daemons = Daemons(lab, build)
    daemons.install()
    lab.say("starting weftd on every host and weft-aggregator")
    daemons.start(setup or Setup())
    daemons.wait_ready()
    return daemons
