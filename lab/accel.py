"""Which accelerator QEMU can really use here.

/dev/kvm may exist and still be of no use (nested virtualisation that refuses a register, a BIOS that hangs), so the
kernel is booted under KVM once with a short deadline; the answer is kept per boot of this machine and QEMU version.
"""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from lab import process
from lab.kernel import KernelImage

TRIAL_S = 3.0
# A plain CPU: every vector and paging extension that `max` offers is used by glibc or the kernel and costs more to
# emulate than it saves (user space starts in two thirds of the time).
# With the default of translated code that is kept, a guest throws all of it away every two minutes.
TCG = ("-accel", "tcg,tb-size=512", "-cpu", "Nehalem-v1")
# What an emulated guest can do without: each costs it more than the hardware it was made for.
TCG_APPEND = "init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off cgroup_disable=memory apparmor=0"
KVM = ("-accel", "kvm", "-cpu", "host")


def choose(work: Path, image: KernelImage) -> tuple[str, ...]:
    """QEMU arguments for the accelerator; WEFT_LAB_ACCEL=tcg or kvm overrides."""
    forced = os.environ.get("WEFT_LAB_ACCEL")
    if forced in ("tcg", "kvm"):
        return KVM if forced == "kvm" else TCG
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    key = f"{_boot_id()} {_qemu_version()} {image.release}"
    cache = work / "accel.json"
    try:
        kept = json.loads(cache.read_text())
        if kept["key"] == key:
            return KVM if kept["kvm"] else TCG
    except (OSError, ValueError, KeyError, TypeError):
        pass
    works = _trial(image)
    scratch = cache.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps({"key": key, "kvm": works}))
    scratch.rename(cache)
    return KVM if works else TCG


def tcg_append(cpuinfo: str) -> str:
    """Kernel parameters of an emulated guest, whose TSC is that of the machine in /proc/cpuinfo's text.

    Left alone, such a guest calibrates its TSC against a timer while the builder may take the CPU away, and then its
    clock runs several times too fast. So it is told the frequency where that is known for certain; elsewhere it uses
    the HPET, which is exact, but costs a system call and a trip to the device model each time.
    """
    fields = dict(
        (key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in cpuinfo.splitlines()) if key
    )
    flags = fields.get("flags", "").split()
    try:
        khz = round(float(fields["cpu MHz"]) * 1000)
    except (KeyError, ValueError):
        khz = 0
    known = khz > 0 and "constant_tsc" in flags and "tsc_known_freq" in flags
    clock = f"clocksource=tsc tsc=reliable tsc_early_khz={khz}" if known else "clocksource=hpet tsc=unstable"
    return f"{clock} {TCG_APPEND}"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _qemu_version() -> str:
    argv = ["qemu-system-x86_64", "--version"]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    return result.stdout.split("\n", 1)[0]


def _trial(image: KernelImage) -> bool:
    with tempfile.TemporaryDirectory(prefix="weft-lab-kvm.") as folder:
        serial = Path(folder) / "serial"
        qemu = process.spawn(
            ["qemu-system-x86_64", "-M", "q35", *KVM, "-smp", "1", "-m", "256", "-display", "none", "-no-reboot",
             "-nodefaults", "-serial", f"file:{serial}", "-kernel", image.kernel,
             "-append", "console=ttyS0 earlyprintk=ttyS0 panic=-1"],
        )  # fmt: skip
        try:
            deadline = time.monotonic() + TRIAL_S
            while time.monotonic() < deadline and qemu.poll() is None:
                if serial.exists() and b"Linux version" in serial.read_bytes():
                    return True
                time.sleep(0.05)
            return serial.exists() and b"Linux version" in serial.read_bytes()
        finally:
            process.stop(qemu, grace_s=0.2)
