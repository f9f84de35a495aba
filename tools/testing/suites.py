"""The test suites: each builds what it needs and returns counts. A skip always carries its reason."""

import dataclasses
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]


class SuiteError(Exception):
    """A suite could not run at all: counted as one failure."""


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list = dataclasses.field(default_factory=list)
    skips: list = dataclasses.field(default_factory=list)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.skips += other.skips

    def line(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclasses.dataclass
class Context:
    scenarios: list = dataclasses.field(default_factory=list)
    built: set = dataclasses.field(default_factory=set)


def run(argv, what, **kwargs):
    """Runs a build step; its output is shown only when it fails."""
    done = subprocess.run(argv, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          **kwargs)
    if done.returncode != 0:
        print("\n".join(done.stdout.splitlines()[-60:]), flush=True)
        raise SuiteError(f"{what} failed: {' '.join(map(str, argv))}")
    return done.stdout


def build(context, folder, options=(), environment=None, targets=("all",)):
    """Configures build folder once and builds targets; returns its path."""
    key = (folder, targets)
    path = ROOT / folder
    if key in context.built:
        return path
    env = dict(os.environ, **(environment or {}))
    print(f"   building {folder} ({' '.join(options) or 'gcc'})", flush=True)
    if not (path / "build.ninja").exists():
        run(["meson", "setup", folder, "-Dwerror=true", *options], f"configuring {folder}", env=env)
    run(["ninja", "-C", folder, *targets], f"building {folder}", env=env)
    context.built.add(key)
    return path


def meson_tests(folder, suite):
    listed = json.loads(run(["meson", "introspect", "--tests", str(folder)], "listing tests"))
    return [test for test in listed if any(name.split(":")[-1] == suite for name in test["suite"])]


def run_catch(folder, label, without=None):
    """Runs every Catch2 executable of the unit suite and counts test cases; without: test name -> why it is skipped."""
    counts = Counts()
    without = without or {}
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:halt_on_error=1",
                       UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
                       LSAN_OPTIONS=f"suppressions={ROOT}/tests/lint/lsan.supp:print_suppressions=0")
    for test in meson_tests(folder, "unit"):
        if test["name"] in without:
            counts.skipped += 1
            counts.skips.append(f"{label} {test['name']}: {without[test['name']]}")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            report = pathlib.Path(scratch) / "report.xml"
            try:
                done = subprocess.run([*test["cmd"], "-r", "junit", "-o", str(report)], cwd=ROOT, text=True,
                                      env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      timeout=600, check=False)
                code, output = done.returncode, done.stdout
            except subprocess.TimeoutExpired as late:
                code, output = 124, f"{late.stdout or ''}\nno end within 600 s"
            bad = 0
            if report.exists() and report.stat().st_size:
                for case in xml.parse(report).iter("testcase"):
                    name = f"{label} {test['name']}: {case.get('name')}"
                    problem = case.find("failure") if case.find("failure") is not None else case.find("error")
                    if problem is not None:
                        bad += 1
                        counts.failed += 1
                        counts.failures.append(name)
                        print(f"FAIL {name}\n{problem.get('message')}\n{problem.text}", flush=True)
                    else:
                        counts.passed += 1
            if code != 0:
                print(output[-4000:], flush=True)
                if bad == 0:
                    counts.failed += 1
                    counts.failures.append(f"{label} {test['name']}: exit status {code}")
    return counts


class _Result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        print(f"   {test.id()}", flush=True)


def run_unittest(folder, label):
    """Runs Python tests under folder in this process and counts them."""
    loader = unittest.TestLoader()
    tests = loader.discover(str(ROOT / folder), pattern="test_*.py", top_level_dir=str(ROOT))
    stream = io.StringIO()
    result = unittest.TextTestRunner(stream=stream, resultclass=_Result, verbosity=0).run(tests)
    counts = Counts(skipped=len(result.skipped))
    for test, text in [*result.failures, *result.errors]:
        counts.failed += 1
        counts.failures.append(f"{label} {test.id()}")
        print(f"FAIL {test.id()}\n{text}", flush=True)
    for test in result.unexpectedSuccesses:
        counts.failed += 1
        counts.failures.append(f"{label} {test.id()}: passed where a failure was expected")
    for test, reason in result.skipped:
        counts.skips.append(f"{label} {test.id()}: {reason}")
    counts.passed = max(0, result.testsRun - counts.failed - counts.skipped)
    return counts


def unit(context):
    """Unit tests, gcc."""
    return run_catch(build(context, "build", targets=("all", "unit_tests")), "unit")


def lint(context):
    """Layer law, self-contained headers, clang-format, shellcheck, generated docs."""
    build(context, "build")
    return run_unittest("tests/lint", "lint")


def sanitize(context):
    """Unit tests again, clang with ASan and UBSan."""
    folder = build(context, "build-asan",
                   ("-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dbuildtype=debug", "-Doptimization=1"),
                   {"CC": "clang", "CXX": "clang++"}, ("unit_tests",))
    # The same code as unit_localise, some thousand simulated minutes more of it.
    return run_catch(folder, "sanitize", {"localise_gates": "takes over ten minutes with sanitizers; localise runs the same code"})


def minimal(context):
    """Unit tests of a build with every optional feature off."""
    return run_catch(build(context, "build-minimal", ("-Dauto_features=disabled",), None, ("unit_tests",)), "minimal")


def integration(context):
    """Real processes over loopback and network namespaces."""
    build(context, "build")
    return run_unittest("tests/integration", "integration")


def dashboards(context):
    """Pages and rules for Prometheus and dashboards for Grafana, with the real Prometheus and Grafana's own packages."""
    build(context, "build")
    return run_unittest("tests/dashboards", "dashboards")


def console(context):
    """The aggregator's page in headless Chromium."""
    build(context, "build")
    return run_unittest("tests/console", "console")


def lab_unit(context):
    """The lab's own code, without virtual machines."""
    del context
    return run_unittest("tests/lab", "lab-unit")


def lab(context):
    """Scenarios on virtual RDMA hosts."""
    build(context, "build")
    counts = Counts()
    with tempfile.TemporaryDirectory() as scratch:
        report = pathlib.Path(scratch) / "lab.json"
        names = context.scenarios or sorted(path.stem for path in (ROOT / "lab/scenarios").glob("*.toml"))
        done = subprocess.run([str(ROOT / "lab/run"), *names, "--json", str(report)], cwd=ROOT, check=False)
        runs = json.loads(report.read_text()) if report.exists() else []
    for one in runs:
        if one["passed"]:
            counts.passed += 1
        else:
            counts.failed += 1
            counts.failures.append(f"lab {one['scenario']}: {one.get('reason') or 'see the output above'}")
    if done.returncode != 0 and counts.failed == 0:
        counts.failed += 1
        counts.failures.append(f"lab: lab/run ended with {done.returncode}")
    return counts


SUITES = {
    "unit": unit,
    "lint": lint,
    "sanitize": sanitize,
    "minimal": minimal,
    "lab-unit": lab_unit,
    "integration": integration,
    "dashboards": dashboards,
    "console": console,
    "lab": lab,
}
