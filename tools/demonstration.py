"""The demonstration: four RDMA hosts, one link made sick, and what weft says about it."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SICK_SWITCH, SICK_DEVICE, SICK_LINK = "s1", "s1-l2", "s1>l2"
FINDING_DEADLINE_S = 60.0

EPILOG = """examples:
  tools/demo           about two minutes after the first build; leaves nothing behind
  tools/demo --keep    leaves fabric, agents and aggregator running until Ctrl-C
"""


class Steps:
    """One progress line a step on standard error, with the time since the start."""

    def __init__(self):
        self._started = time.monotonic()
        self._count = 0

    def say(self, text: str) -> None:
        self._count += 1
        print(f"[{time.monotonic() - self._started:5.1f} s] {self._count}. {text}", file=sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        print(f"          {text}", file=sys.stderr, flush=True)


def build(folder: pathlib.Path, steps: Steps) -> None:
    steps.say(f"build weft in {folder.name}/ (minutes the first time, seconds after)")
    if not (folder / "build.ninja").exists():
        subprocess.run(["meson", "setup", str(folder)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(["ninja", "-C", str(folder)], cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
        raise SystemExit("tools/demo: the build failed")


def colour() -> str:
    """For weft, whose output is a pipe here. no-color.org: an empty NO_COLOR counts as unset."""
    return "always" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else "never"


def weft(daemons, folder: pathlib.Path, *arguments: str) -> str:
    done = subprocess.run([folder / "cli/weft", *arguments, "--aggregator", daemons.url, "--color", colour()], text=True,
                          capture_output=True, timeout=30, check=False)
    return done.stdout or done.stderr


def wait_for_finding(daemons, injected: float) -> dict | None:
    while time.monotonic() - injected < FINDING_DEADLINE_S:
        for finding in daemons.findings():
            if finding["state"] == "active" and finding["kind"] == "link_loss":
                return finding
        time.sleep(0.1)
    return None


def demonstrate(folder: pathlib.Path, keep: bool, steps: Steps) -> int:
    # The lab needs the packages that tools/setup has just installed.
    from lab.daemons import Daemons, Setup
    from lab.fabric import Lab
    from lab.topology import Topology

    steps.say("boot the lab: hosts h1 to h4 with RDMA over Converged Ethernet, leaves l1 l2, spines s1 s2")
    lab = Lab(Topology(4, 2, 2), progress=steps.detail)
    daemons = None
    try:
        lab.boot()
        steps.say("start weft-aggregator here and weftd on every host; trace the fabric's paths")
        daemons = Daemons(lab, folder)
        daemons.install()
        daemons.start(Setup())
        daemons.wait_ready()
        steps.say(f"make one link sick: {SICK_LINK} loses 20 % of packets, one way, from now on")
        done = lab.exec(SICK_SWITCH, f"tc qdisc replace dev {SICK_DEVICE} root netem loss 20%")
        if not done.ok:
            raise SystemExit(f"tools/demo: cannot inject the fault: {done.err.strip()}")
        injected = time.monotonic()
        finding = wait_for_finding(daemons, injected)
        if finding is None:
            print(f"no finding within {FINDING_DEADLINE_S:.0f} s; logs:", file=sys.stderr)
            for name, text in daemons.logs().items():
                print(f"--- {name}\n{text}", file=sys.stderr)
            return 1
        steps.say(f"found after {time.monotonic() - injected:.1f} s: {finding['kind']} on {finding['subject']}")
        time.sleep(3)  # a few more windows, so that the mesh shows the loss in its figures
        print("\n$ weft findings\n" + weft(daemons, folder, "findings"))
        print("$ weft mesh\n" + weft(daemons, folder, "mesh"))
        print(f"API      {daemons.url}/api/v1/findings\nmetrics  {daemons.url}/metrics", flush=True)
        if keep:
            print("\nRunning until Ctrl-C. In another terminal:\n  lab/exec h1 weft ping 10.0.3.2\n"
                  f"  {folder.name}/cli/weft findings --watch --aggregator {daemons.url}", flush=True)
            while not lab.dead_guests():
                time.sleep(1)
        return 0 if finding["subject"] == f"link:{SICK_LINK}" else 1
    finally:
        steps.say("stop agents, aggregator and lab")
        if daemons is not None:
            daemons.abandon()
        lab.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    parser.add_argument("--build", default=str(ROOT / "build"), metavar="DIR", help="build folder (default: build)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    steps = Steps()
    try:
        folder = pathlib.Path(args.build).resolve()
        build(folder, steps)
        return demonstrate(folder, args.keep, steps)
    except KeyboardInterrupt:
        return 0 if args.keep else 130


if __name__ == "__main__":
    sys.exit(main())
