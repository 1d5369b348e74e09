package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Evaluate says whether the policy proposes its action for a resource, and until when
// that cannot change by time alone. It leaves Outcome.Parts to [Policy.Explain]. A
// condition that [Parse] did not read is unknown. It is safe for concurrent use.
//
// Outcome.Next is exact to the nanosecond where a condition compares sums of spans and
// times: "duty.lasting > d" turns a nanosecond after d, ">=" at d. Where a condition uses
// time in any other way it is the next full minute, when clocks show another time.
func (p *Policy) Evaluate(f *Facts) Outcome {
	if f.Stale || f.Resource == nil {
		return Outcome{}
	}
	e := evaluation{f: f, r: f.Resource, hours: p.hours}
	out := Outcome{Answer: p.Select.match(f.Resource)}
	if out.Answer == usage.False {
		return out
	}
	for _, part := range []func(*evaluation) (usage.Tristate, time.Time){p.askWhere, p.askSchedule, p.askWhen} {
		answer, next := part(&e)
		if answer == usage.False {
			return Outcome{Answer: usage.False, Next: next} // it stays false while this part does
		}
		out.Answer, out.Next = usage.And(out.Answer, answer), sooner(out.Next, next, f.Now)
	}
	return out
}

// Selects says whether the resource is of those that the policy is about: select and
// where, not schedule and when.
func (p *Policy) Selects(f *Facts) usage.Tristate {
	if f.Stale || f.Resource == nil {
		return usage.Unknown
	}
	answer, _ := p.askWhere(&evaluation{f: f, r: f.Resource, hours: p.hours})
	return usage.And(p.Select.match(f.Resource), answer)
}

func (p *Policy) askWhere(e *evaluation) (usage.Tristate, time.Time) { return ask(p.Where, p.where, e) }

func (p *Policy) askWhen(e *evaluation) (usage.Tristate, time.Time) { return ask(p.When, p.when, e) }

// ask evaluates a condition; none is true, and one that was not compiled unknown.
func ask(text string, c *condition, e *evaluation) (usage.Tristate, time.Time) {
	switch {
	case text == "":
		return usage.True, time.Time{}
	case c == nil:
		return usage.Unknown, time.Time{}
	}
	return c.answer(*e), c.next(e)
}

// askSchedule says whether one of the schedule's spans holds now or a tick is due.
func (p *Policy) askSchedule(e *evaluation) (usage.Tristate, time.Time) {
	switch {
	case p.Schedule == nil:
		return usage.True, time.Time{}
	case p.hours == nil:
		return usage.Unknown, time.Time{}
	}
	answer, next := usage.False, time.Time{}
	if len(p.Schedule.Off) > 0 {
		answer, next = usage.FromBool(p.hours.isOff(e.f.Now)), p.hours.nextTurn(e.f.Now)
	}
	if len(p.Schedule.At) > 0 {
		due := p.hours.isDue(e.f.Now, runningSince(e))
		answer, next = usage.Or(answer, due), sooner(next, dueTurns(e), e.f.Now)
	}
	return answer, next
}

// field is one plain value of a selection.
type field struct {
	name string
	// doc says for people which value it is.
	doc string
	// wanted points to the values in a Select; value reads a resource's, empty where it
	// is not known.
	wanted func(*Select) *[]string
	value  func(*inventory.Resource) string
	// values are all it can be; nil where that is open.
	values []string
	lower  bool
	// same says whether a value is the wanted one; nil: where they are equal.
	same func(wanted, value string) bool
}

// fields are the plain values of a selection, the cheapest to tell apart first.
var fields = []field{
	{name: "kind", doc: "kinds of resource", wanted: func(s *Select) *[]string { return &s.Kind }, values: kinds,
		value: func(r *inventory.Resource) string { return string(r.Kind) }},
	{name: "lifetime", doc: "lifetimes; persistent where no tag says ephemeral", wanted: func(s *Select) *[]string {
		return &s.Lifetime
	}, values: lifetimes,
		value: func(r *inventory.Resource) string { return string(lifetime(r)) }},
	{name: "purpose", doc: "purposes, by tags", wanted: func(s *Select) *[]string {
		return &s.Purpose
	}, values: purposes,
		value: func(r *inventory.Resource) string { return string(r.Purpose) }},
	{name: "type", doc: "machine types", wanted: func(s *Select) *[]string { return &s.Type },
		value: func(r *inventory.Resource) string { return r.Type }},
	{name: "cloud", doc: "clouds", wanted: func(s *Select) *[]string { return &s.Cloud },
		value: func(r *inventory.Resource) string { return r.Cloud }},
	{name: "account", doc: "accounts", wanted: func(s *Select) *[]string { return &s.Account },
		value: func(r *inventory.Resource) string { return r.Account }},
	{name: "region", doc: "regions", wanted: func(s *Select) *[]string { return &s.Region },
		value: func(r *inventory.Resource) string { return r.Region }},
	{name: "team", doc: "teams, by tags", wanted: func(s *Select) *[]string { return &s.Team },
		value: func(r *inventory.Resource) string { return r.Owner.Team }},
	{name: "project", doc: "projects, by tags", wanted: func(s *Select) *[]string { return &s.Project },
		value: func(r *inventory.Resource) string { return r.Owner.Project }},
	{name: "user", doc: "users, by tags", wanted: func(s *Select) *[]string { return &s.User },
		value: func(r *inventory.Resource) string { return r.Owner.User }},
	{
		name:   "environment",
		doc:    "environments, by tags, in lower case; production, prod, prd and live are each everything that is production",
		wanted: func(s *Select) *[]string { return &s.Environment }, lower: true, same: inventory.SameEnvironment,
		value: func(r *inventory.Resource) string { return r.Owner.Environment }},
}

// anyValue in a selection's tags stands for every value.
const anyValue = "*"

// match says whether a resource has all the values.
func (s *Select) match(r *inventory.Resource) usage.Tristate {
	answer := usage.True
	for i := range fields {
		switch fields[i].match(s, r) {
		case usage.False:
			return usage.False
		case usage.Unknown:
			answer = usage.Unknown
		}
	}
	if len(s.Tags) > 0 && r.Tags == nil {
		return usage.Unknown
	}
	for k, want := range s.Tags {
		if got, ok := r.Tags[k]; !ok || want != anyValue && got != want {
			return usage.False
		}
	}
	return answer
}

func (f *field) match(s *Select, r *inventory.Resource) usage.Tristate {
	wanted := *f.wanted(s)
	if len(wanted) == 0 {
		return usage.True
	}
	got := f.value(r)
	if got == "" {
		return usage.Unknown
	}
	return usage.FromBool(f.includes(wanted, got))
}

// includes says whether a value is one of those wanted.
func (f *field) includes(wanted []string, value string) bool {
	if f.same == nil {
		return slices.Contains(wanted, value)
	}
	return slices.ContainsFunc(wanted, func(w string) bool { return f.same(w, value) })
}

// isEmpty says whether everything matches.
func (s *Select) isEmpty() bool {
	for i := range fields {
		if len(*fields[i].wanted(s)) > 0 {
			return false
		}
	}
	return len(s.Tags) == 0
}

// Classes of evidence.
const (
	ClassDuty     = "duty"     // what was measured of it
	ClassLease    = "lease"    // the end of a right to run
	ClassBudget   = "budget"   // money spent or forecast
	ClassPrice    = "price"    // the rate paid
	ClassAge      = "age"      // how long it has been there
	ClassSchedule = "schedule" // the time of day and week
	ClassState    = "state"    // what it is
)

// classes are the facts of each class, the first class that a policy asks for being its own.
var classes = []struct {
	name  string
	facts []string
}{
	{ClassDuty, []string{"duty.state", "duty.lasting", "duty.coverage", "duty.why"}},
	{ClassLease, []string{"lease.until", "lease.remaining", "lease.expired", "lease.idle"}},
	{ClassBudget, []string{"budget.state", "budget.used_share", "budget.forecast_share"}},
	{ClassPrice, []string{"price.drift"}},
	{ClassAge, []string{"resource.age", "resource.state_age", "resource.last_activity", "checkpoint.age"}},
	{ClassSchedule, []string{"schedule.off", "schedule.due", "now"}},
}

// Class is the kind of evidence that the policy acts on: the first of duty, lease,
// budget, price and age that its conditions ask for, else its schedule, else what the
// resource is.
func (p *Policy) Class() string {
	if p.AsksFigures() {
		return ClassDuty
	}
	for _, class := range classes {
		if slices.ContainsFunc(class.facts, p.Asks) {
			return class.name
		}
	}
	if p.Schedule != nil {
		return ClassSchedule
	}
	return ClassState
}

// Asks says whether a condition of the policy asks for a fact, such as "duty.coverage".
func (p *Policy) Asks(name string) bool {
	f := factIndex[name]
	return p.anyFact(func(asked *fact) bool { return asked == f })
}

// AsksCharges says whether the conditions ask for what follows from what was charged or
// billed: where budgets stand, what is paid.
func (p *Policy) AsksCharges() bool {
	return p.anyFact(func(f *fact) bool { return strings.HasPrefix(f.name, "budget.") || f.name == "price.drift" })
}

// AsksProgress says whether the conditions ask for the progress of work.
func (p *Policy) AsksProgress() bool {
	return p.anyFact(func(f *fact) bool { return strings.HasPrefix(f.name, "progress.") })
}

// Timeless says whether the conditions, other than the schedule, answer alike at any time
// while nothing is learned, but for how long a state of duty has lasted.
func (p *Policy) Timeless() bool {
	return !p.AsksFigures() && !p.anyFact(func(f *fact) bool {
		return f.name == "now" || !strings.HasPrefix(f.name, "duty.") && (f.slope != 0 || f.turns != nil)
	})
}

func (p *Policy) anyFact(is func(*fact) bool) bool {
	for _, c := range []*condition{p.where, p.when} {
		if c != nil && slices.ContainsFunc(c.facts, is) {
			return true
		}
	}
	return false
}

// Horizon is how far back usage has to be known for the policy: the longest span that
// duty.lasting or progress.since can be compared with, and the longest window of a figure; 0 where
// there is none.
func (p *Policy) Horizon() time.Duration {
	longest := duty.NewWatch(p.Figures()).Horizon()
	for _, c := range []*condition{p.where, p.when} {
		if c == nil {
			continue
		}
		for _, x := range c.crossings {
			if !slices.ContainsFunc(x.terms, func(t term) bool {
				return t.fact == factIndex["duty.lasting"] || t.fact == factIndex["progress.since"]
			}) {
				continue
			}
			span := max(x.rest, -x.rest)
			for _, t := range x.terms {
				if t.fact != nil {
					span += t.fact.most
				}
			}
			longest = max(longest, span)
		}
	}
	return longest
}

// Kinds are the kinds of resource that the policies are about; nil is all.
func (s *Set) Kinds() map[inventory.Kind]bool {
	out := map[inventory.Kind]bool{}
	for _, p := range s.Policies {
		if len(p.Select.Kind) == 0 {
			return nil
		}
		for _, k := range p.Select.Kind {
			out[inventory.Kind(k)] = true
		}
		if p.Do.Verb == Scale && out[inventory.KindAutoScalingGroup] {
			out[inventory.KindInstance] = true // what a group does is what its machines do
		}
	}
	return out
}
