package costs_test

import (
	"context"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
)

// billRows are imported rows of one billing period.
type billRows struct {
	period bill.Period
	rows   []bill.Row
}

func (b *billRows) Periods(context.Context, time.Time, time.Time) ([]bill.Period, error) {
	if b.period.Start.IsZero() {
		return nil, nil
	}
	return []bill.Period{b.period}, nil
}

func (b *billRows) Replace(context.Context, []bill.Replacement) error { return nil }

func (b *billRows) Rows(_ context.Context, q bill.Query) iter.Seq2[bill.Row, error] {
	return func(yield func(bill.Row, error) bool) {
		for _, r := range b.rows {
			in := len(q.Starts) > 0 || !r.Day.Before(q.From) && r.Day.Before(q.To)
			if in && !yield(r, nil) {
				return
			}
		}
	}
}

// drawnBill generates a restatement of the month's bill. Every account with charges has usage on
// the last day, so that the bill covers all days.
func drawnBill(t *rapid.T, label string) []bill.Row {
	amount := rapid.Int64Range(-5e9, 2e10)
	row := rapid.Custom(func(t *rapid.T) bill.Row {
		return bill.Row{
			Account: "payer", Start: start,
			Day: start.AddDate(0, 0, rapid.IntRange(0, 4).Draw(t, "day")), Provider: "AWS",
			SubAccount: rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "account"),
			Resource: rapid.SampledFrom([]string{
				"", "instance0", "arn:aws:ec2:us-east-1:1:volume/volume1", "bucket",
			}).Draw(t,
				"resource"),
			Service: rapid.SampledFrom([]string{"Amazon EC2", "Amazon S3", "AWS CloudTrail"}).Draw(t, "service"),
			Region:  "us-east-1",
			Category: rapid.SampledFrom([]bill.Category{
				bill.Compute, bill.Storage, bill.Egress, bill.Overhead, bill.Other,
			}).Draw(t, "category"),
			ChargeCategory: rapid.SampledFrom([]string{
				bill.Usage, bill.Purchase, bill.Tax, bill.Credit,
			}).Draw(t, "charge"),
			PricingCategory: rapid.SampledFrom([]string{"", bill.Standard, bill.Committed}).Draw(t, "pricing"),
			CapacityStatus:  rapid.SampledFrom([]string{"", bill.Unused}).Draw(t, "capacity"),
			Owner: inventory.Owner{
				Team: rapid.SampledFrom([]string{"", "vision", "speech"}).Draw(t, "team"),
			},
			Cost: bill.Cost{
				Billed: money.Amount(amount.Draw(t, "billed")), Effective: money.Amount(amount.Draw(t, "effective")),
			},
		}
	})
	rows := rapid.SliceOfN(row, 0, 15).Draw(t, label)
	for _, r := range slices.Clone(rows) {
		last := bill.Row{
			Account: "payer", Start: start, Day: start.AddDate(0, 0, 4), Provider: "AWS", SubAccount: r.SubAccount,
			Service:  "Amazon S3",
			Category: bill.Storage, ChargeCategory: bill.Usage, Cost: bill.Cost{Billed: 1, Effective: 1}}
		rows = append(rows, last)
	}
	return rows
}

// TestPostedBillAgreesInEveryDimension posts a bill, its restatements and the other basis over a
// ledger of observations. Whatever was posted before, the ledger equals a plain sum of the rows in
// the dimensions that the bill states, and `bill show` in every dimension.
func TestPostedBillAgreesInEveryDimension(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := ledgertest.NewStore()
		for _, d := range ledgertest.Deliveries(t, account, start) {
			if _, err := ledger.Post(ctx, store, d.Round, d.Seen); err != nil {
				t.Fatal(err)
			}
		}
		end := start.AddDate(0, 0, 5)
		imported := &billRows{period: bill.Period{PeriodKey: bill.PeriodKey{Account: "payer", Start: start}, End: end}}
		accrued := spentBy(t, store, "", end)
		for range rapid.IntRange(1, 4).Draw(t, "statements") {
			imported.rows = drawnBill(t, "rows")
			basis := rapid.SampledFrom([]costs.Basis{costs.BilledCost, costs.EffectiveCost}).Draw(t, "basis")
			cost := func(r *bill.Row) money.Amount {
				if basis == costs.EffectiveCost {
					return r.Cost.Effective
				}
				return r.Cost.Billed
			}
			c := costs.Comparison{Bills: imported, Ledger: store}
			if _, _, err := c.Reconcile(ctx, start, end, basis, true); err != nil {
				t.Fatal(err)
			}
			onBill := slices.ContainsFunc(imported.rows, func(r bill.Row) bool { return r.SubAccount == account.ID })
			naive := map[ledger.Dimension]map[string]money.Amount{}
			for d, value := range map[ledger.Dimension]func(*bill.Row) string{
				"":                func(*bill.Row) string { return "" },
				ledger.ByService:  func(r *bill.Row) string { return r.Service },
				ledger.ByCategory: func(r *bill.Row) string { return string(r.Category) },
				ledger.ByPricing:  func(r *bill.Row) string { return r.PricingCategory },
				ledger.ByAccount:  func(r *bill.Row) string { return "aws/" + r.SubAccount },
			} {
				sums := map[string]money.Amount{}
				for i := range imported.rows {
					sums[value(&imported.rows[i])] += cost(&imported.rows[i])
				}
				naive[d] = nonzero(sums)
			}
			if onBill { // otherwise the account stays as accrued
				for d, want := range naive {
					if got := spentBy(t, store, d, end); !maps.Equal(got, want) {
						t.Fatalf("by %q the ledger has %v, the bill's rows %v", d, got, want)
					}
				}
			} else if got := spentBy(t, store, ledger.ByAccount, end)[account.String()]; got != accrued[""] {
				t.Fatalf("the account is not on the bill any more, and has %d of the %d accrued", got, accrued[""])
			}
			rows := slices.Values(imported.rows)
			attribution, _, err := costs.NewAttribution(ctx, store, rows, start, end)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range ledger.Dimensions {
				shown := map[string]money.Amount{}
				var broken error
				for line, r := range attribution.Rows(rows, &broken) {
					shown[line.Value(d)] += cost(&r)
				}
				if got, want := spentBy(t, store, d, end), nonzero(shown); onBill &&
					!maps.Equal(got, want) || broken != nil {
					t.Fatalf("by %s costs has %v, bill show %v, %v", d, got, want, broken)
				}
			}
			if _, n, err := c.Reconcile(ctx, start, end, basis, true); err != nil || n != 0 {
				t.Fatalf("posting again added %d entries, %v", n, err)
			}
		}
	})
}

// spentBy returns the costs of the ledger by one dimension, without zeros.
func spentBy(t *rapid.T, s ledger.Store, d ledger.Dimension, end time.Time) map[string]money.Amount {
	q := costs.Query{Since: start, Until: end}
	if d != "" {
		q.By = []ledger.Dimension{d}
	}
	c, err := costs.Spent(ctx, s, q)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]money.Amount{}
	for _, r := range c.Rows {
		name := ""
		if d != "" {
			name = r.Key[0]
		}
		out[name] += r.Amount
	}
	return nonzero(out)
}

func nonzero(of map[string]money.Amount) map[string]money.Amount {
	maps.DeleteFunc(of, func(_ string, v money.Amount) bool { return v == 0 })
	return of
}

// TestChargesKeepOwners checks which lines the charges of an observed machine are mapped to.
func TestChargesKeepOwners(t *testing.T) {
	ref := inventory.Ref{Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-1"}
	part := func(team, duty string, accrued money.Amount) ledger.ResourceDay {
		return ledger.ResourceDay{
			Ref: ref, Day: start, Category: ledger.Compute, Duty: duty, Pricing: ledger.Standard, Accrued: accrued,
			Attributes: ledger.Attributes{Type: "g5.xlarge", Owner: inventory.Owner{Team: team, User: "ana"}}}
	}
	charge := func(team string, change func(*costs.BilledDay)) costs.BilledDay {
		b := costs.BilledDay{
			Cloud: "aws", Account: "1", Region: "us-east-1", Resource: "i-1", Day: start, Service: "Amazon EC2",
			ChargeCategory: ledger.Usage,
			Category:       ledger.Compute, Pricing: ledger.Standard, Attributes: ledger.Attributes{
				Owner: inventory.Owner{Team: team},
			}, Billed: 12 * money.USD, Currency: "USD"}
		if change != nil {
			change(&b)
		}
		return b
	}
	accrued := []ledger.ResourceDay{
		part("vision", "busy", 6*money.USD), part("vision", "idle", 2*money.USD), part("speech", "idle", 8*money.USD),
	}
	for _, tc := range []struct {
		name   string
		charge costs.BilledDay
		want   map[string]string
	}{
		{
			"tags of a part of the day", charge("vision", nil),
			map[string]string{"vision ana busy g5.xlarge": "9.00", "vision ana idle g5.xlarge": "3.00"},
		},
		{
			"no tags on the bill", charge("", nil),
			map[string]string{
				"vision ana busy g5.xlarge": "4.50", "vision ana idle g5.xlarge": "1.50",
				"speech ana idle g5.xlarge": "6.00",
			},
		},
		{
			"other tags on the bill", charge("robotics", nil),
			map[string]string{"robotics ana busy g5.xlarge": "4.50", "robotics ana idle g5.xlarge": "7.50"},
		},
		{
			"no resource", charge("speech", func(b *costs.BilledDay) { b.Resource = "" }),
			map[string]string{"speech   ": "12.00"},
		},
		{
			"unused by the bill itself",
			charge("speech", func(b *costs.BilledDay) { b.Unused, b.Attributes.Type = true, "p5.48xlarge" }),
			map[string]string{"speech ana unused g5.xlarge": "12.00"},
		},
		{
			"tax on a machine",
			charge("", func(b *costs.BilledDay) { b.Category, b.ChargeCategory = ledger.Overhead, ledger.Tax }),
			map[string]string{"speech ana  g5.xlarge": "12.00"},
		},
	} {
		r, err := costs.Reconcile(accrued, []costs.BilledDay{tc.charge}, start.AddDate(0, 0, 1), "")
		if err != nil {
			t.Fatal(err)
		}
		entries, err := r.Corrections()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, e := range entries {
			if e.Service != "" {
				got[e.Owner.Team+" "+e.Owner.User+" "+e.Duty+" "+e.Type] = e.Amount.String()
			}
		}
		if !maps.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}
