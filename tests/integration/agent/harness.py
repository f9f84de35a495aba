"""Starts weftd and weft-aggregator as real processes on loopback addresses and looks at what they say."""

import contextlib
import http.client
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
WEFTD = ROOT / "build/agent/daemon/weftd"
AGGREGATOR = ROOT / "build/aggregator/weft-aggregator"
DEADLINE_S = 20


class Late(AssertionError):
    """Something did not happen in time."""


def until(what, condition, deadline_s=DEADLINE_S):
    """Waits for condition() to be true; returns what it returned."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Late(f"not within {deadline_s} s: {what}")
        time.sleep(0.05)


def free_port(address="127.0.0.1", kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


class Process:
    """One process with its log in a file; killed at the end whatever happens."""

    def __init__(self, argv, folder, name, environment=None):
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._log = open(self.log_path, "ab")
        env = dict(os.environ, **(environment or {}))
        env.pop("NOTIFY_SOCKET", None)
        env.update(environment or {})
        self.process = subprocess.Popen(argv, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL, env=env)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_log(self, text, deadline_s=DEADLINE_S):
        def found():
            if text in self.log():
                return True
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{self.log()}")
            return False

        return until(f"{self.name} says {text!r}; it said:\n{self.log()}", found, deadline_s)

    def send(self, number):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGTERM, deadline_s=10):
        """Ends it and returns (exit status, seconds it took)."""
        start = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(deadline_s)
        return status, time.monotonic() - start

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()


class Bench(contextlib.ExitStack):
    """A scratch folder and the processes of one test."""

    def __enter__(self):
        super().__enter__()
        self.folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory(prefix=f"weft{os.getpid()}-it-")))
        return self

    def start(self, argv, name, environment=None):
        process = Process([str(arg) for arg in argv], self.folder, name, environment)
        self.callback(process.close)
        return process

    def write(self, name, text, mode=0o600):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def agent(self, number, *, aggregator="", targets=(), key_file="", hello_port, extra="", environment=None,
              rate=20, metrics_port=0, wrap=(), transport="udp", flags=(), fabric="test"):
        """weftd of host aN on 127.0.0.N+1, over UDP unless transport says otherwise."""
        return Agent(self, number, aggregator=aggregator, targets=targets, key_file=key_file, hello_port=hello_port,
                     extra=extra, environment=environment, rate=rate, metrics_port=metrics_port, wrap=wrap,
                     transport=transport, flags=flags, fabric=fabric)


class Agent:
    def __init__(self, bench, number, **options):
        self.bench, self.number, self.options = bench, number, options
        self.name = f"a{number}"
        self.address = f"127.0.0.{number + 1}"
        self.state = bench.folder / f"{self.name}.state"
        self.state.mkdir(exist_ok=True)
        self.metrics_port = options["metrics_port"] or free_port()
        self.config = bench.write(f"{self.name}.toml", self.text())
        self.process = None
        self.lives = 0
        self.start()

    def text(self, extra=None):
        options = self.options
        key = f'key_file = "{options["key_file"]}"\n' if options["key_file"] else ""
        text = (f'[agent]\nname = "{self.name}"\nstate_dir = "{self.state}"\n[fabric]\nname = "{options["fabric"]}"\n{key}'
                f'[aggregator]\naddress = "{options["aggregator"]}"\n'
                f'[metrics]\nlisten = "127.0.0.1:{self.metrics_port}"\n'
                f'[probe]\ntransport = "{options["transport"]}"\ninterfaces = ["{self.address}"]\nmax_probes_per_s = 500\n'
                f'hello_port = {options["hello_port"]}\n{options["extra"] if extra is None else extra}\n'
                '[trace]\nenabled = false\n')
        for peer in options["targets"]:
            text += (f'[[probe.targets]]\nname = "a{peer}/lo"\naddress = "127.0.0.{peer + 1}"\n'
                     f'hello_port = {options["hello_port"]}\nports = 2\nprobes_per_s = {options["rate"]}\n')
        return text

    def start(self):
        self.lives += 1
        self.process = self.bench.start([*self.options["wrap"], WEFTD, "--config", self.config, *self.options["flags"]],
                                        f"{self.name}-{self.lives}", self.options["environment"])
        self.process.wait_log("started")
        until("the first page", lambda: "weft_agent_info{" in self.get("/metrics")[1])

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name, **labels):
        """Sum of the series of a family that carry these labels; None when there is none."""
        total = None
        for line in self.get("/metrics")[1].splitlines():
            match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if not match or match.group(1) != name:
                continue
            have = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match.group(2) or ""))
            if all(have.get(key) == value for key, value in labels.items()):
                total = (total or 0) + float(match.group(3))
        return total
