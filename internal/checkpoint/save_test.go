package checkpoint_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

func bytesSum(b []byte) [32]byte { return sha256.Sum256(b) }

// fillFolder fills a folder with every kind of entry.
func fillFolder(t testing.TB, dir string) {
	t.Helper()
	write(t, dir, "ckpt/12/weights.bin", random(1, 9<<20))
	write(t, dir, "ckpt/12/log.txt", bytes.Repeat([]byte("loss 0.25\n"), 200_000))
	write(t, dir, "ckpt/12/empty", nil)
	write(t, dir, "a b/ü\nx", []byte("names"))
	write(t, dir, "a.txt", []byte("before a/"))
	write(t, dir, "run.sh", []byte("#!/bin/sh\n"))
	for name, mode := range map[string]os.FileMode{"run.sh": 0o755, "a.txt": 0o400, "a b": 0o700} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	links := [][2]string{
		{"ckpt/12", "latest"}, {"/etc/passwd", "outside"}, {"../../..", "a b/up"}, {"nowhere", "dangling"},
	}
	for _, l := range links {
		if err := os.Symlink(l[0], filepath.Join(dir, l[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "ckpt/12/weights.bin"), filepath.Join(dir, "ckpt/weights.bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "void"), 0o755); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sparse.WriteAt([]byte("end"), 20<<20); err != nil {
		t.Fatal(err)
	}
	sparse.Close()
	old := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	if err := os.Chtimes(filepath.Join(dir, "void"), old, old); err != nil {
		t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) {
	dir, r := t.TempDir(), run(t, t.TempDir())
	fillFolder(t, dir)
	got := save(t, claim(t, r), dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}})
	if got.Snapshot.State != checkpoint.Complete || got.Snapshot.Seq != 1 || got.BytesStored == 0 ||
		got.BytesStored > 10<<20 {
		t.Errorf("saved %+v, sent %d", got.Snapshot, got.BytesStored)
	}
	to, done := restore(t, r, checkpoint.RestoreOptions{})
	same(t, dir, to)
	if len(done.Skipped) != 0 || done.Snapshot.Seq != 1 {
		t.Errorf("restored %+v", done)
	}
	var used int64
	if err := filepath.Walk(to, func(_ string, i os.FileInfo, err error) error {
		if i.Name() == "sparse" {
			used = diskUse(i)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if used > 4<<20 {
		t.Errorf("the sparse file takes %d bytes", used)
	}
	// Nothing that changed is nothing that is stored, also for an attempt that only holds
	// the manifest.
	again := save(t, claim(t, r), dir, checkpoint.SaveOptions{})
	if again.BytesStored != 0 || again.Snapshot.Seq != 2 {
		t.Errorf("saved again: %d bytes sent, %+v", again.BytesStored, again.Snapshot)
	}
	if full := save(t, claim(t, r), dir, checkpoint.SaveOptions{Full: true}); full.BytesStored != got.BytesStored {
		t.Errorf("saved in full: %d bytes sent, want %d", full.BytesStored, got.BytesStored)
	}
	v, err := r.Verify(t.Context(), 0, 2, nil)
	if err != nil || len(v.Damage) != 0 || len(v.Snapshots) != 3 {
		t.Errorf("verify: %+v, %v", v, err)
	}
}

func TestFollowsLinkToFolder(t *testing.T) {
	dir, r := t.TempDir(), run(t, t.TempDir())
	fillFolder(t, dir)
	links := t.TempDir()
	to := filepath.Join(links, "empty")
	if err := errors.Join(os.Symlink(dir, filepath.Join(links, "from")), os.Mkdir(to, 0o755),
		os.Symlink(to, filepath.Join(links, "to"))); err != nil {
		t.Fatal(err)
	}
	if got := save(t, claim(t, r), filepath.Join(links, "from"), checkpoint.SaveOptions{}); got.Snapshot.Files == 0 {
		t.Fatal("nothing is saved")
	}
	if _, err := r.Restore(t.Context(), filepath.Join(links, "to"), checkpoint.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	same(t, dir, to)
}

// TestStoresOnlyChanges checks that a change or insertion stores only what it changed.
func TestStoresOnlyChanges(t *testing.T) {
	const size = 24 << 20
	dir, r := t.TempDir(), run(t, t.TempDir())
	before := random(1, size)
	a := claim(t, r)
	write(t, dir, "data", before)
	if got := save(t, a, dir, checkpoint.SaveOptions{}); got.BytesStored < size || got.BytesStored > size+size/100 {
		t.Fatalf("the first save sent %d of %d bytes", got.BytesStored, size)
	}
	for name, data := range map[string][]byte{
		"changed": change(before, 1, 0.05, 1<<20), "inserted": insert(before, 1, 0.05, 1<<20),
		"at the front": append([]byte("front"), before...), "cut off": before[1<<20:],
	} {
		write(t, dir, "data", data)
		if got := save(t, claim(t, r), dir, checkpoint.SaveOptions{}); got.BytesStored > size/10 {
			t.Errorf("%s: sent %d bytes, more than a tenth of %d", name, got.BytesStored, size)
		}
		write(t, dir, "data", before)
		save(t, claim(t, r), dir, checkpoint.SaveOptions{})
	}
	to, _ := restore(t, r, checkpoint.RestoreOptions{})
	same(t, dir, to)
}

func TestLeavesOutSpecialFiles(t *testing.T) {
	dir, r := t.TempDir(), run(t, t.TempDir())
	write(t, dir, "file", []byte("x"))
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := save(t, claim(t, r), dir, checkpoint.SaveOptions{})
	if len(got.Manifest.LeftOut) != 1 ||
		got.Manifest.LeftOut[0] != (checkpoint.LeftOut{Path: "socket", Why: "it is a socket"}) {
		t.Errorf("left out %+v", got.Manifest.LeftOut)
	}
}

// TestMarksChangingFilesUnsettled checks that a file that changes all the time makes the snapshot
// unsettled, which a restore does not choose by itself.
func TestMarksChangingFilesUnsettled(t *testing.T) {
	dir, r := t.TempDir(), run(t, t.TempDir())
	write(t, dir, "weights", random(1, 1<<20))
	a := claim(t, r)
	save(t, a, dir, checkpoint.SaveOptions{})
	n := 0
	touch := func(context.Context, time.Duration) error {
		n++
		write(t, dir, "weights", random(n+1, 1<<20))
		return nil
	}
	got := save(t, a, dir, checkpoint.SaveOptions{Quiet: time.Hour, Wait: touch})
	if got.Snapshot.State != checkpoint.Unsettled || got.Snapshot.Finished != "" || n != 3 {
		t.Errorf("state %q, finished %q after %d rounds", got.Snapshot.State, got.Snapshot.Finished, n)
	}
	_, done := restore(t, r, checkpoint.RestoreOptions{})
	if done.Snapshot.Seq != 1 || len(done.Skipped) != 1 || done.Skipped[0].Snapshot.Seq != 2 {
		t.Errorf("restored %d, skipped %+v", done.Snapshot.Seq, done.Skipped)
	}
	if _, done = restore(t, r, checkpoint.RestoreOptions{Seq: 2}); done.Snapshot.Seq != 2 {
		t.Errorf("restored %d, which was not asked for", done.Snapshot.Seq)
	}
	// Once it rests, the same save is complete.
	calm := func(context.Context, time.Duration) error { return nil }
	if got = save(t, a, dir, checkpoint.SaveOptions{
		Quiet: time.Hour, Wait: calm,
	}); got.Snapshot.State != checkpoint.Complete || got.Snapshot.Finished != checkpoint.Quiescent {
		t.Errorf("state %q, finished %q", got.Snapshot.State, got.Snapshot.Finished)
	}
}

func TestNewerClaimFences(t *testing.T) {
	dir, r := t.TempDir(), run(t, t.TempDir())
	write(t, dir, "weights", random(1, 1<<20))
	zombie := claim(t, r)
	save(t, zombie, dir, checkpoint.SaveOptions{})
	heir := claim(t, r)
	if _, err := zombie.Save(t.Context(), dir, checkpoint.SaveOptions{}); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the zombie saves: %v", err)
	}
	if _, err := zombie.Collect(t.Context(), checkpoint.Retention{Keep: 1}); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the zombie collects: %v", err)
	}
	if got := save(t, heir, dir, checkpoint.SaveOptions{}); got.Snapshot.Seq != 2 || got.Snapshot.Epoch != 2 {
		t.Errorf("the heir saved %+v", got.Snapshot)
	}
}

// TestRestoreKeepsExistingFiles checks that a restore replaces existing files only on request.
func TestRestoreKeepsExistingFiles(t *testing.T) {
	dir, r := t.TempDir(), run(t, t.TempDir())
	fillFolder(t, dir)
	save(t, claim(t, r), dir, checkpoint.SaveOptions{})
	to := filepath.Join(t.TempDir(), "x")
	write(t, to, "mine", []byte("precious"))
	if _, err := r.Restore(t.Context(), to, checkpoint.RestoreOptions{}); !errors.Is(err, checkpoint.ErrNotEmpty) {
		t.Fatalf("restore over a folder: %v", err)
	}
	if names(t, filepath.Dir(to)) != "x" || names(t, to) != "mine" {
		t.Fatalf("left %s: %s", names(t, filepath.Dir(to)), names(t, to))
	}
	if _, err := r.Restore(t.Context(), to, checkpoint.RestoreOptions{Replace: true}); err != nil {
		t.Fatal(err)
	}
	same(t, dir, to)
	if got := names(t, filepath.Dir(to)); got != "x" {
		t.Errorf("left %s", got)
	}
	empty := t.TempDir()
	if _, err := r.Restore(t.Context(), empty, checkpoint.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	same(t, dir, empty)
}

func names(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// TestOlderGenerationCannotClaim checks that an earlier start of a session cannot claim a run,
// while the current one can after a crash.
func TestOlderGenerationCannotClaim(t *testing.T) {
	dir, r := t.TempDir(), run(t, t.TempDir())
	write(t, dir, "a", []byte("a"))
	claimFor := func(generation int64) (*checkpoint.Attempt, error) {
		return r.ClaimFor(t.Context(), "session", generation)
	}
	first, err := claimFor(4)
	if err != nil {
		t.Fatal(err)
	}
	second, err := claimFor(5)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Save(t.Context(), dir, checkpoint.SaveOptions{}); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the earlier start saves: %v", err)
	}
	if _, err := claimFor(4); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the earlier start claims again: %v", err)
	}
	save(t, second, dir, checkpoint.SaveOptions{})
	again, err := claimFor(5)
	if err != nil {
		t.Fatalf("the same start, after a crash: %v", err)
	}
	save(t, again, dir, checkpoint.SaveOptions{})
	// A person who saves by hand keeps what is known of the series.
	if got := save(t, claim(t, r), dir, checkpoint.SaveOptions{}); got.Snapshot.Seq != 3 {
		t.Errorf("snapshot %d, want 3", got.Snapshot.Seq)
	}
	if _, err := claimFor(4); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the earlier start claims after a save by hand: %v", err)
	}
}
