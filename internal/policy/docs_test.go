package policy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"
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

// TestEveryFactIsDocumented holds the manual against the facts: each is in the table,
// with its values, and the table has no other.
func TestEveryFactIsDocumented(t *testing.T) {
	doc := readManual(t)
	_, table, _ := strings.Cut(doc, "| fact | type | unknown where |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]string{}
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			rows[name[1]] = row
		}
	}
	for _, f := range facts {
		row, ok := rows[f.name]
		if !ok {
			t.Errorf("%s does not have %s", manual, f.name)
			continue
		}
		delete(rows, f.name)
		word := map[*cel.Type]string{cel.TimestampType: "time", cel.DurationType: "span", cel.BoolType: "bool", cel.IntType: "number", cel.DoubleType: "number"}[f.typ]
		if f.values == nil && f.typ != cel.StringType && f.name != "resource.tags" && !strings.Contains(row, "| "+word) {
			t.Errorf("%s does not say that %s is a %s", manual, f.name, word)
		}
		if f.name == "resource.kind" {
			continue // the kinds are those of the scan document
		}
		for _, v := range f.values {
			if !strings.Contains(row, "`"+v+"`") {
				t.Errorf("%s does not say that %s can be %s", manual, f.name, v)
			}
		}
	}
	for name := range rows {
		t.Errorf("%s has %s, which is no fact", manual, name)
	}
}

// TestManualExamplesAreValid reads the manual's own files.
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
	if read != 3 {
		t.Errorf("%d files in the manual, want 3", read)
	}
}
