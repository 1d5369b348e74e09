package aws

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryRefusalIsDocumented compares the names of rules with docs/safety.md.
func TestEveryRefusalIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	refusal, found := regexp.MustCompile(`refus(?:al|e|ed)\("([a-z-]+)"`), 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range refusal.FindAllStringSubmatch(string(src), -1) {
			found++
			if !strings.Contains(string(doc), "`"+m[1]+"`") {
				t.Errorf("%s refuses by the rule %q, which docs/safety.md does not explain", name, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no refusal was found in the sources")
	}
}
