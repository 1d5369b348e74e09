package commit

import (
	"container/heap"
	"math/bits"
	"slices"

	"github.com/curfew-dev/curfew/internal/money"
)

const (
	// maxChoices bounds how many sets of offers are solved for one group of keys.
	maxChoices = 256
	// allSubsets is up to how many offers every subset may be solved. With more, only offers
	// that a plan buys are left out of it.
	allSubsets = 8
)

// groupPlan is the search result of one or more groups of keys.
type groupPlan struct {
	// best is the cheapest plan of all offers, gap how far it may be above the lowest cost.
	best []purchase
	gap  money.Amount
	// advised is the cheapest plan in which every commitment passes the checks of the advice.
	advised []purchase
}

// group is the search of one group of keys.
type group struct {
	d                 *demand
	lasting, expiring []line
	o                 Options
}

// plan solves a group. Offers that the advice refuses leave the problem, and the rest is solved
// again: the advised plan is the cheapest among all subsets of the offers whose best plan passes
// every check. An offer more adds subsets and takes none away, so it never makes the advice worse.
func (g group) plan(offers []Offer) (p groupPlan, err error) {
	if p.best, p.gap, err = g.solve(offers); err != nil {
		return p, err
	}
	allowed, err := g.passes(p.best)
	if err != nil {
		return p, err
	}
	if allowed {
		p.advised = p.best
		return p, nil
	}
	p.advised, err = g.choose(g.possible(offers))
	return p, err
}

// solve returns the best purchases from offers with the days on which they start.
func (g group) solve(offers []Offer) ([]purchase, money.Amount, error) {
	best, gap, err := solve(g.d, offers, g.lasting, g.o.Effort)
	if err != nil {
		return nil, 0, err
	}
	best, err = g.d.schedule(best, offers, g.lasting, g.expiring, g.o.Effort)
	return best, gap, err
}

// cost returns the cost of purchases with the existing commitments that last.
func (g group) cost(bought []purchase) (money.Amount, error) {
	out, err := g.d.replay(g.d.lines(bought, g.lasting), nil)
	return out.cost, err
}

// passes reports whether every one of the purchases passes the checks of the advice.
func (g group) passes(bought []purchase) (bool, error) {
	lines := g.d.lines(bought, g.lasting)
	out, err := g.d.replay(lines, nil)
	if err != nil {
		return false, err
	}
	for i, l := range lines {
		if l.existing != nil {
			continue
		}
		c, err := g.d.commitment(l, out.lines[i], g.o)
		if err != nil || !c.Advised {
			return false, err
		}
	}
	return true, nil
}

// possible returns the offers that pass the checks at full use: no level of the others does.
func (g group) possible(offers []Offer) []Offer {
	return slices.DeleteFunc(slices.Clone(offers), func(o Offer) bool {
		l := line{offer: o, keys: g.d.covered(o), level: 1, until: g.d.hours}
		if len(l.keys) == 0 || g.d.history(l) < g.o.minHistory() {
			return true
		}
		most, err := g.d.fullUse(l)
		if err != nil {
			return false // the search of the best plan decides
		}
		r, err := g.d.risk(l, most, g.o.Leave)
		return err == nil && r != nil && r.SavingUSD <= 0
	})
}

// fullUse is the tally of a line that is used in every hour at the highest price of its keys.
func (d *demand) fullUse(l line) (y tally, err error) {
	if l.offer.Kind == SavingsPlan {
		l.level = int64(money.USD)
	}
	if y.charge, err = l.charge(); err != nil {
		return y, err
	}
	for t := range d.hours {
		var most money.Amount
		if l.offer.Kind == SavingsPlan {
			most = capacity(l.level, l.offer.Discount)
		} else {
			for _, k := range l.keys {
				a, err := cost(d.rate[k][t], l.room()/Quantity(d.unitsOf(l.offer, k)))
				if err != nil {
					return y, err
				}
				most = max(most, a)
			}
		}
		if y.covered, err = y.covered.Add(most); err != nil {
			return y, err
		}
	}
	return y, nil
}

// choice is a set of offers, the plan that is best with them, and its cost.
type choice struct {
	offers []int
	bought []purchase
	cost   money.Amount
}

type choices []choice

func (c choices) Len() int           { return len(c) }
func (c choices) Less(i, j int) bool { return c[i].cost < c[j].cost }
func (c choices) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }

// Push and Pop make a heap of choices, the cheapest first.
func (c *choices) Push(x any) { *c = append(*c, x.(choice)) }

// Pop takes the last one.
func (c *choices) Pop() any {
	old := *c
	x := old[len(old)-1]
	*c = old[:len(old)-1]
	return x
}

// choose returns the cheapest plan that passes the checks. The best plan of a set of offers costs
// no more than that of any of its subsets, so that the first plan that passes in order of cost is
// the cheapest. When the effort is spent, refused offers are left out until the rest passes.
func (g group) choose(offers []Offer) ([]purchase, error) {
	all := make([]int, len(offers))
	for i := range all {
		all[i] = i
	}
	of := func(set []int) []Offer {
		out := make([]Offer, len(set))
		for i, at := range set {
			out[i] = offers[at]
		}
		return out
	}
	var open choices
	seen := map[string]bool{}
	spent := false
	add := func(set []int) error {
		k := setKey(set)
		if seen[k] && !spent {
			return nil
		}
		seen[k] = true
		bought, _, err := g.solve(of(set))
		if err != nil {
			return err
		}
		cost, err := g.cost(bought)
		heap.Push(&open, choice{offers: set, bought: bought, cost: cost})
		return err
	}
	if err := add(all); err != nil {
		return nil, err
	}
	for {
		c := heap.Pop(&open).(choice)
		passes, err := g.passes(c.bought)
		if err != nil || passes {
			return c.bought, err
		}
		if spent = spent || len(seen) >= maxChoices; spent {
			open = nil // the plan at hand alone goes on
		}
		for i, at := range c.offers {
			buys := slices.ContainsFunc(c.bought, func(p purchase) bool { return p.offer == offers[at] })
			if !buys && (len(offers) > allSubsets || spent) {
				continue
			}
			if err := add(slices.Delete(slices.Clone(c.offers), i, i+1)); err != nil {
				return nil, err
			}
		}
	}
}

// setKey is the key of a set of sorted places.
func setKey(set []int) string {
	b := make([]byte, 0, len(set)/4+1)
	for _, at := range set {
		for len(b) <= at/8 {
			b = append(b, 0)
		}
		b[at/8] |= bits.RotateLeft8(1, at%8)
	}
	return string(b)
}
