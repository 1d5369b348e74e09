package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

var (
	names = rapid.SampledFrom([]string{
		"", "vision", "team-with-a-name-that-goes-on-and-on", hostileName,
		"arn:aws:ec2:us-east-1:123456789012:instance/i-0f3a5b6c7d8e9f001", "研究チーム",
	})
	counts   = rapid.SampledFrom([]int{0, 1, 2, 7, 40})
	november = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
)

// amounts generates zero, less than a cent, usual and huge amounts; a credit is negative.
func amounts(t *rapid.T, least money.Amount) money.Amount {
	top := rapid.SampledFrom([]money.Amount{
		0, 1000, money.USD, 5000 * money.USD, 900_000_000 * money.USD,
	}).Draw(t, "top")
	return max(least, money.Amount(rapid.Int64Range(-int64(top)/8, int64(top)).Draw(t, "amount")))
}

// TestMoneyPictures draws the pictures of budgets, costs, bills, units and estimates with random
// amounts and checks that all texts are readable.
func TestMoneyPictures(t *testing.T) {
	t.Run("budgets", rapid.MakeCheck(func(t *rapid.T) {
		var doc view.Budgets
		for i := range counts.Draw(t, "budgets") {
			b := view.Budget{
				ID: fmt.Sprint(names.Draw(t, "name"), i), Amount: amounts(t, 0),
				Balance: budget.Balance{Used: amounts(t, -money.USD), Held: amounts(t, 0)},
			}
			if rapid.Bool().Draw(t, "forecast") {
				low := amounts(t, 0)
				b.Forecast = &budget.Forecast{Low: low, Median: low, High: low + amounts(t, 0)}
			}
			doc.Budgets = append(doc.Budgets, b)
		}
		drawn(t, budgetPicture(doc))
	}))
	t.Run("costs", rapid.MakeCheck(func(t *rapid.T) {
		c := costs.Costs{
			Granularity: rapid.SampledFrom([]string{"total", "hour", "day", "month"}).Draw(t, "granularity"),
			By:          []ledger.Dimension{ledger.ByTeam},
		}
		at := november
		for range counts.Draw(t, "rows") {
			r := costs.Cost{Period: at, Key: []string{names.Draw(t, "name")}}
			for _, part := range []*money.Amount{&r.Used, &r.Wasted, &r.CannotJudge, &r.Other} {
				*part = amounts(t, 0)
				r.Amount += *part
			}
			c.Total.Amount += r.Amount
			c.Rows = append(c.Rows, r)
			if c.Granularity != "total" && rapid.Bool().Draw(t, "next") {
				at = nextPeriod(ledger.Granularity(c.Granularity), at)
			}
		}
		drawn(t, costsPicture(view.NewCosts(&c)))
	}))
	t.Run("reconciliation", rapid.MakeCheck(func(t *rapid.T) {
		r := costs.Reconciliation{BilledThrough: november.AddDate(0, 0, counts.Draw(t, "billed"))}
		for i := range counts.Draw(t, "days") {
			r.Rows = append(r.Rows, costs.Drift{
				Day: november.AddDate(0, 0, i), Accrued: amounts(t, 0), Billed: amounts(t, -money.USD),
			})
		}
		drawn(t, reconcilePicture(view.NewReconciliation(&r, 0)))
	}))
	t.Run("categories", rapid.MakeCheck(func(t *rapid.T) {
		var parts []bill.Slice
		for range counts.Draw(t, "categories") {
			billed, share := amounts(t, 0), rapid.Float64Range(0, 1).Draw(t, "share")
			low := rapid.IntRange(0, 40).Draw(t, "usual")
			parts = append(parts, bill.Slice{
				Category: bill.Category(names.Draw(t, "category")), Billed: &billed, Share: &share, UsualLow: low,
				UsualHigh: low + 10,
			})
		}
		drawn(t, categoriesPicture(parts, "billed"))
	}))
	t.Run("units", rapid.MakeCheck(func(t *rapid.T) {
		d := costs.UnitCosts{
			Unit: rapid.SampledFrom([]string{"token", "prediction"}).Draw(t, "unit"),
			Per:  rapid.SampledFrom([]int64{1, 1000, 1_000_000}).Draw(t, "per"),
		}
		if rapid.Bool().Draw(t, "target") {
			target := money.Rate(rapid.Int64Range(1, 1e15).Draw(t, "rate"))
			d.Target = &target
		}
		for i := range counts.Draw(t, "periods") {
			for _, basis := range []costs.CountBasis{costs.UsedBasis, costs.AllocatedBasis, costs.IdleBasis} {
				amount, cost := amounts(t, 0), money.Rate(1)
				row := costs.UnitCost{
					Period: november.AddDate(0, 0, i), Basis: basis,
					Count: costs.Quantity(rapid.Int64Range(0, 1e12).Draw(t, "count")),
				}
				if rapid.Bool().Draw(t, "known") {
					row.Amount, row.Cost = &amount, &cost
				}
				d.Rows = append(d.Rows, row)
			}
		}
		drawn(t, unitsPicture(view.UnitCosts{UnitCosts: &d}))
	}))
	t.Run("estimate", rapid.MakeCheck(func(t *rapid.T) {
		var e estimate.Estimate
		for range counts.Draw(t, "lines") {
			p50 := amounts(t, 0)
			e.Lines = append(e.Lines, estimate.Line{What: names.Draw(t, "what"), P50: p50, P95: p50 + amounts(t, 0)})
		}
		drawn(t, estimatePicture(&e))
	}))
}

// TestUnbilledDayIsNotDrawnAsZero checks that the line of the bill ends on its last day.
func TestUnbilledDayIsNotDrawnAsZero(t *testing.T) {
	r := costs.Reconciliation{BilledThrough: november.AddDate(0, 0, 2)}
	for i := range 4 {
		d := costs.Drift{Day: november.AddDate(0, 0, i), Accrued: 100 * money.USD}
		if i < 2 {
			d.Billed = 90 * money.USD
		}
		r.Rows = append(r.Rows, d)
	}
	svg := drawing(t, reconcilePicture(view.NewReconciliation(&r, 0)))
	if want := "billed: 11-01 00:00 $90, 11-02 00:00 $90; accrued"; !strings.Contains(svg, want) {
		t.Errorf("the picture lacks %q: %s", want, svg)
	}
}

// drawn checks a picture; it may be empty without amounts.
func drawn(t *rapid.T, svg string) {
	if svg != "" {
		drawing(t, svg)
	}
}
