package action_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// part is the scope of one pass: the policies of its file, and the machines whose names begin with
// one of its letters.
type part struct {
	sources []string
	letters string
	// byName lists the machines that it saw, with so many more that are gone; otherwise
	// it says where it looked.
	byName bool
	gone   int
}

func (p part) covers(id string) bool { return strings.ContainsAny(id[:1], p.letters) }

// look returns the scope of a pass over a part of the world. The policies differ only in their
// names.
func (w *world) look(p part) action.Scope {
	out := action.Scope{Sources: p.sources, Selected: map[string]int{}}
	if p.byName {
		out.Evaluated = map[inventory.Ref]bool{}
		for i := range p.gone {
			out.Evaluated[inventory.Ref{ID: fmt.Sprint(i)}] = true
		}
	} else {
		out.Includes = func(ref inventory.Ref) bool { return p.covers(ref.ID) }
	}
	for _, r := range w.cloud.Resources() {
		if p.byName && p.covers(r.ID) {
			out.Evaluated[r.Inventory().Ref()] = true
		}
	}
	proposals := w.propose()
	for _, source := range p.sources {
		out.Selected[source] = 1000
		for _, prop := range proposals {
			if prop.Source = source; p.covers(prop.Resource.ID) {
				out.Proposals = append(out.Proposals, prop)
			}
		}
	}
	return out
}

// pass makes a round of one part.
func (w *world) pass(t interface{ Fatalf(string, ...any) }, p part) action.Report {
	w.ladder.Verify = func(_ context.Context, items []action.Item) (map[string]action.Proposal, error) {
		out := map[string]action.Proposal{}
		for _, prop := range w.look(p).Proposals {
			for _, it := range items {
				if it.Ref == prop.Resource.Ref() && it.Source == prop.Source {
					out[it.ID] = prop
				}
			}
		}
		return out, nil
	}
	report, err := w.ladder.Round(context.Background(), w.look(p))
	if err != nil {
		t.Fatalf("round: %v", err)
	}
	return report
}

// TestPassesIgnoreItemsOutOfScope: passes with other policies, or over other regions,
// take turns on one state, and each comes to its end as if it were alone.
func TestPassesIgnoreItemsOutOfScope(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b part
		want []string
	}{
		{
			"other policies", part{sources: []string{"idle"}, letters: "ab"},
			part{sources: []string{"old"}, letters: "ab"},
			[]string{"a-1", "b-1"},
		},
		{
			"other regions", part{sources: []string{"idle"}, letters: "a"},
			part{sources: []string{"idle"}, letters: "b"},
			[]string{"a-1", "b-1"},
		},
		{
			"other machines", part{sources: []string{"idle"}, letters: "a", byName: true},
			part{sources: []string{"idle"}, letters: "b", byName: true}, []string{"a-1", "b-1"},
		},
		{"other machines of many", part{sources: []string{"idle"}, letters: "a", byName: true, gone: 2000},
			part{sources: []string{"idle"}, letters: "b", byName: true, gone: 2000}, []string{"a-1", "b-1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.idle("a-1", "b-1")
			for range 16 {
				w.pass(t, tc.a)
				w.pass(t, tc.b)
				w.clock.Advance(time.Minute)
				w.sample()
			}
			if got := sorted(w.cloud.Carried("terminate")); !slices.Equal(got, tc.want) {
				t.Errorf("terminated %v, want %v; audit of a-1: %s", got, tc.want, w.audit("a-1"))
			}
			if strings.Contains(w.audit(""), "withdrawn") && tc.name != "other policies" {
				t.Errorf("withdrawn: %s", w.audit(""))
			}
		})
	}
}

// TestConcurrentPassesAreIndependent checks that whatever passes do in whatever order, and whatever
// becomes of the machines, each decides what it would with a state of its own.
func TestConcurrentPassesAreIndependent(t *testing.T) {
	decided := map[action.Result]int{}
	rapid.Check(t, func(t *rapid.T) {
		parts := []part{
			{sources: []string{"idle"}, letters: "a", byName: true},
			{sources: []string{"idle"}, letters: "b"},
			{sources: []string{"old", "late"}, letters: "ab"},
			{sources: []string{"new"}, letters: "b", byName: true},
		}
		ids := []string{"a-1", "a-2", "b-1", "b-2"}
		w := newWorld()
		w.wants.Do.Verb = policy.Notify // which changes no machine
		w.ladder.MaxRoundGap = 1 << 60  // the pauses of a pass alone are longer
		w.idle(ids...)
		shared := action.Store(w.store)
		var alone []action.Store
		for range parts {
			alone = append(alone, action.NewMemory())
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			id := rapid.SampledFrom(ids).Draw(t, "machine")
			becomes := rapid.SampledFrom([]duty.State{
				duty.Idle, duty.Idle, duty.Busy, duty.Unknown,
			}).Draw(t, "becomes")
			pause := time.Duration(rapid.IntRange(0, 30).Draw(t, "minutes")) * time.Minute
			owner := rapid.SampledFrom([]string{"ana", "ana", ""}).Draw(t, "owner")
			w.clock.Advance(pause)
			w.sample()
			w.cloud.Change(id, func(r *actiontest.Resource) { r.Duty, r.Tags["owner"] = becomes, owner })
			n := rapid.IntRange(0, len(parts)-1).Draw(t, "pass")
			w.ladder.Store = alone[n]
			want := w.pass(t, parts[n])
			w.ladder.Store = shared
			got := w.pass(t, parts[n])
			if diff := cmp.Diff(said(want), said(got)); diff != "" {
				t.Fatalf("pass %d (-alone +on one state):\n%s", n, diff)
			}
			for _, l := range got.Lines {
				decided[l.Result]++
			}
		}
	})
	for _, r := range []action.Result{action.ResultWarned, action.ResultWithdrawn, action.ResultObserved} {
		if decided[r] == 0 {
			t.Errorf("nothing was %s: the test says too little; decided was %v", r, decided)
		}
	}
}

// said returns the lines of a report without the names of its items.
func said(r action.Report) []string {
	var out []string
	for _, l := range r.Lines {
		out = append(out, fmt.Sprintf("%s %s %s: %s; due %s, next %s", l.Resource.ID, l.Source,
			l.Result, l.Why, l.DueAt,
			l.NextAt))
	}
	return append(out, fmt.Sprint(r.NextAt, r.Partial))
}

// TestResumesItemsOfOtherScopes: what is under way is looked up by every round, and
// its next call is made only by one that speaks for its policy, or looks at it.
func TestResumesItemsOfOtherScopes(t *testing.T) {
	mine, others := part{sources: []string{"idle"}, letters: "a"}, part{sources: []string{"old"}, letters: "b"}
	elsewhere := part{sources: []string{"idle"}, letters: "b", byName: true}
	w := newWorld()
	w.idle("a-1", "b-1")
	w.cloud.Change("b-1", func(r *actiontest.Resource) { r.Duty = duty.Busy })
	w.wants.Do.SaveDisks = true
	w.cloud.Slow(1)
	for range 16 {
		w.pass(t, mine)
		w.clock.Advance(time.Minute)
		w.sample()
	}
	if got := w.audit("a-1"); got != "observed warned intent outcome" {
		t.Fatalf("audit: %s", got)
	}
	want(t, w.pass(t, others), "a-1", action.ResultActed) // its snapshot is complete
	if got := w.audit("a-1"); got != "observed warned intent outcome confirmed" {
		t.Errorf("audit after another's round: %s", got)
	}
	for name, p := range map[string]part{"of another policy": others, "that looks elsewhere": elsewhere} {
		r := w.pass(t, p)
		if want(t, r, "a-1", action.ResultActed); !strings.Contains(why(r, "a-1"), "its next call waits for a pass") {
			t.Errorf("in a round %s: %s", name, why(r, "a-1"))
		}
	}
	if got := w.cloud.Carried(""); len(got) != 1 {
		t.Errorf("carried out %v", got)
	}
	want(t, w.pass(t, mine), "a-1", action.ResultActed)
	want(t, w.pass(t, others), "a-1", action.ResultConfirmed)
}

// TestOtherScopesConfirmWarnings checks that the grace of an item runs on while only rounds of
// others are made, and starts over when one of them sees that a clock was set.
func TestOtherScopesConfirmWarnings(t *testing.T) {
	mine, others := part{sources: []string{"finding:1"}, letters: "a"}, part{sources: []string{"old"}, letters: "b"}
	run := func(t *testing.T, pause time.Duration) action.Report {
		w := newWorld()
		w.wants.Grace = 6 * time.Hour
		w.idle("a-1")
		w.pass(t, mine)
		for range 6 * 60 / int(pause.Minutes()) {
			w.clock.Advance(pause)
			w.pass(t, others)
		}
		w.sample()
		return w.pass(t, mine)
	}
	want(t, run(t, 30*time.Minute), "a-1", action.ResultConfirmed)
	want(t, run(t, 3*time.Hour), "a-1", action.ResultWaiting) // longer than anybody vouches for
}

// TestRejectsProposalsOutsideScope checks that a round does not propose for what it does not cover.
func TestRejectsProposalsOutsideScope(t *testing.T) {
	w := newWorld()
	w.idle("a-1")
	ref := w.cloud.Resources()[0].Inventory().Ref()
	none := func(inventory.Ref) bool { return false }
	for _, tc := range []struct {
		name   string
		change func(k *action.Scope)
		ok     bool
	}{
		{"of its policy", func(k *action.Scope) { k.Sources = []string{w.wants.Source} }, true},
		{"of its policy, about what it saw", func(k *action.Scope) {
			k.Evaluated = map[inventory.Ref]bool{ref: true}
		}, true},
		{"of another policy", func(k *action.Scope) { k.Sources = []string{"another"} }, false},
		{"of no policy", func(k *action.Scope) { k.Sources = []string{} }, false},
		{"of a finding that is not named", func(k *action.Scope) { k.Proposals[0].Source = "finding:1" }, false},
		{"about what it did not see", func(k *action.Scope) {
			k.Evaluated = map[inventory.Ref]bool{ref: false}
		}, false},
		{"about another part", func(k *action.Scope) { k.Includes = none }, false},
		{"about nothing", func(k *action.Scope) { k.Proposals[0].Resource = nil }, false},
	} {
		look := action.Scope{Proposals: w.propose()}
		tc.change(&look)
		if _, err := w.ladder.Round(t.Context(), look); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestNextAtIsEarliestOfLines checks that the earliest of the lines' times is the report's.
func TestNextAtIsEarliestOfLines(t *testing.T) {
	w := newWorld()
	w.idle("i-1", "i-2")
	w.cloud.Change("i-2", func(r *actiontest.Resource) { delete(r.Tags, "owner") })
	r := w.round(t)
	for _, l := range r.Lines {
		if next := map[string]time.Duration{
			"i-1": 15 * time.Minute, "i-2": 5 * time.Minute,
		}[l.Resource.ID]; !l.NextAt.Equal(start.Add(next)) {
			t.Errorf("%s: next at %s, want in %s", l.Resource.ID, l.NextAt, next)
		}
	}
	if !r.NextAt.Equal(start.Add(5 * time.Minute)) {
		t.Errorf("next at %s", r.NextAt)
	}
}

// TestIdentity: what an adapter knows goes before the time of creation.
func TestIdentity(t *testing.T) {
	for _, tc := range []struct {
		name string
		r    inventory.Resource
		want string
	}{
		{"unknown", inventory.Resource{}, ""},
		{"made", inventory.Resource{CreatedAt: start}, "2026-11-21T12:00:00Z"},
		{"known", inventory.Resource{CreatedAt: start, Incarnation: "uid-1"}, "uid-1"},
	} {
		if got := action.Identity(&tc.r); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestRefusalHasItsRule: in the field as in the words.
func TestRefusalHasItsRule(t *testing.T) {
	for rule, change := range map[string]func(w *world){
		"protected": func(w *world) { w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Protected = true }) },
		"persistent": func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { delete(r.Tags, inventory.TagLifetime) })
		},
		"unapproved": func(w *world) {
			w.wants.ByPerson, w.wants.Source = true, "finding:1"
			w.cloud.Change("i-1", func(r *actiontest.Resource) { delete(r.Tags, inventory.TagLifetime) })
		},
	} {
		w := newWorld()
		w.idle("i-1")
		change(w)
		w.round(t)
		r := w.rounds(t, 20*time.Minute, time.Minute)
		if len(r.Lines) != 1 || r.Lines[0].Rule != rule || !strings.HasPrefix(r.Lines[0].Why, rule+": ") {
			t.Errorf("%s: %+v", rule, r.Lines)
		}
	}
	w := newWorld()
	w.idle("i-1")
	if r := w.round(t); len(r.Lines) != 1 || r.Lines[0].Rule != "" {
		t.Errorf("what is not refused: %+v", r.Lines)
	}
}

// TestAssumptions: what a recorded account does not say is refused unless it is assumed,
// and what is assumed is said.
func TestAssumptions(t *testing.T) {
	grace := 15 * time.Minute
	for _, tc := range []struct {
		name     string
		assume   action.Assumptions
		grace    time.Duration
		unpriced bool
		rule     string
		says     string
	}{
		{name: "no grace", rule: "no-grace"},
		{name: "no grace, where prices are assumed", assume: action.Assumptions{Unpriced: true}, rule: "no-grace"},
		{
			name: "no grace is assumed", assume: action.Assumptions{NoGrace: true},
			says: "its owner got no time to object: the action has no grace",
		},
		{name: "less than no grace", assume: action.Assumptions{NoGrace: true}, grace: -1, rule: "no-grace"},
		{
			name: "a grace where none is needed", assume: action.Assumptions{NoGrace: true, Unpriced: true},
			grace: grace,
		},
		{name: "no price", grace: grace, unpriced: true, rule: "unpriced"},
		{
			name: "no price, where no grace is assumed", assume: action.Assumptions{NoGrace: true}, grace: grace,
			unpriced: true, rule: "unpriced",
		},
		{name: "no price is assumed", assume: action.Assumptions{Unpriced: true}, grace: grace, unpriced: true,
			says: "its price is unknown: the limit in dollars does not apply"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.idle("i-1")
			w.ladder.Assume, w.wants.Grace, w.unpriced = tc.assume, tc.grace, tc.unpriced
			lines := w.round(t).Lines
			w.clock.Advance(max(0, tc.grace))
			w.sample()
			lines = append(lines, w.round(t).Lines...) // of the same time where there is no grace
			if len(lines) != 2 {
				t.Fatalf("%+v", lines)
			}
			for _, l := range lines {
				if l.Rule != tc.rule || l.Assumed != tc.says {
					t.Errorf("%s: rule %q, assumed %q; want %q, %q", l.Result, l.Rule, l.Assumed, tc.rule, tc.says)
				}
			}
			if acted := len(w.cloud.Carried("terminate")) == 1; acted != (tc.rule == "") {
				t.Errorf("acted: %v; %+v", acted, lines)
			}
		})
	}
}

// TestDollarCapIgnoresAssumedPrices checks that the cap in dollars does not count what is assumed
// to have a price; the others do.
func TestDollarCapIgnoresAssumedPrices(t *testing.T) {
	for _, tc := range []struct {
		name     string
		unpriced bool
		limits   policy.Limits
		want     int
	}{
		{"dollars count what has a price", false, policy.Limits{PerHour: 9, Share: 1, DollarsPerHour: money.USD}, 0},
		{
			"dollars do not count what has none", true, policy.Limits{PerHour: 9, Share: 1, DollarsPerHour: money.USD},
			2,
		},
		{"the count does", true, policy.Limits{PerHour: 1, Share: 1, DollarsPerHour: money.USD}, 1},
	} {
		w := newWorld()
		w.idle("i-1", "i-2")
		w.ladder.Assume, w.unpriced, w.wants.Limits = action.Assumptions{Unpriced: true}, tc.unpriced, tc.limits
		w.round(t)
		w.rounds(t, 15*time.Minute, time.Minute)
		if got := w.cloud.Carried("terminate"); len(got) != tc.want {
			t.Errorf("%s: terminated %v", tc.name, got)
		}
	}
}
