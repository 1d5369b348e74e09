package checkpoint

import (
	"context"
	"errors"
	"fmt"
)

// Damage is an object that is not what was written.
type Damage struct {
	// Key is the object; Seqs are the snapshots that it breaks.
	Key  string  `json:"key"`
	Seqs []int64 `json:"snapshots"`
	Why  string  `json:"why"`
}

// Verified is what a verification found.
type Verified struct {
	Snapshots []Snapshot
	Parts     int
	Bytes     int64
	Damage    []Damage
	Notes     []string
}

// Verify reads everything that the snapshots of a run need, and names what is damaged or
// not there. Seq is one snapshot; 0 is all of them.
func (r Run) Verify(ctx context.Context, seq int64, workers int, progress func(done, total int64)) (Verified, error) {
	list, notes, err := r.Snapshots(ctx)
	if err != nil {
		return Verified{}, fmt.Errorf("verify the run: %w", err)
	}
	v := Verified{Notes: notes}
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
	checked := map[string]bool{}
	for _, s := range list {
		if seq != 0 && s.Seq != seq {
			continue
		}
		v.Snapshots = append(v.Snapshots, s)
		top, err := r.ReadManifest(ctx, s.Manifest)
		if broken(err) {
			report(s.Manifest, s.Seq, err)
			continue
		}
		if err != nil {
			return v, fmt.Errorf("verify snapshot %d: %w", s.Seq, err)
		}
		manifests := []Manifest{top}
		for _, n := range top.Nodes {
			m, err := r.ReadManifest(ctx, n.Manifest)
			if broken(err) {
				report(n.Manifest, s.Seq, err)
				continue
			}
			if err != nil {
				return v, fmt.Errorf("verify snapshot %d: %w", s.Seq, err)
			}
			manifests = append(manifests, m)
		}
		for _, m := range manifests {
			if err := r.verifyParts(ctx, m, workers, checked, &v, func(key string, err error) { report(key, s.Seq, err) }, progress); err != nil {
				return v, fmt.Errorf("verify snapshot %d: %w", s.Seq, err)
			}
		}
	}
	if len(v.Snapshots) == 0 {
		return v, fmt.Errorf("verify the run: %w", ErrNoSnapshot)
	}
	return v, nil
}

func broken(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) }

// verifyParts reads the parts of a manifest that were not read before, and all its chunks.
func (r Run) verifyParts(ctx context.Context, m Manifest, workers int, checked map[string]bool, v *Verified, report func(string, error), progress func(done, total int64)) error {
	chunks := map[string][]Chunk{}
	seen := map[string]bool{}
	for _, e := range m.Entries {
		for _, c := range e.Chunks {
			// A part that was read whole needs only chunks that no manifest named before.
			key := m.Parts[c.Part].Key
			if id := fmt.Sprintf("%s %s %d %d", key, c.SHA256, c.Offset, c.Stored); !seen[id] {
				seen[id] = true
				chunks[key] = append(chunks[key], c)
			}
		}
	}
	again := m
	again.Parts = nil
	for _, p := range m.Parts {
		if good, ok := checked[p.Key]; !ok {
			again.Parts = append(again.Parts, p)
		} else if !good {
			report(p.Key, ErrDamaged)
		}
	}
	var total int64
	for _, p := range again.Parts {
		total += p.Size
	}
	type outcome struct {
		part Part
		err  error
	}
	results := make(chan outcome)
	fail := make(chan error, 1)
	go func() {
		defer close(results)
		// A worker never fails for damage: it says so and goes on.
		fail <- r.eachWhole(ctx, again.Parts, workers, func(p Part, data []byte, d *decoder, err error) error {
			if err != nil && !broken(err) {
				return err
			}
			found := outcome{p, err}
			for _, c := range chunks[p.Key] {
				if found.err != nil {
					break
				}
				if _, bad := d.chunk(c, data); bad != nil {
					found.err = fmt.Errorf("read %s: %w", p.Key, bad)
				}
			}
			results <- found
			return nil //nolint:nilerr // damage is a finding
		})
	}()
	var done int64
	for o := range results {
		checked[o.part.Key] = o.err == nil
		v.Parts++
		v.Bytes += o.part.Size
		done += o.part.Size
		if o.err != nil {
			report(o.part.Key, o.err)
		}
		if progress != nil {
			progress(done, total)
		}
	}
	return <-fail
}
