package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/plain"
)

// DefaultKeepMax is the longest keep; it can be renewed.
const DefaultKeepMax = 30 * 24 * time.Hour

// Keep exempts a resource immediately until k.Until; the store records it. k.At is set to now, and
// an empty k.By to the ladder's actor. A keep needs a reason, and ends at most KeepMax from now.
func (l *Ladder) Keep(ctx context.Context, k Keep) error {
	own := l.Clock().Wall
	clock, _, err := SharedClock(ctx, l.Store, l.Clock)
	if clock == nil {
		return fmt.Errorf("keep %s: %w", k.Ref.ID, err)
	}
	// It lasts as long as requested, whatever this machine's clock shows.
	k.At = clock().Wall
	k.Until = k.At.Add(k.Until.Sub(own))
	k.By = cmp.Or(k.By, l.Actor)
	longest := l.KeepMax
	if longest <= 0 {
		longest = DefaultKeepMax
	}
	switch held := k.Until.Sub(k.At); {
	case strings.TrimSpace(k.Reason) == "":
		return fmt.Errorf("keep %s: give a reason, so that others know why it runs", k.Ref.ID)
	case held <= 0:
		return fmt.Errorf("keep %s: %s is not in the future", k.Ref.ID, plain.Time(k.Until))
	case held > longest:
		return fmt.Errorf("keep %s: at most %s is allowed at a time", k.Ref.ID, longest)
	}
	k.Reason = Redact(k.Reason)
	if err := l.Store.PutKeep(ctx, k); err != nil {
		return fmt.Errorf("keep %s: %w", k.Ref.ID, err)
	}
	return nil
}

// FreezeByHand is the advice for stopping all actions if the state is unreachable.
const FreezeByHand = "to freeze by hand, end every `curfew serve`, `curfew enforce` and `curfew fix`, or take the " +
	"permissions that " +
	"`curfew enforce --print-iam-policy` lists from their role"

// Freeze stops all actions of every process immediately; the store records it. It needs a reason.
func (l *Ladder) Freeze(ctx context.Context, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return errors.New("freeze: give a reason, so that others know why nothing happens")
	}
	err := intent.Within(ctx, freezeTimeout, "write the freeze", func(ctx context.Context) error {
		return l.Store.Freeze(ctx, Freeze{At: l.Clock().Wall, By: l.Actor, Reason: Redact(reason)})
	})
	if err != nil {
		return fmt.Errorf("freeze: %w; %s", err, FreezeByHand)
	}
	return nil
}

// Unfreeze allows actions again; the store records it. It needs a reason.
func (l *Ladder) Unfreeze(ctx context.Context, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return errors.New("unfreeze: give a reason, so that others know why it is safe again")
	}
	if err := l.Store.Unfreeze(ctx, l.Actor, Redact(reason), l.Clock().Wall); err != nil {
		return fmt.Errorf("unfreeze: %w", err)
	}
	return nil
}
