package duty

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/usage"
)

// TestSpans compares the recorder with a state for each minute.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const minutes = 120
		var naive [minutes]State
		var s Spans
		at, began, state := 0, 0, Unknown
		fill := func(to int) {
			for i := began; i < to && state != Unknown; i++ {
				naive[i] = state
			}
		}
		for range rapid.IntRange(0, 12).Draw(t, "verdicts") {
			at = rapid.IntRange(at, minutes-1).Draw(t, "at")
			fill(at)
			v := Verdict{State: rapid.SampledFrom([]State{Unknown, Busy, Busy, Held, Stalled}).Draw(t, "state")}
			if began, state = at, v.State; state == Held || state == Stalled {
				began = rapid.IntRange(max(0, at-30), at).Draw(t, "since")
				v.Since = gpuAt(float64(began), 0).Time
			}
			s.Add(gpuAt(float64(at), 0).Time, v)
		}
		to := rapid.IntRange(at, minutes).Draw(t, "to")
		fill(to)
		var want []Span
		for i, state := range naive {
			from, end := gpuAt(float64(i), 0).Time, gpuAt(float64(i+1), 0).Time
			switch n := len(want); {
			case state == Unknown:
			case n > 0 && want[n-1].State == state && want[n-1].To.Equal(from):
				want[n-1].To = end
			default:
				want = append(want, Span{from, end, state})
			}
		}
		if d := cmp.Diff(want, s.Until(gpuAt(float64(to), 0).Time)); d != "" {
			t.Fatalf("(-minutes +spans):\n%s", d)
		}
	})
}

// TestSpansFromTracker records a day: work, a stall, rest, and samples that cease.
func TestSpansFromTracker(t *testing.T) {
	k := NewTracker(Thresholds{}, usage.Activity{}, 0)
	var s Spans
	ask := func(from, to float64) {
		for at := gpuAt(from, 0).Time; !at.IsZero() && at.Before(gpuAt(to, 0).Time); {
			v := k.Verdict(at, oneGPU())
			s.Add(at, v)
			at = v.Next
		}
	}
	at := func(minute float64) time.Time { return gpuAt(minute, 0).Time }
	k.AddRun(minutely, "0", usage.GPUUtil, at(0), 240, 90)
	for i := range 60 {
		k.AddRun(minutely, "", usage.Step, at(float64(i)), 1, float64(i))
		ask(float64(i), float64(i+1))
	}
	k.AddRun(minutely, "", usage.Step, at(60), 180, 60)
	ask(60, 240)
	k.AddRun(minutely, "0", usage.GPUUtil, at(240), 60, 0)
	ask(240, 600)
	want := []Span{{at(0), at(60), Busy}, {at(60), at(240), Stalled}, {at(240), at(302).Add(1), Held}}
	if d := cmp.Diff(want, s.Until(at(600))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
