package spec

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
)

var (
	durationForm = lazyregexp.New(`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|w|d|h|m|s))+$`)
	sizePattern  = lazyregexp.New(`^([0-9]{1,19})(?:\.([0-9]{1,9}))? ?([KMGTP]i?B|B)$`)
	gpuPattern   = lazyregexp.New(`^([A-Za-z][A-Za-z0-9._-]{0,63})(?::([0-9]{1,4}))?$`)
)

// maxDuration bounds a duration in a file. A longer one is a mistake in the unit.
const maxDuration = 366 * 24 * time.Hour

// parseDuration reads "30m", "1d12h" or "1.5h": numbers, each with a unit, over 0 and up to a year.
// The result is rounded to milliseconds.
func parseDuration(s string) (time.Duration, error) {
	if !durationForm.MatchString(s) {
		return 0, fmt.Errorf("%q is not a duration such as 30m, 12h or 7d", s)
	}
	d, err := plain.ParseDuration(s)
	if err != nil || d > maxDuration {
		return 0, fmt.Errorf("%q is longer than a year; a duration is written like 30m, 12h or 7d", s)
	}
	if d = d.Round(time.Millisecond); d <= 0 {
		return 0, fmt.Errorf("%q is not a duration over 0 such as 30m, 12h or 7d", s)
	}
	return d, nil
}

// durationText formats a duration for parseDuration; "" for 0.
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return plain.ExactDuration(d)
}

// sizeUnits are bytes by the unit of a size.
var sizeUnits = map[string]int64{
	"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
}

// parseSize reads "200GiB" (2^30 bytes each) or "1.5TB" (10^12) as a positive number of bytes,
// rounded up.
func parseSize(s string) (int64, error) {
	m := sizePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a size such as 200GiB or 1.5TB", s)
	}
	v, ok := scaled(m[1], m[2], sizeUnits[m[3]])
	if !ok || v <= 0 || v > 1<<60 {
		return 0, fmt.Errorf("%q is not a size over 0 and up to 1024PiB", s)
	}
	return v, nil
}

// sizeText formats a size for parseSize; "" for 0.
func sizeText(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	for _, u := range []string{"PiB", "TiB", "GiB", "MiB", "KiB"} {
		if bytes%sizeUnits[u] == 0 {
			return strconv.FormatInt(bytes/sizeUnits[u], 10) + u
		}
	}
	return strconv.FormatInt(bytes, 10) + "B"
}

// scaled returns the decimal number whole.fraction times unit, rounded up, and false on overflow.
func scaled(whole, fraction string, unit int64) (int64, bool) {
	n, err := strconv.ParseUint(whole+fraction, 10, 64)
	if err != nil {
		return 0, false
	}
	scale := uint64(math.Pow10(len(fraction)))
	hi, lo := bits.Mul64(n, uint64(unit))
	if hi >= scale {
		return 0, false
	}
	v, r := bits.Div64(hi, lo, scale)
	if r > 0 {
		v++
	}
	return int64(v), v <= math.MaxInt64
}

// maxGPUs bounds the accelerators of one node. More are a mistake.
const maxGPUs = 1024

// parseGPUs reads "A100:8" or "A100-80GB": the accelerator and how many.
func parseGPUs(s string) (name string, count int, err error) {
	m := gpuPattern.FindStringSubmatch(s)
	if m == nil {
		return "", 0, fmt.Errorf(`gpus %q is not an accelerator and a number such as "A100:8" or "A100-80GB:4"`, s)
	}
	count = 1
	if m[2] != "" {
		count, _ = strconv.Atoi(m[2]) // four digits
	}
	if count < 1 || count > maxGPUs {
		return "", 0, fmt.Errorf("gpus %q: the number is from 1 to %d", s, maxGPUs)
	}
	return strings.Trim(m[1], ":"), count, nil
}
