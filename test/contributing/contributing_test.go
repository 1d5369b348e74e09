// Package contributing holds the lists of files in CONTRIBUTING.md against what it takes to
// add one of each: a template is laid over the tree, and the suites that must notice run.
package contributing

import (
	"encoding/json"
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

func TestListsAreComplete(t *testing.T) {
	overlay := map[string]string{}
	for heading, template := range map[string]string{
		"Add a finding": "finding.txtar", "Add a policy fact": "fact.txtar", "Add a cloud": "cloud.txtar",
	} {
		archive, err := txtar.ParseFile(filepath.Join("testdata", template))
		if err != nil {
			t.Fatal(err)
		}
		touched := lay(t, archive, overlay)
		if diff := cmp.Diff(listed(t, heading, name(archive)), touched); diff != "" {
			t.Errorf("files of %q in CONTRIBUTING.md (-list +template):\n%s", heading, diff)
		}
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	names := run(t, "go", "run", "-overlay", file, "./test/contributing/registry")
	for _, want := range []string{"rule volume-magnetic\n", "fact resource.manager\n"} {
		if !strings.Contains(names, want) {
			t.Errorf("the registry lacks %s", want)
		}
	}
	passed := run(t, "go", "test", "-vet=off", "-overlay", file, "-v", "-run",
		"^(TestMagneticVolumes|TestRulesOfTheContract|TestEveryRuleIsDescribed|TestFacts|TestUnknownFacts|TestEveryFactIsDescribed)$",
		"./internal/finding", "./internal/policy")
	passed += run(t, "go", "test", "-vet=off", "-overlay", file, "-v", "-run", "^TestSimulatedAccount$/^seed_1_Mon_03:00$", "./internal/round")
	// The folder of the new package is not there, so its tests run from a binary.
	binary := filepath.Join(t.TempDir(), "cloud.test")
	run(t, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", binary, "./internal/cloud/example")
	passed += run(t, binary, "-test.v", "-test.run", "^TestConformance$")
	for _, want := range []string{
		"TestMagneticVolumes/magnetic", "TestRulesOfTheContract", "TestEveryRuleIsDescribed", "TestSimulatedAccount/seed_1_Mon_03:00",
		"TestFacts", "TestUnknownFacts", "TestEveryFactIsDescribed", "TestConformance",
	} {
		if !strings.Contains(passed, "--- PASS: "+want+" ") {
			t.Errorf("%s did not run", want)
		}
	}
}

// run runs a command in the root of the tree.
func run(t *testing.T, command string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), command, args...)
	c.Dir = root
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", command, args[0], err, out)
	}
	return string(out)
}

// name returns what stands for NAME in a list, as the template says.
func name(archive *txtar.Archive) string {
	_, rest, _ := strings.Cut(string(archive.Comment), "NAME is ")
	name, _, _ := strings.Cut(rest, ".")
	return name
}

var item = regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+)`")

// listed returns the files of a section of CONTRIBUTING.md.
func listed(t *testing.T, heading, name string) []string {
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

// lay adds the files of a template to an overlay and returns their names. A file that is
// there already is changed: "before TEXT" inserts the lines that follow before the one line
// that has the text, "replace A => B" replaces every A.
func lay(t *testing.T, archive *txtar.Archive, overlay map[string]string) []string {
	t.Helper()
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
		overlay[path] = filepath.Join(dir, strings.ReplaceAll(f.Name, "/", "_"))
		if err := os.WriteFile(overlay[path], []byte(changed[f.Name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for name := range changed {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// edit carries out one change of a template; wrong says why it cannot.
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
