// Numbers, times and kinds in words, as the command line says them.

export const KINDS = {
  link_loss: "Link loses packets", link_delay: "Link is late", link_ecn: "Link is congested", link_down: "Link is down",
  rnic_unreachable: "RDMA device is not reached", host_silent: "Host is silent", host_overloaded: "Host is overloaded",
  cannot_measure: "Cannot be measured",
};
export const MARKS = {critical: "\u25b2", warning: "\u25c6", info: "\u25cf"};
export const RANK = {critical: 0, warning: 1, info: 2};

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

export const clock = (time) => (time ? `${new Date(time).toISOString().slice(11, 19)} UTC` : "unknown");
export const dateAndClock = (time) => (time ? `${new Date(time).toISOString().slice(0, 10)} ${clock(time)}` : "unknown");

export function duration(ns) {
  if (ns === null || ns === undefined) return "not measured";
  if (ns >= 1e9) return `${(ns / 1e9).toPrecision(3)} s`;
  if (ns >= 1e6) return `${(ns / 1e6).toPrecision(3)} ms`;
  return `${(ns / 1e3).toPrecision(3)} µs`;
}

export const share = (part, whole) => (whole > 0 ? `${(100 * part / whole).toPrecision(part === whole ? 3 : 2)} %` : "no probes");
export const count = (n, what, many = `${what}s`) => `${n.toLocaleString("en-US")} ${n === 1 ? what : many}`;

export function evidence(item) {
  const name = item.name.replaceAll("_", " ");
  if (item.value === null) return `${name} unknown`;
  if (item.unit === "ratio") return `${name} ${(100 * item.value).toPrecision(3)} %`;
  if (item.unit === "seconds") return `${name} ${span(item.value)}`;
  if (item.unit === "ns" || item.unit === "nanoseconds") return `${name} ${duration(item.value)}`;
  return `${name} ${Number(item.value.toPrecision(4))} ${item.unit}`;
}

export const rate = (bits) => (bits === null ? "unknown rate" : `${bits / 1e9} Gbit/s`);
