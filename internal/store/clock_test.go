package store_test

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/store"
)

// TestTheTimeOfAFile: the time of a state without a database's clock goes on as the host's
// uptime does, and no clock that is set ahead takes it along.
func TestTheTimeOfAFile(t *testing.T) {
	dir, boot := t.TempDir(), "b1"
	wall, up := noon, 50*time.Hour
	read := func() time.Time {
		t.Helper()
		s, err := store.Open(t.Context(), store.Options{Dir: dir, Host: store.Host{Now: func() time.Time { return wall }, Uptime: func() (string, time.Duration) { return boot, up }}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		now, err := s.Ledger().Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	for _, step := range []struct {
		name     string
		boot     string
		wall, up time.Duration // how far they go on
		behind   time.Duration // the wall clock's lead over the state's time
	}{
		{"the first reading", "b1", 0, 0, 0},
		{"an hour later", "b1", time.Hour, time.Hour, 0},
		{"the clock is slewed", "b1", time.Hour + 50*time.Second, time.Hour, 0},
		{"set 30 days ahead", "b1", 30 * 24 * time.Hour, time.Minute, 30*24*time.Hour - time.Minute},
		{"and an hour later", "b1", time.Hour, time.Hour, 30*24*time.Hour - time.Minute},
		{"set right", "b1", -30*24*time.Hour + time.Minute, 0, 0},
		{"just over the slack", "b1", 2*time.Minute + time.Second, time.Minute, time.Minute + time.Second},
		{"set back by a day", "b1", -24 * time.Hour, 0, 0},
		{"ahead of that", "b1", 24 * time.Hour, 0, 24 * time.Hour},
		{"another boot", "b2", time.Hour, -50 * time.Hour, 0},
		{"a boot that nobody knows", "", 40 * 24 * time.Hour, 0, 0},
		{"nor after it", "", 40 * 24 * time.Hour, 0, 0},
	} {
		boot, wall, up = step.boot, wall.Add(step.wall), up+step.up
		if got := wall.Sub(read()); got != step.behind {
			t.Errorf("%s: the time of the state is %s behind the wall clock, want %s", step.name, got, step.behind)
		}
	}
}
