"""The smaller parts: topology, stalls, TOML writer, kernel image, command line."""

import contextlib
import io
import lzma
import os
import struct
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

from lab import accel, cli, kernel
from lab.actions import perform_text
from lab.channel import Gap
from lab.daemons import find_program
from lab.errors import MissingTool, UsageError
from lab.guest import encode_argument
from lab.kernel import KernelImage, extract_elf, module_load_order
from lab.stalls import StallMonitor
from lab.toml_text import dump, merge
from lab.topology import Topology


class TopologyTest(unittest.TestCase):
    def test_numbers_that_cannot_be(self):
        for arguments in ((0, 1, 1), (4, 5, 2), (17, 2, 2), (4, 2, 99)):
            with self.subTest(arguments), self.assertRaises(UsageError):
                Topology(*arguments)

    def test_unknown_link_lists_the_known(self):
        with self.assertRaisesRegex(UsageError, "h1-l1"):
            Topology().link("h1-l2")

    def test_hosts_are_spread_evenly_in_order(self):
        self.assertEqual([Topology().leaf_of(h) for h in ("h1", "h2", "h3", "h4")], ["l1", "l1", "l2", "l2"])
        self.assertEqual(Topology(5, 2, 1).leaf_of("h3"), "l1")

    def test_link_is_found_by_either_order_of_its_ends(self):
        t = Topology()
        self.assertIs(t.link("s1-l2"), t.link("l2-s1"))
        self.assertEqual((t.link("l2-s1").b.interface, t.link("h3-l2").b.interface), ("s1-l2", "l2-h3"))

    def test_addresses_macs_and_interfaces_are_unique(self):
        t = Topology(16, 8, 8)
        ends = [end for link in t.links for end in (link.a, link.b)]
        for what in ("address", "mac"):
            self.assertEqual(len({getattr(e, what) for e in ends}), len(ends), what)
        self.assertTrue(all(len(e.interface) <= 15 for e in ends))

    def test_file_names_every_switch_host_and_link(self):
        document = tomllib.loads(Topology().toml("lab"))
        self.assertEqual(document["fabric"], "lab")
        self.assertEqual([(s["name"], s["tier"]) for s in document["switch"]][1:3], [("l2", "leaf"), ("s1", "spine")])
        self.assertEqual(len(document["link"]), 4 + 4)
        self.assertIn(
            {"a": "h3/rxe0", "b": "l2", "a_addresses": ["10.0.3.2"], "b_addresses": ["10.0.3.1"]}, document["link"]
        )

    def test_scripts_are_valid_bash(self):
        t = Topology(5, 3, 2)
        hosts = (t.host_script("h5"), t.host_script("h5", reset=True))
        for text in (t.fabric_script(), t.fabric_script(reset=True), t.icmp_script(True), *hosts):
            result = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ""))


class StallTest(unittest.TestCase):
    def together(self, *gaps: tuple[str, float, float]) -> float:
        monitor = StallMonitor(["h1", "h2", "fabric"])
        for gap in gaps:
            monitor.add(Gap(*gap))
        return monitor.together(0.0, 100.0)

    def test_all_at_once(self):
        self.assertAlmostEqual(self.together(("h1", 10, 12), ("h2", 10.1, 11.8), ("fabric", 9.9, 12)), 1.7)

    def test_one_guest_that_ran_excuses_nothing(self):
        self.assertEqual(self.together(("h1", 10, 12), ("h2", 10, 12)), 0.0)

    def test_one_after_the_other_is_not_together(self):
        self.assertEqual(self.together(("h1", 10, 12), ("h2", 20, 22), ("fabric", 30, 32)), 0.0)

    def test_short_pauses_are_the_products_to_bear(self):
        self.assertEqual(self.together(("h1", 10, 10.6), ("h2", 10, 10.6), ("fabric", 10, 10.6)), 0.0)

    def test_outside_the_run_does_not_count(self):
        self.assertEqual(self.together(("h1", 200, 202), ("h2", 200, 202), ("fabric", 200, 202)), 0.0)


class TomlTest(unittest.TestCase):
    def test_what_is_written_reads_back(self):
        table = {
            "a": 1, "b": {"c": True, "d": 0.5, "e": 'x "y" \\ z', "f": ["p", "q"], "empty": {}},
            "list": [{"k": 1}, {"k": 2, "s": "t"}], "odd key": "v",
        }  # fmt: skip
        self.assertEqual(tomllib.loads(dump(table)), table)

    def test_merge_replaces_values_and_joins_tables(self):
        self.assertEqual(merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}, "d": None}), {"a": {"b": 1, "c": 4}})


class KernelTest(unittest.TestCase):
    def test_image_that_is_none(self):
        self.assertIsNone(extract_elf(b""))
        self.assertIsNone(extract_elf(b"\0" * 4096))
        self.assertIsNone(extract_elf(self.image(b"\xfd7zXZ\0 broken")))

    def test_kernel_is_taken_out_of_its_wrapping(self):
        self.assertEqual(extract_elf(self.image(lzma.compress(b"\x7fELF kernel") + b"size")), b"\x7fELF kernel")

    @staticmethod
    def image(payload: bytes) -> bytes:
        header = bytearray(1024)
        header[0x1F1] = 1
        header[0x202:0x206] = b"HdrS"
        struct.pack_into("<II", header, 0x248, 0, len(payload))
        return bytes(header) + payload

    def test_modules_come_after_what_they_need(self):
        index = "kernel/a-x.ko: kernel/b.ko kernel/c.ko\nkernel/b.ko: kernel/c.ko\nkernel/c.ko:\nkernel/d.ko.xz:\n"
        self.assertEqual(
            module_load_order(index, ("a_x", "d", "built_in")),
            ["kernel/c.ko", "kernel/b.ko", "kernel/a-x.ko", "kernel/d.ko.xz"],
        )

    def test_command_line_values_survive_odd_paths(self):
        self.assertEqual(encode_argument("/a b/%'x"), "/a%20b/%25%27x")


class AccelTest(unittest.TestCase):
    def choose(self, work: str, works: bool) -> tuple[tuple[str, ...], int]:
        image = KernelImage(Path("k"), Path("i"), Path("m"), "6.1")
        with (
            mock.patch("os.access", return_value=True),
            mock.patch("lab.accel._qemu_version", return_value="QEMU 7"),
            mock.patch("lab.accel._trial", return_value=works) as trial,
            mock.patch.dict(os.environ),
        ):
            os.environ.pop("WEFT_LAB_ACCEL", None)
            return accel.choose(Path(work), image), trial.call_count

    def test_device_that_exists_but_does_not_work_is_tried_once(self):
        with tempfile.TemporaryDirectory() as work:
            self.assertEqual(self.choose(work, False), (accel.TCG, 1))
            self.assertEqual(self.choose(work, True), (accel.TCG, 0))

    def test_device_that_works(self):
        with tempfile.TemporaryDirectory() as work:
            self.assertEqual(self.choose(work, True), (accel.KVM, 1))

    def test_spoilt_cache_is_not_believed(self):
        with tempfile.TemporaryDirectory() as work:
            (Path(work) / "accel.json").write_text("[]")
            self.assertEqual(self.choose(work, True), (accel.KVM, 1))


class CommandLineTest(unittest.TestCase):
    def run_cli(self, *arguments: str) -> tuple[int, str]:
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(err), mock.patch("lab.cli.catch_signals"):
            try:
                code = cli.main(list(arguments))
            except SystemExit as end:
                code = end.code
        return code, err.getvalue()

    def test_mistakes_exit_with_2_and_say_why(self):
        with tempfile.TemporaryDirectory() as empty:
            for arguments, wanted in (
                ((), "name a scenario"),
                (("no-such",), "no scenario no-such"),
                (("healthy", "--hosts", "0"), "1 to 16 hosts"),
                (("spine-loss", "--spines", "1"), "needs 2 spines"),
                (("healthy", "--repeat", "0"), "--repeat"),
                (("healthy", "--json", "/no/where/x.json"), "no folder"),
                (("healthy", "--no-daemons"), "--no-daemons"),
                (("healthy", "--build", empty), "has no weftd and no weft-aggregator"),
                (("--bogus",), "unrecognized"),
            ):
                with self.subTest(arguments):
                    code, text = self.run_cli(*arguments)
                    self.assertEqual(code, 2, text)
                    self.assertIn(wanted, text)

    def test_builder_without_qemu_exits_with_3_naming_the_package(self):
        with tempfile.TemporaryDirectory() as build:
            for name in ("weftd", "weft-aggregator"):
                (Path(build) / name).touch()
            problem = MissingTool("the lab needs qemu-system-x86_64 (package qemu-system-x86)")
            with mock.patch("lab.process.require", side_effect=problem), mock.patch("lab.cli.arm_deadline"):
                code, text = self.run_cli("healthy", "--build", build)
        self.assertEqual(code, 3)
        self.assertIn("qemu-system-x86", text)

    def test_list_names_every_scenario(self):
        code, text = self.run_cli("--list")
        self.assertEqual(code, 0)
        self.assertIn("spine-loss-no-topology", text)

    def test_deadline_covers_all_repeats(self):
        self.assertGreater(cli.run_deadline([60.0, 60.0]), 2 * 3 * 60.0)

    def test_programs_are_found_where_the_build_puts_them(self):
        with tempfile.TemporaryDirectory() as build:
            deep = Path(build) / "agent/daemon"
            deep.mkdir(parents=True)
            (deep / "weftd").touch()
            self.assertEqual(find_program(Path(build), "weftd"), deep / "weftd")
            self.assertIsNone(find_program(Path(build), "weft"))


class ActionTest(unittest.TestCase):
    def test_words_that_are_no_action(self):
        lab = mock.Mock(topology=Topology())
        for text in ("", "fly", "link_down", "agent_stop", "agent_stop h9", "agent_signal h1 9", "aggregator_stop now"):
            with self.subTest(text), self.assertRaises(UsageError):
                perform_text(lab, mock.Mock(), text)

    def test_words_become_calls(self):
        lab, daemons = mock.Mock(topology=Topology()), mock.Mock()
        perform_text(lab, daemons, "link_down h3-l2")
        perform_text(lab, daemons, "agent_signal h3 STOP")
        lab.set_link.assert_called_once_with("h3-l2", False)
        daemons.agent_signal.assert_called_once_with("h3", "STOP")


if __name__ == "__main__":
    unittest.main()
