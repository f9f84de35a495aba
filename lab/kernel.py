"""The guests' kernel and initramfs: Debian's stock kernel package, unpacked (not installed) into a cache folder.

Rebuilt when the package version or the recipe (module list, init scripts, command daemon, busybox) changes.
"""

import contextlib
import fcntl
import gzip
import hashlib
import json
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.process import require

# Loaded from the initramfs, by role: the channel and the builder's file system first, then what the role is for.
BOOT_MODULES = ("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "virtio_rng", "virtio_console")
ROLE_MODULES = {
    "host": ("ib_uverbs", "rdma_ucm", "rdma_rxe", "sch_netem", "crc32_generic"),
    "fabric": ("veth", "sch_netem"),
}
GUEST_DIR = Path(__file__).resolve().parent / "guest"
META_PACKAGE = "linux-image-amd64"


@dataclass(frozen=True)
class KernelImage:
    kernel: Path
    initramfs: Path
    modules: Path  # the folder to mount over /lib/modules
    release: str  # as uname -r says it


def default_work_dir() -> Path:
    if "WEFT_LAB_WORK" in os.environ:
        return Path(os.environ["WEFT_LAB_WORK"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft-lab"


def prepare(work: Path, progress: Callable[[str], None]) -> KernelImage:
    """Returns the image, building what is missing. Several runners may call this at once."""
    require("busybox", "depmod", "dpkg-deb", "apt-get", "apt-cache")
    work.mkdir(parents=True, exist_ok=True)
    with _locked(work / "kernel.lock"):
        package, version = _candidate(work)
        tree = work / f"{package}_{version.replace(':', '%3a')}"
        if not (tree / "complete").exists():
            _unpack(package, version, tree, progress)
        release = next((tree / "lib/modules").iterdir()).name
        modules = tree / "lib/modules" / release
        initramfs = tree / f"initramfs-{_recipe(modules)[:16]}.gz"
        if not initramfs.exists():
            progress("building the initramfs")
            _write_initramfs(modules, initramfs)
        return KernelImage(_plain_kernel(tree / f"boot/vmlinuz-{release}"), initramfs, tree / "lib/modules", release)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _candidate(work: Path) -> tuple[str, str]:
    """The kernel package apt would install, or the newest one already unpacked when apt knows none.

    Asking apt takes seconds on a busy machine, so its answer is kept until its lists change.
    """
    cache = work / "candidate.json"
    lists = Path("/var/lib/apt/lists")
    key = max((p.stat().st_mtime_ns for p in (lists, *lists.glob("*_Packages*"))), default=0) if lists.exists() else 0
    try:
        kept = json.loads(cache.read_text())
        if kept["key"] == key and (work / f"{kept['package']}_{kept['version'].replace(':', '%3a')}/complete").exists():
            return kept["package"], kept["version"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = _ask_apt()
    if found:
        cache.write_text(json.dumps({"key": key, "package": found[0], "version": found[1]}))
        return found
    unpacked = sorted(work.glob("linux-image-*/complete"), key=lambda p: p.stat().st_mtime)
    if unpacked:
        name, _, version_text = unpacked[-1].parent.name.partition("_")
        return name, version_text.replace("%3a", ":")
    raise LabError(f"apt knows no {META_PACKAGE}: run `apt-get update` first (the lab boots Debian's own kernel)")


def _ask_apt() -> tuple[str, str] | None:
    depends = _apt_cache("depends", META_PACKAGE)
    package = re.search(r"Depends: (linux-image-\S+)", depends)
    if package:
        version = re.search(r"^Version: (\S+)", _apt_cache("show", "--no-all-versions", package[1]), re.M)
        if version:
            return package[1], version[1]
    return None


def _apt_cache(*arguments: str) -> str:
    result = subprocess.run(["apt-cache", *arguments], capture_output=True, text=True, timeout=60, check=False)
    return result.stdout if result.returncode == 0 else ""


def _unpack(package: str, version: str, tree: Path, progress: Callable[[str], None]) -> None:
    progress(f"downloading {package} {version} (about 70 MB, once)")
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix="unpack.") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)  # apt downloads as a user of its own
        result = subprocess.run(
            ["apt-get", "download", f"{package}={version}"],
            cwd=folder, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        packages = list(folder.glob("*.deb"))
        if result.returncode != 0 or not packages:
            raise LabError(f"apt-get download {package} failed: {result.stderr.strip()[-500:]}")
        progress("unpacking the kernel")
        new = folder / "tree"
        subprocess.run(["dpkg-deb", "-x", packages[0], new], check=True, timeout=300)
        # kmod looks below lib/modules only; the package ships no index, it is made at installation.
        release = next((new / "lib/modules").iterdir()).name
        subprocess.run(["depmod", "-b", new, release], check=True, timeout=120, env=_with_sbin())
        (new / "complete").touch()
        shutil.rmtree(tree, ignore_errors=True)
        new.chmod(0o755)
        new.rename(tree)


def _plain_kernel(vmlinuz: Path) -> Path:
    """The ELF kernel inside the bzImage, started by QEMU through its PVH note.

    Unpacking it here once saves emulated guests from unpacking it at each boot, which is more than half of the
    kernel's start. The compressed kernel is used as it is where it cannot be taken apart.
    """
    plain = vmlinuz.with_name(vmlinuz.name.replace("vmlinuz", "vmlinux"))
    if plain.exists():
        return plain
    elf = extract_elf(vmlinuz.read_bytes())
    if elf is None:
        return vmlinuz
    scratch = plain.with_suffix(".new")
    scratch.write_bytes(elf)
    scratch.rename(plain)
    return plain


def extract_elf(image: bytes) -> bytes | None:
    """Documentation/x86/boot.rst: setup_sects at 0x1f1, payload_offset and payload_length at 0x248."""
    if len(image) < 0x250 or image[0x202:0x206] < b"\x08\x02":
        return None
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    begin = (setup_sectors + 1) * 512 + offset
    payload = image[begin : begin + length]
    try:
        if payload.startswith(b"\xfd7zXZ\0"):
            elf = lzma.LZMADecompressor().decompress(payload)
        elif payload.startswith(b"\x1f\x8b"):
            elf = zlib.decompressobj(31).decompress(payload)
        else:
            return None
    except (lzma.LZMAError, zlib.error):
        return None
    return elf if elf.startswith(b"\x7fELF") else None


def _with_sbin() -> dict[str, str]:
    return {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}


def _busybox() -> Path:
    path = shutil.which("busybox")
    assert path, "require() came first"
    return Path(path)


def _recipe(modules: Path) -> str:
    digest = hashlib.sha256(repr((BOOT_MODULES, ROLE_MODULES, modules.name)).encode())
    for file in (*sorted(GUEST_DIR.iterdir()), _busybox()):
        if file.is_file():
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def module_load_order(modules_dep: str, wanted: tuple[str, ...]) -> list[str]:
    """Paths of the wanted modules and what they need, in the order to insert them. Built-in ones are left out."""
    needs: dict[str, tuple[str, list[str]]] = {}
    for line in modules_dep.splitlines():
        path, _, dependencies = line.partition(":")
        name = re.sub(r"\.ko(\.\w+)?$", "", path.rsplit("/", 1)[-1]).replace("-", "_")
        needs[name] = (path, dependencies.split())
    order: list[str] = []
    for module in wanted:
        path, dependencies = needs.get(module.replace("-", "_"), ("", []))
        for file in (*reversed(dependencies), path):
            if file and file not in order:
                order.append(file)
    return order


def _write_initramfs(modules: Path, target: Path) -> None:
    archive = _Cpio()
    for folder in ("bin", "mods", "proc", "sys", "dev", "newroot", "lower", "upper", "lab"):
        archive.add(folder, b"", 0o040755)
    archive.add("dev/console", b"", 0o020600, device=(5, 1))
    archive.add("bin/busybox", _busybox().read_bytes(), 0o100755)
    index = (modules / "modules.dep").read_text()
    kept: set[str] = set()
    for role, wanted in ROLE_MODULES.items():
        names = []
        for path in module_load_order(index, BOOT_MODULES + wanted):
            name = path.rsplit("/", 1)[-1].removesuffix(".xz")
            names.append(name)
            if name not in kept:
                kept.add(name)
                data = (modules / path).read_bytes()
                archive.add(f"mods/{name}", lzma.decompress(data) if path.endswith(".xz") else data, 0o100644)
        archive.add(f"modlist.{role}", "".join(f"{n}\n" for n in names).encode(), 0o100644)
    archive.add("init", (GUEST_DIR / "initramfs-init").read_bytes(), 0o100755)
    archive.add("lab/init", (GUEST_DIR / "init").read_bytes(), 0o100755)
    archive.add("lab/daemon.py", (GUEST_DIR / "daemon.py").read_bytes(), 0o100644)
    scratch = target.with_suffix(".new")
    scratch.write_bytes(gzip.compress(archive.finish(), 1, mtime=0))
    scratch.rename(target)


class _Cpio:
    """The "newc" archive of Documentation/driver-api/early-userspace/buffer-format.rst."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._inode = 0

    def add(self, name: str, data: bytes, mode: int, device: tuple[int, int] = (0, 0)) -> None:
        self._inode += 1
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        header = b"070701" + b"".join(b"%08X" % f for f in fields) + name.encode() + b"\0"
        self._parts += [header, b"\0" * (-len(header) % 4), data, b"\0" * (-len(data) % 4)]

    def finish(self) -> bytes:
        self.add("TRAILER!!!", b"", 0)
        return b"".join(self._parts)
