package finding

import (
	"cmp"
	"slices"

	"github.com/curfew-dev/curfew/internal/money"
)

// rank sorts findings for people: by known dollars a month, then by upper bound, then unmeasured
// ones; ties by step and ID.
func rank(drafts []*Draft) []Finding {
	slices.SortFunc(drafts, func(a, b *Draft) int {
		return cmp.Or(
			cmp.Compare(b.dollars(), a.dollars()),
			cmp.Compare(b.Savings.UpperBound, a.Savings.UpperBound),
			cmp.Compare(b.Cost, a.Cost),
			cmp.Compare(a.Step, b.Step),
			cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.ID, b.ID),
		)
	})
	out := make([]Finding, len(drafts))
	for i, d := range drafts {
		out[i] = d.Finding
	}
	return out
}

func (d *Draft) dollars() money.Amount {
	if d.Savings.Known {
		return max(d.Savings.Amount, d.Waste)
	}
	return d.Waste
}
