"""What is written about the command line is what the programs say: manual pages, completion, commands in the documents."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEFT_BUILD", ROOT / "build"))
PROGRAMS = {"weft": BUILD / "cli/weft", "weftd": BUILD / "agent/daemon/weftd",
            "weft-aggregator": BUILD / "aggregator/weft-aggregator"}
PAGES = {"weft": "weft.1", "weftd": "weftd.8", "weft-aggregator": "weft-aggregator.8"}


def help_of(*words):
    done = subprocess.run([PROGRAMS[words[0]], *words[1:], "--help"], text=True, capture_output=True, check=True)
    return done.stdout


def commands():
    block = help_of("weft").split("Subcommands:\n")[1].split("\n\n")[0]
    return re.findall(r"^  ([a-z-]+)", block, re.M)


def options(*words):
    """Every spelling of every option: --count and -c."""
    lists = re.findall(r"^  (-[-a-zA-Z,]+)", help_of(*words), re.M)
    return {name for names in lists for name in names.split(",")}


def every_command():
    return [("weftd",), ("weft-aggregator",), *(("weft", name) for name in commands())]


class ManualPages(unittest.TestCase):
    def test_pages_have_no_warnings(self):
        for page in PAGES.values():
            with self.subTest(page=page):
                done = subprocess.run(
                    ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", BUILD / "docs" / page], text=True,
                    capture_output=True, check=False, env=dict(os.environ, LC_ALL="C.UTF-8", MANROFFSEQ="", MANWIDTH="80"))
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_pages_tell_every_command_and_option(self):
        for words in every_command():
            with self.subTest(command=words):
                page = (BUILD / "docs" / PAGES[words[0]]).read_text().replace("\\-", "-")
                if len(words) > 1:
                    self.assertIn(f"\n.SS weft {words[1]}\n", page)
                    page = page.split(f"\n.SS weft {words[1]}\n")[1].split("\n.SS ")[0]
                told = {name for line in page.splitlines() if line.startswith("\\fB-")
                        for name in re.findall(r"\\fB(-[^\\]+)\\fR", line)}
                self.assertEqual(told, options(*words) - ({"-h", "--help"} if len(words) > 1 else set()))

    def test_pages_have_the_sections_that_readers_look_for(self):
        for page in PAGES.values():
            with self.subTest(page=page):
                text = (BUILD / "docs" / page).read_text()
                for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", '"EXIT STATUS"', '"SEE ALSO"'):
                    self.assertIn(f"\n.SH {section}\n", text)
                self.assertNotIn("@", re.sub(r"\S+@\S+", "", text), "a mark of the template is left")


class Completion(unittest.TestCase):
    def complete(self, *words):
        script = ('. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; '
                  'if ((${#COMPREPLY[@]})); then printf "%s\\n" "${COMPREPLY[@]}"; fi')
        program, *rest = words
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script, "bash", ROOT / "packaging/completion/weft.bash",
                               PROGRAMS[program], *rest], text=True, capture_output=True, check=False, cwd=ROOT)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return set(done.stdout.split())

    def test_every_command_completes(self):
        self.assertLessEqual(set(commands()), self.complete("weft", ""))
        self.assertEqual(self.complete("weft", "ver"), {"version"})
        self.assertEqual(self.complete("weft", "help", "fin"), {"findings"})
        self.assertEqual(self.complete("weft", "nonsense", "--"), set())

    def test_every_option_of_every_command_completes(self):
        for words in every_command():
            with self.subTest(command=words):
                self.assertEqual(self.complete(*words, "--"), {name for name in options(*words) if name.startswith("--")})
                self.assertEqual(self.complete(*words, "-"), options(*words))

    def test_values_complete_words_kinds_files_and_folders(self):
        self.assertEqual(self.complete("weft", "ping", "--transport", ""), {"auto", "rdma", "udp"})
        self.assertEqual(self.complete("weftd", "--log-level", "w"), {"warning"})
        self.assertEqual(self.complete("weft", "mesh", "--topology", "READ"), {"README.md"})
        self.assertEqual(self.complete("weft", "status", "--sys-root", "ag"), {"agent", "aggregator"})
        self.assertEqual(self.complete("weftd", "--config", "CHANGE"), {"CHANGELOG.md"})
        kinds = set(re.findall(r"^## (\w+)$", (ROOT / "docs/findings.md").read_text(), re.M))
        self.assertEqual(self.complete("weft", "findings", "--kind", ""), kinds)

    def test_options_without_values_and_values_that_nobody_can_guess_complete_to_nothing(self):
        self.assertEqual(self.complete("weft", "ping", "--count", ""), set())
        self.assertEqual(self.complete("weft", "ping", ""), set())


class Documents(unittest.TestCase):
    def test_commands_in_the_documents_exist_with_their_options(self):
        pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, text=True, capture_output=True,
                               check=True).stdout.split()
        known = {words: options(*words) for words in every_command()}
        seen, wrong = 0, []
        for page in pages:
            text = (ROOT / page).read_text()
            blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.M | re.S)
            lines = [line for block in blocks for line in block.splitlines()]
            spans = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```\w*\n.*?^ *```", "", text, flags=re.M | re.S))
            for line in [*lines, *spans]:
                for call in re.findall(r"(?:^|[;&|$(] *)((?:weft|weftd|weft-aggregator)(?= )[^|;&#)]*)", line):
                    words = call.split()
                    if words[0] == "weft" and not re.fullmatch(r"[a-z][a-z-]*", words[1]):
                        continue  # COMMAND
                    key = tuple(words[:2]) if words[0] == "weft" else (words[0],)
                    if key == ("weft", "help"):
                        continue
                    seen += 1
                    if key not in known:
                        wrong.append(f"{page}: no command: {call}")
                        continue
                    wrong += [f"{page}: {word}: {call}" for word in words[len(key):]
                              if re.match(r"--?[a-zA-Z]", word) and word.split("=")[0] not in known[key]]
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 30)


if __name__ == "__main__":
    unittest.main()
