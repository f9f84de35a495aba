"""The console in a real browser, against the real aggregator."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from tests import node
from tests.integration.aggregator_support import AggregatorCase
from tests.integration.made_up_fabric import MadeUpFabric, Reporter

HERE = pathlib.Path(__file__).resolve().parent


class Browser:
    """JavaScript goes in, its result comes out; see driver.mjs."""

    def __init__(self):
        environment = dict(os.environ, WEFT_NPM=node.packages("console"), WEFT_CHROMIUM=shutil.which("chromium"))
        self.process = subprocess.Popen(["node", str(HERE / "driver.mjs")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the browser ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["value"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class ConsoleCase(AggregatorCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("chromium") is None:
            raise AssertionError("chromium is not installed: tools/setup")
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)
        shots = os.environ.get("WEFT_SCREENSHOTS")
        if shots is None:
            folder = tempfile.TemporaryDirectory(prefix="weft-console-")
            cls.addClassCleanup(folder.cleanup)
            shots = folder.name
        cls.shots = pathlib.Path(shots)
        cls.shots.mkdir(parents=True, exist_ok=True)

    def fabric(self, loss=None, topology=True, settings="", every=0.5, **shape):
        """An aggregator that is told of a made-up fabric all the time."""
        self.made_up = MadeUpFabric(**{"hosts": 6, "leaves": 3, **shape})
        self.made_up.loss.update(loss or {})
        config = self.folder / "a.toml"
        text = '[fabric]\nname = "lab"\n'
        if topology:
            (self.folder / "topology.toml").write_text(self.made_up.topology())
            text += f'topology_file = "{self.folder / "topology.toml"}"\n'
        config.write_text(text + settings)
        self.server = self.aggregator(config=config)
        self.told = self.agents(self.server)
        self.reporter = Reporter(self.made_up, self.told, every)
        self.addCleanup(self.reporter.close)
        self.url = f"http://127.0.0.1:{self.server.ports[1]}"

    def page(self, run, argument=None):
        return self.browser.ask(run=run, argument=argument)

    def open(self, path="/", before="", **options):
        """A fresh page; before runs when there is a page but nothing is loaded."""
        self.browser.ask(options=options, run=before)
        self.page("await page.goto(argument)", self.url + path)

    def shot(self, name):
        self.page("await page.screenshot({path: argument, fullPage: true})", str(self.shots / f"{name}.png"))

    def wait(self, selector, text=None):
        self.page("await page.locator(argument[0]" + (", {hasText: argument[1]}" if text else "") + ").first().waitFor()",
                  [selector, text])

    def text(self, selector):
        return self.page("return await page.locator(argument).first().innerText()", selector)
