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

// Attempt holds a run for writing, until a newer attempt claims it. It is not safe for use
// by several goroutines.
type Attempt struct {
	run     Run
	head    Head
	version string
	// newest is the manifest that the newest snapshot has: what it names can be used again.
	// It is nil before the first.
	newest *Manifest
	// index finds chunks again: in the parts of newest, and in what this attempt stored.
	index map[[32]byte]place
	parts []*stored
	// Notes say what a person should know of the claim.
	Notes []string
}

// place is where a chunk is stored.
type place struct {
	part *stored
	Chunk
}

// Head returns HEAD as this attempt knows it.
func (a *Attempt) Head() Head { return a.head }

// ReadHead reads HEAD. It returns ErrNotFound for a run that never was claimed.
func (r Run) ReadHead(ctx context.Context) (h Head, version string, err error) {
	err = again(func() error {
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

// again reads up to three times what is damaged: it may be the answer that is, and not the
// object.
func again(read func() error) (err error) {
	for range 3 {
		if err = read(); !errors.Is(err, ErrDamaged) {
			return err
		}
	}
	return err
}

// Claim makes the caller the only writer of the run: it writes the next epoch into HEAD, on
// the version that it read. Attempts before it can change nothing more. It returns
// ErrFenced when another attempt claimed the run at the same moment.
func (r Run) Claim(ctx context.Context, writer string) (*Attempt, error) {
	return r.ClaimFor(ctx, writer, 0)
}

// ClaimFor is Claim for a writer that is one of a series, such as the starts of a session:
// it returns ErrFenced as well where a later generation has claimed the run. Within a
// generation a writer may claim again, after a crash. Generation 0 is of no series, and
// claims over any.
func (r Run) ClaimFor(ctx context.Context, writer string, generation int64) (*Attempt, error) {
	a := &Attempt{run: r}
	old, version, err := r.ReadHead(ctx)
	switch {
	case errors.Is(err, ErrNotFound):
	case errors.Is(err, ErrDamaged):
		if old, err = r.rebuild(ctx); err != nil {
			return nil, fmt.Errorf("claim the run: %w", err)
		}
		a.Notes = append(a.Notes,
			fmt.Sprintf("HEAD was damaged; it is written again from the %d manifests that are in the store",
				len(old.Snapshots)))
	case err != nil:
		return nil, fmt.Errorf("claim the run: %w", err)
	}
	if generation > 0 && old.Generation > generation {
		return nil, fmt.Errorf("claim the run: generation %d of %s is there, and this is %d: %w", old.Generation, old.Writer,
			generation, ErrFenced)
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
	if store, ok := r.Store.(interface{ Conditional() bool }); !r.Conditional && !(ok && store.Conditional()) {
		if err := r.probe(ctx, hex.EncodeToString(random[:])); err != nil {
			return nil, fmt.Errorf("claim the run: %w", err)
		}
	}
	if rolled := r.RolledBack(old.Snapshots); rolled != nil {
		a.Notes = append(a.Notes, rolled.Error())
	}
	h := old
	h.Schema, h.Epoch, h.Revision = Schema, old.Epoch+1, old.Revision+1
	h.Attempt, h.Writer, h.ClaimedAt = fmt.Sprintf("%d-%s", h.Epoch, hex.EncodeToString(random[:])), writer, r.Now().UTC()
	h.Generation = max(old.Generation, generation)
	a.version = version
	if err := a.write(ctx, h); err != nil {
		return nil, fmt.Errorf("claim the run: %w", err)
	}
	return a, a.load(ctx, -1)
}

// load reads the newest manifest, so that what it names can be used again. A manifest that
// is damaged or not there costs time, not work: everything is stored again.
func (a *Attempt) load(ctx context.Context, rank int) error {
	a.index = map[[32]byte]place{}
	for _, s := range a.head.Snapshots[:min(1, len(a.head.Snapshots))] {
		m, err := a.run.manifest(ctx, s)
		if err == nil && rank >= 0 && rank < len(m.Nodes) {
			m, err = a.run.ReadManifest(ctx, m.Nodes[rank].Manifest)
		}
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) {
			a.Notes = append(a.Notes,
				fmt.Sprintf("the manifest of snapshot %d cannot be read, so everything is stored again: %v", s.Seq, err))
			return nil
		}
		if err != nil {
			return err
		}
		if len(m.Nodes) == 0 {
			a.hold(&m, m.storedParts())
		}
	}
	return nil
}

// write replaces HEAD, or says that the run is another's. After a lost answer it reads
// back whether what is there is ours.
func (a *Attempt) write(ctx context.Context, h Head) error {
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
		// An earlier write of ours arrived after we gave it up.
		a.head, a.version = now, o.Version
		return errLate
	}
	return fmt.Errorf("write %s: epoch %d of %s is there: %w", HeadKey, now.Epoch, now.Writer, ErrFenced)
}

// errLate says that HEAD is a write of this attempt that was given up; try again on top.
var errLate = errors.New("an earlier write of this attempt arrived late")

// change replaces HEAD by what edit makes of the present one.
func (a *Attempt) change(ctx context.Context, edit func(h *Head)) error {
	for {
		h := a.head
		h.Snapshots = slices.Clone(h.Snapshots)
		h.Revision++
		edit(&h)
		if err := a.write(ctx, h); !errors.Is(err, errLate) {
			return err
		}
	}
}

// nextSeq is the number of the next snapshot.
func (a *Attempt) nextSeq() int64 {
	if len(a.head.Snapshots) == 0 {
		return 1
	}
	return a.head.Snapshots[0].Seq + 1
}

// commit stores a manifest whose parts are stored, and makes it the newest of the run.
func (a *Attempt) commit(ctx context.Context, m Manifest, files, size int64) (Snapshot, error) {
	data, key, err := encodeManifest(m)
	if err != nil {
		return Snapshot{}, err
	}
	k, _ := parseManifestKey(key)
	if err := m.check(k); err != nil {
		return Snapshot{}, fmt.Errorf("check manifest %d: %w", m.Seq, err)
	}
	// Its key says its content and its attempt, so one that is there is this one.
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
	err = a.change(ctx, func(h *Head) {
		late = false
		if len(h.Snapshots) > 0 && h.Snapshots[0].Seq >= s.Seq {
			late = true // a commit that was given up took this number
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
	err = again(func() error {
		o, err := r.Store.Get(ctx, key, MaxManifest)
		if err != nil {
			return fmt.Errorf("read %s: %w", key, err)
		}
		m, err = DecodeManifest(key, o.Data)
		return err
	})
	return m, err
}

// manifest reads and verifies the manifest of a snapshot, which has to be as HEAD says.
func (r Run) manifest(ctx context.Context, s Snapshot) (Manifest, error) {
	m, err := r.ReadManifest(ctx, s.Manifest)
	if err != nil {
		return m, err
	}
	files, size := m.totals()
	if len(m.Nodes) > 0 {
		files, size = s.Files, s.Bytes // those of all ranks
	}
	step := m.Step == nil && s.Step == nil || m.Step != nil && s.Step != nil && *m.Step == *s.Step
	if m.State != s.State || m.Finished != s.Finished || !step || !m.At.Equal(s.At) || files != s.Files ||
		size != s.Bytes || m.NewBytes != s.NewBytes {
		return m, fmt.Errorf("read %s: it is not what %s says of snapshot %d: %w", s.Manifest, HeadKey, s.Seq, ErrDamaged)
	}
	return m, nil
}

// Check reads the manifest of a snapshot and returns what is wrong with it.
func (r Run) Check(ctx context.Context, s Snapshot) error {
	_, err := r.manifest(ctx, s)
	return err
}

// rebuild makes a HEAD of the manifests that are in the store, for a run whose HEAD is
// damaged. Its epoch is the highest of them; who claims the run on it has a random suffix
// that no earlier attempt has.
func (r Run) rebuild(ctx context.Context) (Head, error) {
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
	// By number and then by epoch, the newest first: of two manifests of one number, the
	// later attempt's counts.
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
		if broken(err) {
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

// totals counts the files of a manifest and adds up their sizes.
func (m *Manifest) totals() (files, size int64) {
	for _, e := range m.Entries {
		if e.Kind == File {
			files++
			size += e.Size
		}
	}
	return files, size
}
