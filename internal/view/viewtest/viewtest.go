// Package viewtest makes audits for the tests of documents and of what draws them.
package viewtest

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

var (
	now     = time.Date(2026, 7, 20, 9, 0, 38, 0, time.UTC)
	account = "123456789012"
)

// World builds an audit from resources, their meters and what was found of them.
type World struct{ *round.Result }

// NewWorld returns an account without resources.
func NewWorld() *World {
	return &World{&round.Result{
		StartedAt: now.Add(-38 * time.Second), FinishedAt: now,
		Observation: round.Observation{
			Cloud: "aws", Accounts: []string{account}, Regions: []string{"us-east-1", "eu-west-1"},
			Windows: map[inventory.Ref]*usage.Window{}, CommitmentsKnown: true,
		},
		Verdicts: map[inventory.Ref]duty.Verdict{},
		Charges:  map[inventory.Ref][]ledger.Charge{},
	}}
}

// Resource adds a running resource.
func (w *World) Resource(kind inventory.Kind, id, typ, name string, o inventory.Owner) *inventory.Resource {
	r := &inventory.Resource{
		ID: id, Name: name, Kind: kind, Cloud: "aws", Account: account, Region: "us-east-1", Type: typ,
		State: inventory.StateRunning, CreatedAt: now.Add(-40 * 24 * time.Hour), Owner: o,
	}
	w.Result.Resources = append(w.Result.Resources, r)
	return r
}

// Charge gives a resource a charge of an amount an hour.
func (w *World) Charge(r *inventory.Resource, meter string, c ledger.Category, dollars string) {
	w.Result.Charges[r.Ref()] = append(w.Result.Charges[r.Ref()], ledger.Charge{
		Resource: r, Meter: meter, Category: c, ListCost: USD(dollars), Unit: "hour",
		Source: "AWS price list", AsOf: time.Date(2026, 7, 6, 0, 0, 0, 0, time.UTC),
	})
}

// Unpriced gives a resource a meter without a price.
func (w *World) Unpriced(r *inventory.Resource, meter string, c ledger.Category, why string) {
	w.Result.Charges[r.Ref()] = append(w.Result.Charges[r.Ref()], ledger.Charge{
		Resource: r, Meter: meter, Category: c, Unpriced: why,
	})
}

// Verdict sets the duty of a resource.
func (w *World) Verdict(r *inventory.Resource, s duty.State, why string) {
	w.Result.Verdicts[r.Ref()] = duty.Verdict{State: s, Why: why, Coverage: 0.99}
}

// Found are the differences of a test's finding from a plain one.
type Found struct {
	Rule       string
	Step       finding.Step
	Waste      string
	Unmeasured bool
	Saving     finding.Saving
	Cost       string
	Confidence finding.Level
	Because    string
	Evidence   []usage.Evidence
	Fix        finding.Fix
}

// Find adds a finding about a resource.
func (w *World) Find(r *inventory.Resource, f Found) *finding.Finding {
	id := finding.ID(f.Rule, r.Ref())
	f.Fix.Command = cmp.Or(f.Fix.Command, "curfew fix "+id[:8])
	if f.Evidence == nil {
		f.Evidence = []usage.Evidence{usage.Fact("state", string(r.State), "ec2")}
	}
	w.Result.Findings = append(w.Result.Findings, finding.Finding{
		ID: id, Rule: f.Rule, Step: f.Step, Resource: r, Waste: USD(cmp.Or(f.Waste, "0")), WasteUnknown: f.Unmeasured,
		Savings: f.Saving,
		Cost:    USD(cmp.Or(f.Cost, "0")), Confidence: cmp.Or(f.Confidence, finding.High), Because: f.Because,
		Evidence: f.Evidence,
		Fix: finding.Fix{
			Change:  change.Change{Verb: cmp.Or(f.Fix.Change.Verb, change.Stop), Arguments: f.Fix.Change.Arguments},
			Command: f.Fix.Command, Risk: cmp.Or(f.Fix.Risk, finding.Low),
			Undo: cmp.Or(f.Fix.Undo, finding.UndoFull), Note: f.Fix.Note},
		Claims: []finding.Claim{
			{
				Resource: r.Ref(), Meter: "compute", Category: categoryOfKind(r.Kind),
				Waste:   USD(cmp.Or(f.Waste, "0")),
				Savings: f.Saving.Amount,
			},
		},
	})
	return &w.Result.Findings[len(w.Result.Findings)-1]
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

// USD reads an amount such as "12.50"; it panics on another text.
func USD(s string) money.Amount {
	a, err := money.ParseAmount(s)
	if err != nil {
		panic(err)
	}
	return a
}

// Saving is a known saving of an amount a month.
func Saving(s string) finding.Saving { return finding.Saving{Known: true, Amount: USD(s)} }

// Audit adds up the totals and returns the audit, over a month in which what runs now ran all
// the time.
func (w *World) Audit() *round.Result {
	a := w.Result
	a.Window = nil
	t, err := round.Sum(a)
	if err != nil {
		panic(err)
	}
	t.Waste = t.Now.Wasted
	for i := range t.ByOwner {
		t.ByOwner[i].Waste = t.ByOwner[i].Now.Wasted
	}
	a.Totals, a.Window = t, lastMonth(t)
	return a
}

// lastMonth is a window in which what runs now ran all the time.
func lastMonth(t round.Totals) *costs.Costs {
	c := costOf(t.Now)
	if t.Unpriced > 0 {
		c.UnknownSeconds, c.UnboundedSeconds, c.AtMostReason = int64(money.Month/time.Second), int64(
			money.Month/time.Second), "no price"
	} else {
		c.AtMost = new(money.Amount)
	}
	month := &costs.Costs{Since: now.Add(-money.Month), Until: now, Total: c}
	for _, o := range t.ByOwner {
		row := costOf(o.Now)
		row.Key = []string{o.Team}
		month.Rows = append(month.Rows, row)
	}
	return month
}

// costOf is the cost of a month at a run rate.
func costOf(now round.RunRate) costs.Cost {
	return costs.Cost{
		Wasted: now.Wasted, Used: now.Used, CannotJudge: now.Unmeasured, Other: now.Other, Amount: now.Running,
	}
}

// Window is 14 days of hourly points of one signal; value returns what was measured
// at hour h of 336, and a negative number where nothing was.
func (w *World) Window(r *inventory.Resource, s usage.Signal, gpus int, value func(h, gpu int) float64) {
	win := w.Result.Windows[r.Ref()]
	if win == nil {
		win = usage.NewWindow(now.Add(-14*24*time.Hour), now, time.Hour, "cloudwatch", nil)
		w.Result.Windows[r.Ref()] = win
	}
	for g := range gpus {
		for h := range 336 {
			if v := value(h, g); v >= 0 {
				win.Add(fmt.Sprint(g), s, usage.Point{
					Time: win.From.Add(time.Duration(h) * time.Hour), Mean: v, Max: v,
				})
			}
		}
	}
}

// Measured is evidence from CloudWatch over 14 days.
func Measured(signal, value string, coverage float64) usage.Evidence {
	return usage.Evidence{
		Signal: signal, Value: value, Window: 14 * 24 * time.Hour, Coverage: coverage, Source: "cloudwatch",
	}
}

var (
	// Ana owns what needs one known owner.
	Ana = inventory.Owner{
		Team: "vision", Project: "ranking", User: "ana", Environment: "dev", CostCenter: "cc-17",
	}
	ben      = inventory.Owner{Team: "vision", Project: "ranking", User: "ben"}
	chidi    = inventory.Owner{Team: "speech", Project: "asr", User: "chidi", Environment: "production"}
	dora     = inventory.Owner{Team: "research", User: "dora"}
	untagged = inventory.Owner{}
	storage  = inventory.Owner{Team: "platform", Project: "data"}
)

// Realistic is an account with waste of most kinds, honest work, and things that
// could not be read, judged or priced.
func Realistic() *round.Result {
	w := NewWorld()
	held := w.Resource(inventory.KindInstance, "i-0f3a9c21d4e5b6a70", "p4d.24xlarge", "ana-notebook", Ana)
	held.Lifetime, held.Purpose = inventory.Ephemeral, inventory.Experimentation
	w.Charge(held, "compute", ledger.Compute, "16035.30")
	w.Verdict(held, duty.Held, "92% of memory held, 0% compute")
	w.Window(held, usage.GPUUtil, 8, func(h, g int) float64 {
		switch {
		case h < 180:
			return float64(60 + (h*7+g*13)%35)
		case h > 250 && h < 262:
			return -1
		}
		return 0
	})
	w.Window(held, usage.MemUsed, 8, func(h, _ int) float64 {
		if h > 250 && h < 262 {
			return -1
		}
		return 0.92 * 40 * (1 << 30)
	})
	w.Window(held, usage.MemTotal, 8, func(int, int) float64 { return 40 * (1 << 30) })
	w.Find(held, Found{Rule: "gpu-held", Step: finding.StepIdle, Waste: "7481.20", Saving: Saving("7481.20"),
		Because: "92% of memory held, 0% compute for 6 d 4 h",
		Evidence: []usage.Evidence{
			Measured("gpu_util_max_pct", "0", 0.964), Measured("gpu_memory_used_pct", "92", 0.964),
			usage.Fact("age", "40d", "ec2"),
		},
		Fix: finding.Fix{Change: change.Change{Verb: change.Stop}, Risk: finding.Medium, Undo: finding.UndoFull,
			Note: "The disks go on costing $80 a month. A stopped GPU machine may not start again for lack of capacity."}})

	idle := w.Resource(inventory.KindInstance, "i-0aa1b2c3d4e5f6071", "g6e.12xlarge", "sweep-17", ben)
	idle.Lifetime, idle.Purpose = inventory.Ephemeral, inventory.Training
	w.Charge(idle, "compute", ledger.Compute, "7660.71")
	w.Verdict(idle, duty.Idle, "no GPU above 1%")
	w.Window(idle, usage.GPUUtil, 4, func(h, _ int) float64 {
		if h > 90 && h < 130 {
			return -1
		}
		return float64(h%5) * 0.1
	})
	w.Find(idle, Found{Rule: "gpu-instance-idle", Step: finding.StepIdle, Waste: "7660.71",
		Saving:   finding.Saving{UpperBound: USD("7660.71"), Bounded: true, Why: "savings plans could not be read"},
		Because:  "no GPU above 0.4% for 14 d",
		Evidence: []usage.Evidence{Measured("gpu_util_max_pct", "0.4", 0.881)},
		Fix: finding.Fix{
			Change: change.Change{Verb: change.Terminate}, Undo: finding.UndoNone, Risk: finding.Low,
			Note: "Its disks hold no data that is kept only there.",
		}})

	endpoint := w.Resource(inventory.KindEndpoint, "asr-canary", "g5.xlarge", "asr-canary", chidi)
	endpoint.Purpose = inventory.Inference
	w.Charge(endpoint, "compute", ledger.Compute, "1028.21")
	w.Verdict(endpoint, duty.Idle, "no invocation in 14 d")
	w.Find(endpoint, Found{Rule: "endpoint-idle", Step: finding.StepIdle, Waste: "1028.21", Saving: Saving("1028.21"),
		Because: "no invocation in 14 d", Evidence: []usage.Evidence{Measured("invocations_sum", "0", 1)},
		Fix: finding.Fix{
			Change: change.Change{Verb: change.Delete}, Risk: finding.High, Undo: finding.UndoPartial,
			Note: "A production endpoint: curfew only warns about it.",
		}})

	busy := w.Resource(inventory.KindInstance, "i-0bb1b2c3d4e5f6072", "p5.48xlarge", "llm-pretrain-0", dora)
	busy.Purpose, busy.Lifetime = inventory.Training, inventory.Ephemeral
	w.Charge(busy, "compute", ledger.Compute, "40179.20")
	w.Verdict(busy, duty.Busy, "96% GPU")
	w.Window(busy, usage.GPUUtil, 8, func(h, g int) float64 { return float64(88 + (h+g)%12) })
	w.Find(busy, Found{
		Rule: "training-on-demand", Step: finding.StepSpot, Saving: Saving("18080.64"), Confidence: finding.Medium,
		Because: "busy on-demand training; spot is 55% cheaper", Evidence: []usage.Evidence{
			Measured("gpu_util_mean_pct", "93.5", 1),
		},
		Fix: finding.Fix{
			Change: change.Change{Verb: change.UseSpot}, Risk: finding.Medium, Undo: finding.UndoFull,
			Note: "Needs checkpoints: a spot machine has two minutes' notice.",
		}})

	dark := w.Resource(inventory.KindInstance, "i-0cc1b2c3d4e5f6073", "g5.48xlarge", "", untagged)
	dark.Region = "eu-west-1"
	w.Charge(dark, "compute", ledger.Compute, "11889.40")
	w.Verdict(dark, duty.Unknown, "no GPU telemetry")
	w.Find(dark, Found{Rule: "telemetry-missing", Step: finding.StepMeasure, Saving: Saving("0"), Cost: "11889.40",
		Because: "8 unmeasured GPUs", Evidence: []usage.Evidence{Measured("cpu_util_mean_pct", "12", 0.999)},
		Fix: finding.Fix{
			Change: change.Change{Verb: change.Measure}, Command: "curfew scan --usage gpus.csv", Risk: finding.None,
		}})
	w.Find(dark, Found{Rule: "tag-missing", Step: finding.StepMeasure, Saving: Saving("0"), Cost: "11889.40",
		Because: "no team, project, environment or cost-center", Fix: finding.Fix{
			Change: change.Change{Verb: change.Tag}, Risk: finding.None,
		}})

	bucket := w.Resource(inventory.KindBucket, "datasets-raw", "", "datasets-raw", storage)
	bucket.Lifetime, bucket.Purpose = inventory.Persistent, inventory.Data
	w.Charge(bucket, "storage:STANDARD", ledger.Storage, "2355.20")
	w.Find(bucket, Found{Rule: "bucket-no-lifecycle", Step: finding.StepStorage, Saving: Saving("1588.74"),
		Because: "100 TB never read since spring, no lifecycle",
		Evidence: []usage.Evidence{
			usage.Fact("older_than_90d_bytes", "98.2 TiB", "s3"),
			usage.Fact("transition_fee_usd", "41.20", "price book"),
		},
		Fix: finding.Fix{
			Change: change.Change{Verb: change.PutLifecycle}, Risk: finding.Low, Undo: finding.UndoPartial,
			Note: "Moving costs $41.20 once and pays back within a day. Objects under 128 KiB stay. Reading " +
				"archived data " +
				"costs $0.01/GB."}})
	volume := w.Resource(inventory.KindVolume, "vol-0dd1b2c3d4e5f6074", "gp3", "old-scratch", Ana)
	volume.State = inventory.StateAvailable
	w.Charge(volume, "storage", ledger.Storage, "163.84")
	w.Find(volume, Found{
		Rule: "volume-unattached", Step: finding.StepStorage, Waste: "163.84", Saving: Saving("143.36"),
		Because: "unattached for 61 d", Evidence: []usage.Evidence{usage.Fact("state", "available", "ec2")},
		Fix: finding.Fix{
			Change: change.Change{Verb: change.Delete, Arguments: change.Arguments{Snapshot: []string{"vol-1"}}},
			Risk:   finding.Low, Undo: finding.UndoPartial,
		}})
	address := w.Resource(inventory.KindAddress, "eipalloc-0ee1", "", "", untagged)
	w.Charge(address, "hours", ledger.Network, "3.65")
	w.Find(address, Found{
		Rule: "address-unused", Step: finding.StepIdle, Waste: "3.65", Saving: Saving("3.65"),
		Because: "not associated",
		Fix:     finding.Fix{Change: change.Change{Verb: change.Release}, Risk: finding.Low, Undo: finding.UndoNone}})
	nat := w.Resource(inventory.KindNATGateway, "nat-0ff1", "public", "shared-nat", storage)
	w.Charge(nat, "hours", ledger.Network, "32.85")
	secret := w.Resource(inventory.KindSecret, "hf-token", "", "hf-token", chidi)
	w.Charge(secret, "months", ledger.Overhead, "0.40")
	logs := w.Resource(inventory.KindLogGroup, "/aws/sagemaker/TrainingJobs", "", "/aws/sagemaker/TrainingJobs", dora)
	w.Charge(logs, "storage", ledger.Storage, "36.90")
	w.Find(logs, Found{Rule: "log-group-no-retention", Step: finding.StepStorage, Confidence: finding.Medium,
		Saving:  finding.Saving{UpperBound: USD("36.90"), Bounded: true, Why: "how old the logs are was not read"},
		Because: "1.2 TiB of logs that never expire", Fix: finding.Fix{
			Change: change.Change{Verb: change.PutRetention}, Risk: finding.Medium, Undo: finding.UndoNone,
		}})
	fresh := w.Resource(inventory.KindInstance, "i-0ab9b2c3d4e5f6075", "p6-b300.48xlarge", "b300-trial", dora)
	w.Unpriced(fresh, "compute", ledger.Compute, "no price for p6-b300.48xlarge in us-east-1")
	w.Verdict(fresh, duty.Idle, "no GPU above 1%")
	w.Find(fresh, Found{Rule: "gpu-instance-idle", Step: finding.StepIdle, Because: "no GPU above 0% for 3 d",
		Saving: finding.Saving{Why: "no price for p6-b300.48xlarge in us-east-1"},
		Fix:    finding.Fix{Change: change.Change{Verb: change.Stop}, Risk: finding.Medium}})
	plan := w.Resource(inventory.KindCommitment, "sp-0011", "compute-savings-plan", "", untagged)
	w.Charge(plan, "commitment", ledger.Committed, "3650.00")
	for i := range 3 {
		s := w.Resource(inventory.KindSnapshot, fmt.Sprintf("snap-0%d", i), "", "", storage)
		w.Unpriced(s, "storage", ledger.Storage, "incremental snapshot")
	}
	w.Result.BlindSpots = []inventory.BlindSpot{
		{
			What: "cloudwatch eu-west-1", Why: "AccessDenied: cloudwatch:GetMetricData",
			Effect: "idle rules not evaluated for 9 machines",
		},
		{
			What: "savings plans", Why: "AccessDenied: savingsplans:DescribeSavingsPlans",
			Effect: "savings are upper bounds at list price",
		},
	}
	w.Result.Calls = []round.Calls{
		{API: "ec2:DescribeInstances", Count: 4},
		{API: "cloudwatch:GetMetricData", Count: 3, Units: 1280, Cost: USD("0.0128")},
		{API: "s3:ListObjectsV2", Count: 24, Units: 24, Cost: USD("0.00012")},
	}
	w.Result.Billed = &round.Billed{
		Start: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), End: time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC),
		Total: USD("91204.11"), Source: "Cost Explorer",
		ByService: []round.ServiceCost{
			{Service: "Amazon Simple Storage Service", Cost: USD("2610.02")},
			{Service: "Amazon EC2", Cost: USD("86011.90")},
		}}
	return w.Audit()
}

// Hostile is an account whose names try to break what they are printed in.
func Hostile() *round.Result {
	w := NewWorld()
	w.Result.Accounts = append(w.Result.Accounts, "<b>999</b>")
	evil := []string{
		`<script>alert(1)</script>`, "=HYPERLINK(\"http://x\")", "| a | `b` | [x](javascript:alert(1)) |",
		"line\nbreak\r\nand\ttab",
		"\x1b[31mred\x1b[0m\x07", "日本語の名前がとても長い場合でも表は崩れません", "👩‍🔬 lab", "\u202edesrever", "bad\xffutf8",
		`"quoted", 'and' \back`, "null", "1e3", "- item: {x}",
		"a very long name that goes on and on and on and does not stop before it has filled more than one whole line of " +
			"every terminal there is",
	}
	for i, name := range evil {
		r := w.Resource(inventory.KindInstance, fmt.Sprintf("i-%040d", i), "g5.xlarge", name,
			inventory.Owner{Team: name, User: name})
		w.Charge(r, "compute", ledger.Compute, "734.38")
		w.Verdict(r, duty.Idle, name)
		w.Find(r, Found{
			Rule: "gpu-instance-idle", Step: finding.StepIdle, Waste: "734.38",
			Saving: Saving("734.38"), Because: name,
			Fix: finding.Fix{Note: name}, Evidence: []usage.Evidence{usage.Fact(name, name, name)}})
		w.Result.BlindSpots = append(w.Result.BlindSpots, inventory.BlindSpot{What: name, Why: name, Effect: name})
	}
	w.Result.Sort()
	return w.Audit()
}

// AllUnpriced is an account in which nothing has a price.
func AllUnpriced() *round.Result {
	w := NewWorld()
	for i := range 3 {
		r := w.Resource(inventory.KindInstance, fmt.Sprintf("i-%d", i), "p9.metal", "", dora)
		w.Unpriced(r, "compute", ledger.Compute, "no price for p9.metal in us-east-1")
		w.Verdict(r, duty.Idle, "no GPU above 1%")
		w.Find(r, Found{
			Rule: "gpu-instance-idle", Step: finding.StepIdle, Because: "idle",
			Saving: finding.Saving{Why: "no price for p9.metal in us-east-1"},
		})
	}
	return w.Audit()
}

// NothingFound is an account of honest work.
func NothingFound() *round.Result {
	w := NewWorld()
	r := w.Resource(inventory.KindInstance, "i-1", "g5.xlarge", "train", dora)
	w.Charge(r, "compute", ledger.Compute, "734.38")
	w.Verdict(r, duty.Busy, "95% GPU")
	return w.Audit()
}

// Many is an account with n findings.
func Many(n int) *round.Result {
	w := NewWorld()
	for i := range n {
		r := w.Resource(inventory.KindVolume, fmt.Sprintf("vol-%017x", i), "gp2", fmt.Sprintf("data-%d", i),
			inventory.Owner{Team: fmt.Sprintf("team-%d", i%40)})
		w.Charge(r, "storage", ledger.Storage, fmt.Sprintf("%d.%02d", i%900, i%100))
		w.Find(r, Found{
			Rule: "volume-gp2", Step: finding.StepStorage, Saving: Saving(fmt.Sprintf("%d.%02d", i%180, i%100)),
			Because: "gp3 is cheaper",
		})
	}
	return w.Audit()
}

// Audits are the accounts that every output is held against.
func Audits() map[string]*round.Result {
	return map[string]*round.Result{
		"realistic": Realistic(), "hostile": Hostile(), "all unpriced": AllUnpriced(), "nothing found": NothingFound(),
		"no resources": NewWorld().Audit(), "zero": {}, "5,000 findings": Many(5000),
	}
}

// Each runs a test on every audit of [Audits].
func Each(t *testing.T, f func(t *testing.T, a *round.Result)) {
	t.Helper()
	for name, a := range Audits() {
		t.Run(name, func(t *testing.T) { f(t, a) })
	}
}
