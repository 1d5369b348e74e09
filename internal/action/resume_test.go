package action_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/policy"
)

// intended brings an item to where its intent is written and no call was made: the
// process ends there.
func intended(t *testing.T, w *world) action.Item {
	t.Helper()
	w.idle("i-1")
	w.round(t)
	w.rounds(t, 14*time.Minute, time.Minute)
	w.connect(w.store, dying{w.cloud}, w.people)
	w.clock.Advance(time.Minute)
	w.sample()
	func() {
		defer func() { _ = recover() }()
		_, _ = w.tryRound()
	}()
	w.connect(w.store, w.cloud, w.people)
	it := w.store.All()[0]
	if it.Phase != action.Acting || it.Steps[0].Key == "" || it.Steps[0].IntentAt.IsZero() {
		t.Fatalf("no intent: %+v", it)
	}
	w.untouched(t)
	return it
}

// dying ends the process before any call.
type dying struct{ action.Cloud }

func (dying) Do(context.Context, action.Task) (string, error) { panic("the process ends") }

func TestResume(t *testing.T) {
	t.Run("a young intent is carried out with its key", func(t *testing.T) {
		w := newWorld()
		it := intended(t, w)
		want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultConfirmed)
		if calls := w.cloud.Calls(); len(calls) != 1 || calls[0].Key != it.Steps[0].Key {
			t.Errorf("calls: %+v, want one with key %s", calls, it.Steps[0].Key)
		}
	})
	t.Run("a young intent whose machine turned busy is not", func(t *testing.T) {
		w := newWorld()
		intended(t, w)
		w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Duty = duty.Busy })
		w.rounds(t, 30*time.Minute, time.Minute)
		w.untouched(t)
	})
	t.Run("a young intent of a machine that was kept is not", func(t *testing.T) {
		w := newWorld()
		intended(t, w)
		w.keep("i-1", time.Hour)
		want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultRefused)
		w.untouched(t)
	})
	for _, age := range []time.Duration{6 * time.Minute, 10 * time.Hour} {
		t.Run("an intent "+age.String()+" old is warned about again", func(t *testing.T) {
			w := newWorld()
			intended(t, w)
			w.clock.Reboot(age)
			w.sample()
			want(t, w.round(t), "i-1", action.ResultWarned)
			want(t, w.rounds(t, 14*time.Minute, time.Minute), "i-1", action.ResultWaiting)
			w.untouched(t)
			if got := w.audit("i-1"); got != "observed warned intent put-back warned" {
				t.Errorf("audit: %s", got)
			}
			if told := w.people.Told(); len(told) != 2 {
				t.Errorf("told %+v", told)
			}
		})
	}
	t.Run("a young intent after the clock was set is warned about again", func(t *testing.T) {
		w := newWorld()
		intended(t, w)
		w.clock.Set(3 * time.Minute)
		w.sample()
		want(t, w.round(t), "i-1", action.ResultWarned)
		w.untouched(t)
	})
	t.Run("what was carried out is confirmed without another call", func(t *testing.T) {
		w := newWorld()
		it := intended(t, w)
		if _, err := w.cloud.Do(t.Context(), action.Task{
			Ref: it.Ref, Identity: it.Identity, Do: it.Do, Step: it.Steps[0],
		}); err != nil {
			t.Fatal(err)
		}
		w.clock.Reboot(10 * time.Hour)
		want(t, w.round(t), "i-1", action.ResultConfirmed)
		if calls := w.cloud.Calls(); len(calls) != 1 {
			t.Errorf("called again: %+v", calls)
		}
	})
}

// interrupted lets something happen between the intents of a batch and its calls.
type interrupted struct {
	action.Store
	then func()
}

func (s interrupted) Admit(ctx context.Context, b action.Batch) ([]action.AdmissionResult, error) {
	items, err := s.Store.Admit(ctx, b)
	s.then()
	return items, err
}

// TestChecksBetweenIntentAndCall: what comes after the intent was written and before the
// call is made counts as well.
func TestChecksBetweenIntentAndCall(t *testing.T) {
	for _, tc := range []struct {
		name   string
		then   func(w *world)
		result action.Result
	}{
		{"all is frozen", func(w *world) {
			_ = w.ladder.Freeze(context.Background(), "an incident")
		}, action.ResultFrozen},
		{"it is kept", func(w *world) { w.keep("i-1", time.Hour) }, action.ResultRefused},
		{"the process is suspended", func(w *world) { w.clock.Advance(time.Hour) }, action.ResultWithdrawn},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.idle("i-1")
			w.round(t)
			w.rounds(t, 14*time.Minute, time.Minute)
			w.connect(interrupted{w.store, func() { tc.then(w) }}, w.cloud, w.people)
			w.clock.Advance(time.Minute)
			w.sample()
			r := w.round(t)
			w.untouched(t)
			want(t, r, "i-1", tc.result)
		})
	}
}

func TestProviderFaults(t *testing.T) {
	// due brings idle machines to the minute before they are acted on.
	due := func(t *testing.T, ids ...string) *world {
		t.Helper()
		w := newWorld()
		w.idle(ids...)
		w.round(t)
		w.rounds(t, 14*time.Minute, time.Minute)
		return w
	}
	t.Run("a call that failed is made again with its key", func(t *testing.T) {
		w := due(t, "i-1", "i-2")
		w.cloud.Fail(actiontest.Fault{Step: "terminate", Message: "throttled; token=s3cr3t-value"})
		r := w.rounds(t, time.Minute, time.Minute)
		if !r.Partial {
			t.Error("the round is not partial")
		}
		failed, done := 0, 0
		for _, l := range r.Lines {
			switch l.Result {
			case action.ResultFailed:
				failed++
			case action.ResultConfirmed:
				done++
			}
			if strings.Contains(l.Why, "s3cr3t") {
				t.Errorf("a line shows a secret: %s", l.Why)
			}
		}
		if failed != 1 || done != 1 {
			t.Errorf("%d failed, %d done: %+v", failed, done, r.Lines)
		}
		for _, it := range w.store.All() {
			if strings.Contains(it.Steps[0].Error, "s3cr3t") {
				t.Errorf("an item keeps a secret: %s", it.Steps[0].Error)
			}
		}
		w.rounds(t, time.Minute, time.Minute)
		calls := w.cloud.Calls()
		if len(calls) != 3 || calls[2].Key != calls[0].Key && calls[2].Key != calls[1].Key {
			t.Errorf("calls: %+v", calls)
		}
		if got := sorted(w.cloud.Carried("terminate")); !slices.Equal(got, []string{"i-1", "i-2"}) {
			t.Errorf("terminated %v", got)
		}
		for _, e := range w.entries("") {
			if strings.Contains(e.Outcome, "s3cr3t") {
				t.Errorf("the audit log shows a secret: %s", e.Outcome)
			}
		}
	})
	t.Run("an answer that was lost is found", func(t *testing.T) {
		w := due(t, "i-1")
		w.cloud.Fail(actiontest.Fault{Step: "terminate", Message: "connection reset", Carried: true})
		want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultConfirmed)
		if calls := w.cloud.Calls(); len(calls) != 1 {
			t.Errorf("calls: %+v", calls)
		}
	})
	t.Run("a call that is accepted and never happens is not reported as done", func(t *testing.T) {
		w := due(t, "i-1")
		for range 20 {
			w.cloud.Fail(actiontest.Fault{Step: "terminate"})
		}
		for range 60 {
			if r := w.rounds(t, time.Minute, time.Minute); results(r)["i-1"] == action.ResultConfirmed {
				t.Fatal("reported as confirmed")
			}
		}
		if it := w.store.All()[0]; it.Phase == action.Done {
			t.Error("the item is done")
		}
		if got := w.audit("i-1"); !strings.Contains(got, "alarm") || !strings.Contains(got, "put-back") ||
			strings.Contains(got, "confirmed") {
			t.Errorf("audit: %s", got)
		}
		if told := w.people.Told(); !slices.ContainsFunc(told, func(m actiontest.Told) bool {
			return m.Kind == "alarm"
		}) {
			t.Error("no alarm was sent")
		}
	})
	t.Run("what takes hours is looked at until it is confirmed, with an alarm", func(t *testing.T) {
		w := due(t, "i-1")
		w.cloud.Slow(100)
		r := w.rounds(t, 99*time.Minute, time.Minute)
		want(t, r, "i-1", action.ResultActed)
		if !strings.Contains(why(r, "i-1"), "not confirmed after 1h") {
			t.Errorf("why: %s", why(r, "i-1"))
		}
		if got := strings.Count(w.audit("i-1"), "alarm"); got != 1 {
			t.Errorf("%d alarms", got)
		}
		want(t, w.rounds(t, 3*time.Minute, time.Minute), "", "")
		if it := w.store.All()[0]; it.Phase != action.Done || it.Alarm != "" {
			t.Errorf("the item is %s, alarm %q", it.Phase, it.Alarm)
		}
	})
	t.Run("what cannot be planned is not acted on", func(t *testing.T) {
		w := due(t, "i-1")
		w.cloud.Fail(actiontest.Fault{Step: "plan", Message: "access denied"})
		r := w.rounds(t, time.Minute, time.Minute)
		if want(t, r, "i-1", action.ResultWaiting); !r.Partial {
			t.Error("the round is not partial")
		}
		w.untouched(t)
		want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultConfirmed)
	})
	t.Run("an action without a plan causes no warning", func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		w.cloud.Fail(actiontest.Fault{Step: "plan", Message: "access denied"})
		if r := w.round(t); !r.Partial || len(w.people.Told()) != 0 {
			t.Errorf("told %+v: %+v", w.people.Told(), r.Lines)
		}
	})
	t.Run("what cannot be verified is not acted on", func(t *testing.T) {
		w := due(t, "i-1")
		w.ladder.Verify = func(context.Context, []action.Item) (map[string]action.Proposal, error) {
			return nil, errors.New("throttled")
		}
		r := w.rounds(t, time.Minute, time.Minute)
		if want(t, r, "i-1", action.ResultWaiting); !r.Partial {
			t.Error("the round is not partial")
		}
		w.untouched(t)
	})
	t.Run("what cannot be looked up is looked up again, not called again", func(t *testing.T) {
		w := due(t, "i-1")
		w.cloud.Fail(actiontest.Fault{Step: "look", Message: "throttled"})
		w.cloud.Fail(actiontest.Fault{Step: "look", Message: "throttled"})
		for range 2 {
			r := w.rounds(t, time.Minute, time.Minute)
			if want(t, r, "i-1", action.ResultActed); !r.Partial {
				t.Error("the round is not partial")
			}
		}
		want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultConfirmed)
		if calls := w.cloud.Calls(); len(calls) != 1 {
			t.Errorf("calls: %+v", calls)
		}
	})
	t.Run("what was called is written down although the command was given up", func(t *testing.T) {
		w := due(t, "i-1")
		ctx, cancel := context.WithCancel(t.Context())
		w.connect(w.store, interrupting{w.cloud, cancel}, w.people)
		w.clock.Advance(time.Minute)
		w.sample()
		if _, err := w.ladder.Round(ctx, action.Scope{Proposals: w.propose()}); err != nil {
			t.Errorf("round: %v", err)
		}
		if got := w.audit("i-1"); got != "observed warned intent outcome confirmed notified" {
			t.Errorf("audit: %s", got)
		}
	})
	t.Run("what the provider is slow to show is not forgotten", func(t *testing.T) {
		w := due(t, "i-1")
		w.connect(w.store, &lagging{Cloud: w.cloud, looks: 2}, w.people)
		for range 2 {
			want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultActed)
		}
		want(t, w.rounds(t, time.Minute, time.Minute), "i-1", action.ResultConfirmed)
		if calls := w.cloud.Calls(); len(calls) != 1 {
			t.Errorf("calls: %+v", calls)
		}
	})
	t.Run("what the provider gives up is a failure", func(t *testing.T) {
		w := due(t, "i-1")
		w.cloud.Slow(5)
		w.rounds(t, time.Minute, time.Minute)
		w.cloud.Break("i-1")
		r := w.rounds(t, time.Minute, time.Minute)
		if want(t, r, "i-1", action.ResultFailed); !r.Partial {
			t.Error("the round is not partial")
		}
		if it := w.store.All()[0]; it.Phase != action.Failed || it.Alarm == "" {
			t.Errorf("the item is %s, alarm %q", it.Phase, it.Alarm)
		}
	})
}

// interrupting gives the command up while a call is made.
type interrupting struct {
	action.Cloud
	cancel func()
}

func (c interrupting) Do(ctx context.Context, t action.Task) (string, error) {
	defer c.cancel()
	return c.Cloud.Do(ctx, t)
}

// lagging shows no trace of a call for some looks.
type lagging struct {
	action.Cloud
	looks int
}

func (l *lagging) Look(ctx context.Context, t action.Task) (action.Progress, string, error) {
	if l.looks--; l.looks >= 0 {
		return action.NotDone, "", nil
	}
	return l.Cloud.Look(ctx, t)
}

func TestMultiStepActions(t *testing.T) {
	saving := func(t *testing.T) *world {
		t.Helper()
		w := newWorld()
		w.idle("i-1")
		w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Unsaved = true })
		w.wants.Do.SaveDisks = true
		w.cloud.Slow(3)
		w.round(t)
		w.rounds(t, 15*time.Minute, time.Minute)
		if got := w.cloud.Calls(); len(got) != 1 || got[0].Step != "snapshot" {
			t.Fatalf("calls: %+v", got)
		}
		return w
	}
	t.Run("the save is confirmed before the machine ends", func(t *testing.T) {
		w := saving(t)
		w.rounds(t, 10*time.Minute, time.Minute)
		if got := w.audit("i-1"); got != "observed warned intent outcome confirmed intent outcome confirmed notified" {
			t.Errorf("audit: %s", got)
		}
		if got := w.cloud.Carried(""); len(got) != 2 || len(w.cloud.Resources()) != 0 {
			t.Errorf("carried out %v", got)
		}
	})
	t.Run("it turns busy while it is saved", func(t *testing.T) {
		w := saving(t)
		w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Duty = duty.Busy })
		w.rounds(t, 20*time.Minute, time.Minute)
		if got := w.cloud.Carried("terminate"); len(got) != 0 {
			t.Errorf("terminated %v", got)
		}
	})
	t.Run("it is kept while it is saved", func(t *testing.T) {
		w := saving(t)
		w.keep("i-1", time.Hour)
		w.rounds(t, 20*time.Minute, time.Minute)
		if got := w.cloud.Carried("terminate"); len(got) != 0 {
			t.Errorf("terminated %v", got)
		}
	})
	t.Run("all is frozen while it is saved", func(t *testing.T) {
		w := saving(t)
		_ = w.ladder.Freeze(t.Context(), "an incident")
		verified := false
		w.reading = func() { verified = true }
		want(t, w.rounds(t, 20*time.Minute, time.Minute), "i-1", action.ResultFrozen)
		if got := w.audit("i-1"); strings.Count(got, "intent") != 1 || verified {
			t.Errorf("verified: %t, audit: %s", verified, got)
		}
	})
	t.Run("its policy stops enforcing while it is saved", func(t *testing.T) {
		w := saving(t)
		w.wants.Mode = policy.Warn
		w.rounds(t, 20*time.Minute, time.Minute)
		if got := w.cloud.Carried("terminate"); len(got) != 0 {
			t.Errorf("terminated %v", got)
		}
	})
	t.Run("the save fails", func(t *testing.T) {
		w := saving(t)
		w.cloud.Break("i-1")
		w.rounds(t, 3*time.Minute, time.Minute)
		if got := w.cloud.Carried("terminate"); len(got) != 0 {
			t.Errorf("terminated %v", got)
		}
	})
	t.Run("no round runs for three hours after the save", func(t *testing.T) {
		w := saving(t)
		w.rounds(t, 3*time.Minute, time.Minute)
		w.clock.Reboot(3 * time.Hour)
		w.sample()
		want(t, w.round(t), "i-1", action.ResultWarned)
		w.rounds(t, 30*time.Minute, time.Minute)
		if got := w.cloud.Carried(""); len(got) != 3 { // saved again
			t.Errorf("carried out %v", got)
		}
	})
}

func TestUndo(t *testing.T) {
	w := newWorld()
	w.wants.Do.Verb = policy.Stop
	w.idle("i-1")
	w.round(t)
	id := w.store.All()[0].ID
	if line, err := w.ladder.Undo(t.Context(), id, "ben"); err != nil || line.Result != action.ResultRefused {
		t.Errorf("undo of what was not done: %+v, %v", line, err)
	}
	w.cloud.Slow(1)
	w.rounds(t, 15*time.Minute, time.Minute)
	if line, err := w.ladder.Undo(t.Context(), id, "ben"); err != nil || line.Result != action.ResultRefused {
		t.Errorf("undo of what is under way: %+v, %v", line, err)
	}
	w.rounds(t, time.Minute, time.Minute)
	w.ladder.Enforce = false
	before := w.audit("i-1")
	line, err := w.ladder.Undo(t.Context(), id, "ben")
	if err != nil || line.Result != action.ResultWouldUndo || line.Why == "" ||
		w.cloud.Resources()[0].State != "stopped" || len(w.cloud.Undone()) != 0 {
		t.Errorf("without enforcing: %+v, %v; it is %s", line, err, w.cloud.Resources()[0].State)
	}
	if now := w.audit("i-1"); now != before {
		t.Errorf("showing it wrote to the audit log: %s, it was %s", now, before)
	}
	w.ladder.Enforce = true
	line, err = w.ladder.Undo(t.Context(), id[:6], "ben")
	if err != nil || line.Result != action.ResultUndone {
		t.Fatalf("undo: %+v, %v", line, err)
	}
	if got := w.cloud.Undone(); !slices.Equal(got, []string{"stop"}) || w.cloud.Resources()[0].State != "running" {
		t.Errorf("undone %v, it is %s", got, w.cloud.Resources()[0].State)
	}
	if _, err := w.ladder.Undo(t.Context(), "nothing", "ben"); err == nil {
		t.Error("undid what is not there")
	}
	t.Run("the last call first", func(t *testing.T) {
		w := newWorld()
		w.wants.Do.Verb = policy.Stop
		w.idle("i-1")
		w.round(t)
		w.rounds(t, 15*time.Minute, time.Minute)
		it := w.store.All()[0]
		if it.Phase != action.Done {
			t.Fatalf("it is %s", it.Phase)
		}
		first := it.Steps[0]
		first.Name = "snapshot"
		never := it.Steps[0]
		never.Name, never.ConfirmedAt = "tag", time.Time{}
		it.Steps, it.Step = []action.Step{first, it.Steps[0], never}, 1
		if _, err := w.store.Save(t.Context(), it); err != nil {
			t.Fatal(err)
		}
		w.ladder.Enforce = false
		line, err := w.ladder.Undo(t.Context(), it.ID, "ben")
		if want := "stop: take stop back; snapshot: take snapshot back"; err != nil || line.Why != want {
			t.Errorf("it would undo %q, %v; want %q", line.Why, err, want)
		}
		w.ladder.Enforce = true
		line, err = w.ladder.Undo(t.Context(), it.ID, "ben")
		if got := w.cloud.Undone(); err != nil || line.Result != action.ResultUndone ||
			!slices.Equal(got, []string{"stop", "snapshot"}) {
			t.Errorf("undid %v: %+v, %v", got, line, err)
		}
	})
	t.Run("what is under way", func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		w.wants.Do.SaveDisks = true
		w.round(t)
		w.rounds(t, 15*time.Minute, time.Minute) // saved, not ended
		line, err := w.ladder.Undo(t.Context(), w.store.All()[0].ID, "ben")
		if err != nil || line.Result != action.ResultRefused || len(w.cloud.Undone()) != 0 {
			t.Errorf("undo: %+v, %v; undone %v", line, err, w.cloud.Undone())
		}
	})
	t.Run("what is gone", func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		w.round(t)
		w.rounds(t, 15*time.Minute, time.Minute)
		line, err := w.ladder.Undo(t.Context(), w.store.All()[0].ID, "ben")
		if err != nil || line.Result != action.ResultRefused || !strings.HasSuffix(w.audit("i-1"), "undo refused") {
			t.Errorf("undo: %+v, %v; audit %s", line, err, w.audit("i-1"))
		}
	})
}

// TestConcurrentProcessesActOnce: rounds of several processes at once do nothing twice.
func TestConcurrentProcessesActOnce(t *testing.T) {
	w := newWorld()
	ids := []string{"i-1", "i-2", "i-3", "i-4", "i-5", "i-6"}
	w.idle(ids...)
	w.cloud.Slow(1)
	for range 20 {
		var wg sync.WaitGroup
		proposals := w.propose()
		for range 4 {
			l := *w.ladder
			wg.Go(func() {
				if _, err := l.Round(context.Background(), action.Scope{
					Proposals: proposals, Selected: map[string]int{w.wants.Source: 12},
				}); err != nil {
					t.Errorf("round: %v", err)
				}
			})
		}
		wg.Wait()
		w.clock.Advance(time.Minute)
		w.sample()
	}
	if got := sorted(w.cloud.Carried("terminate")); !slices.Equal(got, ids) {
		t.Errorf("terminated %v", got)
	}
	for _, it := range w.store.All() {
		if it.Phase != action.Done {
			t.Errorf("%s is %s", it.Ref.ID, it.Phase)
		}
	}
	intents := 0
	for _, e := range w.entries("") {
		if e.What == "intent" {
			intents++
		}
	}
	if intents < len(ids) {
		t.Errorf("%d intents for %d calls", intents, len(ids))
	}
}

// TestFutureIntentLapses checks that one that another clock wrote ahead of time is not young, and
// is put back.
func TestFutureIntentLapses(t *testing.T) {
	w := newWorld()
	it := intended(t, w)
	it.Steps[0].IntentAt = w.now().Add(2 * time.Minute)
	if _, err := w.store.Save(t.Context(), it); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Minute)
	w.sample()
	want(t, w.round(t), "i-1", action.ResultWarned)
	w.untouched(t)
}
