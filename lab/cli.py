"""lab/run: arguments, signals, deadlines, exit codes."""

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

from lab.control import ControlServer
from lab.daemons import Daemons, find_program, start_daemons
from lab.errors import Interrupted, LabError
from lab.fabric import Lab, stderr_progress
from lab.topology import Topology

ROOT = Path(__file__).resolve().parent.parent

EXAMPLES = """examples:
  lab/run --keep                  boot, start weft, stay until Ctrl-C; commands go in with lab/exec
  lab/run --keep --no-daemons     the bare fabric
"""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="lab/run",
        description="Boots a fabric of virtual RDMA hosts.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--keep", action="store_true", help="leave the lab up until Ctrl-C")
    p.add_argument("--hosts", type=int, default=4, metavar="N", help="number of hosts (default 4)")
    p.add_argument("--leaves", type=int, default=2, metavar="N", help="number of leaf switches (default 2)")
    p.add_argument("--spines", type=int, default=2, metavar="N", help="number of spine switches (default 2)")
    p.add_argument("--build", type=Path, default=ROOT / "build", metavar="DIR", help="build directory (default ./build)")
    p.add_argument("--no-daemons", action="store_true", help="do not start weft in the lab")
    return p


def catch_signals() -> None:
    def raise_it(number: int, frame: object) -> None:
        for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)  # the teardown is bounded; let it finish
        raise Interrupted(f"stopped by {signal.Signals(number).name}", 128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, raise_it)


def arm_deadline(seconds: float) -> None:
    """The last resort: a run that hangs where no deadline of its own helps ends here, and its children with it."""

    def end() -> None:
        stderr_progress(f"lab: the run is over its deadline of {seconds:.0f} s")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
        os._exit(124)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    catch_signals()
    try:
        return run(options)
    except Interrupted as error:
        stderr_progress(f"lab: {error}; everything the lab started is gone")
        return error.exit_code
    except LabError as error:
        stderr_progress(f"lab: {error}")
        return error.exit_code


def run(options: argparse.Namespace) -> int:
    topology = Topology(options.hosts, options.leaves, options.spines)
    arm_deadline(24 * 3600.0)
    with Lab(topology) as lab:
        daemons: Daemons | None = None
        if not options.no_daemons and find_program(options.build, "weftd"):
            daemons = start_daemons(lab, options.build)
        keep(lab, daemons)
    return 0


def keep(lab: Lab, daemons: Daemons | None) -> None:
    server = ControlServer(lab, daemons)
    try:
        lab.say("the lab stays up until Ctrl-C; from another terminal:  lab/exec h1 'COMMAND'   (lab/exec --help)")
        while not lab.dead_guests():
            time.sleep(0.5)
        raise LabError(f"guests ended by themselves: {', '.join(lab.dead_guests())}")
    finally:
        server.close()
