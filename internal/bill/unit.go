package bill

import (
	"math/big"
	"strings"
)

// units of data, as bills name them in lower case, in gigabytes of 10^9 bytes: times
// and by ten to the power of scale. FOCUS ("Unit Format") has decimal and binary units;
// Google Cloud writes its own out.
var units = map[string]struct{ times, scale int64 }{
	"b": {1, 9}, "byte": {1, 9}, "kb": {1, 6}, "mb": {1, 3}, "gb": {1, 0}, "gigabyte": {1, 0}, "tb": {1000, 0},
	"terabyte": {1000, 0},
	"kib":      {1 << 10, 9}, "kibibyte": {1 << 10, 9}, "mib": {1 << 20, 9}, "mebibyte": {1 << 20, 9},
	"gib": {1 << 30, 9}, "gibibyte": {1 << 30, 9},
	"tib": {1 << 40, 9}, "tebibyte": {1 << 40, 9},
}

// gigabytes returns an amount of data in gigabytes; 0 if the unit is none of data.
func gigabytes(quantity Decimal, unit string) Decimal {
	if unit == "GB" || quantity.Sign() == 0 {
		return quantity
	}
	u, ok := units[strings.TrimSuffix(strings.ToLower(unit), "s")]
	switch {
	case !ok:
		return Decimal{}
	case u.times == 1 && u.scale == 0:
		return quantity
	}
	n := quantity.big()
	n.Mul(n, big.NewInt(u.times))
	return fromBig(n.Quo(n, bigPower[u.scale]))
}
