package usage

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestStretches(t *testing.T) {
	const h = time.Hour
	for _, tc := range []struct {
		name               string
		values             []float64 // by hour; negative is missing
		rest, work, unbent time.Duration
	}{
		{"nothing measured", []float64{-1, -1}, 0, 0, 0},
		{"one quiet point", []float64{-1, 0}, h, 0, h},
		{"one active point", []float64{-1, 30}, 0, h, h},
		{"under the line and over the floor", []float64{9, 9, 9}, 3 * h, 3 * h, 3 * h},
		{"over the line at first", []float64{30, 0, 9}, 2 * h, h, 3 * h},
		{"over the line now", []float64{0, 9, 30}, 0, 2 * h, 3 * h},
		{"a gap", []float64{30, 30, -1, 0, 0}, 2 * h, 0, 2 * h},
		{"a quiet point between active ones", []float64{30, 0, 30, 30}, 0, 2 * h, 4 * h},
	} {
		w := NewWindow(start, at(8*h), h, "test", nil)
		for i, v := range tc.values {
			w.Add("", GPUUtil, point(time.Duration(i)*h, v))
		}
		st := w.Machine.Stats(GPUUtil)
		end := at(time.Duration(len(tc.values)) * h)
		for _, c := range []struct {
			name string
			got  Stretch
			want time.Duration
		}{
			{"rest under 10", w.Rest(st, 10), tc.rest}, {"work", w.Work(st), tc.work},
			{"unbroken", w.Unbroken(st), tc.unbent},
		} {
			if got := c.got.Length(end); got != c.want {
				t.Errorf("%s: %s for %s, want %s", tc.name, c.name, got, c.want)
			}
		}
	}
}

func TestStretchEndsWithItsNewestStep(t *testing.T) {
	w := NewWindow(start, at(90*time.Second), time.Minute, "test", nil)
	w.Add("", CPUUtil, point(0, 0))
	w.Add("", CPUUtil, point(time.Minute, 0))
	s := w.Rest(w.Machine.Stats(CPUUtil), 5)
	for _, tc := range []struct{ at, want time.Duration }{
		{90 * time.Second, 90 * time.Second}, {2 * time.Minute, 2 * time.Minute}, {time.Hour, 2 * time.Minute},
		{-time.Hour, 0},
	} {
		if got := s.Length(at(tc.at)); got != tc.want {
			t.Errorf("at %s it lasts %s, want %s", tc.at, got, tc.want)
		}
	}
	if s.Coverage != 1 {
		t.Errorf("coverage is %v, want 1", s.Coverage)
	}
	var none Stretch
	if got := s.Intersect(none).Length(at(time.Hour)); got != 0 {
		t.Errorf("together with no time at all it lasts %s", got)
	}
}

// TestStretchCoverage checks that a stretch ends at a gap but not at jitter.
func TestStretchCoverage(t *testing.T) {
	for name, order := range map[string][]int{
		"in order": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "newest first": {9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
		"joined at last": {9, 1, 7, 3, 5, 0, 8, 2, 6, 4},
	} {
		w := NewWindow(start, at(time.Hour), 10*time.Second, "test", nil)
		w.Add("", CPUUtil, point(0, 0))
		for _, i := range order {
			w.Add("", CPUUtil, point(time.Minute+time.Duration(i)*14*time.Second, 0))
		}
		if got := w.Unbroken(w.Machine.Stats(CPUUtil)).Coverage; math.Abs(got-100.0/136) > 1e-9 {
			t.Errorf("%s: coverage is %v, want 100 of 136 seconds", name, got)
		}
	}
}

// TestNoRestWithTooManyGaps checks that a meter with more gaps than are stored never counts as
// idle.
func TestNoRestWithTooManyGaps(t *testing.T) {
	w := NewWindow(start, at(100_000*time.Second), time.Second/4, "test", nil)
	for i := range 2 * maxSpans {
		w.Add("", CPUUtil, point(time.Duration(i)*time.Second, 0))
	}
	st := w.Machine.Stats(CPUUtil)
	if got := w.Rest(st, 5).Length(w.To); got != 0 || w.Quiet(st) != 0 {
		t.Errorf("it rests for %s and is quiet for %s, want 0", got, w.Quiet(st))
	}
}

// TestRestMatchesPoints compares Rest at any limit with all points, in any order.
func TestRestMatchesPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "points")
		values := make([]float64, n)
		// Steep falls exceed maxPeaks, noise does not.
		fall := rapid.Float64Range(0, 1).Draw(t, "fall")
		for i := range values {
			values[i] = max(0, 100-fall*float64(i)-rapid.Float64Range(0, 30).Draw(t, "noise"))
		}
		w := NewWindow(start, at(time.Duration(n)*time.Minute), time.Minute, "test", nil)
		for _, d := range rapid.Permutation(every(0, n, time.Minute)).Draw(t, "order") {
			w.Add("", GPUUtil, point(d, values[d/time.Minute]))
		}
		st := w.Machine.Stats(GPUUtil)
		line := rapid.Float64Range(0.1, 100).Draw(t, "line")
		want := time.Duration(0)
		for i := n - 1; i >= 0 && values[i] < line; i-- {
			want += time.Minute
		}
		got := w.Rest(st, line).Length(w.To)
		if got > want || (want == 0) != (got == 0) {
			t.Fatalf("at rest for %s, want %s", got, want)
		}
		if exact := n <= maxPeaks; len(st.maxima) > maxPeaks || (exact && got != want) || got < want*3/4 {
			t.Fatalf("at rest for %s, want %s; %d peaks are kept", got, want, len(st.maxima))
		}
		from := rapid.IntRange(0, n-1).Draw(t, "from")
		peak, ok := w.Peak(st, at(time.Duration(from)*time.Minute))
		if highest := slices.Max(values[from:]); !ok || peak < highest || (n <= maxPeaks && peak != highest) {
			t.Fatalf("the peak from %d on is %v, %v; want %v", from, peak, ok, highest)
		}
	})
}

func TestCounter(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []float64 // by minute; negative is missing
		rose   int       // minute; negative never
		still  time.Duration
	}{
		{"never moves", []float64{7, 7, 7}, -1, 3 * time.Minute},
		{"moves every minute", []float64{1, 2, 3}, 2, time.Minute},
		{"stops", []float64{1, 2, 3, 3, 3}, 2, 3 * time.Minute},
		{"a restart is no progress", []float64{5, 6, 0, 0}, 1, 3 * time.Minute},
		{"and is once it rises", []float64{5, 6, 0, 1, 1}, 3, 2 * time.Minute},
		{"restarts again and again", []float64{5, 6, 4, 2, 0, 0}, 1, 5 * time.Minute},
		{"a resumed run that is behind", []float64{10, 5, 6, 6}, 2, 2 * time.Minute},
		{"a gap hides progress", []float64{5, 6, -1, 6, 6}, 1, 2 * time.Minute},
		{"nothing", []float64{-1}, -1, 0},
	} {
		for _, order := range [][]time.Duration{
			every(0, len(tc.values), time.Minute), reversed(every(0, len(tc.values), time.Minute)),
		} {
			w := NewWindow(start, at(time.Hour), time.Minute, "test", nil)
			for _, d := range order {
				w.Add("", Step, point(d, tc.values[d/time.Minute]))
			}
			st := w.Machine.Stats(Step)
			want := time.Time{}
			if tc.rose >= 0 {
				want = at(time.Duration(tc.rose) * time.Minute)
			}
			if st != nil && !st.LastActive.Equal(want) {
				t.Errorf("%s: it last rose at %s, want %s", tc.name, st.LastActive, want)
			}
			if got := w.Standstill(st).Length(w.To); got != tc.still {
				t.Errorf("%s: it stands still for %s, want %s", tc.name, got, tc.still)
			}
		}
	}
}

// TestCounterInAnyOrder checks that a restarting counter is followed in any order of points; late
// points can only make it look more active.
func TestCounterInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "points")
		values := make([]float64, n)
		restarts := 0
		for i := 1; i < n; i++ {
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
			case step < 6:
				values[i] = values[i-1]
			case step < 9:
				values[i] = values[i-1] + 1
			default:
				restarts++
			}
		}
		want := -1
		for i := 1; i < n; i++ {
			if values[i] > values[i-1] {
				want = i
			}
		}
		inOrder := rapid.Bool().Draw(t, "in order")
		order := every(0, n, time.Minute)
		if !inOrder {
			order = rapid.Permutation(order).Draw(t, "order")
		}
		w := NewWindow(start, at(time.Hour), time.Minute, "test", nil)
		for _, d := range order {
			w.Add("", Step, point(d, values[d/time.Minute]))
		}
		got := -1
		if last := w.Machine.Stats(Step).LastActive; !last.IsZero() {
			got = int(last.Sub(start) / time.Minute)
		}
		if got < want || (got != want && (inOrder || restarts == 0)) {
			t.Fatalf("%v last rose at %d, want %d (in order: %v)", values, got, want, inOrder)
		}
		if runs := len(w.Machine.Stats(Step).counterRuns); runs > maxRuns {
			t.Fatalf("%d runs are kept", runs)
		}
	})
}
