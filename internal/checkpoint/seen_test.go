package checkpoint_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

func TestDetectsRollback(t *testing.T) {
	base := t.TempDir()
	store, dir, old := filepath.Join(base, "store"), filepath.Join(base, "dir"), filepath.Join(base, "old")
	r := run(t, store)
	snapshot := func(seed int) checkpoint.SnapshotMark {
		write(t, dir, "weights", random(seed, 1000))
		return checkpoint.NewestMark([]checkpoint.Snapshot{
			save(t, claim(t, r), dir, checkpoint.SaveOptions{}).Snapshot,
		})
	}
	snapshot(1)
	if err := os.CopyFS(old, os.DirFS(store)); err != nil {
		t.Fatal(err)
	}
	newest := snapshot(2)
	if m, err := checkpoint.MarkOf(newest.Manifest); err != nil || m != newest {
		t.Errorf("its key is the mark %+v, %v; want %+v", m, err, newest)
	}
	r.NewestSeen = newest
	to := filepath.Join(base, "to")
	if _, err := r.Restore(t.Context(), to, checkpoint.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(store, store+"-2"), os.Rename(old, store)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(store, 0o700); err != nil {
		t.Fatal(err)
	}
	rolledBack := func(t *testing.T) {
		t.Helper()
		if got, err := r.Restore(t.Context(), filepath.Join(t.TempDir(), "to"),
			checkpoint.RestoreOptions{}); !errors.Is(err,
			checkpoint.ErrRolledBack) || strings.Contains(err.Error(), "\n") {
			t.Errorf("restored %+v, %v", got.Snapshot, err)
		}
		if got, err := r.Restore(t.Context(), filepath.Join(t.TempDir(), "to"),
			checkpoint.RestoreOptions{Seq: 1}); err !=
			nil || len(got.Notes) != 1 {
			t.Errorf("restored the named one: %+v, %v", got.Notes, err)
		}
		if v, err := r.Verify(t.Context(), 0, 1, nil); err != nil || !v.RolledBack || len(v.Notes) != 1 {
			t.Errorf("verified %+v, %v", v, err)
		}
	}
	rolledBack(t)
	// Another history with the same number is not the one that was seen either.
	fork := snapshot(3)
	if fork.Seq != newest.Seq || fork.Manifest == newest.Manifest {
		t.Fatalf("the fork is %+v", fork)
	}
	rolledBack(t)
	// The one who saved it goes on from it.
	if a := claim(t, r); len(a.Notes) != 1 {
		t.Errorf("notes %v", a.Notes)
	}
	r.NewestSeen = fork
	if _, err := r.Restore(t.Context(), filepath.Join(t.TempDir(), "to"), checkpoint.RestoreOptions{}); err != nil {
		t.Error(err)
	}
}

// unconditionalStore is a store that ignores the conditions of writes.
type unconditionalStore struct {
	checkpoint.Backend
	creates, replaces bool
	probes            int
}

func (c *unconditionalStore) Create(ctx context.Context, key string, data []byte) error {
	c.probes++
	err := c.Backend.Create(ctx, key, data)
	if c.creates && errors.Is(err, checkpoint.ErrExists) {
		return nil
	}
	return err
}

func (c *unconditionalStore) Replace(ctx context.Context, key string, data []byte, version string) (string, error) {
	v, err := c.Backend.Replace(ctx, key, data, version)
	if c.replaces && errors.Is(err, checkpoint.ErrConflict) {
		return "v", nil
	}
	return v, err
}

func TestClaimRefusesUnconditionalStore(t *testing.T) {
	for _, c := range []unconditionalStore{{creates: true}, {replaces: true}, {creates: true, replaces: true}, {}} {
		store := t.TempDir()
		r := run(t, store)
		c.Backend = r.Store
		r.Store = &c
		_, err := r.Claim(t.Context(), "test")
		if bad := c.creates || c.replaces; errors.Is(err, checkpoint.ErrUnconditional) != bad || (err == nil) == bad {
			t.Errorf("%+v: %v", c, err)
		}
		if _, _, headErr := r.ReadHead(t.Context()); (headErr == nil) != (err == nil) {
			t.Errorf("HEAD: %v", headErr)
		}
		if n := partsIn(t, store); n != 0 {
			t.Errorf("%d objects of the probe are left", n)
		}
		if err == nil {
			probes := c.probes
			r.Conditional = true
			if claim(t, r); c.probes != probes {
				t.Error("a store that is known is probed again")
			}
		}
	}
}

// partsIn counts the parts of a run, of which there may be no folder.
func partsIn(t *testing.T, store string) int {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(store, "parts", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(parts)
}
