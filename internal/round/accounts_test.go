package round

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
)

// TestFailingLadderDoesNotStopOtherAccounts checks that each account is acted on by itself, and
// what failed is told of all of them.
func TestFailingLadderDoesNotStopOtherAccounts(t *testing.T) {
	errRead := errors.New("the disk is full")
	acts := func(ctx context.Context, cancel func(account string)) (*Result, []string, error) {
		now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
		var began []string
		e := New(Setting{Clock: func() time.Time { return now }, Ladder: func(account string) *action.Ladder {
			began = append(began, account)
			store := action.Store(action.NewMemory())
			if account != "aws/2" {
				store = failingRoundStore{store, errRead}
			}
			cancel(account)
			return &action.Ladder{
				Store:    store,
				Cloud:    actiontest.NewCloud(func() time.Time { return now }),
				Notifier: actiontest.NewPeople(),
				Account:  account,
				Enforce:  true,
				Clock:    func() action.Clock { return action.Clock{Wall: now} },
			}
		}})
		r := &Result{Observation: Observation{Cloud: "aws", Accounts: []string{"1", "2", "3"}}}
		err := e.act(ctx, r, nil)
		return r, began, err
	}
	r, began, err := acts(t.Context(), func(string) {})
	if !errors.Is(err, errRead) || !strings.Contains(err.Error(), "act on 1") ||
		!strings.Contains(err.Error(), "act on 3") ||
		strings.Contains(err.Error(), "act on 2") {
		t.Errorf("got %v", err)
	}
	if len(began) != 3 || len(r.Reports) != 3 || r.Reports[1].Round != 1 {
		t.Errorf("of %v the reports are %+v", began, r.Reports)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if _, began, err := acts(ctx, func(string) { stop() }); len(began) != 1 || err == nil {
		t.Errorf("after the end of the context: %v began, %v", began, err)
	}
}

// failingRoundStore is a store that begins no round.
type failingRoundStore struct {
	action.Store
	err error
}

func (u failingRoundStore) BeginRound(context.Context, string, action.Clock) (int64, *action.Clock, error) {
	return 0, nil, u.err
}
