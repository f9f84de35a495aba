// The page: what is known, what is shown of it, and where keys lead.
import {by, putWhenChanged} from "./dom.js";
import {active, cards, nothing, tick, unchecked, uncheckedShortly} from "./findings.js";
import {HeatMap, meshPath} from "./heat.js";
import {FabricMap} from "./map.js";
import {showHost, showHosts} from "./hosts.js";
import {Source, ask, list} from "./source.js";
import {MARKS, clock, count, span} from "./words.js";

const known = {status: null, findings: [], links: [], hosts: [], mesh: []};

const context = {
  hosts: new Set(),
  now: () => source.now(),
  acknowledged: () => source.run(readFindings),
  shown: () => route().name,
  get findings() { return known.findings; },
};

const map = new FabricMap(by("map"), by("map-said"), by("map-legend"), (place) => {
  if (place.tier === 0) location.hash = `#/host/${encodeURIComponent(place.name)}`;
  else if (place.findings.length) document.querySelector(`#findings [data-id="${CSS.escape(place.findings[0].id)}"]`)?.focus();
});
const heat = new HeatMap(by("heat"), by("heat-said"), by("heat-of"), by("heat-legend"));

const source = new Source({
  status: (document_) => { known.status = document_; showStatus(); },
  findings: readFindings,
  rest: readRest,
  changed: showFreshness,
});

async function readFindings() {
  const [now, before] = await Promise.all([list("/api/v1/findings?state=active&limit=500", "findings"),
    ask("/api/v1/findings?state=cleared&limit=20")]);
  known.findings = [...now, ...before.findings];
  showFindings();
  showPage();
}

async function readRest() {
  const page = location.hash;
  known.hosts = await list("/api/v1/hosts?detail=brief", "hosts");
  context.hosts = new Set(known.hosts.map((h) => h.host));
  if (page.startsWith("#/host")) {
    showPage();
    return;
  }
  [known.links, known.mesh] = await Promise.all([list("/api/v1/links", "links"), list(meshPath(known.hosts.length), "mesh")]);
  showPage();
}

function showStatus() {
  const {status} = known;
  by("fabric").textContent = status.fabric;
  showVerdict();
  unchecked(by("unchecked"), status, active(known.findings));
  if (!active(known.findings).length) showFindings();
}

function showVerdict() {
  const standing = active(known.findings), {status} = known;
  const critical = standing.filter((f) => f.severity === "critical").length;
  const warning = standing.filter((f) => f.severity === "warning").length;
  let text, level;
  if (critical || warning) {
    level = critical ? "critical" : "warning";
    text = [critical && `${MARKS.critical} ${critical} critical`, warning && `${MARKS.warning} ${count(warning, "warning")}`].filter(Boolean).join("   ");
  } else if (!status) {
    [level, text] = ["warning", "asking"];
  } else if (status.coverage.ready) {
    [level, text] = ["good", "\u2714 nothing found, all checked"];
  } else {
    [level, text] = ["warning", "nothing found so far"];
  }
  const blind = status ? uncheckedShortly(status) : "";
  by("unchecked-shortly").textContent = blind;
  by("unchecked-shortly").hidden = blind === "";
  const place = by("verdict");
  if (place.textContent !== text) place.textContent = text;
  place.className = `verdict ${level}`;
  document.title = `${critical ? `(${critical}) ` : ""}weft ${status?.fabric || ""}`;
}

function showFindings() {
  const standing = active(known.findings), past = known.findings.filter((f) => f.state === "cleared");
  if (standing.length) {
    delete by("findings").dataset.key;
    cards(by("findings"), standing, context);
  } else if (known.status) {
    by("findings").dataset.filled = "yes";
    putWhenChanged(by("findings"), known.status.coverage, () => nothing(known.status));
  }
  by("past-count").textContent = `(${past.length})`;
  cards(by("cleared"), past, context);
  showVerdict();
  if (known.status) unchecked(by("unchecked"), known.status, standing);
}

function showFreshness() {
  const stale = source.staleSince !== null;
  document.body.classList.toggle("is-stale", stale);
  const banner = by("stale");
  if (stale) {
    const why = source.why || "it judges no more";
    const text = `Stale since ${clock(source.staleSince)} (${span((Date.now() - source.staleSince) / 1000)}): the aggregator is not reached or stands still \u2014 ${why}. What you see is from then. On the hosts: weft status, weft mesh --direct HOST...`;
    // The seconds that pass are shown, but not read out again and again.
    banner.setAttribute("aria-live", banner.hidden ? "assertive" : "off");
    if (banner.textContent !== text) banner.textContent = text;
  }
  banner.hidden = !stale;
  const words = {connecting: "connecting", live: "\u25cf live", polling: "\u25cb polling every 3 s", down: "\u2715 no answer"}[source.mode];
  by("live").textContent = `${stale ? "\u2715 stale" : words}${source.judgedAt ? `, judged ${clock(source.judgedAt)}` : ""}`;
  tick(document.body, known.findings, source.now());
}

const route = () => {
  const [, page, name] = location.hash.split("/");
  if (page === "hosts") return {page: "hosts"};
  if (page === "host" && name) {
    try {
      return {page: "host", name: decodeURIComponent(name)};
    } catch {
      return {page: "hosts"};
    }
  }
  return {page: "fabric"};
};

function showPage() {
  const {page, name} = route();
  for (const which of ["fabric", "hosts", "host"]) by(`page-${which}`).hidden = which !== page;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (page === "fabric") {
    map.show(known.links, known.hosts, active(known.findings));
    heat.show(known.mesh);
  } else if (page === "hosts") {
    showHosts(known.hosts, active(known.findings));
  } else {
    source.run(() => showHost(by("page-host"), name, context));
  }
}

let searching = false;  // the list of hosts is opened to type a name
addEventListener("hashchange", () => {
  showPage();
  if (route().page === "fabric") source.run(readRest);
  if (route().page !== "host") by(searching ? "host-filter" : "main").focus({preventScroll: true});
  searching = false;
});
addEventListener("resize", showPage);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showPage);
by("host-filter").addEventListener("input", () => showHosts(known.hosts, active(known.findings)));
by("help-open").addEventListener("click", () => by("help").showModal());
addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, textarea, select") || by("help").open) return;
  const keys = {
    "?": () => by("help").showModal(),
    "f": () => { location.hash = "#/"; },
    "h": () => { location.hash = "#/hosts"; },
    "/": () => {
      searching = route().page !== "hosts";
      if (searching) location.hash = "#/hosts";
      else by("host-filter").focus();
    },
    "Escape": () => { if (route().page !== "fabric") history.length > 1 ? history.back() : (location.hash = "#/"); },
  };
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

showPage();
source.start();
