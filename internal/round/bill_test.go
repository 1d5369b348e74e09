package round

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestBillUnusedCapacityIsIdle checks that what a bill itself says was unused is idle, and that
// only the rest of its compute is divided as the machines are.
func TestBillUnusedCapacityIsIdle(t *testing.T) {
	day := time.Date(2026, 10, 7, 0, 0, 0, 0, time.UTC)
	usage := func(capacity, commitment string, billed, effective money.Amount) bill.Row {
		return bill.Row{
			Day: day, Category: bill.Compute, ChargeCategory: bill.Usage, CapacityStatus: capacity, Status: commitment,
			Cost: bill.Cost{Billed: billed * money.USD, Effective: effective * money.USD}}
	}
	rows := []bill.Row{
		usage(bill.Unused, "", 48, 48), usage("", bill.Unused, 0, 24),
		usage("", bill.Used, 0, 12), usage("", "", 12, 12),
	}
	b, err := NewBill(slices.Values(rows), "aws", "focus.csv")
	if err != nil {
		t.Fatal(err)
	}
	got, err := billing(b, Totals{ByCategory: map[string]money.Amount{CategoryIdle: 1, CategoryActive: 3}})
	if err != nil {
		t.Fatal(err)
	}
	perDay := func(usd int64) money.Amount { return money.Amount(usd) * money.USD * money.HoursPerMonth / 24 }
	want := map[string]money.Amount{CategoryIdle: perDay(72 + 6), CategoryActive: perDay(18), CategoryUnknown: 0,
		CategoryStorage: 0, CategoryEgress: 0, CategoryOverhead: 0, CategoryOther: 0}
	if !maps.Equal(got.ByCategory, want) || got.Total != perDay(96) {
		t.Errorf("got %v of %s, want %v", got.ByCategory, got.Total, want)
	}
}
