// Drives a headless Chromium for the tests: a line {"run": "..."} of JSON is the body of an async function of (page,
// context, seen, argument), and its result or error goes out as one line. seen: what the browser complained of, and
// every address that was asked for.
import {createRequire} from "node:module";
import readline from "node:readline";

const {chromium} = createRequire(`${process.env.WEFT_NPM}/`)("playwright-core");
const LIMIT_MS = 90000;
const AsyncFunction = (async () => {}).constructor;

// CI runs as root, where Chromium's own sandbox does not start; only our page is opened in it.
const browser = await chromium.launch({executablePath: process.env.WEFT_CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage"]});
let context, page, seen;

async function open(options = {}) {
  if (context) await context.close();
  context = await browser.newContext({viewport: {width: 1440, height: 900}, reducedMotion: "reduce", ...options});
  page = await context.newPage();
  page.setDefaultTimeout(60000);
  seen = {errors: [], requests: []};
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) seen.errors.push(message.text()); });
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("request", (request) => seen.requests.push(request.url()));
}

for await (const line of readline.createInterface({input: process.stdin})) {
  const {run, options, argument} = JSON.parse(line);
  let answer;
  let late;
  try {
    if (options) await open(options);
    // Not everything that waits for the browser has an end of its own.
    const limit = new Promise((_, reject) => { late = setTimeout(() => reject(new Error(`no end within ${LIMIT_MS} ms: ${run}`)), LIMIT_MS); });
    const body = new AsyncFunction("page", "context", "seen", "argument", run || "");
    answer = {value: (await Promise.race([body(page, context, seen, argument), limit])) ?? null};
  } catch (error) {
    answer = {error: String(error.stack || error)};
  }
  clearTimeout(late);
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
