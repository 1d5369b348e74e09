package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reclaim claims the run and collects. Where the store is full, a claim has no space for HEAD: then
// Reclaim deletes first what the collection would delete, one object at a time until the claim
// succeeds. Snapshots that need a deleted object leave HEAD with the claim; after a crash before it
// they are named there, and a restore skips them.
func (r Run) Reclaim(ctx context.Context, writer string, keep Retention) (*Attempt, CollectResult, error) {
	var freed CollectResult
	a, err := r.Claim(ctx, writer)
	if errors.Is(err, ErrFull) {
		if a, freed, err = r.claimFull(ctx, writer, keep); err != nil {
			return nil, freed, fmt.Errorf("collect garbage: %w", err)
		}
	}
	if err != nil {
		return nil, freed, err
	}
	done, err := a.Collect(ctx, keep)
	done.Dropped = append(done.Dropped, freed.Dropped...)
	done.Deleted, done.Aborted = done.Deleted+freed.Deleted, done.Aborted+freed.Aborted
	done.Bytes += freed.Bytes
	return a, done, err
}

// victim is an object or an unfinished write that a collection deletes.
type victim struct {
	Info
	upload *Upload
}

// claimFull deletes victims until a claim succeeds.
func (r Run) claimFull(ctx context.Context, writer string, keep Retention) (*Attempt, CollectResult, error) {
	var freed CollectResult
	list, err := r.victims(ctx, keep)
	if err != nil {
		return nil, freed, err
	}
	deleted := map[string]bool{}
	for _, v := range list {
		if v.upload != nil {
			err = r.Store.Abort(ctx, *v.upload)
			freed.Aborted++
		} else {
			err = r.Store.Delete(ctx, []string{v.Key})
			freed.Deleted++
			freed.Bytes += v.Size
			deleted[v.Key] = true
		}
		if err != nil {
			return nil, freed, err
		}
		a, err := r.Claim(ctx, writer)
		if errors.Is(err, ErrFull) {
			continue
		}
		if err == nil {
			freed.Dropped, err = a.dropBroken(ctx, deleted)
		}
		return a, freed, err
	}
	return nil, freed, fmt.Errorf(
		"%d objects are deleted, and nothing else could be: keep fewer snapshots, or free space elsewhere: %w",
		freed.Deleted+freed.Aborted, ErrFull)
}

// victims lists what a collection would delete, first what no snapshot needs. Ages are at least
// those by the clock of the store: no object is from its future.
func (r Run) victims(ctx context.Context, keep Retention) ([]victim, error) {
	head, _, err := r.ReadHead(ctx)
	if err != nil {
		return nil, err
	}
	var objects []Info
	var now time.Time
	err = r.Store.List(ctx, "", func(i Info) error {
		if i.Modified.After(now) {
			now = i.Modified
		}
		objects = append(objects, i)
		return nil
	})
	if err != nil {
		return nil, err
	}
	kept, dropped := keep.split(head.Snapshots, objects, now)
	needed, named := map[string]bool{HeadKey: true}, map[string]int{}
	for _, s := range kept {
		if err := r.addNeeded(ctx, s, needed); err != nil {
			return nil, fmt.Errorf("snapshot %d is kept and cannot be read, so nothing is deleted: %w", s.Seq, err)
		}
	}
	for age, s := range dropped { // the oldest is the last, and the first to go
		its := map[string]bool{s.Manifest: true}
		if err := r.addNeeded(ctx, s, its); err != nil && !isBroken(err) {
			return nil, err
		}
		for key := range its {
			if _, ok := named[key]; !ok {
				named[key] = len(dropped) - age
			}
		}
	}
	uploads, err := r.Store.Abandoned(ctx)
	if err != nil {
		return nil, err
	}
	var list []victim
	for _, u := range uploads {
		if now.Sub(u.Begun) >= keep.minAge() {
			list = append(list, victim{upload: &u})
		}
	}
	from := len(list)
	for _, i := range objects {
		if epoch := epochOf(i.Key); !needed[i.Key] && epoch != 0 && epoch <= head.Epoch &&
			now.Sub(i.Modified) >= keep.minAge() {
			list = append(list, victim{Info: i})
		}
	}
	// A snapshot that HEAD still names keeps its manifest as long as possible; of others the
	// manifest goes first, so that none names what is not there.
	slices.SortStableFunc(list[from:], func(x, y victim) int {
		isPart := func(v victim) int { return boolToInt(strings.HasPrefix(v.Key, partPrefix)) }
		if named[x.Key] > 0 && named[y.Key] > 0 {
			return cmp.Or(isPart(y)-isPart(x), cmp.Compare(named[x.Key], named[y.Key]))
		}
		return cmp.Or(cmp.Compare(named[x.Key], named[y.Key]), isPart(x)-isPart(y))
	})
	return list, nil
}

// dropBroken removes the snapshots from HEAD that need a deleted object: those beyond retention, and
// any that another process committed while they were deleted.
func (a *Attempt) dropBroken(ctx context.Context, deleted map[string]bool) (dropped []Snapshot, err error) {
	broken := map[int64]bool{}
	for _, s := range a.head.Snapshots {
		its := map[string]bool{s.Manifest: true}
		if err := a.run.addNeeded(ctx, s, its); err != nil && !isBroken(err) {
			return nil, err
		}
		for key := range its {
			broken[s.Seq] = broken[s.Seq] || deleted[key]
		}
		if broken[s.Seq] {
			dropped = append(dropped, s)
		}
	}
	if len(dropped) == 0 {
		return nil, nil
	}
	err = a.updateHead(ctx, func(h *Head) {
		h.Snapshots = slices.DeleteFunc(h.Snapshots, func(s Snapshot) bool { return broken[s.Seq] })
	})
	return dropped, err
}
