package change

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const lifecycleHead = `<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
	`<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`

func lifecycleOf(rules string) string { return lifecycleHead + rules + "</LifecycleConfiguration>" }

// sampleRules do everything that a rule can do.
func sampleRules() []Rule {
	return []Rule{
		{ID: "curfew-incomplete-uploads", AbortDays: 7}, {ID: "curfew-replaced-versions", NoncurrentDays: 30},
		{
			ID: "curfew-colder", Prefix: "raw/", Transitions: []Transition{{30, "STANDARD_IA"}, {90, "GLACIER"}},
			ExpireDays: 180,
		}}
}

// otherRules returns the rules of a document that are not among some, as they are written.
func (l *Lifecycle) otherRules(than []Rule) []string {
	var out []string
	for _, x := range l.rules {
		if !slices.ContainsFunc(than, func(r Rule) bool { return r.ID == x.ID }) {
			out = append(out, string(l.text[x.start:x.end]))
		}
	}
	slices.Sort(out)
	return out
}

// hasRule reports whether a rule is in the document.
func (l *Lifecycle) hasRule(r Rule) bool {
	return slices.ContainsFunc(l.rules, func(x ruleSpan) bool { return cmp.Equal(x.toRule(), r) })
}

func TestRejectsInvalidLifecycles(t *testing.T) {
	for name, text := range map[string]string{
		"another root":       `<Lifecycle/>`,
		"a prefixed root":    `<s3:LifecycleConfiguration xmlns:s3="x"></s3:LifecycleConfiguration>`,
		"two roots":          lifecycleOf("") + lifecycleOf(""),
		"not closed":         lifecycleHead + "<Rule>",
		"a document type":    `<!DOCTYPE a [<!ENTITY b "c">]>` + lifecycleOf(""),
		"an entity":          lifecycleOf("<Rule><ID>&b;</ID></Rule>"),
		"a self-closed root": `<LifecycleConfiguration/>`,
		"no number":          lifecycleOf("<Rule><Transition><Days>many</Days></Transition></Rule>"),
		"no XML":             `{"Rules": []}`,
		"white space":        "  \n",
	} {
		if _, err := ParseLifecycle(text); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want an error in one line", name, err)
		}
	}
	doc := &Lifecycle{}
	if _, err := doc.withRules([]Rule{{ID: "mine"}}); err == nil {
		t.Error("a rule without the mark was added")
	}
	full, err := ParseLifecycle(
		lifecycleOf(strings.Repeat("<Rule><Filter/><Status>Enabled</Status></Rule>", maxRules)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := full.withRules(sampleRules()); err == nil {
		t.Error("a lifecycle has more rules than S3 takes")
	}
}

// TestWithRulesKeepsOtherRules draws documents: every byte that is not a rule of curfew's stays, in
// its order, and the rules that are added read back as they were meant.
func TestWithRulesKeepsOtherRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("ab<>&\"' é\t/-_.")))
		old := rapid.Bool().Draw(t, "of before 2016")
		var rules strings.Builder
		var kept []string
		for i := range rapid.IntRange(0, 6).Draw(t, "rules") {
			id := fmt.Sprintf("r%d %s", i, text.Draw(t, "name"))
			mine := rapid.IntRange(0, 4).Draw(t, "mine") == 0
			if mine {
				id = "curfew-incomplete-uploads"
			}
			filter := "<Filter><Prefix>" + escapeXML(text.Draw(t, "prefix")) + "</Prefix></Filter>"
			if old {
				filter = "<Prefix>" + escapeXML(text.Draw(t, "prefix")) + "</Prefix>"
			}
			rule := "<Rule>\n <ID>" + escapeXML(id) + "</ID>" + filter +
				"<Status>Enabled</Status><!-- " + rapid.StringOf(
				rapid.RuneFrom([]rune("abc <>"))).Draw(t, "comment") + " --><Expiration><Days>" +
				fmt.Sprint(rapid.IntRange(1, 999).Draw(t, "days")) + "</Days></Expiration></Rule>"
			if !mine {
				kept = append(kept, rule)
			}
			rules.WriteString(rule + rapid.SampledFrom([]string{"", "\n", "  "}).Draw(t, "space"))
		}
		document := lifecycleOf(rules.String())
		doc, err := ParseLifecycle(document)
		if err != nil {
			t.Fatalf("%v: %s", err, document)
		}
		add := []Rule{{ID: "curfew-incomplete-uploads", AbortDays: rapid.IntRange(1, 99).Draw(t, "abort")},
			{
				ID: "curfew-colder-1", Prefix: text.Draw(t, "added prefix"),
				Transitions: []Transition{{30, "STANDARD_IA"}},
			}}
		sized := rapid.Bool().Draw(t, "sized")
		if sized {
			add[1].LargerThan = rapid.Int64Range(1, 1<<40).Draw(t, "larger than")
		}
		merged, err := doc.withRules(add)
		if sized && old && len(kept) > 0 {
			if err == nil || doc.HasFilters() {
				t.Fatalf("prefixes without filters, and a filter by size: %v\n%s", err, merged)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseLifecycle(string(merged))
		if err != nil {
			t.Fatalf("%v: %s", err, merged)
		}
		slices.Sort(kept)
		if got := again.otherRules(add); !slices.Equal(got, kept) {
			t.Fatalf("other rules are %q, want %q", got, kept)
		}
		for _, r := range add {
			if !again.hasRule(r) {
				t.Fatalf("it does not hold %+v: %s", r, merged)
			}
		}
		if old := bytes.Contains(merged, []byte("</ID><Prefix>")); len(kept) > 0 &&
			old == bytes.Contains(merged, []byte("<Filter>")) {
			t.Fatalf("both forms of prefixes, or neither: %s", merged)
		}
		twice, err := again.withRules(add)
		if err != nil || !bytes.Equal(twice, merged) {
			t.Fatalf("once more it is another: %v\n%s\n%s", err, merged, twice)
		}
	})
}

// TestNewRulesMatchFilterStyle: S3 takes no document in which some rules have a prefix
// and others a filter; rules with neither, or with both, get filters next to them.
func TestNewRulesMatchFilterStyle(t *testing.T) {
	for _, tc := range []struct {
		rule string
		old  bool
	}{
		{"", false}, {"<Prefix>x/</Prefix>", true}, {"<Filter><Prefix>x/</Prefix></Filter>", false},
		{"<Prefix/><Filter/>", false},
	} {
		doc, err := ParseLifecycle(lifecycleOf("<Rule><ID>a</ID>" + tc.rule + "<Status>Enabled</Status></Rule>"))
		if err != nil {
			t.Fatal(err)
		}
		merged, err := doc.withRules([]Rule{{ID: "curfew-incomplete-uploads", AbortDays: 7}})
		if err != nil {
			t.Fatal(err)
		}
		if old := bytes.Contains(merged, []byte("uploads</ID><Prefix>")); old != tc.old {
			t.Errorf("next to %q: %s", tc.rule, merged)
		}
	}
}

// FuzzLifecycle reads any bytes as a lifecycle: what is taken is well-formed, gets rules
// without losing one, and loses them again without a trace of them.
func FuzzLifecycle(f *testing.F) {
	for _, seed := range []string{
		"", lifecycleOf(""), lifecycleOf("<Rule><ID>a</ID><Filter/><Status>Enabled</Status></Rule>"),
		lifecycleOf("<Rule><ID>curfew-incomplete-uploads</ID><Prefix/></Rule> <!-- x -->"),
		`<LifecycleConfiguration><Rule><![CDATA[x]]></Rule></LifecycleConfiguration>`,
		`<LifecycleConfiguration><a:Rule/></LifecycleConfiguration>`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := ParseLifecycle(string(text))
		if err != nil {
			return
		}
		rules := sampleRules()
		merged, err := doc.withRules(rules)
		if err != nil {
			return
		}
		if err := xml.Unmarshal(merged, new(struct{})); err != nil {
			t.Fatalf("%v: %q", err, merged)
		}
		again, err := ParseLifecycle(string(merged))
		if err != nil {
			t.Fatalf("%v: %q", err, merged)
		}
		if before, after := doc.otherRules(rules), again.otherRules(rules); !slices.Equal(before, after) {
			t.Fatalf("other rules are %q, were %q", after, before)
		}
		for _, r := range rules {
			if !again.hasRule(r) {
				t.Fatalf("%+v is not in %q", r, merged)
			}
		}
	})
}

func TestWithUntagged(t *testing.T) {
	const mine = `{"rulePriority":%d,"description":"curfew-untagged","selection":{"tagStatus":"untagged","countType":"sinceImagePushed","countUnit":"days","countNumber":90},"action":{"type":"expire"}}`
	tagged := `{"rulePriority": 7, "selection": {"tagStatus": "tagged", "tagPrefixList": ["v"], "countType": "imageCountMoreThan", "countNumber": 5}, "action": {"type": "expire"}}`
	for _, tc := range []struct {
		name, text, want string
		changed, fails   bool
	}{
		{"none", "", `{"rules":[` + fmt.Sprintf(mine, 1) + `]}`, true, false},
		{
			"next to another rule", `{"rules": [` + tagged + `]}`,
			`{"rules":[` + strings.ReplaceAll(tagged, " ", "") + `,` + fmt.Sprintf(mine, 8) + `]}`, true, false,
		},
		{
			"there is one for untagged",
			`{"rules": [{"rulePriority": 1, "selection": {"tagStatus": "untagged"}}]}`, "",
			false, false,
		},
		{
			"there is one for any", `{"rules": [{"rulePriority": 1, "selection": {"tagStatus": "any"}}]}`, "", false,
			false,
		},
		{"no JSON", `<rules/>`, "", false, true},
		{"a rule that is none", `{"rules": [7]}`, "", false, true},
	} {
		got, changed, err := WithUntagged(tc.text, 90)
		if changed != tc.changed || (err != nil) != tc.fails || tc.changed && got != tc.want {
			t.Errorf("%s: %s, changed: %v, %v; want %s", tc.name, got, changed, err, tc.want)
		}
	}
}

// FuzzWithUntagged reads any text as a lifecycle policy: every rule stays as it is, and
// there is one more, after them.
func FuzzWithUntagged(f *testing.F) {
	f.Add("")
	f.Add(`{"rules":[{"rulePriority":3,"selection":{"tagStatus":"tagged","countNumber":1e2}}]}`)
	f.Add(`{"rules":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		merged, changed, err := WithUntagged(text, 90)
		if err != nil || !changed {
			return
		}
		var before, after registryPolicy
		if text != "" {
			if err := json.Unmarshal([]byte(text), &before); err != nil {
				t.Fatal(err)
			}
		}
		if err := json.Unmarshal([]byte(merged), &after); err != nil {
			t.Fatalf("%v: %s", err, merged)
		}
		if len(after.Rules) != len(before.Rules)+1 {
			t.Fatalf("%d rules, there were %d", len(after.Rules), len(before.Rules))
		}
		for i, r := range before.Rules {
			if !Equivalent(string(r), string(after.Rules[i])) {
				t.Fatalf("rule %d is %s, it was %s", i, after.Rules[i], r)
			}
		}
		if _, again, err := WithUntagged(merged, 90); err != nil || again {
			t.Fatalf("it is added twice: %v", err)
		}
	})
}
