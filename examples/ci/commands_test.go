package ci

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cli"
)

var (
	called = regexp.MustCompile("curfew (gate|approve|ci run)[^\n`]*")
	flag   = regexp.MustCompile(`--?[a-z][a-z-]*`)
)

// TestCommands holds that the commands that the examples call are there, with the flags
// they are called with.
func TestCommands(t *testing.T) {
	want := map[string]map[string]bool{"gate": {"--github": true}, "approve": {}, "ci run": {}}
	for _, name := range []string{"gate.sh", "README.md", "gitlab-run.yml", "gitlab-run-aws.yml"} {
		for _, m := range called.FindAllStringSubmatch(read(t, name), -1) {
			own, _, _ := strings.Cut(m[0], " -- ") // what follows is another command's
			for _, f := range flag.FindAllString(own, -1) {
				want[m[1]][f] = true
			}
		}
	}
	for _, f := range flag.FindAllString(read(t, "run/run.sh"), -1) {
		if strings.HasPrefix(f, "--") && len(f) > 2 {
			want["ci run"][f] = true
		}
	}
	if !want["ci run"]["--artifacts"] || !want["ci run"]["--timeout"] || !want["gate"]["--config"] ||
		!want["gate"]["-o"] {
		t.Fatalf("the calls of curfew are not found: %v", want)
	}
	for verb, flags := range want {
		t.Run(verb, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := cli.Run(context.Background(), cli.Process{
				Args: append(strings.Fields(verb), "--help"), Stdout: &out, Stderr: &errs,
				Version: "test", Dir: t.TempDir(),
				Lookup: func(string) (string, bool) { return "", false },
				Now:    func() time.Time { return time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC) }})
			if code != cli.ExitDone {
				t.Fatalf("curfew %s --help: %d\n%s", verb, code, errs.String())
			}
			if !strings.Contains(out.String(), "Usage:\n  curfew "+verb) {
				t.Skipf("this curfew has no %s yet", verb)
			}
			for f := range flags {
				if !regexp.MustCompile(`(?m)(^|[ ,])` + regexp.QuoteMeta(f) + `\b`).MatchString(out.String()) {
					t.Errorf("curfew %s has no %s:\n%s", verb, f, out.String())
				}
			}
		})
	}
}
