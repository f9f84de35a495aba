// The mesh as a heat map: rows probe, columns answer. Between leaves where there are many ports, and one step in, the
// pairs of ports of two leaves.
import {CELLS, colours, drawCell, legend, natural, prepare} from "./draw.js";
import {ask} from "./source.js";
import {count, duration, share} from "./words.js";

const PORTS_AT_ONCE = 32;  // as many ports are shown one by one; above, leaves

/** The query that fits the number of hosts. */
export const meshPath = (hosts) => `/api/v1/mesh${hosts > PORTS_AT_ONCE ? "?group=leaf" : ""}`;

export class HeatMap {
  constructor(canvas, said, of, legendList) {
    Object.assign(this, {canvas, said, of, legendList, cells: [], outer: [], inner: null, at: {row: 0, column: 0}});
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => { this.draw(); this.say(this.at); });
    canvas.addEventListener("blur", () => this.draw());
    canvas.addEventListener("pointermove", (event) => { const at = this.hit(event); if (at) this.say(at); });
    canvas.addEventListener("click", (event) => {
      const at = this.hit(event);
      if (!at) return;
      this.at = at;
      this.enter();
    });
  }

  async show(cells) {
    this.outer = cells;
    if (this.inner) await this.read();
    this.lay(this.inner ? this.innerCells : cells);
  }

  get grouped() { return this.outer.length > 0 && "pairs" in this.outer[0]; }

  async read() {
    const {from, to} = this.inner;
    try {
      this.innerCells = (await ask(`/api/v1/mesh?from=${encodeURIComponent(from)}&to=${encodeURIComponent(to)}&limit=5000`)).mesh;
    } catch (error) {
      this.inner = null;
      this.said.textContent = `Not read: ${error.message}`;
    }
  }

  lay(cells) {
    this.cells = cells;
    this.rows = [...new Set(cells.map((c) => c.from))].sort(natural);
    this.columns = [...new Set(cells.map((c) => c.to))].sort(natural);
    this.byEnds = new Map(cells.map((c) => [`${c.from}|${c.to}`, c]));
    this.at.row = Math.min(this.at.row, Math.max(0, this.rows.length - 1));
    this.at.column = Math.min(this.at.column, Math.max(0, this.columns.length - 1));
    this.draw();
  }

  cell(at) { return this.byEnds?.get(`${this.rows[at.row]}|${this.columns[at.column]}`) || null; }

  draw() {
    if (!this.rows) return;
    const width = Math.max(200, this.canvas.parentElement.clientWidth - 2);
    const palette = colours();
    const short = (text) => text.replace(/\/rxe0$|\/mlx5_0$/, "");
    const longest = Math.max(2, ...this.rows.map((r) => short(r).length));
    this.left = Math.min(130, 16 + 7 * longest);
    this.size = Math.max(4, Math.min(34, Math.floor((width - this.left - 10) / Math.max(1, this.columns.length))));
    const named = this.size >= 11;
    this.top = named ? Math.min(90, 14 + 7 * Math.max(2, ...this.columns.map((c) => short(c).length))) : 10;
    if (!named) this.left = 10;
    const {g} = prepare(this.canvas, Math.max(60, this.top + this.size * this.rows.length + 10));
    g.font = `${Math.min(12, this.size)}px system-ui, 'DejaVu Sans', sans-serif`;
    g.fillStyle = palette.quiet;
    g.textBaseline = "middle";
    if (!this.cells.length) {
      g.fillText("No pair is probed yet.", 14, 26);
    }
    if (named) {
      const clip = (text) => (text.length > 17 ? `${text.slice(0, 16)}\u2026` : text);
      g.textAlign = "right";
      this.rows.forEach((r, i) => g.fillText(clip(short(r)), this.left - 6, this.top + (i + 0.5) * this.size));
      g.textAlign = "left";
      this.columns.forEach((c, i) => {
        g.save();
        g.translate(this.left + (i + 0.5) * this.size, this.top - 6);
        g.rotate(-Math.PI / 2);
        g.fillText(clip(short(c)), 0, 0);
        g.restore();
      });
    }
    for (const [i, r] of this.rows.entries()) {
      for (const [k, c] of this.columns.entries()) {
        const cell = this.byEnds.get(`${r}|${c}`);
        if (cell) drawCell(g, palette, this.left + k * this.size, this.top + i * this.size, this.size, cell.state);
      }
    }
    if (document.activeElement === this.canvas && this.cells.length) {
      g.strokeStyle = palette.focus;
      g.lineWidth = 3;
      g.strokeRect(this.left + this.at.column * this.size - 1.5, this.top + this.at.row * this.size - 1.5, this.size + 2, this.size + 2);
    }
    const what = this.inner ? `ports of ${this.inner.from} to ports of ${this.inner.to}; Escape goes back to the leaves`
      : this.grouped ? "leaves; Enter or a click shows the ports of two" : "ports";
    this.of.textContent = `Rows probe, columns answer: ${what}.`;
    const bad = this.cells.filter((c) => c.state !== "ok" && c.state !== "unknown").length;
    this.canvas.setAttribute("aria-label", `Mesh heat map of ${count(this.cells.length, "pair")}, ${bad} not fine: rows probe, columns answer. Arrow keys move, N goes to the next pair that is not fine, Enter shows the pairs of two leaves, Escape goes back.`);
    if (this.legendFor !== palette.ok) {
      this.legendFor = palette.ok;
      legend(this.legendList, Object.entries(CELLS).map(([state, cell]) => ({state, words: cell.words})),
        (c, item) => drawCell(c, palette, 9, 0, 16, item.state));
    }
  }

  say(at) {
    const cell = this.cell(at), from = this.rows?.[at.row], to = this.columns?.[at.column];
    if (from === undefined || to === undefined) return;
    let text = `${from} to ${to}: not probed.`;
    if (cell) {
      const pairs = cell.pairs ? ` (${Object.entries(cell.pairs).map(([state, n]) => `${n} ${state}`).join(", ")})` : "";
      text = `${from} to ${to}: ${CELLS[cell.state]?.words || cell.state}${pairs}. ${cell.lost} of ${cell.sent} probes lost (${share(cell.lost, cell.sent)}), ` +
        `round trip ${duration(cell.rtt_median_ns)}, p90 ${duration(cell.rtt_p90_ns)}, ` +
        `${cell.ecn_capable ? `marked ${share(cell.ce, cell.ecn_capable)}` : "ECN not measured"}.`;
    }
    if (this.said.textContent !== text) this.said.textContent = text;
  }

  hit(event) {
    if (!this.rows) return null;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.size);
    const row = Math.floor((event.clientY - box.top - this.top) / this.size);
    return row >= 0 && column >= 0 && row < this.rows.length && column < this.columns.length ? {row, column} : null;
  }

  async enter() {
    const cell = this.cell(this.at);
    if (cell && cell.pairs) {
      this.inner = {from: cell.from, to: cell.to};
      this.at = {row: 0, column: 0};
      await this.read();
      if (this.inner) this.lay(this.innerCells);
    }
    this.draw();
    this.say(this.at);
  }

  key(event) {
    if (!this.rows || event.altKey || event.ctrlKey || event.metaKey) return;
    const moves = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
    if (moves[event.key]) {
      this.at = {row: Math.max(0, Math.min(this.rows.length - 1, this.at.row + moves[event.key][0])),
        column: Math.max(0, Math.min(this.columns.length - 1, this.at.column + moves[event.key][1]))};
    } else if (event.key.toLowerCase() === "n") {
      const bad = this.cells.filter((c) => c.state !== "ok" && c.state !== "unknown");
      if (bad.length) {
        const next = bad[(bad.indexOf(this.cell(this.at)) + 1) % bad.length];
        this.at = {row: this.rows.indexOf(next.from), column: this.columns.indexOf(next.to)};
      }
    } else if (event.key === "Enter") {
      this.enter();
    } else if (event.key === "Escape" && this.inner) {
      this.inner = null;
      this.lay(this.outer);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    this.draw();
    this.say(this.at);
  }
}
