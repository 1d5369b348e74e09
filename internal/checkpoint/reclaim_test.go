package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// boundedStore is a store in a folder of so many bytes.
type boundedStore struct {
	checkpoint.Backend
	dir  string
	size int64
}

func (f *boundedStore) used() (n int64) {
	_ = filepath.WalkDir(f.dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if i, err := e.Info(); err == nil {
				n += (i.Size() + 4095) / 4096 * 4096
			}
		}
		return nil
	})
	return n
}

func (f *boundedStore) fits(data []byte) error {
	if f.used()+int64(len(data)) > f.size {
		return fmt.Errorf("%d bytes of %d used: %w", f.used(), f.size, checkpoint.ErrFull)
	}
	return nil
}

func (f *boundedStore) Create(ctx context.Context, key string, data []byte) error {
	if err := f.fits(data); err != nil {
		return err
	}
	return f.Backend.Create(ctx, key, data)
}

func (f *boundedStore) Replace(ctx context.Context, key string, data []byte, on string) (string, error) {
	if err := f.fits(data); err != nil {
		return "", err
	}
	return f.Backend.Replace(ctx, key, data, on)
}

// fill saves until the store is full: snapshots, and the parts of a save that failed.
func fill(t *testing.T, r checkpoint.Run, dir string) (snapshots int) {
	t.Helper()
	a := claim(t, r)
	for i := 0; ; i++ {
		write(t, dir, "weights", random(i, 300_000))
		_, err := a.Save(t.Context(), dir, exited)
		if errors.Is(err, checkpoint.ErrFull) && i > 2 {
			return i
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCollectsInFullStore(t *testing.T) {
	for _, left := range []int64{0, 4096, 8192} {
		for name, keep := range map[string]checkpoint.Retention{
			"by count": {Keep: 1, Now: true}, "by age": {KeepFor: time.Nanosecond, Now: true},
		} {
			t.Run(fmt.Sprintf("%s with %d bytes left", name, left), func(t *testing.T) {
				store, dir := t.TempDir(), t.TempDir()
				plain := run(t, store)
				full := &boundedStore{plain.Store, store, 2 << 20}
				r := checkpoint.Run{Store: full, Now: time.Now}
				fill(t, r, dir)
				full.size = full.used() + left
				if _, err := r.Claim(t.Context(), "worker"); left == 0 && !errors.Is(err, checkpoint.ErrFull) {
					t.Fatalf("a claim in a full store: %v", err)
				}
				young := keep
				young.Now = false
				if _, _, err := r.Reclaim(t.Context(), "worker", young); left == 0 &&
					!errors.Is(err, checkpoint.ErrFull) {
					t.Fatalf("what is young was deleted without being asked: %v", err)
				}
				_, got, err := r.Reclaim(t.Context(), "worker", keep)
				if err != nil || got.Bytes < 600_000 {
					t.Fatalf("collected %+v, %v", got, err)
				}
				v, err := plain.Verify(t.Context(), 0, 1, nil)
				if err != nil || len(v.Damage) > 0 || len(v.Snapshots) != 1 {
					t.Fatalf("left are %+v, %v", v, err)
				}
				save(t, claim(t, r), dir, exited)
				to, _ := restore(t, r, checkpoint.RestoreOptions{})
				same(t, dir, to)
			})
		}
	}
}

// TestCollectionInFullStoreIsKilled ends a collection at each of its calls: the newest complete
// snapshot stays restorable, and the next collection frees the store.
func TestCollectionInFullStoreIsKilled(t *testing.T) {
	store, dir := t.TempDir(), t.TempDir()
	base := checkpoint.Run{Store: &boundedStore{run(t, store).Store, store, 2 << 20}, Now: time.Now}
	fill(t, base, dir)
	newest, err := base.Restore(t.Context(), filepath.Join(t.TempDir(), "newest"), checkpoint.RestoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	keep := checkpoint.Retention{Keep: 1, Now: true}
	for at := int64(1); ; at++ {
		copied := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(copied, os.DirFS(store)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(copied, 0o700); err != nil {
			t.Fatal(err)
		}
		full := &boundedStore{run(t, copied).Store, copied, 0}
		full.size = full.used()
		faulty := &faultyStore{Backend: full, at: at, fault: fault(at % 2)}
		_, _, err := checkpoint.Run{Store: faulty, Now: time.Now}.Reclaim(t.Context(), "worker", keep)
		if err == nil {
			if at < 10 {
				t.Fatalf("a collection has %d calls", at)
			}
			return
		}
		r := checkpoint.Run{Store: full, Now: time.Now}
		if _, got := restore(t, r, checkpoint.RestoreOptions{}); got.Snapshot.Seq != newest.Snapshot.Seq {
			t.Errorf("ended at call %d: restored is snapshot %d, not %d", at, got.Snapshot.Seq, newest.Snapshot.Seq)
		}
		if _, _, err := r.Reclaim(t.Context(), "worker", keep); err != nil {
			t.Errorf("ended at call %d: the next collection: %v", at, err)
		}
		if v, err := r.Verify(t.Context(), 0, 1, nil); err != nil || len(v.Damage) > 0 {
			t.Errorf("ended at call %d: damaged %+v, %v", at, v.Damage, err)
		}
	}
}

// committing runs commit after the first deletion.
type committing struct {
	*boundedStore
	commit func()
}

func (c *committing) Delete(ctx context.Context, keys []string) error {
	err := c.boundedStore.Delete(ctx, keys)
	if commit := c.commit; commit != nil {
		c.commit = nil
		commit()
	}
	return err
}

// TestDropsSnapshotCommittedMeanwhile checks that a process commits the snapshot whose part a
// collection in a full store has just deleted as unneeded.
func TestDropsSnapshotCommittedMeanwhile(t *testing.T) {
	store, dir := t.TempDir(), t.TempDir()
	base := run(t, store)
	write(t, dir, "weights", random(1, 100_000))
	a := claim(t, base)
	save(t, a, dir, exited)
	head := filepath.Join(store, "HEAD")
	before, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "weights", random(2, 100_000))
	second := save(t, a, dir, exited).Snapshot
	manifest := filepath.Join(store, second.Manifest)
	after, err1 := os.ReadFile(head)
	data, err2 := os.ReadFile(manifest)
	if err := errors.Join(err1, err2, os.WriteFile(head, before, 0o600), os.Remove(manifest)); err != nil {
		t.Fatal(err)
	}
	bounded := &boundedStore{base.Store, store, 0}
	bounded.size = bounded.used()
	c := &committing{boundedStore: bounded, commit: func() {
		if err := errors.Join(os.WriteFile(manifest, data, 0o600), os.WriteFile(head, after, 0o600)); err != nil {
			t.Error(err)
		}
	}}
	_, got, err := checkpoint.Run{Store: c, Now: time.Now}.Reclaim(t.Context(), "collector",
		checkpoint.Retention{Keep: 5, Now: true})
	if err != nil || len(got.Dropped) != 1 || got.Dropped[0].Seq != second.Seq {
		t.Errorf("collected %+v, %v", got, err)
	}
	if v, err := base.Verify(t.Context(), 0, 1, nil); err != nil || len(v.Damage) > 0 || len(v.Snapshots) != 1 {
		t.Errorf("left are %+v, %v", v, err)
	}
}
