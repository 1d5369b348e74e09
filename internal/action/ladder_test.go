package action_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

func TestLadderFromWarningToConfirmation(t *testing.T) {
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

// TestNeverActsWithoutPreconditions: in none of these may anything be acted on, however often the
// ladder goes round afterwards.
func TestNeverActsWithoutPreconditions(t *testing.T) {
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
		{name: "the channel refuses the warning", result: action.ResultObserved, prepare: func(w *world) {
			w.people.Refuse("ana", true)
		}},
		{name: "its disks hold unsaved data", result: action.ResultRefused, prepare: func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Unsaved = true })
		}},
		{
			name: "a busy machine in hour 13 under a rule of 12 hours", result: action.ResultRefused,
			prepare: func(w *world) {
				w.wants.Class = "age"
				w.when = func(actiontest.Resource, time.Time) usage.Tristate { return usage.True }
				w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Duty = duty.Busy })
			}},
		{name: "it is persistent", result: action.ResultRefused, prepare: func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { delete(r.Tags, inventory.TagLifetime) })
		}},
		{name: "policies do not govern it", result: action.ResultRefused, prepare: func(w *world) {
			w.wants.Governed = false
		}},
		{name: "the policy only observes", result: action.ResultObserved, prepare: func(w *world) {
			w.wants.Mode = policy.Observe
		}},
		{name: "the policy only warns", result: action.ResultWarned, prepare: func(w *world) {
			w.wants.Mode = policy.Warn
		}},
		{name: "the run does not enforce", result: action.ResultWouldWarn, prepare: func(w *world) {
			w.ladder.Enforce = false
		}},
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
		{name: "its policy stops enforcing", result: action.ResultWarned, change: func(w *world) {
			w.wants.Mode = policy.Warn
		}},
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
	err := w.ladder.Keep(context.Background(), action.Keep{
		Ref:   inventory.Ref{Cloud: "test", Account: "1", Region: "here", Kind: inventory.KindInstance, ID: id},
		Until: w.now().Add(d), Reason: "a demo"})
	if err != nil {
		panic(err)
	}
}

// TestVerifiesRightBeforeCall: what changes while everything is read again, right before the
// call, counts.
func TestVerifiesRightBeforeCall(t *testing.T) {
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
		{"all is frozen", func(w *world) {
			_ = w.ladder.Freeze(context.Background(), "an incident")
		}, action.ResultFrozen},
		{"it is protected", func(w *world) {
			w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Protected = true })
		}, action.ResultRefused},
		{"reading takes too long", func(w *world) {
			w.clock.Advance(6 * time.Minute)
			w.sample()
		}, action.ResultRefused},
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

// TestGraceNeedsTimeAndSecondRound: neither alone is enough, and after any time that no
// round vouches for, grace starts over.
func TestGraceNeedsTimeAndSecondRound(t *testing.T) {
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
			r, err := w.ladder.Round(t.Context(), action.Scope{Proposals: p, Sources: []string{p[0].Source}})
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
		it, _ := action.Advance(action.Item{}, proposal(0), action.Round{Number: 7, Now: start})
		it = it.Accepted([]string{"ana"}, *proposal(0), action.Round{Number: 7, Now: start})
		if _, got := action.Advance(it, proposal(0), action.Round{
			Number: 7, Now: start.Add(time.Hour),
		}); got != action.Wait {
			t.Errorf("in the same round: %s", got)
		}
		if _, got := action.Advance(it, proposal(0), action.Round{Number: 8, Now: start}); got != action.Verify {
			t.Errorf("without grace, in the next round at the same instant: %s", got)
		}
	})
}

// proposal is of one machine, with a grace.
func proposal(grace time.Duration) *action.Proposal {
	r := machine("i-1")
	return &action.Proposal{
		Source: "s", Resource: r.Inventory(), Do: policy.Do{Verb: policy.Terminate},
		Mode: policy.Enforce, Grace: grace,
		Condition: usage.True,
	}
}

func TestAdvance(t *testing.T) {
	p := func(change func(p *action.Proposal)) *action.Proposal {
		out := proposal(time.Hour)
		if change != nil {
			change(out)
		}
		return out
	}
	round := func(n int64, after time.Duration) action.Round { return action.Round{Number: n, Now: start.Add(after)} }
	observed, _ := action.Advance(action.Item{Account: "a"}, p(nil), round(1, 0))
	warned := observed.Accepted([]string{"ana"}, *p(nil), round(1, 0))
	for _, tc := range []struct {
		name  string
		it    action.Item
		p     *action.Proposal
		r     action.Round
		phase action.Phase
		want  action.NextStep
	}{
		{"nothing is proposed", action.Item{}, nil, round(1, 0), "", action.NoStep},
		{
			"an unknown condition does not begin", action.Item{}, p(func(p *action.Proposal) {
				p.Condition = usage.Unknown
			}),
			round(1, 0), "", action.NoStep,
		},
		{"it begins", action.Item{}, p(nil), round(1, 0), action.Observed, action.Warn},
		{
			"it begins under a policy that observes", action.Item{}, p(func(p *action.Proposal) {
				p.Mode = policy.Observe
			}),
			round(1, 0), action.Observed, action.NoStep,
		},
		{
			"an unknown mode observes", action.Item{}, p(func(p *action.Proposal) { p.Mode = "destroy" }), round(1, 0),
			action.Observed, action.NoStep,
		},
		{
			"a tag needs no warning", action.Item{}, p(func(p *action.Proposal) {
				p.Do.Verb = policy.Tag
			}), round(1, 0),
			action.Observed, action.Verify,
		},
		{
			"a tag of a policy that warns", action.Item{},
			p(func(p *action.Proposal) { p.Do.Verb, p.Mode = policy.Tag, policy.Warn }), round(1, 0), action.Observed,
			action.Warn,
		},
		{"nothing proposes it any more", warned, nil, round(9, 2*time.Hour), action.Withdrawn, action.NoStep},
		{
			"its condition becomes unknown", warned, p(func(p *action.Proposal) { p.Condition = usage.Unknown }),
			round(9, 2*time.Hour), action.Withdrawn, action.NoStep,
		},
		{
			"its condition becomes false", warned, p(func(p *action.Proposal) { p.Condition = usage.False }),
			round(9, 2*time.Hour), action.Withdrawn, action.NoStep,
		},
		{
			"another machine takes its name", warned, p(func(p *action.Proposal) { p.Resource.CreatedAt = start }),
			round(9, 2*time.Hour), action.Withdrawn, action.NoStep,
		},
		{
			"another action", warned, p(func(p *action.Proposal) { p.Do.Verb = policy.Stop }), round(9, 2*time.Hour),
			action.Withdrawn, action.NoStep,
		},
		{
			"an action that says even if busy", warned, p(func(p *action.Proposal) { p.Do.EvenIfBusy = true }),
			round(9, 2*time.Hour), action.Withdrawn, action.NoStep,
		},
		{"grace runs", warned, p(nil), round(9, time.Hour-1), action.Warned, action.Wait},
		{"grace has run", warned, p(nil), round(2, time.Hour), action.Warned, action.Verify},
		{"time alone", warned, p(nil), round(1, time.Hour), action.Warned, action.Wait},
		{
			"a restart", warned, p(nil), action.Round{
				Number: 9, Now: start.Add(2 * time.Hour), Restart: true,
			}, action.Warned,
			action.Wait,
		},
		{
			"grace was lengthened", warned, p(func(p *action.Proposal) {
				p.Grace = 3 * time.Hour
			}), round(9, 2*time.Hour),
			action.Warned, action.Wait,
		},
		{
			"grace was shortened: what was announced holds", warned, p(func(p *action.Proposal) { p.Grace = 0 }),
			round(9, time.Hour-1), action.Warned, action.Wait,
		},
		{
			"the policy only observes now", warned, p(func(p *action.Proposal) { p.Mode = policy.Observe }),
			round(9, 2*time.Hour), action.Observed, action.NoStep,
		},
		{
			"the policy only warns now", warned, p(func(p *action.Proposal) {
				p.Mode = policy.Warn
			}), round(9, 2*time.Hour),
			action.Warned, action.Wait,
		},
		{
			"an item under way is left alone", action.Item{Phase: action.Acting}, nil, round(9, 0), action.Acting,
			action.NoStep,
		},
		{
			"an item that is done is left alone", action.Item{Phase: action.Done}, p(nil), round(9, 0), action.Done,
			action.NoStep,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next, got := action.Advance(tc.it, tc.p, tc.r)
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
		next, got := action.Advance(it, p(nil), round(99, 99*time.Hour))
		if next.Phase != action.Observed || got != action.Warn {
			t.Errorf("once it enforces: %s, %s; want it warned about again", next.Phase, got)
		}
	})
}

func TestFreezeStopsActions(t *testing.T) {
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
	if got := w.audit("i-2"); !strings.HasSuffix(got, "confirmed notified") &&
		!strings.HasSuffix(w.audit("i-1"), "confirmed notified") {
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
	if err := w.ladder.Keep(t.Context(), action.Keep{
		Ref: ref, Until: start.Add(time.Hour), Reason: "a demo; password=hunter22",
	}); err != nil {
		t.Fatal(err)
	}
	keeps, _ := w.store.Keeps(t.Context(), start)
	if len(keeps) != 1 || keeps[0].By != "ana" || !keeps[0].At.Equal(start) {
		t.Errorf("keeps: %+v", keeps)
	}
	got := w.entries("i-1")
	if len(got) != 1 || got[0].What != "keep" || got[0].Actor != "ana" ||
		strings.Contains(got[0].Because, "hunter22") {
		t.Errorf("audit: %+v", got)
	}
}

// TestPreviewChangesNothing: without enforce nothing is sent, kept or called, and the preview
// equals the later action.
func TestPreviewChangesNothing(t *testing.T) {
	w := newWorld()
	w.idle("i-new", "i-protected")
	w.cloud.Change("i-protected", func(r *actiontest.Resource) { r.Protected = true })
	w.ladder.Enforce = false
	r := w.round(t)
	if diff := cmp.Diff(map[string]action.Result{"i-new": action.ResultWouldWarn, "i-protected": action.ResultRefused},
		results(r)); diff != "" {
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
		r, err := l.Round(t.Context(), action.Scope{Proposals: w.propose()})
		if err != nil {
			t.Fatal(err)
		}
		want(t, r, "i-new", action.ResultWouldWarn)
		l.Enforce = true
		if _, err := l.Round(t.Context(), action.Scope{Proposals: w.propose()}); err == nil {
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
