// Takes the stories of docs/pages.md in a real browser, against `curfew serve --demo`, and opens
// every page wide and narrow, light and dark: axe with forms open, sizes of letters, overlapping
// texts, width, errors of scripts, requests to other hosts, and violations of the policy.
//
//   node pages.mjs [--seed N] [--out DIR] [--only STORY]
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { overlappingText, smallText, tooWide } from "./checks.mjs";
import { serveJobs } from "./jobs.mjs";
import { serve, worst } from "./service.mjs";

const { values } = parseArgs({ options: { seed: { type: "string" }, out: { type: "string" }, only: { type: "string" } } });
const root = resolve(import.meta.dirname, "../..");
const out = resolve(values.out ?? join(root, "screenshots"));
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browserPath = ["/usr/bin/chromium", "/usr/bin/google-chrome"].find(existsSync);
const complaints = [];
let context = "";
const say = (what) => complaints.push(`${context}: ${what}`);

// A minute a second gives a person 15 seconds to answer a warning.
const service = await serve(root, "--speed", "60", "--seed", values.seed ?? "1");
const { base, api, until } = service;
const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });

// open makes a browser of its own, which is watched.
async function open(options, token = service.token, base = service.base) {
  const c = await browser.newContext({ ...options, permissions: ["clipboard-write", "clipboard-read"] });
  await c.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`));
  });
  const page = await c.newPage();
  page.base = base;
  page.on("console", (m) => m.type() === "error" && !m.text().includes("429") && say(`console: ${m.text()}`));
  page.on("pageerror", (e) => say(`script error: ${e.message}`));
  page.on("request", (r) => r.url().startsWith(base) || r.url().startsWith("data:") || say(`asks ${r.url()}`));
  if (token) {
    await page.goto(base + "/sign-in");
    await page.fill("input[name=token]", token);
    await page.click("button[type=submit]");
    await page.waitForURL(base + "/");
  }
  return page;
}

// go opens a page, again where the calls were too many.
async function go(page, path) {
  for (;;) {
    const r = await page.goto(page.base + path);
    if (r.status() !== 429) {
      if (r.status() !== 200) say(`${path} answers ${r.status()}`);
      return;
    }
    await page.waitForTimeout(500);
  }
}

async function check(page, path) {
  for (const one of [smallText, overlappingText, tooWide]) (await page.evaluate(one)).forEach((c) => say(`${path}: ${c}`));
  const cdp = await page.context().newCDPSession(page);
  const tags = JSON.stringify(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]);
  const { result } = await cdp.send("Runtime.evaluate", {
    expression: `${axe};axe.run(document, { runOnly: ${tags} }).then((r) => JSON.stringify(r.violations.map((v) => v.id + ": " + v.nodes.length + " places, first " + v.nodes[0].target)))`,
    awaitPromise: true,
    returnByValue: true,
  });
  await cdp.detach();
  for (const v of JSON.parse(result.value)) say(`${path}: axe ${v}`);
}

// backtest is the id of a replay of a week, which is made once.
let replayed = "";
async function backtest() {
  if (replayed) return replayed;
  const made = await api("backtests", { from: "cloudwatch", since: "7d", baselines: true });
  assert.equal(made.status, 200, JSON.stringify(made.doc));
  replayed = made.doc.backtests[0].id;
  await until("the backtest", async () => {
    const { state, note } = (await api("backtests/" + replayed)).doc.backtests[0];
    assert.ok(state !== "failed", note);
    return state === "done";
  }, 400);
  return replayed;
}

const stories = {
  // Within ten seconds: what is wasted, by whom, what to do first.
  async now(page) {
    await go(page, "/");
    const headline = await page.textContent("h1");
    assert.match(headline, /^\$[\d,]+ a month is wasted now, \d+% of \$[\d,]+$/);
    assert.ok((await page.locator("h2", { hasText: "By team" }).count()) === 1);
    assert.equal(await page.locator(".cards > li").count(), 5);
    const [waste] = headline.match(/\$[\d,]+/);
    assert.equal(await page.textContent(".key .is-waste b"), waste, "the bar and the sentence agree");
    await page.click("a:has-text('why this number')");
    assert.equal((await page.textContent("h1")).trim(), waste, "why explains the same number");
  },

  // Find the worst machine, see why it counts as held, exempt it until Monday with a reason.
  async machines(page) {
    await go(page, "/machines?duty=held");
    await page.locator("td .machine-name").first().click();
    await page.waitForSelector("h2:has-text('Why it is judged so')");
    assert.match(await page.textContent("main"), /memory held|GPUs held/);
    if ((await page.locator("text=Exempt until").count()) === 0) {
      await page.click("summary:has-text('Exempt from policies')");
      await page.selectOption("select[name=for]", { label: "until Monday" });
      await page.fill("form[action='/do/keep'] input[name=reason]", "demo for the board");
      await page.click("button:has-text('Exempt')");
    }
    await page.waitForSelector("text=demo for the board");
  },

  // A finding shows what blocks it and what is lost, and a repeated click acts once.
  async findings(page) {
    await go(page, "/findings?step=2");
    const rows = page.locator("tbody .machine-name");
    assert.ok((await rows.count()) > 3);
    await rows.first().click();
    await page.waitForSelector("h2:has-text('The change')");
    assert.match(await page.textContent("main pre"), /"verb"/);
  },

  async costs(page) {
    await go(page, "/costs");
    await page.selectOption("select[name=by]", "service");
    await page.click("main button:has-text('Show')");
    await page.waitForURL(/by=service/);
    const total = (await page.textContent("h1")).match(/\$[\d,]+/)[0];
    assert.ok((await page.textContent("main tbody tr:last-child")).includes(total), "the rows come to the headline");
    const file = await page.request.get(base + (await page.getAttribute("a:has-text('CSV')", "href")));
    assert.match(await file.text(), /^period,service|^service/);
  },

  // Choose a wait from the curve by the keyboard, and copy the policy.
  async policies(page) {
    await go(page, "/policies/backtests/" + (await backtest()));
    const saved = () => page.textContent(".choice:not([hidden]) pre");
    await page.focus("input[type=range]");
    await page.keyboard.press("Home");
    const first = await saved();
    const begun = Date.now();
    await page.keyboard.press("ArrowRight");
    assert.notEqual(await saved(), first, "the slider shows another wait");
    assert.ok(Date.now() - begun < 300, "the slider answers within 300 ms");
    await page.click(".choice:not([hidden]) button");
    await page.waitForSelector("text=Copied");
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await saved());
  },

  async settings(page) {
    await go(page, "/settings");
    await page.click("summary:has-text('New token')");
    await page.fill("form[action='/do/token'] input[name=name]", "board");
    await page.click("button:has-text('Create')");
    assert.match(await page.textContent("#secret"), /^curfew_/);
    await go(page, "/settings");
    assert.doesNotMatch(await page.textContent("main"), /curfew_[0-9a-f]{20}/);
  },
};

// once are stories that change what there is only once.
const once = {
  // The link signs one browser in, and no second one.
  async link() {
    const page = await open({}, "");
    await page.goto(service.link);
    await page.waitForURL(base + "/");
    const other = await open({}, "");
    await other.goto(service.link);
    assert.match(await other.textContent("main"), /The link was used/);
  },

  // Answer a warning from a phone: the machine's owner keeps it, and the warning is withdrawn,
  // without a reload of another page that shows it.
  async warning() {
    const act = await until("a warning", async () => (await api("actions")).doc.actions.find((a) => a.phase === "warned"));
    const owner = act.recipients[0].replace(/^demo:/, "");
    const made = await api("tokens", { name: "phone of " + owner, roles: ["viewer", "user"] });
    const watched = await open({ viewport: { width: 1440, height: 900 } });
    await go(watched, "/machines/" + act.resource);
    const phone = await open({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }, made.doc.secret);
    await go(phone, "/mine?of=" + owner);
    const card = phone.locator(".request.warned").first();
    await card.locator("summary").tap();
    await card.locator("input[name=reason]").fill("the next run is at noon");
    await card.locator("button[type=submit]").tap();
    await phone.waitForSelector("text=Exempt.");
    await until("the withdrawal", async () => (await api("actions/" + act.id)).doc.phase === "withdrawn", 60);
    await watched.waitForSelector(".lines .state:has-text('withdrawn')", { timeout: 60000 });
  },

  // Fix a finding to its end: warned, approved by another person, acted, confirmed, and gone from the
  // next audit, on pages that are not loaded again; a second request acts no second time.
  async fix() {
    await until("an audit", async () => (await api("scans/last")).status === 200);
    const scan = (await api("scans/last")).doc;
    const finding = scan.findings.find((f) => f.rule === "volume-unattached" && f.monthly_savings_usd !== null);
    const before = Number(scan.totals.monthly_savings_usd);
    const list = await open({ viewport: { width: 1440, height: 900 } });
    await go(list, "/findings?q=" + finding.id);
    await list.evaluate(() => (window.kept = true));
    const page = await open({ viewport: { width: 1440, height: 900 } });
    await go(page, "/findings/" + finding.id);
    assert.match(await page.textContent("main"), /Lost|Approval/);
    await page.locator(".open-form summary").first().click();
    await page.selectOption("select[name=grace]", "15m");
    if (await page.locator("input[name=named]").count()) await page.fill("input[name=named]", await page.inputValue("input[name=name]"));
    // The form is sent twice, as an impatient person sends it.
    const form = await page.evaluate(() => Object.fromEntries(new FormData(document.querySelector("form[action='/do/fix']"))));
    const headers = { Origin: base };
    for (let i = 0; i < 2; i++) assert.ok((await page.request.post(base + "/do/fix", { form, headers })).ok());
    await list.waitForSelector("tbody .state:has-text('warned')", { timeout: 60000 });
    const request = await until("a request", async () => (await api("approvals")).doc.requests.find((r) => r.kind === "fix" && r.subject.endsWith(finding.resource.id)));
    // Who asked does not decide; an approver of the company does within the hour.
    const own = await open({ viewport: { width: 1440, height: 900 } });
    await go(own, "/approvals");
    assert.match(await own.locator("#request-" + request.id).textContent(), /You asked for it/);
    const states = await list.evaluate(async () => {
      const seen = [];
      const end = Date.now() + 180000;
      for (;;) {
        const state = document.querySelector("tbody .sub .state")?.textContent ?? "gone";
        if (seen.at(-1) !== state) seen.push(state);
        if (state === "gone" || Date.now() > end) return seen;
        await new Promise((done) => setTimeout(done, 100));
      }
    });
    assert.equal(states.at(-1), "gone", "the finding goes away: " + states);
    assert.ok(states.includes("acted") || states.includes("confirmed") || states.includes("acting"), "the row says so: " + states);
    assert.ok(await list.evaluate(() => window.kept), "the row changed without a reload");
    await page.goto(base + "/findings/" + finding.id);
    assert.match(await page.textContent("main"), /confirmed/);
    const after = (await api("scans/last")).doc;
    assert.ok(Number(after.totals.monthly_savings_usd) < before, "the next audit finds less");
    const intents = (await api("audit?item=" + (await api("actions")).doc.actions.find((a) => a.source === "finding:" + finding.id).id)).doc.entries?.filter((e) => e.what === "intent");
    if (intents) assert.equal(new Set(intents.map((e) => e.verb + e.outcome)).size, intents.length, "each call was made once");
  },

  // Approve a run for at most its amount; an edited file asks again, and the open page shows it.
  async approvals() {
    const page = await open({ viewport: { width: 1440, height: 900 } });
    await until("requests", async () => (await api("approvals")).doc.requests.length > 1);
    await go(page, "/approvals");
    const card = page.locator(".request", { hasText: "sdxl-finetune" });
    await card.locator("summary:has-text('Approve')").click();
    await card.locator("button[type=submit]:visible").click();
    await page.waitForSelector("text=Approved.");
    const file = (hours) => ({
      content: JSON.stringify({
        apiVersion: "curfew.job/v1", name: "sdxl-finetune", purpose: "training", owner: { team: "vision", project: "shelf-vision", user: "ben" },
        resources: { instance_type: "p4d.24xlarge" }, capacity: "on-demand", regions: ["us-east-1"], run: "python train.py --resume", duration: "14h", max_runtime: hours + "h",
      }),
      name: "job.yaml", key: "edited",
    });
    const asked = await api("gate", file(40));
    assert.equal(asked.doc.decision ?? asked.doc.document?.decision, "ask", JSON.stringify(asked.doc));
    await page.locator(".request", { hasText: "sdxl-finetune" }).waitFor({ timeout: 60000 });
    // The visitor asked for this one: another person decides.
    assert.match(await page.locator(".request", { hasText: "sdxl-finetune" }).textContent(), /You asked for it/);
  },

  // Approve a run for less than it asks for, see what its last interruption cost while its log grows,
  // cancel it; an edited command asks again.
  async jobs() {
    const own = await serveJobs(root);
    const contexts = [];
    const enter = async (options, token) => {
      const entered = await open(options, token, own.base);
      contexts.push(entered.context());
      return entered;
    };
    try {
      assert.equal(own.run().status, 3, "the gate asks");
      const made = await own.api("tokens", { name: "viewer", roles: ["viewer"] });
      const viewer = await enter({}, made.doc.secret);
      await go(viewer, "/jobs/train");
      assert.equal(await viewer.locator("main form[action^='/do/']").count(), 0, "a viewer sees no button");
      const lead = await enter({ viewport: { width: 1440, height: 900 } }, own.token);
      await go(lead, "/jobs");
      assert.match(await lead.textContent("main tbody"), /train[^]*waiting[^]*it may cost up to \$0\.10, and over \$0\.01 it needs approval/);
      await lead.click("tbody .machine-name");
      await lead.click("a:has-text('at most $0.10')");
      await lead.click(".request summary:has-text('Approve')");
      await lead.fill(".request input[name=up_to]", "0.05");
      await lead.click(".request button:has-text('Approve')");
      await lead.waitForSelector("text=Approved.");
      assert.match(await lead.textContent("main"), /\$0\.05 in all\s*of \$0\.10 asked for/);
      const begun = own.run();
      assert.equal(begun.status, 0, begun.stderr);
      const page = await enter({ viewport: { width: 1440, height: 900 } }, own.token);
      await go(page, "/jobs/train");
      assert.match(await page.textContent(".figures"), /of \$0\.05 at most/);
      // The page is not reloaded from here on.
      await page.evaluate(() => (window.kept = true));
      await page.waitForSelector("text=/The last interruption \\(attempt 1, .*\\) cost [1-9]\\d*s of work .*; \\d+s until the command ran again/", { timeout: 90000 });
      await page.waitForSelector("#log:has-text('begins at step 6')", { timeout: 30000 });
      await page.waitForSelector("#log:has-text('step 11')", { timeout: 30000 });
      assert.ok(await page.evaluate(() => window.kept), "the log grew without a reload");
      for (const colorScheme of ["light", "dark"]) {
        for (const width of [1440, 390]) {
          const other = await open({ colorScheme, viewport: { width, height: 900 } }, own.token, own.base);
          for (const path of ["/jobs", "/jobs/train", "/jobs/train/log", "/mine", "/settings"]) {
            await go(other, path);
            await other.screenshot({ path: join(out, `page-jobs${path.replaceAll("/", "-")}-${colorScheme}-${width}.png`), fullPage: true });
            await check(other, path);
            await other.evaluate(() => document.querySelectorAll("main details").forEach((d) => (d.open = true)));
            await check(other, path + " with forms open");
          }
          await other.context().close();
        }
      }
      await page.click("summary:has-text('Cancel')");
      assert.match(await page.textContent("form[action='/do/quit']"), /Saves[^]*Undo/);
      await page.click("form[action='/do/quit'] button[type=submit]");
      await page.waitForSelector("h1:has-text('train was canceled')", { timeout: 60000 });
      assert.equal((await own.api("jobs/train")).doc.runs[0].job.attempts.length, 2);
      assert.equal(own.run("edited").status, 3, "an edited command asks again");
      await go(lead, "/approvals");
      assert.match(await lead.textContent(".request"), /at most \$0\.10/);
      // No one listens at the address of the webhook, and the page says so.
      await go(page, "/settings");
      await page.click("button:has-text('Send a test')");
      assert.match(await page.textContent("main"), /webhook/);
      complaints.splice(0, complaints.length, ...complaints.filter((c) => !/^jobs: console: .*status of (424|500|502)/.test(c)));
    } finally {
      // A page that is open goes on asking for its log when the service has ended.
      for (const context of contexts) await context.close();
      await own.end();
    }
  },

  // A freeze shows on every open page without a reload, and forms work without a script.
  async freeze() {
    const page = await open({ viewport: { width: 1440, height: 900 } });
    await go(page, "/costs");
    await page.waitForSelector("#live:has-text('Live')");
    const plain = await open({ javaScriptEnabled: false });
    await go(plain, "/alerts");
    await plain.click(".freeze summary");
    await plain.fill(".freeze input[name=reason]", "a drill");
    await plain.click("button:has-text('Freeze all actions')");
    assert.match(await plain.textContent(".freeze"), /Frozen/);
    await page.waitForSelector(".freeze.on", { timeout: 30000 });
    await api("freezes/lift", { reason: "over" });
    await page.waitForSelector(".freeze:not(.on)", { timeout: 30000 });
  },

  // The first view answers fast.
  async speed() {
    const page = await open({});
    const times = [];
    for (let i = 0; i < 15; i++) {
      const begun = performance.now();
      const r = await page.request.get(base + "/");
      if (r.status() === 200) times.push(performance.now() - begun);
      await page.waitForTimeout(150);
    }
    times.sort((a, b) => a - b);
    console.error(`first view: median ${times[times.length >> 1].toFixed(0)} ms`);
    assert.ok(times[times.length >> 1] < 300, `the median of the first view is ${times[times.length >> 1]} ms`);
  },
};

try {
  mkdirSync(out, { recursive: true });
  if (!values.only) await until("an audit", async () => (await api("scans/last")).status === 200);
  for (const [name, story] of Object.entries(once)) {
    if (values.only && values.only !== name) continue;
    context = name;
    await story();
    process.stderr.write(`${name}\n`);
  }
  const { finding, machine } = worst((await api("scans/last")).doc);
  const paths = ["/", "/machines", machine, "/mine?of=dmitri", "/findings", "/findings/" + finding.id, "/jobs", "/plan", "/costs",
    "/budgets", "/approvals", "/policies", "/gateways", "/fleets", "/alerts", "/audit", "/settings", "/why", "/why/now.wasted"];
  for (const colorScheme of values.only ? [] : ["light", "dark"]) {
    for (const width of [1440, 390]) {
      const page = await open({ colorScheme, viewport: { width, height: 900 } });
      for (const path of paths) {
        context = `${colorScheme} ${width}`;
        await go(page, path);
        const name = path.split(/[/?]/)[1] || "now";
        await page.screenshot({ path: join(out, `page-${name}${path.split("/").length > 2 ? "-one" : ""}-${colorScheme}-${width}.png`), fullPage: true });
        await check(page, path);
        await page.evaluate(() => document.querySelectorAll("main details").forEach((d) => (d.open = true)));
        await check(page, path + " with forms open");
      }
      for (const [name, story] of Object.entries(stories)) {
        context = `${name} ${colorScheme} ${width}`;
        await story(page);
      }
      await page.context().close();
      process.stderr.write(`${colorScheme} ${width}\n`);
    }
  }
} finally {
  await browser.close();
  await service.end();
}
for (const c of complaints) console.log(c);
console.error(`${complaints.length} complaints; pictures in ${out}`);
process.exit(complaints.length ? 1 : 0);
