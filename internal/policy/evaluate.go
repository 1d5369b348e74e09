package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Evaluate returns whether the policy proposes its action for a resource, and until when that
// cannot change by time alone. It leaves Outcome.Parts to [Policy.Explain]. A condition not
// compiled by [Parse] is unknown. It is safe for concurrent use.
//
// Outcome.Next is exact to the nanosecond for comparisons of sums of durations and times:
// "duty.lasting > d" changes a nanosecond after d, ">=" at d. For other uses of time it is the next
// full minute.
func (p *Policy) Evaluate(f *Facts) Outcome {
	if f.Stale || f.Resource == nil {
		return Outcome{}
	}
	if p.IsFleet() {
		return Outcome{Answer: p.fleetAnswer(f.Resource)}
	}
	e := evaluation{facts: f, resource: f.Resource, schedule: p.compiled}
	out := Outcome{Answer: p.Select.match(f.Resource)}
	if out.Answer == usage.False {
		return out
	}
	for _, part := range []func(*evaluation) (usage.Tristate, time.Time){p.evalWhere, p.evalSchedule, p.evalWhen} {
		answer, next := part(&e)
		if answer == usage.False {
			return Outcome{Answer: usage.False, Next: next} // false while this part is false
		}
		out.Answer, out.Next = usage.And(out.Answer, answer), sooner(out.Next, next, f.Now)
	}
	return out
}

// Selects returns whether the resource matches select and where, regardless of schedule and when.
func (p *Policy) Selects(f *Facts) usage.Tristate {
	if f.Stale || f.Resource == nil {
		return usage.Unknown
	}
	if p.IsFleet() {
		return usage.FromBool(p.fleetAnswer(f.Resource) != usage.False)
	}
	answer, _ := p.evalWhere(&evaluation{facts: f, resource: f.Resource, schedule: p.compiled})
	return usage.And(p.Select.match(f.Resource), answer)
}

func (p *Policy) evalWhere(e *evaluation) (usage.Tristate, time.Time) {
	return evalCondition(p.Where, p.where, e)
}

func (p *Policy) evalWhen(e *evaluation) (usage.Tristate, time.Time) {
	return evalCondition(p.When, p.when, e)
}

// evalCondition evaluates a condition; an empty one is true, and one that was not compiled is
// unknown.
func evalCondition(text string, c *condition, e *evaluation) (usage.Tristate, time.Time) {
	switch {
	case text == "":
		return usage.True, time.Time{}
	case c == nil:
		return usage.Unknown, time.Time{}
	}
	return c.answer(*e), c.next(e)
}

// evalSchedule returns whether one of the schedule's spans holds now or a tick is due.
func (p *Policy) evalSchedule(e *evaluation) (usage.Tristate, time.Time) {
	switch {
	case p.Schedule == nil:
		return usage.True, time.Time{}
	case p.compiled == nil:
		return usage.Unknown, time.Time{}
	}
	answer, next := usage.False, time.Time{}
	if len(p.Schedule.Off) > 0 {
		answer, next = usage.FromBool(p.compiled.isOff(e.facts.Now)), p.compiled.nextChange(e.facts.Now)
	}
	if len(p.Schedule.At) > 0 {
		due := p.compiled.isDue(e.facts.Now, runningSince(e))
		answer, next = usage.Or(answer, due), sooner(next, nextDue(e), e.facts.Now)
	}
	return answer, next
}

// field is a plain value of a selection.
type field struct {
	name string
	// doc describes the value.
	doc string
	// selected returns the values in a Select; value reads a resource's, empty if it is unknown.
	selected func(*Select) *[]string
	value    func(*inventory.Resource) string
	// values are all possible values; nil if they are open.
	values    []string
	lowerCase bool
	// equal reports whether a value matches the wanted one; nil compares exactly.
	equal func(selected, value string) bool
}

// fields are the plain values of a selection, the most selective first.
var fields = []field{
	{name: "kind", doc: "kinds of resource", selected: func(s *Select) *[]string { return &s.Kind }, values: kinds,
		value: func(r *inventory.Resource) string { return string(r.Kind) }},
	{name: "lifetime", doc: "lifetimes; persistent where no tag says ephemeral", selected: func(s *Select) *[]string {
		return &s.Lifetime
	}, values: lifetimes,
		value: func(r *inventory.Resource) string { return string(lifetime(r)) }},
	{name: "purpose", doc: "purposes, by tags", selected: func(s *Select) *[]string {
		return &s.Purpose
	}, values: purposes,
		value: func(r *inventory.Resource) string { return string(r.Purpose) }},
	{name: "type", doc: "machine types", selected: func(s *Select) *[]string { return &s.Type },
		value: func(r *inventory.Resource) string { return r.Type }},
	{name: "cloud", doc: "clouds", selected: func(s *Select) *[]string { return &s.Cloud },
		value: func(r *inventory.Resource) string { return r.Cloud }},
	{name: "account", doc: "accounts", selected: func(s *Select) *[]string { return &s.Account },
		value: func(r *inventory.Resource) string { return r.Account }},
	{name: "region", doc: "regions", selected: func(s *Select) *[]string { return &s.Region },
		value: func(r *inventory.Resource) string { return r.Region }},
	{name: "team", doc: "teams, by tags", selected: func(s *Select) *[]string { return &s.Team },
		value: func(r *inventory.Resource) string { return r.Owner.Team }},
	{name: "project", doc: "projects, by tags", selected: func(s *Select) *[]string { return &s.Project },
		value: func(r *inventory.Resource) string { return r.Owner.Project }},
	{name: "user", doc: "users, by tags", selected: func(s *Select) *[]string { return &s.User },
		value: func(r *inventory.Resource) string { return r.Owner.User }},
	{
		name: "environment",
		doc:  "environments, by tags, in lower case; production, prod, prd and live are each everything that is production",
		selected: func(s *Select) *[]string {
			return &s.Environment
		}, lowerCase: true, equal: inventory.SameEnvironment,
		value: func(r *inventory.Resource) string { return r.Owner.Environment }},
}

// anyTagValue in a selection's tags matches every value.
const anyTagValue = "*"

// match returns whether a resource has all the values.
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
		if got, ok := r.Tags[k]; !ok || want != anyTagValue && got != want {
			return usage.False
		}
	}
	return answer
}

func (f *field) match(s *Select, r *inventory.Resource) usage.Tristate {
	wanted := *f.selected(s)
	if len(wanted) == 0 {
		return usage.True
	}
	got := f.value(r)
	if got == "" {
		return usage.Unknown
	}
	return usage.FromBool(f.includes(wanted, got))
}

// includes reports whether a value is one of the wanted ones.
func (f *field) includes(wanted []string, value string) bool {
	if f.equal == nil {
		return slices.Contains(wanted, value)
	}
	return slices.ContainsFunc(wanted, func(w string) bool { return f.equal(w, value) })
}

// isEmpty reports whether everything matches.
func (s *Select) isEmpty() bool {
	for i := range fields {
		if len(*fields[i].selected(s)) > 0 {
			return false
		}
	}
	return len(s.Tags) == 0
}

// Classes of evidence.
const (
	ClassDuty     = "duty"     // measured usage
	ClassLease    = "lease"    // the end of a lease
	ClassBudget   = "budget"   // money spent or forecast
	ClassPrice    = "price"    // the rate paid
	ClassAge      = "age"      // age of the resource or its state
	ClassSchedule = "schedule" // time of day and week
	ClassState    = "state"    // other properties
)

// classes are the facts of each class, in order of precedence.
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

// EvidenceClass returns the class of evidence that the policy acts on: the first of duty, lease,
// budget, price and age among its facts, else its schedule, else the state.
func (p *Policy) EvidenceClass() string {
	if p.UsesFigures() {
		return ClassDuty
	}
	for _, class := range classes {
		if slices.ContainsFunc(class.facts, p.UsesFact) {
			return class.name
		}
	}
	if p.Schedule != nil {
		return ClassSchedule
	}
	return ClassState
}

// UsesFact reports whether a condition of the policy uses a fact, such as "duty.coverage".
func (p *Policy) UsesFact(name string) bool {
	f := factIndex[name]
	return p.anyFact(func(asked *fact) bool { return asked == f })
}

// UsesCharges reports whether the conditions use facts that depend on charges or bills: budgets and
// the price paid.
func (p *Policy) UsesCharges() bool {
	return p.anyFact(func(f *fact) bool { return strings.HasPrefix(f.name, "budget.") || f.name == "price.drift" })
}

// AsksProgress reports whether the conditions use the progress of work.
func (p *Policy) AsksProgress() bool {
	return p.anyFact(func(f *fact) bool { return strings.HasPrefix(f.name, "progress.") })
}

// IgnoresTime reports whether the conditions, apart from the schedule, depend on time only through
// the duration of a duty state.
func (p *Policy) IgnoresTime() bool {
	return !p.UsesFigures() && !p.anyFact(func(f *fact) bool {
		return f.name == "now" || !strings.HasPrefix(f.name, "duty.") && (f.slope != 0 || f.nextChange != nil)
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

// Horizon returns how far back usage has to be known for the policy: the longest duration compared
// with duty.lasting, and the longest window of a figure; 0 without any.
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
			span := max(x.constantTerm, -x.constantTerm)
			for _, t := range x.terms {
				if t.fact != nil {
					span += t.fact.maxDuration
				}
			}
			longest = max(longest, span)
		}
	}
	return longest
}

// Kinds returns the kinds of resource that the policies select; nil is all.
func (s *Set) Kinds() map[inventory.Kind]bool {
	out := map[inventory.Kind]bool{}
	for _, p := range s.Policies {
		if p.IsFleet() {
			kind, _ := p.Do.FleetResource()
			out[kind] = true
			continue
		}
		if len(p.Select.Kind) == 0 {
			return nil
		}
		for _, k := range p.Select.Kind {
			out[inventory.Kind(k)] = true
		}
		if p.Do.Verb == Scale && out[inventory.KindAutoScalingGroup] {
			out[inventory.KindInstance] = true // the duty of a group is derived from its machines
		}
	}
	return out
}
