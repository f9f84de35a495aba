"""Formatting and shell hygiene."""

import pathlib
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def listed(*patterns):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT, text=True,
                         capture_output=True, check=True).stdout.split("\n")
    return [path for path in out if path and (ROOT / path).is_file()]


class Format(unittest.TestCase):
    def test_clang_format_changes_nothing(self):
        files = listed("*.h", "*.cpp")
        self.assertTrue(files)
        done = subprocess.run(["clang-format", "--dry-run", "--Werror", *files], cwd=ROOT, text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, "run clang-format -i:\n" + done.stderr[-4000:])

    def test_shell_scripts_pass_shellcheck(self):
        shells = (b"#!/bin/bash", b"#!/bin/sh", b"#!/bin/busybox sh")
        scripts = [path for path in listed()
                   if path.endswith(".sh") or (ROOT / path).read_bytes().startswith(shells)]
        self.assertIn("tools/setup", scripts)
        self.assertIsNotNone(shutil.which("shellcheck"), "run tools/setup")
        done = subprocess.run(["shellcheck", *scripts], cwd=ROOT, text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])

    def test_python_compiles_and_needs_only_the_standard_library(self):
        import ast
        import sys
        wrong = []
        for path in listed("*.py"):
            tree = ast.parse((ROOT / path).read_text(), path)
            for node in ast.walk(tree):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module]
                for name in names:
                    top = name.split(".")[0]
                    if top not in sys.stdlib_module_names and top not in ("tools", "tests", "lab"):
                        wrong.append(f"{path} imports {name}")
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
