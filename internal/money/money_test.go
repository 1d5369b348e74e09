package money

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseAmount(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Amount
		err  string
	}{
		{in: "0", want: 0},
		{in: "0.9776", want: 977_600_000},
		{in: "32.8", want: 32_800_000_000},
		{in: "-1.5", want: -1_500_000_000},
		{in: "0.000000001", want: 1},
		{in: "21.957642000000", want: 21_957_642_000},
		{in: "0.0000000001", err: "more than 9 digits"},
		{in: "", err: "not a decimal"},
		{in: ".5", err: "not a decimal"},
		{in: "5.", err: "not a decimal"},
		{in: "1e3", err: "not a decimal"},
		{in: "1,000", err: "not a decimal"},
		{in: "+1", err: "not a decimal"},
		{in: "--1", err: "not a decimal"},
		{in: "NaN", err: "not a decimal"},
		{in: "9223372036.854775808", err: "out of range"},
	} {
		got, err := ParseAmount(tc.in)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("ParseAmount(%q): got error %v, want one with %q", tc.in, err, tc.err)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("ParseAmount(%q) = %d, %v; want %d", tc.in, got, err, tc.want)
		}
	}
}

func TestAmountAndRateString(t *testing.T) {
	for _, tc := range []struct {
		in                    Amount
		exact, cents, dollars string
	}{
		{713_648_000_000, "713.648", "713.65", "$714"},
		{0, "0.00", "0.00", "$0.00"},
		{5_000_000, "0.005", "0.00", "<$0.01"},
		{15_000_000, "0.015", "0.02", "$0.02"},
		{-15_000_000, "-0.015", "-0.02", "-$0.02"},
		{-4_000_000, "-0.004", "0.00", "-<$0.01"},
		{99_990_000_000, "99.99", "99.99", "$99.99"},
		{99_996_000_000, "99.996", "100.00", "$100"},
		{-2_880_400_000_000, "-2880.40", "-2880.40", "-$2,880"},
		{12_311_499_999_999, "12311.499999999", "12311.50", "$12,311"},
		{math.MinInt64, "-9223372036.854775808", "-9223372036.85", "-$9,223,372,037"},
	} {
		if got := tc.in.String(); got != tc.exact {
			t.Errorf("Amount(%d).String() = %s, want %s", tc.in, got, tc.exact)
		}
		if got := tc.in.Cents(); got != tc.cents {
			t.Errorf("Amount(%d).Cents() = %s, want %s", tc.in, got, tc.cents)
		}
		if got := tc.in.Dollars(); got != tc.dollars {
			t.Errorf("Amount(%d).Dollars() = %s, want %s", tc.in, got, tc.dollars)
		}
	}
}

func TestFormatsAmountsForPeople(t *testing.T) {
	rate := func(usd string) Rate {
		r, err := ParseRate(usd)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, tc := range []struct{ got, want string }{
		{Amount(1_234_500_000_000).Exact(), "$1,234.50"},
		{Amount(-2_880_000_000_000).Exact(), "-$2,880.00"},
		{Amount(-4_000_000).Exact(), "$0.00"},
		{Amount(math.MinInt64).Exact(), "-$9,223,372,036.85"},
		{Amount(12_000_000_000).Signed(), "+$12.00"},
		{(-500 * USD).Signed(), "-$500"},
		{Amount(1).Signed(), "+<$0.01"},
		{rate("21.957642").Dollars(), "$21.96"},
		{rate("0").Dollars(), "$0.00"},
		{rate("0.10").Dollars(), "$0.10"},
		{rate("0.023125").Dollars(), "$0.0231"},
		{rate("-0.0004").Dollars(), "-$0.0004"},
		{rate("0.000000001234").Dollars(), "$0.00000000123"},
		{ForPeople("1234.50"), "$1,234"},
		{ForPeople("30.123456789012"), "$30.12"},
		{ForPeople("not priced"), "not priced"},
		{ForPeople("v1.long-fraction"), "v1.long-fraction"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %s, want %s", tc.got, tc.want)
		}
	}
}

func TestMonthlyCostOfMachine(t *testing.T) {
	hourly, _ := ParseAmount("0.9776")
	got, err := hourly.Monthly()
	if err != nil || got.Cents() != "713.65" {
		t.Errorf("a g6.2xlarge costs %s a month, %v; want 713.65", got.Cents(), err)
	}
}

func TestReportsOverflow(t *testing.T) {
	if _, err := Amount(math.MaxInt64).Add(1); !errors.Is(err, ErrOverflow) {
		t.Errorf("Add past the range: got %v, want ErrOverflow", err)
	}
	if _, err := Rate(math.MaxInt64).Times(math.MaxInt64); !errors.Is(err, ErrOverflow) {
		t.Errorf("Times past the range: got %v, want ErrOverflow", err)
	}
	if _, err := Amount(math.MinInt64).Mul(-1, 1); !errors.Is(err, ErrOverflow) {
		t.Errorf("Mul past the range: got %v, want ErrOverflow", err)
	}
}

// TestMulDivAgainstBig checks the 128-bit product and its rounding against math/big.
func TestMulDivAgainstBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		c := rapid.Int64Range(1, math.MaxInt64).Draw(t, "c")
		num, den := new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c)
		q, r := new(big.Int).QuoRem(new(big.Int).Abs(num), den, new(big.Int))
		switch cmp := new(big.Int).Lsh(r, 1).Cmp(den); {
		case cmp > 0, cmp == 0 && q.Bit(0) == 1:
			q.Add(q, big.NewInt(1))
		}
		if num.Sign() < 0 {
			q.Neg(q)
		}
		got, ok := mulDiv(a, b, c)
		if ok != q.IsInt64() || (ok && got != q.Int64()) {
			t.Fatalf("mulDiv(%d, %d, %d) = %d, %v; want %s", a, b, c, got, ok, q)
		}
	})
}

func TestTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Amount(rapid.Int64().Draw(t, "a"))
		if back, err := ParseAmount(a.String()); err != nil || back != a {
			t.Fatalf("ParseAmount(%q) = %d, %v; want %d", a.String(), back, err, a)
		}
		r := Rate(rapid.Int64().Draw(t, "r"))
		if back, err := ParseRate(r.String()); err != nil || back != r {
			t.Fatalf("ParseRate(%q) = %d, %v; want %d", r.String(), back, err, r)
		}
	})
}

func TestSplitPartsAddUpToTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := Amount(rapid.Int64Range(-1e18, 1e18).Draw(t, "total"))
		weights := rapid.SliceOfN(rapid.Int64Range(0, 1e12), 1, 40).Draw(t, "weights")
		weights[0]++
		parts, err := Split(total, weights)
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, w := range weights {
			sum += w
		}
		got, _ := Sum(parts...)
		if got != total {
			t.Fatalf("parts of %d add up to %d", total, got)
		}
		for i, p := range parts {
			exact := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(int64(total)),
				big.NewInt(weights[i])), big.NewInt(sum))
			diff := new(big.Rat).Sub(exact, new(big.Rat).SetInt64(int64(p)))
			if diff.Abs(diff).Cmp(big.NewRat(1, 1)) >= 0 {
				t.Fatalf("part %d of %d is %d, a nano-dollar or more from %s", i, total, p, exact.FloatString(3))
			}
		}
	})
}

func TestRateForFractionOfUnit(t *testing.T) {
	storage, _ := ParseRate("0.023")
	if got, _ := storage.For(1<<29, 1<<30); got.String() != "0.0115" {
		t.Errorf("half a GiB-month of S3 is %s, want 0.0115", got)
	}
}

func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"0", "-1.5", "0.000000001", "1e3", "9223372036.854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAmount(s)
		if err != nil {
			return
		}
		if back, err := ParseAmount(a.String()); err != nil || back != a {
			t.Fatalf("%q reads as %d, printed and read again as %d, %v", s, a, back, err)
		}
	})
}
