package policy

import (
	"math"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// fact is a value that conditions can use.
type fact struct {
	name string
	// doc describes it, unit is the unit of a number, and example a condition that uses it.
	doc, unit, example string
	typ                *cel.Type
	// unknown describes when it is unknown.
	unknown string
	// values are all possible values; nil if they are open.
	values []string
	// lowerCase is set if values are always in lower case.
	lowerCase bool
	// canonical returns the canonical form of equivalent values, for the fact and for values in
	// conditions; nil if every value is its own form.
	canonical func(string) string
	// class is the variable that replaces the fact in comparisons with a value that stands for a
	// class of values, as classes reports. Conditions cannot spell it.
	class   string
	classes func(value string) bool
	// shownAs is the fact that explanations show instead of this derived one.
	shownAs string
	// read returns the value, nil if it is unknown.
	read func(*evaluation) ref.Val
	// slope is the change per nanosecond while nothing else changes: 1 or -1 for durations that
	// grow or shrink; 0 for others.
	slope int
	// maxDuration is the longest value of a duration that a tag sets; 0 for others.
	maxDuration time.Duration
	// growthEnd returns when a growing fact stops growing; zero is never.
	growthEnd func(*evaluation) time.Time
	// nextChange returns the next time at which the fact jumps to another value as time passes;
	// zero is never.
	nextChange func(*evaluation) time.Time
	// scheduled is set for facts that only policies with a schedule have.
	scheduled bool
	// tagged is set if a tag gives the fact, so that has() can be false once tags were read.
	tagged bool
}

// presence returns the variable behind has() of a tagged fact. Conditions cannot spell it.
func (f *fact) presence() string { return "@has." + f.name }

// tagPresence returns whether a tag gives the fact; unknown if tags could not be read.
func (f *fact) tagPresence(e *evaluation) usage.Tristate {
	switch {
	case f.read(e) != nil:
		return usage.True
	case e.resource.Tags == nil:
		return usage.Unknown
	}
	return usage.False
}

// evaluation is the evaluation of a policy for a resource.
type evaluation struct {
	facts    *Facts
	resource *inventory.Resource
	schedule *compiledSchedule
}

// dutyFact reads a fact of a verdict; unknown without one.
func dutyFact(read func(*evaluation, *duty.Verdict) ref.Val) func(*evaluation) ref.Val {
	return func(e *evaluation) ref.Val {
		if v := currentVerdict(e); v != nil {
			return read(e, v)
		}
		return nil
	}
}

// leaseFact reads a fact of a lease; unknown without one.
func leaseFact(read func(e *evaluation, until time.Time) ref.Val) func(*evaluation) ref.Val {
	return func(e *evaluation) ref.Val {
		if e.resource.LeaseUntil.IsZero() {
			return nil
		}
		return read(e, e.resource.LeaseUntil)
	}
}

// budgetFact reads a fact of a budget; unknown without one.
func budgetFact(read func(*Budget) ref.Val) func(*evaluation) ref.Val {
	return func(e *evaluation) ref.Val {
		if e.facts.Budget == nil {
			return nil
		}
		return read(e.facts.Budget)
	}
}

// kinds are all kinds of resource.
var kinds = func() (names []string) {
	for _, k := range inventory.Kinds() {
		names = append(names, string(k))
	}
	return names
}()

var lifetimes = []string{string(inventory.Ephemeral), string(inventory.Persistent)}

var purposes = []string{
	string(inventory.Training), string(inventory.Evaluation), string(inventory.Experimentation),
	string(inventory.Inference), string(inventory.Data),
}

var states = []string{
	string(inventory.StatePending), string(inventory.StateRunning), string(inventory.StateStopping),
	string(inventory.StateStopped), string(inventory.StateAvailable), string(inventory.StateInUse),
	string(inventory.StateDisabled), string(inventory.StateFailed), string(inventory.StateDeleting),
}

var markets = []string{
	string(inventory.OnDemand), string(inventory.Spot), string(inventory.CapacityBlock),
	string(inventory.DedicatedHost),
}

var duties = []string{
	string(duty.Busy), string(duty.Held), string(duty.Idle), string(duty.Stalled), string(duty.Starved),
	string(duty.Warming),
}

var budgetStates = []string{"ok", "warn", "gate", "over"}

// facts are all facts of conditions, in the order of the documentation.
var facts = []fact{
	{name: "now", doc: "time of the pass", example: `now.getDayOfWeek("Europe/Berlin") == 6`,
		typ: cel.TimestampType, unknown: "never", slope: 1,
		read: func(e *evaluation) ref.Val { return types.Timestamp{Time: e.facts.Now} }},

	{name: "resource.id", doc: "id that the provider gave it", example: `resource.id.startsWith("i-0f3a")`,
		typ: cel.StringType, unknown: "never",
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.ID) }},
	{name: "resource.name", doc: "its name", example: `resource.name.contains("test")`,
		typ: cel.StringType, unknown: "it has none",
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Name) }},
	{name: "resource.kind", doc: "its kind", example: `resource.kind == "instance"`,
		typ: cel.StringType, unknown: "never", values: kinds,
		read: func(e *evaluation) ref.Val { return textOrUnknown(string(e.resource.Kind)) }},
	{name: "resource.cloud", doc: "its cloud", example: `resource.cloud == "aws"`,
		typ: cel.StringType, unknown: "a recording does not say",
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Cloud) }},
	{name: "resource.account", doc: "its account", example: `resource.account == "123456789012"`,
		typ: cel.StringType, unknown: "a recording does not say",
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Account) }},
	{name: "resource.region", doc: "its region", example: `resource.region in ["us-east-1", "us-west-2"]`,
		typ: cel.StringType, unknown: "a recording does not say",
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Region) }},
	{name: "resource.zone", doc: "its zone", example: `resource.zone == "us-east-1a"`,
		typ: cel.StringType, unknown: "it is in no single zone",
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Zone) }},
	{name: "resource.type", doc: "its machine type or class", example: `resource.type.startsWith("p4d.")`,
		typ: cel.StringType, unknown: "the kind has none",
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Type) }},
	{name: "resource.state", doc: "the provider's state", example: `resource.state == "running"`,
		typ: cel.StringType, unknown: "the provider's state could not be read", values: states,
		read: func(e *evaluation) ref.Val { return textOrUnknown(string(e.resource.State)) }},
	{name: "resource.lifetime", doc: "how long it is meant to live", example: `resource.lifetime == "ephemeral"`,
		typ: cel.StringType, unknown: "never; persistent where no tag says ephemeral", values: lifetimes,
		read: func(e *evaluation) ref.Val { return types.String(lifetime(e.resource)) }},
	{name: "resource.purpose", doc: "what it is for, by its tags", example: `resource.purpose == "training"`,
		typ: cel.StringType, unknown: "no tag says it", values: purposes, tagged: true,
		read: func(e *evaluation) ref.Val { return textOrUnknown(string(e.resource.Purpose)) }},
	{name: "resource.team", doc: "owning team, by its tags", example: `resource.team == "vision"`,
		typ: cel.StringType, unknown: "no tag says it", tagged: true,
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Owner.Team) }},
	{name: "resource.project", doc: "project, by its tags", example: `resource.project == "ranking"`,
		typ: cel.StringType, unknown: "no tag says it", tagged: true,
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Owner.Project) }},
	{name: "resource.user", doc: "person, by its tags", example: `resource.user == "ana"`,
		typ: cel.StringType, unknown: "no tag says it", tagged: true,
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Owner.User) }},
	{
		name: "resource.environment",
		doc: "environment, by its tags, in lower case; prod, prd and live are production, " +
			"and so is prod-eu where it is compared with one of them",
		example: `resource.environment != "production"`,
		typ:     cel.StringType, unknown: "no tag says it", lowerCase: true, canonical: inventory.CanonicalEnvironment,
		tagged:  true,
		class:   classPrefix + "resource.environment",
		classes: func(value string) bool { return inventory.CanonicalEnvironment(value) == inventory.Production },
		read: func(e *evaluation) ref.Val {
			return textOrUnknown(inventory.CanonicalEnvironment(e.resource.Owner.Environment))
		}},
	{
		name: "resource.production", doc: "whether its environment is production, in any spelling",
		example: `!resource.production`,
		typ:     cel.BoolType, unknown: "no tag says its environment", tagged: true, shownAs: "resource.environment",
		read: func(e *evaluation) ref.Val {
			if e.resource.Owner.Environment == "" {
				return nil
			}
			return types.Bool(e.resource.Owner.InProduction())
		}},
	{name: "resource.cost_center", doc: "cost center, by its tags", example: `resource.cost_center == "4711"`,
		typ: cel.StringType, unknown: "no tag says it", tagged: true,
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Owner.CostCenter) }},
	{name: "resource.tags", doc: "its tags", example: `resource.tags["keep"] == "no"`,
		typ: cel.MapType(cel.StringType, cel.StringType), unknown: "tags could not be read",
		read: tags},
	{name: "resource.managed", doc: "whether it has the tag curfew:managed=true", example: `resource.managed`,
		typ: cel.BoolType, unknown: "tags could not be read",
		read: func(e *evaluation) ref.Val {
			if e.resource.Tags == nil {
				return nil
			}
			return types.Bool(e.resource.Managed)
		}},
	{
		name: "resource.gang", doc: "job group: the run of several machines that it belongs to",
		example: `has(resource.gang)`,
		typ:     cel.StringType, unknown: "it belongs to no known run of several machines",
		read: func(e *evaluation) ref.Val { return textOrUnknown(e.resource.Gang) }},
	{name: "resource.gpus", doc: "its GPUs", unit: "GPUs", example: `resource.gpus >= 8`,
		typ: cel.IntType, unknown: "the machine type is not in the catalog",
		read: func(e *evaluation) ref.Val {
			n, known := e.resource.Size.GPUs.Get()
			if !known {
				return nil
			}
			return types.Int(n)
		}},
	{name: "resource.market", doc: "how it was bought", example: `resource.market == "on-demand"`,
		typ: cel.StringType, unknown: "it is no machine, or its market is unknown", values: markets,
		read: market},
	{
		name: "resource.hourly_usd", doc: "its list price", unit: "dollars an hour",
		example: `resource.hourly_usd > 10.0`,
		typ:     cel.DoubleType, unknown: "a meter of it has no price",
		read: hourly},
	{name: "resource.age", doc: "time since its creation or launch", example: `resource.age > duration("12h")`,
		typ: cel.DurationType, unknown: "the time of its creation, or launch, is unknown", slope: 1,
		read:       func(e *evaluation) ref.Val { return elapsedSince(e, e.resource.CreatedAt) },
		nextChange: func(e *evaluation) time.Time { return e.resource.CreatedAt }},
	{
		name: "resource.state_age", doc: "time since it entered its state",
		example: `resource.state_age > duration("30d")`,
		typ:     cel.DurationType, unknown: "the provider does not say since when", slope: 1,
		read:       func(e *evaluation) ref.Val { return elapsedSince(e, e.resource.StateSince) },
		nextChange: func(e *evaluation) time.Time { return e.resource.StateSince }},
	{name: "resource.attached", doc: "whether a volume or an address is attached", example: `!resource.attached`,
		typ: cel.BoolType, unknown: "it is neither a volume nor an address",
		read: attached},
	{name: "resource.size_gib", doc: "its size", unit: "GiB", example: `resource.size_gib > 1000`,
		typ: cel.IntType, unknown: "the kind has no size, or the provider does not say",
		read: size},
	{
		name:    "resource.last_activity",
		doc:     "a notebook's last use, a secret's last access, or an image's last launch",
		example: `now - resource.last_activity > duration("14d")`,
		typ:     cel.TimestampType, unknown: "the kind has no record of use, or it is empty",
		read: lastActivity},

	{name: "duty.state", doc: "its duty", example: `duty.state in ["idle", "held"]`,
		typ: cel.StringType, unknown: "too little was measured, or the newest sample is too old", values: duties,
		read: dutyFact(func(_ *evaluation, v *duty.Verdict) ref.Val {
			return types.String(v.State)
		}), nextChange: dutyExpires},
	{
		name:    "duty.lasting",
		doc:     "how long it has been idle, held or stalled without a missing sample; 0 while busy or warming",
		example: `duty.lasting >= duration("30m")`,
		typ:     cel.DurationType, unknown: "duty.state is unknown", slope: 1,
		read: dutyFact(func(e *evaluation, v *duty.Verdict) ref.Val {
			return types.Duration{Duration: stateDuration(v, e.facts.Now)}
		}),
		growthEnd: func(e *evaluation) time.Time {
			if e.facts.Duty == nil || e.facts.Duty.Since.IsZero() {
				return e.facts.Now // it does not grow
			}
			return e.facts.Duty.Until
		}, nextChange: dutyExpires},
	{
		name: "duty.coverage",
		doc:  "least share of the time that samples of a deciding signal cover", unit: "share, 0 to 1",
		example: `duty.coverage >= 0.95`,
		typ:     cel.DoubleType, unknown: "duty.state is unknown",
		read:       dutyFact(func(_ *evaluation, v *duty.Verdict) ref.Val { return numberOrUnknown(v.Coverage) }),
		nextChange: dutyExpires},
	{name: "duty.why", doc: "evidence of the duty, in words", example: `duty.why.contains("memory")`,
		typ: cel.StringType, unknown: "duty.state is unknown",
		read: dutyFact(func(_ *evaluation, v *duty.Verdict) ref.Val {
			return textOrUnknown(v.Why)
		}), nextChange: dutyExpires},

	{
		name: "lease.until", doc: "end of its lease, by the tag curfew:lease-until",
		example: `lease.until < timestamp("2026-12-31T00:00:00Z")`,
		typ:     cel.TimestampType, unknown: "it has no lease",
		read: leaseFact(func(_ *evaluation, until time.Time) ref.Val { return types.Timestamp{Time: until} })},
	{
		name: "lease.remaining", doc: "time left of its lease; negative after its end",
		example: `lease.remaining < duration("1h")`,
		typ:     cel.DurationType, unknown: "it has no lease", slope: -1,
		read: leaseFact(func(e *evaluation, until time.Time) ref.Val {
			return types.Duration{Duration: until.Sub(e.facts.Now)}
		})},
	{name: "lease.expired", doc: "whether its lease is over", example: `lease.expired`,
		typ: cel.BoolType, unknown: "it has no lease",
		read: leaseFact(func(e *evaluation, until time.Time) ref.Val {
			return types.Bool(!e.facts.Now.Before(until))
		}),
		nextChange: func(e *evaluation) time.Time { return e.resource.LeaseUntil }},
	{
		name: "lease.idle", doc: "idle period after which it is to end, by the tag curfew:idle",
		example: `duty.lasting >= lease.idle`,
		typ:     cel.DurationType, unknown: "no tag says a duration of at most 12h", maxDuration: inventory.MaxIdle,
		read: func(e *evaluation) ref.Val {
			if e.resource.IdleLimit == 0 {
				return nil
			}
			return types.Duration{Duration: e.resource.IdleLimit}
		}},

	{
		name: "checkpoint.age", doc: "time since the newest confirmed checkpoint of its work",
		example: `checkpoint.age < duration("15m")`,
		typ:     cel.DurationType, unknown: "no checkpoint of its work was confirmed", slope: 1,
		read:       func(e *evaluation) ref.Val { return elapsedSince(e, e.facts.Checkpoint.Or(time.Time{})) },
		nextChange: func(e *evaluation) time.Time { return e.facts.Checkpoint.Or(time.Time{}) }},

	{
		name: "progress.since",
		doc: "time since its work last made progress, by a new highest step or a complete checkpoint; " +
			"since the work began where there was none",
		example: `progress.since >= duration("12h")`,
		typ:     cel.DurationType, unknown: "the machine rests, or its duty is unknown", slope: 1,
		read: func(e *evaluation) ref.Val {
			at, known := e.facts.LastProgress()
			if !known {
				return nil
			}
			return types.Duration{Duration: e.facts.Now.Sub(at)}
		}},
	{
		name: "progress.spent", doc: "its cost in that time, at its list price", unit: "dollars",
		example: `progress.spent >= 100.0`,
		typ:     cel.DoubleType, unknown: "progress.since is unknown, or a meter of it has no price",
		read: func(e *evaluation) ref.Val {
			v, known := e.facts.SpentSinceProgress()
			if !known {
				return nil
			}
			return numberOrUnknown(float64(v) / float64(money.USD))
		}, nextChange: nextDollar},
	{
		name: "progress.told", doc: "whether its work ever reported progress", example: `!progress.told`,
		typ: cel.BoolType, unknown: "progress.since is unknown",
		read: func(e *evaluation) ref.Val {
			if _, known := e.facts.LastProgress(); !known {
				return nil
			}
			return types.Bool(e.facts.ReportsProgress())
		}},

	{name: "budget.state", doc: "state of the budget that it counts against", example: `budget.state == "over"`,
		typ: cel.StringType, unknown: "no budget is known", values: budgetStates,
		read: budgetFact(func(b *Budget) ref.Val { return textOrUnknown(b.State) })},
	{
		name: "budget.used_share", doc: "spent and reserved over the amount of the budget", unit: "share, 1 is all",
		example: `budget.used_share > 0.9`,
		typ:     cel.DoubleType, unknown: "no budget is known",
		read: budgetFact(func(b *Budget) ref.Val { return numberOrUnknown(b.UsedShare) })},
	{
		name: "budget.forecast_share", doc: "forecast for the period over the amount of the budget",
		unit:    "share, 1 is all",
		example: `budget.forecast_share > 1.2`,
		typ:     cel.DoubleType, unknown: "no budget is known, or there is no forecast",
		read: budgetFact(func(b *Budget) ref.Val { return numberOrUnknown(b.ForecastShare.Or(math.NaN())) })},

	{
		name: "price.drift", doc: "rate paid over the price book's, less 1", unit: "share, 0.1 is 10% more",
		example: `price.drift > 0.1`,
		typ:     cel.DoubleType, unknown: "the rate paid, or the catalog's, is unknown",
		read: func(e *evaluation) ref.Val { return numberOrUnknown(e.facts.PriceDrift.Or(math.NaN())) }},

	{name: "schedule.off", doc: "whether the schedule is in an off span", example: `schedule.off && resource.gpus > 0`,
		typ: cel.BoolType, unknown: "never", scheduled: true,
		read:       func(e *evaluation) ref.Val { return types.Bool(e.schedule.isOff(e.facts.Now)) },
		nextChange: func(e *evaluation) time.Time { return e.schedule.nextChange(e.facts.Now) }},
	{
		name: "schedule.due", doc: "whether a moment of the schedule has passed since the resource was started",
		example: `schedule.due`,
		typ:     cel.BoolType, unknown: "its start is unknown", scheduled: true,
		read:       func(e *evaluation) ref.Val { return celBool(e.schedule.isDue(e.facts.Now, runningSince(e))) },
		nextChange: nextDue},
}

// factIndex finds a fact by its name.
var factIndex = func() map[string]*fact {
	m := make(map[string]*fact, len(facts))
	for i := range facts {
		m[facts[i].name] = &facts[i]
		if facts[i].class != "" {
			m[facts[i].class] = &environmentClass
		}
	}
	return m
}()

// classPrefix starts the variables of classes.
const classPrefix = "@class."

// environmentClass is resource.environment in comparisons with production: every production
// environment has the value production.
var environmentClass = fact{name: "resource.environment", doc: "environment, by its tags", typ: cel.StringType,
	unknown: "no tag says it", lowerCase: true, canonical: inventory.CanonicalEnvironment, tagged: true,
	read: func(e *evaluation) ref.Val {
		if e.resource.Owner.InProduction() {
			return types.String(inventory.Production)
		}
		return textOrUnknown(inventory.CanonicalEnvironment(e.resource.Owner.Environment))
	}}

// presences maps the variable behind has() to its tagged fact.
var presences = func() map[string]*fact {
	m := map[string]*fact{}
	for i := range facts {
		if facts[i].tagged {
			m[facts[i].presence()] = &facts[i]
		}
	}
	return m
}()

// textOrUnknown returns a text; empty is unknown.
func textOrUnknown(s string) ref.Val {
	if s == "" {
		return nil
	}
	return types.String(s)
}

// numberOrUnknown returns a number; unknown unless it is finite.
func numberOrUnknown(v float64) ref.Val {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return types.Double(v)
}

// celBool returns a Tristate as a CEL value; nil for unknown.
func celBool(a usage.Tristate) ref.Val {
	if a == usage.Unknown {
		return nil
	}
	return types.Bool(a == usage.True)
}

// lifetime returns a resource's lifetime; unknown counts as persistent (safety rule 1).
func lifetime(r *inventory.Resource) inventory.Lifetime {
	if r.Lifetime == inventory.Ephemeral {
		return inventory.Ephemeral
	}
	return inventory.Persistent
}

// elapsedSince returns the duration from t to now; unknown if t is unknown or in the future.
func elapsedSince(e *evaluation, t time.Time) ref.Val {
	if t.IsZero() || t.After(e.facts.Now) {
		return nil
	}
	return types.Duration{Duration: e.facts.Now.Sub(t)}
}

func tags(e *evaluation) ref.Val {
	if e.resource.Tags == nil {
		return nil
	}
	return types.DefaultTypeAdapter.NativeToValue(e.resource.Tags)
}

func market(e *evaluation) ref.Val {
	if m, ok := e.resource.Detail.(*inventory.Instance); ok {
		return textOrUnknown(string(m.Market))
	}
	return nil
}

// hourly returns dollars per hour, for comparisons only. The quotient of two integers that a float
// holds exactly is the float nearest to the decimal, as a literal is, so comparisons are exact
// below nine million dollars.
func hourly(e *evaluation) ref.Val {
	amount, known := e.facts.Hourly.Get()
	if !known {
		return nil
	}
	return types.Double(float64(amount) / 1e9)
}

// nextDollar returns when the dollars spent without progress reach the next whole dollar. A
// condition on a fraction of a dollar changes at most that much later.
func nextDollar(e *evaluation) time.Time {
	spent, known := e.facts.SpentSinceProgress()
	hourly := e.facts.Hourly.Or(0)
	if !known || hourly <= 0 {
		return time.Time{}
	}
	left := money.USD - spent%money.USD
	return e.facts.Now.Add(time.Duration(float64(left)/float64(hourly)*float64(time.Hour)) + time.Second)
}

func attached(e *evaluation) ref.Val {
	switch d := e.resource.Detail.(type) {
	case *inventory.Volume:
		return types.Bool(len(d.AttachedTo) > 0 || e.resource.State == inventory.StateInUse)
	case *inventory.Address:
		return types.Bool(d.AssociationID != "" || d.InstanceID != "")
	}
	return nil
}

func size(e *evaluation) ref.Val {
	var gib int64
	switch d := e.resource.Detail.(type) {
	case *inventory.Volume:
		gib = d.SizeGiB
	case *inventory.Snapshot:
		gib = d.VolumeSizeGiB
	case *inventory.Notebook:
		gib = d.VolumeGiB
	case *inventory.FileSystem:
		gib = d.CapacityGiB
	case *inventory.Database:
		gib = d.StorageGiB
	}
	if gib <= 0 {
		return nil
	}
	return types.Int(gib)
}

func lastActivity(e *evaluation) ref.Val {
	var at inventory.Fact[time.Time]
	switch d := e.resource.Detail.(type) {
	case *inventory.Notebook:
		at = d.LastActivity
	case *inventory.Secret:
		at = d.LastAccessed
	case *inventory.Image:
		at = d.LastLaunched
	}
	if t := at.Or(time.Time{}); !t.IsZero() {
		return types.Timestamp{Time: t}
	}
	return nil
}

// currentVerdict returns the resource's verdict, nil if it is unknown or expired.
func currentVerdict(e *evaluation) *duty.Verdict {
	v := e.facts.Duty
	if v == nil || v.State == duty.Unknown || (!v.Expires.IsZero() && e.facts.Now.After(v.Expires)) {
		return nil
	}
	return v
}

// dutyExpires returns when a verdict without newer samples becomes unknown.
func dutyExpires(e *evaluation) time.Time {
	if v := currentVerdict(e); v != nil && !v.Expires.IsZero() {
		return v.Expires.Add(1)
	}
	return time.Time{}
}

// stateDuration returns how long a verdict's state is known to have lasted at a time.
func stateDuration(v *duty.Verdict, now time.Time) time.Duration {
	if v.Since.IsZero() {
		return v.Duration
	}
	if !v.Until.IsZero() && now.After(v.Until) {
		now = v.Until
	}
	return max(0, now.Sub(v.Since))
}

// runningSince returns the later of a resource's launch and the start of its state; zero if both
// are unknown or one is in the future.
func runningSince(e *evaluation) time.Time {
	if at := stateStart(e.resource); !at.After(e.facts.Now) {
		return at
	}
	return time.Time{}
}

// stateStart returns the later of a resource's launch and the start of its state.
func stateStart(r *inventory.Resource) time.Time {
	if r.StateSince.After(r.CreatedAt) {
		return r.StateSince
	}
	return r.CreatedAt
}

// nextDue returns when a schedule tick may next become due.
func nextDue(e *evaluation) time.Time {
	return sooner(e.schedule.nextTick(e.facts.Now), stateStart(e.resource), e.facts.Now)
}
