package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// suggestions finds the commands that an output suggests: on lines of their own, and in backquotes.
var suggestions = regexp.MustCompile("(?m)^\\s+(?:next\\s+)?(curfew [a-z][^`\n]*)$|`(curfew [a-z][^`]*)`")

// accounts are suggested commands that read or change an account, which this test has not;
// TestGoldenSandbox and the scripts of sessions run them.
var accounts = []string{"curfew scan", "curfew serve", "curfew up demo --gpu L4",
	"curfew run --gpu L4 -- python train.py"}

// template reports whether a person has to replace a word of a command: TEXT, PATH, FILE.
var template = regexp.MustCompile(`\b[A-Z]{2,}\b|…|\.\.\.`)

// TestSuggestedCommandsRun runs commands in several states, each command that an output suggests,
// and the suggestions of those in turn: none is a usage error or names something that does not
// exist.
func TestSuggestedCommandsRun(t *testing.T) {
	var books []string
	if os.Getenv("CURFEW_SLOW") != "" { // each of them simulates 32 days
		books = []string{
			"plan account --demo", "costs --demo", "bill show --demo", "budget --demo", "costs units --demo",
			"bill reconcile --demo",
		}
	}
	for _, state := range []struct {
		name     string
		before   []string
		commands []string
	}{
		{"nothing was done", nil, []string{
			"scan --last", "why", "fix 9c6e", "budget", "costs", "bill show", "bill reconcile", "ls", "audit",
			"alerts", "approvals", "confirm", "keep", "state", "doctor state", "plan rightsize --from scan",
			"gate report", "costs units", "session adopt", "undo", "price watching", "policy check --against last",
		}},
		{"simulated account", []string{"scan --demo"}, []string{
			"scan --demo --all", "scan --last", "why", "why now.wasted", "doctor metrics --demo", "tag --demo",
			"enforce --demo", "plan rightsize --from scan --demo",
			"policy explain llm-playground --demo --policy ../../examples/policies",
		}},
		{"simulated books", nil, books},
		{"simulated account, nothing kept", nil, []string{"scan --demo --no-save"}},
		{
			"frozen", []string{"scan --demo", "freeze --reason incident"},
			[]string{"scan --last", "alerts", "doctor state"},
		},
	} {
		t.Run(state.name, func(t *testing.T) {
			t.Parallel()
			d := newDesktop(t)
			for _, c := range state.before {
				if code, _, stderr := d.run(strings.Fields(c)...); code != ExitDone {
					t.Fatalf("curfew %s: %d, %s", c, code, stderr)
				}
			}
			seen := map[string]bool{}
			type suggested struct{ command, by string }
			var todo []suggested
			for _, c := range state.commands {
				todo = append(todo, suggested{"curfew " + c, ""})
			}
			fixes := 0
			for ; len(todo) > 0; todo = todo[1:] {
				c := todo[0]
				if seen[c.command] || slices.Contains(accounts, c.command) ||
					strings.HasPrefix(c.command, "curfew price update --from ") || template.MatchString(c.command) {
					continue
				}
				seen[c.command] = true
				words := strings.Fields(strings.Trim(c.command, "`"))
				if i := slices.Index(words, ">"); i >= 0 {
					words = words[:i]
				}
				if words[1] == "fix" {
					if fixes++; fixes > 10 {
						continue
					}
				}
				code, stdout, stderr := d.run(words[1:]...)
				if c.by != "" && (code == ExitUsage || code == ExitError) {
					t.Errorf("%s suggests %s, which ends with %d: %s", c.by, c.command, code, stderr)
				}
				for _, m := range suggestions.FindAllStringSubmatch(ansi.Strip(stdout+stderr), -1) {
					command, _, _ := strings.Cut(strings.TrimSpace(m[1]+m[2]), "  ")
					todo = append(todo, suggested{command, c.command})
				}
			}
		})
	}
}

// TestRefusedFixNamesTheOptionThatLiftsIt checks that the preview of a refused fix begins with the
// refusal, and suggests the option with which nothing refuses it any more; carrying it out is not
// suggested.
func TestRefusedFixNamesTheOptionThatLiftsIt(t *testing.T) {
	d := newDesktop(t)
	if code, _, stderr := d.run("scan", "--demo", "-q"); code != ExitDone {
		t.Fatal(stderr)
	}
	_, refused, _ := d.run("fix", "9c6e")
	if !strings.Contains(refused, "Refused, unsaved-disk: stop llm-eval") ||
		strings.Contains(refused, "--enforce --demo") ||
		!strings.Contains(refused, "curfew fix 9c6e85af --scratch-disks") {
		t.Errorf("the preview says\n%s", refused)
	}
	_, lifted, _ := d.run("fix", "9c6e85af", "--scratch-disks")
	if strings.Contains(lifted, "Refused") ||
		!strings.Contains(lifted, "curfew fix 9c6e85af --enforce --demo --scratch-disks") {
		t.Errorf("with the option the preview says\n%s", lifted)
	}
	if code, _, stderr := d.run("keep", "llm-eval", "--for", "24h", "--reason", "deadline"); code != ExitDone {
		t.Fatal(stderr)
	}
	if _, kept, _ := d.run("fix", "9c6e85af", "--scratch-disks"); !strings.Contains(kept, "Refused, kept:") ||
		strings.Contains(kept, "curfew fix 9c6e85af --enforce") {
		t.Errorf("of a machine that is kept the preview says\n%s", kept)
	}
}
