package bill

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// TestTableIsExact compares the sums of rows with decimals, for numbers of any size and length, in
// one table and merged from two.
func TestTableIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tables [2]table
		var want [3][sumCount]Decimal
		for i := range tables {
			for range want {
				tables[i].add()
			}
		}
		for range rapid.IntRange(0, 40).Draw(t, "additions") {
			d, err := ParseDecimal(rapid.StringMatching(`-?[0-9]{1,12}(\.[0-9]{1,40})?`).Draw(t, "number"))
			if err != nil {
				t.Fatal(err)
			}
			row, which := rapid.IntRange(0, len(want)-1).Draw(t, "row"), rapid.IntRange(0, sumCount-1).Draw(t, "sum")
			tables[rapid.IntRange(0, 1).Draw(t, "table")].plus(int32(row), which, d)
			want[row][which] = want[row][which].Add(d)
		}
		for row := range want {
			tables[0].merge(int32(row), &tables[1], int32(row))
			for which, d := range want[row] {
				if got := tables[0].sum(int32(row), which); got.Cmp(d) != 0 {
					t.Fatalf("sum %d of row %d is %s, want %s", which, row, got, d)
				}
			}
		}
	})
}

// TestTextsThatAreInNoRowAreForgotten keeps memory with the rows where every line has a
// description of its own.
func TestTextsThatAreInNoRowAreForgotten(t *testing.T) {
	a := NewAggregate(options())
	for i := range 3 * cached {
		l := line("i-1", "1", 0)
		l.ChargeDescription = fmt.Sprintf("hour %d", i)
		if err := a.Add(l); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.words) > cached+7 || len(a.classes) > cached || len(a.texts) > 20 || len(a.symbols) > 20 {
		t.Errorf("%d words, %d classes, %d texts and %d symbols of one row are kept", len(a.words), len(a.classes),
			len(a.texts), len(a.symbols))
	}
}

func TestCostBeyondMoneyIsRefused(t *testing.T) {
	a := NewAggregate(options())
	for _, cost := range []string{"1e29", "-9300000000", "1e12"} {
		if err := a.Add(line("i-1", cost, 0)); err == nil {
			t.Errorf("a cost of %s is taken", cost)
		}
	}
	for range 2 {
		if err := a.Add(line("i-1", "9000000000.1", 0)); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Settle(); !errors.Is(err, money.ErrOverflow) {
		t.Errorf("a sum beyond money: %v", err)
	}
}

func TestGigabytes(t *testing.T) {
	for _, tc := range []struct{ quantity, unit, want string }{
		{"1.5", "GB", "1.5"}, {"2", "Gigabytes", "2"}, {"25", "gibibytes", "26.8435456"},
		{"1", "gibibyte", "1.073741824"},
		{"1", "GiB", "1.073741824"},
		{"3", "TB", "3000"}, {"500", "MB", "0.5"}, {"1000000", "bytes", "0.001"}, {"1000000", "B", "0.001"},
		{"2", "KB", "0.000002"}, {"1", "Terabyte", "1000"}, {"7", "gigabyte", "7"},
		{"1", "KiB", "0.000001024"}, {"1", "Kibibytes", "0.000001024"}, {"1", "MiB", "0.001048576"},
		{"1", "Mebibyte", "0.001048576"}, {"1", "TiB", "1099.511627776"}, {"1", "Tebibytes", "1099.511627776"},
		{"7", "Hours", "0"}, {"7", "GB-Months", "0"}, {"7", "", "0"},
	} {
		q, err := ParseDecimal(tc.quantity)
		if err != nil {
			t.Fatal(err)
		}
		if got := gigabytes(q, tc.unit).String(); got != tc.want {
			t.Errorf("%s %s are %s GB, want %s", tc.quantity, tc.unit, got, tc.want)
		}
	}
}
