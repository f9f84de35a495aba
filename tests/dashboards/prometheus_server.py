"""A real Prometheus on a loopback port, and pages for it to scrape."""

import contextlib
import http.server
import json
import threading
import urllib.parse
import urllib.request

from tests.integration.agent.harness import Process, free_port, until


class Prometheus:
    """Scrapes targets ({job: a port of 127.0.0.1, or several}) every second until it is closed."""

    def __init__(self, folder, targets, rule_files=(), labels=None):
        self.port = free_port()

        def addresses(ports):
            return [f"127.0.0.1:{port}" for port in (ports if isinstance(ports, list) else [ports])]

        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                  "rule_files": [str(path) for path in rule_files],
                  "scrape_configs": [{"job_name": job,
                                      "static_configs": [{"targets": addresses(ports), "labels": labels or {}}]}
                                     for job, ports in targets.items()]}
        path = folder / "prometheus.yml"
        path.write_text(json.dumps(config))  # JSON is YAML
        self.process = Process(["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder / 'tsdb'}",
                                f"--web.listen-address=127.0.0.1:{self.port}"], folder, "prometheus")
        try:
            self.process.wait_log("Server is ready to receive web requests", 60)
        except BaseException:
            self.process.close()
            raise

    def close(self):
        self.process.close()

    def ask(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        """[(labels, value)] at this moment."""
        return [(row["metric"], float(row["value"][1])) for row in self.ask("query", query=expression)["result"]]

    def target(self, job):
        """What it last found at the target of a job; None before the first scrape."""
        for target in self.ask("targets")["activeTargets"]:
            if target["labels"]["job"] == job and target["health"] != "unknown":
                return target
        return None

    def wait_up(self, job):
        target = until(f"a scrape of {job}", lambda: self.target(job), 30)
        if target["health"] != "up":
            raise AssertionError(f"{job} is {target['health']}: {target['lastError']}")
        # It is told a moment before what was scraped can be asked for, which comes together with this series.
        until(f"what was scraped of {job}", lambda: self.query(f'up{{job="{job}"}} == 1'), 30)


@contextlib.contextmanager
def served(make_page):
    """Serves make_page() -> (content type, bytes) as every path of a port, which it yields."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # the name is the base class's
            content_type, body = make_page()
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def fetched(port, content_type):
    """A page of a program in one format, whatever the scraper asks for: (content type, bytes)."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": content_type})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read()
