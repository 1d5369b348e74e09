package backtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/usage"
)

// TestTrackKeepsTimes holds that a track gives back the samples that it took, to the
// microsecond, whatever their jitter and gaps.
func TestTrackKeepsTimes(t *testing.T) {
	type sample struct {
		at   int64
		idle bool
	}
	rapid.Check(t, func(t *rapid.T) {
		step := rapid.SampledFrom([]int64{1000, minute}).Draw(t, "step")
		unit := rapid.SampledFrom(units[:]).Draw(t, "unit")
		at := rapid.Int64Range(0, 1<<50).Draw(t, "first")
		var track track
		var want []sample
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			s := sample{at, rapid.Bool().Draw(t, "idle")}
			if !track.add(s.at, step, s.idle) {
				t.Fatalf("a sample at %d is refused after %d", s.at, track.last)
			}
			want = append(want, s)
			at += step
			if rapid.Bool().Draw(t, "off") {
				at = max(s.at+1, at+unit*rapid.Int64Range(-2*step/unit-1, 5*step/unit+1).Draw(t, "by"))
			}
		}
		var got []sample
		for r := (&reader{cursor: track.cursor(step)}); r.next(); {
			got = append(got, sample{r.at, r.run.idle})
		}
		if !slices.Equal(got, want) {
			t.Fatalf("took %v, gives %v", want, got)
		}
	})
}

// TestTapeKeepsValues holds that everything measured is given back once, in order.
func TestTapeKeepsValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tape tape
		var want []reading
		at := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "rows") {
			at += rapid.Int64Range(-3*minute, 9*minute).Draw(t, "step")
			gpu := rapid.IntRange(0, 2).Draw(t, "gpu")
			var s usage.Sample
			for _, sig := range signals {
				if !sig.PerGPU() && gpu > 0 || !rapid.Bool().Draw(t, sig.String()) {
					continue
				}
				v := rapid.SampledFrom([]float64{0, 1, 50, 80e9, 0.1, 12345.678}).Draw(t, "value")
				s.Set(sig, v)
				want = append(want, reading{at, v, int32(gpu), sig})
			}
			tape.add(&s, at, gpu)
		}
		if got := tape.readings(); !slices.Equal(got, want) {
			t.Fatalf("took %v, gives %v", want, got)
		}
	})
}

// TestMachineSignalsCountOnce holds that a signal of the machine in the rows of several
// GPUs is that of the first, and that a GPU's sample beside others' is not lost.
func TestMachineSignalsCountOnce(t *testing.T) {
	p := params(0)
	p.Policies = policies(t, rested("p", time.Minute, 0))
	const trace = "resource,time,gpu,gpu_util,cpu_util\na,0,0,0,\na,60,0,0,3\na,60,1,7,90\na,120,0,0,\n"
	tr, err := load(context.Background(), strings.NewReader(trace), p)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range tr.meters[0].readings(tr.step) {
		got = append(got, fmt.Sprintf("%d %d %s %g", r.at/minute, r.gpu, r.signal, r.value))
	}
	want := []string{"0 0 gpu_util 0", "1 0 gpu_util 0", "1 0 cpu_util 3", "1 1 gpu_util 7", "2 0 gpu_util 0"}
	if !slices.Equal(got, want) {
		t.Errorf("readings are %q, want %q", got, want)
	}
}
