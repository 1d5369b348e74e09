// Command reference writes docs/reference and schemas from the code. Run it from the root
// of the repository: go run ./test/reference
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/spec"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// written lists the directories whose files are all generated.
var written = []string{"schemas", "docs/reference"}

// write writes all files, and removes those that are no longer generated.
func write(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for _, dir := range written {
		for _, kind := range []string{"*.md", "*.v1.json"} { // other files are not generated
			old, err := filepath.Glob(filepath.Join(root, dir, kind))
			if err != nil {
				return err
			}
			for _, name := range old {
				if err := os.Remove(name); err != nil {
					return err
				}
			}
		}
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns all files by their paths from the root of the repository.
func generate(root string) (map[string][]byte, error) {
	code, err := readSource(root)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	all := inputs(code)
	for _, o := range outputs {
		all = append(all, o.reflected(code))
	}
	for _, s := range all {
		text, err := encode(s)
		if err != nil {
			return nil, err
		}
		files["schemas/"+strings.TrimPrefix(string(s.ID), document.Schemas)] = text
	}
	index := "# Reference\n\n" + generated + "Generated from the code. `make reference` writes these pages and " +
		"[`schemas`](../../schemas).\n\n| page | has |\n|---|---|\n"
	for _, p := range pages {
		b := &book{code: code}
		b.b.WriteString("# " + p.title + "\n\n" + generated)
		if err := p.write(b); err != nil {
			return nil, err
		}
		files["docs/reference/"+p.file] = []byte(strings.TrimRight(b.b.String(), "\n") + "\n")
		index += fmt.Sprintf("| [%s](%s) | %s |\n", p.title, p.file, p.about)
	}
	files["docs/reference/README.md"] = []byte(index)
	return files, nil
}

// inputs returns the schemas of the files that people write.
func inputs(code *source) []*jsonschema.Schema {
	return []*jsonschema.Schema{
		input("config.v1.json", "curfew.yaml", configShape(code.comment)),
		input("policy.v1.json", "Policies", policy.Shape()),
		input("policytest.v1.json", "Policy tests", policy.TestsShape()),
		input("job.v1.json", "Job", spec.Shape(spec.Job)),
		input("session.v1.json", "Session", spec.Shape(spec.Session)),
		input("budgets.v1.json", "Budgets and quotas", budget.Shape()),
	}
}

// encode formats a schema as it is committed.
func encode(s *jsonschema.Schema) ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
