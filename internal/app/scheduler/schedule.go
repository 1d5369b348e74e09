package scheduler

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// What keeps a service from asking too often.
const (
	// least is between two rounds, whatever is due, and a quarter of the interval; where the
	// interval is shorter, that is.
	least        = 15 * time.Second
	firstBackoff = 5 * time.Second
	lastBackoff  = 5 * time.Minute
	// backgroundBackoff is the first one of a source in the background.
	backgroundBackoff = time.Minute
)

// jitter is a time within a tenth of another.
func jitter(d time.Duration) time.Duration { return between(d*9/10, d*11/10) }

// between is a time from one to another.
func between(low, high time.Duration) time.Duration {
	return low + time.Duration(rand.Float64()*float64(high-low))
}

// pause is how long to wait after a round that ended well: never longer than the interval of
// the source. Sources that were taken at once are spread over theirs after the first round.
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

// backoff is how long to wait after failures in a row.
func backoff(src Source, failures int) time.Duration {
	begin, end := firstBackoff, lastBackoff
	if src.Background { // a round that reads everything costs too much to be tried again and again
		begin, end = backgroundBackoff, max(src.Every(), lastBackoff)
	}
	return min(begin<<min(failures-1, 10), end)
}

// first is how long to wait for the first round of a source.
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

// rest waits until the next round of a source, or until it is to be given back.
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

// dueInterval is the time between two questions whether a round is due before its time.
const dueInterval = time.Minute

// beginFor is how long a first round keeps others from beginning.
const beginFor = 5 * time.Second

// begin waits for a place among the first rounds, which read everything: a process that takes
// many sources at once would else renew no lease in time. The place is given back by the
// returned function, or after a while, so that one that hangs holds up nothing for long; nil
// says that no round is to begin.
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

// turn waits until a round of a source may begin, and says whether it may. A source in the
// background has the place for one then, which is to be given back.
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

// Jitter is a time from one to another, so that accounts are not audited at once.
func Jitter(low, high time.Duration) time.Duration {
	return low + time.Duration(rand.Float64()*float64(high-low))
}
