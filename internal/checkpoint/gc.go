package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MinAge is the minimum age of a collected object, by the clock of the store.
const MinAge = 24 * time.Hour

// Retention selects the snapshots to keep; either rule suffices. The zero value keeps all.
type Retention struct {
	// Keep is the number of complete snapshots to keep; 0 keeps all.
	Keep int
	// KeepFor keeps younger snapshots, by the clock of the store.
	KeepFor time.Duration
	// Now deletes also what is younger than MinAge. It may belong to a save under way, which then
	// fails.
	Now bool
}

// minAge returns the age from which unneeded objects are deleted.
func (k Retention) minAge() time.Duration {
	if k.Now {
		return 0
	}
	return MinAge
}

// CollectResult is the result of a collection.
type CollectResult struct {
	// Dropped are the snapshots removed from the run.
	Dropped []Snapshot
	// Deleted counts deleted objects, Aborted removed unfinished uploads.
	Deleted, Aborted int
	// Bytes is the total size of deleted objects.
	Bytes int64
	// TooYoung counts unneeded objects younger than MinAge.
	TooYoung int
}

// deleteBatch is the number of objects deleted between two reads of HEAD.
const deleteBatch = 500

// Collect drops snapshots beyond retention and deletes unneeded objects. It deletes nothing younger
// than MinAge unless the retention says Now, nothing of a later epoch, and nothing at all if a
// retained manifest cannot be read.
func (a *Attempt) Collect(ctx context.Context, keep Retention) (CollectResult, error) {
	c, err := a.collect(ctx, keep)
	if err != nil {
		return c, fmt.Errorf("collect garbage: %w", err)
	}
	return c, nil
}

func (a *Attempt) collect(ctx context.Context, keep Retention) (CollectResult, error) {
	var done CollectResult
	// Writing HEAD reveals the store's clock and proves that the run is still held.
	if err := a.updateHead(ctx, func(*Head) {}); err != nil {
		return done, err
	}
	now, objects, err := a.run.listObjects(ctx)
	if err != nil {
		return done, err
	}
	kept, dropped := keep.split(a.head.Snapshots, objects, now)
	needed := map[string]bool{HeadKey: true}
	for _, at := range a.index { // stored by this attempt and in no manifest yet
		needed[at.part.Key] = true
	}
	for _, s := range kept {
		if err := a.run.addNeeded(ctx, s, needed); err != nil {
			return done, fmt.Errorf("snapshot %d is kept and cannot be read, so nothing is deleted: %w", s.Seq, err)
		}
	}
	if len(dropped) > 0 {
		if err := a.updateHead(ctx, func(h *Head) { h.Snapshots = kept }); err != nil {
			return done, err
		}
		done.Dropped = dropped
	}
	var old []Info
	for _, i := range objects {
		epoch := epochOf(i.Key)
		switch {
		case needed[i.Key], epoch == 0, epoch > a.head.Epoch: // foreign objects stay too
		case now.Sub(i.Modified) < keep.minAge():
			done.TooYoung++
		default:
			old = append(old, i)
		}
	}
	// Manifests are deleted before the parts that they name.
	slices.SortStableFunc(old, func(x, y Info) int {
		return boolToInt(strings.HasPrefix(x.Key, partPrefix)) - boolToInt(strings.HasPrefix(y.Key, partPrefix))
	})
	for some := range slices.Chunk(old, deleteBatch) {
		if err := a.checkHeld(ctx); err != nil {
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
	return done, a.abortUploads(ctx, now, keep.minAge(), &done)
}

// abortUploads removes old unfinished writes.
func (a *Attempt) abortUploads(ctx context.Context, now time.Time, minAge time.Duration, done *CollectResult) error {
	uploads, err := a.run.Store.Abandoned(ctx)
	if err != nil {
		return err
	}
	for _, u := range uploads {
		if now.Sub(u.Begun) < minAge {
			done.TooYoung++
			continue
		}
		if err := a.run.Store.Abort(ctx, u); err != nil {
			return err
		}
		done.Aborted++
	}
	return nil
}

// checkHeld returns ErrFenced if the attempt no longer holds the run.
func (a *Attempt) checkHeld(ctx context.Context) error {
	h, _, err := a.run.ReadHead(ctx)
	if err == nil && h.Attempt != a.head.Attempt {
		return fmt.Errorf("epoch %d of %s is there: %w", h.Epoch, h.Writer, ErrFenced)
	}
	return err
}

// objects of a run with the store's current time, taken from a just written HEAD.
func (r Run) listObjects(ctx context.Context) (now time.Time, list []Info, err error) {
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

// split divides snapshots, newest first, into kept and dropped ones.
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
		// Everything newer than the newest complete snapshot is kept, so that a complete one always
		// remains. Incomplete snapshots live as long as their neighbors.
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

// addNeeded adds the objects that a snapshot needs.
func (r Run) addNeeded(ctx context.Context, s Snapshot, needed map[string]bool) error {
	m, err := r.snapshotManifest(ctx, s)
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
