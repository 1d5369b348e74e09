package policy

import (
	"math"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// fact is something that conditions can ask for.
type fact struct {
	name string
	// doc says for people what it is, unit the unit of a number, and example is a condition
	// that asks for it.
	doc, unit, example string
	typ                *cel.Type
	// unknown says when it is not known.
	unknown string
	// values are all it can be; nil where that is open.
	values []string
	// lower says that its letters are always small.
	lower bool
	// canonical returns the one form of values that mean the same, which the fact has and to
	// which the values in conditions are brought; nil: each means itself.
	canonical func(string) string
	// class is the variable that takes the fact's place where it is compared with a value that
	// stands for a class of values, as classes says; no condition can spell it.
	class   string
	classes func(value string) bool
	// shown is the fact that explanations show in place of one that follows from it.
	shown string
	// read returns its value, nil where it is not known.
	read func(*evaluation) ref.Val
	// slope is what the fact gains in a nanosecond while nothing else changes: 1 or -1
	// for spans of time that go on; 0 for all else.
	slope int
	// most is the most that a span that says how long a state of duty has to last can be; 0
	// where conditions write it down.
	most time.Duration
	// ends returns when a fact that grows stops growing; zero is never.
	ends func(*evaluation) time.Time
	// turns returns the next time at which the fact is another one at once, because
	// time goes on; zero is never.
	turns func(*evaluation) time.Time
	// scheduled says that only policies with a schedule have it.
	scheduled bool
	// tagged says that a tag says it, so that where tags were read it is known whether
	// there is one: has of it can be false.
	tagged bool
}

// presence is the variable behind has of a tagged fact. No condition can spell it.
func (f *fact) presence() string { return "@has." + f.name }

// said says whether a tag says a tagged fact; unknown where tags could not be read.
func (f *fact) said(e *evaluation) usage.Answer {
	switch {
	case f.read(e) != nil:
		return usage.True
	case e.r.Tags == nil:
		return usage.Unknown
	}
	return usage.False
}

// evaluation is one policy asked about one resource.
type evaluation struct {
	f     *Facts
	r     *inventory.Resource
	hours *hours
}

// ofDuty reads a fact of a verdict; unknown where there is none.
func ofDuty(read func(*evaluation, *duty.Verdict) ref.Val) func(*evaluation) ref.Val {
	return func(e *evaluation) ref.Val {
		if v := verdict(e); v != nil {
			return read(e, v)
		}
		return nil
	}
}

// ofLease reads a fact of a lease; unknown where there is none.
func ofLease(read func(e *evaluation, until time.Time) ref.Val) func(*evaluation) ref.Val {
	return func(e *evaluation) ref.Val {
		if e.r.LeaseUntil.IsZero() {
			return nil
		}
		return read(e, e.r.LeaseUntil)
	}
}

// ofBudget reads a fact of a budget; unknown where there is none.
func ofBudget(read func(*Budget) ref.Val) func(*evaluation) ref.Val {
	return func(e *evaluation) ref.Val {
		if e.f.Budget == nil {
			return nil
		}
		return read(e.f.Budget)
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

// facts is everything that conditions can ask for, in the order of the documentation.
var facts = []fact{
	{name: "now", doc: "time of the pass", example: `now.getDayOfWeek("Europe/Berlin") == 6`,
		typ: cel.TimestampType, unknown: "never", slope: 1,
		read: func(e *evaluation) ref.Val { return types.Timestamp{Time: e.f.Now} }},

	{name: "resource.id", doc: "id that the provider gave it", example: `resource.id.startsWith("i-0f3a")`,
		typ: cel.StringType, unknown: "never",
		read: func(e *evaluation) ref.Val { return text(e.r.ID) }},
	{name: "resource.name", doc: "its name", example: `resource.name.contains("test")`,
		typ: cel.StringType, unknown: "it has none",
		read: func(e *evaluation) ref.Val { return text(e.r.Name) }},
	{name: "resource.kind", doc: "its kind", example: `resource.kind == "instance"`,
		typ: cel.StringType, unknown: "never", values: kinds,
		read: func(e *evaluation) ref.Val { return text(string(e.r.Kind)) }},
	{name: "resource.cloud", doc: "its cloud", example: `resource.cloud == "aws"`,
		typ: cel.StringType, unknown: "a recording does not say",
		read: func(e *evaluation) ref.Val { return text(e.r.Cloud) }},
	{name: "resource.account", doc: "its account", example: `resource.account == "123456789012"`,
		typ: cel.StringType, unknown: "a recording does not say",
		read: func(e *evaluation) ref.Val { return text(e.r.Account) }},
	{name: "resource.region", doc: "its region", example: `resource.region in ["us-east-1", "us-west-2"]`,
		typ: cel.StringType, unknown: "a recording does not say",
		read: func(e *evaluation) ref.Val { return text(e.r.Region) }},
	{name: "resource.zone", doc: "its zone", example: `resource.zone == "us-east-1a"`,
		typ: cel.StringType, unknown: "it is in no single zone",
		read: func(e *evaluation) ref.Val { return text(e.r.Zone) }},
	{name: "resource.type", doc: "its machine type or class", example: `resource.type.startsWith("p4d.")`,
		typ: cel.StringType, unknown: "the kind has none",
		read: func(e *evaluation) ref.Val { return text(e.r.Type) }},
	{name: "resource.state", doc: "the provider's state", example: `resource.state == "running"`,
		typ: cel.StringType, unknown: "the provider's state could not be read", values: states,
		read: func(e *evaluation) ref.Val { return text(string(e.r.State)) }},
	{name: "resource.lifetime", doc: "how long it is meant to live", example: `resource.lifetime == "ephemeral"`,
		typ: cel.StringType, unknown: "never; persistent where no tag says ephemeral", values: lifetimes,
		read: func(e *evaluation) ref.Val { return types.String(lifetime(e.r)) }},
	{name: "resource.purpose", doc: "its purpose, by its tags", example: `resource.purpose == "training"`,
		typ: cel.StringType, unknown: "no tag says it", values: purposes, tagged: true,
		read: func(e *evaluation) ref.Val { return text(string(e.r.Purpose)) }},
	{name: "resource.team", doc: "owning team, by its tags", example: `resource.team == "vision"`,
		typ: cel.StringType, unknown: "no tag says it", tagged: true,
		read: func(e *evaluation) ref.Val { return text(e.r.Owner.Team) }},
	{name: "resource.project", doc: "project, by its tags", example: `resource.project == "ranking"`,
		typ: cel.StringType, unknown: "no tag says it", tagged: true,
		read: func(e *evaluation) ref.Val { return text(e.r.Owner.Project) }},
	{name: "resource.user", doc: "person, by its tags", example: `resource.user == "ana"`,
		typ: cel.StringType, unknown: "no tag says it", tagged: true,
		read: func(e *evaluation) ref.Val { return text(e.r.Owner.User) }},
	{
		name: "resource.environment",
		doc: "environment, by its tags, in lower case; prod, prd and live are production, " +
			"and so is prod-eu where it is compared with one of them",
		example: `resource.environment != "production"`,
		typ:     cel.StringType, unknown: "no tag says it", lower: true, canonical: inventory.CanonicalEnvironment,
		tagged:  true,
		class:   classPrefix + "resource.environment",
		classes: func(value string) bool { return inventory.CanonicalEnvironment(value) == inventory.Production },
		read:    func(e *evaluation) ref.Val { return text(inventory.CanonicalEnvironment(e.r.Owner.Environment)) }},
	{
		name: "resource.production", doc: "whether its environment is production, in any spelling",
		example: `!resource.production`,
		typ:     cel.BoolType, unknown: "no tag says its environment", tagged: true, shown: "resource.environment",
		read: func(e *evaluation) ref.Val {
			if e.r.Owner.Environment == "" {
				return nil
			}
			return types.Bool(e.r.Owner.InProduction())
		}},
	{name: "resource.cost_center", doc: "cost center, by its tags", example: `resource.cost_center == "4711"`,
		typ: cel.StringType, unknown: "no tag says it", tagged: true,
		read: func(e *evaluation) ref.Val { return text(e.r.Owner.CostCenter) }},
	{name: "resource.tags", doc: "its tags", example: `resource.tags["keep"] == "no"`,
		typ: cel.MapType(cel.StringType, cel.StringType), unknown: "tags could not be read",
		read: tags},
	{name: "resource.managed", doc: "whether it has the tag curfew:managed=true", example: `resource.managed`,
		typ: cel.BoolType, unknown: "tags could not be read",
		read: func(e *evaluation) ref.Val {
			if e.r.Tags == nil {
				return nil
			}
			return types.Bool(e.r.Managed)
		}},
	{
		name: "resource.gang", doc: "job group: the run of several machines that it belongs to",
		example: `has(resource.gang)`,
		typ:     cel.StringType, unknown: "it belongs to no known run of several machines",
		read: func(e *evaluation) ref.Val { return text(e.r.Gang) }},
	{name: "resource.gpus", doc: "its GPUs", unit: "GPUs", example: `resource.gpus >= 8`,
		typ: cel.IntType, unknown: "the machine type is not in the catalog",
		read: func(e *evaluation) ref.Val {
			n, known := e.r.Size.GPUs.Get()
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
		read:  func(e *evaluation) ref.Val { return since(e, e.r.CreatedAt) },
		turns: func(e *evaluation) time.Time { return e.r.CreatedAt }},
	{
		name: "resource.state_age", doc: "time since it entered its state",
		example: `resource.state_age > duration("30d")`,
		typ:     cel.DurationType, unknown: "the provider does not say since when", slope: 1,
		read:  func(e *evaluation) ref.Val { return since(e, e.r.StateSince) },
		turns: func(e *evaluation) time.Time { return e.r.StateSince }},
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
		read: ofDuty(func(_ *evaluation, v *duty.Verdict) ref.Val {
			return types.String(v.State)
		}), turns: dutyExpires},
	{
		name:    "duty.lasting",
		doc:     "how long it has been idle, held or stalled without a missing sample; 0 while busy or warming",
		example: `duty.lasting >= duration("30m")`,
		typ:     cel.DurationType, unknown: "duty.state is unknown", slope: 1,
		read: ofDuty(func(e *evaluation, v *duty.Verdict) ref.Val {
			return types.Duration{Duration: lasting(v, e.f.Now)}
		}),
		ends: func(e *evaluation) time.Time {
			if e.f.Duty == nil || e.f.Duty.Since.IsZero() {
				return e.f.Now // it does not grow
			}
			return e.f.Duty.Until
		}, turns: dutyExpires},
	{
		name: "duty.coverage",
		doc:  "least share of the time that samples of a deciding signal cover", unit: "share, 0 to 1",
		example: `duty.coverage >= 0.95`,
		typ:     cel.DoubleType, unknown: "duty.state is unknown",
		read: ofDuty(func(_ *evaluation, v *duty.Verdict) ref.Val { return number(v.Coverage) }), turns: dutyExpires},
	{name: "duty.why", doc: "evidence of the duty, in words", example: `duty.why.contains("memory")`,
		typ: cel.StringType, unknown: "duty.state is unknown",
		read: ofDuty(func(_ *evaluation, v *duty.Verdict) ref.Val { return text(v.Why) }), turns: dutyExpires},

	{
		name: "lease.until", doc: "end of its lease, by the tag curfew:lease-until",
		example: `lease.until < timestamp("2026-12-31T00:00:00Z")`,
		typ:     cel.TimestampType, unknown: "it has no lease",
		read: ofLease(func(_ *evaluation, until time.Time) ref.Val { return types.Timestamp{Time: until} })},
	{
		name: "lease.remaining", doc: "time left of its lease; negative after its end",
		example: `lease.remaining < duration("1h")`,
		typ:     cel.DurationType, unknown: "it has no lease", slope: -1,
		read: ofLease(func(e *evaluation, until time.Time) ref.Val {
			return types.Duration{Duration: until.Sub(e.f.Now)}
		})},
	{name: "lease.expired", doc: "whether its lease is over", example: `lease.expired`,
		typ: cel.BoolType, unknown: "it has no lease",
		read:  ofLease(func(e *evaluation, until time.Time) ref.Val { return types.Bool(!e.f.Now.Before(until)) }),
		turns: func(e *evaluation) time.Time { return e.r.LeaseUntil }},
	{
		name: "lease.idle", doc: "idle period after which it is to end, by the tag curfew:idle",
		example: `duty.lasting >= lease.idle`,
		typ:     cel.DurationType, unknown: "no tag says a duration of at most 12h", most: inventory.MaxIdle,
		read: func(e *evaluation) ref.Val {
			if e.r.IdleLimit == 0 {
				return nil
			}
			return types.Duration{Duration: e.r.IdleLimit}
		}},

	{
		name: "checkpoint.age", doc: "time since the newest confirmed checkpoint of its work",
		example: `checkpoint.age < duration("15m")`,
		typ:     cel.DurationType, unknown: "no checkpoint of its work was confirmed", slope: 1,
		read:  func(e *evaluation) ref.Val { return since(e, e.f.Checkpoint.Or(time.Time{})) },
		turns: func(e *evaluation) time.Time { return e.f.Checkpoint.Or(time.Time{}) }},

	{name: "budget.state", doc: "state of the budget that it counts against", example: `budget.state == "over"`,
		typ: cel.StringType, unknown: "no budget is known", values: budgetStates,
		read: ofBudget(func(b *Budget) ref.Val { return text(b.State) })},
	{
		name: "budget.used_share", doc: "spent and reserved over the amount of the budget", unit: "share, 1 is all",
		example: `budget.used_share > 0.9`,
		typ:     cel.DoubleType, unknown: "no budget is known",
		read: ofBudget(func(b *Budget) ref.Val { return number(b.UsedShare) })},
	{
		name: "budget.forecast_share", doc: "forecast for the period over the amount of the budget",
		unit:    "share, 1 is all",
		example: `budget.forecast_share > 1.2`,
		typ:     cel.DoubleType, unknown: "no budget is known, or there is no forecast",
		read: ofBudget(func(b *Budget) ref.Val { return number(b.ForecastShare.Or(math.NaN())) })},

	{
		name: "price.drift", doc: "rate paid over the price book's, less 1", unit: "share, 0.1 is 10% more",
		example: `price.drift > 0.1`,
		typ:     cel.DoubleType, unknown: "the rate paid, or the catalog's, is unknown",
		read: func(e *evaluation) ref.Val { return number(e.f.PriceDrift.Or(math.NaN())) }},

	{name: "schedule.off", doc: "whether the schedule is in an off span", example: `schedule.off && resource.gpus > 0`,
		typ: cel.BoolType, unknown: "never", scheduled: true,
		read:  func(e *evaluation) ref.Val { return types.Bool(e.hours.isOff(e.f.Now)) },
		turns: func(e *evaluation) time.Time { return e.hours.nextTurn(e.f.Now) }},
	{
		name: "schedule.due", doc: "whether a moment of the schedule has passed since the resource was started",
		example: `schedule.due`,
		typ:     cel.BoolType, unknown: "its start is unknown", scheduled: true,
		read:  func(e *evaluation) ref.Val { return truth(e.hours.isDue(e.f.Now, runningSince(e))) },
		turns: dueTurns},
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

// classPrefix begins the variables of classes.
const classPrefix = "@class."

// environmentClass is resource.environment where conditions compare it with production: every
// environment that is production has that one value.
var environmentClass = fact{name: "resource.environment", doc: "environment, by its tags", typ: cel.StringType,
	unknown: "no tag says it", lower: true, canonical: inventory.CanonicalEnvironment, tagged: true,
	read: func(e *evaluation) ref.Val {
		if e.r.Owner.InProduction() {
			return types.String(inventory.Production)
		}
		return text(inventory.CanonicalEnvironment(e.r.Owner.Environment))
	}}

// presences finds a tagged fact by the variable behind its has.
var presences = func() map[string]*fact {
	m := map[string]*fact{}
	for i := range facts {
		if facts[i].tagged {
			m[facts[i].presence()] = &facts[i]
		}
	}
	return m
}()

// text is a text that is unknown where it is empty.
func text(s string) ref.Val {
	if s == "" {
		return nil
	}
	return types.String(s)
}

// number is a number that is unknown where it is not finite.
func number(v float64) ref.Val {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return types.Double(v)
}

// truth is an answer as CEL has it.
func truth(a usage.Answer) ref.Val {
	if a == usage.Unknown {
		return nil
	}
	return types.Bool(a == usage.True)
}

// lifetime is a resource's lifetime; unknown is persistent (safety rule 1).
func lifetime(r *inventory.Resource) inventory.Lifetime {
	if r.Lifetime == inventory.Ephemeral {
		return inventory.Ephemeral
	}
	return inventory.Persistent
}

// since is the span from t to now, unknown where t is, or lies ahead.
func since(e *evaluation, t time.Time) ref.Val {
	if t.IsZero() || t.After(e.f.Now) {
		return nil
	}
	return types.Duration{Duration: e.f.Now.Sub(t)}
}

func tags(e *evaluation) ref.Val {
	if e.r.Tags == nil {
		return nil
	}
	return types.DefaultTypeAdapter.NativeToValue(e.r.Tags)
}

func market(e *evaluation) ref.Val {
	if m, ok := e.r.Detail.(*inventory.Instance); ok {
		return text(string(m.Market))
	}
	return nil
}

// hourly is dollars an hour for comparisons only. The quotient of two integers that a
// float holds exactly is the float nearest to the decimal, as a literal is, so that
// comparing it with one is exact below nine million dollars.
func hourly(e *evaluation) ref.Val {
	amount, known := e.f.Hourly.Get()
	if !known {
		return nil
	}
	return types.Double(float64(amount) / 1e9)
}

func attached(e *evaluation) ref.Val {
	switch d := e.r.Detail.(type) {
	case *inventory.Volume:
		return types.Bool(len(d.AttachedTo) > 0 || e.r.State == inventory.StateInUse)
	case *inventory.Address:
		return types.Bool(d.AssociationID != "" || d.InstanceID != "")
	}
	return nil
}

func size(e *evaluation) ref.Val {
	var gib int64
	switch d := e.r.Detail.(type) {
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
	switch d := e.r.Detail.(type) {
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

// verdict is what the resource does, nil where that is not known at the time.
func verdict(e *evaluation) *duty.Verdict {
	v := e.f.Duty
	if v == nil || v.State == duty.Unknown || (!v.Expires.IsZero() && e.f.Now.After(v.Expires)) {
		return nil
	}
	return v
}

// dutyExpires is when a verdict without newer samples turns unknown.
func dutyExpires(e *evaluation) time.Time {
	if v := verdict(e); v != nil && !v.Expires.IsZero() {
		return v.Expires.Add(1)
	}
	return time.Time{}
}

// lasting is how long a verdict's state has lasted at a time, as far as that is known.
func lasting(v *duty.Verdict, now time.Time) time.Duration {
	if v.Since.IsZero() {
		return v.Lasting
	}
	if !v.Until.IsZero() && now.After(v.Until) {
		now = v.Until
	}
	return max(0, now.Sub(v.Since))
}

// runningSince is since when a resource has been as it is: the later of its launch and
// of its entering the state; zero where neither is known, or one lies ahead.
func runningSince(e *evaluation) time.Time {
	if at := entered(e.r); !at.After(e.f.Now) {
		return at
	}
	return time.Time{}
}

// entered is the later of a resource's launch and of its entering the state.
func entered(r *inventory.Resource) time.Time {
	if r.StateSince.After(r.CreatedAt) {
		return r.StateSince
	}
	return r.CreatedAt
}

// dueTurns is when a tick may next become due, or known to be.
func dueTurns(e *evaluation) time.Time {
	return sooner(e.hours.nextTick(e.f.Now), entered(e.r), e.f.Now)
}
