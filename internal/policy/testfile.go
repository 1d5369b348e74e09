package policy

import (
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/curfew-dev/curfew/internal/document"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

// TestAPIVersion is the version of the files of policy tests.
const TestAPIVersion = "curfew.policytest/v1"

// Tests are the test cases of one file.
type Tests struct {
	File string
	// Policies are the policy files to test, relative to this file; empty if it names none.
	Policies []string
	// Tags and Duty are the tag mapping and thresholds of the cases; zero is the default of each.
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

// expectation is the expected result at a time.
type expectation struct {
	line int
	at   time.Time
	// isFirst is set if it must not be proposed a second earlier.
	isFirst bool
	// proposals are all expected proposals; nil if they are not checked.
	proposals []expectedAnswer
	// unknown are the policies and resources with an unknown answer; everyUnknown means all.
	unknown      []expectedAnswer
	everyUnknown bool
}

// expectedAnswer names a policy, a resource, and the proposed verb. An empty field is the only one
// there is.
type expectedAnswer struct {
	policy, resource string
	verb             Verb
}

// defaultStart is the default start of cases: a Monday.
var defaultStart = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// ParseTests parses a file of cases; name is used in errors. Every error is a *document.Error with
// line and column.
func ParseTests(name string, src []byte) (*Tests, error) {
	d, root, err := openFile(name, src, TestAPIVersion)
	if err != nil {
		return nil, err
	}
	return d.tests(root)
}

// TestsShape returns the schema of a file of cases.
func TestsShape() *document.Shape {
	d := &reader{&document.File{}}
	return document.Describe(func(n ast.Node) error { _, err := d.tests(n); return err })
}

func (d *reader) tests(root ast.Node) (*Tests, error) {
	t := &Tests{File: d.Name}
	_, err := d.Mapping(root, "the file",
		document.Required("apiVersion", "version of the form", version(TestAPIVersion)),
		document.Optional("policies", "files of the policies to test, relative to this one",
			func(n ast.Node) (err error) {
				t.Policies, err = d.Texts(n, "policies", nil)
				return err
			}),
		document.Required("cases", "the cases; each name once", func(n ast.Node) error {
			return d.Items(n, "cases", func(item ast.Node) error {
				c, err := d.testCase(item)
				if err == nil && slices.ContainsFunc(t.cases, func(o *testCase) bool { return o.name == c.name }) {
					err = d.At(item, "case %q is defined already", c.name)
				}
				t.cases = append(t.cases, c)
				return err
			})
		}))
	if err == nil && len(t.cases) == 0 {
		err = d.At(root, "the file has no case")
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (d *reader) testCase(n ast.Node) (*testCase, error) {
	c := &testCase{line: d.At(n, "").Line, start: defaultStart, step: time.Minute}
	_, err := d.Mapping(n, "a case",
		document.Required("name", "what the case shows", func(n ast.Node) (err error) {
			c.name, err = d.Text(n, "name")
			return err
		}),
		document.Optional("start", "time at which the case begins", func(n ast.Node) (err error) {
			document.Note(n, document.Shape{Default: defaultStart.Format(time.RFC3339)})
			c.start, err = d.moment(n, "start", time.Time{})
			return err
		}),
		document.Optional("step", "time between samples", func(n ast.Node) (err error) {
			document.Note(n, document.Shape{Default: "1m"})
			c.step, err = d.span(n, "step", time.Second)
			return err
		}),
		document.Required("resources", "the resources of the account", func(n ast.Node) error {
			return d.Items(n, "resources", func(item ast.Node) error {
				s, err := d.subject(item, c)
				if err == nil && slices.ContainsFunc(c.subjects, func(o *subject) bool { return o.r.ID == s.r.ID }) {
					err = d.At(item, "resource %q is there already", s.r.ID)
				}
				c.subjects = append(c.subjects, s)
				return err
			})
		}),
		document.Required("expect", "what the policies propose, and when", func(n ast.Node) error {
			return d.Items(n, "expect", func(item ast.Node) error {
				e, err := d.expectation(item, c)
				c.checks = append(c.checks, e)
				return err
			})
		}),
	)
	if err == nil && len(c.subjects) == 0 {
		err = d.At(n, "case %q has no resource", c.name)
	}
	if err == nil && len(c.checks) == 0 {
		err = d.At(n, "case %q expects nothing; to expect no proposal write {at: 1h, propose: none}", c.name)
	}
	return c, err
}

// span reads a duration of a minimum length.
func (d *reader) span(n ast.Node, what string, least time.Duration) (time.Duration, error) {
	document.Note(n, document.Shape{Pattern: durationForm})
	s, err := d.Text(n, what)
	if err != nil {
		return 0, err
	}
	v, err := plain.ParseDuration(s)
	if err != nil || v < least {
		return 0, d.At(n, "%s %q is not a duration of at least %s", what, s, plain.ExactDuration(least))
	}
	return v, nil
}

// moment reads an RFC 3339 time, or a duration from the start of the case.
func (d *reader) moment(n ast.Node, what string, start time.Time) (time.Time, error) {
	s, err := d.Text(n, what)
	if err != nil {
		return time.Time{}, err
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t.UTC(), nil
	}
	v, err := plain.ParseDuration(s)
	if err != nil || start.IsZero() {
		return time.Time{}, d.At(n,
			"%s %q is not a time such as 2026-01-05T08:00:00Z, or a duration from the start of "+
				"the case such as 45m or -2h", what, s)
	}
	return start.Add(v), nil
}

// decimal reads a finite number.
func (d *reader) decimal(n ast.Node, what string) (float64, error) {
	document.Note(n, document.Shape{Type: document.Decimal, Pattern: `^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$`})
	v, err := strconv.ParseFloat(document.Scalar(n), 64)
	if quoted, ok := n.(*ast.StringNode); ok && quoted.Token.Type != token.StringType ||
		err != nil || numberOrUnknown(v) == nil {
		return 0, d.At(n, "%s is a number", what)
	}
	return v, nil
}

// expectation reads the expected result at a time.
func (d *reader) expectation(n ast.Node, c *testCase) (expectation, error) {
	e := expectation{line: d.At(n, "").Line}
	given, err := d.Mapping(n, "an expectation",
		document.Optional("at", "time of the check: a time, or a duration from the start of the case",
			func(n ast.Node) (err error) { e.at, err = d.moment(n, "at", c.start); return err }),
		document.Optional("from", "time from which the proposal is made, and not a second before",
			func(n ast.Node) (err error) {
				e.isFirst = true
				e.at, err = d.moment(n, "from", c.start)
				return err
			}),
		document.Optional("propose", "none, the verb of the only proposal, or all proposals that are made",
			func(n ast.Node) (err error) {
				e.proposals = []expectedAnswer{}
				return document.Forms(n,
					document.IfWord("none", func(ast.Node) error { return nil }),
					document.IfText(func(n ast.Node) error {
						e.proposals = []expectedAnswer{{}}
						return document.Choice(d.File, n, "propose", verbs, &e.proposals[0].verb)
					}),
					document.Otherwise(func(n ast.Node) error {
						return d.Items(n, "propose", func(item ast.Node) error {
							w, err := d.expectedPair(item, true)
							e.proposals = append(e.proposals, w)
							return err
						})
					}))
			}),
		document.Optional("unknown", "resources of which the answer is unknown, or all", func(n ast.Node) (err error) {
			return document.Forms(n,
				document.IfWord("all", func(ast.Node) error { e.everyUnknown = true; return nil }),
				document.Otherwise(func(n ast.Node) error {
					return d.Items(n, "unknown", func(item ast.Node) error {
						w, err := d.expectedPair(item, false)
						e.unknown = append(e.unknown, w)
						return err
					})
				}))
		}),
	)
	switch {
	case err != nil:
		return e, err
	case (given["at"] == nil) == (given["from"] == nil):
		return e, d.At(n, "an expectation has at or from: the time of it")
	case given["propose"] == nil && given["unknown"] == nil:
		return e, d.At(n, "an expectation has propose or unknown")
	case e.isFirst && len(e.proposals) == 0:
		return e, d.At(n, "from says since when something is proposed; use at")
	}
	return e, nil
}

func (d *reader) expectedPair(n ast.Node, verb bool) (w expectedAnswer, err error) {
	entries := []document.Key{
		document.Optional("policy", "name of the policy; may be left out where there is one",
			func(n ast.Node) (err error) {
				w.policy, err = d.Text(n, "policy")
				return err
			}),
		document.Optional("resource", "id of the resource; may be left out where there is one",
			func(n ast.Node) (err error) { w.resource, err = d.Text(n, "resource"); return err }),
	}
	if verb {
		entries = append(entries, document.Required("verb", "what is proposed", func(n ast.Node) error {
			return document.Choice(d.File, n, "verb", verbs, &w.verb)
		}))
	}
	_, err = d.Mapping(n, "a pair of policy and resource", entries...)
	return w, err
}
