package sessions

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestOldOutputIsRemovedWithItsSessionAlone checks which kept output is removed: that of local sessions of this
// state that ended longer ago than the retention. What is open, younger, of another provider, unknown here or no
// part of output stays, and so does what a link leads to.
func TestOldOutputIsRemovedWithItsSessionAlone(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Now().UTC()
	old := now.Add(-OutputRetention - time.Hour)
	dir, outside := t.TempDir(), t.TempDir()
	write := func(at time.Time, names ...string) {
		for _, name := range names {
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{name, filepath.Dir(name)} {
				if err := os.Chtimes(file, at, at); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, c := range []struct {
		id, provider string
		state        session.State
		ended        time.Time
	}{
		{"ended", "local", session.Ended, old},
		{"failed", "local", session.Failed, old},
		{"young", "local", session.Ended, now.Add(-OutputRetention + time.Hour)},
		{"open", "local", session.Ready, time.Time{}},
		{"elsewhere", "aws", session.Ended, old},
		{"mixed", "local", session.Ended, old},
		{"linked", "local", session.Ended, old},
		{"written", "local", session.Ended, old},
	} {
		if _, err := s.Sessions().Put(t.Context(), session.Session{
			ID: c.id, Name: c.id, Provider: c.provider, State: c.state, RequestedAt: old, EndedAt: c.ended,
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"ended", "failed", "young", "open", "elsewhere", "mixed", "unknown"} {
		write(old, filepath.Join(dir, id, "0-1.log.gz"), filepath.Join(dir, id, "1-12.log.gz"))
	}
	write(now, filepath.Join(dir, "written", "0-1.log.gz"))
	write(old, filepath.Join(outside, "0-1.log.gz"))
	write(old, filepath.Join(dir, "mixed", "notes.txt"))
	if err := os.Symlink(outside, filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	a := &Sessions{store: s}
	for range 2 {
		if err := a.removeOldOutput(t.Context(), dir, now); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	for _, root := range []string{dir, outside} {
		files, err := filepath.Glob(filepath.Join(root, "*")) // the pattern is valid
		more, _ := filepath.Glob(filepath.Join(dir, "mixed", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range append(files, more...) {
			left = append(left, filepath.Base(f))
		}
	}
	slices.Sort(left)
	want := []string{
		"0-1.log.gz", "elsewhere", "linked", "mixed", "notes.txt", "open", "unknown", "written", "young",
	}
	if got := slices.Compact(left); !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
	if err := a.removeOldOutput(t.Context(), filepath.Join(dir, "none"), now); err != nil {
		t.Errorf("without a folder: %v", err)
	}
}
