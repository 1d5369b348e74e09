package store_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestTimeOfFileState checks that the time of a file state follows the host's uptime and ignores a
// clock set ahead.
func TestTimeOfFileState(t *testing.T) {
	dir, boot := t.TempDir(), "b1"
	wall, up := noon, 50*time.Hour
	read := func() time.Time {
		t.Helper()
		s, err := store.Open(t.Context(), store.Options{
			Dir: dir,
			Host: store.Host{Now: func() time.Time {
				return wall
			}, Uptime: func() (string, time.Duration) { return boot, up }},
		})
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
		wall, up time.Duration // how far they advance
		behind   time.Duration // the wall clock's lead over the state's time
	}{
		{"the first reading", "b1", 0, 0, 0},
		{"an hour later", "b1", time.Hour, time.Hour, 0},
		{"the clock is slewed", "b1", time.Hour + 50*time.Second, time.Hour, 0},
		{"set 30 days ahead", "b1", 30 * 24 * time.Hour, time.Minute, 30*24*time.Hour - time.Minute},
		{"and an hour later", "b1", time.Hour, time.Hour, 30*24*time.Hour - time.Minute},
		{"set right", "b1", -30*24*time.Hour + time.Minute, 0, 0},
		{"by just the slack", "b1", 2 * time.Minute, time.Minute, 0},
		{"just over the slack", "b1", 2*time.Minute + time.Second, time.Minute, time.Minute + time.Second},
		{"set right again", "b1", -time.Minute - time.Second, 0, 0},
		{"set back by a day", "b1", -24 * time.Hour, 0, -24 * time.Hour},
		{"an hour later still", "b1", time.Hour, time.Hour, -24 * time.Hour},
		{"set right once more", "b1", 24 * time.Hour, 0, 0},
		{"another boot, an hour later", "b2", time.Hour, -50 * time.Hour, 0},
		{"another boot that is 10 s behind", "b3", -10 * time.Second, 0, -10 * time.Second},
		{"another boot that is five hours behind", "b4", -5 * time.Hour, 0, -5*time.Hour - 10*time.Second},
		{"an unknown boot", "", 40 * 24 * time.Hour, 0, 0},
		{"nor after it", "", 40 * 24 * time.Hour, 0, 0},
		{"nor before it", "", -time.Hour, 0, -time.Hour},
	} {
		boot, wall, up = step.boot, wall.Add(step.wall), up+step.up
		if got := wall.Sub(read()); got != step.behind {
			t.Errorf("%s: the time of the state is %s behind the wall clock, want %s", step.name, got, step.behind)
		}
	}
}

// TestTimeOfSharedFileState checks that hosts that share a file use the clock of its file system,
// unless a person declares a host's clock right.
func TestTimeOfSharedFileState(t *testing.T) {
	dir, server := t.TempDir(), noon
	open := func(boot string, ahead time.Duration) *store.Store {
		t.Helper()
		s, err := store.Open(t.Context(), store.Options{
			Dir: dir, Host: store.Host{Now: func() time.Time { return server.Add(ahead) },
				Uptime: func() (string, time.Duration) {
					return boot, time.Hour
				}, FileTime: func(string) (time.Time, error) { return server, nil }}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	for _, s := range []*store.Store{open("a", 0), open("b", 5*time.Hour), open("c", -5*time.Hour), open("a", 0)} {
		if now, err := s.Ledger().Now(t.Context()); err != nil || !now.Equal(noon) {
			t.Errorf("the time of the state is %s, want %s, %v", now, noon, err)
		}
	}
	server = noon.Add(-time.Hour)
	s := open("d", 0)
	if now, err := s.Ledger().Now(t.Context()); err != nil || !now.Equal(noon) {
		t.Errorf("the time of the state went back to %s, %v", now, err)
	}
	if err := s.SetClock(t.Context(), action.Entry{At: server, Actor: "ana", What: "clock"}); err != nil {
		t.Fatal(err)
	}
	if now, err := s.Ledger().Now(t.Context()); err != nil || !now.Equal(server) {
		t.Errorf("a person set the time of the state, and it is %s, %v", now, err)
	}
}

// TestFileTime checks that reading the file system's clock leaves no file.
func TestFileTime(t *testing.T) {
	dir := t.TempDir()
	got, err := store.FileTime(dir)
	if off := time.Since(got).Abs(); err != nil || off > time.Minute {
		t.Errorf("it is %s off, %v", off, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if _, err := store.FileTime(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there has a time")
	}
}
