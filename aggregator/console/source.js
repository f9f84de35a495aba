// Where data comes from: server-sent events that say when to look again, and the API that is then read. Without events
// it is read every few seconds. Knows since when what is shown is out of date.

const POLL_MS = 3000, REFRESH_MS = 5000, STALE_MS = 6000, RETRY_MS = 5000, ANSWER_MS = 10000;

export async function ask(path, method = "GET") {
  const answer = await fetch(path, {method, headers: {Accept: "application/json"}, signal: AbortSignal.timeout(ANSWER_MS)});
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.detail || `the aggregator answered ${answer.status}`);
  return body;
}

/** All pages of a list. */
export async function list(path, name) {
  let rows = [];
  for (let url = path; url;) {
    const page = await ask(url);
    rows = rows.concat(page[name]);
    url = page.next;
  }
  return rows;
}

export class Source {
  /** told: {status(document), findings(), rest()}, what to do when each may have changed; changed(): freshness did. */
  constructor(told) {
    this.told = told;
    this.mode = "connecting";
    this.judgedAt = null;  // by the aggregator's clock
    this.seenAt = null;    // by ours, when judgedAt last moved
    this.staleSince = null;
    this.why = "";
    this.pending = null;
    this.events = null;
  }

  start() {
    this.open();
    this.poll();
    setInterval(() => this.check(), 1000);
    setInterval(() => { if (!document.hidden && this.mode === "live") this.run(() => Promise.all([this.told.findings(), this.told.rest()])); }, REFRESH_MS);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.everything(); });
  }

  /** The aggregator's time now, in ms. */
  now() {
    return this.judgedAt === null ? Date.now() : this.judgedAt + (performance.now() - this.seenAt);
  }

  open() {
    const events = new EventSource("/api/v1/events");
    this.events = events;
    const soon = () => {
      // Several findings come at once when a switch goes: one look for all of them.
      if (this.pending === null) {
        this.pending = setTimeout(() => { this.pending = null; this.run(() => this.told.findings()); }, 100);
      }
    };
    events.onopen = () => {
      this.mode = "live";
      // What happened between the last look and now was not told.
      if (this.readAt !== undefined && performance.now() - this.readAt < POLL_MS) this.run(() => this.told.findings());
      else this.everything();
    };
    events.addEventListener("status", (event) => this.status(JSON.parse(event.data)));
    for (const type of ["finding_raised", "finding_updated", "finding_cleared"]) events.addEventListener(type, soon);
    events.addEventListener("gap", () => this.everything());
    events.onerror = () => {
      if (this.mode !== "down") this.mode = "polling";
      // A refusal (503, or a proxy that cuts streams) closes it for good: try again, and read meanwhile.
      if (events.readyState === EventSource.CLOSED) {
        events.close();
        setTimeout(() => this.open(), RETRY_MS);
      }
      this.poll();
    };
  }

  async poll() {
    clearTimeout(this.poller);
    if (this.mode === "live") return;
    await this.everything();
    this.poller = setTimeout(() => this.poll(), POLL_MS);
  }

  async everything() {
    this.readAt = performance.now();
    await this.run(async () => {
      this.status(await ask("/api/v1/status"));
      await Promise.all([this.told.findings(), this.told.rest()]);
    });
  }

  async run(what) {
    try {
      await what();
      if (this.mode === "connecting" || this.mode === "down") this.mode = "polling";
    } catch (error) {
      this.why = error instanceof TypeError || error.name === "TimeoutError" ? "it does not answer" : error.message;
      if (this.mode !== "live") this.mode = "down";
    }
    this.check();
  }

  status(document) {
    const at = Date.parse(document.judged_at);
    if (at !== this.judgedAt) {
      this.judgedAt = at;
      this.seenAt = performance.now();
    }
    this.told.status(document);
    this.check();
  }

  check() {
    const quiet = this.seenAt === null ? this.mode === "down" : performance.now() - this.seenAt > STALE_MS;
    if (!quiet) this.why = "";
    this.staleSince = quiet ? (this.judgedAt ?? Date.now()) : null;
    this.told.changed();
  }
}
