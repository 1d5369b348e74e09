package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MinAge is how old an object is at least before it is collected, by the clock of the
// store.
const MinAge = 24 * time.Hour

// Retention says which snapshots are kept; one that either rule keeps is kept. The zero
// value keeps all.
type Retention struct {
	// Keep is how many complete snapshots are kept; 0 is all.
	Keep int
	// KeepFor keeps each that is younger, by the clock of the store.
	KeepFor time.Duration
}

// Collected is what a collection did.
type Collected struct {
	// Dropped are the snapshots that the run names no more.
	Dropped []Snapshot
	// Deleted are objects that were deleted, Aborted uploads that no one ended.
	Deleted, Aborted int
	// Bytes are the sizes of what was deleted.
	Bytes int64
	// Young are objects that nothing needs and that are too young to be deleted.
	Young int
}

// batch is how many objects are deleted between two looks at HEAD.
const batch = 500

// Collect drops snapshots beyond retention, and deletes what no snapshot needs. It deletes
// nothing that is younger than MinAge, nothing of a later epoch, and nothing at all when a
// manifest that is kept cannot be read.
func (a *Attempt) Collect(ctx context.Context, keep Retention) (Collected, error) {
	c, err := a.collect(ctx, keep)
	if err != nil {
		return c, fmt.Errorf("collect garbage: %w", err)
	}
	return c, nil
}

func (a *Attempt) collect(ctx context.Context, keep Retention) (Collected, error) {
	var done Collected
	// The write of HEAD tells the time of the store, and that the run is still ours.
	if err := a.change(ctx, func(*Head) {}); err != nil {
		return done, err
	}
	now, objects, err := a.run.objects(ctx)
	if err != nil {
		return done, err
	}
	kept, dropped := keep.split(a.head.Snapshots, objects, now)
	needed := map[string]bool{HeadKey: true}
	for _, at := range a.index { // what this attempt stored and no manifest names yet
		needed[at.part.Key] = true
	}
	for _, s := range kept {
		if err := a.run.needs(ctx, s, needed); err != nil {
			return done, fmt.Errorf("snapshot %d is kept and cannot be read, so nothing is deleted: %w", s.Seq, err)
		}
	}
	if len(dropped) > 0 {
		if err := a.change(ctx, func(h *Head) { h.Snapshots = kept }); err != nil {
			return done, err
		}
		done.Dropped = dropped
	}
	var old []Info
	for _, i := range objects {
		epoch := epochOf(i.Key)
		switch {
		case needed[i.Key], epoch == 0, epoch > a.head.Epoch: // also objects that are not ours
		case now.Sub(i.Modified) < MinAge:
			done.Young++
		default:
			old = append(old, i)
		}
	}
	// Manifests go before the parts that they name.
	slices.SortStableFunc(old, func(x, y Info) int {
		return b2i(strings.HasPrefix(x.Key, partPrefix)) - b2i(strings.HasPrefix(y.Key, partPrefix))
	})
	for some := range slices.Chunk(old, batch) {
		if err := a.still(ctx); err != nil {
			return done, err
		}
		keys := make([]string, len(some))
		for i, o := range some {
			keys[i] = o.Key
		}
		if err := a.run.Store.Delete(ctx, keys); err != nil {
			return done, err
		}
		done.Deleted += len(some)
		for _, o := range some {
			done.Bytes += o.Size
		}
	}
	return done, a.abort(ctx, now, &done)
}

// abort removes what writers began and never ended.
func (a *Attempt) abort(ctx context.Context, now time.Time, done *Collected) error {
	uploads, err := a.run.Store.Abandoned(ctx)
	if err != nil {
		return err
	}
	for _, u := range uploads {
		if now.Sub(u.Begun) < MinAge {
			done.Young++
			continue
		}
		if err := a.run.Store.Abort(ctx, u); err != nil {
			return err
		}
		done.Aborted++
	}
	return nil
}

// still says that the run is this attempt's.
func (a *Attempt) still(ctx context.Context) error {
	h, _, err := a.run.ReadHead(ctx)
	if err == nil && h.Attempt != a.head.Attempt {
		return fmt.Errorf("epoch %d of %s is there: %w", h.Epoch, h.Writer, ErrFenced)
	}
	return err
}

// objects lists a run, and the time of the store: when HEAD was written, just now.
func (r Run) objects(ctx context.Context) (now time.Time, list []Info, err error) {
	err = r.Store.List(ctx, "", func(i Info) error {
		if i.Key == HeadKey {
			now = i.Modified
		}
		list = append(list, i)
		return nil
	})
	if err == nil && now.IsZero() {
		err = fmt.Errorf("list the run: %s is not there: %w", HeadKey, ErrNotFound)
	}
	return now, list, err
}

// split divides snapshots, the newest first, into those that are kept and the others.
func (k Retention) split(list []Snapshot, objects []Info, now time.Time) (kept, dropped []Snapshot) {
	if k.Keep <= 0 && k.KeepFor <= 0 {
		return list, nil
	}
	modified := make(map[string]time.Time, len(list))
	for _, i := range objects {
		modified[i.Key] = i.Modified
	}
	whole := 0
	for _, s := range list {
		at, there := modified[s.Manifest]
		young := k.KeepFor > 0 && (!there || now.Sub(at) < k.KeepFor)
		// Before the newest complete one nothing is dropped, so that one is always there. Only
		// a complete snapshot counts; others are kept as long as those around them.
		if young || whole < max(k.Keep, 1) {
			kept = append(kept, s)
		} else {
			dropped = append(dropped, s)
		}
		if s.State == Complete {
			whole++
		}
	}
	return kept, dropped
}

// needs adds what a snapshot needs.
func (r Run) needs(ctx context.Context, s Snapshot, needed map[string]bool) error {
	m, err := r.manifest(ctx, s)
	if err != nil {
		return err
	}
	needed[s.Manifest] = true
	add := func(m Manifest) {
		for _, p := range m.Parts {
			needed[p.Key] = true
		}
	}
	add(m)
	for _, n := range m.Nodes {
		share, err := r.ReadManifest(ctx, n.Manifest)
		if err != nil {
			return err
		}
		needed[n.Manifest] = true
		add(share)
	}
	return nil
}
