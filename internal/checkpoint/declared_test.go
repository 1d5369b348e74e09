package checkpoint

import (
	"testing"
	"time"
)

// TestDeclaredFileRemovedDuringSave checks that a snapshot is incomplete if the training removed
// declared files during the save.
func TestDeclaredFileRemovedDuringSave(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at20, at30 := at.Add(time.Minute), at.Add(2*time.Minute)
	dir := func(p string, modified time.Time) foundEntry {
		f := foundEntry{}
		f.Path, f.Kind, f.Modified = p, Folder, modified
		return f
	}
	file := func(p string, modified time.Time) foundEntry {
		f := foundEntry{}
		f.Path, f.Kind, f.Modified = p, File, modified
		return f
	}
	whole20 := []foundEntry{dir("20", at20), file("20/a", at20), file("20/b", at20)}
	next := []foundEntry{dir("30", at30), file("30/a", at30), file("30/b", at30)}
	declared := []Declaration{{Path: "20", At: at20.Add(time.Second)}}
	both := append([]Declaration{{Path: "30", At: at30.Add(time.Second)}}, declared...)
	for _, tc := range []struct {
		name          string
		declared      []Declaration
		before, after []foundEntry
		want          bool
	}{
		{"nothing is declared", nil, next, next, false},
		{"it is as declared", declared, whole20, whole20, false},
		{"the next is written", declared, whole20, append(next[:3:3], whole20...), false},
		{"a file is removed while it is read", declared, whole20, whole20[:2], true},
		{
			"some files were removed before it is read", declared, []foundEntry{dir("20", at30), whole20[1]},
			[]foundEntry{dir("20", at30), whole20[1]}, true,
		},
		{"it is gone, and only what is not declared is there", declared, whole20, next, true},
		{"it is gone, and the next is declared", both, append(next[:3:3], whole20...), next, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &saveRun{o: SaveOptions{Evidence: Evidence{Declared: tc.declared}}, listed: tc.before}
			there := map[string]bool{}
			for _, f := range tc.after {
				there[f.Path] = true
			}
			if got := s.declaredRemoved(tc.after, judgeFiles(tc.after, s.o.Evidence), there); got != tc.want {
				t.Errorf("lost: got %v, want %v", got, tc.want)
			}
		})
	}
}
