// Package threats checks the threat model of docs/security.md against the tests that it names.
package threats

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	root = "../.."
	page = root + "/docs/security.md"
)

// threat is one row of the model: an attacker, an asset, and the tests of the protection.
type threat struct {
	attacker, asset, holds string
	tests                  []shown
}

// shown is a test: the folder of its package and its name.
type shown struct{ dir, name string }

var (
	testName = regexp.MustCompile("`([a-z][a-z0-9_/]*) (Test[A-Za-z0-9]+|Fuzz[A-Za-z0-9]+)`")
	listed   = regexp.MustCompile(`^\| ([A-Z]) \| `)
)

// read returns the attackers on the page by letter, and the rows of its model: those with the
// letter of an attacker and three more cells.
func read(text string) (attackers map[string]bool, rows []threat) {
	attackers = map[string]bool{}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !listed.MatchString(line) {
			continue
		}
		letter := strings.TrimSpace(cells[0])
		if len(cells) != 4 {
			attackers[letter] = true
			continue
		}
		row := threat{attacker: letter, asset: strings.TrimSpace(cells[1]), holds: strings.TrimSpace(cells[2])}
		for _, m := range testName.FindAllStringSubmatch(cells[3], -1) {
			row.tests = append(row.tests, shown{m[1], m[2]})
		}
		rows = append(rows, row)
	}
	return attackers, rows
}

// wrong lists the statements of the model that are false for the tree below dir.
func wrong(dir, text string) (errs []error) {
	attackers, rows := read(text)
	seen := map[string]bool{}
	for _, row := range rows {
		seen[row.attacker] = true
		if !attackers[row.attacker] {
			errs = append(errs, fmt.Errorf("%s is no attacker that the page lists", row.attacker))
		}
		if len(row.tests) == 0 {
			errs = append(errs, fmt.Errorf("no test shows that %q holds", row.holds))
		}
		for _, test := range row.tests {
			if !exists(filepath.Join(dir, test.dir), test.name) {
				errs = append(errs, fmt.Errorf("%s has no %s, which is to show %q", test.dir, test.name, row.holds))
			}
		}
	}
	for letter := range attackers {
		if !seen[letter] {
			errs = append(errs, fmt.Errorf("nothing is said of attacker %s", letter))
		}
	}
	return errs
}

// exists reports whether a folder declares a test.
func exists(dir, name string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return false
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}

func TestEveryThreatIsShownByATest(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if attackers, rows := read(string(text)); len(attackers) < 8 || len(rows) < 20 {
		t.Fatalf("%s lists %d attackers and %d threats; its tables are no longer read", page,
			len(attackers), len(rows))
	}
	for _, err := range wrong(root, string(text)) {
		t.Errorf("%s: %v", page, err)
	}
}

func TestWrongModelsAreNamed(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{
			"a test that does not exist", "| A | someone |\n| A | x | it holds | `test/threats TestNone` |\n",
			"has no TestNone",
		},
		{"no test", "| A | someone |\n| A | x | it holds | |\n", "no test shows"},
		{"an attacker of its own", "| A | x | it holds | `test/threats TestWrongModelsAreNamed` |\n", "no attacker"},
		{"an attacker without a row", "| B | someone |\n", "nothing is said of attacker B"},
	} {
		errs := wrong(root, c.text)
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, errs, c.want)
		}
	}
	if errs := wrong(root, "| A | someone |\n| A | x | it holds | `test/threats TestWrongModelsAreNamed` |\n"); errs !=
		nil {
		t.Errorf("a model that holds: %v", errs)
	}
}

// TestComplaintsNameTheirTests checks that the tests in the table of complaints in docs/jobs.md
// exist.
func TestComplaintsNameTheirTests(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| complaint | here | test |\n|---|---|---|\n")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if !found || len(rows) < 10 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, row := range rows {
		tests := testName.FindAllStringSubmatch(row, -1)
		if len(tests) == 0 {
			t.Errorf("no test is named in %s", row)
		}
		for _, m := range tests {
			if !exists(filepath.Join(root, m[1]), m[2]) {
				t.Errorf("%s has no %s", m[1], m[2])
			}
		}
	}
}
