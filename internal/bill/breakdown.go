package bill

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Basis is which of the costs a figure is made of.
type Basis string

// The bases. Billed is the amount paid; Effective spreads payments for commitments over the usage
// they cover.
const (
	OnBilled    Basis = "billed"
	OnEffective Basis = "effective"
)

// cost returns the row's cost on a basis, and whether the bill knows it.
func (r *Row) cost(b Basis) (money.Amount, bool) {
	if b == OnEffective {
		return r.Cost.Effective, !r.Unknown.Has(EffectiveCost)
	}
	return r.Cost.Billed, true
}

// Part is the cost of one category.
type Part struct {
	Category Category     `json:"category"`
	Billed   money.Amount `json:"billed_usd"`
	// UsualLow and UsualHigh bound the usual share in percent; both are 0 if none is known. That of
	// compute is the sum of idle (20-30) and active (15-25) machines.
	Share float64 `json:"share"`
	// UsualLow and UsualHigh are the share usual in the field, percent; both 0 if none is. That of
	// compute is the sum of idle (20-30) and active (15-25) machines.
	UsualLow  int `json:"usual_low_percent,omitempty"`
	UsualHigh int `json:"usual_high_percent,omitempty"`
}

// usual is the share of the parts of an ML bill, percent.
var usual = []Part{
	{Category: Storage, UsualLow: 30, UsualHigh: 40},
	{Category: Compute, UsualLow: 35, UsualHigh: 55},
	{Category: Egress, UsualLow: 8, UsualHigh: 15},
	{Category: Overhead, UsualLow: 5, UsualHigh: 10},
	{Category: Other},
}

// Categories sums the billed costs by category: all five in a fixed order, including empty ones.
func Categories(rows iter.Seq[Row]) ([]Part, error) {
	parts := slices.Clone(usual)
	var total money.Amount
	for r := range rows {
		i := slices.IndexFunc(parts, func(p Part) bool { return p.Category == r.Category })
		if i < 0 {
			i = len(parts) - 1
		}
		if err := errs(addTo(&parts[i].Billed, r.Cost.Billed), addTo(&total, r.Cost.Billed)); err != nil {
			return nil, fmt.Errorf("add up the bill by category: %w", err)
		}
	}
	for i := range parts {
		parts[i].Share = money.Ratio(parts[i].Billed, total)
	}
	return parts, nil
}

// The categories of compute by duty. Unmeasured compute is in neither of the other two: machines
// without measurements, and fees that name no machine.
const (
	Idle       Category = "idle"
	Active     Category = "active"
	Unmeasured Category = "unmeasured"
)

// Slice is the cost of one of the five categories of an ML bill, or of the rest.
type Slice struct {
	Category Category `json:"category"`
	// Billed is null if nothing measured says it, and Share with it.
	Billed    *money.Amount `json:"billed_usd"`
	Share     *float64      `json:"share"`
	UsualLow  int           `json:"usual_low_percent,omitempty"`
	UsualHigh int           `json:"usual_high_percent,omitempty"`
	// Effective and EffectiveShare are the same at effective cost; null too where the bill has
	// none.
	Effective      *money.Amount `json:"effective_usd"`
	EffectiveShare *float64      `json:"effective_share"`
	// ByBill is the part of idle that the bill itself says nothing used: reserved capacity, and
	// parts of commitments at effective cost. Null where the bill says it of nothing.
	ByBill          *money.Amount `json:"unused_by_bill_usd,omitempty"`
	ByBillEffective *money.Amount `json:"unused_by_bill_effective_usd,omitempty"`
	// Reason why Billed is null.
	Reason string `json:"reason,omitempty"`
}

// division are the five categories with the shares usual in the field, and the rest.
var division = []Slice{
	{Category: Storage, UsualLow: 30, UsualHigh: 40},
	{Category: Idle, UsualLow: 20, UsualHigh: 30},
	{Category: Active, UsualLow: 15, UsualHigh: 25},
	{Category: Egress, UsualLow: 8, UsualHigh: 15},
	{Category: Overhead, UsualLow: 5, UsualHigh: 10},
	{Category: Unmeasured},
	{Category: Other},
}

// ByDuty adds up costs by the five categories: storage, idle and active compute, egress,
// overhead; then unmeasured compute and costs in no category. Each row comes with its
// category, one of compute with [Idle], [Active] or [Unmeasured]. Where compute was billed and
// none of it is known to be idle or active, that category is unknown.
func ByDuty(rows iter.Seq2[Category, Row]) ([]Slice, error) {
	out := slices.Clone(division)
	billed, effective := make([]money.Amount, len(out)), make([]money.Amount, len(out))
	var totalBilled, totalEffective, unused, unusedEffective money.Amount
	var unusedRows bool
	var compute, measured, idle, someEffective bool
	for category, r := range rows {
		i := slices.IndexFunc(out, func(s Slice) bool { return s.Category == category })
		if i < 0 {
			i = len(out) - 1
		}
		compute = compute || r.Category == Compute
		idle = idle || category == Idle
		measured = measured || category == Active || category == Idle && !r.Unused()
		err := errs(addTo(&billed[i], r.Cost.Billed), addTo(&totalBilled, r.Cost.Billed))
		if !r.Unknown.Has(EffectiveCost) {
			someEffective = true
			err = errs(err, addTo(&effective[i], r.Cost.Effective), addTo(&totalEffective, r.Cost.Effective))
		}
		if category == Idle && r.Unused() {
			unusedRows = true
			err = errs(err, addTo(&unused, r.Cost.Billed))
			if !r.Unknown.Has(EffectiveCost) {
				err = errs(err, addTo(&unusedEffective, r.Cost.Effective))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("add up the bill by category: %w", err)
		}
	}
	for i := range out {
		s := &out[i]
		if compute && !measured && (s.Category == Idle && !idle || s.Category == Active) {
			s.Reason = "no machine on the bill was measured"
			continue
		}
		share := money.Ratio(billed[i], totalBilled)
		s.Billed, s.Share = &billed[i], &share
		if s.Category == Idle && unusedRows {
			s.ByBill, s.ByBillEffective = &unused, &unusedEffective
		}
		if someEffective {
			share := money.Ratio(effective[i], totalEffective)
			s.Effective, s.EffectiveShare = &effective[i], &share
		}
	}
	return out, nil
}

// Flow is data that one resource sent, and its billed cost.
type Flow struct {
	Transfer   Transfer     `json:"transfer"`
	Account    string       `json:"account"`
	SubAccount string       `json:"sub_account,omitempty"`
	Service    string       `json:"service,omitempty"`
	Resource   string       `json:"resource,omitempty"`
	Region     string       `json:"region,omitempty"`
	ToRegion   string       `json:"to_region,omitempty"`
	Billed     money.Amount `json:"billed_usd"`
	// Bytes as billed, a GB being 10^9; 0 if the bill gives no amount of data.
	Bytes int64 `json:"bytes,omitempty"`
}

// EgressFlows adds up the transfers that cost money to be looked at: across regions, across
// zones, to the Internet and through NAT gateways, by resource and pair of regions, the
// most expensive first.
func EgressFlows(rows iter.Seq[Row]) ([]Flow, error) {
	flows := map[Flow]*Flow{}
	for r := range rows {
		switch r.Transfer {
		case CrossRegion, CrossZone, Internet, NATData:
		default:
			continue
		}
		key := Flow{
			Transfer: r.Transfer, Account: r.Account, SubAccount: r.SubAccount,
			Service: r.Service, Resource: r.Resource,
			Region: r.Region, ToRegion: r.ToRegion,
		}
		f := flows[key]
		if f == nil {
			f = &Flow{}
			*f = key
			flows[key] = f
		}
		if err := addTo(&f.Billed, r.Cost.Billed); err != nil {
			return nil, fmt.Errorf("add up the egress of %s: %w", r.Resource, err)
		}
		f.Bytes += r.Bytes
	}
	out := make([]Flow, 0, len(flows))
	for _, f := range flows {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(x, y Flow) int {
		return cmp.Or(cmp.Compare(y.Billed, x.Billed), cmp.Compare(x.Transfer, y.Transfer),
			cmp.Compare(x.Account, y.Account), cmp.Compare(x.SubAccount, y.SubAccount),
			cmp.Compare(x.Service, y.Service), cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Region, y.Region),
			cmp.Compare(x.ToRegion, y.ToRegion))
	})
	return out, nil
}

// Commitment is the use of one commitment according to the rows.
type Commitment struct {
	ID string `json:"id"`
	// Purchased is its billed cost, Used and Unused the effective cost of the covered usage and of
	// the uncovered rest.
	Purchased money.Amount `json:"purchased_usd"`
	Used      money.Amount `json:"used_usd"`
	Unused    money.Amount `json:"unused_usd"`
	// Unknown counts rows without an effective cost, which are in none of the above.
	Unknown int64 `json:"unknown_rows"`
}

// OnDemand is compute bought at the standard price, which a commitment could cover.
type OnDemand struct {
	Service string       `json:"service"`
	Region  string       `json:"region,omitempty"`
	Billed  money.Amount `json:"billed_usd"`
}

// Commitments is the use of commitments in a bill.
type Commitments struct {
	// Commitments are in the order of their unused cost, most first.
	Commitments []Commitment `json:"commitments"`
	// OnDemand compute, most first.
	OnDemand []OnDemand `json:"on_demand"`
	// Missed is at most what could have been covered by what lay unused: the sum over
	// days and billing accounts of the lesser of unused commitments and on-demand compute.
	// It is an upper bound: a commitment may not apply to all of that.
	Missed money.Amount `json:"missed_at_most_usd"`
}

// CommitmentUse returns the covered usage of commitments, their unused part, and the compute bought
// on demand in addition.
func CommitmentUse(rows iter.Seq[Row]) (Commitments, error) {
	byID := map[string]*Commitment{}
	demand := map[OnDemand]money.Amount{}
	type place struct {
		account string
		day     time.Time
	}
	type both struct{ unused, demand money.Amount }
	days := map[place]*both{}
	for r := range rows {
		at := place{r.Account, r.Day}
		if days[at] == nil {
			days[at] = &both{}
		}
		if r.Commitment == "" {
			if r.ChargeCategory == Usage && r.Category == Compute &&
				(r.PricingCategory == Standard || r.PricingCategory == "") {
				key := OnDemand{Service: r.Service, Region: r.Region}
				sum := demand[key]
				if err := errs(addTo(&sum, r.Cost.Billed), addTo(&days[at].demand, r.Cost.Billed)); err != nil {
					return Commitments{}, fmt.Errorf("add up on-demand compute: %w", err)
				}
				demand[key] = sum
			}
			continue
		}
		c := byID[r.Commitment]
		if c == nil {
			c = &Commitment{ID: r.Commitment}
			byID[r.Commitment] = c
		}
		var err error
		switch {
		case r.ChargeCategory == Purchase:
			err = addTo(&c.Purchased, r.Cost.Billed)
		case r.Unknown.Has(EffectiveCost):
			c.Unknown++
		case r.Status == Unused:
			err = errs(addTo(&c.Unused, r.Cost.Effective), addTo(&days[at].unused, r.Cost.Effective))
		case r.Status == Used || r.PricingCategory == Committed:
			err = addTo(&c.Used, r.Cost.Effective)
		}
		if err != nil {
			return Commitments{}, fmt.Errorf("add up commitment %s: %w", r.Commitment, err)
		}
	}
	out := Commitments{Commitments: []Commitment{}, OnDemand: []OnDemand{}}
	for _, c := range byID {
		out.Commitments = append(out.Commitments, *c)
	}
	slices.SortFunc(out.Commitments, func(x, y Commitment) int {
		return cmp.Or(cmp.Compare(y.Unused, x.Unused), cmp.Compare(x.ID, y.ID))
	})
	for k, v := range demand {
		k.Billed = v
		out.OnDemand = append(out.OnDemand, k)
	}
	slices.SortFunc(out.OnDemand, func(x, y OnDemand) int {
		return cmp.Or(cmp.Compare(y.Billed, x.Billed), cmp.Compare(x.Service, y.Service),
			cmp.Compare(x.Region, y.Region))
	})
	for _, d := range days {
		if err := addTo(&out.Missed, max(0, min(d.unused, d.demand))); err != nil {
			return Commitments{}, fmt.Errorf("add up unused commitments: %w", err)
		}
	}
	return out, nil
}

func addTo(sum *money.Amount, a money.Amount) error {
	s, err := sum.Add(a)
	if err == nil {
		*sum = s
	}
	return err
}

func errs(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
