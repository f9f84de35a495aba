"""Runs the weft program as an operator would, and small networks of namespaces to run it in."""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEFT = ROOT / os.environ.get("WEFT_BUILD", "build") / "cli" / "weft"


def inside(netns=None, hostname=None):
    """What to put before a command; the process that is started becomes it, so signals and exit status are its own.

    hostname: what the host calls itself, as namespaces of the network alone share one name.
    """
    named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', hostname] if hostname else []
    return [*named, *(["ip", "netns", "exec", netns] if netns else [])]


def command(*args, netns=None, hostname=None):
    return [*inside(netns, hostname), str(WEFT), *map(str, args)]


def clean_environment(**more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WEFT_") and key != "NO_COLOR"}
    return {**kept, **more}


def weft(*args, netns=None, hostname=None, timeout=60, **popen):
    """Runs weft to its end; every command has a deadline of its own, so this timeout is a failure."""
    return subprocess.run(command(*args, netns=netns, hostname=hostname), text=True, capture_output=True, timeout=timeout, check=False,
                          env=clean_environment(), **popen)


def free_udp_port():
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def reject_constant(text):
    raise ValueError(f"{text} is no JSON")


def parse_one_object(text):
    """Strict: one object, no NaN, nothing around it."""
    value = json.loads(text, parse_constant=reject_constant)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def wait_for(condition, what, seconds=10.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s for {what}")


class Process:
    """A weft that runs on its own; its stderr and stdout are read at the end or line by line."""

    def __init__(self, test, *args, netns=None, hostname=None):
        self.process = subprocess.Popen(command(*args, netns=netns, hostname=hostname), text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=clean_environment())
        test.addCleanup(self.end)

    def read_until(self, text, stream="stderr"):
        seen = ""
        for line in getattr(self.process, stream):
            seen += line
            if text in line:
                return seen
        raise AssertionError(f"{text!r} never came; got: {seen}")

    def interrupt(self, timeout=10):
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def responder(test, address, hello_port, *more, netns=None, hostname=None):
    """`weft responder` over UDP, up and answering."""
    process = Process(test, "responder", "--transport", "udp", "--source", address, "--hello-port", hello_port, *more,
                      netns=netns, hostname=hostname)
    process.read_until("ends ")
    return process


# Waits for the end of its input, which is that of the test or of its process, however it ended.
JANITOR = """cat > /dev/null
ip netns list | cut -d' ' -f1 | grep "^$0-" | while read -r netns; do
  ip netns pids "$netns" | xargs -r kill -9
  ip netns del "$netns"
done
rm -rf "$1/$0-"*"""


class NetworkTest(unittest.TestCase):
    """Network namespaces of one test. They, what runs in them and scratch folders named by the prefix are gone
    afterwards, also when this process is killed. Names are this process's own."""

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        self.prefix = f"weft{os.getpid()}"
        janitor = subprocess.Popen(["sh", "-c", JANITOR, self.prefix, tempfile.gettempdir()], stdin=subprocess.PIPE,
                                   start_new_session=True)
        self.addCleanup(janitor.communicate)

    def name(self, node):
        return f"{self.prefix}-{node}"

    def run_ip(self, *args):
        subprocess.run(["ip", *args], check=True, capture_output=True, text=True)

    def add_node(self, node, **sysctls):
        name = self.name(node)
        self.run_ip("netns", "add", name)
        self.run_ip("-n", name, "link", "set", "lo", "up")
        for key, value in sysctls.items():
            self.sysctl(node, key.replace("__", "."), value)

    def sysctl(self, node, key, value):
        subprocess.run(["ip", "netns", "exec", self.name(node), "sysctl", "-qw", f"{key}={value}"], check=True)

    def connect(self, a, address_a, b, address_b):
        """A veth pair named a-b in a and b-a in b; addresses with prefix length, IPv4 or IPv6."""
        self.run_ip("link", "add", f"{a}-{b}", "netns", self.name(a), "type", "veth", "peer", "name", f"{b}-{a}",
                    "netns", self.name(b))
        for node, port, address in ((a, f"{a}-{b}", address_a), (b, f"{b}-{a}", address_b)):
            extra = ["nodad"] if ":" in address else []
            self.run_ip("-n", self.name(node), "addr", "add", address, "dev", port, *extra)
            self.run_ip("-n", self.name(node), "link", "set", port, "up")

    def route(self, node, *args):
        self.run_ip("-n", self.name(node), "route", "add", *args)


def enter_netns(name):
    with open(f"/var/run/netns/{name}", "rb") as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")


class Wire:
    """A cable between two namespaces that does harm: a process that carries packets between two TUN devices.

    faults: {"a>b": {"drop_every": 3}, "b>a": {"mark_every": 2}, ...}; only UDP is touched.
    """

    def __init__(self, test, netns_a, address_a, netns_b, address_b, faults):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.cli_wire", netns_a, address_a, netns_b, address_b,
             json.dumps(faults)], cwd=ROOT, text=True, stdout=subprocess.PIPE)
        test.addCleanup(self.end)
        if self.process.stdout.readline().strip() != "ready":
            raise AssertionError("the wire did not come up")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
