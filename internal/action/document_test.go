package action_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// documents proposes fixes of one resource, each of which puts a document of its own.
func documents(w *world, sources ...string) []action.Proposal {
	var out []action.Proposal
	for _, source := range sources {
		out = append(out, action.Proposal{
			Source: source, Resource: w.cloud.Resources()[0].Inventory(), Mode: policy.Enforce,
			Grace:    15 * time.Minute,
			ByPerson: true,
			Do: policy.Do{
				Verb: policy.PutRetention, RetentionDays: 30,
				Change: change.Change{Verb: change.PutRetention, Document: "of " + source},
			},
			Limits: w.wants.Limits, Condition: usage.True, Class: "finding", Because: source,
			Hourly: inventory.Known(money.USD)})
	}
	return out
}

// TestOneDocumentFixAtATime checks that of two fixes that put a document of one resource, one is
// carried out, whether another pass has the other one under way or this one has.
func TestOneDocumentFixAtATime(t *testing.T) {
	for _, tc := range []struct {
		name    string
		sources []string
		// elsewhere is a fix that another process has under way.
		elsewhere string
		calls     int
		want      []action.Result // of the sources, sorted
	}{
		{"alone", []string{"finding:a"}, "", 1, []action.Result{action.ResultConfirmed}},
		{
			"both in one pass", []string{"finding:a", "finding:b"}, "", 1,
			[]action.Result{action.ResultConfirmed, action.ResultWaiting},
		},
		{"one in another process", []string{"finding:a"}, "finding:b", 0, []action.Result{action.ResultRefused}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.cloud.Put(actiontest.Resource{
				ID: "logs", Kind: inventory.KindLogGroup, CreatedAt: start.Add(-time.Hour),
				Tags: map[string]string{"owner": "ana"},
			})
			w.ladder.Approve = func(context.Context, action.Item, action.Proposal) (action.Approval, error) {
				return action.Approval{}, nil
			}
			w.ladder.Verify = func(_ context.Context, items []action.Item) (map[string]action.Proposal, error) {
				out := map[string]action.Proposal{}
				for _, it := range items {
					out[it.ID] = documents(w, it.Source)[0]
				}
				return out, nil
			}
			round := func() action.Report {
				r, err := w.ladder.Round(t.Context(), action.Scope{
					Proposals: documents(w, tc.sources...), Sources: tc.sources,
				})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			round()
			w.clock.Advance(16 * time.Minute)
			if tc.elsewhere != "" {
				p, clock := documents(w, tc.elsewhere)[0], w.clock.Read()
				if _, err := w.store.Save(t.Context(), action.Item{
					ID: "other", Account: actiontest.Account, Ref: p.Resource.Ref(),
					Identity: action.Identity(p.Resource),
					Source:   tc.elsewhere, Do: p.Do,
					Phase: action.Acting, FirstAt: w.now(), UpdatedAt: clock.Wall,
					Boot: clock.Boot, Uptime: clock.Uptime,
					Steps: []action.Step{{Name: "put-retention", Key: "other-1-0", IntentAt: w.now()}}}); err != nil {
					t.Fatal(err)
				}
			}
			got := round()
			var results []action.Result
			for _, l := range got.Lines {
				if slices.Contains(tc.sources, l.Source) {
					results = append(results, l.Result)
				}
			}
			if slices.Sort(results); !slices.Equal(results, tc.want) {
				t.Errorf("%v, want %v: %+v", results, tc.want, got.Lines)
			}
			if calls := w.cloud.Calls(); len(calls) != tc.calls {
				t.Errorf("%d calls, want %d: %+v", len(calls), tc.calls, calls)
			}
		})
	}
}
