"""The builder's end of a guest's command channel (guest/daemon.py has the other end and the limits).

QEMU connects the guest's virtio-serial port to a UNIX socket that listens here before QEMU starts. One reader thread a
guest; any thread may send. Every command has a deadline in the guest, and a little later one here, so a dead guest
answers with an error and never with silence.
"""

import base64
import concurrent.futures
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_LINE_BYTES = 16 << 20
LEAST_GAP_S = 0.1
GRACE_S = 10.0  # beyond a command's own deadline: a loaded emulated guest is slow to say so


@dataclass(frozen=True)
class Result:
    """Outcome of a command. rc 124: past its deadline; 125: it could not be started or the guest did not answer."""

    rc: int
    out: str = ""
    err: str = ""
    timed_out: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.rc == 0


@dataclass(frozen=True)
class Gap:
    """A time in which a guest did not run; builder's monotonic clock."""

    guest: str
    start: float
    end: float


class Channel:
    """Thread-safe. `on_gap` is called on the reader thread."""

    def __init__(self, guest: str, path: Path, on_gap: Callable[[Gap], None] = lambda gap: None):
        self.guest = guest
        self.ready = threading.Event()
        self.guest_uptime_s = 0.0  # when the daemon said hello
        self._on_gap = on_gap
        self._ids = itertools.count(1)
        self._pending: dict[int, tuple[concurrent.futures.Future, float, float]] = {}
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(1)
        for target in (self._read_loop, self._expire_loop):
            threading.Thread(target=target, name=f"lab-{guest}", daemon=True).start()

    def exec(self, argv: Sequence[str], timeout: float = 30.0, **options) -> Result:
        return self.submit(argv, timeout, **options).result()

    def submit(
        self,
        argv: Sequence[str],
        timeout: float = 30.0,
        *,
        netns: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> concurrent.futures.Future:
        message = {"op": "exec", "argv": list(argv), "timeout": timeout, "netns": netns, "env": dict(env or {})}
        return self._request(message, timeout + GRACE_S)

    def put(self, path: str, data: bytes, mode: int = 0o644) -> Result:
        """Writes a file in the guest, whole or not at all."""
        message = {"op": "put", "path": path, "mode": mode, "data": base64.b64encode(data).decode()}
        return self._request(message, 30.0).result()

    def tail(self, path: str, most_bytes: int) -> concurrent.futures.Future:
        """The end of a file in the guest; cheap enough to ask for often. rc 1 when there is none."""
        return self._request({"op": "tail", "path": path, "bytes": most_bytes}, 30.0)

    def power_off(self) -> None:
        self._send({"op": "off"})

    def close(self) -> None:
        self._closed = True
        for end in (self._connection, self._listener):
            if end is not None:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()
        self._fail_all("the lab was shut down")

    def _request(self, message: dict, wait_s: float) -> concurrent.futures.Future:
        future: concurrent.futures.Future = concurrent.futures.Future()
        number = next(self._ids)
        now = time.monotonic()
        with self._lock:
            self._pending[number] = (future, now, now + wait_s)
        if not self._send({**message, "id": number}):
            self._resolve(number, Result(125, err=f"{self.guest} is not connected"))
        return future

    def _send(self, message: dict) -> bool:
        connection = self._connection
        if connection is None or self._closed:
            return False
        try:
            with self._write_lock:
                connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def _resolve(self, number: int, result: Result) -> None:
        with self._lock:
            entry = self._pending.pop(number, None)
        # A caller may have given it up and cancelled it meanwhile.
        if entry is not None and entry[0].set_running_or_notify_cancel():
            entry[0].set_result(result)

    def _fail_all(self, reason: str) -> None:
        with self._lock:
            numbers = list(self._pending)
        for number in numbers:
            self._resolve(number, Result(125, err=f"{self.guest}: {reason}"))

    def _expire_loop(self) -> None:
        ticks = 0
        while not self._closed:
            time.sleep(0.2)
            ticks += 1
            if ticks % 25 == 0:
                self._send({"op": "keepalive"})
            now = time.monotonic()
            with self._lock:
                late = [n for n, (_, _, deadline) in self._pending.items() if now > deadline]
            for number in late:
                self._resolve(number, Result(125, err=f"{self.guest} did not answer in time", timed_out=True))

    def _read_loop(self) -> None:
        try:
            self._connection, _ = self._listener.accept()
            pending = b""
            while data := self._connection.recv(1 << 16):
                pending += data
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    self._handle(line)
                if len(pending) > MAX_LINE_BYTES:
                    pending = b""
        except OSError:
            pass
        self._fail_all("the guest is gone")

    def _handle(self, line: bytes) -> None:
        now = time.monotonic()
        try:
            message = json.loads(line)
        except ValueError:
            return  # the first bytes of a boot may be noise
        if "hello" in message:
            self.guest_uptime_s = float(message["uptime"])
            self.ready.set()
        elif "beat" in message:
            if message["gap"] >= LEAST_GAP_S:
                self._on_gap(Gap(self.guest, now - message["gap"], now))
        elif "id" in message:
            with self._lock:
                started = self._pending.get(message["id"], (None, now, now))[1]
            self._resolve(
                message["id"],
                Result(message["rc"], message["out"], message["err"], message.get("timed_out", False), now - started),
            )
