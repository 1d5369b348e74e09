package action_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

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

// TestVerifiesAgainAfterSlowCall: what was written while another call was on its way counts, for
// every verb.
func TestVerifiesAgainAfterSlowCall(t *testing.T) {
	for _, verb := range []policy.Verb{policy.Stop, policy.Terminate, policy.Tag} {
		for name, change := range map[string]func(w *world, r *actiontest.Resource){
			"a keep in a tag": func(_ *world, r *actiontest.Resource) {
				r.Tags[inventory.TagKeepUntil] = "2027-01-01"
			},
			"it is persistent": func(_ *world, r *actiontest.Resource) {
				r.Tags[inventory.TagLifetime] = "persistent"
			},
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

// TestActsOnReverifiedFacts: after a slow call the next machine is read again, and what
// was just read is fresh enough for its call.
func TestActsOnReverifiedFacts(t *testing.T) {
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

// TestRoundStopsOnStoreReadError checks that a round whose state cannot be read ends with that
// error, warns no one and calls nothing.
func TestRoundStopsOnStoreReadError(t *testing.T) {
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

func (u unreadable) Blow(ctx context.Context, f action.Fuse, owed ...action.Notice) error {
	return errors.Join(u.fails("blow"), u.Store.Blow(ctx, f, owed...))
}

// TestUnrecordedFuseHoldsActions checks that the round ends with that error, and calls nothing.
func TestUnrecordedFuseHoldsActions(t *testing.T) {
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

// TestHungProviderTimesOut checks that a provider that does not answer is given up, with what was
// waited for.
func TestHungProviderTimesOut(t *testing.T) {
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

// TestUnfreezeReportsFailure checks that a failure to resume is not reported as success.
func TestUnfreezeReportsFailure(t *testing.T) {
	w := newWorld()
	w.ladder.Store = hung{w.store}
	if err := w.ladder.Unfreeze(t.Context(), "it is over"); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("unfreeze: %v", err)
	}
}

// TestFailedFreezeExplainsManualStop: where the state does not answer, a person still learns within
// seconds how to stop everything.
func TestFailedFreezeExplainsManualStop(t *testing.T) {
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

// TestSignalDuringCallKeepsOutcome: what was done by then is in the report.
func TestSignalDuringCallKeepsOutcome(t *testing.T) {
	w := newWorld()
	w.idle("i-1", "i-2")
	w.round(t)
	w.rounds(t, 14*time.Minute, time.Minute)
	ctx, stop := context.WithCancel(t.Context())
	w.ladder.Cloud = slow{w.cloud, func(string) { stop() }}
	w.clock.Advance(time.Minute)
	w.sample()
	r, err := w.ladder.Round(ctx, action.Scope{Proposals: w.propose(), Selected: map[string]int{w.wants.Source: 2}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	want(t, r, "i-1", action.ResultConfirmed)
	if got := w.cloud.Carried(""); !slices.Equal(got, []string{"i-1"}) {
		t.Errorf("acted on %v", got)
	}
}
