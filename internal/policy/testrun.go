package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
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

// RunTests asks the policies about the resources of each case at each of its times, with
// the verdicts that their samples give: what is judged live is judged so here.
func RunTests(set *Set, tests *Tests) []CaseResult {
	var out []CaseResult
	for _, c := range tests.cases {
		r := run{set: set, tests: tests, c: c}
		result := CaseResult{Name: c.name, File: tests.File, Line: c.line}
		for i := range c.checks {
			for _, failure := range r.check(&c.checks[i]) {
				result.Failures = append(result.Failures, fmt.Sprintf("%s:%d: %s", tests.File, c.checks[i].line, failure))
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
			failures = append(failures, fmt.Sprintf("want %s from %s on, got it at %s already: %s", f, r.offset(e.at), r.offset(earlier), f.why()))
		}
	}
	return failures
}

// offset writes a time as the case does: from its start.
func (r *run) offset(at time.Time) string { return durationText(at.Sub(r.c.start)) }

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
	var facts []*Facts
	gangs := map[string][]*Facts{}
	for _, s := range r.c.subjects {
		f, err := r.facts(s, at)
		if err != nil {
			return nil, err
		}
		facts = append(facts, f)
		if f.Resource.Gang != "" && f.Duty != nil {
			gangs[f.Resource.Gang] = append(gangs[f.Resource.Gang], f)
		}
	}
	for _, members := range gangs {
		judgeTogether(members)
	}
	var out []*found
	for _, p := range r.set.Policies {
		for _, f := range facts {
			out = append(out, &found{policy: p, facts: f, outcome: p.Evaluate(f)})
		}
	}
	return out, nil
}

// judgeTogether gives the machines of one run the verdict of the whole.
func judgeTogether(members []*Facts) {
	verdicts := make([]duty.Verdict, len(members))
	for i, m := range members {
		verdicts[i] = *m.Duty
	}
	whole := duty.Gang(verdicts)
	for i, m := range members {
		m.Duty = &whole
		for j, other := range members {
			if i != j {
				m.Gang = append(m.Gang, other.Resource.Ref())
			}
		}
	}
}

// facts is what is known of a resource at a time.
func (r *run) facts(s *subject, at time.Time) (*Facts, error) {
	resource, f := s.r, s.facts
	resource.Tags = s.tags
	mapping := r.tests.Tags
	if len(mapping.Team) == 0 {
		mapping = inventory.DefaultTagMapping()
	}
	if err := mapping.Apply(&resource); err != nil {
		return nil, err
	}
	for _, set := range s.given {
		set(&resource)
	}
	f.Now, f.Resource = at, &resource
	if !resource.Kind.Traits().Measured {
		return &f, nil
	}
	if n := s.gpus(); !f.GPUs.Known() && n >= 0 {
		f.GPUs = inventory.Known(n)
	}
	if resource.State == inventory.StateRunning {
		v := duty.Now(s.window(r.c, at), f.GPUs.Or(-1), at, r.tests.Duty)
		f.Duty = &v
	}
	return &f, nil
}

// gpus is how many GPUs the samples speak of, those without a name of one; -1 where
// there are no samples.
func (s *subject) gpus() int {
	if len(s.samples) == 0 {
		return -1
	}
	var names []string
	for _, row := range s.samples {
		for sig := range row.values {
			if sig.PerGPU() && !slices.Contains(names, row.gpu) {
				names = append(names, row.gpu)
			}
		}
	}
	return len(names)
}

// window is what was measured up to a time; nil where nothing was.
func (s *subject) window(c *testCase, at time.Time) *usage.Window {
	from := c.start
	for _, row := range s.samples {
		if row.at.Before(from) {
			from = row.at
		}
	}
	var w *usage.Window
	for _, row := range s.samples {
		if row.at.After(at) {
			continue
		}
		if w == nil {
			w = usage.NewWindow(from, at.Add(1), c.step, "case", nil)
			w.Launched = s.r.CreatedAt
		}
		for sig, v := range row.values {
			w.Add(row.gpu, sig, usage.Point{Time: row.at, Mean: v, Max: v})
		}
	}
	return w
}

// String names the case, and lists what failed.
func (r CaseResult) String() string {
	if r.Passed() {
		return fmt.Sprintf("%s:%d: %s: passed", r.File, r.Line, r.Name)
	}
	return fmt.Sprintf("%s:%d: %s: failed\n  %s", r.File, r.Line, r.Name, strings.Join(r.Failures, "\n  "))
}
