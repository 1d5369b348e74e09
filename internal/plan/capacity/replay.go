package capacity

import (
	"math"
	"math/rand/v2"
	"slices"
)

// figures is the result of the requests with a number of replicas; seconds.
type figures struct {
	method      Method
	meanBatch   float64
	running     float64 // requests that a replica runs, on average
	mean, p99   float64
	p99Error    float64
	utilization float64
	requests    int
}

// run is replicas that share one queue in order of arrival.
type run struct {
	// unit are the arrivals at one a second on average; qps of them come in a second.
	unit []float64
	qps  float64
	// sizes are the items of each request; nil is one.
	sizes    []int
	profile  Profile
	maxBatch int
	replicas int
	// wait is the longest that a batch is held back to grow, from its first request.
	wait float64
	// warm is how many requests are not counted, while the queue fills.
	warm int
}

// replay serves every request. A batch goes to the replica that is free first, once its
// first request has waited as long as it may or no further one fits, and takes all
// that has come until then. The latencies are written to out, which is as long as unit.
func (r run) replay(out []float64) figures {
	free := make([]float64, r.replicas) // a heap: the earliest is first
	var busy, items, batches, total, end float64
	limit := r.maxBatch
	if limit == 0 {
		limit = math.MaxInt
	}
	at := func(i int) float64 { return r.unit[i] / r.qps }
	for head := 0; head < len(r.unit); {
		start := max(free[0], at(head)+r.wait)
		next, n := head, 0
		for next < len(r.unit) && at(next) <= start {
			size := 1
			if r.sizes != nil {
				size = r.sizes[next]
			}
			if n+size > limit {
				start = max(free[0], at(next))
				break
			}
			n += size
			if next++; n == limit {
				start = max(free[0], at(next-1))
				break
			}
		}
		took := r.profile.Batch(n)
		done := start + took
		for i := head; i < next; i++ {
			out[i] = done - at(i)
		}
		if head >= r.warm {
			busy, items, batches = busy+took, items+float64(n), batches+1
			for _, l := range out[head:next] {
				total += l
			}
		}
		head, end = next, max(end, done)
		sink(free, done)
	}
	counted := out[r.warm:]
	return figures{
		meanBatch: items / batches, mean: total / float64(len(counted)), requests: len(counted),
		utilization: busy / (float64(r.replicas) * (end - at(r.warm))),
	}
}

// sink replaces the least of a heap.
func sink(heap []float64, v float64) {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(heap) {
			break
		}
		if child+1 < len(heap) && heap[child+1] < heap[child] {
			child++
		}
		if heap[child] >= v {
			break
		}
		heap[i] = heap[child]
		i = child
	}
	heap[i] = v
}

// Poisson arrivals that are drawn: enough for a p99 within a few percent up to a load
// of 0.95 or so, the first tenth not counted.
const (
	drawn  = 1_000_000
	warmUp = drawn / 10
	parts  = 10
	seed   = 20231116
)

// poisson draws n arrivals at one a second.
func poisson(n int) []float64 {
	random := rand.New(rand.NewPCG(seed, seed))
	unit, t := make([]float64, n), 0.0
	for i := range unit {
		t += random.ExpFloat64()
		unit[i] = t
	}
	for i := range unit {
		unit[i] *= float64(n) / t // the rate is exact, so that draws differ in bursts alone
	}
	return unit
}

// student is the 97.5% quantile of Student's t with parts - 1 degrees of freedom.
const student = 2.262

// spread returns half the 95% confidence interval of the p99, from its values in ten
// parts one after the other (batch means). Their order is lost.
func spread(latencies []float64) float64 {
	var sum, squares float64
	size := len(latencies) / parts
	for i := range parts {
		v := quantile(latencies[i*size:(i+1)*size], 0.99)
		sum, squares = sum+v, squares+v*v
	}
	variance := (squares - sum*sum/parts) / (parts - 1)
	return student * math.Sqrt(max(0, variance)/parts)
}

// quantile returns the value that a share of the values do not exceed: the nearest
// rank. The values change places.
func quantile(values []float64, share float64) float64 {
	k := max(0, int(math.Ceil(share*float64(len(values))-1e-9))-1)
	low, high := 0, len(values)-1
	for high-low > 32 {
		pivot := values[low+(high-low)/2]
		i, j := low, high
		for i <= j {
			for values[i] < pivot {
				i++
			}
			for values[j] > pivot {
				j--
			}
			if i <= j {
				values[i], values[j] = values[j], values[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k <= j:
			high = j
		case k >= i:
			low = i
		default:
			return values[k]
		}
	}
	slices.Sort(values[low : high+1])
	return values[k]
}
