// What Grafana's own library makes of data. In: {samples: [[unit, decimals or null, value]], panels: [{panel, variables,
// answers}]}; answers: for each query of the panel what Prometheus answered, [{labels, values: [[seconds, number]]}].
// Out: {units, formatted, panels}; of a panel its frames as it would draw them, each field with name, type, and per row the
// text and colour shown, and where its links lead.
import {createRequire} from "node:module";
import {readFileSync} from "node:fs";

const require = createRequire(`${process.env.WEFT_NPM}/`);
const {JSDOM} = require("jsdom");
const {window} = new JSDOM("<!doctype html>", {url: "http://localhost/"});
const globals = {window, document: window.document, navigator: window.navigator, localStorage: window.localStorage,
  Element: window.Element, HTMLElement: window.HTMLElement};
for (const [name, value] of Object.entries(globals)) Object.defineProperty(globalThis, name, {value, configurable: true});
const grafana = require("@grafana/data");
const {firstValueFrom} = require("rxjs");

const theme = grafana.createTheme();
// One of them stands there under two names.
const transformers = new Map(Object.values(grafana.standardTransformers).map((one) => [one.id, one]));
grafana.standardTransformersRegistry.setInit(() => [...transformers.values()].map((transformation) => (
  {id: transformation.id, name: transformation.name, transformation: () => Promise.resolve(transformation), editor: () => null})));

// As the standard editors of fields do: a value is taken as it is.
const PROPERTIES = ["displayName", "unit", "decimals", "min", "max", "noValue", "links", "mappings", "thresholds", "color"];
const CUSTOM = ["align", "cellOptions", "width", "minWidth", "inspect", "filterable", "fillOpacity", "lineWidth"];
const item = (path, isCustom) => ({id: isCustom ? `custom.${path}` : path, path, name: path, isCustom, editor: () => null,
  override: () => null, process: (value) => value, shouldApply: () => true, settings: {}});
const properties = new grafana.FieldConfigOptionsRegistry(() => [
  ...PROPERTIES.map((path) => item(path, false)), ...CUSTOM.map((path) => item(path, true))]);

// A query's answer as the data source hands it on: a table of now, or a frame for each series.
function framesOf(target, rows, several) {
  if (rows.length > 0 && target.format === "table") {
    const labels = [...new Set(rows.flatMap((row) => Object.keys(row.labels)))].sort();
    return [grafana.toDataFrame({refId: target.refId, fields: [
      {name: "Time", type: "time", values: rows.map((row) => row.values.at(-1)[0] * 1000)},
      ...labels.map((label) => ({name: label, type: "string", values: rows.map((row) => row.labels[label] ?? "")})),
      {name: several ? `Value #${target.refId}` : "Value", type: "number", values: rows.map((row) => row.values.at(-1)[1])},
    ]})];
  }
  return rows.map(({labels, values}) => grafana.toDataFrame({refId: target.refId, fields: [
    {name: "Time", type: "time", values: values.map(([seconds]) => seconds * 1000)},
    {name: "Value", type: "number", labels, values: values.map(([, number]) => number),
      config: {displayNameFromDS: grafana.renderLegendFormat(target.legendFormat, labels)}},
  ]}));
}

// The macros that links use, from the context that the library gives them.
function fill(text, {variables, frame, field, row}) {
  const value = field.display(field.values[row]);
  return text.replace(/\$\{([^}]+)\}/g, (whole, path) => {
    if (path === "__url_time_range") return "from=1&to=2";
    if (path === "__field.name") return field.name;
    if (path === "__value.raw") return String(field.values[row]);
    if (path === "__value.text") return grafana.formattedValueToString(value);
    const label = /^__field\.labels\.(\w+)$/.exec(path);
    if (label) return field.labels?.[label[1]] ?? whole;
    const cell = /^__data\.fields(?:\.(\w+)|\[(\d+)\])$/.exec(path);
    if (cell) return String(grafana.getFieldDisplayValuesProxy({frame, rowIndex: row})[cell[1] ?? cell[2]] ?? whole);
    const parameter = /^(\w+):queryparam$/.exec(path);
    if (parameter) return variables[parameter[1]].map((one) => `var-${parameter[1]}=${encodeURIComponent(one)}`).join("&");
    return whole;
  });
}

async function draw({panel, variables, answers}) {
  const several = answers.filter((rows) => rows.length > 0).length > 1;
  const asked = panel.targets.flatMap((target, i) => framesOf(target, answers[i], several));
  const made = await firstValueFrom(grafana.transformDataFrame(panel.transformations ?? [], asked, {interpolate: (text) => text}));
  const drawn = grafana.applyFieldOverrides({data: made, fieldConfig: panel.fieldConfig, fieldConfigRegistry: properties,
    replaceVariables: (text) => text, theme, timeZone: "utc"});
  return drawn.map((frame) => ({fields: frame.fields.map((field) => ({
    name: field.name,
    shown: grafana.getFieldDisplayName(field, frame, drawn),
    type: field.type,
    custom: field.config.custom ?? {},
    rows: [...field.values].map((raw, row) => {
      const value = field.display(raw);
      return {raw, text: grafana.formattedValueToString(value), color: value.color ?? null,
        links: (field.config.links ?? []).map(({title, url}) => ({
          title: fill(title, {variables, frame, field, row}), url: fill(url, {variables, frame, field, row})}))};
    }),
  }))}));
}

const {samples = [], panels = []} = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify({
  units: grafana.getValueFormats().flatMap((group) => group.submenu.map((unit) => unit.value)),
  formatted: samples.map(([unit, decimals, value]) => grafana.formattedValueToString(grafana.getValueFormat(unit)(value, decimals))),
  panels: await Promise.all(panels.map(draw)),
}));
