"""The networks of namespaces that tests make leave nothing behind."""

import os
import pathlib
import subprocess
import sys
import unittest

from tests.integration.cli_support import ROOT

HANGS = """
import os, subprocess, tempfile
from tests.integration.cli_support import NetworkTest

class Hangs(NetworkTest):
    def runTest(self):
        self.add_node("a")
        self.add_node("b")
        self.connect("a", "10.99.0.1/30", "b", "10.99.0.2/30")
        folder = tempfile.mkdtemp(prefix=self.prefix + "-")
        child = subprocess.Popen(["ip", "netns", "exec", self.name("a"), "sleep", "infinity"])
        print(self.prefix, folder, flush=True)
        child.wait()

Hangs().debug()
"""


class Leftovers(unittest.TestCase):
    def test_when_a_test_is_killed_its_namespaces_programs_and_folders_go(self):
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        test = subprocess.Popen([sys.executable, "-c", HANGS], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        prefix, folder = test.stdout.readline().split()
        test.kill()
        # The end of what they all may write to: none of them lives any more.
        test.communicate(timeout=60)
        names = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
        self.assertNotIn(prefix + "-", names)
        self.assertFalse(pathlib.Path(folder).exists())


if __name__ == "__main__":
    unittest.main()
