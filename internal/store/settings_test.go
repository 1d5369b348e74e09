package store

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
)

// TestSettingsAreVersioned checks that versions are kept and never overwritten, that one of several
// concurrent ones is set, and that each is in the audit log.
func TestSettingsAreVersioned(t *testing.T) {
	s, err := Open(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	put := func(version int64, body string) error {
		return s.Settings().Put(t.Context(), SettingChange{
			Setting{Kind: "gate", Version: version, At: at, Who: "root", Reason: "test", Body: body},
			action.Entry{At: at, Actor: "root", What: "settings"},
		})
	}
	if _, ok, err := s.Settings().Newest(t.Context(), "gate"); ok || err != nil {
		t.Fatalf("settings from the start: %v, %v", ok, err)
	}
	for name, version := range map[string]int64{"none": 0, "a gap": 2} {
		if err := put(version, "x"); err == nil {
			t.Errorf("%s: it was written", name)
		}
	}
	won := make(chan int, 8)
	var wg sync.WaitGroup
	for i := range cap(won) {
		wg.Go(func() {
			switch err := put(1, string(rune('a'+i))); {
			case err == nil:
				won <- i
			case !errors.Is(err, ErrSettingConflict):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d versions 1 were set", len(won))
	}
	first := string(rune('a' + <-won))
	if err := put(2, "second"); err != nil {
		t.Fatal(err)
	}
	got, err := s.Settings().Versions(t.Context(), "gate")
	want := []Setting{{"gate", 2, at, "root", "test", "second"}, {"gate", 1, at, "root", "test", first}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("versions (-want +got), %v:\n%s", err, diff)
	}
	if n, err := s.VerifyAudit(t.Context()); n.Entry != 2 || err != nil {
		t.Errorf("%d entries, %v", n.Entry, err)
	}
	if other, ok, err := s.Settings().Newest(t.Context(), "prices"); ok || err != nil {
		t.Errorf("another kind has %+v, %v", other, err)
	}
}
