package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

func TestTablesShowMoneySinceProgress(t *testing.T) {
	now := time.Date(2026, 11, 23, 18, 0, 0, 0, time.UTC)
	p := view.SeenProgress{At: now, Progress: view.Progress{
		Since: now.Add(-72 * time.Hour), SpentUSD: money.Known(1581 * money.USD),
	}}
	runs := view.Runs{Runs: []view.Run{
		{Name: "pretrain", State: "running", Progress: &p}, {Name: "rest", State: "ready"},
	}}
	spent := view.Costs{
		Costs: &costs.Costs{
			By: []ledger.Dimension{ledger.ByResource}, Granularity: "total", Recorded: true,
			Rows: []costs.Cost{{Key: []string{"aws/1/r/instance/i-1"}}, {Key: []string{"aws/1/r/instance/i-2"}}},
		},
		Progress: []view.CostsProgress{{Resource: "aws/1/r/instance/i-1", SeenProgress: p}},
	}
	for name, sheet := range map[string]layout.Sheet{"ls": Runs(runs, now), "costs": Costs(spent)} {
		var text bytes.Buffer
		if err := sheet.Text(&text, 160); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"since progress", "$1,581 in 3d"} {
			if n := strings.Count(text.String(), want); n != 1 {
				t.Errorf("%s has %q %d times in\n%s", name, want, n, text.String())
			}
		}
	}
	runs.Runs[0].Progress, spent.Progress = nil, nil
	for name, sheet := range map[string]layout.Sheet{"ls": Runs(runs, now), "costs": Costs(spent)} {
		for _, g := range sheet.Tables {
			if strings.Contains(strings.Join(g.Head, " "), progressHead) {
				t.Errorf("%s has the column without progress: %v", name, g.Head)
			}
		}
	}
}
