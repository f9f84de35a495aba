"""lab/run: arguments, signals, deadlines, exit codes."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from lab import scenario as scenarios
from lab.control import ControlServer
from lab.daemons import Daemons, find_program, start_daemons
from lab.errors import Interrupted, LabError, UsageError
from lab.fabric import BOOT_DEADLINE_S, Lab, stderr_progress
from lab.report import counted, summary, write_json
from lab.runner import MAX_REPEATS, OVERTIME_S, QUIET_DEADLINE_S, LabWorld, Runner, RunResult
from lab.topology import Topology

ROOT = Path(__file__).resolve().parent.parent
PREPARE_S = 240.0  # start of the daemons, readiness, undoing, logs: beyond what a scenario itself takes
KEEP_S = 24 * 3600.0

EXAMPLES = """examples:
  lab/run --list                       what there is
  lab/run spine-loss                   one scenario
  lab/run --json out.json healthy /tmp/mine.toml --repeat 3
  lab/run --keep                       boot, start weft, stay until Ctrl-C; commands go in with lab/exec
  lab/run --keep --no-daemons          the bare fabric

exit status: 0 all passed; 1 a scenario failed; 2 usage or a bad scenario; 3 the builder lacks a program"""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="lab/run",
        description="Boots a fabric of virtual RDMA hosts and runs scenarios: a fault is made, and it must be found.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="a name (--list) or the path of a TOML file")
    p.add_argument("--json", type=Path, metavar="FILE", help="write an array with an object for each run")
    p.add_argument("--keep", action="store_true", help="leave the lab up until Ctrl-C")
    p.add_argument("--repeat", type=int, default=1, metavar="N", help="run each scenario N times")
    p.add_argument("--hosts", type=int, default=4, metavar="N", help="number of hosts (default 4)")
    p.add_argument("--leaves", type=int, default=2, metavar="N", help="number of leaf switches (default 2)")
    p.add_argument("--spines", type=int, default=2, metavar="N", help="number of spine switches (default 2)")
    p.add_argument("--build", type=Path, default=ROOT / "build", metavar="DIR", help="where weft is (default ./build)")
    p.add_argument("--no-daemons", action="store_true", help="with --keep: do not start weft in the lab")
    p.add_argument("--list", action="store_true", help="list the scenarios and what each is about")
    return p


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    catch_signals()
    try:
        return list_scenarios() if options.list else run(options)
    except Interrupted as error:
        stderr_progress(f"lab: {error}; everything the lab started is gone")
        return error.exit_code
    except LabError as error:
        stderr_progress(f"lab: {error}")
        return error.exit_code


def list_scenarios() -> int:
    for name in scenarios.names():
        print(f"{name:22} {scenarios.load(scenarios.find(name)).description}")
    return 0


def run(options: argparse.Namespace) -> int:
    topology = Topology(options.hosts, options.leaves, options.spines)
    wanted = [scenarios.load(scenarios.find(name)) for name in options.scenarios]
    if not wanted and not options.keep:
        raise UsageError("name a scenario, or use --keep or --list (see --help)")
    if options.repeat < 1:
        raise UsageError("--repeat counts from 1")
    if options.no_daemons and wanted:
        raise UsageError("--no-daemons is for --keep: a scenario needs weft")
    if options.json is not None and not options.json.resolve().parent.is_dir():
        raise UsageError(f"no folder for --json {options.json}")
    for scenario in wanted:
        scenario.check_fits(topology)
    if not options.no_daemons and (wanted or find_program(options.build, "weftd")):
        absent = [n for n in ("weftd", "weft-aggregator") if find_program(options.build, n) is None]
        if absent:
            raise UsageError(f"{options.build} has no {' and no '.join(absent)}: build first, or give --build DIR")
    arm_deadline(KEEP_S if options.keep else run_deadline([s.duration for s in wanted] * options.repeat))
    session = Session(topology, options.build, daemons=not options.no_daemons)
    results: list[RunResult] = []
    try:
        runner = Runner(session.world, session.drop)
        for scenario in wanted:
            for _ in range(options.repeat):
                results += runner.run(scenario)
                if options.json is not None:
                    write_json(results, options.json)
        if options.keep:
            keep(session)
    finally:
        session.close()
        if results:
            print(summary(results), flush=True)
    return 0 if len(counted(results)) >= len(wanted) and all(r.passed for r in counted(results)) else 1


class Session:
    """The lab that scenarios share. Booted when first needed, and again after one was dropped as broken."""

    def __init__(self, topology: Topology, build: Path, daemons: bool = True):
        self._topology, self._build, self._with_daemons = topology, build, daemons
        self._lab: Lab | None = None
        self._daemons: Daemons | None = None
        self._world: LabWorld | None = None
        self._control: ControlServer | None = None

    def lab(self) -> Lab:
        if self._lab is None:
            self._lab = Lab(self._topology)
            try:
                self._lab.boot()
            except BaseException:
                self.drop()
                raise
        return self._lab

    def world(self) -> LabWorld:
        if self._world is None:
            lab = self.lab()
            if self._daemons is None:
                self._daemons = Daemons(lab, self._build)
                self._daemons.install()
            self._open_control()
            self._world = LabWorld(lab, self._daemons)
        return self._world

    def keep(self) -> Lab:
        lab = self.lab()
        if self._daemons is None and self._with_daemons:
            if find_program(self._build, "weftd") is None:
                lab.say(f"{self._build} has no weftd: the fabric comes up without weft")
            else:
                self._daemons = start_daemons(lab, self._build)
        self._open_control()
        return lab

    def drop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._world is not None:
            self._world.close()
        lab, self._lab = self._lab, None
        daemons, self._daemons, self._world, self._control = self._daemons, None, None, None
        if daemons is not None:
            daemons.abandon()
        if lab is not None:
            lab.close()

    def close(self) -> None:
        self.drop()

    def _open_control(self) -> None:
        if self._control is None:
            self._control = ControlServer(self.lab(), self._daemons)


def keep(session: Session) -> None:
    lab = session.keep()
    lab.say("the lab stays up until Ctrl-C; from another terminal:  lab/exec h1 'COMMAND'   (lab/exec --help)")
    if "WEFT_API" in lab.environment:
        lab.say(f"the aggregator's API: {lab.environment['WEFT_API']}/api/v1/findings")
    try:
        while not lab.dead_guests():
            time.sleep(0.5)
    except Interrupted as error:
        lab.say(str(error))
        return
    raise LabError(f"guests ended by themselves: {', '.join(lab.dead_guests())}")


def run_deadline(durations: Sequence[float]) -> float:
    """More than everything together may take, each run repeated and each in a lab of its own."""
    each = BOOT_DEADLINE_S + PREPARE_S + QUIET_DEADLINE_S + OVERTIME_S
    return sum((d + each) * (MAX_REPEATS + 1) for d in durations)


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


if __name__ == "__main__":
    sys.exit(main())
