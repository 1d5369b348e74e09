package commit

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// OnlineReport is the cost of the online policy, which sees only the past, in the shape of its JSON.
type OnlineReport struct {
	// CostUSD is the cost of the online policy, OfflineUSD the least that the same
	// offers could have cost from the first hour on, OnDemandUSD that of buying nothing;
	// all after what existing commitments cover.
	CostUSD     money.Amount `json:"cost_usd"`
	OfflineUSD  money.Amount `json:"offline_cost_usd"`
	OnDemandUSD money.Amount `json:"on_demand_cost_usd"`
	// Ratio is cost over offline cost; 1 where both are 0. Bound is what it can never
	// pass, 2 − α, where α is the price of the commitment as a share of on demand.
	Ratio float64 `json:"ratio"`
	Bound float64 `json:"competitive_bound"`
	// Bought are the purchases by offer.
	Bought []Bought `json:"bought"`
}

// Bought are the purchases of one offer, step by step.
type Bought struct {
	Key  string `json:"key"`
	Kind Kind   `json:"kind"`
	// TermMonths is the term in months.
	TermMonths int64 `json:"term_months"`
	// Payment is how it is paid.
	Payment Payment `json:"payment"`
	// Quantity is how many are committed.
	Quantity int64 `json:"quantity,omitempty"`
	// DollarsPerHour is the dollars an hour that are committed.
	DollarsPerHour string    `json:"dollars_per_hour,omitempty"`
	First          time.Time `json:"first"`
	Last           time.Time `json:"last"`
}

// Online replays the window buying as the hours come, without a look at the next one.
// Each machine, or dollar an hour, of the level of demand is bought in the hour in which
// what it has cost on demand would pass what the commitment charges for the whole
// window: the break-even rule of W. Wang, B. Li and B. Liang, "To Reserve or Not to
// Reserve: Optimal Online Multi-Instance Acquisition in IaaS Clouds" (ICAC 2013), which
// no deterministic rule betters. As in a plan, what is bought is charged for every hour
// from then to the end of the window. By then at least the share α of the hours has
// passed, so that it costs at most 2 − α times the best level from the first hour on.
//
// A key uses its cheapest reserved machine, for its own size alone, or where it has none the savings plan with
// the highest discount. What existing commitments cover is taken off first. Errors are
// those of [Plan].
func Online(usage []Usage, offers []Offer, existing []Existing) (OnlineReport, error) {
	d, held, err := open(usage, offers, existing)
	if err != nil {
		return OnlineReport{}, err
	}
	if d, err = d.after(held); err != nil {
		return OnlineReport{}, err
	}
	r := OnlineReport{OnDemandUSD: d.onDemand, Bound: 1, Bought: []Bought{}}
	for _, g := range d.alone(offers) {
		if err := r.replay(g); err != nil {
			return OnlineReport{}, err
		}
	}
	r.Ratio = 1
	if r.OfflineUSD > 0 {
		r.Ratio = money.Ratio(r.CostUSD, r.OfflineUSD)
	}
	return r, nil
}

// single is demand with at most one offer to buy.
type single struct {
	d     *demand
	offer *variable
}

// alone parts the demand so that each part has one offer.
func (d *demand) alone(offers []Offer) []single {
	own := slices.Clone(offers)
	for i := range own {
		own[i].OneSize = own[i].Kind == Reserved
	}
	m := choose(d, own, nil)
	which := make([]int, len(d.keys))
	for k := range which {
		which[k] = -1
		for i, v := range m.vars { // reserved machines come first
			if !slices.Contains(v.keys, k) {
				continue
			}
			if w := which[k]; w < 0 || m.vars[w].offer.Kind == SavingsPlan &&
				m.vars[w].offer.Discount < v.offer.Discount {
				which[k] = i
			}
		}
	}
	var out []single
	for i := -1; i < len(m.vars); i++ {
		var keys []int
		for k := range which {
			if which[k] == i {
				keys = append(keys, k)
			}
		}
		if len(keys) == 0 {
			continue
		}
		part, err := d.part(keys)
		if err != nil {
			continue // was added up before
		}
		s := single{d: part}
		if i >= 0 {
			v := m.vars[i]
			v.keys = part.covered(v.offer)
			s.offer = &v
		}
		out = append(out, s)
	}
	return out
}

// after is the demand that lines leave, which are in order.
func (d *demand) after(lines []line) (*demand, error) {
	if len(lines) == 0 {
		return d, nil
	}
	rest := *d
	rest.need, rest.onDemand = make([][]Quantity, len(d.keys)), 0
	for k := range rest.need {
		rest.need[k] = make([]Quantity, d.hours)
	}
	var failed error
	_, err := d.replay(lines, func(t int, _, left []money.Amount) {
		for k, a := range left {
			if a == 0 {
				continue
			}
			q, err := a.Mul(int64(Machine), int64(d.rate[k][t]))
			failed = cmp.Or(failed, err)
			rest.need[k][t] = min(Quantity(q), d.need[k][t])
			again, _ := cost(d.rate[k][t], rest.need[k][t])
			rest.onDemand += again
		}
	})
	return &rest, cmp.Or(err, failed)
}

// replay adds one part.
func (r *OnlineReport) replay(g single) error {
	cost, offline := g.d.onDemand, g.d.onDemand
	if g.offer != nil {
		b := buyer{single: g}
		var err error
		if g.offer.offer.Kind == Reserved {
			err = b.machines()
		} else {
			err = b.dollars()
		}
		if err != nil {
			return fmt.Errorf("replay %s under the online policy: %w", g.offer.offer.Key, err)
		}
		level := g.d.quantile(*g.offer, nil)
		best, err := g.d.replay(g.d.lines(purchases([]variable{*g.offer}, []int64{level}), nil), nil)
		if err != nil {
			return err
		}
		cost, offline = b.cost, best.cost
		r.Bound = max(r.Bound, 2-b.alpha)
		if b.level > 0 {
			o := g.offer.offer
			bought := Bought{Key: o.Key, Kind: o.Kind, TermMonths: o.TermMonths, Payment: o.Payment,
				First: g.d.start.Add(time.Duration(b.first) * time.Hour),
				Last:  g.d.start.Add(time.Duration(b.last) * time.Hour)}
			if o.Kind == Reserved {
				bought.Quantity = b.level
			} else {
				bought.DollarsPerHour = money.Amount(b.level).String()
			}
			r.Bought = append(r.Bought, bought)
		}
	}
	var err error
	if r.CostUSD, err = r.CostUSD.Add(cost); err != nil {
		return err
	}
	r.OfflineUSD, err = r.OfflineUSD.Add(offline)
	return err
}

// buyer buys one offer as the hours come.
type buyer struct {
	single
	// level is the present level; first and last are its hours of the window.
	level       int64
	first, last int
	cost        money.Amount
	alpha       float64
}

// buy raises the level.
func (b *buyer) buy(t int, by int64) {
	if b.level == 0 {
		b.first = t
	}
	b.level, b.last = b.level+by, t
}

// pay adds to the cost.
func (b *buyer) pay(a money.Amount) (err error) {
	b.cost, err = b.cost.Add(a)
	return err
}

// machines buys reserved machines of the only key.
func (b *buyer) machines() error {
	d, o := b.d, b.offer.offer
	whole, err := o.charge(int64(d.hours))
	if err != nil {
		return err
	}
	b.alpha = float64(whole) / float64(d.hours) / float64(max(slices.Max(d.rate[0]), 1))
	// spent is what each machine above the level has cost on demand.
	spent := make([]money.Amount, int(math.Ceil(b.offer.upper)))
	for t, need := range d.need[0] {
		for n := b.level; Quantity(n)*Machine < need; n++ {
			a, err := cost(d.rate[0][t], min(need-Quantity(n)*Machine, Machine))
			if err != nil {
				return err
			}
			if spent[n] += a; n > b.level || spent[n] <= whole {
				continue
			}
			b.buy(t, 1)
			rest, err := o.charge(int64(d.hours - t))
			if err != nil {
				return err
			}
			if err := b.pay(rest); err != nil {
				return err
			}
		}
		rest, err := cost(d.rate[0][t], max(0, need-Quantity(b.level)*Machine))
		if err != nil {
			return err
		}
		if err := b.pay(rest); err != nil {
			return err
		}
	}
	return nil
}

// dollars buys a savings plan for all keys. Of the hours so far, the level is what more
// than (1 − d) of the window's hours have used.
func (b *buyer) dollars() error {
	d, discount := b.d, b.offer.offer.Discount
	b.alpha = 1 - discount.Share()
	above := int(int64(d.hours) * int64(fullDiscount-discount) / int64(fullDiscount))
	var top amounts // the above + 1 highest hours so far
	for t := range d.hours {
		var use money.Amount
		for k := range d.keys {
			a, err := cost(d.rate[k][t], d.need[k][t])
			if err != nil {
				return err
			}
			use += a
		}
		heap.Push(&top, use)
		if len(top) > above+1 {
			heap.Pop(&top)
		}
		if len(top) == above+1 && top[0] > capacity(b.level, discount) {
			to, err := top[0].Mul(int64(fullDiscount-discount), int64(fullDiscount))
			if err != nil {
				return err
			}
			by := max(0, int64(to)-b.level)
			if by > 0 {
				b.buy(t, by)
			}
			rest, err := money.Amount(by).Mul(int64(d.hours-t), 1)
			if err != nil {
				return err
			}
			if err := b.pay(rest); err != nil {
				return err
			}
		}
		if err := b.pay(max(0, use-capacity(b.level, discount))); err != nil {
			return err
		}
	}
	return nil
}

// amounts is a heap, the lowest first.
type amounts []money.Amount

func (a amounts) Len() int           { return len(a) }
func (a amounts) Less(i, j int) bool { return a[i] < a[j] }
func (a amounts) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push appends.
func (a *amounts) Push(x any) { *a = append(*a, x.(money.Amount)) }

// Pop takes the last one.
func (a *amounts) Pop() any {
	old := *a
	x := old[len(old)-1]
	*a = old[:len(old)-1]
	return x
}
