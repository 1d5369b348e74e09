package policy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

const manual = "../../docs/policies.md"

func readManual(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// TestEveryFactIsDescribed checks every fact's documentation and compiles its example.
func TestEveryFactIsDescribed(t *testing.T) {
	for _, f := range facts {
		if f.doc == "" || f.unknown == "" {
			t.Errorf("%s does not say what it is and when it is unknown", f.name)
		}
		if !strings.Contains(f.example, f.name) {
			t.Errorf("the example of %s is %q", f.name, f.example)
		}
		if _, wrong := compile(f.example, true); wrong != nil {
			t.Errorf("the example of %s: %s", f.name, wrong.message)
		}
	}
	functions, err := Functions()
	if err != nil || len(functions) < 30 {
		t.Fatalf("%d functions, %v", len(functions), err)
	}
	for _, f := range functions {
		if f.Doc == "" || len(f.Forms) == 0 {
			t.Errorf("the function %s has no description or no form", f.Name)
		}
	}
	doc := readManual(t)
	for _, verb := range verbs {
		if !strings.Contains(doc, "`"+verb+"`") {
			t.Errorf("%s does not have the verb %s", manual, verb)
		}
	}
}

// TestManualExamplesAreValid parses the files in the manual.
func TestManualExamplesAreValid(t *testing.T) {
	read := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readManual(t), -1) {
		var err error
		switch src := block[1]; {
		case strings.Contains(src, APIVersion):
			_, err = Parse(manual, []byte(src))
		case strings.Contains(src, TestAPIVersion):
			_, err = ParseTests(manual, []byte(src))
		default:
			continue
		}
		read++
		if err != nil {
			t.Error(err)
		}
	}
	if read != 4 {
		t.Errorf("%d files in the manual, want 4", read)
	}
}
