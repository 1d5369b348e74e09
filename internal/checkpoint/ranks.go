package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrRanksMissing says that not all ranks have saved: there is no snapshot yet.
var ErrRanksMissing = errors.New("not all ranks have saved")

// Follow lets one node of several save its share for the attempt that another node holds.
// It returns ErrFenced when the run is no longer that attempt's. After each snapshot the
// node follows again.
func (r Run) Follow(ctx context.Context, attempt string, rank int) (*Attempt, error) {
	h, version, err := r.ReadHead(ctx)
	if err != nil {
		return nil, fmt.Errorf("follow attempt %s: %w", attempt, err)
	}
	if h.Attempt != attempt {
		return nil, fmt.Errorf("follow attempt %s: epoch %d of %s is there: %w", attempt, h.Epoch, h.Writer, ErrFenced)
	}
	a := &Attempt{run: r, head: h, version: version}
	return a, a.load(ctx, rank)
}

// SaveRank stores a folder as the share of one rank of the next snapshot, which exists only
// once Join has all of them. Options need Rank and Ranks.
func (a *Attempt) SaveRank(ctx context.Context, dir string, o SaveOptions) (Manifest, error) {
	if o.Ranks < 1 || o.Rank < 0 || o.Rank >= o.Ranks {
		return Manifest{}, fmt.Errorf("save rank %d of %d: there is no such rank", o.Rank, o.Ranks)
	}
	s, m, err := a.store(ctx, dir, o)
	if err == nil {
		var key string
		var data []byte
		if data, key, err = encodeManifest(m); err == nil {
			if err = a.run.Store.Create(ctx, key, data); errors.Is(err, ErrExists) {
				err = nil
			}
		}
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("save rank %d of %s: %w", o.Rank, dir, err)
	}
	a.hold(&m, s.parts)
	return m, nil
}

// Join makes one snapshot of the shares of all ranks, or none: it returns ErrRanksMissing
// until each has saved. The shares must be of one step, where steps are known.
func (a *Attempt) Join(ctx context.Context, ranks int) (Snapshot, error) {
	s, err := a.join(ctx, ranks)
	if err != nil {
		return s, fmt.Errorf("join %d ranks: %w", ranks, err)
	}
	return s, nil
}

func (a *Attempt) join(ctx context.Context, ranks int) (Snapshot, error) {
	m := Manifest{Schema: Schema, Seq: a.nextSeq(), Epoch: a.head.Epoch, Attempt: a.head.Attempt, Writer: a.head.Writer, Ranks: ranks, Nodes: make([]Node, max(ranks, 0))}
	written := make([]time.Time, len(m.Nodes))
	prefix := fmt.Sprintf("%s%012d-%s/", rankPrefix, m.Seq, m.Attempt)
	err := a.run.Store.List(ctx, prefix, func(i Info) error {
		// Of two shares of one rank, the later counts: the rank saved again.
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
		m.State, m.Finished = weaker(m.State, share.State), weakerProof(m.Finished, share.Finished)
		m.NewBytes += share.NewBytes
		f, b := share.totals()
		files, size = files+f, size+b
	}
	m.At = a.run.Now().UTC()
	return a.commit(ctx, m, files, size)
}

// weaker returns the state that says less.
func weaker(x, y State) State {
	order := map[State]int{Unsettled: 0, Partial: 1, Complete: 2}
	if order[y] < order[x] {
		return y
	}
	return x
}
