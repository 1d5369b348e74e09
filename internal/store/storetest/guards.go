package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
)

var freezes = []test{
	{"holds for every connection and account until unfrozen", func(t *testing.T, b *Backend) {
		other := b.Reopen(t).Actions
		if got := must(other.Frozen(t.Context()))(t); got != nil {
			t.Fatalf("frozen from the start: %+v", got)
		}
		f := action.Freeze{At: noon, By: "ana", Reason: "incident 42"}
		no(t, b.Actions.Freeze(t.Context(), f))
		for name, s := range map[string]action.Store{"open before": other, "opened after": b.Reopen(t).Actions} {
			if diff := cmp.Diff(&f, must(s.Frozen(t.Context()))(t)); diff != "" {
				t.Errorf("a connection %s (-want +got):\n%s", name, diff)
			}
			for _, where := range []string{account, "sim/other"} {
				if _, err := s.Admit(t.Context(), action.Batch{
					Account: where, Source: source, Now: noon,
				}); !errors.Is(err,
					action.ErrFrozen) {
					t.Errorf("a connection %s admits in %s: %v", name, where, err)
				}
			}
		}
		no(t, other.Unfreeze(t.Context(), "bo", "over", noon))
		if got := must(b.Actions.Frozen(t.Context()))(t); got != nil {
			t.Errorf("still frozen: %+v", got)
		}
		must(b.Actions.Admit(t.Context(), batch("a")))(t)
	}},
	{"a second one replaces the first", func(t *testing.T, b *Backend) {
		no(t, b.Actions.Freeze(t.Context(), action.Freeze{At: noon, By: "ana", Reason: "one"}))
		second := action.Freeze{At: noon.Add(time.Minute), By: "bo", Reason: "two"}
		no(t, b.Actions.Freeze(t.Context(), second))
		if diff := cmp.Diff(&second, must(b.Actions.Frozen(t.Context()))(t)); diff != "" {
			t.Errorf("the freeze (-want +got):\n%s", diff)
		}
	}},
	{"one without a time is refused", func(t *testing.T, b *Backend) {
		if err := b.Actions.Freeze(t.Context(), action.Freeze{By: "ana"}); err == nil {
			t.Errorf("it was taken, and reads as %+v", must(b.Actions.Frozen(t.Context()))(t))
		}
	}},
	{"is recorded", func(t *testing.T, b *Backend) {
		no(t, b.Actions.Freeze(t.Context(), action.Freeze{At: noon, By: "ana", Reason: "incident"}))
		no(t, b.Actions.Unfreeze(t.Context(), "bo", "over", noon.Add(time.Hour)))
		want := []action.Entry{
			{ID: 1, At: noon, Actor: "ana", What: "freeze", Because: "incident"},
			{ID: 2, At: noon.Add(time.Hour), Actor: "bo", What: "unfreeze", Because: "over"},
		}
		if diff := cmp.Diff(want, lines(t, b, action.Query{})); diff != "" {
			t.Errorf("the audit log (-want +got):\n%s", diff)
		}
	}},
	{"once it is told to hold nothing is admitted", func(t *testing.T, b *Backend) {
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for worker := range 4 {
			s := b.Reopen(t).Actions
			wg.Go(func() {
				for i, end := 0, time.Now().Add(time.Minute); time.Now().Before(end); i++ {
					if _, err := s.Admit(t.Context(),
						batch(fmt.Sprintf("%d-%d", worker, i))); errors.Is(err, action.ErrFrozen) {
						return
					} else if err != nil {
						t.Error(err)
						return
					}
					admitted.Add(1)
				}
				t.Error("no freeze stopped a connection")
			})
		}
		for admitted.Load() < 8 && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		freezer := b.Reopen(t).Actions
		no(t, freezer.Freeze(t.Context(), action.Freeze{At: noon, By: "ana", Reason: "now"}))
		then := len(must(freezer.Items(t.Context(), account, action.ItemQuery{}))(t))
		wg.Wait()
		if now := len(must(freezer.Items(t.Context(), account, action.ItemQuery{}))(t)); now != then {
			t.Errorf("%d were admitted after the freeze", now-then)
		}
	}},
}

var keeps = []test{
	{"every field comes back", func(t *testing.T, b *Backend) {
		k := filled[action.Keep]()
		no(t, b.Actions.PutKeep(t.Context(), k))
		if diff := cmp.Diff([]action.Keep{k}, must(b.Reopen(t).Actions.Keeps(t.Context(), noon))(t)); diff != "" {
			t.Errorf("the keeps (-want +got):\n%s", diff)
		}
	}},
	{"hold up to their end", func(t *testing.T, b *Backend) {
		k := action.Keep{Ref: machine("a").Ref, Until: noon, By: "ana", At: noon.Add(-time.Hour)}
		no(t, b.Actions.PutKeep(t.Context(), k))
		for _, tc := range []struct {
			name string
			at   time.Time
			want int
		}{
			{"before the end", noon.Add(-time.Microsecond), 1},
			{"at the end", noon, 0},
			{"after the end", noon.Add(time.Hour), 0},
			{"on a clock behind the one that gave it", noon.Add(-2 * time.Hour), 1},
		} {
			if got := must(b.Actions.Keeps(t.Context(), tc.at))(t); len(got) != tc.want {
				t.Errorf("%s: %d keeps, want %d", tc.name, len(got), tc.want)
			}
		}
	}},
	{"hold as long as a tag that cannot be read", func(t *testing.T, b *Backend) {
		no(t, b.Actions.PutKeep(t.Context(), action.Keep{
			Ref: machine("a").Ref, Until: inventory.KeepForever, At: noon,
		}))
		if got := must(b.Actions.Keeps(t.Context(), noon.AddDate(5000, 0, 0)))(t); len(got) != 1 ||
			!got[0].Until.Equal(inventory.KeepForever) {
			t.Errorf("got %+v", got)
		}
	}},
	{"are one for each resource", func(t *testing.T, b *Backend) {
		first := machine("a").Ref
		others := []inventory.Ref{first, first, first, first, first}
		others[0].Cloud, others[1].Account, others[2].Region, others[3].Kind, others[4].ID = "sim", "2", "us-west-2",
			"volume", "i-b"
		for _, ref := range append(others, first) {
			no(t, b.Actions.PutKeep(t.Context(), action.Keep{
				Ref: ref, Until: noon.Add(time.Hour), Reason: "old", At: noon,
			}))
		}
		no(t, b.Actions.PutKeep(t.Context(), action.Keep{
			Ref: first, Until: noon.Add(time.Minute), Reason: "new", By: "bo", At: noon,
		}))
		got := must(b.Actions.Keeps(t.Context(), noon))(t)
		if len(got) != len(others)+1 {
			t.Errorf("%d keeps, want %d", len(got), len(others)+1)
		}
		for _, k := range got {
			if replaced := k.Ref == first; replaced != (k.Reason == "new") {
				t.Errorf("the keep of %s says %q", k.Ref, k.Reason)
			}
		}
		no(t, b.Actions.PutKeep(t.Context(), action.Keep{Ref: first, Until: noon, At: noon}))
		if got := must(b.Actions.Keeps(t.Context(), noon))(t); len(got) != len(others) {
			t.Errorf("%d keeps after one ended, want %d", len(got), len(others))
		}
	}},
	{"are recorded", func(t *testing.T, b *Backend) {
		no(t, b.Actions.PutKeep(t.Context(), action.Keep{
			Ref: machine("a").Ref, Until: noon.Add(24 * time.Hour), Reason: "demo", By: "ana", At: noon,
		}))
		want := []action.Entry{{
			ID: 1, At: noon, Account: account, Actor: "ana", What: "keep", Resource: machine("a").Ref.String(),
			Because: "demo", Outcome: "until 2026-03-15T12:00:00Z",
		}}
		if diff := cmp.Diff(want, lines(t, b, action.Query{})); diff != "" {
			t.Errorf("the audit log (-want +got):\n%s", diff)
		}
	}},
}
