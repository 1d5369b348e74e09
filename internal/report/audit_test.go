package report

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

var (
	now     = time.Date(2026, 7, 20, 9, 0, 38, 0, time.UTC)
	account = "123456789012"
)

// world builds an audit from resources, their meters and what was found of them.
type world struct{ a *round.Result }

func newWorld() *world {
	return &world{&round.Result{
		StartedAt: now.Add(-38 * time.Second), FinishedAt: now,
		Observation: round.Observation{
			Cloud: "aws", Accounts: []string{account}, Regions: []string{"us-east-1", "eu-west-1"},
			Windows: map[inventory.Ref]*usage.Window{}, CommitmentsKnown: true,
		},
		Verdicts: map[inventory.Ref]duty.Verdict{},
		Charges:  map[inventory.Ref][]ledger.Charge{},
	}}
}

func (w *world) resource(kind inventory.Kind, id, typ, name string, o inventory.Owner) *inventory.Resource {
	r := &inventory.Resource{
		ID: id, Name: name, Kind: kind, Cloud: "aws", Account: account, Region: "us-east-1", Type: typ,
		State: inventory.StateRunning, CreatedAt: now.Add(-40 * 24 * time.Hour), Owner: o,
	}
	w.a.Resources = append(w.a.Resources, r)
	return r
}

func (w *world) charge(r *inventory.Resource, meter string, c ledger.Category, dollars string) {
	w.a.Charges[r.Ref()] = append(w.a.Charges[r.Ref()], ledger.Charge{
		Resource: r, Meter: meter, Category: c, ListCost: usd(dollars), Unit: "hour",
		Source: "AWS price list", AsOf: time.Date(2026, 7, 6, 0, 0, 0, 0, time.UTC),
	})
}

func (w *world) unpriced(r *inventory.Resource, meter string, c ledger.Category, why string) {
	w.a.Charges[r.Ref()] = append(w.a.Charges[r.Ref()], ledger.Charge{Resource: r, Meter: meter, Category: c, Unpriced: why})
}

func (w *world) verdict(r *inventory.Resource, s duty.State, why string) {
	w.a.Verdicts[r.Ref()] = duty.Verdict{State: s, Why: why, Coverage: 0.99}
}

// found is what a finding of these tests differs in from a plain one.
type found struct {
	rule       string
	step       finding.Step
	waste      string
	unmeasured bool
	saving     finding.Saving
	cost       string
	confidence finding.Level
	because    string
	evidence   []usage.Evidence
	fix        finding.Fix
}

func (w *world) find(r *inventory.Resource, f found) *finding.Finding {
	id := finding.ID(f.rule, r.Ref())
	f.fix.Command = cmp.Or(f.fix.Command, "curfew fix "+id[:8])
	if f.evidence == nil {
		f.evidence = []usage.Evidence{usage.Fact("state", string(r.State), "ec2")}
	}
	w.a.Findings = append(w.a.Findings, finding.Finding{
		ID: id, Rule: f.rule, Step: f.step, Resource: r, Waste: usd(cmp.Or(f.waste, "0")), WasteUnknown: f.unmeasured, Savings: f.saving,
		Cost: usd(cmp.Or(f.cost, "0")), Confidence: cmp.Or(f.confidence, finding.High), Because: f.because, Evidence: f.evidence,
		Fix: finding.Fix{Change: change.Change{Verb: cmp.Or(f.fix.Change.Verb, change.Stop), Arguments: f.fix.Change.Arguments}, Command: f.fix.Command, Risk: cmp.Or(f.fix.Risk, finding.Low),
			Undo: cmp.Or(f.fix.Undo, finding.UndoFull), Note: f.fix.Note},
		Claims: []finding.Claim{{Resource: r.Ref(), Meter: "compute", Category: categoryOfKind(r.Kind), Waste: usd(cmp.Or(f.waste, "0")), Savings: f.saving.Amount}},
	})
	return &w.a.Findings[len(w.a.Findings)-1]
}

func categoryOfKind(k inventory.Kind) ledger.Category {
	switch k {
	case inventory.KindInstance, inventory.KindEndpoint, inventory.KindNotebook, inventory.KindCapacityReservation:
		return ledger.Compute
	case inventory.KindAddress, inventory.KindNATGateway, inventory.KindLoadBalancer:
		return ledger.Network
	}
	return ledger.Storage
}

func usd(s string) money.Amount {
	a, err := money.ParseAmount(s)
	if err != nil {
		panic(err)
	}
	return a
}

func saving(s string) finding.Saving { return finding.Saving{Known: true, Amount: usd(s)} }

// audit adds up the totals and returns the audit.
func (w *world) audit() *round.Result {
	a := w.a
	t := round.Totals{ByCategory: map[string]money.Amount{}, ByKind: map[inventory.Kind]int{}}
	wasted := map[inventory.Ref]money.Amount{}
	teams := map[string]*round.OwnerTotal{}
	steps := map[finding.Step]*round.StepTotal{}
	team := func(r *inventory.Resource) *round.OwnerTotal {
		if teams[r.Owner.Team] == nil {
			teams[r.Owner.Team] = &round.OwnerTotal{Team: r.Owner.Team}
		}
		return teams[r.Owner.Team]
	}
	for _, f := range a.Findings {
		t.Waste += f.Waste
		t.FindingsWaste += f.Waste
		team(f.Resource).Waste += f.Waste
		if f.Claims[0].Category == ledger.Compute {
			wasted[f.Resource.Ref()] += f.Waste
		}
		s := steps[f.Step]
		if s == nil {
			s = &round.StepTotal{Step: f.Step, Risk: f.Fix.Risk}
			steps[f.Step] = s
		}
		s.Findings++
		s.Savings += f.Savings.Amount
		if !f.Savings.Known {
			s.Unknown++
			s.UpTo += f.Savings.UpperBound
		}
	}
	for _, r := range a.Resources {
		t.ByKind[r.Kind]++
		team(r).Resources++
		without := false
		for _, c := range a.Charges[r.Ref()] {
			if c.Unpriced != "" {
				without = true
				continue
			}
			if c.Category == ledger.Committed {
				t.Committed += c.ListCost
				continue
			}
			t.Cost += c.ListCost
			team(r).Cost += c.ListCost
			if c.Category != ledger.Compute {
				t.ByCategory[string(c.Category)] += c.ListCost
				continue
			}
			idle := min(wasted[r.Ref()], c.ListCost)
			t.ByCategory[round.CategoryIdle] += idle
			if _, judged := a.Duty(r); judged {
				t.ByCategory[round.CategoryActive] += c.ListCost - idle
			} else {
				t.ByCategory[round.CategoryUnknown] += c.ListCost - idle
				t.CannotJudge += c.ListCost - idle
			}
		}
		if without {
			t.Unpriced++
		}
	}
	for _, o := range teams {
		t.ByOwner = append(t.ByOwner, *o)
	}
	slices.SortFunc(t.ByOwner, func(x, y round.OwnerTotal) int {
		return cmp.Or(cmp.Compare(y.Cost, x.Cost), cmp.Compare(x.Team, y.Team))
	})
	for s := finding.StepMeasure; s <= finding.StepCommit; s++ {
		if steps[s] != nil {
			t.BySteps = append(t.BySteps, *steps[s])
		}
	}
	a.Totals = t
	a.Window = lastMonth(t)
	return a
}

// lastMonth is a window in which what runs now ran all the time.
func lastMonth(t round.Totals) *ledger.Costs {
	active, dark := t.ByCategory[round.CategoryActive], t.CannotJudge
	c := ledger.Cost{Wasted: ledger.Dollars(t.Waste), Used: ledger.Dollars(active), CannotJudge: ledger.Dollars(dark),
		Other: ledger.Dollars(t.Cost - t.Waste - active - dark), Amount: ledger.Dollars(t.Cost)}
	if t.Unpriced > 0 {
		c.UnknownSeconds, c.UnboundedSeconds, c.AtMostReason = int64(money.Month/time.Second), int64(money.Month/time.Second), "no price"
	} else {
		c.AtMost = new(ledger.Dollars)
	}
	return &ledger.Costs{Since: now.Add(-money.Month), Until: now, Total: c}
}

// window is 14 days of hourly points of one signal; value returns what was measured
// at hour h of 336, and a negative number where nothing was.
func (w *world) window(r *inventory.Resource, s usage.Signal, gpus int, value func(h, gpu int) float64) {
	win := w.a.Windows[r.Ref()]
	if win == nil {
		win = usage.NewWindow(now.Add(-14*24*time.Hour), now, time.Hour, "cloudwatch", nil)
		w.a.Windows[r.Ref()] = win
	}
	for g := range gpus {
		for h := range 336 {
			if v := value(h, g); v >= 0 {
				win.Add(fmt.Sprint(g), s, usage.Point{Time: win.From.Add(time.Duration(h) * time.Hour), Mean: v, Max: v})
			}
		}
	}
}

func measured(signal, value string, coverage float64) usage.Evidence {
	return usage.Evidence{Signal: signal, Value: value, Window: 14 * 24 * time.Hour, Coverage: coverage, Source: "cloudwatch"}
}

var (
	ana      = inventory.Owner{Team: "vision", Project: "ranking", User: "ana", Environment: "dev", CostCenter: "cc-17"}
	ben      = inventory.Owner{Team: "vision", Project: "ranking", User: "ben"}
	chidi    = inventory.Owner{Team: "speech", Project: "asr", User: "chidi", Environment: "production"}
	dora     = inventory.Owner{Team: "research", User: "dora"}
	untagged = inventory.Owner{}
	storage  = inventory.Owner{Team: "platform", Project: "data"}
)

// realistic is an account with waste of most kinds, honest work, and things that
// could not be read, judged or priced.
func realistic() *round.Result {
	w := newWorld()
	held := w.resource(inventory.KindInstance, "i-0f3a9c21d4e5b6a70", "p4d.24xlarge", "ana-notebook", ana)
	held.Lifetime, held.Purpose = inventory.Ephemeral, inventory.Experimentation
	w.charge(held, "compute", ledger.Compute, "16035.30")
	w.verdict(held, duty.Held, "92% of memory held, 0% compute")
	w.window(held, usage.GPUUtil, 8, func(h, g int) float64 {
		switch {
		case h < 180:
			return float64(60 + (h*7+g*13)%35)
		case h > 250 && h < 262:
			return -1
		}
		return 0
	})
	w.window(held, usage.MemUsed, 8, func(h, _ int) float64 {
		if h > 250 && h < 262 {
			return -1
		}
		return 0.92 * 40 * (1 << 30)
	})
	w.window(held, usage.MemTotal, 8, func(int, int) float64 { return 40 * (1 << 30) })
	w.find(held, found{rule: "gpu-held", step: finding.StepIdle, waste: "7481.20", saving: saving("7481.20"),
		because:  "92% of memory held, 0% compute for 6 d 4 h",
		evidence: []usage.Evidence{measured("gpu_util_max_pct", "0", 0.964), measured("gpu_memory_used_pct", "92", 0.964), usage.Fact("age", "40d", "ec2")},
		fix: finding.Fix{Change: change.Change{Verb: change.Stop}, Risk: finding.Medium, Undo: finding.UndoFull,
			Note: "The disks go on costing $80 a month. A stopped GPU machine may not start again for lack of capacity."}})

	idle := w.resource(inventory.KindInstance, "i-0aa1b2c3d4e5f6071", "g6e.12xlarge", "sweep-17", ben)
	idle.Lifetime, idle.Purpose = inventory.Ephemeral, inventory.Training
	w.charge(idle, "compute", ledger.Compute, "7660.71")
	w.verdict(idle, duty.Idle, "no GPU above 1%")
	w.window(idle, usage.GPUUtil, 4, func(h, _ int) float64 {
		if h > 90 && h < 130 {
			return -1
		}
		return float64(h%5) * 0.1
	})
	w.find(idle, found{rule: "gpu-instance-idle", step: finding.StepIdle, waste: "7660.71",
		saving:   finding.Saving{UpperBound: usd("7660.71"), Bounded: true, Why: "savings plans could not be read"},
		because:  "no GPU above 0.4% for 14 d",
		evidence: []usage.Evidence{measured("gpu_util_max_pct", "0.4", 0.881)},
		fix:      finding.Fix{Change: change.Change{Verb: change.Terminate}, Undo: finding.UndoNone, Risk: finding.Low, Note: "Its disks hold no data that is kept only there."}})

	endpoint := w.resource(inventory.KindEndpoint, "asr-canary", "g5.xlarge", "asr-canary", chidi)
	endpoint.Purpose = inventory.Inference
	w.charge(endpoint, "compute", ledger.Compute, "1028.21")
	w.verdict(endpoint, duty.Idle, "no invocation in 14 d")
	w.find(endpoint, found{rule: "endpoint-idle", step: finding.StepIdle, waste: "1028.21", saving: saving("1028.21"),
		because: "no invocation in 14 d", evidence: []usage.Evidence{measured("invocations_sum", "0", 1)},
		fix: finding.Fix{Change: change.Change{Verb: change.Delete}, Risk: finding.High, Undo: finding.UndoPartial, Note: "A production endpoint: curfew only warns about it."}})

	busy := w.resource(inventory.KindInstance, "i-0bb1b2c3d4e5f6072", "p5.48xlarge", "llm-pretrain-0", dora)
	busy.Purpose, busy.Lifetime = inventory.Training, inventory.Ephemeral
	w.charge(busy, "compute", ledger.Compute, "40179.20")
	w.verdict(busy, duty.Busy, "96% GPU")
	w.window(busy, usage.GPUUtil, 8, func(h, g int) float64 { return float64(88 + (h+g)%12) })
	w.find(busy, found{rule: "training-on-demand", step: finding.StepSpot, saving: saving("18080.64"), confidence: finding.Medium,
		because: "busy on-demand training; spot is 55% cheaper", evidence: []usage.Evidence{measured("gpu_util_mean_pct", "93.5", 1)},
		fix: finding.Fix{Change: change.Change{Verb: change.UseSpot}, Risk: finding.Medium, Undo: finding.UndoFull, Note: "Needs checkpoints: a spot machine has two minutes' notice."}})

	dark := w.resource(inventory.KindInstance, "i-0cc1b2c3d4e5f6073", "g5.48xlarge", "", untagged)
	dark.Region = "eu-west-1"
	w.charge(dark, "compute", ledger.Compute, "11889.40")
	w.verdict(dark, duty.Unknown, "no GPU telemetry")
	w.find(dark, found{rule: "telemetry-missing", step: finding.StepMeasure, saving: saving("0"), cost: "11889.40",
		because: "8 GPUs and nobody measures them", evidence: []usage.Evidence{measured("cpu_util_mean_pct", "12", 0.999)},
		fix: finding.Fix{Change: change.Change{Verb: change.Measure}, Command: "curfew scan --usage gpus.csv", Risk: finding.None}})
	w.find(dark, found{rule: "tag-missing", step: finding.StepMeasure, saving: saving("0"), cost: "11889.40",
		because: "no team, project, environment or cost-center", fix: finding.Fix{Change: change.Change{Verb: change.Tag}, Risk: finding.None}})

	bucket := w.resource(inventory.KindBucket, "datasets-raw", "", "datasets-raw", storage)
	bucket.Lifetime, bucket.Purpose = inventory.Persistent, inventory.Data
	w.charge(bucket, "storage:STANDARD", ledger.Storage, "2355.20")
	w.find(bucket, found{rule: "bucket-no-lifecycle", step: finding.StepStorage, saving: saving("1588.74"),
		because:  "100 TB never read since spring, no lifecycle",
		evidence: []usage.Evidence{usage.Fact("older_than_90d_bytes", "98.2 TiB", "s3"), usage.Fact("transition_fee_usd", "41.20", "price book")},
		fix: finding.Fix{Change: change.Change{Verb: change.PutLifecycle}, Risk: finding.Low, Undo: finding.UndoPartial,
			Note: "Moving costs $41.20 once and pays back within a day. Objects under 128 KiB stay. Reading archived data costs $0.01/GB."}})
	volume := w.resource(inventory.KindVolume, "vol-0dd1b2c3d4e5f6074", "gp3", "old-scratch", ana)
	volume.State = inventory.StateAvailable
	w.charge(volume, "storage", ledger.Storage, "163.84")
	w.find(volume, found{rule: "volume-unattached", step: finding.StepStorage, waste: "163.84", saving: saving("143.36"),
		because: "attached to nothing for 61 d", evidence: []usage.Evidence{usage.Fact("state", "available", "ec2")},
		fix: finding.Fix{Change: change.Change{Verb: change.Delete, Arguments: change.Arguments{Snapshot: []string{"vol-1"}}}, Risk: finding.Low, Undo: finding.UndoPartial}})
	address := w.resource(inventory.KindAddress, "eipalloc-0ee1", "", "", untagged)
	w.charge(address, "hours", ledger.Network, "3.65")
	w.find(address, found{rule: "address-unused", step: finding.StepIdle, waste: "3.65", saving: saving("3.65"), because: "associated with nothing",
		fix: finding.Fix{Change: change.Change{Verb: change.Release}, Risk: finding.Low, Undo: finding.UndoNone}})
	nat := w.resource(inventory.KindNATGateway, "nat-0ff1", "public", "shared-nat", storage)
	w.charge(nat, "hours", ledger.Network, "32.85")
	secret := w.resource(inventory.KindSecret, "hf-token", "", "hf-token", chidi)
	w.charge(secret, "months", ledger.Overhead, "0.40")
	logs := w.resource(inventory.KindLogGroup, "/aws/sagemaker/TrainingJobs", "", "/aws/sagemaker/TrainingJobs", dora)
	w.charge(logs, "storage", ledger.Storage, "36.90")
	w.find(logs, found{rule: "log-group-no-retention", step: finding.StepStorage, confidence: finding.Medium,
		saving:  finding.Saving{UpperBound: usd("36.90"), Bounded: true, Why: "how old the logs are was not read"},
		because: "1.2 TiB of logs kept for ever", fix: finding.Fix{Change: change.Change{Verb: change.PutRetention}, Risk: finding.Medium, Undo: finding.UndoNone}})
	fresh := w.resource(inventory.KindInstance, "i-0ab9b2c3d4e5f6075", "p6-b300.48xlarge", "b300-trial", dora)
	w.unpriced(fresh, "compute", ledger.Compute, "no price for p6-b300.48xlarge in us-east-1")
	w.verdict(fresh, duty.Idle, "no GPU above 1%")
	w.find(fresh, found{rule: "gpu-instance-idle", step: finding.StepIdle, because: "no GPU above 0% for 3 d",
		saving: finding.Saving{Why: "no price for p6-b300.48xlarge in us-east-1"}, fix: finding.Fix{Change: change.Change{Verb: change.Stop}, Risk: finding.Medium}})
	plan := w.resource(inventory.KindCommitment, "sp-0011", "compute-savings-plan", "", untagged)
	w.charge(plan, "commitment", ledger.Committed, "3650.00")
	for i := range 3 {
		s := w.resource(inventory.KindSnapshot, fmt.Sprintf("snap-0%d", i), "", "", storage)
		w.unpriced(s, "storage", ledger.Storage, "incremental snapshot")
	}
	w.a.BlindSpots = []inventory.BlindSpot{
		{What: "cloudwatch eu-west-1", Why: "AccessDenied: cloudwatch:GetMetricData", Effect: "idle rules not evaluated for 9 machines"},
		{What: "savings plans", Why: "AccessDenied: savingsplans:DescribeSavingsPlans", Effect: "savings are upper bounds at list price"},
	}
	w.a.Calls = []round.Calls{
		{API: "ec2:DescribeInstances", Count: 4},
		{API: "cloudwatch:GetMetricData", Count: 3, Units: 1280, Cost: usd("0.0128")},
		{API: "s3:ListObjectsV2", Count: 24, Units: 24, Cost: usd("0.00012")},
	}
	w.a.Billed = &round.Billed{Start: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), End: time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC),
		Total: usd("91204.11"), Source: "Cost Explorer",
		ByService: []round.ServiceCost{{Service: "Amazon Simple Storage Service", Cost: usd("2610.02")}, {Service: "Amazon EC2", Cost: usd("86011.90")}}}
	return w.audit()
}

// hostile is an account whose names try to break what they are printed in.
func hostile() *round.Result {
	w := newWorld()
	w.a.Accounts = append(w.a.Accounts, "<b>999</b>")
	evil := []string{
		`<script>alert(1)</script>`, "=HYPERLINK(\"http://x\")", "| a | `b` | [x](javascript:alert(1)) |", "line\nbreak\r\nand\ttab",
		"\x1b[31mred\x1b[0m\x07", "日本語の名前がとても長い場合でも表は崩れません", "👩‍🔬 lab", "\u202edesrever", "bad\xffutf8", `"quoted", 'and' \back`, "null", "1e3", "- item: {x}",
		"a very long name that goes on and on and on and does not stop before it has filled more than one whole line of every terminal there is",
	}
	for i, name := range evil {
		r := w.resource(inventory.KindInstance, fmt.Sprintf("i-%040d", i), "g5.xlarge", name, inventory.Owner{Team: name, User: name})
		w.charge(r, "compute", ledger.Compute, "734.38")
		w.verdict(r, duty.Idle, name)
		w.find(r, found{rule: "gpu-instance-idle", step: finding.StepIdle, waste: "734.38", saving: saving("734.38"), because: name,
			fix: finding.Fix{Note: name}, evidence: []usage.Evidence{usage.Fact(name, name, name)}})
		w.a.BlindSpots = append(w.a.BlindSpots, inventory.BlindSpot{What: name, Why: name, Effect: name})
	}
	w.a.Sort()
	return w.audit()
}

// allUnpriced is an account in which nothing has a price.
func allUnpriced() *round.Result {
	w := newWorld()
	for i := range 3 {
		r := w.resource(inventory.KindInstance, fmt.Sprintf("i-%d", i), "p9.metal", "", dora)
		w.unpriced(r, "compute", ledger.Compute, "no price for p9.metal in us-east-1")
		w.verdict(r, duty.Idle, "no GPU above 1%")
		w.find(r, found{rule: "gpu-instance-idle", step: finding.StepIdle, because: "idle", saving: finding.Saving{Why: "no price for p9.metal in us-east-1"}})
	}
	return w.audit()
}

// nothingFound is an account of honest work.
func nothingFound() *round.Result {
	w := newWorld()
	r := w.resource(inventory.KindInstance, "i-1", "g5.xlarge", "train", dora)
	w.charge(r, "compute", ledger.Compute, "734.38")
	w.verdict(r, duty.Busy, "95% GPU")
	return w.audit()
}

// many is an account with n findings.
func many(n int) *round.Result {
	w := newWorld()
	for i := range n {
		r := w.resource(inventory.KindVolume, fmt.Sprintf("vol-%017x", i), "gp2", fmt.Sprintf("data-%d", i), inventory.Owner{Team: fmt.Sprintf("team-%d", i%40)})
		w.charge(r, "storage", ledger.Storage, fmt.Sprintf("%d.%02d", i%900, i%100))
		w.find(r, found{rule: "volume-gp2", step: finding.StepStorage, saving: saving(fmt.Sprintf("%d.%02d", i%180, i%100)), because: "gp3 is cheaper"})
	}
	return w.audit()
}

// audits are the accounts that every output is held against.
func audits() map[string]*round.Result {
	return map[string]*round.Result{
		"realistic": realistic(), "hostile": hostile(), "all unpriced": allUnpriced(), "nothing found": nothingFound(),
		"no resources": newWorld().audit(), "zero": {}, "5,000 findings": many(5000),
	}
}

func eachAudit(t *testing.T, f func(t *testing.T, a *round.Result)) {
	t.Helper()
	for name, a := range audits() {
		t.Run(name, func(t *testing.T) { f(t, a) })
	}
}
