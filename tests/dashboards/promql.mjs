// Reads PromQL as Prometheus' own editor does. In: expressions. Out, for each: where it is wrong, and its selectors, each
// with its matchers, its range, and the functions and aggregations it stands in, innermost first.
import {createRequire} from "node:module";
import {readFileSync} from "node:fs";

const {parser} = createRequire(`${process.env.WEFT_NPM}/`)("@prometheus-io/lezer-promql");

function read(text) {
  const errors = [];
  const selectors = [];
  const word = (node) => text.slice(node.from, node.to);
  parser.parse(text).iterate({enter({node}) {
    if (node.type.isError) errors.push(text.slice(Math.max(0, node.from - 20), node.to + 20));
    if (node.name !== "VectorSelector") return;
    const name = node.getChild("Identifier");
    const matchers = (node.getChild("LabelMatchers")?.getChildren("UnquotedLabelMatcher") ?? []).map((matcher) => ({
      label: word(matcher.getChild("LabelName")),
      operator: word(matcher.getChild("MatchOp")),
      value: word(matcher.getChild("StringLiteral")).slice(1, -1),
    }));
    const inside = [];
    let range = null;
    for (let at = node.parent; at; at = at.parent) {
      if (at.name === "MatrixSelector") range = word(at.getChild("DurationExpr") ?? at.lastChild);
      if (at.name === "FunctionCall") inside.push(word(at.getChild("FunctionIdentifier")));
      if (at.name === "AggregateExpr") inside.push(word(at.getChild("AggregateOp")));
    }
    selectors.push({metric: name ? word(name) : null, matchers, range, inside});
  }});
  return {errors, selectors};
}

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(read)));
