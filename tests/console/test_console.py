"""What an operator sees and does in the console, in headless Chromium."""

import re
import unittest

from tests.console.support import ConsoleCase
from tests.integration.aggregator_support import ROOT, wait_for

LOSS = {"s1>l2": 0.3}  # of three leaves: with two, nothing tells it from l1>s1

# WCAG 2.1: text against its ground; what is only decoration or off is left out.
CONTRAST = """return await page.evaluate(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; })
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const out = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !node.checkVisibility()) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) out.push(`${node.tagName}.${node.className} "${node.textContent.slice(0, 40)}": ${ratio.toFixed(2)}`);
  }
  return out;
})"""

# What axe looks at first, by hand.
LABELS = """return await page.evaluate(() => {
  const out = [], visible = [...document.querySelectorAll("*")].filter((n) => n.checkVisibility());
  const name = (n) => n.getAttribute("aria-label") || (n.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent || "").join("")
    || [...(n.labels || [])].map((l) => l.textContent).join("") || n.textContent;
  for (const n of visible.filter((n) => n.matches("a[href], button, input, canvas[tabindex], section, nav, dialog"))) if (!name(n).trim()) out.push(`no name: ${n.outerHTML.slice(0, 80)}`);
  for (const n of visible.filter((n) => n.matches("canvas") && !n.hasAttribute("tabindex") && n.getAttribute("aria-hidden") !== "true")) out.push("a canvas that says nothing");
  for (const n of visible.filter((n) => n.matches("img") && !n.hasAttribute("alt"))) out.push("an image without alt");
  const ids = [...document.querySelectorAll("[id]")].map((n) => n.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => out.push(`id twice: ${id}`));
  for (const n of document.querySelectorAll("[aria-labelledby], [aria-describedby], label[for]")) for (const id of (n.getAttribute("aria-labelledby") || n.getAttribute("aria-describedby") || n.htmlFor).split(" ")) if (!document.getElementById(id)) out.push(`points nowhere: ${id}`);
  if (!document.documentElement.lang) out.push("no language");
  if (document.querySelectorAll("main").length !== 1 || document.querySelectorAll("h1").length !== 1) out.push("not one main and one h1");
  let level = 0;
  for (const n of visible.filter((n) => /^H[1-6]$/.test(n.tagName))) { const l = Number(n.tagName[1]); if (l > level + 1) out.push(`heading skips to ${n.tagName}: ${n.textContent}`); level = l; }
  for (const n of document.querySelectorAll("[tabindex]")) if (n.tabIndex > 0) out.push("a tab order of its own");
  return out;
})"""


class Sources(unittest.TestCase):
    def test_no_source_makes_markup_of_text_or_asks_elsewhere(self):
        for path in (ROOT / "aggregator/console").iterdir():
            if path.suffix not in (".js", ".html", ".css"):
                continue
            text = path.read_text(encoding="utf-8")
            self.assertNotRegex(text, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.name)
            self.assertNotRegex(text, r"(src|href|from|import|url)\s*[=(]?\s*[\"']?(https?:)?//", path.name)
            self.assertNotRegex(text, r"\son[a-z]+=\"|style=\"", path.name)


class Console(ConsoleCase):
    def test_it_loads_without_an_error_and_asks_nobody_else(self):
        self.fabric(LOSS)
        self.open()
        self.wait(".card.critical", "link:s1>l2")
        self.wait("#live", "live")
        self.assertEqual(self.text("#fabric"), "lab")
        self.assertIn("1 critical", self.text("#verdict"))
        card = self.text(".card.critical")
        for words in ("Link loses packets", "confidence", "evidence", "lost", "hit", "not checked", "look first", "runbook"):
            self.assertIn(words, card)
        self.shot("fabric-light")
        seen = self.page("return seen")
        self.assertEqual(seen["errors"], [])
        self.assertGreater(len(seen["requests"]), 10)
        self.assertEqual([r for r in seen["requests"] if not r.startswith(self.url)], [])

    def test_a_finding_appears_is_acknowledged_and_goes_without_a_reload(self):
        self.fabric()
        self.open()
        self.wait("#findings .none")
        self.wait("#live", "live")
        self.page("await page.evaluate(() => { window.same = true; })")
        self.made_up.loss.update(LOSS)
        self.wait(".card.critical", "link:s1>l2")
        self.page("const b = page.getByRole('button', {name: 'I am on it'}).first(); await b.focus(); await page.keyboard.press('Enter')")
        self.wait(".card.critical", "acknowledged")
        self.assertTrue(self.server.get("/api/v1/findings?state=active&kind=link_loss")["findings"][0]["acknowledged"])
        self.made_up.loss.clear()
        self.page("await page.locator('#findings .card.critical').waitFor({state: 'detached'})")
        self.page("await page.locator('#past summary').first().click()")
        self.wait("#cleared .card", "link:s1>l2")
        self.assertTrue(self.page("return await page.evaluate(() => window.same)"))
        self.assertEqual(self.page("return seen.errors"), [])

    def test_nothing_found_is_called_healthy_only_when_all_was_checked(self):
        self.fabric()
        self.open()
        self.wait("#verdict.good", "all checked")
        self.shot("healthy-light")

    def test_nothing_found_where_links_have_no_probes_is_not_called_healthy(self):
        self.fabric(unused=1)
        self.open()
        self.wait("#verdict.warning", "nothing found so far")
        self.wait("#unchecked-shortly", "not checked: 6 links of")
        self.assertIn("not \u201chealthy\u201d yet", self.text("#findings"))
        self.assertIn("too few probes", self.text("#unchecked"))

    def test_all_of_it_is_done_by_keys(self):
        self.fabric(LOSS)
        self.open()
        self.wait(".card.critical")
        order = []
        while "heat" not in order:  # past the last element the browser's own would have the focus
            self.assertLess(len(order), 60, order)
            self.page("await page.keyboard.press('Tab')")
            order.append(self.page("return await page.evaluate(() => document.activeElement.id || document.activeElement.textContent.slice(0, 20))"))
        for earlier, later in (("Skip to the content", "help-open"), ("help-open", "I am on it"), ("I am on it", "map"), ("map", "heat")):
            self.assertLess(order.index(earlier), order.index(later), order)
        self.page("await page.keyboard.press('?')")
        self.wait("#help[open]")
        self.shot("help-light")
        self.page("await page.keyboard.press('Escape')")
        self.page("await page.locator('#map').focus(); await page.keyboard.press('n')")
        self.wait("#map-said", "s1 > l2: Link loses packets, critical")
        self.page("await page.keyboard.press('ArrowDown')")
        self.wait("#map-said", "(leaf)")
        self.page("await page.keyboard.press('ArrowDown')")
        self.wait("#map-said", "(host, reporting")
        host = self.text("#map-said").split(" ")[0]
        self.page("await page.keyboard.press('ArrowRight')")
        self.assertNotEqual(self.text("#map-said").split(" ")[0], host)
        self.page("await page.keyboard.press('ArrowLeft'); await page.keyboard.press('Enter')")
        self.wait("#page-host h2", f"Host {host}")
        self.wait("#host-devices", "100 Gbit/s")
        self.shot("host-light")
        self.page("await page.keyboard.press('Escape')")
        self.wait("#page-fabric")
        self.page("await page.locator('#heat').focus(); await page.keyboard.press('n')")
        self.wait("#heat-said", "loses probes")
        self.page("await page.keyboard.press('/')")
        self.wait("#page-hosts")
        self.page("await page.locator('#host-filter:focus').waitFor(); await page.keyboard.type('h1')")
        self.wait("#hosts-count", "1 host of 6")
        self.assertEqual(self.page("return seen.errors"), [])

    def test_when_the_aggregator_goes_the_page_says_since_when_it_is_stale_and_recovers(self):
        self.fabric(LOSS)
        self.open()
        self.wait(".card.critical")
        self.wait("#live", "live")
        self.reporter.close()
        self.server.kill()
        self.wait("#stale", "Stale since")
        self.assertRegex(self.text("#stale"), r"Stale since \d\d:\d\d:\d\d UTC")
        self.assertIn("link:s1>l2", self.text("#findings"))  # what was known stays
        self.assertIn("stale", self.text("#live"))
        self.assertEqual(self.page(CONTRAST), [])
        self.shot("stale-light")
        self.server.start()
        self.page("await page.locator('#stale').waitFor({state: 'hidden'})")
        self.wait("#live", "live")

    def test_without_events_it_polls(self):
        self.fabric()
        self.open(before="await page.route('**/api/v1/events', (route) => route.fulfill({status: 503, body: '{}'}))")
        self.wait("#live", "polling")
        self.made_up.loss.update(LOSS)
        self.wait(".card.critical", "link:s1>l2")
        self.page("await page.unroute('**/api/v1/events')")
        self.wait("#live", "live")

    def test_a_hostile_name_stays_text(self):
        self.fabric(LOSS)
        self.made_up.finds.append("h1")  # its summary is markup
        name = "<img src=x onerror=window.hacked=1>"
        self.open(before=f"""await page.route(/api.v1.(hosts|links|mesh|findings|status)/, async (route) => {{
          const answer = await route.fetch(), text = await answer.text();
          await route.fulfill({{status: answer.status(), contentType: "application/json", body: text.replaceAll(/"h2(?=[/"])/g, '"{name}').replaceAll("host:h1", "host:{name}")}});
        }})""")
        self.wait(".card", name)
        self.wait(".card", "hostile <img")
        self.page("await page.evaluate(() => { location.hash = '#/hosts'; })")
        self.wait("#hosts", name)
        self.page("await page.locator('#hosts a', {hasText: '<img'}).first().click()")
        self.wait("#page-host h2, #page-host .none", "<img")
        self.open("/#/host/h1")
        self.wait("#host-limits", "<script>window.hacked=1</script>")
        self.open("/#/host/%3Cimg%20src=x%20onerror=window.hacked=1%3E")
        self.wait("#page-host", "no host has this name")
        self.assertEqual(self.page("return await page.locator('main img, main script').count()"), 0)
        self.assertIsNone(self.page("return await page.evaluate(() => window.hacked)"))

    def test_text_is_legible_and_everything_has_a_name_in_light_and_dark(self):
        self.fabric(LOSS)
        self.made_up.silent.add("h4")
        for scheme in ("light", "dark"):
            for path in ("/", "/#/hosts", "/#/host/h1"):
                with self.subTest(f"{scheme} {path}"):
                    self.open(path, colorScheme=scheme)
                    self.wait({"/": ".card.critical", "/#/hosts": "#hosts a", "/#/host/h1": "#host-mesh table"}[path])
                    self.assertEqual(self.page(CONTRAST), [])
                    self.assertEqual(self.page(LABELS), [])
                    self.shot(f"page-{path.strip('/#').replace('/', '-') or 'fabric'}-{scheme}")

    def test_no_mark_is_told_by_colour_alone(self):
        self.fabric()
        self.open()
        lines, cells = self.page("return await page.evaluate(async () => { const m = await import('/console/draw.js'); return [m.LINES, m.CELLS]; })")
        forms = [(tuple(line["dash"]), line.get("mark"), line["width"] > 2) for line in lines.values()]
        self.assertEqual(len(set(forms)), len(forms))
        glyphs = [cell.get("glyph") for cell in cells.values()]
        self.assertEqual(len(set(glyphs)), len(glyphs))

    def test_without_a_topology_file_it_still_draws_what_traces_told(self):
        self.fabric(topology=False)
        self.open()
        self.page("await page.locator('#map').focus()")
        wait_for("switches by address", lambda: re.search(r"[1-9]\d* spines?", self.page("return await page.locator('#map').getAttribute('aria-label')")))
        self.shot("no-topology-light")


if __name__ == "__main__":
    unittest.main()
