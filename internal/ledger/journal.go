package ledger

import (
	"context"
	"fmt"
)

// Journal charges for the observations of rounds in a store.
type Journal struct{ Store Poster }

// Post records the observations of an account and charges for the time before them.
func (j Journal) Post(ctx context.Context, s Seen) error {
	r, observations := Observe(s)
	if _, err := Post(ctx, j.Store, r, observations); err != nil {
		return fmt.Errorf("charge %s: %w", s.Account, err)
	}
	return nil
}
