package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// Attempt is the writer of a run until a newer attempt claims it. It is not safe for concurrent
// use.
type Attempt struct {
	run     Run
	head    Head
	version string
	// newest is the manifest of the newest snapshot, whose chunks are reused; nil before the first.
	newest *Manifest
	// newestKey is the key of newest, and known the files that it has as this machine read them.
	newestKey string
	known     FileStates
	// index locates the reusable chunks: those of newest and those that this attempt stored.
	index map[[32]byte]chunkLocation
	parts []*storedPart
	// Notes are remarks about the claim for people.
	Notes []string
}

// chunkLocation is the location of a stored chunk.
type chunkLocation struct {
	part *storedPart
	Chunk
}

// Head returns the last known HEAD.
func (a *Attempt) Head() Head { return a.head }

// ReadHead reads HEAD. It returns ErrNotFound if the run was never claimed.
func (r Run) ReadHead(ctx context.Context) (h Head, version string, err error) {
	err = retryDamaged(func() error {
		o, err := r.Store.Get(ctx, HeadKey, MaxHead)
		if err != nil {
			return fmt.Errorf("read %s: %w", HeadKey, err)
		}
		version = o.Version
		h, err = DecodeHead(o.Data)
		return err
	})
	return h, version, err
}

// retryDamaged reads damaged objects up to three times, because the response may be damaged rather
// than the object.
func retryDamaged(read func() error) (err error) {
	for range 3 {
		if err = read(); !errors.Is(err, ErrDamaged) {
			return err
		}
	}
	return err
}

// Claim makes the caller the only writer of the run by writing the next epoch into HEAD on the
// version that it read. Earlier attempts can change nothing afterwards. It returns ErrFenced when a
// concurrent claim wins.
func (r Run) Claim(ctx context.Context, writer string) (*Attempt, error) {
	return r.ClaimFor(ctx, writer, 0)
}

// ClaimFor is Claim for a writer in a series, such as the starts of a session. It also returns
// ErrFenced if a later generation has claimed the run; within a generation a writer may claim again
// after a crash. Generation 0 belongs to no series and claims over any.
func (r Run) ClaimFor(ctx context.Context, writer string, generation int64) (*Attempt, error) {
	a := &Attempt{run: r}
	old, version, err := r.ReadHead(ctx)
	switch {
	case errors.Is(err, ErrNotFound):
	case errors.Is(err, ErrDamaged):
		if old, err = r.rebuildHead(ctx); err != nil {
			return nil, fmt.Errorf("claim the run: %w", err)
		}
		a.Notes = append(a.Notes,
			fmt.Sprintf("HEAD was damaged; it is written again from the %d manifests that are in the store",
				len(old.Snapshots)))
	case err != nil:
		return nil, fmt.Errorf("claim the run: %w", err)
	}
	if generation > 0 && old.Generation > generation {
		return nil, fmt.Errorf("claim the run: generation %d of %s is there, and this is %d: %w",
			old.Generation, old.Writer,
			generation, ErrFenced)
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // rand.Read never fails
	if store, ok := r.Store.(interface{ Conditional() bool }); !r.Conditional && !(ok && store.Conditional()) {
		if err := r.probeConditions(ctx, hex.EncodeToString(random[:])); err != nil {
			return nil, fmt.Errorf("claim the run: %w", err)
		}
	}
	if rolled := r.CheckRolledBack(old.Snapshots); rolled != nil {
		a.Notes = append(a.Notes, rolled.Error())
	}
	h := old
	h.Schema, h.Epoch, h.Revision = Schema, old.Epoch+1, old.Revision+1
	h.Attempt, h.Writer, h.ClaimedAt = fmt.Sprintf("%d-%s", h.Epoch,
		hex.EncodeToString(random[:])), writer, r.Now().UTC()
	h.Generation = max(old.Generation, generation)
	a.version = version
	if err := a.writeHead(ctx, h); err != nil {
		return nil, fmt.Errorf("claim the run: %w", err)
	}
	return a, a.loadNewest(ctx, -1)
}

// loadNewest reads the newest manifest for reuse. Without it, everything is stored again.
func (a *Attempt) loadNewest(ctx context.Context, rank int) error {
	a.index = map[[32]byte]chunkLocation{}
	for _, s := range a.head.Snapshots[:min(1, len(a.head.Snapshots))] {
		key := s.Manifest
		m, err := a.run.snapshotManifest(ctx, s)
		if err == nil && rank >= 0 && rank < len(m.Nodes) {
			key = m.Nodes[rank].Manifest
			m, err = a.run.ReadManifest(ctx, key)
		}
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) {
			a.Notes = append(a.Notes,
				fmt.Sprintf("the manifest of snapshot %d cannot be read, so everything is stored again: %v", s.Seq,
					err))
			return nil
		}
		if err != nil {
			return err
		}
		if len(m.Nodes) == 0 {
			a.setNewest(&m, key, m.storedParts())
		}
	}
	return nil
}

// writeHead replaces HEAD or returns ErrFenced. After a lost response it reads HEAD back to see
// whether the write succeeded.
func (a *Attempt) writeHead(ctx context.Context, h Head) error {
	data, err := encodeHead(h)
	if err != nil {
		return err
	}
	version, err := a.run.Store.Replace(ctx, HeadKey, data, a.version)
	if err == nil {
		a.head, a.version = h, version
		return nil
	}
	if !errors.Is(err, ErrConflict) {
		return fmt.Errorf("write %s: %w", HeadKey, err)
	}
	o, readErr := a.run.Store.Get(ctx, HeadKey, MaxHead)
	if readErr != nil {
		return fmt.Errorf("write %s: read back after a conflict: %w", HeadKey, readErr)
	}
	if bytes.Equal(o.Data, data) {
		a.head, a.version = h, o.Version
		return nil
	}
	now, decodeErr := DecodeHead(o.Data)
	if decodeErr != nil {
		return fmt.Errorf("write %s: %w", HeadKey, decodeErr)
	}
	if now.Attempt == a.head.Attempt && a.head.Attempt != "" {
		// An earlier write that was given up arrived late.
		a.head, a.version = now, o.Version
		return errLateWrite
	}
	return fmt.Errorf("write %s: epoch %d of %s is there: %w", HeadKey, now.Epoch, now.Writer, ErrFenced)
}

// errLateWrite means that HEAD holds a given-up write of this attempt: try again on top of it.
var errLateWrite = errors.New("an earlier write of this attempt arrived late")

// updateHead replaces HEAD by an edited copy.
func (a *Attempt) updateHead(ctx context.Context, edit func(h *Head)) error {
	for {
		h := a.head
		h.Snapshots = slices.Clone(h.Snapshots)
		h.Revision++
		edit(&h)
		if err := a.writeHead(ctx, h); !errors.Is(err, errLateWrite) {
			return err
		}
	}
}

// nextSeq returns the number of the next snapshot.
func (a *Attempt) nextSeq() int64 {
	if len(a.head.Snapshots) == 0 {
		return 1
	}
	return a.head.Snapshots[0].Seq + 1
}

// commit stores a manifest whose parts are stored and makes it the newest of the run.
func (a *Attempt) commit(ctx context.Context, m Manifest, files, size int64) (Snapshot, error) {
	data, key, err := encodeManifest(m)
	if err != nil {
		return Snapshot{}, err
	}
	k, _ := parseManifestKey(key)
	if err := m.check(k); err != nil {
		return Snapshot{}, fmt.Errorf("check manifest %d: %w", m.Seq, err)
	}
	// The key contains the content's hash and the attempt, so an existing object is identical.
	if err := a.run.Store.Create(ctx, key, data); err != nil && !errors.Is(err, ErrExists) {
		return Snapshot{}, fmt.Errorf("store %s: %w", key, err)
	}
	s := Snapshot{
		Seq: m.Seq, Epoch: m.Epoch, At: m.At, State: m.State, Finished: m.Finished, Step: m.Step, Manifest: key,
		SHA256: k.sum,
		Files:  files, Bytes: size, NewBytes: m.NewBytes}
	if len(a.head.Snapshots) >= MaxSnapshots {
		return Snapshot{}, fmt.Errorf("the run has %d snapshots, which is the limit: collect old ones first",
			len(a.head.Snapshots))
	}
	late := false
	err = a.updateHead(ctx, func(h *Head) {
		late = false
		if len(h.Snapshots) > 0 && h.Snapshots[0].Seq >= s.Seq {
			late = true // a given-up commit took this number
			return
		}
		h.Snapshots = slices.Insert(h.Snapshots, 0, s)
	})
	if err == nil && late && a.head.Snapshots[0].Manifest != s.Manifest {
		m.Seq = a.nextSeq()
		return a.commit(ctx, m, files, size)
	}
	return s, err
}

// ReadManifest reads and verifies a manifest.
func (r Run) ReadManifest(ctx context.Context, key string) (m Manifest, err error) {
	err = retryDamaged(func() error {
		o, err := r.Store.Get(ctx, key, MaxManifest)
		if err != nil {
			return fmt.Errorf("read %s: %w", key, err)
		}
		m, err = DecodeManifest(key, o.Data)
		return err
	})
	return m, err
}

// snapshotManifest reads the manifest of a snapshot and compares it with HEAD.
func (r Run) snapshotManifest(ctx context.Context, s Snapshot) (Manifest, error) {
	m, err := r.ReadManifest(ctx, s.Manifest)
	if err != nil {
		return m, err
	}
	files, size := m.totals()
	if len(m.Nodes) > 0 {
		files, size = s.Files, s.Bytes // totals of all ranks
	}
	step := m.Step == nil && s.Step == nil || m.Step != nil && s.Step != nil && *m.Step == *s.Step
	if m.State != s.State || m.Finished != s.Finished || !step || !m.At.Equal(s.At) || files != s.Files ||
		size != s.Bytes || m.NewBytes != s.NewBytes {
		return m, fmt.Errorf("read %s: it is not what %s says of snapshot %d: %w", s.Manifest,
			HeadKey, s.Seq, ErrDamaged)
	}
	return m, nil
}

// Check reads the manifest of a snapshot and returns what is wrong with it.
func (r Run) Check(ctx context.Context, s Snapshot) error {
	_, err := r.snapshotManifest(ctx, s)
	return err
}

// rebuildHead reconstructs a damaged HEAD from the manifests in the store. Its epoch is their
// highest; a claim on it gets a random suffix that no earlier attempt has.
func (r Run) rebuildHead(ctx context.Context) (Head, error) {
	h := Head{Schema: Schema}
	var keys []string
	err := r.Store.List(ctx, manifestPrefix, func(i Info) error {
		if _, ok := parseManifestKey(i.Key); ok {
			keys = append(keys, i.Key)
		}
		return nil
	})
	if err != nil {
		return h, err
	}
	// Newest first by number, then epoch: of two manifests with one number the later attempt's
	// counts.
	slices.SortFunc(keys, func(x, y string) int { return compareKeys(y, x) })
	for _, key := range keys {
		k, _ := parseManifestKey(key)
		h.Epoch = max(h.Epoch, k.epoch)
		if n := len(h.Snapshots); n > 0 && (h.Snapshots[n-1].Seq == k.seq || n == MaxSnapshots) {
			continue
		}
		m, err := r.ReadManifest(ctx, key)
		files, size := m.totals()
		for _, n := range m.Nodes {
			var share Manifest
			if share, err = r.ReadManifest(ctx, n.Manifest); err != nil {
				break
			}
			f, b := share.totals()
			files, size = files+f, size+b
		}
		if isBroken(err) {
			continue
		}
		if err != nil {
			return h, err
		}
		h.Snapshots = append(h.Snapshots, Snapshot{
			Seq: m.Seq, Epoch: m.Epoch, At: m.At, State: m.State, Finished: m.Finished, Step: m.Step,
			Manifest: key, SHA256: k.sum, Files: files, Bytes: size, NewBytes: m.NewBytes})
	}
	return h, nil
}

func compareKeys(x, y string) int {
	a, _ := parseManifestKey(x)
	b, _ := parseManifestKey(y)
	return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.epoch, b.epoch), cmp.Compare(x, y))
}

// totals returns the number and total size of the files of a manifest.
func (m *Manifest) totals() (files, size int64) {
	for _, e := range m.Entries {
		if e.Kind == File {
			files++
			size += e.Size
		}
	}
	return files, size
}
