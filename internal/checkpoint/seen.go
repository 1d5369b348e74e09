package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrRolledBack says that the newest snapshot of a run is older than one that was seen: the
// store was set back, or someone replaced HEAD by an earlier one.
var ErrRolledBack = errors.New("the run was set back")

// ErrUnconditional says that a store ignores conditional writes, so that two writers would
// overwrite each other.
var ErrUnconditional = errors.New("the store ignores conditional writes (If-None-Match, If-Match)")

// Mark names a snapshot and says how new it is. The zero value is none.
type Mark struct {
	Seq   int64 `json:"seq"`
	Epoch int64 `json:"epoch"`
	// Manifest is the key of its manifest.
	Manifest string `json:"manifest"`
}

// MarkOf returns the mark of a snapshot, by the key of its manifest: whoever keeps that key
// can set [Run.Seen].
func MarkOf(manifest string) (Mark, error) {
	k, ok := parseManifestKey(manifest)
	if !ok || k.rank >= 0 {
		return Mark{}, fmt.Errorf("%.200q is not the key of a snapshot's manifest", manifest)
	}
	return Mark{Seq: k.seq, Epoch: k.epoch, Manifest: manifest}, nil
}

// Newest returns the mark of the newest of some snapshots, which are in order.
func Newest(list []Snapshot) Mark {
	if len(list) == 0 {
		return Mark{}
	}
	return Mark{Seq: list[0].Seq, Epoch: list[0].Epoch, Manifest: list[0].Manifest}
}

// After says whether a snapshot cannot have come before another in one run. Two of one number
// are of different histories, of which the later epoch is the later one.
func (m Mark) After(other Mark) bool {
	if m.Seq != other.Seq {
		return m.Seq > other.Seq
	}
	if m.Epoch != other.Epoch {
		return m.Epoch > other.Epoch
	}
	return m.Manifest != other.Manifest && other.Manifest != ""
}

// RolledBack returns an ErrRolledBack where the newest of some snapshots is older than the one
// that was seen of the run.
func (r Run) RolledBack(list []Snapshot) error {
	newest := Newest(list)
	if !r.Seen.After(newest) {
		return nil
	}
	has := "none"
	if newest.Seq > 0 {
		has = fmt.Sprintf("%d of epoch %d", newest.Seq, newest.Epoch)
	}
	return fmt.Errorf("snapshot %d of epoch %d was seen here before, and the newest in the store is %s: %w", r.Seen.Seq,
		r.Seen.Epoch, has, ErrRolledBack)
}

// probe proves that the store refuses a write on top of an object that is there, and on a
// version that is not. It leaves nothing: its object has the key of a part that no manifest
// names, which is collected should the process die.
func (r Run) probe(ctx context.Context, random string) error {
	first, second := []byte("probe "+random), []byte("probe again "+random)
	key := partKey("1-"+random, hash(first))
	err := r.Store.Create(ctx, key, first)
	if err != nil && !errors.Is(err, ErrExists) { // after a lost answer it is there
		if strings.Contains(err.Error(), "NotImplemented") {
			return fmt.Errorf("%w: %w", ErrUnconditional, err)
		}
		return fmt.Errorf("probe the store: %w", err)
	}
	defer func() { _ = r.Store.Delete(context.WithoutCancel(ctx), []string{key}) }()
	created := r.Store.Create(ctx, key, second)
	_, replacedNone := r.Store.Replace(ctx, key, second, "")
	_, replacedOther := r.Store.Replace(ctx, key, second, `"00000000000000000000000000000000"`)
	for _, err := range []error{created, replacedNone, replacedOther} {
		if err != nil && !errors.Is(err, ErrExists) && !errors.Is(err, ErrConflict) {
			return fmt.Errorf("probe the store: %w", err)
		}
	}
	if created == nil || replacedNone == nil || replacedOther == nil {
		return ErrUnconditional
	}
	return nil
}
