"""Cost of weftd on this machine: UDP transport over loopback, 100 probes a second to one peer; and beside it what a
probe costs iputils' ping, which does no more than send, wait and receive: most of both is the machine's wake-ups."""

import ctypes
import os
import pathlib
import re
import secrets
import signal
import subprocess
import tempfile
import time
import urllib.request

from tests.bench.common import Unmeasurable, program

PROBES_PER_S = 100
LOCAL, PEER = "127.0.0.1", "127.0.0.2"
SETTLE_S, MEASURE_S, QUICK_S = 5.0, 30.0, 8.0
START_DEADLINE_S = 20.0

CONFIG = """
[agent]
name = "{name}"
state_dir = "{folder}"
[fabric]
name = "bench"
key_file = "{key}"
[metrics]
listen = "127.0.0.1:{metrics}"
[probe]
transport = "udp"
interfaces = ["{address}"]
hello_port = {hello}
[trace]
enabled = false
"""

TARGET = """
[[probe.targets]]
name = "peer/{peer}"
address = "{peer}"
hello_port = {hello}
ports = 4
probes_per_s = {rate}
"""


def free_port(kind: int) -> int:
    import socket
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind((LOCAL, 0))
        return probe.getsockname()[1]


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page.read().decode(), re.MULTILINE)
    return sum(map(float, values))


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ping_us_per_probe(count: int):
    """CPU of ping a probe, at the same pace; None where it is not installed or may not send."""
    try:
        child = subprocess.Popen(["ping", "-q", "-n", "-i", str(1 / PROBES_PER_S), "-c", str(count), PEER],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        return None
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return (usage.ru_utime + usage.ru_stime) / count * 1e6 if child.returncode == 0 else None


def rss_mib(pid: int) -> float:
    return int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024


class Instructions:
    """Retired instructions of a process's threads, where the processor's counters can be had."""

    def __init__(self, pid: int):
        self._files = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            attributes = bytearray(128)
            attributes[4:8] = (128).to_bytes(4, "little")  # size; type 0 is hardware
            attributes[8:16] = (1).to_bytes(8, "little")   # PERF_COUNT_HW_INSTRUCTIONS
            buffer = (ctypes.c_char * 128).from_buffer(attributes)
            number = ctypes.CDLL(None, use_errno=True).syscall(298, buffer, int(thread), -1, -1, 0)
            if number < 0:
                self.reason = f"perf_event_open: {os.strerror(ctypes.get_errno())}"
                self.close()
                return
            self._files.append(number)

    def read(self):
        return sum(int.from_bytes(os.read(number, 8), "little") for number in self._files) if self._files else None

    def close(self):
        for number in self._files:
            os.close(number)
        self._files = []


def measure(build: pathlib.Path, quick: bool) -> dict:
    import socket
    weftd = program(build, "weftd")
    seconds = QUICK_S if quick else MEASURE_S
    children = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        key = folder / "fabric.key"
        key.touch(0o600)
        key.write_text(secrets.token_hex(32) + "\n")
        hello = free_port(socket.SOCK_DGRAM)
        ports = {name: free_port(socket.SOCK_STREAM) for name in ("measured", "peer")}
        try:
            for name, address in (("peer", PEER), ("measured", LOCAL)):
                state = folder / name
                state.mkdir()
                text = CONFIG.format(name=name, folder=state, key=key, metrics=ports[name], address=address, hello=hello)
                if name == "measured":
                    text += TARGET.format(peer=PEER, hello=hello, rate=PROBES_PER_S)
                (folder / f"{name}.toml").write_text(text)
                with open(folder / f"{name}.log", "wb") as log:
                    children.append(subprocess.Popen([weftd, "--config", folder / f"{name}.toml"], stderr=log, stdout=log))
            pid = children[-1].pid
            deadline = time.monotonic() + START_DEADLINE_S
            while True:
                try:
                    if metric(ports["measured"], "weft_probe_acknowledged_total") > 0:
                        break
                except (OSError, AttributeError):
                    pass
                if time.monotonic() > deadline or any(child.poll() is not None for child in children):
                    raise Unmeasurable("weftd did not begin to probe:\n" + (folder / "measured.log").read_text()[-1000:])
                time.sleep(0.2)
            time.sleep(SETTLE_S)
            rounds = [ping_us_per_probe(int(seconds * PROBES_PER_S / 4))]
            counter = Instructions(pid)
            before = (time.monotonic(), cpu_seconds(pid), metric(ports["measured"], "weft_probe_sent_total"), counter.read())
            time.sleep(seconds)
            after = (time.monotonic(), cpu_seconds(pid), metric(ports["measured"], "weft_probe_sent_total"), counter.read())
            counter.close()
            rounds.append(ping_us_per_probe(int(seconds * PROBES_PER_S / 4)))
            probes = after[2] - before[2]
            figures = {"cpu_share_of_core": round((after[1] - before[1]) / (after[0] - before[0]), 5),
                       "cpu_us_per_probe": round((after[1] - before[1]) / probes * 1e6, 1) if probes > 0 else None,
                       "ping_cpu_us_per_probe": [cost and round(cost, 1) for cost in rounds],
                       "instructions_per_probe": None, "rss_mib": round(rss_mib(pid), 1),
                       "probes_per_s": round(probes / (after[0] - before[0]), 1), "seconds": round(after[0] - before[0], 1)}
            if before[3] is not None and probes > 0:
                figures["instructions_per_probe"] = round((after[3] - before[3]) / probes)
            else:
                figures["instructions_per_probe_absent"] = getattr(counter, "reason", "no probe was sent")
            return figures
        finally:
            for child in children:
                child.send_signal(signal.SIGTERM)
            for child in children:
                try:
                    child.wait(5)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
