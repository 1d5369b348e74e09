package report

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
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

func TestEvidence(t *testing.T) {
	day := 24 * time.Hour
	tests := []struct {
		name string
		in   usage.Evidence
		want Evidence
	}{
		{"sampled", usage.Evidence{Signal: "gpu_util_max_pct", Value: "0.4", Window: 14 * day, Coverage: 0.99, Source: "cloudwatch"},
			Evidence{"gpu_util_max_pct", "0.4", "14d", "0.99", "cloudwatch"}},
		{"almost all is not all", usage.Evidence{Signal: "s", Window: day, Coverage: 0.9999}, Evidence{Signal: "s", Window: "1d", Coverage: "0.99"}},
		{"all", usage.Evidence{Signal: "s", Window: day, Coverage: 1}, Evidence{Signal: "s", Window: "1d", Coverage: "1.00"}},
		{"a share that binary fractions miss", usage.Evidence{Signal: "s", Coverage: 0.29}, Evidence{Signal: "s", Coverage: "0.29"}},
		{"none", usage.Evidence{Signal: "s", Window: day}, Evidence{Signal: "s", Window: "1d", Coverage: "0.00"}},
		{"a fact", usage.Fact("state", "available", "ec2"), Evidence{Signal: "state", Value: "available", Source: "ec2"}},
		{"two units", usage.Evidence{Signal: "s", Window: 6*day + 4*time.Hour, Coverage: usage.NoCoverage}, Evidence{Signal: "s", Window: "6d4h"}},
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
		f        found
		cost     string
		unpriced string
		want     amounts
	}{
		{"known", found{step: finding.StepIdle, waste: "734.385", saving: saving("734.385")}, "734.385", "",
			amounts{"734.38", "734.38", "734.38", "734.38", "", ""}},
		{"bounded", found{step: finding.StepIdle, waste: "10", saving: finding.Saving{Bounded: true, UpperBound: usd("10"), Why: "plans not read"}}, "10", "",
			amounts{"", "10.00", "10.00", "10.00", "plans not read", ""}},
		{"waste that nothing measured is not zero", found{step: finding.StepIdle, unmeasured: true, saving: finding.Saving{Bounded: true, UpperBound: usd("10"), Why: "nothing measured its use"}}, "10", "",
			amounts{"", "10.00", "", "10.00", "nothing measured its use", ""}},
		{"unpriced waste is not zero", found{step: finding.StepIdle, saving: finding.Saving{Why: "no price"}}, "", "no price for p9",
			amounts{"", "", "", "", "no price", "no price for p9"}},
		{"advice on a priced machine wastes nothing", found{step: finding.StepModel, saving: finding.Saving{Why: "depends on the model"}}, "5", "",
			amounts{"", "", "0.00", "5.00", "depends on the model", ""}},
		{"an unknown saving always has a reason", found{step: finding.StepIdle, waste: "1"}, "1", "",
			amounts{"", "", "1.00", "1.00", "what it saves is not known", ""}},
		{"the finding's own cost comes first", found{step: finding.StepMeasure, saving: saving("0"), cost: "7"}, "9", "",
			amounts{"0.00", "0.00", "0.00", "7.00", "", ""}},
		{"no meter", found{step: finding.StepMeasure, saving: saving("0")}, "", "",
			amounts{"0.00", "0.00", "0.00", "", "", "it has no meter of its own"}},
		{"a saving that is a loss", found{step: finding.StepCommit, saving: saving("-0.001")}, "9", "",
			amounts{"0.00", "0.00", "0.00", "9.00", "", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			r := w.resource(inventory.KindInstance, "i-1", "g5.xlarge", "", ana)
			if tt.cost != "" {
				w.charge(r, "compute", ledger.Compute, tt.cost)
			}
			if tt.unpriced != "" {
				w.unpriced(r, "compute", ledger.Compute, tt.unpriced)
			}
			f := newFinding(w.find(r, tt.f), w.a.Charges)
			got := amounts{f.MonthlySavingsUSD.Cents(), f.SavingsUpperBoundUSD.Cents(), f.MonthlyWasteUSD.Cents(), f.MonthlyCostUSD.Cents(), f.SavingsUnknown, f.CostUnknown}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownIsNeverZero(t *testing.T) {
	d := Build(allUnpriced(), Options{})
	for name, v := range map[string]Dollars{
		"cost": d.MonthlyCostUSD, "waste": d.MonthlyWasteUSD, "savings": d.Totals.MonthlySavingsUSD, "bound": d.Totals.SavingsUpperBoundUSD,
		"idle": d.Categories.Idle, "egress": d.Categories.Egress, "owner's cost": d.Owners[0].MonthlyCostUSD, "owner's waste": d.Owners[0].MonthlyWasteUSD,
		"step's savings": d.Steps[0].MonthlySavingsUSD, "step's waste": d.Steps[0].MonthlyWasteUSD,
	} {
		if v.Known() {
			t.Errorf("%s of what has no price is %s", name, v)
		}
	}
	if d.MonthlyCostNote == "" || d.MonthlyWasteNote == "" || d.CategoriesNotes["egress"] == "" || d.CategoriesNotes["idle"] == "" {
		t.Errorf("an amount is null without a reason: %q, %q, %v", d.MonthlyCostNote, d.MonthlyWasteNote, d.CategoriesNotes)
	}
}

func TestZeroIsKnownWhereEverythingHasAPrice(t *testing.T) {
	d := Build(nothingFound(), Options{})
	for name, v := range map[string]Dollars{"waste": d.MonthlyWasteUSD, "savings": d.Totals.MonthlySavingsUSD, "idle": d.Categories.Idle, "cannot judge": d.Totals.MonthlyCannotJudgeUSD} {
		if got := v.Cents(); got != "0.00" {
			t.Errorf("%s: got %q, want 0.00", name, got)
		}
	}
}

func TestCategoriesAddUp(t *testing.T) {
	for name, a := range audits() {
		t.Run(name, func(t *testing.T) {
			d := Build(a, Options{})
			var total money.Amount
			for _, c := range categoryNames {
				total += d.Categories.named(c).Or(0)
			}
			if want := d.MonthlyCostUSD.Or(0); total != want {
				t.Errorf("the categories come to %s, the cost is %s", total, want)
			}
		})
	}
}

func TestCannotJudge(t *testing.T) {
	w := newWorld()
	unread := w.resource(inventory.KindInstance, "i-unread", "g5.xlarge", "", ana)
	w.charge(unread, "compute", ledger.Compute, "10")
	sparse := w.resource(inventory.KindInstance, "i-sparse", "g5.xlarge", "", ana)
	w.charge(sparse, "compute", ledger.Compute, "20")
	w.verdict(sparse, duty.Unknown, "40% coverage")
	busy := w.resource(inventory.KindInstance, "i-busy", "g5.xlarge", "", ana)
	w.charge(busy, "compute", ledger.Compute, "30")
	w.verdict(busy, duty.Busy, "")
	wasted := w.resource(inventory.KindEndpoint, "wasted", "g5.xlarge", "", ana)
	w.charge(wasted, "compute", ledger.Compute, "40")
	w.find(wasted, found{rule: "endpoint-idle", step: finding.StepIdle, waste: "40", saving: saving("40")})
	dear := w.resource(inventory.KindInstance, "i-dear", "p9.metal", "", ana)
	w.unpriced(dear, "compute", ledger.Compute, "no price")
	reserved := w.resource(inventory.KindCapacityReservation, "cr-1", "g5.xlarge", "", ana)
	w.charge(reserved, "unused", ledger.Compute, "50")
	var got []string
	for _, u := range Build(w.audit(), Options{}).CannotJudge {
		got = append(got, u.Resource.ID+" "+u.MonthlyCostUSD.String()+" "+u.Why)
	}
	want := []string{"i-sparse $20.00 40% coverage", "i-unread $10.00 no telemetry", "i-dear unknown no telemetry"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnpricedIsGrouped(t *testing.T) {
	d := Build(realistic(), Options{})
	if diff := cmp.Diff([]string{"snap-00", "snap-01", "snap-02"}, d.Unpriced[0].Resources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLargest(t *testing.T) {
	w := newWorld()
	for _, f := range []struct {
		id, saves, bound, waste string
		step                    finding.Step
	}{
		{"a", "5", "", "0", finding.StepStorage}, {"b", "", "100", "0", finding.StepIdle}, {"c", "50", "", "50", finding.StepIdle},
		{"d", "0", "", "0", finding.StepMeasure}, {"e", "", "", "0", finding.StepIdle}, {"f", "0", "", "9", finding.StepIdle},
	} {
		r := w.resource(inventory.KindInstance, f.id, "g5.xlarge", "", ana)
		w.charge(r, "compute", ledger.Compute, "100")
		s := finding.Saving{Why: "not known"}
		if f.saves != "" {
			s = saving(f.saves)
		} else if f.bound != "" {
			s.Bounded, s.UpperBound = true, usd(f.bound)
		}
		w.find(r, found{rule: "r", step: f.step, waste: f.waste, saving: s})
	}
	d := Build(w.audit(), Options{})
	tests := []struct {
		name string
		n    int
		want string
	}{{"with money in them", 10, "b c a f e"}, {"the first two", 2, "b c"}, {"all", -1, "b c a f d e"}, {"none", 0, ""}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var ids []string
			for _, f := range d.largest(tt.n) {
				ids = append(ids, f.Resource.ID)
			}
			if got := strings.Join(ids, " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestShortestTellsFindingsApart(t *testing.T) {
	d := Build(many(5000), Options{})
	n := d.shortest()
	seen := map[string]bool{}
	for _, f := range d.Findings {
		if seen[short(f.ID, n)] {
			t.Fatalf("two findings begin with %s", short(f.ID, n))
		}
		seen[short(f.ID, n)] = true
	}
}

func TestHeadline(t *testing.T) {
	tests := []struct {
		name  string
		audit *round.Result
		want  string
	}{
		{"waste", realistic(), "$16,338 a month is wasted, 21% of what the last 30d 10h cost"},
		{"none", nothingFound(), "$734 a month, and no waste in what could be judged"},
		{"no prices", allUnpriced(), "nothing that runs has a price"},
		{"nothing there", newWorld().audit(), "no resources in what could be read"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := Build(tt.audit, Options{})
			if got := headline(&d); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func BenchmarkOutputs(b *testing.B) {
	a := many(5000)
	for name, r := range outputs() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var out strings.Builder
				if err := r(&out, a, Options{All: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
