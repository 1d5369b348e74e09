package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// The generators below make conditions over every fact, and facts that may be unknown.

var tagKeys = []string{"team", "Purpose", "a b"}

func pick[T any](t *rapid.T, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(t, label)
}

// factsOf returns the names of the facts of a type.
func factsOf(typ *cel.Type) []string {
	var out []string
	for _, f := range facts {
		if f.typ.IsExactType(typ) {
			out = append(out, f.name)
		}
	}
	return out
}

// genCondition generates a condition; depth bounds the nesting.
func genCondition(t *rapid.T, depth int) string {
	if depth > 0 {
		a := func() string { return "(" + genCondition(t, depth-1) + ")" }
		switch pick(t, "shape", "and", "or", "not", "choice", "atom") {
		case "and":
			return a() + " && " + a()
		case "or":
			return a() + " || " + a()
		case "not":
			return "!" + a()
		case "choice":
			return a() + " ? " + a() + " : " + a()
		}
	}
	switch pick(t, "atom", "bool", "text", "in", "number", "span", "span", "time", "tag", "has", "tags") {
	case "bool":
		return pick(t, "fact", factsOf(cel.BoolType)...)
	case "text":
		name := pick(t, "fact", factsOf(cel.StringType)...)
		return name + pick(t, "op", " == ", " != ", " < ") + genText(t, name)
	case "in":
		name := pick(t, "fact", factsOf(cel.StringType)...)
		return fmt.Sprintf("%s in [%s, %s]", name, genText(t, name), genText(t, name))
	case "number":
		return aNumber(t) + anOrder(t) + aNumber(t)
	case "span":
		return genSpan(t, 1) + pick(t, "op", " < ", " <= ", " > ", " >= ", " == ", " != ") + genSpan(t, 1)
	case "time":
		return aTime(t) + pick(t, "op", " < ", " <= ", " > ", " >= ", " == ", " != ") + aTime(t)
	case "tag":
		return fmt.Sprintf(`resource.tags[%q]%s%q`, pick(t, "key", tagKeys...), pick(t, "op", " == ", " != "),
			pick(t, "value", "x", "y", ""))
	case "tags":
		return fmt.Sprintf(`resource.tags.%s(k, %s)`, pick(t, "macro", "exists", "all", "exists_one"),
			pick(t, "body", `k == "team"`, `resource.tags[k] == "x"`, `k == resource.team`,
				`duty.lasting > duration("5m")`))
	}
	return "has(" + pick(t, "of", pick(t, "fact", facts...).name, "resource.tags.team", `resource.tags["a b"]`) + ")"
}

// genText generates a literal that a fact can have.
func genText(t *rapid.T, name string) string {
	if values := factIndex[name].values; values != nil {
		return fmt.Sprintf("%q", pick(t, "value", values...))
	}
	return fmt.Sprintf("%q", pick(t, "value", "x", "y"))
}

func aNumber(t *rapid.T) string {
	return pick(t, "number", "0", "1", "2", "1 / resource.gpus", "resource.gpus", "resource.size_gib",
		"9223372036854775807 + resource.gpus",
		"0.5", "price.drift", "budget.used_share", "0.0 / budget.used_share", "price.drift * 1e308 * 10.0",
		"resource.hourly_usd", "size(resource.tags)",
		`gpu.util.mean("5m")`, `gpu.util.worst.max("2m")`, `gpu.memory.share.mean("5m")`, "20")
}

func anOrder(t *rapid.T) string { return pick(t, "op", " < ", " <= ", " > ", " >= ") }

// genSpan generates a sum of durations.
func genSpan(t *rapid.T, depth int) string {
	switch shape := pick(t, "span", "literal", "fact", "fact", "sum", "difference"); {
	case shape == "sum" && depth > 0:
		return "(" + genSpan(t, depth-1) + pick(t, "op", " + ", " - ") + genSpan(t, depth-1) + ")"
	case shape == "difference" && depth > 0:
		return "(" + aTime(t) + " - " + aTime(t) + ")"
	case shape == "fact":
		return pick(t, "fact", factsOf(cel.DurationType)...)
	}
	return fmt.Sprintf("duration(%q)", plain.ExactDuration(genDuration(t)))
}

func aTime(t *rapid.T) string {
	return pick(t, "time", "now", "lease.until", "resource.last_activity", `timestamp("2026-03-29T01:30:00Z")`,
		`(now - duration("20m"))`)
}

// genDuration generates a duration of up to two hours, mostly of whole seconds.
func genDuration(t *rapid.T) time.Duration {
	d := time.Duration(rapid.IntRange(0, 7200).Draw(t, "seconds")) * time.Second
	if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
		d++
	}
	return d
}

// genFacts generates facts around a time; each may be unknown, or become known later.
func genFacts(t *rapid.T, now time.Time) *Facts {
	maybe := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, label) > 0 }
	around := func(label string) time.Time {
		if !maybe(label) {
			return time.Time{}
		}
		d := genDuration(t)
		if rapid.IntRange(0, 3).Draw(t, "ahead") == 0 {
			d = -d
		}
		return now.Add(-d)
	}
	word := func(label string, from ...string) string {
		if !maybe(label) {
			return ""
		}
		return pick(t, label+" value", from...)
	}
	r := &inventory.Resource{
		ID: "r", Name: word("name", "x", "y"), Kind: inventory.Kind(pick(t, "kind", kinds...)),
		Cloud:   word("cloud", "x", "y"),
		Account: word("account", "x", "y"), Region: word("region", "x", "y"), Zone: word("zone", "x", "y"),
		Type:  word("type", "x", "y"),
		State: inventory.State(word("state", states...)), CreatedAt: around("created"),
		StateSince: around("state since"),
		Owner: inventory.Owner{
			Team: word("team", "x", "y"), Project: word("project", "x", "y"), User: word("user", "x", "y"),
			Environment: word("environment", "x", "y"), CostCenter: word("cost center", "x", "y")},
		Lifetime: inventory.Lifetime(word("lifetime", lifetimes...)),
		Purpose:  inventory.Purpose(word("purpose", purposes...)),
		Managed:  rapid.Bool().Draw(t, "managed"), LeaseUntil: around("lease"), Gang: word("gang", "x", "y"),
	}
	if maybe("tags") {
		r.Tags = map[string]string{}
		for _, k := range tagKeys {
			if maybe("tag " + k) {
				r.Tags[k] = pick(t, "tag value", "x", "y", "")
			}
		}
	}
	switch r.Kind {
	case inventory.KindInstance:
		r.Detail = &inventory.Instance{Market: inventory.Market(word("market", markets...))}
	case inventory.KindVolume:
		r.Detail = &inventory.Volume{SizeGiB: rapid.Int64Range(0, 3).Draw(t, "size")}
	case inventory.KindNotebook:
		n := &inventory.Notebook{}
		if at := around("activity"); !at.IsZero() {
			n.LastActivity = inventory.Known(at)
		}
		r.Detail = n
	}
	f := &Facts{Now: now, Resource: r}
	if maybe("gpus") {
		r.Size.GPUs = inventory.Known(rapid.IntRange(0, 2).Draw(t, "gpus value"))
	}
	if maybe("hourly") {
		f.Hourly = inventory.Known(money.Amount(rapid.Int64Range(0, 3).Draw(t, "hourly value")) * money.USD)
	}
	if maybe("duty") {
		f.Duty = aVerdict(t, now)
	}
	if maybe("GPUs") {
		f.GPUs = genGauge(t, now)
	}
	if at := around("checkpoint"); !at.IsZero() {
		f.Checkpoint = inventory.Known(at)
	}
	if maybe("budget") {
		f.Budget = &Budget{
			State: word("budget state", budgetStates...), UsedShare: float64(rapid.IntRange(0, 2).Draw(t, "used")),
		}
	}
	if maybe("drift") {
		f.PriceDrift = inventory.Known(float64(rapid.IntRange(-1, 2).Draw(t, "drift value")))
	}
	return f
}

// watched holds the GPU figures that aNumber uses.
var watched = duty.NewWatch([]duty.Figure{
	{
		Quantity: duty.Util, Statistic: duty.Mean, Window: 5 * time.Minute,
	}, {Quantity: duty.Util, Statistic: duty.Max, Worst: true, Window: 2 * time.Minute},
	{Quantity: duty.MemoryShare, Statistic: duty.Mean, Window: 5 * time.Minute},
})

// genGauge generates one or two GPUs with samples beyond a time.
func genGauge(t *rapid.T, now time.Time) duty.Gauge {
	k := duty.NewTracker(duty.Thresholds{}, usage.Activity{}, time.Hour).Watch(watched)
	gpus := rapid.IntRange(1, 2).Draw(t, "GPUs of the machine")
	for g := range gpus {
		at := now.Add(-genDuration(t) / 8)
		for range rapid.IntRange(0, 4).Draw(t, "runs") {
			if at.After(now) {
				break
			}
			n := rapid.IntRange(1, 6).Draw(t, "samples")
			for s, v := range map[usage.Signal]float64{
				usage.GPUUtil: float64(rapid.IntRange(0, 2).Draw(t, "utilization")),
				usage.MemUsed: 1e9, usage.MemTotal: 2e9,
			} {
				k.AddRun(usage.SourceInfo{Step: time.Minute}, strconv.Itoa(g), s, at, n, v)
			}
			at = at.Add(time.Duration(n) * time.Minute)
		}
	}
	return duty.Gauge{Tracker: k, Machine: duty.Machine{GPUs: inventory.Known(gpus)}}
}

func aVerdict(t *rapid.T, now time.Time) *duty.Verdict {
	v := &duty.Verdict{
		State: duty.State(pick(t, "duty state", append([]string{""}, duties...)...)), Coverage: 1, Why: "x",
	}
	switch v.State {
	case duty.Unknown, duty.Busy, duty.Warming:
	default:
		v.Since = now.Add(-genDuration(t))
		v.Until = v.Since.Add(genDuration(t))
		v.Duration = stateDuration(v, now)
	}
	if rapid.Bool().Draw(t, "expires") {
		v.Expires = now.Add(genDuration(t) - 10*time.Minute)
		if v.Since.After(v.Expires) {
			v.Expires = v.Since
		}
	}
	return v
}

// genSchedule generates the YAML of a schedule.
func genSchedule(t *rapid.T) string {
	clock := func(label string) string {
		return fmt.Sprintf("%02d:%02d", rapid.IntRange(0, 23).Draw(t, label), pick(t, label+" minutes", 0, 15, 30))
	}
	days := func() string {
		return pick(t, "days", "", "Mon-Fri ", "Sat-Sun ", "Fri-Mon ", "Sun ", "Tue,Thu ")
	}
	var parts []string
	if rapid.Bool().Draw(t, "off") {
		from, to := clock("from"), clock("to")
		span := days() + from + "-" + to
		if from == to {
			span = "Sat-Sun"
		}
		parts = append(parts, fmt.Sprintf("off: [%q]", span))
	}
	if len(parts) == 0 || rapid.Bool().Draw(t, "at") {
		parts = append(parts, fmt.Sprintf("at: [%q]", days()+clock("tick")))
	}
	place := pick(t, "place", "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata",
		"Pacific/Apia")
	return "schedule: {timezone: " + place + ", " + strings.Join(parts, ", ") + "}"
}

// givenFacts generates a CEL value for every fact.
func givenFacts(t *rapid.T) map[string]any {
	now := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	out := map[string]any{}
	for i := range facts {
		f := &facts[i]
		switch {
		case f.values != nil:
			out[f.name] = types.String(pick(t, f.name, f.values...))
		case f.typ.IsExactType(cel.StringType):
			out[f.name] = types.String(pick(t, f.name, "x", "y"))
		case f.typ.IsExactType(cel.BoolType):
			out[f.name] = types.Bool(rapid.Bool().Draw(t, f.name))
		case f.typ.IsExactType(cel.IntType):
			out[f.name] = types.Int(rapid.IntRange(0, 2).Draw(t, f.name))
		case f.typ.IsExactType(cel.DoubleType):
			out[f.name] = types.Double(rapid.IntRange(0, 2).Draw(t, f.name))
		case f.typ.IsExactType(cel.DurationType):
			out[f.name] = types.Duration{Duration: genDuration(t)}
		case f.typ.IsExactType(cel.TimestampType):
			out[f.name] = types.Timestamp{Time: now.Add(genDuration(t))}
		default:
			tags := map[string]string{}
			for _, k := range tagKeys {
				if rapid.Bool().Draw(t, k) {
					tags[k] = pick(t, k+" value", "x", "y")
				}
			}
			out[f.name] = types.DefaultTypeAdapter.NativeToValue(tags)
		}
	}
	return out
}
