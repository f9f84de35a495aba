"""Scenario files: TOML in, checked dataclasses out. lab/README.md documents the format for people.

Every mistake is a ScenarioError that names file and line; nothing is guessed or ignored.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.actions import ACTIONS, SIGNALS
from lab.daemons import Setup
from lab.errors import UsageError
from lab.fabric import BUILDER
from lab.topology import Topology

SCENARIO_DIR = Path(__file__).resolve().parent / "scenarios"
SEVERITIES = ("info", "warning", "critical")
NOTHING = "none"  # forbid.severity: no finding is forbidden
MAX_DURATION_S = 1800.0
LAB = "lab"  # `on` of the actions that concern no single host


class ScenarioError(UsageError):
    """A scenario that cannot be read or does not fit the lab."""


@dataclass(frozen=True)
class Step:
    """Something done at a second of the scenario. Either run or action is set."""

    at: float
    on: str
    run: str = ""
    action: str = ""
    args: Mapping = field(default_factory=dict)  # of the action: link or signal
    undo: tuple[str, ...] = ()  # commands, on the same place, at the end whatever happened
    inject: bool = False
    timeout: float = 30.0
    within: float | None = None  # must have returned after so many seconds
    exit: int | None = 0  # None: any
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or f"{self.on}: {self.run.strip() or ' '.join([self.action, *map(str, self.args.values())])}"


@dataclass(frozen=True)
class Expect:
    """A finding that must appear. `within` counts from the injection, `cleared_by` from the scenario's start."""

    kinds: tuple[str, ...]
    subjects: tuple[str, ...]
    within: float
    at_most: int = 1
    held: bool = False  # still active at the end
    cleared_by: float | None = None


@dataclass(frozen=True)
class Check:
    """A command that must succeed: once at `at`, or at some time within `within` seconds after it."""

    on: str
    run: str
    at: float
    within: float = 0.0
    exit: int | None = 0
    output: str = ""  # regular expression that stdout must contain
    timeout: float = 20.0
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or f"{self.on}: {self.run.strip()}"


@dataclass(frozen=True)
class Allow:
    kinds: tuple[str, ...]
    subjects: tuple[str, ...]


@dataclass(frozen=True)
class Forbid:
    """Findings that nothing expects: forbidden from this severity on, of these kinds and subjects, unless allowed."""

    severity: str = "warning"
    kinds: tuple[str, ...] = ("*",)
    subjects: tuple[str, ...] = ("*",)
    allow: tuple[Allow, ...] = ()


@dataclass(frozen=True)
class Scenario:
    name: str
    path: Path
    description: str
    duration: float
    steps: tuple[Step, ...]
    expects: tuple[Expect, ...]
    checks: tuple[Check, ...]
    forbid: Forbid
    setup: Setup
    needs: Mapping[str, int]

    def check_fits(self, topology: Topology) -> None:
        """Raises when the lab has too little of something or lacks a place or link that the scenario names."""
        have = {"hosts": topology.hosts_count, "leaves": topology.leaves_count, "spines": topology.spines_count}
        for what, least in self.needs.items():
            if have[what] < least:
                raise ScenarioError(f"{self.path}: {self.name} needs {least} {what}, the lab has {have[what]}")
        places = {*topology.guests, *topology.switches, BUILDER, LAB}
        for entry in (*self.steps, *self.checks):
            if entry.on not in places:
                known = ", ".join(sorted(places))
                raise ScenarioError(f"{self.path}: nothing called {entry.on!r} in this lab ({known})")
        for step in self.steps:
            if step.action and ACTIONS[step.action].on_host and step.on not in topology.hosts:
                raise ScenarioError(f"{self.path}: {step.action} is for a host, not for {step.on}")
            if "link" in step.args:
                try:
                    topology.link(step.args["link"])
                except UsageError as error:
                    raise ScenarioError(f"{self.path}: {error}") from error
        for host in self.setup.hosts:
            if host not in topology.hosts:
                raise ScenarioError(f"{self.path}: [config.host.{host}]: no such host in this lab")


def find(name: str) -> Path:
    """A path to a file, or the name of one of lab/scenarios."""
    path = Path(name)
    if path.suffix == ".toml" or "/" in name:
        if not path.is_file():
            raise ScenarioError(f"no scenario file {name}")
        return path
    path = SCENARIO_DIR / f"{name}.toml"
    if not path.is_file():
        raise ScenarioError(f"no scenario {name}; there are {', '.join(names())}, or give the path of a .toml file")
    return path


def names() -> list[str]:
    return sorted(p.stem for p in SCENARIO_DIR.glob("*.toml"))


def load(path: Path) -> Scenario:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    return parse(text, path)


def parse(text: str, path: Path) -> Scenario:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: {error}") from error
    return _Reader(text, path).scenario(document)


_TEXT = (str,)
_NUMBER = (int, float)
_BOOL = (bool,)
_WHOLE = (int,)
_TABLE = (dict,)
_TABLES = (list,)
_TEXTS = (str, list)

_KEYS: dict[str, dict[str, tuple[type, ...]]] = {
    "": {
        "name": _TEXT, "description": _TEXT, "duration": _NUMBER, "needs": _TABLE, "options": _TABLE, "config": _TABLE,
        "step": _TABLES, "expect": _TABLES, "check": _TABLES, "forbid": _TABLE,
    },
    "needs": {"hosts": _WHOLE, "leaves": _WHOLE, "spines": _WHOLE},
    "options": {"no_topology": _BOOL, "default_icmp_limit": _BOOL},
    "config": {"agent": _TABLE, "aggregator": _TABLE, "host": _TABLE},
    "step": {
        "at": _NUMBER, "on": _TEXT, "run": _TEXT, "action": _TEXT, "link": _TEXT, "signal": _TEXT, "undo": _TEXTS,
        "inject": _BOOL, "timeout": _NUMBER, "within": _NUMBER, "exit": (int, str), "name": _TEXT,
    },
    "expect": {
        "kind": _TEXTS, "subject": _TEXTS, "within": _NUMBER, "at_most": _WHOLE, "held": _BOOL, "cleared_by": _NUMBER,
    },
    "check": {
        "on": _TEXT, "run": _TEXT, "at": _NUMBER, "within": _NUMBER, "exit": (int, str), "output": _TEXT,
        "timeout": _NUMBER, "name": _TEXT,
    },
    "forbid": {"severity": _TEXT, "kind": _TEXTS, "subject": _TEXTS, "allow": _TABLES},
    "forbid.allow": {"kind": _TEXTS, "subject": _TEXTS},
}  # fmt: skip

_SAYS = {
    str: "a string", int: "a whole number", float: "a number", bool: "true or false", dict: "a table", list: "a list",
}  # fmt: skip


class _Reader:
    def __init__(self, text: str, path: Path):
        self._lines = text.splitlines()
        self._path = path

    def scenario(self, document: dict) -> Scenario:
        self._check(document, "")
        steps = tuple(self._step(t, i) for i, t in self._tables(document, "step"))
        if sum(s.inject for s in steps) > 1:
            raise self._error("only one step may be the injection", "step", 0, "inject")
        expects = tuple(self._expect(t, i) for i, t in self._tables(document, "expect"))
        checks = tuple(self._check_command(t, i) for i, t in self._tables(document, "check"))
        injected = next((s.at for s in steps if s.inject), steps[0].at if steps else 0.0)
        least = max(
            [0.0, *(s.at for s in steps), *(injected + e.within for e in expects), *(c.at + c.within for c in checks)]
            + [e.cleared_by for e in expects if e.cleared_by]
        )
        duration = float(document.get("duration", least + 5.0))
        if not least <= duration <= MAX_DURATION_S:
            raise self._error(
                f"duration is {duration:g} s, it must be from {least:g} (the last step, expectation or check) "
                f"to {MAX_DURATION_S:g}", "", 0, "duration",
            )  # fmt: skip
        if duration <= 0:
            raise self._error("a scenario without steps needs a duration", "", 0, "duration")
        return Scenario(
            name=document.get("name", self._path.stem),
            path=self._path,
            description=document.get("description", ""),
            duration=duration,
            steps=steps,
            expects=expects,
            checks=checks,
            forbid=self._forbid(document.get("forbid", {})),
            setup=self._setup(document),
            needs=self._check(document.get("needs", {}), "needs"),
        )

    def _setup(self, document: dict) -> Setup:
        options = self._check(document.get("options", {}), "options")
        config = self._check(document.get("config", {}), "config")
        for host, table in config.get("host", {}).items():
            if not isinstance(table, dict):
                raise self._error(f"config.host.{host} must be a table", "config.host", 0, host)
        return Setup(
            topology_file=not options.get("no_topology", False),
            icmp_limit=options.get("default_icmp_limit", False),
            agent=config.get("agent", {}),
            hosts=config.get("host", {}),
            aggregator=config.get("aggregator", {}),
        )

    def _step(self, table: dict, index: int) -> Step:
        def bad(text: str, key: str = "") -> ScenarioError:
            return self._error(text, "step", index, key)

        self._check(table, "step", index, required=("at",))
        if ("run" in table) == ("action" in table):
            raise bad("a step has either run or action")
        args = {}
        action = table.get("action", "")
        if action:
            if action not in ACTIONS:
                raise bad(f"no action {action!r}; there are {', '.join(ACTIONS)}", "action")
            needed = ACTIONS[action].needs
            if needed and needed not in table:
                raise bad(f"{action} needs {needed}", "action")
            args = {needed: table[needed]} if needed else {}
            if "undo" in table:
                raise bad("undo is for run; what an action did is put back by itself", "undo")
        for key in ("link", "signal"):
            if key in table and key not in args:
                raise bad(f"{key} does not belong to this step", key)
        if args.get("signal", SIGNALS[0]) not in SIGNALS:
            raise bad(f"signal must be one of {', '.join(SIGNALS)}", "signal")
        if "on" not in table and (not action or ACTIONS[action].on_host):
            raise bad("the step does not say where: on is missing")
        undo = table.get("undo", ())
        return Step(
            at=self._from_zero(table, "at", "step", index),
            on=table.get("on", LAB),
            run=table.get("run", ""),
            action=action,
            args=args,
            undo=self._texts(undo, "step", index, "undo") if undo else (),
            inject=table.get("inject", False),
            timeout=self._from_zero(table, "timeout", "step", index, 30.0),
            within=self._from_zero(table, "within", "step", index) if "within" in table else None,
            exit=self._exit(table, "step", index),
            name=table.get("name", ""),
        )

    def _expect(self, table: dict, index: int) -> Expect:
        self._check(table, "expect", index, required=("kind", "subject", "within"))
        if table.get("at_most", 1) < 1:
            raise self._error("at_most is at least 1; what must not be found is forbidden", "expect", index, "at_most")
        if table.get("held") and "cleared_by" in table:
            raise self._error("a finding cannot be held and cleared", "expect", index, "held")
        return Expect(
            kinds=self._texts(table["kind"], "expect", index, "kind"),
            subjects=self._texts(table["subject"], "expect", index, "subject"),
            within=self._from_zero(table, "within", "expect", index),
            at_most=table.get("at_most", 1),
            held=table.get("held", False),
            cleared_by=self._from_zero(table, "cleared_by", "expect", index) if "cleared_by" in table else None,
        )

    def _check_command(self, table: dict, index: int) -> Check:
        self._check(table, "check", index, required=("on", "run", "at"))
        if table["on"] == LAB:
            raise self._error("a check is a command: it runs on a guest, a switch or the builder", "check", index, "on")
        try:
            re.compile(table.get("output", ""))
        except re.error as error:
            raise self._error(f"output is no regular expression: {error}", "check", index, "output") from error
        return Check(
            on=table["on"],
            run=table["run"],
            at=self._from_zero(table, "at", "check", index),
            within=self._from_zero(table, "within", "check", index, 0.0),
            exit=self._exit(table, "check", index),
            output=table.get("output", ""),
            timeout=self._from_zero(table, "timeout", "check", index, 20.0),
            name=table.get("name", ""),
        )

    def _forbid(self, table: dict) -> Forbid:
        self._check(table, "forbid")
        severity = table.get("severity", "warning")
        if severity not in (*SEVERITIES, NOTHING):
            raise self._error(f"severity must be one of {', '.join((*SEVERITIES, NOTHING))}", "forbid", 0, "severity")
        allow = []
        for index, entry in self._tables(table, "allow", "forbid.allow"):
            self._check(entry, "forbid.allow", index, required=("kind",))
            allow.append(
                Allow(
                    self._texts(entry["kind"], "forbid.allow", index, "kind"),
                    self._texts(entry.get("subject", "*"), "forbid.allow", index, "subject"),
                )
            )
        return Forbid(
            severity=severity,
            kinds=self._texts(table.get("kind", "*"), "forbid", 0, "kind"),
            subjects=self._texts(table.get("subject", "*"), "forbid", 0, "subject"),
            allow=tuple(allow),
        )

    def _check(self, table: dict, where: str, index: int = 0, required: Sequence[str] = ()) -> dict:
        known = _KEYS[where]
        for key, value in table.items():
            if key not in known:
                raise self._error(f"unknown key {key!r}; here may be {', '.join(known)}", where, index, key)
            # bool is an int to Python, not to a reader of the file
            if not isinstance(value, known[key]) or (isinstance(value, bool) and bool not in known[key]):
                says = " or ".join(_SAYS[t] for t in known[key])
                raise self._error(f"{key} must be {says}, not {value!r}", where, index, key)
        for key in required:
            if key not in table:
                raise self._error(f"{key} is missing", where, index)
        return table

    def _tables(self, table: dict, key: str, where: str = "") -> list[tuple[int, dict]]:
        entries = table.get(key, [])
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise self._error(f"{key} must be written as [[{where or key}]] tables", "", index, key)
        return list(enumerate(entries))

    def _texts(self, value: str | list, where: str, index: int, key: str) -> tuple[str, ...]:
        texts = (value,) if isinstance(value, str) else tuple(value)
        if not texts or not all(isinstance(t, str) and t for t in texts):
            raise self._error(f"{key} must be a string or a list of strings, not empty", where, index, key)
        return texts

    def _from_zero(self, table: dict, key: str, where: str, index: int, default: float | None = None) -> float:
        value = float(table.get(key, default))
        if not 0 <= value <= MAX_DURATION_S:
            raise self._error(f"{key} is {value:g}, it must be from 0 to {MAX_DURATION_S:g} seconds", where, index, key)
        return value

    def _exit(self, table: dict, where: str, index: int) -> int | None:
        value = table.get("exit", 0)
        if isinstance(value, str):
            if value != "any":
                raise self._error('exit must be a number or "any"', where, index, "exit")
            return None
        return value

    def _error(self, text: str, where: str, index: int, key: str = "") -> ScenarioError:
        line = locate(self._lines, where, index, key)
        place = f"{self._path}:{line}" if line else str(self._path)
        table = f" in [[{where}]] {index + 1}" if where in ("step", "expect", "check", "forbid.allow") else ""
        table = table or (f" in [{where}]" if where else "")
        return ScenarioError(f"{place}: {text}{table}")


def locate(lines: Sequence[str], where: str, index: int, key: str) -> int:
    """The line of a key, of its table when the key has no line of its own, or 0. tomllib keeps no positions."""
    current, count, table_line = "", {}, 0
    header = re.compile(r"^\s*\[\[?\s*([\w.\-\"]+)\s*\]\]?")
    wanted: Callable[[], bool] = lambda: current == where and count.get(where, 0) == (index if where else 0)
    for number, line in enumerate(lines, 1):
        if found := header.match(line):
            current = found[1]
            if line.strip().startswith("[["):
                count[current] = count.get(current, -1) + 1
            if wanted() and not table_line:
                table_line = number
            if not where and key and current.split(".")[0] == key:
                return number
            continue
        if key and wanted() and re.match(rf'^\s*"?{re.escape(key)}"?\s*[.=]', line):
            return number
    return table_line
