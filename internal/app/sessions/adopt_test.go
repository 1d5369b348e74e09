package sessions

import (
	"os"
	"strings"
	"testing"
)

// TestEveryRefusalIsExplained holds that the guide has each rule that refuses to adopt a machine.
func TestEveryRefusalIsExplained(t *testing.T) {
	text, err := os.ReadFile("../../../docs/pets-to-sessions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range adoptionRules {
		if !strings.Contains(string(text), "\n| `"+rule.name+"` |") {
			t.Errorf("the guide does not explain %s", rule.name)
		}
	}
}
