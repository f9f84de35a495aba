"""Runs weft's test suites and prints one closing line: N passed, N failed, N skipped."""

import argparse
import os
import signal
import sys
import time

from tools.testing import suites

EPILOG = """examples:
  tools/test                     every suite
  tools/test unit lint           two of them
  tools/test lab --scenario spine-loss
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/test", description="Builds weft and runs its test suites.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="*", help="suites to run (default: all): " + ", ".join(suites.SUITES))
    parser.add_argument("--list", action="store_true", help="list the suites and what each does")
    parser.add_argument("--scenario", action="append", default=[], metavar="NAME",
                        help="lab only: run these scenarios instead of all (may be repeated)")
    args = parser.parse_args()
    if args.list:
        for name, suite in suites.SUITES.items():
            print(f"{name:12} {suite.__doc__.splitlines()[0]}")
        return 0
    unknown = [name for name in args.suite if name not in suites.SUITES]
    if unknown:
        parser.error(f"unknown suite {', '.join(unknown)}; there are {', '.join(suites.SUITES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ.setdefault("CCACHE_SLOPPINESS", "time_macros")

    totals = suites.Counts()
    context = suites.Context(scenarios=args.scenario)
    for name in args.suite or suites.SUITES:
        started = time.monotonic()
        print(f"== {name}", flush=True)
        try:
            counts = suites.SUITES[name](context)
        except suites.SuiteError as error:
            print(f"{name}: {error}", flush=True)
            counts = suites.Counts(failed=1, failures=[f"{name}: {error}"])
        if counts.passed + counts.failed + counts.skipped == 0:
            counts.failed = 1
            counts.failures.append(f"{name}: ran no test")
        print(f"== {name}: {counts.line()} ({time.monotonic() - started:.0f} s)", flush=True)
        totals.add(counts)
    for failure in totals.failures:
        print(f"FAILED {failure}")
    for skip in totals.skips:
        print(f"SKIPPED {skip}")
    print(totals.line(), flush=True)
    return 0 if totals.failed == 0 and totals.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
