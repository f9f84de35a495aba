// The list of findings as cards: what, since when, evidence, who is hit, what was not checked, what to do first.
import {el, put, putWhenChanged} from "./dom.js";
import {ask} from "./source.js";
import {KINDS, MARKS, RANK, clock, count, dateAndClock, evidence, span} from "./words.js";

const MOST = 50;  // cards at once; a page with more is read by nobody

export const active = (findings) => findings.filter((f) => f.state === "active")
  .sort((a, b) => RANK[a.severity] - RANK[b.severity] || Date.parse(b.raised_at) - Date.parse(a.raised_at));

function shortList(items, most, make, style = null) {
  const shown = items.slice(0, most).map((item) => el("li", null, make(item)));
  const rest = items.slice(most);
  if (rest.length) {
    shown.push(el("li", null, el("details", null, el("summary", null, `${rest.length} more`),
      el("ul", {class: style}, rest.map((item) => el("li", null, make(item)))))));
  }
  return el("ul", {class: style}, shown);
}

/** A subject, as a link where it is or has a host. */
export function subject(text, hosts) {
  const rest = text.slice(text.indexOf(":") + 1);
  const type = text.slice(0, text.indexOf(":"));
  const names = {host: [rest], rnic: [rest.split("/")[0]], port: [rest.split("/")[0]], link: rest.split(">"), pair: rest.split(">")}[type] || [];
  const host = names.map((n) => n.split("/")[0]).find((n) => hosts.has(n));
  return host ? el("a", {class: "subject", href: `#/host/${encodeURIComponent(host)}`}, text) : el("span", {class: "subject"}, text);
}

// What people said of it.
function marks(finding) {
  const tag = (...words) => el("span", {class: "tag plain"}, words.filter(Boolean).join(" "));
  const until = (at) => at && `until ${clock(at)}`;
  const {mark, muted_by: mute, silenced_by: silences} = finding;
  return [
    mark && mark.mark === "false_alarm" ? tag("false alarm", mark.by && `says ${mark.by}`)
      : finding.acknowledged ? tag("acknowledged", mark && mark.by && `by ${mark.by}`) : null,
    mute ? tag("muted", mute.by && `by ${mute.by}`, until(mute.until), mute.reason && `(${mute.reason})`) : null,
    (silences || []).map((s) => tag("silenced in Alertmanager", s.by && `by ${s.by}`, until(s.until))),
  ];
}

function acknowledgeButton(finding, done) {
  const said = el("span", {class: "quiet", role: "status"});
  const button = el("button", {type: "button", onclick: async () => {
    button.disabled = true;
    try {
      await ask(`/api/v1/findings/${encodeURIComponent(finding.id)}/ack`, "POST");
      done();
    } catch (error) {
      put(said, `Not acknowledged: ${error.message}. On a shell: weft findings --ack ${finding.id}`);
      button.disabled = false;
    }
  }}, "I am on it");
  return el("p", null, button, " ", said);
}

function body(finding, hosts, done) {
  const rows = [];
  const row = (name, content) => rows.push(el("dt", null, name), el("dd", null, content));
  row("confidence", finding.confidence === null ? "unknown" : `${Math.round(100 * finding.confidence)} %`);
  if (finding.evidence.length) {
    const window = finding.evidence.find((item) => item.window_s);
    row("evidence", finding.evidence.map(evidence).join(", ") + (window ? ` (over ${span(window.window_s)})` : ""));
  }
  row("hit", finding.victims.length ? shortList(finding.victims, 8, (v) => subject(v, hosts), "inline") : "nobody known");
  row("not checked", finding.not_checked.length ? shortList(finding.not_checked, 4, (text) => text) : "nothing named");
  if (finding.look_first) row("look first", finding.look_first);
  row("runbook", [el("span", {class: "subject"}, finding.runbook), finding.runbook_url && /^https?:/.test(finding.runbook_url)
    ? [" ", el("a", {href: finding.runbook_url, rel: "noreferrer"}, "open")] : null]);
  return [el("p", null, finding.summary), el("dl", null, rows),
    finding.state === "active" && !finding.acknowledged ? acknowledgeButton(finding, done) : null];
}

export function when(finding, now) {
  if (finding.state === "cleared") return `${dateAndClock(finding.since)} to ${clock(finding.until)}`;
  return `for ${span((now - Date.parse(finding.since)) / 1000)}, since ${clock(finding.since)}`;
}

function card(finding, context) {
  const severity = finding.state === "cleared" ? "cleared" : finding.severity;
  return el("article", {class: `card ${severity}`, "data-id": finding.id, tabindex: "-1",
    "aria-label": `${finding.state} ${finding.severity}: ${KINDS[finding.kind] || finding.kind}, ${finding.subject}`},
    el("h3", null, el("span", {class: `tag ${severity}`}, `${MARKS[finding.severity] || ""} ${severity.toUpperCase()}`),
      el("span", null, KINDS[finding.kind] || finding.kind), subject(finding.subject, context.hosts), marks(finding)),
    el("p", {class: "when"}, when(finding, context.now())),
    body(finding, context.hosts, context.acknowledged));
}

// What keys reach in a card: the place of the focus, which a fresh card must not lose.
const reached = (node) => [...node.querySelectorAll("a[href], button, summary")];

/** Cards into parent; those that have not changed keep their elements. */
export function cards(parent, findings, context) {
  const before = new Map([...parent.querySelectorAll(":scope > .card")].map((node) => [node.dataset.id, node]));
  const fresh = parent.dataset.filled === "yes";
  const shown = findings.slice(0, MOST).map((finding) => {
    const key = JSON.stringify({...finding, last_seen_at: null});
    const known = before.get(finding.id);
    if (known && known.dataset.key === key) return known;
    const focused = known && known.contains(document.activeElement) ? reached(known).indexOf(document.activeElement) : null;
    const made = card(finding, context);
    made.dataset.key = key;
    if (!known && fresh && finding.state === "active") made.classList.add("fresh");
    if (focused !== null) queueMicrotask(() => (reached(made)[focused] || made).focus({preventScroll: true}));
    // What the reader has opened stays open.
    const open = known ? [...known.querySelectorAll("details")].map((d) => d.open) : [];
    [...made.querySelectorAll("details")].forEach((d, i) => { d.open = Boolean(open[i]); });
    return made;
  });
  if (findings.length > MOST) shown.push(el("p", {class: "quiet"}, `${count(findings.length - MOST, "more finding")}: weft findings lists them all`));
  parent.dataset.filled = "yes";
  if (shown.length !== parent.children.length || shown.some((node, i) => parent.children[i] !== node)) put(parent, shown);
}

export function tick(parent, findings, now) {
  const known = new Map(findings.map((f) => [f.id, f]));
  for (const node of parent.querySelectorAll(".card")) {
    const finding = known.get(node.dataset.id);
    const text = finding && when(finding, now);
    const place = node.querySelector(".when");
    if (text && place.textContent !== text) place.textContent = text;
  }
}

/** What an empty list means: healthy only when everything was looked at. */
export function nothing(status) {
  const {coverage, agents} = status;
  if (coverage.ready) {
    return el("p", {class: "none good"}, `\u2714 Nothing found. ${count(agents.reporting, "agent")} report, and all ${count(coverage.links, "link")} have probes enough to tell.`);
  }
  return el("p", {class: "none"}, "Nothing found, but not everything was checked: this is not \u201chealthy\u201d yet.");
}

/** In few words, for the top of the page; empty when all was checked. */
export function uncheckedShortly({coverage, agents}) {
  const parts = [coverage.links > coverage.covered && `${count(coverage.links - coverage.covered, "link")} of ${coverage.links.toLocaleString("en-US")}`,
    agents.expected > agents.reporting && `${count(agents.expected - agents.reporting, "host")} of ${agents.expected.toLocaleString("en-US")}`].filter(Boolean);
  return parts.length ? `\u25cc not checked: ${parts.join(", ")}` : coverage.links ? "" : "\u25cc not checked: no link is known";
}

export function unchecked(parent, status, findings) {
  const {coverage, agents} = status;
  const lines = [];
  if (agents.expected > agents.reporting) lines.push(`${count(agents.expected - agents.reporting, "host")} of ${agents.expected} without a report`);
  if (coverage.links > coverage.covered) lines.push(`${count(coverage.links - coverage.covered, "link")} of ${coverage.links} with too few probes`);
  if (coverage.links === 0) lines.push("no link is known yet: neither a topology file nor traces");
  if (!status.store.acknowledging) lines.push(`nothing can be stored (${status.store.problem || "reason unknown"}): agents keep what they have`);
  const blind = findings.filter((f) => f.kind === "cannot_measure");
  if (blind.length) lines.push(`${count(blind.length, "finding")} of what cannot be measured, in the list above`);
  putWhenChanged(parent, [lines, coverage.uncovered], () => [
    lines.length ? el("ul", null, lines.map((line) => el("li", null, line))) : el("p", {class: "quiet"}, "Every known host reports and every known link has probes enough. Counters of switch ports are never read."),
    coverage.uncovered.length ? el("details", null, el("summary", null, "Which links"), el("ul", null,
      coverage.uncovered.map((link) => el("li", {class: "subject"}, link)))) : null,
  ]);
}
