package action_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
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

// TestScopes checks that a person's request leaves the policies' items alone, and the other way
// round.
func TestScopes(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	w.round(t)
	mine := w.propose()
	mine[0].Source, mine[0].ByPerson = "finding:3f9a", true
	if _, err := w.ladder.Round(t.Context(), action.Scope{Proposals: mine, Sources: []string{"finding:3f9a"}}); err !=
		nil {
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

// TestRedactsRecordedEntries: what a policy's author or a provider wrote into a
// reason comes into no entry, line or message.
func TestRedactsRecordedEntries(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	p := w.propose()
	p[0].Because = "its password=hunter22 is idle"
	r, err := w.ladder.Round(t.Context(), action.Scope{Proposals: p})
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

func TestNotifyPolicy(t *testing.T) {
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
	var kinds []string
	for _, told := range w.people.Told() {
		kinds = append(kinds, told.Kind)
	}
	if want := []string{"notice", "notice", "resolved", "resolved", "notice", "notice"}; !slices.Equal(kinds, want) {
		t.Errorf("people got %v, want %v", kinds, want)
	}
	w.untouched(t)
}

// TestNotifiesAgain checks that people are notified of an alarm once, again when its dollars have
// doubled and after a day, and not at all while it is unknown whether it goes on.
func TestNotifiesAgain(t *testing.T) {
	w := newWorld()
	w.wants.Do.Verb, w.wants.Notify = policy.Notify, []string{"owner"}
	answer := usage.True
	w.when = func(actiontest.Resource, time.Time) usage.Tristate { return answer }
	notified := func(kind string) (n int) {
		for _, told := range w.people.Told() {
			if told.Kind == kind {
				n++
			}
		}
		return n
	}
	w.idle("i-1")
	for _, step := range []struct {
		name              string
		dollars           money.Amount
		after             time.Duration
		answer            usage.Tristate
		notices, resolved int
	}{
		{"at first", 100, time.Minute, usage.True, 1, 0},
		{"less than doubled", 199, time.Minute, usage.True, 1, 0},
		{"unknown", 199, time.Minute, usage.Unknown, 1, 0},
		{"unknown for a day and more", 199, 25 * time.Hour, usage.Unknown, 1, 0},
		{"known again, after a day", 199, time.Minute, usage.True, 2, 0},
		{"doubled", 398, time.Minute, usage.True, 3, 0},
		{"as it was", 398, time.Hour, usage.True, 3, 0},
		{"a day later", 400, 23 * time.Hour, usage.True, 4, 0},
		{"over", 400, time.Minute, usage.False, 4, 1},
		{"over still", 400, time.Minute, usage.False, 4, 1},
		{"again", 100, time.Minute, usage.True, 5, 1},
	} {
		answer = step.answer
		w.wants.Spent = inventory.Known(step.dollars * money.USD)
		w.rounds(t, step.after, time.Minute)
		if n, r := notified("notice"), notified("resolved"); n != step.notices || r != step.resolved {
			t.Fatalf("%s: %d notices and %d resolved, want %d and %d", step.name, n, r, step.notices, step.resolved)
		}
	}
	w.untouched(t)
}

func TestTag(t *testing.T) {
	w := newWorld()
	w.wants.Do = policy.Do{Verb: policy.Tag, Tags: map[string]string{"team": "vision"}}
	w.when = func(r actiontest.Resource, _ time.Time) usage.Tristate { return usage.FromBool(r.Tags["team"] == "") }
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
	if line, err := w.ladder.Undo(t.Context(), w.store.All()[0].ID, "ben"); err != nil ||
		line.Result != action.ResultRefused {
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
		w.when = func(r actiontest.Resource, _ time.Time) usage.Tristate {
			return usage.FromBool(r.Tags["team"] == "")
		}
		w.idle("i-1")
		want(t, w.round(t), "i-1", action.ResultConfirmed)
		it, now := w.store.All()[0], w.ladder.Clock().Wall
		if held > 0 {
			if err := w.store.PutKeep(t.Context(), action.Keep{
				Ref: it.Ref, At: now, Until: now.Add(held), By: "cy", Reason: "mine",
			}); err != nil {
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
		if err != nil || len(keeps) != 1 || !keeps[0].Until.Equal(until) ||
			(keeps[0].By == "cy") != (held > 24*time.Hour) {
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
		w.cloud.Put(actiontest.Resource{
			ID: "vol-1", Kind: inventory.KindVolume, State: inventory.StateAvailable,
			CreatedAt: start.Add(-24 * time.Hour),
			Tags:      map[string]string{"owner": "ana"}, Hourly: money.Cent})
		w.wants.Source, w.wants.ByPerson, w.wants.Governed, w.wants.Class = "finding:3f9a", true, false, "finding"
		w.wants.Do.Verb = policy.Delete
		w.when = func(actiontest.Resource, time.Time) usage.Tristate { return usage.True }
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
		{"another one of that name", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) {
			p.Resource.CreatedAt = start
		}},
		{"one more of its gang", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) {
			p.Gang = []inventory.Ref{{ID: "i-3"}}
		}},
		{"another action", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Do.Verb = policy.Stop }},
		{"another option", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Do.EvenIfBusy = true }},
		{"a step less", func(_ *action.Proposal, steps *[]action.Step, _ *time.Time) { *steps = (*steps)[1:] }},
		{"other parameters", func(_ *action.Proposal, steps *[]action.Step, _ *time.Time) {
			(*steps)[1].Params = "b"
		}},
		{"another class of evidence", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) { p.Class = "age" }},
		{"a higher amount", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) {
			p.Hourly = inventory.Known(3*money.USD + 1)
		}},
		{"no amount", func(p *action.Proposal, _ *[]action.Step, _ *time.Time) {
			p.Hourly = inventory.Fact[money.Amount]{}
		}},
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

// TestWorkDuringGraceRestartsWarning checks that a machine that worked between two rounds goes back
// to the first step, however long it rests again, and whatever the state that it was warned in.
func TestWorkDuringGraceRestartsWarning(t *testing.T) {
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
					w.when = func(actiontest.Resource, time.Time) usage.Tristate { return usage.True }
					since := start.Add(-time.Hour)
					w.judged = func(_ actiontest.Resource, now time.Time) *duty.Verdict {
						return &duty.Verdict{
							State: state, Since: since, Until: now, Expires: now.Add(3 * time.Minute),
							Duration: now.Sub(since),
							Coverage: 1,
						}
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

// TestWorkDuringSnapshotsStopsTermination checks that a machine that works while its disks are
// saved is not ended afterwards, although it rests again.
func TestWorkDuringSnapshotsStopsTermination(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	w.wants.Do.SaveDisks = true
	w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Unsaved = true })
	w.cloud.Slow(3)
	since := start.Add(-time.Hour)
	w.judged = func(_ actiontest.Resource, now time.Time) *duty.Verdict {
		return &duty.Verdict{
			State: duty.Idle, Since: since, Until: now, Expires: now.Add(3 * time.Minute), Coverage: 1,
		}
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

// TestSkewedClockDoesNotAct: what binds several machines is the store's time. One whose
// clock differs decides nothing; where the store has no clock, what another machine
// began is waited for again.
func TestSkewedClockDoesNotAct(t *testing.T) {
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
		if skew := (*action.SkewError)(nil); !errors.As(err, &skew) || skew.Ahead != 31*time.Second ||
			len(w.cloud.Undone()) != 0 {
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
		w.when = func(actiontest.Resource, time.Time) usage.Tristate { return usage.True }
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
		err := w.ladder.Keep(t.Context(), action.Keep{
			Ref: inventory.Ref{ID: "i-1"}, Until: c.Wall.Add(24 * time.Hour), Reason: "a demo",
		})
		if err != nil {
			t.Fatal(err)
		}
		if all, err := w.store.Keeps(t.Context(), w.now().Add(24*time.Hour-time.Second)); err != nil || len(all) != 1 {
			t.Errorf("kept: %v, %v", all, err)
		}
	})
}
