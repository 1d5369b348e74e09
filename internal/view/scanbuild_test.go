package view

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view/viewtest"
)

func TestEvidence(t *testing.T) {
	day := 24 * time.Hour
	tests := []struct {
		name string
		in   usage.Evidence
		want Evidence
	}{
		{
			"sampled", usage.Evidence{
				Signal: "gpu_util_max_pct", Value: "0.4", Window: 14 * day, Coverage: 0.99, Source: "cloudwatch",
			},
			Evidence{"gpu_util_max_pct", "0.4", "14d", "0.99", "cloudwatch"}},
		{
			"almost all is not all", usage.Evidence{Signal: "s", Window: day, Coverage: 0.9999},
			Evidence{Signal: "s", Window: "1d", Coverage: "0.99"},
		},
		{
			"all", usage.Evidence{Signal: "s", Window: day, Coverage: 1},
			Evidence{Signal: "s", Window: "1d", Coverage: "1.00"},
		},
		{
			"a share that binary fractions miss", usage.Evidence{Signal: "s", Coverage: 0.29},
			Evidence{Signal: "s", Coverage: "0.29"},
		},
		{"none", usage.Evidence{Signal: "s", Window: day}, Evidence{Signal: "s", Window: "1d", Coverage: "0.00"}},
		{
			"a fact", usage.Fact("state", "available", "ec2"),
			Evidence{Signal: "state", Value: "available", Source: "ec2"},
		},
		{
			"two units", usage.Evidence{Signal: "s", Window: 6*day + 4*time.Hour, Coverage: usage.NoCoverage},
			Evidence{Signal: "s", Window: "6d4h"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, newEvidence(tt.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFindingMoney(t *testing.T) {
	type amounts struct{ Savings, Bound, Waste, Cost, Unknown, CostUnknown string }
	tests := []struct {
		name     string
		f        viewtest.Found
		cost     string
		unpriced string
		want     amounts
	}{
		{
			"known", viewtest.Found{
				Step: finding.StepIdle, Waste: "734.385", Saving: viewtest.Saving("734.385"),
			}, "734.385",
			"",
			amounts{"734.38", "734.38", "734.38", "734.38", "", ""}},
		{
			"bounded", viewtest.Found{
				Step: finding.StepIdle, Waste: "10",
				Saving: finding.Saving{Bounded: true, UpperBound: viewtest.USD("10"), Why: "plans not read"},
			}, "10", "",
			amounts{"", "10.00", "10.00", "10.00", "plans not read", ""}},
		{
			"waste that nothing measured is not zero", viewtest.Found{
				Step: finding.StepIdle, Unmeasured: true,
				Saving: finding.Saving{Bounded: true, UpperBound: viewtest.USD("10"), Why: "nothing measured its use"},
			}, "10", "",
			amounts{"", "10.00", "", "10.00", "nothing measured its use", ""}},
		{
			"unpriced waste is not zero", viewtest.Found{
				Step: finding.StepIdle, Saving: finding.Saving{Why: "no price"},
			}, "",
			"no price for p9",
			amounts{"", "", "", "", "no price", "no price for p9"}},
		{
			"advice on a priced machine wastes nothing", viewtest.Found{
				Step: finding.StepModel, Saving: finding.Saving{Why: "depends on the model"},
			}, "5", "",
			amounts{"", "", "0.00", "5.00", "depends on the model", ""}},
		{"an unknown saving always has a reason", viewtest.Found{Step: finding.StepIdle, Waste: "1"}, "1", "",
			amounts{"", "", "1.00", "1.00", "its saving is unknown", ""}},
		{
			"the finding's own cost comes first", viewtest.Found{
				Step: finding.StepMeasure, Saving: viewtest.Saving("0"), Cost: "7",
			}, "9", "",
			amounts{"0.00", "0.00", "0.00", "7.00", "", ""}},
		{"no meter", viewtest.Found{Step: finding.StepMeasure, Saving: viewtest.Saving("0")}, "", "",
			amounts{"0.00", "0.00", "0.00", "", "", "it has no meter of its own"}},
		{
			"a saving that is a loss", viewtest.Found{
				Step: finding.StepCommit, Saving: viewtest.Saving("-0.001"),
			}, "9", "",
			amounts{"0.00", "0.00", "0.00", "9.00", "", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := viewtest.NewWorld()
			r := w.Resource(inventory.KindInstance, "i-1", "g5.xlarge", "", viewtest.Ana)
			if tt.cost != "" {
				w.Charge(r, "compute", ledger.Compute, tt.cost)
			}
			if tt.unpriced != "" {
				w.Unpriced(r, "compute", ledger.Compute, tt.unpriced)
			}
			f := newFinding(w.Find(r, tt.f), w.Result.Charges)
			got := amounts{
				f.MonthlySavingsUSD.Cents(), f.SavingsUpperBoundUSD.Cents(), f.MonthlyWasteUSD.Cents(),
				f.MonthlyCostUSD.Cents(),
				f.SavingsUnknown, f.CostUnknown,
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownIsNeverZero(t *testing.T) {
	d := NewScan(viewtest.AllUnpriced(), ScanOptions{})
	for name, v := range map[string]money.Dollars{
		"cost": d.MonthlyCostUSD, "waste": d.MonthlyWasteUSD, "savings": d.Totals.MonthlySavingsUSD,
		"bound": d.Totals.SavingsUpperBoundUSD,
		"idle":  d.Categories.Idle, "egress": d.Categories.Egress, "owner's cost": d.Owners[0].MonthlyCostUSD,
		"owner's waste":  d.Owners[0].MonthlyWasteUSD,
		"step's savings": d.Steps[0].MonthlySavingsUSD, "step's waste": d.Steps[0].MonthlyWasteUSD,
	} {
		if v.Known() {
			t.Errorf("%s of an unpriced resource is %s", name, v)
		}
	}
	if d.MonthlyCostNote == "" || d.MonthlyWasteNote == "" || d.CategoriesNotes["egress"] == "" ||
		d.CategoriesNotes["idle"] == "" {
		t.Errorf("an amount is null without a reason: %q, %q, %v", d.MonthlyCostNote,
			d.MonthlyWasteNote, d.CategoriesNotes)
	}
}

func TestZeroIsKnownIfEverythingIsPriced(t *testing.T) {
	d := NewScan(viewtest.NothingFound(), ScanOptions{})
	for name, v := range map[string]money.Dollars{
		"waste": d.MonthlyWasteUSD, "savings": d.Totals.MonthlySavingsUSD, "idle": d.Categories.Idle,
		"unmeasured": d.Totals.MonthlyCannotJudgeUSD,
	} {
		if got := v.Cents(); got != "0.00" {
			t.Errorf("%s: got %q, want 0.00", name, got)
		}
	}
}

func TestCategoriesAddUp(t *testing.T) {
	for name, a := range viewtest.Audits() {
		t.Run(name, func(t *testing.T) {
			d := NewScan(a, ScanOptions{})
			var total money.Amount
			for _, c := range categoryNames {
				total += d.Categories.Named(c).Or(0)
			}
			if want := d.MonthlyCostUSD.Or(0); total != want {
				t.Errorf("the categories come to %s, the cost is %s", total, want)
			}
		})
	}
}

func TestUnmeasuredCost(t *testing.T) {
	w := viewtest.NewWorld()
	unread := w.Resource(inventory.KindInstance, "i-unread", "g5.xlarge", "", viewtest.Ana)
	w.Charge(unread, "compute", ledger.Compute, "10")
	sparse := w.Resource(inventory.KindInstance, "i-sparse", "g5.xlarge", "", viewtest.Ana)
	w.Charge(sparse, "compute", ledger.Compute, "20")
	w.Verdict(sparse, duty.Unknown, "40% coverage")
	busy := w.Resource(inventory.KindInstance, "i-busy", "g5.xlarge", "", viewtest.Ana)
	w.Charge(busy, "compute", ledger.Compute, "30")
	w.Verdict(busy, duty.Busy, "")
	wasted := w.Resource(inventory.KindEndpoint, "wasted", "g5.xlarge", "", viewtest.Ana)
	w.Charge(wasted, "compute", ledger.Compute, "40")
	w.Find(wasted, viewtest.Found{
		Rule: "endpoint-idle", Step: finding.StepIdle, Waste: "40", Saving: viewtest.Saving("40"),
	})
	costly := w.Resource(inventory.KindInstance, "i-costly", "p9.metal", "", viewtest.Ana)
	w.Unpriced(costly, "compute", ledger.Compute, "no price")
	reserved := w.Resource(inventory.KindCapacityReservation, "cr-1", "g5.xlarge", "", viewtest.Ana)
	w.Charge(reserved, "unused", ledger.Compute, "50")
	var got []string
	for _, u := range NewScan(w.Audit(), ScanOptions{}).CannotJudge {
		got = append(got, u.Resource.ID+" "+u.MonthlyCostUSD.String()+" "+u.Why)
	}
	want := []string{"i-sparse $20.00 40% coverage", "i-unread $10.00 no telemetry", "i-costly unknown no telemetry"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnpricedIsGrouped(t *testing.T) {
	d := NewScan(viewtest.Realistic(), ScanOptions{})
	if diff := cmp.Diff([]string{"snap-00", "snap-01", "snap-02"}, d.Unpriced[0].Resources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLargest(t *testing.T) {
	w := viewtest.NewWorld()
	for _, f := range []struct {
		id, saves, bound, waste string
		step                    finding.Step
	}{
		{"a", "5", "", "0", finding.StepStorage}, {"b", "", "100", "0", finding.StepIdle},
		{"c", "50", "", "50", finding.StepIdle},
		{"d", "0", "", "0", finding.StepMeasure}, {"e", "", "", "0", finding.StepIdle},
		{"f", "0", "", "9", finding.StepIdle},
	} {
		r := w.Resource(inventory.KindInstance, f.id, "g5.xlarge", "", viewtest.Ana)
		w.Charge(r, "compute", ledger.Compute, "100")
		s := finding.Saving{Why: "not known"}
		if f.saves != "" {
			s = viewtest.Saving(f.saves)
		} else if f.bound != "" {
			s.Bounded, s.UpperBound = true, viewtest.USD(f.bound)
		}
		w.Find(r, viewtest.Found{Rule: "r", Step: f.step, Waste: f.waste, Saving: s})
	}
	d := NewScan(w.Audit(), ScanOptions{})
	tests := []struct {
		name string
		n    int
		want string
	}{
		{"with money in them", 10, "b c a f e"}, {"the first two", 2, "b c"}, {"all", -1, "b c a f d e"},
		{"none", 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var ids []string
			for _, f := range d.Largest(tt.n) {
				ids = append(ids, f.Resource.ID)
			}
			if got := strings.Join(ids, " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestShortestIDsAreUnique(t *testing.T) {
	d := NewScan(viewtest.Many(5000), ScanOptions{})
	n := d.IDLength()
	seen := map[string]bool{}
	for _, f := range d.Findings {
		if seen[f.ID[:n]] {
			t.Fatalf("two findings begin with %s", f.ID[:n])
		}
		seen[f.ID[:n]] = true
	}
}
