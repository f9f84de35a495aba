// Holds dashboards to the types of Grafana's schema. In: dashboards. Out: for each what the TypeScript compiler says.
import {createRequire} from "node:module";
import {readFileSync} from "node:fs";

const require = createRequire(`${process.env.WEFT_NPM}/`);
const ts = require("typescript");

// The names of panels in dashboards, and of their types in the schema.
const KINDS = {heatmap: "Heatmap", stat: "Stat", "state-timeline": "StateTimeline", table: "Table", timeseries: "TimeSeries"};
const custom = {stat: "{}"};  // it has no options of single fields

// JSON has the values of enums and not their names; and what has a default may be left out.
const head = `import type * as grafana from "@grafana/schema";
${Object.values(KINDS).map((name) => `import type * as ${name} from "@grafana/schema/dist/esm/raw/composable/${name.toLowerCase()}/panelcfg/x/${name}PanelCfg_types.gen";`).join("\n")}
type Plain<T> = unknown extends T ? T : T extends string ? \`\${T}\` : T extends number | boolean | null | undefined ? T
  : T extends (infer U)[] ? Plain<U>[] : {[K in keyof T]?: Plain<T[K]>};
type Dashboard = Plain<Omit<grafana.Dashboard, "panels" | "annotations">>;
type PromQuery = {refId: string, datasource?: grafana.DataSourceRef, expr: string, legendFormat?: string, editorMode?: "code",
  range?: boolean, instant?: boolean, format?: "time_series" | "table" | "heatmap", interval?: string};
type Annotation = Plain<Omit<grafana.AnnotationQuery, "target">> & {target: PromQuery, titleFormat: string, textFormat: string,
  tagKeys: string, useValueForTime: boolean};
type Panel<T extends string, Options, Custom> = Plain<Omit<grafana.Panel, "type" | "targets" | "options" | "fieldConfig">> & {
  type: T, targets: PromQuery[], options: Plain<Options>, fieldConfig: {defaults: Plain<Omit<grafana.FieldConfig, "custom" | "links">>
  & {custom?: Plain<Custom>, links?: {title: string, url: string, targetBlank: boolean}[]},
  overrides: Plain<grafana.FieldConfigSource["overrides"]>}};
`;

function source(dashboard) {
  const {panels, annotations, ...rest} = dashboard;
  const typeOf = ({type}) => (type === "row" ? "Plain<grafana.RowPanel>"
    : `Panel<"${type}", ${KINDS[type]}.Options, ${custom[type] ?? `${KINDS[type]}.FieldConfig`}>`);
  const parts = [["dashboard", "Dashboard", rest], ...annotations.list.map((one) => [one.name, "Annotation", one]),
    ...panels.map((panel) => [panel.title, typeOf(panel), panel])];
  return parts.reduce((text, [name, type, value], i) => `${text}const part_${i}: ${type} = // ${name}\n${JSON.stringify(value)};\n`, head);
}

function check(dashboards) {
  const texts = new Map(dashboards.map((one, i) => [`${process.env.WEFT_NPM}/dashboard_${i}.ts`, source(one)]));
  const options = {noEmit: true, strict: true, skipLibCheck: true, types: [], target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler};
  const host = ts.createCompilerHost(options);
  const {fileExists, readFile, getSourceFile} = host;
  host.fileExists = (name) => texts.has(name) || fileExists(name);
  host.readFile = (name) => texts.get(name) ?? readFile(name);
  host.getSourceFile = (name, version, ...more) => (
    texts.has(name) ? ts.createSourceFile(name, texts.get(name), version) : getSourceFile(name, version, ...more));
  const said = ts.getPreEmitDiagnostics(ts.createProgram([...texts.keys()], options, host));
  return [...texts.keys()].map((name) => said.filter((one) => one.file === undefined || one.file.fileName === name)
    .map((one) => {
      const names = one.file?.text.slice(0, one.start).match(/(?<= = \/\/ ).*/g);
      return `${names?.at(-1) ?? "all"}: ${ts.flattenDiagnosticMessageText(one.messageText, "\n")}`;
    }));
}

process.stdout.write(JSON.stringify(check(JSON.parse(readFileSync(0, "utf8")))));
