// Takes the pictures of the documents: the audit of the demo, and the gate's comment as a
// pull request shows it: the Markdown that the gate wrote, on a page of our own.
//
//   node pictures.mjs DIRECTORY PICTURES
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { marked } from "marked";
import { chromium } from "playwright-core";

const [from, to] = process.argv.slice(2);
const html = marked.parse(readFileSync(join(from, "comment.md"), "utf8").replaceAll(/<!--.*?-->/gs, ""), { gfm: true });
const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Pull request</title><style>
  body { margin: 0; padding: 24px; background: #fff; color: #1f2328; font: 14px/1.5 "Noto Sans", "DejaVu Sans", Helvetica, Arial, sans-serif; width: 860px }
  h1 { font-size: 22px; font-weight: 400; margin: 0 0 4px } h1 span { color: #59636e }
  .state { display: inline-block; background: #1f883d; color: #fff; border-radius: 2em; padding: 3px 12px; font-weight: 600 }
  .sub { color: #59636e; margin: 0 0 18px; padding-bottom: 14px; border-bottom: 1px solid #d1d9e0 }
  .comment { border: 1px solid #d1d9e0; border-radius: 6px } .comment > header { background: #f6f8fa; border-bottom: 1px solid #d1d9e0; border-radius: 6px 6px 0 0; padding: 8px 16px; color: #59636e }
  .comment > header b { color: #1f2328 } .bot { border: 1px solid #d1d9e0; border-radius: 2em; padding: 0 7px; font-size: 12px; margin-left: 4px }
  .body { padding: 16px } .body > :first-child { margin-top: 0 } .body > :last-child { margin-bottom: 0 }
  h3 { font-size: 17px; margin: 0 0 12px } code { background: #eff1f3; border-radius: 6px; padding: .2em .4em; font: 12px "DejaVu Sans Mono", monospace; overflow-wrap: anywhere }
  table { border-collapse: collapse; margin: 0 0 14px } th, td { border: 1px solid #d1d9e0; padding: 6px 13px } ul { padding-left: 2em; margin: 0 0 14px } li { margin: 3px 0 }
  .checks { border: 1px solid #d1d9e0; border-radius: 6px; margin-top: 18px; padding: 12px 16px } .checks b { display: block } .checks i { color: #d1242f; font-style: normal; margin-right: 6px }
</style>
<h1>Train for five days <span>#7</span></h1>
<p class="sub"><span class="state">Open</span> &nbsp;octoana wants to merge 1 commit into <code>main</code> from <code>longer</code></p>
<div class="comment"><header><b>github-actions</b><span class="bot">bot</span> commented</header><div class="body">${html}</div></div>
<div class="checks"><b>1 failing check</b><i>✕</i>curfew gate / gate (pull_request)</div></html>`;

const executablePath = ["/usr/bin/chromium", "/usr/bin/google-chrome"].find(existsSync);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const tab = await browser.newPage({ viewport: { width: 908, height: 400 }, deviceScaleFactor: 1 });
await tab.setContent(page);
await tab.screenshot({ path: join(to, "gate-comment.png"), fullPage: true });
await tab.setViewportSize({ width: 1180, height: 1000 });
await tab.goto(pathToFileURL(resolve(from, "audit.html")).href);
await tab.screenshot({ path: join(to, "audit.png") });
await browser.close();
