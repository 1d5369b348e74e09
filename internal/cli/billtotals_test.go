package cli

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/test/data"
)

// billSums are the sums of a bill by dimension and key, exact decimals, on one basis.
type billSums map[string]map[string]string

// pythonTotals adds up a bill with testdata/bills/totals.py.
func pythonTotals(t *testing.T, paths ...string) (lines int, sums map[string]billSums) {
	t.Helper()
	out, err := exec.Command("python3", append([]string{"testdata/bills/totals.py", "sum"}, paths...)...).Output()
	if err != nil {
		t.Fatalf("add up %v: %v", paths, err)
	}
	var doc struct {
		Lines int
		Sums  map[string]billSums
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Lines, doc.Sums
}

// lastPart is the name of a resource or an account under which the bill and the ledger know it:
// the ledger adds provider, account and region before it, and takes an ARN by its last part.
func lastPart(key string) string {
	return strings.ToLower(key[strings.LastIndexAny(key, "/:")+1:])
}

// differ returns the differences between two divisions of a bill beyond the rounding of its lines
// to nano-dollars. Keys that cost nothing are in neither.
func differ(t *testing.T, got, want map[string]string, key func(string) string, lines int) (out []string) {
	t.Helper()
	sums := map[string]money.Amount{}
	add := func(of map[string]string, sign money.Amount) {
		for k, v := range of {
			whole, digits, _ := strings.Cut(v, ".")
			sums[key(k)] += sign * amount(t, whole+"."+(digits + "000000000")[:9])
		}
	}
	add(got, 1)
	add(want, -1)
	for k, v := range sums {
		if max(v, -v) > money.Amount(lines) {
			out = append(out, fmt.Sprintf("%q differs by %v", k, v))
		}
	}
	slices.Sort(out)
	return out
}

// shownBy returns the direct amounts of `bill show` by a dimension.
func (d *desktop) shownBy(by, basis string, period []string) map[string]string {
	d.t.Helper()
	var doc struct {
		Allocation struct {
			Parties []struct {
				Name   string
				Direct string `json:"direct_usd"`
			}
			Rest string `json:"unattributed_usd"`
		}
	}
	d.document(&doc, append([]string{"bill", "show", "--by", by, "--basis", basis}, period...)...)
	out := map[string]string{"": doc.Allocation.Rest}
	for _, p := range doc.Allocation.Parties {
		out[p.Name] = p.Direct
	}
	return out
}

// costsBy returns the posted charges of `costs` by a dimension.
func (d *desktop) costsBy(by string, period []string) map[string]string {
	d.t.Helper()
	var doc struct {
		Rows []struct {
			Key   []string
			Total string `json:"total_usd"`
		}
	}
	d.document(&doc, append([]string{"costs", "--by", by}, period...)...)
	out := map[string]string{}
	for _, r := range doc.Rows {
		out[r.Key[0]] = r.Total
	}
	return out
}

// document runs a command that succeeds, and reads its JSON.
func (d *desktop) document(into any, args ...string) {
	d.t.Helper()
	code, stdout, stderr := d.run(append(args, "-q", "-o", "json")...)
	if code != ExitDone {
		d.t.Fatalf("curfew %s: %d, %s", strings.Join(args, " "), code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		d.t.Fatal(err)
	}
}

// randomFOCUS writes a month of FOCUS as exporters do: costs of twelve digits, corrections,
// commitments, taxes, credits, and tags in the three spellings.
func randomFOCUS(t *testing.T, seed uint64, path string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	cost := func() string { return strconv.FormatFloat(r.NormFloat64()*40, 'f', r.IntN(13), 64) }
	head := []string{
		"BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "BillingAccountId", "SubAccountId",
		"BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd",
		"ChargeCategory", "ChargeClass", "ChargeDescription", "ServiceCategory", "ServiceName", "ProviderName",
		"ResourceId", "RegionId", "PricingCategory", "CommitmentDiscountId", "CommitmentDiscountStatus",
		"ConsumedQuantity", "ConsumedUnit", "Tags",
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := csv.NewWriter(f)
	_ = w.Write(head)
	for range 400 {
		kind, class, pricing, commitment, status := "Usage", "", pick("Standard", "standard", "Dynamic"), "", ""
		switch r.IntN(8) {
		case 0:
			pricing, commitment, status = "Committed", pick("sp/1", "sp/2"), pick("Used", "Unused")
		case 1:
			class = "Correction"
		case 2:
			kind, pricing = pick("Tax", "Credit", "Adjustment"), ""
		case 3:
			kind, pricing, commitment = "Purchase", "", pick("sp/1", "sp/2")
		}
		effective, day := cost(), fmt.Sprintf("2026-10-%02d", 1+r.IntN(31))
		if kind == "Purchase" {
			effective = "0"
		}
		_ = w.Write([]string{
			cost(), effective, cost(), cost(), pick("payer", "other"), pick("111", "222", ""), "USD",
			"2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z", day + "T05:00:00Z", day + "T06:00:00Z",
			kind, class, pick("per hour", "data transfer out", "snapshot"),
			pick("Compute", "Storage", "Networking", "Other"),
			pick("Amazon EC2", "Amazon S3", "Größe, \"quoted\""), pick("AWS", "Microsoft", "Google Cloud"),
			pick("i-1", "i-2", "vol-3", "/subscriptions/s/vm/4", "arn:aws:s3:::bucket-5", ""),
			pick("eu-west-1", "us-east-1", ""), pricing, commitment, status, "1.5", "Hours",
			pick("", `{"team":"vision","env":"prod"}`, `[{"key":"Team","value":"speech"}]`,
				`"cost-center": "77", "project": "p 1"`, `{"user:owner":"ana","team":""}`),
		})
	}
	w.Flush()
	if err := cmp.Or(w.Error(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestBillTotalsEqualTheRows compares `bill show` and, after posting, `costs` with an addition of
// the same rows in Python, by every dimension and on both bases: as first delivered, restated by
// the provider, and delivered again.
func TestBillTotalsEqualTheRows(t *testing.T) {
	type period []string
	october := period{"--since", "2026-10-01", "--until", "2026-11-01"}
	january := period{"--since", "2023-01-01", "--until", "2023-02-01"}
	year := period{"--since", "2023-01-01", "--until", "2024-01-01"}
	type delivered struct {
		name   string
		path   func(t *testing.T) string
		period period
		// daily is the number of deliveries without CURFEW_SLOW.
		daily int
	}
	file := func(path string) func(*testing.T) string { return func(*testing.T) string { return path } }
	shared := func(name string) func(*testing.T) string {
		return func(t *testing.T) string { return data.Path(t, "focus-1.0/"+name) }
	}
	bills := []delivered{
		{"FOCUS sample", shared("focus_sample.csv.gz"), period{"--since", "2024-09-01", "--until", "2024-10-01"}, 1},
		{"CUR 2.0", file("testdata/bills/cur.csv"), october, 1},
		{"legacy CUR", file("testdata/bills/legacycur.csv"), october, 0},
		{"Azure", file("testdata/bills/azure.csv"), october, 0},
		{"Google Cloud", file("testdata/bills/gcp.csv"), october, 0},
		{"example", file("../../examples/data/focus-2026-10.csv"), october, 0},
		{"random FOCUS", func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "focus.csv")
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			randomFOCUS(t, seed, path)
			return path
		}, october, 2},
	}
	for name, p := range map[string]period{
		"commitment_discount_purchase_scenario_1":                                              year,
		"commitment_discount_purchase_scenario_3":                                              year,
		"commitment_discount_usage_scenario_1":                                                 january,
		"commitment_discount_usage_scenario_3":                                                 january,
		"one_hundred_percent_utilization_with_commitment_discount_flexibility_with_1_resource": january,
		"one_hundred_percent_utilization_without_commitment_discount_flexibility":              january,
		"zero_percent_utilization_without_commitment_discount_flexibility":                     january,
	} {
		bills = append(bills, delivered{name, shared("commitment-examples/" + name + ".csv"), p, 0})
	}
	for _, b := range bills {
		deliveries := []string{"delivered", "restated", "delivered again"}
		if os.Getenv("CURFEW_SLOW") == "" {
			deliveries = deliveries[:b.daily]
		}
		if len(deliveries) == 0 {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			path := b.path(t)
			d := newDesktop(t)
			bill := filepath.Join(d.dir, "bill.csv")
			for _, delivery := range deliveries {
				seed := 0
				if delivery == "restated" {
					seed = 1 + rand.IntN(1<<30)
				}
				if out, err := exec.Command("python3", "testdata/bills/totals.py", "restate",
					strconv.Itoa(seed), path, bill).CombinedOutput(); err != nil {
					t.Fatalf("restate: %v: %s", err, out)
				}
				var imported struct{}
				d.document(&imported, "bill", "import", "bill.csv")
				lines, want := pythonTotals(t, bill)
				for _, basis := range []string{"billed", "effective"} {
					d.agrees(fmt.Sprintf("%s (seed %d)", delivery, seed), basis, b.period, lines, want[basis])
				}
			}
		})
	}
}

// agrees compares a bill before and after posting with its sums.
func (d *desktop) agrees(delivery, basis string, period []string, lines int, want billSums) {
	d.t.Helper()
	same := func(s string) string { return s }
	for by, sums := range want {
		key := same
		if by == "resource" {
			key = lastPart
		}
		if off := differ(d.t, d.shownBy(by, basis, period), sums, key, lines); off != nil {
			d.t.Errorf("%s: bill show, %s by %s: %s", delivery, basis, by, strings.Join(off, "; "))
		}
	}
	whole := func(string) string { return "" }
	for _, dimension := range ledger.Dimensions {
		by := string(dimension)
		if want[strings.ReplaceAll(by, "-", "_")] != nil {
			continue
		}
		if off := differ(d.t, d.shownBy(by, basis, period), want["day"], whole, lines); off != nil {
			d.t.Errorf("%s: bill show, %s by %s: %s", delivery, basis, by, strings.Join(off, "; "))
		}
	}
	var posted struct{}
	d.document(&posted, append([]string{"bill", "reconcile", "--post", "--basis", basis}, period...)...)
	for _, dimension := range ledger.Dimensions {
		by := string(dimension)
		costs := d.costsBy(by, period)
		if off := differ(d.t, d.shownBy(by, basis, period), costs, same, lines); off != nil {
			d.t.Errorf("%s: bill show and costs, %s by %s: %s", delivery, basis, by, strings.Join(off, "; "))
		}
		key, sums := same, want[strings.ReplaceAll(by, "-", "_")]
		switch {
		case sums == nil:
			key, sums = whole, want["day"]
		case by == "resource":
			key = lastPart
		}
		if off := differ(d.t, costs, sums, key, lines); off != nil {
			d.t.Errorf("%s: costs, %s by %s: %s", delivery, basis, by, strings.Join(off, "; "))
		}
	}
}
