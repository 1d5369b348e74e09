package finding

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestEveryRuleIsDocumented holds docs/findings.md against the rules.
func TestEveryRuleIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Concat([]Rule{tagRule}, rules, registered, billRules) {
		if !strings.Contains(string(doc), "`"+r.ID+"`") {
			t.Errorf("docs/findings.md does not say what %s is", r.ID)
		}
	}
}
