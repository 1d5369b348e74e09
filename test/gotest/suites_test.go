package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSuitesRunWhatIsSkipped checks that a test that is skipped in favor of a suite of slow.sh is
// run by that suite, and that its package exists.
func TestSuitesRunWhatIsSkipped(t *testing.T) {
	script, err := os.ReadFile("../slow.sh")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("../skips.txt")
	if err != nil {
		t.Fatal(err)
	}
	suites := map[string][]string{} // words of the command by suite
	for _, found := range regexp.MustCompile(`(?m)^\t(\w+)\) (?:.* && )?(slow .*?) ;;`).FindAllStringSubmatch(
		string(script), -1) {
		suites[found[1]] = strings.Fields(found[2])
	}
	checked := 0
	for _, line := range strings.Split(string(list), "\n") {
		suite := regexp.MustCompile(`SUITE=(\w+)`).FindStringSubmatch(line)
		if suite == nil {
			continue
		}
		checked++
		words := strings.Fields(line)
		command := suites[suite[1]]
		if !slices.Contains(command, "./"+words[0]) {
			t.Errorf("the suite %s does not run %s", suite[1], words[0])
		}
		if _, err := os.Stat("../../" + words[0]); err != nil {
			t.Errorf("%s of %s: %v", words[1], words[0], err)
		}
		if at := slices.Index(command, "-run"); at >= 0 {
			name, _, _ := strings.Cut(words[1], "/")
			if !regexp.MustCompile(strings.Trim(command[at+1], "'")).MatchString(name) {
				t.Errorf("the suite %s does not run %s", suite[1], words[1])
			}
		}
	}
	if checked < 10 {
		t.Errorf("%d tests of suites are in the list", checked)
	}
}
