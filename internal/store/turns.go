package store

import (
	"context"
	"slices"
	"sync"
)

// turns gives writers of a file its single connection in order of arrival, urgent ones first. A
// connection pool serves waiters in random order, so that some would wait long.
type turns struct {
	mu   sync.Mutex
	busy bool
	// hurried and others are the waiting callers.
	hurried, others []chan struct{}
}

// take waits for a turn; the caller must give it back.
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
	if i < 0 { // it arrived meanwhile
		t.give()
	}
	return ctx.Err()
}

// give passes the turn on.
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

// inHurry marks writes that must not wait for others: a lease that is not renewed in time is lost.
func inHurry(ctx context.Context) context.Context { return context.WithValue(ctx, hurryKey{}, true) }
