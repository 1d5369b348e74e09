package round

import (
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Budgets returns what adds to the facts of a resource where the budgets that its owner
// spends from stand. What no budget covers is unknown, never in order.
func Budgets(all []budget.Status) func(f *policy.Facts) {
	return func(f *policy.Facts) {
		f.Budget = nil
		if b, covered, err := budget.FactsOf(all, f.Resource.Owner, f.Resource.Purpose); err == nil && covered {
			f.Budget = &policy.Budget{State: string(b.State), UsedShare: b.UsedShare, ForecastShare: b.ForecastShare}
		}
	}
}
