package capacity

import "math"

// Bounds of the chain: more states than that are simulated instead, and each batch of a
// limited size is looked at in so many instants.
const (
	maxStates = 300
	instants  = 64
	// negligible is a share of the batches that changes no figure.
	negligible = 1e-10
	// cut is how many times e less likely the states that are left out are.
	cut = 30
)

// chain is one replica with Poisson arrivals, seen whenever a batch begins: the state is
// how many requests wait, the batch included. It is an embedded Markov chain (Bailey's
// bulk queue, 1954, with service times that depend on the batch).
type chain struct {
	rate    float64
	profile Profile
	// most is the largest batch, share the stationary share of each state; share[0] is
	// 0, for a batch begins with one request or more.
	most  int
	share []float64
	// requests is the mean of a batch.
	requests float64
	// limited is true if batches can be full; moments are then when requests come.
	limited bool
	moments []moment
}

// solve returns the figures of one replica; false if there are too many states. The load must be
// below 1.
func solve(profile Profile, maxBatch int, rate float64) (figures, bool) {
	c := chain{rate: rate, profile: profile, most: maxBatch}
	states := c.states()
	if states > maxStates {
		return figures{}, false
	}
	c.stationary(states)
	if c.limited {
		c.look()
	}
	var time, busy, inSystem float64
	for q, share := range c.share {
		if share == 0 {
			continue
		}
		n := min(q, c.most)
		took := profile.Batch(n)
		c.requests += share * float64(n)
		busy += share * took
		time += share * took
		if q <= c.most {
			time += share * math.Exp(-rate*took) / rate
		}
		inSystem += share * (float64(q)*took + rate*took*took/2)
	}
	// Little's law gives the mean latency from the mean number in the system.
	p99, ok := c.quantile(0.99)
	return figures{
		method: ByChain, meanBatch: c.requests, mean: inSystem / time / rate, p99: p99, utilization: busy / time,
	}, ok
}

// states returns how many states hold all but a trace of the probability, and sets most
// to them where the batch has no limit that is ever reached.
func (c *chain) states() int {
	item, base := c.profile.PerItem.Seconds(), c.profile.Base.Seconds()
	if rho := c.rate * item; rho < 1 {
		mean := c.rate * base / (1 - rho)
		// Without a limit the next batch has Poisson(rho n + rate base) requests, one at
		// the least: that mean, and the variance mean / (1 - rho²). Near a load of 1 its
		// tail is that of a gamma distribution, far heavier than a normal one: within
		// sqrt(2 variance cut) + cut / decay of the mean but for exp(-cut).
		need := mean + 1/(1-rho) + math.Sqrt(2*cut*(mean+1)/(1-rho*rho)) + cut/decay(rho, 1) + 20
		if c.most == 0 || float64(c.most) >= need {
			c.most = int(min(need, maxStates+1))
			return c.most
		}
	}
	c.limited = true
	most := float64(c.most)
	arrivals := c.rate * c.profile.Batch(c.most)
	return int(min(2*most+arrivals+cut/decay(arrivals, most)+30, maxStates+1))
}

// decay returns the rate at which the tail of the waiting requests falls, by exp(-decay)
// a request, where so many arrive while so many are served: the logarithm of the root z
// above 1 of exp(arrivals (z - 1)) = z^served. Fewer must arrive than are served.
func decay(arrivals, served float64) float64 {
	over := func(z float64) bool { return arrivals*(z-1)-served*math.Log(z) > 0 }
	high := 2.0
	for !over(high) && high < 1e6 {
		high *= 2
	}
	low := 1.0
	for range 60 {
		if mid := (low + high) / 2; over(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return math.Log(high)
}

// stationary finds the share of each state by the elimination of Grassmann, Taksar and
// Heyman (1985), which subtracts nothing and so keeps its digits.
func (c *chain) stationary(states int) {
	to := make([][]float64, states+1)
	for q := 1; q <= states; q++ {
		row := make([]float64, states+1)
		n := min(q, c.most)
		left := 1.0
		for k, p := range pmf(c.rate * c.profile.Batch(n)) {
			next := min(max(1, q-n+k), states)
			row[next] += p
			left -= p
		}
		row[states] += max(0, left)
		to[q] = row
	}
	for q := states; q > 1; q-- {
		out := 0.0
		for j := 1; j < q; j++ {
			out += to[q][j]
		}
		for i := 1; i < q; i++ {
			if to[i][q] == 0 {
				continue
			}
			if out > 0 {
				to[i][q] /= out
			}
			for j := 1; j < q; j++ {
				to[i][j] += to[i][q] * to[q][j]
			}
		}
	}
	c.share = make([]float64, states+1)
	c.share[1] = 1
	sum := 1.0
	for q := 2; q <= states; q++ {
		for i := 1; i < q; i++ {
			c.share[q] += c.share[i] * to[i][q]
		}
		sum += c.share[q]
	}
	for q := range c.share {
		c.share[q] /= sum
	}
}

// moment is an instant of the batches of one size, for the requests that come then.
type moment struct {
	// rest is the remaining time of the batch, in seconds.
	rest float64
	// before is the number of requests per cycle that arrive then and find so many in the queue.
	before []float64
	// behind are, for each number of full batches before its own, the distributions
	// (this many or fewer) of those who come behind the request until its batch begins.
	behind [][]float64
}

// look divides batches of a limited size into instants. A request that arrives after a part u of a
// batch queues behind those left out of it, and Poisson(rate u) others.
func (c *chain) look() {
	for n := 1; n <= c.most; n++ {
		left := c.share[n : n+1] // the states with this batch, by how many it leaves out
		if n == c.most {
			left = c.share[n:]
		}
		took := c.profile.Batch(n)
		for i := range instants {
			u := took * (float64(i) + 0.5) / instants
			came := pmf(c.rate * u)
			m := moment{rest: took - u, before: make([]float64, len(left)+len(came))}
			for l, share := range left {
				if share < negligible {
					continue
				}
				for k, p := range came {
					m.before[l+k] += share * p * c.rate * took / instants
				}
			}
			c.moments = append(c.moments, m)
		}
	}
}

// within returns the share of requests with a latency of at most t seconds.
func (c *chain) within(t float64) float64 {
	sum := 0.0
	if c.profile.Batch(1) <= t+tick {
		for q := 1; q <= c.most; q++ { // after these the queue may be empty
			sum += c.share[q] * math.Exp(-c.rate*c.profile.Batch(q))
		}
	}
	if c.limited {
		for i := range c.moments {
			m := &c.moments[i]
			for before, requests := range m.before {
				if requests > negligible/instants {
					sum += requests * c.served(t, m, before)
				}
			}
		}
		return sum / c.requests
	}
	// Without a limit all who come during a batch make the next one, and came at any
	// instant of it with the same likelihood.
	for q, share := range c.share {
		if share < negligible {
			continue
		}
		took := c.profile.Batch(q)
		for k, p := range pmf(c.rate * took) {
			sum += share * p * float64(k) * min(1, max(0, (t-c.profile.Batch(k))/took))
		}
	}
	return sum / c.requests
}

// served returns how likely a request is done after t, with so many before it in the
// queue. It waits for the rest of the batch in service and for the full batches before
// its own, which takes those who have come behind it until then.
func (c *chain) served(t float64, m *moment, before int) float64 {
	full, place := before/c.most, before%c.most+1
	wait := m.rest + float64(full)*c.profile.Batch(c.most)
	slack := t + tick - wait - c.profile.Base.Seconds()
	fits := c.most
	if item := c.profile.PerItem.Seconds(); slack < 0 {
		return 0
	} else if item > 0 {
		fits = int(min(slack/item, float64(c.most)))
	}
	switch {
	case fits < place:
		return 0
	case fits >= c.most:
		return 1
	}
	for len(m.behind) <= full {
		m.behind = append(m.behind, nil)
	}
	if m.behind[full] == nil {
		d := pmf(c.rate * wait)
		for k := 1; k < len(d); k++ {
			d[k] += d[k-1]
		}
		m.behind[full] = d
	}
	return m.behind[full][min(fits-place, len(m.behind[full])-1)]
}

// quantile returns the latency that a share of the requests stay within, in seconds; false if it is
// none within a thousand million times a batch of one.
func (c *chain) quantile(share float64) (float64, bool) {
	low := c.profile.Batch(1)
	if c.within(low) >= share {
		return low, true
	}
	high, end := 2*low, 1e9*low
	for c.within(high) < share {
		if low, high = high, 2*high; high > end {
			return 0, false
		}
	}
	for high-low > 1e-6*high {
		if mid := (low + high) / 2; c.within(mid) < share {
			low = mid
		} else {
			high = mid
		}
	}
	return high, true
}

// pmf returns the Poisson distribution of a mean, up to where next to nothing is left.
func pmf(mean float64) []float64 {
	out := make([]float64, int(mean+9*math.Sqrt(mean)+20))
	peak := int(mean)
	lg, _ := math.Lgamma(float64(peak) + 1)
	out[peak] = math.Exp(-mean - lg)
	if mean > 0 {
		out[peak] = math.Exp(float64(peak)*math.Log(mean) - mean - lg)
	}
	for k := peak + 1; k < len(out); k++ {
		out[k] = out[k-1] * mean / float64(k)
	}
	for k := peak; k > 0; k-- {
		out[k-1] = out[k] * float64(k) / mean
	}
	return out
}
