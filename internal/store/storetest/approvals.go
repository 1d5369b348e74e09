package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/money"
)

// request returns a pending request.
func request(id string) approval.Request {
	return approval.Request{
		ID: id, Kind: "fix", Subject: "terminate i-0abc", PlanHash: "plan", Plan: "{}", AskedBy: "ana",
		AskedAt: noon, ExpiresAt: noon.Add(time.Hour), State: approval.Pending,
	}
}

// event is the author of most tests' changes.
var event = approval.Event{At: noon, By: "bo"}

var approvals = []test{
	{"every field comes back", func(t *testing.T, b *Backend) {
		r := filled[approval.Request]()
		r.Version = 0
		saved := must(b.Approvals.PutRequest(t.Context(), r, event))(t)
		r.Version = 1
		if diff := cmp.Diff(r, saved); diff != "" {
			t.Errorf("what PutRequest returns (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(r, must(b.Reopen(t).Approvals.Request(t.Context(), r.ID))(t)); diff != "" {
			t.Errorf("what is kept (-want +got):\n%s", diff)
		}
	}},
	{"zero stays zero", func(t *testing.T, b *Backend) {
		must(b.Approvals.PutRequest(t.Context(), approval.Request{ID: "a"}, event))(t)
		if diff := cmp.Diff(approval.Request{
			ID: "a", Version: 1,
		}, must(b.Approvals.Request(t.Context(), "a"))(t)); diff !=
			"" {
			t.Errorf("what is kept (-want +got):\n%s", diff)
		}
	}},
	{"what cannot be kept is refused", func(t *testing.T, b *Backend) {
		for name, r := range map[string]approval.Request{"no id": {}, "no text": {ID: "a", Plan: "\xff"}} {
			if _, err := b.Approvals.PutRequest(t.Context(), r, event); err == nil {
				t.Errorf("%s: it was written", name)
			}
		}
	}},
	{"versions", func(t *testing.T, b *Backend) {
		must(b.Approvals.PutRequest(t.Context(), request("there"), event))(t)
		for _, tc := range []struct {
			name, id string
			version  int64
			want     error
		}{
			{"a new one", "new", 0, nil},
			{"a new one under an id that is taken", "there", 0, approval.ErrConflict},
			{"the one that was read", "there", 1, nil},
			{"an older one", "there", 1, approval.ErrConflict},
			{"a newer one", "there", 7, approval.ErrConflict},
			{"one that was never there", "missing", 1, approval.ErrConflict},
		} {
			r := request(tc.id)
			r.Version, r.Reason = tc.version, tc.name
			saved, err := b.Approvals.PutRequest(t.Context(), r, event)
			if !errors.Is(err, tc.want) || (err == nil && saved.Version != tc.version+1) {
				t.Errorf("%s: version %d, error %v; want %d, %v", tc.name, saved.Version, err, tc.version+1, tc.want)
			}
		}
		if got := must(b.Approvals.Request(t.Context(), "there"))(t); got.Version != 2 ||
			got.Reason != "the one that was read" {
			t.Errorf("kept as %+v", got)
		}
	}},
	{"ids by their beginning", func(t *testing.T, b *Backend) {
		for _, id := range []string{"ab", "abc", "abd", "b", "x%z", "Q1"} {
			must(b.Approvals.PutRequest(t.Context(), request(id), event))(t)
		}
		beginnings(t, approval.ErrNotFound, func(ctx context.Context, id string) (string, error) {
			r, err := b.Approvals.Request(ctx, id)
			return r.ID, err
		})
	}},
	{"of a plan, newest first", func(t *testing.T, b *Backend) {
		for i, r := range []struct {
			id, plan string
		}{{"b", "x"}, {"a", "y"}, {"c", "x"}, {"undated", "x"}} {
			q := request(r.id)
			q.PlanHash, q.AskedAt = r.plan, noon.Add(time.Duration(i)*time.Minute)
			if r.id == "undated" {
				q.AskedAt = time.Time{}
			}
			must(b.Approvals.PutRequest(t.Context(), q, event))(t)
		}
		for plan, want := range map[string][]string{
			"x": {"c", "b", "undated"}, "y": {"a"}, "z": nil, "": {"c", "a", "b", "undated"},
		} {
			var got []string
			for _, r := range must(b.Approvals.Requests(t.Context(), plan))(t) {
				got = append(got, r.ID)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("plan %q (-want +got):\n%s", plan, diff)
			}
		}
	}},
	{"each change has its entry, in the same transaction", func(t *testing.T, b *Backend) {
		r := request("a")
		for _, state := range []approval.State{
			approval.Pending, approval.Approved, approval.Used, approval.Denied, approval.Void,
		} {
			r.State = state
			e := event
			if state == approval.Void {
				e.Why = "its review was dismissed"
			}
			r = must(b.Approvals.PutRequest(t.Context(), r, e))(t)
		}
		stale := r
		stale.Version--
		if _, err := b.Approvals.PutRequest(t.Context(), stale, event); !errors.Is(err, approval.ErrConflict) {
			t.Errorf("a write that changes nothing: %v", err)
		}
		if _, err := b.Approvals.PutRequest(t.Context(), request("undated"), approval.Event{By: "bo"}); err == nil {
			t.Error("a request was written without the time of its entry")
		}
		if _, err := b.Approvals.Request(t.Context(), "undated"); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("what has no entry is kept: %v", err)
		}
		const outcome = "request a, at most $0.00"
		var want []action.Entry
		for i, what := range []string{
			action.EventAsked, action.EventApproved, action.EventUsed, action.EventDenied, action.EventVoid,
		} {
			want = append(want, action.Entry{
				ID: int64(i + 1), At: noon, Actor: "bo", What: what, Because: r.Subject, Outcome: outcome,
			})
		}
		want[4].Outcome += ": its review was dismissed"
		if diff := cmp.Diff(want, lines(t, b.Reopen(t), action.Query{})); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	}},
	{"an admission uses its approval up, or is not written", admissions},
	{"of many uses at once one wins", func(t *testing.T, b *Backend) {
		r := request("a")
		r.State = approval.Approved
		must(b.Approvals.PutRequest(t.Context(), r, event))(t)
		var used atomic.Int64
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for worker := range 8 {
			desk := approval.Desk{Store: b.Reopen(t).Approvals}
			wg.Go(func() {
				<-begin
				found, err := desk.Approved(t.Context(), "plan", 0, noon)
				if err == nil {
					_, err = desk.Use(t.Context(), found, "ana", noon)
				}
				refused := (*approval.Refusal)(nil)
				switch {
				case err == nil:
					used.Add(1)
				case !errors.Is(err, approval.ErrConflict) && !errors.As(err, &refused):
					t.Error(fmt.Errorf("worker %d: %w", worker, err))
				}
			})
		}
		close(begin)
		wg.Wait()
		if used.Load() != 1 {
			t.Errorf("used %d times, want once", used.Load())
		}
	}},
}

// admissions checks actions that need an approval: an action deferred by a cap uses none, and an
// action whose approval was withdrawn is not written.
func admissions(t *testing.T, b *Backend) {
	asked := func(id string) *action.Approval {
		r := request(id)
		r.State = approval.Approved
		return &action.Approval{
			Request: must(b.Approvals.PutRequest(t.Context(), r, event))(t).Use(noon), Event: event,
		}
	}
	state := func(id string) approval.State { return must(b.Approvals.Request(t.Context(), id))(t).State }
	all := batch("first", "second")
	all.Admissions[0].Approval, all.Admissions[0].Hourly = asked("costly"), 2*money.USD
	all.Admissions[1].Approval, all.Admissions[1].Hourly = asked("deferred"), money.USD
	all.Limits.DollarsPerHour = 2 * money.USD
	if got := must(b.Actions.Admit(t.Context(), all))(t); got[0].Deferred != nil || got[1].Deferred == nil {
		t.Fatalf("got %+v", got)
	}
	if state("costly") != approval.Used || state("deferred") != approval.Approved {
		t.Errorf("the approvals are %s and %s", state("costly"), state("deferred"))
	}
	lost := batch("new")
	lost.Admissions[0].Approval = asked("lost")
	lost.Admissions[0].Entries = []action.Entry{entry("intent", lost.Admissions[0].Item)}
	r := must(b.Approvals.Request(t.Context(), "lost"))(t)
	r.State = approval.Void
	must(b.Approvals.PutRequest(t.Context(), r, event))(t)
	if _, err := b.Actions.Admit(t.Context(), lost); !errors.Is(err, action.ErrConflict) {
		t.Errorf("admitted without its approval: %v", err)
	}
	if state("lost") != approval.Void {
		t.Errorf("the approval is %s", state("lost"))
	}
	nothing(t, b)
}
