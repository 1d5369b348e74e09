// Package monitoring tests the alert rules of examples/monitoring with real faults: a service,
// Prometheus and Alertmanager, with every duration of the rules divided by one factor.
package monitoring

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Factor divides every duration of the rules and of the servers that evaluate them: an hour takes a minute.
const Factor = 60

// Patterns of durations in a file of rules.
var (
	// held matches how long a condition must hold before it is an alert.
	held = regexp.MustCompile(`(?m)^(\s*(?:- )?(?:for|keep_firing_for|interval): )(\S+)$`)
	// expression matches a line with an expression in PromQL.
	expression = regexp.MustCompile(`(?m)^\s*(?:- )?expr: .*$`)
	// span matches a range selector, and ahead a time that is compared with now, in days of 86400
	// seconds.
	span  = regexp.MustCompile(`\[(\w+)\]`)
	ahead = regexp.MustCompile(`( - time\(\) [<>]=? )(\d+) \* 86400\b`)
	// left matches other durations in an expression.
	left = regexp.MustCompile(`\b\d+(?:ms|[smhdwy])\b|\boffset\b|\b(?:60|3600|86400)\b|\[\w+:|\btimestamp\(`)
	unit = regexp.MustCompile(`^(\d+)([smhd])$`)
)

// Scale divides the durations in a file of alert rules: hold times, range selectors, and times that
// are compared with now. It returns an error for durations of another form.
func Scale(rules []byte, factor int64) ([]byte, error) {
	var failure error
	divided := func(text []byte) []byte {
		d, err := duration(string(text))
		if err == nil && d%(time.Duration(factor)*time.Millisecond) != 0 {
			err = fmt.Errorf("%s cannot be divided by %d into whole milliseconds", text, factor)
		}
		if err != nil && failure == nil {
			failure = err
		}
		return fmt.Appendf(nil, "%dms", (d / time.Duration(factor)).Milliseconds())
	}
	out := held.ReplaceAllFunc(rules, func(line []byte) []byte {
		m := held.FindSubmatch(line)
		return append(bytes.Clone(m[1]), divided(m[2])...)
	})
	out = expression.ReplaceAllFunc(out, func(line []byte) []byte {
		rest := ahead.ReplaceAll(span.ReplaceAll(line, nil), []byte("$1"))
		if m := left.Find(rest); m != nil && failure == nil {
			failure = fmt.Errorf("%s: %q is a duration of a form that is not divided", bytes.TrimSpace(line), m)
		}
		line = span.ReplaceAllFunc(line, func(s []byte) []byte {
			return fmt.Appendf(nil, "[%s]", divided(span.FindSubmatch(s)[1]))
		})
		return ahead.ReplaceAllFunc(line, func(s []byte) []byte {
			m := ahead.FindSubmatch(s)
			days, err := strconv.ParseInt(string(m[2]), 10, 64)
			if seconds := days * 86400; err == nil && seconds%factor == 0 {
				return fmt.Appendf(nil, "%s%d", m[1], seconds/factor)
			}
			if failure == nil {
				failure = fmt.Errorf("%s: it cannot be divided by %d", s, factor)
			}
			return s
		})
	})
	return out, failure
}

// duration reads a duration of one unit, such as 5m.
func duration(text string) (time.Duration, error) {
	m := unit.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%q is no duration of one unit, such as 5m", text)
	}
	n, err := strconv.ParseInt(m[1], 10, 32)
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	return time.Duration(n) * units[m[2]], err
}
