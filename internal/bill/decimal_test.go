package bill

import (
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

func TestParseDecimal(t *testing.T) {
	for _, tc := range []struct {
		in, want string
		err      error
	}{
		{in: "0", want: "0"},
		{in: "-0.00000000000", want: "0"},
		{in: "0.00015833330", want: "0.0001583333"},
		{in: "+1.5", want: "1.5"},
		{in: ".5", want: "0.5"},
		{in: "5.", want: "5"},
		{in: "1.5E-7", want: "0.00000015"},
		{in: "-2e3", want: "-2000"},
		{in: "1e11", want: "100000000000"},
		{in: "1e29", want: "1" + strings.Repeat("0", 29)},
		{in: "170141183460469231731.687303715884105727", want: "170141183460469231731.687303715884105727"},
		{
			in:   "0.000000000000000000000000000000000000000000000000000000000001",
			want: "0.000000000000000000000000000000000000000000000000000000000001",
		},
		{in: "1e-61", err: errTooLong},
		{in: "1e30", err: errTooLong},
		{in: "0e999999999", want: "0"},
		{in: "1e999999999999999999999", err: errNotDecimal},
		{in: "", err: errNotDecimal},
		{in: "-", err: errNotDecimal},
		{in: ".", err: errNotDecimal},
		{in: "1,5", err: errNotDecimal},
		{in: "1.2.3", err: errNotDecimal},
		{in: "$1", err: errNotDecimal},
		{in: "NaN", err: errNotDecimal},
		{in: "1e", err: errNotDecimal},
		{in: "1e5x", err: errNotDecimal},
		{in: "0x10", err: errNotDecimal},
	} {
		got, err := ParseDecimal(tc.in)
		if !errors.Is(err, tc.err) || (err == nil && got.String() != tc.want) {
			t.Errorf("ParseDecimal(%q) = %s, %v; want %s, %v", tc.in, got, err, tc.want, tc.err)
		}
	}
}

// decimals draws texts that fit the fixed part and texts that do not.
func decimals() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		s := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign") + rapid.StringMatching(
			`[0-9]{1,20}`).Draw(t, "whole")
		if frac := rapid.StringMatching(`[0-9]{0,35}`).Draw(t, "fraction"); frac != "" {
			s += "." + frac
		}
		return s
	})
}

// TestSumsAreExact compares sums, differences and texts with rationals.
func TestSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sum Decimal
		want := new(big.Rat)
		for _, s := range rapid.SliceOfN(decimals(), 0, 20).Draw(t, "numbers") {
			d, err := ParseDecimal(s)
			if err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			r, _ := new(big.Rat).SetString(s)
			if rapid.Bool().Draw(t, "minus") {
				sum = sum.Sub(d)
				want.Sub(want, r)
				continue
			}
			sum = sum.Add(d)
			want.Add(want, r)
		}
		if got, _ := new(big.Rat).SetString(sum.String()); got.Cmp(want) != 0 {
			t.Fatalf("the sum is %s, want %s", sum, want.FloatString(40))
		}
		if sum.Sign() != want.Sign() || sum.Neg().Add(sum).Sign() != 0 {
			t.Fatalf("the sign of %s is %d", sum, sum.Sign())
		}
		back, err := ParseDecimal(sum.String())
		if err != nil || back.Cmp(sum) != 0 {
			t.Fatalf("%s reads back as %s, %v", sum, back, err)
		}
	})
}

// nearest returns a rational in nano-dollars, rounded half to even.
func nearest(r *big.Rat) *big.Int {
	n := new(big.Rat).Mul(r, big.NewRat(1_000_000_000, 1))
	q, m := new(big.Int).DivMod(n.Num(), n.Denom(), new(big.Int))
	if c := m.Lsh(m, 1).Cmp(n.Denom()); c > 0 || (c == 0 && q.Bit(0) == 1) {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func TestAmountRoundsHalfToEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := decimals().Draw(t, "number")
		d, _ := ParseDecimal(s)
		r, _ := new(big.Rat).SetString(s)
		want := nearest(r)
		got, err := d.Amount()
		// An amount may be refused at the very end of its range, never wrong.
		if err == nil && (!want.IsInt64() || int64(got) != want.Int64()) {
			t.Fatalf("%s is %d nano-dollars, want %s", s, got, want)
		}
		if err != nil && want.IsInt64() && new(big.Int).Abs(want).Cmp(big.NewInt(1<<62)) < 0 {
			t.Fatalf("%s is refused: %v", s, err)
		}
	})
}

// TestRoundingAddsUp: parts add up to the sum rounded once, and each is less than a nano-dollar
// from its exact value.
func TestRoundingAddsUp(t *testing.T) {
	small := rapid.Custom(func(t *rapid.T) string {
		return rapid.StringMatching(`-?[0-9]{1,3}\.[0-9]{8,33}`).Draw(t, "number")
	})
	rapid.Check(t, func(t *rapid.T) {
		var parts []Decimal
		sum := new(big.Rat)
		texts := rapid.SliceOfN(small, 0, 50).Draw(t, "parts")
		for _, s := range texts {
			d, err := ParseDecimal(s)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, d)
			r, _ := new(big.Rat).SetString(s)
			sum.Add(sum, r)
		}
		amounts, total, err := round(parts)
		if err != nil {
			t.Fatal(err)
		}
		added, _ := money.Sum(amounts...)
		if want := nearest(sum).Int64(); int64(total) != want || added != total {
			t.Fatalf("the total is %d and the parts add up to %d, want %d", total, added, want)
		}
		for i, a := range amounts {
			if off := FromAmount(a).Sub(parts[i]); off.Add(FromAmount(1)).Sign() <= 0 ||
				off.Sub(FromAmount(1)).Sign() >= 0 {
				t.Fatalf("%s became %d nano-dollars", texts[i], a)
			}
		}
	})
}

// TestRoundingGivesTheLargestRemainders checks that the rest goes to the largest remainders, of
// equal ones to the first.
func TestRoundingGivesTheLargestRemainders(t *testing.T) {
	for _, tc := range []struct {
		parts string // nano-dollars
		want  []money.Amount
	}{
		{"0.9 0.1", []money.Amount{1, 0}},
		{"0.1 0.9", []money.Amount{0, 1}},
		{"2.2 3.7 4.1", []money.Amount{2, 4, 4}},
		{"1.6 1.5 1.9", []money.Amount{2, 1, 2}},
		{"0.25 0.25 0.5", []money.Amount{0, 0, 1}},
		{"0.4 0.4 0.2", []money.Amount{1, 0, 0}},
		{"-0.1 -0.9", []money.Amount{0, -1}},
		{"-1.2 0.2 5", []money.Amount{-1, 0, 5}},
		{"1 2", []money.Amount{1, 2}},
	} {
		var parts []Decimal
		for _, text := range strings.Fields(tc.parts) {
			d, err := ParseDecimal(text + "e-9")
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, d)
		}
		if got, _, err := round(parts); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s became %d, %v; want %d", tc.parts, got, err, tc.want)
		}
	}
}

// TestATotalThatDoesNotFitIsAnError, even if only the remainders make it so.
func TestATotalThatDoesNotFitIsAnError(t *testing.T) {
	var parts []Decimal
	for _, text := range []string{"9223372036854775807e-9", "0.5e-9", "0.5e-9"} {
		d, err := ParseDecimal(text)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, d)
	}
	if got, total, err := round(parts); !errors.Is(err, money.ErrOverflow) {
		t.Errorf("got %d, %d, %v", got, total, err)
	}
	if _, total, err := round(parts[:1]); err != nil || total != math.MaxInt64 {
		t.Errorf("what fits is %d, %v", total, err)
	}
}

// TestTimesRoundsHalfToEven: gigabytes become whole bytes.
func TestTimesRoundsHalfToEven(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1.5": 1_500_000_000, "0.5e-9": 0, "1.5e-9": 2, "2.5e-9": 2,
		"2.500000000000000000001e-9": 3, "2.4e-9": 2,
		"2.6e-9": 3, "-1": -1_000_000_000,
	} {
		d, err := ParseDecimal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.times(gigabyte); err != nil || got != want {
			t.Errorf("%s GB are %d bytes, %v; want %d", text, got, err, want)
		}
	}
	huge, err := ParseDecimal("1e10")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := huge.times(gigabyte); !errors.Is(err, money.ErrOverflow) {
		t.Errorf("got %d, %v", got, err)
	}
	for _, parts := range [][]Decimal{{huge}, {huge, huge.Neg()}, {FromAmount(math.MaxInt64), FromAmount(1)}} {
		if got, _, err := round(parts); !errors.Is(err, money.ErrOverflow) {
			t.Errorf("%v became %d, %v", parts, got, err)
		}
	}
}

func TestNewDecimal(t *testing.T) {
	huge, _ := new(big.Int).SetString("99999999999999999999999999999999999999", 10)
	for _, tc := range []struct {
		n     *big.Int
		scale int
		want  string
	}{
		{big.NewInt(-1_500_000_001), 9, "-1.500000001"},
		{huge, 18, "99999999999999999999.999999999999999999"},
		{big.NewInt(1), 60, "0." + strings.Repeat("0", 59) + "1"},
	} {
		got, err := NewDecimal(tc.n, tc.scale)
		if err != nil || got.String() != tc.want {
			t.Errorf("%s × 10^-%d = %s, %v; want %s", tc.n, tc.scale, got, err, tc.want)
		}
		if !tc.n.IsInt64() {
			continue
		}
		if got, err := NewDecimal64(tc.n.Int64(), tc.scale); err != nil || got.String() != tc.want {
			t.Errorf("in 64 bits %s × 10^-%d = %s, %v; want %s", tc.n, tc.scale, got, err, tc.want)
		}
	}
	for _, scale := range []int{-1, 61} {
		if d, err := NewDecimal(big.NewInt(1), scale); err == nil {
			t.Errorf("a scale of %d gives %s", scale, d)
		}
	}
}

func FuzzParseDecimal(f *testing.F) {
	for _, s := range []string{
		"0", "-1.5", "1.5E-7", "11.15367699036", "1e-60", "999999999999999999999999999999",
		"170141183460.469231731687303715884105727",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDecimal(s)
		other, otherErr := ParseDecimal([]byte(s))
		if (err == nil) != (otherErr == nil) || (err == nil && d.Cmp(other) != 0) {
			t.Fatalf("%q is %s, %v as a text and %s, %v as bytes", s, d, err, other, otherErr)
		}
		if err != nil {
			return
		}
		want, ok := new(big.Rat).SetString(s)
		if got, _ := new(big.Rat).SetString(d.String()); !ok || got.Cmp(want) != 0 {
			t.Fatalf("%q reads as %s", s, d)
		}
	})
}

func BenchmarkDecimal(b *testing.B) {
	text := []byte("0.00015833330")
	var sum Decimal
	b.ReportAllocs()
	for b.Loop() {
		d, err := ParseDecimal(text)
		if err != nil {
			b.Fatal(err)
		}
		sum = sum.Add(d)
	}
}

// FromAmount returns an amount as a decimal.
func FromAmount(a money.Amount) Decimal {
	d, err := NewDecimal64(int64(a), nanoScale)
	if err != nil {
		panic(err)
	}
	return d
}
