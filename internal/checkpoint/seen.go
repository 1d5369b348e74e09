package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrRolledBack means that the newest snapshot is older than one seen before: the store was reset,
// or HEAD was replaced by an earlier one.
var ErrRolledBack = errors.New("the run was set back")

// ErrUnconditional means that the store ignores conditional writes, so that two writers would
// overwrite each other.
var ErrUnconditional = errors.New("the store ignores conditional writes (If-None-Match, If-Match)")

// SnapshotMark identifies a snapshot and orders it within its run. The zero value is none.
type SnapshotMark struct {
	Seq   int64 `json:"seq"`
	Epoch int64 `json:"epoch"`
	// Manifest is the key of the snapshot's manifest.
	Manifest string `json:"manifest"`
}

// MarkOf returns the mark of the snapshot with a manifest key, for [Run.NewestSeen].
func MarkOf(manifest string) (SnapshotMark, error) {
	k, ok := parseManifestKey(manifest)
	if !ok || k.rank >= 0 {
		return SnapshotMark{}, fmt.Errorf("%.200q is not the key of a snapshot's manifest", manifest)
	}
	return SnapshotMark{Seq: k.seq, Epoch: k.epoch, Manifest: manifest}, nil
}

// NewestMark returns the mark of the first of some snapshots ordered newest first.
func NewestMark(list []Snapshot) SnapshotMark {
	if len(list) == 0 {
		return SnapshotMark{}
	}
	return SnapshotMark{Seq: list[0].Seq, Epoch: list[0].Epoch, Manifest: list[0].Manifest}
}

// After reports whether a snapshot is newer than another. Two with one number belong to different
// histories, of which the later epoch is newer.
func (m SnapshotMark) After(other SnapshotMark) bool {
	if m.Seq != other.Seq {
		return m.Seq > other.Seq
	}
	if m.Epoch != other.Epoch {
		return m.Epoch > other.Epoch
	}
	return m.Manifest != other.Manifest && other.Manifest != ""
}

// CheckRolledBack returns ErrRolledBack if the newest snapshot is older than NewestSeen.
func (r Run) CheckRolledBack(list []Snapshot) error {
	newest := NewestMark(list)
	if !r.NewestSeen.After(newest) {
		return nil
	}
	has := "none"
	if newest.Seq > 0 {
		has = fmt.Sprintf("%d of epoch %d", newest.Seq, newest.Epoch)
	}
	return fmt.Errorf("snapshot %d of epoch %d was seen here before, and the newest in the store is %s: %w",
		r.NewestSeen.Seq,
		r.NewestSeen.Epoch, has, ErrRolledBack)
}

// probeConditions checks that the store refuses to create an existing object and to replace a wrong
// version. Its object has the key of an unreferenced part, which is collected if the process
// crashes.
func (r Run) probeConditions(ctx context.Context, random string) error {
	first, second := []byte("probe "+random), []byte("probe again "+random)
	key := partKey("1-"+random, hash(first))
	err := r.Store.Create(ctx, key, first)
	if err != nil && !errors.Is(err, ErrExists) { // exists after a lost response
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
