package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
)

// owing returns a notice of the account that is due at noon plus some minutes.
func owing(id string, minutes int) action.Notice {
	n := filled[action.Notice]()
	n.ID, n.Account, n.ClosedAt, n.AcceptedBy, n.Error, n.Attempts = id, account, time.Time{}, "", "", 0
	n.CreatedAt, n.DueAt = noon.Add(time.Duration(minutes)*time.Minute), noon.Add(time.Duration(minutes)*time.Minute)
	return n
}

var notices = []test{
	{"every field comes back, with the item and its entries", func(t *testing.T, b *Backend) {
		n := owing("a", 0)
		saved := must(b.Actions.SaveOwing(t.Context(), machine("i-1"), []action.Notice{n},
			entry("confirmed", machine("i-1"))))(t)
		other := b.Reopen(t).Actions
		if diff := cmp.Diff([]action.Notice{n}, must(other.Owed(t.Context()))(t)); diff != "" {
			t.Errorf("owed (-want +got):\n%s", diff)
		}
		if read := must(other.Item(t.Context(), saved.ID))(t); read.Version != 1 {
			t.Errorf("the item is %+v", read)
		}
		n.Attempts, n.DueAt = 1, noon.Add(time.Hour)
		claimed := must(other.ClaimNotice(t.Context(), account, noon, noon.Add(time.Hour)))(t)
		if claimed == nil || !cmp.Equal(n, *claimed) {
			t.Fatalf("claimed (-want +got):\n%s", cmp.Diff(&n, claimed))
		}
	}},
	{"is not written where its item is not", func(t *testing.T, b *Backend) {
		it := must(b.Actions.Save(t.Context(), machine("i-1")))(t)
		it.Version--
		if _, err := b.Actions.SaveOwing(t.Context(), it, []action.Notice{owing("a", 0)}); !errors.Is(err,
			action.ErrConflict) {
			t.Errorf("saved: %v", err)
		}
		if owed := must(b.Actions.Owed(t.Context()))(t); len(owed) != 0 {
			t.Errorf("owed: %+v", owed)
		}
	}},
	{"the one that is due the longest comes first, others wait", func(t *testing.T, b *Backend) {
		elsewhere := owing("z", -5)
		elsewhere.Account = "aws/other"
		must(b.Actions.SaveOwing(t.Context(), machine("i-1"), []action.Notice{
			owing("b", 1), owing("c", 3), owing("a", 2), elsewhere,
		}))(t)
		var got []string
		for {
			n := must(b.Actions.ClaimNotice(t.Context(), account, noon.Add(2*time.Minute), noon.Add(time.Hour)))(t)
			if n == nil {
				break
			}
			got = append(got, n.ID)
		}
		if want := []string{"b", "a"}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
	}},
	{"a claim ends, and the process that had it writes nothing any more", func(t *testing.T, b *Backend) {
		must(b.Actions.SaveOwing(t.Context(), machine("i-1"), []action.Notice{owing("a", 0)}))(t)
		first := must(b.Actions.ClaimNotice(t.Context(), account, noon, noon.Add(time.Minute)))(t)
		second := must(b.Reopen(t).Actions.ClaimNotice(t.Context(), account, noon.Add(time.Minute),
			noon.Add(time.Hour)))(t)
		if second == nil || second.Attempts != 2 {
			t.Fatalf("the second claim is %+v", second)
		}
		first.ClosedAt, first.AcceptedBy = noon.Add(time.Minute), "slack:ana"
		if err := b.Actions.PutNotice(t.Context(), *first, entry("notified", machine("i-1"))); !errors.Is(err,
			action.ErrConflict) {
			t.Errorf("the first claim writes: %v", err)
		}
		second.ClosedAt, second.AcceptedBy = noon.Add(2*time.Minute), "slack:ana"
		no(t, b.Actions.PutNotice(t.Context(), *second, entry("notified", machine("i-1"))))
		if owed := must(b.Actions.Owed(t.Context()))(t); len(owed) != 0 {
			t.Errorf("owed: %+v", owed)
		}
		if n := must(b.Actions.ClaimNotice(t.Context(), account, noon.Add(48*time.Hour), noon.Add(49*time.Hour)))(
			t); n != nil {
			t.Errorf("claimed again: %+v", n)
		}
		var entries []action.Entry
		no(t, b.Actions.Entries(t.Context(), action.Query{What: "notified"}, func(e action.Entry) error {
			entries = append(entries, e)
			return nil
		}))
		if len(entries) != 1 {
			t.Errorf("recorded %+v", entries)
		}
	}},
	{"a failed delivery is due again at its time", func(t *testing.T, b *Backend) {
		must(b.Actions.SaveOwing(t.Context(), machine("i-1"), []action.Notice{owing("a", 0)}))(t)
		n := must(b.Actions.ClaimNotice(t.Context(), account, noon, noon.Add(time.Minute)))(t)
		n.Error, n.DueAt = "refused", noon.Add(10*time.Minute)
		no(t, b.Actions.PutNotice(t.Context(), *n))
		if early := must(b.Actions.ClaimNotice(t.Context(), account, noon.Add(9*time.Minute), noon.Add(time.Hour)))(
			t); early != nil {
			t.Errorf("claimed before its time: %+v", early)
		}
		again := must(b.Actions.ClaimNotice(t.Context(), account, noon.Add(10*time.Minute), noon.Add(time.Hour)))(t)
		if again == nil || again.Error != "refused" || again.Attempts != 2 {
			t.Errorf("claimed again: %+v", again)
		}
	}},
	{"of many connections one has each", func(t *testing.T, b *Backend) {
		const all, workers = 20, 4
		var owed []action.Notice
		for i := range all {
			owed = append(owed, owing(fmt.Sprintf("n-%02d", i), 0))
		}
		must(b.Actions.SaveOwing(t.Context(), machine("i-1"), owed))(t)
		var mu sync.Mutex
		claims := map[string]int{}
		var wait sync.WaitGroup
		for range workers {
			store := b.Reopen(t).Actions
			wait.Go(func() {
				for idle := 0; idle < 3; {
					n, err := store.ClaimNotice(t.Context(), account, noon, noon.Add(time.Hour))
					if err != nil {
						t.Error(err)
						return
					}
					if n == nil {
						idle++ // on PostgreSQL another connection may have claimed the first one
						continue
					}
					mu.Lock()
					claims[n.ID]++
					mu.Unlock()
				}
			})
		}
		wait.Wait()
		for id, n := range claims {
			if n != 1 {
				t.Errorf("%s was claimed %d times", id, n)
			}
		}
		if len(claims) != all {
			t.Errorf("%d of %d were claimed", len(claims), all)
		}
	}},
}
