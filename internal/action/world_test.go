package action_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// world is an account with a ladder in it, and one policy: idle machines end.
type world struct {
	store  *actiontest.Store
	cloud  *actiontest.Cloud
	people *actiontest.People
	clock  *actiontest.Clock
	ladder *action.Ladder
	// wants is the proposal of the policy, except its condition, which when replaces.
	wants action.Proposal
	when  func(r actiontest.Resource, now time.Time) usage.Tristate
	// judged replaces what the cloud says of a machine's duty.
	judged func(r actiontest.Resource, now time.Time) *duty.Verdict
	// unpriced says that no resource has a known price.
	unpriced bool
	// others are so many machines that the policy selects and that always work.
	others int
	// reading happens while resources are verified.
	reading func()
}

func newWorld() *world {
	w := &world{store: actiontest.NewStore(), people: actiontest.NewPeople(), clock: actiontest.NewClock(start)}
	w.cloud = actiontest.NewCloud(w.now)
	w.connect(w.store, w.cloud, w.people)
	w.wants = action.Proposal{
		Source: "idle-machines", Do: policy.Do{Verb: policy.Terminate}, Mode: policy.Enforce, Grace: 15 * time.Minute,
		Limits: policy.Limits{PerHour: 100, Share: 1, DollarsPerHour: 1000 * money.USD}, Governed: true, Class: "duty"}
	return w
}

// connect gives the world another ladder, as a new process has.
func (w *world) connect(store action.Store, cloud action.Cloud, people action.Notifier) {
	w.ladder = &action.Ladder{
		Store: store, Cloud: cloud, Notifier: people, Verify: w.verify, Account: actiontest.Account, Actor: "ana",
		Enforce: true, Clock: w.clock.Read}
}

func (w *world) now() time.Time { return w.clock.Wall }

// idle adds idle machines, measured from now on until they are changed.
func (w *world) idle(ids ...string) {
	for _, id := range ids {
		w.cloud.Put(machine(id))
	}
}

func machine(id string) actiontest.Resource {
	return actiontest.Resource{
		ID: id, Type: "p4d.24xlarge", CreatedAt: start.Add(-20 * time.Hour), Duty: duty.Idle, SampledAt: start,
		Hourly: 3 * money.USD,
		Tags:   map[string]string{"owner": "ana", inventory.TagLifetime: "ephemeral", "environment": "dev"}}
}

// sample lets the agents report: what every machine does is measured now.
func (w *world) sample() {
	for _, r := range w.cloud.Resources() {
		w.cloud.Change(r.ID, func(r *actiontest.Resource) { r.SampledAt = w.now() })
	}
}

// propose is the policy.
func (w *world) propose() []action.Proposal {
	var out []action.Proposal
	for _, r := range w.cloud.Resources() {
		if a := w.answer(r); a == usage.True {
			p := w.wants
			p.Resource, p.Duty, p.Condition, p.Because = r.Inventory(), r.Verdict(), a, "idle since yesterday"
			p.Evidence = []usage.Evidence{usage.Fact("state", string(r.State), "test")}
			if !w.unpriced {
				p.Hourly = inventory.Known(r.Hourly)
			}
			if w.judged != nil {
				p.Duty = w.judged(r, w.now())
			}
			out = append(out, p)
		}
	}
	for i := range out {
		for _, other := range w.cloud.Resources() {
			if o := other.Inventory(); o.Gang != "" && o.Gang == out[i].Resource.Gang && o.ID != out[i].Resource.ID {
				out[i].Gang = append(out[i].Gang, o.Ref())
			}
		}
	}
	return out
}

// unknown reports whether the policy's answer about a resource is unknown.
func (w *world) unknown(_ string, ref inventory.Ref) bool {
	for _, r := range w.cloud.Resources() {
		if r.ID == ref.ID {
			return w.answer(r) == usage.Unknown
		}
	}
	return false
}

func (w *world) answer(r actiontest.Resource) usage.Tristate {
	if w.when != nil {
		return w.when(r, w.now())
	}
	v := r.Verdict()
	if v == nil || v.State == duty.Unknown || w.now().After(v.Expires) {
		return usage.Unknown
	}
	return usage.FromBool(v.State == duty.Idle)
}

func (w *world) verify(_ context.Context, items []action.Item) (map[string]action.Proposal, error) {
	if w.reading != nil {
		w.reading()
	}
	out := map[string]action.Proposal{}
	for _, p := range w.propose() {
		for _, it := range items {
			if it.Ref == p.Resource.Ref() {
				out[it.ID] = p
			}
		}
	}
	return out, nil
}

// round makes one round.
func (w *world) round(t testing.TB) action.Report {
	t.Helper()
	report, err := w.tryRound()
	if err != nil {
		t.Fatalf("round: %v", err)
	}
	return report
}

func (w *world) tryRound() (action.Report, error) {
	look := action.Scope{
		Proposals: w.propose(), Unknown: w.unknown, Selected: map[string]int{
			w.wants.Source: len(w.cloud.Resources()) + w.others,
		},
	}
	if w.wants.ByPerson {
		look.Sources = []string{w.wants.Source}
	}
	return w.ladder.Round(context.Background(), look)
}

// rounds lets time pass in steps, with a sample and a round after each, and returns
// the last report.
func (w *world) rounds(t testing.TB, span, step time.Duration) (last action.Report) {
	t.Helper()
	for passed := time.Duration(0); passed < span; passed += step {
		w.clock.Advance(step)
		w.sample()
		last = w.round(t)
	}
	return last
}

// audit returns what happened to a resource, in short: "warned intent outcome confirmed".
func (w *world) audit(resource string) string {
	var out []string
	for _, e := range w.entries(resource) {
		out = append(out, e.What)
	}
	return strings.Join(out, " ")
}

func (w *world) entries(resource string) (out []action.Entry) {
	_ = w.store.Entries(context.Background(), action.Query{}, func(e action.Entry) error {
		if resource == "" || strings.HasSuffix(e.Resource, "/"+resource) {
			out = append(out, e)
		}
		return nil
	})
	return out
}

// results returns the result of each resource.
func results(r action.Report) map[string]action.Result {
	out := map[string]action.Result{}
	for _, l := range r.Lines {
		out[l.Resource.ID] = l.Result
	}
	return out
}

func why(r action.Report, id string) string {
	for _, l := range r.Lines {
		if l.Resource.ID == id {
			return l.Why
		}
	}
	return ""
}

// want checks the result of one resource.
func want(t testing.TB, r action.Report, id string, result action.Result) {
	t.Helper()
	if got := results(r)[id]; got != result {
		t.Fatalf("%s: %q (%s), want %q", id, got, why(r, id), result)
	}
}

// untouched checks that no call had an effect.
func (w *world) untouched(t testing.TB) {
	t.Helper()
	if got := w.cloud.Carried(""); len(got) > 0 {
		t.Fatalf("acted on %v", got)
	}
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}
