package learn

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// bursts are patterns of machines, '.' idle, '#' busy and ' ' not sampled, a minute each.
func bursts(machines, minutes int, seed uint64) []string {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]string, machines)
	for i := range out {
		var b strings.Builder
		for b.Len() < minutes {
			b.WriteString(strings.Repeat("#", 1+rng.IntN(8)) + strings.Repeat(".", 1+rng.IntN(40)))
			if rng.IntN(10) == 0 {
				b.WriteString("  ")
			}
		}
		out[i] = b.String()[:minutes]
	}
	return out
}

// TestLearnedWithinAStep checks that a decision rests on other machines only as they were when the
// step began, because within it their samples are in no order.
func TestLearnedWithinAStep(t *testing.T) {
	const machines, minutes = 20, 600
	ps := bursts(machines, minutes, 11)
	// odds runs a day, turns the last step around for all machines but the last, and
	// returns the last one's odds in it.
	odds := func(turn bool) float64 {
		l := NewLearned(Fleet{Step: time.Minute, RestartCost: 7 * time.Minute, Resources: make([]Resource, machines)})
		var ages [machines]int
		for at := range minutes {
			l.Begin(time.Unix(int64(at)*60, 0))
			for i, p := range ps {
				last := at == minutes-1
				s := Sample{
					Resource: i, Idle: p[at] == '.' != (last && turn && i < machines-1), Gap: at > 0 && p[at-1] == ' ',
				}
				if last && i == machines-1 {
					s.Idle = true
				}
				if p[at] == ' ' {
					continue
				}
				if s.Gap || !s.Idle {
					ages[i] = 0
				}
				if s.Idle {
					s.Lasting = time.Duration(ages[i]) * time.Minute
					ages[i]++
				}
				l.Decide(s)
			}
		}
		h := &l.histories[machines-1]
		var x [features]float32
		l.describe(h, &x)
		return l.odds(h, h.age, &x)
	}
	if got, want := odds(true), odds(false); got != want {
		t.Errorf("what others did in the step changed the odds from %v to %v", want, got)
	}
}

// TestLearnedStartsWithBreakEven checks that before any outcome is known the wait is one restart
// cost, whatever the machine looks like.
func TestLearnedStartsWithBreakEven(t *testing.T) {
	for _, minutes := range []int{2, 5, 10, 60, 600} {
		l := NewLearned(Fleet{
			Step: time.Minute, RestartCost: time.Duration(minutes) * time.Minute, Resources: make([]Resource, 1),
		})
		h := &l.histories[0]
		for h.age = 1; h.age < 1000; h.age++ {
			var x [features]float32
			l.describe(h, &x)
			lasting := h.age - 1
			if hold := l.odds(h, h.age, &x) > 1e-6; hold != (lasting < minutes) {
				t.Errorf("restart of %d min: after %d idle minutes hold is %v", minutes, lasting, hold)
			}
		}
	}
}
