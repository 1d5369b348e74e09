package spend_test

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

const budgets = `budgets:
  - {id: vision, team: vision, purpose: any, amount: 100}
`

// charge posts two hours of a machine of the team vision for $1 an hour.
func charge(t *testing.T, req *runtime.Request) {
	t.Helper()
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	began := apptest.Now.Add(-4 * time.Hour)
	account := ledger.Account{Cloud: "aws", ID: "111122223333"}
	for _, at := range []time.Time{began, began.Add(2 * time.Hour)} {
		o := ledger.Observation{
			At: at, Ref: inventory.Ref{
				Cloud: "aws", Account: account.ID, Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-1",
			},
			Attributes: ledger.Attributes{Owner: inventory.Owner{Team: "vision"}}, State: inventory.StateRunning,
			StateSince: began, CreatedAt: began,
			Meters: []ledger.Meter{
				{
					Name: "compute", Category: ledger.Compute,
					Monthly: money.HoursPerMonth * money.USD, Source: "test",
					AsOf: began,
				},
			}}
		if _, err := ledger.Post(t.Context(), s.Ledger(), ledger.Round{Account: account, At: at, Source: "test"},
			[]ledger.Observation{o}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCostsByTeam(t *testing.T) {
	req := apptest.Request(t, "")
	charge(t, req)
	doc, err := spend.Costs(t.Context(), req, spend.CostsQuery{
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
	_, err := spend.Costs(t.Context(), apptest.Request(t, ""), spend.CostsQuery{
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
