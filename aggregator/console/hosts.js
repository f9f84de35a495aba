// The list of hosts, and the page of one.
import {by, el, put, putWhenChanged, table} from "./dom.js";
import {cards} from "./findings.js";
import {natural} from "./draw.js";
import {ask, list} from "./source.js";
import {clock, count, duration, rate, share, span} from "./words.js";

const MOST = 300;  // of a list that is searched, not read

/** Findings whose subject is on the host, or that hit it. */
export function concerns(finding, host) {
  const names = (subject) => subject.slice(subject.indexOf(":") + 1).split(/>/).map((end) => end.split("/")[0].split("%")[0]);
  return [finding.subject, ...finding.victims].some((subject) => !subject.startsWith("job:") && names(subject).includes(host));
}

export function showHosts(hosts, findings) {
  const wanted = by("host-filter").value.trim().toLowerCase();
  const own = new Set(findings.filter((f) => f.kind !== "cannot_measure")
    .flatMap((f) => f.subject.slice(f.subject.indexOf(":") + 1).split(">").map((end) => end.split("/")[0])));
  const bad = (h) => (own.has(h.host) ? 0 : h.state === "reporting" ? 2 : 1);
  const found = hosts.filter((h) => h.host.toLowerCase().includes(wanted)).sort((a, b) => bad(a) - bad(b) || natural(a.host, b.host));
  const shown = found.slice(0, MOST);
  by("hosts-count").textContent = `${count(found.length, "host")}${wanted ? ` of ${hosts.length}` : ""}` +
    `${shown.length < found.length ? `, the first ${MOST} shown: type a part of a name` : ""}`;
  putWhenChanged(by("hosts"), shown.map((h) => [h.host, h.state, bad(h), h.pod]), () => el("ul", {class: "host-list"}, shown.map((h) =>
    el("li", null, el("a", {href: `#/host/${encodeURIComponent(h.host)}`, class: ["bad", "away", null][bad(h)]}, h.host, " ",
      el("span", null, own.has(h.host) ? "finding" : h.state, h.pod ? `, ${h.pod}` : ""))))));
}

function facts(rows) {
  return el("dl", null, rows.map(([name, value]) => [el("dt", null, name), el("dd", null, value)]));
}

export async function showHost(page, name, context) {
  let host;
  try {
    ({host} = await ask(`/api/v1/hosts/${encodeURIComponent(name)}`));
  } catch (error) {
    // What is known of it stays when the aggregator goes; the banner says that it is stale.
    if (page.dataset.host !== name && context.shown() === name) {
      delete page.dataset.host;
      put(page, el("h2", null, `Host ${name}`), el("p", {class: "none"}, `Not shown: ${error.message}`));
    }
    return;
  }
  const pattern = encodeURIComponent(`${name.replaceAll("*", "")}/*`);
  const [out, home] = await Promise.all([list(`/api/v1/mesh?from=${pattern}`, "mesh"), list(`/api/v1/mesh?to=${pattern}`, "mesh")]);
  if (context.shown() !== name) return;
  if (page.dataset.host !== name) {
    put(page, el("p", null, el("a", {href: "#/"}, "\u2190 Fabric")), el("h2", {id: "host-title", tabindex: "-1"}, `Host ${name}`),
      el("div", {id: "host-facts"}), el("h2", null, "Findings that concern it"), el("div", {id: "host-findings"}),
      el("h2", null, "What cannot be measured there"), el("div", {id: "host-limits"}), el("h2", null, "Devices"), el("div", {id: "host-devices"}),
      el("h2", null, "Probes from and to it"), el("div", {id: "host-mesh"}));
    page.dataset.host = name;
    by("host-title").focus({preventScroll: true});
  }
  const health = host.health;
  const heard = host.last_contact ? (context.now() - Date.parse(host.last_contact)) / 1000 : null;
  put(by("host-facts"), el("div", {class: "card"}, facts([
    ["state", `${host.state}${heard === null ? ", never heard" : heard > 3 ? `, last heard ${span(heard)} ago (${clock(host.last_contact)})` : ""}`],
    ["place", [host.pod && `pod ${host.pod}`, host.rail && `rail ${host.rail}`].filter(Boolean).join(", ") || "not told by the topology file"],
    ["runs", `weftd ${host.version || "unknown"} on kernel ${host.kernel || "unknown"}`],
    ["scheduling", health ? `longest gap ${duration(health.max_gap_ns)}${health.cpu_pressure_some === null ? "" : `, CPU pressure ${(100 * health.cpu_pressure_some).toFixed(0)} %`}` : "not known"],
  ])));
  const own = context.findings.filter((f) => f.state === "active" && concerns(f, name));
  if (own.length) cards(by("host-findings"), own, context);
  else putWhenChanged(by("host-findings"), "none", () => el("p", {class: "quiet"}, "None active."));
  if (own.length) delete by("host-findings").dataset.key;
  putWhenChanged(by("host-limits"), host.limitations, () => (host.limitations.length
    ? table(null, [{name: "what", of: (l) => l.subject}, {name: "why", of: (l) => l.why}, {name: "how to get it", of: (l) => l.how}], host.limitations)
    : el("p", {class: "quiet"}, "Nothing that its agent knows of.")));
  const ports = host.devices.flatMap((d) => d.ports.map((p) => ({...p, device: d})));
  putWhenChanged(by("host-devices"), [host.devices, host.endpoints], () => (ports.length ? table(null, [
    {name: "port", of: (p) => `${p.device.name}/${p.number}`}, {name: "driver", of: (p) => p.device.driver || "unknown"},
    {name: "state", of: (p) => p.state}, {name: "rate", of: (p) => rate(p.rate_bits_per_s)}, {name: "layer", of: (p) => p.link_layer},
    {name: "interface", of: (p) => p.netdev || "none"},
    {name: "probed at", of: (p) => host.endpoints.filter((e) => e.device === p.device.name).map((e) => `${e.address} (${e.transport})`).join(", ") || "not probed"},
  ], ports) : el("p", {class: "quiet"}, host.endpoints.length ? `No RDMA device; probed over ${host.endpoints.map((e) => `${e.transport} at ${e.address}`).join(", ")}.` : "None known.")));
  const pairs = [...out, ...home.filter((c) => !c.from.startsWith(`${name}/`))].sort((a, b) => (a.state === "ok") - (b.state === "ok") || natural(a.from, b.from) || natural(a.to, b.to));
  put(by("host-mesh"), pairs.length ? table(null, [
    {name: "from", of: (c) => c.from}, {name: "to", of: (c) => c.to}, {name: "state", of: (c) => c.state},
    {name: "lost", number: true, of: (c) => `${c.lost} of ${c.sent} (${share(c.lost, c.sent)})`},
    {name: "round trip", number: true, of: (c) => duration(c.rtt_median_ns)}, {name: "p90", number: true, of: (c) => duration(c.rtt_p90_ns)},
    {name: "paths", number: true, of: (c) => c.paths},
  ], pairs.slice(0, 200)) : el("p", {class: "quiet"}, "No pair is probed now."));
}
