"""The layer law, read from the #includes: lower layers never know higher ones, pure ones never touch the world."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What each folder may include from the project. Longest prefix wins.
MAY_INCLUDE = {
    "lib/base": {"lib/base"},
    "lib/model": {"lib/base", "lib/model"},
    "lib/detect": {"lib/base", "lib/model", "lib/detect"},
    "lib/localise": {"lib/base", "lib/model", "lib/localise"},
    "lib/judge": {"lib/base", "lib/model", "lib/judge"},
    "lib/rdma": {"lib/base", "lib/model", "lib/rdma"},
    "lib/wire": {"lib/base", "lib/model", "lib/wire", "proto", "weft/v1"},
    "lib/metrics": {"lib/base", "lib/model", "lib/metrics"},
    "lib/http": {"lib/base", "lib/http"},
    "lib/client": {"lib/base", "lib/model", "lib/client"},
    "probes": {"lib/base", "lib/model", "lib/rdma", "probes"},
    "agent/collectors": {"lib/base", "lib/model", "lib/rdma", "agent/collectors"},
    "agent/daemon": {"lib", "probes", "agent", "weft/v1"},
    "aggregator": {"lib/base", "lib/model", "lib/detect", "lib/localise", "lib/judge", "lib/wire", "lib/metrics",
                   "lib/http", "aggregator", "weft/v1"},
    "cli": {"lib", "probes", "agent/collectors", "cli"},
    "tools": {"lib/base", "lib/model"},
}

# Third-party headers that only the named places may see.
OWNED = {
    r"infiniband/": {"lib/rdma", "probes/ping", "probes/rdma"},
    r"(bpf/|linux/bpf)": {"agent/collectors/bpf"},
    r"rte_": {"probes/tap"},
    r"(google/protobuf|grpc|weft/v1/)": {"lib/wire", "agent/daemon", "aggregator/ingest", "aggregator", "proto"},
    r"httplib": {"lib/http", "lib/client", "aggregator/export"},
    r"spdlog/": {"lib/base"},
    r"toml\+\+/": {"lib/base"},
    r"CLI/": {"cli", "agent/daemon", "aggregator"},
    r"sqlite3": {"aggregator/store"},
    r"sodium": {"probes/packet"},
}

# Pure folders read no file, socket or clock.
PURE = ("lib/detect", "lib/localise", "lib/judge")
IMPURE_HEADERS = re.compile(
    r"^(fstream|filesystem|iostream|thread|mutex|chrono|ctime|unistd\.h|fcntl\.h|sys/.*|netinet/.*|arpa/.*|"
    r"lib/base/(files|fd|log)\.h)$")

# A cycle counter is no clock: its rate is guessed, and the guess warns people of what has no effect.
CYCLES = re.compile(r"rdtsc|/proc/cpuinfo|cpufreq|cntvct|_mm_lfence")


def sources():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.h", "*.cpp"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout.split()
    return [path for path in listed if (ROOT / path).exists() and not path.startswith("tests/")]


def includes(path):
    text = (ROOT / path).read_text()
    return re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', text, re.MULTILINE)


def under(path, folder):
    return path == folder or path.startswith(folder + "/")


class LayerLaw(unittest.TestCase):
    def test_sources_are_found(self):
        self.assertGreater(len(sources()), 10)

    def test_no_folder_includes_what_stands_above_it(self):
        wrong = []
        for path in sources():
            rule = max((folder for folder in MAY_INCLUDE if under(path, folder)), key=len, default=None)
            self.assertIsNotNone(rule, f"{path} has no home in the layer law")
            for _, header in includes(path):
                if "/" not in header or not re.match(r"(lib|probes|agent|aggregator|cli|weft|tools|tests)/", header):
                    continue
                if not any(under(header, folder) for folder in MAY_INCLUDE[rule]):
                    wrong.append(f"{path} includes {header}")
        self.assertEqual(wrong, [])

    def test_collectors_do_not_know_each_other(self):
        wrong = []
        for path in sources():
            match = re.match(r"agent/collectors/([^/]+)/", path)
            for _, header in includes(path) if match else []:
                other = re.match(r"agent/collectors/([^/]+)/", header)
                if other and other.group(1) != match.group(1):
                    wrong.append(f"{path} includes {header}")
        self.assertEqual(wrong, [])

    def test_third_party_headers_stay_with_their_owner(self):
        wrong = []
        for path in sources():
            for _, header in includes(path):
                for pattern, owners in OWNED.items():
                    if re.match(pattern, header) and not any(under(path, owner) for owner in owners):
                        wrong.append(f"{path} includes {header}")
        self.assertEqual(wrong, [])

    def test_pure_folders_touch_no_file_socket_or_clock(self):
        wrong = []
        for path in sources():
            if not any(under(path, folder) for folder in PURE):
                continue
            for _, header in includes(path):
                if IMPURE_HEADERS.match(header):
                    wrong.append(f"{path} includes {header}")
        self.assertEqual(wrong, [])

    def test_no_time_is_made_of_cycles_and_a_cpu_frequency_perftest_372_nccl_tests_374(self):
        wrong = [path for path in sources() if CYCLES.search((ROOT / path).read_text())]
        self.assertEqual(wrong, [])

    def test_the_law_catches_an_offender(self):
        self.assertTrue(CYCLES.search("auto now = __rdtsc();"))
        self.assertFalse(any(under("probes/ping/engine.h", folder) for folder in MAY_INCLUDE["lib/localise"]))
        self.assertTrue(IMPURE_HEADERS.match("sys/socket.h"))


if __name__ == "__main__":
    unittest.main()
