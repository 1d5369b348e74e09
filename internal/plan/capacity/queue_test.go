package capacity

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Published values of the mean wait over the service time.
func TestErlangC(t *testing.T) {
	loads := []float64{0.6, 0.7, 0.8, 0.9}
	for c, row := range map[int][]float64{
		1: {1.50, 2.33, 4.00, 9.00}, 2: {0.56, 0.96, 1.78, 4.26}, 4: {0.18, 0.36, 0.75, 1.97},
		8: {0.04, 0.11, 0.29, 0.88}, 16: {0.01, 0.03, 0.10, 0.37},
	} {
		for i, want := range row {
			// Two digits after the point are given: half of the last is their own error.
			if got := ErlangWait(c, loads[i]); math.Abs(got-want) > max(0.02*want, 0.005) {
				t.Errorf("%d servers at %v wait %v, want %v", c, loads[i], got, want)
			}
		}
	}
	for _, tc := range []struct {
		name       string
		c          int
		load, want float64
	}{
		{"no load", 3, 0, 0}, {"full", 3, 1, 1}, {"over", 3, 2, 1}, {"no server", 0, 0.5, 1},
		{"one server", 1, 0.4, 0.4},
		{"no number", 3, math.NaN(), 0}, {"a thousand", 1000, 0.5, 0},
	} {
		if got := ErlangC(tc.c, tc.load); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// 60 to 80% suit 4 to 8 replicas, one needs less, 16 and more bear 90%.
func TestUtilizationTarget(t *testing.T) {
	for _, tc := range []struct {
		replicas  int
		low, high float64
	}{{1, 0.2, 0.3}, {2, 0.45, 0.55}, {4, 0.6, 0.8}, {8, 0.6, 0.82}, {16, 0.88, 0.92}, {64, 0.95, 0.99}} {
		if got := UtilizationTarget(tc.replicas); got < tc.low || got > tc.high {
			t.Errorf("%d replicas: %v, want %v to %v", tc.replicas, got, tc.low, tc.high)
		}
	}
}

// The approximation published for a queue that takes all, good to 1.7% from a load of
// 0.3 on, is what the chain finds.
func TestChainAgainstFormula(t *testing.T) {
	for _, rate := range []float64{300, 400, 500, 600, 700, 800} {
		f, ok := solve(published, 0, rate)
		if !ok {
			t.Fatalf("%v a second have too many states", rate)
		}
		item, base := 0.001, 0.010
		rho := rate * item
		latency := item + base + (0.5+rho)*(base/(1-rho)+rate*item*item/(1-rho*rho))
		if !near(f.mean, latency, 0.017) || !near(f.meanBatch, rate*base/(1-rho), 0.017) {
			t.Errorf("%v a second: a mean of %v s and batches of %v, want %v and %v", rate,
				f.mean, f.meanBatch, latency,
				rate*base/(1-rho))
		}
	}
}

// Two ways to the same figures: the chain, and a simulation that knows nothing of it.
func TestChainAgainstSimulation(t *testing.T) {
	unit := poisson(drawn)
	out := make([]float64, len(unit))
	for _, tc := range []struct {
		name    string
		profile Profile
		most    int
		rate    float64
	}{
		{"all, a light load", published, 0, 20},
		{"all", published, 0, 500},
		{"at most 8", published, 8, 350},
		{"at most 16", published, 16, 500},
		{"one at a time", Profile{Base: 10 * time.Millisecond}, 1, 70},
		{"at most 4, as long as one", Profile{Base: 10 * time.Millisecond}, 4, 300},
		{"no base", Profile{PerItem: 10 * time.Millisecond}, 3, 60},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := run{
				unit: unit, qps: tc.rate, profile: tc.profile, maxBatch: tc.most, replicas: 1, warm: warmUp,
			}.replay(out)
			off := spread(out[warmUp:])
			want.p99 = quantile(out[warmUp:], 0.99)
			got, ok := solve(tc.profile, tc.most, tc.rate)
			if !ok {
				t.Fatal("too many states")
			}
			if !near(got.meanBatch, want.meanBatch, 0.01) || !near(got.mean, want.mean, 0.015) ||
				!near(got.utilization, want.utilization, 0.01) ||
				math.Abs(got.p99-want.p99) > 0.01*want.p99+1.5*off {
				t.Errorf("computed %+v\nsimulated %+v, the p99 within %v", got, want, off)
			}
		})
	}
}

// balances reports a chain whose shares are no distribution that a step leaves as it is:
// the mean number of arrivals in a cycle is the mean batch. It says whether the chain is
// small enough to be solved.
func balances(t rapid.TB, p Profile, most int, rate float64) bool {
	c := chain{rate: rate, profile: p, most: most}
	states := c.states()
	if states > maxStates {
		return false
	}
	c.stationary(states)
	var arrivals, requests float64
	for q, share := range c.share {
		if q == 0 {
			continue
		}
		n := min(q, c.most)
		requests += share * float64(n)
		arrivals += share * rate * p.Batch(n)
		if q <= c.most {
			arrivals += share * math.Exp(-rate*p.Batch(n))
		}
	}
	if !near(arrivals, requests, 1e-6) {
		t.Errorf("%v arrive in a cycle that serves %v", arrivals, requests)
	}
	f, ok := solve(p, most, rate)
	if !ok || f.mean < p.Batch(1)*(1-1e-9) || f.p99 < p.Batch(1)*(1-1e-9) || f.utilization > 1+1e-9 ||
		f.meanBatch < 1-1e-9 {
		t.Errorf("%+v, %v", f, ok)
	}
	return true
}

func TestChainBalances(t *testing.T) {
	// The tail of a queue without a limit is heavy where the load is high and the base
	// is next to nothing.
	t.Run("without a limit at a load of 0.92", func(t *testing.T) {
		if !balances(t, Profile{483 * time.Microsecond, time.Microsecond}, 0, 0.95/0.0005) {
			t.Error("too many states")
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		p := Profile{
			time.Duration(rapid.IntRange(0, 5000).Draw(t, "item")) * time.Microsecond,
			time.Duration(rapid.IntRange(1, 20_000).Draw(t, "base")) * time.Microsecond,
		}
		most := rapid.IntRange(0, 20).Draw(t, "most")
		item := p.PerItem.Seconds()
		if most > 0 {
			item = p.Batch(most) / float64(most)
		}
		balances(t, p, most, rapid.Float64Range(0.01, 0.95).Draw(t, "load")/max(item, 0.0005))
	})
}

// Four replicas, one request at a time and always as long, are an M/D/4 queue: the number
// in the system after D is Poisson(rate D) more than what four did not take (Crommelin
// 1932), at any time; Little's law gives the latency.
func TestSimulationAgainstMD4(t *testing.T) {
	const servers, took = 4, 0.010
	for _, load := range []float64{0.5, 0.8, 0.9} {
		rate := load * servers / took
		came := pmf(rate * took)
		state, mean := make([]float64, 400), 0.0
		state[0] = 1
		for range 600 {
			next := make([]float64, len(state))
			for n, share := range state {
				for k, p := range came {
					next[min(max(0, n-servers)+k, len(next)-1)] += share * p
				}
			}
			state = next
		}
		for n, share := range state {
			mean += float64(n) * share
		}
		s, err := newSizing(Params{QPS: rate, Profile: Profile{Base: 10 * time.Millisecond}, MaxBatch: 1})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.figures(servers, rate, 0); !near(got.mean, mean/rate, 0.01) || !near(got.utilization, load, 0.01) {
			t.Errorf("load %v: a mean of %v s at %v, want %v", load, got.mean, got.utilization, mean/rate)
		}
	}
}

// bySecond serves the same queue as a run does, one second after the other, in whole
// seconds: plain, and slow.
func bySecond(times, sizes []int, item, base, limit, replicas, wait int) []int {
	out, free := make([]int, len(times)), make([]int, replicas)
	for now, head := 0, 0; head < len(times); now++ {
		for head < len(times) && times[head] <= now {
			server := slices.IndexFunc(free, func(t int) bool { return t <= now })
			if server < 0 {
				break
			}
			next, n, full := head, 0, false
			for next < len(times) && times[next] <= now && !full {
				if limit > 0 && n+sizes[next] > limit {
					full = true
					break
				}
				n += sizes[next]
				next++
				full = n == limit
			}
			if !full && now < times[head]+wait {
				break
			}
			for ; head < next; head++ {
				out[head] = now + item*n + base - times[head]
			}
			free[server] = now + item*n + base
		}
	}
	return out
}

func TestReplayAgainstClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gaps := rapid.SliceOfN(rapid.IntRange(0, 6), 1, 60).Draw(t, "gaps")
		limit := rapid.IntRange(0, 6).Draw(t, "limit")
		item, base := rapid.IntRange(0, 3).Draw(t, "item"), rapid.IntRange(1, 6).Draw(t, "base")
		replicas, wait := rapid.IntRange(1, 4).Draw(t, "replicas"), rapid.IntRange(0, 9).Draw(t, "wait")
		largest := limit
		if limit == 0 {
			largest = 6
		}
		var times, sizes []int
		unit := make([]float64, len(gaps))
		for i, g := range gaps {
			now := g
			if i > 0 {
				now += times[i-1]
			}
			times, sizes, unit[i] = append(times, now), append(sizes,
				rapid.IntRange(1, largest).Draw(t, "size")), float64(now)
		}
		r := run{
			unit: unit, sizes: sizes, qps: 1, profile: Profile{
				time.Duration(item) * time.Second, time.Duration(base) * time.Second,
			},
			maxBatch: limit, replicas: replicas, wait: float64(wait)}
		got := make([]float64, len(unit))
		f := r.replay(got)
		want := bySecond(times, sizes, item, base, limit, replicas, wait)
		for i := range want {
			if got[i] != float64(want[i]) {
				t.Fatalf("request %d of %v sized %v takes %v, want %d", i, times, sizes, got[i], want[i])
			}
		}
		if f.utilization > 1+1e-9 || limit > 0 && f.meanBatch > float64(limit) {
			t.Fatalf("%+v is over what %d replicas can be", f, replicas)
		}
	})
}

func TestQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 10), 1, 500).Draw(t, "values")
		share := rapid.Float64Range(0, 1).Draw(t, "share")
		sorted := slices.Sorted(slices.Values(values))
		want := sorted[max(0, int(math.Ceil(share*float64(len(values))-1e-9))-1)]
		if got := quantile(values, share); got != want {
			t.Fatalf("the %v quantile of %v is %v, want %v", share, sorted, got, want)
		}
	})
}

func TestPMF(t *testing.T) {
	for _, mean := range []float64{0, 1e-9, 0.5, 1, 20.3, 1000} {
		sum, first := 0.0, 0.0
		for k, p := range pmf(mean) {
			sum, first = sum+p, first+float64(k)*p
		}
		if !near(sum, 1, 1e-9) || math.Abs(first-mean) > 1e-9*(1+mean) {
			t.Errorf("mean %v: a sum of %v and a mean of %v", mean, sum, first)
		}
	}
}

func BenchmarkSolve(b *testing.B) {
	for _, rate := range []float64{500, 800} {
		b.Run(strconv.Itoa(int(rate)), func(b *testing.B) {
			for b.Loop() {
				if _, ok := solve(published, 0, rate); !ok {
					b.Fatal("more states than are solved")
				}
			}
		})
	}
}

func BenchmarkReplay(b *testing.B) {
	unit := poisson(drawn)
	out := make([]float64, len(unit))
	for _, replicas := range []int{1, 40, 4000} {
		b.Run(strconv.Itoa(replicas), func(b *testing.B) {
			r := run{unit: unit, qps: 80 * float64(replicas), profile: published, maxBatch: 32, replicas: replicas}
			for b.Loop() {
				r.replay(out)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/drawn, "ns/request")
		})
	}
}
