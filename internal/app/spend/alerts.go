package spend

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/alert"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/store"
)

const oneDay = 24 * time.Hour

// AlertFacts reads the facts from which alerts are derived.
func AlertFacts(ctx context.Context, cfg config.Config, s *store.Store, now time.Time) (alert.Facts, error) {
	f := alert.Facts{Now: now}
	newest, err := s.Budgets().Spent(ctx, budget.Match{}, now.Add(-time.Hour), now)
	if err != nil {
		return f, fmt.Errorf("read where the ledger ends: %w", err)
	}
	f.LedgerEnd = newest.Through
	began, err := readReach(ctx, s, &f)
	if err != nil || f.LedgerEnd.IsZero() {
		return f, err
	}
	if f.Budgets, err = burns(ctx, cfg, s, f); err != nil {
		return f, err
	}
	if f.Spenders, f.Storage, err = spenders(ctx, s, f.LedgerEnd, began); err != nil {
		return f, fmt.Errorf("read who spends what: %w", err)
	}
	return f, nil
}

// readReach returns when each account was read last, and when the first one was read for the first
// time.
func readReach(ctx context.Context, s *store.Store, f *alert.Facts) (began time.Time, err error) {
	accounts, err := s.Ledger().Accounts(ctx)
	if err != nil {
		return began, fmt.Errorf("read which accounts are recorded: %w", err)
	}
	for _, a := range accounts {
		parts, err := s.Ledger().Reach(ctx, a)
		if err != nil {
			return began, fmt.Errorf("read what is recorded of %s: %w", a, err)
		}
		var last time.Time
		for _, p := range parts {
			if began.IsZero() || p.First.Before(began) {
				began = p.First
			}
			if p.Last.After(last) {
				last = p.Last
			}
		}
		if !last.IsZero() {
			f.Reach = append(f.Reach, alert.Reach{Account: a.String(), Last: last})
		}
	}
	return began, nil
}

// burns returns the budgets with their recent charges.
func burns(ctx context.Context, cfg config.Config, s *store.Store, f alert.Facts) ([]alert.Burn, error) {
	d, err := desk(cfg, s)
	if err != nil {
		return nil, err
	}
	all, err := d.Statuses(ctx, f.Now)
	if err != nil {
		return nil, fmt.Errorf("read where the budgets stand: %w", err)
	}
	out := make([]alert.Burn, 0, len(all))
	for _, b := range all {
		burn := alert.Burn{Status: b}
		for back, spent := range map[time.Duration]*money.Amount{
			time.Hour: &burn.Hour, oneDay: &burn.Day, 7 * oneDay: &burn.Week,
		} {
			lately, err := s.Budgets().Spent(ctx, b.Budget.Match, f.LedgerEnd.Add(-back), f.LedgerEnd)
			if err != nil {
				return nil, fmt.Errorf("read what budget %s spent lately: %w", b.Budget.ID, err)
			}
			*spent = lately.Used
		}
		out = append(out, burn)
	}
	return out, nil
}

// spenderKey identifies a person, project or team, or the storage of a team.
type spenderKey struct {
	kind inventory.Kind
	name string
}

// spender accumulates the series of a spender.
type spender struct {
	alert.Series
	// teams holds the amounts by team; the team with the largest is notified.
	teams map[string]money.Amount
}

// spenders returns the charges of people, projects and teams, and of the storage of teams, over the
// last 24 hours of the ledger and the whole days before.
func spenders(ctx context.Context, s *store.Store, through, began time.Time) (who, storage []alert.Series,
	err error) {
	through = through.UTC().Truncate(time.Hour)
	last := through.Add(-oneDay)
	until := last.Truncate(oneDay) // Days[0] ends here
	first := began.UTC().Add(oneDay - 1).Truncate(oneDay)
	if oldest := until.AddDate(0, 0, -alert.SpendDays); first.Before(oldest) {
		first = oldest
	}
	days := max(0, int(until.Sub(first)/oneDay))
	all := map[spenderKey]*spender{}
	add := func(k spenderKey, team string, day int, amount money.Amount) error {
		x := all[k]
		if x == nil {
			x = &spender{
				Series: alert.Series{Kind: k.kind, Name: k.name, Days: make([]money.Amount, days)},
				teams:  map[string]money.Amount{},
			}
			all[k] = x
		}
		to := &x.Last
		if day >= 0 {
			to = &x.Days[day]
		}
		var err error
		if *to, err = to.Add(amount); err == nil {
			x.teams[team], err = x.teams[team].Add(amount)
		}
		return err
	}
	by := []ledger.Dimension{ledger.ByUser, ledger.ByProject, ledger.ByTeam, ledger.ByCategory}
	read := func(since, until time.Time, g ledger.Granularity) error {
		if !since.Before(until) {
			return nil
		}
		sums, err := s.Ledger().Sums(ctx, ledger.SumQuery{
			By: by, Since: since, Until: until, Granularity: g, Accrued: true,
		})
		if err != nil {
			return err
		}
		for _, sum := range sums {
			day := -1
			if g == ledger.Daily {
				day = int(until.Sub(sum.Period)/oneDay) - 1
			}
			user, project, team, category := sum.Key[0], sum.Key[1], sum.Key[2], sum.Key[3]
			for _, k := range []spenderKey{
				{alert.KindPerson, user}, {alert.KindProject, project}, {alert.KindTeam, team},
			} {
				if k.name == "" {
					continue // costs without an owner have no usual day
				}
				if err := add(k, team, day, sum.Sums.Amount); err != nil {
					return err
				}
			}
			if inventory.Category(category) == inventory.CategoryStorage {
				if err := add(spenderKey{alert.KindStorage, team}, team, day, sum.Sums.Amount); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := read(first, until, ledger.Daily); err != nil {
		return nil, nil, err
	}
	if err := read(last, through, ledger.Whole); err != nil {
		return nil, nil, err
	}
	for k, x := range all {
		x.Owner = x.owner()
		if k.kind == alert.KindStorage {
			storage = append(storage, x.Series)
		} else {
			who = append(who, x.Series)
		}
	}
	order := func(a, b alert.Series) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(who, order)
	slices.SortFunc(storage, order)
	return who, storage, nil
}

// owner returns who is notified: for a person or project also the team that paid most.
func (x *spender) owner() inventory.Owner {
	team := ""
	for t, spent := range x.teams {
		if t != "" && (team == "" || spent > x.teams[team] || spent == x.teams[team] && t < team) {
			team = t
		}
	}
	o := inventory.Owner{Team: team}
	switch x.Kind {
	case alert.KindPerson:
		o.User = x.Name
	case alert.KindProject:
		o.Project = x.Name
	}
	return o
}
