package usage

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Reasons why a field is invalid, without the column's name and the text.
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

// pow10 holds the powers of ten that are exact as float64, so that dividing a 15-digit mantissa by
// them rounds once, correctly.
var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// parseNumber parses a decimal number like strconv.ParseFloat, but rejects hexadecimal,
// underscores, infinities and NaN.
func parseNumber(b []byte) (float64, error) {
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
				return parseNumberSlow(b)
			}
		case c == '.' && !point:
			point = true
		default:
			return parseNumberSlow(b)
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

// number parses a value of the column. Bits may be hexadecimal, as nvidia-smi writes them: "0x04".
func (c *column) number(b []byte) (float64, error) {
	if c.signal == Throttle && bytes.HasPrefix(b, []byte("0x")) {
		bits, err := strconv.ParseUint(string(b[2:]), 16, 53)
		if err != nil {
			return 0, errNotNumber
		}
		return float64(bits), nil
	}
	return parseNumber(b)
}

func parseNumberSlow(b []byte) (float64, error) {
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

// isUnmeasured reports whether a field means "not measured": it is empty, in brackets as nvidia-smi
// writes it, or one of the words for no value.
func isUnmeasured(b []byte) bool {
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

// isReadError reports whether an unmeasured field is an error of the meter, such as "[Unknown
// Error]", "[GPU is lost]" or "ERR!" of nvidia-smi.
func isReadError(b []byte) bool {
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

// overshoot is the relative excess over its limit that a percentage or share may have: meters that
// divide two counters overshoot by rounding.
const overshoot = 0.01

// whyImpossible returns why a value in a signal's unit is not a measurement (see [Signal.Check]).
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

// maxSeconds is the limit of plausible times in seconds: the year 5138, or 1973 if it were
// milliseconds.
const maxSeconds = 1e11

// sinceEpoch parses a time as seconds from epoch.
func sinceEpoch(b []byte, epoch time.Time) (time.Time, error) {
	whole, i := int64(0), 0
	for ; i < len(b) && i < 15 && b[i] >= '0' && b[i] <= '9'; i++ {
		whole = whole*10 + int64(b[i]-'0')
	}
	nanos, ok := parseFraction(b[i:])
	if i == 0 || !ok { // an exponent, or not a number
		v, err := parseNumberSlow(b)
		if err != nil {
			return time.Time{}, errNotTime
		}
		return secondsSince(v, epoch)
	}
	if whole >= maxSeconds {
		return time.Time{}, errMillis
	}
	return addSeconds(epoch, whole, nanos), nil
}

// secondsSince returns the time v seconds after epoch.
func secondsSince(v float64, epoch time.Time) (time.Time, error) {
	switch {
	case v < 0:
		return time.Time{}, errNegative
	case v >= maxSeconds:
		return time.Time{}, errMillis
	case math.IsNaN(v):
		return time.Time{}, errNotTime
	}
	whole, part := math.Modf(v)
	return addSeconds(epoch, int64(whole), int64(math.Round(part*1e9))), nil
}

func addSeconds(epoch time.Time, whole, nanos int64) time.Time {
	if epoch.IsZero() {
		return time.Unix(whole, nanos).UTC()
	}
	return time.Unix(epoch.Unix()+whole, int64(epoch.Nanosecond())+nanos).UTC()
}

// parseFraction parses "" or "." and digits as nanoseconds, dropping finer digits.
func parseFraction(b []byte) (int64, bool) {
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

// parseDate parses "2006-01-02T15:04:05.999Z", with a space for the T, any offset for the Z, or
// neither. nvidia-smi separates the date with slashes. zoned is false for a time without a zone,
// which is returned as if it were UTC. ok is false if the text does not look like a date.
func parseDate(b []byte, separator byte) (t time.Time, zoned, ok bool, err error) {
	const layout = "2006-01-02T15:04:05"
	if len(b) < 5 || b[4] != separator {
		return time.Time{}, false, false, nil
	}
	if len(b) < len(layout) || b[7] != separator || (b[10] != 'T' && b[10] != ' ' && b[10] != 't') || b[13] != ':' ||
		b[16] != ':' {
		return time.Time{}, false, false, errNotTime
	}
	year, okY := fourDigits(b[0:], b[2:])
	month, okM := twoDigits(b[5:])
	day, okD := twoDigits(b[8:])
	hour, okH := twoDigits(b[11:])
	minute, okMin := twoDigits(b[14:])
	second, okS := twoDigits(b[17:])
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
	nanos, okF := parseFraction(rest[:end])
	if !okF {
		return time.Time{}, false, false, errNotTime
	}
	offset := 0
	switch zone := rest[end:]; {
	case len(zone) == 0:
		return time.Date(year, time.Month(month), day, hour, minute, second, int(nanos), time.UTC), false, true, nil
	case len(zone) == 1 && (zone[0] == 'Z' || zone[0] == 'z'):
	case len(zone) == 6 && (zone[0] == '+' || zone[0] == '-') && zone[3] == ':':
		h, okH := twoDigits(zone[1:])
		m, okM := twoDigits(zone[4:])
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

func twoDigits(b []byte) (int, bool) {
	return int(b[0]-'0')*10 + int(b[1]-'0'), b[0] >= '0' && b[0] <= '9' && b[1] >= '0' && b[1] <= '9'
}

func fourDigits(hi, lo []byte) (int, bool) {
	h, okH := twoDigits(hi)
	l, okL := twoDigits(lo)
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
