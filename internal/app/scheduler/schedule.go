package scheduler

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Limits that keep a service from asking too often.
const (
	// least is the minimum wait for a round that is due early, as is a quarter of the interval. A
	// wait is never longer than the interval.
	least        = 15 * time.Second
	firstBackoff = 5 * time.Second
	lastBackoff  = 5 * time.Minute
	// backgroundBackoff is the first back-off of a background source.
	backgroundBackoff = time.Minute
)

// jitter returns a random time within a tenth of another.
func jitter(d time.Duration) time.Duration { return between(d*9/10, d*11/10) }

// between returns a random time in a range.
func between(low, high time.Duration) time.Duration {
	return low + time.Duration(rand.Float64()*float64(high-low))
}

// pause returns the wait after a successful round, at most the interval of the source. Sources that
// were taken at once are spread over their interval after the first round.
func pause(src Source, out Outcome, ended time.Time, first bool) time.Duration {
	every := src.Every()
	wait := between(every*9/10, every)
	if first {
		wait = between(every/4, every)
	}
	if out.Next.IsZero() {
		return wait
	}
	return min(max(out.Next.Sub(ended), least, every/4), wait)
}

// backoff returns the wait after a number of consecutive failures.
func backoff(src Source, failures int) time.Duration {
	begin, end := firstBackoff, lastBackoff
	if src.Background { // a round that reads everything is too expensive to retry often
		begin, end = backgroundBackoff, max(src.Every(), lastBackoff)
	}
	return min(begin<<min(failures-1, 10), end)
}

// first returns the wait before the first round of a source.
func (s *Scheduler) first(ctx context.Context, src Source) time.Duration {
	if src.First == nil {
		return 0
	}
	wait, err := src.First(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.fault(err)
		}
		return backoff(src, 1)
	}
	return wait
}

// rest waits until the next round of a source, or until it is to be released.
func (s *Scheduler) rest(ctx context.Context, h *holding, wait time.Duration) {
	if wait <= 0 {
		return
	}
	s.mu.Lock()
	if st := s.status[h.source.Name]; st != nil {
		st.NextAt = s.Now().Add(wait)
	}
	s.mu.Unlock()
	resting, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-h.leave:
			end()
		case <-resting.Done():
		}
	}()
	for ; wait > dueInterval && h.source.Due != nil; wait -= dueInterval {
		if err := s.Sleep(resting, dueInterval); err != nil {
			return
		}
		due, err := h.source.Due(resting)
		if err != nil && resting.Err() == nil {
			s.Log.Warn("whether a pass is due is not known", "source", h.source.Name, "error", err)
		}
		if due {
			return
		}
	}
	_ = s.Sleep(resting, wait)
}

// dueInterval is the time between two checks whether a round is due early.
const dueInterval = time.Minute

// beginFor is how long a first round blocks other first rounds.
const beginFor = 5 * time.Second

// begin waits for a slot for a first round, which reads everything: a process that takes many
// sources at once would otherwise not renew its leases in time. The returned function releases the
// slot, which also happens after a while, so that a round that hangs blocks nothing for long; nil
// means that no round must begin.
func (s *Scheduler) begin(ctx context.Context, h *holding) (begun func()) {
	select {
	case s.beginning <- struct{}{}:
	case <-h.leave:
		return nil
	case <-ctx.Done():
		return nil
	}
	give := sync.OnceFunc(func() { <-s.beginning })
	late := time.AfterFunc(beginFor, give)
	return func() {
		late.Stop()
		give()
	}
}

// turn waits until a round of a source may begin, and reports whether it may. A background source
// then holds the slot for one, which must be released.
func (s *Scheduler) turn(ctx context.Context, h *holding) bool {
	var place chan struct{}
	if h.source.Background {
		place = s.background
	}
	select {
	case <-h.leave:
		return false
	case <-ctx.Done():
		return false
	default:
	}
	if place == nil {
		return true
	}
	select {
	case <-h.leave:
		return false
	case <-ctx.Done():
		return false
	case place <- struct{}{}:
		return true
	}
}

// Jitter returns a random time in a range, so that accounts are not audited at once.
func Jitter(low, high time.Duration) time.Duration {
	return low + time.Duration(rand.Float64()*float64(high-low))
}
