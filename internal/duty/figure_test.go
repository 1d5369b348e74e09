package duty

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// naiveFigure is a figure of one GPU, of a plain list of its samples: those in the window that
// ends with the newest one at now, of those from the horizon on.
func naiveFigure(all []handing, now, horizon time.Time, f Figure, minCoverage float64) (float64, bool) {
	var in []handing
	for _, s := range all {
		if !s.p.Time.After(now) {
			in = append(in, s)
		}
	}
	if len(in) == 0 {
		return 0, false
	}
	last := in[len(in)-1]
	step, newest := last.o.Step, last.p.Time
	opened := len(in) - 1
	for opened > 0 && in[opened-1].o == last.o {
		opened--
	}
	in = in[opened:]
	in = slices.DeleteFunc(in, func(s handing) bool { return !s.p.Time.After(newest.Add(-f.Window)) || s.p.Time.Before(horizon) })
	if len(in) == 0 || now.After(newest.Add(3*step)) {
		return 0, false
	}
	covered := time.Duration(0)
	start := newest.Add(step - f.Window)
	sum, high, low, rise := 0.0, math.Inf(-1), math.Inf(1), 0.0
	for i, s := range in {
		end := s.p.Time.Add(step)
		if i+1 < len(in) && in[i+1].p.Time.Before(end) {
			end = in[i+1].p.Time
		}
		from := s.p.Time
		if from.Before(start) {
			from = start
		}
		covered += max(0, end.Sub(from))
		sum, high, low = sum+s.p.Mean, max(high, s.p.Max), min(low, s.p.Mean)
		if i > 0 {
			if d := s.p.Max - in[i-1].p.Max; d >= 0 {
				rise += d
			} else {
				rise += s.p.Max
			}
		}
	}
	if float64(covered)/float64(f.Window) < minCoverage {
		return 0, false
	}
	switch f.Statistic {
	case Max:
		return high, true
	case Min:
		return low, true
	case Rise:
		return rise, true
	}
	return sum / float64(len(in)), true
}

// TestFiguresAreThoseOfPlainLists draws machines of several GPUs with gaps, jitter, runs
// that are handed over ahead, samples that are corrected, and other steps, and asks for
// figures now and then.
func TestFiguresAreThoseOfPlainLists(t *testing.T) {
	known := 0
	rapid.Check(t, func(t *rapid.T) {
		quantity := rapid.SampledFrom([]Quantity{Util, SMActive, Occupancy, Temperature, ECCErrors}).Draw(t, "quantity")
		var figures []Figure
		for range rapid.IntRange(1, 4).Draw(t, "figures") {
			f := Figure{Quantity: quantity, Statistic: rapid.SampledFrom(quantities[quantity].statistics).Draw(t, "statistic"),
				Window: time.Duration(rapid.SampledFrom([]int{1, 2, 5, 7, 30}).Draw(t, "window")) * time.Minute}
			f.Worst = quantities[quantity].worst != "" && rapid.Bool().Draw(t, "worst")
			figures = append(figures, f)
		}
		lookBack := rapid.SampledFrom([]time.Duration{8 * time.Minute, time.Hour}).Draw(t, "look back")
		k := NewTracker(Thresholds{}, usage.Activity{}, lookBack).Watch(NewWatch(figures))
		gpus := rapid.IntRange(1, 3).Draw(t, "GPUs")
		steps := []time.Duration{time.Minute, time.Minute, 20 * time.Second, 5 * time.Minute}
		signal := quantities[quantity].feeds[0].signal
		values := []float64{0, 0.25, 0.5, 1}
		if quantity == ECCErrors || quantity == Temperature {
			values = []float64{0, 1, 2, 7, 90}
		}
		lists := make([][]handing, gpus)
		var all []handing
		for g := range gpus {
			step, at := steps[rapid.IntRange(0, 3).Draw(t, "step")], origin.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "offset"))*time.Second)
			for range rapid.IntRange(0, 30).Draw(t, "runs") {
				if rapid.IntRange(0, 12).Draw(t, "other") == 0 {
					step = steps[rapid.IntRange(0, 3).Draw(t, "step")]
				}
				h := handing{meterKey: meterKey{gpu: string(rune('0' + g)), signal: signal}, o: usage.Opened{Step: step}, run: true}
				v := rapid.SampledFrom(values).Draw(t, "value")
				h.p = usage.Point{Time: at, Mean: v, Max: v}
				h.count = rapid.IntRange(1, 9).Draw(t, "count")
				if h.count == 1 && rapid.Bool().Draw(t, "rolled up") {
					h.run, h.p.Mean = false, v/2
				}
				all = append(all, h)
				at = h.end().Add(step)
				switch rapid.IntRange(0, 5).Draw(t, "then") {
				case 0:
					at = at.Add(step * time.Duration(rapid.IntRange(1, 4).Draw(t, "gap")))
				case 1:
					at = at.Add(time.Duration(rapid.IntRange(-int(step/time.Second)/3, int(step/time.Second)/3).Draw(t, "jitter")) * time.Second)
				}
			}
		}
		slices.SortStableFunc(all, func(a, b handing) int { return a.p.Time.Compare(b.p.Time) })
		m := Machine{GPUs: inventory.Known(gpus)}
		now := origin
		ask := func() {
			for _, f := range figures {
				got := Gauge{k, m}.Read(now, f, false)
				var s spread
				for g := range gpus {
					s.add(naiveFigure(lists[g], now, instant(k.horizon(nanos(now))), f, 0.9))
				}
				want := s.known == gpus
				if got.Known != want || want && math.Abs(got.Value-s.of(f)) > 1e-9*max(1, s.of(f)) {
					t.Fatalf("at %s %s over %s is %+v, want %v (%t)", now, f.Name(), f.Window, got, s.of(f), want)
				}
				if want {
					known++
				}
				if got.Next.IsZero() {
					continue
				}
				// It is the same just before it is said to change, without further samples.
				if until := got.Next.Add(-1); until.After(now) && len(all) == 0 {
					if then := (Gauge{k, m}).Read(until, f, false); then.Known != got.Known || then.Value != got.Value {
						t.Fatalf("%s is %+v at %s and %+v at %s", f.Name(), got, now, then, until)
					}
					now = until
				}
			}
		}
		for len(all) > 0 {
			h := all[0]
			all = all[1:]
			if h.p.Time.Before(now) {
				continue // it was handed over before it was measured
			}
			now = h.p.Time
			g := int(h.gpu[0] - '0')
			if n := len(lists[g]); n > 0 && !h.p.Time.After(lists[g][n-1].p.Time) {
				continue
			}
			hand(t, k, h)
			lists[g] = append(lists[g], h.samples()...)
			if rapid.Bool().Draw(t, "ask") {
				now = now.Add(time.Duration(rapid.IntRange(0, 59).Draw(t, "later")) * time.Second)
				ask()
			}
		}
		for range 6 {
			ask()
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "later")) * time.Second)
		}
	})
	if known == 0 {
		t.Error("nothing was ever known")
	}
}
