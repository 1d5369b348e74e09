package round

import (
	"cmp"
	"iter"
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

// Cost categories of an account without a bill. They add up to the total.
const (
	CategoryStorage  = "storage"  // S3, EBS, snapshots, registries, databases, log storage
	CategoryIdle     = "idle"     // wasted compute and commitments
	CategoryActive   = "active"   // used compute
	CategoryUnknown  = "unknown"  // compute of unknown duty
	CategoryNetwork  = "network"  // hours of gateways, load balancers and addresses
	CategoryOverhead = "overhead" // secrets, monitoring
)

// adder adds amounts and keeps the first overflow error.
type adder struct{ err error }

func (a *adder) add(to *money.Amount, v money.Amount) {
	if a.err == nil {
		*to, a.err = to.Add(v)
	}
}

// claimKey identifies the charges that waste is claimed from: one category of a resource.
type claimKey struct {
	ref      inventory.Ref
	category ledger.Category
}

// summation sums an audit, resource by resource.
type summation struct {
	adder
	divider
	owners map[string]*OwnerTotal
	Totals
}

// Sum sums the charges and findings of an audit. It fails on overflow.
func Sum(a *Result) (Totals, error) {
	s := &summation{
		divider: divider{audit: a}, owners: map[string]*OwnerTotal{},
		Totals: Totals{ByCategory: map[string]money.Amount{}, ByKind: map[inventory.Kind]int{}},
	}
	for _, c := range []string{
		CategoryStorage, CategoryIdle, CategoryActive, CategoryUnknown, CategoryNetwork, CategoryOverhead,
	} {
		s.ByCategory[c] = 0
	}
	s.wasted = claimedWaste(a, &s.adder)
	for _, r := range a.Resources {
		s.resource(r)
	}
	s.window()
	s.BySteps = steps(a.Findings, &s.adder)
	for _, o := range s.owners {
		s.ByOwner = append(s.ByOwner, *o)
	}
	slices.SortFunc(s.ByOwner, func(x, y OwnerTotal) int {
		return cmp.Or(cmp.Compare(y.Now.Running, x.Now.Running), cmp.Compare(x.Team, y.Team))
	})
	return s.Totals, s.err
}

// resource adds the charges of one resource.
func (s *summation) resource(r *inventory.Resource) {
	s.ByKind[r.Kind]++
	owner := s.owners[r.Owner.Team]
	if owner == nil {
		owner = &OwnerTotal{Team: r.Owner.Team}
		s.owners[r.Owner.Team] = owner
	}
	owner.Resources++
	unpriced := false
	for i := range s.audit.Charges[r.Ref()] {
		c := &s.audit.Charges[r.Ref()][i]
		if c.Unpriced != "" {
			unpriced = true
			continue
		}
		s.charge(r, c, owner)
	}
	if unpriced {
		s.Unpriced++
	}
}

// charge adds one charge to its category and to the run rates of the account and of its owner.
func (s *summation) charge(r *inventory.Resource, c *ledger.Charge, owner *OwnerTotal) {
	part := s.divide(r, c)
	for _, now := range []*RunRate{&s.Now, &owner.Now} {
		s.add(&now.Running, part.Running)
		s.add(&now.Wasted, part.Wasted)
		s.add(&now.Used, part.Used)
		s.add(&now.Unmeasured, part.Unmeasured)
		s.add(&now.Other, part.Other)
	}
	switch c.Category {
	case ledger.Committed:
		s.add(&s.Committed, c.ListCost-part.Wasted)
		s.addToCategory(CategoryIdle, part.Wasted)
	case ledger.Compute:
		s.addToCategory(CategoryIdle, part.Wasted)
		s.addToCategory(CategoryActive, part.Used)
		s.addToCategory(CategoryUnknown, part.Unmeasured)
	case ledger.Network:
		s.addToCategory(CategoryNetwork, c.ListCost)
	case ledger.Overhead:
		s.addToCategory(CategoryOverhead, c.ListCost)
	default:
		s.addToCategory(CategoryStorage, c.ListCost)
	}
}

// divider divides charges by use. Each claimed dollar of waste is taken once, from the first charge
// that it fits, so charges are divided in the order of resources.
type divider struct {
	audit *Result
	// wasted are the claimed dollars of waste that are not yet assigned to a charge.
	wasted map[claimKey]money.Amount
}

// divide returns the run rate of one priced charge.
func (d *divider) divide(r *inventory.Resource, c *ledger.Charge) RunRate {
	key := claimKey{r.Ref(), c.Category}
	wasted := min(d.wasted[key], c.ListCost)
	d.wasted[key] -= wasted
	rest := c.ListCost - wasted
	if c.Category == ledger.Committed {
		// The covered usage already counts at its list price, so only the unused part is a cost.
		rest = 0
	}
	part := RunRate{Running: wasted + rest, Wasted: wasted}
	_, judged := d.audit.Duty(r)
	switch {
	case c.Category != ledger.Compute:
		part.Other = rest
	case judged:
		part.Used = rest
	default:
		part.Unmeasured = rest
	}
	return part
}

// Parts yields every charge of an audit with its part of [Totals.Now], in the order of resources. A
// charge without a price has none.
func Parts(a *Result) (iter.Seq2[*ledger.Charge, RunRate], error) {
	var sums adder
	claimed := claimedWaste(a, &sums)
	return func(yield func(*ledger.Charge, RunRate) bool) {
		d := &divider{audit: a, wasted: maps.Clone(claimed)}
		for _, r := range a.Resources {
			charges := a.Charges[r.Ref()]
			for i := range charges {
				part := RunRate{}
				if charges[i].Unpriced == "" {
					part = d.divide(r, &charges[i])
				}
				if !yield(&charges[i], part) {
					return
				}
			}
		}
	}, sums.err
}

// addToCategory adds an amount to a category.
func (s *summation) addToCategory(category string, v money.Amount) {
	total := s.ByCategory[category]
	s.add(&total, v)
	s.ByCategory[category] = total
}

// window scales the waste of the audit's window to a month.
func (s *summation) window() {
	w := s.audit.Window
	if w == nil {
		return
	}
	month := func(d money.Amount) money.Amount {
		v, err := Monthly(w, d)
		s.err = cmp.Or(s.err, err)
		return v
	}
	s.Waste = month(w.Total.Wasted)
	for _, row := range w.Rows {
		if o := s.owners[row.Key[0]]; o != nil {
			o.Waste = month(row.Wasted)
		}
	}
}

// Monthly scales an amount of a window to a month of 730 hours.
func Monthly(w *costs.Costs, d money.Amount) (money.Amount, error) {
	return d.Mul(int64(money.Month/time.Second), int64(w.Until.Sub(w.Since)/time.Second))
}

// Duty returns the verdict on a resource's compute, and whether it is known. A kind without duty,
// such as a reservation's unused capacity, is known to be unused.
func (a *Result) Duty(r *inventory.Resource) (duty.Verdict, bool) {
	if v, ok := a.Verdicts[r.Ref()]; ok {
		return v, v.State != duty.Unknown
	}
	return duty.Verdict{}, !r.Kind.Traits().Measured
}

// claimedWaste returns the dollars that findings claim as waste.
func claimedWaste(a *Result, ad *adder) map[claimKey]money.Amount {
	out := map[claimKey]money.Amount{}
	for _, f := range a.Findings {
		for _, c := range f.Claims {
			key := claimKey{c.Resource, c.Category}
			v := out[key]
			ad.add(&v, c.Waste)
			out[key] = v
		}
	}
	return out
}

// riskOrder ranks risks, so that a step shows its highest.
var riskOrder = map[finding.Level]int{finding.None: 0, finding.Low: 1, finding.Medium: 2, finding.High: 3}

// steps sums the findings of each step that has any.
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
