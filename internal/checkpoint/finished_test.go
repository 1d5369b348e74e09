package checkpoint

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTheNextCheckpointIsLeftOut holds that a snapshot has no checkpoint that the training
// has not declared yet, however soon it follows the one before: it would go on from a step
// that the snapshot does not name.
func TestTheNextCheckpointIsLeftOut(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	file := func(p string, kind Kind, after time.Duration) found {
		f := found{}
		f.Path, f.Kind, f.Modified, f.changed = p, kind, at.Add(after), at.Add(after)
		return f
	}
	step := int64(20)
	declared := Saved{Path: "20", Step: &step, At: at.Add(300 * time.Millisecond)}
	for _, tc := range []struct {
		name string
		next []found
		want []string
	}{
		{"nothing follows", nil, nil},
		{"an empty folder", []found{file("30", Folder, 301*time.Millisecond)}, []string{"30"}},
		{"within the grace of the declaration", []found{file("30", Folder, 400*time.Millisecond), file("30/w", File, 350*time.Millisecond)}, []string{"30", "30/w"}},
		{"in the same tick of the clock", []found{file("30", Folder, 0), file("30/w", File, 0)}, []string{"30", "30/w"}},
		{"long after it", []found{file("30", Folder, time.Hour), file("30/w", File, time.Hour)}, []string{"30", "30/w"}},
		{"under a temporary name", []found{file("30.tmp", Folder, time.Second), file("30.tmp/w", File, time.Second)}, []string{"30.tmp", "30.tmp/w"}},
		{"one of an attempt before", []found{file("5", Folder, -time.Minute), file("5/w", File, -time.Minute)}, nil},
		{"another name", []found{file("log", File, time.Second)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := append([]found{file("20", Folder, 0), file("20/w", File, 0)}, tc.next...)
			j := judge(all, Evidence{Declared: []Saved{declared}})
			var got []string
			for _, i := range slices.Sorted(maps.Keys(j.progress)) {
				got = append(got, all[i].Path)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
		})
	}
}
