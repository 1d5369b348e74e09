package jobs_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestOutputOfAllAttemptsIsKept prints megabytes in an attempt that is killed, and in its successor: `run`
// and `logs` show each line of both once and in order, when the machines are gone.
func TestOutputOfAllAttemptsIsKept(t *testing.T) {
	t.Parallel()
	const lines = 50_000
	b := newBench(t)
	b.write("loud.yaml", fmt.Sprintf(`apiVersion: curfew.job/v1
name: loud
resources: {cpus: 1}
max_runtime: 1h
run: |
  seq -f "attempt $CURFEW_ATTEMPT prints line %%.0f of a loud training" %d
  [ $CURFEW_ATTEMPT = 2 ] || kill -9 $$
`, lines))
	printed, err := b.output("run", "loud.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, "run", string(printed), lines)
	log, err := b.output("logs", "loud")
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, "logs", string(log), lines)
	followed, err := b.output("logs", "-f", "loud")
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, "logs -f", string(followed), lines)
	if !strings.Contains(string(followed), "attempt 1 ended: interrupted") {
		t.Error("the first attempt was not interrupted")
	}
}

// checkLines checks that an output has each line of two attempts once and in order.
func checkLines(t *testing.T, command, text string, lines int) {
	t.Helper()
	want := [2]int{1, 1}
	for line := range strings.Lines(text) {
		_, rest, found := strings.Cut(line, "attempt ")
		var attempt, n int
		if _, err := fmt.Sscanf(rest, "%d prints line %d of a loud training", &attempt, &n); !found || err != nil {
			continue
		}
		if attempt < 1 || attempt > 2 || n != want[attempt-1] {
			t.Errorf("%s: attempt %d prints line %d, want %v", command, attempt, n, want)
			return
		}
		want[attempt-1]++
	}
	if want != [2]int{lines + 1, lines + 1} {
		t.Errorf("%s: the attempts printed up to line %v of %d", command, want, lines)
	}
}
