package storetest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
)

var rounds = []test{
	{"each returns the clocks of the one before", func(t *testing.T, b *Backend) {
		var before *action.Clock
		number := int64(0)
		for i := range 3 {
			c := action.Clock{
				Wall: noon.Add(time.Duration(i) * time.Minute), Boot: "boot", Uptime: time.Duration(i) * time.Second,
			}
			round, last, err := b.Actions.BeginRound(t.Context(), account, c)
			no(t, err)
			if round <= number {
				t.Errorf("round %d follows round %d", round, number)
			}
			if diff := cmp.Diff(before, last); diff != "" {
				t.Errorf("round %d: the clocks before (-want +got):\n%s", round, diff)
			}
			number, before = round, &c
		}
	}},
	{"accounts have their own", func(t *testing.T, b *Backend) {
		_, _, err := b.Actions.BeginRound(t.Context(), account, action.Clock{Wall: noon})
		no(t, err)
		if _, last, err := b.Actions.BeginRound(t.Context(), "aws/other", action.Clock{Wall: noon}); err != nil ||
			last != nil {
			t.Errorf("the first round of another account: clocks %v, error %v; want none", last, err)
		}
	}},
	{"admitting something is no round", func(t *testing.T, b *Backend) {
		_, err := b.Actions.Admit(t.Context(), batch("a"))
		no(t, err)
		if _, last, err := b.Actions.BeginRound(t.Context(), account, action.Clock{Wall: noon}); err != nil ||
			last != nil {
			t.Errorf("the first round: clocks %v, error %v; want none", last, err)
		}
	}},
	{"they outlive the process", outliving(func(t *testing.T, b *Backend) {
		c := action.Clock{Wall: noon, Boot: "boot", Uptime: time.Hour}
		first, _, err := b.Actions.BeginRound(t.Context(), account, c)
		no(t, err)
		second, last, err := b.Reopen(t).Actions.BeginRound(t.Context(), account, action.Clock{Wall: noon})
		no(t, err)
		if diff := cmp.Diff(&c, last); second <= first || diff != "" {
			t.Errorf("round %d follows %d; clocks before (-want +got):\n%s", second, first, diff)
		}
	})},
	{"no two at once have one number", func(t *testing.T, b *Backend) {
		const workers, each = 6, 8
		numbers := make(chan int64, workers*each)
		var wg sync.WaitGroup
		for range workers {
			s := b.Reopen(t).Actions
			wg.Go(func() {
				for range each {
					round, _, err := s.BeginRound(t.Context(), account, action.Clock{Wall: noon})
					if err != nil {
						t.Error(err)
						return
					}
					numbers <- round
				}
			})
		}
		wg.Wait()
		close(numbers)
		got := slices.Sorted(func(yield func(int64) bool) {
			for n := range numbers {
				if !yield(n) {
					return
				}
			}
		})
		if all := len(got); len(slices.Compact(got)) != all || all != workers*each {
			t.Errorf("%d rounds have the numbers %v", all, got)
		}
	}},
}
