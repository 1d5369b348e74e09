package spend_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/view"
)

const budgets = `budgets:
  - {id: vision, team: vision, purpose: any, amount: 100}
`

// charge posts two hours of the machine i-1 of the team vision, and of others, for $1 an hour each.
func charge(t *testing.T, req *runtime.Request, others ...string) {
	t.Helper()
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	began := apptest.Now.Add(-4 * time.Hour)
	account := ledger.Account{Cloud: "aws", ID: "111122223333"}
	for _, at := range []time.Time{began, began.Add(2 * time.Hour)} {
		var seen []ledger.Observation
		for _, id := range append([]string{"i-1"}, others...) {
			seen = append(seen, ledger.Observation{
				At: at, Ref: inventory.Ref{
					Cloud: "aws", Account: account.ID, Region: "us-east-1", Kind: inventory.KindInstance, ID: id,
				},
				Attributes: ledger.Attributes{Owner: inventory.Owner{Team: "vision"}}, State: inventory.StateRunning,
				StateSince: began, CreatedAt: began,
				Meters: []ledger.Meter{
					{
						Name: "compute", Category: ledger.Compute,
						Monthly: money.HoursPerMonth * money.USD, Source: "test",
						AsOf: began,
					},
				}})
		}
		if _, err := ledger.Post(t.Context(), s.Ledger(), ledger.Round{Account: account, At: at, Source: "test"},
			seen); err != nil {
			t.Fatal(err)
		}
	}
}

// costsOf returns the charges of the state of a request.
func costsOf(t *testing.T, req *runtime.Request, q spend.CostsQuery) (view.Costs, error) {
	t.Helper()
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return spend.Costs(t.Context(), s, req.Now(), q)
}

func TestCostsByTeam(t *testing.T) {
	req := apptest.Request(t, "")
	charge(t, req)
	doc, err := costsOf(t, req, spend.CostsQuery{
		Period: runtime.Period{Since: "1d"}, By: "team", Granularity: "total",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := doc.Total.Amount; len(doc.Rows) != 1 || got != 2*money.USD {
		t.Errorf("got %v in %d rows, want $2 in one", got, len(doc.Rows))
	}
}

func TestCostsRefuseUnknownDimension(t *testing.T) {
	_, err := costsOf(t, apptest.Request(t, ""), spend.CostsQuery{
		Period: runtime.Period{Since: "1d"}, By: "color", Granularity: "total",
	})
	if err == nil {
		t.Error("a dimension that does not exist is taken")
	}
}

func TestBudgetCountsCharges(t *testing.T) {
	req := apptest.Request(t, budgets)
	charge(t, req)
	doc, err := spend.Budgets(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if len(doc.Budgets) != 1 || doc.Budgets[0].Used != 2*money.USD || doc.Budgets[0].Left != 98*money.USD {
		t.Errorf("got %+v, want $2 used and $98 left", doc.Budgets)
	}
}

// TestCostsBySession checks that the machines of a session, and those of all attempts of a job, are shown
// under its name, alone and next to other dimensions, and that a filter keeps them.
func TestCostsBySession(t *testing.T) {
	req := apptest.Request(t, "")
	charge(t, req, "i-2", "i-3", "i-4")
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Jobs().Put(t.Context(), job.Job{
		ID: "j1", Name: "train", Spec: []byte("{}"), State: job.Succeeded, RequestedAt: apptest.Now,
	}, nil); err != nil {
		t.Fatal(err)
	}
	for _, one := range []session.Session{
		{ID: "s1", Name: "lab", Machines: []session.Machine{{ID: "i-1"}}},
		{ID: "s2", Name: "train", Job: "j1", Machines: []session.Machine{{ID: "i-2"}}},
		{ID: "s3", Name: "train.2", Job: "j1", Machines: []session.Machine{{ID: "i-3"}}},
	} {
		one.Provider, one.Spec, one.State, one.RequestedAt = "aws", []byte("{}"), session.Ended, apptest.Now
		if _, err := s.Sessions().Put(t.Context(), one, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		by    string
		where []string
		want  string
	}{
		{"session", nil, "train 4.00, lab 2.00,  2.00"},
		{"team,session", nil, "vision train 4.00, vision  2.00, vision lab 2.00"},
		{"session,resource", []string{"session=train"},
			"train aws/111122223333/us-east-1/instance/i-2 2.00, train aws/111122223333/us-east-1/instance/i-3 2.00"},
		{"team", []string{"session=lab,train"}, "vision 6.00"},
		{"session", []string{"session="}, " 2.00"},
	} {
		doc, err := costsOf(t, req, spend.CostsQuery{
			Period: runtime.Period{Since: "1d"}, By: c.by, Granularity: "total", Where: c.where,
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range doc.Rows {
			got = append(got, strings.Join(r.Key, " ")+" "+r.Amount.Cents())
		}
		slices.Sort(got)
		want := strings.Split(c.want, ", ")
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("by %s where %q: got %q, want %q", c.by, c.where, got, want)
		}
	}
}
