package usage

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

func point(d time.Duration, v float64) Point { return Point{Time: at(d), Mean: v, Max: v} }

func TestCoverage(t *testing.T) {
	const step = time.Minute
	for _, tc := range []struct {
		name  string
		times []time.Duration
		want  float64 // of ten minutes
	}{
		{"none", nil, 0},
		{"one point", []time.Duration{0}, 0.1},
		{"every step", every(0, 10, step), 1},
		{"every step, newest first", reversed(every(0, 10, step)), 1},
		{"every second step", every(0, 5, 2*step), 0.5},
		{"a burst does not make up for a gap", every(0, 60, time.Second), 0.1983},
		{"twice the same points", append(every(0, 5, step), every(0, 5, step)...), 0.5},
		{"cut at the end", []time.Duration{9*step + step/2}, 0.05},
		{"odd then even", append(every(0, 5, 2*step), every(step, 5, 2*step)...), 1},
		{"jitter", []time.Duration{0, 61 * time.Second, 119 * time.Second}, 0.2967},
	} {
		w := NewWindow(start, at(10*step), step, "test", nil)
		for _, d := range tc.times {
			w.Add("0", GPUUtil, point(d, 5))
		}
		var st *Stats
		if len(w.GPUs) > 0 {
			st = w.GPUs[0].Stats(GPUUtil)
		}
		if got := w.Coverage(st); math.Abs(got-tc.want) > 1e-3 {
			t.Errorf("%s: coverage is %v, want %v", tc.name, got, tc.want)
		}
	}
}

func every(from time.Duration, n int, step time.Duration) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = from + time.Duration(i)*step
	}
	return out
}

func reversed(d []time.Duration) []time.Duration {
	slices.Reverse(d)
	return d
}

// TestCoverageMatchesSeconds compares the coverage of arbitrary points in arbitrary order with a
// count of covered seconds: it is never more, and equal if the points are on a grid.
func TestCoverageMatchesSeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step := rapid.IntRange(1, 50).Draw(t, "step")
		grid := rapid.Bool().Draw(t, "on a grid")
		offsets := rapid.SliceOfN(rapid.IntRange(0, 999), 0, 80).Draw(t, "offsets")
		w := NewWindow(start, at(1000*time.Second), time.Duration(step)*time.Second, "test", nil)
		var covered [1000]bool
		for _, s := range offsets {
			if grid {
				s -= s % step
			}
			w.Add("", CPUUtil, point(time.Duration(s)*time.Second, 1))
			for i := s; i < min(s+step, 1000); i++ {
				covered[i] = true
			}
		}
		want := 0.0
		for _, c := range covered {
			if c {
				want++
			}
		}
		got := w.Covered(w.Machine.Stats(CPUUtil)).Seconds()
		if got > want || (grid && got != want) {
			t.Fatalf("%v s are covered, want %v", got, want)
		}
		spans := 0
		if st := w.Machine.Stats(CPUUtil); st != nil {
			spans = len(st.coverage.spans)
			if !slices.IsSortedFunc(st.coverage.spans, func(a, b span) int { return int(a.from - b.from) }) {
				t.Fatalf("spans are out of order: %v", st.coverage.spans)
			}
		}
		if spans > len(offsets) {
			t.Fatalf("%d spans for %d points", spans, len(offsets))
		}
	})
}

func TestFresh(t *testing.T) {
	w := NewWindow(start, at(time.Hour), time.Minute, "test", nil)
	w.Add("", CPUUtil, point(50*time.Minute, 1))
	st := w.Machine.Stats(CPUUtil)
	for _, tc := range []struct {
		name string
		st   *Stats
		now  time.Duration
		want bool
	}{
		{"three steps old", st, 53 * time.Minute, true},
		{"over three steps old", st, 53*time.Minute + 1, false},
		{"nothing measured", nil, 0, false},
	} {
		if got := w.Fresh(tc.st, at(tc.now)); got != tc.want {
			t.Errorf("%s: Fresh is %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestQuiet(t *testing.T) {
	const h = time.Hour
	for _, tc := range []struct {
		name   string
		values []float64 // by hour; negative is missing
		want   time.Duration
	}{
		{"always quiet", []float64{0, 0, 0, 0}, 4 * h},
		{"under the floor", []float64{0.9, 0.9, 0.9, 0.9}, 4 * h},
		{"active at first", []float64{50, 0, 0, 0}, 3 * h},
		{"active now", []float64{0, 0, 0, 1}, 0},
		{"a missing point ends it", []float64{0, 0, -1, 0}, 1 * h},
		{"up to the newest point", []float64{50, 0, 0, -1}, 2 * h},
		{"nothing measured", []float64{-1, -1, -1, -1}, 0},
	} {
		w := NewWindow(start, at(4*h), h, "test", nil)
		for i, v := range tc.values {
			w.Add("", GPUUtil, point(time.Duration(i)*h, v))
		}
		if got := w.Quiet(w.Machine.Stats(GPUUtil)); got != tc.want {
			t.Errorf("%s: quiet for %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestAddRejectsInvalidPoints(t *testing.T) {
	w := NewWindow(start, at(time.Hour), time.Minute, "test", nil)
	for _, tc := range []struct {
		name string
		s    Signal
		p    Point
	}{
		{"before the window", GPUUtil, point(-1, 5)},
		{"at its end", GPUUtil, point(time.Hour, 5)},
		{"negative", GPUUtil, point(0, -1)},
		{"NaN", GPUUtil, point(0, math.NaN())},
		{"infinite maximum", GPUUtil, Point{Time: start, Mean: 5, Max: math.Inf(1)}},
		{"64-bit sentinel", GPUUtil, point(0, 9223372036854775794)},
		{"32-bit sentinel", GPUUtil, point(0, 2147483634)},
		{"floating sentinel", GPUUtil, point(0, 140737488355328)},
		{"sentinel in MiB", MemUsed, point(0, 2147483632*mib)},
		{"no such signal", numSignals, point(0, 1)},
	} {
		if w.Add("0", tc.s, tc.p) {
			t.Errorf("%s: a point was recorded", tc.name)
		}
	}
	if !w.Add("0", GPUUtil, point(0, 100.2)) || w.GPUs[0].Stats(GPUUtil).Max != 100 {
		t.Errorf("100.2%% is not recorded as 100%%")
	}
}

func TestZeroWindow(t *testing.T) {
	w := &Window{From: start, To: at(time.Hour)}
	if !w.Add("", GPUUtil, point(0, 0)) {
		t.Fatal("a point was dropped")
	}
	st := w.Machine.Stats(GPUUtil)
	if w.Coverage(st) != 0 || w.Quiet(st) != 0 {
		t.Errorf("without a step coverage is %v and quiet %s, want 0", w.Coverage(st), w.Quiet(st))
	}
	var none *Stats
	if _, err := none.Mean(); !errors.Is(err, ErrNoSamples) {
		t.Errorf("mean of nothing: %v, want ErrNoSamples", err)
	}
	if _, err := none.Quantile(GPUUtil, 0.5); !errors.Is(err, ErrNoSamples) {
		t.Errorf("median of nothing: %v, want ErrNoSamples", err)
	}
	if _, err := none.ActiveShare(); !errors.Is(err, ErrNoSamples) {
		t.Errorf("active share of nothing: %v, want ErrNoSamples", err)
	}
	if _, ok := none.Bucket(0); ok {
		t.Error("nothing has a bucket")
	}
}

// TestQuantiles compares quantiles, mean and extremes with a sorted reference.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		signal := rapid.SampledFrom([]Signal{GPUUtil, SMActive, MemUsed, Power, Sessions}).Draw(t, "signal")
		values := map[Signal]*rapid.Generator[float64]{
			GPUUtil: rapid.Float64Range(0, 100), SMActive: rapid.Float64Range(0, 1),
			MemUsed: rapid.Float64Range(0, 2e11),
			Power:   rapid.Float64Range(0, 1200), Sessions: rapid.Map(rapid.IntRange(0, 20), func(i int) float64 {
				return float64(i)
			}),
		}[signal]
		list := rapid.SliceOfN(values, 1, 200).Draw(t, "values")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		parts := rapid.IntRange(1, 3).Draw(t, "parts")
		w := NewWindow(start, at(time.Hour), time.Second, "test", nil)
		var sum float64
		for i, v := range list {
			if !w.Add(fmt.Sprint(i%parts), signal, point(time.Duration(i)*time.Second, v)) {
				t.Fatalf("%v was dropped", v)
			}
			sum += v
		}
		meters := []*Stats{w.Machine.Stats(signal)}
		for _, g := range w.GPUs {
			meters = append(meters, g.Stats(signal))
		}
		st := Pool(meters...)
		slices.Sort(list)
		want := list[max(int(math.Ceil(q*float64(len(list)))), 1)-1]
		tolerance := map[Signal]float64{GPUUtil: 0.0501, SMActive: 0.000501, Sessions: 0}[signal]
		if signal == MemUsed || signal == Power {
			tolerance = max(0.0101*want, minBinned)
		}
		if got, err := st.Quantile(signal, q); err != nil || math.Abs(got-want) > tolerance {
			t.Fatalf("quantile %v is %v, %v; want %v within %v", q, got, err, want, tolerance)
		}
		mean, _ := st.Mean()
		if math.Abs(mean-sum/float64(len(list))) > 1e-9*(1+sum) || st.Min != list[0] || st.Max != list[len(list)-1] ||
			st.Count != len(list) {
			t.Fatalf("mean %v, %v to %v of %d; want %v, %v to %v of %d", mean, st.Min, st.Max, st.Count,
				sum/float64(len(list)), list[0], list[len(list)-1], len(list))
		}
	})
}

func TestLastActiveInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.Permutation(every(0, 30, time.Minute)).Draw(t, "order")
		active := rapid.SliceOfN(rapid.Bool(), 30, 30).Draw(t, "active")
		w := NewWindow(start, at(30*time.Minute), time.Minute, "test", nil)
		var want time.Time
		n := 0
		for _, d := range order {
			v := 0.5
			if active[d/time.Minute] {
				v = 3
				n++
				if at(d).After(want) {
					want = at(d)
				}
			}
			w.Add("", GPUUtil, Point{Time: at(d), Mean: 0, Max: v})
		}
		st := w.Machine.Stats(GPUUtil)
		if !st.LastActive.Equal(want) || st.Active != n || w.Coverage(st) != 1 {
			t.Fatalf("last active %s, %d active points, coverage %v; want %s, %d, 1", st.LastActive,
				st.Active, w.Coverage(st),
				want, n)
		}
		if newest, _ := st.Newest(); newest != 0 || !st.Last.Equal(at(29*time.Minute)) || !st.First.Equal(start) {
			t.Fatalf("points from %s to %s, newest %v", st.First, st.Last, newest)
		}
	})
}

func TestBuckets(t *testing.T) {
	w := NewWindow(start, at(Buckets*time.Hour), time.Hour, "test", nil)
	w.Add("", GPUUtil, point(0, 0))
	w.Add("", GPUUtil, point(3*time.Hour, 40))
	w.Add("", GPUUtil, point(3*time.Hour+30*time.Minute, 20))
	w.Add("", GPUUtil, point(Buckets*time.Hour-1, 7))
	st := w.Machine.Stats(GPUUtil)
	for i := range Buckets {
		got, ok := st.Bucket(i)
		want, there := map[int]float64{0: 0, 3: 40, Buckets - 1: 7}[i]
		if ok != there || got != want {
			t.Errorf("bucket %d is %v, %v; want %v, %v", i, got, ok, want, there)
		}
	}
}

func TestLongWindowHasBuckets(t *testing.T) {
	w := NewWindow(start, start.AddDate(100, 0, 0), time.Hour, "test", nil)
	if !w.Add("", CPUUtil, Point{Time: start.AddDate(99, 11, 0), Mean: 3, Max: 3}) {
		t.Fatal("a point was dropped")
	}
	if v, ok := w.Machine.Stats(CPUUtil).Bucket(Buckets - 1); !ok || v != 3 {
		t.Errorf("the last of a hundred years' buckets is %v, %v; want 3", v, ok)
	}
}

func TestGPUsInOrder(t *testing.T) {
	w := NewWindow(start, at(time.Hour), time.Minute, "test", nil)
	for _, g := range []string{"10", "2", "GPU-b", "0", "GPU-a"} {
		w.Add(g, GPUUtil, point(0, 1))
	}
	var got []string
	for _, g := range w.GPUs {
		got = append(got, g.Name)
	}
	if want := []string{"0", "2", "10", "GPU-a", "GPU-b"}; !slices.Equal(got, want) {
		t.Errorf("GPUs are %v, want %v", got, want)
	}
}

// TestStatsMemoryIsBounded adds values and times that never repeat.
func TestStatsMemoryIsBounded(t *testing.T) {
	w := NewWindow(start, at(100_000*time.Second), time.Second/4, "test", nil)
	for i := range 100_000 {
		v := float64(i) * 1e6
		w.Add("0", MemUsed, point(time.Duration(i)*time.Second, v))
		w.Add("0", Processes, point(time.Duration(i)*time.Second, float64(i)))
		w.Add("0", Power, point(time.Duration(i)*time.Second, 9000-float64(i)/100))
		w.Add("", Step, point(time.Duration(i)*time.Second, 1e6-v/1e6))
	}
	if falls, steps := w.GPUs[0].Stats(Power), w.Machine.Stats(Step); len(falls.maxima) > maxPeaks ||
		len(steps.counterRuns) > maxRuns {
		t.Errorf("a series that only falls holds %d peaks, a counter that only falls %d runs", len(falls.maxima),
			len(steps.counterRuns))
	}
	for _, s := range []Signal{MemUsed, Processes} {
		st := w.GPUs[0].Stats(s)
		if len(st.digest) > maxLinear+1 || len(st.coverage.spans) > maxSpans {
			t.Errorf("%s holds %d bins and %d spans", s, len(st.digest), len(st.coverage.spans))
		}
		if w.Coverage(st) > 0.25 || w.Quiet(st) != 0 {
			t.Errorf("%s: coverage %v, quiet %s of a meter full of holes", s, w.Coverage(st), w.Quiet(st))
		}
	}
}

func TestTristate(t *testing.T) {
	all := []Tristate{Unknown, False, True}
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(rapid.SampledFrom(all)).Draw(t, "answers")
		var negated []Tristate
		for _, a := range list {
			negated = append(negated, a.Not())
		}
		if And(list...).Not() != Or(negated...) {
			t.Fatalf("not all of %v is %s, any of %v is %s", list, And(list...).Not(), negated, Or(negated...))
		}
	})
	if Unknown.Not() != Unknown || Tristate(0) != Unknown {
		t.Error("unknown is not the zero value, or its negation is known")
	}
}
