package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// exited is a save after the writer ended, which waits for nothing.
var exited = checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}}

// later is a run whose clock is past the margin for coarse clocks.
func later(r checkpoint.Run) checkpoint.Run {
	r.Now = func() time.Time { return time.Now().Add(10 * time.Second) }
	return r
}

func TestReadsOnlyFilesThatMayHaveChanged(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, dir string)
		o      func(o *checkpoint.SaveOptions)
		clock  func(checkpoint.Run) checkpoint.Run
		unread int64
	}{
		{name: "unchanged", unread: 2},
		{name: "read all", o: func(o *checkpoint.SaveOptions) { o.ReadAll = true }},
		{name: "full", o: func(o *checkpoint.SaveOptions) { o.Full = true }},
		{name: "of another manifest", o: func(o *checkpoint.SaveOptions) { o.Known.Manifest += "x" }},
		{name: "changed shortly before the last save", clock: func(r checkpoint.Run) checkpoint.Run { return r }},
		{name: "another size", unread: 1, change: func(t *testing.T, dir string) {
			write(t, dir, "a", random(7, 200_001))
		}},
		{name: "same size and time", unread: 1, change: func(t *testing.T, dir string) {
			at := filepath.Join(dir, "a")
			was, err := os.Stat(at)
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, "a", random(7, 200_000))
			if err := os.Chtimes(at, was.ModTime(), was.ModTime()); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "another file in its place", unread: 1, change: func(t *testing.T, dir string) {
			was, err := os.Stat(filepath.Join(dir, "a"))
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, "new", random(7, 200_000))
			if err := os.Chtimes(filepath.Join(dir, "new"), was.ModTime(), was.ModTime()); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "a")); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "another name", unread: 1, change: func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		for _, again := range []bool{true, false} {
			if again && tc.name == "of another manifest" {
				continue
			}
			by := map[bool]string{true: " by the same process", false: " by the next process"}[again]
			t.Run(tc.name+by, func(t *testing.T) {
				dir, r := t.TempDir(), run(t, t.TempDir())
				if tc.clock == nil {
					tc.clock = later
				}
				write(t, dir, "a", random(1, 200_000))
				write(t, dir, "b", random(2, 200_000))
				a := claim(t, tc.clock(r))
				first := save(t, a, dir, exited)
				if tc.change != nil {
					tc.change(t, dir)
				}
				o := exited
				if !again {
					a, o.Known = claim(t, tc.clock(r)), first.Known
				}
				if tc.o != nil {
					tc.o(&o)
				}
				got := save(t, a, dir, o)
				if want := 400_000 - 200_000*tc.unread; got.Unread != tc.unread || got.BytesRead/1000*1000 != want {
					t.Errorf("%d files not read, %d bytes read; want %d and %d", got.Unread, got.BytesRead, tc.unread, want)
				}
				to, _ := restore(t, r, checkpoint.RestoreOptions{})
				same(t, dir, to)
			})
		}
	}
}

// TestSavesDamagedPartsAgain damages a part of the newest snapshot: the next save repairs what the
// folder still has, and is complete for that.
func TestSavesDamagedPartsAgain(t *testing.T) {
	flip := func(t *testing.T, part string) {
		data, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(part, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, damage := range map[string]func(t *testing.T, part string){
		"missing": func(t *testing.T, part string) {
			if err := os.Remove(part); err != nil {
				t.Fatal(err)
			}
		},
		"cut short": func(t *testing.T, part string) {
			if err := os.Truncate(part, 1000); err != nil {
				t.Fatal(err)
			}
		},
		"a bit is flipped": flip,
		"a bit is flipped and the time set back": func(t *testing.T, part string) {
			was, err := os.Stat(part)
			if err != nil {
				t.Fatal(err)
			}
			flip(t, part)
			if err := os.Chtimes(part, was.ModTime(), was.ModTime()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, again := range []bool{true, false} {
			for _, final := range []bool{true, false} {
				t.Run(name+map[bool]string{true: ", same process", false: ", next process"}[again]+
					map[bool]string{true: ", final", false: ""}[final], func(t *testing.T) {
					store, dir := t.TempDir(), t.TempDir()
					r := later(run(t, store))
					write(t, dir, "a/weights", random(1, 300_000))
					a := claim(t, r)
					first := save(t, a, dir, exited)
					parts, err := filepath.Glob(filepath.Join(store, "parts/*/*"))
					if err != nil || len(parts) != 1 {
						t.Fatal(parts, err)
					}
					damage(t, parts[0])
					o := exited
					if !again {
						a, o.Known = claim(t, r), first.Known
					}
					if final {
						o.Deadline = r.Now().Add(time.Minute)
					}
					got := save(t, a, dir, o)
					if got.Snapshot.State != checkpoint.Complete || len(got.Notes) != 1 || got.BytesStored < 300_000 {
						t.Errorf("saved %+v, %d bytes, notes %q", got.Snapshot, got.BytesStored, got.Notes)
					}
					v, err := r.Verify(t.Context(), got.Snapshot.Seq, 1, nil)
					if err != nil || len(v.Damage) > 0 {
						t.Errorf("the snapshot is damaged: %+v, %v", v.Damage, err)
					}
					to, done := restore(t, r, checkpoint.RestoreOptions{})
					same(t, dir, to)
					if len(done.Skipped) > 0 {
						t.Errorf("skipped %+v", done.Skipped)
					}
				})
			}
		}
	}
}

// TestFinalSaveLeavesOutWhatIsDamaged: what does not fit is not taken from a damaged part.
func TestFinalSaveLeavesOutWhatIsDamaged(t *testing.T) {
	store, dir := t.TempDir(), t.TempDir()
	r := run(t, store)
	now, step := time.Now(), time.Second
	r.Now = func() time.Time { now = now.Add(step); return now }
	write(t, dir, "big/weights", random(1, 3<<20))
	save(t, claim(t, r), dir, exited)
	parts, err := filepath.Glob(filepath.Join(store, "parts/*/*"))
	if err != nil || len(parts) != 1 {
		t.Fatal(parts, err)
	}
	if err := os.Remove(parts[0]); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "small/weights", random(2, 1000))
	o := exited
	o.Deadline = now.Add(1500 * time.Millisecond)
	step = 0
	got := save(t, claim(t, r), dir, o)
	if got.Snapshot.State != checkpoint.Partial || len(got.Manifest.LeftOut) != 1 {
		t.Errorf("saved %+v without %+v", got.Snapshot, got.Manifest.LeftOut)
	}
	v, err := r.Verify(t.Context(), got.Snapshot.Seq, 1, nil)
	if err != nil || len(v.Damage) > 0 {
		t.Errorf("the snapshot is damaged: %+v, %v", v.Damage, err)
	}
}
