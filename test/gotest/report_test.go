package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const eventsOfRun = `{"Action":"start","Package":"github.com/curfew-dev/curfew/internal/a"}
{"Action":"output","Package":"github.com/curfew-dev/curfew/internal/a","Test":"TestQuiet","Output":"    a_test.go:1: of a test that passes\n"}
{"Action":"pass","Package":"github.com/curfew-dev/curfew/internal/a","Test":"TestQuiet","Elapsed":1.5}
{"Action":"output","Package":"github.com/curfew-dev/curfew/internal/a","Test":"TestSkipped/deep","Output":"    a_test.go:2: no GPU\n"}
{"Action":"skip","Package":"github.com/curfew-dev/curfew/internal/a","Test":"TestSkipped/deep","Elapsed":0}
{"Action":"output","Package":"github.com/curfew-dev/curfew/internal/a","Output":"PASS\n"}
{"Action":"output","Package":"github.com/curfew-dev/curfew/internal/a","Output":"ok  \tgithub.com/curfew-dev/curfew/internal/a\t2.000s\n"}
{"Action":"pass","Package":"github.com/curfew-dev/curfew/internal/a","Elapsed":2}
{"Action":"output","Package":"github.com/curfew-dev/curfew/internal/b","Test":"TestBroken","Output":"    b_test.go:3: got 1, want 2\n"}
{"Action":"fail","Package":"github.com/curfew-dev/curfew/internal/b","Test":"TestBroken","Elapsed":3}
{"Action":"output","Package":"github.com/curfew-dev/curfew/internal/b","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"github.com/curfew-dev/curfew/internal/b","Output":"FAIL\tgithub.com/curfew-dev/curfew/internal/b\t3.000s\n"}
{"Action":"fail","Package":"github.com/curfew-dev/curfew/internal/b","Elapsed":3}
{"Action":"skip","Package":"github.com/curfew-dev/curfew/internal/none"}
`

func TestReportShowsFailuresOnly(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	for _, part := range []string{eventsOfRun[:100], eventsOfRun[100:]} {
		if _, err := r.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	r.close()
	want := "ok  \tgithub.com/curfew-dev/curfew/internal/a\t2.000s\n    b_test.go:3: got 1, want 2\npanic: test timed " +
		"out\nFAIL\tgithub.com/curfew-dev/curfew/internal/b\t3.000s\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r.packages != 2 || r.tests != 3 {
		t.Errorf("%d packages and %d tests, want 2 and 3", r.packages, r.tests)
	}
}

func TestSkipsAreAllowedByName(t *testing.T) {
	for _, tc := range []struct {
		name, list string
		refused    bool
	}{
		{"listed", "# reasons\n\ninternal/a TestSkipped/deep it needs a GPU\n", false},
		{"listed by a pattern", "internal/* TestSkipped/* it needs a GPU\n", false},
		{"not listed", "internal/a TestSkipped it needs a GPU\n", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "skips.txt")
			if err := os.WriteFile(file, []byte(tc.list), 0o600); err != nil {
				t.Fatal(err)
			}
			allowed, err := readSkips(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			r := newReport(&out)
			if _, err := r.Write([]byte(eventsOfRun)); err != nil {
				t.Fatal(err)
			}
			if err := r.printSkips(allowed); (err != nil) != tc.refused {
				t.Errorf("got %v, want an error: %t\n%s", err, tc.refused, &out)
			}
			if !strings.Contains(out.String(), "1 tests were skipped\n  internal/a TestSkipped/deep: ") {
				t.Errorf("the skipped test is not named:\n%s", &out)
			}
		})
	}
}

func TestRejectsSkipWithoutReason(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skips.txt")
	if err := os.WriteFile(file, []byte("internal/a TestSkipped\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSkips(file); err == nil || !strings.Contains(err.Error(), "skips.txt:1") {
		t.Errorf("got %v, want the line", err)
	}
}

func TestTimesPrintsLongestFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events.json")
	if err := os.WriteFile(file, []byte(eventsOfRun), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printTimes(file, &out); err != nil {
		t.Fatal(err)
	}
	want := "     5.0 s  2 packages together\n\n     3.0 s  internal/b\n     2.0 s  internal/a\n\n     3.0 s  " +
		"internal/b TestBroken\n     1.5 s  internal/a TestQuiet\n\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
