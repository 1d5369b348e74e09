package backtest

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

// spent is for how long which answer was given, in hours: "false", "unknown", "refused",
// "true" while nothing forbids it, "away" while it was released, and "no verdict" else.
type spent map[string]float64

// spentOf looks at a trace again and again as a process does, in the middle of every span
// of a length.
func (h *chronicle) spentOf(t testingTB, tr *trace, each time.Duration, p Params) spent {
	t.Helper()
	out := spent{}
	for at := h.account.Summary().First.Add(each / 2); at.Before(
		h.account.Summary().Last.Add(p.Format.Step)); at = at.Add(each) {
		var operations []Operation
		for _, d := range h.operations {
			if !d.At.After(at) {
				operations = append(operations, d)
			}
		}
		look := lookAt(t, h.account, p.Policies.Policies[0], at, operations, p)
		look.Ladder = func(name string) *action.Ladder {
			return &action.Ladder{Account: name, Clock: func() action.Clock { return ClockAt(at) }, Assume: Allowed}
		}
		r, err := round.New(look.Setting).Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		facts, refused := map[string]*policy.Facts{}, map[string]bool{}
		for _, f := range r.Facts {
			facts[f.Resource.ID] = f
		}
		for _, l := range r.Lines() {
			refused[l.Resource.ID] = refused[l.Resource.ID] || l.Result == action.ResultRefused
		}
		for i, res := range tr.resources {
			f := facts[res.Name]
			switch {
			case at.UnixMicro() < h.account.resources[tr.account.index(res.Name)].known ||
				at.UnixMicro() >= tr.tracks[i].last+tr.step:
				continue
			case f == nil:
				out["away"] += each.Hours()
				continue
			}
			if f.Duty == nil || f.Duty.State == "" {
				out["no verdict"] += each.Hours()
			}
			answer := p.Policies.Policies[0].Evaluate(f).Answer.String()
			if refused[res.Name] {
				answer = "refused"
			}
			out[answer] += each.Hours()
		}
	}
	return out
}

func (a *Account) index(name string) int {
	i, _ := a.Index(name)
	return i
}

// TestWhyNotAddsUp compares the hours of reasons, of unknown verdicts and of releases with rounds
// every few seconds.
func TestWhyNotAddsUp(t *testing.T) {
	set := parsed(t, livePolicies)
	rapid.Check(t, func(t *rapid.T) {
		p := liveParams(t, set.Policies[rapid.IntRange(0, len(set.Policies)-1).Draw(t, "policy")])
		trace := liveTrace(liveMachines().Draw(t, "machines"))
		h := chronicleOf(t, trace, p)
		if span := h.account.Summary().Last.Sub(h.account.Summary().First); span > 2*time.Hour {
			return
		}
		tr, err := load(context.Background(), strings.NewReader(trace), p)
		if err != nil {
			t.Fatal(err)
		}
		const each = 20 * time.Second
		want := h.spentOf(t, tr, each, p)
		r, err := Run(context.Background(), strings.NewReader(trace), p)
		if err != nil {
			t.Fatal(err)
		}
		got, changes := spent{}, len(h.decisions)
		for _, w := range r.Results[0].WhyNot {
			got[w.Answer] += w.Hours
		}
		for _, said := range h.of {
			changes += len(said)
		}
		got["no verdict"] = *r.Results[0].VerdictUnknownHours
		for _, answer := range []string{"false", "unknown", "refused", "no verdict"} {
			if math.Abs(got[answer]-want[answer]) > float64(changes+3)*each.Hours() {
				t.Fatalf("%s for %.3f h, looks every %s find %.3f h (%d changes): %v\n%s", answer,
					got[answer], each, want[answer],
					changes, r.Results[0].WhyNot, trace)
			}
		}
		states := 0.0
		for _, released := range r.Results[0].ReleasedByState {
			states += released
		}
		if math.Abs(states-r.Results[0].ReleasedHours) > 1e-9 {
			t.Fatalf("released by state are %v, %v in all", r.Results[0].ReleasedByState, r.Results[0].ReleasedHours)
		}
	})
}

// TestWhyNot lists the omissions of a policy with their reasons.
func TestWhyNot(t *testing.T) {
	const minutes = 60
	trace := minutely("lifetime,type,gpu,gpu_util,environment", minutes, []string{
		"busy", "half", "kept", "now and then", "unknown",
	}, func(r string, m int) string {
		util := "0"
		if r == "busy" || r == "now and then" && m%20 < 10 {
			util = "50"
		}
		lifetime, typ := map[bool]string{
			true: "persistent", false: "ephemeral",
		}[r == "kept"], map[bool]string{true: "p4d.24xlarge", false: "g5.xlarge"}[r == "half"]
		return lifetime + "," + typ + ",0," + util + "," + map[bool]string{true: "", false: "dev"}[r == "unknown"]
	})
	p := params(0)
	p.Policies = policies(t, `  - name: p
    where: resource.environment == "dev"
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("15m")
    then: [{warn: {grace: 1m}}, {do: stop}]
`)
	r := replayed(t, trace, p)
	want := []WhyNot{
		{"false", "when: duty.state is busy", 2, 1.5},
		{"false", `when: duty.lasting >= duration("15m") is false`, 3, 1},
		{"unknown", "when: duty is unknown: 1 of 8 GPUs were measured", 1, 1},
		{"unknown", "where: resource.environment is unknown: no tag says it", 1, 0.75},
		{"refused", "persistent", 1, 0.75},
	}
	byReason := cmp.Transformer("byReason", func(ws []WhyNot) map[string]WhyNot {
		out := map[string]WhyNot{}
		for _, w := range ws {
			w.Hours = math.Round(w.Hours*1e6) / 1e6
			out[w.Answer+" "+w.Reason] = w
		}
		return out
	})
	if diff := cmp.Diff(want, r.Results[0].WhyNot, byReason); diff != "" {
		t.Errorf("why not (-want +got):\n%s", diff)
	}
	const note = "p never acted. Its answer was false for 1.5 h on 2 resources (when: duty.state is busy), " +
		`false for 1 h on 3 resources (when: duty.lasting >= duration("15m") is false), ` +
		"unknown for 1 h on 1 resource (when: duty is unknown: 1 of 8 GPUs were measured)."
	if r.Notes[0] != note {
		t.Errorf("the first note is %q, want %q", r.Notes[0], note)
	}
}

// TestActedThoughNothingWasReleased checks that a policy that only tells people acts.
func TestActedThoughNothingWasReleased(t *testing.T) {
	for do, acts := range map[string]bool{
		"{do: notify}": true, `{do: tag, tags: {idle: "yes"}}`: true, "{do: stop}": false,
	} {
		p := params(0)
		p.Baselines, p.Policies = false, policies(t,
			"  - name: p\n    when: duty.lasting >= duration(\"2m\")\n    then: [{warn: {grace: 10m}}, "+do+"]\n")
		r := replayed(t, csvOf(rowsOf("#....#")), p)
		if silent := strings.HasPrefix(r.Notes[0], "p never acted"); silent == acts {
			t.Errorf("%s: the first note is %q", do, r.Notes[0])
		}
	}
}

// TestOfForesightWhy checks that a share of the savings of perfect foresight is stated only if both
// call the same time idle.
func TestOfForesightWhy(t *testing.T) {
	p := params(0)
	p.Policies = policies(t, rested("p", 5*time.Minute, 0))
	trace := minutely("gpu_util", 30, []string{"m0", "m1"}, func(r string, _ int) string {
		return map[string]string{"m0": "0", "m1": "0.4"}[r]
	})
	for below, stated := range map[float64]bool{0: false, 1: true} {
		p.IdleBelow = below
		r := replayed(t, trace, p).Results[0]
		if (r.OfForesight != nil) != stated || (r.OfForesightWhy == "") != stated {
			t.Errorf("idle below %v: of oracle %v, because %q", below, r.OfForesight, r.OfForesightWhy)
		}
	}
}

// TestWhyNotDeferred: where the caps bind, the time that they take is a reason as well.
func TestWhyNotDeferred(t *testing.T) {
	trace := minutely("gpu_util", 90, []string{"a", "b", "c"}, func(string, int) string { return "0" })
	price := 2 * money.USD
	p := params(0)
	p.Baselines, p.Price, p.Caps = false, &price, true
	p.Policies = policies(t,
		"  - name: p\n    when: duty.lasting >= duration(\"10m\")\n    then: [{warn: {grace: 5m}}, {do: stop}]\n"+
			"    limits: {per_hour: 2, share: \"100%\", dollars_per_hour: 100}\n")
	r := replayed(t, trace, p)
	for _, w := range r.Results[0].WhyNot {
		if w.Answer == "deferred" {
			if w.Reason != "count" || w.Resources != 1 || math.Abs(w.Hours-1) > 0.1 {
				t.Errorf("deferred: %+v, want the count to hold one resource for an hour", w)
			}
			return
		}
	}
	t.Errorf("nothing is deferred: %+v", r.Results[0].WhyNot)
}
