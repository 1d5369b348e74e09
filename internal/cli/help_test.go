package cli

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
)

// TestHelpFitsEightyColumns checks that no line of a help text is wider, but for examples, which
// are commands that are pasted.
func TestHelpFitsEightyColumns(t *testing.T) {
	walk(func(name string, c *cobra.Command) {
		var b bytes.Buffer
		printHelp(&b, c)
		help := strings.Replace(b.String(), c.Example, "", 1)
		for line := range strings.Lines(help) {
			line = strings.TrimRight(line, "\n")
			if n := ansi.StringWidth(line); n > helpWidth {
				t.Errorf("curfew %s --help: %d columns: %q", name, n, line)
			}
		}
		for _, word := range strings.Fields(c.Long) {
			if !strings.Contains(help, word) {
				t.Errorf("curfew %s --help lacks %q of its description", name, word)
			}
		}
	})
}

// TestEveryCommandHasOneGroup checks that the first help names every command once.
func TestEveryCommandHasOneGroup(t *testing.T) {
	groups := map[string]int{}
	for _, g := range commandGroups {
		for _, name := range g.commands {
			groups[name]++
		}
	}
	root := newRoot(&Process{}, nil)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && groups[c.Name()] != 1 {
			t.Errorf("curfew %s is in %d groups of the help", c.Name(), groups[c.Name()])
		}
		delete(groups, c.Name())
	}
	if len(groups) > 0 {
		t.Errorf("groups name commands that are not there: %v", groups)
	}
}

func TestVersionShowsBuild(t *testing.T) {
	const commit, date = "0123456789abcdef0123456789abcdef01234567", "2026-11-01T10:00:00Z"
	run := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := Run(t.Context(), Process{
			Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now,
			Lookup:  func(string) (string, bool) { return "", false },
			Version: "v1.2.3-dirty", Commit: commit, Date: date,
		})
		validates(t, args, out.String())
		return code, out.String(), errs.String()
	}
	for _, flag := range []string{"--json", "-ojson"} {
		code, out, errs := run("version", flag)
		var doc struct{ Schema, Version, Commit, Date, Go, Platform string }
		if err := json.Unmarshal([]byte(out), &doc); err != nil || code != ExitDone {
			t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
		}
		if doc.Schema != "curfew.version/v1" || doc.Version != "v1.2.3-dirty" || doc.Commit != commit ||
			doc.Date != date || doc.Go != runtime.Version() || doc.Platform != runtime.GOOS+"/"+runtime.GOARCH {
			t.Errorf("%s: %+v", flag, doc)
		}
	}
	if _, out, _ := run("version"); !strings.Contains(out, commit+" with changes") ||
		!strings.Contains(out, runtime.Version()) {
		t.Errorf("got %q", out)
	}
	if code, _, errs := run("version", "extra"); code != ExitUsage || !strings.Contains(errs, "takes no argument") {
		t.Errorf("exit %d, %q", code, errs)
	}
}
