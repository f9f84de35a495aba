"""Children never outlive the runner, and stopping is bounded."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from unittest import mock

from lab import process
from lab.errors import MissingTool
from lab.fabric import RUN_DIR_PREFIX, sweep_dead_runs

ROOT = Path(__file__).resolve().parents[2]


def wait_until(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def runs(pid: int) -> bool:
    """Zombies do not count: who reaps them is the init's business."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Leftovers(unittest.TestCase):
    def test_runner_killed_with_kill_9_leaves_no_child(self):
        # A short-lived thread starts the child: the kernel takes the death of the *thread* for that of the parent.
        runner_text = textwrap.dedent("""
            import threading, time
            from lab import process
            def start():
                children = process.spawn(["sleep", "300"]), process.spawn(["sh", "-c", "trap : TERM; sleep 300"])
                print(*(child.pid for child in children), flush=True)
            thread = threading.Thread(target=start); thread.start(); thread.join()
            time.sleep(1); print("still", flush=True); time.sleep(300)
        """)
        runner = subprocess.Popen([sys.executable, "-c", runner_text], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            children = [int(pid) for pid in runner.stdout.readline().split()]
            self.assertEqual(len(children), 2)
            self.assertEqual(runner.stdout.readline(), "still\n")
            self.assertTrue(all(map(runs, children)), "children live as long as the runner")
            runner.send_signal(signal.SIGKILL)
            runner.wait(10)
            self.assertTrue(wait_until(lambda: not any(map(runs, children))), "children survived the runner")
        finally:
            runner.kill()
            runner.wait()
            runner.stdout.close()

    def test_run_folder_of_a_killed_runner_is_swept_and_that_of_a_living_one_kept(self):
        dead = subprocess.Popen(["true"])
        dead.wait()
        with tempfile.TemporaryDirectory() as folder, mock.patch("lab.fabric._short_tmp", return_value=folder):
            gone = Path(folder) / f"{RUN_DIR_PREFIX}{dead.pid}.abc"
            ours = Path(folder) / f"{RUN_DIR_PREFIX}{os.getpid()}.abc"
            gone.mkdir()
            ours.mkdir()
            sweep_dead_runs()
            self.assertFalse(gone.exists())
            self.assertTrue(ours.exists())


class Stopping(unittest.TestCase):
    def test_child_that_ignores_sigterm_is_killed(self):
        child = process.spawn(["bash", "-c", "trap '' TERM; echo; sleep 100 & wait; sleep 100"], stdout=subprocess.PIPE)
        child.stdout.readline()
        self.assertEqual(process.stop(child, grace_s=0.2), -signal.SIGKILL)
        child.stdout.close()

    def test_many_share_one_grace(self):
        children = [process.spawn(["bash", "-c", "trap '' TERM; sleep 100 & wait; sleep 100"]) for _ in range(4)]
        begun = time.monotonic()
        process.stop_all(children, grace_s=0.5)
        self.assertLess(time.monotonic() - begun, 4 * 0.5 + 2)
        self.assertTrue(all(c.poll() is not None for c in children))

    def test_stopping_what_has_ended_returns_its_status(self):
        child = process.spawn(["sh", "-c", "exit 3"])
        child.wait()
        self.assertEqual(process.stop(child), 3)


class Missing(unittest.TestCase):
    def test_absent_qemu_is_named_with_its_package(self):
        with mock.patch("shutil.which", return_value=None), self.assertRaises(MissingTool) as caught:
            process.require("qemu-system-x86_64", "busybox")
        self.assertIn("qemu-system-x86_64 (package qemu-system-x86)", str(caught.exception))
        self.assertIn("apt-get install busybox-static qemu-system-x86", str(caught.exception))
        self.assertEqual(caught.exception.exit_code, 3)


if __name__ == "__main__":
    unittest.main()
