package scaling

import (
	"container/heap"
	"math"

	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// request is one arrival: when it came, and its work in requests of mean size.
type request struct {
	at, work float64
}

// running is a request in a replica; it ends once the replica's work reaches done.
type running struct {
	request
	done float64
}

// byDone is a heap of the requests of a replica, the next to end first.
type byDone []running

func (h byDone) Len() int           { return len(h) }
func (h byDone) Less(i, j int) bool { return h[i].done < h[j].done }
func (h byDone) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byDone) Push(x any)        { *h = append(*h, x.(running)) }
func (h *byDone) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// replica is one machine of the replayed fleet.
type replica struct {
	law fleet.Server
	// started and readyAt are times in seconds: of the launch, and of the first request served.
	started, readyAt float64
	draining         bool
	requests         byDone
	// work is the work done for each of its requests, in requests of mean size, up to the time at.
	work, at float64
	// batchEnd is the end of the batch in service, in seconds.
	batchEnd float64
}

// free returns how many more requests a replica takes now.
func (r *replica) free(now float64, places int) int {
	switch {
	case r.draining || now < r.readyAt:
		return 0
	case r.law.Law == fleet.Batch:
		if len(r.requests) > 0 {
			return 0
		}
		return r.law.Limit
	}
	return max(0, places-len(r.requests))
}

// speed returns the work a second that each request of the replica is given.
func (r *replica) speed() float64 { return 1 / r.law.Profile.Batch(len(r.requests)) }

// advance gives the requests their work up to a time.
func (r *replica) advance(now float64) {
	if r.law.Law == fleet.Concurrency && len(r.requests) > 0 {
		r.work += (now - r.at) * r.speed()
	}
	r.at = now
}

// take puts requests into service.
func (r *replica) take(now float64, taken []request) {
	r.advance(now)
	if r.law.Law == fleet.Concurrency {
		for _, q := range taken {
			heap.Push(&r.requests, running{request: q, done: r.work + q.work})
		}
		return
	}
	longest := 0.0
	for _, q := range taken {
		longest = max(longest, q.work)
		r.requests = append(r.requests, running{request: q})
	}
	r.batchEnd = now + r.law.Profile.Batch(len(taken))*longest
}

// next returns when the next request ends; +Inf where none runs.
func (r *replica) next() float64 {
	switch {
	case len(r.requests) == 0:
		return math.Inf(1)
	case r.law.Law == fleet.Batch:
		return r.batchEnd
	}
	return r.at + max(0, r.requests[0].done-r.work)/r.speed()
}

// finish ends the requests that end now, and calls visit for each.
func (r *replica) finish(now float64, visit func(request)) {
	if r.law.Law == fleet.Batch {
		for _, q := range r.requests {
			visit(q.request)
		}
		r.requests = r.requests[:0]
		return
	}
	r.advance(now)
	for len(r.requests) > 0 && r.requests[0].done <= r.work+1e-9 {
		visit(heap.Pop(&r.requests).(running).request)
	}
}
