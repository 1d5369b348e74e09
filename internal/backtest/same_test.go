package backtest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// said is the verdict of a replay on a resource at a time.
type said struct {
	answer usage.Tristate
	state  duty.State
	// away says that it was released, until end.
	away bool
	at   time.Time
	end  time.Time
}

// chronicle is all that a replay said and did, by resource, in order.
type chronicle struct {
	account    *Account
	of         map[int][]said
	operations []Operation
	decisions  []Decision
}

// chronicleOf replays one policy and keeps its answers.
func chronicleOf(t testingTB, trace string, p Params) *chronicle {
	t.Helper()
	p, err := p.complete()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := load(context.Background(), strings.NewReader(trace), p)
	if err != nil {
		t.Fatal(err)
	}
	h := &chronicle{account: tr.account, of: map[int][]said{}}
	enforced := *p.Policies.Policies[0]
	enforced.Mode = policy.Enforce
	p.Decided = func(Decision) {}
	for _, group := range tr.account.Groups() {
		a := tr.act(group, &enforced, p)
		told, seen := a.replay.OnAnswer, 0
		heard := func() {
			for ; seen < len(a.released); seen++ {
				r := a.released[seen]
				at := instant(r.at)
				h.of[r.resource] = append(h.of[r.resource], said{away: true, at: at, end: r.End})
				h.operations = append(h.operations, Operation{
					Resource: tr.account.resources[r.resource].name, At: at, End: r.End,
				})
			}
		}
		a.replay.OnAnswer = func(x round.PolicyAnswer, why func() string) {
			heard()
			told(x, why)
			h.of[x.Resource] = append(h.of[x.Resource], said{answer: x.Answer, state: x.State, at: x.At})
		}
		if err := a.run(context.Background()); err != nil {
			t.Fatal(err)
		}
		heard()
		h.decisions = append(h.decisions, a.decisions...)
	}
	slices.SortStableFunc(h.decisions, CompareDecisions)
	return h
}

// said returns the answer about a resource at a time: with the actions of that very time, or before
// them. Known is false before the first answer, and for a resource that was released while it was
// not measured, until it is.
func (h *chronicle) said(resource int, at time.Time, done bool) (out said, known bool) {
	for _, s := range h.of[resource] {
		if s.at.After(at) || s.away && !done && s.at.Equal(at) {
			break
		}
		out, known = s, true
	}
	if out.away && !at.Before(out.end) {
		return out, false
	}
	return out, known
}

// agree compares the answer of a replay at a time with that of a process that looks then.
func (h *chronicle) agree(t testingTB, trace string, at time.Time, done bool, p Params) {
	t.Helper()
	var operations []Operation
	for _, d := range h.operations {
		if d.At.Before(at) || done && d.At.Equal(at) {
			operations = append(operations, d)
		}
	}
	pol := p.Policies.Policies[0]
	r, err := round.New(lookAt(t, h.account, pol, at, operations, p).Setting).Round(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	facts := map[inventory.Ref]*policy.Facts{}
	for _, f := range r.Facts {
		facts[f.Resource.Ref()] = f
	}
	for i, res := range h.account.resources {
		want, known := h.said(i, at, done)
		f := facts[inventory.Ref{Cloud: Cloud, Kind: h.account.Resource(i, instant(never)).Kind, ID: res.name}]
		switch {
		case known && want.away && f == nil, !known && f == nil, !known && want.away:
			continue
		case f == nil || !known || want.away:
			t.Fatal(fmt.Sprintf("at %s a look sees %s: %v, the replay said %+v (%v)\n%s", at,
				res.name, f != nil, want, known,
				trace))
		}
		state := duty.Unknown
		if f.Duty != nil {
			state = f.Duty.State
		}
		if answer := pol.Evaluate(f).Answer; answer != want.answer || state != want.state {
			t.Fatal(fmt.Sprintf("at %s a look at %s finds %s and it %s, the replay said %s and it %s since %s\n%s", at,
				res.name, answer, state, want.answer, want.state, want.at, trace))
		}
	}
}

// everyAnswer compares the answers of a replay that wakes at every sample with rounds at every
// decision, one second before it, and at other times.
func everyAnswer(t testingTB, trace string, p Params, others ...time.Time) *chronicle {
	t.Helper()
	h := chronicleOf(t, trace, p)
	for _, d := range h.decisions {
		h.agree(t, trace, d.Time, false, p)
		h.agree(t, trace, d.Time.Add(-time.Second), true, p)
	}
	for _, at := range others {
		if at.Before(h.account.Summary().Last.Add(p.Format.Step)) { // a replay ends with its trace
			h.agree(t, trace, at, true, p)
		}
	}
	return h
}

// TestEveryAnswerIsThatOfALook replays random fleets at every sample and every computed time:
// whenever a process looks, it finds the last answer of the replay.
func TestEveryAnswerIsThatOfALook(t *testing.T) {
	set := parsed(t, livePolicies)
	decisions := 0
	rapid.Check(t, func(t *rapid.T) {
		p := liveParams(t, set.Policies[rapid.IntRange(0, len(set.Policies)-1).Draw(t, "policy")])
		machines := liveMachines().Draw(t, "machines")
		var others []time.Time
		for range 6 {
			others = append(others, time.Unix(int64(rapid.IntRange(0, 9000).Draw(t, "at")), 0).UTC())
		}
		decisions += len(everyAnswer(t, liveTrace(machines), p, others...).decisions)
	})
	if decisions == 0 {
		t.Error("nothing was ever decided")
	}
}

// TestOrderOfRowsDecidesNothing shuffles the rows of fleets.
func TestOrderOfRowsDecidesNothing(t *testing.T) {
	set := parsed(t, livePolicies)
	rapid.Check(t, func(t *rapid.T) {
		p := liveParams(t, set.Policies[rapid.IntRange(0, len(set.Policies)-1).Draw(t, "policy")])
		p.Baselines = true
		rows := liveRows(liveMachines().Draw(t, "machines"))
		replay := func(rows []string) ([]Decision, Report) {
			ds := []Decision{}
			p.Decided = func(d Decision) { ds = append(ds, d) }
			r, err := Run(context.Background(), strings.NewReader(traceOf(rows)), p)
			if err != nil {
				t.Fatal(err)
			}
			r.Trace.MedianStepSeconds = 0 // of neighboring rows
			return ds, r
		}
		wantDecisions, want := replay(rows)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1)).Shuffle(len(rows), func(i, j int) {
			rows[i], rows[j] = rows[j], rows[i]
		})
		gotDecisions, got := replay(rows)
		if diff := cmp.Diff(wantDecisions, gotDecisions) + cmp.Diff(want, got, sameDollars); diff != "" {
			t.Fatalf("(-in order +shuffled):\n%s", diff)
		}
	})
}

// decided replays policies and returns their decisions.
func decided(t testingTB, trace string, set *policy.Set) []Decision {
	t.Helper()
	p := params(5 * time.Minute)
	p.Baselines, p.Policies = false, set
	return decisionsOf(t, trace, p)
}

func decisionsOf(t testingTB, trace string, p Params) []Decision {
	t.Helper()
	var out []Decision
	p.Decided = func(d Decision) { out = append(out, d) }
	if _, err := Run(context.Background(), strings.NewReader(trace), p); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPoliciesSeeOnlyThePast cuts a trace at random times and finds that no decision
// before the cut changed.
func TestPoliciesSeeOnlyThePast(t *testing.T) {
	set := parsed(t, livePolicies)
	rapid.Check(t, func(t *rapid.T) {
		p := liveParams(t, set.Policies[rapid.IntRange(0, len(set.Policies)-1).Draw(t, "policy")])
		machines := liveMachines().Draw(t, "machines")
		cut := time.Unix(int64(rapid.IntRange(60, 12000).Draw(t, "cut")), 0).UTC()
		whole := liveTrace(machines)
		limit := map[string]time.Time{}
		var past []*liveMachine
		newest := time.Unix(math.MinInt32, 0)
		for _, m := range machines {
			if until := m.cut(cut); len(m.samples) > 0 {
				past = append(past, m)
				limit[m.name] = until
				if last := m.samples[len(m.samples)-1].at; last.After(newest) {
					newest = last
				}
			}
		}
		if len(past) == 0 {
			return
		}
		for _, m := range past {
			for _, o := range past {
				if o.tags == m.tags && limit[o.name].Before(limit[m.name]) { // perhaps of one gang
					limit[m.name] = limit[o.name]
				}
			}
		}
		before := func(ds []Decision) []Decision {
			return append([]Decision{}, slices.DeleteFunc(ds, func(d Decision) bool {
				return !d.Time.Before(limit[d.Resource]) || !d.Time.Before(newest.Add(time.Minute))
			})...)
		}
		want, got := before(decisionsOf(t, whole, p)), before(decisionsOf(t, liveTrace(past), p))
		if diff := cmp.Diff(want, got, sameDollars); diff != "" {
			t.Fatalf("cut at %s (-whole +cut):\n%s", cut, diff)
		}
	})
}

// cut leaves out the samples from a time on, and returns until when nothing may change by
// that: a release ends with the step of the last sample before a missing one.
func (m *liveMachine) cut(at time.Time) (until time.Time) {
	until = at
	kept := slices.DeleteFunc(slices.Clone(m.samples), func(s liveSample) bool { return !s.at.Before(at) })
	for _, lost := range m.samples[len(kept):] {
		for i := len(kept) - 1; i >= 0; i-- {
			if kept[i].gpu == lost.gpu {
				if end := kept[i].at.Add(time.Minute); end.Before(until) {
					until = end
				}
				break
			}
		}
	}
	m.samples = kept
	return until
}
