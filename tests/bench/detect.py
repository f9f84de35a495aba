"""Time from fault to finding in the lab: ten valid runs of each link fault, one of every other scenario."""

import json
import pathlib
import subprocess
import sys
import tempfile

from tests.bench.common import Unmeasurable, median, percentile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK_FAULTS = ("spine-loss", "spine-delay", "spine-ecn", "host-link-down")
RUNS, QUICK_RUNS = 10, 2


def lab_runs(build: pathlib.Path, names: list, repeat: int) -> list:
    with tempfile.TemporaryDirectory() as scratch:
        report = pathlib.Path(scratch) / "runs.json"
        done = subprocess.run([ROOT / "lab/run", *names, "--repeat", str(repeat), "--build", build, "--json", report],
                              stdout=sys.stderr, check=False)
        if not report.exists():
            raise Unmeasurable(f"lab/run ended with {done.returncode} and wrote no report")
        return json.loads(report.read_text())


def measure(build: pathlib.Path, quick: bool) -> dict:
    others = sorted(path.stem for path in (ROOT / "lab/scenarios").glob("*.toml") if path.stem not in LINK_FAULTS)
    runs = lab_runs(build, list(LINK_FAULTS), QUICK_RUNS if quick else RUNS) + lab_runs(build, others, 1)
    scenarios = {}
    for name in (*LINK_FAULTS, *others):
        mine = [run for run in runs if run["scenario"] == name and run["valid"]]
        times = [run["seconds_to_finding"] for run in mine if run["passed"] and run["seconds_to_finding"] is not None]
        scenarios[name] = {"runs": len(mine), "passed": sum(run["passed"] for run in mine),
                           "median_s": round(median(times), 2) if times else None,
                           "p95_s": round(percentile(times, 0.95), 2) if times else None}
    return {"scenarios": scenarios}
