"""Asks Prometheus what a dashboard would ask it: variables one after the other, then the query of each panel."""

import math
import re
import urllib.parse

from tests.dashboards import grafana_files
from tests.dashboards.grafana_rules import INTERVAL

ALL = "$__all"
RANGE_S, STEP_S, RATE_S = 30, 1, 6


def escaped(value):
    """As the data source writes a value into a pattern: escaped for RE2, and that once more for the string it is in."""
    return re.sub(r"([$^*{}\[\]'+?.()|])", r"\\\\\1", value.replace("\\", "\\\\\\\\"))


class Questions:
    """A dashboard at one moment, with what is chosen there: {variable: [values]}; else All, or the first there is."""

    def __init__(self, prometheus, dashboard, now, chosen=None):
        self.prometheus, self.dashboard, self.now = prometheus, dashboard, now
        self.variables = grafana_files.variables(dashboard)
        self.offered, self.values = {}, {}
        for name, variable in self.variables.items():
            self.offered[name] = self._offers(variable) if variable["type"] == "query" else ["prometheus"]
            first = [ALL] if variable["includeAll"] else self.offered[name][:1]
            self.values[name] = (chosen or {}).get(name, first)

    def _offers(self, variable):
        kind, expression, label = grafana_files.inner_query(variable)
        expression = self.filled(expression)
        if kind == "label_values":
            return sorted(self.prometheus.ask(f"label/{label}/values", **{
                "match[]": expression, "start": self.now - RANGE_S, "end": self.now}))
        rows = self.prometheus.ask("query", query=expression, time=self.now)["result"]
        lines = ["{%s} %s" % (",".join(f'{key}="{text}"' for key, text in row["metric"].items()), row["value"][1])
                 for row in rows]
        return sorted({found[1] for line in lines if (found := re.search(variable["regex"].strip("/"), line))})

    def _written(self, name):
        variable, values = self.variables[name], self.values[name]
        if values == [ALL]:
            return variable["allValue"]
        if not variable["multi"]:
            return values[0] if values else ""
        return escaped(values[0]) if len(values) == 1 else "(" + "|".join(map(escaped, values)) + ")"

    def filled(self, expression):
        known = "|".join(sorted(self.values, key=len, reverse=True))
        expression = expression.replace(INTERVAL, f"{RATE_S}s")
        return re.sub(rf"\$({known})\b", lambda found: self._written(found[1]), expression) if known else expression

    def asked(self, target):
        """[{labels, values: [[seconds, number]]}]"""
        expression = self.filled(target["expr"])
        if target.get("instant"):
            rows = self.prometheus.ask("query", query=expression, time=self.now)["result"]
            rows = [{**row, "values": [row["value"]]} for row in rows]
        else:
            rows = self.prometheus.ask("query_range", query=expression, start=self.now - RANGE_S, end=self.now,
                                       step=STEP_S)["result"]
        return [{"labels": {key: text for key, text in row["metric"].items() if key != "__name__"},
                 "values": [[float(when), float(value)] for when, value in row["values"]]} for row in rows]

    def answers(self, panel):
        return [self.asked(target) for target in panel["targets"]]


def chosen_by(url):
    """(uid, what is chosen) of a link: what Grafana makes of its address."""
    path, query = url.split("?")
    chosen = {}
    for key, value in urllib.parse.parse_qsl(query, keep_blank_values=True):
        if key.startswith("var-"):
            chosen.setdefault(key.removeprefix("var-"), []).append(ALL if value == "All" else value)
    return path.removeprefix("/d/"), chosen


def needed(panel, target):
    """Labels without which the answer to a query could not be shown, named or clicked."""
    found = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    for link in grafana_files.links(panel):
        found |= set(re.findall(r"__field\.labels\.(\w+)", link["url"]))
        found |= set(re.findall(r"__data\.fields\.(\w+)", link["url"]))
    for step in panel.get("transformations", []):
        options = step["options"]
        found |= {options[key] for key in ("rowField", "columnField") if key in options}
        found |= set(options.get("indexByName", {}))
    return {name for name in found if not name.startswith("Value")}


def unanswered(questions):
    """[(where, what is wrong)]: queries without an answer, or without what the panel needs of it."""
    found = []
    for name, offers in questions.offered.items():
        if not offers:
            found.append((f"variable {name}", "offers nothing"))
    for panel in grafana_files.panels(questions.dashboard):
        answers = questions.answers(panel)
        # The queries of one table complete each other's rows.
        together = {label for rows in answers for row in rows for label in row["labels"]}
        for target, rows in zip(panel["targets"], answers):
            place = f"{panel['title']} {target['refId']}"
            if not any(math.isfinite(value) for row in rows for _, value in row["values"]):
                found.append((place, "no data"))
            for row in rows:
                have = together if panel["type"] == "table" else set(row["labels"])
                if missing := needed(panel, target) - have:
                    found.append((place, f"no label {', '.join(sorted(missing))} in {row['labels']}"))
    return found
