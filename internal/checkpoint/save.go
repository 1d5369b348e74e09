package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"
)

// SaveOptions say how a folder is saved. The zero value saves all of it.
type SaveOptions struct {
	Evidence Evidence
	// Workers hash and compress, Uploads are parts under way: 2 and 4 unless told. Both
	// bound the memory, about 9 MiB for each upload and 4 MiB for each worker.
	Workers, Uploads int
	// Quiet is how long files have to stay as they are to count as finished where nothing
	// else says so; Wait lets that time pass.
	Quiet time.Duration
	Wait  func(ctx context.Context, d time.Duration) error
	// Deadline is when a final save has to be over; zero is none. What does not fit by then
	// is left as the snapshot before has it.
	Deadline time.Time
	// Full uses nothing again of what the newest snapshot names.
	Full bool
	// Rank and Ranks are of one node of several: its manifest waits for [Attempt.Join].
	Rank, Ranks int
	// Progress is told the bytes read so far, and all that there are to read.
	Progress func(done, total int64)
}

// rounds is how often a folder that changes is looked at again.
const rounds = 3

// Result is what a save did.
type Result struct {
	Snapshot Snapshot
	Manifest Manifest
	// Read are bytes of files, Sent bytes of parts that were stored.
	Read, Sent int64
	// Stale are units that the snapshot has as an earlier one had them, or not at all.
	Stale []LeftOut
}

// saving is one save under way.
type saving struct {
	a       *Attempt
	dir     string
	o       SaveOptions
	started time.Time
	pipe    *pipeline
	// read are the files that were read, by path.
	read map[string]*content
	// total is how much there is to read.
	total int64
	// parts are those of the manifest, in its order.
	parts []*stored
	// groups and kept are of a final save: what is saved or left as a whole, and the paths
	// whose entries are those of the newest snapshot.
	groups []*group
	// before is what was found before it was read.
	before []found
	kept   map[string]bool
}

// content is what reading a file gave.
type content struct {
	seen   found
	chunks []place
	size   int64
	// whole says that the file was read to its end.
	whole bool
}

// Save stores a folder as the next snapshot of the run, and makes it the newest.
func (a *Attempt) Save(ctx context.Context, dir string, o SaveOptions) (Result, error) {
	s, m, err := a.store(ctx, dir, o)
	if err != nil {
		return Result{}, fmt.Errorf("save %s: %w", dir, err)
	}
	files, size := m.totals()
	snapshot, err := a.commit(ctx, m, files, size)
	if err != nil {
		return Result{}, fmt.Errorf("save %s: %w", dir, err)
	}
	m.Seq = snapshot.Seq
	a.hold(&m, s.parts)
	got := s.result(m)
	got.Snapshot = snapshot
	return got, nil
}

// result is what was stored of a folder.
func (s *saving) result(m Manifest) Result {
	return Result{Manifest: m, Read: s.pipe.read.Load(), Sent: s.pipe.sent.Load(), Stale: m.stale()}
}

// store stores the parts of a folder and returns its manifest, which is not stored.
func (a *Attempt) store(ctx context.Context, dir string, o SaveOptions) (*saving, Manifest, error) {
	dir = resolved(dir) // a link is not listed as the folder that it leads to
	o.Workers, o.Uploads = max(cmp.Or(o.Workers, 2), 1), max(cmp.Or(o.Uploads, 4), 1)
	if o.Full {
		a.index = map[[32]byte]place{}
	}
	s := &saving{a: a, dir: dir, o: o, started: a.run.Now(), read: map[string]*content{}, kept: map[string]bool{}}
	work := ctx
	if !o.Deadline.IsZero() {
		var cancel context.CancelFunc
		work, cancel = context.WithTimeout(ctx, s.window())
		defer cancel()
	}
	var err error
	if s.pipe, err = newPipeline(work, a, o.Workers, o.Uploads); err != nil {
		return nil, Manifest{}, err
	}
	m, err := s.all(work)
	stopped := s.pipe.stop()
	if err = cmp.Or(err, stopped); err != nil && (o.Deadline.IsZero() || ctx.Err() != nil ||
		!errors.Is(err, context.DeadlineExceeded)) {
		return nil, Manifest{}, err
	}
	if err := s.late(&m); err != nil {
		return nil, Manifest{}, err
	}
	s.fill(&m)
	return s, m, nil
}

// window is how long a final save may store parts: the rest is for the manifest and HEAD.
func (s *saving) window() time.Duration {
	left := s.o.Deadline.Sub(s.started)
	return left - min(max(left/10, 500*time.Millisecond), 10*time.Second)
}

// all reads the folder, until it is the same before and after or has changed too often.
func (s *saving) all(ctx context.Context) (Manifest, error) {
	m := Manifest{
		Schema: Schema, Seq: s.a.nextSeq(), Epoch: s.a.head.Epoch, Attempt: s.a.head.Attempt, Writer: s.a.head.Writer,
		StartedAt: s.started.UTC(),
	}
	if s.o.Ranks > 0 {
		m.Rank, m.Ranks = &s.o.Rank, s.o.Ranks
	}
	before, err := scan(s.dir)
	if err != nil {
		return m, err
	}
	s.before = before
	if !s.o.Deadline.IsZero() {
		return s.final(ctx, m, before)
	}
	for round := 1; ; round++ {
		j := judge(before, s.o.Evidence)
		if err := s.readAll(ctx, before, j); err != nil {
			return m, err
		}
		if slices.Contains(j.how, "") {
			if err := s.quiet(ctx); err != nil {
				return m, err
			}
		}
		after, err := scan(s.dir)
		if err != nil {
			return m, err
		}
		j = judge(after, s.o.Evidence)
		if changed := s.compare(&m, after, j); !changed || round == rounds {
			return m, nil
		}
		before, s.before = after, after
	}
}

// readAll reads the files that were not read as they are.
func (s *saving) readAll(ctx context.Context, all []found, j judgment) error {
	var todo []found
	s.total = s.pipe.read.Load()
	for i, f := range all {
		if c := s.read[f.Path]; f.Kind != File || f.why != "" || j.progress[i] || c != nil && c.whole && c.seen.same(f) {
			continue
		}
		todo = append(todo, f)
		s.total += f.Size
	}
	for _, f := range todo {
		if err := s.readFile(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// readFile reads one file into the pipeline. One that was removed meanwhile is not read.
func (s *saving) readFile(ctx context.Context, f found) error {
	c := &content{seen: f}
	s.read[f.Path] = c
	err := s.pipe.file(ctx, path.Join(s.dir, f.Path), f.Size, c, func() {
		if s.o.Progress != nil {
			s.o.Progress(s.pipe.read.Load(), s.total)
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		delete(s.read, f.Path)
		return nil
	}
	return err
}

// quiet waits until the files had the time to change that the options give them.
func (s *saving) quiet(ctx context.Context) error {
	if left := s.o.Quiet - s.a.run.Now().Sub(s.started); left > 0 && s.o.Wait != nil {
		return s.o.Wait(ctx, left)
	}
	return nil
}

// compare makes the entries of what is in the folder now, and says whether any of it is
// not what was read.
func (s *saving) compare(m *Manifest, after []found, j judgment) (changed bool) {
	m.Entries, m.LeftOut = nil, nil
	there, created := map[string]bool{}, false
	for i, f := range after {
		e := f.Entry
		e.Finished = cmp.Or(j.how[i], Quiescent)
		switch c := s.read[f.Path]; {
		case f.why != "":
			m.LeftOut = append(m.LeftOut, LeftOut{f.Path, 0, f.why})
			continue
		case j.progress[i]:
			if f.Kind == File {
				m.LeftOut = append(m.LeftOut, LeftOut{
					f.Path, f.Size, "it is still being written: no one declared or marked it as finished",
				})
			}
			continue
		case f.Kind != File:
		case c == nil:
			m.LeftOut = append(m.LeftOut, LeftOut{f.Path, f.Size, "it was created while the folder was read"})
			changed, created = true, true
			continue
		case !c.whole || !c.seen.same(f):
			e.Finished, changed = "", true
		}
		if e.Kind == Hardlink && !there[e.Target] {
			continue // its first name is left out, and it with it
		}
		there[e.Path] = true
		m.Entries = append(m.Entries, e)
	}
	m.State, m.Finished = overall(j.units, m.Entries)
	if created && m.Finished != Declared && m.Finished != Marked {
		m.State, m.Finished = Unsettled, ""
	}
	m.Step = newestStep(j.units, there)
	if s.declaredLost(after, j, there) {
		m.State, m.Finished, changed = Unsettled, "", true
	}
	return changed
}

// declaredLost says whether the training removed what it declared while it was saved, as it
// does with old checkpoints: half of one, or those alone that are not declared yet, are no
// checkpoint to go on from.
func (s *saving) declaredLost(after []found, j judgment, there map[string]bool) bool {
	if len(s.o.Evidence.Declared) == 0 {
		return false
	}
	declared := func(p string) (unit, bool) {
		u, ok := j.unitOf(p)
		return u, ok && u.how == Declared
	}
	if !slices.ContainsFunc(j.units, func(u unit) bool { return u.how == Declared && (u.path == "." || there[u.path]) }) {
		return true
	}
	for _, f := range after {
		if u, ok := declared(f.Path); ok && f.Kind == Folder && u.path != "." && f.Modified.After(u.at) {
			return true
		}
	}
	for _, f := range s.before {
		if u, ok := declared(f.Path); ok && u.path != "." && !there[f.Path] && f.why == "" {
			return true
		}
	}
	return false
}

// newestStep is the highest step that was declared of a path that is saved.
func newestStep(units []unit, there map[string]bool) (newest *int64) {
	for _, u := range units {
		if u.step != nil && (there[u.path] || u.path == ".") && (newest == nil || *u.step > *newest) {
			newest = u.step
		}
	}
	return newest
}

// fill gives the entries their chunks, once all parts are stored.
func (s *saving) fill(m *Manifest) {
	index := map[*stored]int{}
	place := func(p place) Chunk {
		at, ok := index[p.part]
		if !ok {
			at = len(m.Parts)
			index[p.part] = at
			m.Parts = append(m.Parts, p.part.Part)
			s.parts = append(s.parts, p.part)
		}
		p.Chunk.Part = at
		return p.Chunk
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		switch c := s.read[e.Path]; {
		case e.Kind != File:
		case s.kept[e.Path]:
			for k, c := range e.Chunks {
				e.Chunks[k] = place(s.a.held(c))
			}
		default:
			e.Size = c.size
			for _, p := range c.chunks {
				e.Chunks = append(e.Chunks, place(p))
			}
		}
	}
	m.At = s.a.run.Now().UTC()
	m.NewBytes = s.pipe.sent.Load()
	if took := m.At.Sub(m.StartedAt).Seconds(); took > 0 {
		m.BytesPerSecond = int64(float64(s.pipe.read.Load()) / took)
	}
}

// stale lists what the snapshot does not have as the folder has it.
func (m *Manifest) stale() []LeftOut {
	var list []LeftOut
	for _, e := range m.Entries {
		if e.Stale {
			list = append(list, LeftOut{e.Path, e.Size, "as an earlier snapshot has it"})
		}
	}
	return list
}
