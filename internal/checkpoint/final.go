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

// group is what a final save saves or leaves as a whole: a checkpoint that was declared or
// marked, a folder in the folder, or all files that are in no other folder.
type group struct {
	name   string
	newest time.Time
	files  []found
	// unread is how much there is to read: what is not as the newest snapshot has it.
	unread int64
	// same says that the newest snapshot has it as it is, by sizes and times.
	same bool
	// why says why it was not saved; empty while it may be.
	why string
}

// loose names the group of the files that are in no other folder.
const loose = "."

// groupOf returns the group of a path.
func groupOf(units []unit, e Entry) string {
	in, found := "", false
	for _, u := range units {
		if u.has(e.Path) && (!found || len(u.path) > len(in)) {
			in, found = u.path, true
		}
	}
	if found {
		return in
	}
	top, rest, _ := strings.Cut(e.Path, "/")
	if rest == "" && e.Kind != Folder {
		return loose
	}
	return top
}

// planFinal decides how a folder is saved in the time that is left: the newest group first.
// It reads nothing.
func planFinal(all []found, j judgment, newest *Manifest) []*group {
	had := map[string]Entry{}
	if newest != nil {
		for _, e := range newest.Entries {
			had[e.Path] = e
		}
	}
	by := map[string]*group{}
	var list []*group
	for i, f := range all {
		if f.why != "" || j.progress[i] {
			continue
		}
		name := groupOf(j.units, f.Entry)
		g := by[name]
		if g == nil {
			g = &group{name: name, same: true}
			by[name] = g
			list = append(list, g)
		}
		g.files = append(g.files, f)
		if f.Kind != Folder && f.Modified.After(g.newest) {
			g.newest = f.Modified
		}
		if e, ok := had[f.Path]; !ok || e.Kind != f.Kind || e.Size != f.Size || e.Target != f.Target || f.Kind == File &&
			!e.Modified.Equal(f.Modified) || e.Finished == "" {
			g.same = false
		}
		if f.Kind == File {
			g.unread += f.Size
		}
	}
	for _, u := range j.units {
		if g := by[u.path]; g != nil && u.at.After(g.newest) {
			g.newest = u.at
		}
	}
	// A group that lost a file is not as it was.
	if newest != nil {
		there := make(map[string]bool, len(all))
		for _, f := range all {
			there[f.Path] = true
		}
		for _, e := range newest.Entries {
			if g := by[groupOf(j.units, e)]; g != nil && !there[e.Path] {
				g.same = false
			}
		}
	}
	for _, g := range list {
		if g.same {
			g.unread = 0
		}
	}
	slices.SortStableFunc(list, func(x, y *group) int {
		return cmp.Or(y.newest.Compare(x.newest), cmp.Compare(x.name, y.name))
	})
	return list
}

// fits says whether so much can be saved in the time that is left at a rate in bytes a
// second. An unknown rate fits: the clock decides then.
func fits(unread, rate int64, left time.Duration) bool {
	return rate <= 0 || float64(unread)/float64(rate) <= left.Seconds()
}

// measured is how much has to be read before a rate counts as measured.
const measured = 32 << 20

// final reads groups, the newest first, as long as the time is enough.
func (s *saving) final(ctx context.Context, m Manifest, before []found) (Manifest, error) {
	j := judge(before, s.o.Evidence)
	s.groups = planFinal(before, j, s.a.newest)
	var rate int64
	if s.a.newest != nil {
		rate = s.a.newest.BytesPerSecond
	}
	for _, g := range s.groups {
		s.total += g.unread
	}
	end := s.started.Add(s.window())
	for _, g := range s.groups {
		now := s.a.run.Now()
		if done := s.pipe.read.Load(); done >= measured && now.After(s.started) {
			rate = int64(float64(done) / now.Sub(s.started).Seconds())
		}
		if ctx.Err() != nil {
			g.why = "the deadline came first"
		} else if !g.same && !fits(g.unread, rate, end.Sub(now)) {
			g.why = fmt.Sprintf("%d bytes at the measured %d bytes a second do not fit in the %s that are left", g.unread, rate,
				end.Sub(now).Round(100*time.Millisecond))
		}
		if g.why != "" || g.same {
			continue
		}
		for _, f := range g.files {
			if f.Kind != File {
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
	for i := range before { // what was not read stands for itself
		f := before[i]
		if f.Kind == File && s.read[f.Path] == nil {
			s.read[f.Path] = &content{seen: f, whole: true}
		}
	}
	s.compare(&m, after, judge(after, s.o.Evidence))
	return m, nil
}

// late replaces what a final save did not store in time by what the newest snapshot has of
// it, as wholes: files of two saves never mix in one group.
func (s *saving) late(m *Manifest) error {
	if s.o.Deadline.IsZero() {
		return nil
	}
	by := map[string]*group{}
	for _, g := range s.groups {
		by[g.name] = g
		for _, f := range g.files {
			c := s.read[f.Path]
			if g.why != "" || g.same || f.Kind != File || c == nil {
				continue
			}
			if !c.whole || slices.ContainsFunc(c.chunks, func(p place) bool { return !p.part.done }) ||
				sum(c.chunks) != c.size {
				g.why = "the deadline came before it was stored"
			}
		}
	}
	of := map[string]*group{}
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
		if g := of[e.Path]; g != nil && g.why == "" && !g.same || e.Kind == Folder {
			entries[e.Path] = e
		}
	}
	had := map[*group]bool{}
	if s.a.newest != nil {
		for _, e := range s.a.newest.Entries {
			g := of[e.Path]
			if g == nil {
				g = by[groupOf(nil, e)]
			}
			if _, ok := entries[e.Path]; g == nil || g.why == "" && !g.same || ok && e.Kind == Folder {
				continue
			}
			e.Stale = e.Kind == File && g.why != ""
			e.Chunks = slices.Clone(e.Chunks)
			entries[e.Path] = e
			s.kept[e.Path] = true
			had[g] = true
		}
	}
	m.Entries = ordered(entries)
	for _, g := range s.groups {
		if g.why == "" {
			continue
		}
		m.State = Partial
		why := g.why
		if had[g] {
			why += "; it is as the snapshot before has it"
		}
		m.LeftOut = append(m.LeftOut, LeftOut{g.name, g.unread, why})
	}
	if !slices.ContainsFunc(s.groups, func(g *group) bool { return g.why == "" && !g.same }) && m.State == Partial {
		return fmt.Errorf("%w: %s: %s", ErrNoTime, s.groups[0].name, s.groups[0].why)
	}
	return nil
}

// weakestOf returns the weakest proof of the files that match.
func weakestOf(entries []Entry, match func(Entry) bool) Finished {
	weakest := Declared
	for _, e := range entries {
		if e.Kind == File && match(e) {
			weakest = weakerProof(weakest, e.Finished)
		}
	}
	return weakest
}

func sum(chunks []place) (size int64) {
	for _, c := range chunks {
		size += c.Size
	}
	return size
}

// ordered returns entries so that folders stand before what is in them and links after what
// they lead to. What has no folder or no target is not restorable and is left out.
func ordered(entries map[string]Entry) []Entry {
	list := make([]Entry, 0, len(entries))
	for _, e := range entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(x, y Entry) int {
		return cmp.Or(cmp.Compare(b2i(x.Kind == Hardlink), b2i(y.Kind == Hardlink)),
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

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
