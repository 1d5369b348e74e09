package commit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// defaultExpirySoon is how long after the window an existing commitment counts as expiring: a
// quarter, after which the plan is repeated with newer usage. Purchases can be queued for a later
// day (Amazon EC2 User Guide, "Queue your purchase"; AWS Savings Plans User Guide, "Queuing a
// Savings Plans purchase"), so nothing is paid twice until then.
const defaultExpirySoon = 90 * 24 * time.Hour

// State is the state of an existing commitment in the period ahead.
type State string

// The states.
const (
	// Active commitments last through the period ahead.
	Active State = "active"
	// Expiring commitments end soon after the window; the plan covers the time after them.
	Expiring State = "expiring"
	// Expired commitments ended within or before the window.
	Expired State = "expired"
)

// end returns the end of the window, where the period ahead begins.
func (d *demand) end() time.Time { return d.start.Add(time.Duration(d.hours) * time.Hour) }

// stateOf returns the state of a commitment with an expiry.
func (d *demand) stateOf(expires time.Time, soon time.Duration) State {
	switch left := expires.Sub(d.end()); {
	case left <= 0:
		return Expired
	case left <= soon:
		return Expiring
	}
	return Active
}

// inState returns the lines of existing commitments in a state.
func (d *demand) inState(held []line, soon time.Duration, state State) []line {
	var out []line
	for _, l := range held {
		if d.stateOf(l.existing.Expires, soon) == state {
			out = append(out, l)
		}
	}
	return slices.Clip(out)
}

// schedule sets the start of each purchase: the end of the window for what is needed next to the
// expiring commitments, and the days on which they end for the rest. With one offer these times are
// optimal; with several, the levels until the last day are bounded by the plan's and not proven
// optimal.
func (d *demand) schedule(best []purchase, offers []Offer, lasting, expiring []line, effort int) ([]purchase, error) {
	days := []time.Time{d.end()}
	for _, l := range expiring {
		days = append(days, l.existing.Expires)
	}
	slices.SortFunc(days, time.Time.Compare)
	days = slices.CompactFunc(days, time.Time.Equal)
	have := make([]int64, len(best))
	var out []purchase
	for i, day := range days {
		need := best
		if i < len(days)-1 {
			held := slices.Clone(lasting)
			for _, l := range expiring {
				if l.existing.Expires.After(day) {
					held = append(held, l)
				}
			}
			order(held)
			var err error
			if need, _, err = solve(d, offers, held, effort); err != nil {
				return nil, err
			}
		}
		for k, p := range best {
			level := p.atMost(need)
			if level <= have[k] {
				continue
			}
			out = append(out, purchase{offer: p.offer, level: level - have[k], starts: day})
			have[k] = level
		}
	}
	return out, nil
}

// atMost returns the level of the same offer in another plan, up to that of the purchase. For a
// savings plan, a difference of one hundredth is no separate purchase.
func (p purchase) atMost(others []purchase) int64 {
	i := slices.IndexFunc(others, func(q purchase) bool { return q.offer == p.offer })
	if i < 0 {
		return 0
	}
	level := min(others[i].level, p.level)
	if sliver := p.level / 100; p.offer.Kind == SavingsPlan {
		if level < sliver {
			return 0
		}
		if level > p.level-sliver {
			return p.level
		}
	}
	return level
}

// existing describes the use of existing commitments in the window, and the replacement of those
// that end.
func (d *demand) existing(held, bought []line, o Options) ([]Commitment, error) {
	past, err := d.replay(held, nil)
	if err != nil {
		return nil, err
	}
	out := []Commitment{}
	for i, l := range held {
		c, err := d.commitment(l, past.lines[i], o)
		if err != nil {
			return nil, err
		}
		c.Expires, c.State = &l.existing.Expires, d.stateOf(l.existing.Expires, o.Soon)
		c.Follows = d.follows(l, c, bought)
		out = append(out, c)
	}
	return out, nil
}

// follows describes the replacement of an existing commitment that ends.
func (d *demand) follows(l line, c Commitment, bought []line) string {
	if c.State == Active {
		return ""
	}
	onDemand, err := c.CoveredUSD.Mul(hoursPerYear, int64(l.until))
	if err != nil {
		onDemand = c.CoveredUSD // over 9 billion dollars a year
	}
	text := "expired on " + plain.Date(*c.Expires) + ": it covers nothing in the period ahead"
	if c.State == Expiring {
		text = fmt.Sprintf("expires on %s, %s after the window",
			plain.Date(*c.Expires), plain.Duration(c.Expires.Sub(d.end())))
	}
	var next []string
	for _, b := range bought {
		if slices.ContainsFunc(b.keys, func(k int) bool { return slices.Contains(l.keys, k) }) &&
			(c.State == Expired || !b.starts.Before(*c.Expires)) {
			next = append(next, b.amount()+" "+b.offer.Key)
		}
	}
	if len(next) > 0 {
		from := plain.Date(slices.MaxFunc([]time.Time{*c.Expires, d.end()}, time.Time.Compare))
		return text + "; the plan has " + strings.Join(next, " and ") + " from " + from + " on"
	}
	return text + "; nothing replaces it in the plan: its coverage costs " + onDemand.Dollars() +
		" a year on demand"
}

// amount describes the commitment of a line: "4 reserved", "a savings plan of $2.10/h for".
func (l line) amount() string {
	if l.offer.Kind == SavingsPlan {
		return "a savings plan of " + money.Amount(l.level).Dollars() + "/h for"
	}
	return fmt.Sprintf("%s reserved", money.Thousands(l.level))
}

// hoursPerYear scales a window to a year.
const hoursPerYear = 8760

// yearly scales an amount of some hours to a year.
func yearly(a money.Amount, hours int) (money.Amount, error) {
	v, err := a.Mul(hoursPerYear, int64(cmp.Or(hours, 1)))
	if err != nil {
		return 0, fmt.Errorf("scale a saving to a year: %w", err)
	}
	return v, nil
}
