package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// only compares the content of policies, not compiled conditions or positions.
var only = []cmp.Option{
	cmpopts.IgnoreUnexported(Policy{}), cmpopts.IgnoreFields(Policy{}, "File", "Line"), cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b *time.Location) bool { return a.String() == b.String() }),
}

func parse(t testing.TB, src string) *Set {
	t.Helper()
	set, err := Parse("test.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// policyOf parses a policy with the given keys besides its name; by default it notifies.
func policyOf(t testing.TB, keys string) *Policy {
	t.Helper()
	src := "apiVersion: curfew.policy/v1\npolicies:\n  - name: p\n"
	if !strings.Contains(keys, "then:") {
		src += "    then: [{do: notify}]\n"
	}
	for line := range strings.SplitSeq(keys, "\n") {
		src += "    " + line + "\n"
	}
	return parse(t, src).Policies[0]
}

func TestParse(t *testing.T) {
	got := parse(t, contractPolicies+`  - name: nightly
    mode: warn
    then:
      - warn: {grace: 0s}
      - {do: put-retention, retention_days: 30}
    limits: {share: 12.5%, dollars_per_hour: 12.50}
    schedule: {timezone: Europe/Berlin, off: ["Mon-Fri 20:00-07:00", "Sat-Sun"], at: ["Fri 18:00"]}
    select:
      account: 012345678901
      tags: {Spot: "true", empty: ""}
      team: [vision, speech]
`)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := &Set{Policies: []*Policy{
		{
			Name:   "idle-gpu-machines",
			Select: Select{Kind: []string{"instance"}, Lifetime: []string{"ephemeral"}},
			Where:  `resource.gpus > 0 && resource.environment != "production"`,
			When:   `duty.state in ["idle", "held"] && duty.lasting >= duration("30m")`,
			Warn:   &Warning{Notify: []string{"owner"}, Grace: 15 * time.Minute},
			Do:     Do{Verb: Terminate},
			Limits: Limits{PerHour: 10, Share: 0.2, DollarsPerHour: 200 * money.USD}, Mode: Enforce,
		},
		{
			Name:   "dead-mans-switch",
			Select: Select{Kind: []string{"instance"}, Tags: map[string]string{"Purpose": "transient-ml-training"}},
			When:   `resource.age > duration("12h")`,
			Warn:   &Warning{Grace: 30 * time.Minute}, Do: Do{Verb: Stop, EvenIfBusy: true},
		},
		{
			Name: "nightly",
			Select: Select{
				Account: []string{"012345678901"}, Team: []string{"vision", "speech"},
				Tags: map[string]string{"Spot": "true", "empty": ""},
			},
			Schedule: &Schedule{
				Location: berlin, Off: []string{"Mon-Fri 20:00-07:00", "Sat-Sun"}, At: []string{"Fri 18:00"},
			},
			Warn: &Warning{}, Do: Do{Verb: PutRetention, RetentionDays: 30},
			Limits: Limits{Share: 0.125, DollarsPerHour: 12*money.USD + 50*money.Cent}, Mode: Warn,
		},
	}}
	if diff := cmp.Diff(want, got, only...); diff != "" {
		t.Errorf("Parse differs (-want +got):\n%s", diff)
	}
}

// TestZeroModeObserves checks that a policy does not act unless its mode says so.
func TestZeroModeObserves(t *testing.T) {
	if got := policyOf(t, `when: "true"`).Mode; got != Observe {
		t.Errorf("mode %q, want observe", got)
	}
	if got := policyOf(t, "when: \"true\"\nmode: observe").Mode; got != Observe {
		t.Errorf("mode: observe gives %q", got)
	}
}

func TestParseErrorPositions(t *testing.T) {
	const head = "apiVersion: curfew.policy/v1\npolicies:\n"
	const rest = "    then: [{do: notify}]\n"
	for _, tc := range []struct {
		name, src    string
		line, column int
		message      string
	}{
		{"an empty file", "", 1, 1, "is empty"},
		{"not a mapping", "- a\n", 1, 1, "the file has keys; this is a list"},
		{"not YAML", "apiVersion: [\n", 1, 13, ""},
		{"not text", "apiVersion: \xff\n", 1, 1, "not UTF-8"},
		{"no version", "policies: []\n", 1, 1, "needs apiVersion"},
		{
			"another version", "apiVersion: curfew.policy/v2\npolicies: []\n", 1, 13,
			`is curfew.policy/v1, not "curfew.policy/v2"`,
		},
		{"no policy", head[:len(head)-1] + " []\n", 1, 1, "has no policy"},
		{
			"a second document", head + "  - name: a\n    when: 'true'\n" + rest + "---\na: b\n", 7, 1,
			"second document",
		},
		{
			"an unknown key of the file", "apiVersion: curfew.policy/v1\npolicy: []\n", 2, 1,
			`no key "policy"; it has apiVersion, policies`,
		},
		{"an unknown key of a policy", head + "  - name: a\n    whne: 'true'\n" + rest, 4, 5, `no key "whne"`},
		{
			"a repeated key", head + "  - name: a\n    when: 'true'\n    when: 'false'\n" + rest, 5, 5,
			"already defined",
		},
		{"a key without a value", head + "  - name: a\n    when:\n" + rest, 4, 5, "when has no value"},
		{"a name of the wrong type", head + "  - name: 5\n    when: 'true'\n" + rest, 3, 11, `write "5" in quotes`},
		{"a name that is none", head + "  - name: 'finding:a'\n    when: 'true'\n" + rest, 3, 11, "letters, digits"},
		{
			"a name twice", head + "  - name: a\n    when: 'true'\n" + rest + "  - name: a\n    when: 'true'\n" + rest,
			6, 5,
			"defined already, in line 3",
		},
		{"no condition", head + "  - name: a\n" + rest, 3, 5, "give it where, when or schedule"},
		{"no then", head + "  - name: a\n    when: 'true'\n", 3, 5, "needs then"},
		{"an alias", head + "  - name: &a b\n    when: 'true'\n" + rest, 3, 11, "not supported"},
		{
			"a key with a colon that is not quoted",
			head + "  - name: a\n    select: {tags: {curfew:lifetime: ephemeral}}\n    when: 'true'\n" + rest, 4, 21,
			"written in quotes",
		},
		{
			"an unknown kind", head + "  - name: a\n    select: {kind: instnace}\n    when: 'true'\n" + rest, 4, 20,
			`kind "instnace" does not exist; it is address,`,
		},
		{
			"an unknown lifetime",
			head + "  - name: a\n    select: {lifetime: [ephemeral, temporary]}\n    when: 'true'\n" + rest, 4, 36,
			`lifetime "temporary"`,
		},
		{
			"an unknown purpose", head + "  - name: a\n    select: {purpose: fun}\n    when: 'true'\n" + rest, 4, 23,
			`purpose "fun"`,
		},
		{
			"an environment in capitals",
			head + "  - name: a\n    select: {environment: Prod}\n    when: 'true'\n" + rest, 4,
			27, `letters are small`,
		},
		{
			"a value twice", head + "  - name: a\n    select: {team: [a, a]}\n    when: 'true'\n" + rest, 4, 24,
			"given twice",
		},
		{
			"a tag that is no text", head + "  - name: a\n    select: {tags: {spot: true}}\n    when: 'true'\n" + rest,
			4, 27,
			`write "true" in quotes`,
		},
		{
			"an unknown verb", head + "  - name: a\n    when: 'true'\n    then: [{do: shutdown}]\n", 5, 17,
			`do "shutdown" does not exist; it is notify,`,
		},
		{
			"a verb that needs a finding",
			head + "  - name: a\n    when: 'true'\n    then: [{do: put-lifecycle}]\n", 5, 17,
			`does not exist`,
		},
		{
			"a size of anything",
			head + "  - name: a\n    when: 'true'\n    then: [{warn: {grace: 1h}}, {do: scale, to: 2}]\n", 5, 5,
			"do: scale needs fleet, or select",
		},
		{
			"a group without a size",
			head +
				"  - name: a\n    select: {kind: autoscaling-group}\n    when: 'true'\n    then: [{warn: {grace: 1h}}, " +
				"{do: scale}]\n",
			6, 5, "needs to",
		},
		{
			"a machine with a size",
			head + "  - name: a\n    select: {kind: instance}\n    when: 'true'\n    then: [{warn: {grace: 1h}}, " +
				"{do: scale, " +
				"to: 1}]\n",
			6, 5, "has no to",
		},
		{"an unknown mode", head + "  - name: a\n    when: 'true'\n    mode: on\n" + rest, 5, 11, "mode"},
		{
			"a mode that does not exist", head + "  - name: a\n    when: 'true'\n    mode: dry\n" + rest, 5, 11,
			"it is observe, warn or enforce",
		},
		{
			"a destructive do without a warning",
			head + "  - name: a\n    when: 'true'\n    then: [{do: stop}]\n", 5, 11,
			"explicit grace",
		},
		{
			"a destructive do without a grace",
			head + "  - name: a\n    when: 'true'\n    then: [{warn: {notify: owner}}, {do: terminate}]\n", 5, 11,
			"explicit grace",
		},
		{
			"an action before the warning",
			head + "  - name: a\n    when: 'true'\n    then: [{do: notify}, {warn: {grace: 1h}}]\n", 5, 26,
			"ends with its do",
		},
		{
			"two actions", head + "  - name: a\n    when: 'true'\n    then: [{do: notify}, {do: notify}]\n", 5, 26,
			"one action",
		},
		{
			"two warnings",
			head + "  - name: a\n    when: 'true'\n    then: [{warn: {grace: 1h}}, {warn: {grace: 1h}}, {do: stop}]\n",
			5, 33,
			"one warn",
		},
		{"no action", head + "  - name: a\n    when: 'true'\n    then: [{warn: {grace: 1h}}]\n", 5, 11, "needs a do"},
		{
			"a grace without a unit",
			head + "  - name: a\n    when: 'true'\n    then: [{warn: {grace: '15'}}, {do: stop}]\n",
			5, 27, `"15" is not a duration`,
		},
		{
			"a negative grace", head + "  - name: a\n    when: 'true'\n    then: [{warn: {grace: -1h}}, {do: stop}]\n",
			5, 27,
			"is not a duration from 0s",
		},
		{
			"tags for stop",
			head + "  - name: a\n    when: 'true'\n    then: [{warn: {grace: 1h}}, {do: stop, tags: {a: b}}]\n", 5, 44,
			"tags belongs to tag, not to stop",
		},
		{
			"a tag without tags", head + "  - name: a\n    when: 'true'\n    then: [{do: tag}]\n", 5, 12,
			"do: tag needs tags",
		},
		{
			"a retention without days",
			head + "  - name: a\n    when: 'true'\n    then: [{warn: {grace: 1h}}, {do: put-retention}]\n", 5, 33,
			"needs retention_days",
		},
		{
			"even_if_busy in words",
			head +
				"  - name: a\n    when: 'true'\n    then: [{warn: {grace: 1h}}, {do: stop, even_if_busy: always}]\n",
			5,
			58, "is true or false",
		},
		{
			"no count an hour", head + "  - name: a\n    when: 'true'\n    limits: {per_hour: 0}\n" + rest, 5, 24,
			"a whole number from 1",
		},
		{
			"a share over all", head + "  - name: a\n    when: 'true'\n    limits: {share: 120%}\n" + rest, 5, 21,
			"up to 100",
		},
		{
			"a share without a sign", head + "  - name: a\n    when: 'true'\n    limits: {share: 0.2}\n" + rest, 5, 21,
			"percentage",
		},
		{
			"dollars that are none",
			head + "  - name: a\n    when: 'true'\n    limits: {dollars_per_hour: 1e3}\n" + rest, 5,
			32, "amount of dollars",
		},
		{
			"an unknown time zone", head + "  - name: a\n    schedule: {timezone: Berlin, off: Sat-Sun}\n" + rest, 4,
			26,
			`timezone "Berlin" is not known`,
		},
		{
			"the machine's own time zone",
			head + "  - name: a\n    schedule: {timezone: Local, off: Sat-Sun}\n" + rest, 4,
			26, "is not known",
		},
		{
			"a day that is none",
			head + "  - name: a\n    schedule: {off: [Sat-Sun, \"Mon-Fry 20:00-07:00\"]}\n" + rest, 4,
			31, `"Mon-Fry" is not a day`,
		},
		{
			"a span that is none", head + "  - name: a\n    schedule: {off: [\"Mon 20-7\"]}\n" + rest, 4, 22,
			"is not a span",
		},
		{
			"an empty span", head + "  - name: a\n    schedule: {off: [\"Mon 20:00-20:00\"]}\n" + rest, 4, 22,
			"is empty",
		},
		{"a tick without a time", head + "  - name: a\n    schedule: {at: Fri}\n" + rest, 4, 20, "is not a time"},
		{"a tick of one digit", head + "  - name: a\n    schedule: {at: '8'}\n" + rest, 4, 20, "is not a time"},
		{
			"a schedule without times", head + "  - name: a\n    schedule: {timezone: UTC}\n" + rest, 4, 15,
			"needs off or at",
		},

		{
			"a fact that does not exist", head + "  - name: a\n    when: resource.gpu > 0\n" + rest, 4, 11,
			"resource.gpu is not a fact; resource has id, name",
		},
		{
			"a root that does not exist",
			head + "  - name: a\n    when: resource.gpus > 0 && machine.gpus > 0\n" + rest, 4,
			32, "machine is neither a fact nor a function; facts begin with now,",
		},
		{"a root alone", head + "  - name: a\n    when: size(duty) > 0\n" + rest, 4, 16, "duty is not a fact"},
		{
			"a comparison of two types", head + "  - name: a\n    when: resource.gpus > \"1\"\n" + rest, 4, 25,
			"> does not apply to int and string",
		},
		{
			"a condition that is no boolean", head + "  - name: a\n    when: resource.age\n" + rest, 4, 11,
			"this is of type duration",
		},
		{
			"a condition that may be no boolean", head + "  - name: a\n    when: dyn(resource.age)\n" + rest, 4, 11,
			"this is of type dyn",
		},
		{
			"a condition that stops early", head + "  - name: a\n    when: resource.gpus >\n" + rest, 4, 25,
			"ends where more is expected",
		},
		{
			"a state that does not exist",
			head + "  - name: a\n    when: duty.state in [\"idle\", \"hold\"]\n" + rest, 4, 34,
			`duty.state is never "hold"; it is busy,`,
		},
		{
			"the unknown state", head + "  - name: a\n    when: duty.state == \"unknown\"\n" + rest, 4, 25,
			"only true acts",
		},
		{"an empty text", head + "  - name: a\n    when: resource.team == \"\"\n" + rest, 4, 28, "never empty"},
		{
			"an environment that does not exist",
			head + "  - name: a\n    when: '\"Production\" != resource.environment'\n" + rest, 4,
			12, "letters are small",
		},
		{
			"a duration that is none", head + "  - name: a\n    when: resource.age > duration(\"12 hours\")\n" + rest,
			4, 35,
			`"12 hours" is not a duration`,
		},
		{
			"a time that is none", head + "  - name: a\n    when: now > timestamp(\"tomorrow\")\n" + rest, 4, 27,
			"timestamp",
		},
		{
			"a number that is none", head + "  - name: a\n    when: price.drift != double(\"NaN\")\n" + rest, 4, 11,
			"NaN is not a finite number",
		},
		{
			"a value in place of an absent tag",
			head + "  - name: a\n    when: resource.tags.?team.orValue(\"a\") == \"a\"\n" + rest, 4,
			24, "unsupported syntax",
		},
		{"has of anything else", head + "  - name: a\n    when: has(1)\n" + rest, 4, 15, "has asks for a tag"},
		{
			"schedule facts without a schedule", head + "  - name: a\n    when: schedule.off\n" + rest, 4, 11,
			"the policy has no schedule",
		},

		{
			"in quotes", head + "  - name: a\n    when: \"resource.team == \\\"a\\\" && foo\"\n" + rest, 4, 38,
			"foo is neither",
		},
		{
			"in single quotes", head + "  - name: a\n    when: 'resource.team == ''a'' && foo'\n" + rest, 4, 38,
			"foo is neither",
		},
		{
			"in a block", head + "  - name: a\n    when: |\n      resource.team == \"a\" &&\n        foo\n" + rest, 6,
			9,
			"foo is neither",
		},
		{
			"in a folded block",
			head + "  - name: a\n    when: >-\n      resource.team == \"a\" &&\n      foo ||\n      bar\n" + rest, 6,
			7,
			"foo is neither",
		},
		{
			"over several plain lines", head + "  - name: a\n    when: resource.team == \"a\" &&\n      foo\n" + rest,
			5, 7,
			"foo is neither",
		},
		{
			"over several quoted lines",
			head + "  - name: a\n    when: \"resource.team == 'a' &&\n      foo\"\n" + rest, 5,
			7, "foo is neither",
		},
		{
			"after letters of several bytes",
			head + "  - name: a\n    when: resource.team == \"äöü\" && foo\n" + rest, 4, 37,
			"foo is neither",
		},
		{
			"the first of two mistakes",
			head + "  - name: a\n    when: |\n      resource.gpus > 0 && resource.nosuch > 0 &&\n      " +
				"resource.other > 0\n" +
				rest,
			5, 28, "resource.nosuch is not a fact",
		},
		{"in where", head + "  - name: a\n    where: foo\n" + rest, 4, 12, "foo is neither"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("test.yaml", []byte(tc.src))
			var e *document.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *document.Error", err)
			}
			if e.File != "test.yaml" || e.Line != tc.line || e.Column != tc.column ||
				!strings.Contains(e.Message, tc.message) {
				t.Errorf("got %q, want %d:%d with %q", e, tc.line, tc.column, tc.message)
			}
			if strings.Contains(e.Error(), "\n") {
				t.Errorf("more than a line: %q", e)
			}
		})
	}
}

func TestMergeRejectsDuplicateNames(t *testing.T) {
	one, err := Parse("one.yaml", []byte(contractPolicies))
	if err != nil {
		t.Fatal(err)
	}
	two, err := Parse("two.yaml", []byte(contractPolicies))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Merge(one, two); err == nil ||
		err.Error() != `two.yaml:3:1: policy "idle-gpu-machines" is defined already, in one.yaml:3` {
		t.Errorf("got %v", err)
	}
	two.Policies = two.Policies[1:]
	one.Policies = one.Policies[:1]
	got, err := Merge(one, two)
	if err != nil || len(got.Policies) != 2 || got.Policies[1].File != "two.yaml" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestKinds(t *testing.T) {
	set := parse(t, contractPolicies)
	if got := set.Kinds(); len(got) != 1 || !got[inventory.KindInstance] {
		t.Errorf("got %v, want instance", got)
	}
	set.Policies = append(set.Policies, policyOf(t, `when: "true"`))
	if got := set.Kinds(); got != nil {
		t.Errorf("got %v, want nil for every kind", got)
	}
}

func TestHorizonAndClass(t *testing.T) {
	for _, tc := range []struct {
		keys    string
		horizon time.Duration
		class   string
	}{
		{
			`when: duty.lasting >= duration("30m") || duty.lasting + duration("1h") > duration("4h")`, 3 * time.Hour,
			ClassDuty,
		},
		{`when: resource.age > duration("12h")`, 0, ClassAge},
		{`when: lease.expired && resource.age > duration("1h")`, 0, ClassLease},
		{`when: budget.state == "over"`, 0, ClassBudget},
		{`when: price.drift > 0.1`, 0, ClassPrice},
		{`when: now - resource.last_activity > duration("7d")`, 0, ClassAge},
		{`where: has(resource.tags.team)`, 0, ClassState},
		{`when: duty.lasting >= lease.idle`, inventory.MaxIdle, ClassDuty},
		{`when: duty.lasting >= lease.idle + duration("1h")`, inventory.MaxIdle + time.Hour, ClassDuty},
		{`when: lease.idle > duration("20h")`, 0, ClassLease},
		{`schedule: {off: Sat-Sun}`, 0, ClassSchedule},
		{"schedule: {off: Sat-Sun}\nwhen: duration(\"45m\") <= duty.lasting", 45 * time.Minute, ClassDuty},
	} {
		p := policyOf(t, tc.keys)
		if got := p.Horizon(); got != tc.horizon {
			t.Errorf("%s: horizon %s, want %s", tc.keys, got, tc.horizon)
		}
		if got := p.EvidenceClass(); got != tc.class {
			t.Errorf("%s: class %s, want %s", tc.keys, got, tc.class)
		}
	}
}

// FuzzParse checks that accepted policies survive a round trip, that every mistake is a
// *document.Error inside the file, and that nothing destructive is accepted without a grace.
func FuzzParse(f *testing.F) {
	f.Add(contractPolicies)
	f.Add(
		"apiVersion: curfew.policy/v1\npolicies:\n  - name: a\n    schedule: {off: Sat-Sun, at: '20:00'}\n    when: " +
			"|\n      has(resource.tags[\"a b\"]) &&\n      schedule.due\n    then: [{do: tag, tags: {a: b}}]\n")
	f.Add(
		"apiVersion: \"curfew.policy/v1\"\npolicies: [{name: a, when: \"\\u0064uty.state == 'idle'\", then: [{warn: " +
			"{grace: 1d}}, {do: scale, to: 0}], limits: {share: 5%}}]")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, src string) {
		set, err := Parse("f.yaml", []byte(src))
		if err != nil {
			var e *document.Error
			if !errors.As(err, &e) {
				t.Fatalf("%v is not an *document.Error", err)
			}
			if lines := strings.Count(src, "\n") + strings.Count(src, "\r") + 1; e.Line < 1 ||
				e.Line > lines || e.Column < 1 {
				t.Fatalf("%v is not in the file of %d lines", err, lines)
			}
			return
		}
		for _, p := range set.Policies {
			if p.Do.Verb.IsDestructive() && p.Warn == nil {
				t.Fatalf("%s has no warning", p.Do.Verb)
			}
		}
		again, err := Parse("f.yaml", set.YAML())
		if err != nil {
			t.Fatalf("%v in\n%s", err, set.YAML())
		}
		if diff := cmp.Diff(set, again, only...); diff != "" {
			t.Fatalf("written and read again (-before +after):\n%s\n%s", diff, set.YAML())
		}
	})
}

// TestEscapesText checks that characters special to YAML or terminals are escaped.
func TestEscapesText(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "on": `"on"`, "a b": `"a b"`, "\x1f": `"\u001f"`, "\x7f": `"\u007f"`, "\u0085": `"\u0085"`,
		"\u00a0": `"\u00a0"`,
		"\u2028": `"\u2028"`, "\u2029": `"\u2029"`, "\ufeff": `"\ufeff"`,
		"\u00e9": "\"\u00e9\"", "\uff00": "\"\uff00\"",
	} {
		if got := scalarText(text); got != want {
			t.Errorf("%q is written %s, want %s", text, got, want)
		}
	}
}

// TestHoursWithoutDaysApplyDaily checks that hours without days include every day of the week.
func TestHoursWithoutDaysApplyDaily(t *testing.T) {
	days, clock, err := splitSpan("09:00-17:00")
	if want := []int{0, 1, 2, 3, 4, 5, 6}; err != nil || clock != "09:00-17:00" || !slices.Equal(days, want) {
		t.Errorf("days %v of %q, %v", days, clock, err)
	}
}
