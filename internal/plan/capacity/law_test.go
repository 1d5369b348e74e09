package capacity

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// sweep is the law of a published sweep: Mistral-7B on one RTX 4090, 256 input and 128 output tokens
// (mushfiqrahman.dev, 2026).
var sweep = Law{Profile{PerItem: 48 * time.Millisecond, Base: 1740 * time.Millisecond}, 1, 48}

func TestLawOfAPublishedSweep(t *testing.T) {
	for running, want := range map[int]float64{4: 2.09, 8: 3.78, 16: 6.44, 32: 9.73, 48: 11.87} {
		if got := sweep.Throughput(running); math.Abs(got/want-1) > 0.015 {
			t.Errorf("%d running: %.2f requests/s, measured %.2f", running, got, want)
		}
	}
}

func TestParseLaw(t *testing.T) {
	for text, want := range map[string]Law{
		"a=48ms,b=1.74s,running=48":     sweep,
		" b=1.74s, running=4-48,a=48ms": {sweep.Profile, 4, 48},
		"running=1,b=1s":                {Profile{Base: time.Second}, 1, 1},
	} {
		if got, err := ParseLaw(text); err != nil || got != want || !IsLaw(text) {
			t.Errorf("ParseLaw(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"running=48", "a=1ms,running=0", "a=1ms,running=9-8", "a=1ms,running=-1", "a=1ms,running=x",
		"a=1ms,running=1-2-3", "a=1ms,running=4,running=5", "a=1ms,running=", "a=1ms,running=100001",
		"a=1ms,running", "a=0s,b=0s,running=3", "c=1ms,running=3", "a=-1ms,running=3", "",
	} {
		if l, err := ParseLaw(text); err == nil {
			t.Errorf("ParseLaw(%q) = %+v, want an error", text, l)
		}
	}
}

// TestNeverFasterThanMeasured: outside of the measured requests nothing is extrapolated.
func TestNeverFasterThanMeasured(t *testing.T) {
	l := Law{sweep.Profile, 4, 16}
	if l.Time(1) != l.Time(4) || l.Time(40) != l.Time(16) || l.Throughput(40) != l.Throughput(16) {
		t.Errorf("1: %v, 40: %v, %v/s", l.Time(1), l.Time(40), l.Throughput(40))
	}
}

// birthDeath returns the mean latency of one replica by its birth-death chain.
func birthDeath(l Law, rate float64) float64 {
	sum, weighted, p := 1.0, 0.0, 1.0
	for j := 1; j < 100_000; j++ {
		p *= rate / l.Throughput(min(j, l.Max))
		sum += p
		weighted += float64(j) * p
	}
	return weighted / sum / rate
}

func TestSharingAgainstBirthDeathChain(t *testing.T) {
	for _, l := range []Law{
		sweep, {sweep.Profile, 4, 16}, {Profile{Base: time.Second}, 1, 8},
		{Profile{PerItem: 20 * time.Millisecond}, 1, 4},
	} {
		for _, load := range []float64{0.2, 0.5, 0.8} {
			rate := load * l.Throughput(l.Max)
			f := shared(l, poisson(sharedDraws), rate, 1, sharedWarm, make([]float64, sharedDraws))
			if want := birthDeath(l, rate); math.Abs(f.mean/want-1) > 0.03 {
				t.Errorf("%+v at %.1f: mean %.4f s, by the chain %.4f s", l, load, f.mean, want)
			}
			if want := rate * f.mean; l.Max > 40 && math.Abs(f.running/want-1) > 0.02 {
				t.Errorf("%+v at %.1f: %.3f running, by Little's law %.3f", l, load, f.running, want)
			}
		}
	}
}

// twoReplicas returns the mean latency of two replicas by brute force: the stationary distribution of
// the requests at each and in the queue, which ties send to the first.
func twoReplicas(l Law, rate float64, most int) float64 {
	k, width := l.Max, l.Max+1
	n := width * width * (most + 1)
	at := func(a, b, q int) int { return (a*width+b)*(most+1) + q }
	p, next := make([]float64, n), make([]float64, n)
	p[0] = 1
	step := 1 / (rate + 2*l.Throughput(k))
	serve := func(c int) float64 {
		if c == 0 {
			return 0
		}
		return l.Throughput(c) * step
	}
	for range 30_000 {
		clear(next)
		for a := range width {
			for b := range width {
				for q := range most + 1 {
					x := p[at(a, b, q)]
					if x == 0 || q > 0 && (a < k || b < k) {
						continue
					}
					stay := x
					move := func(share float64, to int) { next[to] += x * share; stay -= x * share }
					switch {
					case a < k && a <= b:
						move(rate*step, at(a+1, b, 0))
					case b < k:
						move(rate*step, at(a, b+1, 0))
					case q < most:
						move(rate*step, at(a, b, q+1))
					}
					if a > 0 {
						move(serve(a), at(a-min(1, 1-min(1, q)), b, max(0, q-1)))
					}
					if b > 0 {
						move(serve(b), at(a, b-min(1, 1-min(1, q)), max(0, q-1)))
					}
					next[at(a, b, q)] += stay
				}
			}
		}
		p, next = next, p
	}
	mean := 0.0
	for a := range width {
		for b := range width {
			for q := range most + 1 {
				mean += float64(a+b+q) * p[at(a, b, q)]
			}
		}
	}
	return mean / rate
}

func TestSharingAgainstTwoReplicasByBruteForce(t *testing.T) {
	l := Law{Profile{PerItem: 100 * time.Millisecond, Base: 400 * time.Millisecond}, 1, 4}
	for _, load := range []float64{0.4, 0.8} {
		rate := load * 2 * l.Throughput(4)
		f := shared(l, poisson(sharedDraws), rate, 2, sharedWarm, make([]float64, sharedDraws))
		if want := twoReplicas(l, rate, 80); math.Abs(f.mean/want-1) > 0.03 {
			t.Errorf("at %.1f: mean %.4f s, by brute force %.4f s", load, f.mean, want)
		}
	}
}

// naive serves requests in small steps of logic: it looks for the next event among all requests.
func naive(l Law, arrivals, work []float64, n int) []float64 {
	left, replica := append([]float64{}, work...), make([]int, len(work))
	for i := range replica {
		replica[i] = -1
	}
	out := make([]float64, len(work))
	now, arrived, done := 0.0, 0, 0
	counts := make([]int, n)
	var queue []int
	for done < len(work) {
		at, who := math.Inf(1), -1
		for i := range arrived {
			if r := replica[i]; r >= 0 {
				if end := now + left[i]*l.Time(counts[r]); end < at {
					at, who = end, i
				}
			}
		}
		if arrived < len(work) && arrivals[arrived] < at {
			at, who = arrivals[arrived], -1
		}
		for i := range arrived {
			if r := replica[i]; r >= 0 {
				left[i] -= (at - now) / l.Time(counts[r])
			}
		}
		now = at
		if who < 0 {
			queue = append(queue, arrived)
			arrived++
		} else {
			out[who] = now - arrivals[who]
			counts[replica[who]]--
			replica[who] = -1
			done++
		}
		for len(queue) > 0 {
			best := 0
			for r := range counts {
				if counts[r] < counts[best] {
					best = r
				}
			}
			if counts[best] >= l.Max {
				break
			}
			replica[queue[0]] = best
			counts[best]++
			queue = queue[1:]
		}
	}
	return out
}

func TestSharingAgainstNaiveSimulation(t *testing.T) {
	const n = 1500
	for _, l := range []Law{{sweep.Profile, 1, 5}, {sweep.Profile, 3, 48}} {
		for _, replicas := range []int{1, 3} {
			for _, load := range []float64{0.3, 0.9, 1.5} {
				qps := load * float64(replicas) * l.Throughput(l.Max)
				unit, got := poisson(n), make([]float64, n)
				shared(l, unit, qps, replicas, 0, got)
				arrivals := make([]float64, n)
				for i := range unit {
					arrivals[i] = unit[i] / qps
				}
				for i, want := range naive(l, arrivals, works(n), replicas) {
					if math.Abs(got[i]-want) > 1e-6*want {
						t.Fatalf("%+v, %d replicas at %.1f: request %d took %v s, naively %v s", l, replicas, load, i,
							got[i], want)
					}
				}
			}
		}
	}
}

// TestPlanByLaw checks that the plan has the fewest replicas that keep the objective, by trying
// all.
func TestPlanByLaw(t *testing.T) {
	p := Params{QPS: 25, Law: sweep, P99: 16 * time.Second, HourlyPrice: money.USD}
	r, err := Plan(p)
	if err != nil {
		t.Fatal(err)
	}
	fewest := 0
	for n := 1; fewest == 0; n++ {
		one := p
		one.Replicas = n
		if tried, err := Plan(one); err == nil && *tried.Met {
			fewest = n
		}
	}
	if r.Replicas != fewest || !*r.Met || r.Method != BySimulation || r.MeanBatch != nil || r.MaxWaitMS != nil {
		t.Errorf("%d replicas, by trying all %d: %+v", r.Replicas, fewest, r)
	}
	if want := 25 / (float64(r.Replicas) * sweep.Throughput(48)); math.Abs(r.Utilization-want) > 1e-9 {
		t.Errorf("utilization %v, want %v", r.Utilization, want)
	}
	if want := 25 * *r.MeanLatencyMS / 1000 / float64(r.Replicas); math.Abs(*r.MeanRunning/want-1) > 0.02 {
		t.Errorf("%v running, by Little's law %v", *r.MeanRunning, want)
	}
	if !strings.Contains(strings.Join(r.Assumptions, "\n"), "while c requests run") {
		t.Errorf("assumptions %q", r.Assumptions)
	}
	band, err := Plan(Params{QPS: 25, Law: sweep, Band: true})
	if err != nil || band.Replicas != 3 {
		t.Errorf("60%% to 80%% of 25/s: %d replicas, %v; want 3", band.Replicas, err)
	}
	replay, err := Plan(Params{Law: sweep, Replicas: 1, Arrivals: &Arrivals{Times: []float64{0, 100, 200, 300}}})
	if err != nil || replay.Method != ByReplay || replay.Requests != 4 {
		t.Errorf("replay: %+v, %v", replay, err)
	}
}

func TestLawRefused(t *testing.T) {
	for name, p := range map[string]Params{
		"two profiles":    {QPS: 1, Law: sweep, Profile: sweep.Profile},
		"a rate as well":  {QPS: 1, Law: sweep, QPSPerGPU: 3},
		"a maximum batch": {QPS: 1, Law: sweep, MaxBatch: 8},
		"no time":         {QPS: 1, Law: Law{Min: 1, Max: 3}},
		"no range":        {QPS: 1, Law: Law{Profile: sweep.Profile}},
		"arrivals of several items": {Law: sweep, Arrivals: &Arrivals{
			Times: []float64{0, 1}, Sizes: []int{1, 2},
		}},
	} {
		if r, err := Plan(p); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if _, err := Plan(Params{QPS: 1, Law: sweep, P99: 2 * time.Second}); !errors.Is(err, ErrObjective) {
		t.Errorf("an objective below a request alone: %v", err)
	}
	if _, err := Plan(Params{QPS: 50, Law: sweep, Replicas: 2}); !errors.Is(err, ErrOverload) {
		t.Errorf("twice what two replicas serve: %v", err)
	}
}
