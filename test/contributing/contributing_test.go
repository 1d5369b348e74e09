// Package contributing checks the lists of files in CONTRIBUTING.md by adding one of each kind: a
// template is laid over the tree, and the test suites that must notice it run.
package contributing

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

const root = "../.."

// template is an example of an addition, with the test suites that must notice it.
type template struct {
	heading, file string
	prove         func(t *testing.T, overlay string)
}

var templates = []template{
	{"Add a finding", "finding.txtar", func(t *testing.T, overlay string) {
		listed(t, overlay, "rule volume-magnetic")
		passes(t, overlay, "./internal/finding", "TestMagneticVolumes", "TestHasEveryInventoryRule",
			"TestEveryRuleIsDescribed")
		passes(t, overlay, "./internal/round", "TestSimulatedAccount/seed_1_Mon_03:00")
	}},
	{"Add a policy fact", "fact.txtar", func(t *testing.T, overlay string) {
		listed(t, overlay, "fact resource.manager")
		passes(t, overlay, "./internal/policy", "TestFacts", "TestUnknownFacts", "TestEveryFactIsDescribed")
	}},
	{"Add an operation", "operation.txtar", func(t *testing.T, overlay string) {
		listed(t, overlay, "operation get-account")
		passes(t, overlay, "./internal/ops", "TestOperationsAreDeclaredOnce")
		passes(t, overlay, "./internal/api", "TestRoles")
	}},
	{"Add a cloud", "cloud.txtar", func(t *testing.T, overlay string) {
		passes(t, overlay, "./internal/cloud/example", "TestConformance")
	}},
}

func TestListsAreComplete(t *testing.T) {
	for _, tc := range templates {
		t.Run(tc.heading, func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join("testdata", tc.file))
			if err != nil {
				t.Fatal(err)
			}
			_, touched := lay(t, archive)
			if diff := cmp.Diff(filesOf(t, tc.heading, name(archive)), touched); diff != "" {
				t.Errorf("files in CONTRIBUTING.md (-list +template):\n%s", diff)
			}
		})
	}
}

// TestTemplatesWork builds the tree with each template laid over it.
func TestTemplatesWork(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("set CURFEW_SLOW=1 (make test-slow): it builds four trees; TestListsAreComplete compares the lists")
	}
	for _, tc := range templates {
		t.Run(tc.heading, func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join("testdata", tc.file))
			if err != nil {
				t.Fatal(err)
			}
			overlay, _ := lay(t, archive)
			tc.prove(t, overlay)
		})
	}
}

// listed checks that the registry, the source of the reference, has a line.
func listed(t *testing.T, overlay, line string) {
	t.Helper()
	out := run(t, root, "go", "run", "-overlay", overlay, "./test/contributing/registry")
	if !strings.Contains(out, line+"\n") {
		t.Errorf("the registry lacks %s", line)
	}
}

// passes runs tests of a package and checks that each of them exists. They run as a binary, because
// the folder of a new package does not exist.
func passes(t *testing.T, overlay, pkg string, tests ...string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "tests")
	run(t, root, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, pkg)
	dir := filepath.Join(root, pkg)
	if _, err := os.Stat(dir); err != nil {
		dir = root
	}
	for _, test := range tests {
		pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
		if out := run(t, dir, binary, "-test.v", "-test.run", pattern); !strings.Contains(out, "--- PASS: "+test+" ") {
			t.Errorf("%s: %s did not run", pkg, test)
		}
	}
}

// run runs a command in a folder.
func run(t *testing.T, dir, command string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), command, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", command, args[0], err, out)
	}
	return string(out)
}

// name returns the value for NAME in a list, according to the template.
func name(archive *txtar.Archive) string {
	_, rest, _ := strings.Cut(string(archive.Comment), "NAME is ")
	name, _, _ := strings.Cut(rest, ".")
	return name
}

var item = regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+)`")

// filesOf returns the files that a section of CONTRIBUTING.md lists.
func filesOf(t *testing.T, heading, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("CONTRIBUTING.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var files []string
	for _, m := range item.FindAllStringSubmatch(section, -1) {
		files = append(files, strings.ReplaceAll(m[1], "NAME", name))
	}
	slices.Sort(files)
	return files
}

// lay writes an overlay with the files of a template, and returns their names. Existing files are
// changed: "before TEXT" inserts the following lines before the only line with the text, "replace A
// => B" replaces every A.
func lay(t *testing.T, archive *txtar.Archive) (overlay string, names []string) {
	t.Helper()
	replace := map[string]string{}
	dir := t.TempDir()
	changed := map[string]string{}
	for _, f := range archive.Files {
		path, err := filepath.Abs(filepath.Join(root, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		text, known := changed[f.Name]
		if !known {
			old, err := os.ReadFile(path)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			text = string(old)
		}
		var wrong string
		if changed[f.Name], wrong = edit(text, string(f.Data)); wrong != "" {
			t.Fatalf("%s: %s", f.Name, wrong)
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(f.Name, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(changed[f.Name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay = filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay, slices.Sorted(maps.Keys(changed))
}

// edit applies one change of a template; wrong is why it cannot.
func edit(text, change string) (out, wrong string) {
	command, rest, _ := strings.Cut(change, "\n")
	if at, ok := strings.CutPrefix(command, "before "); ok {
		lines := strings.SplitAfter(text, "\n")
		i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, at) })
		if i < 0 {
			return "", "no line has " + at
		}
		return strings.Join(lines[:i], "") + rest + strings.Join(lines[i:], ""), ""
	}
	if pair, ok := strings.CutPrefix(command, "replace "); ok {
		from, to, _ := strings.Cut(pair, " => ")
		if !strings.Contains(text, from) {
			return "", "nothing is " + from
		}
		return strings.ReplaceAll(text, from, to), ""
	}
	if text != "" {
		return "", "it exists already, and the template has neither before nor replace"
	}
	return change, ""
}
