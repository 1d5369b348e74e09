package plain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Number formats a measured value with at most digits decimals, no trailing zeros and thousands
// separators: "0.4", "12,500". NaN and infinities are "–".
func Number(v float64, digits int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	s, sign := strings.CutPrefix(Decimal(v, digits), "-")
	whole, fraction, point := strings.Cut(s, ".")
	if n, err := strconv.ParseInt(whole, 10, 64); err == nil {
		whole = money.Thousands(n)
	}
	if sign {
		whole = "-" + whole
	}
	if point {
		whole += "." + fraction
	}
	return whole
}

// Decimal formats a value as [Number] does but without separators, for evidence that programs also
// read: "12500".
func Decimal(v float64, digits int) string {
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}

// Percent formats a value that is already in percent, with at most digits decimals: 37.5 is "38%"
// or "37.5%".
func Percent(v float64, digits int) string { return Number(v, digits) + "%" }

// Share formats a share (0 to 1) in percent with at most digits decimals. A share between 0 and 1
// is never rounded to either end: "<1%", ">99.9%".
func Share(share float64, digits int) string {
	step := math.Pow10(-digits)
	switch v := 100 * share; {
	case v > 0 && v < step/2:
		return "<" + Percent(step, digits)
	case v < 100 && v >= 100-step/2:
		return ">" + Percent(100-step, digits)
	default:
		return Percent(v, digits)
	}
}

// Change formats a relative change with its sign: 0.12 is "+12%".
func Change(share float64) string {
	s := Percent(100*share, 0)
	if share > 0 && s != "0%" {
		s = "+" + s
	}
	return s
}

// Significant formats a value with at least digits significant digits; its whole part is never
// rounded. Significant(1.917808, 3) is "1.92".
func Significant(v float64, digits int) string {
	decimals := 0
	if size := math.Abs(v); size > 0 {
		decimals = min(max(0, digits-1-int(math.Floor(math.Log10(size)))), 12)
	}
	return Number(v, decimals)
}

// Size formats bytes in binary units: "84 TiB", "1.5 GiB".
func Size[N int64 | float64](bytes N) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(bytes), 0
	for math.Abs(v) >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	return Number(v, 1) + " " + units[i]
}

// MeteredHours returns a time of so many seconds for which something was metered, of one resource or
// of many together: "6,292 metered hours", "40m of metered time".
func MeteredHours(seconds int64) string {
	if seconds < 3600 {
		return Duration(time.Duration(seconds)*time.Second) + " of metered time"
	}
	return Count(seconds/3600, "metered hour")
}

// Count formats a number of things: "1 machine", "1,284 machines". Pass an irregular plural as the
// last argument: Count(2, "child", "children").
func Count[N int | int64](n N, noun string, plural ...string) string {
	switch {
	case n == 1:
	case len(plural) > 0:
		noun = plural[0]
	default:
		noun = Plural(noun)
	}
	return money.Thousands(int64(n)) + " " + noun
}

// Few joins the first five names and counts the rest.
func Few(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// Plural returns the regular plural of a noun: "machines", "entries", "processes".
func Plural(noun string) string {
	stem, y := strings.CutSuffix(noun, "y")
	switch {
	case y && stem != "" && !strings.ContainsAny(stem[len(stem)-1:], "aeiou"):
		return stem + "ies"
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "x"), strings.HasSuffix(noun, "ch"), strings.HasSuffix(
		noun, "sh"):
		return noun + "es"
	}
	return noun + "s"
}

// Duration formats a duration in its two largest units: "14d", "3d 9h", "10h 2m", "45s". It has at
// most one decimal under a minute, and is in milliseconds under a second.
func Duration(d time.Duration) string {
	switch {
	case d == math.MinInt64:
		return "-" + Duration(math.MaxInt64)
	case d < 0:
		return "-" + Duration(-d)
	case d < time.Second-50*time.Millisecond && d > 0:
		return Number(float64(d)/float64(time.Millisecond), 0) + "ms"
	case d < time.Minute-50*time.Millisecond:
		return Number(d.Seconds(), 1) + "s"
	case d < time.Minute:
		d = time.Minute
	}
	for _, u := range []struct {
		large, small string
		size, part   time.Duration
	}{
		{"d", "h", 24 * time.Hour, time.Hour}, {"h", "m", time.Hour, time.Minute},
		{"m", "s", time.Minute, time.Second},
	} {
		if d < u.size {
			continue
		}
		out := money.Thousands(int64(d/u.size)) + u.large
		if rest := d % u.size / u.part; rest > 0 {
			out += " " + strconv.FormatInt(int64(rest), 10) + u.small
		}
		return out
	}
	return "0s"
}

// Date formats a day: "2026-11-22".
func Date(t time.Time) string { return t.Format(time.DateOnly) }

// Month formats a month: "2026-11".
func Month(t time.Time) string { return t.Format("2006-01") }

// Time formats a time in UTC to the minute, with its zone: "2026-11-22 15:04 UTC".
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// When formats a time relative to now: only the clock if it is within 20 hours ("15:04:05 UTC"),
// otherwise as [Time] does. The zero time is "".
func When(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.Sub(now).Abs() < 20*time.Hour:
		return t.UTC().Format("15:04:05 MST")
	}
	return Time(t)
}
