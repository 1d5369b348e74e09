package finding

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// bare returns an index of resources with the given charges.
func bare(charges ...[]ledger.Charge) *Index {
	a := &Account{Now: now, CommitmentsKnown: true, Charges: map[inventory.Ref][]ledger.Charge{}}
	for i, cs := range charges {
		r := &inventory.Resource{
			Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindDatabase, ID: fmt.Sprintf("r%02d", i),
		}
		a.Resources = append(a.Resources, r)
		a.Charges[r.Ref()] = cs
	}
	return newIndex(a, DefaultThresholds(), nil)
}

func costing(meter string, a money.Amount) ledger.Charge {
	return ledger.Charge{Meter: meter, Category: ledger.Storage, ListCost: a}
}

func (x *Index) draft(step Step, rule string, s int) *Draft {
	d := &Draft{
		Finding: Finding{Rule: rule, Step: step, Resource: x.subjects[s].Resource, ID: ID(rule, x.subjects[s].ref)},
	}
	x.drafts = append(x.drafts, d)
	return d
}

func TestEachDollarOnce(t *testing.T) {
	x := bare([]ledger.Charge{costing("compute", 100*money.USD)})
	s := &x.subjects[0]
	half := x.draft(StepSpot, "half-of-the-rest", 0)
	half.ClaimShare(s, "", 1, 2, SavingsOnly)
	first := x.draft(StepIdle, "first", 0)
	first.ClaimShare(s, "", 3, 10, WasteAndSavings)
	rest := x.draft(StepRightsize, "amount", 0)
	rest.ClaimAmount(s, "compute", 50*money.USD, SavingsOnly)
	nothing := x.draft(StepCommit, "nothing-left", 0)
	nothing.ClaimShare(s, "", 1, 1, SavingsOnly)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		d              *Draft
		waste, savings string
		overlaps       string
	}{
		{first, "30.00", "30.00", ""},
		{half, "0.00", "35.00", first.ID},
		{rest, "0.00", "35.00", first.ID},
		{nothing, "0.00", "0.00", first.ID},
	} {
		if got := tc.d.Savings; !got.Known || got.Amount.Cents() != tc.savings || tc.d.Waste.Cents() != tc.waste ||
			tc.d.Overlaps != tc.overlaps {
			t.Errorf("%s saves %+v, wastes %s, overlaps %q; want %s, %s, %q", tc.d.Rule, got,
				tc.d.Waste.Cents(), tc.d.Overlaps,
				tc.savings, tc.waste, tc.overlaps)
		}
	}
}

func TestLargerFirstWithinAStep(t *testing.T) {
	x := bare([]ledger.Charge{costing("storage", 10*money.USD)})
	small, large := x.draft(StepStorage, "small", 0), x.draft(StepStorage, "large", 0)
	small.ClaimShare(&x.subjects[0], "", 1, 2, SavingsOnly)
	large.ClaimShare(&x.subjects[0], "", 1, 1, SavingsOnly)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	if large.Savings.Amount != 10*money.USD || small.Savings.Amount != 0 || small.Overlaps != large.ID {
		t.Errorf("large saves %s, small %s after %q; want all with the large one", large.Savings.Amount,
			small.Savings.Amount, small.Overlaps)
	}
}

func TestUnpricedIsNeverZero(t *testing.T) {
	x := bare([]ledger.Charge{
		{Meter: "compute", Category: ledger.Storage, Unpriced: "no price of x1.huge"}, costing("storage", money.USD),
	}, nil)
	d := x.draft(StepIdle, "some-unpriced", 0)
	d.ClaimShare(&x.subjects[0], "", 1, 1, WasteAndSavings)
	none := x.draft(StepIdle, "no-charge", 1)
	none.ClaimShare(&x.subjects[1], "", 1, 1, WasteAndSavings)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*Draft{d, none} {
		if d.Savings.Known || d.Savings.Bounded || d.Savings.Why == "" {
			t.Errorf("%s saves %+v; want unknown with a reason and no bound", d.Rule, d.Savings)
		}
	}
	if d.Waste != money.USD {
		t.Errorf("waste %s; want the part that has a price", d.Waste)
	}
}

func TestBoundsDoNotHideKnownDollars(t *testing.T) {
	x := bare([]ledger.Charge{costing("storage", 10*money.USD)})
	bound, known := x.draft(StepIdle, "bound", 0), x.draft(StepCommit, "known", 0)
	bound.Unknown = "not measured"
	bound.ClaimShare(&x.subjects[0], "", 1, 1, SavingsOnly)
	known.ClaimShare(&x.subjects[0], "", 1, 4, SavingsOnly)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	if known.Savings.Amount.Cents() != "2.50" || bound.Savings.Known || bound.Savings.UpperBound.Cents() != "7.50" {
		t.Errorf("known %+v, bound %+v; want 2.50 and at most 7.50", known.Savings, bound.Savings)
	}
}

// TestSavingsStayWithinCharges checks that no claims in any order exceed the cost of a meter or
// account, and that the order of drafts does not matter.
func TestSavingsStayWithinCharges(t *testing.T) {
	steps := []Step{StepIdle, StepStorage, StepEgress, StepSpot, StepRightsize, StepModel, StepCommit}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "resources")
		charges := make([][]ledger.Charge, n)
		var total money.Amount
		for i := range charges {
			for j := range rapid.IntRange(0, 3).Draw(t, "meters") {
				c := costing(fmt.Sprintf("m%d", j), money.Amount(rapid.Int64Range(0, 1e15).Draw(t, "cost")))
				if rapid.IntRange(0, 5).Draw(t, "unpriced") == 0 {
					c.Unpriced = "no price"
				} else {
					total += c.ListCost
				}
				charges[i] = append(charges[i], c)
			}
		}
		type spec struct {
			step     Step
			at       int
			num, den int64
			as       int
			unknown  bool
			meter    string
			amount   money.Amount
		}
		specs := make([]spec, rapid.IntRange(0, 12).Draw(t, "drafts"))
		for i := range specs {
			specs[i] = spec{step: rapid.SampledFrom(steps).Draw(t, "step"), at: rapid.IntRange(0, n-1).Draw(t, "at"),
				num: rapid.Int64Range(0, 1e15).Draw(t, "num"), den: rapid.Int64Range(0, 1e15).Draw(t, "den"),
				as: rapid.IntRange(1, 3).Draw(t, "as"), unknown: rapid.Bool().Draw(t, "unknown"),
				meter:  rapid.SampledFrom([]string{"", "m0", "m1"}).Draw(t, "meter"),
				amount: money.Amount(rapid.Int64Range(0, 1e15).Draw(t, "amount"))}
		}
		settle := func(order []int) []Finding {
			x := bare(charges...)
			for _, i := range order {
				p := specs[i]
				d := x.draft(p.step, fmt.Sprintf("rule%02d", i), p.at)
				if p.meter != "" {
					d.ClaimAmount(&x.subjects[p.at], p.meter, p.amount, p.as)
				} else {
					d.ClaimShare(&x.subjects[p.at], "", p.num, p.den, p.as)
				}
				if p.unknown {
					d.Unknown = "unknown"
				}
			}
			if err := x.settle(); err != nil {
				t.Fatal(err)
			}
			return rank(x.drafts)
		}
		order := make([]int, len(specs))
		for i := range order {
			order[i] = i
		}
		found := settle(order)
		rand.New(rand.NewSource(1)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		if diff := cmp.Diff(found, settle(order)); diff != "" {
			t.Fatalf("another order of drafts gives other findings:\n%s", diff)
		}
		var waste, savings money.Amount
		meters := map[string][2]money.Amount{}
		for _, f := range found {
			waste += f.Waste
			savings += f.Savings.Amount + f.Savings.UpperBound
			var w, s money.Amount
			for _, c := range f.Claims {
				k := c.Resource.ID + c.Meter
				m := meters[k]
				m[0] += c.Waste
				m[1] += c.Savings
				meters[k] = m
				w += c.Waste
				s += c.Savings
			}
			if w != f.Waste || (f.Savings.Known && s != f.Savings.Amount) {
				t.Fatalf("%s: claims add up to %s and %s, the finding says %s and %+v", f.Rule,
					w, s, f.Waste, f.Savings)
			}
		}
		if waste > total || savings > total {
			t.Fatalf("waste %s and savings %s of charges of %s", waste, savings, total)
		}
		for i, cs := range charges {
			for _, c := range cs {
				m := meters[fmt.Sprintf("r%02d", i)+c.Meter]
				if m[0] > c.ListCost || m[1] > c.ListCost {
					t.Fatalf("meter %s costs %s and is counted %v", c.Meter, c.ListCost, m)
				}
			}
		}
	})
}

// TestOrderOfResourcesDoesNotMatter shuffles a whole account with commitments.
func TestOrderOfResourcesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fixture{Account: Account{Now: now, CommitmentsKnown: rapid.Bool().Draw(t, "commitments known"),
			Verdicts: map[inventory.Ref]duty.Verdict{}, Charges: map[inventory.Ref][]ledger.Charge{},
			Windows: map[inventory.Ref]*usage.Window{}}}
		var total money.Amount
		for i := range rapid.IntRange(1, 12).Draw(t, "machines") {
			r := f.running(fmt.Sprintf("i-%02d", i),
				rapid.SampledFrom([]string{"m5.large", "m5.xlarge", "c6i.large"}).Draw(t,
					"type"),
				func(r *inventory.Resource, d *inventory.Instance) {
					r.Zone = rapid.SampledFrom([]string{"us-east-1a", "us-east-1b"}).Draw(t, "zone")
					d.Market = rapid.SampledFrom([]inventory.Market{
						inventory.OnDemand, inventory.OnDemand, inventory.Spot,
					}).Draw(t,
						"market")
				})
			f.is(r, rapid.SampledFrom([]duty.State{duty.Idle, duty.Busy, duty.Unknown}).Draw(t, "duty"))
			cost := money.Amount(rapid.Int64Range(1, 1e12).Draw(t, "cost"))
			total += cost
			f.Charges[r.Ref()] = []ledger.Charge{
				{Resource: r, Meter: "compute", Category: ledger.Compute, ListCost: cost},
			}
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "commitments") {
			f.add(inventory.Resource{ID: fmt.Sprintf("c-%d", i), Kind: inventory.KindCommitment, Zone: "us-east-1a",
				Type: rapid.SampledFrom([]string{"m5.large", "c6i.large"}).Draw(t, "reserved"),
				Detail: &inventory.Commitment{Count: rapid.Int64Range(1, 3).Draw(t, "count"), Platform: "linux",
					CommitmentType: rapid.SampledFrom([]inventory.CommitmentType{
						inventory.ReservedInstances, inventory.ComputeSavingsPlan,
					}).Draw(t, "kind"),
					Hourly: inventory.Known(money.Amount(rapid.Int64Range(1, 1e9).Draw(t, "hourly"))),
					Zonal:  rapid.Bool().Draw(t, "zonal")}})
		}
		evaluate := func() []Finding {
			found, err := Evaluate(&f.Account, Thresholds{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		found := evaluate()
		rand.New(rand.NewSource(2)).Shuffle(len(f.Resources), func(i, j int) {
			f.Resources[i], f.Resources[j] = f.Resources[j], f.Resources[i]
		})
		if diff := cmp.Diff(found, evaluate(),
			cmp.AllowUnexported(inventory.Fact[bool]{}, inventory.Fact[money.Amount]{})); diff != "" {
			t.Fatalf("another order of resources gives other findings:\n%s", diff)
		}
		var savings money.Amount
		for _, x := range found {
			savings += x.Savings.Amount + x.Savings.UpperBound
		}
		if savings > total {
			t.Fatalf("savings of %s of charges of %s", savings, total)
		}
	})
}
