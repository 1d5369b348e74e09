package round

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
)

// The categories of what an account costs, without a bill. They add up to the
// total.
const (
	CategoryStorage  = "storage"  // S3, EBS, snapshots, registries, databases, log storage
	CategoryIdle     = "idle"     // compute and commitments that are wasted
	CategoryActive   = "active"   // the used part of compute
	CategoryUnknown  = "unknown"  // compute whose duty cannot be judged
	CategoryNetwork  = "network"  // the hours of gateways, balancers and addresses
	CategoryOverhead = "overhead" // secrets, monitoring
)

// adder adds amounts and remembers the first overflow.
type adder struct{ err error }

func (a *adder) add(to *money.Amount, v money.Amount) {
	if a.err == nil {
		*to, a.err = to.Add(v)
	}
}

// sum adds up an audit.
func sum(a *Result) (Totals, error) {
	t := Totals{ByCategory: map[string]money.Amount{}, ByKind: map[inventory.Kind]int{}}
	var ad adder
	wasted := wastedCompute(a, &ad)
	owners := map[string]*OwnerTotal{}
	ownerOf := func(r *inventory.Resource) *OwnerTotal {
		o := owners[r.Owner.Team]
		if o == nil {
			o = &OwnerTotal{Team: r.Owner.Team}
			owners[r.Owner.Team] = o
		}
		return o
	}
	into := func(category string, v money.Amount) {
		total := t.ByCategory[category]
		ad.add(&total, v)
		t.ByCategory[category] = total
	}
	for _, c := range []string{
		CategoryStorage, CategoryIdle, CategoryActive, CategoryUnknown, CategoryNetwork, CategoryOverhead,
	} {
		t.ByCategory[c] = 0
	}
	for _, r := range a.Resources {
		t.ByKind[r.Kind]++
		ref := r.Ref()
		owner := ownerOf(r)
		owner.Resources++
		unpriced := false
		for _, c := range a.Charges[ref] {
			switch {
			case c.Unpriced != "":
				unpriced = true
				continue
			case c.Category == ledger.Committed:
				// What covers nothing is no machine's list price already: it is a cost.
				idle := min(wasted[ref], c.ListCost)
				wasted[ref] -= idle
				ad.add(&t.Cost, idle)
				ad.add(&owner.Cost, idle)
				into(CategoryIdle, idle)
				ad.add(&t.Committed, c.ListCost-idle)
				continue
			}
			ad.add(&t.Cost, c.ListCost)
			ad.add(&owner.Cost, c.ListCost)
			switch c.Category {
			case ledger.Compute:
				idle := min(wasted[ref], c.ListCost)
				wasted[ref] -= idle
				into(CategoryIdle, idle)
				rest := c.ListCost - idle
				if _, judged := a.Duty(r); judged {
					into(CategoryActive, rest)
				} else {
					into(CategoryUnknown, rest)
					ad.add(&t.CannotJudge, rest)
				}
			case ledger.Network:
				into(CategoryNetwork, c.ListCost)
			case ledger.Overhead:
				into(CategoryOverhead, c.ListCost)
			default:
				into(CategoryStorage, c.ListCost)
			}
		}
		if unpriced {
			t.Unpriced++
		}
	}
	for _, f := range a.Findings {
		ad.add(&t.FindingsWaste, f.Waste)
	}
	if w := a.Window; w != nil {
		month := func(d money.Amount) money.Amount {
			v, err := Monthly(w, d)
			ad.err = cmp.Or(ad.err, err)
			return v
		}
		t.Waste = month(w.Total.Wasted)
		for _, row := range w.Rows {
			if o := owners[row.Key[0]]; o != nil {
				o.Waste = month(row.Wasted)
			}
		}
	}
	t.BySteps = steps(a.Findings, &ad)
	for _, o := range owners {
		t.ByOwner = append(t.ByOwner, *o)
	}
	slices.SortFunc(t.ByOwner, func(x, y OwnerTotal) int {
		return cmp.Or(cmp.Compare(y.Cost, x.Cost), cmp.Compare(x.Team, y.Team))
	})
	return t, ad.err
}

// Monthly brings an amount of a window to a month of 730 hours.
func Monthly(w *costs.Costs, d money.Amount) (money.Amount, error) {
	return d.Mul(int64(money.Month/time.Second), int64(w.Until.Sub(w.Since)/time.Second))
}

// Duty returns the verdict on a resource's compute, and whether it is known what it
// does. What has no duty (a reservation's unused capacity) is known to be unused.
func (a *Result) Duty(r *inventory.Resource) (duty.Verdict, bool) {
	if v, ok := a.Verdicts[r.Ref()]; ok {
		return v, v.State != duty.Unknown
	}
	return duty.Verdict{}, !r.Kind.Traits().Measured
}

// wastedCompute is the wasted dollars of each resource's compute, or of a
// commitment.
func wastedCompute(a *Result, ad *adder) map[inventory.Ref]money.Amount {
	out := map[inventory.Ref]money.Amount{}
	for _, f := range a.Findings {
		for _, c := range f.Claims {
			if c.Category == ledger.Compute || c.Category == ledger.Committed {
				v := out[c.Resource]
				ad.add(&v, c.Waste)
				out[c.Resource] = v
			}
		}
	}
	return out
}

// riskOrder ranks risks so that a step shows its highest.
var riskOrder = map[finding.Level]int{finding.None: 0, finding.Low: 1, finding.Medium: 2, finding.High: 3}

// steps adds up the findings of each step that has any.
func steps(findings []finding.Finding, ad *adder) []StepTotal {
	byStep := map[finding.Step]*StepTotal{}
	for _, f := range findings {
		s := byStep[f.Step]
		if s == nil {
			s = &StepTotal{Step: f.Step, Risk: finding.None}
			byStep[f.Step] = s
		}
		s.Findings++
		if riskOrder[f.Fix.Risk] > riskOrder[s.Risk] {
			s.Risk = f.Fix.Risk
		}
		if f.Savings.Known {
			ad.add(&s.Savings, f.Savings.Amount)
			continue
		}
		s.Unknown++
		if f.Savings.Bounded {
			ad.add(&s.UpTo, f.Savings.UpperBound)
		}
	}
	out := make([]StepTotal, 0, len(byStep))
	for _, step := range slices.Sorted(maps.Keys(byStep)) {
		out = append(out, *byStep[step])
	}
	return out
}
