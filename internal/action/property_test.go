package action_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// watched is a world in which every call is held against what is true at that
// moment, by other means than the ladder's own.
type watched struct {
	*world
	t *rapid.T
	// elapsed is the time that really passed, whatever the clocks say.
	elapsed time.Duration
	// warnedAt is when a warning about an item was accepted, in elapsed time.
	warnedAt map[string]time.Duration
	// set says that the clock was set, and no round has been made since.
	set bool
	// dieAt is after how many calls the process ends; 0 is not at all.
	dieAt int
}

// crash is the end of a process.
type crash struct{}

func (w *watched) boundary() {
	if w.dieAt > 0 {
		if w.dieAt--; w.dieAt == 0 {
			panic(crash{})
		}
	}
}

type watchedStore struct {
	*actiontest.Store
	w *watched
}

func (s watchedStore) Save(ctx context.Context, it action.Item, entries ...action.Entry) (action.Item, error) {
	s.w.boundary()
	defer s.w.boundary()
	return s.Store.Save(ctx, it, entries...)
}

func (s watchedStore) SaveOwing(ctx context.Context, it action.Item, owed []action.Notice, entries ...action.Entry) (
	action.Item, error) {
	s.w.boundary()
	defer s.w.boundary()
	return s.Store.SaveOwing(ctx, it, owed, entries...)
}

func (s watchedStore) PutNotice(ctx context.Context, n action.Notice, entries ...action.Entry) error {
	s.w.boundary()
	defer s.w.boundary()
	return s.Store.PutNotice(ctx, n, entries...)
}

func (s watchedStore) Admit(ctx context.Context, b action.Batch) ([]action.AdmissionResult, error) {
	s.w.boundary()
	defer s.w.boundary()
	return s.Store.Admit(ctx, b)
}

func (s watchedStore) BeginRound(ctx context.Context, account string, c action.Clock) (int64, *action.Clock, error) {
	defer s.w.boundary()
	return s.Store.BeginRound(ctx, account, c)
}

type watchedPeople struct {
	*actiontest.People
	w *watched
}

func (p watchedPeople) Notify(ctx context.Context, to string, m action.Message) (string, error) {
	name, err := p.People.Notify(ctx, to, m)
	if err == nil && m.Kind == "warning" {
		p.w.warnedAt[m.Item] = p.w.elapsed
	}
	p.w.boundary()
	return name, err
}

type watchedCloud struct {
	*actiontest.Cloud
	w *watched
}

// Do holds a call against all that safety asks of it.
func (c watchedCloud) Do(ctx context.Context, t action.Task) (string, error) {
	w := c.w
	w.boundary()
	defer w.boundary()
	item, _, _ := strings.Cut(t.Step.Key, "-")
	fail := func(why string) {
		w.t.Fatalf("%s of %s, key %s: %s\n%s", t.Step.Name, t.Ref.ID, t.Step.Key, why, w.story(t.Ref.ID))
	}
	warnedAt, warned := w.warnedAt[item]
	switch {
	case !warned:
		fail("no recipient accepted a warning")
	case w.elapsed-warnedAt < w.wants.Grace:
		fail(fmt.Sprintf("only %s after the warning", w.elapsed-warnedAt))
	}
	if f, _ := w.store.Frozen(ctx); f != nil {
		fail("all is frozen")
	}
	if all, _ := w.store.Fuses(ctx); len(all) > 0 && all[0].IsBlown() {
		fail("its fuse has blown")
	}
	keeps, _ := w.store.Keeps(ctx, w.now())
	for _, k := range keeps {
		if k.Ref == t.Ref {
			fail("it is kept")
		}
	}
	for _, r := range w.cloud.Resources() {
		if r.ID != t.Ref.ID {
			continue
		}
		switch {
		case w.answer(r) != usage.True:
			fail("its condition is " + w.answer(r).String())
		case action.Identity(r.Inventory()) != t.Identity:
			fail("it is another machine")
		case r.Protected || r.Group != "":
			fail("it is protected, or a member of a group")
		}
	}
	w.audited(t, item, fail)
	return c.Cloud.Do(ctx, t)
}

// audited checks what the audit log says before a call: a warning, a later round,
// and the intent with this key.
func (w *watched) audited(t action.Task, item string, fail func(string)) {
	var warned, intent *action.Entry
	for _, e := range w.entries(t.Ref.ID) {
		if e.Item != item {
			continue
		}
		switch {
		case e.What == "warned":
			warned, intent = &e, nil
		case e.What == "put-back":
			warned, intent = nil, nil
		case e.What == "intent" && strings.Contains(e.Outcome, t.Step.Key):
			intent = &e
		}
	}
	switch {
	case warned == nil:
		fail("the audit log has no warning")
	case intent == nil:
		fail("the audit log has no intent")
	case intent.Round <= warned.Round:
		fail("the warning is of the same round")
	}
}

// story describes the history of a resource for a failure message.
func (w *watched) story(id string) string {
	var out strings.Builder
	for _, e := range w.entries(id) {
		fmt.Fprintf(&out, "%s round %d %s: %s\n", e.At.Format("15:04:05"), e.Round, e.What, e.Outcome)
	}
	return out.String()
}

// process starts a process, which makes a round and may end anywhere in it.
func (w *watched) process(dieAt int) {
	w.connect(watchedStore{w.store, w}, watchedCloud{w.cloud, w}, watchedPeople{w.people, w})
	w.dieAt = dieAt
	defer func() {
		if r := recover(); r != nil && r != (crash{}) {
			panic(r)
		}
	}()
	report, err := w.tryRound()
	if err != nil {
		w.t.Fatalf("round: %v", err)
	}
	w.set = false
	for _, l := range report.Lines {
		if l.Result == action.ResultConfirmed && l.Verb != policy.Notify {
			for _, r := range w.cloud.Resources() {
				if r.ID == l.Resource.ID && r.CreatedAt.Before(start) && r.State != inventory.StateStopped {
					w.t.Fatalf("%s is reported as gone and is %s", r.ID, r.State)
				}
			}
		}
	}
}

// pass lets time pass, with the agents reporting or not.
func (w *watched) pass(d time.Duration, sampled bool) {
	w.clock.Advance(d)
	w.elapsed += d
	if sampled {
		w.sample()
	}
}

// capped checks that no hour ever held more first calls than the limit.
func (w *watched) capped() {
	var at []time.Time
	for _, e := range w.entries("") {
		if e.What != "intent" || !strings.HasSuffix(strings.SplitN(e.Outcome, ":", 2)[0], "-0") {
			continue
		}
		key := e.Outcome
		if again := strings.Count(w.story(""), key); again > 1 {
			continue // the same intent, taken up again
		}
		at = append(at, e.At)
	}
	for i, t := range at {
		n := 0
		for _, other := range at[:i+1] {
			if other.After(t.Add(-time.Hour)) && !other.After(t) {
				n++
			}
		}
		if each := 3 * money.USD; n > w.wants.Limits.PerHour || money.Amount(n)*each > w.wants.Limits.DollarsPerHour {
			w.t.Fatalf("%d actions of %s in the hour to %s, allowed are %+v", n, each, t, w.wants.Limits)
		}
	}
}

// TestRandomOperationsKeepLadderSafe checks that whatever comes in between, in whatever order,
// nothing is acted on that was not warned about, verified, and admitted.
func TestRandomOperationsKeepLadderSafe(t *testing.T) {
	acted := 0
	rapid.Check(t, func(t *rapid.T) {
		w := &watched{world: newWorld(), t: t, warnedAt: map[string]time.Duration{}}
		w.wants.Limits = policy.Limits{
			PerHour: 2, Share: 1,
			DollarsPerHour: rapid.SampledFrom([]money.Amount{100, 5}).Draw(t, "dollars") * money.USD,
		}
		w.wants.Do.SaveDisks = rapid.Bool().Draw(t, "save the disks first")
		ids := []string{"i-1", "i-2", "i-3"}
		w.idle(ids...)
		w.cloud.Slow(rapid.IntRange(0, 2).Draw(t, "slow"))
		one := rapid.SampledFrom(ids)
		few := rapid.IntRange(1, 20)
		round := func() { w.process(0) }
		t.Repeat(map[string]func(*rapid.T){
			"rounds": func(t *rapid.T) {
				for range few.Draw(t, "rounds") {
					w.pass(time.Minute, true)
					round()
				}
			},
			"grace passes": func(*rapid.T) {
				for range 4 {
					w.pass(5*time.Minute, true)
					round()
				}
			},
			"crash": func(t *rapid.T) {
				w.pass(time.Minute, true)
				w.process(few.Draw(t, "after calls"))
			},
			"silence": func(t *rapid.T) { w.pass(time.Duration(few.Draw(t, "minutes"))*time.Minute, false) },
			"reboot": func(t *rapid.T) {
				if w.set { // of a clock that is set between two boots nothing tells
					round()
				}
				d := time.Duration(few.Draw(t, "tens of minutes")) * 10 * time.Minute
				w.clock.Reboot(d)
				w.elapsed += d
				w.sample()
				round()
			},
			"the clock is set": func(t *rapid.T) {
				w.clock.Set(
					time.Duration(rapid.SampledFrom([]int{-1440, -30, -2, 2, 16, 60, 1440}).Draw(t, "minutes")) *
						time.Minute)
				w.set = true
				w.sample()
			},
			"busy": func(t *rapid.T) {
				w.cloud.Change(one.Draw(t, "machine"), func(r *actiontest.Resource) { r.Duty = duty.Busy })
			},
			"idle": func(t *rapid.T) {
				w.cloud.Change(one.Draw(t, "machine"), func(r *actiontest.Resource) { r.Duty = duty.Idle })
			},
			"keep": func(t *rapid.T) { w.keep(one.Draw(t, "machine"), time.Hour) },
			"protect": func(t *rapid.T) {
				w.cloud.Change(one.Draw(t, "machine"), func(r *actiontest.Resource) { r.Protected = !r.Protected })
			},
			"another machine": func(t *rapid.T) {
				r := machine(one.Draw(t, "machine"))
				r.CreatedAt, r.SampledAt = start.Add(w.elapsed), w.now()
				w.cloud.Put(r)
			},
			"freeze":   func(*rapid.T) { _ = w.ladder.Freeze(context.Background(), "an incident") },
			"unfreeze": func(*rapid.T) { _ = w.ladder.Unfreeze(context.Background(), "it is over") },
			"the fuse blows": func(t *rapid.T) {
				_ = w.store.Blow(context.Background(), action.Fuse{
					Account: actiontest.Account, Source: w.wants.Source, At: w.now(), Due: 6, Selected: 6,
				})
				if rapid.Bool().Draw(t, "confirmed") {
					round()
					_, _ = w.ladder.Confirm(context.Background(), w.wants.Source, "it is meant", time.Time{})
				}
			},
			"confirm": func(*rapid.T) {
				_, _ = w.ladder.Confirm(context.Background(), w.wants.Source, "it is meant", time.Time{})
			},
			"no channel": func(*rapid.T) {
				w.people.Refuse("ana", true)
				w.pass(time.Minute, true)
				round()
				w.people.Refuse("ana", false)
			},
			"a call fails": func(t *rapid.T) {
				w.cloud.Fail(actiontest.Fault{
					Step: "terminate", Message: rapid.SampledFrom([]string{"", "throttled"}).Draw(t, "message"),
					Carried: rapid.Bool().Draw(t, "carried")})
			},
			"it changes while it is read": func(t *rapid.T) {
				id := one.Draw(t, "machine")
				w.reading = func() { w.cloud.Change(id, func(r *actiontest.Resource) { r.Duty = duty.Busy }) }
				w.pass(time.Minute, true)
				round()
				w.reading = nil
			},
			"": func(t *rapid.T) {
				seen := map[string]bool{}
				for _, c := range w.cloud.Calls() {
					if c.Carried && seen[c.Key] {
						t.Fatalf("%s of %s took effect twice", c.Step, c.Resource)
					}
					seen[c.Key] = seen[c.Key] || c.Carried
				}
				w.capped()
			},
		})
		acted += len(w.cloud.Carried(""))
	})
	if acted == 0 {
		t.Error("in none of the cases anything was acted on: the test says nothing")
	}
}
