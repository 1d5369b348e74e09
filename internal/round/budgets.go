package round

import (
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/policy"
)

// BudgetFacts returns a function that adds the state of an owner's budgets to a resource's facts.
// Without a budget the state is unknown.
func BudgetFacts(all []budget.Status) func(f *policy.Facts) {
	return func(f *policy.Facts) {
		f.Budget = nil
		if b, covered, err := budget.FactsOf(all, f.Resource.Owner, f.Resource.Purpose); err == nil && covered {
			f.Budget = &policy.Budget{State: string(b.State), UsedShare: b.UsedShare, ForecastShare: b.ForecastShare}
		}
	}
}
