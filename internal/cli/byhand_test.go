package cli

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/view"
)

// withoutCommands are the rules whose fix no command carries out, and why.
var withoutCommands = map[string]string{
	"commitment-unused": "it is paid until it ends: work is placed under it",
	"model-optimize":    "the model itself has to change",
	"cpu-underutilized": "a smaller type is carried out; on Graviton its owner builds and tries another machine",
}

// TestCarriesOutEveryFix walks all findings of the sandbox and of the simulated
// account: each fix climbs the ladder, or shows commands that a shell takes as they are.
func TestCarriesOutEveryFix(t *testing.T) {
	s := newSeededFixes(t)
	s.endpoint("old-embedder", 3)
	d := newDesktop(t)
	code, out, errs := d.run("scan", "--demo", "--all", "-o", "json")
	if code != ExitDone && code != ExitPartial {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var demo view.Scan
	if err := json.Unmarshal([]byte(out), &demo); err != nil {
		t.Fatal(err)
	}
	rules := map[string]bool{}
	for _, doc := range []view.Scan{s.scan(), demo} {
		for _, f := range doc.Findings {
			rules[f.Rule] = true
			if saves, known := f.MonthlySavingsUSD.Get(); f.Fix.Change.Verb == change.PutLifecycle &&
				f.Fix.Change.Document == "" && known && saves == 0 {
				continue // all of it is another rule's matter
			}
			commands := clouds.ByHand(f)
			text := strings.Join(commands, "\n")
			if len(commands) > 0 {
				check := exec.CommandContext(t.Context(), "sh", "-n")
				check.Stdin = strings.NewReader(text)
				if out, err := check.CombinedOutput(); err != nil {
					t.Errorf("%s of %s: a shell does not take %q: %s", f.Rule, f.Resource.ID, text, out)
				}
			}
			if _, carried := policy.FromChange(f.Fix.Change); !carried && !strings.Contains(text, "aws ") &&
				withoutCommands[f.Rule] == "" {
				t.Errorf("%s of %s %s (%s) neither climbs the ladder nor shows commands: %+v", f.Rule, f.Resource.Kind,
					f.Resource.ID, f.Fix.Note, f.Fix.Change)
			}
		}
	}
	if len(rules) < 35 {
		t.Errorf("only %d rules find something: %v", len(rules), rules)
	}
}
