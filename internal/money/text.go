package money

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseAmount reads a decimal number of dollars such as "12.5" or "-0.000000001". More than nine
// digits after the point, an exponent, a leading plus, spaces and separators are errors, so that
// nothing is misread.
func ParseAmount(s string) (Amount, error) {
	v, err := parse(s, 9)
	if err != nil {
		return 0, fmt.Errorf("read %q as dollars: %w", s, err)
	}
	return Amount(v), nil
}

// ParseRate reads a decimal number of dollars for one unit with at most twelve
// digits after the point.
func ParseRate(s string) (Rate, error) {
	v, err := parse(s, 12)
	if err != nil {
		return 0, fmt.Errorf("read %q as dollars a unit: %w", s, err)
	}
	return Rate(v), nil
}

func parse(s string, scale int) (int64, error) {
	digits, neg := strings.CutPrefix(s, "-")
	whole, frac, point := strings.Cut(digits, ".")
	if whole == "" || (point && frac == "") {
		return 0, errors.New("not a decimal number")
	}
	if len(frac) > scale {
		if strings.Trim(frac[scale:], "0") != "" {
			return 0, fmt.Errorf("more than %d digits after the point", scale)
		}
		frac = frac[:scale]
	}
	for _, c := range []byte(whole + frac) {
		if c < '0' || c > '9' {
			return 0, errors.New("not a decimal number")
		}
	}
	text := whole + frac + strings.Repeat("0", scale-len(frac))
	if neg {
		text = "-" + text
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, ErrOverflow
	}
	return v, nil
}

// String returns the amount without trailing zeros but with at least two decimals: "0.526",
// "713.648", "2.00".
func (a Amount) String() string { return format(int64(a), 9) }

// String returns the rate without trailing zeros but with at least two decimals.
func (r Rate) String() string { return format(int64(r), 12) }

func format(v int64, scale int) string {
	s := strconv.FormatUint(magnitude(v), 10)
	if len(s) <= scale {
		s = strings.Repeat("0", scale-len(s)+1) + s
	}
	whole, frac := s[:len(s)-scale], strings.TrimRight(s[len(s)-scale:], "0")
	if len(frac) < 2 {
		frac += strings.Repeat("0", 2-len(frac))
	}
	if v < 0 {
		whole = "-" + whole
	}
	return whole + "." + frac
}

// Cents returns the amount rounded half to even to cents, the form of every *_usd field of a
// document: "713.65".
func (a Amount) Cents() string {
	v, _ := mulDiv(int64(a), 1, int64(Cent))
	return format(v*int64(Cent), 9)
}

// centsBelow is the amount from which Dollars omits the cents.
const centsBelow = 100 * USD

// Dollars returns the amount for people, rounded half to even to whole dollars with thousands
// separators: "$12,311" or "-$2,880". An amount under $100 keeps its cents ("$4.20"); a nonzero
// amount that rounds to zero is "<$0.01".
func (a Amount) Dollars() string {
	switch cents, _ := mulDiv(int64(a), 1, int64(Cent)); {
	case cents == 0 && a != 0:
		return sign(a) + "<$0.01"
	case magnitude(cents) < uint64(centsBelow/Cent):
		return a.Exact()
	}
	v, _ := mulDiv(int64(a), 1, int64(USD))
	return sign(a) + "$" + Thousands(int64(magnitude(v)))
}

// Printed returns the amount that [Amount.Dollars] shows: to the cent below $100, else to the
// dollar.
func (a Amount) Printed() Amount {
	unit := USD
	if cents, _ := mulDiv(int64(a), 1, int64(Cent)); magnitude(cents) < uint64(centsBelow/Cent) {
		unit = Cent
	}
	v, _ := mulDiv(int64(a), 1, int64(unit))
	return Amount(v) * unit
}

// Exact returns the amount to the cent, for limits and other binding amounts: "$1,234.50".
func (a Amount) Exact() string {
	cents, _ := mulDiv(int64(a), 1, int64(Cent))
	s := strconv.FormatUint(magnitude(cents)%100+100, 10)
	return sign(Amount(cents)) + "$" + Thousands(int64(magnitude(cents)/100)) + "." + s[1:]
}

// Signed returns the amount as [Amount.Dollars] does, with a plus sign if it is positive.
func (a Amount) Signed() string {
	if s := a.Dollars(); a > 0 && s != "$0.00" {
		return "+" + s
	}
	return a.Dollars()
}

// Dollars returns the price of one unit for people: with cents, or with three significant digits if
// it is under ten cents ("$21.96", "$0.0231").
func (r Rate) Dollars() string {
	if v := magnitude(int64(r)); v >= uint64(USDPerUnit)/10 || v == 0 {
		a, _ := mulDiv(int64(r), 1, picoPerNano)
		return Amount(a).Exact()
	}
	unit := int64(1)
	for magnitude(int64(r))/uint64(unit) >= 1000 {
		unit *= 10
	}
	v, _ := mulDiv(int64(r), 1, unit)
	return strings.Replace("$"+format(v*unit, 12), "$-", "-$", 1)
}

// ForPeople formats a decimal string of a document ("1234.50") as [Amount.Dollars] does; digits
// under a nano-dollar are dropped. Text that is not an amount is returned unchanged.
func ForPeople(usd string) string {
	decimal := usd
	if whole, fraction, _ := strings.Cut(usd, "."); len(fraction) > 9 {
		decimal = whole + "." + fraction[:9]
	}
	a, err := ParseAmount(decimal)
	if err != nil {
		return usd
	}
	return a.Dollars()
}

// Thousands returns n with thousands separators: "1,284".
func Thousands(n int64) string {
	s := strconv.FormatUint(magnitude(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if n < 0 {
		s = "-" + s
	}
	return s
}

func sign(a Amount) string {
	if a < 0 {
		return "-"
	}
	return ""
}

// MarshalText writes every digit.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads the output of MarshalText.
func (a *Amount) UnmarshalText(b []byte) error {
	v, err := ParseAmount(string(b))
	if err != nil {
		return err
	}
	*a = v
	return nil
}

// MarshalText writes every digit.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the output of MarshalText.
func (r *Rate) UnmarshalText(b []byte) error {
	v, err := ParseRate(string(b))
	if err != nil {
		return err
	}
	*r = v
	return nil
}
