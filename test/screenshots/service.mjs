// A service of the simulated account, as tests and pictures start it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

// serve starts a service in a folder of its own and waits for the link that it prints.
export async function serve(root, ...options) {
  const dir = mkdtempSync(join(tmpdir(), "curfew-pages-"));
  const child = start(root, dir, dir, process.env, ["--demo", ...options]);
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
  return { link, ...handle(child, dir, new URL(link).origin, token, () => log) };
}

// serveIn starts a service of the configuration of a folder.
export async function serveIn(root, dir, env) {
  const data = join(dir, "data");
  const child = start(root, dir, data, env, []);
  let log = "";
  const base = await new Promise((done, failed) => {
    child.stderr.on("data", (text) => {
      log += text;
      const at = log.match(/msg=listening address=(\S+)/);
      if (at) done("http://" + at[1]);
    });
    child.on("exit", () => failed(new Error(`the service ended: ${log}`)));
  });
  const token = readFileSync(join(data, "owner-token"), "utf8").trim();
  return { data, ...handle(child, dir, base, token, () => log) };
}

function start(root, cwd, data, env, options) {
  const args = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data, ...options];
  return spawn(join(root, "bin/curfew"), args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
}

// handle is what tests do with a service that runs.
function handle(child, dir, base, token, log) {
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
      assert.ok(Date.now() < end, `${what} within ${seconds}s; ${log()}`);
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
  return { token, base, api, until, end };
}

// worst is the finding with the most money of an audit, and the path of its machine.
export function worst(scan) {
  const saved = (f) => Number(f.monthly_savings_usd ?? 0);
  const finding = scan.findings.reduce((a, b) => (saved(a) > saved(b) ? a : b));
  const { cloud, account, region, kind, id } = finding.resource;
  return { finding, machine: `/machines/${cloud}/${account}/${region}/${kind}/${id}` };
}
