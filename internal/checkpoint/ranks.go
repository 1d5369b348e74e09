package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrRanksMissing means that not all ranks have saved: there is no snapshot yet.
var ErrRanksMissing = errors.New("not all ranks have saved")

// Follow returns an attempt with which one node of several saves its share for the attempt of
// another node. It returns ErrFenced if that attempt no longer holds the run. Each snapshot needs a
// new Follow.
func (r Run) Follow(ctx context.Context, attempt string, rank int) (*Attempt, error) {
	h, version, err := r.ReadHead(ctx)
	if err != nil {
		return nil, fmt.Errorf("follow attempt %s: %w", attempt, err)
	}
	if h.Attempt != attempt {
		return nil, fmt.Errorf("follow attempt %s: epoch %d of %s is there: %w", attempt, h.Epoch, h.Writer, ErrFenced)
	}
	a := &Attempt{run: r, head: h, version: version}
	return a, a.loadNewest(ctx, rank)
}

// SaveRank stores a folder as one rank's share of the next snapshot, which exists only after Join:
// the result's snapshot is zero. It requires Rank and Ranks.
func (a *Attempt) SaveRank(ctx context.Context, dir string, o SaveOptions) (Result, error) {
	got, _, err := a.saveShare(ctx, dir, o)
	return got, err
}

// saveShare saves a share and also returns its key.
func (a *Attempt) saveShare(ctx context.Context, dir string, o SaveOptions) (Result, string, error) {
	if o.Ranks < 1 || o.Rank < 0 || o.Rank >= o.Ranks {
		return Result{}, "", fmt.Errorf("save rank %d of %d: there is no such rank", o.Rank, o.Ranks)
	}
	var key string
	s, m, err := a.store(ctx, dir, o)
	if err == nil {
		var data []byte
		if data, key, err = encodeManifest(m); err == nil {
			k, _ := parseManifestKey(key)
			err = m.check(k)
		}
		if err == nil {
			if err = a.run.Store.Create(ctx, key, data); errors.Is(err, ErrExists) {
				err = nil
			}
		}
	}
	if err != nil {
		return Result{}, "", fmt.Errorf("save rank %d of %s: %w", o.Rank, dir, err)
	}
	return s.saved(m, key), key, nil
}

// Join makes one snapshot of the shares of all ranks. It returns ErrRanksMissing until each rank
// has saved. Shares with known steps must have the same step.
func (a *Attempt) Join(ctx context.Context, ranks int) (Snapshot, error) {
	s, err := a.join(ctx, ranks)
	if err != nil {
		return s, fmt.Errorf("join %d ranks: %w", ranks, err)
	}
	return s, nil
}

func (a *Attempt) join(ctx context.Context, ranks int) (Snapshot, error) {
	m := Manifest{
		Schema: Schema, Seq: a.nextSeq(), Epoch: a.head.Epoch, Attempt: a.head.Attempt, Writer: a.head.Writer,
		Ranks: ranks, Nodes: make([]Node, max(ranks, 0)),
	}
	written := make([]time.Time, len(m.Nodes))
	prefix := fmt.Sprintf("%s%012d-%s/", rankPrefix, m.Seq, m.Attempt)
	err := a.run.Store.List(ctx, prefix, func(i Info) error {
		// The later of two shares of a rank counts: the rank saved again.
		if k, ok := parseManifestKey(i.Key); ok && k.ranks == ranks && !i.Modified.Before(written[k.rank]) {
			m.Nodes[k.rank], written[k.rank] = Node{i.Key, k.sum}, i.Modified
		}
		return nil
	})
	if err != nil {
		return Snapshot{}, err
	}
	var missing []string
	for rank, n := range m.Nodes {
		if n.Manifest == "" {
			missing = append(missing, fmt.Sprint(rank))
		}
	}
	if len(missing) > 0 || ranks < 1 {
		return Snapshot{}, fmt.Errorf("rank %s: %w", strings.Join(missing, ", "), ErrRanksMissing)
	}
	m.State, m.Finished = Complete, Declared
	var files, size int64
	for rank, n := range m.Nodes {
		share, err := a.run.ReadManifest(ctx, n.Manifest)
		if err != nil {
			return Snapshot{}, err
		}
		if rank == 0 {
			m.Step, m.StartedAt = share.Step, share.StartedAt
		} else if (share.Step == nil) != (m.Step == nil) || share.Step != nil && *share.Step != *m.Step {
			return Snapshot{}, fmt.Errorf("rank %d saved another step than rank 0: %w", rank, ErrRanksMissing)
		}
		m.State, m.Finished = weakerState(m.State, share.State), weakerProof(m.Finished, share.Finished)
		m.NewBytes += share.NewBytes
		f, b := share.totals()
		files, size = files+f, size+b
	}
	m.At = a.run.Now().UTC()
	return a.commit(ctx, m, files, size)
}

// weakerState returns the less complete state.
func weakerState(x, y State) State {
	order := map[State]int{Unsettled: 0, Partial: 1, Complete: 2}
	if order[y] < order[x] {
		return y
	}
	return x
}

// joinPollInterval is the time between a rank's lookups for the others.
const joinPollInterval = 2 * time.Second

// SaveTogether saves a rank's folder as its share of the next snapshot and waits up to patience for
// that snapshot. Each rank calls it at about the same time: rank 0 claims the run and joins the
// shares, the others follow it, even into a new attempt. ErrRanksMissing means that not all ranks
// came in time and there is no new snapshot. The returned attempt is nil for ranks other than 0.
func (r Run) SaveTogether(ctx context.Context, writer, dir string, o SaveOptions, patience time.Duration) (Result,
	*Attempt, error) {
	end := r.Now().Add(patience)
	if o.Rank != 0 {
		got, err := r.followUntilJoined(ctx, dir, o, end)
		return got, nil, err
	}
	a, err := r.Claim(ctx, writer)
	if err != nil {
		return Result{}, nil, err
	}
	node, err := r.Follow(ctx, a.head.Attempt, 0)
	if err != nil {
		return Result{}, nil, err
	}
	got, err := node.SaveRank(ctx, dir, o)
	if err != nil {
		return Result{}, nil, err
	}
	for {
		got.Snapshot, err = a.Join(ctx, o.Ranks)
		if !errors.Is(err, ErrRanksMissing) || !r.Now().Before(end) {
			return got, a, err
		}
		if err := o.Wait(ctx, joinPollInterval); err != nil {
			return Result{}, nil, err
		}
	}
}

// followUntilJoined saves a share for whichever attempt holds the run, until a snapshot includes
// it.
func (r Run) followUntilJoined(ctx context.Context, dir string, o SaveOptions, end time.Time) (got Result, err error) {
	var attempt, key string // attempt and key of the stored share
	for {
		h, _, err := r.ReadHead(ctx)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Result{}, err
		}
		joined := h.joinedSnapshot()
		switch {
		case joined != nil && h.Attempt == attempt:
			m, err := r.snapshotManifest(ctx, *joined)
			if err != nil {
				return Result{}, err
			}
			if o.Rank < len(m.Nodes) && m.Nodes[o.Rank].Manifest == key {
				got.Snapshot = *joined
				return got, nil
			}
		case joined == nil && h.Attempt != "" && h.Attempt != attempt:
			node, err := r.Follow(ctx, h.Attempt, o.Rank)
			if err == nil {
				got, key, err = node.saveShare(ctx, dir, o)
			}
			if errors.Is(err, ErrFenced) {
				break // a newer attempt has claimed the run
			}
			if err != nil {
				return Result{}, err
			}
			attempt = h.Attempt
			continue // rank 0 may have waited for only this share
		}
		if !r.Now().Before(end) {
			return Result{}, fmt.Errorf("no snapshot has the share of rank %d: %w", o.Rank, ErrRanksMissing)
		}
		if err := o.Wait(ctx, joinPollInterval); err != nil {
			return Result{}, err
		}
	}
}

// joinedSnapshot returns the snapshot that the current attempt has made; nil if none yet.
func (h Head) joinedSnapshot() *Snapshot {
	for i, s := range h.Snapshots {
		if k, ok := parseManifestKey(s.Manifest); ok && k.attempt == h.Attempt {
			return &h.Snapshots[i]
		}
	}
	return nil
}
