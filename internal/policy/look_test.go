package policy_test

import (
	"context"

	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
)

func init() {
	book, err := price.Embedded()
	if err != nil {
		panic(err)
	}
	policy.TestCaseFacts = func(set *policy.Set) policy.FactsFunc {
		return round.CaseFacts(context.Background(), round.Setting{Prices: book}, set)
	}
}
