"""What a dashboard must keep to: the rules of Grafana's dashboard linter in our own words, and some of this project.

complaints() is pure. Exceptions, each with its reason, stand in dashboards/grafana/lint_exceptions.toml.
"""

import dataclasses
import itertools
import re
import tomllib

from tests import node
from tests.dashboards import grafana_files, rule_files

INTERVAL = "$__rate_interval"
STAND_IN = "7m7s"  # a duration that a parser takes, for one that Grafana fills in
OF_TARGETS = {"job", "instance", "fabric"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# A unit that is made up where it is used, as Grafana's value formats read it.
CUSTOM_UNIT = re.compile(r"(suffix|prefix|time|si|count|currency|bool):.+")


@dataclasses.dataclass(frozen=True)
class Complaint:
    dashboard: str
    rule: str
    place: str
    text: str


@dataclasses.dataclass
class Known:
    """What queries and units are held against."""
    labels: dict  # series name -> its labels
    units: set


def exported():
    """{series name: labels}, from docs/metrics.md."""
    found = {}
    rows = re.findall(r"^\| `(weft_\w+)` \| (\w+) \| \w+ \| (?:`([\w,]+)`)? \|",
                      (rule_files.ROOT / "docs/metrics.md").read_text(), re.M)
    for name, kind, labels in rows:
        own = set(labels.split(",")) if labels else set()
        if kind == "histogram":
            found |= {f"{name}_bucket": own | {"le"}, f"{name}_sum": own, f"{name}_count": own}
        else:
            found[name] = own
    return found


_read = {}


def parsed(expressions):
    """{expression: its errors and selectors}; each is read once."""
    new = sorted(set(expressions) - set(_read))
    if new:
        answers = node.run("dashboards", "promql.mjs", [text.replace(INTERVAL, STAND_IN) for text in new])
        _read.update(zip(new, answers))
    return _read


def exceptions(path=grafana_files.FOLDER / "lint_exceptions.toml"):
    return tomllib.loads(path.read_text())["exception"]


def excepts(exception, complaint):
    return (exception["dashboard"] == complaint.dashboard and exception["rule"] == complaint.rule
            and re.fullmatch(exception.get("place", ".*"), complaint.place) is not None)


def complaints(dashboards, known):
    queries = parsed(text for one in dashboards for _, text in grafana_files.expressions(one))
    found = [*of_all(dashboards)]
    for dashboard in dashboards:
        for rule in (of_dashboard, of_variables, of_panels, of_units, of_layout):
            found += [Complaint(dashboard["uid"], *each) for each in rule(dashboard, known)]
        found += [Complaint(dashboard["uid"], *each) for each in of_queries(dashboard, known, queries)]
        found += [Complaint(dashboard["uid"], *each) for each in of_links(dashboard, dashboards)]
    return found


def of_all(dashboards):
    for what in ("uid", "title"):
        for one, other in itertools.combinations(dashboards, 2):
            if one[what] == other[what]:
                yield Complaint(one["uid"], f"unique-{what}", what, f"{one[what]!r} is twice: the provider would load nothing any more")


def of_dashboard(dashboard, _):
    wanted = {"id": None, "editable": False, "graphTooltip": 1}
    for key, value in wanted.items():
        if dashboard.get(key) != value:
            yield "dashboard", key, f"is {dashboard.get(key)!r}, not {value!r}"
    if not 39 <= dashboard["schemaVersion"] <= 42:
        yield "dashboard", "schemaVersion", "is none that is loaded from 10 to 13"
    if not re.fullmatch(r"[a-z-]{4,40}", dashboard["uid"]):
        yield "dashboard", "uid", "is long or odd for an address"
    for key in ("title", "description", "refresh", "tags", "links"):
        if not dashboard.get(key):
            yield "dashboard", key, "is missing"


def of_variables(dashboard, _):
    variables = grafana_files.variables(dashboard)
    sources = [variable["name"] for variable in variables.values() if variable["type"] == "datasource"]
    if sources != ["datasource"] or variables["datasource"]["query"] != "prometheus":
        yield "template-datasource", "variables", "not exactly one for the data source, named datasource, of Prometheus"
    for name in ("job", "instance"):
        if name not in variables:
            yield f"template-{name}", name, "there is no such variable"
    for name, variable in variables.items():
        if variable["type"] != "query":
            continue
        place = f"variable {name}"
        if variable["datasource"] != DATASOURCE:
            yield "template-datasource", place, "does not ask the chosen data source"
        if variable["refresh"] != 2:
            yield "template-refresh", place, "does not follow the time range"
        if not (variable["multi"] and variable["includeAll"]):
            yield "template-several", place, "only one can be chosen"
        elif variable["allValue"] not in (".+", ".*"):
            yield "template-several", place, "All would be a list of every value"


def of_panels(dashboard, _):
    for panel in grafana_files.panels(dashboard):
        place = panel["title"] or f"panel {panel['id']}"
        for key in ("title", "description"):
            if not panel.get(key):
                yield f"panel-{key}", place, "is missing"
        for one in (panel, *panel["targets"]):
            if one.get("datasource") != DATASOURCE:
                yield "panel-datasource", place, "does not ask the chosen data source"
        if sum(panel["title"] == other["title"] for other in grafana_files.panels(dashboard)) > 1:
            yield "panel-title", place, "stands over two panels"
        if not panel["targets"]:
            yield "panel-targets", place, "asks nothing"
        if len({target["refId"] for target in panel["targets"]}) != len(panel["targets"]):
            yield "panel-targets", place, "two queries have one refId"


def of_units(dashboard, known):
    for panel in grafana_files.panels(dashboard):
        units, mappings = grafana_files.fields_of(panel, "unit"), grafana_files.fields_of(panel, "mappings")
        if panel["type"] == "heatmap":
            units["y axis"] = panel["options"]["yAxis"].get("unit")
        for field, unit in units.items():
            if unit not in known.units and not CUSTOM_UNIT.fullmatch(unit or ""):
                yield "panel-units", panel["title"], f"{field or 'all fields'}: no unit of Grafana: {unit!r}"
        # A table has a unit for each column of numbers; those that are left out show none.
        left_out = {name for step in panel.get("transformations", []) if step["id"] == "organize"
                    for name, out in step["options"]["excludeByName"].items() if out}
        columns = {f"Value #{target['refId']}" for target in panel["targets"]} if len(panel["targets"]) > 1 else {"Value"}
        wanted = columns - left_out if panel["type"] == "table" else {None}
        if panel["type"] == "heatmap" or None in units or None in mappings:
            continue
        for field in sorted(wanted - set(units) - set(mappings), key=str):
            yield "panel-units", panel["title"], f"{field or 'all fields'}: no unit and no words for values"


def of_layout(dashboard, _):
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(set(ids)) != len(ids):
        yield "layout", "panels", "two have one id"
    for panel in dashboard["panels"]:
        box = panel["gridPos"]
        if box["x"] + box["w"] > 24:
            yield "layout", panel["title"], "is wider than the page"
    for one, other in itertools.combinations(dashboard["panels"], 2):
        a, b = one["gridPos"], other["gridPos"]
        if a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]:
            yield "layout", one["title"], f"lies over {other['title']}"


def of_queries(dashboard, known, queries):
    variables = grafana_files.variables(dashboard)
    used = set()
    for place, text in grafana_files.expressions(dashboard):
        used |= set(re.findall(r"\$([a-z_]\w*)", text.replace(INTERVAL, "")))
        for error in queries[text]["errors"]:
            yield "promql", place, f"cannot be read near {error!r}"
        for selector in queries[text]["selectors"]:
            if selector["range"] not in (None, STAND_IN):
                yield "rate-interval", place, f"a range that is not {INTERVAL}: {selector['range']}"
            yield from of_selector(place, selector, known, place.startswith("variable"))
    used |= {name for panel in grafana_files.panels(dashboard) for link in grafana_files.links(panel)
             for name in re.findall(r"\$\{(\w+):queryparam\}", link["url"])}
    for name in sorted(used - set(variables)):
        yield "variables", name, "is used and not there"
    for name in sorted(set(variables) - used - {"datasource"}):
        yield "variables", name, "is there and not used"


def of_selector(place, selector, known, in_variable):
    metric = selector["metric"]
    if metric not in known.labels:
        yield "metric", place, f"{metric} is exported by nobody"
        return
    matched = {(each["label"], each["operator"], each["value"]) for each in selector["matchers"]}
    for label in sorted({label for label, _, _ in matched} - known.labels[metric] - OF_TARGETS):
        yield "label", place, f"{metric} has no label {label}"
    # Variables choose one after the other: what comes first cannot ask for what comes later.
    for label in () if in_variable else ("job", "instance"):
        if (label, "=~", f"${label}") not in matched:
            yield f"target-{label}", place, f"{metric} is not held to {label}=~\"${label}\""
    counter = re.search(r"_(total|bucket|sum|count)$", metric)
    # group() only asks whether there is one.
    if counter and not {"rate", "irate", "increase", "group"} & set(selector["inside"]):
        yield "counter", place, f"{metric} is a counter and used as it is"


def of_links(dashboard, dashboards):
    others = {one["uid"]: one for one in dashboards}
    for panel in grafana_files.panels(dashboard):
        for link in grafana_files.links(panel):
            found = re.fullmatch(r"/d/([\w-]+)\?(.+)", link["url"])
            if not found or found[1] not in others:
                yield "links", panel["title"], f"{link['url']} leads to no dashboard of ours"
                continue
            parts = found[2].split("&")
            if "${__url_time_range}" not in parts:
                yield "links", panel["title"], f"{link['title']} loses the time range"
            there = grafana_files.variables(others[found[1]])
            named = {name for part in parts for name in re.findall(r"^\$\{(\w+):queryparam\}$|^var-(\w+)=", part)}
            carried = {one or other for one, other in named}
            for name in sorted(carried - set(there)):
                yield "links", panel["title"], f"{link['title']} sets {name}, which {found[1]} does not have"
            for name in sorted({"datasource", "fabric", "job", "aggregator"} - carried):
                yield "links", panel["title"], f"{link['title']} loses {name}"
