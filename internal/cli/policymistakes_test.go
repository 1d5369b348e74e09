package cli

import (
	"strings"
	"testing"
)

// policy check lists the mistakes of all files in their order, each with its place.
func TestPolicyCheckListsEveryMistake(t *testing.T) {
	d := newDesktop(t)
	d.write("a.yaml", `apiVersion: curfew.policy/v1
policies:
  - name: one
    select: {kind: instanc}
    when: duty.state in ["idle"
    then:
      - do: stopp
  - name: two
    select: {kind: instance}
    when: duty.lasting >= duration("30m")
    then:
      - warn: {notify: [owner], grace: 15}
      - do: stop
    mode: enforced
    paint: red
`)
	d.write("b.yaml",
		"apiVersion: curfew.policy/v1\npolicies:\n  - {name: three, when: duty.lastin > 1, then: [{do: notify}]}\n")
	d.write("good.yaml", "apiVersion: curfew.policy/v1\npolicies:\n  - {name: four, when: 'duty.state == \"idle\"', "+
		"then: [{do: notify}]}\n")
	code, out, errs := d.run("policy", "check", "a.yaml", "good.yaml", "b.yaml")
	if code != ExitUsage || out != "" {
		t.Errorf("exit %d, printed %q", code, out)
	}
	var places []string
	for line := range strings.Lines(errs) {
		place, ok := strings.CutPrefix(line, "curfew: ")
		if !ok {
			t.Errorf("line %q", line)
		}
		if fields := strings.SplitN(place, ":", 3); len(fields) == 3 {
			places = append(places, fields[0]+":"+fields[1])
		}
	}
	if got := strings.Join(places, " "); got != "a.yaml:4 a.yaml:5 a.yaml:7 a.yaml:12 a.yaml:14 a.yaml:15 b.yaml:3" {
		t.Errorf("mistakes at %s:\n%s", got, errs)
	}
	// Elsewhere they take one line.
	if code, _, errs := d.run("policy", "explain", "i-1", "--policy", "a.yaml"); code != ExitUsage ||
		strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "(and 5 more mistakes)") {
		t.Errorf("explain: exit %d: %s", code, errs)
	}
}
