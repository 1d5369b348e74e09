package duty

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/usage"
)

func TestGang(t *testing.T) {
	verdict := func(s State, lasting time.Duration) Verdict {
		v := Verdict{State: s, Why: "it is", Coverage: 1}
		if s != Unknown {
			v.Until, v.Expires = now.Add(time.Minute), now.Add(3*time.Minute)
		}
		if lasting > 0 {
			v.Duration, v.Since = lasting, now.Add(-lasting)
		}
		return v
	}
	busy, warming, unknown := verdict(Busy, 0), verdict(Warming, 0), verdict(Unknown, 0)
	starved, stalled, held, idle := verdict(Starved, 3*time.Hour), verdict(Stalled, time.Hour), verdict(Held,
		2*time.Hour), verdict(Idle, 30*time.Minute)
	for _, tc := range []struct {
		name    string
		of      []Verdict
		want    State
		lasting time.Duration
	}{
		{"no members", nil, Unknown, 0},
		{"one busy of three", []Verdict{idle, busy, held}, Busy, 0},
		{"busy though one is unknown", []Verdict{unknown, busy}, Busy, 0},
		{"one unknown, the others idle", []Verdict{idle, unknown, idle}, Unknown, 0},
		{"one unknown, the other warming", []Verdict{warming, unknown}, Unknown, 0},
		{"one warms up", []Verdict{idle, warming}, Warming, 0},
		{"one waits for data", []Verdict{idle, starved, held}, Starved, 30 * time.Minute},
		{"one stalls", []Verdict{idle, stalled}, Stalled, 30 * time.Minute},
		{"one is held", []Verdict{held, idle}, Held, 30 * time.Minute},
		{"all idle", []Verdict{idle, verdict(Idle, 10*time.Minute)}, Idle, 10 * time.Minute},
		{"alone", []Verdict{held}, Held, 2 * time.Hour},
	} {
		got := Gang(tc.of)
		if got.State != tc.want || got.Duration != tc.lasting {
			t.Errorf("%s: got %s for %s, want %s for %s", tc.name, got.State, got.Duration, tc.want, tc.lasting)
		}
		if len(tc.of) > 0 && !strings.Contains(got.Why, "machines of the run") {
			t.Errorf("%s: why is %q", tc.name, got.Why)
		}
		consistent(t, got, nil)
	}
}

// TestGangIsNoMoreWastefulThanItsMachines: it has lasted no longer, is known no longer,
// and the order of the machines does not matter.
func TestGangIsNoMoreWastefulThanItsMachines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Verdict {
			m := minutes(rapid.IntRange(1, 30).Draw(t, "minutes"))
			m.points -= min(m.points-1, rapid.IntRange(0, 2).Draw(t, "newest lost"))
			m.gpu("0", rapid.SampledFrom([]float64{0, 0, 0, 50}).Draw(t, "util"),
				rapid.SampledFrom([]float64{0, 60}).Draw(t, "memory"))
			gpus := rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "gpus")
			return m.verdict(t, gpus, now, Thresholds{})
		}), 1, 5).Draw(t, "verdicts")
		got := Gang(list)
		consistent(t, got, nil)
		for _, v := range list {
			if (v.State == Busy && got.State != Busy) ||
				(v.State == Unknown && got.State != Unknown && got.State != Busy) {
				t.Fatalf("%s though a machine is %s", got.State, v.State)
			}
			if got.State != Busy && got.State != Unknown &&
				(got.Duration > v.Duration || got.Expires.After(v.Expires)) {
				t.Fatalf("it lasts %s until %s, a machine %s until %s", got.Duration,
					got.Expires, v.Duration, v.Expires)
			}
		}
		slices.Reverse(list)
		if again := Gang(list); again.State != got.State || again.Duration != got.Duration ||
			!again.Expires.Equal(got.Expires) {
			t.Fatalf("%s for %s, the other way round %s for %s", got.State, got.Duration, again.State, again.Duration)
		}
	})
}

// TestGangWithoutText: without words it says the same, and the next change of it is
// the next of any machine.
func TestGangWithoutText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := make([]*Tracker, rapid.IntRange(1, 4).Draw(t, "machines"))
		lean, full := make([]Verdict, len(k)), make([]Verdict, len(k))
		at := gpuAt(60, 0).Time
		var next time.Time
		for i := range k {
			k[i] = NewTracker(Thresholds{}, usage.Activity{}, 0)
			from := rapid.IntRange(0, 59).Draw(t, "from")
			k[i].AddRun(minutely, "0", usage.GPUUtil, gpuAt(float64(from), 0).Time,
				rapid.IntRange(1, 90).Draw(t, "count"),
				rapid.SampledFrom([]float64{0, 0, 50}).Draw(t, "util"))
			lean[i], full[i] = k[i].Verdict(at, oneGPU()), k[i].Explain(at, oneGPU())
			if n := lean[i].Next; next.IsZero() || (!n.IsZero() && n.Before(next)) {
				next = n
			}
		}
		got, want := Gang(lean), Gang(full)
		want.Next = time.Time{}
		if d := sameVerdict(got, want, false); d != "" || !got.Next.Equal(next) {
			t.Fatalf("the next change is at %s, want %s (-words +lean):\n%s", got.Next, next, d)
		}
		if n := testing.AllocsPerRun(1, func() { Gang(lean) }); n > 0 {
			t.Fatalf("%v allocations", n)
		}
	})
}
