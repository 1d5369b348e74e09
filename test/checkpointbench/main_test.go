package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/test/versitygw"
)

// TestBench checks that every step runs and is measured, and that the restored folder equals the
// saved one.
func TestBench(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("links the program: make test-slow")
	}
	if _, err := versitygw.Binary(t.Context()); err != nil {
		t.Fatal(err)
	}
	curfew := filepath.Join(t.TempDir(), "curfew")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", curfew,
		"../../cmd/curfew").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	t.Setenv("PATH", "/usr/sbin") // without tools to compare with
	var out strings.Builder
	if err := bench(t.Context(), &out, curfew, t.TempDir(), 16<<20, 2, 64<<10); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"new", "0% changed", "5% changed", "5% inserted", "100% changed", "restore"} {
		if !strings.Contains(out.String(), "\n"+step+" ") {
			t.Errorf("%s is not measured:\n%s", step, &out)
		}
	}
}

// TestJudge checks that too long times and too large sizes fail.
func TestJudge(t *testing.T) {
	figures := func(seconds float64, sent int64) map[string]map[string]figure {
		all := map[string]map[string]figure{}
		for _, what := range []string{"new", "100% changed", "5% changed", "5% inserted"} {
			all[what] = map[string]figure{
				"curfew": {seconds: seconds, sent: sent}, "aws s3 sync": {seconds: 10, sent: 1000},
			}
		}
		return all
	}
	for _, c := range []struct {
		seconds float64
		sent    int64
		fails   bool
	}{{11, 100, false}, {12, 100, true}, {11, 101, true}} {
		var out strings.Builder
		if err := judge(&out, figures(c.seconds, c.sent)); (err != nil) != c.fails {
			t.Errorf("%v s and %d bytes: %v", c.seconds, c.sent, err)
		}
	}
}
