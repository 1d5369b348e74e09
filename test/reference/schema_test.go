package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/finding/aws"
	"github.com/curfew-dev/curfew/internal/notify/webhook"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

const root = "../.."

// TestReferenceIsCurrent compares the committed files with the generated ones.
func TestReferenceIsCurrent(t *testing.T) {
	want, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Errorf("%v; run make reference", err)
		} else if diff := cmp.Diff(string(got), string(text)); diff != "" {
			t.Errorf("%s is not what the code says (run make reference):\n%s", name, diff)
		}
	}
	for _, dir := range written {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name := dir + "/" + e.Name(); want[name] == nil &&
				(strings.HasSuffix(name, ".v1.json") || strings.HasSuffix(name, ".md")) {
				t.Errorf("%s is made by nothing; run make reference", name)
			}
		}
	}
}

// cache holds the compiled schemas.
var cache = map[string]*validator.Schema{}

// compiled returns the committed schema of a name.
func compiled(t *testing.T, name string) *validator.Schema {
	t.Helper()
	if s := cache[name]; s != nil {
		return s
	}
	c := validator.NewCompiler()
	src, err := os.ReadFile(filepath.Join(root, "schemas", name))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(src))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddResource(document.Schemas+name, doc); err != nil {
		t.Fatal(err)
	}
	c.AssertFormat()
	s, err := c.Compile(document.Schemas + name)
	if err != nil {
		t.Fatal(err)
	}
	cache[name] = s
	return s
}

// validate validates a YAML file.
func validate(s *validator.Schema, src []byte) error {
	text, err := yaml.YAMLToJSON(src)
	if err != nil {
		return err
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

// readers are the strict readers of the files of each schema.
var readers = map[string]func(src []byte) error{
	"config.v1.json":     func(src []byte) error { c := config.Default(); return config.Decode("f", src, &c) },
	"policy.v1.json":     func(src []byte) error { _, err := policy.Parse("f", src); return err },
	"policytest.v1.json": func(src []byte) error { _, err := policy.ParseTests("f", src); return err },
	"job.v1.json":        func(src []byte) error { _, err := spec.Parse("f", src); return err },
	"session.v1.json":    func(src []byte) error { _, err := spec.Parse("f", src); return err },
	"budgets.v1.json":    func(src []byte) error { _, err := budget.Parse("f", src); return err },
}

var version = regexp.MustCompile(`(?m)^apiVersion: curfew\.([a-z]+)/(v1)$`)

// schemaOf returns the name of the schema of a file, or "".
func schemaOf(name, src string) string {
	if m := version.FindStringSubmatch(src); m != nil {
		return m[1] + "." + m[2] + ".json"
	}
	if filepath.Base(name) == config.FileName {
		return "config.v1.json"
	}
	return ""
}

// examples returns the files of examples by their paths.
func examples(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, "examples"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		src, err := os.ReadFile(path)
		found[path] = string(src)
		return err
	})
	if err != nil || len(found) < 20 {
		t.Fatalf("%d examples, %v", len(found), err)
	}
	return found
}

// TestExamplesValidate validates every file of examples.
func TestExamplesValidate(t *testing.T) {
	for path, src := range examples(t) {
		name := schemaOf(path, src)
		if name == "" || !strings.HasPrefix(src, document.SchemaLine(name)) {
			t.Errorf("%s does not name its schema %q", path, name)
			continue
		}
		if err := validate(compiled(t, name), []byte(src)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestEveryKeyIsDescribed checks that every key in a schema of a file has a description.
func TestEveryKeyIsDescribed(t *testing.T) {
	code, err := readSource(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range inputs(code) {
		keys(s, "", func(path string, key *jsonschema.Schema) {
			if key.Description == "" {
				t.Errorf("%s: %s has no description", s.Title, path)
			}
		})
	}
}

// TestManualValidates validates the files in the manual.
func TestManualValidates(t *testing.T) {
	manuals, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, manual := range append(manuals, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(manual)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			name := schemaOf("", block[1])
			if name == "" {
				continue
			}
			n++
			if err := validate(compiled(t, name), []byte(block[1])); err != nil {
				t.Errorf("%s: %v\n%s", manual, err, block[1])
			}
		}
	}
	if n < 5 {
		t.Errorf("%d files in the manual", n)
	}
}

// mutant is a file with one change.
type mutant struct {
	what, src string
	// structural is true if the change breaks the structure of the file, which a schema must notice
	// whenever the reader does.
	structural bool
}

// mutants returns variants of a file with a change at each of its values.
func mutants(t *testing.T, src string) []mutant {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	// 8e9 is a number in a file, but the library makes it a text.
	text = regexp.MustCompile(`"([0-9.]+e[0-9]+)"`).ReplaceAll(text, []byte("$1"))
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var out []mutant
	add := func(what string, structural bool) {
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, mutant{what, string(b), structural})
	}
	var visit func(path string, v any, set func(any))
	visit = func(path string, v any, set func(any)) {
		switch v := v.(type) {
		case map[string]any:
			v["zzz"] = "a"
			add(path+" with an unknown key", true)
			delete(v, "zzz")
			for k, inner := range v {
				at := path + "." + k
				delete(v, k)
				add(at+" left out", false)
				v[k] = inner
				visit(at, inner, func(to any) { v[k] = to })
			}
		case []any:
			for i, inner := range v[:min(2, len(v))] {
				visit(fmt.Sprintf("%s[%d]", path, i), inner, func(to any) { v[i] = to })
			}
			set([]any{})
			add(path+" as an empty list", false)
		case string:
			set("zzz zzz")
			add(path+" as another text", false)
			set("")
			add(path+" as an empty text", false)
		case float64:
			set(-1)
			add(path+" as -1", false)
			set(0.5)
			add(path+" as 0.5", false)
		}
		for name, other := range map[string]any{
			"a mapping": map[string]any{"zzz": 1}, "a list of mappings": []any{map[string]any{"zzz": 1}}, "true": true,
			"4": 4,
		} {
			set(other)
			add(path+" as "+name, name != "4")
		}
		set(v)
	}
	visit("", doc, func(to any) { doc = to })
	return out
}

// lenient matches changes that only the schema refuses, intentionally: for texts and lists in
// curfew.yaml, the library also accepts numbers and single values.
var lenient = regexp.MustCompile(`^config\.v1\.json: \S+ as (4|true|-1|0\.5|a mapping)$`)

// TestSchemasAgreeWithReaders changes every value of every example: the reader refuses what a
// schema refuses, and a schema refuses files with a broken structure.
func TestSchemasAgreeWithReaders(t *testing.T) {
	refused, both := 0, 0
	for path, src := range examples(t) {
		name := schemaOf(path, src)
		schema, read := compiled(t, name), readers[name]
		if err := read([]byte(src)); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, m := range mutants(t, src) {
			invalid, wrong := validate(schema, []byte(m.src)), read([]byte(m.src))
			switch {
			case invalid != nil && wrong == nil && !lenient.MatchString(name+": "+m.what):
				t.Errorf("%s: %s: the schema alone refuses it: %v", path, m.what, invalid)
			case invalid == nil && wrong != nil && m.structural:
				t.Errorf("%s: %s: the reader alone refuses it: %v", path, m.what, wrong)
			}
			if wrong != nil {
				refused++
			}
			if wrong != nil && invalid != nil {
				both++
			}
		}
	}
	t.Logf("the readers refuse %d changed files, the schemas %d of them", refused, both)
	if both*10 < refused*7 {
		t.Errorf("the schemas refuse %d of the %d files that the readers refuse", both, refused)
	}
}

// TestBadFiles checks that schemas and readers refuse common mistakes.
func TestBadFiles(t *testing.T) {
	const head = "apiVersion: curfew.policy/v1\npolicies:\n  - name: a\n    when: 'true'\n    then: [{do: notify}]\n"
	const job = "apiVersion: curfew.job/v1\nname: a\nrun: python train.py\nresources: {gpus: \"A100:8\"}\n"
	for name, cases := range map[string][]string{
		"policy.v1.json": {
			strings.Replace(head, "policy/v1", "policy/v2", 1), strings.Replace(head, "when", "wen", 1),
			strings.Replace(head, "do: notify", "do: explode", 1),
			strings.Replace(head, "{do: notify}", "{warn: {grace: 30 minutes}}, {do: stop}", 1),
			head + "    mode: enforced\n", head + "    limits: {share: 20}\n", head + "    limits: {share: 20.123%}\n",
			head + "    limits: {per_hour: 0}\n",
			head + "    limits: {dollars_per_hour: 0}\n", head + "    limits: {dollars_per_hour: ten}\n",
			head + "    select: {kind: machine}\n",
			head + "    select: {purpose: [training, fun]}\n", head + "    select: {kind: []}\n",
			head + "    select: {kind: [instance, instance]}\n",
			head + "    select: {tags: {}}\n", strings.Replace(head, "[{do: notify}]", "{do: notify}", 1),
			strings.Replace(head, "name: a", "name: a b", 1),
			strings.Replace(head, "do: notify", "do: stop, disks: {root: keep}", 1),
			strings.Replace(head, "do: notify", "do: scale, to: -1", 1),
		},
		"job.v1.json": {
			strings.Replace(job, "A100:8", "8xA100", 1), strings.Replace(job, "A100:8", "A100:12345", 1),
			strings.Replace(job, "run:", "command:", 1),
			job + "max_cost: -5\n", job + "max_cost: 0\n", job + "max_cost: 1e3x\n", job + "max_runtime: 12 hours\n",
			job + "max_runtime: 12\n", job + "disk: 200\n",
			job + "disk: 200gigs\n", job + "capacity: cheap\n", job + "regions: [Frankfurt]\n", job + "data: []\n",
			job + "data: [bucket/prefix]\n",
			job + "artifacts: {dir: out, to: \"s3://b/p\"}\n", job + "checkpoint: {dir: /ckpt}\n",
			job + "retries: {errors: -1}\n", job + "lease: 2h\n",
		},
		"session.v1.json": {
			"apiVersion: curfew.session/v1\nname: a\nresources: {gpus: A100}\n",
			"apiVersion: curfew.session/v1\nname: a\nlease: 2h\nresources: {gpus: A100, nodes: 0}\n",
			"apiVersion: curfew.session/v1\nname: a\nlease: 2h\nrun: true\nresources: {gpus: A100}\n",
		},
		"budgets.v1.json": {
			"budgets: [{id: a}]\n", "budgets: [{id: a, amount: many}]\n", "budgets: [{id: a, amount: -1}]\n",
			"budgets: [{id: a, amount: 1, period: daily}]\n",
			"budgets: [{id: a, amount: 1, period: {from: 2026-11-01}}]\n",
			"budgets: [{id: a, amount: 1, thresholds: {warn: 80}}]\n", "budgets: [{id: a, amount: 1, purpose: fun}]\n",
			"quotas: [{id: a, gpus: {H100: -1}}]\n", "quotas: [{id: a, gpus: 16}]\n", "budget: []\n",
		},
		"config.v1.json": {
			"aws: {region: us-east-1}\n", "scan: {window: two weeks}\n", "scan: {window: -1d}\n",
			"thresholds: {coverage_share: 1.5}\n", "thresholds: {coverage_share: 0}\n",
			"thresholds: {min_age: 1}\n", "aws: {requests_per_second: -1}\n",
			"aws: {list_pages: many}\n", "policies: {a: b}\n",
			"governance: [{kind: machine}]\n",
			"governance: [{instance_store: snapshot, team: a}]\n",
			"owners: {rules: [{name: a}]}\n", "budgets: [{id: a}]\n",
			"notify: {mail: {tls: maybe, smtp: \"a:25\", from: a@b.c}}\n",
			"duty: {gpus: most}\n", "approvals: {accept: [anything]}\n", "gate: {ask_over: lots}\n",
			"units: [{name: token}]\n",
			"shared_costs: [{name: a, method: fair}]\n",
			"enforce: {mirror_tag: maybe}\n", "machines: [{gpus: 8}]\n",
		},
	} {
		schema, read := compiled(t, name), readers[name]
		for _, src := range cases {
			if err := read([]byte(src)); err == nil {
				t.Errorf("%s: the reader accepts\n%s", name, src)
			}
			if err := validate(schema, []byte(src)); err == nil {
				t.Errorf("%s: the schema accepts\n%s", name, src)
			}
		}
	}
}

// TestEveryVersionHasASchema searches the code for versions of documents.
func TestEveryVersionHasASchema(t *testing.T) {
	code, err := readSource(root)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, o := range outputs {
		known[o.schema] = true
	}
	for name := range readers {
		known["curfew."+strings.TrimSuffix(strings.TrimSuffix(name, ".json"), ".v1")+"/v1"] = true
	}
	for constant, v := range code.versions {
		if !known[v] {
			t.Errorf("%s (%s) has no schema", v, constant)
		}
	}
	if len(code.versions) < 40 {
		t.Errorf("%d versions found", len(code.versions))
	}
}

// documents returns the JSON documents in a text that name their schema.
func documents(text string) (out []string) {
	for at := 0; ; {
		i := strings.Index(text[at:], `"schema": "curfew.`)
		if i < 0 {
			return out
		}
		at += i
		end := 0
		for start := at; start > 0 && end <= at; {
			if start = strings.LastIndex(text[:start], "{"); start < 0 {
				break
			}
			var doc json.RawMessage
			in := json.NewDecoder(strings.NewReader(text[start:]))
			if err := in.Decode(&doc); err != nil {
				break
			}
			if end = start + int(in.InputOffset()); end > at {
				out = append(out, string(doc))
			}
		}
		at = max(at+1, end)
	}
}

// TestGoldenDocumentsValidate validates the documents in golden files.
func TestGoldenDocumentsValidate(t *testing.T) {
	files := map[string]string{}
	for _, o := range outputs {
		files[o.schema] = o.file()
	}
	seen := map[string]int{}
	for _, pattern := range []string{
		"internal/cli/testdata/golden/*.txtar", "internal/cli/testdata/golden/cloud/*.txtar",
		"internal/report/testdata/golden/*.json", "internal/notify/webhook/testdata/golden/*.json",
	} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, doc := range documents(string(text)) {
				var head struct{ Schema string }
				if err := json.Unmarshal([]byte(doc), &head); err != nil {
					t.Fatal(err)
				}
				seen[head.Schema]++
				v, err := validator.UnmarshalJSON(strings.NewReader(doc))
				if err != nil {
					t.Fatal(err)
				}
				if err := compiled(t, files[head.Schema]).Validate(v); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
	}
	if len(seen) < 15 {
		t.Errorf("golden files hold documents of %d schemas: %v", len(seen), seen)
	}
}

// TestEveryCommandIsDescribed checks that every command has a description, an example, and
// descriptions of its flags.
func TestEveryCommandIsDescribed(t *testing.T) {
	commands := all(cli.Commands())
	if len(commands) < 40 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, c := range commands {
		if c.Short == "" || c.Runnable() && !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%s has no description or no example", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s has no description", c.CommandPath(), f.Name)
			}
		})
	}
}

// TestEveryColumnIsDescribed checks recorded usage and the files of planners.
func TestEveryColumnIsDescribed(t *testing.T) {
	for _, c := range usage.Columns() {
		if c.Doc == "" || c.Type == "" || c.IfAbsent == "" || c.Type == "number" && c.Unit == "" {
			t.Errorf("the column %s is not described: %+v", c.Name, c)
		}
	}
	for _, p := range planners {
		for _, f := range p.files {
			for _, c := range slices.Concat(f.layout.Required, f.layout.Optional) {
				if c.Doc == "" {
					t.Errorf("%s %s: the column %s has no description", p.command, f.flag, c.Name)
				}
			}
		}
	}
}

// TestEveryEventIsDescribed checks the values that the code writes to the audit log, exit codes,
// entries and webhooks.
func TestEveryEventIsDescribed(t *testing.T) {
	code, err := readSource(root)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for list, most := range map[string]int{"Exit": 7, "Event": 25} {
		if len(code.listed[list]) < most {
			t.Errorf("%d constants %s", len(code.listed[list]), list)
		}
		for _, c := range code.listed[list] {
			known[c.value] = true
			if c.doc == "" {
				t.Errorf("%s%s has no description", list, c.value)
			}
		}
	}
	for _, what := range code.recorded {
		if !known[what] {
			t.Errorf("the audit log gets %q, which internal/action does not list", what)
		}
	}
	if len(code.recorded) < 2 {
		t.Errorf("texts that the code records: %q", code.recorded)
	}
	for _, v := range []any{action.Entry{}, webhook.Document{}} {
		s := code.reflect(v, "")
		for at := s.Properties.Oldest(); at != nil; at = at.Next() {
			if at.Value.Description == "" {
				t.Errorf("%T: %s has no description", v, at.Key)
			}
		}
	}
}

// TestRulesSayWhatFindingsHave compares the descriptions of rules with the findings of the
// simulated account.
func TestRulesSayWhatFindingsHave(t *testing.T) {
	about := map[string]finding.About{}
	for _, r := range finding.All(aws.Rules()) {
		if r.About != (finding.About{}) {
			about[r.ID] = r.About
		}
	}
	var doc view.Scan
	if err := json.Unmarshal([]byte(newWorkplace(t).run("scan --demo --no-save -o json")), &doc); err != nil {
		t.Fatal(err)
	}
	for _, f := range doc.Findings {
		a := about[f.Rule]
		if !strings.Contains(a.Confidence, string(f.Confidence)) {
			t.Errorf("%s: a finding of confidence %s; its description has %q", f.Rule, f.Confidence, a.Confidence)
		}
		if !strings.Contains(a.Fix, string(f.Fix.Undo)) {
			t.Errorf("%s: a fix with undo %s; its description has %q", f.Rule, f.Fix.Undo, a.Fix)
		}
	}
	if len(doc.Findings) < 50 {
		t.Errorf("%d findings", len(doc.Findings))
	}
}
