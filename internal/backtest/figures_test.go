package backtest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/policy"
)

// TestFiguresDecideAlike replays the policies that ask for figures about GPUs, at a cadence
// against processes and at every sample against looks, until each of them has decided.
func TestFiguresDecideAlike(t *testing.T) {
	set := parsed(t, livePolicies)
	asking := slices.DeleteFunc(slices.Clone(set.Policies), func(p *policy.Policy) bool { return !p.UsesFigures() })
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

// TestNoticesAreCountedOnce: people are told each time that a condition begins to hold, and
// not again while it does.
func TestNoticesAreCountedOnce(t *testing.T) {
	p := params(time.Minute)
	p.Baselines = false
	p.Policies = policies(t, `  - name: little-used
    select: {kind: instance}
    when: gpu.util.mean("10m") < 20
    then: [{do: notify}]
`)
	var decided []string
	p.Decided = func(d Decision) { decided = append(decided, d.Resource+" "+d.Step) }
	busy, idle := strings.Repeat("#", 20), strings.Repeat(".", 20)
	r, err := Run(context.Background(), strings.NewReader(csvOf(rowsOf(busy+idle+busy+idle+busy, busy+idle, busy))), p)
	if err != nil {
		t.Fatal(err)
	}
	// Under 20% on average from the seventh idle minute of ten up to the fourth busy one.
	if got, want := *r.Results[0].Notices, (Notices{
		Times: 3, Resources: 2, Hours: (17 + 17 + 14) / 60.0,
	}); got != want {
		t.Errorf("notices are %+v, want %+v", got, want)
	}
	slices.Sort(decided) // the samples of r001 end, and no one is told that it is over
	if want := []string{
		"r000 warn", "r000 warn", "r000 withdraw", "r000 withdraw", "r001 warn",
	}; !slices.Equal(decided, want) {
		t.Errorf("decided %v, want %v", decided, want)
	}
}
