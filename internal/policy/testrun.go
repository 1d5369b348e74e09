package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// CaseResult is the result of one case.
type CaseResult struct {
	// Name, File and Line identify the case.
	Name, File string
	Line       int
	// Failures state the expected and the actual result, one per line; empty if the case passed.
	Failures []string
}

// Passed reports whether all expectations were met.
func (r CaseResult) Passed() bool { return len(r.Failures) == 0 }

// FactsFunc returns the facts of a case's resources at a time, as the engine of rounds determines
// them (round.CaseFacts).
type FactsFunc func(c Case, at time.Time) ([]*Facts, error)

// RunTests evaluates the policies for the resources of each case at each of its times, with the
// facts of look.
func RunTests(set *Set, tests *Tests, look FactsFunc) []CaseResult {
	var out []CaseResult
	for _, c := range tests.cases {
		r := caseRun{set: set, tests: tests, testCase: c, look: look}
		result := CaseResult{Name: c.name, File: tests.File, Line: c.line}
		for i := range c.checks {
			for _, failure := range r.check(&c.checks[i]) {
				result.Failures = append(result.Failures,
					fmt.Sprintf("%s:%d: %s", tests.File, c.checks[i].line, failure))
			}
		}
		out = append(out, result)
	}
	return out
}

// caseRun is the run of one case.
type caseRun struct {
	set      *Set
	tests    *Tests
	testCase *testCase
	look     FactsFunc
}

// caseAnswer is the answer of one policy about one resource.
type caseAnswer struct {
	policy  *Policy
	facts   *Facts
	outcome Outcome
}

func (f *caseAnswer) String() string {
	return fmt.Sprintf("%s %s %s", f.policy.Name, f.policy.Do.Verb, f.facts.Resource.ID)
}

// reason returns what decided an answer.
func (f *caseAnswer) reason() string {
	explained := f.policy.Explain(f.facts)
	for _, p := range explained.Parts {
		if p.Answer == explained.Answer && (p.Answer != usage.True || p.Name != "select") {
			return fmt.Sprintf("%s is %s: %s", p.Name, p.Answer, p.Why)
		}
	}
	return "the answer is " + explained.Answer.String()
}

// check returns how an expectation is not met.
func (r *caseRun) check(e *expectation) (failures []string) {
	answers, err := r.evaluate(e.at)
	if err != nil {
		return []string{err.Error()}
	}
	after := "at " + r.offset(e.at) + ": "
	fail := func(format string, args ...any) { failures = append(failures, after+fmt.Sprintf(format, args...)) }
	expected := map[*caseAnswer]bool{}
	for _, w := range e.proposals {
		f, err := r.find(answers, w)
		switch {
		case err != nil:
			fail("%s", err)
		case f.outcome.Answer != usage.True:
			fail("want %s, got no proposal: %s", f, f.reason())
		case w.verb != f.policy.Do.Verb:
			fail("want %s %s %s, got %s", f.policy.Name, w.verb, f.facts.Resource.ID, f)
		}
		expected[f] = true
	}
	for _, f := range answers {
		if e.proposals != nil && f.outcome.Answer == usage.True && !expected[f] {
			fail("want no such proposal, got %s: %s", f, f.reason())
		}
		if e.everyUnknown && f.outcome.Answer != usage.Unknown {
			fail("want %s unknown, got %s: %s", f, f.outcome.Answer, f.reason())
		}
	}
	for _, w := range e.unknown {
		f, err := r.find(answers, w)
		if err != nil {
			fail("%s", err)
		} else if f.outcome.Answer != usage.Unknown {
			fail("want %s unknown, got %s: %s", f, f.outcome.Answer, f.reason())
		}
	}
	if e.isFirst && len(failures) == 0 {
		failures = r.checkFirst(e)
	}
	return failures
}

// checkFirst returns which expected proposals were already made a second earlier.
func (r *caseRun) checkFirst(e *expectation) (failures []string) {
	earlier := e.at.Add(-time.Second)
	answers, err := r.evaluate(earlier)
	if err != nil {
		return []string{err.Error()}
	}
	for _, w := range e.proposals {
		if f, err := r.find(answers, w); err == nil && f.outcome.Answer == usage.True {
			failures = append(failures, fmt.Sprintf("want %s from %s on, got it at %s already: %s", f, r.offset(e.at),
				r.offset(earlier), f.reason()))
		}
	}
	return failures
}

// offset formats a time relative to the start of the case.
func (r *caseRun) offset(at time.Time) string { return plain.ExactDuration(at.Sub(r.testCase.start)) }

// find returns the answer for an expected policy and resource.
func (r *caseRun) find(answers []*caseAnswer, w expectedAnswer) (*caseAnswer, error) {
	var match []*caseAnswer
	for _, f := range answers {
		if (w.policy == "" || w.policy == f.policy.Name) && (w.resource == "" || w.resource == f.facts.Resource.ID) {
			match = append(match, f)
		}
	}
	switch len(match) {
	case 1:
		return match[0], nil
	case 0:
		return nil, fmt.Errorf("there is no policy %q with a resource %q", w.policy, w.resource)
	}
	return nil, fmt.Errorf("%d answers fit: name the policy and the resource", len(match))
}

// evaluate returns the answers of all policies about all resources at a time.
func (r *caseRun) evaluate(at time.Time) ([]*caseAnswer, error) {
	facts, err := r.look(Case{r.tests, r.testCase}, at)
	if err != nil {
		return nil, err
	}
	var out []*caseAnswer
	for _, p := range r.set.Policies {
		for _, f := range facts {
			out = append(out, &caseAnswer{policy: p, facts: f, outcome: p.Evaluate(f)})
		}
	}
	return out, nil
}

// Case is a test case as an account: its resources, samples and other facts.
type Case struct {
	tests    *Tests
	testCase *testCase
}

// Step returns the step of samples.
func (c Case) Step() time.Duration { return c.testCase.step }

// Duty returns the thresholds of the case.
func (c Case) Duty() duty.Thresholds { return c.tests.Duty }

// Resources returns new copies of the resources. A machine without a number of GPUs and without a
// type has the GPUs that are sampled.
func (c Case) Resources() ([]*inventory.Resource, error) {
	mapping := c.tests.Tags
	if len(mapping.Team) == 0 {
		mapping = inventory.DefaultTagMapping()
	}
	var out []*inventory.Resource
	for _, s := range c.testCase.subjects {
		r := s.r
		r.Tags = s.tags
		if err := mapping.Apply(&r); err != nil {
			return nil, err
		}
		for _, set := range s.setters {
			set(&r)
		}
		if !r.Size.GPUs.Known() && r.Type == "" {
			r.Size.GPUs = s.gpus()
		}
		out = append(out, &r)
	}
	return out, nil
}

// AddFacts adds the case's other facts about a resource.
func (c Case) AddFacts(f *Facts) {
	for _, s := range c.testCase.subjects {
		if s.r.ID == f.Resource.ID {
			f.Checkpoint, f.PriceDrift, f.Budget = s.facts.Checkpoint, s.facts.PriceDrift, s.facts.Budget
			f.Stale = f.Stale || s.facts.Stale
			if s.facts.Hourly.Known() {
				f.Hourly = s.facts.Hourly
			}
		}
	}
}

// Samples calls visit for the samples of a resource, row by row.
func (c Case) Samples(id string, visit func(at time.Time, gpu string, s usage.Signal, v float64)) {
	for _, s := range c.testCase.subjects {
		if s.r.ID != id {
			continue
		}
		for _, row := range s.samples {
			for sig, v := range row.values {
				visit(row.at, row.gpu, sig, v)
			}
		}
	}
}

// gpus returns the number of sampled GPUs; unknown without samples.
func (s *subject) gpus() inventory.Fact[int] {
	if len(s.samples) == 0 {
		return inventory.Fact[int]{}
	}
	var names []string
	for _, row := range s.samples {
		for sig := range row.values {
			if sig.PerGPU() && !slices.Contains(names, row.gpu) {
				names = append(names, row.gpu)
			}
		}
	}
	return inventory.Known(len(names))
}

// String returns the name of the case and its failures.
func (r CaseResult) String() string {
	if r.Passed() {
		return fmt.Sprintf("%s:%d: %s: passed", r.File, r.Line, r.Name)
	}
	return fmt.Sprintf("%s:%d: %s: failed\n  %s", r.File, r.Line, r.Name, strings.Join(r.Failures, "\n  "))
}
