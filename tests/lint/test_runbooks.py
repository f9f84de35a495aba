"""Each kind of finding has a runbook page with all its sections, and each page belongs to a kind."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ROOT / "dashboards/runbooks"
SECTIONS = ["What it means", "Check first", "What fixes it", "Confirm with standard tools", "When weft may be wrong",
            "How it clears"]
# What a host has, or gets from its distribution: a command of a page that is none of these is a typing error.
TOOLS = {"cat", "dmesg", "ethtool", "grep", "head", "ib_send_lat", "ib_write_bw", "iblinkinfo", "ibportstate",
         "ibqueryerrors", "ibv_devinfo", "ip", "journalctl", "ls", "lspci", "mtr", "perfquery", "ping", "rdma", "ss",
         "systemctl", "tail", "tc", "tcpdump", "top", "uptime", "vmstat", "weft"}


def catalogue():
    """Kind -> severity, as the generated page of the catalogue says."""
    rows = re.findall(r"^\| \[(\w+)\]\(#\w+\) \| \w+ \| (\w+) \|", (ROOT / "docs/findings.md").read_text(), re.M)
    return dict(rows)


def sections(text):
    parts = re.split(r"^## (.+)$", text, flags=re.M)
    return parts[0], dict(zip(parts[1::2], parts[2::2])), parts[1::2]


def shell_lines(text):
    return [line for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S) for line in block.splitlines() if line]


class Runbooks(unittest.TestCase):
    def setUp(self):
        self.pages = {path.stem: path.read_text() for path in PAGES.glob("*.md") if path.stem != "README"}

    def test_each_kind_has_a_page_and_each_page_a_kind(self):
        self.assertGreaterEqual(len(catalogue()), 8)
        self.assertEqual(sorted(self.pages), sorted(catalogue()))

    def test_the_index_names_each_page(self):
        index = (PAGES / "README.md").read_text()
        self.assertEqual(sorted(re.findall(r"\((\w+)\.md\)", index)), sorted(self.pages))

    def test_each_page_has_its_title_severity_and_all_sections_in_order(self):
        for kind, text in self.pages.items():
            with self.subTest(page=kind):
                head, bodies, order = sections(text)
                self.assertTrue(head.startswith(f"# {kind}\n\n{catalogue()[kind].capitalize()}. "), head)
                self.assertEqual(order, SECTIONS)
                for name, body in bodies.items():
                    self.assertGreater(len(body.strip()), 80, name)

    def test_check_first_is_numbered_steps_and_begins_with_what_weft_recorded(self):
        for kind, text in self.pages.items():
            with self.subTest(page=kind):
                steps = re.findall(r"^(\d+)\. (.+)$", sections(text)[1]["Check first"], re.M)
                self.assertEqual([int(number) for number, _ in steps], list(range(1, len(steps) + 1)))
                self.assertGreaterEqual(len(steps), 3)

    def test_confirming_takes_commands_that_exist_and_not_only_our_own(self):
        for kind, text in self.pages.items():
            with self.subTest(page=kind):
                words = {part.split()[0] for line in shell_lines(sections(text)[1]["Confirm with standard tools"])
                         for part in re.split(r" \| (?=[a-z])", re.sub(r"'[^']*'", "''", line))}
                self.assertLessEqual(words, TOOLS)
                self.assertGreaterEqual(len(words - {"weft"}), 3, words)

    def test_how_it_clears_says_after_how_long(self):
        for kind, text in self.pages.items():
            with self.subTest(page=kind):
                self.assertIn("15 s after", " ".join(sections(text)[1]["How it clears"].split()))


if __name__ == "__main__":
    unittest.main()
