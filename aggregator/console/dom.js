// The only place that makes elements. Text goes in as text: what a host or a file calls itself is never markup.

/** el("p", {class: "quiet"}, "text", child, ...): attributes by name, on* as listeners, null children left out. */
export function el(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  put(made, ...children);
  return made;
}

export function put(parent, ...children) {
  parent.replaceChildren(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false)
    .map((c) => (c instanceof Node ? c : document.createTextNode(String(c)))));
}

export const by = (id) => document.getElementById(id);

/** Leaves what is there alone when nothing changed, so that focus and open details stay. */
export function putWhenChanged(parent, key, make) {
  const text = JSON.stringify(key);
  if (parent.dataset.key === text) return;
  parent.dataset.key = text;
  put(parent, make());
}

export function table(caption, columns, rows) {
  const cell = (tag, column, content) => el(tag, {class: column.number ? "number" : null,
    scope: tag === "th" ? "col" : null}, content);
  return el("table", null, caption ? el("caption", null, caption) : null,
    el("thead", null, el("tr", null, columns.map((c) => cell("th", c, c.name)))),
    el("tbody", null, rows.map((row) => el("tr", null, columns.map((c) => cell("td", c, c.of(row)))))));
}
