// A service of the simulated account, as tests and pictures start it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

// serve starts a service in a folder of its own and waits for the link that it prints.
export async function serve(root, ...options) {
  const dir = mkdtempSync(join(tmpdir(), "curfew-pages-"));
  const args = ["serve", "--demo", "--listen", "127.0.0.1:0", "--data-dir", dir, ...options];
  const child = spawn(join(root, "bin/curfew"), args, { cwd: dir, stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  child.stderr.on("data", (text) => (log += text));
  const link = await new Promise((done, failed) => {
    let said = "";
    child.stdout.on("data", (text) => {
      said += text;
      const line = said.split("\n").find((l) => l.includes("://"));
      if (line && said.includes(line + "\n")) done(line);
    });
    child.on("exit", () => failed(new Error(`the service ended: ${log}`)));
  });
  assert.match(link, /^http:\/\/127\.0\.0\.1:\d+\/auth\/once\?code=\S+$/, "the link is alone on its line");
  const token = readFileSync(join(dir, "owner-token"), "utf8").trim();
  const base = new URL(link).origin;

  // api calls the API with a token, and waits where it answers that calls are too many.
  async function api(path, body, as = token) {
    for (;;) {
      const r = await fetch(base + "/api/v1/" + path, {
        method: body ? "POST" : "GET",
        headers: { Authorization: "Bearer " + as, ...(body ? { "Content-Type": "application/json" } : {}) },
        body: body && JSON.stringify(body),
      });
      if (r.status !== 429) return { status: r.status, doc: await r.json() };
      await new Promise((done) => setTimeout(done, 200));
    }
  }

  // until waits for a condition.
  async function until(what, is, seconds = 120) {
    const end = Date.now() + seconds * 1000;
    for (;;) {
      const got = await is();
      if (got) return got;
      assert.ok(Date.now() < end, `${what} within ${seconds}s; ${log}`);
      await new Promise((done) => setTimeout(done, 200));
    }
  }

  const end = () =>
    new Promise((done) => {
      child.removeAllListeners("exit");
      child.on("exit", () => {
        rmSync(dir, { recursive: true, force: true });
        done();
      });
      child.kill("SIGTERM");
    });
  return { link, token, base, api, until, end };
}

// worst is the finding with the most money of an audit, and the path of its machine.
export function worst(scan) {
  const saved = (f) => Number(f.monthly_savings_usd ?? 0);
  const finding = scan.findings.reduce((a, b) => (saved(a) > saved(b) ? a : b));
  const { cloud, account, region, kind, id } = finding.resource;
  return { finding, machine: `/machines/${cloud}/${account}/${region}/${kind}/${id}` };
}
