package action_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.RunInMemory(t, func(*testing.T) action.Store { return action.NewMemory() })
}

// TestMemoryDiscardsClosedItems: what a replay does not read is not kept; all that decides is.
func TestMemoryDiscardsClosedItems(t *testing.T) {
	w := newWorld()
	m := action.NewMemory()
	m.DiscardClosed = true
	w.connect(m, w.cloud, w.people)
	w.wants.Limits.PerHour = 2
	w.idle("i-1", "i-2", "i-3")
	w.round(t)
	items, err := m.Items(t.Context(), w.ladder.Account, action.ItemQuery{})
	if err != nil || len(items) != 3 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	w.cloud.Change("i-3", func(r *actiontest.Resource) { r.Protected = true })
	r := w.rounds(t, 15*time.Minute, time.Minute)
	if got := sorted(w.cloud.Carried("terminate")); !slices.Equal(got, []string{"i-1", "i-2"}) {
		t.Fatalf("terminated %v: %+v", got, r.Lines)
	}
	for _, it := range items {
		if _, err := m.Item(t.Context(), it.ID); !errors.Is(err, action.ErrNotFound) {
			t.Errorf("item %s is kept: %v", it.ID, err)
		}
	}
	no := func(e action.Entry) error { t.Errorf("recorded %+v", e); return nil }
	if err := m.Entries(t.Context(), action.Query{}, no); err != nil {
		t.Error(err)
	}
	// The caps still count what was forgotten.
	w.idle("i-4")
	w.round(t)
	want(t, w.rounds(t, 17*time.Minute, time.Minute), "i-4", action.ResultDeferred)
	if err := m.Freeze(t.Context(), action.Freeze{By: "ana"}); err == nil {
		t.Error("it takes a freeze without a time")
	}
}

// TestRejectedWriteChangesNothing: what the audit log does not take does not happen.
func TestRejectedWriteChangesNothing(t *testing.T) {
	m := action.NewMemory()
	if err := m.PutKeep(t.Context(), action.Keep{
		Ref: inventory.Ref{ID: "i-1"}, Until: start.Add(time.Hour), By: "ana",
	}); err == nil {
		t.Error("it takes a keep without a time")
	}
	if keeps, err := m.Keeps(t.Context(), start); err != nil || len(keeps) > 0 {
		t.Errorf("kept %+v, %v", keeps, err)
	}
}

// TestOverflowAdmitsNothing checks that after a clock was set back, two hours may count at once,
// and their sum must fit.
func TestOverflowAdmitsNothing(t *testing.T) {
	m := action.NewMemory()
	admit := func(id string, at time.Time, hourly money.Amount) error {
		it := action.Item{
			ID: id, Ref: inventory.Ref{ID: id}, Account: "a", Source: "p", Phase: action.Acting,
			Steps: []action.Step{{Key: id, IntentAt: at}},
		}
		_, err := m.Admit(t.Context(), action.Batch{Account: "a", Source: "p", Now: at, Selected: 100,
			Limits:     policy.Limits{PerHour: 100, Share: 1, DollarsPerHour: math.MaxInt64},
			Admissions: []action.Admission{{Item: it, Hourly: hourly}}})
		return err
	}
	if err := errors.Join(admit("1", start, math.MaxInt64), admit("2", start.Add(2*time.Hour), math.MaxInt64)); err !=
		nil {
		t.Fatal(err)
	}
	if err := admit("3", start.Add(30*time.Minute), 0); !errors.Is(err, money.ErrOverflow) {
		t.Errorf("got %v, want that the sum does not fit", err)
	}
}
