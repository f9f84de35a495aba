"""The rendered dashboards of dashboards/grafana, and what stands in them."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dashboards/grafana"
RENDERED = FOLDER / "rendered"


def dashboards():
    return [json.loads(path.read_text()) for path in sorted(RENDERED.glob("*.json"))]


def panels(dashboard):
    """Panels that show something; lines between them are left out."""
    for panel in dashboard["panels"]:
        yield from (panel["panels"] if panel["type"] == "row" else [panel])


def variables(dashboard):
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def inner_query(variable):
    """(what is asked of the metrics, the expression, the label or None) of a query variable."""
    text = variable["query"]["query"]
    if found := re.fullmatch(r"label_values\((.+), (\w+)\)", text, re.S):
        return "label_values", found[1], found[2]
    if found := re.fullmatch(r"query_result\((.+)\)", text, re.S):
        return "query_result", found[1], None
    raise AssertionError(f"variable {variable['name']}: a query of a kind that is not used here: {text}")


def expressions(dashboard):
    """(where, expression) of every query: of panels, variables and annotations."""
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for name, variable in variables(dashboard).items():
        if variable["type"] == "query":
            yield f"variable {name}", inner_query(variable)[1]
    for annotation in dashboard["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["target"]["expr"]


def links(panel):
    """Data links of a panel, of all its fields and of single ones."""
    config = panel["fieldConfig"]
    yield from config["defaults"].get("links", [])
    for override in config["overrides"]:
        for one in override["properties"]:
            if one["id"] == "links":
                yield from one["value"]


def fields_of(panel, name):
    """What a panel sets as this property of its fields: of all, and of single ones by name."""
    config = panel["fieldConfig"]
    found = {}
    if name in config["defaults"]:
        found[None] = config["defaults"][name]
    for override in config["overrides"]:
        for one in override["properties"]:
            if one["id"] == name:
                found[override["matcher"]["options"]] = one["value"]
    return found
