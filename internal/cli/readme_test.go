package cli

import (
	"bytes"
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write golden files again")

// The lines around the picture of real output in README.md.
const (
	pictureBegins = "<!-- curfew scan --demo -->\n```text\n"
	pictureEnds   = "\n```\n"
)

// TestReadmeShowsRealOutput compares the README's picture with the output of the demo; -update
// draws it again.
func TestReadmeShowsRealOutput(t *testing.T) {
	const path = "../../README.md"
	readme, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(readme), pictureBegins)
	shown, after, ends := strings.Cut(rest, pictureEnds)
	if !ok || !ends {
		t.Fatalf("README.md has no picture between %q and %q", pictureBegins, pictureEnds)
	}
	var out, errs bytes.Buffer
	code := Run(context.Background(), Process{
		Args: []string{"scan", "--demo"}, DataDir: t.TempDir(),
		Stdout: &out, Stderr: &errs, Version: "test", Dir: t.TempDir(),
		Lookup: func(string) (string, bool) { return "", false },
		Now:    func() time.Time { return time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC) },
	})
	if code != ExitDone {
		t.Fatalf("scan --demo: exit %d: %s", code, errs.String())
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	want := strings.TrimSpace(strings.Join(lines, "\n"))
	if *update {
		if err := os.WriteFile(path, []byte(before+pictureBegins+want+pictureEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if shown != want {
		t.Errorf("README.md shows other output than `curfew scan --demo` prints; run make golden\ngot:\n%s", want)
	}
}
