package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// openedBooks are the ledger of the state, which is opened when the first charges come: an
// audit is shown also where there is none.
type openedBooks struct {
	open  func(ctx context.Context) (*store.Store, error)
	state *store.Store
}

// Post implements round.Books.
func (b *openedBooks) Post(ctx context.Context, seen ledger.Seen) (err error) {
	if b.state == nil {
		if b.state, err = b.open(ctx); err != nil {
			b.state = nil
			return err
		}
	}
	return ledger.Journal{Store: b.state.Ledger()}.Post(ctx, seen)
}

func (b *openedBooks) close() {
	if b.state != nil {
		b.state.Close()
	}
}

// unposted says which accounts could not be charged, and what holds all the same.
func unposted(r *round.Result, holds string) error {
	var errs []error
	for _, account := range slices.Sorted(maps.Keys(r.Unposted)) {
		errs = append(errs, fmt.Errorf("%s: %w", account, r.Unposted[account]))
	}
	return &failure{exit: ExitPartial, code: "not_recorded", err: fmt.Errorf("record the round in the ledger: %w", errors.Join(errs...)),
		hint: holds + "; the next round charges for the time where the provider tells since when a resource runs"}
}
