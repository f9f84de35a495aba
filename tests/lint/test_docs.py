"""Generated pages equal what the code says, and the README names what exists."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEFT_BUILD", ROOT / "build"))


class Docs(unittest.TestCase):
    def test_pages_equal_the_catalogues(self):
        for page in ("metrics", "findings"):
            with self.subTest(page=page):
                said = subprocess.run([BUILD / "tools/catalogue", page], text=True, capture_output=True, check=True).stdout
                self.assertEqual(said, (ROOT / f"docs/{page}.md").read_text(), "run tools/docs")

    def test_links_inside_the_documentation_lead_somewhere(self):
        wrong = []
        pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, text=True, capture_output=True,
                               check=True).stdout.split()
        self.assertIn("README.md", pages)
        for page in (ROOT / name for name in pages):
            for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
                if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
                    wrong.append(f"{page.relative_to(ROOT)}: {target}")
        self.assertEqual(wrong, [])

    def test_readme_names_every_top_level_folder(self):
        folders = {path.split("/")[0] for path in subprocess.run(
            ["git", "ls-files"], cwd=ROOT, text=True, capture_output=True, check=True).stdout.split("\n") if "/" in path}
        readme = (ROOT / "README.md").read_text()
        missing = [folder for folder in sorted(folders) if not folder.startswith(".") and f"{folder}/" not in readme]
        self.assertEqual(missing, [])


class Generator(unittest.TestCase):
    """tools/docs in a tree of its own, with a catalogue that says what the test wants."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("tools", "docs", "build/tools"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(ROOT / "tools/docs", self.root / "tools/docs")
        for page in ("metrics", "findings"):
            (self.root / f"docs/{page}.md").write_text("old\n")
        self.catalogue('echo "new $1"')

    def catalogue(self, script):
        path = self.root / "build/tools/catalogue"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def docs(self, *arguments):
        return subprocess.run([self.root / "tools/docs", *arguments], text=True, capture_output=True, check=False)

    def pages(self):
        return {path.name: path.read_text() for path in (self.root / "docs").iterdir()}

    def test_help_is_exit_0_and_writes_nothing(self):
        for word in ("--help", "-h"):
            done = self.docs(word)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("usage: tools/docs", done.stdout)
        self.assertEqual(self.pages(), {"metrics.md": "old\n", "findings.md": "old\n"})

    def test_what_is_no_build_folder_is_exit_2_with_what_to_do_and_leaves_nothing(self):
        for arguments, what in ((["--verbose"], "--verbose"), (["nowhere"], "ninja -C nowhere"), (["docs"], "ninja"),
                                (["build", "more"], "--help")):
            with self.subTest(arguments=arguments):
                done = self.docs(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(what, done.stderr)
        self.assertEqual(self.pages(), {"metrics.md": "old\n", "findings.md": "old\n"})

    def test_a_catalogue_that_fails_leaves_both_pages_and_nothing_beside_them(self):
        self.catalogue('echo half; test "$1" = metrics')
        self.assertNotEqual(self.docs().returncode, 0)
        self.assertEqual(self.pages(), {"metrics.md": "old\n", "findings.md": "old\n"})

    def test_pages_are_rewritten_from_the_default_and_from_a_named_folder(self):
        self.assertEqual(self.docs().returncode, 0)
        self.assertEqual(self.pages(), {"metrics.md": "new metrics\n", "findings.md": "new findings\n"})
        shutil.move(self.root / "build", self.root / "elsewhere")
        (self.root / "elsewhere/tools/catalogue").write_text('#!/bin/sh\necho "other $1"\n')
        self.assertEqual(self.docs(self.root / "elsewhere").returncode, 0)
        self.assertEqual(self.pages(), {"metrics.md": "other metrics\n", "findings.md": "other findings\n"})


if __name__ == "__main__":
    unittest.main()
