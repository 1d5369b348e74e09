// A service that keeps jobs of this machine, with a price, a threshold of the gate and an approver,
// and the command line of the user who runs it.
import { spawnSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { serveIn } from "./service.mjs";

// A training that declares its saves. Its first attempt is killed between two of them.
const training = `begin=1
[ -f "$CURFEW_CHECKPOINT_DIR/step" ] && begin=$(($(cat "$CURFEW_CHECKPOINT_DIR/step") + 1))
echo "begins at step $begin"
i=$begin
while [ $i -le 600 ]; do
  echo "step $i"
  if [ $((i % 5)) = 0 ]; then
    echo $i > "$CURFEW_CHECKPOINT_DIR/step"
    echo "{\\"event\\":\\"saved\\",\\"path\\":\\"$CURFEW_CHECKPOINT_DIR/step\\",\\"step\\":$i,\\"at\\":\\"$(date -u +%FT%TZ)\\"}" >> "$CURFEW_RUN_DIR/events.jsonl"
  fi
  [ $CURFEW_ATTEMPT = 1 ] && [ $i = 9 ] && kill -9 $$
  i=$((i + 1)); sleep 1
done
`;

export async function serveJobs(root) {
  const dir = mkdtempSync(join(tmpdir(), "curfew-jobs-"));
  const me = userInfo().username;
  writeFileSync(join(dir, "train.sh"), training);
  writeFileSync(
    join(dir, "curfew.yaml"),
    `rates: {source: me, as_of: 2026-11-01, vcpu_hour: "0.04", memory_gib_hour: "0.005"}
gate: {ask_over: 0.01}
people: {${me}: {roles: [admin, approver]}, ana: {roles: [user]}}
notify: {webhook: {url: "http://127.0.0.1:9/none", secret_env: HOOK}, names: {oncall: [webhook]}}
`,
  );
  const env = {
    ...process.env, HOME: dir, XDG_STATE_HOME: dir, XDG_CONFIG_HOME: dir, AWS_REGION: "us-east-1", AWS_ACCESS_KEY_ID: "none", AWS_SECRET_ACCESS_KEY: "none", AWS_EC2_METADATA_DISABLED: "true", HOOK: "a-secret-of-the-test-0123456789abcdef",
  };
  delete env.CURFEW_SERVER;
  const ana = { ...env, CURFEW_IDENTITY: "ana" }; // asks, so that the owner of the service decides
  const service = await serveIn(root, dir, env);
  const curfew = (...args) => {
    const r = spawnSync(join(root, "bin/curfew"), [...args, "--data-dir", service.data], { cwd: dir, env: ana, encoding: "utf8" });
    return { code: r.status, out: r.stdout, err: r.stderr };
  };
  // run starts the training; steps after the file name make it another command.
  const run = (...more) =>
    spawnSync(join(root, "bin/curfew"), ["run", "--data-dir", service.data, "--no-code", "--cloud", "local", "--gpu", "none", "--cpus", "1", "--max-runtime", "1h", "--name", "train", "--detach", "--", "sh", join(dir, "train.sh"), ...more], { cwd: dir, env: ana, encoding: "utf8" });
  const end = async () => {
    curfew("cancel", "train", "--discard");
    await service.end();
  };
  return { ...service, curfew, run, end };
}
