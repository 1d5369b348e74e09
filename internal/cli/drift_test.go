package cli

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestPriceDrift: billed over accrued cost at list price, of resources of which
// both are known; a credit, a day that is not billed yet, and a resource that no bill
// saw say nothing.
func TestPriceDrift(t *testing.T) {
	d := newDesktop(t)
	now := time.Now().UTC()
	day := now.Truncate(24*time.Hour).AddDate(0, 0, -3)
	s, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(d.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	ref := func(id string) inventory.Ref {
		return inventory.Ref{
			Cloud: "aws", Account: "111122223333", Region: "us-east-1", Kind: inventory.KindInstance, ID: id,
		}
	}
	account := ledger.Account{Cloud: "aws", ID: "111122223333"}
	for h := range 25 {
		at := day.Add(time.Duration(h) * time.Hour)
		r := ledger.Round{
			Account: account, At: at, Source: "scan",
			Complete: []ledger.Part{{Region: "us-east-1", Kind: inventory.KindInstance}},
		}
		var seen []ledger.Observation
		for _, id := range []string{"i-costly", "i-list", "i-credit", "i-unbilled"} {
			seen = append(seen, ledger.Observation{
				At: at, Ref: ref(id), State: inventory.StateRunning, StateSince: day.AddDate(0, -1, 0),
				CreatedAt: day.AddDate(0, -1, 0),
				Meters: []ledger.Meter{
					{
						Name: "compute", Category: ledger.Compute, Monthly: 730 * money.USD, Source: "test",
						AsOf: day.AddDate(0, -2, 0),
					},
				}})
		}
		if _, err := ledger.Post(t.Context(), s.Ledger(), r, seen); err != nil {
			t.Fatal(err)
		}
	}
	if drift, err := (costs.Comparison{Bills: s.Bills(), Ledger: s.Ledger()}).PriceDrift(
		t.Context(), now); err != nil ||
		drift != nil {
		t.Errorf("without a bill: %v, drift is known: %v", err, drift != nil)
	}
	text := "BilledCost,EffectiveCost,ListCost,BillingAccountId,SubAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ServiceCategory,ServiceName,ProviderName,ResourceId,RegionId\n"
	start := time.Date(day.Year(), day.Month(), 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		billed, category, id string
	}{
		{"36", "Usage", "i-costly"}, {"24", "Usage", "i-list"}, {"24", "Usage", "i-credit"},
		{"-12", "Credit", "i-credit"},
		{"99", "Usage", "i-stranger"},
	} {
		text += fmt.Sprintf(
			"%s,%s,%s,9,111122223333,USD,%s,%s,%s,%s,%s,Compute,Amazon Elastic Compute Cloud,AWS,%s,us-east-1\n",
			row.billed,
			row.billed, row.billed,
			start.Format(time.RFC3339), start.AddDate(0, 1, 0).Format(time.RFC3339), day.Format(time.RFC3339),
			day.AddDate(0, 0, 1).Format(time.RFC3339), row.category, row.id)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "bill.csv"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := d.run("bill", "import", "bill.csv"); code != ExitDone {
		t.Fatalf("import: exit %d: %s", code, errs)
	}
	drift, err := costs.Comparison{Bills: s.Bills(), Ledger: s.Ledger()}.PriceDrift(t.Context(), now)
	if err != nil || drift == nil {
		t.Fatalf("with a bill: %v, drift is known: %v", err, drift != nil)
	}
	for id, want := range map[string]float64{"i-costly": 0.5, "i-list": 0} {
		r := ref(id)
		if got, known := drift(&inventory.Resource{
			Cloud: r.Cloud, Account: r.Account, Region: r.Region, Kind: r.Kind, ID: id,
		}).Get(); !known || math.Abs(got-want) > 1e-6 {
			t.Errorf("%s drifts by %v (known: %v), want %v", id, got, known, want)
		}
	}
	for _, id := range []string{"i-credit", "i-unbilled", "i-stranger"} {
		if got, known := drift(&inventory.Resource{
			Cloud: "aws", Account: "111122223333", Region: "us-east-1", Kind: inventory.KindInstance, ID: id,
		}).Get(); known {
			t.Errorf("%s drifts by %v, which cannot be known", id, got)
		}
	}
	if code, out, errs := d.run("scan", "--demo", "--no-save", "--bill", "imported", "-o", "json"); code != ExitDone ||
		!strings.Contains(out, `"monthly_billed_usd"`) {
		t.Errorf("an audit with what was imported: exit %d %s", code, errs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
