"""The command channel, both real ends over a UNIX socket instead of QEMU's port."""

import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from lab.channel import Channel

DAEMON = Path(__file__).resolve().parents[2] / "lab/guest/daemon.py"
# The daemon's own main() looks for a virtio port and asks for real-time priority; here it gets a socket.
STAND_IN = """
import importlib.util, socket, sys
spec = importlib.util.spec_from_file_location("daemon", sys.argv[1])
daemon = importlib.util.module_from_spec(spec)
spec.loader.exec_module(daemon)
daemon.realtime = lambda: None
wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[2])
daemon.Daemon(wire.fileno()).run()
"""


class ChannelCase(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "wire"
        self.gaps = []
        self.channel = Channel("h1", path, self.gaps.append)
        self.guest = subprocess.Popen([sys.executable, "-I", "-S", "-c", STAND_IN, str(DAEMON), str(path)])
        self.assertTrue(self.channel.ready.wait(20))

    def tearDown(self):
        self.guest.kill()
        self.guest.wait()
        self.channel.close()
        self._folder.cleanup()

    def bash(self, text: str, timeout: float = 10.0):
        return self.channel.exec(["bash", "-c", text], timeout)


class Failures(ChannelCase):
    def test_command_past_its_deadline_is_killed_with_its_children(self):
        marker = Path(self._folder.name) / "pid"
        result = self.bash(f"sleep 100 & echo $! > {marker}; wait", 0.5)
        self.assertEqual((result.rc, result.timed_out), (124, True))
        child = int(marker.read_text())
        deadline = time.monotonic() + 5
        while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
            self.assertLess(time.monotonic(), deadline, "the command's child lives on")
            time.sleep(0.02)

    def test_command_that_its_caller_gave_up_ends_without_harm_to_the_next(self):
        given_up = self.channel.submit(["bash", "-c", "sleep 0.2"], 10)
        self.assertTrue(given_up.cancel())
        for _ in range(20):  # until its end has come in, and after
            self.assertEqual(self.bash("sleep 0.05; echo on", 5).out, "on\n")

    def test_program_that_does_not_exist(self):
        result = self.channel.exec(["/no/such/program"], 5)
        self.assertEqual(result.rc, 125)
        self.assertIn("/no/such/program", result.err)

    def test_guest_that_dies_fails_what_is_pending_at_once(self):
        pending = self.channel.submit(["sleep", "30"], 60)
        self.guest.kill()
        begun = time.monotonic()
        result = pending.result(10)
        self.assertEqual(result.rc, 125)
        self.assertIn("h1", result.err)
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(self.bash("true").rc, 125)

    def test_output_beyond_its_bound_is_cut(self):
        result = self.bash("head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2")
        self.assertEqual((result.rc, len(result.out), result.err), (0, 1 << 20, "end\n"))

    def test_file_that_is_not_there(self):
        self.assertEqual(self.channel.tail("/no/such/file", 100).result(10).rc, 1)


class Works(ChannelCase):
    def test_status_and_both_outputs(self):
        result = self.bash("echo out; echo err >&2; exit 7")
        self.assertEqual((result.rc, result.out, result.err, result.timed_out), (7, "out\n", "err\n", False))

    def test_commands_run_at_the_same_time(self):
        slow = self.channel.submit(["sleep", "20"], 30)
        self.assertEqual(self.bash("echo quick").out, "quick\n")
        self.assertFalse(slow.done())

    def test_background_child_does_not_hold_its_command(self):
        begun = time.monotonic()
        self.assertEqual(self.bash("sleep 20 & echo started", 15).out, "started\n")
        self.assertLess(time.monotonic() - begun, 10)

    def test_bytes_that_are_no_text_do_not_break_the_channel(self):
        self.assertEqual(self.bash(r"printf '\377\n'").out, "\ufffd\n")
        self.assertTrue(self.bash("true").ok)

    def test_files_arrive_whole_and_with_their_mode(self):
        path = f"{self._folder.name}/deep/key"
        self.assertTrue(self.channel.put(path, b"\0secret", 0o600).ok)
        self.assertEqual((Path(path).read_bytes(), os.stat(path).st_mode & 0o777), (b"\0secret", 0o600))

    def test_end_of_a_file(self):
        path = Path(self._folder.name) / "log"
        path.write_text("one\ntwo\n")
        self.assertEqual(self.channel.tail(str(path), 4).result(10).out, "two\n")

    def test_paused_guest_tells_its_gap(self):
        self.guest.send_signal(19)
        time.sleep(1.0)  # the gap itself: no clock can be passed into a stopped process
        self.guest.send_signal(18)
        deadline = time.monotonic() + 10
        while not any(g.end - g.start > 0.7 for g in self.gaps):
            self.assertLess(time.monotonic(), deadline, "no gap was told")
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
