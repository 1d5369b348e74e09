package policy

import (
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestAPIVersion is the version of the files of policy tests.
const TestAPIVersion = "curfew.policytest/v1"

// Tests are the cases of one file: resources and samples in, proposals out.
type Tests struct {
	File string
	// Policies are the files of policies that the cases are for, relative to this one;
	// empty where the file does not say.
	Policies []string
	// Tags and Duty are what the cases are judged by; zero is the default of each.
	Tags inventory.TagMapping
	Duty duty.Thresholds

	cases []*testCase
}

// testCase is one case.
type testCase struct {
	name     string
	line     int
	start    time.Time
	step     time.Duration
	subjects []*subject
	checks   []expectation
}

// expectation is what is to come out at a time.
type expectation struct {
	line int
	at   time.Time
	// first says that a second earlier it is not proposed.
	first bool
	// proposals are all that are made; nil where the check does not say.
	proposals []wanted
	// unknown are those whose answer is unknown; everyUnknown says that all are.
	unknown      []wanted
	everyUnknown bool
}

// wanted names a policy and a resource, and the verb that is proposed. What is empty is
// the only one there is.
type wanted struct {
	policy, resource string
	verb             Verb
}

// defaultStart is when cases begin that do not say: a Monday.
var defaultStart = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// ParseTests reads a file of cases; name is the file's, for errors. Every mistake is an
// *Error with its line and column.
func ParseTests(name string, src []byte) (*Tests, error) {
	d, root, err := openDocument(name, src)
	if err != nil {
		return nil, err
	}
	if err := d.version(root, TestAPIVersion); err != nil {
		return nil, err
	}
	t := &Tests{File: name}
	_, err = d.mapping(root, "the file",
		entry{"apiVersion", true, checked},
		entry{"policies", false, func(n ast.Node) (err error) { t.Policies, err = d.texts(n, "policies", nil); return err }},
		entry{"cases", true, func(n ast.Node) error {
			return d.items(n, "cases", func(item ast.Node) error {
				c, err := d.testCase(item)
				if err == nil && slices.ContainsFunc(t.cases, func(o *testCase) bool { return o.name == c.name }) {
					err = d.at(item, "case %q is defined already", c.name)
				}
				t.cases = append(t.cases, c)
				return err
			})
		}})
	if err == nil && len(t.cases) == 0 {
		err = d.at(root, "the file has no case")
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (d *document) testCase(n ast.Node) (*testCase, error) {
	c := &testCase{line: d.at(n, "").Line, start: defaultStart, step: time.Minute}
	var resources, expect ast.Node
	_, err := d.mapping(n, "a case",
		entry{"name", true, func(n ast.Node) (err error) { c.name, err = d.text(n, "name"); return err }},
		entry{"start", false, func(n ast.Node) (err error) { c.start, err = d.moment(n, "start", time.Time{}); return err }},
		entry{"step", false, func(n ast.Node) (err error) { c.step, err = d.span(n, "step", time.Second); return err }},
		entry{"resources", true, func(n ast.Node) error { resources = n; return nil }},
		entry{"expect", true, func(n ast.Node) error { expect = n; return nil }},
	)
	if err != nil {
		return nil, err
	}
	err = d.items(resources, "resources", func(item ast.Node) error {
		s, err := d.subject(item, c)
		if err == nil && slices.ContainsFunc(c.subjects, func(o *subject) bool { return o.r.ID == s.r.ID }) {
			err = d.at(item, "resource %q is there already", s.r.ID)
		}
		c.subjects = append(c.subjects, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = d.items(expect, "expect", func(item ast.Node) error {
		e, err := d.expectation(item, c)
		c.checks = append(c.checks, e)
		return err
	})
	if err == nil && len(c.subjects) == 0 {
		err = d.at(n, "case %q has no resource", c.name)
	}
	if err == nil && len(c.checks) == 0 {
		err = d.at(n, "case %q expects nothing; to expect no proposal write {at: 1h, propose: none}", c.name)
	}
	return c, err
}

// span reads a duration of at least some length.
func (d *document) span(n ast.Node, what string, least time.Duration) (time.Duration, error) {
	s, err := d.text(n, what)
	if err != nil {
		return 0, err
	}
	v, err := parseDuration(s)
	if err != nil || v < least {
		return 0, d.at(n, "%s %q is not a duration of at least %s", what, s, durationText(least))
	}
	return v, nil
}

// moment reads an RFC 3339 time, or a duration from the start of the case.
func (d *document) moment(n ast.Node, what string, start time.Time) (time.Time, error) {
	s, err := d.text(n, what)
	if err != nil {
		return time.Time{}, err
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t.UTC(), nil
	}
	v, err := parseDuration(s)
	if err != nil || start.IsZero() {
		return time.Time{}, d.at(n, "%s %q is not a time such as 2026-01-05T08:00:00Z, or a duration from the start of the case such as 45m or -2h", what, s)
	}
	return start.Add(v), nil
}

// decimal reads a finite number.
func (d *document) decimal(n ast.Node, what string) (float64, error) {
	v, err := strconv.ParseFloat(scalar(n), 64)
	if quoted, ok := n.(*ast.StringNode); ok && quoted.Token.Type != token.StringType || err != nil || number(v) == nil {
		return 0, d.at(n, "%s is a number", what)
	}
	return v, nil
}

// expectation reads what is to come out at a time.
func (d *document) expectation(n ast.Node, c *testCase) (expectation, error) {
	e := expectation{line: d.at(n, "").Line}
	given, err := d.mapping(n, "an expectation",
		entry{"at", false, func(n ast.Node) (err error) { e.at, err = d.moment(n, "at", c.start); return err }},
		entry{"from", false, func(n ast.Node) (err error) {
			e.first = true
			e.at, err = d.moment(n, "from", c.start)
			return err
		}},
		entry{"propose", false, func(n ast.Node) (err error) {
			e.proposals = []wanted{}
			if word, ok := n.(*ast.StringNode); ok {
				if word.Value == "none" {
					return nil
				}
				e.proposals = []wanted{{}}
				return d.chosen(n, "propose", verbs, (*string)(&e.proposals[0].verb))
			}
			return d.items(n, "propose", func(item ast.Node) error {
				w, err := d.wantedPair(item, true)
				e.proposals = append(e.proposals, w)
				return err
			})
		}},
		entry{"unknown", false, func(n ast.Node) (err error) {
			if word, ok := n.(*ast.StringNode); ok && word.Value == "all" {
				e.everyUnknown = true
				return nil
			}
			return d.items(n, "unknown", func(item ast.Node) error {
				w, err := d.wantedPair(item, false)
				e.unknown = append(e.unknown, w)
				return err
			})
		}},
	)
	switch {
	case err != nil:
		return e, err
	case (given["at"] == nil) == (given["from"] == nil):
		return e, d.at(n, "an expectation has at or from: the time of it")
	case given["propose"] == nil && given["unknown"] == nil:
		return e, d.at(n, "an expectation has propose or unknown")
	case e.first && len(e.proposals) == 0:
		return e, d.at(n, "from says since when something is proposed; use at")
	}
	return e, nil
}

func (d *document) wantedPair(n ast.Node, verb bool) (w wanted, err error) {
	entries := []entry{
		{"policy", false, func(n ast.Node) (err error) { w.policy, err = d.text(n, "policy"); return err }},
		{"resource", false, func(n ast.Node) (err error) { w.resource, err = d.text(n, "resource"); return err }},
	}
	if verb {
		entries = append(entries, entry{"verb", true, func(n ast.Node) error { return d.chosen(n, "verb", verbs, (*string)(&w.verb)) }})
	}
	_, err = d.mapping(n, "a pair of policy and resource", entries...)
	return w, err
}
