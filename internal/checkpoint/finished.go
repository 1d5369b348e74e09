package checkpoint

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Evidence is what is known of the work of a training, besides its files.
type Evidence struct {
	// Declared are declarations of paths in the folder ([Events.In]).
	Declared []Saved
	// Done is a pattern of paths in the folder, as path.Match has it: "*/DONE". A file that
	// it matches says that the folder around it is finished, a folder that it is itself.
	Done string
	// Exited says that the process that writes the folder has ended.
	Exited bool
}

// unit is a checkpoint within the folder: what is finished, saved and left out as a whole.
type unit struct {
	path string
	how  Finished
	at   time.Time
	step *int64
}

// has says whether a path is the unit's.
func (u unit) has(p string) bool {
	return u.path == "." || p == u.path || strings.HasPrefix(p, u.path+"/")
}

// grace is how much later than its declaration a file may be dated, because clocks of file
// systems tick more coarsely than the one that the training reads.
const grace = time.Second

// judgment is what the evidence says of each name of the folder.
type judgment struct {
	units []unit
	// how is by the index of what was found; the empty one leaves it to whether it changes.
	how []Finished
	// progress are the indexes of what is still being written.
	progress map[int]bool
}

// judge says of each name how it is known to be finished, in the order: declared, renamed,
// marked, exited.
func judge(all []found, ev Evidence) judgment {
	j := judgment{how: make([]Finished, len(all)), progress: map[int]bool{}}
	there := make(map[string]int, len(all))
	for i, f := range all {
		there[f.Path] = i
	}
	last := map[string]Saved{}
	for _, s := range ev.Declared {
		if _, ok := there[s.Path]; ok || s.Path == "." {
			last[s.Path] = s
		}
	}
	for p, s := range last {
		j.units = append(j.units, unit{p, Declared, s.At.Add(grace), s.Step})
	}
	if ev.Done != "" {
		for _, f := range all {
			if ok, err := path.Match(ev.Done, f.Path); err != nil || !ok {
				continue
			}
			u := unit{path: f.Path, how: Marked, at: f.changed}
			if f.Kind != Folder {
				u.path = path.Dir(f.Path)
			}
			j.units = append(j.units, u)
		}
	}
	moved := renamed(all, there)
	for i, f := range all {
		switch u, ok := j.unitOf(f.Path); {
		case ok && u.how == Declared && !f.Modified.After(u.at):
			j.how[i] = Declared
		case moved[i]:
			j.how[i] = Renamed
		case ok && u.how == Marked && (f.Kind == Folder || !f.Modified.After(u.at)):
			j.how[i] = Marked
		case ev.Exited:
			j.how[i] = Exited
		}
	}
	if !ev.Exited {
		j.unfinished(all)
	}
	return j
}

// unitOf returns the innermost unit of a path; of two, the stronger.
func (j judgment) unitOf(p string) (best unit, ok bool) {
	for _, u := range j.units {
		if u.has(p) && (!ok || len(u.path) > len(best.path) || len(u.path) == len(best.path) && u.how == Declared) {
			best, ok = u, true
		}
	}
	return best, ok
}

// renamed says which files are known to have been renamed into place: their metadata, or
// that of a folder around them, changed after the last write, as a rename does.
func renamed(all []found, there map[string]int) []bool {
	newest := make([]time.Time, len(all))
	for i := len(all) - 1; i >= 0; i-- { // what is in a folder stands after it
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

// unfinished finds what is still being written next to finished checkpoints: a name of the
// same form ("step-#", or a temporary name that begins so), in the same folder, with
// something that is as new as the newest file of them, or newer. The time of a declaration
// does not do: the next checkpoint may be under way within its grace.
func (j *judgment) unfinished(all []found) {
	type family struct{ in, form string }
	since := map[family]time.Time{}
	of := func(u unit) family {
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
	// top returns the name in the folder of a family that a path is below.
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
				j.progress[i] = true
				break
			}
		}
	}
}

// weakerProof returns what says less of whether something is finished.
func weakerProof(x, y Finished) Finished {
	rank := map[Finished]int{Declared: 5, Renamed: 4, Marked: 3, Exited: 2, Quiescent: 1}
	if rank[y] < rank[x] {
		return y
	}
	return x
}

// overall says how a snapshot is known to be finished, and in which state it is, from its
// entries: as its checkpoints are, else as the weakest of its files is.
func overall(units []unit, entries []Entry) (State, Finished) {
	in := func(e Entry) bool { return slices.ContainsFunc(units, func(u unit) bool { return u.has(e.Path) }) }
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
