package sessions

import (
	"os"
	"strings"
	"testing"
)

// TestGuideExplainsRefusals checks that the guide names every rule that refuses an adoption.
func TestGuideExplainsRefusals(t *testing.T) {
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
