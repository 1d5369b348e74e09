// Writes every report, opens each in a browser, light and dark, wide and narrow, takes its
// picture and its print, and checks it: axe, sizes of letters, overlapping texts, width,
// and that it asks no other host for anything.
//
//   node run.mjs [--only NAME] [--out DIR]
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { overlappingText, smallText, tooWide } from "./checks.mjs";
import { reports } from "./reports.mjs";

const { values } = parseArgs({ options: { only: { type: "string" }, out: { type: "string" } } });
const root = resolve(import.meta.dirname, "../..");
const out = resolve(values.out ?? join(root, "screenshots"));
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browserPath = ["/usr/bin/chromium", "/usr/bin/google-chrome"].find(existsSync);

// write runs the commands of a report with a state of its own and returns its page.
function write(name, commands) {
  const state = mkdtempSync(join(tmpdir(), "curfew-report-"));
  try {
    let page = "";
    for (const [i, args] of commands.entries()) {
      const all = ["--data-dir", state, "--quiet", ...args];
      if (i === commands.length - 1) all.push("-o", "html");
      try {
        page = execFileSync(join(root, "bin/curfew"), all, { cwd: root, encoding: "utf8", maxBuffer: 1 << 26, stdio: ["ignore", "pipe", "pipe"] });
      } catch (e) {
        // 3, 4 and 5 are answers: held, denied, partial.
        if (![3, 4, 5].includes(e.status)) throw new Error(`curfew ${args.join(" ")}: ${e.stderr}`);
        page = e.stdout;
      }
    }
    if (!page.includes("<html")) throw new Error(`${name}: no page came out`);
    const file = join(out, name + ".html");
    writeFileSync(file, page);
    return file;
  } finally {
    rmSync(state, { recursive: true, force: true });
  }
}

mkdirSync(out, { recursive: true });
const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });
const complaints = [];
for (const [name, commands] of Object.entries(reports)) {
  if (values.only && name !== values.only) continue;
  const file = write(name, commands);
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1440, 390]) {
      const at = `${name}-${colorScheme}-${width}`;
      const say = (what) => complaints.push(`${at}: ${what}`);
      const page = await browser.newPage({ colorScheme, viewport: { width, height: 900 }, bypassCSP: true });
      page.on("request", (r) => r.url().startsWith("file:") || r.url().startsWith("data:") || say(`asks ${r.url()}`));
      page.on("pageerror", (e) => say(`script error: ${e.message}`));
      await page.goto(pathToFileURL(file).href);
      await page.screenshot({ path: join(out, at + ".png"), fullPage: true });
      if (colorScheme === "light" && width === 1440) await page.pdf({ path: join(out, name + ".pdf"), format: "A4" });
      // What is folded is read too.
      await page.evaluate(() => document.querySelectorAll("details").forEach((d) => (d.open = true)));
      for (const check of [smallText, overlappingText, tooWide]) (await page.evaluate(check)).forEach(say);
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run());
      for (const v of violations.filter((v) => ["serious", "critical"].includes(v.impact)))
        say(`axe ${v.id}: ${v.help} (${v.nodes.length} places, first ${v.nodes[0].target})`);
      await page.close();
    }
  }
  process.stderr.write(`${name}\n`);
}
await browser.close();
for (const c of complaints) console.log(c);
console.error(`${complaints.length} complaints; pictures in ${out}`);
process.exit(complaints.length ? 1 : 0);
