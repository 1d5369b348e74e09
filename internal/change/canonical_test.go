package change

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestEquivalent compares documents with each other that providers return in other words.
func TestEquivalent(t *testing.T) {
	rule := func(id, filter, does string) string {
		return "<Rule><ID>" + id + "</ID>" + filter + "<Status>Enabled</Status>" + does + "</Rule>"
	}
	expire := "<Expiration><Days>9</Days></Expiration>"
	a := lifecycleOf(rule("a", "<Filter/>", expire) + rule("b", "<Filter><Prefix>x/</Prefix></Filter>", expire))
	for _, tc := range []struct {
		name, a, b string
		want       bool
	}{
		{"none and none", "", "", true},
		{"none and one", "", a, false},
		{"rules in another order, with space, without a header", a,
			"<LifecycleConfiguration>\n " + rule("b", "<Filter>\n<Prefix>x/</Prefix></Filter>",
				expire) + "<!-- x -->" +
				rule("a", "<Filter></Filter>", expire) + "\n</LifecycleConfiguration>\n", true},
		{
			"an empty prefix narrows nothing", a,
			strings.Replace(a, "<Filter/>", "<Filter><Prefix></Prefix></Filter>", 1),
			true,
		},
		{"another age", a, strings.Replace(a, "<Days>9<", "<Days>90<", 1), false},
		{"another prefix, by a space", a, strings.Replace(a, ">x/<", ">x/ <", 1), false},
		{"another name, by a space", a, strings.Replace(a, ">a<", ">a <", 1), false},
		{
			"a prefix with marks in it, and two prefixes",
			strings.Replace(a, ">x/<", ">x&lt;/Prefix&gt;&lt;Prefix&gt;y<", 1),
			strings.Replace(a, ">x/<", ">x</Prefix><Prefix>y<", 1), false,
		},
		{"a rule that is off", a, strings.Replace(a, "Enabled", "Disabled", 1), false},
		{"one rule fewer", a, lifecycleOf(rule("a", "<Filter/>", expire)), false},
		{"a field that curfew knows nothing of", a, strings.Replace(a, expire, expire+"<New>1</New>", 1), false},
		{
			"JSON with other keys' order and rules' order", `{"rules":[{"rulePriority":1,"a":2},{"rulePriority":2}]}`,
			` {"rules": [{"rulePriority": 2}, {"a": 2, "rulePriority": 1}]}`, true,
		},
		{
			"JSON with another number", `{"rules":[{"rulePriority":1,"a":2}]}`, `{"rules":[{"rulePriority":1,"a":3}]}`,
			false,
		},
		{"what cannot be read is only itself", "<a>", "<a> ", false},
	} {
		if got := Equivalent(tc.a, tc.b); got != tc.want {
			x, _ := Canonical(tc.a)
			y, _ := Canonical(tc.b)
			t.Errorf("%s: the same: %v\n%s\n%s", tc.name, got, x, y)
		}
	}
}

// TestEquivalentIgnoresRuleOrder draws documents: shuffled they are the same, with one rule
// changed they are not.
func TestEquivalentIgnoresRuleOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Rule {
			return Rule{
				ID: rapid.StringMatching("curfew-[a-z]{6}").Draw(t, "id"), Prefix: rapid.String().Draw(t, "prefix"),
				ExpireDays: rapid.IntRange(1, 99).Draw(t, "days"),
			}
		}), 1, 8, func(r Rule) string { return r.ID }).Draw(t, "rules")
		a := WriteRules(rules)
		if _, err := Canonical(a); err != nil {
			t.Skip("a prefix that XML cannot hold")
		}
		if b := WriteRules(rapid.Permutation(rules).Draw(t, "order")); !Equivalent(a, b) {
			t.Fatalf("not the same:\n%s\n%s", a, b)
		}
		rules[0].ExpireDays += 100
		if b := WriteRules(rules); Equivalent(a, b) {
			t.Fatalf("the same:\n%s\n%s", a, b)
		}
	})
}

func TestLifecycleJSON(t *testing.T) {
	got, err := LifecycleJSON(
		lifecycleOf(
			`<Rule><ID>logs &amp; all</ID><Filter><And><Prefix>logs/</Prefix><Tag><Key>a</Key><Value>b</Value></Tag><ObjectSizeGreaterThan>131072</ObjectSizeGreaterThan></And></Filter>
  <Status>Enabled</Status><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration></Rule>
  <Rule><ID>b</ID><Filter><Tag><Key>a</Key><Value></Value></Tag></Filter><Status>Disabled</Status><Transition><Days>30</Days><StorageClass>STANDARD_IA</StorageClass></Transition>
  <NoncurrentVersionExpiration><NoncurrentDays>9</NoncurrentDays><NewerNoncurrentVersions>3</NewerNoncurrentVersions></NoncurrentVersionExpiration></Rule>`))
	want := `{"Rules":[{"Expiration":{"ExpiredObjectDeleteMarker":true},"Filter":{"And":{"ObjectSizeGreaterThan":131072,"Prefix":"logs/","Tags":[{"Key":"a","Value":"b"}]}},"ID":"logs \u0026 all","Status":"Enabled"},` +
		`{"Filter":{"Tag":{"Key":"a","Value":""}},"ID":"b","NoncurrentVersionExpiration":{"NewerNoncurrentVersions":3,"NoncurrentDays":9},"Status":"Disabled","Transitions":[{"Days":30,"StorageClass":"STANDARD_IA"}]}]}`
	if err != nil || got != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
	}
	for _, document := range []string{
		"", lifecycleOf("<Rule><New/></Rule>"), lifecycleOf("<Rule><ID>a</ID><ID>b</ID></Rule>"),
		lifecycleOf("<Rule><Expiration><Days>x</Days></Expiration></Rule>"),
	} {
		if got, err := LifecycleJSON(document); err == nil {
			t.Errorf("%q became %s", document, got)
		}
	}
}

func TestAction(t *testing.T) {
	for want, c := range map[string]Change{
		"stop": {Verb: Stop}, "terminate": {Verb: Terminate},
		"snapshot-then-terminate": {Verb: Terminate, Arguments: Arguments{Snapshot: []string{"vol-1"}}},
		"snapshot-then-delete":    {Verb: Delete, Arguments: Arguments{Snapshot: []string{"vol-1"}}},
	} {
		if got := c.Action(); got != want {
			t.Errorf("%+v is called %s, want %s", c, got, want)
		}
	}
	a := Change{Verb: Scale, Arguments: Arguments{Count: new(int64(2))}}
	if !a.Equal(Change{Verb: Scale, Arguments: Arguments{Count: new(int64(2))}}) ||
		a.Equal(Change{Verb: Scale, Arguments: Arguments{Count: new(int64(3))}}) {
		t.Error("changes are compared by their addresses")
	}
}

func TestAddedRules(t *testing.T) {
	before := WriteRules([]Rule{{ID: "theirs", ExpireDays: 9}})
	after, err := WithRules(before, sampleRules())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"curfew-incomplete-uploads: the whole bucket: abort uploads that are incomplete for 7 days",
		"curfew-replaced-versions: the whole bucket: delete versions 30 days after they were replaced",
		"curfew-colder: under raw/: move objects to STANDARD_IA after 30 days, move objects to GLACIER after 90 days, " +
			"delete objects after 180 days"}
	if diff := cmp.Diff(want, Change{Verb: PutLifecycle, Before: before, Document: after}.AddedRules()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range []Change{
		{Verb: PutLifecycle}, {Verb: PutLifecycle, Document: `{"rules":[]}`}, {Verb: Stop, Document: after},
	} {
		if got := c.AddedRules(); got != nil {
			t.Errorf("%+v adds %q", c, got)
		}
	}
}

// TestWeekStoppingAtItsStartEndsNextDay ends on the next day.
func TestWeekStoppingAtItsStartEndsNextDay(t *testing.T) {
	w := Week{Start: "08:00", Stop: "08:00", Days: []string{"Mon", "Sun"}}
	if got := strings.Join(w.StopDays(), " "); got != "Tue Mon" {
		t.Errorf("it stops on %s", got)
	}
	if got := (Change{Verb: Stop, Arguments: Arguments{Snapshot: []string{"vol-1"}}}).Action(); got != "stop" {
		t.Errorf("what is only stopped is called %s", got)
	}
}
