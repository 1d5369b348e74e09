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

// CaseResult is what came of one case.
type CaseResult struct {
	// Name, File and Line say which case it is.
	Name, File string
	Line       int
	// Failures say what was wanted and what came, each on a line; empty when it passed.
	Failures []string
}

// Passed says whether everything came as it was expected.
func (r CaseResult) Passed() bool { return len(r.Failures) == 0 }

// Look returns what is known of the resources of a case at a time. The engine does it, as
// it does of an account (round.CaseFacts).
type Look func(c Case, at time.Time) ([]*Facts, error)

// RunTests asks the policies about the resources of each case at each of its times, by
// what look knows of them.
func RunTests(set *Set, tests *Tests, look Look) []CaseResult {
	var out []CaseResult
	for _, c := range tests.cases {
		r := run{set: set, tests: tests, c: c, look: look}
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

// run is one case that is being run.
type run struct {
	set   *Set
	tests *Tests
	c     *testCase
	look  Look
}

// found is the answer of one policy about one resource.
type found struct {
	policy  *Policy
	facts   *Facts
	outcome Outcome
}

func (f *found) String() string {
	return fmt.Sprintf("%s %s %s", f.policy.Name, f.policy.Do.Verb, f.facts.Resource.ID)
}

// why says what decided an answer.
func (f *found) why() string {
	explained := f.policy.Explain(f.facts)
	for _, p := range explained.Parts {
		if p.Answer == explained.Answer && (p.Answer != usage.True || p.Name != "select") {
			return fmt.Sprintf("%s is %s: %s", p.Name, p.Answer, p.Why)
		}
	}
	return "the answer is " + explained.Answer.String()
}

// check returns what is not as one expectation has it.
func (r *run) check(e *expectation) (failures []string) {
	answers, err := r.ask(e.at)
	if err != nil {
		return []string{err.Error()}
	}
	after := "at " + r.offset(e.at) + ": "
	fail := func(format string, args ...any) { failures = append(failures, after+fmt.Sprintf(format, args...)) }
	expected := map[*found]bool{}
	for _, w := range e.proposals {
		f, err := r.find(answers, w)
		switch {
		case err != nil:
			fail("%s", err)
		case f.outcome.Answer != usage.True:
			fail("want %s, got no proposal: %s", f, f.why())
		case w.verb != f.policy.Do.Verb:
			fail("want %s %s %s, got %s", f.policy.Name, w.verb, f.facts.Resource.ID, f)
		}
		expected[f] = true
	}
	for _, f := range answers {
		if e.proposals != nil && f.outcome.Answer == usage.True && !expected[f] {
			fail("want no such proposal, got %s: %s", f, f.why())
		}
		if e.everyUnknown && f.outcome.Answer != usage.Unknown {
			fail("want %s unknown, got %s: %s", f, f.outcome.Answer, f.why())
		}
	}
	for _, w := range e.unknown {
		f, err := r.find(answers, w)
		if err != nil {
			fail("%s", err)
		} else if f.outcome.Answer != usage.Unknown {
			fail("want %s unknown, got %s: %s", f, f.outcome.Answer, f.why())
		}
	}
	if e.first && len(failures) == 0 {
		failures = r.checkFirst(e)
	}
	return failures
}

// checkFirst says what of an expectation was proposed a second earlier already.
func (r *run) checkFirst(e *expectation) (failures []string) {
	earlier := e.at.Add(-time.Second)
	answers, err := r.ask(earlier)
	if err != nil {
		return []string{err.Error()}
	}
	for _, w := range e.proposals {
		if f, err := r.find(answers, w); err == nil && f.outcome.Answer == usage.True {
			failures = append(failures, fmt.Sprintf("want %s from %s on, got it at %s already: %s", f, r.offset(e.at),
				r.offset(earlier), f.why()))
		}
	}
	return failures
}

// offset writes a time as the case does: from its start.
func (r *run) offset(at time.Time) string { return plain.ExactDuration(at.Sub(r.c.start)) }

// find returns the answer that an expectation speaks of.
func (r *run) find(answers []*found, w wanted) (*found, error) {
	var match []*found
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

// ask returns the answers of all policies about all resources at a time.
func (r *run) ask(at time.Time) ([]*found, error) {
	facts, err := r.look(Case{r.tests, r.c}, at)
	if err != nil {
		return nil, err
	}
	var out []*found
	for _, p := range r.set.Policies {
		for _, f := range facts {
			out = append(out, &found{policy: p, facts: f, outcome: p.Evaluate(f)})
		}
	}
	return out, nil
}

// Case is one case as an account: what is there, what was measured of it, and what else is
// known.
type Case struct {
	tests *Tests
	c     *testCase
}

// Step is the time that a sample stands for.
func (c Case) Step() time.Duration { return c.c.step }

// Duty are the thresholds that the case is judged by.
func (c Case) Duty() duty.Thresholds { return c.tests.Duty }

// Resources returns the resources, each time other values. A machine of which neither the
// number of GPUs nor the type is given has those that are sampled.
func (c Case) Resources() ([]*inventory.Resource, error) {
	mapping := c.tests.Tags
	if len(mapping.Team) == 0 {
		mapping = inventory.DefaultTagMapping()
	}
	var out []*inventory.Resource
	for _, s := range c.c.subjects {
		r := s.r
		r.Tags = s.tags
		if err := mapping.Apply(&r); err != nil {
			return nil, err
		}
		for _, set := range s.given {
			set(&r)
		}
		if !r.Size.GPUs.Known() && r.Type == "" {
			r.Size.GPUs = s.gpus()
		}
		out = append(out, &r)
	}
	return out, nil
}

// Know adds what the case says of a resource besides.
func (c Case) Know(f *Facts) {
	for _, s := range c.c.subjects {
		if s.r.ID == f.Resource.ID {
			f.Checkpoint, f.PriceDrift, f.Budget = s.facts.Checkpoint, s.facts.PriceDrift, s.facts.Budget
			f.Stale = f.Stale || s.facts.Stale
			if s.facts.Hourly.Known() {
				f.Hourly = s.facts.Hourly
			}
		}
	}
}

// Samples hands over what was measured of a resource, row by row.
func (c Case) Samples(id string, visit func(at time.Time, gpu string, s usage.Signal, v float64)) {
	for _, s := range c.c.subjects {
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

// gpus is how many GPUs the samples speak of, those without a name of one; unknown where
// there are no samples.
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

// String names the case, and lists what failed.
func (r CaseResult) String() string {
	if r.Passed() {
		return fmt.Sprintf("%s:%d: %s: passed", r.File, r.Line, r.Name)
	}
	return fmt.Sprintf("%s:%d: %s: failed\n  %s", r.File, r.Line, r.Name, strings.Join(r.Failures, "\n  "))
}
