package store

import (
	"context"
	"slices"
	"sync"
)

// turns lets those who write to a file have its one connection in the order in which they
// came, and who is in a hurry before all others. A pool of connections takes who waits at
// random, so that among many one may wait for long.
type turns struct {
	mu   sync.Mutex
	busy bool
	// hurried and others are the waiting callers.
	hurried, others []chan struct{}
}

// take waits for a turn, which is to be given on.
func (t *turns) take(ctx context.Context, hurry bool) error {
	t.mu.Lock()
	if !t.busy {
		t.busy = true
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	queue := &t.others
	if hurry {
		queue = &t.hurried
	}
	*queue = append(*queue, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(*queue, mine)
	if i >= 0 {
		*queue = slices.Delete(*queue, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it came meanwhile
		t.give()
	}
	return ctx.Err()
}

// give ends a turn.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, queue := range []*[]chan struct{}{&t.hurried, &t.others} {
		if len(*queue) > 0 {
			next := (*queue)[0]
			*queue = (*queue)[1:]
			close(next)
			return
		}
	}
	t.busy = false
}

type hurryKey struct{}

// inHurry marks writes that must not wait for others: a lease is lost if it is not renewed in time.
func inHurry(ctx context.Context) context.Context { return context.WithValue(ctx, hurryKey{}, true) }
