package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/billfile/billtest"
	"github.com/curfew-dev/curfew/test/data"
)

// TestMain lets the test's binary be the reader that compare calls.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-reader") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestCompare(t *testing.T) {
	var out bytes.Buffer
	if err := compare(t.Context(), &out, "", 20_000, 2); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"20000 rows", "510 sums by day, resource and service", "equal to the last digit"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	if err := compare(t.Context(), &out, filepath.Join(t.TempDir(), "gone"), 0, 2); err == nil {
		t.Error("a file that is not there is compared")
	}
}

// TestSample compares the readers on the excerpt of a real bill, repeated three times.
func TestSample(t *testing.T) {
	f, err := os.Open(data.Path(t, "focus-1.0/focus_sample.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := billtest.FromCSV(z)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bill.parquet")
	if _, err := billtest.Repeat(file, rows, 3*len(rows)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := compare(t.Context(), &out, file, 0, 2); err != nil ||
		!strings.HasPrefix(out.String(), fmt.Sprint(3*len(rows), " rows")) {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestDisagreement(t *testing.T) {
	exact := func() Sums {
		return Sums{Lines: 3, Total: Costs{"1.0000000000001", "2", "3"}, Groups: []GroupSum{
			{Group{"2024-09-01", "i-1", "EC2"}, Costs{"0.7", "2.00", "3.00"}, 2, 2},
			{Group{"2024-09-02", "i-1", "EC2"}, Costs{"0.3", "0.00", "0.00"}, 1, 1}}}
	}
	for _, tt := range []struct {
		name   string
		change func(*Sums)
		agrees bool
		near   bool
	}{
		{"the same", func(*Sums) {}, true, true},
		{"in another order", func(s *Sums) { slices.Reverse(s.Groups) }, true, true},
		{"written in another way", func(s *Sums) { s.Total.Effective = "2.000000000000000000000000" }, true, true},
		{"rounded twice in a group", func(s *Sums) { s.Groups[0].Billed = "0.700000002" }, true, true},
		{"the last digit of the total", func(s *Sums) { s.Total.Billed = "1.0000000000002" }, false, true},
		{"a group by more than its rounding", func(s *Sums) { s.Groups[1].Billed = "0.300000002" }, false, true},
		{"a cent", func(s *Sums) { s.Total.List = "3.01" }, false, false},
		{"a row", func(s *Sums) { s.Lines = 4 }, false, false},
		{"a row of a group", func(s *Sums) { s.Groups[0].Lines = 1 }, false, false},
		{"another group", func(s *Sums) { s.Groups[0].Service = "S3" }, false, false},
		{"a group less", func(s *Sums) { s.Groups = s.Groups[:1] }, false, false},
		{"no number", func(s *Sums) { s.Total.Billed = "NaN" }, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			other := exact()
			tt.change(&other)
			if err := exact().Agrees(other); (err == nil) != tt.agrees {
				t.Errorf("Agrees = %v", err)
			}
			if err := exact().Near(other); (err == nil) != tt.near {
				t.Errorf("Near = %v", err)
			}
		})
	}
}
