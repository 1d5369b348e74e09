package backtest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/money"
)

// Owned is the result of one rule for the resources of one team and user.
type Owned struct {
	// Rule is the name of the result that this is a part of.
	Rule string `json:"rule"`
	// Team and User are as the trace has them; empty if it does not say.
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
	CostUSD  money.Dollars `json:"cost_usd"`
	SavedUSD money.Dollars `json:"saved_usd"`
}

// owner is who answers for a resource, as far as a trace says.
type owner struct{ team, user string }

func ownerOf(r learn.Resource) owner {
	if r.Description == nil {
		return owner{}
	}
	return owner{r.Description.Team, r.Description.User}
}

// byOwner divides the result of a rule among the owners, the largest saving first. It returns nil
// if the trace names none.
func (t *trace) byOwner(rule string, sum totals, got outcome) ([]Owned, error) {
	type owned struct {
		parts     []share
		resources int
	}
	shares := map[owner]*owned{}
	for i, r := range t.resources {
		s := shares[ownerOf(r)]
		if s == nil {
			s = &owned{parts: sum.shares()}
			shares[ownerOf(r)] = s
		}
		s.resources++
		s.parts[sum.class[i]].count(sum.by[i])
		s.parts[sum.class[i]].Add(got.by[i])
	}
	if _, nobody := shares[owner{}]; nobody && len(shares) == 1 {
		return nil, nil
	}
	out := make([]Owned, 0, len(shares))
	for who, s := range shares {
		all := together(s.parts)
		o := Owned{
			Rule: rule, Team: who.team, User: who.user, Resources: s.resources,
			ResourceHours: hours(all.samples * t.step), IdleHours: hours(all.idle * t.step),
			ReleasedHours: hours(all.Released),
			Restarts:      all.Restarts, NetSavedHours: hours(all.Net(t.restart)),
		}
		var err error
		if o.CostUSD, o.SavedUSD, err = t.dollars(s.parts); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b Owned) int {
		return cmp.Or(cmp.Compare(b.NetSavedHours, a.NetSavedHours), cmp.Compare(a.Team, b.Team),
			cmp.Compare(a.User, b.User))
	})
	return out, nil
}

// dollars returns the cost of the hours of some shares, and the net saving; unknown if a price is
// unknown.
func (t *trace) dollars(parts []share) (cost, saved money.Dollars, err error) {
	var paid, net money.Amount
	for i := range parts {
		p := &parts[i]
		switch {
		case p.samples == 0:
			continue
		case p.hourly == nil:
			return cost, saved, nil
		}
		for _, s := range []struct {
			sum *money.Amount
			us  int64
		}{{&paid, p.samples * t.step}, {&net, p.Net(t.restart)}} {
			amount, err := p.hourly.Mul(s.us, micros(time.Hour))
			if err == nil {
				*s.sum, err = s.sum.Add(amount)
			}
			if err != nil {
				return cost, saved, fmt.Errorf("price the hours: %w", err)
			}
		}
	}
	return money.Known(paid), money.Known(net), nil
}
