package monitoring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/test/prometheus"
)

// shipped is the folder of the rules and their tests.
const shipped = "../../examples/monitoring"

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestScaleDividesDurations checks that durations in all their forms are divided, and nothing else
// is.
func TestScaleDividesDurations(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"how long it holds", "        for: 2m\n", "        for: 2000ms\n"},
		{"hours", "        for: 6h\n", "        for: 360000ms\n"},
		{"a group's interval", "    interval: 30s\n", "    interval: 500ms\n"},
		{"a range", "        expr: increase(a_total[15m]) > 2", "        expr: increase(a_total[15000ms]) > 2"},
		{"two ranges", "  expr: rate(a[1h]) / rate(b[1d])", "  expr: rate(a[60000ms]) / rate(b[1440000ms])"},
		{"time left", "  expr: a_seconds - time() < 14 * 86400", "  expr: a_seconds - time() < 20160"},
		{"a count", "  expr: a > 2 * b_seconds", "  expr: a > 2 * b_seconds"},
		{"a text", "  summary: \"for: 5m within 1h\"\n", "  summary: \"for: 5m within 1h\"\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Scale([]byte(tc.in), Factor)
			if err != nil || string(got) != tc.want {
				t.Errorf("%q is %q, %v; want %q", tc.in, got, err, tc.want)
			}
		})
	}
}

// TestScaleRefusesUnknownDurations checks that a rule with another form of duration is an error.
func TestScaleRefusesUnknownDurations(t *testing.T) {
	for _, expr := range []string{
		"a offset 1h > 0", "max_over_time(a[1h:1m]) > 0", "a - time() < 3600", "time() - a > 86400",
		"time() - timestamp(a) > 9", "increase(a[1h30m]) > 0", "increase(a[1s]) > 0",
	} {
		if got, err := Scale([]byte("        expr: "+expr+"\n"), Factor); err == nil {
			t.Errorf("%s is taken: %s", expr, got)
		}
	}
}

// TestScaledRulesPassScaledTests checks that the tests of the shipped rules, in seconds instead of
// minutes, pass for the scaled rules.
func TestScaledRulesPassScaledTests(t *testing.T) {
	prometheus.Need(t, "prometheus", "promtool")
	rules, err := Scale([]byte(read(t, filepath.Join(shipped, "curfew.rules.yml"))), Factor)
	if err != nil {
		t.Fatal(err)
	}
	tests := regexp.MustCompile(`((?:eval_time|interval): \d+)m\b`).
		ReplaceAllString(read(t, filepath.Join(shipped, "curfew.rules.test.yml")), "${1}s")
	times, value := regexp.MustCompile(`_expiry_timestamp_seconds.*values: .*`), regexp.MustCompile(`\b\d+x`)
	tests = times.ReplaceAllStringFunc(tests, func(line string) string {
		return value.ReplaceAllStringFunc(line, func(v string) string {
			n, err := strconv.Atoi(strings.TrimSuffix(v, "x"))
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%dx", n/Factor)
		})
	})
	// promtool looks back five minutes for an ended series, regardless of the scale; real servers
	// mark its end.
	tests = strings.ReplaceAll(tests, "_x25", "stale _x24")
	dir := t.TempDir()
	for name, text := range map[string]string{"curfew.rules.yml": string(rules), "tests.yml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	test := exec.CommandContext(t.Context(), "promtool", "test", "rules", filepath.Join(dir, "tests.yml"))
	if out, err := test.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
