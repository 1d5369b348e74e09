package checkpoint

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Evidence is knowledge about a training besides its files.
type Evidence struct {
	// Declared are declarations inside the folder ([Events.DeclaredIn]).
	Declared []Declaration
	// DonePattern is a path.Match pattern such as "*/DONE". A matching file marks its folder as
	// finished, a matching folder itself.
	DonePattern string
	// WriterExited reports that the writing process has ended.
	WriterExited bool
	// WriterKilled reports that the writing process was killed. Then a file that changed since the
	// newest snapshot, and that nothing else proves finished, may be half-written.
	WriterKilled bool
}

// checkpointUnit is a checkpoint inside the folder, which is finished, saved or left out as a
// whole.
type checkpointUnit struct {
	path string
	how  Finished
	at   time.Time
	step *int64
}

// contains reports whether a path belongs to the unit.
func (u checkpointUnit) contains(p string) bool {
	return u.path == "." || p == u.path || strings.HasPrefix(p, u.path+"/")
}

// fineSlack is how much later than a declaration to the millisecond its files may be dated: a tick of the
// kernel's clock. More would take the start of the next save for the declared one.
const fineSlack = 10 * time.Millisecond

// slack returns how much later than its declaration a file may be dated, because clocks are coarse.
func (d Declaration) slack() time.Duration {
	if d.Precise {
		return fineSlack
	}
	return time.Second
}

// judgment assesses each name of the folder.
type judgment struct {
	units []checkpointUnit
	// finished holds the evidence by index of the listing; "" leaves it to whether the file
	// changes.
	finished []Finished
	// inProgress holds the indexes of names that are still being written.
	inProgress map[int]bool
}

// judgeFiles decides how each name is known to be finished: declared, renamed, marked or exited, in
// this order.
func judgeFiles(all []foundEntry, ev Evidence) judgment {
	j := judgment{finished: make([]Finished, len(all)), inProgress: map[int]bool{}}
	there := make(map[string]int, len(all))
	for i, f := range all {
		there[f.Path] = i
	}
	last := map[string]Declaration{}
	for _, s := range ev.Declared {
		if _, ok := there[s.Path]; ok || s.Path == "." {
			last[s.Path] = s
		}
	}
	for p, s := range last {
		j.units = append(j.units, checkpointUnit{p, Declared, s.At.Add(s.slack()), s.Step})
	}
	if ev.DonePattern != "" {
		for _, f := range all {
			if ok, err := path.Match(ev.DonePattern, f.Path); err != nil || !ok {
				continue
			}
			u := checkpointUnit{path: f.Path, how: Marked, at: f.changed}
			if f.Kind != Folder {
				u.path = path.Dir(f.Path)
			}
			j.units = append(j.units, u)
		}
	}
	moved := renamedFiles(all, there)
	for i, f := range all {
		switch u, ok := j.unitOf(f.Path); {
		case ok && u.how == Declared && !f.Modified.After(u.at):
			j.finished[i] = Declared
		case moved[i]:
			j.finished[i] = Renamed
		case ok && u.how == Marked && (f.Kind == Folder || !f.Modified.After(u.at)):
			j.finished[i] = Marked
		case ev.WriterExited:
			j.finished[i] = Exited
		}
	}
	if !ev.WriterExited {
		j.findUnfinished(all)
	}
	return j
}

// unitOf returns the innermost unit of a path, the one with stronger evidence if there are two.
func (j judgment) unitOf(p string) (best checkpointUnit, ok bool) {
	for _, u := range j.units {
		if u.contains(p) &&
			(!ok || len(u.path) > len(best.path) || len(u.path) == len(best.path) && u.how == Declared) {
			best, ok = u, true
		}
	}
	return best, ok
}

// renamedFiles reports which files were renamed into place: their metadata, or that of an enclosing
// folder, changed after the last write.
func renamedFiles(all []foundEntry, there map[string]int) []bool {
	newest := make([]time.Time, len(all))
	for i := len(all) - 1; i >= 0; i-- { // a folder's content follows it
		if all[i].changed.After(newest[i]) {
			newest[i] = all[i].changed
		}
		if p, ok := there[path.Dir(all[i].Path)]; ok && newest[i].After(newest[p]) {
			newest[p] = newest[i]
		}
	}
	moved := make([]bool, len(all))
	for i, f := range all {
		p, ok := there[path.Dir(f.Path)]
		moved[i] = ok && moved[p] || f.changed.After(f.Modified) && !newest[i].After(f.changed) && f.names == 1
	}
	return moved
}

var digits = lazyregexp.New(`[0-9]+`)

// findUnfinished finds what is being written next to finished checkpoints: names of the same form
// ("step-#", or a temporary name with that prefix) in the same folder, with content at least as new
// as their newest file. The declaration time is no criterion, because the next checkpoint may begin
// within the slack of the declaration.
func (j *judgment) findUnfinished(all []foundEntry) {
	type family struct{ in, form string }
	since := map[family]time.Time{}
	of := func(u checkpointUnit) family {
		return family{path.Dir(u.path), digits.ReplaceAllString(path.Base(u.path), "#")}
	}
	for _, f := range all {
		if u, ok := j.unitOf(f.Path); ok && u.path != "." && f.Kind == File && !f.Modified.After(u.at) &&
			f.Modified.After(since[of(u)]) {
			since[of(u)] = f.Modified
		}
	}
	if len(since) == 0 {
		return
	}
	// top returns the name in the family's folder that contains a path.
	top := func(in, p string) (string, bool) {
		rest, ok := p, in == "."
		if !ok {
			rest, ok = strings.CutPrefix(p, in+"/")
		}
		name, _, _ := strings.Cut(rest, "/")
		return path.Join(in, name), ok
	}
	writing := map[string]bool{}
	for _, f := range all {
		for fam, at := range since {
			name, ok := top(fam.in, f.Path)
			if ok && !f.Modified.Before(at) && strings.Contains(fam.form, "#") &&
				strings.HasPrefix(digits.ReplaceAllString(path.Base(name), "#"), fam.form) {
				if _, finished := j.unitOf(name); !finished {
					writing[name] = true
				}
			}
		}
	}
	for i, f := range all {
		for p := f.Path; p != "."; p = path.Dir(p) {
			if writing[p] {
				j.inProgress[i] = true
				break
			}
		}
	}
}

// weakerProof returns the weaker evidence of two.
func weakerProof(x, y Finished) Finished {
	rank := map[Finished]int{Declared: 5, Renamed: 4, Marked: 3, Exited: 2, Quiescent: 1}
	if rank[y] < rank[x] {
		return y
	}
	return x
}

// overallState returns the state of a snapshot and the evidence for it: that of its checkpoints if
// there are any, else the weakest of its files.
func overallState(units []checkpointUnit, entries []Entry) (State, Finished) {
	in := func(e Entry) bool {
		return slices.ContainsFunc(units, func(u checkpointUnit) bool { return u.contains(e.Path) })
	}
	how := weakestOf(entries, func(Entry) bool { return true })
	if slices.ContainsFunc(entries, func(e Entry) bool { return e.Kind == File && in(e) }) {
		how = weakestOf(entries, in)
		for _, u := range units {
			if u.how == Marked && how == Declared {
				how = Marked
			}
		}
	}
	if how == "" {
		return Unsettled, how
	}
	return Complete, how
}
