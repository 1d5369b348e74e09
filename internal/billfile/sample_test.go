package billfile

import (
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/billfile/billtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/data"
)

// read reads a bill that has to be fine.
func read(t testing.TB, path string, o Options) *bill.Bill {
	t.Helper()
	b, err := tryRead(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func tryRead(path string, o Options) (*bill.Bill, error) {
	o.Mapping = inventory.DefaultTagMapping()
	e, err := Open(context.Background(), path, o)
	if err != nil {
		return nil, err
	}
	return e.Read(context.Background())
}

// unzip opens a gzipped file for the time of a test.
func unzip(t testing.TB, path string) io.Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// columnSum adds up a column of a gzipped CSV file in rationals.
func columnSum(t *testing.T, path, name string) string {
	t.Helper()
	z := unzip(t, path)
	r := csv.NewReader(z)
	head, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for head[at] != name {
		at++
	}
	sum := new(big.Rat)
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if v, ok := new(big.Rat).SetString(fields[at]); ok {
			sum.Add(sum, v)
		}
	}
	return strings.TrimRight(strings.TrimRight(sum.FloatString(40), "0"), ".")
}

func TestSampleToTheLastDigit(t *testing.T) {
	path := data.Path(t, "focus-1.0/focus_sample.csv.gz")
	b := read(t, path, Options{})
	d := bill.Summarize(b, nil)
	for _, tc := range []struct{ name, got, want string }{
		{"BilledCost", d.BilledCost, columnSum(t, path, "BilledCost")},
		{"BilledCost as published", d.BilledCost, "11.15367699036"},
		{"EffectiveCost", *d.EffectiveCost, columnSum(t, path, "EffectiveCost")},
		{"ListCost", *d.ListCost, columnSum(t, path, "ListCost")},
		{"ContractedCost", *d.ContractedCost, columnSum(t, path, "ContractedCost")},
	} {
		if tc.got != tc.want {
			t.Errorf("%s adds up to %s, want %s", tc.name, tc.got, tc.want)
		}
	}
	if d.Rows != 612 || len(d.Periods) != 1 || d.Periods[0].Rows != 612 || len(d.Periods[0].Accounts) != 3 ||
		d.Written != "FOCUS 1.0" || len(d.MissingColumns) > 0 {
		t.Errorf("the document is %+v", d)
	}
	var billed int64
	for _, p := range b.Periods {
		for r := range p.Rows() {
			billed += int64(r.Cost.Billed)
		}
	}
	if billed != 11_153_676_990 && billed != 11_153_676_991 {
		t.Errorf("the rows add up to %d nano-dollars", billed)
	}
}

func TestImportingTwiceChangesNothing(t *testing.T) {
	path := data.Path(t, "focus-1.0/focus_sample.csv.gz")
	first, again := read(t, path, Options{Workers: 1}), read(t, path, Options{Workers: 2})
	replace, _, _ := bill.Plan(first, nil, time.Unix(0, 0))
	if len(replace) != 3 {
		t.Fatalf("%d periods are imported, want 3", len(replace))
	}
	var stored []bill.Period
	for _, r := range replace {
		stored = append(stored, r.Period)
	}
	if replace, planned, _ := bill.Plan(again, stored, time.Unix(1, 0)); len(replace) != 0 || len(planned) != 3 {
		t.Errorf("importing again replaces %d of %v", len(replace), planned)
	}
}

// TestCommitmentExamples compares the worked rows of the specification with its text.
func TestCommitmentExamples(t *testing.T) {
	for _, tc := range []struct {
		file                    string
		billed, effective       string
		purchased, used, unused string
	}{
		{"commitment_discount_purchase_scenario_1.csv", "8760.00", "0.00", "8760.00", "0.00", "0.00"},
		{"commitment_discount_purchase_scenario_3.csv", "4381.50", "0.00", "4381.50", "0.00", "0.00"},
		{"commitment_discount_usage_scenario_1.csv", "0.00", "1.00", "0.00", "1.00", "0.00"},
		{"commitment_discount_usage_scenario_3.csv", "0.00", "1.00", "0.00", "0.75", "0.25"},
		{
			"one_hundred_percent_utilization_with_commitment_discount_flexibility_with_1_resource.csv", "2.75", "2.75",
			"0.50", "0.50", "0.00",
		},
		{
			"one_hundred_percent_utilization_without_commitment_discount_flexibility.csv",
			"1.50", "1.50", "1.50", "1.50",
			"0.00",
		},
		{
			"zero_percent_utilization_without_commitment_discount_flexibility.csv", "3.50", "3.50", "1.50", "0.00",
			"1.50",
		},
	} {
		t.Run(tc.file, func(t *testing.T) {
			b := read(t, data.Path(t, "focus-1.0/commitment-examples/"+tc.file), Options{})
			d := bill.Summarize(b, nil)
			if d.BilledCost != tc.billed || *d.EffectiveCost != tc.effective {
				t.Errorf("billed %s and effective %s, want %s and %s", d.BilledCost, *d.EffectiveCost,
					tc.billed, tc.effective)
			}
			use, err := bill.CommitmentUse(b.Rows())
			if err != nil || len(use.Commitments) != 1 {
				t.Fatalf("commitments %+v, %v", use, err)
			}
			if c := use.Commitments[0]; c.Purchased.String() != tc.purchased || c.Used.String() != tc.used ||
				c.Unused.String() != tc.unused {
				t.Errorf("bought %s, used %s, unused %s; want %s, %s, %s", c.Purchased, c.Used,
					c.Unused, tc.purchased, tc.used,
					tc.unused)
			}
		})
	}
}

// TestParquetSaysTheSame compares the sample as Parquet with binary numbers with the sample as CSV,
// to the last digit and row.
func TestParquetSaysTheSame(t *testing.T) {
	path := data.Path(t, "focus-1.0/focus_sample.csv.gz")
	parquet := filepath.Join(t.TempDir(), "sample.parquet")
	sum, err := billtest.Repeat(parquet, sample(t, path), 612)
	if err != nil {
		t.Fatal(err)
	}
	if sum.String() != "11.15367699036" {
		t.Errorf("what was written adds up to %s", sum)
	}
	a, b := read(t, path, Options{}), read(t, parquet, Options{})
	for i, p := range a.Periods {
		if q := b.Periods[i]; p.Digest != q.Digest {
			t.Errorf("period %v is %+v as CSV and %+v as Parquet", p.PeriodKey, p.Period, q.Period)
		}
	}
}

func sample(t testing.TB, path string) []billtest.Row {
	t.Helper()
	z := unzip(t, path)
	rows, err := billtest.FromCSV(z)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestSampleByDimension compares the rows of the published sample with a naive addition of the
// file's own columns: each value of each column has the same cost, within a nano-dollar a row.
func TestSampleByDimension(t *testing.T) {
	path := data.Path(t, "focus-1.0/focus_sample.csv.gz")
	z := unzip(t, path)
	lines, err := csv.NewReader(z).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, name := range lines[0] {
		at[name] = i
	}
	b := read(t, path, Options{})
	for column, by := range map[string]bill.Dimension{
		"ServiceName": bill.ByService, "ResourceId": bill.ByResource, "ChargeCategory": bill.ByChargeCategory,
		"PricingCategory": bill.ByPricing,
		"SubAccountId":    bill.BySubAccount, "ProviderName": bill.ByProvider, "BillingAccountId": bill.ByAccount,
		"CommitmentDiscountId": bill.ByCommitment,
	} {
		for cost, of := range map[string]func(*bill.Row) int64{
			"BilledCost":    func(r *bill.Row) int64 { return int64(r.Cost.Billed) },
			"EffectiveCost": func(r *bill.Row) int64 { return int64(r.Cost.Effective) },
		} {
			want, got, rows := map[string]*big.Rat{}, map[string]int64{}, map[string]int64{}
			for _, l := range lines[1:] {
				value := strings.TrimSpace(l[at[column]])
				if strings.EqualFold(value, "null") {
					value = ""
				}
				if want[value] == nil {
					want[value] = new(big.Rat)
				}
				if v, ok := new(big.Rat).SetString(l[at[cost]]); ok {
					want[value].Add(want[value], v)
				}
			}
			for r := range b.Rows() {
				got[r.Value(by)] += of(&r)
				rows[r.Value(by)]++
			}
			if len(got) != len(want) {
				t.Errorf("%s by %s: %d values, want %d", cost, column, len(got), len(want))
			}
			for value, sum := range want {
				exact, _ := new(big.Rat).Mul(sum, big.NewRat(1e9, 1)).Float64()
				if off := math.Abs(float64(got[value]) - exact); off > float64(rows[value]) {
					t.Errorf("%s of %s %q is %d nano-dollars, want %s", cost, column, value,
						got[value], sum.FloatString(12))
				}
			}
		}
	}
}
