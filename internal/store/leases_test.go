package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
)

// eachDatabase runs a test on every database.
func eachDatabase(t *testing.T, test func(t *testing.T, o store.Options)) {
	t.Helper()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) { test(t, d.open(t)) })
	}
}

// TestLeaseHasOneHolder checks that one of many contenders has the lease at a time, and that each
// holder's fence is higher than all earlier ones.
func TestLeaseHasOneHolder(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		type taken struct {
			lease store.Lease
			held  bool
			err   error
		}
		results := make(chan taken)
		for i := range 6 {
			go func() {
				lease, held, err := s.Leases().Take(t.Context(), "aws", fmt.Sprintf("replica-%d", i), time.Minute)
				results <- taken{lease, held, err}
			}()
		}
		var first store.Lease
		for range 6 {
			r := <-results
			if r.err != nil {
				t.Fatal(r.err)
			}
			if r.held && first.Fence != 0 {
				t.Fatalf("%+v and %+v", first, r.lease)
			}
			if r.held {
				first = r.lease
			}
		}
		if err := s.Leases().Holds(t.Context(), first); err != nil {
			t.Errorf("the holder: %v", err)
		}
		renewed, err := s.Leases().Renew(t.Context(), first, time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		if err := s.Leases().Holds(t.Context(), renewed); !errors.Is(err, store.ErrLeaseLost) {
			t.Errorf("a lease that expired: %v", err)
		}
		second, held, err := s.Leases().Take(t.Context(), "aws", "another", time.Minute)
		if err != nil || !held || second.Fence <= first.Fence {
			t.Fatalf("%+v, %v, %v", second, held, err)
		}
		if _, err := s.Leases().Renew(t.Context(), renewed, time.Minute); !errors.Is(err, store.ErrLeaseLost) {
			t.Errorf("the one before renews it: %v", err)
		}
		if err := s.Leases().Release(t.Context(), renewed); err != nil {
			t.Error(err)
		}
		all, now, err := s.Leases().All(t.Context())
		if err != nil || len(all) != 1 || all[0].Holder != "another" || !all[0].Until.After(now) {
			t.Errorf("%+v at %s, %v", all, now, err)
		}
		if err := s.Leases().Release(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		if third, held, err := s.Leases().Take(t.Context(), "aws", "third", time.Minute); err != nil || !held ||
			third.Fence <= second.Fence {
			t.Errorf("after it was given back: %+v, %v, %v", third, held, err)
		}
		if err := s.Leases().Prune(t.Context(), "aws", now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if all, _, err := s.Leases().All(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestWriteNeedsLease checks that rounds, items and intents of a process that lost its lease are
// refused without effect.
func TestWriteNeedsLease(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		now := time.Now().UTC()
		lease, _, err := s.Leases().Take(t.Context(), "aws", "first", time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		under := s.Under(lease)
		const account = "aws/123456789012"
		if _, _, err := under.BeginRound(t.Context(), account, action.Clock{Wall: now}); err != nil {
			t.Fatal(err)
		}
		item := action.Item{
			ID: "one", Account: account, Source: "idle", Phase: action.Observed, FirstAt: now, UpdatedAt: now,
			Ref: inventory.Ref{
				Cloud: "aws", Account: "123456789012", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-1",
			}, Do: policy.Do{Verb: policy.Stop}}
		kept, err := under.Save(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		second, held, err := s.Leases().Take(t.Context(), "aws", "second", time.Minute)
		if err != nil || !held {
			t.Fatal(held, err)
		}
		intended := kept
		intended.Phase, intended.Steps = action.Acting, []action.Step{{Name: "stop", Key: "one-0", IntentAt: now}}
		batch := action.Batch{
			Account: account, Source: "idle", Round: 2, Now: now, Limits: policy.Limits{
				PerHour: 10, Share: 1, DollarsPerHour: 1000,
			}, Selected: 10,
			Admissions: []action.Admission{{Item: intended}}}
		_, _, begun := under.BeginRound(t.Context(), account, action.Clock{Wall: now})
		_, saved := under.Save(t.Context(), intended)
		_, admitted := under.Admit(t.Context(), batch)
		for what, err := range map[string]error{
			"begin a round": begun, "save an item": saved, "admit a call": admitted,
		} {
			if !errors.Is(err, store.ErrLeaseLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got, err := s.Actions().Item(t.Context(), "one"); err != nil || got.Phase != action.Observed {
			t.Errorf("the item is %s, %v", got.Phase, err)
		}
		if got, err := s.Under(second).Admit(t.Context(), batch); err != nil || got[0].Deferred != nil {
			t.Errorf("who took over: %+v, %v", got, err)
		}
	})
}

// TestLeasesRenewedTogether checks that held leases are extended, that those taken by others are
// reported as lost, and that locked ones are skipped without waiting.
func TestLeasesRenewedTogether(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		var mine []store.Lease
		for i := range 20 {
			l, held, err := s.Leases().Take(t.Context(), fmt.Sprintf("source-%02d", i), "one", time.Millisecond)
			if err != nil || !held {
				t.Fatal(held, err)
			}
			mine = append(mine, l)
		}
		time.Sleep(5 * time.Millisecond)
		other, held, err := s.Leases().Take(t.Context(), "source-03", "two", time.Minute)
		if err != nil || !held {
			t.Fatal(held, err)
		}
		never := store.Lease{Name: "never", Holder: "one", Fence: 1}
		lost, left, err := s.Leases().RenewAll(t.Context(), append(slices.Clone(mine), never), time.Minute)
		gone := append(slices.Clone(lost), left...) // a missing row may be a locked one
		if err != nil || len(lost) < 1 || lost[0].Name != "source-03" || len(gone) != 2 || gone[1].Name != "never" {
			t.Fatalf("lost %+v, left %+v, %v", lost, left, err)
		}
		for _, l := range mine {
			if err := s.Leases().Holds(t.Context(), l); errors.Is(err, store.ErrLeaseLost) != (l.Name == "source-03") {
				t.Errorf("%s: %v", l.Name, err)
			}
		}
		if err := s.Leases().Holds(t.Context(), other); err != nil {
			t.Errorf("the one who took it: %v", err)
		}
		if _, err := s.Leases().Renew(t.Context(), never, time.Minute); !errors.Is(err, store.ErrLeaseLost) {
			t.Errorf("one that never was: %v", err)
		}
		if o.URL == "" {
			return // a file has no row locks
		}
		db := raw(t, o)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(),
			"SELECT fence FROM leases WHERE name = 'source-05' FOR UPDATE"); err !=
			nil {
			t.Fatal(err)
		}
		lost, left, err = s.Leases().RenewAll(t.Context(), mine[4:], time.Minute)
		if err != nil || len(lost) != 0 || len(left) != 1 || left[0].Name != "source-05" {
			t.Errorf("while one is locked: lost %+v, left %+v, %v", lost, left, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Leases().Renew(t.Context(), mine[5], time.Minute); err != nil {
			t.Errorf("once it is free: %v", err)
		}
	})
}
