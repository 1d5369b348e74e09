package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// measure adds batches of sizes that take a·n + b, with noise of a share and now and then a
// batch that takes ten times as long.
func measure(e *Estimator, r *rand.Rand, batches, largest int, a, b, noise float64) {
	for range batches {
		n := 1 + r.IntN(largest)
		took := (a*float64(n) + b) * (1 + noise*r.NormFloat64())
		if r.IntN(40) == 0 {
			took *= 10
		}
		e.Add(n, time.Duration(took*float64(time.Second)), start)
	}
}

func TestFindsTheLineDespiteOutliers(t *testing.T) {
	for seed := range uint64(20) {
		var e Estimator
		measure(&e, rand.New(rand.NewPCG(seed, 1)), 2000, 32, 0.0002, 0.004, 0.05)
		l, ok := e.Line()
		if !ok || l.Min != 1 || l.Max != 32 {
			t.Fatalf("seed %d: %+v %v", seed, l, ok)
		}
		for n := 1; n <= 32; n++ {
			got, _ := l.Time(n)
			want := 0.0002*float64(n) + 0.004
			if math.Abs(got.Seconds()-want)/want > 0.05 {
				t.Errorf("seed %d: %d rows take %s, want %.4f s", seed, n, got, want)
			}
		}
		if l.Error > 0.08 || l.ErrorP90 < l.Error {
			t.Errorf("seed %d: error %v, p90 %v", seed, l.Error, l.ErrorP90)
		}
	}
}

func TestNeverExtrapolates(t *testing.T) {
	var e Estimator
	if _, ok := e.Line(); ok {
		t.Fatal("a line of nothing")
	}
	for range 100 {
		e.Add(4, 5*time.Millisecond, start)
	}
	l, ok := e.Line()
	if got, known := l.Time(4); !ok || !known || got != 5*time.Millisecond || l.Sizes != 1 || l.Min != l.Max {
		t.Fatalf("one size: %+v %v", l, ok)
	}
	for range 20 {
		e.Add(9, 8*time.Millisecond, start)
	}
	if l, ok = e.Line(); !ok || l.Sizes != 2 {
		t.Fatalf("two sizes: %+v", l)
	}
	for n, want := range map[int]bool{3: false, 4: true, 7: true, 9: true, 10: false} {
		if _, ok := l.Time(n); ok != want {
			t.Errorf("%d rows: %v, want %v", n, ok, want)
		}
	}
}

func TestNoticesAnotherLevel(t *testing.T) {
	var e Estimator
	r := rand.New(rand.NewPCG(3, 3))
	measure(&e, r, 1500, 16, 0.001, 0.01, 0.02)
	if n, _ := e.Changes(); n != 0 {
		t.Fatalf("%d changes of a steady server", n)
	}
	measure(&e, r, 400, 16, 0.002, 0.02, 0.02)
	l, _ := e.Line()
	if n, at := e.Changes(); n != 1 || !at.Equal(start) {
		t.Fatalf("%d changes at %s", n, at)
	}
	if got, ok := l.Time(8); !ok || math.Abs(got.Seconds()-0.036) > 0.002 {
		t.Errorf("8 rows take %s after the change, want 36 ms", got)
	}
}

func TestCountsRangesOfSizes(t *testing.T) {
	var e Estimator
	for range 5 {
		e.Add(1, time.Millisecond, start)
		e.Add(6, time.Millisecond, start)
	}
	e.Add(2, time.Millisecond, start)
	if got := fmt.Sprint(e.Ranges(20)); got != "[{1 1 5} {2 2 1} {3 4 0} {5 8 5} {9 16 0} {17 20 0}]" {
		t.Error(got)
	}
}

func TestForgetsOldBatches(t *testing.T) {
	var e Estimator
	for n := 1; n <= 2*maxSizes; n++ {
		for range perSize + 10 {
			e.Add(n, time.Duration(n)*time.Millisecond, start)
		}
	}
	sizes := e.Sizes()
	if len(sizes) != maxSizes || sizes[0].Rows != maxSizes+1 || sizes[0].Batches != perSize {
		t.Errorf("%d sizes from %+v", len(sizes), sizes[0])
	}
}

// TestNeitherPartIsNegative: measurements that fall with the size, and those of a line through
// less than zero.
func TestNeitherPartIsNegative(t *testing.T) {
	for name, times := range map[string][2]time.Duration{
		"falls": {9 * time.Millisecond, 5 * time.Millisecond}, "steep": {time.Millisecond, 90 * time.Millisecond},
	} {
		var e Estimator
		for range 8 {
			e.Add(2, times[0], start)
			e.Add(20, times[1], start)
		}
		l, ok := e.Line()
		if !ok || l.PerRow < 0 || l.Base < 0 || l.PerRow+l.Base == 0 {
			t.Errorf("%s: %+v", name, l)
		}
	}
}
