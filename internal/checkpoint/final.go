package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// saveGroup is saved or left out as a whole by a final save: a declared or marked checkpoint, a
// top-level folder, or all files outside of folders.
type saveGroup struct {
	name   string
	newest time.Time
	files  []foundEntry
	// bytesToRead is the size of what differs from the newest snapshot.
	bytesToRead int64
	// unchanged reports that the newest snapshot holds the same sizes and times.
	unchanged bool
	// why explains why the group is left out; empty while it is not.
	why string
}

// rootGroup is the name of the group of files outside of folders.
const rootGroup = "."

// groupOf returns the name of a path's group.
func groupOf(units []checkpointUnit, e Entry) string {
	in, found := "", false
	for _, u := range units {
		if u.contains(e.Path) && (!found || len(u.path) > len(in)) {
			in, found = u.path, true
		}
	}
	if found {
		return in
	}
	top, rest, _ := strings.Cut(e.Path, "/")
	if rest == "" && e.Kind != Folder {
		return rootGroup
	}
	return top
}

// planFinal orders the groups for the remaining time, newest first, without reading files.
func (s *saveRun) planFinal(all []foundEntry, j judgment) []*saveGroup {
	had, newest := s.before, s.a.newest
	by := map[string]*saveGroup{}
	var list []*saveGroup
	for i, f := range all {
		if f.skipReason != "" || j.inProgress[i] {
			continue
		}
		name := groupOf(j.units, f.Entry)
		g := by[name]
		if g == nil {
			g = &saveGroup{name: name, unchanged: true}
			by[name] = g
			list = append(list, g)
		}
		g.files = append(g.files, f)
		if f.Kind != Folder && f.Modified.After(g.newest) {
			g.newest = f.Modified
		}
		if e, ok := had[f.Path]; !ok || e.Kind != f.Kind || e.Size != f.Size ||
			e.Target != f.Target || f.Kind == File &&
			!e.Modified.Equal(f.Modified) || e.Finished == "" || s.isDamaged(e) {
			g.unchanged = false
		}
		if f.Kind == File && !s.readBefore(f) {
			g.bytesToRead += f.Size
		}
	}
	for _, u := range j.units {
		if g := by[u.path]; g != nil && u.at.After(g.newest) {
			g.newest = u.at
		}
	}
	// A group that lost a file has changed.
	if newest != nil {
		there := make(map[string]bool, len(all))
		for _, f := range all {
			there[f.Path] = true
		}
		for _, e := range newest.Entries {
			if g := by[groupOf(j.units, e)]; g != nil && !there[e.Path] {
				g.unchanged = false
			}
		}
	}
	for _, g := range list {
		if g.unchanged {
			g.bytesToRead = 0
		}
	}
	slices.SortStableFunc(list, func(x, y *saveGroup) int {
		return cmp.Or(y.newest.Compare(x.newest), cmp.Compare(x.name, y.name))
	})
	return list
}

// fits reports whether an amount can be saved in the remaining time at a rate in bytes per second.
// An unknown rate fits: then the clock decides.
func fits(unread, rate int64, left time.Duration) bool {
	return rate <= 0 || float64(unread)/float64(rate) <= left.Seconds()
}

// minMeasuredBytes is the amount to read before a rate counts as measured.
const minMeasuredBytes = 32 << 20

// saveFinal reads groups, newest first, while time is left.
func (s *saveRun) saveFinal(ctx context.Context, m Manifest, before []foundEntry) (Manifest, error) {
	j := judgeFiles(before, s.o.Evidence)
	s.groups = s.planFinal(before, j)
	var rate int64
	if s.a.newest != nil {
		rate = s.a.newest.BytesPerSecond
	}
	for _, g := range s.groups {
		s.total += g.bytesToRead
	}
	end := s.started.Add(s.storeWindow())
	for _, g := range s.groups {
		now := s.a.run.Now()
		if done := s.pipe.read.Load(); done >= minMeasuredBytes && now.After(s.started) {
			rate = int64(float64(done) / now.Sub(s.started).Seconds())
		}
		if ctx.Err() != nil {
			g.why = "the deadline came first"
		} else if !g.unchanged && !fits(g.bytesToRead, rate, end.Sub(now)) {
			g.why = fmt.Sprintf("%d bytes at the measured %d bytes a second do not fit in the %s that are left",
				g.bytesToRead,
				rate,
				end.Sub(now).Round(100*time.Millisecond))
		}
		if g.why != "" || g.unchanged {
			continue
		}
		for _, f := range g.files {
			if f.Kind != File || s.read[f.Path] != nil {
				continue
			}
			if err := s.readFile(ctx, f); errors.Is(err, context.DeadlineExceeded) {
				g.why = "the deadline came while it was read"
				break
			} else if err != nil {
				return m, err
			}
		}
	}
	after, err := scan(s.dir)
	if err != nil {
		return m, err
	}
	for i := range before { // unread files count as unchanged
		f := before[i]
		if f.Kind == File && s.read[f.Path] == nil {
			s.read[f.Path] = &fileContent{seen: f, complete: true}
		}
	}
	s.compare(&m, after, judgeFiles(after, s.o.Evidence))
	return m, nil
}

// fillFromNewest replaces groups that were not stored in time by those of the newest snapshot. A
// group never mixes files of two saves.
func (s *saveRun) fillFromNewest(m *Manifest) error {
	if s.o.Deadline.IsZero() {
		return nil
	}
	by := map[string]*saveGroup{}
	for _, g := range s.groups {
		by[g.name] = g
		for _, f := range g.files {
			c := s.read[f.Path]
			if g.why != "" || g.unchanged || f.Kind != File || c == nil {
				continue
			}
			if !c.complete || slices.ContainsFunc(c.chunks, func(p chunkLocation) bool { return !p.part.done }) ||
				totalSize(c.chunks) != c.size {
				g.why = "the deadline came before it was stored"
			}
		}
	}
	of := map[string]*saveGroup{}
	for _, g := range s.groups {
		for _, f := range g.files {
			of[f.Path] = g
		}
	}
	if m.State == Unsettled {
		for _, e := range m.Entries {
			if g := of[e.Path]; g != nil && e.Kind == File && e.Finished == "" && g.why == "" {
				g.why = "it changed while it was read"
			}
		}
		m.State, m.Finished = Complete, weakestOf(m.Entries, func(e Entry) bool {
			return of[e.Path] != nil && of[e.Path].why == ""
		})
	}
	entries := map[string]Entry{}
	for _, e := range m.Entries {
		if g := of[e.Path]; g != nil && g.why == "" && !g.unchanged || e.Kind == Folder {
			entries[e.Path] = e
		}
	}
	had, lost := map[*saveGroup]bool{}, map[*saveGroup]bool{}
	if s.a.newest != nil {
		groupIn := func(e Entry) *saveGroup {
			if g := of[e.Path]; g != nil {
				return g
			}
			return by[groupOf(nil, e)]
		}
		for _, e := range s.a.newest.Entries {
			if g := groupIn(e); g != nil && s.isDamaged(e) {
				lost[g] = true
			}
		}
		for _, e := range s.a.newest.Entries {
			g := groupIn(e)
			if lost[g] && g.why != "" {
				continue
			}
			if _, ok := entries[e.Path]; g == nil || g.why == "" && !g.unchanged || ok && e.Kind == Folder {
				continue
			}
			e.Stale = e.Kind == File && g.why != ""
			e.Chunks = slices.Clone(e.Chunks)
			entries[e.Path] = e
			s.kept[e.Path] = true
			had[g] = true
		}
	}
	m.Entries = sortEntries(entries)
	for _, g := range s.groups {
		if g.why == "" {
			continue
		}
		m.State = Partial
		why := g.why
		if had[g] {
			why += "; it is as the snapshot before has it"
		}
		if lost[g] {
			why += "; what the snapshot before has of it is damaged"
		}
		m.LeftOut = append(m.LeftOut, LeftOut{g.name, g.bytesToRead, why})
	}
	if !slices.ContainsFunc(s.groups, func(g *saveGroup) bool { return g.why == "" && !g.unchanged }) &&
		m.State == Partial {
		return fmt.Errorf("%w: %s: %s", ErrNoTime, s.groups[0].name, s.groups[0].why)
	}
	return nil
}

// weakestOf returns the weakest evidence among the matching files.
func weakestOf(entries []Entry, match func(Entry) bool) Finished {
	weakest := Declared
	for _, e := range entries {
		if e.Kind == File && match(e) {
			weakest = weakerProof(weakest, e.Finished)
		}
	}
	return weakest
}

func totalSize(chunks []chunkLocation) (size int64) {
	for _, c := range chunks {
		size += c.Size
	}
	return size
}

// sortEntries sorts folders before their content and links after their targets. Entries without
// parent or target are not restorable and are dropped.
func sortEntries(entries map[string]Entry) []Entry {
	list := make([]Entry, 0, len(entries))
	for _, e := range entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(x, y Entry) int {
		return cmp.Or(cmp.Compare(boolToInt(x.Kind == Hardlink), boolToInt(y.Kind == Hardlink)),
			slices.Compare(strings.Split(x.Path, "/"), strings.Split(y.Path, "/")))
	})
	kept := list[:0]
	for _, e := range list {
		parent := path.Dir(e.Path)
		if e.Kind == Hardlink && entries[e.Target].Kind != File || parent != "." && entries[parent].Kind != Folder {
			delete(entries, e.Path)
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
