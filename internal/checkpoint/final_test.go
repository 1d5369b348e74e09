package checkpoint_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// slowStore is a store with a limited rate in bytes per second.
type slowStore struct {
	checkpoint.Backend
	rate int
}

func (s *slowStore) Create(ctx context.Context, key string, data []byte) error {
	select {
	case <-time.After(time.Duration(len(data)) * time.Second / time.Duration(s.rate)):
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.Backend.Create(ctx, key, data)
}

// TestFinalSaveTakesNewestFirst checks that a final save stores the newest checkpoint first and
// reports what it left out.
func TestFinalSaveTakesNewestFirst(t *testing.T) {
	dir, r := t.TempDir(), run(t, t.TempDir())
	write(t, dir, "ckpt/11/weights", random(11, 1<<20))
	write(t, dir, "data/big", random(1, 2<<20))
	write(t, dir, "code/train.py", []byte("print()\n"))
	save(t, claim(t, r), dir, checkpoint.SaveOptions{})
	before := t.TempDir()
	if err := os.CopyFS(before, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "data/big", random(2, 40<<20))
	write(t, dir, "data/small", []byte("goes with big"))
	write(t, dir, "more/big", random(3, 40<<20))
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"data/big", "data/small", "more/big"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "ckpt/12/weights", random(12, 1<<20))
	step := int64(12)
	a := claim(t, checkpoint.Run{Store: &slowStore{r.Store, 4 << 20}, Now: time.Now})
	within := 6 * time.Second
	started := time.Now()
	got := save(t, a, dir, checkpoint.SaveOptions{Deadline: started.Add(within), Uploads: 1,
		Evidence: checkpoint.Evidence{
			Declared: []checkpoint.Declaration{{Path: "ckpt/12", Step: &step, At: time.Now()}},
		}})
	// All of it would take 20 s longer. A busy machine takes its time.
	if took := time.Since(started); took > within+14*time.Second {
		t.Errorf("took %s of %s", took, within)
	}
	if got.Snapshot.State != checkpoint.Partial || got.Snapshot.Step == nil || *got.Snapshot.Step != 12 {
		t.Errorf("saved %+v", got.Snapshot)
	}
	var out []string
	for _, l := range got.Manifest.LeftOut {
		out = append(out, l.Path)
	}
	slices.Sort(out)
	if !slices.Equal(out, []string{"data", "more"}) {
		t.Errorf("left out %+v", got.Manifest.LeftOut)
	}
	to, done := restore(t, r, checkpoint.RestoreOptions{})
	if done.Snapshot.Seq != 2 {
		t.Fatalf("restored %d", done.Snapshot.Seq)
	}
	want, have := tree(t, dir), tree(t, to)
	for _, name := range []string{"ckpt/11/weights", "ckpt/12/weights", "code/train.py"} {
		if have[name] != want[name] {
			t.Errorf("%s is %+v, want %+v", name, have[name], want[name])
		}
	}
	// A folder is as a whole as the snapshot before has it, or not there.
	if have["data/big"].SHA != tree(t, before)["data/big"].SHA || have["data/small"].SHA != "" ||
		have["more/big"].SHA != "" {
		t.Errorf("what was left out is %+v", have)
	}
	if len(got.Stale) != 1 || got.Stale[0].Path != "data/big" {
		t.Errorf("stale: %+v", got.Stale)
	}
	// With enough time it is all there, and complete.
	after := save(t, claim(t, r), dir, checkpoint.SaveOptions{
		Deadline: time.Now().Add(time.Minute), Evidence: checkpoint.Evidence{WriterExited: true},
	})
	if after.Snapshot.State != checkpoint.Complete || len(after.Manifest.LeftOut) != 0 {
		t.Errorf("saved %+v, left out %+v", after.Snapshot, after.Manifest.LeftOut)
	}
	to, _ = restore(t, r, checkpoint.RestoreOptions{})
	same(t, dir, to)
}

// TestFinalSaveWithoutTime checks that a final save without time for anything new creates no
// snapshot.
func TestFinalSaveWithoutTime(t *testing.T) {
	dir, r := t.TempDir(), run(t, t.TempDir())
	write(t, dir, "weights", random(1, 1<<20))
	save(t, claim(t, r), dir, checkpoint.SaveOptions{})
	write(t, dir, "weights", random(2, 20<<20))
	a := claim(t, checkpoint.Run{Store: &slowStore{r.Store, 1 << 20}, Now: time.Now})
	_, err := a.Save(t.Context(), dir, checkpoint.SaveOptions{
		Deadline: time.Now().Add(1500 * time.Millisecond), Evidence: checkpoint.Evidence{WriterExited: true},
	})
	if !errors.Is(err, checkpoint.ErrNoTime) {
		t.Errorf("saved: %v", err)
	}
	if h, _, err := r.ReadHead(t.Context()); err != nil || len(h.Snapshots) != 1 {
		t.Errorf("HEAD has %d snapshots, %v", len(h.Snapshots), err)
	}
	if _, done := restore(t, r, checkpoint.RestoreOptions{}); done.Snapshot.Seq != 1 {
		t.Errorf("restored %d", done.Snapshot.Seq)
	}
}
