"""Runs the Node scripts of a test suite with the npm packages that tools/setup installs for it."""

import functools
import json
import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
UNREACHABLE = 69  # of tools/setup


@functools.cache
def packages(suite):
    """The folder that holds node_modules of tests/SUITE/package-lock.json; skips where there is no way to get it."""
    done = subprocess.run([str(ROOT / "tools/setup"), "--npm", suite], text=True, capture_output=True, check=False)
    if done.returncode == UNREACHABLE:
        raise unittest.SkipTest(done.stderr.strip().splitlines()[-1])
    if done.returncode != 0:
        raise AssertionError(f"tools/setup --npm {suite}: {done.returncode}\n{done.stderr}")
    return done.stdout.strip().splitlines()[-1]


def run(suite, script, value, timeout=300):
    """Hands value to the script as JSON and returns the JSON that it answers."""
    done = subprocess.run(["node", str(ROOT / "tests" / suite / script)], input=json.dumps(value), text=True,
                          capture_output=True, timeout=timeout, check=False,
                          env=dict(os.environ, WEFT_NPM=packages(suite)))
    if done.returncode != 0:
        raise AssertionError(f"{script} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout)
