package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// eachCommand calls visit for every command below one that can be run.
func eachCommand(c *cobra.Command, visit func(*cobra.Command)) {
	if c.Runnable() {
		visit(c)
	}
	for _, sub := range c.Commands() {
		eachCommand(sub, visit)
	}
}

// mostOperands is the number of arguments a usage line names, and whether it takes any number.
func mostOperands(use string) (n int, repeated bool) {
	use, repeated = strings.CutSuffix(use, "...")
	for _, word := range strings.Fields(use)[1:] {
		if word == "[--" { // another program's command line
			return n, true
		}
		if repeated = repeated || strings.Contains(word, "...") || strings.Contains(word, "…"); strings.HasPrefix(
			strings.TrimLeft(word, "[("),
			"-",
		) {
			break // flags and their values
		}
		if word != "|" && word != "[flags]" {
			n++
		}
	}
	return n, repeated
}

// TestTakesNamedArguments checks that every command takes the arguments that its usage names.
func TestTakesNamedArguments(t *testing.T) {
	eachCommand(Commands(), func(c *cobra.Command) {
		n, _ := mostOperands(c.Use)
		if err := c.Args(c, make([]string, n)); n > 0 && err != nil {
			t.Errorf("curfew %s: %v", c.UseLine(), err)
		}
	})
}

// TestRefusesUnreadArguments checks that every command refuses an argument more than it reads as a
// mistake of usage, before it does anything.
func TestRefusesUnreadArguments(t *testing.T) {
	dir, checked := t.TempDir(), 0
	eachCommand(Commands(), func(c *cobra.Command) {
		n, repeated := mostOperands(c.Use)
		if repeated || c.DisableFlagParsing {
			return
		}
		checked++
		args := strings.Fields(c.CommandPath())[1:]
		for range n + 1 {
			args = append(args, "typo")
		}
		var out, errs bytes.Buffer
		code := Run(
			context.Background(),
			Process{Args: args, Dir: dir, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
				Lookup: func(string) (string, bool) {
					return "", false
				}, Now: time.Now, DataDir: dir + "/data", WitnessDir: dir + "/witness", ConfigDir: dir + "/config"},
		)
		if code != ExitUsage || !strings.Contains(errs.String(), "curfew") {
			t.Errorf("curfew %s: exit %d, %s%s", strings.Join(args, " "), code, out.String(), errs.String())
		}
	})
	if checked < 80 {
		t.Errorf("only %d commands were looked at", checked)
	}
}
