package costs_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger/costs"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
)

func TestReconcile(t *testing.T) {
	const usd = money.USD
	accrued := func(a money.Amount, more ...func(*ledger.ResourceDay)) []ledger.ResourceDay {
		d := ledger.ResourceDay{
			Ref: inventory.Ref{Cloud: "aws", Account: "1", Kind: inventory.KindInstance, ID: "i-1"}, Day: start,
			Category: ledger.Compute, Accrued: a,
		}
		for _, f := range more {
			f(&d)
		}
		return []ledger.ResourceDay{d}
	}
	billed := func(list, paid money.Amount, more ...func(*costs.BilledDay)) []costs.BilledDay {
		b := costs.BilledDay{
			Cloud: "aws", Account: "1", Resource: "arn:aws:ec2:us-east-1:1:instance/i-1", Day: start, Service: "EC2",
			ChargeCategory: ledger.Usage,
			List:           list, Billed: paid, Effective: paid, Currency: "USD"}
		for _, f := range more {
			f(&b)
		}
		return []costs.BilledDay{b}
	}
	category := func(c ledger.ChargeCategory) func(*costs.BilledDay) {
		return func(b *costs.BilledDay) { b.ChargeCategory = c }
	}
	committed := func(b *costs.BilledDay) { b.CommitmentStatus, b.Effective = "Used", 7*usd }
	for _, tc := range []struct {
		name    string
		accrued []ledger.ResourceDay
		bill    []costs.BilledDay
		basis   costs.Basis
		drift   string
		causes  string
		posted  string // the sum of the corrections
	}{
		{"the same", accrued(10 * usd), billed(10*usd, 10*usd), "", "0.00", "", "0.00"},
		{
			"within a cent", accrued(10 * usd), billed(10*usd+money.Cent/2, 10*usd+money.Cent/2), "", "0.005",
			"rounding 0.005", "0.005",
		},
		{"a discount", accrued(10 * usd), billed(10*usd, 9*usd), "", "-1.00", "negotiated discount -1.00", "-1.00"},
		{
			"covered by a commitment", accrued(10 * usd), billed(10*usd, 0, committed), "", "-10.00",
			"commitment-covered -10.00", "-10.00",
		},
		{
			"covered, by its effective cost", accrued(10 * usd), billed(10*usd, 0, committed),
			costs.EffectiveCost, "-3.00",
			"commitment-covered -3.00", "-3.00",
		},
		{
			"no price", accrued(0, func(d *ledger.ResourceDay) {
				d.UnpricedSeconds = 3600
			}), billed(10*usd, 10*usd), "",
			"10.00", "no price 10.00", "10.00",
		},
		{
			"unknown time, and more than it can be", accrued(6*usd, func(d *ledger.ResourceDay) {
				d.Unknown = ledger.Sums{Seconds: 7200, AtMost: 3 * usd}
			}), billed(10*usd, 10*usd), "",
			"4.00", "unknown time 3.00, other usage 1.00", "4.00"},
		{"not observed", nil, billed(10*usd, 10*usd), "", "10.00", "not observed 10.00", "10.00"},
		{
			"no resource named", nil, billed(10*usd, 10*usd, func(b *costs.BilledDay) {
				b.Resource = ""
			}), "", "10.00",
			"no resource named 10.00", "10.00",
		},
		{
			"tax", accrued(10 * usd), append(billed(10*usd, 10*usd), billed(0, 2*usd, category(ledger.Tax))...), "",
			"2.00",
			"tax 2.00", "2.00",
		},
		{
			"a credit", accrued(10 * usd),
			append(billed(10*usd, 10*usd), billed(0, -10*usd, category(ledger.Credit))...), "",
			"-10.00", "credit -10.00", "-10.00",
		},
		{"a purchase", nil, billed(0, 50*usd, category(ledger.Purchase)), "", "50.00", "purchase 50.00", "50.00"},
		{"accrued, and not in the bill", accrued(10 * usd), nil, "", "-10.00", "not in the bill -10.00", "-10.00"},
		{
			"not billed yet", accrued(10*usd, func(d *ledger.ResourceDay) { d.Day = start.AddDate(0, 0, 2) }), nil, "",
			"-10.00", "not billed yet -10.00", "0.00",
		},
		{
			"requests that no round sees", accrued(10 * usd), billed(12*usd, 12*usd), "", "2.00", "other usage 2.00",
			"2.00",
		},
		{
			"reconciled before", accrued(10*usd, func(d *ledger.ResourceDay) {
				d.Reconciled = -usd
			}), billed(10*usd, 9*usd),
			"", "0.00", "negotiated discount -1.00", "0.00",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := costs.Reconcile(tc.accrued, tc.bill, start.AddDate(0, 0, 1), tc.basis)
			if err != nil {
				t.Fatal(err)
			}
			var causes []string
			for _, c := range r.Causes {
				causes = append(causes, string(c.Reason)+" "+c.Amount.String())
			}
			if got := r.Drift.String(); len(r.Rows) != 1 || got != tc.drift ||
				strings.Join(causes, ", ") != tc.causes {
				t.Errorf("%d rows, drift %s by %q; want %s by %q", len(r.Rows), got, causes, tc.drift, tc.causes)
			}
			if row := r.Rows[0]; r.Accrued != row.Accrued || r.Reconciled != row.Reconciled ||
				r.Billed != row.Billed ||
				r.Drift != r.Billed-r.Accrued-r.Reconciled {
				t.Errorf("the totals are not those of the only row: %+v", r)
			}
			entries, err := r.Corrections()
			if err != nil {
				t.Fatal(err)
			}
			var posted money.Amount
			for _, e := range entries {
				if posted += e.Amount; e.Kind != ledger.Reconciled || e.Why == "" || e.BillPeriod.IsZero() ||
					e.Ref.Account != "1" {
					t.Errorf("correction %+v", e)
				}
			}
			if posted.String() != tc.posted {
				t.Errorf("corrections come to %s, want %s", posted, tc.posted)
			}
		})
	}
	euros := billed(1, 1, func(b *costs.BilledDay) { b.Currency = "EUR" })
	if _, err := costs.Reconcile(nil, euros, start, ""); err == nil || !strings.Contains(err.Error(), `"EUR"`) {
		t.Errorf("a bill in euros: got %v, want an error", err)
	}
}

// TestUnbilledDaysStayAccrued checks that days after the last one on an account's bill stay
// as accrued, even if another account's bill is further.
func TestUnbilledDaysStayAccrued(t *testing.T) {
	day := func(account string, day int) (ledger.ResourceDay, costs.BilledDay) {
		at := start.AddDate(0, 0, day)
		return ledger.ResourceDay{
				Ref: inventory.Ref{
					Cloud: "aws", Account: account, Kind: inventory.KindInstance, ID: "i-" + account,
				}, Day: at,
				Category: ledger.Compute, Accrued: money.USD,
			},
			costs.BilledDay{
				Cloud: "aws", Account: account, Resource: "i-" + account, Day: at, Service: "EC2",
				ChargeCategory: ledger.Usage,
				List:           money.USD, Billed: money.USD, Currency: "USD",
			}
	}
	var accrued []ledger.ResourceDay
	var bill []costs.BilledDay
	for i := range 3 {
		for _, account := range []string{"1", "2"} {
			a, b := day(account, i)
			if accrued = append(accrued, a); account == "1" || i == 0 {
				bill = append(bill, b)
			}
		}
	}
	tax := bill[0]
	tax.Account, tax.Resource, tax.Day, tax.ChargeCategory = "2", "", start.AddDate(0, 0, 2), ledger.Tax
	r, err := costs.Reconcile(accrued, append(bill, tax), start.AddDate(0, 0, 3), "")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := r.Corrections()
	days := map[string]money.Amount{}
	for _, e := range entries {
		days[e.Ref.Account+" "+e.Hour.Format(time.DateOnly)] += e.Amount
	}
	want := map[string]money.Amount{
		"1 2026-03-01": 0, "1 2026-03-02": 0, "1 2026-03-03": 0, "2 2026-03-01": 0, "2 2026-03-03": money.USD,
	}
	if err != nil || !maps.Equal(days, want) {
		t.Errorf("corrections come to %v, %v; want %v: the tax, and nothing of the day that is not billed", days, err,
			want)
	}
	if c := r.Causes[0]; c.Reason != costs.NotBilledYet || c.Amount != -2*money.USD {
		t.Errorf("the largest cause is %+v", c)
	}
}

// TestReconciledLedgerEqualsBill checks that after posting the ledger equals the bill, that each row's
// causes explain its variance, and that nothing is left to correct.
func TestReconciledLedgerEqualsBill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := ledgertest.NewStore()
		for _, d := range ledgertest.Deliveries(t, account, start) {
			if _, err := ledger.Post(ctx, store, d.Round, d.Seen); err != nil {
				t.Fatal(err)
			}
		}
		bill := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) costs.BilledDay {
			return costs.BilledDay{
				Cloud: "aws", Account: "1",
				Resource: rapid.SampledFrom([]string{"", "instance0", "volume1", "other"}).Draw(t,
					"resource"),
				Day: start.AddDate(0, 0, rapid.IntRange(0, 3).Draw(t, "day")),
				ChargeCategory: rapid.SampledFrom([]ledger.ChargeCategory{
					ledger.Usage, ledger.Tax, ledger.Credit,
				}).Draw(t,
					"category"),
				CommitmentStatus: rapid.SampledFrom([]string{"", "Used"}).Draw(t, "status"), Currency: "USD",
				List:   money.Amount(rapid.Int64Range(0, 1e12).Draw(t, "list")),
				Billed: money.Amount(rapid.Int64Range(-1e12, 1e12).Draw(t, "billed"))}
		}), 0, 12).Draw(t, "bill")
		end := start.AddDate(0, 0, 4)
		r, _, err := costs.ReconcileAccount(ctx, store, account, bill, start, end, end, "", true)
		if err != nil {
			t.Fatal(err)
		}
		var total money.Amount
		for _, b := range bill {
			total += b.Billed
		}
		for _, row := range r.Rows {
			sum := row.Accrued
			for _, c := range row.Causes {
				sum += c.Amount
			}
			if sum != row.Billed {
				t.Fatalf("accrued and causes come to %d, billed %d: %+v", sum, row.Billed, row)
			}
		}
		all, err := costs.Spent(ctx, store, costs.Query{Since: start, Until: end})
		if err != nil || all.Total.Amount != total || r.Billed != total {
			t.Fatalf("the ledger has %d, the reconciliation %d, the bill %d, %v",
				all.Total.Amount, r.Billed, total, err)
		}
		again, n, err := costs.ReconcileAccount(ctx, store, account, bill, start, end, end, "", true)
		if err != nil || n != 0 || again.Drift != 0 {
			t.Fatalf("again: %d entries, drift %d, %v", n, again.Drift, err)
		}
	})
}

// TestReconcileKeepsAccruals checks that a late round after a reconciliation still accrues, and
// that corrections stay separate.
func TestReconcileKeepsAccruals(t *testing.T) {
	store := ledgertest.NewStore()
	for _, h := range []int{1, 2} {
		r, seen := ledgertest.Fleet(account, start, 1, start.Add(time.Duration(h)*time.Hour))
		if _, err := ledger.Post(ctx, store, r, seen); err != nil {
			t.Fatal(err)
		}
	}
	bill := []costs.BilledDay{
		{Cloud: "aws", Account: "1", Resource: "i-00000000", Day: start, ChargeCategory: ledger.Usage,
			Category: ledger.Compute, Pricing: ledger.Standard, List: 977_600_000,
			Billed: 800_000_000, Currency: "USD"}}
	end := start.AddDate(0, 0, 1)
	if _, n, err := costs.ReconcileAccount(ctx, store, account, bill, start, end, end, "", true); err != nil ||
		n != 2 {
		t.Fatalf("%d corrections, %v; want one for busy and one for unknown", n, err)
	}
	r, seen := ledgertest.Fleet(account, start, 1, start.Add(90*time.Minute))
	if _, err := ledger.Post(ctx, store, r, seen); err != nil {
		t.Fatal(err)
	}
	kinds := map[ledger.Kind]money.Amount{}
	for _, e := range store.All(account) {
		kinds[e.Kind] += e.Amount
	}
	if got := fmt.Sprint(kinds[ledger.Accrual]+kinds[ledger.Correction],
		kinds[ledger.Reconciled]); got != "0.9776 -0.1776" {
		t.Errorf("accrued and reconciled %s, want 0.9776 -0.1776", got)
	}
}

func TestBillID(t *testing.T) {
	for id, want := range map[string]string{
		"i-1": "i-1", "": "", "/aws/x": "/aws/x", "arn:aws": "arn:aws",
		"arn:aws:ec2:us-east-1:1:instance/i-1":                             "i-1",
		"arn:aws:s3:::models":                                              "models",
		"arn:aws:rds:us-east-1:1:db:features":                              "features",
		"arn:aws:logs:us-east-1:1:log-group:/aws/x:*":                      "/aws/x",
		"arn:aws:ecr:us-east-1:1:repository/vision/train":                  "vision/train",
		"arn:aws:secretsmanager:us-east-1:1:secret:prod/db-AbCdEf":         "prod/db",
		"arn:aws:elasticloadbalancing:us-east-1:1:loadbalancer/app/web/50": "app/web/50",
	} {
		if got := costs.BillID(id); got != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
}
