package store_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestCallers checks that tokens, responses and proofs behave the same on both databases.
func TestCallers(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			s := open(t, empty(t, d.open(t)))
			t.Run("tokens", func(t *testing.T) { tokens(t, s) })
			t.Run("answers", func(t *testing.T) { answers(t, s) })
			t.Run("proofs", func(t *testing.T) { proofs(t, s) })
		})
	}
}

var morning = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

func tokens(t *testing.T, s *store.Store) {
	ctx, c := t.Context(), s.Callers()
	said := action.Entry{At: morning, Actor: "root", What: "token"}
	a := store.Token{
		ID: "cf_aaaa", Hash: strings.Repeat("a", 64), Name: "ana", Roles: []string{"viewer", "approver@vision"},
		CreatedBy: "root", CreatedAt: morning, ExpiresAt: morning.Add(time.Hour),
	}
	if err := c.Create(ctx, a, said); err != nil {
		t.Fatal(err)
	}
	again := a
	again.ID = "cf_bbbb"
	if err := c.Create(ctx, again, said); err == nil {
		t.Error("two tokens of one hash")
	}
	for name, broken := range map[string]store.Token{
		"no expiry": {ID: "x", Hash: a.Hash, Name: "n", CreatedAt: morning},
		"no hash":   {ID: "x", Name: "n", CreatedAt: morning, ExpiresAt: a.ExpiresAt},
	} {
		if err := c.Create(ctx, broken, said); err == nil {
			t.Errorf("%s: it was kept", name)
		}
	}
	if _, err := c.Token(ctx, strings.Repeat("b", 64), morning); !errors.Is(err, store.ErrNoToken) {
		t.Errorf("an unknown token: %v", err)
	}
	got, err := c.Token(ctx, a.Hash, morning.Add(time.Second))
	want := a
	want.UsedAt = morning.Add(time.Second)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v, (-want +got):\n%s", err, diff)
	}
	if got, err = c.Token(ctx, a.Hash, morning.Add(30*time.Second)); err != nil || !got.UsedAt.Equal(want.UsedAt) {
		t.Errorf("a use within the minute is written: %+v, %v", got, err)
	}
	if got, err = c.Token(ctx, a.Hash, morning.Add(5*time.Minute)); err != nil ||
		!got.UsedAt.Equal(morning.Add(5*time.Minute)) {
		t.Errorf("a later use: %+v, %v", got, err)
	}
	if got.Valid(a.ExpiresAt) || !got.Valid(a.ExpiresAt.Add(-1)) {
		t.Error("it does not end at its expiry")
	}
	valid := func(at time.Time) []string {
		t.Helper()
		hashes, err := c.Valid(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		return hashes
	}
	if got := valid(a.ExpiresAt.Add(-1)); len(got) != 1 || got[0] != a.Hash {
		t.Errorf("before its expiry these count: %v", got)
	}
	if got := valid(a.ExpiresAt); len(got) != 0 {
		t.Errorf("at its expiry these count: %v", got)
	}
	gone := func(v store.Token) action.Entry {
		return action.Entry{At: morning, Actor: "root", What: "token", Because: v.ID}
	}
	if _, err := c.Revoke(ctx, "cf_z", morning, gone); !errors.Is(err, store.ErrNoToken) {
		t.Errorf("revoke one that is not there: %v", err)
	}
	for range 2 {
		if got, err = c.Revoke(ctx, "cf_a", morning.Add(time.Minute), gone); err != nil ||
			got.Valid(morning.Add(time.Minute)) {
			t.Errorf("revoke: %+v, %v", got, err)
		}
	}
	if got := valid(morning.Add(time.Minute)); len(got) != 0 {
		t.Errorf("after it was revoked these count: %v", got)
	}
	if all, err := c.Tokens(ctx); err != nil || len(all) != 1 || all[0].RevokedAt.IsZero() {
		t.Errorf("%+v, %v", all, err)
	}
	if end, err := s.VerifyAudit(ctx); err != nil || end.Entry != 2 {
		t.Errorf("%d entries stand in the audit log, want one for the creation and one for the end; %v", end.Entry,
			err)
	}
}

func answers(t *testing.T, s *store.Store) {
	ctx, c := t.Context(), s.Callers()
	day := morning.Add(-24 * time.Hour)
	var mu sync.Mutex
	var wg sync.WaitGroup
	begun := 0
	for range 8 {
		wg.Go(func() {
			a, ok, err := c.Begin(ctx, "ana", "k", "r1", morning, day)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case !ok:
				begun++
			case a.Status != 0 || a.Request != "r1":
				t.Errorf("under way: %+v", a)
			}
		})
	}
	wg.Wait()
	if begun != 1 {
		t.Fatalf("%d calls go on", begun)
	}
	if err := c.Finish(ctx, "ana", "k", 200, `{"a":1}`); err != nil {
		t.Fatal(err)
	}
	a, ok, err := c.Begin(ctx, "ana", "k", "r2", morning.Add(time.Hour), day)
	if want := (store.Answer{Request: "r1", At: morning, Status: 200, Body: `{"a":1}`}); err != nil || !ok ||
		a != want {
		t.Errorf("again: %+v, %v, %v", a, ok, err)
	}
	if _, ok, err = c.Begin(ctx, "bo", "k", "r1", morning, day); ok || err != nil {
		t.Errorf("the key of another caller: %v, %v", ok, err)
	}
	if err := c.Finish(ctx, "bo", "k", 0, ""); err != nil {
		t.Fatal(err)
	}
	if _, ok, err = c.Begin(ctx, "bo", "k", "r1", morning, day); ok || err != nil {
		t.Errorf("a key that was freed: %v, %v", ok, err)
	}
	if _, ok, err = c.Begin(ctx, "ana", "k", "r2", morning.Add(25*time.Hour), morning.Add(time.Hour)); ok ||
		err != nil {
		t.Errorf("after a day: %v, %v", ok, err)
	}
}

func proofs(t *testing.T, s *store.Store) {
	ctx, c := t.Context(), s.Callers()
	before := morning.Add(-time.Hour)
	if err := c.UseProof(ctx, "h", morning, before); err != nil {
		t.Fatal(err)
	}
	if err := c.UseProof(ctx, "h", morning, before); !errors.Is(err, store.ErrUsedProof) {
		t.Errorf("twice: %v", err)
	}
	if err := c.UseProof(ctx, "other", morning, before); err != nil {
		t.Error(err)
	}
}
