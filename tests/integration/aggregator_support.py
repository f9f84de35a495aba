"""weft-aggregator as a real process with made-up agents, for the tests that need one."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEFT_BUILD", ROOT / "build"))
AGGREGATOR = BUILD / "aggregator/weft-aggregator"
FAKE_AGENT = BUILD / "tests/integration/aggregator_fake_agent"
PATIENCE = 30  # seconds; a busy builder is slow, a broken program is slower


def wait_for(what, condition, seconds=PATIENCE):
    """Returns the first true answer of condition; fails when none comes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"never came within {seconds} s: {what}")


class Aggregator:
    def __init__(self, folder, store=None, ports=(0, 0), config=None):
        self.config = ["--config", config] if config else []
        self.folder = pathlib.Path(folder)
        self.store = store or self.folder / "weft.db"
        self.ports = ports
        self.process = None
        self.start()

    def start(self):
        self.log = self.folder / f"log-{time.monotonic_ns()}"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [AGGREGATOR, *self.config, "--fabric", "lab", "--store", self.store, "--listen-grpc", f"127.0.0.1:{self.ports[0]}",
                 "--listen-http", f"127.0.0.1:{self.ports[1]}"], stderr=log)
        found = wait_for("the line that says where it listens", self._listening)
        self.ports = (int(found[1]), int(found[2]))

    def _listening(self):
        if self.process.poll() is not None:
            raise AssertionError(f"ended with {self.process.returncode}: {self.log.read_text()}")
        return re.search(r"grpc_port=(\d+) http_port=(\d+)", self.log.read_text())

    @property
    def grpc(self):
        return f"127.0.0.1:{self.ports[0]}"

    def ask(self, path, method="GET", timeout=10):
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[1]}{path}", method=method)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read().decode()

    def get(self, path):
        return json.loads(self.ask(path))

    def metric(self, name):
        for line in self.ask("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        return None

    def resident_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024

    def kill(self):
        self.process.kill()
        self.process.wait()

    def terminate(self):
        """Returns exit status and seconds it took."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE), time.monotonic() - begin

    def stop(self):
        if self.process.poll() is None:
            self.kill()


class FakeAgents:
    def __init__(self, target):
        self.process = subprocess.Popen([FAKE_AGENT, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.events = []
        self.lock = threading.Lock()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.lock:
                self.events.append(json.loads(line))

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def seen(self, stream, event):
        with self.lock:
            return [e for e in self.events if e["stream"] == stream and e["event"] == event]

    def wait(self, stream, event, where=lambda e: True):
        return wait_for(f"{event} on {stream}", lambda: next((e for e in self.seen(stream, event) if where(e)), None))

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.reader.join()
        self.process.stdout.close()


class AggregatorCase(unittest.TestCase):
    def setUp(self):
        for program in (AGGREGATOR, FAKE_AGENT):
            self.assertTrue(program.exists(), f"build first: {program}")
        folder = tempfile.TemporaryDirectory(prefix="weft-aggregator-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def aggregator(self, **options):
        started = Aggregator(self.folder, **options)
        self.addCleanup(started.stop)
        return started

    def agents(self, aggregator):
        started = FakeAgents(aggregator.grpc)
        self.addCleanup(started.stop)
        return started
