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

// SaveOptions configure a save. The zero value saves the whole folder.
type SaveOptions struct {
	Evidence Evidence
	// Workers (default 2) hash and compress, Uploads (default 4) are concurrent part uploads. Both
	// bound the memory: about 9 MiB per upload and 4 MiB per worker.
	Workers, Uploads int
	// Quiet is how long files must stay unchanged to count as finished without other evidence; Wait
	// sleeps.
	Quiet time.Duration
	Wait  func(ctx context.Context, d time.Duration) error
	// Deadline is the end of a final save; zero means none. What does not fit is taken from the
	// previous snapshot.
	Deadline time.Time
	// Full reuses nothing of the newest snapshot.
	Full bool
	// ReadAll reads also files with the size, inode and times that they had at the newest snapshot.
	ReadAll bool
	// Known are the files of the newest snapshot as an earlier process read them.
	Known FileStates
	// Rank and Ranks belong to one node of several: its manifest waits for [Attempt.Join].
	Rank, Ranks int
	// Progress receives the bytes read so far and in total.
	Progress func(done, total int64)
}

// maxReadRounds is the most passes over a folder that keeps changing.
const maxReadRounds = 3

// Result is the result of a save.
type Result struct {
	Snapshot Snapshot
	Manifest Manifest
	// BytesRead counts bytes of files, BytesStored bytes of stored parts.
	BytesRead, BytesStored int64
	// Stale lists what is missing or taken from an earlier snapshot.
	Stale []LeftOut
	// Unread counts the files that were not read again, because they are as the snapshot before
	// read them.
	Unread int64
	// Known are the files that a later save of the folder need not read again.
	Known FileStates
	// Notes are remarks for people: what was damaged in the store.
	Notes []string
}

// saveRun is one save in progress.
type saveRun struct {
	a       *Attempt
	dir     string
	o       SaveOptions
	started time.Time
	pipe    *pipeline
	// read holds the files that were read, by path.
	read map[string]*fileContent
	// total is the size to read.
	total int64
	// parts are the manifest's parts in order.
	parts []*storedPart
	// For a final save, groups are its groups and kept the paths taken from the newest snapshot.
	groups []*saveGroup
	// listed is the listing before reading, before the entries of the newest snapshot by path.
	listed []foundEntry
	before map[string]Entry
	kept   map[string]bool
	notes  []string
	// damaged are the parts of the newest snapshot that cannot be used, with the reason.
	damaged map[string]string
}

// fileContent is the content read from a file.
type fileContent struct {
	seen   foundEntry
	chunks []chunkLocation
	size   int64
	// complete reports that the file was read to its end.
	complete bool
	// unread is set if the newest snapshot has the content, so that nothing was read.
	unread bool
	// at is the time at which reading began.
	at time.Time
}

// Save stores a folder as the next and newest snapshot of the run.
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
	got := s.saved(m, snapshot.Manifest)
	got.Snapshot = snapshot
	return got, nil
}

// saved makes a stored folder the newest one, and summarizes it.
func (s *saveRun) saved(m Manifest, key string) Result {
	got := Result{
		Manifest: m, BytesRead: s.pipe.read.Load(), BytesStored: s.pipe.sent.Load(), Stale: m.staleEntries(),
		Known: FileStates{Manifest: key, Files: s.states(&m)}, Notes: s.notes,
	}
	for _, e := range m.Entries {
		if c := s.read[e.Path]; e.Kind == File && c != nil && c.unread {
			got.Unread++
		}
	}
	s.a.setNewest(&m, key, s.parts)
	s.a.known = got.Known
	return got
}

// store stores the parts of a folder and returns the manifest without storing it.
func (a *Attempt) store(ctx context.Context, dir string, o SaveOptions) (*saveRun, Manifest, error) {
	dir = resolveLinks(dir) // list the target of a link, not the link
	o.Workers, o.Uploads = max(cmp.Or(o.Workers, 2), 1), max(cmp.Or(o.Uploads, 4), 1)
	if o.Full {
		a.index = map[[32]byte]chunkLocation{}
	}
	if o.Known.Manifest == a.newestKey && a.known.Manifest != a.newestKey {
		a.known = o.Known
	}
	s := &saveRun{
		a: a, dir: dir, o: o, started: a.run.Now(), read: map[string]*fileContent{}, kept: map[string]bool{},
		before: a.newestEntries(),
	}
	work := ctx
	if !o.Deadline.IsZero() {
		var cancel context.CancelFunc
		work, cancel = context.WithTimeout(ctx, s.storeWindow())
		defer cancel()
	}
	err := s.checkParts(work)
	if err != nil {
		return nil, Manifest{}, err
	}
	if s.pipe, err = newPipeline(work, a, o.Workers, o.Uploads); err != nil {
		return nil, Manifest{}, err
	}
	m, err := s.readUntilStable(work)
	stopped := s.pipe.finish()
	if err = cmp.Or(err, stopped); err != nil && (o.Deadline.IsZero() || ctx.Err() != nil ||
		!errors.Is(err, context.DeadlineExceeded)) {
		return nil, Manifest{}, err
	}
	if err := s.fillFromNewest(&m); err != nil {
		return nil, Manifest{}, err
	}
	s.fill(&m)
	return s, m, nil
}

// storeWindow returns the time for storing parts; the rest is reserved for the manifest and HEAD.
func (s *saveRun) storeWindow() time.Duration {
	left := s.o.Deadline.Sub(s.started)
	return left - min(max(left/10, 500*time.Millisecond), 10*time.Second)
}

// readUntilStable reads the folder until two listings agree or maxReadRounds is reached.
func (s *saveRun) readUntilStable(ctx context.Context) (Manifest, error) {
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
	s.listed = before
	if !s.o.Deadline.IsZero() {
		return s.saveFinal(ctx, m, before)
	}
	for round := 1; ; round++ {
		j := judgeFiles(before, s.o.Evidence)
		if err := s.readChanged(ctx, before, j); err != nil {
			return m, err
		}
		if s.isUnproved(before, j) {
			if err := s.waitQuiet(ctx); err != nil {
				return m, err
			}
		}
		after, err := scan(s.dir)
		if err != nil {
			return m, err
		}
		j = judgeFiles(after, s.o.Evidence)
		if changed := s.compare(&m, after, j); !changed || round == maxReadRounds {
			return m, nil
		}
		before, s.listed = after, after
	}
}

// readChanged reads the files that were not read in their current state.
func (s *saveRun) readChanged(ctx context.Context, all []foundEntry, j judgment) error {
	var todo []foundEntry
	s.total = s.pipe.read.Load()
	for i, f := range all {
		if c := s.read[f.Path]; f.Kind != File || f.skipReason != "" || j.inProgress[i] || c != nil && c.complete &&
			c.seen.unchanged(f) || s.readBefore(f) {
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

// readFile reads one file into the pipeline; a file removed meanwhile is skipped.
func (s *saveRun) readFile(ctx context.Context, f foundEntry) error {
	c := &fileContent{seen: f, at: s.a.run.Now()}
	s.read[f.Path] = c
	err := s.pipe.readFile(ctx, path.Join(s.dir, f.Path), f.Size, c, func() {
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

// isUnproved reports whether a file that was read has to stay unchanged for some time to count as
// finished. One that is as the snapshot before read it has done so.
func (s *saveRun) isUnproved(all []foundEntry, j judgment) bool {
	for i, f := range all {
		if c := s.read[f.Path]; j.finished[i] == "" && (c == nil || !c.unread) {
			return true
		}
	}
	return false
}

// waitQuiet waits for SaveOptions.Quiet.
func (s *saveRun) waitQuiet(ctx context.Context) error {
	if left := s.o.Quiet - s.a.run.Now().Sub(s.started); left > 0 && s.o.Wait != nil {
		return s.o.Wait(ctx, left)
	}
	return nil
}

// compare creates the entries of the current listing. It returns true if anything differs from what
// was read.
func (s *saveRun) compare(m *Manifest, after []foundEntry, j judgment) (changed bool) {
	m.Entries, m.LeftOut = nil, nil
	there, created := map[string]bool{}, false
	before := s.before
	for i, f := range after {
		e := f.Entry
		old, same := before[f.Path]
		same = same && old.Kind == e.Kind && old.Size == e.Size && old.Modified.Equal(e.Modified) && !old.Stale &&
			old.Finished != ""
		e.Finished = cmp.Or(j.finished[i], Quiescent)
		if same && (old.Finished == Declared || old.Finished == Marked) {
			e.Finished = old.Finished // as its declaration said, perhaps on another machine
		}
		half := s.o.Evidence.WriterKilled && f.Kind == File && !same && j.finished[i] == ""
		switch c := s.read[f.Path]; {
		case f.skipReason != "":
			m.LeftOut = append(m.LeftOut, LeftOut{f.Path, 0, f.skipReason})
			continue
		case j.inProgress[i]:
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
		case !c.complete || !c.seen.unchanged(f):
			e.Finished, changed = "", true
		case half:
			e.Finished = ""
		}
		if e.Kind == Hardlink && !there[e.Target] {
			continue // left out together with its first name
		}
		there[e.Path] = true
		m.Entries = append(m.Entries, e)
	}
	m.State, m.Finished = overallState(j.units, m.Entries)
	if created && m.Finished != Declared && m.Finished != Marked {
		m.State, m.Finished = Unsettled, ""
	}
	m.Step = s.newestStep(j.units, m.Entries)
	if s.declaredRemoved(after, j, there) {
		m.State, m.Finished, changed = Unsettled, "", true
	}
	return changed
}

// declaredRemoved reports whether the training removed declared files during the save, as it does
// with old checkpoints. What remains would be no usable checkpoint.
func (s *saveRun) declaredRemoved(after []foundEntry, j judgment, there map[string]bool) bool {
	if len(s.o.Evidence.Declared) == 0 {
		return false
	}
	declared := func(p string) (checkpointUnit, bool) {
		u, ok := j.unitOf(p)
		return u, ok && u.how == Declared
	}
	if !slices.ContainsFunc(j.units, func(u checkpointUnit) bool {
		return u.how == Declared && (u.path == "." || there[u.path])
	}) {
		return true
	}
	for _, f := range after {
		if u, ok := declared(f.Path); ok && f.Kind == Folder && u.path != "." && f.Modified.After(u.at) {
			return true
		}
	}
	for _, f := range s.listed {
		if u, ok := declared(f.Path); ok && u.path != "." && !there[f.Path] && f.skipReason == "" {
			return true
		}
	}
	return false
}

// newestEntries returns the entries of the newest snapshot by path.
func (a *Attempt) newestEntries() map[string]Entry {
	all := map[string]Entry{}
	if a.newest != nil {
		for _, e := range a.newest.Entries {
			all[e.Path] = e
		}
	}
	return all
}

// newestStep returns the highest declared step of the checkpoints that are saved as they were
// declared: one that was written again since has no step. Where nothing is declared, the step of the
// newest snapshot stays that of its unchanged files.
func (s *saveRun) newestStep(units []checkpointUnit, entries []Entry) (newest *int64) {
	for _, u := range units {
		if u.step == nil || newest != nil && *u.step <= *newest {
			continue
		}
		whole, files := true, false
		for _, e := range entries {
			if e.Kind == File && u.contains(e.Path) {
				whole, files = whole && e.Finished == Declared, true
			}
		}
		if whole && (files || u.path == "." || hasEntry(entries, u.path)) {
			newest = u.step
		}
	}
	if newest != nil || s.a.newest == nil || s.a.newest.Step == nil || len(s.o.Evidence.Declared) > 0 {
		return newest
	}
	now := map[string]Entry{}
	for _, e := range entries {
		now[e.Path] = e
	}
	for _, old := range s.a.newest.Entries {
		if e := now[old.Path]; old.Kind == File && old.Finished == Declared && e.Finished != Declared {
			return nil
		}
	}
	return s.a.newest.Step
}

func hasEntry(entries []Entry, path string) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool { return e.Path == path })
}

// fill assigns the entries their chunks once all parts are stored.
func (s *saveRun) fill(m *Manifest) {
	index := map[*storedPart]int{}
	place := func(p chunkLocation) Chunk {
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
				e.Chunks[k] = place(s.a.newestChunk(c))
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
	read := s.pipe.read.Load()
	if took := m.At.Sub(m.StartedAt).Seconds(); took > 0 {
		m.BytesPerSecond = int64(float64(read) / took)
	}
	if s.a.newest != nil && s.a.newest.BytesPerSecond > 0 && read < minMeasuredBytes {
		m.BytesPerSecond = s.a.newest.BytesPerSecond // a final save would expect to be as slow
	}
}

// staleEntries lists the names that the snapshot does not hold in their current state.
func (m *Manifest) staleEntries() []LeftOut {
	var list []LeftOut
	for _, e := range m.Entries {
		if e.Stale {
			list = append(list, LeftOut{e.Path, e.Size, "as an earlier snapshot has it"})
		}
	}
	return list
}
