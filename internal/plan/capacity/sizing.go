package capacity

import (
	"fmt"
	"math"

	"github.com/curfew-dev/curfew/internal/plain"
)

// sizing looks for replicas. The same arrivals are used for every number of them, so
// that two numbers differ by what they do alone.
type sizing struct {
	p Params
	// unit are the arrivals at one a second, sizes their items; nil is one of each, and
	// size the mean. out is for latencies.
	unit, out []float64
	sizes     []int
	size      float64
}

func newSizing(p Params) (*sizing, error) {
	s := &sizing{p: p, size: 1}
	if p.Arrivals == nil {
		s.unit = poisson(drawn)
		if p.shared() {
			s.unit = poisson(sharedDraws)
		}
	} else {
		s.unit = make([]float64, len(p.Arrivals.Times))
		rate := p.Arrivals.Rate()
		for i, t := range p.Arrivals.Times {
			s.unit[i] = (t - p.Arrivals.Times[0]) * rate
		}
		s.take(p.Arrivals.Sizes)
	}
	s.out = make([]float64, len(s.unit))
	if p.shared() {
		if quickest := p.Law.quickest(); p.P99 > 0 && quickest > p.P99.Seconds()+tick {
			return nil, fmt.Errorf("%w: requests that run alone have a p99 latency of %s ms, as their work differs, "+
				"and the p99 objective is %s ms", ErrObjective, plain.Number(quickest*1000, 3),
				plain.Number(p.P99.Seconds()*1000, 3))
		}
	} else if shortest := p.Profile.Batch(1); p.P99 > 0 && shortest > p.P99.Seconds()+tick {
		return nil, fmt.Errorf("%w: a batch of one takes %s ms, and the p99 objective is %s ms", ErrObjective,
			plain.Number(shortest*1000, 3), plain.Number(p.P99.Seconds()*1000, 3))
	}
	return s, nil
}

// take gives the requests the sizes recorded, over and over.
func (s *sizing) take(sizes []int) {
	if len(sizes) == 0 {
		return
	}
	sum := 0.0
	for _, n := range sizes {
		sum += float64(n)
	}
	s.size = sum / float64(len(sizes))
	s.sizes = make([]int, len(s.unit))
	for i := range s.sizes {
		s.sizes[i] = sizes[i%len(sizes)]
	}
}

// load returns the rate as a share of the highest that n replicas can serve. The
// largest batches serve most: MaxBatch / (a MaxBatch + b) each, or 1 / a without limit.
func (s *sizing) load(n int, qps float64) float64 {
	if s.p.shared() {
		return qps / (float64(n) * s.p.Law.Throughput(s.p.Law.Max))
	}
	item := s.p.Profile.PerItem.Seconds()
	if b := s.p.MaxBatch; b > 0 {
		item = s.p.Profile.Batch(b) / float64(b)
	}
	return qps * s.size * item / float64(n)
}

// stable returns the fewest replicas with a load below 1.
func (s *sizing) stable(qps float64) int {
	return int(min(math.Floor(s.load(1, qps)*(1+1e-12)), math.MaxInt32)) + 1
}

// planned is the rate that the replicas must be enough for.
func (s *sizing) planned() float64 { return s.p.QPS / (1 - s.p.Headroom) }

// figures returns what n replicas make of the rate. They must be able to serve it
// unless arrivals are replayed.
func (s *sizing) figures(n int, qps, wait float64) figures {
	if s.p.shared() {
		return s.share(n, qps)
	}
	if s.p.Arrivals == nil && s.sizes == nil && n == 1 && wait == 0 {
		if f, ok := solve(s.p.Profile, s.p.MaxBatch, qps); ok {
			return f
		}
	}
	r := run{
		unit: s.unit, sizes: s.sizes, qps: qps, profile: s.p.Profile, maxBatch: s.p.MaxBatch, replicas: n, wait: wait,
	}
	if s.p.Arrivals == nil {
		r.warm = warmUp
	}
	f := r.replay(s.out)
	if f.method = ByReplay; s.p.Arrivals == nil {
		f.method, f.p99Error = BySimulation, spread(s.out[r.warm:])
	}
	f.p99 = quantile(s.out[r.warm:], 0.99)
	return f
}

// share returns what n replicas make of the rate that run several requests at once.
func (s *sizing) share(n int, qps float64) figures {
	warm := 0
	if s.p.Arrivals == nil {
		warm = sharedWarm
	}
	f := shared(s.p.Law, s.unit, qps, n, warm, s.out)
	if f.method = ByReplay; s.p.Arrivals == nil {
		f.method, f.p99Error = BySimulation, spread(s.out[warm:])
	}
	f.p99 = quantile(s.out[warm:], 0.99)
	return f
}

// meets reports whether n replicas keep the objective at the planned rate, or the
// utilization to aim for.
func (s *sizing) meets(n int) bool {
	if s.p.Target > 0 || s.p.Band {
		return s.utilization(n) <= s.p.share()+1e-9
	}
	return s.figures(n, s.planned(), 0).p99 <= s.p.P99.Seconds()+tick
}

func (s *sizing) utilization(n int) float64 {
	if s.p.shared() {
		return min(1, s.load(n, s.p.QPS)) // known without a simulation
	}
	return s.figures(n, s.p.QPS, 0).utilization
}

// fewest returns the fewest replicas that keep the objective at the planned rate or the
// utilization to aim for, or that can serve it where there is neither.
func (s *sizing) fewest() (int, error) {
	low := s.stable(s.planned())
	if low > maxReplicas {
		return 0, fmt.Errorf("the rate needs %d replicas; the planner supports up to %d", low, maxReplicas)
	}
	aims := s.p.Target > 0 || s.p.Band
	if s.p.P99 == 0 && !aims {
		return low, nil
	}
	high := low
	for !s.meets(high) {
		if high == maxReplicas && aims {
			return 0, fmt.Errorf("%w: %d replicas have more than %s utilization", ErrObjective, high,
				plain.Share(s.p.share(), 0))
		}
		if high == maxReplicas {
			return 0, fmt.Errorf("%w: %d replicas do not keep the p99 latency within %s ms", ErrObjective, high,
				plain.Number(s.p.P99.Seconds()*1000, 3))
		}
		low, high = high+1, min(2*high, maxReplicas)
	}
	for low < high {
		if mid := (low + high) / 2; s.meets(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	if s.p.Band {
		high = inBand(high, s.utilization)
	}
	return high, nil
}

// longestWait returns the longest wait for a batch to grow with which n replicas keep
// the objective: at most the objective less a batch of one, in seconds. They keep it
// without a wait.
func (s *sizing) longestWait(n int) float64 {
	objective := s.p.P99.Seconds()
	low, high := 0.0, objective-s.p.Profile.Batch(1)
	keeps := func(wait float64) bool { return s.figures(n, s.p.QPS, wait).p99 <= objective+tick }
	if high <= 0 || keeps(high) {
		return max(0, high)
	}
	for range 10 {
		if mid := (low + high) / 2; keeps(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// curve returns the latency around n replicas, those that cannot serve left out.
func (s *sizing) curve(n int) []Point {
	out := []Point{}
	step := max(1, n/4)
	for k := max(1, n-3*step); k <= min(n+3*step, maxReplicas); k++ {
		if (k-n)%step != 0 || s.load(k, s.p.QPS) >= 1 {
			continue
		}
		f := s.figures(k, s.p.QPS, 0)
		out = append(out, Point{k, millis(f.p99), f.utilization})
	}
	return out
}

// compare adds what Poisson arrivals of the same rate and sizes would have.
func (r *Report) compare(s *sizing, n int, replayed figures) {
	p := s.p
	p.Arrivals, p.P99 = nil, 0
	same, err := newSizing(p)
	if err != nil || s.load(n, p.QPS) >= 1 {
		return
	}
	same.take(s.p.Arrivals.Sizes)
	f := same.figures(n, p.QPS, 0)
	r.Poisson = &Poisson{
		Method: f.method, MeanLatencyMS: millis(f.mean), P99LatencyMS: millis(f.p99), P99Ratio: replayed.p99 / f.p99,
	}
}
