package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test string
	Output                string
	Elapsed               float64 // in seconds
}

// id returns the name of a test: its package without the module, and its name.
func (e event) id() string {
	return strings.TrimSuffix(strings.TrimPrefix(e.Package, module)+" "+e.Test, " ")
}

// report shows a run like go test: the output of failed tests, and a line for each package.
type report struct {
	out     io.Writer
	rest    []byte                       // an incomplete line
	outputs map[string]map[string]string // by package and by test; "" is the package
	order   map[string][]string          // tests of a package in the order of their first output
	skips   map[string]string            // the output of skipped tests, by id

	packages, tests int
}

func newReport(out io.Writer) *report {
	return &report{
		out: out, outputs: map[string]map[string]string{}, order: map[string][]string{}, skips: map[string]string{},
	}
}

// Write takes output of go test -json.
func (r *report) Write(b []byte) (int, error) {
	r.rest = append(r.rest, b...)
	for {
		line, rest, found := bytes.Cut(r.rest, []byte("\n"))
		if !found {
			return len(b), nil
		}
		r.rest = rest
		r.line(line)
	}
}

func (r *report) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		fmt.Fprintf(r.out, "%s\n", line) // output of the go command itself
		return
	}
	switch e.Action {
	case "output", "build-output":
		r.output(e)
	case "pass", "fail", "skip":
		r.end(e)
	}
}

func (r *report) output(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(r.out, e.Output)
		return
	}
	of := r.outputs[e.Package]
	if of == nil {
		of = map[string]string{}
		r.outputs[e.Package] = of
	}
	if _, known := of[e.Test]; !known {
		r.order[e.Package] = append(r.order[e.Package], e.Test)
	}
	of[e.Test] += e.Output
}

// end shows the output of a finished test or package if necessary.
func (r *report) end(e event) {
	of := r.outputs[e.Package]
	if e.Test != "" {
		r.tests++
		switch e.Action {
		case "fail":
			fmt.Fprint(r.out, of[e.Test])
		case "skip":
			e.Package, _, _ = strings.Cut(e.Package, partMark)
			r.skips[e.id()] = of[e.Test]
		}
		delete(of, e.Test)
		return
	}
	defer delete(r.outputs, e.Package)
	defer delete(r.order, e.Package)
	if e.Action == "skip" { // the package has no tests
		return
	}
	r.packages++
	if e.Action == "fail" {
		for _, test := range r.order[e.Package] { // tests without a result, and the package
			fmt.Fprint(r.out, of[test])
		}
		return
	}
	for line := range strings.Lines(of[""]) {
		if strings.HasPrefix(line, "ok ") {
			fmt.Fprint(r.out, line)
		}
	}
}

// close ends the report and shows the output of packages without a result.
func (r *report) close() {
	if len(r.rest) > 0 {
		r.line(r.rest)
	}
	for _, p := range slices.Sorted(maps.Keys(r.outputs)) {
		for _, test := range r.order[p] {
			fmt.Fprint(r.out, r.outputs[p][test])
		}
	}
}

// skip is a test that may be skipped, with the reason.
type skip struct {
	id     *regexp.Regexp
	reason string
}

// readSkips reads the tests that may be skipped: lines of a package, a test and a reason, in which
// * matches any text.
func readSkips(name string) (allowed []skip, err error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the tests that may be skipped: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.SplitN(line, " ", 3)
		if len(words) < 3 {
			return nil, fmt.Errorf("read the tests that may be skipped: %s:%d: it has no package, test and reason",
				name, n)
		}
		parts := strings.Split(words[0]+" "+words[1], "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		allowed = append(allowed, skip{regexp.MustCompile("^" + strings.Join(parts, ".*") + "$"), words[2]})
	}
	return allowed, lines.Err()
}

// printSkips prints the skipped tests and returns an error for one that must not be skipped.
func (r *report) printSkips(allowed []skip) error {
	fmt.Fprintf(r.out, "%d tests were skipped\n", len(r.skips))
	refused := 0
	for _, id := range slices.Sorted(maps.Keys(r.skips)) {
		var reason string
		if i := slices.IndexFunc(allowed, func(s skip) bool { return s.id.MatchString(id) }); i >= 0 {
			reason = allowed[i].reason
		} else {
			refused++
			reason = "NOT IN THE LIST OF TESTS THAT MAY BE SKIPPED: " + strings.Join(strings.Fields(r.skips[id]), " ")
		}
		fmt.Fprintf(r.out, "  %s: %s\n", id, reason)
	}
	if refused > 0 {
		return fmt.Errorf("%d skipped tests may not be skipped", refused)
	}
	return nil
}
