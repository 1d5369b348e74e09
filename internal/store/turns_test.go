package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// TestTurnsAreOrdered checks that turns are given in order of arrival, urgent ones first, and that
// giving up loses none.
func TestTurnsAreOrdered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q turns
		if err := q.take(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var order []string
		wait := func(ctx context.Context, name string, hurry bool) {
			wg.Go(func() {
				if err := q.take(ctx, hurry); err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				q.give()
			})
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		wait(t.Context(), "a", false)
		wait(gone, "gone", false)
		wait(t.Context(), "b", false)
		wait(gone, "gone in a hurry", true)
		wait(t.Context(), "lease", true)
		wait(t.Context(), "another lease", true)
		leave()
		synctest.Wait()
		q.give()
		wg.Wait()
		if want := []string{"lease", "another lease", "a", "b"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
		if err := q.take(t.Context(), false); err != nil || len(q.hurried)+len(q.others) > 0 {
			t.Errorf("afterwards: %v, %+v", err, &q)
		}
	})
}

// TestTurnSurvivesCancel checks that concurrent cancellations leave the turn free, and that it
// never has two holders.
func TestTurnSurvivesCancel(t *testing.T) {
	var q turns
	var wg sync.WaitGroup
	has := 0
	for i := range 2000 {
		wg.Go(func() {
			ctx, end := context.WithCancel(t.Context())
			if i%3 == 0 {
				go end()
			}
			defer end()
			if q.take(ctx, i%5 == 0) != nil {
				return
			}
			if has++; has != 1 {
				t.Error("two have it")
			}
			has--
			q.give()
		})
	}
	wg.Wait()
	if q.busy || len(q.hurried)+len(q.others) > 0 {
		t.Errorf("it is left %+v", &q)
	}
}
