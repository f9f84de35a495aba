"""Pages of weftd and weft-aggregator as the real promtool and a real Prometheus read them."""

import re
import subprocess
import unittest

from tests.dashboards import rule_files
from tests.dashboards.prometheus_server import OPEN_METRICS, TEXT, Prometheus, fetched, served
from tests.integration.agent.harness import AGGREGATOR, Bench, free_port, until

GOLDEN = rule_files.ROOT / "tests/fixtures/metrics"
PROGRAMS = ("weftd", "weft-aggregator")
FORMATS = {"prom": TEXT, "openmetrics": OPEN_METRICS}


def series_in(page):
    """{(name, labels): value} of a page, as Prometheus would name them."""
    found = {}
    for line in page.splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"(\w+)(\{.*\})? (\S+)", line)
            # An empty label is no label.
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")
            plain = tuple(sorted((key, text.replace('\\"', '"').replace("\\\\", "\\")) for key, text in labels if text))
            assert (match[1], plain) not in found, f"twice: {line}"
            found[match[1], plain] = float(match[3])
    return found


def stored(prometheus, job):
    rows = prometheus.query(f'{{job="{job}",__name__=~"weft_.*"}}')
    return {(labels["__name__"], tuple(sorted((key, value) for key, value in labels.items()
                                              if key not in ("__name__", "job", "instance")))): value
            for labels, value in rows}


def check_metrics(page):
    done = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


class Golden(unittest.TestCase):
    """The pages that the unit tests hold byte by byte."""

    def test_promtool_has_nothing_to_say(self):
        for program in PROGRAMS:
            with self.subTest(program=program):
                self.assertEqual(check_metrics((GOLDEN / f"{program}.prom").read_text()), (0, ""))

    def test_both_formats_say_the_same(self):
        for program in PROGRAMS:
            with self.subTest(program=program):
                text, open_metrics = (series_in((GOLDEN / f"{program}.{end}").read_text()) for end in FORMATS)
                self.assertEqual(text, open_metrics)
                self.assertGreater(len(text), 40)

    def test_prometheus_stores_every_series_of_both_formats(self):
        with Bench() as bench:
            targets, pages = {}, {}
            for program in PROGRAMS:
                for end, content_type in FORMATS.items():
                    page = (GOLDEN / f"{program}.{end}").read_bytes()
                    pages[f"{program}.{end}"] = page.decode()
                    targets[f"{program}.{end}"] = bench.enter_context(served(lambda t=content_type, p=page: (t, p)))
            prometheus = Prometheus(bench.folder, targets)
            bench.callback(prometheus.close)
            for job, page in pages.items():
                with self.subTest(job=job):
                    prometheus.wait_up(job)
                    self.assertEqual(stored(prometheus, job), series_in(page))
            # Metadata: types and help came through, in the words of the catalogue.
            data = prometheus.ask("targets/metadata", match_target='{job="weftd.openmetrics"}')
            kinds = {row["metric"]: row["type"] for row in data}
            self.assertEqual((kinds["weft_probe_sent"], kinds["weft_build"]), ("counter", "info"))


class Running(unittest.TestCase):
    """Both programs, scraped in either format; Prometheus asks for OpenMetrics, the other goes by a relay."""

    def test_targets_are_up_and_series_are_there(self):
        with Bench() as bench:
            ports = {"weft-aggregator": free_port()}
            grpc = free_port()
            aggregator = bench.start([AGGREGATOR, "--fabric", "test", "--store", bench.folder / "weft.db", "--listen-grpc",
                                      f"127.0.0.1:{grpc}", "--listen-http", f"127.0.0.1:{ports['weft-aggregator']}"],
                                     "aggregator")
            aggregator.wait_log("listening")
            hello = free_port()
            agents = [bench.agent(number, hello_port=hello, targets=[3 - number], aggregator=f"127.0.0.1:{grpc}")
                      for number in (1, 2)]
            ports["weftd"] = agents[0].metrics_port
            until("answers", lambda: (agents[0].metric("weft_probe_acknowledged_total") or 0) > 5)
            until("the stream", lambda: agents[0].metric("weft_stream_connected") == 1)
            targets = dict(ports)
            for program, port in ports.items():
                content_type, page = fetched(port, TEXT)
                self.assertEqual(content_type, TEXT)
                self.assertEqual(check_metrics(page.decode()), (0, ""))
                self.assertEqual(fetched(port, OPEN_METRICS)[0], OPEN_METRICS)
                targets[f"{program}-text"] = bench.enter_context(served(lambda p=port: fetched(p, TEXT)))
            prometheus = Prometheus(bench.folder, targets, rule_files.FILES)
            bench.callback(prometheus.close)

            def names(job):
                return {(name, tuple(key for key, _ in labels)) for name, labels in stored(prometheus, job)}

            for program in PROGRAMS:
                for job in (program, f"{program}-text"):
                    prometheus.wait_up(job)
                # Both are asked at different moments, and series come as things happen.
                until(f"the same series of {program} in both formats",
                      lambda p=program: names(p) and names(p) == names(f"{p}-text"))
            for expression in ('weft_stream_connected{job="weftd"} == 1', 'weft_peer_sent_total{peer="a2/lo"} > 0',
                               'weft_endpoint_info{transport="udp"}', 'weft_host_info{host="a1"}',
                               'weft_aggregator_agents{job="weft-aggregator",state="reporting"} == 2',
                               'ALERTS{alertname="WeftWatchdog"}',
                               'instance:weft_process_cpu_seconds:rate5m > 0',
                               'instance_device:weft_probe_sent:rate1m{job="weftd"} > 0'):
                until(f"series of {expression}", lambda e=expression: prometheus.query(e), 60)
            for problem in ("Error on ingesting", "append failed", "Evaluating rule failed"):
                self.assertNotIn(problem, prometheus.process.log())


class Configuration(unittest.TestCase):
    def test_the_example_is_good_with_the_rules_it_names(self):
        with Bench() as bench:
            text = (rule_files.ROOT / "packaging/config/prometheus.yml").read_text()
            self.assertIn("/usr/share/weft/prometheus/*_rules.yml", text)
            hosts = bench.write("weftd-1.json", '[{"targets": ["h1:9435"], "labels": {"fabric": "default"}}]')
            text = text.replace("/usr/share/weft/prometheus", str(rule_files.FOLDER))
            text = text.replace("/etc/prometheus/weft/weftd-*.json", str(hosts.parent / "weftd-*.json"))
            config = bench.write("prometheus.yml", text)
            done = subprocess.run(["promtool", "check", "config", "--lint=all", "--lint-fatal", config], text=True,
                                  capture_output=True, check=False)
            said = done.stdout + done.stderr
            self.assertEqual(done.returncode, 0, said)
            self.assertNotIn("WARNING", said)
            self.assertIn("alert_rules.yml", said)

    def test_its_jobs_are_those_that_the_rules_expect(self):
        text = (rule_files.ROOT / "packaging/config/prometheus.yml").read_text()
        jobs = set(re.findall(r"job_name: (\S+)", text))
        wanted = {job for rule in rule_files.alerts().values() for job in re.findall(r'job="([\w-]+)"', rule["expr"])}
        self.assertEqual(jobs, wanted)


if __name__ == "__main__":
    unittest.main()
