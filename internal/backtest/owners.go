package backtest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Owned is what one rule would have done with the resources of one team and user.
type Owned struct {
	// Rule is the name of the result that this is a part of.
	Rule string `json:"rule"`
	// Team and User are as the trace has them; empty where it does not say.
	Team          string  `json:"team"`
	User          string  `json:"user"`
	Resources     int     `json:"resources"`
	ResourceHours float64 `json:"resource_hours"`
	IdleHours     float64 `json:"idle_hours"`
	ReleasedHours float64 `json:"released_hours"`
	Restarts      int64   `json:"restarts"`
	NetSavedHours float64 `json:"net_saved_hours"`
	// CostUSD is the price of the resource hours, SavedUSD of the net saving; null
	// when unpriced.
	CostUSD  *string `json:"cost_usd"`
	SavedUSD *string `json:"saved_usd"`
}

// owner is who answers for a resource, as far as a trace says.
type owner struct{ team, user string }

func (r Resource) owner() owner {
	if r.Description == nil {
		return owner{}
	}
	return owner{r.Description.Team, r.Description.User}
}

// byOwner divides what a rule did among the owners, the largest saving first. It
// returns nil where the trace names none.
func (t *trace) byOwner(rule string, sum totals, got outcome, price *money.Amount) ([]Owned, error) {
	type share struct {
		counted
		tally
		resources int
	}
	shares := map[owner]*share{}
	for i, r := range t.resources {
		s := shares[r.owner()]
		if s == nil {
			s = &share{}
			shares[r.owner()] = s
		}
		s.resources++
		s.samples += sum.by[i].samples
		s.idle += sum.by[i].idle
		s.add(got.by[i])
	}
	if _, nobody := shares[owner{}]; nobody && len(shares) == 1 {
		return nil, nil
	}
	out := make([]Owned, 0, len(shares))
	for who, s := range shares {
		o := Owned{
			Rule: rule, Team: who.team, User: who.user, Resources: s.resources,
			ResourceHours: hours(s.samples * t.step), IdleHours: hours(s.idle * t.step), ReleasedHours: hours(s.released),
			Restarts: s.restarts, NetSavedHours: hours(s.net(t.restart)),
		}
		var err error
		if o.CostUSD, err = priced(price, s.samples*t.step); err != nil {
			return nil, err
		}
		if o.SavedUSD, err = priced(price, s.net(t.restart)); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b Owned) int {
		return cmp.Or(cmp.Compare(b.NetSavedHours, a.NetSavedHours), cmp.Compare(a.Team, b.Team), cmp.Compare(a.User, b.User))
	})
	return out, nil
}

// priced returns what a span costs at a price an hour, to the cent; nil without a
// price.
func priced(price *money.Amount, us int64) (*string, error) {
	if price == nil {
		return nil, nil
	}
	amount, err := price.Mul(us, micros(time.Hour))
	if err != nil {
		return nil, fmt.Errorf("price the hours: %w", err)
	}
	text := amount.Cents()
	return &text, nil
}
