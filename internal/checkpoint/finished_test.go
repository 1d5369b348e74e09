package checkpoint

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var clock = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

// listing parses a listing: "ckpt/12/w 5" was written at 5 s; "w 5 9" was renamed at 9 s.
func listing(t *testing.T, lines ...string) []foundEntry {
	t.Helper()
	all := map[string]Entry{}
	seen := map[string]foundEntry{}
	for _, line := range lines {
		words := strings.Fields(line)
		at := func(i int) time.Time {
			d, err := time.ParseDuration(words[min(i, len(words)-1)] + "s")
			if err != nil {
				t.Fatal(err)
			}
			return clock.Add(d)
		}
		e := Entry{Path: strings.TrimSuffix(words[0], "/"), Kind: File, Modified: at(1), Size: 1}
		if strings.HasSuffix(words[0], "/") {
			e.Kind, e.Size = Folder, 0
		}
		seen[e.Path] = foundEntry{Entry: e, changed: at(2), names: 1}
		all[e.Path] = e
		for p := path.Dir(e.Path); p != "."; p = path.Dir(p) {
			if _, ok := seen[p]; !ok {
				seen[p] = foundEntry{Entry: Entry{Path: p, Kind: Folder, Modified: at(1)}, changed: at(1), names: 1}
				all[p] = seen[p].Entry
			}
		}
	}
	var list []foundEntry
	for _, e := range sortEntries(all) {
		list = append(list, seen[e.Path])
	}
	return list
}

func saved(p string, at int) Declaration {
	return Declaration{Path: p, At: clock.Add(time.Duration(at) * time.Second)}
}

func precise(p string, at int) Declaration {
	d := saved(p, at)
	d.Precise = true
	return d
}

func TestJudgesFinishedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		folder   []string
		evidence Evidence
		want     map[string]Finished // by file; "writing" means in progress
	}{
		"nothing is known":   {[]string{"w 5", "x/v 6"}, Evidence{}, map[string]Finished{"w": "", "x/v": ""}},
		"the process exited": {[]string{"w 5"}, Evidence{WriterExited: true}, map[string]Finished{"w": Exited}},
		"declared": {
			[]string{"ckpt/12/w 5", "ckpt/12/v 6", "log 9"}, Evidence{Declared: []Declaration{saved("ckpt/12", 7)}},
			map[string]Finished{"ckpt/12/w": Declared, "ckpt/12/v": Declared, "log": ""}},
		"the folder itself is declared": {
			[]string{"w 5", "v 9"}, Evidence{Declared: []Declaration{saved(".", 6)}},
			map[string]Finished{"w": Declared, "v": ""},
		},
		"written to after it was declared": {
			[]string{"ckpt/12/w 5", "ckpt/12/v 9"}, Evidence{Declared: []Declaration{saved("ckpt/12", 7)}},
			map[string]Finished{"ckpt/12/w": Declared, "ckpt/12/v": ""}},
		"written to within the second of its declaration": {
			[]string{"w 5.9"}, Evidence{Declared: []Declaration{saved("w", 5)}}, map[string]Finished{"w": Declared},
		},
		"declared to the millisecond": {
			[]string{"w 5.005"}, Evidence{Declared: []Declaration{precise("w", 5)}},
			map[string]Finished{"w": Declared},
		},
		"written to within the second of its declaration to the millisecond": {
			[]string{"w 5.1"}, Evidence{Declared: []Declaration{precise("w", 5)}}, map[string]Finished{"w": ""},
		},
		"declared again": {
			[]string{"last/w 9"}, Evidence{Declared: []Declaration{saved("last", 5), saved("last", 10)}},
			map[string]Finished{"last/w": Declared},
		},
		"declared and not there": {
			[]string{"w 5"}, Evidence{Declared: []Declaration{saved("ckpt/12", 7)}}, map[string]Finished{"w": ""},
		},
		"the next is being written": {
			[]string{"ckpt/12/w 5", "ckpt/13/w 9", "ckpt/13.tmp-7/w 9", "ckpt/9/w 1", "ckpt/latest 9", "src/x 9"},
			Evidence{Declared: []Declaration{saved("ckpt/12", 7)}},
			map[string]Finished{
				"ckpt/12/w": Declared, "ckpt/13/w": "writing", "ckpt/13.tmp-7/w": "writing",
				"ckpt/9/w": "", "ckpt/latest": "",
				"src/x": "",
			}},
		"the next is being written, in the folder itself": {
			[]string{"step-12.bin 5", "step-13.bin 9"}, Evidence{Declared: []Declaration{saved("step-12.bin", 7)}},
			map[string]Finished{"step-12.bin": Declared, "step-13.bin": "writing"}},
		"renamed": {
			[]string{"w 5 9", "v 5 5"}, Evidence{}, map[string]Finished{"w": Renamed, "v": ""},
		},
		"a folder that was renamed": {
			[]string{"12/ 6 9", "12/w 5", "12/v 6"}, Evidence{}, map[string]Finished{"12/w": Renamed, "12/v": Renamed},
		},
		"written to after it was renamed": {
			[]string{"12/ 6 9", "12/w 5", "12/v 10"}, Evidence{}, map[string]Finished{"12/w": "", "12/v": ""},
		},
		"a marker": {
			[]string{"12/DONE 7", "12/w 5", "13/w 6"}, Evidence{DonePattern: "*/DONE"},
			map[string]Finished{"12/DONE": Marked, "12/w": Marked, "13/w": ""},
		},
		"a marker, and the next is written": {
			[]string{"12/DONE 7", "12/w 5", "13/w 9"}, Evidence{DonePattern: "*/DONE"},
			map[string]Finished{"12/DONE": Marked, "12/w": Marked, "13/w": "writing"},
		},
		"a marker older than what it marks": {
			[]string{
				"12/DONE 7", "12/w 9",
			}, Evidence{DonePattern: "*/DONE"}, map[string]Finished{"12/DONE": Marked, "12/w": ""},
		},
		"a pattern of the checkpoint itself": {
			[]string{"ck-12/ 7", "ck-12/w 6"}, Evidence{DonePattern: "ck-*"}, map[string]Finished{"ck-12/w": Marked},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := listing(t, c.folder...)
			j := judgeFiles(all, c.evidence)
			got := map[string]Finished{}
			for i, f := range all {
				if f.Kind != File {
					continue
				}
				if got[f.Path] = j.finished[i]; j.inProgress[i] {
					got[f.Path] = "writing"
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
}

func TestOverallState(t *testing.T) {
	entries := []Entry{
		{Path: "12/w", Kind: File, Finished: Declared}, {Path: "log", Kind: File, Finished: Quiescent},
		{Path: "grows", Kind: File},
	}
	for name, c := range map[string]struct {
		units   []checkpointUnit
		entries []Entry
		state   State
		how     Finished
	}{
		"a checkpoint decides": {
			[]checkpointUnit{{path: "12", how: Declared}}, entries, Complete, Declared,
		},
		"without one, the weakest does":    {nil, entries[:2], Complete, Quiescent},
		"without one, a change breaks it":  {nil, entries, Unsettled, ""},
		"a checkpoint that changes is not": {[]checkpointUnit{{path: "grows", how: Declared}}, entries, Unsettled, ""},
		"a marker says marker":             {[]checkpointUnit{{path: "12", how: Marked}}, entries, Complete, Marked},
	} {
		if state, how := overallState(c.units, c.entries); state != c.state || how != c.how {
			t.Errorf("%s: %s %q, want %s %q", name, state, how, c.state, c.how)
		}
	}
}

func TestReadsEvents(t *testing.T) {
	dir, work := t.TempDir(), t.TempDir()
	text := `{"event":"step","step":11,"at":"2026-11-22T10:00:00Z"}
{"event":"saved","path":"ckpt/12","step":12,"at":"2026-11-22T10:00:05Z"}
not JSON
{"event":"saved","path":"` + filepath.Join(work, "ckpt", "13") + `","at":"2026-11-22T10:00:06.5Z"}
{"event":"saved","path":"/elsewhere","at":"2026-11-22T10:00:07Z"}
{"event":"step","step":14,"at":"2026-11-22T10:00:08Z"}
{"event":"step","step":15,"at":"2026-11-22T10:00:09Z"`
	if err := os.WriteFile(filepath.Join(dir, EventsFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := ReadEvents(dir)
	if err != nil || e.Step == nil || *e.Step != 14 || len(e.Saved) != 3 || e.InvalidLines != 1 {
		t.Fatalf("events %+v, %v", e, err)
	}
	twelve := int64(12)
	want := []Declaration{
		{Path: "ckpt/12", Step: &twelve, At: clock.Add(5 * time.Second)},
		{Path: "ckpt/13", At: clock.Add(6500 * time.Millisecond), Precise: true},
	}
	if diff := cmp.Diff(want, e.DeclaredIn(work, work)); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if in := e.DeclaredIn(filepath.Join(work, "ckpt"), work); len(in) != 2 || in[0].Path != "12" {
		t.Errorf("in the folder itself: %+v", in)
	}
	if none, err := ReadEvents(t.TempDir()); err != nil || len(none.Saved) != 0 {
		t.Errorf("no file: %+v, %v", none, err)
	}
}

// TestLeavesOutUndeclaredCheckpoint checks that a snapshot holds no undeclared checkpoint, however
// soon it follows the declared one: the training would resume from a step that the snapshot does
// not name.
func TestLeavesOutUndeclaredCheckpoint(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	file := func(p string, kind Kind, after time.Duration) foundEntry {
		f := foundEntry{}
		f.Path, f.Kind, f.Modified, f.changed = p, kind, at.Add(after), at.Add(after)
		return f
	}
	step := int64(20)
	declared := Declaration{Path: "20", Step: &step, At: at.Add(300 * time.Millisecond)}
	for _, tc := range []struct {
		name string
		next []foundEntry
		want []string
	}{
		{"nothing follows", nil, nil},
		{"an empty folder", []foundEntry{file("30", Folder, 301*time.Millisecond)}, []string{"30"}},
		{
			"within the grace of the declaration",
			[]foundEntry{file("30", Folder, 400*time.Millisecond), file("30/w", File, 350*time.Millisecond)},
			[]string{"30", "30/w"},
		},
		{
			"in the same tick of the clock", []foundEntry{file("30", Folder, 0), file("30/w", File, 0)},
			[]string{"30", "30/w"},
		},
		{
			"long after it", []foundEntry{file("30", Folder, time.Hour), file("30/w", File, time.Hour)},
			[]string{"30", "30/w"},
		},
		{
			"under a temporary name", []foundEntry{
				file("30.tmp", Folder, time.Second), file("30.tmp/w", File, time.Second),
			},
			[]string{"30.tmp", "30.tmp/w"},
		},
		{
			"one of an attempt before", []foundEntry{file("5", Folder, -time.Minute), file("5/w", File, -time.Minute)},
			nil,
		},
		{"another name", []foundEntry{file("log", File, time.Second)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := append([]foundEntry{file("20", Folder, 0), file("20/w", File, 0)}, tc.next...)
			j := judgeFiles(all, Evidence{Declared: []Declaration{declared}})
			var got []string
			for _, i := range slices.Sorted(maps.Keys(j.inProgress)) {
				got = append(got, all[i].Path)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
		})
	}
}
