package action_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

func TestTheWholeLadder(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	w.cloud.Slow(1)
	r := w.round(t)
	want(t, r, "i-1", action.ResultWarned)
	if due := start.Add(15 * time.Minute); !r.NextAt.Equal(due) || !r.Lines[0].DueAt.Equal(due) {
		t.Errorf("due at %s, next at %s, want %s", r.Lines[0].DueAt, r.NextAt, due)
	}
	want(t, w.rounds(t, 14*time.Minute, time.Minute), "i-1", action.ResultWaiting)
	w.untouched(t)
	want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultActed)
	want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultConfirmed)
	if got, want := w.audit("i-1"), "observed warned intent outcome confirmed notified"; got != want {
		t.Errorf("audit: %s, want %s", got, want)
	}
	for _, e := range w.entries("i-1") {
		actor := "policy idle-machines"
		if e.What == action.EventNotified {
			actor = "curfew"
		}
		if e.Actor != actor || e.Because == "" || e.Item == "" || e.Round == 0 || e.Verb != "terminate" {
			t.Errorf("entry %+v says too little", e)
		}
		if e.What == "intent" && len(e.Evidence) == 0 {
			t.Error("the intent has no evidence")
		}
	}
	if len(w.round(t).Lines) != 0 {
		t.Error("it is gone and still on the ladder")
	}
	if got := w.cloud.Carried("terminate"); !slices.Equal(got, []string{"i-1"}) {
		t.Errorf("terminated %v", got)
	}
}

// TestDestroysNothing: in none of these may anything be acted on, however often the
// ladder goes round afterwards.
func TestDestroysNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		// change is made after the warning and before grace ends; with prepare, before
		// the first round.
		prepare, change func(w *world)
		result          action.Result
	}{
		{name: "it has no owner, so no warning is sent", result: action.ResultObserved, prepare: func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { delete(r.Tags, "owner") })
		}},
		{name: "the channel refuses the warning", result: action.ResultObserved, prepare: func(w *world) { w.people.Refuse("ana", true) }},
		{name: "its disks hold unsaved data", result: action.ResultRefused, prepare: func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Unsaved = true })
		}},
		{name: "a busy machine in hour 13 under a rule of 12 hours", result: action.ResultRefused, prepare: func(w *world) {
			w.wants.Class = "age"
			w.when = func(actiontest.Resource, time.Time) usage.Answer { return usage.True }
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Duty = duty.Busy })
		}},
		{name: "it is persistent", result: action.ResultRefused, prepare: func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { delete(r.Tags, inventory.TagLifetime) })
		}},
		{name: "policies do not govern it", result: action.ResultRefused, prepare: func(w *world) { w.wants.Governed = false }},
		{name: "the policy only observes", result: action.ResultObserved, prepare: func(w *world) { w.wants.Mode = policy.Observe }},
		{name: "the policy only warns", result: action.ResultWarned, prepare: func(w *world) { w.wants.Mode = policy.Warn }},
		{name: "the run does not enforce", result: action.ResultWouldWarn, prepare: func(w *world) { w.ladder.Enforce = false }},
		{name: "the provider protects it", result: action.ResultRefused, change: func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Protected = true })
		}},
		{name: "a tag keeps it", result: action.ResultRefused, change: func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Tags[inventory.TagKeepUntil] = "2027-01-01" })
		}},
		{name: "an unreadable tag keeps it", result: action.ResultRefused, change: func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Tags[inventory.TagKeepUntil] = "until I am back" })
		}},
		{name: "a person keeps it", result: action.ResultRefused, change: func(w *world) {
			w.keep("i-1", 24*time.Hour)
		}},
		{name: "a machine joins a group", result: action.ResultRefused, change: func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Group = "asg" })
		}},
		{name: "its agent stops reporting", change: func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Duty = duty.Unknown })
		}},
		{name: "all is frozen", result: action.ResultFrozen, change: func(w *world) {
			_ = w.ladder.Freeze(context.Background(), "an incident")
		}},
		{name: "its policy stops enforcing", result: action.ResultWarned, change: func(w *world) { w.wants.Mode = policy.Warn }},
		{name: "its policy is taken away", change: func(w *world) { w.wants.Source = "another" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.idle("i-1")
			if tc.prepare != nil {
				tc.prepare(w)
			}
			w.round(t)
			w.rounds(t, 10*time.Minute, time.Minute)
			if tc.change != nil {
				tc.change(w)
			}
			last := w.rounds(t, 10*time.Minute, time.Minute)
			w.untouched(t)
			if tc.result != "" {
				want(t, last, "i-1", tc.result)
			}
		})
	}
}

func (w *world) keep(id string, d time.Duration) {
	err := w.ladder.Keep(context.Background(), action.Keep{Ref: inventory.Ref{Cloud: "test", Account: "1", Region: "here", Kind: inventory.KindInstance, ID: id},
		Until: w.now().Add(d), Reason: "a demo"})
	if err != nil {
		panic(err)
	}
}

// TestTheLastMinute: what changes while everything is read again, right before the
// call, counts.
func TestTheLastMinute(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *world)
		result action.Result
	}{
		{"it turns busy", func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Duty = duty.Busy })
		}, action.ResultWithdrawn},
		{"it is kept", func(w *world) { w.keep("i-1", time.Hour) }, action.ResultRefused},
		{"it is another machine", func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.CreatedAt = w.now() })
		}, action.ResultWithdrawn},
		{"it is gone", func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.State = inventory.StateDeleting })
		}, action.ResultWithdrawn},
		{"all is frozen", func(w *world) { _ = w.ladder.Freeze(context.Background(), "an incident") }, action.ResultFrozen},
		{"it is protected", func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Protected = true })
		}, action.ResultRefused},
		{"reading takes too long", func(w *world) { w.clock.Advance(6 * time.Minute); w.sample() }, action.ResultRefused},
		{"the clock is set", func(w *world) { w.clock.Set(4 * time.Minute); w.sample() }, action.ResultWaiting},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.idle("i-1", "i-2")
			w.round(t)
			w.rounds(t, 14*time.Minute, time.Minute)
			w.reading = func() { tc.change(w) }
			w.clock.Advance(time.Minute)
			w.sample()
			r := w.round(t)
			if got := w.cloud.Carried(""); slices.Contains(got, "i-1") {
				t.Fatalf("acted on %v: %+v", got, r.Lines)
			}
			want(t, r, "i-1", tc.result)
		})
	}
}

// TestGraceNeedsTimeAndTwoRounds: neither alone is enough, and after any time that no
// round vouches for, grace starts over.
func TestGraceNeedsTimeAndTwoRounds(t *testing.T) {
	t.Run("a day ahead", func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		w.round(t)
		w.clock.Advance(time.Minute)
		w.clock.Set(24 * time.Hour)
		w.sample()
		want(t, w.round(t), "i-1", action.ResultWaiting)
		want(t, w.rounds(t, 14*time.Minute, time.Minute), "i-1", action.ResultWaiting)
		w.untouched(t)
		want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultConfirmed)
	})
	t.Run("half an hour ahead", func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		w.round(t)
		w.clock.Advance(time.Minute)
		w.clock.Set(30 * time.Minute)
		w.sample()
		want(t, w.round(t), "i-1", action.ResultWaiting)
		w.untouched(t)
	})
	t.Run("a jump whose round was cut off", func(t *testing.T) {
		for _, boot := range []string{"boot-1", ""} {
			w := newWorld()
			w.clock.Boot = boot
			w.idle("i-1")
			w.round(t)
			w.clock.Advance(time.Minute)
			w.clock.Set(24 * time.Hour)
			// The store has the new clock; the items were not reached.
			if _, _, err := w.store.BeginRound(context.Background(), actiontest.Account, w.clock.Read()); err != nil {
				t.Fatal(err)
			}
			w.clock.Advance(time.Second)
			w.sample()
			want(t, w.round(t), "i-1", action.ResultWaiting)
			w.untouched(t)
		}
	})
	t.Run("backwards", func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		w.round(t)
		w.rounds(t, 14*time.Minute, time.Minute)
		w.clock.Set(-time.Hour)
		w.sample()
		w.round(t)
		w.clock.Advance(10 * time.Minute)
		w.sample()
		want(t, w.round(t), "i-1", action.ResultWaiting)
		w.untouched(t)
	})
	t.Run("backwards, where no boot is known", func(t *testing.T) {
		w := newWorld()
		w.clock.Boot = ""
		w.idle("i-1")
		w.round(t)
		w.rounds(t, 10*time.Minute, time.Minute)
		w.clock.Set(-5 * time.Minute)
		w.sample()
		if r := w.round(t); !r.Lines[0].DueAt.Equal(w.now().Add(15 * time.Minute)) {
			t.Errorf("due at %s, want grace to start over at %s", r.Lines[0].DueAt, w.now())
		}
	})
	t.Run("no round ran for three hours", func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		w.round(t)
		w.clock.Reboot(3 * time.Hour)
		w.sample()
		want(t, w.round(t), "i-1", action.ResultWaiting)
		w.untouched(t)
	})
	t.Run("a jump that only a round of others saw", func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		mine := func() action.Report {
			p := w.propose()
			p[0].Source, p[0].ByPerson = "finding:3f9a", true
			r, err := w.ladder.Round(t.Context(), action.Look{Proposals: p, Sources: []string{p[0].Source}})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		mine()
		w.clock.Advance(time.Minute)
		w.clock.Set(24 * time.Hour)
		w.sample()
		w.wants.Mode = policy.Observe
		w.round(t)
		w.wants.Mode = policy.Enforce
		w.clock.Advance(time.Minute)
		w.sample()
		want(t, mine(), "i-1", action.ResultWaiting)
		w.untouched(t)
	})
	t.Run("a grace longer than any pause", func(t *testing.T) {
		w := newWorld()
		w.wants.Grace = 6 * time.Hour
		w.idle("i-1")
		w.round(t)
		want(t, w.rounds(t, 6*time.Hour-10*time.Minute, 10*time.Minute), "i-1", action.ResultWaiting)
		want(t, w.rounds(t, 10*time.Minute, 10*time.Minute), "i-1", action.ResultConfirmed)
	})
	t.Run("the round of the warning does not count", func(t *testing.T) {
		it, _ := action.Climb(action.Item{}, proposal(0), action.Round{Number: 7, Now: start})
		it = it.Accepted([]string{"ana"}, *proposal(0), action.Round{Number: 7, Now: start})
		if _, got := action.Climb(it, proposal(0), action.Round{Number: 7, Now: start.Add(time.Hour)}); got != action.Wait {
			t.Errorf("in the same round: %s", got)
		}
		if _, got := action.Climb(it, proposal(0), action.Round{Number: 8, Now: start}); got != action.Verify {
			t.Errorf("without grace, in the next round at the same instant: %s", got)
		}
	})
}

// proposal is of one machine, with a grace.
func proposal(grace time.Duration) *action.Proposal {
	r := machine("i-1")
	return &action.Proposal{Source: "s", Resource: r.Inventory(), Do: policy.Do{Verb: policy.Terminate}, Mode: policy.Enforce, Grace: grace, Condition: usage.True}
}

func TestClimb(t *testing.T) {
	p := func(change func(p *action.Proposal)) *action.Proposal {
		out := proposal(time.Hour)
		if change != nil {
			change(out)
		}
		return out
	}
	round := func(n int64, after time.Duration) action.Round { return action.Round{Number: n, Now: start.Add(after)} }
	observed, _ := action.Climb(action.Item{Account: "a"}, p(nil), round(1, 0))
	warned := observed.Accepted([]string{"ana"}, *p(nil), round(1, 0))
	for _, tc := range []struct {
		name  string
		it    action.Item
		p     *action.Proposal
		r     action.Round
		phase action.Phase
		want  action.Want
	}{
		{"nothing is proposed", action.Item{}, nil, round(1, 0), "", action.Nothing},
		{"an unknown condition does not begin", action.Item{}, p(func(p *action.Proposal) { p.Condition = usage.Unknown }), round(1, 0), "", action.Nothing},
		{"it begins", action.Item{}, p(nil), round(1, 0), action.Observed, action.Warn},
		{"it begins under a policy that observes", action.Item{}, p(func(p *action.Proposal) { p.Mode = policy.Observe }), round(1, 0), action.Observed, action.Nothing},
		{"an unknown mode observes", action.Item{}, p(func(p *action.Proposal) { p.Mode = "destroy" }), round(1, 0), action.Observed, action.Nothing},
		{"a tag needs no warning", action.Item{}, p(func(p *action.Proposal) { p.Do.Verb = policy.Tag }), round(1, 0), action.Observed, action.Verify},
		{"a tag of a policy that warns", action.Item{}, p(func(p *action.Proposal) { p.Do.Verb, p.Mode = policy.Tag, policy.Warn }), round(1, 0), action.Observed, action.Warn},
		{"nothing proposes it any more", warned, nil, round(9, 2*time.Hour), action.Withdrawn, action.Nothing},
		{"its condition becomes unknown", warned, p(func(p *action.Proposal) { p.Condition = usage.Unknown }), round(9, 2*time.Hour), action.Withdrawn, action.Nothing},
		{"its condition becomes false", warned, p(func(p *action.Proposal) { p.Condition = usage.False }), round(9, 2*time.Hour), action.Withdrawn, action.Nothing},
		{"another machine takes its name", warned, p(func(p *action.Proposal) { p.Resource.CreatedAt = start }), round(9, 2*time.Hour), action.Withdrawn, action.Nothing},
		{"another action", warned, p(func(p *action.Proposal) { p.Do.Verb = policy.Stop }), round(9, 2*time.Hour), action.Withdrawn, action.Nothing},
		{"an action that says even if busy", warned, p(func(p *action.Proposal) { p.Do.EvenIfBusy = true }), round(9, 2*time.Hour), action.Withdrawn, action.Nothing},
		{"grace runs", warned, p(nil), round(9, time.Hour-1), action.Warned, action.Wait},
		{"grace has run", warned, p(nil), round(2, time.Hour), action.Warned, action.Verify},
		{"time alone", warned, p(nil), round(1, time.Hour), action.Warned, action.Wait},
		{"a restart", warned, p(nil), action.Round{Number: 9, Now: start.Add(2 * time.Hour), Restart: true}, action.Warned, action.Wait},
		{"grace was lengthened", warned, p(func(p *action.Proposal) { p.Grace = 3 * time.Hour }), round(9, 2*time.Hour), action.Warned, action.Wait},
		{"grace was shortened: what was announced holds", warned, p(func(p *action.Proposal) { p.Grace = 0 }), round(9, time.Hour-1), action.Warned, action.Wait},
		{"the policy only observes now", warned, p(func(p *action.Proposal) { p.Mode = policy.Observe }), round(9, 2*time.Hour), action.Observed, action.Nothing},
		{"the policy only warns now", warned, p(func(p *action.Proposal) { p.Mode = policy.Warn }), round(9, 2*time.Hour), action.Warned, action.Wait},
		{"an item under way is left alone", action.Item{Phase: action.Acting}, nil, round(9, 0), action.Acting, action.Nothing},
		{"an item that is done is left alone", action.Item{Phase: action.Done}, p(nil), round(9, 0), action.Done, action.Nothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next, got := action.Climb(tc.it, tc.p, tc.r)
			if next.Phase != tc.phase || got != tc.want {
				t.Errorf("Climb = %s, %s; want %s, %s", next.Phase, got, tc.phase, tc.want)
			}
		})
	}
	t.Run("a warning that announced nothing is none", func(t *testing.T) {
		warns := p(func(p *action.Proposal) { p.Mode = policy.Warn })
		it := observed.Accepted([]string{"ana"}, *warns, round(1, 0))
		if !it.DueAt().IsZero() {
			t.Error("grace runs under a policy that only warns")
		}
		next, got := action.Climb(it, p(nil), round(99, 99*time.Hour))
		if next.Phase != action.Observed || got != action.Warn {
			t.Errorf("once it enforces: %s, %s; want it warned about again", next.Phase, got)
		}
	})
}

func TestFreezeHolds(t *testing.T) {
	dir := t.TempDir()
	w := newWorld()
	w.store = actiontest.OpenStore(dir + "/store.json")
	w.connect(w.store, w.cloud, w.people)
	w.idle("i-1", "i-2")
	w.cloud.Slow(3)
	w.round(t)
	w.rounds(t, 14*time.Minute, time.Minute)
	w.cloud.Fail(actiontest.Fault{Step: "terminate", Message: "throttled"})
	w.rounds(t, time.Minute, time.Minute) // one under way, one that failed
	if err := w.ladder.Freeze(t.Context(), "an incident"); err != nil {
		t.Fatal(err)
	}
	calls := len(w.cloud.Calls())
	// Another process, after a restart.
	w.store = actiontest.OpenStore(dir + "/store.json")
	w.clock.Reboot(time.Minute)
	w.connect(w.store, w.cloud, w.people)
	w.idle("i-3")
	r := w.rounds(t, 20*time.Minute, time.Minute)
	if r.Frozen == nil || r.Frozen.By != "ana" || r.Frozen.Reason != "an incident" {
		t.Errorf("frozen: %+v", r.Frozen)
	}
	if got := w.cloud.Calls(); len(got) != calls {
		t.Errorf("called under a freeze: %+v", got[calls:])
	}
	if got := w.audit("i-2"); !strings.HasSuffix(got, "confirmed notified") && !strings.HasSuffix(w.audit("i-1"), "confirmed notified") {
		t.Errorf("what was under way is not confirmed: %s", got)
	}
	if got := w.audit("i-3"); got != "" {
		t.Errorf("climbed under a freeze: %s", got)
	}
	if err := w.ladder.Unfreeze(t.Context(), ""); err == nil {
		t.Error("unfrozen without a reason")
	}
	if err := w.ladder.Unfreeze(t.Context(), "it is over"); err != nil {
		t.Fatal(err)
	}
	w.rounds(t, 2*time.Hour, time.Minute) // the caps count what failed as well
	if got := sorted(w.cloud.Carried("terminate")); !slices.Equal(got, []string{"i-1", "i-2", "i-3"}) {
		t.Errorf("after it: %v", got)
	}
	var held []string
	for _, e := range w.entries("") {
		if e.What == "freeze" || e.What == "unfreeze" {
			held = append(held, e.What+" "+e.Actor+" "+e.Because)
		}
	}
	if diff := cmp.Diff([]string{"freeze ana an incident", "unfreeze ana it is over"}, held); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
}

func TestKeep(t *testing.T) {
	w := newWorld()
	ref := inventory.Ref{Kind: inventory.KindInstance, ID: "i-1"}
	for _, tc := range []struct {
		name string
		k    action.Keep
	}{
		{"without a reason", action.Keep{Ref: ref, Until: start.Add(time.Hour), Reason: " "}},
		{"in the past", action.Keep{Ref: ref, Until: start, Reason: "x"}},
		{"for too long", action.Keep{Ref: ref, Until: start.Add(31 * 24 * time.Hour), Reason: "x"}},
	} {
		if err := w.ladder.Keep(t.Context(), tc.k); err == nil {
			t.Errorf("kept %s", tc.name)
		}
	}
	if err := w.ladder.Keep(t.Context(), action.Keep{Ref: ref, Until: start.Add(time.Hour), Reason: "a demo; password=hunter22"}); err != nil {
		t.Fatal(err)
	}
	keeps, _ := w.store.Keeps(t.Context(), start)
	if len(keeps) != 1 || keeps[0].By != "ana" || !keeps[0].At.Equal(start) {
		t.Errorf("keeps: %+v", keeps)
	}
	got := w.entries("i-1")
	if len(got) != 1 || got[0].What != "keep" || got[0].Actor != "ana" || strings.Contains(got[0].Because, "hunter22") {
		t.Errorf("audit: %+v", got)
	}
}

// TestPreviewChangesNothing: without enforce nothing is sent, kept or called, and
// what is shown is what would be done.
func TestPreviewChangesNothing(t *testing.T) {
	w := newWorld()
	w.idle("i-new", "i-protected")
	w.cloud.Change("i-protected", func(r *actiontest.Resource) { r.Protected = true })
	w.ladder.Enforce = false
	r := w.round(t)
	if diff := cmp.Diff(map[string]action.Result{"i-new": action.ResultWouldWarn, "i-protected": action.ResultRefused}, results(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(w.store.All()) != 0 || len(w.people.Told()) != 0 || len(w.entries("")) != 0 {
		t.Error("the preview left something")
	}
	w.ladder.Enforce = true
	w.round(t)
	w.rounds(t, 14*time.Minute, time.Minute)
	w.clock.Advance(time.Minute)
	w.sample()
	w.ladder.Enforce = false
	before := len(w.entries(""))
	want(t, w.round(t), "i-new", action.ResultWouldAct)
	if w.untouched(t); len(w.entries("")) != before {
		t.Error("the preview wrote to the audit log")
	}
	t.Run("without a store", func(t *testing.T) {
		l := action.Ladder{Clock: w.clock.Read}
		r, err := l.Round(t.Context(), action.Look{Proposals: w.propose()})
		if err != nil {
			t.Fatal(err)
		}
		want(t, r, "i-new", action.ResultWouldWarn)
		l.Enforce = true
		if _, err := l.Round(t.Context(), action.Look{Proposals: w.propose()}); err == nil {
			t.Error("it enforces without a store")
		}
	})
}

func TestGang(t *testing.T) {
	names := []string{"i-0", "i-1", "i-2", "i-3", "i-4", "i-5", "i-6", "i-7"}
	run := func() *world {
		w := newWorld()
		w.others = 10
		w.idle(names...)
		for _, id := range names {
			w.cloud.Change(id, func(r *actiontest.Resource) { r.Tags[inventory.TagGang] = "run-1" })
		}
		return w
	}
	t.Run("the whole run ends together", func(t *testing.T) {
		w := run()
		w.round(t)
		w.rounds(t, 15*time.Minute, time.Minute)
		if got := w.cloud.Carried(""); len(got) != 8 {
			t.Errorf("ended %v", got)
		}
	})
	t.Run("one idle node of eight causes no warning", func(t *testing.T) {
		w := run()
		for _, id := range names[1:] {
			w.cloud.Change(id, func(r *actiontest.Resource) { r.Duty = duty.Busy })
		}
		want(t, w.round(t), "i-0", action.ResultRefused)
		w.rounds(t, 30*time.Minute, time.Minute)
		if w.untouched(t); len(w.people.Told()) != 0 {
			t.Errorf("told %+v", w.people.Told())
		}
	})
	t.Run("one that turns busy in the last minute puts all back", func(t *testing.T) {
		w := run()
		w.round(t)
		w.rounds(t, 14*time.Minute, time.Minute)
		w.reading = func() { w.cloud.Change("i-3", func(r *actiontest.Resource) { r.Duty = duty.Busy }) }
		r := w.rounds(t, time.Minute, time.Minute)
		w.untouched(t)
		want(t, r, "i-3", action.ResultWithdrawn)
		want(t, r, "i-4", action.ResultRefused)
	})
	t.Run("one that is kept keeps all", func(t *testing.T) {
		w := run()
		w.round(t)
		w.reading = func() { w.keep("i-3", time.Hour) }
		w.rounds(t, 30*time.Minute, time.Minute)
		w.untouched(t)
	})
	t.Run("one whose warning was refused delays all", func(t *testing.T) {
		w := run()
		w.cloud.Change("i-5", func(r *actiontest.Resource) { r.Tags["owner"] = "ben" })
		w.people.Refuse("ben", true)
		w.round(t)
		w.rounds(t, 30*time.Minute, time.Minute)
		w.untouched(t)
		w.people.Refuse("ben", false)
		last := w.rounds(t, 20*time.Minute, time.Minute)
		if got := w.cloud.Carried(""); len(got) != 8 {
			t.Errorf("ended %v: %+v", got, last.Lines)
		}
	})
	t.Run("one that is protected keeps all", func(t *testing.T) {
		w := run()
		w.round(t)
		w.cloud.Change("i-5", func(r *actiontest.Resource) { r.Protected = true })
		w.rounds(t, 30*time.Minute, time.Minute)
		w.untouched(t)
	})
}

// TestScopes: a person's request leaves the policies' items alone, and the
// other way round.
func TestScopes(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	w.round(t)
	mine := w.propose()
	mine[0].Source, mine[0].ByPerson = "finding:3f9a", true
	if _, err := w.ladder.Round(t.Context(), action.Look{Proposals: mine, Sources: []string{"finding:3f9a"}}); err != nil {
		t.Fatal(err)
	}
	w.round(t)
	for _, it := range w.store.All() {
		if it.Phase != action.Warned {
			t.Errorf("%s is %s", it.Source, it.Phase)
		}
	}
	if got := w.entries("i-1"); got[len(got)-1].Actor != "ana" {
		t.Errorf("a person's request is by %s", got[len(got)-1].Actor)
	}
}

// TestNothingSecretIsRecorded: what a policy's author or a provider wrote into a
// reason comes into no entry, line or message.
func TestNothingSecretIsRecorded(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	p := w.propose()
	p[0].Because = "its password=hunter22 is idle"
	r, err := w.ladder.Round(t.Context(), action.Look{Proposals: p})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(w.because(), why(r, "i-1")) {
		if strings.Contains(text, "hunter22") {
			t.Errorf("it says %q", text)
		}
	}
}

// because is every reason in the audit log.
func (w *world) because() (out []string) {
	for _, e := range w.entries("") {
		out = append(out, e.Because)
	}
	return out
}

func TestNotice(t *testing.T) {
	w := newWorld()
	w.wants.Do.Verb, w.wants.Notify = policy.Notify, []string{"owner", "ml-cost"}
	w.idle("i-1")
	want(t, w.round(t), "i-1", action.ResultWarned)
	want(t, w.rounds(t, time.Hour, time.Minute), "i-1", action.ResultWarned)
	if got := w.people.Told(); len(got) != 2 || got[0].Kind != "notice" {
		t.Errorf("told %+v, want each once", got)
	}
	w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Duty = duty.Busy })
	w.rounds(t, time.Minute, time.Minute)
	w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Duty = duty.Idle })
	w.rounds(t, time.Minute, time.Minute)
	if got := w.people.Told(); len(got) != 4 {
		t.Errorf("told %+v, want each again", got)
	}
	w.untouched(t)
}

func TestTag(t *testing.T) {
	w := newWorld()
	w.wants.Do = policy.Do{Verb: policy.Tag, Tags: map[string]string{"team": "vision"}}
	w.when = func(r actiontest.Resource, _ time.Time) usage.Answer { return usage.Of(r.Tags["team"] == "") }
	w.idle("i-1")
	want(t, w.round(t), "i-1", action.ResultConfirmed)
	if got := w.cloud.Resources()[0].Tags["team"]; got != "vision" {
		t.Errorf("team is %q", got)
	}
	if got := w.audit("i-1"); got != "observed intent outcome confirmed" {
		t.Errorf("audit: %s", got)
	}
	line, err := w.ladder.Undo(t.Context(), w.store.All()[0].ID, "ben")
	if err != nil || line.Result != action.ResultUndone {
		t.Fatalf("undo: %+v, %v", line, err)
	}
	if _, there := w.cloud.Resources()[0].Tags["team"]; there {
		t.Error("the tag is still there")
	}
	if keeps, err := w.store.Keeps(t.Context(), w.ladder.Clock().Wall); err != nil || len(keeps) > 0 {
		t.Errorf("an undo without a time keeps %v, %v", keeps, err)
	}
	if line, err := w.ladder.Undo(t.Context(), w.store.All()[0].ID, "ben"); err != nil || line.Result != action.ResultRefused {
		t.Errorf("undone twice: %+v, %v", line, err)
	}
	var by []string
	for _, e := range w.entries("i-1") {
		if strings.HasPrefix(e.What, "undo") {
			by = append(by, e.What+" "+e.Actor)
		}
	}
	if diff := cmp.Diff([]string{"undo ben", "undone ben"}, by); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
}

// An undo is kept from the policy that did it, from its first call on; a longer keep stays.
func TestUndoKeeps(t *testing.T) {
	for _, held := range []time.Duration{0, time.Hour, 48 * time.Hour} {
		w := newWorld()
		w.wants.Do = policy.Do{Verb: policy.Tag, Tags: map[string]string{"team": "vision"}}
		w.when = func(r actiontest.Resource, _ time.Time) usage.Answer { return usage.Of(r.Tags["team"] == "") }
		w.idle("i-1")
		want(t, w.round(t), "i-1", action.ResultConfirmed)
		it, now := w.store.All()[0], w.ladder.Clock().Wall
		if held > 0 {
			if err := w.store.PutKeep(t.Context(), action.Keep{Ref: it.Ref, At: now, Until: now.Add(held), By: "cy", Reason: "mine"}); err != nil {
				t.Fatal(err)
			}
		}
		w.ladder.UndoKeep = 24 * time.Hour
		until := now.Add(max(held, 24*time.Hour))
		line, err := w.ladder.Undo(t.Context(), it.ID, "ben")
		if err != nil || line.Result != action.ResultUndone || !line.KeptUntil.Equal(until) {
			t.Fatalf("%+v, %v, want it kept until %s", line, err, until)
		}
		keeps, err := w.store.Keeps(t.Context(), now)
		if err != nil || len(keeps) != 1 || !keeps[0].Until.Equal(until) || (keeps[0].By == "cy") != (held > 24*time.Hour) {
			t.Errorf("keeps %+v, %v", keeps, err)
		}
		if got := w.round(t); len(got.Lines) > 0 && got.Lines[0].Result == action.ResultConfirmed {
			t.Errorf("it is done again: %+v", got.Lines)
		}
	}
}

func TestApproval(t *testing.T) {
	volume := func() (*world, func() (action.Report, error)) {
		w := newWorld()
		w.cloud.Put(actiontest.Resource{ID: "vol-1", Kind: inventory.KindVolume, State: inventory.StateAvailable, CreatedAt: start.Add(-24 * time.Hour),
			Tags: map[string]string{"owner": "ana"}, Hourly: money.Cent})
		w.wants.Source, w.wants.ByPerson, w.wants.Governed, w.wants.Class = "finding:3f9a", true, false, "finding"
		w.wants.Do.Verb = policy.Delete
		w.when = func(actiontest.Resource, time.Time) usage.Answer { return usage.True }
		return w, w.tryRound
	}
	t.Run("no approver decides", func(t *testing.T) {
		w, _ := volume()
		w.round(t)
		want(t, w.rounds(t, 20*time.Minute, time.Minute), "vol-1", action.ResultRefused)
		w.ladder.Approve = func(context.Context, action.Item, action.Proposal) (action.Approval, error) {
			return action.Approval{}, errors.New("it waits for ben")
		}
		r := w.rounds(t, 20*time.Minute, time.Minute)
		if want(t, r, "vol-1", action.ResultRefused); why(r, "vol-1") != "unapproved: it waits for ben" {
			t.Errorf("why: %s", why(r, "vol-1"))
		}
		w.untouched(t)
	})
	t.Run("an approval is used once, for all steps", func(t *testing.T) {
		w, _ := volume()
		used := 0
		var approved []action.Step
		w.ladder.Approve = func(_ context.Context, it action.Item, _ action.Proposal) (action.Approval, error) {
			used, approved = used+1, it.Steps
			return action.Approval{}, nil
		}
		w.round(t)
		w.rounds(t, 20*time.Minute, time.Minute)
		if used != 1 || len(approved) != 2 {
			t.Errorf("used %d times, for %d steps", used, len(approved))
		}
		if got := w.cloud.Carried(""); len(got) != 2 || len(w.cloud.Resources()) != 0 {
			t.Errorf("carried out %v", got)
		}
		if it := w.store.All()[0]; it.ApprovedAt.IsZero() {
			t.Error("the item does not say that it was approved")
		}
	})
	t.Run("no person is asked about what is refused meanwhile", func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		w.cloud.Change("i-1", func(r *actiontest.Resource) { delete(r.Tags, inventory.TagLifetime) })
		w.wants.Source, w.wants.ByPerson, w.wants.Class = "finding:3f9a", true, "finding"
		w.wants.Governed = false
		asked := 0
		w.ladder.Ask = func(context.Context, action.Item, action.Proposal) error { asked++; return nil }
		w.round(t)
		if asked != 1 {
			t.Fatalf("asked %d times for what is warned about", asked)
		}
		w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Unsaved = true })
		want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultWaiting)
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
	t.Run("a policy never is", func(t *testing.T) {
		w, _ := volume()
		w.ladder.Approve = func(context.Context, action.Item, action.Proposal) (action.Approval, error) {
			return action.Approval{}, nil
		}
		w.wants.ByPerson, w.wants.Source = false, "volumes"
		w.round(t)
		w.rounds(t, 20*time.Minute, time.Minute)
		w.untouched(t)
	})
}

func TestPlanHash(t *testing.T) {
	p := proposal(time.Hour)
	p.Hourly = inventory.Known(3 * money.USD)
	steps := []action.Step{{Name: "snapshot"}, {Name: "delete", Params: "a"}}
	hash := action.PlanHash(*p, steps, start)
	for _, tc := range []struct {
		name   string
		change func(p *action.Proposal, steps *[]action.Step, expiry *time.Time)
	}{
		{"another resource", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Resource.ID = "i-2" }},
		{"another region", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Resource.Region = "there" }},
		{"another one of that name", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Resource.CreatedAt = start }},
		{"one more of its gang", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Gang = []inventory.Ref{{ID: "i-3"}} }},
		{"another action", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Do.Verb = policy.Stop }},
		{"another option", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Do.EvenIfBusy = true }},
		{"a step less", func(_ *action.Proposal, steps *[]action.Step, _ *time.Time) { *steps = (*steps)[1:] }},
		{"other parameters", func(_ *action.Proposal, steps *[]action.Step, _ *time.Time) { (*steps)[1].Params = "b" }},
		{"another class of evidence", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Class = "age" }},
		{"a higher amount", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Hourly = inventory.Known(3*money.USD + 1) }},
		{"no amount", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Hourly = inventory.Fact[money.Amount]{} }},
		{"another expiry", func(_ *action.Proposal, _ *[]action.Step, expiry *time.Time) { *expiry = start.Add(1) }},
	} {
		other, r, s, e := *p, *p.Resource, slices.Clone(steps), start
		other.Resource = &r
		tc.change(&other, &s, &e)
		if action.PlanHash(other, s, e) == hash {
			t.Errorf("%s: the same hash", tc.name)
		}
	}
	same := slices.Clone(steps)
	same[0].Key, same[0].Receipt = "k", "r"
	p.Because = "another wording"
	if action.PlanHash(*p, same, start.In(time.FixedZone("", 3600))) != hash {
		t.Error("what is not part of the plan changes its hash")
	}
}

// TestWorkDuringTheGrace: a machine that worked between two rounds goes back to the first
// step, however long it rests again, and whatever the state that it was warned in.
func TestWorkDuringTheGrace(t *testing.T) {
	for _, state := range []duty.State{duty.Idle, duty.Held, duty.Stalled} {
		for _, tc := range []struct {
			name  string
			since time.Duration // after the warning
			ends  bool
		}{
			{"no work", -time.Hour, true},
			{"work right after the warning", 30 * time.Second, false},
			{"work in the middle", 10 * time.Minute, false},
			{"work until a moment ago", 17*time.Minute + 30*time.Second, false},
		} {
			for _, late := range []time.Duration{15 * time.Minute, 20 * time.Minute, 110 * time.Minute} {
				if late < tc.since {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %s later", state, tc.name, late), func(t *testing.T) {
					w := newWorld()
					w.idle("i-1")
					w.wants.Gang = nil
					w.when = func(actiontest.Resource, time.Time) usage.Answer { return usage.True }
					since := start.Add(-time.Hour)
					w.judged = func(_ actiontest.Resource, now time.Time) *duty.Verdict {
						return &duty.Verdict{State: state, Since: since, Until: now, Expires: now.Add(3 * time.Minute), Lasting: now.Sub(since), Coverage: 1}
					}
					want(t, w.round(t), "i-1", action.ResultWarned)
					since = start.Add(tc.since)
					w.clock.Advance(late)
					w.sample()
					r := w.round(t)
					if tc.ends {
						want(t, r, "i-1", action.ResultConfirmed)
						return
					}
					want(t, r, "i-1", action.ResultWarned)
					w.untouched(t)
					if due := w.now().Add(w.wants.Grace); !r.Lines[0].DueAt.Equal(due) {
						t.Errorf("due at %s, want a whole grace from now, %s", r.Lines[0].DueAt, due)
					}
				})
			}
		}
	}
}

// TestWorkWhileDisksAreSaved: a machine that works while its disks are
// saved is not ended afterwards, although it rests again.
func TestWorkWhileDisksAreSaved(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	w.wants.Do.SaveDisks = true
	w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Unsaved = true })
	w.cloud.Slow(3)
	since := start.Add(-time.Hour)
	w.judged = func(_ actiontest.Resource, now time.Time) *duty.Verdict {
		return &duty.Verdict{State: duty.Idle, Since: since, Until: now, Expires: now.Add(3 * time.Minute), Coverage: 1}
	}
	w.round(t)
	w.rounds(t, 16*time.Minute, time.Minute)
	if got := w.cloud.Carried("snapshot"); len(got) != 1 {
		t.Fatalf("saved %v", got)
	}
	since = w.now().Add(30 * time.Second)
	w.rounds(t, 10*time.Minute, time.Minute)
	if got := w.cloud.Carried("terminate"); len(got) > 0 {
		t.Errorf("ended %v, which worked meanwhile", got)
	}
}

// TestClocksOfOtherMachines: what binds several machines is the store's time. One whose
// clock differs decides nothing; where the store has no clock, what another machine
// began is waited for again.
func TestClocksOfOtherMachines(t *testing.T) {
	other := func(w *world, ahead time.Duration) *actiontest.Clock {
		c := actiontest.NewClock(w.now().Add(ahead))
		c.Boot = "boot-b"
		w.ladder.Clock = c.Read
		return c
	}
	t.Run("100 minutes ahead of the database", func(t *testing.T) {
		for _, ahead := range []time.Duration{100 * time.Minute, 31 * time.Second, -31 * time.Second, -5 * time.Hour} {
			w := newWorld()
			w.store.Clock = w.now
			w.wants.Grace = 90 * time.Minute
			w.idle("i-1")
			want(t, w.round(t), "i-1", action.ResultWarned)
			other(w, ahead)
			_, err := w.tryRound()
			if skew := (*action.SkewError)(nil); !errors.As(err, &skew) || skew.Ahead != ahead {
				t.Errorf("%s ahead: %v", ahead, err)
			}
			w.untouched(t)
		}
	})
	t.Run("ahead of the database, at an undo", func(t *testing.T) {
		w := newWorld()
		w.wants.Do.Verb = policy.Stop
		w.idle("i-1")
		w.rounds(t, 17*time.Minute, time.Minute)
		w.store.Clock = w.now
		c, id := other(w, 31*time.Second), w.store.All()[0].ID
		_, err := w.ladder.Undo(t.Context(), id, "ben")
		if skew := (*action.SkewError)(nil); !errors.As(err, &skew) || skew.Ahead != 31*time.Second || len(w.cloud.Undone()) != 0 {
			t.Errorf("undo: %v, %v", err, w.cloud.Undone())
		}
		w.ladder.Enforce = false // to look is allowed
		if line, err := w.ladder.Undo(t.Context(), id, "ben"); err != nil || line.Result != action.ResultWouldUndo {
			t.Errorf("a look: %+v, %v", line, err)
		}
		w.ladder.Enforce = true
		c.Advance(-time.Second)
		if line, err := w.ladder.Undo(t.Context(), id, "ben"); err != nil || line.Result != action.ResultUndone {
			t.Errorf("30 s ahead: %+v, %v", line, err)
		}
	})
	t.Run("a little ahead, the grace is the database's", func(t *testing.T) {
		w := newWorld()
		w.store.Clock = w.now
		w.idle("i-1")
		w.round(t)
		w.clock.Advance(15*time.Minute - 10*time.Second)
		w.sample()
		c := other(w, 20*time.Second)
		want(t, w.round(t), "i-1", action.ResultWaiting)
		w.clock.Advance(10 * time.Second)
		c.Advance(10 * time.Second)
		want(t, w.round(t), "i-1", action.ResultConfirmed)
	})
	t.Run("100 minutes ahead, in one file", func(t *testing.T) {
		w := newWorld()
		w.wants.Grace = 90 * time.Minute
		w.idle("i-1")
		w.round(t)
		w.clock.Advance(time.Second)
		c := other(w, 100*time.Minute)
		w.cloud.Change("i-1", func(r *actiontest.Resource) { r.SampledAt = c.Wall })
		w.when = func(actiontest.Resource, time.Time) usage.Answer { return usage.True }
		r := w.round(t)
		want(t, r, "i-1", action.ResultWaiting)
		if due := c.Wall.Add(90 * time.Minute); !r.Lines[0].DueAt.Equal(due) {
			t.Errorf("due at %s, want %s", r.Lines[0].DueAt, due)
		}
		w.untouched(t)
	})
	t.Run("a keep lasts as long as was asked for", func(t *testing.T) {
		w := newWorld()
		w.store.Clock = w.now
		c := other(w, -48*time.Hour)
		err := w.ladder.Keep(t.Context(), action.Keep{Ref: inventory.Ref{ID: "i-1"}, Until: c.Wall.Add(24 * time.Hour), Reason: "a demo"})
		if err != nil {
			t.Fatal(err)
		}
		if all, err := w.store.Keeps(t.Context(), w.now().Add(24*time.Hour-time.Second)); err != nil || len(all) != 1 {
			t.Errorf("kept: %v, %v", all, err)
		}
	})
}

// slow is a cloud whose calls take their time.
type slow struct {
	*actiontest.Cloud
	meanwhile func(resource string)
}

func (s slow) Do(ctx context.Context, t action.Task) (string, error) {
	receipt, err := s.Cloud.Do(ctx, t)
	s.meanwhile(t.Ref.ID)
	return receipt, err
}

// TestASlowCallBefore: what was written while another call was on its way counts, for
// every verb.
func TestASlowCallBefore(t *testing.T) {
	for _, verb := range []policy.Verb{policy.Stop, policy.Terminate, policy.Tag} {
		for name, change := range map[string]func(w *world, r *actiontest.Resource){
			"a keep in a tag":   func(_ *world, r *actiontest.Resource) { r.Tags[inventory.TagKeepUntil] = "2027-01-01" },
			"it is persistent":  func(_ *world, r *actiontest.Resource) { r.Tags[inventory.TagLifetime] = "persistent" },
			"it works":          func(_ *world, r *actiontest.Resource) { r.Duty = duty.Busy },
			"another machine":   func(w *world, r *actiontest.Resource) { r.CreatedAt = w.now() },
			"it joined a group": func(_ *world, r *actiontest.Resource) { r.Group = "asg" },
		} {
			if verb == policy.Tag && name == "it joined a group" {
				continue // a tag does not mind
			}
			t.Run(string(verb)+", "+name, func(t *testing.T) {
				w := newWorld()
				w.wants.Do = policy.Do{Verb: verb}
				if verb == policy.Tag {
					w.wants.Do.Tags = map[string]string{"idle": "yes"}
				}
				w.idle("i-1", "i-2")
				calls := 0
				w.ladder.Cloud = slow{w.cloud, func(string) {
					if calls++; calls == 1 {
						w.clock.Advance(90 * time.Second)
						w.sample()
						w.cloud.Change("i-2", func(r *actiontest.Resource) { change(w, r) })
					}
				}}
				w.round(t)
				w.rounds(t, 15*time.Minute, time.Minute)
				if got := w.cloud.Carried(""); !slices.Equal(got, []string{"i-1"}) {
					t.Errorf("acted on %v, want i-1 alone", got)
				}
			})
		}
	}
}

// TestWhatWasReadAgainIsActedOn: after a slow call the next machine is read again, and what
// was just read is fresh enough for its call.
func TestWhatWasReadAgainIsActedOn(t *testing.T) {
	w := newWorld()
	w.idle("i-1", "i-2")
	w.ladder.Cloud = slow{w.cloud, func(string) {
		w.clock.Advance(6 * time.Minute)
		w.sample()
	}}
	w.round(t)
	r := w.rounds(t, 15*time.Minute, time.Minute)
	if got := sorted(w.cloud.Carried("terminate")); !slices.Equal(got, []string{"i-1", "i-2"}) {
		t.Errorf("terminated %v: %+v", got, r.Lines)
	}
}

// unreadable is a store of which one reading fails.
type unreadable struct {
	action.Store
	what string
}

var errUnreadable = errors.New("it cannot be read")

func (u unreadable) fails(what string) error {
	if what == u.what {
		return errUnreadable
	}
	return nil
}

func (u unreadable) BeginRound(ctx context.Context, account string, c action.Clock) (int64, *action.Clock, error) {
	n, last, err := u.Store.BeginRound(ctx, account, c)
	return n, last, errors.Join(err, u.fails("round"))
}

func (u unreadable) Frozen(ctx context.Context) (*action.Freeze, error) {
	f, err := u.Store.Frozen(ctx)
	return f, errors.Join(err, u.fails("freeze"))
}

func (u unreadable) Keeps(ctx context.Context, at time.Time) ([]action.Keep, error) {
	all, err := u.Store.Keeps(ctx, at)
	return all, errors.Join(err, u.fails("keeps"))
}

func (u unreadable) Fuses(ctx context.Context) ([]action.Fuse, error) {
	all, err := u.Store.Fuses(ctx)
	return all, errors.Join(err, u.fails("fuses"))
}

func (u unreadable) Items(ctx context.Context, account string, q action.ItemQuery) ([]action.Item, error) {
	all, err := u.Store.Items(ctx, account, q)
	return all, errors.Join(err, u.fails("items"))
}

// TestWhatCannotBeReadActsOnNothing: a round whose state cannot be read ends with that error,
// warns no one and calls nothing.
func TestWhatCannotBeReadActsOnNothing(t *testing.T) {
	for _, what := range []string{"round", "freeze", "keeps", "fuses", "items"} {
		w := newWorld()
		w.idle("i-1")
		broken := func() {
			w.ladder.Store = unreadable{w.store, what}
			if r, err := w.tryRound(); !errors.Is(err, errUnreadable) || len(r.Lines) > 0 {
				t.Errorf("%s: %+v, %v", what, r.Lines, err)
			}
			w.ladder.Store = w.store
		}
		if broken(); len(w.people.Told()) > 0 {
			t.Errorf("%s: people are warned", what)
		}
		w.round(t)
		w.rounds(t, 14*time.Minute, time.Minute)
		w.clock.Advance(time.Minute)
		w.sample()
		broken()
		w.untouched(t)
		if w.round(t); len(w.cloud.Carried("terminate")) != 1 {
			t.Errorf("%s: once it can be read nothing is done", what)
		}
	}
}

func (u unreadable) Blow(ctx context.Context, f action.Fuse) error {
	return errors.Join(u.fails("blow"), u.Store.Blow(ctx, f))
}

// TestAFuseThatIsNotRecordedHoldsAllTheSame: the round ends with that error, and calls
// nothing.
func TestAFuseThatIsNotRecordedHoldsAllTheSame(t *testing.T) {
	w := newWorld()
	w.wants.Limits = policy.Limits{PerHour: 2}
	w.fleet(slices.Repeat([]money.Amount{3}, 30)...)
	w.round(t)
	w.rounds(t, 14*time.Minute, time.Minute)
	w.clock.Advance(time.Minute)
	w.sample()
	w.ladder.Store = unreadable{w.store, "blow"}
	if r, err := w.tryRound(); !errors.Is(err, errUnreadable) {
		t.Errorf("%+v, %v", r, err)
	}
	w.untouched(t)
}

// silent is a cloud that never answers.
type silent struct{ *actiontest.Cloud }

func (silent) Plan(ctx context.Context, _ *inventory.Resource, _ policy.Do) ([]action.Step, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestNothingIsWaitedForForEver: a provider that does not answer is given up, with what
// was waited for.
func TestNothingIsWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		w.ladder.Cloud = silent{w.cloud}
		r := w.round(t)
		want(t, r, "i-1", action.ResultObserved)
		if got := why(r, "i-1"); !strings.Contains(got, "no answer within 1m0s") {
			t.Error(got)
		}
	})
}

// hung is a store that does not answer.
type hung struct{ action.Store }

func (hung) Freeze(ctx context.Context, _ action.Freeze) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hung) Unfreeze(context.Context, string, string, time.Time) error {
	return errors.New("no answer")
}

// TestUnfreezeSaysThatItFailed: a failure to resume is not reported as success.
func TestUnfreezeSaysThatItFailed(t *testing.T) {
	w := newWorld()
	w.ladder.Store = hung{w.store}
	if err := w.ladder.Unfreeze(t.Context(), "it is over"); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("unfreeze: %v", err)
	}
}

// TestFreezeSaysHowByHand: where the state does not answer, a person still learns within
// seconds how to stop everything.
func TestFreezeSaysHowByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.ladder.Store = hung{w.store}
		before := time.Now()
		err := w.ladder.Freeze(t.Context(), "an incident")
		if err == nil || !strings.Contains(err.Error(), action.FreezeByHand) || time.Since(before) > 10*time.Second {
			t.Errorf("after %s: %v", time.Since(before), err)
		}
	})
}

// TestASignalDuringACall: what was done by then is in the report.
func TestASignalDuringACall(t *testing.T) {
	w := newWorld()
	w.idle("i-1", "i-2")
	w.round(t)
	w.rounds(t, 14*time.Minute, time.Minute)
	ctx, stop := context.WithCancel(t.Context())
	w.ladder.Cloud = slow{w.cloud, func(string) { stop() }}
	w.clock.Advance(time.Minute)
	w.sample()
	r, err := w.ladder.Round(ctx, action.Look{Proposals: w.propose(), Selected: map[string]int{w.wants.Source: 2}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	want(t, r, "i-1", action.ResultConfirmed)
	if got := w.cloud.Carried(""); !slices.Equal(got, []string{"i-1"}) {
		t.Errorf("acted on %v", got)
	}
}
