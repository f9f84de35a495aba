"""Child processes that cannot outlive the runner, whatever ends it.

setpriv(1) sets the parent death signal and then becomes the program, so the kernel itself kills the child when the
runner is gone, also after `kill -9`. The kernel counts the *thread* that forked as the parent (prctl(2)), so all
children are started on one thread that lives as long as the runner.
"""

import concurrent.futures
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from lab.errors import MissingTool

# Program -> the Debian package that has it.
PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "setpriv": "util-linux",
    "busybox": "busybox-static",
    "depmod": "kmod",
    "modprobe": "kmod",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
    "apt-cache": "apt",
    "ip": "iproute2",
    "tc": "iproute2",
    "rdma": "iproute2",
    "ping": "iputils-ping",
    "ibv_devinfo": "ibverbs-utils",
    "ib_send_lat": "perftest",
}

_spawner = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="lab-spawner")


def require(*programs: str) -> None:
    """Raises MissingTool naming every absent program with its package."""
    search = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [p for p in programs if not shutil.which(p, path=search)]
    if absent:
        names = ", ".join(f"{p} (package {PACKAGES.get(p, p)})" for p in absent)
        install = " ".join(sorted({PACKAGES.get(p, p) for p in absent}))
        raise MissingTool(f"the lab needs {names}; install with: apt-get install {install}  (or run tools/setup)")


def spawn(
    argv: Sequence[str],
    *,
    log: Path | IO[bytes] | int = subprocess.DEVNULL,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    stdout: int | None = None,
    death_signal: str = "KILL",
) -> subprocess.Popen:
    """Starts argv in its own process group, tied to the runner's life. stdout and stderr go to `log` (appended)."""

    def start() -> subprocess.Popen:
        sink = open(log, "ab") if isinstance(log, Path) else log
        try:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", death_signal, "--", *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=stdout if stdout is not None else sink,
                stderr=sink,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise MissingTool(f"cannot start {error.filename} (package {PACKAGES.get('setpriv')})") from error
        finally:
            if isinstance(log, Path):
                sink.close()

    return _spawner.submit(start).result()


def stop(process: subprocess.Popen, grace_s: float = 3.0) -> int:
    """SIGTERM to the group, SIGKILL after the grace. Returns the exit status; safe on a process that is gone."""
    for sig, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        if process.poll() is not None:
            break
        try:
            os.killpg(process.pid, sig)
        except (ProcessLookupError, PermissionError):
            break
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
    status = process.poll()
    return status if status is not None else -signal.SIGKILL


def stop_all(processes: Sequence[subprocess.Popen], grace_s: float = 3.0) -> None:
    """Stops many at once: the grace is shared, not added up."""
    alive = [p for p in processes if p.poll() is None]
    for process in alive:
        _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    for process in alive:
        try:
            process.wait(max(0.05, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal_group(process, signal.SIGKILL)
            process.wait(5.0)


def _signal_group(process: subprocess.Popen, sig: int) -> None:
    try:
        os.killpg(process.pid, sig)
    except (ProcessLookupError, PermissionError):
        pass
