package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/wait"
)

// renew renews the leases of all sources that this process holds, together, until the context ends.
// The rounds under a lease end when it is lost, or when the database has not renewed it within its
// duration.
func (s *Scheduler) renew(ctx context.Context) {
	var apart sync.WaitGroup
	defer apart.Wait()
	for wait.For(ctx, jitter(s.TTL/4)) == nil {
		select {
		case s.renewing <- struct{}{}:
		case <-ctx.Done():
			return
		}
		for _, h := range s.renewAll(ctx) {
			apart.Go(func() { s.renewOne(ctx, h) })
		}
		<-s.renewing
	}
}

// renewAll renews the leases in one transaction, and returns the holdings whose leases are blocked
// by others, so that waiting for one delays no other.
func (s *Scheduler) renewAll(ctx context.Context) (left []*holding) {
	s.mu.Lock()
	held := make(map[string]*holding, len(s.held))
	leases := make([]store.Lease, 0, len(s.held))
	for name, h := range s.held {
		if h.lose != nil && h.waited == nil {
			held[name], leases = h, append(leases, h.lease)
		}
	}
	s.mu.Unlock()
	if len(leases) == 0 {
		return nil
	}
	began := time.Now()
	bounded, end := context.WithTimeout(ctx, s.TTL)
	defer end()
	lost, busy, err := s.Leases.RenewAll(bounded, leases, s.TTL)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lost {
		s.renewed(ctx, held[l.Name], began, fmt.Errorf("renew the lease of %s: %w", l.Name, store.ErrLeaseLost))
		delete(held, l.Name)
	}
	for _, l := range busy {
		if h := held[l.Name]; h.lose != nil {
			h.waited = make(chan struct{})
			left = append(left, h)
		}
		delete(held, l.Name)
	}
	for _, h := range held {
		s.renewed(ctx, h, began, err)
	}
	return left
}

// renewOne renews the lease of a holding, for which it may have to wait.
func (s *Scheduler) renewOne(ctx context.Context, h *holding) {
	began := time.Now()
	bounded, end := context.WithTimeout(ctx, s.TTL)
	defer end()
	_, err := s.Leases.Renew(bounded, h.lease, s.TTL)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(h.waited)
	h.waited = nil
	s.renewed(ctx, h, began, err)
}

// renewed records the result of a renewal. The caller holds the lock.
func (s *Scheduler) renewed(ctx context.Context, h *holding, began time.Time, err error) {
	switch {
	case h.lose == nil:
	case err == nil:
		h.answered = began
	case errors.Is(err, store.ErrLeaseLost):
		h.lose(err)
	case ctx.Err() == nil && time.Since(h.answered) > s.TTL:
		h.lose(fmt.Errorf("%w: the database has not answered for %s", store.ErrLeaseLost, s.TTL))
	}
}

// release releases the lease of a holding whose rounds have ended, once no renewal is running that
// would take it again.
func (s *Scheduler) release(ctx context.Context, h *holding) error {
	s.mu.Lock()
	h.lose = nil
	s.mu.Unlock()
	select {
	case s.renewing <- struct{}{}:
		<-s.renewing
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	waited := h.waited
	s.mu.Unlock()
	if waited != nil {
		select {
		case <-waited:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Leases.Release(ctx, h.lease)
}
