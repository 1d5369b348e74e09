// Takes the pictures of the pages in README.md, from the simulated account.
//
//   node pagepictures.mjs PICTURES
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { chromium } from "playwright-core";
import { serve, worst } from "./service.mjs";

const to = process.argv[2];
const service = await serve(resolve(import.meta.dirname, "../.."));
const executablePath = ["/usr/bin/chromium", "/usr/bin/google-chrome"].find(existsSync);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
try {
  await service.until("requests", async () => (await service.api("approvals")).doc.requests?.length > 1);
  await service.until("an audit", async () => (await service.api("scans/last")).status === 200);
  const { machine } = worst((await service.api("scans/last")).doc);
  const context = await browser.newContext({ timezoneId: "UTC", locale: "en-US" });
  const page = await context.newPage();
  await page.goto(service.link);
  for (const [name, path, height, colorScheme] of [
    ["pages-now", "/", 1060, "light"],
    ["pages-machine", machine, 900, "dark"],
    ["pages-approvals", "/approvals", 940, "light"],
  ]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width: 1280, height });
    await page.goto(service.base + path);
    await page.screenshot({ path: join(to, name + ".png") });
  }
} finally {
  await browser.close();
  await service.end();
}
