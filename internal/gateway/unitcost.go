package gateway

import (
	"cmp"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/money"
)

// million is the tokens that a cost is told for.
const million = 1_000_000

// Reasons for which tokens have no cost.
const (
	noTokens     = "no tokens were counted"
	noFirstToken = "no stream has shown its first token, so that input and output cannot be told apart"
)

// perUnit divides an amount by units and tells it for so many of them; unknown without any.
func perUnit(total money.Dollars, per, units int64) money.Dollars {
	amount, ok := total.Get()
	if !ok || units <= 0 {
		return money.Dollars{}
	}
	each, err := amount.Mul(per, units)
	if err != nil {
		return money.Dollars{}
	}
	return money.Known(each)
}

// unitCost is the cost of so many units, or the reason for which there is none.
func unitCost(used, allocated money.Dollars, per, units int64, reason, none string) stats.UnitCost {
	switch {
	case reason != "":
		return stats.UnitCost{Reason: reason}
	case units == 0:
		return stats.UnitCost{Reason: none}
	}
	out := stats.UnitCost{UsedUSD: perUnit(used, per, units), AllocatedUSD: perUnit(allocated, per, units)}
	u, known := out.UsedUSD.Get()
	a, alsoKnown := out.AllocatedUSD.Get()
	if !known || !alsoKnown {
		return stats.UnitCost{Reason: "the amount is out of range"}
	}
	out.IdleUSD = money.Known(a - u)
	return out
}

// tokenCosts are the costs of a million input and a million output tokens. The time up to the first
// token of answers is that of the input, the rest that of the output; the dollars of all requests are
// divided in that proportion.
func tokenCosts(used, allocated money.Dollars, input, output int64, t tokenTime,
	reason string) (in, out stats.UnitCost) {
	if reason == "" && input+output == 0 {
		reason = noTokens
	}
	if reason == "" && !t.known() {
		reason = noFirstToken
	}
	cost := func(of time.Duration, tokens int64, none string) stats.UnitCost {
		if reason != "" {
			return stats.UnitCost{Reason: reason}
		}
		share := func(d money.Dollars) money.Dollars {
			amount, _ := d.Get()
			part, err := amount.Mul(int64(of), int64(t.input+t.output))
			if err != nil {
				return money.Dollars{}
			}
			return money.Known(part)
		}
		return unitCost(share(used), share(allocated), million, tokens, "", none)
	}
	in = cost(t.input, input, "no input tokens were counted")
	return in, cost(t.output, output, "no output tokens were counted")
}

// units are the units of one minute. Their cost is part of whole of the minute's, told per so many.
type units struct {
	per, made   int64
	part, whole time.Duration
}

type unitsOf func(window) units

// unitPercentiles returns the cost of a unit at p50 and p95 of the units, each with the cost of the
// minute in which it was made.
func (m *meter) unitPercentiles(pool string, c poolCost, of unitsOf) (p50, p95 *stats.Split) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.windows[pool]
	if w == nil || c.allocated <= 0 {
		return nil, nil
	}
	all := slices.DeleteFunc(w.since(0), func(x window) bool { u := of(x); return u.made == 0 || u.whole == 0 })
	each := func(x window) float64 {
		u := of(x)
		return float64(x.allocated) * float64(u.part) / float64(u.whole) / float64(u.made)
	}
	slices.SortFunc(all, func(a, b window) int { return cmp.Compare(each(a), each(b)) })
	var total int64
	for _, x := range all {
		total += of(x).made
	}
	at := func(share float64) *stats.Split {
		seen := int64(0)
		for _, x := range all {
			if seen += of(x).made; float64(seen) >= share*float64(total) {
				return c.split(x, of(x))
			}
		}
		return nil
	}
	return at(0.5), at(0.95)
}

// split prices the units of a minute by the mean price of the pool.
func (c poolCost) split(x window, u units) *stats.Split {
	price := func(d time.Duration) money.Dollars {
		usd, err := c.allocatedUSD.Mul(int64(d), int64(c.allocated))
		if err == nil {
			usd, err = usd.Mul(int64(u.part), int64(u.whole))
		}
		if err == nil {
			usd, err = usd.Mul(u.per, u.made)
		}
		if err != nil {
			return money.Dollars{}
		}
		return money.Known(usd)
	}
	out := &stats.Split{UsedUSD: price(x.used), AllocatedUSD: price(x.allocated)}
	used, known := out.UsedUSD.Get()
	allocated, alsoKnown := out.AllocatedUSD.Get()
	if known && alsoKnown {
		out.IdleUSD = money.Known(allocated - used)
	}
	return out
}
