package capacity

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// sharedDraws is how many requests are simulated on replicas whose running requests share
// them.
const (
	sharedDraws = 200_000
	sharedWarm  = sharedDraws / 10
)

// sharing is replicas that batch continuously, with one queue in order of arrival. A request goes to
// the replica that runs the fewest, and waits while each of them runs as many as were measured. The
// work of requests is exponential with a mean of 1, and a replica that runs c requests does
// 1 / law.Time(c) of the work of each in a second: a processor-sharing queue whose rate depends on
// its state.
type sharing struct {
	law      Law
	arrivals []float64 // seconds
	work     []float64
	replicas []sharedReplica
	order    []int // replicas as a heap by their next completion
	idlest   []int // replicas as a heap by their running requests
	waiting  []int // requests, from head on
	head     int

	warm       int
	area, span float64 // running requests by time, after the warm-up
	out        []float64
}

// sharedReplica is one replica. Its progress is the work that each of its requests has got since the
// start, so that a request ends where progress reaches what it was at its begin and its work.
type sharedReplica struct {
	running        []sharedJob // a heap by end
	progress, at   float64
	next           float64 // the time of the next completion; +Inf without one
	inOrder, inIdl int
}

type sharedJob struct {
	end     float64
	request int
}

// jobHeap orders running requests by their end.
type jobHeap struct{ *sharedReplica }

func (h jobHeap) Len() int           { return len(h.running) }
func (h jobHeap) Less(i, j int) bool { return h.running[i].end < h.running[j].end }
func (h jobHeap) Swap(i, j int)      { h.running[i], h.running[j] = h.running[j], h.running[i] }
func (h jobHeap) Push(x any)         { h.running = append(h.running, x.(sharedJob)) }
func (h jobHeap) Pop() any {
	last := h.running[len(h.running)-1]
	h.running = h.running[:len(h.running)-1]
	return last
}

// orderHeap orders replicas by their next completion.
type orderHeap struct{ *sharing }

func (h orderHeap) Len() int { return len(h.order) }
func (h orderHeap) Less(i, j int) bool {
	return h.replicas[h.order[i]].next < h.replicas[h.order[j]].next
}
func (h orderHeap) Swap(i, j int) {
	h.order[i], h.order[j] = h.order[j], h.order[i]
	h.replicas[h.order[i]].inOrder, h.replicas[h.order[j]].inOrder = i, j
}
func (h orderHeap) Push(any) {}
func (h orderHeap) Pop() any { return nil }

// idleHeap orders replicas by their running requests.
type idleHeap struct{ *sharing }

func (h idleHeap) Len() int { return len(h.idlest) }
func (h idleHeap) Less(i, j int) bool {
	a, b := h.idlest[i], h.idlest[j]
	if x, y := len(h.replicas[a].running), len(h.replicas[b].running); x != y {
		return x < y
	}
	return a < b
}

func (h idleHeap) Swap(i, j int) {
	h.idlest[i], h.idlest[j] = h.idlest[j], h.idlest[i]
	h.replicas[h.idlest[i]].inIdl, h.replicas[h.idlest[j]].inIdl = i, j
}
func (h idleHeap) Push(any) {}
func (h idleHeap) Pop() any { return nil }

// works draws the work of n requests, the same for every number of replicas.
func works(n int) []float64 {
	random := rand.New(rand.NewPCG(seed, seed+1))
	out := make([]float64, n)
	for i := range out {
		out[i] = random.ExpFloat64()
	}
	return out
}

// run serves all requests and writes their latencies.
func (s *sharing) run(n int) {
	s.replicas, s.order, s.idlest = make([]sharedReplica, n), make([]int, n), make([]int, n)
	for i := range s.replicas {
		s.replicas[i] = sharedReplica{next: math.Inf(1), inOrder: i, inIdl: i}
		s.order[i], s.idlest[i] = i, i
	}
	for i, at := range s.arrivals {
		s.completeUntil(at)
		if i == s.warm {
			s.area, s.span = 0, -at
		}
		if len(s.replicas[s.idlest[0]].running) < s.law.Max {
			s.begin(s.idlest[0], i, at)
			continue
		}
		s.waiting = append(s.waiting, i)
	}
	s.span += s.arrivals[len(s.arrivals)-1]
	s.completeUntil(math.MaxFloat64)
}

// completeUntil ends requests up to a time.
func (s *sharing) completeUntil(until float64) {
	for {
		i := s.order[0]
		at := s.replicas[i].next
		if at > until {
			return
		}
		s.advance(i, at)
		done := heap.Pop(jobHeap{&s.replicas[i]}).(sharedJob)
		s.out[done.request] = at - s.arrivals[done.request]
		if s.head < len(s.waiting) {
			s.begin(i, s.waiting[s.head], at)
			s.head++
			continue
		}
		s.changed(i)
	}
}

// begin runs a request on a replica.
func (s *sharing) begin(i, request int, at float64) {
	s.advance(i, at)
	r := &s.replicas[i]
	heap.Push(jobHeap{r}, sharedJob{r.progress + s.work[request], request})
	s.changed(i)
}

// advance moves a replica to a time.
func (s *sharing) advance(i int, at float64) {
	r := &s.replicas[i]
	if c := len(r.running); c > 0 {
		r.progress += (at - r.at) / s.law.Time(c)
		s.area += float64(c) * (at - r.at)
	}
	r.at = at
}

// changed sets the next completion of a replica after its requests changed.
func (s *sharing) changed(i int) {
	r := &s.replicas[i]
	r.next = math.Inf(1)
	if c := len(r.running); c > 0 {
		r.next = r.at + max(0, r.running[0].end-r.progress)*s.law.Time(c)
	}
	heap.Fix(orderHeap{s}, r.inOrder)
	heap.Fix(idleHeap{s}, r.inIdl)
}

// shared returns what n replicas of a law make of arrivals at one a second that are scaled to a rate.
func shared(law Law, unit []float64, qps float64, n, warm int, out []float64) figures {
	s := &sharing{law: law, arrivals: make([]float64, len(unit)), work: works(len(unit)), warm: warm, out: out}
	for i, t := range unit {
		s.arrivals[i] = t / qps
	}
	s.run(n)
	total := 0.0
	for _, l := range out[warm:] {
		total += l
	}
	f := figures{mean: total / float64(len(out)-warm), requests: len(out) - warm}
	if s.span > 0 {
		f.running = s.area / s.span / float64(n)
	}
	f.utilization = min(1, qps/(float64(n)*law.Throughput(law.Max)))
	return f
}
