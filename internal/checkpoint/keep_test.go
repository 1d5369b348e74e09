package checkpoint_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// makeOlder ages all objects in a store except HEAD, by the store's clock.
func makeOlder(t *testing.T, store string, d time.Duration) {
	t.Helper()
	err := filepath.WalkDir(store, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "HEAD" {
			return err
		}
		i, err := e.Info()
		if err != nil {
			return err
		}
		return os.Chtimes(at, time.Now(), i.ModTime().Add(-d))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func objects(t *testing.T, store string) (n int) {
	t.Helper()
	for _, dir := range []string{"parts", "manifests", "ranks"} {
		if err := filepath.WalkDir(filepath.Join(store, dir), func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				n++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func TestRetention(t *testing.T) {
	store, dir := t.TempDir(), t.TempDir()
	r := run(t, store)
	a := claim(t, r)
	for i := range 5 {
		write(t, dir, "weights", random(i, 1<<20))
		write(t, dir, "constant", random(99, 1<<20))
		save(t, a, dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}})
	}
	all := objects(t, store)
	// Young objects stay, whatever is dropped. The first part has the constant file as well,
	// which all need.
	got, err := a.Collect(t.Context(), checkpoint.Retention{Keep: 4})
	if err != nil || len(got.Dropped) != 1 || got.Deleted != 0 || got.TooYoung != 1 || objects(t, store) != all {
		t.Fatalf("collected %+v, %v", got, err)
	}
	makeOlder(t, store, 25*time.Hour)
	// One rule keeps what the other drops.
	got, err = a.Collect(t.Context(), checkpoint.Retention{Keep: 1, KeepFor: 48 * time.Hour})
	if err != nil || len(got.Dropped) != 0 || got.Deleted != 1 {
		t.Fatalf("collected %+v, %v", got, err)
	}
	got, err = a.Collect(t.Context(), checkpoint.Retention{Keep: 2})
	if err != nil || len(got.Dropped) != 2 || got.Deleted != 4 {
		t.Fatalf("collected %+v, %v", got, err)
	}
	v, err := r.Verify(t.Context(), 0, 1, nil)
	if err != nil || len(v.Damage) != 0 || len(v.Snapshots) != 2 {
		t.Fatalf("verify: %+v, %v", v, err)
	}
	to, _ := restore(t, r, checkpoint.RestoreOptions{})
	same(t, dir, to)
	// What another attempt left without a manifest, and files that no one finished, go too.
	half := filepath.Join(store, "parts", ".tmp-1")
	write(t, store, "parts/.tmp-1", []byte("half"))
	write(t, store, "parts/1-0011223344556677/"+strings.Repeat("ab", 32), []byte("no manifest names it"))
	write(t, store, "parts/9-0011223344556677/"+strings.Repeat("ab", 32), []byte("of a later epoch"))
	write(t, store, "notes.txt", []byte("not ours"))
	makeOlder(t, store, 25*time.Hour)
	got, err = a.Collect(t.Context(), checkpoint.Retention{})
	if err != nil || got.Deleted != 1 || got.Aborted != 1 {
		t.Fatalf("collected %+v, %v", got, err)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("the half file: %v", err)
	}
	// A manifest that is kept and cannot be read stops everything.
	m := a.Head().Snapshots[1].Manifest
	if err := os.Remove(filepath.Join(store, m)); err != nil {
		t.Fatal(err)
	}
	before := objects(t, store)
	if _, err := a.Collect(t.Context(), checkpoint.Retention{}); err == nil || objects(t, store) != before {
		t.Errorf("collected without a manifest: %v", err)
	}
}

// TestKeepsNewestCompleteSnapshot checks retention with incomplete newer snapshots.
func TestKeepsNewestCompleteSnapshot(t *testing.T) {
	dir, r := t.TempDir(), run(t, t.TempDir())
	write(t, dir, "weights", random(1, 1000))
	a := claim(t, r)
	save(t, a, dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}})
	n := 0
	for range 3 {
		save(t, a, dir, checkpoint.SaveOptions{Quiet: time.Hour, Wait: func(context.Context, time.Duration) error {
			n++
			write(t, dir, "weights", random(n, 2000))
			return nil
		}})
	}
	if _, err := a.Collect(t.Context(), checkpoint.Retention{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if _, done := restore(t, r, checkpoint.RestoreOptions{}); done.Snapshot.Seq != 1 || len(done.Skipped) != 3 {
		t.Errorf("restored %d, skipped %d", done.Snapshot.Seq, len(done.Skipped))
	}
}

// TestDetectsFlippedBits flips bits in every object: each flip is detected, the previous snapshot
// is restored, and no damaged file is put in place.
func TestDetectsFlippedBits(t *testing.T) {
	store, dir := t.TempDir(), t.TempDir()
	r := run(t, store)
	a := claim(t, r)
	write(t, dir, "weights", random(1, 100_000))
	write(t, dir, "log", []byte(strings.Repeat("loss 0.25\n", 5000)))
	first := t.TempDir()
	if err := os.CopyFS(first, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	save(t, a, dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}})
	write(t, dir, "weights", random(2, 100_000))
	write(t, dir, "log", []byte(strings.Repeat("loss 0.50\n", 5000)))
	save(t, a, dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}})
	newest := a.Head().Snapshots[0]
	m, err := r.ReadManifest(t.Context(), newest.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{newest.Manifest, "HEAD"}
	for _, p := range m.Parts {
		keys = append(keys, p.Key)
	}
	if len(keys) != 3 {
		t.Fatalf("the snapshot needs %v", keys)
	}
	for _, key := range keys {
		at := filepath.Join(store, key)
		info, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, bit := range []int64{0, info.Size()*4 + 3, info.Size()*8 - 1} {
			flip(t, at, bit)
			to, done := restore(t, r, checkpoint.RestoreOptions{})
			if key == "HEAD" {
				same(t, dir, to) // the manifests are all there
				if len(done.Notes) != 1 {
					t.Errorf("HEAD: bit %d: notes %v", bit, done.Notes)
				}
			} else {
				if done.Snapshot.Seq != 1 || len(done.Skipped) != 1 {
					t.Errorf("%s: bit %d: restored %d, skipped %+v", key, bit, done.Snapshot.Seq, done.Skipped)
				}
				want, _ := os.ReadFile(filepath.Join(first, "weights"))
				if got, _ := os.ReadFile(filepath.Join(to, "weights")); !slices.Equal(got, want) {
					t.Errorf("%s: bit %d: restored other weights", key, bit)
				}
				v, err := r.Verify(t.Context(), 0, 2, nil)
				if err != nil || len(v.Damage) != 1 || v.Damage[0].Key != key ||
					!slices.Equal(v.Damage[0].Seqs, []int64{2}) {
					t.Errorf("%s: bit %d: verify %+v, %v", key, bit, v.Damage, err)
				}
			}
			flip(t, at, bit)
		}
	}
	// A run whose HEAD is damaged goes on, with all its snapshots.
	flip(t, filepath.Join(store, "HEAD"), 100)
	b := claim(t, r)
	if len(b.Notes) != 1 || len(b.Head().Snapshots) != 2 || b.Head().Epoch != 2 {
		t.Errorf("claimed %+v, notes %v", b.Head(), b.Notes)
	}
	if got := save(t, b, dir, checkpoint.SaveOptions{}); got.Snapshot.Seq != 3 || got.BytesStored != 0 {
		t.Errorf("saved %+v", got.Snapshot)
	}
	// A damaged part is only replaced by a full save.
	flip(t, filepath.Join(store, m.Parts[0].Key), 77)
	if got := save(t, b, dir, checkpoint.SaveOptions{Full: true}); got.BytesStored == 0 {
		t.Error("a full save sent nothing")
	}
	if to, done := restore(t, r, checkpoint.RestoreOptions{}); done.Snapshot.Seq != 4 {
		t.Errorf("restored %d", done.Snapshot.Seq)
	} else {
		same(t, dir, to)
	}
}

// fullStore is a store that fails after a number of bytes.
type fullStore struct {
	checkpoint.Backend
	left int
}

func (f *fullStore) Create(ctx context.Context, key string, data []byte) error {
	if f.left -= len(data); f.left < 0 {
		return syscall.ENOSPC
	}
	return f.Backend.Create(ctx, key, data)
}

func (f *fullStore) Replace(ctx context.Context, key string, data []byte, on string) (string, error) {
	if f.left -= len(data); f.left < 0 {
		return "", syscall.ENOSPC
	}
	return f.Backend.Replace(ctx, key, data, on)
}

// TestReportsFullStore checks that a save into a full store fails with an error and breaks nothing.
func TestReportsFullStore(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "weights", random(5, 300_000))
	for _, left := range []int{0, 100, 500, 100_000, 300_000, 300_600, 301_000, 301_500, 302_000} {
		r := run(t, t.TempDir())
		first := save(t, claim(t, r), dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}})
		failing := checkpoint.Run{Store: &fullStore{r.Store, left}, Now: time.Now}
		seq, step := first.Snapshot.Seq, 5
		a, err := failing.Claim(t.Context(), "full")
		if err == nil {
			write(t, dir, "weights", random(6, 300_000))
			if _, err = a.Save(t.Context(), dir, checkpoint.SaveOptions{
				Evidence: checkpoint.Evidence{WriterExited: true},
			}); err ==
				nil {
				seq, step = 2, 6
			}
			write(t, dir, "weights", random(5, 300_000))
		}
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d bytes left: %v", left, err)
		}
		checkRun(t, r, seq, step)
	}
}

func TestJoinsRanks(t *testing.T) {
	store := t.TempDir()
	r := run(t, store)
	holder := claim(t, r)
	evidence := func(step int64) checkpoint.SaveOptions {
		return checkpoint.SaveOptions{
			Ranks: 3,
			Evidence: checkpoint.Evidence{
				Declared: []checkpoint.Declaration{{Path: ".", Step: &step, At: time.Now().Add(time.Hour)}},
			},
		}
	}
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	share := func(rank int, step int64, seed int) error {
		write(t, dirs[rank], "shard", random(seed, 200_000))
		node, err := r.Follow(t.Context(), holder.Head().Attempt, rank)
		if err != nil {
			return err
		}
		o := evidence(step)
		o.Rank = rank
		_, err = node.SaveRank(t.Context(), dirs[rank], o)
		return err
	}
	for rank := range 2 {
		if err := share(rank, 10, rank); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := holder.Join(t.Context(), 3); !errors.Is(err, checkpoint.ErrRanksMissing) ||
		!strings.Contains(err.Error(), "rank 2") {
		t.Fatalf("joined two of three: %v", err)
	}
	if err := share(2, 11, 7); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Join(t.Context(), 3); !errors.Is(err, checkpoint.ErrRanksMissing) {
		t.Fatalf("joined two steps: %v", err)
	}
	if err := share(2, 10, 2); err != nil {
		t.Fatal(err)
	}
	got, err := holder.Join(t.Context(), 3)
	if err != nil || got.Seq != 1 || got.State != checkpoint.Complete || got.Finished != checkpoint.Declared ||
		*got.Step != 10 || got.Files != 3 || got.Bytes != 600_000 {
		t.Fatalf("joined %+v, %v", got, err)
	}
	for rank, dir := range dirs {
		to, _ := restore(t, r, checkpoint.RestoreOptions{Rank: rank})
		same(t, dir, to)
	}
	if _, err := r.Restore(t.Context(), filepath.Join(t.TempDir(), "x"),
		checkpoint.RestoreOptions{Rank: 3}); err == nil {
		t.Error("restored a rank that is not there")
	}
	makeOlder(t, store, 25*time.Hour)
	// the share of step 11
	if c, err := holder.Collect(t.Context(), checkpoint.Retention{Keep: 1}); err != nil || c.Deleted != 2 {
		t.Errorf("collected %+v, %v", c, err)
	}
	if v, err := r.Verify(t.Context(), 0, 2, nil); err != nil || len(v.Damage) > 0 || v.Parts != 3 {
		t.Errorf("verify %+v, %v", v, err)
	}
	// The next snapshot uses what the ranks have; a rank that follows a former attempt is
	// fenced.
	former := holder.Head().Attempt
	holder = claim(t, r)
	if _, err := r.Follow(t.Context(), former, 0); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("followed a former attempt: %v", err)
	}
	for rank := range 3 {
		if err := share(rank, 20, rank); err != nil {
			t.Fatal(err)
		}
	}
	if got, err = holder.Join(t.Context(), 3); err != nil || got.Seq != 2 || got.NewBytes != 0 {
		t.Errorf("joined %+v, %v", got, err)
	}
}

// TestRanksSaveInAnyOrder saves ranks in any order, some twice, with remains of earlier attempts:
// each snapshot holds the shares of all ranks.
func TestRanksSaveInAnyOrder(t *testing.T) {
	const ranks = 3
	r := run(t, t.TempDir())
	pause := func(ctx context.Context, _ time.Duration) error {
		select {
		case <-time.After(time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	dirs := make([]string, ranks)
	for rank := range dirs {
		dirs[rank] = t.TempDir()
	}
	together := func(ctx context.Context, rank int, patience time.Duration) (checkpoint.Result, error) {
		got, _, err := r.SaveTogether(ctx, t.Name(), dirs[rank], checkpoint.SaveOptions{
			Rank: rank, Ranks: ranks, Wait: pause, Evidence: checkpoint.Evidence{WriterExited: true},
		}, patience)
		return got, err
	}
	for seq := range int64(8) {
		for rank, dir := range dirs {
			write(t, dir, "shard", random(int(seq)*ranks+rank, 20_000))
		}
		switch seq % 4 {
		case 1: // an attempt that died without a snapshot
			claim(t, r)
		case 2: // a rank that died after it had saved, and one that saves what is old then
			for _, rank := range []int{0, 2} {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				if _, err := together(ctx, rank, time.Minute); err == nil {
					t.Fatalf("rank %d got a snapshot without the others", rank)
				}
				cancel()
			}
			write(t, dirs[2], "shard", random(int(seq)*ranks+2+1000, 20_000))
		}
		got := make([]checkpoint.Result, ranks)
		errs := make([]error, ranks)
		var all sync.WaitGroup
		for _, rank := range rand.New(rand.NewPCG(1, uint64(seq))).Perm(ranks) {
			all.Go(func() { got[rank], errs[rank] = together(t.Context(), rank, time.Minute) })
			time.Sleep(5 * time.Millisecond)
		}
		all.Wait()
		for rank, dir := range dirs {
			if errs[rank] != nil || got[rank].Snapshot.Seq != seq+1 ||
				got[rank].Snapshot.State != checkpoint.Complete {
				t.Fatalf("snapshot %d, rank %d: %+v, %v", seq+1, rank, got[rank].Snapshot, errs[rank])
			}
			to, _ := restore(t, r, checkpoint.RestoreOptions{Rank: rank})
			same(t, dir, to)
		}
	}
	for rank := range ranks - 1 { // the last one never comes
		if _, err := together(t.Context(), rank, 50*time.Millisecond); !errors.Is(err, checkpoint.ErrRanksMissing) {
			t.Errorf("rank %d alone: %v", rank, err)
		}
	}
	if h, _, err := r.ReadHead(t.Context()); err != nil || h.Snapshots[0].Seq != 8 {
		t.Errorf("HEAD names %+v, %v", h.Snapshots, err)
	}
}
