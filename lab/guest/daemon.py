"""The guest's end of the command channel: one JSON object a line over a virtio-serial port.

Runs many commands at once, each with a deadline and bounded output; tells the runner about its own scheduling gaps;
ends (and so powers the guest off) when the runner has not been heard for a minute.
Standard library only, no import of the lab: it runs from a copy inside the initramfs.
"""

import base64
import glob
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time

PORT_NAME = "lab"
MAX_LINE_BYTES = 8 << 20
MAX_OUTPUT_BYTES = 1 << 20
MAX_COMMANDS = 64
TICK_S = 0.1
GAP_S = 0.3  # shorter gaps are not worth a message
SILENCE_S = 60.0
LINGER_S = 0.2  # how long a background child may keep the pipes of a command that has ended


def open_port() -> int:
    for _ in range(200):
        for name in glob.glob("/sys/class/virtio-ports/*/name"):
            with open(name) as file:
                if file.read().strip() == PORT_NAME:
                    return os.open("/dev/" + name.split("/")[-2], os.O_RDWR)
        time.sleep(0.05)
    sys.exit("lab: no virtio-serial port called " + PORT_NAME)


def realtime() -> None:
    """Lifts the calling thread above any real-time hog a scenario may start.

    The policy is per thread and RESET_ON_FORK drops it in new threads too, so each thread asks for itself; commands
    therefore start with the normal policy.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(90))
    except OSError as problem:
        print("lab: daemon without real-time priority:", problem)


class Daemon:
    def __init__(self, fd: int):
        self._fd = fd
        self._out: queue.Queue = queue.Queue(maxsize=1000)
        self._heard = time.monotonic()
        self._slots = threading.BoundedSemaphore(MAX_COMMANDS)

    def run(self) -> None:
        for target in (self._write_loop, self._beat_loop):
            threading.Thread(target=target, daemon=True).start()
        self._send({"hello": os.environ.get("LAB_ROLE", ""), "uptime": time.clock_gettime(time.CLOCK_BOOTTIME)})
        pending = b""
        while True:
            data = os.read(self._fd, 1 << 16)
            if not data:  # the runner's end is closed
                time.sleep(0.2)
                continue
            self._heard = time.monotonic()
            pending += data
            *lines, pending = pending.split(b"\n")
            for line in lines:
                self._handle(line)
            if len(pending) > MAX_LINE_BYTES:
                pending = b""

    def _send(self, message: dict) -> None:
        try:
            self._out.put_nowait(json.dumps(message).encode() + b"\n")
        except queue.Full:
            pass  # the runner is gone or stuck; it has a deadline of its own for every answer

    def _write_loop(self) -> None:
        realtime()
        while True:
            data = self._out.get()
            while data:
                data = data[os.write(self._fd, data) :]

    def _beat_loop(self) -> None:
        realtime()
        last = told = time.monotonic()
        while True:
            time.sleep(TICK_S)
            now = time.monotonic()
            gap = now - last - TICK_S
            last = now
            if gap >= GAP_S or now - told >= 1.0:
                told = now
                self._send({"beat": round(now, 3), "gap": round(max(gap, 0.0), 3)})
            if now - self._heard > SILENCE_S:
                os._exit(1)

    def _handle(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            operation = message["op"]
        except (ValueError, KeyError, TypeError):
            return
        if operation == "exec":
            threading.Thread(target=self._exec, args=(message,), daemon=True).start()
        elif operation == "put":
            self._put(message)
        elif operation == "tail":
            self._tail(message)
        elif operation == "off":
            os._exit(0)

    def _put(self, message: dict) -> None:
        answer = {"id": message["id"], "rc": 0, "out": "", "err": ""}
        try:
            path = message["path"]
            os.makedirs(os.path.dirname(path), exist_ok=True)
            scratch = path + ".new"
            with open(scratch, "wb") as file:
                os.fchmod(file.fileno(), message["mode"])
                file.write(base64.b64decode(message["data"]))
            os.replace(scratch, path)
        except (OSError, ValueError) as error:
            answer.update(rc=1, err=str(error))
        self._send(answer)

    def _tail(self, message: dict) -> None:
        """The end of a file, without the price of starting a program."""
        answer = {"id": message["id"], "rc": 0, "out": "", "err": ""}
        try:
            with open(message["path"], "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - min(int(message["bytes"]), MAX_OUTPUT_BYTES)))
                answer["out"] = file.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError, KeyError, TypeError) as error:
            answer.update(rc=1, err=str(error))
        self._send(answer)

    def _exec(self, message: dict) -> None:
        realtime()
        answer = {"id": message["id"], "rc": 125, "out": "", "err": "", "timed_out": False}
        if not self._slots.acquire(blocking=False):
            answer["err"] = f"more than {MAX_COMMANDS} commands at once"
        else:
            try:
                self._run(message, answer)
            except (OSError, KeyError, TypeError, ValueError) as error:
                answer["err"] = f"cannot run: {error}"
            finally:
                self._slots.release()
        self._send(answer)

    def _run(self, message: dict, answer: dict) -> None:
        argv = message["argv"]
        if message.get("netns"):
            argv = ["ip", "netns", "exec", message["netns"], *argv]
        deadline = time.monotonic() + float(message["timeout"])
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/root" if os.path.isdir("/root") else "/",
            env={**os.environ, **message.get("env", {})},
            start_new_session=True,
        )
        kept = {"out": bytearray(), "err": bytearray()}
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, "out")
            selector.register(process.stderr, selectors.EVENT_READ, "err")
            while True:
                now = time.monotonic()
                if process.poll() is not None:  # only the pipes of background children are still open
                    deadline = min(deadline, now + LINGER_S)
                if not selector.get_map() and process.poll() is not None:
                    break
                if now >= deadline:
                    break
                if not selector.get_map():
                    try:
                        process.wait(deadline - now)
                    except subprocess.TimeoutExpired:
                        pass
                    continue
                for key, _ in selector.select(min(0.1, deadline - now)):
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                        continue
                    room = MAX_OUTPUT_BYTES - len(kept[key.data])
                    kept[key.data] += data[: max(room, 0)]
                    answer["truncated"] = answer.get("truncated", False) or len(data) > room
        if process.poll() is None:
            answer["timed_out"] = True
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.stderr.close()
        answer["rc"] = 124 if answer["timed_out"] else process.wait()
        answer["out"] = kept["out"].decode("utf-8", "replace")
        answer["err"] = kept["err"].decode("utf-8", "replace")


if __name__ == "__main__":
    realtime()
    Daemon(open_port()).run()
