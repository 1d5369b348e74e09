package action

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// patience is how long one question to a provider or one message to people may take,
	// and readFor how long everything about due items may take to be read again.
	patience = time.Minute
	readFor  = 2 * time.Minute
	// freezeFor is how long a freeze may take before a person is told to do it by hand.
	freezeFor = 10 * time.Second
	// justNow is how old a reading may be for the call that follows it: so long, that the
	// first call after a verification does not read everything twice.
	justNow = 5 * time.Second
)

// within does something that may take so long, and says for what it waited in vain.
func within(ctx context.Context, limit time.Duration, what string, do func(context.Context) error) error {
	bounded, stop := context.WithTimeout(ctx, limit)
	defer stop()
	err := do(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: no answer within %s: %w", what, limit, err)
	}
	return err
}

// bounded is a cloud whose every answer has a deadline.
type bounded struct{ Cloud }

func (b bounded) do(ctx context.Context, t Task) (receipt string, err error) {
	err = within(ctx, patience, "wait for the provider to "+t.Step.Name+" "+t.Ref.ID, func(ctx context.Context) (err error) {
		receipt, err = b.Do(ctx, t)
		return err
	})
	return receipt, err
}

func (b bounded) look(ctx context.Context, t Task) (p Progress, receipt string, err error) {
	err = within(ctx, patience, "ask the provider about "+t.Ref.ID, func(ctx context.Context) (err error) {
		p, receipt, err = b.Look(ctx, t)
		return err
	})
	return p, receipt, err
}
