package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
)

// wideCommands are commands as people give them on the simulated account and on kept
// states, by their names. FINDING is the id of a finding of the simulated account.
var wideCommands = map[string][]string{
	"scan": {"scan --demo", "scan --last", "scan --last --all"}, "fix": {"fix FINDING", "fix FINDING --enforce --demo", "fix FINDING --enforce --demo --scratch-disks"},
	"enforce": {"enforce --demo"}, "keep": {"keep"}, "tag": {"tag --demo"}, "confirm": {"confirm"}, "audit": {"audit"}, "whoami": {"whoami"},
	"settings": {"settings"}, "freeze": {"freeze --reason incident"}, "unfreeze": {"unfreeze --reason over"},
	"costs": {"costs"}, "budget": {"budget"}, "approvals": {"approvals"},
	"price list": {"price list"}, "price watching": {"price watching"},
	"plan market": {"plan market --for bf16-tflops"}, "plan tco": {"plan tco --saving 1200/month --effort 3w --rate 120/h --upkeep 2h/month"},
	"plan capacity": {"plan capacity --qps 500 --qps-per-gpu 200"}, "plan rightsize": {"plan rightsize --from scan --demo"},
	"costs shares": {"costs shares"}, "budget holds": {"budget holds"}, "gate report": {"gate report"},
}

// TestNoLineIsWiderThanTheTerminal: what commands print fits into 60, 80 and 120 columns,
// but for commands on lines of their own, which are never cut.
func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	d := newDesktop(t)
	d.now = time.Date(2026, 7, 20, 9, 0, 0, 0, time.UTC)
	if code, _, errs := d.run("scan", "--demo"); code != ExitDone && code != ExitPartial {
		t.Fatal(errs)
	}
	_, out, _ := d.run("scan", "--last", "-o", "csv")
	finding, _, _ := strings.Cut(strings.Split(out, "\n")[1], ",")
	policies, err := filepath.Abs("../../examples/policies")
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("FINDING", finding, "POLICIES", policies)
	for _, lines := range wideCommands {
		for _, line := range lines {
			for _, width := range []int{60, 80, 120} {
				var out, errs bytes.Buffer
				args := strings.Fields(fill.Replace(line))
				code := Run(context.Background(), Process{Args: args, Dir: d.dir, DataDir: filepath.Join(d.dir, "data"), Version: "test", Stdin: strings.NewReader(""),
					Stdout: &out, Stderr: &errs, Now: d.clock, Width: width, Lookup: func(k string) (string, bool) { v, ok := d.env[k]; return v, ok }})
				if code == ExitUsage || out.Len() == 0 {
					t.Errorf("curfew %s: exit %d, %s", line, code, errs.String())
				}
				for text := range strings.Lines(out.String()) {
					text = strings.TrimRight(text, "\n")
					if n := ansi.StringWidth(text); n > width && !command(text) {
						t.Errorf("curfew %s at %d columns: %d in %q", line, width, n, text)
						break
					}
				}
			}
		}
	}
}

// command says whether a line is a command for a shell.
func command(line string) bool {
	line = strings.TrimPrefix(strings.TrimSpace(ansi.Strip(line)), "next")
	word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	return word == "curfew" || word == "aws" || word == "kubectl"
}

// TestWideCommandsAreAll: every command that prints is in the test of widths, or is named
// here with the reason why it is not.
func TestWideCommandsAreAll(t *testing.T) {
	without := map[string]string{
		"policy check": "its own table", "policy explain": "its own table", "price show": "its own table",
		"bill show": "needs a bill", "budget extend": "needs a hold", "budget release": "needs a hold", "budget settle": "needs a hold", "costs units": "needs units",
		"init": "writes files", "policy init": "writes files", "consent": "needs a machine of AWS", "settings set": "prints one line", "settings clock": "prints one line",
		"backtest": "needs a trace", "policy test": "needs cases", "policy tune": "needs a trace", "estimate": "needs a job", "gate": "needs a job",
		"approve": "prints one line", "deny": "prints one line", "plan mig": "needs workloads", "plan commit": "needs usage", "plan spot": "needs a trace",
		"plan checkpoint": "needs a trace", "price update": "needs a source", "bill import": "needs a bill", "bill reconcile": "needs a bill",
	}
	root := newRoot(&Process{}, nil)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		name := strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), "curfew"), " ")
		if c.Runnable() && !c.Hidden && name != "" && wideCommands[name] == nil && without[name] == "" && !c.HasSubCommands() {
			t.Errorf("curfew %s is in no test of widths", name)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}
