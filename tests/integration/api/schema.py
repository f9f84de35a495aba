"""Checks JSON against the part of JSON Schema 2020-12 that docs/openapi.json uses; any other keyword is an error."""

import re

_TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")
_KNOWN = {"type", "const", "enum", "required", "properties", "additionalProperties", "items", "anyOf", "allOf", "$ref",
          "minimum", "maximum", "minLength", "maxLength", "pattern", "format", "description", "default"}


class Checker:
    def __init__(self, document):
        self.document = document

    def resolve(self, node):
        while "$ref" in node:
            path = node["$ref"]
            if not path.startswith("#/"):
                raise ValueError(f"only references into the document: {path}")
            node = self.document
            for part in path[2:].split("/"):
                node = node[part]
        return node

    def problems(self, value, schema, at="$"):
        """Every place where value is not as the schema says, as text."""
        schema = self.resolve(schema)
        unknown = set(schema) - _KNOWN
        if unknown:
            raise ValueError(f"{at}: keywords that are not checked: {unknown}")
        out = list(self._plain(value, schema, at))
        if isinstance(value, dict):
            out += self._object(value, schema, at)
        if isinstance(value, list) and "items" in schema:
            for i, item in enumerate(value):
                out += self.problems(item, schema["items"], f"{at}[{i}]")
        for part in schema.get("allOf", []):
            out += self.problems(value, part, at)
        choices = [self.problems(value, part, at) for part in schema.get("anyOf", [])]
        if choices and all(choices):
            out.append(f"{at}: none of: " + " | ".join("; ".join(c) for c in choices))
        return out

    def _plain(self, value, schema, at):
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if types and not any(_TYPES[t](value) for t in types):
            yield f"{at}: {value!r} is no {' or '.join(types)}"
        if "const" in schema and value != schema["const"]:
            yield f"{at}: {value!r} is not {schema['const']!r}"
        if "enum" in schema and value not in schema["enum"]:
            yield f"{at}: {value!r} is none of {schema['enum']}"
        if isinstance(value, str):
            if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
                yield f"{at}: {value!r} has a wrong length"
            if "pattern" in schema and not re.search(schema["pattern"], value):
                yield f"{at}: {value!r} does not match {schema['pattern']}"
            if schema.get("format") == "date-time" and not _TIME.match(value):
                yield f"{at}: {value!r} is no time"
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
                yield f"{at}: {value!r} is out of range"

    def _object(self, value, schema, at):
        out = [f"{at}: {name!r} is missing" for name in schema.get("required", []) if name not in value]
        known = schema.get("properties", {})
        for name, item in value.items():
            rest = schema.get("additionalProperties", True)
            if name in known:
                out += self.problems(item, known[name], f"{at}.{name}")
            elif rest is False:
                out.append(f"{at}: {name!r} is not described")
            elif isinstance(rest, dict):
                out += self.problems(item, rest, f"{at}.{name}")
        return out
