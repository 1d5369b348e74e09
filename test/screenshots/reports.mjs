// The reports: what writes each page. A page's last command prints HTML; those before it
// fill the state that it reads. Paths are as seen from the repository root.
const spot = ["--trace", "examples/data/spot.csv", "--gap", "5m"];
const october = ["--since", "2026-10-01", "--until", "2026-11-01"];
const imported = ["bill", "import", "examples/data/focus-2026-10.csv"];

export const reports = {
  scan: [["scan", "--demo", "--no-save"]],
  "scan-bill": [["scan", "--demo", "--no-save", "--bill", "examples/data/focus-2026-10.csv"]],
  backtest: [["backtest", "--trace", "examples/data/gpus.csv.gz", "--restart-cost", "5m", "--policy", "examples/policies"]],
  "plan-rightsize": [["plan", "rightsize", "--usage", "examples/data/gpus.csv.gz"]],
  "plan-commit": [["plan", "commit", "--usage", "examples/data/hourly.csv.gz", "--offers", "examples/data/offers.csv", "--online"]],
  "plan-capacity": [["plan", "capacity", "--qps", "500", "--profile", "a=1ms,b=10ms", "--p99", "50ms", "--price", "1.006"]],
  "plan-capacity-replay": [["plan", "capacity", "--arrivals", "examples/data/requests.csv.gz", "--profile", "a=2ms,b=30ms", "--max-batch", "16", "--p99", "200ms"]],
  "plan-spot": [["plan", "spot", ...spot, "--work", "48h", "--deadline", "1.5x", "--spot-price", "0.918", "--on-demand-price", "3.06"]],
  "plan-checkpoint": [["plan", "checkpoint", ...spot, "--write", "2m", "--restart", "3m"]],
  "plan-market": [["plan", "market", "--for", "tokens"]],
  "plan-mig": [["plan", "mig", "--gpu", "A100-80GB", "--workloads", "examples/data/workloads.csv"]],
  "plan-tco": [["plan", "tco", "--saving", "1200/month", "--effort", "3w", "--rate", "120/h", "--upkeep", "2h/month"]],
  estimate: [["--config", "examples/jobs/curfew.yaml", "estimate", "examples/jobs/train.yaml"]],
  gate: [["--config", "examples/jobs/curfew.yaml", "gate", "examples/jobs/train.yaml"]],
  budget: [["budget", "--demo"]],
  "bill-show": [["bill", "show", "--demo"]],
  "bill-reconcile": [["bill", "reconcile", "--demo"]],
  costs: [["costs", "--demo"]],
  "costs-days": [["costs", "--demo", "--granularity", "day"]],
  "policy-check": [["policy", "check", "examples/policies"]],
  "policy-test": [["policy", "test", "--policy", "examples/policies", "examples/policies/tests"]],
  "costs-units": [
    imported,
    ["bill", "reconcile", ...october, "--post"],
    ["costs", "units", "--unit", "token", "--per", "1000000", "--target", "0.20", "--counts", "examples/data/tokens.csv", ...october],
  ],
};
