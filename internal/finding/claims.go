package finding

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// Draft is a finding before its dollars are final: a rule claims shares of meters, and
// [Index.settle] decides how much of them counts.
type Draft struct {
	Finding
	claims []claim
	// Unknown is the reason why the saving is unknown, if the claims only bound it.
	Unknown string
	// Least is the minimum saving if Unknown is set.
	Least money.Amount
	// Bound bounds the saving of a finding whose meters have no price.
	Bound money.Amount
	// Stands marks a finding without claims; its Savings are final.
	Stands bool
	// first is a note placed before the fix.
	first string
	// gross is the claim before earlier findings took their share.
	gross money.Amount
}

// claim is the part of a meter claimed by a draft.
type claim struct {
	subject, charge int32
	// num/den is the claimed share of the meter's remaining cost; if den is 0, num is an amount,
	// limited by the remaining cost.
	num, den       int64
	waste, savings bool
	// replaced marks the cost of the fix that replaces the meter: it is no saving, and no other
	// finding can claim it.
	replaced bool
	// instead is true if the change replaces other changes: their claims count toward its share of
	// the whole cost.
	instead bool
}

// The kinds of claims.
const (
	WasteOnly = 1 << iota
	SavingsOnly
	WasteAndSavings = WasteOnly | SavingsOnly
)

// ClaimShare claims num/den of every meter of s in a category; an empty category means all. A share
// over 1 claims all.
func (d *Draft) ClaimShare(s *Subject, c ledger.Category, num, den int64, as int) {
	if num <= 0 || den <= 0 {
		return
	}
	for i := range s.Charges {
		if c == "" || s.Charges[i].Category == c {
			d.claims = append(d.claims, claim{subject: s.at, charge: int32(i), num: min(num, den), den: den,
				waste: as&WasteOnly != 0, savings: as&SavingsOnly != 0})
		}
	}
}

// ClaimReplaced claims num/den of every meter of s as the cost of the fix that replaces it. It is
// neither waste nor a saving, and no other finding can claim it.
func (d *Draft) ClaimReplaced(s *Subject, num, den int64) {
	for i := range s.Charges {
		d.claims = append(d.claims, claim{
			subject: s.at, charge: int32(i), num: num, den: den, savings: true, replaced: true,
		})
	}
}

// ClaimAmount claims an amount of one meter of s. It reports whether s has that meter.
func (d *Draft) ClaimAmount(s *Subject, meter string, amount money.Amount, as int) bool {
	for i := range s.Charges {
		if s.Charges[i].Meter == meter {
			if amount > 0 {
				d.claims = append(d.claims, claim{subject: s.at, charge: int32(i), num: int64(amount),
					waste: as&WasteOnly != 0, savings: as&SavingsOnly != 0})
			}
			return true
		}
	}
	return false
}

// NoPrice marks the saving of a draft as unpriced.
func (d *Draft) NoPrice(s *Subject, err error) {
	why := "no price for " + Describe(s.Resource)
	if err != nil {
		why += ": " + err.Error()
	} else if len(s.Charges) > 0 && s.Charges[0].Unpriced != "" {
		why += ": " + s.Charges[0].Unpriced
	}
	d.Stands, d.claims, d.Savings = true, nil, Saving{Why: why}
}

// wastes reports whether a draft claims waste.
func (d *Draft) wastes() bool {
	return slices.ContainsFunc(d.claims, func(c claim) bool { return c.waste })
}

// from returns the claimed part of the remaining cost.
func (c *claim) from(cost, left money.Amount) (money.Amount, error) {
	switch {
	case left <= 0:
		return 0, nil
	case c.den == 0:
		return min(money.Amount(c.num), left), nil
	case c.instead:
		all, err := cost.Mul(c.num, c.den)
		return max(0, all-(cost-left)), err
	}
	return left.Mul(c.num, c.den)
}

// unclaimed tracks the remaining cost of every meter and the first draft that claimed some.
type unclaimed struct {
	left  []money.Amount
	taker []*Draft
}

func newUnclaimed(x *Index) unclaimed {
	p := unclaimed{left: make([]money.Amount, x.meters), taker: make([]*Draft, x.meters)}
	for i := range x.subjects {
		s := &x.subjects[i]
		for j := range s.Charges {
			if c := &s.Charges[j]; c.Unpriced == "" && c.ListCost > 0 {
				p.left[int(s.meters)+j] = c.ListCost
			}
		}
	}
	return p
}

// take applies the claim of d to one meter.
func (p *unclaimed) take(x *Index, d *Draft, c *claim) (money.Amount, error) {
	s := &x.subjects[c.subject]
	at := s.meters + c.charge
	ch := &s.Charges[c.charge]
	got, err := c.from(ch.ListCost, p.left[at])
	if err != nil {
		return 0, fmt.Errorf("count %s of %s: %w", ch.Meter, s.ref, err)
	}
	if before := p.taker[at]; before != nil && before != d {
		if all, err := c.from(ch.ListCost, ch.ListCost); err == nil && got < all && d.Overlaps == "" {
			d.Overlaps = before.ID
		}
	} else if got > 0 {
		p.taker[at] = d
	}
	p.left[at] -= got
	return got, nil
}

// order is the order in which the steps claim dollars: fixes that stop waste first, decisions about
// models or placement last.
var order = [...]int{
	StepMeasure: 9, StepIdle: 1, StepStorage: 2, StepSpot: 3, StepRightsize: 4, StepCommit: 5, StepEgress: 6,
	StepModel: 7,
}

// settle counts each dollar once: by step, larger findings first, each draft gets its share of the
// remaining cost of its meters. Waste and savings are counted separately. Known savings come before
// bounded ones, so that a bound never hides a known dollar.
func (x *Index) settle() error {
	for _, d := range x.drafts {
		x.doubt(d)
		var err error
		if d.gross, err = x.gross(d); err != nil {
			return err
		}
	}
	slices.SortFunc(x.drafts, func(a, b *Draft) int {
		return cmp.Or(cmp.Compare(order[a.Step], order[b.Step]), cmp.Compare(b.gross, a.gross),
			cmp.Compare(a.ID, b.ID))
	})
	waste, savings := newUnclaimed(x), newUnclaimed(x)
	for _, d := range x.drafts {
		if err := x.takeWaste(d, &waste); err != nil {
			return err
		}
	}
	for _, bounded := range []bool{false, true} {
		for _, d := range x.drafts {
			if (d.Unknown != "") != bounded {
				continue
			}
			if err := x.takeSavings(d, &savings); err != nil {
				return err
			}
		}
	}
	return x.plansStayUsed(savings.left)
}

// gross returns the claim of a draft before earlier findings took their share.
func (x *Index) gross(d *Draft) (money.Amount, error) {
	var waste, savings money.Amount
	for i := range d.claims {
		c := &d.claims[i]
		cost := x.charge(c).ListCost
		v, err := c.from(cost, cost)
		if err == nil && c.waste {
			waste, err = waste.Add(v)
		}
		if err == nil && c.savings && !c.replaced {
			savings, err = savings.Add(v)
		}
		if err != nil {
			return 0, err
		}
	}
	return max(waste, savings, d.Bound), nil
}

func (x *Index) charge(c *claim) *ledger.Charge {
	return &x.subjects[c.subject].Charges[c.charge]
}

// counted returns d's claim record of a meter, created on first use.
func (d *Draft) counted(x *Index, c *claim) *Claim {
	s, ch := &x.subjects[c.subject], x.charge(c)
	for i := range d.Claims {
		if d.Claims[i].Meter == ch.Meter && d.Claims[i].Resource == s.ref {
			return &d.Claims[i]
		}
	}
	d.Claims = append(d.Claims, Claim{Resource: s.ref, Meter: ch.Meter, Category: ch.Category})
	return &d.Claims[len(d.Claims)-1]
}

func (x *Index) takeWaste(d *Draft, p *unclaimed) error {
	for i := range d.claims {
		c := &d.claims[i]
		if !c.waste || x.charge(c).Unpriced != "" {
			continue
		}
		got, err := p.take(x, d, c)
		if err != nil {
			return err
		}
		if got == 0 {
			continue
		}
		rec := d.counted(x, c)
		rec.Waste += got
		if d.Waste, err = d.Waste.Add(got); err != nil {
			return err
		}
	}
	return nil
}

// takeSavings applies a draft's claims and sets its Savings.
func (x *Index) takeSavings(d *Draft, p *unclaimed) error {
	if d.Stands {
		return nil
	}
	var total money.Amount
	unpriced, covered := "", false
	for i := range d.claims {
		c := &d.claims[i]
		if !c.savings {
			continue
		}
		if why := x.charge(c).Unpriced; why != "" {
			unpriced = why
			continue
		}
		got, err := p.take(x, d, c)
		if err != nil {
			return err
		}
		if got == 0 || c.replaced {
			continue
		}
		if x.charge(c).Category == ledger.Compute && !x.cover.saves(&x.subjects[c.subject]) {
			covered = true
			continue
		}
		if d.Unknown == "" {
			d.counted(x, c).Savings += got
		}
		if total, err = total.Add(got); err != nil {
			return err
		}
	}
	if covered {
		d.Fix.Note = Sentence(d.Fix.Note, "covered by a reserved instance that is still charged")
	}
	switch {
	case len(d.claims) == 0 && d.Bound == 0:
		d.Savings = Saving{Why: cmp.Or(d.Unknown, "no price for "+Describe(d.Resource))}
	case unpriced != "":
		d.Savings = Saving{Why: "no price for " + Describe(d.Resource) + ": " + unpriced}
	case d.Unknown != "":
		if total, err := total.Add(d.Bound); err == nil {
			// Dollars taken by earlier findings reduce the minimum too.
			d.Savings = Saving{
				LowerBound: max(0, d.Least-(d.gross-total)), UpperBound: total, Bounded: true, Why: d.Unknown,
			}
		} else {
			return err
		}
	default:
		d.Savings = Saving{Known: true, Amount: total}
	}
	return nil
}

// Describe formats a resource for explanations: "p4d.24xlarge in us-east-1".
func Describe(r *inventory.Resource) string {
	what := r.Type
	if what == "" {
		what = string(r.Kind)
	}
	return what + " in " + r.Region
}

// Sentence joins notes.
func Sentence(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
