package simulation_test

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/simulation"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/view"
)

func TestBooksHaveChargesAndABill(t *testing.T) {
	t.Parallel()
	req := apptest.Request(t, "")
	req.Storage = simulation.Books{}
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req.Storage = runtime.LentStorage{State: s}
	charged, err := spend.Costs(t.Context(), s, req.Now(), spend.CostsQuery{
		Period: runtime.Period{Since: "7d"}, Granularity: "total",
	})
	if err != nil {
		t.Fatal(err)
	}
	if !charged.Recorded || charged.Total.Amount <= 0 {
		t.Errorf("a week costs %v", charged.Total.Amount)
	}
	periods, err := spend.BillPeriods(t.Context(), req)
	if err != nil || len(periods.Periods) == 0 {
		t.Errorf("the bill has %d periods, %v", len(periods.Periods), err)
	}
}

func TestDemonstrationActsAndRecordsIt(t *testing.T) {
	t.Parallel()
	acted, passes := 0, 0
	entries, err := simulation.Demo(t.Context(), apptest.Request(t, ""), nil, 1, func(p view.DemoPass) error {
		passes++
		for _, l := range p.Lines {
			if l.Result == "acted" || l.Result == "confirmed" {
				acted++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if passes < 2 || acted == 0 || entries < int64(acted) {
		t.Errorf("%d actions in %d passes, and %d entries in the audit log", acted, passes, entries)
	}
}
