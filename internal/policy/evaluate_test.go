package policy

import (
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

var wednesday = time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC)

// machine returns a fully known machine: idle for an hour, a day old.
func machine() *Facts {
	return &Facts{
		Now: wednesday,
		Resource: &inventory.Resource{
			ID: "i-1", Name: "dev", Kind: inventory.KindInstance, Cloud: "aws", Account: "1", Region: "us-east-1",
			Zone: "us-east-1a",
			Type: "g6.xlarge", State: inventory.StateRunning, CreatedAt: wednesday.Add(-24 * time.Hour),
			StateSince: wednesday.Add(-20 * time.Hour),
			Tags:       map[string]string{"team": "vision", "empty": "", "Cost-Center": "42"},
			Lifetime:   inventory.Ephemeral,
			Purpose:    inventory.Training,
			Owner: inventory.Owner{
				Team: "vision", Project: "ranking", User: "ana", Environment: "dev", CostCenter: "42",
			},
			Managed: true, LeaseUntil: wednesday.Add(time.Hour), IdleLimit: 45 * time.Minute, Gang: "run-7",
			Size: inventory.Size{GPUs: inventory.Known(1)}, Detail: &inventory.Instance{Market: inventory.Spot},
		},
		Duty: &duty.Verdict{
			State: duty.Idle, Duration: time.Hour, Since: wednesday.Add(-time.Hour), Until: wednesday.Add(time.Minute),
			Expires: wednesday.Add(2 * time.Minute), Coverage: 0.97, Why: "0% compute and nothing held"},
		Hourly:     inventory.Known(money.USD + 10*money.Cent),
		Checkpoint: inventory.Known(wednesday.Add(-10 * time.Minute)),
		Progress: inventory.Known(duty.Progress{
			From: wednesday.Add(-9 * time.Hour), Since: wednesday.Add(-time.Hour), Step: 7, Reported: true,
		}),
		Budget:     &Budget{State: "warn", UsedShare: 0.8, ForecastShare: inventory.Known(1.2)},
		PriceDrift: inventory.Known(0.1),
	}
}

// TestFacts checks the value of each fact if everything is known.
func TestFacts(t *testing.T) {
	for name, want := range map[string]string{
		"now":                    `now == timestamp("2026-01-07T12:00:00Z")`,
		"resource.id":            `resource.id == "i-1"`,
		"resource.name":          `resource.name == "dev"`,
		"resource.kind":          `resource.kind == "instance"`,
		"resource.cloud":         `resource.cloud == "aws"`,
		"resource.account":       `resource.account == "1"`,
		"resource.region":        `resource.region == "us-east-1"`,
		"resource.zone":          `resource.zone == "us-east-1a"`,
		"resource.type":          `resource.type == "g6.xlarge"`,
		"resource.state":         `resource.state == "running"`,
		"resource.lifetime":      `resource.lifetime == "ephemeral"`,
		"resource.purpose":       `resource.purpose == "training"`,
		"resource.team":          `resource.team == "vision"`,
		"resource.project":       `resource.project == "ranking"`,
		"resource.user":          `resource.user == "ana"`,
		"resource.environment":   `resource.environment == "dev"`,
		"resource.cost_center":   `resource.cost_center == "42"`,
		"resource.tags":          `resource.tags.team == "vision" && resource.tags["Cost-Center"] == "42" && size(resource.tags) == 3`,
		"resource.production":    `resource.production == (resource.environment == "production")`,
		"resource.managed":       `resource.managed`,
		"resource.gang":          `resource.gang == "run-7"`,
		"resource.gpus":          `resource.gpus == 1`,
		"resource.market":        `resource.market == "spot"`,
		"resource.hourly_usd":    `resource.hourly_usd == 1.1 && resource.hourly_usd > 1`,
		"resource.age":           `resource.age == duration("1d")`,
		"resource.state_age":     `resource.state_age == duration("20h")`,
		"resource.attached":      `!has(resource.attached) || resource.kind == "instance"`,
		"resource.size_gib":      `resource.size_gib > 0 || resource.kind == "instance"`,
		"resource.last_activity": `resource.last_activity < now || resource.kind == "instance"`,
		"duty.state":             `duty.state == "idle"`,
		"duty.lasting":           `duty.lasting == duration("1h")`,
		"duty.coverage":          `duty.coverage == 0.97`,
		"duty.why":               `duty.why.contains("nothing held")`,
		"lease.until":            `lease.until == timestamp("2026-01-07T13:00:00Z")`,
		"lease.remaining":        `lease.remaining == duration("1h")`,
		"lease.expired":          `!lease.expired`,
		"lease.idle":             `lease.idle == duration("45m") && duty.lasting >= lease.idle`,
		"checkpoint.age":         `checkpoint.age == duration("10m")`,
		"progress.since":         `progress.since == duration("10m")`,
		"progress.spent":         `progress.spent > 0.1833 && progress.spent < 0.1834`,
		"progress.told":          `progress.told`,
		"budget.state":           `budget.state == "warn"`,
		"budget.used_share":      `budget.used_share == 0.8`,
		"budget.forecast_share":  `budget.forecast_share > 1`,
		"price.drift":            `price.drift >= 0.1`,
		"schedule.off":           `schedule.off`,
		"schedule.due":           `schedule.due`,
	} {
		p := policyOf(t, "schedule: {off: Wed, at: \"11:00\"}\nwhen: '"+want+"'")
		if got := p.Evaluate(machine()).Answer; got != usage.True {
			t.Errorf("%s: %s is %s: %+v", name, want, got, p.Explain(machine()).Parts)
		}
		if !strings.Contains(want, name) || factIndex[name] == nil {
			t.Errorf("%s is not asked for", name)
		}
	}
	if got := len(facts); got != 47 {
		t.Errorf("%d facts; the table above has 47", got)
	}
}

// TestUnknownFacts checks that without data every fact is unknown, and so is every condition on it,
// except for the few facts that are always known.
func TestUnknownFacts(t *testing.T) {
	nothing := &Facts{Now: wednesday, Resource: &inventory.Resource{}}
	always := map[string]bool{"now": true, "resource.lifetime": true, "schedule.off": true}
	for _, f := range facts {
		want := usage.Unknown
		if always[f.name] {
			want = usage.True
		}
		for _, text := range []string{"has(" + f.name + ")", "!has(" + f.name + ")", f.name + " == " + f.name} {
			p := policyOf(t, "schedule: {off: [Mon-Sun], at: \"11:00\"}\nwhen: '"+text+"'")
			expect := want
			if text[0] == '!' {
				expect = want.Not()
			}
			if got := p.when.answer(evaluation{
				facts: nothing, resource: nothing.Resource, schedule: p.compiled,
			}); got != expect {
				t.Errorf("%s is %s, want %s", text, got, expect)
			}
		}
	}
	if got := policyOf(t, `when: resource.lifetime == "persistent"`).Evaluate(nothing).Answer; got != usage.True {
		t.Errorf("an unknown lifetime is persistent: %s", got)
	}
}

// TestUnknownFactsNeverPropose covers each kind of missing data separately.
func TestUnknownFactsNeverPropose(t *testing.T) {
	for _, tc := range []struct {
		name, keys string
		change     func(*Facts)
	}{
		{"an absent tag that is compared", `where: resource.tags.absent != "x"`, nil},
		{"an absent tag under a negation", `where: '!(resource.tags.absent == "x")'`, nil},
		{"tags that could not be read", `where: '!has(resource.tags.team)'`, func(f *Facts) { f.Resource.Tags = nil }},
		{
			"a tag with a dash of tags that could not be read",
			`where: '!has(resource.tags["Cost-Center"])'`, func(f *Facts) {
				f.Resource.Tags = nil
			}},
		{"an untagged environment", `where: resource.environment != "production"`, func(f *Facts) {
			f.Resource.Owner.Environment = ""
		}},
		{"an untagged purpose", `where: resource.purpose != "inference"`, func(f *Facts) { f.Resource.Purpose = "" }},
		{"an untagged team, selected", "select: {team: vision}\nwhen: 'true'", func(f *Facts) {
			f.Resource.Owner.Team = ""
		}},
		{"tags that could not be read, selected", "select: {tags: {team: '*'}}\nwhen: 'true'", func(f *Facts) {
			f.Resource.Tags = nil
		}},
		{"what was not judged", `when: duty.state != "busy"`, func(f *Facts) { f.Duty = nil }},
		{"what could not be judged", `when: duty.state != "busy"`, func(f *Facts) {
			f.Duty = &duty.Verdict{Why: "too little"}
		}},
		{"a verdict whose samples are too old", `when: duty.state == "idle"`, func(f *Facts) {
			f.Now = f.Duty.Expires.Add(1)
		}},
		{"a stale inventory", `when: "true"`, func(f *Facts) { f.Stale = true }},
		{"an unpriced item", `when: resource.hourly_usd < 5`, func(f *Facts) {
			f.Hourly = inventory.Fact[money.Amount]{}
		}},
		{"a creation in the future", `when: resource.age < duration("1h")`, func(f *Facts) {
			f.Resource.CreatedAt = f.Now.Add(1)
		}},
		{"no lease", `when: "!lease.expired"`, func(f *Facts) { f.Resource.LeaseUntil = time.Time{} }},
		{"no checkpoint", `when: checkpoint.age > duration("1m")`, func(f *Facts) {
			f.Checkpoint = inventory.Fact[time.Time]{}
		}},
		{"no budget", `when: budget.state != "ok"`, func(f *Facts) { f.Budget = nil }},
		{"a share that is not a number", `when: budget.used_share != 1.0`, func(f *Facts) {
			f.Budget.UsedShare = math.NaN()
		}},
		{"a drift without end", `when: price.drift > 0.1`, func(f *Facts) {
			f.PriceDrift = inventory.Known(math.Inf(1))
		}},
		{"division by zero", `when: 1 / (resource.gpus - 1) != 7`, nil},
		{"division by zero of decimals", `when: 1.0 / (price.drift - price.drift) > 1.0`, nil},
		{"not a number", `when: (price.drift - price.drift) / (price.drift - price.drift) != 1.0`, nil},
		{"overflow", `when: 9223372036854775807 + resource.gpus != 0`, nil},
		{"overflow of decimals", `when: 1e308 * 10.0 * price.drift > 1.0`, nil},
		{"a text that is no time", `when: timestamp(resource.tags.team) != now`, nil},
		{"a choice on an unknown", `when: 'resource.tags.absent == "x" ? true : true'`, nil},
		{"a condition that was not compiled", `when: "true"`, nil},
		{"a tick for what its start is unknown", `schedule: {at: "11:00"}`, func(f *Facts) {
			f.Resource.CreatedAt, f.Resource.StateSince = time.Time{}, time.Time{}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, f := policyOf(t, tc.keys), machine()
			if tc.change != nil {
				tc.change(f)
			}
			if tc.name == "a condition that was not compiled" {
				p.when = nil
			}
			if got := p.Evaluate(f).Answer; got != usage.Unknown {
				t.Errorf("got %s: %+v", got, p.Explain(f).Parts)
			}
		})
	}
}

// TestKnownFactsDecide covers similar cases with data, which must be decided.
func TestKnownFactsDecide(t *testing.T) {
	for text, want := range map[string]usage.Tristate{
		`resource.tags.empty == ""`:                             usage.True,
		`has(resource.tags.empty)`:                              usage.True,
		`has(resource.tags.absent)`:                             usage.False,
		`has(resource.tags["Cost-Center"])`:                     usage.True,
		`has(resource.tags["cost-center"])`:                     usage.False,
		`resource.tags.absent == "x" && false`:                  usage.False,
		`resource.tags.absent == "x" || true`:                   usage.True,
		`resource.tags.exists(k, resource.tags[k] == "vision")`: usage.True,
		`resource.tags.all(k, k != "team")`:                     usage.False,
		`1.0 / price.drift > 9`:                                 usage.True,
		`resource.age > duration("23h59m59s")`:                  usage.True,
		`duration("7d") == duration("168h")`:                    usage.True,
		`resource.hourly_usd >= 1.10 && resource.gpus < 1.5`:    usage.True,
		`now.getHours() == 12 && now.getDayOfWeek() == 3`:       usage.True,
		`resource.name.matches("^de")`:                          usage.True,
	} {
		p := policyOf(t, "when: '"+text+"'")
		if got := p.Evaluate(machine()).Answer; got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

func TestSelect(t *testing.T) {
	for keys, want := range map[string]usage.Tristate{
		`select: {kind: instance, lifetime: ephemeral, cloud: aws, account: 1, region: us-east-1, type: g6.xlarge}`: usage.True,
		`select: {purpose: [training, evaluation], team: vision, project: ranking, user: ana, environment: dev}`:    usage.True,
		`select: {kind: volume}`:                           usage.False,
		`select: {kind: [volume, instance]}`:               usage.True,
		`select: {lifetime: persistent}`:                   usage.False,
		`select: {tags: {team: vision, Cost-Center: "*"}}`: usage.True,
		`select: {tags: {team: speech}}`:                   usage.False,
		`select: {tags: {absent: "*"}}`:                    usage.False,
		`select: {tags: {empty: ""}}`:                      usage.True,
		`select: {tags: {empty: "*"}}`:                     usage.True,
		`select: {user: [bob, eve]}`:                       usage.False,
	} {
		p := policyOf(t, keys+"\nwhen: 'true'")
		if got := p.Evaluate(machine()).Answer; got != want {
			t.Errorf("%s is %s, want %s", keys, got, want)
		}
		if got := p.Selects(machine()); got != want {
			t.Errorf("%s selects %s, want %s", keys, got, want)
		}
	}
	p := policyOf(t, "where: resource.gpus > 1\nwhen: 'true'")
	if got := p.Selects(machine()); got != usage.False {
		t.Errorf("where is part of what a policy selects: %s", got)
	}
	p = policyOf(t, "where: resource.gpus > 0\nwhen: 'false'")
	if got := p.Selects(machine()); got != usage.True {
		t.Errorf("when is no part of what a policy selects: %s", got)
	}
}

// TestMoreFactsKeepAnswers checks three-valued logic: a result that is true or false with
// unknown facts stays so for any values of them.
func TestMoreFactsKeepAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := genCondition(t, 3)
		c, f := compile(text, true)
		if f != nil {
			t.Fatalf("%s: %s", text, f.message)
		}
		all := givenFacts(t)
		some := maps.Clone(all)
		for i := range facts {
			if rapid.Bool().Draw(t, "hide "+facts[i].name) {
				delete(some, facts[i].name)
			}
		}
		less, more := c.eval(&activation{overrides: some}), c.eval(&activation{overrides: all})
		if less != usage.Unknown && more != less {
			t.Fatalf("%s is %s while facts are unknown, and %s once they are known", text, less, more)
		}
		negated, f := compile("!("+text+")", true)
		if f != nil {
			t.Fatalf("!(%s): %s", text, f.message)
		}
		if got := negated.eval(&activation{overrides: some}); got != less.Not() {
			t.Fatalf("%s is %s, its negation %s", text, less, got)
		}
	})
}

// TestExplainMatchesEvaluate compares Explain with Evaluate.
func TestExplainMatchesEvaluate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, f := genPolicy(t), genFacts(t, genTime(t))
		fast, slow := p.Evaluate(f), p.Explain(f)
		if fast.Answer != slow.Answer || !fast.Next.Equal(slow.Next) {
			t.Fatalf("where %s, when %s: Evaluate %s until %s, Explain %s until %s: %+v", p.Where, p.When, fast.Answer,
				fast.Next, slow.Answer, slow.Next, slow.Parts)
		}
		answers := []usage.Tristate{}
		for i, part := range slow.Parts {
			if part.Answer == usage.False && i != len(slow.Parts)-1 {
				t.Fatalf("parts go on after the first false: %+v", slow.Parts)
			}
			if part.Why == "" && part.Answer != usage.True {
				t.Fatalf("%s is %s without a reason: %+v", part.Name, part.Answer, slow.Parts)
			}
			answers = append(answers, part.Answer)
		}
		if got := usage.And(answers...); got != slow.Answer {
			t.Fatalf("the parts come to %s, the answer is %s", got, slow.Answer)
		}
	})
}

// genPolicy generates a policy with any subset of its parts.
func genPolicy(t *rapid.T) *Policy {
	keys := []string{}
	if rapid.Bool().Draw(t, "select") {
		keys = append(keys, pick(t, "selection", "select: {kind: [instance, volume, notebook]}",
			"select: {lifetime: ephemeral}", "select: {tags: {team: x}}", "select: {team: [x, y]}"))
	}
	scheduled := rapid.Bool().Draw(t, "scheduled")
	if scheduled {
		keys = append(keys, genSchedule(t))
	}
	for _, key := range []string{"where", "when"} {
		text := genCondition(t, 2)
		if !scheduled && strings.Contains(text, "schedule.") {
			text = "true"
		}
		keys = append(keys, key+": "+scalarText(text))
	}
	src := "apiVersion: curfew.policy/v1\npolicies:\n  - name: p\n    then: [{do: notify}]\n    " + strings.Join(keys,
		"\n    ") + "\n"
	set, err := Parse("p.yaml", []byte(src))
	if err != nil {
		t.Fatalf("%v in\n%s", err, src)
	}
	return set.Policies[0]
}

// genTime generates a time near a change of clocks in some zone.
func genTime(t *rapid.T) time.Time {
	changes := []string{
		"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z",
		"2026-04-04T15:00:00Z", "2011-12-30T10:00:00Z", "2026-01-07T12:00:00Z",
	}
	at, err := time.Parse(time.RFC3339, pick(t, "change", changes...))
	if err != nil {
		t.Fatal(err)
	}
	return at.Add(time.Duration(rapid.IntRange(-36*3600, 36*3600).Draw(t, "offset")) * time.Second)
}
