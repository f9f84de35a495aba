"""Every header compiles alone, and states a contract."""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEFT_BUILD", ROOT / "build"))


def headers():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.h"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout.split()
    return [path for path in listed if (ROOT / path).exists() and not path.endswith(".bpf.h")]


def include_flags():
    """Include folders and defines of every target, so that a header finds what its sources find."""
    flags = []
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        for index, word in enumerate(words):
            if word.startswith(("-I", "-D")) and word not in flags:
                folder = word[2:]
                if word.startswith("-I") and not os.path.isabs(folder):
                    word = "-I" + os.path.normpath(os.path.join(entry["directory"], folder))
                if word not in flags:
                    flags.append(word)
            elif word == "-isystem":
                folder = words[index + 1]
                pair = "-isystem" + os.path.normpath(os.path.join(entry["directory"], folder))
                if pair not in flags:
                    flags.append(pair)
    return flags


class Headers(unittest.TestCase):
    def test_each_header_compiles_alone(self):
        self.assertTrue((BUILD / "compile_commands.json").exists(), "build first")
        out = BUILD / "lint-headers"
        out.mkdir(exist_ok=True)
        flags = [flag for flag in include_flags() if not flag.startswith("-I" + str(BUILD) + "/tests")]
        compiler = ([shutil.which("ccache")] if shutil.which("ccache") else []) + ["g++"]

        def compile_one(header):
            unit = out / (header.replace("/", "_") + ".cpp")
            text = f'#include "{header}"\n#include "{header}"\n'
            if not unit.exists() or unit.read_text() != text:
                unit.write_text(text)
            done = subprocess.run([*compiler, "-std=c++20", "-O0", "-w", "-c", *flags, f"-I{ROOT}", str(unit), "-o",
                                   str(unit) + ".o"], cwd=ROOT, text=True, capture_output=True, check=False)
            return header, done.returncode, done.stderr

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(compile_one, headers()))
        self.assertGreater(len(results), 10)
        wrong = [f"{header}:\n{text[:800]}" for header, code, text in results if code != 0]
        self.assertEqual(wrong, [])

    def test_each_header_begins_with_its_contract_and_pragma_once(self):
        wrong = []
        for header in headers():
            text = (ROOT / header).read_text()
            if not re.match(r"// \S", text):
                wrong.append(f"{header}: no comment that states its purpose")
            if "#pragma once" not in text:
                wrong.append(f"{header}: no #pragma once")
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
