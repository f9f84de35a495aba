"""Reads the rule files of dashboards/prometheus, which keep to a small part of YAML (Python has no reader of it)."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dashboards/prometheus"
FILES = (FOLDER / "recording_rules.yml", FOLDER / "alert_rules.yml")


def rules(path):
    """Each rule as a dict: alert or record, expr, for, labels, annotations."""
    found, part = [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#") or re.fullmatch(r"groups:|  - name: [a-z-]+|    rules:", line):
            continue
        if start := re.fullmatch(r"      - (alert|record): (\S+)", line):
            found.append({start[1]: start[2], "labels": {}, "annotations": {}})
            part = None
        elif field := re.fullmatch(r"        (expr|for): (.+)", line):
            found[-1][field[1]] = "" if field[2] == "|-" else field[2]
            part = "expr"
        elif field := re.fullmatch(r"        (labels|annotations):", line):
            part = field[1]
        elif part == "expr" and line.startswith(" " * 12):
            found[-1]["expr"] += line.strip() + "\n"
        elif part and (field := re.fullmatch(r"          (\w+): (.+)", line)):
            found[-1][part][field[1]] = json.loads(field[2]) if field[2].startswith('"') else field[2]
        else:
            raise AssertionError(f"{path.name}:{number}: a layout that this reader does not know: {line}")
    return found


def alerts():
    return {rule["alert"]: rule for rule in rules(FILES[1])}


def recorded():
    return {rule["record"]: rule for rule in rules(FILES[0])}


def catalogue():
    """Names of series that weft exports, from docs/metrics.md, which a lint test holds equal to the code."""
    names = set()
    for name, kind in re.findall(r"^\| `(weft_\w+)` \| (\w+) \|", (ROOT / "docs/metrics.md").read_text(), re.M):
        names |= {f"{name}{part}" for part in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    return names


def names_in(expression):
    """Metric names in an expression: exported ones, and those of recording rules."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)
    found = set(re.findall(r"[a-z_]+:weft_\w+:\w+|(?<![\w:])weft_\w+", bare))
    return {name for name in found if ":" not in name}, {name for name in found if ":" in name}
