// The fabric map: switches by tier, hosts in blocks under their leaf, each direction of a link drawn by what findings
// say of it. A link that loses probes beside others is not coloured: only a finding accuses.
import {LINES, colours, drawLink, legend, natural, prepare} from "./draw.js";
import {KINDS, RANK, count} from "./words.js";

const TIERS = ["host", "leaf", "spine", "core"];
const LABELS_UP_TO = 44;  // px a name needs at least

const plain = (end) => end.split("%")[0];

/** Tiers, places of hosts and what each direction is called, from the API's documents. */
export function layOut(links, hosts, findings) {
  const hostNames = new Set(hosts.map((h) => h.host));
  const hostOf = (end) => (hostNames.has(end) ? end : hostNames.has(end.split("/")[0]) ? end.split("/")[0] : null);
  const nodes = new Map(), pairs = new Map();
  const node = (end) => {
    const host = hostOf(end), name = host || end;
    if (!nodes.has(name)) nodes.set(name, {name, tier: host ? 0 : -1, near: new Set(), severity: null, findings: []});
    return nodes.get(name);
  };
  for (const h of hosts) Object.assign(node(h.host), {state: h.state});
  for (const link of links) {
    const a = node(plain(link.from)), b = node(plain(link.to));
    if (a === b) continue;
    a.near.add(b);
    b.near.add(a);
    const [x, y] = a.name < b.name ? [a, b] : [b, a];
    const key = `${x.name}|${y.name}`;
    if (!pairs.has(key)) pairs.set(key, {x, y, ways: []});
    pairs.get(key).ways.push({...link, a, b, subject: `link:${link.from}>${link.to}`, findings: []});
  }
  // A switch is as many tiers up as it is hops from the nearest host.
  let tier = 0, edge = [...nodes.values()].filter((n) => n.tier === 0);
  while (edge.length) {
    tier += 1;
    const next = new Set();
    for (const n of edge) for (const m of n.near) if (m.tier < 0) next.add(m);
    for (const m of next) m.tier = tier;
    edge = [...next];
  }
  for (const n of nodes.values()) if (n.tier < 0) n.tier = 1;
  name(nodes, pairs, hostOf, findings);
  const rows = [];
  for (const n of nodes.values()) (rows[n.tier] ||= []).push(n);
  for (const row of rows) row?.sort((p, q) => natural(p.name, q.name));
  for (const h of rows[0] || []) h.leaf = [...h.near].filter((n) => n.tier === 1).sort((p, q) => natural(p.name, q.name))[0] || null;
  return {nodes, pairs: [...pairs.values()], rows: rows.map((row) => row || [])};
}

/** Puts each finding to the links and nodes that it is about. */
function name(nodes, pairs, hostOf, findings) {
  const ways = new Map();
  for (const pair of pairs.values()) {
    for (const way of pair.ways) {
      ways.set(way.subject, [way]);
      const both = `link:${plain(way.from)}-${plain(way.to)}`;
      for (const subject of [both, `link:${plain(way.to)}-${plain(way.from)}`]) ways.set(subject, [...(ways.get(subject) || []), way]);
    }
  }
  for (const finding of findings) {
    for (const way of ways.get(finding.subject) || []) way.findings.push(finding);
    const colon = finding.subject.indexOf(":");
    const type = finding.subject.slice(0, colon), rest = finding.subject.slice(colon + 1);
    const place = type === "switch" ? rest : ["host", "rnic", "port"].includes(type) ? hostOf(rest.split("/")[0]) : null;
    if (place !== null && nodes.has(place) && finding.kind !== "cannot_measure") nodes.get(place).findings.push(finding);
  }
  const worst = (list) => list.reduce((w, f) => (w === null || RANK[f.severity] < RANK[w] ? f.severity : w), null);
  for (const n of nodes.values()) n.severity = worst(n.findings);
}

export function styleOf(way) {
  const kinds = way.findings.map((f) => f.kind);
  if (kinds.includes("link_loss") || kinds.includes("link_down")) return "critical";
  if (kinds.includes("link_delay")) return "warning";
  if (kinds.includes("link_ecn")) return "ce";
  return way.covered ? "ok" : "none";
}

export class FabricMap {
  constructor(canvas, said, legendList, open) {
    Object.assign(this, {canvas, said, legendList, open, model: null, chosen: null, spoken: ""});
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => { if (!this.chosen && this.model) this.choose(this.first()); else this.draw(); });
    canvas.addEventListener("blur", () => this.draw());
    canvas.addEventListener("pointermove", (event) => { const hit = this.hit(event); if (hit) this.say(hit); });
    canvas.addEventListener("pointerleave", () => this.say(this.chosen));
    canvas.addEventListener("click", (event) => {
      const hit = this.hit(event);
      if (!hit) return;
      this.choose(hit);
      if (hit.tier === 0) this.open(hit);
    });
  }

  show(links, hosts, findings) {
    this.model = layOut(links, hosts, findings);
    const old = this.chosen;
    this.chosen = null;
    if (old) {
      this.chosen = old.subject
        ? this.model.pairs.flatMap((p) => p.ways).find((w) => w.subject === old.subject) || null
        : this.model.nodes.get(old.name) || null;
    }
    this.draw();
    this.say(this.chosen);
  }

  first() {
    return this.places()[0] || [...this.model.rows].reverse().find((row) => row.length)?.[0] || null;
  }

  /** Where findings are, the worst first. */
  places() {
    const out = [...this.model.pairs.flatMap((p) => p.ways), ...this.model.nodes.values()].filter((p) => p.findings.length);
    const rank = (p) => Math.min(...p.findings.map((f) => RANK[f.severity]));
    return out.sort((p, q) => rank(p) - rank(q) || natural(p.subject || p.name, q.subject || q.name));
  }

  place(width) {
    const {rows} = this.model;
    const top = 34, gap = rows.length > 3 ? 110 : 150;
    const switches = rows.slice(1);
    switches.forEach((row, i) => {
      const y = top + gap * (switches.length - 1 - i);
      row.forEach((n, k) => Object.assign(n, {x: width * (k + 0.5) / row.length, y}));
    });
    const hosts = rows[0] || [], leaves = rows[1] || [];
    const base = switches.length ? top + gap * (switches.length - 1) : 0;
    const groups = new Map([...leaves, null].map((leaf) => [leaf, []]));
    for (const h of hosts) groups.get(groups.has(h.leaf) ? h.leaf : null).push(h);
    if (groups.get(null).length === 0) groups.delete(null);
    const columns = groups.size || 1, span = width / columns;
    const most = Math.max(1, ...[...groups.values()].map((g) => g.length));
    // Named boxes while they fit; squares by leaf when there are many.
    this.named = span / most >= LABELS_UP_TO;
    const across = this.named ? most : Math.max(1, Math.min(most, Math.round(Math.sqrt(most * span / 130))));
    const size = this.named ? Math.min(64, span / most - 8) : Math.max(4, Math.min(14, Math.floor((span - 4) / across) - 2));
    let lowest = base, k = 0;
    for (const group of groups.values()) {
      const used = Math.min(across, group.length), left = span * (k + 0.5) - used * (size + (this.named ? 8 : 2)) / 2;
      group.forEach((h, i) => {
        const step = size + (this.named ? 8 : 2);
        h.size = size;
        h.x = left + (i % across + 0.5) * step;
        h.y = base + (this.named ? 96 : 44) + Math.floor(i / across) * (size + 2);
        lowest = Math.max(lowest, h.y);
      });
      k += 1;
    }
    for (const row of switches) for (const n of row) n.width = Math.min(76, Math.max(8, width / row.length - (row.length > 20 ? 2 : 8)));
    return lowest + 34;
  }

  draw() {
    if (!this.model) return;
    const width = Math.max(200, this.canvas.parentElement.clientWidth - 2);
    const {g} = prepare(this.canvas, Math.max(120, this.place(width)));
    const palette = colours(), {pairs, rows} = this.model;
    g.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    g.textAlign = "center";
    g.textBaseline = "middle";
    if (!pairs.length) {
      g.fillStyle = palette.quiet;
      g.fillText(rows[0]?.length ? "No link is known yet: neither a topology file nor a trace." : "No host has reported yet.", width / 2, 22);
    }
    const crowded = pairs.length > 150;
    const chosen = this.chosen;
    const near = (way) => chosen && (way === chosen || way.a === chosen || way.b === chosen);
    // The quiet ones first, so that nothing lies over a finding.
    const order = ["ok", "none", "ce", "warning", "critical"];
    const drawn = pairs.flatMap((p) => p.ways).map((way) => ({way, style: styleOf(way)}))
      .sort((p, q) => order.indexOf(p.style) - order.indexOf(q.style) || (near(p.way) ? 1 : 0) - (near(q.way) ? 1 : 0));
    for (const {way, style} of drawn) {
      const quiet = style === "ok" || style === "none";
      if (quiet && !this.named && (way.a.tier === 0 || way.b.tier === 0)) continue;
      g.globalAlpha = quiet && crowded && !near(way) ? 0.35 : 1;
      const line = quiet && near(way) ? {...LINES[style], width: 2.2, colour: "ink"} : LINES[style];
      drawLink(g, palette, way.a, way.b, line, crowded && quiet ? 1 : 3);
    }
    g.globalAlpha = 1;
    for (const row of rows.slice(1)) for (const n of row) this.drawSwitch(g, palette, n);
    for (const h of rows[0] || []) this.drawHost(g, palette, h);
    if (chosen && chosen.x !== undefined && document.activeElement === this.canvas) {
      const r = chosen.tier === 0 ? chosen.size / 2 + 4 : chosen.width / 2 + 4, h = chosen.tier === 0 ? r : 16;
      g.strokeStyle = palette.focus;
      g.lineWidth = 3;
      g.strokeRect(chosen.x - r, chosen.y - h, 2 * r, 2 * h);
    }
    if (chosen && chosen.subject) {
      const x = (chosen.a.x + chosen.b.x) / 2, y = (chosen.a.y + chosen.b.y) / 2;
      g.strokeStyle = palette.focus;
      g.lineWidth = 3;
      g.beginPath();
      g.arc(x, y, 14, 0, 2 * Math.PI);
      g.stroke();
    }
    this.describe(palette);
  }

  drawSwitch(g, palette, n) {
    const w = n.width, h = 22;
    g.fillStyle = n.severity ? palette[n.severity === "critical" ? "critical" : "warning"] : palette.node;
    g.fillRect(n.x - w / 2, n.y - h / 2, w, h);
    if (w < 14) return;
    g.fillStyle = n.severity ? inkOn(palette, n.severity) : palette.nodeInk;
    const font = g.font;
    if (w < 30) g.font = "9px system-ui, 'DejaVu Sans', sans-serif";
    const text = fit(g, n.name, w - 2);
    if (text.length > 2 || text === n.name) g.fillText(text, n.x, n.y);
    g.font = font;
  }

  drawHost(g, palette, h) {
    const s = h.size, bad = h.severity === "critical" || h.severity === "warning";
    g.fillStyle = bad ? palette[h.severity] : palette.panel;
    g.strokeStyle = bad ? palette[h.severity] : palette.ok;
    g.lineWidth = 1.2;
    const tall = this.named ? 26 : s;
    g.setLineDash(h.state === "reporting" ? [] : [2, 2]);
    g.beginPath();
    g.rect(h.x - s / 2, h.y - tall / 2, s, tall);
    g.fill();
    g.stroke();
    g.setLineDash([]);
    if (bad || h.state !== "reporting") {
      // A cross, so that it is seen without colour.
      g.strokeStyle = bad ? inkOn(palette, h.severity) : palette.quiet;
      g.lineWidth = Math.min(1.6, Math.max(1, s / 9));
      g.beginPath();
      const m = Math.min(s, tall) * 0.25, y = this.named ? h.y - tall / 2 + 6 : h.y, r = this.named ? 3.5 : m;
      const x = this.named ? h.x + s / 2 - 8 : h.x;
      g.moveTo(x - r, y - r); g.lineTo(x + r, y + r); g.moveTo(x + r, y - r); g.lineTo(x - r, y + r);
      g.stroke();
    }
    if (this.named) {
      g.fillStyle = bad ? inkOn(palette, h.severity) : palette.ink;
      g.fillText(fit(g, h.name, s - 6), h.x, h.y + 1);
    }
  }

  describe(palette) {
    const {rows, pairs} = this.model, named = this.places().length;
    const parts = rows.map((row, i) => count(row.length, TIERS[i] || "switch", i === 1 ? "leaves" : i > 3 ? "switches" : undefined)).reverse().join(", ");
    this.canvas.setAttribute("aria-label", `Fabric map: ${parts}, ${count(pairs.length, "cable")}, ${count(named, "place")} with a finding. Arrow keys move, N goes to the next finding, Enter opens a host.`);
    if (this.legendFor === palette.ok) return;
    this.legendFor = palette.ok;
    legend(this.legendList, Object.values(LINES), (g, line) => drawLink(g, palette, {x: 1, y: 8}, {x: 33, y: 8}, line, 0));
  }

  hit(event) {
    if (!this.model) return null;
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    for (const n of this.model.nodes.values()) {
      const w = n.tier === 0 ? n.size / 2 + 1 : n.width / 2, h = n.tier === 0 && !this.named ? w : 13;
      if (Math.abs(n.x - x) <= w && Math.abs(n.y - y) <= h) return n;
    }
    let best = null, least = 6;
    for (const pair of this.model.pairs) {
      for (const way of pair.ways) {
        const dx = way.b.x - way.a.x, dy = way.b.y - way.a.y, l = Math.hypot(dx, dy) || 1;
        const t = ((x - way.a.x) * dx + (y - way.a.y) * dy) / (l * l);
        if (t < 0 || t > 1) continue;
        // On its own side of the line; one with a finding is easier to hit.
        const off = Math.abs(((x - way.a.x) * -dy + (y - way.a.y) * dx) / l - 3) - (way.findings.length ? 3 : 0);
        if (off < least) [best, least] = [way, off];
      }
    }
    return best;
  }

  choose(place) {
    this.chosen = place;
    this.draw();
    this.say(place);
  }

  say(place) {
    const text = place ? this.words(place) : "";
    if (text === this.spoken) return;
    this.spoken = text;
    this.said.textContent = text;
  }

  words(place) {
    const told = place.findings.map((f) => `${KINDS[f.kind] || f.kind}, ${f.severity}`).join("; ");
    if (place.subject) {
      const numbers = `${place.crossed} crossings in the last window, ${Math.round(place.probes_per_s ?? 0)} probes a second`;
      return `${place.from} > ${place.to}: ${told || (place.covered ? "no finding" : "not checked, too few probes")}. ${numbers}.`;
    }
    const ways = this.model.pairs.flatMap((p) => p.ways).filter((w) => w.a === place || w.b === place);
    const bad = ways.filter((w) => w.findings.length), blind = ways.filter((w) => !w.covered);
    const kind = place.tier === 0 ? `host, ${place.state || "not reporting"}${place.leaf ? `, at ${place.leaf.name}` : ""}` : TIERS[place.tier] || "switch";
    return `${place.name} (${kind}): ${told || "no finding of its own"}. ${count(ways.length, "link direction")}` +
      `${bad.length ? `, with findings: ${bad.map((w) => `${w.from} > ${w.to}`).slice(0, 4).join(", ")}` : ", none with a finding"}` +
      `${blind.length ? `, ${blind.length} not checked` : ""}.`;
  }

  key(event) {
    if (!this.model || event.altKey || event.ctrlKey || event.metaKey) return;
    const rows = this.model.rows.filter((row) => row.length);
    const moves = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
    if (event.key.toLowerCase() === "n") {
      const places = this.places();
      if (places.length) this.choose(places[(places.indexOf(this.chosen) + 1) % places.length]);
    } else if (event.key === "Enter" && this.chosen) {
      this.open(this.chosen);
    } else if (event.key === "Escape") {
      this.choose(null);
    } else if (moves[event.key] && rows.length) {
      const [dx, dy] = moves[event.key];
      const from = this.chosen?.subject ? this.chosen.a : this.chosen || rows.at(-1)[0];
      const row = rows.findIndex((r) => r.includes(from));
      if (dx) {
        const order = [...rows[row]].sort((p, q) => (p.tier === 0 ? p.y - q.y : 0) || p.x - q.x);
        const sameLeaf = from.tier === 0 ? [...rows[row]].sort((p, q) => natural(p.leaf?.name || "", q.leaf?.name || "") || natural(p.name, q.name)) : order;
        this.choose(sameLeaf[Math.min(sameLeaf.length - 1, Math.max(0, sameLeaf.indexOf(from) + dx))]);
      } else {
        const next = rows[row + dy];
        // To where a cable leads, if one does.
        const near = next?.filter((n) => from.near.has(n));
        const choice = (near?.length ? near : next || []).reduce((b, n) => (!b || Math.abs(n.x - from.x) < Math.abs(b.x - from.x) ? n : b), null);
        if (choice) this.choose(choice);
      }
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

// Orange needs dark text in either scheme.
const inkOn = (palette, severity) => (severity === "critical" ? palette.panel : "#10171d");

function fit(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let cut = text;
  while (cut.length > 1 && g.measureText(`${cut}\u2026`).width > width) cut = cut.slice(0, -1);
  return `${cut}\u2026`;
}
