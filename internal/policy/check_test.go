package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// carefulPolicy is a policy without cautions.
const carefulPolicy = `select: {kind: instance, lifetime: ephemeral}
where: resource.environment != "production" && resource.purpose != "inference"
when: duty.state == "idle" && duty.lasting >= duration("30m")
then: [{warn: {grace: 15m}}, {do: stop}]
limits: {per_hour: 10, share: 20%, dollars_per_hour: 200}
mode: enforce`

func TestCheck(t *testing.T) {
	governed := Governance{{Select: Select{Kind: []string{"instance"}}}}
	for _, tc := range []struct {
		name     string
		old, new string
		g        Governance
		want     []string
	}{
		{"nothing to say", "", "", governed, nil},
		{
			"no select", "select: {kind: instance, lifetime: ephemeral}\n", "", governed,
			[]string{"everything", "persistent"},
		},
		{"inference is not excluded", ` && resource.purpose != "inference"`, "", governed, []string{"inference"}},
		{
			"production is not excluded", `resource.environment != "production" && `, "", governed,
			[]string{"production"},
		},
		{
			"both are excluded by select",
			"lifetime: ephemeral}\nwhere: resource.environment != \"production\" && resource.purpose != \"inference\"",
			"lifetime: ephemeral, environment: [dev, staging], purpose: training}", governed, nil},
		{
			"both are selected",
			"lifetime: ephemeral}\nwhere: resource.environment != \"production\" && resource.purpose != \"inference\"",
			"lifetime: ephemeral, environment: production, purpose: [inference]}", governed,
			[]string{"inference", "production"}},
		{
			"resources without an environment are accepted", `resource.environment != "production" && `,
			`(!has(resource.environment) || resource.environment != "production") && `, governed, []string{"untagged"},
		},
		{
			"excluded by the fact", `resource.environment != "production" && resource.purpose != "inference"`,
			`resource.purpose != "inference" && !resource.production`, governed, nil,
		},
		{
			"excluded by when",
			"where: resource.environment != \"production\" && resource.purpose != \"inference\"\nwhen: ",
			"when: resource.environment in [\"dev\"] && !(resource.purpose == \"inference\") && ", governed, nil},
		{
			"excluded by a tag that may not be there", `resource.purpose != "inference"`,
			`resource.tags.role != "inference"`,
			governed, []string{"inference"},
		},
		{"lifetime is not restricted", ", lifetime: ephemeral", "", governed, []string{"persistent"}},
		{
			"lifetime is restricted by where", "lifetime: ephemeral}\nwhere: ",
			"team: vision}\nwhere: resource.lifetime == \"ephemeral\" && ", governed, nil,
		},
		{"a moment suffices", ` && duty.lasting >= duration("30m")`, "", governed, []string{"no-duration"}},
		{"busy machines too", "{do: stop}", "{do: stop, even_if_busy: true}", governed, []string{"busy"}},
		{"a verb that no cloud has", "{do: stop}", "{do: hibernate}", governed, []string{"unsupported"}},
		{
			"a verb that no cloud has, and harmless", "[{warn: {grace: 15m}}, {do: stop}]",
			"[{do: checkpoint}]", governed,
			[]string{"unsupported"},
		},
		{
			"retention", "[{warn: {grace: 15m}}, {do: stop}]",
			"[{warn: {grace: 15m}}, {do: put-retention, retention_days: 30}]", governed, []string{"refused"},
		},
		{
			"a tag that lets it act", "[{warn: {grace: 15m}}, {do: stop}]",
			"[{do: tag, tags: {\"curfew:managed\": \"true\"}}]", governed, []string{"refused"},
		},
		{
			"a tag that ends its lease", "[{warn: {grace: 15m}}, {do: stop}]",
			"[{do: tag, tags: {\"curfew:lease-until\": \"2026-01-01\"}}]", governed, []string{"refused"},
		},
		{
			"a tag that says when it is idle for too long", "[{warn: {grace: 15m}}, {do: stop}]",
			"[{do: tag, tags: {\"curfew:idle\": 1m}}]", governed, []string{"refused"},
		},
		{
			"a tag like others", "[{warn: {grace: 15m}}, {do: stop}]", "[{do: tag, tags: {team: unknown}}]", governed,
			nil,
		},
		{"limits left out", ", share: 20%", "", governed, []string{"limits"}},
		{"limits left out while observing", ", share: 20%, dollars_per_hour: 200}\nmode: enforce", "}", governed, nil},
		{"no governance", "", "", nil, []string{"ungoverned"}},
		{
			"governance of others", "", "",
			Governance{
				{Select: Select{Kind: []string{"notebook"}}}, {Select: Select{Lifetime: []string{"persistent"}}},
			},
			[]string{"ungoverned"},
		},
		{
			"governance of some tags", "kind: instance,", "kind: instance, tags: {env: dev},",
			Governance{{Select: Select{Tags: map[string]string{"env": "prod"}}}}, []string{"ungoverned"},
		},
		{
			"governance of any tag", "kind: instance,", "kind: instance, tags: {env: dev},",
			Governance{{Select: Select{Tags: map[string]string{"env": "*"}}}}, nil,
		},
		{"volumes need no governance", "kind: instance,", "kind: volume,", nil, []string{}},
		{
			"ends unmeasured machines", "do: stop}", "do: stop, even_if_unknown: true}", nil,
			[]string{"busy", "ungoverned"},
		},
		{
			"loses what is on instance-store disks", "do: stop}",
			"do: stop, disks: {instance_store: scratch, root: snapshot}}", nil, []string{"disks", "ungoverned"},
		},
		{
			"a notice about everything", carefulPolicy, "when: resource.age > duration(\"1h\")", nil,
			[]string{"everything"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keys := strings.Replace(carefulPolicy, tc.old, tc.new, 1)
			if keys == carefulPolicy && tc.old != "" {
				t.Fatalf("%q is not in the policy", tc.old)
			}
			var got []string
			for _, c := range Check(&Set{Policies: []*Policy{policyOf(t, keys)}}, tc.g) {
				got = append(got, c.Rule)
				if c.File != "test.yaml" || c.Line != 3 || c.Policy != "p" || c.Message == "" ||
					strings.Contains(c.Message, "\n") {
					t.Errorf("caution %+v does not say where it is, in a line", c)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v for\n%s", got, tc.want, keys)
			}
		})
	}
}

// TestEveryCheckHasCase checks that no check is without a case above.
func TestEveryCheckHasCase(t *testing.T) {
	worst := policyOf(t, "when: 'true'\nthen: [{warn: {grace: 0s}}, {do: hibernate}]\nmode: enforce")
	busy := policyOf(t,
		"when: 'true'\nthen: [{warn: {grace: 0s}}, {do: stop, even_if_busy: true, scratch_disks: true}]")
	kept := policyOf(t, "when: 'true'\nthen: [{warn: {grace: 0s}}, {do: put-retention, retention_days: 1}]")
	untagged := policyOf(t,
		"where: '!has(resource.production) || !resource.production'\nthen: [{warn: {grace: 0s}}, {do: stop}]")
	found := map[string]bool{}
	for _, c := range Check(&Set{Policies: []*Policy{worst, busy, kept, untagged}}, nil) {
		found[c.Rule] = true
	}
	for _, c := range checks {
		if !found[c.rule] {
			t.Errorf("%s finds nothing in the worst policy", c.rule)
		}
	}
}

func TestPermissionTags(t *testing.T) {
	lifetime := []string{inventory.TagLifetime, "lifetime"}
	byLifetime := []map[string]string{{inventory.TagLifetime: "ephemeral"}, {"lifetime": "ephemeral"}}
	for name, tc := range map[string]struct {
		governance Governance
		want       []map[string]string
	}{
		"none": {nil, nil},
		"by tags, not by team": {
			Governance{
				{Select: Select{Tags: map[string]string{"pool": "gpu", "spot": "*"}, Team: []string{"vision"}}},
			},
			[]map[string]string{{"pool": "gpu", "spot": "*"}},
		},
		"without tags, once": {
			Governance{{Select: Select{Kind: []string{"instance"}}}, {Select: Select{Environment: []string{"dev"}}}},
			byLifetime,
		},
		"one of each, and again": {
			Governance{
				{Select: Select{Tags: map[string]string{"a": "b"}}}, {Select: Select{Team: []string{"x"}}},
				{Select: Select{Tags: map[string]string{"a": "b"}}},
			},
			append([]map[string]string{{"a": "b"}}, byLifetime...),
		},
	} {
		if diff := cmp.Diff(tc.want, tc.governance.PermissionTags(lifetime)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestGoverns(t *testing.T) {
	g := Governance{
		{Select: Select{Kind: []string{"instance"}, Team: []string{"vision"}}, Reason: "the team asked for it"},
		{Select: Select{Tags: map[string]string{"sandbox": "*"}}},
		{}, // entries are never empty when parsed; an empty one governs nothing
	}
	for _, tc := range []struct {
		name string
		r    inventory.Resource
		want bool
	}{
		{"nothing", inventory.Resource{}, false},
		{"managed", inventory.Resource{Managed: true}, true},
		{"an entry", inventory.Resource{Kind: inventory.KindInstance, Owner: inventory.Owner{Team: "vision"}}, true},
		{
			"half an entry", inventory.Resource{Kind: inventory.KindInstance, Owner: inventory.Owner{Team: "speech"}},
			false,
		},
		{"an unknown team", inventory.Resource{Kind: inventory.KindInstance}, false},
		{"a tag", inventory.Resource{Tags: map[string]string{"sandbox": "yes"}}, true},
		{"tags that could not be read", inventory.Resource{}, false},
	} {
		if got := g.Governs(&tc.r); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
	if g.Governs(nil) || (Governance{}).Governs(&inventory.Resource{Kind: inventory.KindInstance}) {
		t.Error("what is not there, or not named, is governed")
	}
}

// TestSelectDoesNotGovern checks that a policy's own select grants no permission to act.
func TestSelectDoesNotGovern(t *testing.T) {
	p, f := policyOf(t, carefulPolicy), machine()
	f.Resource.Managed = false
	if p.Selects(f) == 0 || (Governance{}).Governs(f.Resource) {
		t.Error("a resource is governed because a policy selects it")
	}
}

func TestParseGovernance(t *testing.T) {
	var c struct {
		Before     string     `yaml:"before"`
		Governance Governance `yaml:"governance"`
	}
	read := func(src string) error {
		c.Governance = nil
		f, err := document.Parse("curfew.yaml", []byte(src))
		if err != nil {
			return err
		}
		return f.Decode(f.Bodies[0], &c)
	}
	if err := read("before: a\ngovernance:\n  - kind: [instance, notebook]\n    reason: the lab\n  - {team: vision, " +
		"tags: {a: b}}\n"); err != nil {
		t.Fatal(err)
	}
	want := Governance{
		{Select: Select{Kind: []string{"instance", "notebook"}}, Reason: "the lab"},
		{Select: Select{Team: []string{"vision"}, Tags: map[string]string{"a": "b"}}},
	}
	if diff := cmp.Diff(want, c.Governance); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
	for src, want := range map[string]string{
		"governance:\n  - kind: instnace\n":            `2:11 kind "instnace" does not exist`,
		"governance:\n  - {kind: instance, name: x}\n": `2:22 an entry of governance has no key "name"`,
		"governance:\n  - reason: everything\n":        "2:5 an entry of governance needs at least one value",
		"governance: {kind: instance}\n":               "1:13 governance is a list; this is a mapping",
		"before: a\ngovernance:\n  - {lifetime: x}\n":  `3:16 lifetime "x" does not exist`,
	} {
		err := read(src)
		if want := "curfew.yaml:" + strings.Replace(want, " ", ": ", 1); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q gives %v, want %q", src, err, want)
		}
	}
}

// TestFormatRoundTrip checks that any formatted policy parses to itself.
func TestFormatRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genAnyPolicy(t)
		set, err := Parse("written.yaml", (&Set{Policies: []*Policy{p}}).YAML())
		if err != nil {
			t.Fatalf("%v in\n%s", err, (&Set{Policies: []*Policy{p}}).YAML())
		}
		if diff := cmp.Diff(p, set.Policies[0], only...); diff != "" {
			t.Fatalf("differs (-written +read):\n%s\n%s", diff, (&Set{Policies: []*Policy{p}}).YAML())
		}
	})
}

// genAnyPolicy generates a policy with every feature of the language, and texts of any letters.
func genAnyPolicy(t *rapid.T) *Policy {
	text := rapid.StringMatching(`[\pL\pN\pP\pS \n\t]*[\pL\pN\pP\pS]`)
	texts := func(label string) []string { return rapid.SliceOfNDistinct(text, 0, 2, rapid.ID).Draw(t, label) }
	p := genPolicy(t)
	p.Name = rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,20}`).Draw(t, "name")
	p.Select.Team, p.Select.User, p.Select.Type = texts("team"), texts("user"), texts("type")
	p.Select.Account = rapid.SampledFrom([][]string{nil, {"012345678901"}, {"1", "x"}}).Draw(t, "account")
	p.Select.Tags = rapid.MapOfN(text, rapid.OneOf(text, rapid.Just("")), 0, 2).Draw(t, "tags")
	p.Do = Do{Verb: Verb(pick(t, "verb", verbs...))}
	for _, o := range options {
		if !slices.Contains(o.verbs, string(p.Do.Verb)) || !o.required && rapid.Bool().Draw(t, o.name) {
			continue
		}
		switch o.name {
		case "even_if_busy":
			p.Do.EvenIfBusy = true
		case "even_if_unknown":
			p.Do.EvenIfUnknown = true
		case "disks":
			p.Do.ScratchInstanceStore = rapid.Bool().Draw(t, "instance store")
			p.Do.ScratchRoot = !p.Do.ScratchInstanceStore || rapid.Bool().Draw(t, "root")
			p.Do.SaveDisks = p.Do.ScratchInstanceStore && !p.Do.ScratchRoot && rapid.Bool().Draw(t, "snapshot")
		case "scratch_disks":
			p.Do.ScratchDisks = !p.Do.ScratchInstanceStore && !p.Do.ScratchRoot
		case "save_disks":
			p.Do.SaveDisks = p.Do.SaveDisks || !p.Do.ScratchInstanceStore && !p.Do.ScratchRoot
		case "tags":
			p.Do.Tags = map[string]string{text.Draw(t, "key"): text.Draw(t, "value")}
		case "retention_days":
			p.Do.RetentionDays = rapid.IntRange(1, 4000).Draw(t, o.name)
		case "to":
			p.Do.To = rapid.IntRange(0, 9).Draw(t, o.name)
		}
	}
	if p.Do.Verb == Scale {
		p.Select.Kind = pick(t, "scaled", []string{"autoscaling-group"}, []string{"endpoint", "autoscaling-group"},
			[]string{"instance"})
		if p.Select.Kind[0] == "instance" {
			p.Do.To = ThroughGroup
		}
	}
	p.Warn = nil
	if p.Do.Verb.IsDestructive() || rapid.Bool().Draw(t, "warn") {
		p.Warn = &Warning{Notify: texts("notify"), Grace: genDuration(t)}
	}
	p.Mode = Mode(pick(t, "mode", string(Observe), string(Warn), string(Enforce)))
	p.Limits = Limits{
		PerHour:        rapid.IntRange(0, 99).Draw(t, "per hour"),
		Share:          float64(rapid.IntRange(0, 10_000).Draw(t, "share")) / 10_000,
		DollarsPerHour: money.Amount(rapid.Int64Range(0, 1<<50).Draw(t, "dollars")),
	}
	return p
}

// TestExplain checks the explanations.
func TestExplain(t *testing.T) {
	for _, tc := range []struct {
		name, keys string
		change     func(*Facts)
		want       []string
	}{
		{
			"all true",
			"select: {kind: instance, tags: {team: '*'}}\nwhen: duty.state == \"idle\" && duty.lasting >= " +
				"duration(\"30m\")", nil, []string{
				`select: true (kind: instance, tag team: *): kind is instance, tag team is "vision"`,
				`when: true (duty.state == "idle" && duty.lasting >= duration("30m")): duty.state is "idle"; duty.lasting is 1h`}},
		{"not selected", "select: {kind: [volume, notebook], lifetime: ephemeral}\nwhen: 'true'", nil, []string{
			`select: false (kind: volume | notebook, lifetime: ephemeral): kind is instance`}},
		{"an absent tag, selected", "select: {tags: {absent: x, team: speech}}\nwhen: 'true'", nil, []string{
			`select: false (tag absent: x, tag team: speech): tag absent is absent, tag team is "vision"`}},
		{
			"the first part that is false",
			`when: resource.gpus > 0 && duty.state == "busy" && resource.age > duration("9d")`,
			nil, []string{
				"select: true (everything): ",
				`when: false (resource.gpus > 0 && duty.state == "busy" && resource.age > duration("9d")): duty.state == "busy" is false: duty.state is "idle"`}},
		{
			"all that is unknown",
			"where: resource.tags.absent != \"x\" && resource.gang != \"y\"\nwhen: duty.state == \"idle\"",
			func(f *Facts) {
				f.Resource.Gang, f.Duty = "", &duty.Verdict{Why: "nothing was measured"}
			}, []string{
				"select: true (everything): ",
				`where: unknown (resource.tags.absent != "x" && resource.gang != "y"): tag absent is absent; resource.gang is unknown: it belongs to no known run of several machines`,
				`when: unknown (duty.state == "idle"): duty.state is unknown: nothing was measured`}},
		{"why not at all", "when: resource.managed && !has(resource.tags.team)", nil, []string{
			"select: true (everything): ",
			`when: false (resource.managed && !has(resource.tags.team)): tag team is "vision"`}},
		{"an error", "when: 1 / (resource.gpus - 1) == 1", nil, []string{
			"select: true (everything): ",
			"when: unknown (1 / (resource.gpus - 1) == 1): 1 / (resource.gpus - 1) == 1 is unknown: division by zero"}},
		{"a schedule", "schedule: {timezone: Europe/Berlin, off: Sat-Sun, at: \"Tue 12:00\"}", nil, []string{
			"select: true (everything): ",
			"schedule: false (off Sat-Sun, at Tue 12:00 (Europe/Berlin)): it is Wed 7 Jan 13:00, on until Sat 10 " +
				"Jan 00:00, " +
				"and it has been running since Tue 6 Jan 17:00 only"}},
		{"a schedule of hours", "schedule: {timezone: Europe/Berlin, off: Sat-Sun}", nil, []string{
			"select: true (everything): ",
			"schedule: false (off Sat-Sun (Europe/Berlin)): it is Wed 7 Jan 13:00, on until Sat 10 Jan 00:00"}},
		{"a schedule of times", "schedule: {timezone: Europe/Berlin, at: \"Tue 17:00\"}", func(f *Facts) {
			f.Now = f.Now.Add(7 * 24 * time.Hour)
		}, []string{
			"select: true (everything): ",
			"schedule: true (at Tue 17:00 (Europe/Berlin)): it is Wed 14 Jan 13:00, and it has been running since " +
				"before Tue " +
				"13 Jan 17:00"}},
		{"a schedule of times at the start", "schedule: {timezone: Europe/Berlin, at: \"Tue 17:00\"}", nil, []string{
			"select: true (everything): ",
			"schedule: false (at Tue 17:00 (Europe/Berlin)): it is Wed 7 Jan 13:00, and it has been running since Tue 6 Jan " +
				"17:00 only"}},
		{
			"a schedule of times, and an unknown start", "schedule: {timezone: Europe/Berlin, at: \"Tue 17:00\"}",
			func(f *Facts) { f.Resource.CreatedAt, f.Resource.StateSince = time.Time{}, time.Time{} }, []string{
				"select: true (everything): ",
				"schedule: unknown (at Tue 17:00 (Europe/Berlin)): it is Wed 7 Jan 13:00, and its start is unknown"}},
		{"a stale inventory", "when: 'true'", func(f *Facts) { f.Stale = true }, []string{
			"select: unknown (everything): the inventory is too old to act on"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, f := policyOf(t, tc.keys), machine()
			if tc.change != nil {
				tc.change(f)
			}
			var got []string
			for _, part := range p.Explain(f).Parts {
				got = append(got, part.Name+": "+part.Answer.String()+" ("+part.Text+"): "+part.Why)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}
