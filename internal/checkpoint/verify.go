package checkpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// Damage is an object that differs from what was written.
type Damage struct {
	// Key is the damaged object, Seqs the snapshots that need it.
	Key  string  `json:"key"`
	Seqs []int64 `json:"snapshots"`
	Why  string  `json:"why"`
}

// VerifyResult is the result of a verification.
type VerifyResult struct {
	Snapshots []Snapshot
	Parts     int
	Bytes     int64
	Damage    []Damage
	Notes     []string
	// RolledBack reports that a newer snapshot than the newest was seen before.
	RolledBack bool
	// Newest is the newest snapshot of the run.
	Newest SnapshotMark
}

// Verify reads everything that the snapshots of a run need and returns damaged and missing objects.
// Seq selects one snapshot; 0 selects all.
func (r Run) Verify(ctx context.Context, seq int64, workers int, progress func(done, total int64)) (VerifyResult,
	error) {
	list, notes, err := r.Snapshots(ctx)
	if err != nil {
		return VerifyResult{}, fmt.Errorf("verify the run: %w", err)
	}
	v := VerifyResult{Notes: notes, Newest: NewestMark(list)}
	if rolled := r.CheckRolledBack(list); rolled != nil {
		v.RolledBack = true
		v.Notes = append(v.Notes, rolled.Error())
	}
	damaged := map[string]int{}
	report := func(key string, seq int64, err error) {
		i, ok := damaged[key]
		if !ok {
			i = len(v.Damage)
			damaged[key] = i
			v.Damage = append(v.Damage, Damage{Key: key, Why: err.Error()})
		}
		v.Damage[i].Seqs = append(v.Damage[i].Seqs, seq)
	}
	known := verifyCache{map[string]bool{}, map[[16]byte]struct{}{}}
	for _, s := range list {
		if seq != 0 && s.Seq != seq {
			continue
		}
		if len(v.Damage) >= maxDamage {
			break
		}
		v.Snapshots = append(v.Snapshots, s)
		found := func(key string, err error) { report(key, s.Seq, err) }
		if err := r.verifySnapshot(ctx, s, workers, &known, &v, found, progress); err != nil {
			return v, fmt.Errorf("verify snapshot %d: %w", s.Seq, err)
		}
	}
	if len(v.Damage) >= maxDamage {
		v.Notes = append(v.Notes,
			fmt.Sprintf("%d objects are damaged or not there, which ended the verification: more may be",
				len(v.Damage)))
	}
	if len(v.Snapshots) == 0 {
		return v, fmt.Errorf("verify the run: %w", ErrNoSnapshot)
	}
	return v, nil
}

func isBroken(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) }

// maxDamage is the number of damaged objects that ends a verification.
const maxDamage = 1000

// verifySnapshot verifies the manifests of a snapshot and their parts.
func (r Run) verifySnapshot(ctx context.Context, s Snapshot, workers int, known *verifyCache, v *VerifyResult,
	report func(string, error), progress func(done, total int64)) error {
	m, err := r.snapshotManifest(ctx, s)
	if isBroken(err) {
		report(s.Manifest, err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.verifyParts(ctx, m, workers, known, v, report, progress); err != nil {
		return err
	}
	for _, n := range m.Nodes {
		share, err := r.ReadManifest(ctx, n.Manifest)
		if isBroken(err) {
			report(n.Manifest, err)
			continue
		}
		if err == nil {
			err = r.verifyParts(ctx, share, workers, known, v, report, progress)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// verifyCache records what was verified.
type verifyCache struct {
	// parts records for each part read whether it is intact.
	parts map[string]bool
	// chunks records the verified chunk locations.
	chunks map[[16]byte]struct{}
}

// maxCachedChunks bounds the recorded chunks to 256 MiB.
const maxCachedChunks = 4 << 20

// id identifies a chunk at its location.
func (c *Chunk) id(part string) (id [16]byte) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d %d %t", part, c.SHA256, c.Size, c.Offset, c.Stored, c.Zstd))
	copy(id[:], sum[:])
	return id
}

// verifyParts reads the parts with chunks that no newer manifest covered, and verifies those
// chunks.
func (r Run) verifyParts(ctx context.Context, m Manifest, workers int, known *verifyCache, v *VerifyResult,
	report func(string, error), progress func(done, total int64)) error {
	chunks := make([][]*Chunk, len(m.Parts))
	for i := range m.Entries {
		for j := range m.Entries[i].Chunks {
			c := &m.Entries[i].Chunks[j]
			if _, ok := known.chunks[c.id(m.Parts[c.Part].Key)]; !ok {
				chunks[c.Part] = append(chunks[c.Part], c)
			}
		}
	}
	var todo []int
	var total int64
	for i, p := range m.Parts {
		// Duplicate chunks are verified once: chunks are equal or disjoint.
		slices.SortFunc(chunks[i], func(x, y *Chunk) int { return cmp.Compare(x.Offset, y.Offset) })
		chunks[i] = slices.CompactFunc(chunks[i], func(x, y *Chunk) bool { return *x == *y })
		good, read := known.parts[p.Key]
		switch {
		case read && !good:
			report(p.Key, ErrDamaged)
		case !read || len(chunks[i]) > 0:
			todo = append(todo, i)
			total += p.Size
		}
	}
	type outcome struct {
		part int
		err  error
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	results := make(chan outcome)
	fail := make(chan error, 1)
	go func() {
		defer close(results)
		// Damage does not stop a worker.
		fail <- r.eachPartResult(ctx, m, todo, workers, func(part int, data []byte, d *decoder, err error) error {
			if err != nil && !isBroken(err) {
				return err
			}
			found := outcome{part, err}
			for _, c := range chunks[part] {
				if found.err != nil {
					break
				}
				if _, bad := d.chunk(c, data); bad != nil {
					found.err = fmt.Errorf("read %s: %w", m.Parts[part].Key, bad)
				}
			}
			results <- found
			return nil //nolint:nilerr // damage is a finding, not an error
		})
	}()
	var done int64
	for o := range results {
		p := m.Parts[o.part]
		if _, read := known.parts[p.Key]; !read {
			v.Parts++
			v.Bytes += p.Size
		}
		known.parts[p.Key] = o.err == nil
		done += p.Size
		if o.err != nil {
			report(p.Key, o.err)
		}
		for _, c := range chunks[o.part] {
			if o.err == nil && len(known.chunks) < maxCachedChunks {
				known.chunks[c.id(p.Key)] = struct{}{}
			}
		}
		if len(v.Damage) >= maxDamage {
			enough()
		}
		if progress != nil {
			progress(done, total)
		}
	}
	if err := <-fail; err != nil && len(v.Damage) < maxDamage {
		return err
	}
	return nil
}
