package usage

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Reasons why a field cannot be read; the column's name and the text come before
// them.
var (
	errNotNumber = errors.New("is not a number")
	errNotTime   = errors.New("is neither an RFC 3339 time nor a number of seconds")
	errNoZone    = errors.New("has no time zone: an RFC 3339 time ends in Z or an offset")
	errMillis    = errors.New("is too large for seconds since 1970 (are these milliseconds?)")
	errNegative  = errors.New("is negative")
	errPercent   = errors.New("is over 100: a percentage of 0 to 100 is expected")
	errShare     = errors.New("is over 1: a share of 0 to 1 is expected")
	errMemory    = errors.New("is over 8 TiB: bytes of one GPU are expected")
	errPower     = errors.New("is over 10,000: watts of one GPU are expected")
	errCut       = errors.New("is cut short")
	errGap       = errors.New("does not exist in the time zone: its clocks went forward there")

	errTemperature = errors.New("is over 200: degrees Celsius are expected")
)

// pow10 are the powers of ten that a float64 holds exactly and that a mantissa of
// 15 digits may be divided by with one correct rounding.
var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// number reads a decimal number. It differs from strconv.ParseFloat only in that
// hexadecimal, underscores, infinities and NaN are errors.
func number(b []byte) (float64, error) {
	i, neg := 0, false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		i, neg = 1, b[0] == '-'
	}
	var mantissa int64
	digits, fraction, point := 0, 0, false
	for ; i < len(b); i++ {
		c := b[i]
		switch {
		case c >= '0' && c <= '9':
			mantissa = mantissa*10 + int64(c-'0')
			digits++
			if point {
				fraction++
			}
			if digits > 15 {
				return slowNumber(b)
			}
		case c == '.' && !point:
			point = true
		default:
			return slowNumber(b)
		}
	}
	if digits == 0 {
		return 0, errNotNumber
	}
	v := float64(mantissa) / pow10[fraction]
	if neg {
		v = -v
	}
	return v, nil
}

// number reads a value of the column. Bits may be written as nvidia-smi does: "0x04".
func (c *column) number(b []byte) (float64, error) {
	if c.signal == Throttle && bytes.HasPrefix(b, []byte("0x")) {
		bits, err := strconv.ParseUint(string(b[2:]), 16, 53)
		if err != nil {
			return 0, errNotNumber
		}
		return float64(bits), nil
	}
	return number(b)
}

func slowNumber(b []byte) (float64, error) {
	for _, c := range b {
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return 0, errNotNumber
		}
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return 0, errNotNumber
	}
	return v, nil
}

// unmeasured says whether a field stands for "not measured": it is empty, in
// brackets as nvidia-smi writes it, or one of the words for no value.
func unmeasured(b []byte) bool {
	if len(b) == 0 || b[0] == '[' && b[len(b)-1] == ']' {
		return true
	}
	const longest = len("not supported")
	switch b[0] | 0x20 {
	case 'e', 'n', 'u', '-':
	default:
		return false
	}
	if len(b) > longest {
		return false
	}
	var lower [longest]byte
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		lower[i] = c
	}
	switch string(lower[:len(b)]) {
	case "nan", "n/a", "na", "null", "none", "not supported", "-", "err!", "error", "unknown error", "unknown":
		return true
	}
	return false
}

// failed says whether an unmeasured field tells of an error, as nvidia-smi writes
// "[Unknown Error]", "[GPU is lost]", "ERR!" and the like where it could not read a value.
func failed(b []byte) bool {
	b = bytes.Trim(b, "[]")
	for _, none := range []string{
		"", "n/a", "na", "nan", "null", "none", "-", "not supported", "not available", "not found",
		"insufficient permissions", "no permission",
	} {
		if strings.EqualFold(string(b), none) {
			return false
		}
	}
	return true
}

// noise is how far over its limit a percentage or a share may be read, as a part
// of the limit: meters that divide two counters overshoot by rounding.
const noise = 0.01

// whyImpossible says why a value in a signal's unit is no measurement (see [Signal.Check]).
func whyImpossible(s Signal, v float64) error {
	switch limit := s.limit(); {
	case v < 0:
		return errNegative
	case limit == 100:
		return errPercent
	case limit == 1:
		return errShare
	case limit == maxPower:
		return errPower
	case limit == maxTemperature:
		return errTemperature
	case limit == maxMemory:
		return errMemory
	}
	return errNotNumber
}

// maxSeconds is the first number of seconds that is not taken for a time: in the
// year 5138, and in 1973 if it were milliseconds.
const maxSeconds = 1e11

// sinceEpoch reads a time as seconds from epoch.
func sinceEpoch(b []byte, epoch time.Time) (time.Time, error) {
	whole, i := int64(0), 0
	for ; i < len(b) && i < 15 && b[i] >= '0' && b[i] <= '9'; i++ {
		whole = whole*10 + int64(b[i]-'0')
	}
	nanos, ok := fraction(b[i:])
	if i == 0 || !ok { // an exponent, or no number at all
		v, err := slowNumber(b)
		if err != nil {
			return time.Time{}, errNotTime
		}
		return seconds(v, epoch)
	}
	if whole >= maxSeconds {
		return time.Time{}, errMillis
	}
	return since(epoch, whole, nanos), nil
}

// seconds returns the time v seconds from epoch.
func seconds(v float64, epoch time.Time) (time.Time, error) {
	switch {
	case v < 0:
		return time.Time{}, errNegative
	case v >= maxSeconds:
		return time.Time{}, errMillis
	case math.IsNaN(v):
		return time.Time{}, errNotTime
	}
	whole, part := math.Modf(v)
	return since(epoch, int64(whole), int64(math.Round(part*1e9))), nil
}

func since(epoch time.Time, whole, nanos int64) time.Time {
	if epoch.IsZero() {
		return time.Unix(whole, nanos).UTC()
	}
	return time.Unix(epoch.Unix()+whole, int64(epoch.Nanosecond())+nanos).UTC()
}

// fraction reads "" or "." and digits as nanoseconds, cutting what is finer.
func fraction(b []byte) (int64, bool) {
	if len(b) == 0 {
		return 0, true
	}
	if b[0] != '.' || len(b) == 1 {
		return 0, false
	}
	nanos, scale := int64(0), int64(100_000_000)
	for _, c := range b[1:] {
		if c < '0' || c > '9' {
			return 0, false
		}
		nanos += int64(c-'0') * scale
		scale /= 10
	}
	return nanos, true
}

// date reads "2006-01-02T15:04:05.999Z", with a space for the T, any offset for
// the Z, or neither. The date's separator is given: nvidia-smi writes slashes. zoned
// is false for a time without a zone, which is returned as if it were UTC. ok is false when
// the text does not look like a date at all.
func date(b []byte, separator byte) (t time.Time, zoned, ok bool, err error) {
	const layout = "2006-01-02T15:04:05"
	if len(b) < 5 || b[4] != separator {
		return time.Time{}, false, false, nil
	}
	if len(b) < len(layout) || b[7] != separator || (b[10] != 'T' && b[10] != ' ' && b[10] != 't') || b[13] != ':' ||
		b[16] != ':' {
		return time.Time{}, false, false, errNotTime
	}
	year, okY := pair(b[0:], b[2:])
	month, okM := two(b[5:])
	day, okD := two(b[8:])
	hour, okH := two(b[11:])
	minute, okMin := two(b[14:])
	second, okS := two(b[17:])
	if !okY || !okM || !okD || !okH || !okMin || !okS || month < 1 || month > 12 || day < 1 ||
		day > daysIn(year, month) ||
		hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false, false, errNotTime
	}
	rest := b[len(layout):]
	end := 0
	if len(rest) > 0 && rest[0] == '.' {
		for end = 1; end < len(rest) && rest[end] >= '0' && rest[end] <= '9'; end++ {
		}
	}
	nanos, okF := fraction(rest[:end])
	if !okF {
		return time.Time{}, false, false, errNotTime
	}
	offset := 0
	switch zone := rest[end:]; {
	case len(zone) == 0:
		return time.Date(year, time.Month(month), day, hour, minute, second, int(nanos), time.UTC), false, true, nil
	case len(zone) == 1 && (zone[0] == 'Z' || zone[0] == 'z'):
	case len(zone) == 6 && (zone[0] == '+' || zone[0] == '-') && zone[3] == ':':
		h, okH := two(zone[1:])
		m, okM := two(zone[4:])
		if !okH || !okM || h > 23 || m > 59 {
			return time.Time{}, false, false, errNotTime
		}
		if offset = (h*60 + m) * 60; zone[0] == '-' {
			offset = -offset
		}
	default:
		return time.Time{}, false, false, errNotTime
	}
	t = time.Date(year, time.Month(month), day, hour, minute, second-offset, int(nanos), time.UTC)
	return t, true, true, nil
}

func two(b []byte) (int, bool) {
	return int(b[0]-'0')*10 + int(b[1]-'0'), b[0] >= '0' && b[0] <= '9' && b[1] >= '0' && b[1] <= '9'
}

func pair(hi, lo []byte) (int, bool) {
	h, okH := two(hi)
	l, okL := two(lo)
	return h*100 + l, okH && okL
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}
