package backtest

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/policy"
)

// TestFiguresDecideAlike replays the policies that ask for figures about GPUs, at a cadence
// against processes and at every sample against looks, until each of them has decided.
func TestFiguresDecideAlike(t *testing.T) {
	set := parsed(t, livePolicies)
	asking := slices.DeleteFunc(slices.Clone(set.Policies), func(p *policy.Policy) bool { return !p.AsksFigures() })
	if len(asking) < 5 {
		t.Fatalf("%d policies ask for figures", len(asking))
	}
	decided := map[string]int{}
	undecided := func(p *policy.Policy) bool { return decided[p.Name] == 0 }
	for range 20 {
		rapid.Check(t, func(t *rapid.T) {
			pol := asking[rapid.IntRange(0, len(asking)-1).Draw(t, "policy")]
			p := liveParams(t, pol)
			trace := liveTrace(liveMachines().Draw(t, "machines"))
			var others []time.Time
			for range 3 {
				others = append(others, time.Unix(int64(rapid.IntRange(0, 9000).Draw(t, "at")), 0).UTC())
			}
			everyAnswer(t, trace, p, others...)
			p.Every = time.Duration(rapid.IntRange(1, 12).Draw(t, "cadence")) * 30 * time.Second
			decided[pol.Name] += len(sameAsProcesses(t, trace, p))
		})
		if !slices.ContainsFunc(asking, undecided) {
			return
		}
	}
	t.Errorf("too few decisions to tell: %v", decided)
}
