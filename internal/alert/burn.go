package alert

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

const day = 24 * time.Hour

// Burn is a budget with what was charged to it in the last hour, day and week of the ledger. Windows
// that began before the budget's period hold its spend all the same.
type Burn struct {
	budget.Status
	Hour, Day, Week money.Amount
}

// burnWindow is a time over which the rate of spending is measured.
type burnWindow struct {
	name  string
	hours int64
	spent func(Burn) money.Amount
}

var burnWindows = []burnWindow{
	{"hour", 1, func(b Burn) money.Amount { return b.Hour }},
	{"day", 24, func(b Burn) money.Amount { return b.Day }},
	{"week", 7 * 24, func(b Burn) money.Amount { return b.Week }},
}

// burning proposes to notify of budgets that are spent, or that end before their period does at the
// rates of two windows in a row. One window alone does not count: an hour's burst passes, and a week
// goes on after what was expensive has ended.
func (f Facts) burning() (out []action.Proposal) {
	for _, b := range f.Budgets {
		why := b.why(f.Now)
		if why == "" {
			continue
		}
		m := b.Budget.Match
		s := subject{
			kind: KindBudget, id: b.Budget.ID, notify: "team", hourly: inventory.Known(b.Hourly),
			owner: inventory.Owner{Team: m.Team, Project: m.Project, User: m.User, Environment: m.Environment},
		}
		if m.User != "" {
			s.notify = "owner"
		}
		out = append(out, f.propose(BudgetBurn, s, inventory.Known(b.Used), why))
	}
	return out
}

// why returns why people have to know of a budget; empty if they do not.
func (b Burn) why(now time.Time) string {
	ends := plain.Time(b.Window.To)
	if b.Left <= 0 {
		return fmt.Sprintf("budget %s of %s is spent, and its period ends at %s", b.Budget.ID,
			b.Budget.Amount.Dollars(), ends)
	}
	remaining := b.Window.To.Sub(now)
	var short []int
	for i, w := range burnWindows {
		if lasts, spends := w.lasts(b); spends && lasts < remaining {
			short = append(short, i)
		}
	}
	for i := range len(short) - 1 {
		if short[i+1] != short[i]+1 {
			continue
		}
		w := burnWindows[short[i+1]]
		lasts, _ := w.lasts(b)
		return fmt.Sprintf("at the rate of the last %s, budget %s is spent in %s, and its period ends in %s: "+
			"%s of %s are left, and the last hour took %s, the last day %s, the last week %s", w.name, b.Budget.ID,
			plain.Duration(lasts.Truncate(time.Minute)), plain.Duration(remaining.Truncate(time.Minute)),
			b.Left.Dollars(), b.Budget.Amount.Dollars(), b.Hour.Dollars(), b.Day.Dollars(), b.Week.Dollars())
	}
	return ""
}

// lasts returns for how long the rest of a budget lasts at the rate of a window; false if nothing was
// spent in it.
func (w burnWindow) lasts(b Burn) (time.Duration, bool) {
	spent := w.spent(b)
	if spent <= 0 {
		return 0, false
	}
	hours := money.Ratio(b.Left, spent) * float64(w.hours)
	if hours > float64(10*365*24) {
		return 10 * 365 * day, true
	}
	return time.Duration(hours * float64(time.Hour)), true
}
