package policy

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/usage"
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

// TestEveryKeyIsDocumented asks the parsers for the keys of each level, by giving them
// one that does not exist, and holds the manual against them.
func TestEveryKeyIsDocumented(t *testing.T) {
	doc := readManual(t)
	const policyHead = "apiVersion: curfew.policy/v1\npolicies:\n  - "
	const rest = "\n    name: a\n    when: 'true'\n"
	asked := 0
	ask := func(src string, read func(string, []byte) error) {
		var e *document.Error
		if err := read("x.yaml", []byte(src)); !errors.As(err, &e) {
			t.Fatalf("%q gives %v", src, err)
		}
		_, list, ok := strings.Cut(e.Message, `no key "zzz"; it has `)
		if !ok {
			t.Fatalf("%q gives %v", src, e)
		}
		asked++
		for key := range strings.SplitSeq(list, ", ") {
			if !strings.Contains(doc, "`"+key+"`") && !isSignal(key) {
				t.Errorf("%s does not have the key %s", manual, key)
			}
		}
	}
	policies := func(name string, src []byte) error { _, err := Parse(name, src); return err }
	for _, src := range []string{
		"apiVersion: curfew.policy/v1\nzzz: 1\n",
		policyHead + "zzz: 1" + rest,
		policyHead + "select: {zzz: 1}" + rest + "    then: []\n",
		policyHead + "schedule: {zzz: 1}" + rest + "    then: []\n",
		policyHead + "limits: {zzz: 1}" + rest + "    then: []\n",
		policyHead + "then: [{warn: {zzz: 1}}]" + rest,
		policyHead + "then: [{do: stop, zzz: 1}]" + rest,
	} {
		ask(src, policies)
	}
	tests := func(name string, src []byte) error { _, err := ParseTests(name, src); return err }
	for _, src := range []string{
		"apiVersion: curfew.policytest/v1\nzzz: 1\n",
		testHead + "  - {name: a, zzz: 1}\n",
		testHead + "  - {name: a, resources: [{id: a, zzz: 1}], expect: []}\n",
		testHead + "  - {name: a, resources: [{id: a, budget: {zzz: 1}}], expect: []}\n",
		testHead + "  - {name: a, resources: [{id: a, samples: [{zzz: 1}]}], expect: []}\n",
		testHead + "  - {name: a, resources: [{id: a}], expect: [{zzz: 1}]}\n",
		testHead + "  - {name: a, resources: [{id: a}], expect: [{propose: [{zzz: 1}]}]}\n",
	} {
		ask(src, tests)
	}
	if asked != 14 {
		t.Errorf("%d levels were asked", asked)
	}
	for _, verb := range verbs {
		if !strings.Contains(doc, "`"+verb+"`") {
			t.Errorf("%s does not have the verb %s", manual, verb)
		}
	}
}

// isSignal says whether a key is a column of recorded usage, which is documented there.
func isSignal(key string) bool {
	_, ok := usage.SignalNamed(key)
	return ok
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
