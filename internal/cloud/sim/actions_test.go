package sim

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// subjects maps the suite's subjects to resources of the account.
var subjects = map[cloudtest.Subject]func(r *inventory.Resource) bool{
	cloudtest.Machine: instance(func(r *inventory.Resource, d *inventory.Instance) bool {
		return !d.TerminationProtected.Or(true) && r.Manager == (inventory.Manager{}) &&
			d.Market == inventory.OnDemand &&
			localDisks(r.Type).Or(1) == 0 &&
			len(d.Disks) == 1 && d.Disks[0].DeleteOnTermination
	}),
	cloudtest.Protected: instance(func(_ *inventory.Resource, d *inventory.Instance) bool {
		return d.TerminationProtected.Or(false)
	}),
	cloudtest.Grouped: instance(func(r *inventory.Resource, _ *inventory.Instance) bool {
		return r.Manager != (inventory.Manager{})
	}),
	cloudtest.Local: instance(func(r *inventory.Resource, d *inventory.Instance) bool {
		return localDisks(r.Type).Or(0) > 0 && r.Manager == (inventory.Manager{}) &&
			!d.TerminationProtected.Or(true) &&
			d.Market == inventory.OnDemand
	}),
	cloudtest.Volume: func(r *inventory.Resource) bool {
		return of[*inventory.Volume](r) && r.State == inventory.StateAvailable
	},
	cloudtest.Attached: func(r *inventory.Resource) bool {
		return of[*inventory.Volume](r) && r.State == inventory.StateInUse
	},
	cloudtest.Address: func(r *inventory.Resource) bool {
		return of[*inventory.Address](r) && r.State == inventory.StateAvailable
	},
	cloudtest.LogGroup: func(r *inventory.Resource) bool {
		d, ok := r.Detail.(*inventory.LogGroup)
		return ok && d.RetentionDays.Or(-1) == 0
	},
	cloudtest.Bucket: func(r *inventory.Resource) bool {
		d, ok := r.Detail.(*inventory.Bucket)
		if !ok || !d.Versioned.Or(false) {
			return false
		}
		for _, x := range d.Lifecycle.Or(nil) {
			if x.NoncurrentExpirationDays > 0 || x.NoncurrentTransition {
				return false
			}
		}
		return true
	},
	cloudtest.Repository: func(r *inventory.Resource) bool {
		d, ok := r.Detail.(*inventory.Repository)
		return ok && !d.LifecyclePolicy.Or(true)
	},
	cloudtest.Notebook: func(r *inventory.Resource) bool {
		d, ok := r.Detail.(*inventory.Notebook)
		return ok && !d.IsApp && r.State == inventory.StateRunning
	},
	cloudtest.Group: func(r *inventory.Resource) bool {
		d, ok := r.Detail.(*inventory.AutoScalingGroup)
		return ok && d.Desired > d.Min && d.Min > 0
	},
	cloudtest.Member: instance(func(r *inventory.Resource, _ *inventory.Instance) bool {
		return r.Manager.Name == "ranker-fleet"
	}),
	cloudtest.Fleet: func(r *inventory.Resource) bool {
		d, ok := r.Detail.(*inventory.Endpoint)
		return ok && d.Variants[0].Count > 1
	},
	cloudtest.Endpoint:    of[*inventory.Endpoint],
	cloudtest.TrainingJob: of[*inventory.TrainingJob],
}

func instance(is func(*inventory.Resource, *inventory.Instance) bool) func(*inventory.Resource) bool {
	return func(r *inventory.Resource) bool {
		d, ok := r.Detail.(*inventory.Instance)
		return ok && r.State == inventory.StateRunning && is(r, d)
	}
}

func of[D inventory.Detail](r *inventory.Resource) bool {
	_, ok := r.Detail.(D)
	return ok
}

func TestActionsConform(t *testing.T) {
	cloudtest.RunActions(t, func(testing.TB) cloudtest.ActionsCase {
		now := laidOut
		clock := func() time.Time { return now }
		c := New(Options{Seed: 7, Now: laidOut})
		used := map[inventory.Ref]bool{}
		return cloudtest.ActionsCase{
			Cloud: c.Actions(clock), Lister: c, Now: clock,
			Pass: func(testing.TB) { now = now.Add(5 * time.Minute) },
			Make: func(tb testing.TB, s cloudtest.Subject) inventory.Ref {
				tb.Helper()
				for _, r := range observed(tb, c, now).Resources {
					if !used[r.Ref()] && subjects[s](r) {
						used[r.Ref()] = true
						return r.Ref()
					}
				}
				tb.Fatalf("the account has no further %s", s)
				return inventory.Ref{}
			},
			Deaf: func(_ testing.TB, ref inventory.Ref) action.Cloud {
				return New(Options{Seed: 7, Now: laidOut, Deaf: []inventory.Ref{ref}}).Actions(clock)
			},
			Snapshots: func(tb testing.TB, volume inventory.Ref) int {
				tb.Helper()
				n := 0
				for _, r := range observed(tb, c, now).Resources {
					if d, ok := r.Detail.(*inventory.Snapshot); ok && d.VolumeID == volume.ID &&
						r.Tags[actionTag] != "" {
						n++
					}
				}
				return n
			},
		}
	})
}

// laidOut is the time of the account's layout.
var laidOut = time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)

func observed(tb testing.TB, c *Cloud, now time.Time) *round.Observation {
	tb.Helper()
	o, err := cloudtest.Observe(context.Background(), c, round.Query{Now: now, Window: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// TestWhatIsDoneShows compares an account with operations against the layout: before, during and
// after them.
func TestWhatIsDoneShows(t *testing.T) {
	c := New(Options{Seed: 7, Now: laidOut})
	at := laidOut
	a := c.Actions(func() time.Time { return at })
	before := observed(t, c, laidOut.Add(-time.Minute))
	var ended inventory.Ref
	for _, r := range before.Resources {
		if !subjects[cloudtest.Machine](r) {
			continue
		}
		ended = r.Ref()
		steps, err := a.Plan(t.Context(), r, policy.Do{Verb: policy.Terminate, ScratchDisks: true})
		if err != nil {
			t.Fatal(err)
		}
		steps[0].Key = "k"
		if _, err := a.Do(t.Context(), action.Task{
			Ref: ended, Identity: r.CreatedAt.Format(time.RFC3339), Step: steps[0],
			Do: policy.Do{Verb: policy.Terminate, ScratchDisks: true},
		}); err != nil {
			t.Fatal(err)
		}
		break
	}
	if diff := cmp.Diff(before.Resources, observed(t, c, laidOut.Add(-time.Minute)).Resources,
		cmp.Exporter(func(reflect.Type) bool { return true }), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what was before the operation has changed:\n%s", diff)
	}
	for _, x := range []struct {
		name string
		now  time.Time
		lack []inventory.Ref
	}{{"on the way", laidOut.Add(30 * time.Second), nil}, {"after", laidOut.Add(time.Hour), []inventory.Ref{ended}}} {
		t.Run(x.name, func(t *testing.T) {
			cloudtest.Run(t, cloudtest.Case{New: func(testing.TB) cloudtest.Cloud {
				return c
			}, Query: round.Query{Now: x.now},
				Tags: inventory.DefaultTagMapping(), Lacks: x.lack})
		})
	}
}

// TestRecheckMeasuresFinely reads a short window, which has data up to the last minutes.
func TestRecheckMeasuresFinely(t *testing.T) {
	c := New(Options{Seed: 7, Now: laidOut})
	for _, r := range observed(t, c, laidOut).Resources {
		if !subjects[cloudtest.Machine](r) {
			continue
		}
		o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{r.Ref()},
			round.Query{Now: laidOut.Add(7 * time.Minute), Window: 3 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		w := o.Windows[r.Ref()]
		st := w.Machine.Stats(usage.CPUUtil)
		if w.Step != 5*time.Minute || !w.Fresh(st, laidOut.Add(7*time.Minute)) || w.Coverage(st) < 0.9 {
			t.Errorf("%s: a step of %s, fresh: %v, coverage %.2f", r.ID, w.Step,
				w.Fresh(st, laidOut.Add(7*time.Minute)),
				w.Coverage(st))
		}
		return
	}
	t.Fatal("the account has no machine")
}

func TestRecheckOfAnotherAccountFails(t *testing.T) {
	c := New(Options{Now: laidOut})
	if _, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{
		{Cloud: "aws", Account: Account, Kind: inventory.KindVolume, ID: "vol-1"},
	}, round.Query{}); err == nil {
		t.Error("a resource of another cloud was looked for here and not found")
	}
}

// TestChangedMeanwhile changes the preconditions of a planned step.
func TestChangedMeanwhile(t *testing.T) {
	c := New(Options{Seed: 7, Now: laidOut})
	a := c.Actions(nil)
	for _, r := range observed(t, c, laidOut).Resources {
		if !subjects[cloudtest.LogGroup](r) {
			continue
		}
		task := func(key string, days int) action.Task {
			do := policy.Do{Verb: policy.PutRetention, RetentionDays: days}
			steps, err := a.Plan(t.Context(), r, do)
			if err != nil {
				t.Fatal(err)
			}
			steps[0].Key = key
			return action.Task{Ref: r.Ref(), Identity: r.CreatedAt.Format(time.RFC3339), Do: do, Step: steps[0]}
		}
		mine, theirs := task("a", 30), task("b", 60)
		if _, err := a.Do(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		var refused *action.Refusal
		if _, err := a.Do(t.Context(), mine); !errors.As(err, &refused) || refused.Rule != "changed" {
			t.Errorf("got %v, want a refusal: another person has set another retention", err)
		}
		return
	}
	t.Fatal("the account has no such log group")
}

// TestOnlyKindsThatAreAsked observes only some kinds.
func TestOnlyKindsThatAreAsked(t *testing.T) {
	c := New(Options{Seed: 7, Now: laidOut})
	kinds := map[inventory.Kind]bool{inventory.KindVolume: true, inventory.KindAddress: true}
	o, err := cloudtest.Observe(t.Context(), c, round.Query{Now: laidOut, Kinds: kinds})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[inventory.Kind]bool{}
	for _, r := range o.Resources {
		seen[r.Kind] = true
	}
	if diff := cmp.Diff(kinds, seen); diff != "" || o.CommitmentsKnown {
		t.Errorf("commitments are known: %v; kinds (-want +got):\n%s", o.CommitmentsKnown, diff)
	}
}
