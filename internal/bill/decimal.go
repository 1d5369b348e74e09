package bill

import (
	"errors"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
)

// Decimal is an exact decimal number: a fixed-point part of 128 bits in units of
// 10^-27, which holds the costs of real bills, and a second part for what does not fit. Its
// zero value is 0. Compare with [Decimal.Cmp]: equal numbers can be held differently.
type Decimal struct {
	hi   int64
	lo   uint64
	rest *big.Int // units of 10^-maxScale; nil is 0
}

// Digits after the point: of the fixed part and of any number at all. Numbers of
// 10^maxWhole and more are refused.
const (
	fixedScale = 27
	maxScale   = 60
	maxWhole   = 30
	nanoScale  = 9
)

var (
	errNotDecimal = errors.New("is not a decimal number")
	errTooLong    = errors.New("has more than " + strconv.Itoa(maxWhole) +
		" digits before the point or " + strconv.Itoa(
		maxScale) + " after it")
)

// powers of ten as big integers, up to 10^maxScale.
var bigPower = func() (p [maxScale + 1]*big.Int) {
	p[0] = big.NewInt(1)
	for i := 1; i < len(p); i++ {
		p[i] = new(big.Int).Mul(p[i-1], big.NewInt(10))
	}
	return p
}()

var power64 = func() (p [20]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

// ParseDecimal reads a number as bills write it: an optional sign, digits with an
// optional point, an optional exponent ("-0.00015833330", "1.5E-7"). Separators,
// currency signs, NaN and infinities are errors, and so are numbers of more than 30
// digits before the point or 60 after it.
func ParseDecimal[T string | []byte](text T) (Decimal, error) {
	i, neg := 0, false
	if i < len(text) && (text[i] == '-' || text[i] == '+') {
		neg = text[i] == '-'
		i++
	}
	first, point, digits := i, -1, 0
	var small uint64 // the digits so far, while they are at most 19
	significant := 0
	for ; i < len(text); i++ {
		c := text[i]
		switch {
		case c >= '0' && c <= '9':
			if significant > 0 || c != '0' {
				significant++
			}
			if significant <= 19 {
				small = small*10 + uint64(c-'0')
			}
			digits++
			continue
		case c == '.' && point < 0:
			point = i
			continue
		}
		break
	}
	if digits == 0 {
		return Decimal{}, errNotDecimal
	}
	last := i
	exponent := 0
	if i < len(text) {
		if text[i] != 'e' && text[i] != 'E' {
			return Decimal{}, errNotDecimal
		}
		e, err := strconv.Atoi(string(text[i+1:]))
		if err != nil || text[len(text)-1] < '0' {
			return Decimal{}, errNotDecimal
		}
		if e < -10*maxScale || e > 10*maxScale {
			if significant == 0 {
				return Decimal{}, nil
			}
			return Decimal{}, errTooLong
		}
		exponent = e
	}
	scale := -exponent
	if point >= 0 {
		scale += last - point - 1
	}
	if significant == 0 {
		return Decimal{}, nil
	}
	if zeros := max(0, -scale); significant+zeros <= 19 && scale <= fixedScale {
		if d, ok := fixed(small*power64[zeros], scale+zeros); ok {
			if neg {
				d = d.Neg()
			}
			return d, nil
		}
	}
	return parseLong(string(text[first:last]), scale, neg)
}

// fixed returns n × 10^-scale where it fits the fixed part.
func fixed(n uint64, scale int) (Decimal, bool) {
	up := fixedScale - scale
	hi, lo := uint64(0), n
	for up > 0 {
		step := min(up, 19)
		carry, low := bits.Mul64(lo, power64[step])
		over, high := bits.Mul64(hi, power64[step])
		sum, c := bits.Add64(high, carry, 0)
		if over != 0 || c != 0 || sum > 1<<62 {
			return Decimal{}, false
		}
		hi, lo, up = sum, low, up-step
	}
	return Decimal{hi: int64(hi), lo: lo}, true
}

func parseLong(digits string, scale int, neg bool) (Decimal, error) {
	digits = strings.TrimLeft(strings.Replace(digits, ".", "", 1), "0")
	for strings.HasSuffix(digits, "0") && scale > maxScale {
		digits, scale = digits[:len(digits)-1], scale-1
	}
	if scale > maxScale || len(digits)-scale > maxWhole {
		return Decimal{}, errTooLong
	}
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		return Decimal{}, errNotDecimal
	}
	if scale < 0 {
		n.Mul(n, bigPower[-scale])
		scale = 0
	}
	n.Mul(n, bigPower[maxScale-scale])
	if neg {
		n.Neg(n)
	}
	return fromBig(n), nil
}

// fromBig keeps n × 10^-maxScale in the fixed part if it fits there.
func fromBig(n *big.Int) Decimal {
	q, r := new(big.Int).QuoRem(n, bigPower[maxScale-fixedScale], new(big.Int))
	if r.Sign() != 0 || q.BitLen() > 126 {
		return Decimal{rest: n}
	}
	neg := q.Sign() < 0
	q.Abs(q)
	low := new(big.Int).And(q, maxUint64).Uint64()
	d := Decimal{hi: int64(q.Rsh(q, 64).Uint64()), lo: low}
	if neg {
		d = d.Neg()
	}
	return d
}

var maxUint64 = new(big.Int).SetUint64(1<<64 - 1)

// NewDecimal returns n × 10^-scale, as Parquet stores decimals. The scale is 0 to 60.
func NewDecimal(n *big.Int, scale int) (Decimal, error) {
	if scale < 0 || scale > maxScale {
		return Decimal{}, errTooLong
	}
	scaled := new(big.Int).Mul(n, bigPower[maxScale-scale])
	if new(big.Int).Abs(n).Cmp(bigPower[min(maxScale, maxWhole+scale)]) >= 0 {
		return Decimal{}, errTooLong
	}
	return fromBig(scaled), nil
}

// NewDecimal64 is [NewDecimal] of a number that fits 64 bits.
func NewDecimal64(n int64, scale int) (Decimal, error) {
	if scale >= 0 && scale <= fixedScale {
		neg, u := n < 0, uint64(n)
		if neg {
			u = -u
		}
		if d, ok := fixed(u, scale); ok {
			if neg {
				d = d.Neg()
			}
			return d, nil
		}
	}
	return NewDecimal(big.NewInt(n), scale)
}

// Add returns d + o.
func (d Decimal) Add(o Decimal) Decimal {
	lo, carry := bits.Add64(d.lo, o.lo, 0)
	hi, _ := bits.Add64(uint64(d.hi), uint64(o.hi), carry)
	if sum := int64(hi); (d.hi < 0) != (o.hi < 0) || (sum < 0) == (d.hi < 0) {
		if d.rest == nil && o.rest == nil {
			return Decimal{hi: sum, lo: lo}
		}
		if d.rest == nil || o.rest == nil {
			rest := d.rest
			if rest == nil {
				rest = o.rest
			}
			return Decimal{hi: sum, lo: lo, rest: rest}
		}
		return Decimal{hi: sum, lo: lo, rest: new(big.Int).Add(d.rest, o.rest)}
	}
	return Decimal{rest: new(big.Int).Add(d.big(), o.big())}
}

// Neg returns -d.
func (d Decimal) Neg() Decimal {
	lo, borrow := bits.Sub64(0, d.lo, 0)
	hi, _ := bits.Sub64(0, uint64(d.hi), borrow)
	n := Decimal{hi: int64(hi), lo: lo}
	if d.hi == -1<<63 {
		n = Decimal{rest: new(big.Int).Neg(Decimal{hi: d.hi, lo: d.lo}.big())}
	}
	if d.rest != nil {
		n = n.Add(Decimal{rest: new(big.Int).Neg(d.rest)})
	}
	return n
}

// Sub returns d - o.
func (d Decimal) Sub(o Decimal) Decimal { return d.Add(o.Neg()) }

// Sign returns -1, 0 or 1.
func (d Decimal) Sign() int {
	if d.rest != nil {
		return d.big().Sign()
	}
	switch {
	case d.hi < 0:
		return -1
	case d.hi == 0 && d.lo == 0:
		return 0
	}
	return 1
}

// Cmp returns -1, 0 or 1 as d is less than, equal to or greater than o.
func (d Decimal) Cmp(o Decimal) int { return d.Sub(o).Sign() }

// big returns d in units of 10^-maxScale.
func (d Decimal) big() *big.Int {
	n := new(big.Int).Lsh(big.NewInt(d.hi), 64)
	n.Add(n, new(big.Int).SetUint64(d.lo))
	n.Mul(n, bigPower[maxScale-fixedScale])
	if d.rest != nil {
		n.Add(n, d.rest)
	}
	return n
}

// String returns every digit, without trailing zeros after the point: "11.15367699036",
// "0", "-0.5".
func (d Decimal) String() string {
	if d.rest == nil && d.hi != -1<<63 {
		return d.fixedString()
	}
	n := d.big()
	neg := n.Sign() < 0
	return pointed(n.Abs(n).String(), maxScale, neg)
}

// fixedString is String of a number without rest.
func (d Decimal) fixedString() string {
	neg := d.hi < 0
	if neg {
		d = d.Neg()
	}
	high, low := bits.Div64(uint64(d.hi), d.lo, power64[19]) // hi is under 2^63, and so under 10^19
	var buffer [40]byte
	digits := buffer[:0]
	if high > 0 {
		digits = strconv.AppendUint(digits, high, 10)
		for p := power64[18]; p > low && p > 1; p /= 10 {
			digits = append(digits, '0')
		}
	}
	return pointed(string(strconv.AppendUint(digits, low, 10)), fixedScale, neg)
}

// pointed returns digits with a point before the last scale of them.
func pointed(digits string, scale int, neg bool) string {
	if missing := scale + 1 - len(digits); missing > 0 {
		digits = zeros[:missing] + digits
	}
	whole, frac := digits[:len(digits)-scale], strings.TrimRight(digits[len(digits)-scale:], "0")
	if frac != "" {
		whole += "." + frac
	}
	if neg {
		whole = "-" + whole
	}
	return whole
}

var zeros = strings.Repeat("0", maxScale+1)

// perNano is a nano-dollar in units of the fixed part, and of any number.
var (
	perNanoFixed = power64[fixedScale-nanoScale]
	perNanoBig   = bigPower[maxScale-nanoScale]
)

// floor returns the whole nano-dollars at or below d, and what is left over: 0 or more
// and under one nano-dollar, held in units of 10^-27 from the nano-dollar's own zero.
func (d Decimal) floor() (money.Amount, Decimal, error) {
	if d.rest == nil {
		neg := d.hi < 0
		m := d
		if neg {
			m = d.Neg()
		}
		if m.rest != nil || uint64(m.hi) >= perNanoFixed/2 {
			return 0, Decimal{}, money.ErrOverflow
		}
		q, r := bits.Div64(uint64(m.hi), m.lo, perNanoFixed)
		switch {
		case neg && r > 0:
			return -money.Amount(q) - 1, Decimal{lo: perNanoFixed - r}, nil
		case neg:
			return -money.Amount(q), Decimal{}, nil
		}
		return money.Amount(q), Decimal{lo: r}, nil
	}
	q, r := new(big.Int).DivMod(d.big(), perNanoBig, new(big.Int))
	if !q.IsInt64() {
		return 0, Decimal{}, money.ErrOverflow
	}
	return money.Amount(q.Int64()), fromBig(r), nil
}

// beyond reports whether d is out of an amount's range.
func (d Decimal) beyond() bool {
	const most = 1 << 58 // × 2^64 × 10^-27 is 5.3 billion
	if d.rest == nil && d.hi < most && d.hi >= -most {
		return false
	}
	_, err := d.Amount()
	return err != nil
}

// half a nano-dollar.
var half = Decimal{lo: power64[fixedScale-nanoScale] / 2}

// Amount returns d rounded half to even to the nano-dollar, or money.ErrOverflow.
func (d Decimal) Amount() (money.Amount, error) {
	a, r, err := d.floor()
	if err != nil {
		return 0, err
	}
	if c := r.Cmp(half); c > 0 || (c == 0 && a&1 == 1) {
		return a.Add(1)
	}
	return a, nil
}
