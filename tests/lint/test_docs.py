"""Generated pages equal what the code says, and the README names what exists."""

import os
import pathlib
import re
import subprocess
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


if __name__ == "__main__":
    unittest.main()
