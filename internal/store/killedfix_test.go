package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/usage"
)

// fix is the approved fix of one volume.
type fix struct {
	id    string
	cloud *actiontest.Cloud
	clock *actiontest.Clock
}

// newFix creates the volume and its approved request.
func newFix(ctx context.Context, s *store.Store, id string) (*fix, error) {
	f := &fix{id: id, clock: actiontest.NewClock(noon)}
	f.cloud = actiontest.NewCloud(f.now)
	f.cloud.Put(
		actiontest.Resource{
			ID:        "vol-" + id,
			Kind:      inventory.KindVolume,
			State:     inventory.StateAvailable,
			CreatedAt: noon.Add(-24 * time.Hour),
			Tags:      map[string]string{"owner": "ana"},
			Hourly:    money.Cent,
		},
	)
	r := request(id)
	r.ExpiresAt = noon.Add(24 * time.Hour)
	if r, err := approvals(s, id).Ask(ctx, r, noon); err != nil {
		return nil, err
	} else if _, err := approvals(s, id).Decide(ctx, r.ID, approver, true, "", noon); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *fix) now() time.Time { return f.clock.Wall }

// timeless is a store that uses the test's clock.
type timeless struct{ action.Store }

func (timeless) Now(context.Context) (time.Time, bool, error) { return time.Time{}, false, nil }

// proposals proposes to delete the volume while it exists.
func (f *fix) proposals() (out []action.Proposal) {
	for _, r := range f.cloud.Resources() {
		out = append(
			out,
			action.Proposal{
				Source:    "finding:" + f.id,
				Do:        policy.Do{Verb: policy.Delete},
				Mode:      policy.Enforce,
				Grace:     15 * time.Minute,
				Resource:  r.Inventory(),
				ByPerson:  true,
				Class:     "finding",
				Condition: usage.True,
				Because:   "no machine uses it",
				Hourly:    inventory.Known(r.Hourly),
			},
		)
	}
	return out
}

// round runs a round of the ladder on a state.
func (f *fix) round(ctx context.Context, s *store.Store) (action.Report, error) {
	l := action.Ladder{
		Store:    timeless{s.Actions()},
		Cloud:    f.cloud,
		Notifier: actiontest.NewPeople(),
		Account:  actiontest.Account,
		Actor:    "ana",
		Enforce:  true,
		Clock:    f.clock.Read,
		Verify: func(_ context.Context, items []action.Item) (map[string]action.Proposal, error) {
			out := map[string]action.Proposal{}
			for _, it := range items {
				if i := slices.IndexFunc(f.proposals(), func(p action.Proposal) bool {
					return p.Resource.Ref() == it.Ref
				}); i >= 0 {
					out[it.ID] = f.proposals()[i]
				}
			}
			return out, nil
		},
		Approve: func(ctx context.Context, _ action.Item, _ action.Proposal) (action.Approval, error) {
			r, err := approvals(s, f.id).Approved(ctx, "plan "+f.id, money.Cent, f.now())
			return action.Approval{Request: r.Use(f.now()), Event: approval.Event{At: f.now(), By: "ana"}}, err
		},
	}
	return l.Round(
		ctx,
		action.Scope{
			Proposals: f.proposals(),
			Sources:   []string{"finding:" + f.id},
			Selected:  map[string]int{"finding:" + f.id: 1},
		},
	)
}

// waited runs rounds until the grace period is over, so that the next round acts.
func (f *fix) waited(ctx context.Context, s *store.Store) error {
	for range 3 {
		if _, err := f.round(ctx, s); err != nil {
			return err
		}
		f.clock.Advance(7 * time.Minute)
	}
	return nil
}

// TestKilledFixKeepsItsApproval kills the process of a fix at each boundary of the pass that acts.
// Its approval is used with the intent or not at all, and passes of another process carry out the
// fix once, without another approval.
func TestKilledFixKeepsItsApproval(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			ctx, o := t.Context(), empty(t, d.open(t))
			o.Temporary = true
			healthy := open(t, o)
			boundaries := 1
			for n := 0; n < boundaries; n++ {
				f, err := newFix(ctx, healthy, fmt.Sprintf("%s%03d", d.name[:1], n))
				if err == nil {
					err = f.waited(ctx, healthy)
				}
				if err != nil {
					t.Fatal(err)
				}
				s, m := store.OpenMortal(t, o)
				if n == 0 { // counts the boundaries
					m.Arm(-1)
					if _, err := f.round(ctx, s); err != nil || m.Passed() < 20 {
						t.Fatalf("undisturbed it passes %d boundaries: %v", m.Passed(), err)
					}
					boundaries = m.Passed()
					f.mustBeDone(t, healthy, n)
					continue
				}
				m.Arm(n)
				_, err = f.round(ctx, s) // a report may name the unreadable part instead of the error
				if !m.Dead() {
					t.Fatalf("boundary %d of %d was not reached: %v", n, boundaries, err)
				}
				_ = s.Close()
				r, err := of(ctx, healthy, "plan "+f.id)
				if err != nil {
					t.Fatal(err)
				}
				intended := 0
				if err := healthy.Actions().Entries(ctx, action.Query{
					What: action.EventIntent, Resource: "vol-" + f.id,
				},
					func(action.Entry) error { intended++; return nil }); err != nil {
					t.Fatal(err)
				}
				if used := r.State == approval.Used; used != (intended > 0) {
					t.Errorf(
						"killed at boundary %d of %d the request is %s, and there are %d intents",
						n,
						boundaries,
						r.State,
						intended,
					)
				}
				f.mustBeDone(t, healthy, n)
			}
			if _, err := healthy.VerifyAudit(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// mustBeDone runs passes, a minute apart, until the volume is gone.
func (f *fix) mustBeDone(t *testing.T, s *store.Store, killed int) {
	t.Helper()
	for range 10 {
		f.clock.Advance(time.Minute)
		if _, err := f.round(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []string{"snapshot", "delete"} {
		if n := len(f.cloud.Carried(step)); n != 1 {
			t.Errorf("killed at boundary %d it carried %s out %d times", killed, step, n)
		}
	}
	if len(f.cloud.Resources()) != 0 {
		t.Errorf("killed at boundary %d the volume was not deleted", killed)
	}
	if r, err := of(t.Context(), s, "plan "+f.id); err != nil || r.State != approval.Used {
		t.Errorf("killed at boundary %d the request is %s, %v", killed, r.State, err)
	}
}
