// What canvases share: sharp pixels, colours of the page, and the marks that tell states apart without colour.

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return {critical: read("draw-critical"), warning: read("draw-warning"), ce: read("draw-ce"), ok: read("draw-ok"),
    none: read("draw-none"), node: read("draw-node"), nodeInk: read("draw-node-ink"), ink: read("ink"), quiet: read("quiet"),
    panel: read("panel"), line: read("line"), focus: read("focus")};
}

/** Sizes the canvas to its box and the screen's pixels; drawing is then in CSS pixels. */
export function prepare(canvas, height) {
  const width = Math.max(200, canvas.parentElement.clientWidth - 2);
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  return {g, width};
}

// How a direction of a link is drawn: colour, dash and mark, each enough alone.
export const LINES = {
  ok: {colour: "ok", width: 1, dash: [], words: "checked, no finding"},
  none: {colour: "none", width: 1.8, dash: [2, 4], words: "not checked"},
  critical: {colour: "critical", width: 3.5, dash: [], mark: "triangle", words: "loss or down (critical)"},
  warning: {colour: "warning", width: 3, dash: [7, 4], mark: "diamond", words: "late (warning)"},
  ce: {colour: "ce", width: 3, dash: [11, 3, 2, 3], mark: "circle", words: "congested (ECN)"},
};

function mark(g, shape, x, y, angle, size) {
  g.save();
  g.translate(x, y);
  g.rotate(angle);
  g.beginPath();
  if (shape === "triangle") {
    g.moveTo(size, 0); g.lineTo(-size, -size * 0.8); g.lineTo(-size, size * 0.8);
  } else if (shape === "diamond") {
    g.moveTo(size, 0); g.lineTo(0, -size); g.lineTo(-size, 0); g.lineTo(0, size);
  } else {
    g.arc(0, 0, size * 0.8, 0, 2 * Math.PI);
  }
  g.closePath();
  g.fill();
  g.restore();
}

/** One direction, a to b, beside the line between them, so that both directions are seen. */
export function drawLink(g, palette, a, b, style, gap = 3) {
  const dx = b.x - a.x, dy = b.y - a.y, length = Math.hypot(dx, dy) || 1;
  const ox = -dy / length * gap, oy = dx / length * gap;
  g.strokeStyle = g.fillStyle = palette[style.colour];
  g.lineWidth = style.width;
  g.setLineDash(style.dash);
  g.beginPath();
  g.moveTo(a.x + ox, a.y + oy);
  g.lineTo(b.x + ox, b.y + oy);
  g.stroke();
  g.setLineDash([]);
  if (style.mark) mark(g, style.mark, a.x + ox + dx * 0.6, a.y + oy + dy * 0.6, Math.atan2(dy, dx), 7);
}

// Of the heat map: a ground and a glyph.
export const CELLS = {
  ok: {colour: "ok", fill: 0.25, words: "fine"},
  loss: {colour: "critical", fill: 1, glyph: "cross", words: "loses probes"},
  late: {colour: "warning", fill: 1, glyph: "slash", words: "late"},
  ce: {colour: "ce", fill: 1, glyph: "dot", words: "congested (ECN)"},
  silent: {colour: "none", fill: 0.9, glyph: "dash", words: "an end is silent"},
  unknown: {colour: "none", fill: 0, glyph: "frame", words: "not probed now"},
};

export function drawCell(g, palette, x, y, size, state) {
  const style = CELLS[state] || CELLS.unknown;
  const inner = size - (size > 8 ? 1.5 : 0.5);
  g.globalAlpha = style.fill;
  g.fillStyle = palette[style.colour];
  g.fillRect(x, y, inner, inner);
  g.globalAlpha = 1;
  if (!style.glyph || size < 6) return;
  const dark = style.glyph === "frame" || style.glyph === "dash";
  g.strokeStyle = g.fillStyle = dark ? palette.quiet : palette.panel;
  g.lineWidth = Math.max(1, size / 9);
  g.beginPath();
  const m = inner * 0.28;
  if (style.glyph === "cross") {
    g.moveTo(x + m, y + m); g.lineTo(x + inner - m, y + inner - m);
    g.moveTo(x + inner - m, y + m); g.lineTo(x + m, y + inner - m);
  } else if (style.glyph === "slash") {
    g.moveTo(x + m, y + inner - m); g.lineTo(x + inner - m, y + m);
  } else if (style.glyph === "dash") {
    g.moveTo(x + m, y + inner / 2); g.lineTo(x + inner - m, y + inner / 2);
  } else if (style.glyph === "frame") {
    g.lineWidth = 1;
    g.rect(x + 0.5, y + 0.5, inner - 1, inner - 1);
  } else {
    g.arc(x + inner / 2, y + inner / 2, inner * 0.2, 0, 2 * Math.PI);
    g.fill();
  }
  g.stroke();
}

/** A legend with the very marks that are drawn. */
export function legend(list, items, paint) {
  list.replaceChildren(...items.map((item) => {
    const row = document.createElement("li");
    const canvas = document.createElement("canvas");
    canvas.setAttribute("aria-hidden", "true");
    row.append(canvas, item.words);
    const ratio = window.devicePixelRatio || 1;
    canvas.width = 34 * ratio;
    canvas.height = 16 * ratio;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    paint(g, item);
    return row;
  }));
}

export const natural = new Intl.Collator("en", {numeric: true}).compare;
