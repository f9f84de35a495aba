"""One QEMU process: command line, QMP, life."""

import itertools
import json
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import accel, process
from lab.channel import Channel
from lab.errors import LabError
from lab.kernel import KernelImage


def encode_argument(value: str) -> str:
    """Kernel command line values: spaces, quotes and % would break the line apart."""
    return "".join(c if c.isalnum() or c in "/._-+,:" else "".join(f"%{b:02x}" for b in c.encode()) for c in value)


@dataclass(frozen=True)
class Nic:
    """A network card of a guest. `backend` is QEMU's -netdev text without the id."""

    name: str  # id of the card, for set_link
    mac: str
    backend: str


@dataclass(frozen=True)
class GuestSpec:
    name: str
    memory_mib: int
    nics: Sequence[Nic] = field(default_factory=tuple)
    role: str = "host"  # which kernel modules it loads


class Guest:
    """Owns the QEMU process, its QMP socket and its command channel."""

    def __init__(self, spec: GuestSpec, run_dir: Path, on_gap=lambda gap: None):
        self.spec = spec
        self.name = spec.name
        self.console = run_dir / f"console.{spec.name}"
        self.channel = Channel(spec.name, run_dir / f"channel.{spec.name}", on_gap)
        self._qmp_path = run_dir / f"qmp.{spec.name}"
        self._channel_path = run_dir / f"channel.{spec.name}"
        self._qmp = _Qmp(self._qmp_path)
        self.qemu: subprocess.Popen | None = None

    def start(self, image: KernelImage, accel_arguments: Sequence[str], python: str) -> None:
        arguments = {
            "role": self.name, "modules": str(image.modules.resolve()), "python": python, "load": self.spec.role,
        }  # fmt: skip
        append = " ".join([
            "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off nowatchdog audit=0 cryptomgr.notests",
            accel.tcg_append(Path("/proc/cpuinfo").read_text()) if accel_arguments == accel.TCG else "",
            *(f"lab.{key}={encode_argument(value)}" for key, value in arguments.items()),
        ])  # fmt: skip
        argv: list[str | Path] = [
            "qemu-system-x86_64", "-name", f"weft-lab-{self.name}", "-M", "q35,usb=off,smbus=off", *accel_arguments,
            "-smp", "1", "-m", str(self.spec.memory_mib), "-display", "none", "-no-reboot", "-nodefaults",
            "-serial", f"file:{self.console}",
            "-kernel", image.kernel, "-initrd", image.initramfs, "-append", append,
            "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=root,mount_tag=builder",
            "-device", "virtio-rng-pci",
            "-chardev", f"socket,id=lab,path={self._channel_path}",
            "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=lab,name=lab",
            "-chardev", f"socket,id=qmp,path={self._qmp_path}", "-mon", "chardev=qmp,mode=control",
        ]  # fmt: skip
        for nic in self.spec.nics:
            kind, _, rest = nic.backend.partition(",")
            argv += ["-netdev", f"{kind},id=net-{nic.name}" + (f",{rest}" if rest else "")]
            argv += ["-device", f"virtio-net-pci,romfile=,id={nic.name},netdev=net-{nic.name},mac={nic.mac}"]
        self.qemu = process.spawn(argv, log=self.console.with_suffix(f".{self.name}.qemu"))

    def wait_ready(self, deadline: float) -> None:
        """Until the command daemon says hello; raises with the end of the console when it does not."""
        while not self.channel.ready.wait(0.1):
            if self.qemu is None or self.qemu.poll() is not None:
                raise LabError(f"QEMU of {self.name} ended while booting: {self._why()}")
            if time.monotonic() > deadline:
                raise LabError(f"{self.name} did not boot in time: {self._why()}")

    def set_link(self, nic: str, up: bool) -> None:
        self._qmp.command("set_link", {"name": nic, "up": up})

    def close(self) -> None:
        self.channel.close()
        self._qmp.close()

    def _why(self) -> str:
        texts = []
        for path in (self.console.with_suffix(f".{self.name}.qemu"), self.console):
            if path.exists():
                texts.append(path.read_bytes()[-800:].decode("utf-8", "replace").strip())
        return " | ".join(t for t in texts if t) or "no console output"


class _Qmp:
    """QEMU's control protocol, just commands. Listens first, QEMU connects. Thread-safe."""

    def __init__(self, path: Path):
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._file = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.settimeout(20)
        self._listener.bind(str(path))
        self._listener.listen(1)

    def command(self, name: str, arguments: dict) -> dict:
        with self._lock:
            try:
                if self._file is None:
                    connection, _ = self._listener.accept()
                    connection.settimeout(20)
                    self._file = connection.makefile("rwb")
                    self._file.readline()  # greeting
                    self._call("qmp_capabilities", {})
                return self._call(name, arguments)
            except OSError as error:
                raise LabError(f"QMP {name}: {error}") from error

    def _call(self, name: str, arguments: dict) -> dict:
        number = next(self._ids)
        self._file.write(json.dumps({"execute": name, "arguments": arguments, "id": number}).encode() + b"\n")
        self._file.flush()
        while line := self._file.readline():
            answer = json.loads(line)
            if answer.get("id") != number:
                continue  # an event
            if "error" in answer:
                raise LabError(f"QMP {name}: {answer['error'].get('desc')}")
            return answer["return"]
        raise LabError(f"QMP {name}: QEMU closed the connection")

    def close(self) -> None:
        for end in (self._file, self._listener):
            if end is not None:
                try:
                    end.close()
                except OSError:
                    pass
