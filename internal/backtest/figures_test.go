package backtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
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

// TestNoticesOfRunawayWorkHaveDollars replays the shipped policy about work without progress: a loop of steps costs
// from its highest step to its end, work that never reports from its beginning, and work that advances nothing.
func TestNoticesOfRunawayWorkHaveDollars(t *testing.T) {
	text, err := os.ReadFile("../../examples/policies/runaway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Parse("runaway.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	const step, hours = 5 * time.Minute, 96
	var trace strings.Builder
	trace.WriteString("resource,time,gpu,gpu_util,step,events\n")
	for m := range hours * 12 {
		at := time.Unix(1_760_000_000, 0).Add(time.Duration(m) * step).Unix()
		fmt.Fprintf(&trace, "loop,%d,0,95,%d,\ngood,%d,0,95,%d,\n", at, m%21, at, m)
		fmt.Fprintf(&trace, "mute,%d,0,95,,\n", at)
		fmt.Fprintf(&trace, "parts,%d,0,95,,%d\n", at, m/72) // an evaluation that declares a part each 6 hours
	}
	for name, price := range map[string]money.Amount{
		"$12 an hour": 12 * money.USD, "$22 an hour": 22 * money.USD, "unpriced": 0,
	} {
		p := params(step)
		p.Format.Step = step
		p.Baselines, p.Policies, p.Price = false, set, nil
		if price > 0 {
			p.Price = &price
		}
		r, err := Run(context.Background(), strings.NewReader(trace.String()), p)
		if err != nil {
			t.Fatal(err)
		}
		p.Format.Step = time.Minute // between the samples the condition is unknown, and holds again
		if gaps, err := Run(context.Background(), strings.NewReader(trace.String()), p); err != nil {
			t.Fatal(err)
		} else if got := gaps.Results[0].Notices.UnprogressedUSD.Or(0); got > 2*hours*price {
			t.Errorf("%s: with gaps, %s without progress, and the machines cost %s", name, got.Dollars(),
				(2 * hours * price).Dollars())
		}
		for i, least := range []float64{12, 24} { // of the policy about the owner, and of that about the team
			n := r.Results[i].Notices
			if price == 0 {
				if n.Times != 0 || n.UnprogressedUSD.Known() && n.UnprogressedUSD.Or(0) != 0 {
					t.Errorf("%s: %+v, although $100 are never reached for sure", name, n)
				}
				continue
			}
			if n.Times != 2 || n.Resources != 2 {
				t.Fatalf("%s: %+v, want one notice of the loop and one of the work that never reports", name, n)
			}
			// The loop reaches its highest step after 100 minutes and goes on for 94 h 20 m, the other for 96 h.
			const spent = 190*3600 + 20*60 // seconds
			want, err := price.Mul(spent, 3600)
			if err != nil || n.UnprogressedUSD != money.Known(want) {
				t.Errorf("%s: without progress %s, want %s", name, n.UnprogressedUSD, want.Dollars())
			}
			before := want - n.CostUSD.Or(0) // spent before people were notified
			if lowest := money.Amount(2 * least * float64(price)); before < lowest ||
				before > lowest+money.Amount(2*float64(price)) {
				t.Errorf("%s: people were notified after %s, want about %s", name, before.Dollars(), lowest.Dollars())
			}
		}
	}
}
