package aws

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

const lifecycleHead = `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`

func lifecycleOf(rules string) string { return lifecycleHead + rules + "</LifecycleConfiguration>" }

// standard is what a versioned bucket gets.
func standardRules() []LifecycleRule {
	return LifecycleFor(&inventory.Resource{Detail: &inventory.Bucket{Versioned: inventory.Known(true)}}, policy.Do{}, "raw/")
}

func TestLifecycleFor(t *testing.T) {
	for _, tc := range []struct {
		name     string
		detail   inventory.Detail
		prefixes []string
		want     []string
	}{
		{"plain", &inventory.Bucket{Versioned: inventory.Known(false)}, nil,
			[]string{"curfew-incomplete-uploads: the whole bucket: uploads that are incomplete for 7 days are aborted"}},
		{"versioned", &inventory.Bucket{Versioned: inventory.Known(true)}, nil,
			[]string{"curfew-incomplete-uploads: the whole bucket: uploads that are incomplete for 7 days are aborted",
				"curfew-replaced-versions: the whole bucket: versions are deleted 30 days after they were replaced"}},
		{"versions are not known", &inventory.Bucket{}, nil,
			[]string{"curfew-incomplete-uploads: the whole bucket: uploads that are incomplete for 7 days are aborted"}},
		{"with a prefix that a finding names", &inventory.Bucket{}, []string{"raw/"},
			[]string{"curfew-incomplete-uploads: the whole bucket: uploads that are incomplete for 7 days are aborted",
				"curfew-colder-1: under raw/: objects move to STANDARD_IA after 30 days, objects move to GLACIER after 90 days"}},
	} {
		var got []string
		for _, r := range LifecycleFor(&inventory.Resource{Detail: tc.detail}, policy.Do{}, tc.prefixes...) {
			got = append(got, r.String())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestLacking(t *testing.T) {
	const (
		uploads  = "curfew-incomplete-uploads"
		versions = "curfew-replaced-versions"
		colder   = "curfew-colder-1"
	)
	rule := func(filter, does string) string {
		return lifecycleOf("<Rule><ID>x</ID>" + filter + "<Status>Enabled</Status>" + does + "</Rule>")
	}
	abort := "<AbortIncompleteMultipartUpload><DaysAfterInitiation>3</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
	for _, tc := range []struct {
		name, document string
		want           []string
	}{
		{"none", "", []string{uploads, versions, colder}},
		{"uploads end", rule("<Filter/>", abort), []string{versions, colder}},
		{"uploads end, in the form of before 2016", rule("<Prefix></Prefix>", abort), []string{versions, colder}},
		{"uploads end, by a rule that is off", strings.Replace(rule("<Filter/>", abort), "Enabled", "Disabled", 1), []string{uploads, versions, colder}},
		{"uploads end somewhere", rule("<Filter><Prefix>tmp/</Prefix></Filter>", abort), []string{uploads, versions, colder}},
		{"uploads end with a tag", rule("<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>", abort), []string{uploads, versions, colder}},
		{"versions end", rule("<Filter/>", "<NoncurrentVersionExpiration><NoncurrentDays>90</NoncurrentDays></NoncurrentVersionExpiration>"), []string{uploads, colder}},
		{"versions move", rule("<Filter/>", "<NoncurrentVersionTransition><NoncurrentDays>9</NoncurrentDays><StorageClass>GLACIER</StorageClass></NoncurrentVersionTransition>"), []string{uploads, colder}},
		{"objects move above", rule("<Filter/>", "<Transition><Days>9</Days><StorageClass>GLACIER</StorageClass></Transition>"), []string{uploads, versions}},
		{"objects expire below", rule("<Filter><Prefix>raw/old/</Prefix></Filter>", "<Expiration><Days>9</Days></Expiration>"), []string{uploads, versions}},
		{"objects expire beside", rule("<Filter><Prefix>rare/</Prefix></Filter>", "<Expiration><Days>9</Days></Expiration>"), []string{uploads, versions, colder}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc, err := parseLifecycle([]byte(tc.document))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range doc.lacking(standardRules()) {
				got = append(got, r.ID)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("it lacks %v, want %v", got, tc.want)
			}
			merged, err := doc.with(standardRules())
			if err != nil {
				t.Fatal(err)
			}
			again, err := parseLifecycle(merged)
			if err != nil || len(again.lacking(standardRules())) != 0 {
				t.Errorf("with the rules it still lacks some: %v\n%s", err, merged)
			}
		})
	}
}

func TestLifecyclesThatAreRefused(t *testing.T) {
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
		if _, err := parseLifecycle([]byte(text)); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want an error in one line", name, err)
		}
	}
	doc := &lifecycleDoc{}
	if _, err := doc.with([]LifecycleRule{{ID: "mine"}}); err == nil {
		t.Error("a rule without the mark was added")
	}
	full, err := parseLifecycle([]byte(lifecycleOf(strings.Repeat("<Rule><Filter/><Status>Enabled</Status></Rule>", maxLifecycleRules))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := full.with(standardRules()); err == nil {
		t.Error("a lifecycle has more rules than S3 takes")
	}
}

// TestMergedLifecycles draws documents: every byte that is not a rule of curfew's stays, in
// its order, and the rules that are added read back as they were meant.
func TestMergedLifecycles(t *testing.T) {
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
			filter := "<Filter><Prefix>" + escaped(text.Draw(t, "prefix")) + "</Prefix></Filter>"
			if old {
				filter = "<Prefix>" + escaped(text.Draw(t, "prefix")) + "</Prefix>"
			}
			rule := "<Rule>\n <ID>" + escaped(id) + "</ID>" + filter + "<Status>Enabled</Status><!-- " + rapid.StringOf(rapid.RuneFrom([]rune("abc <>"))).Draw(t, "comment") + " --><Expiration><Days>" +
				fmt.Sprint(rapid.IntRange(1, 999).Draw(t, "days")) + "</Days></Expiration></Rule>"
			if !mine {
				kept = append(kept, rule)
			}
			rules.WriteString(rule + rapid.SampledFrom([]string{"", "\n", "  "}).Draw(t, "space"))
		}
		document := lifecycleOf(rules.String())
		doc, err := parseLifecycle([]byte(document))
		if err != nil {
			t.Fatalf("%v: %s", err, document)
		}
		add := []LifecycleRule{{ID: "curfew-incomplete-uploads", AbortDays: rapid.IntRange(1, 99).Draw(t, "abort")},
			{ID: "curfew-colder-1", Prefix: text.Draw(t, "added prefix"), Transitions: []Transition{{30, "STANDARD_IA"}}}}
		merged, err := doc.with(add)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseLifecycle(merged)
		if err != nil {
			t.Fatalf("%v: %s", err, merged)
		}
		slices.Sort(kept)
		if got := again.without(add); !slices.Equal(got, kept) {
			t.Fatalf("other rules are %q, want %q", got, kept)
		}
		for _, r := range add {
			if !again.holds(r) {
				t.Fatalf("it does not hold %+v: %s", r, merged)
			}
		}
		if old := bytes.Contains(merged, []byte("</ID><Prefix>")); len(kept) > 0 && old == bytes.Contains(merged, []byte("<Filter>")) {
			t.Fatalf("both forms of prefixes, or neither: %s", merged)
		}
		twice, err := again.with(add)
		if err != nil || !bytes.Equal(twice, merged) {
			t.Fatalf("once more it is another: %v\n%s\n%s", err, merged, twice)
		}
	})
}

// FuzzLifecycle reads any bytes as a lifecycle: what is taken is well-formed, gets rules
// without losing one, and loses them again without a trace of them.
func FuzzLifecycle(f *testing.F) {
	for _, seed := range []string{"", lifecycleOf(""), lifecycleOf("<Rule><ID>a</ID><Filter/><Status>Enabled</Status></Rule>"), lifecycleOf("<Rule><ID>curfew-incomplete-uploads</ID><Prefix/></Rule> <!-- x -->"),
		`<LifecycleConfiguration><Rule><![CDATA[x]]></Rule></LifecycleConfiguration>`, `<LifecycleConfiguration><a:Rule/></LifecycleConfiguration>`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := parseLifecycle(text)
		if err != nil {
			return
		}
		rules := standardRules()
		merged, err := doc.with(rules)
		if err != nil {
			return
		}
		if err := xml.Unmarshal(merged, new(struct{})); err != nil {
			t.Fatalf("%v: %q", err, merged)
		}
		again, err := parseLifecycle(merged)
		if err != nil {
			t.Fatalf("%v: %q", err, merged)
		}
		if before, after := doc.without(rules), again.without(rules); !slices.Equal(before, after) {
			t.Fatalf("other rules are %q, were %q", after, before)
		}
		for _, r := range rules {
			if !again.holds(r) {
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
		{"beside another", `{"rules": [` + tagged + `]}`, `{"rules":[` + strings.ReplaceAll(tagged, " ", "") + `,` + fmt.Sprintf(mine, 8) + `]}`, true, false},
		{"there is one for untagged", `{"rules": [{"rulePriority": 1, "selection": {"tagStatus": "untagged"}}]}`, "", false, false},
		{"there is one for any", `{"rules": [{"rulePriority": 1, "selection": {"tagStatus": "any"}}]}`, "", false, false},
		{"no JSON", `<rules/>`, "", false, true},
		{"a rule that is none", `{"rules": [7]}`, "", false, true},
	} {
		got, changed, err := withUntagged(tc.text)
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
		merged, changed, err := withUntagged(text)
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
			if !sameJSON(string(r), string(after.Rules[i])) {
				t.Fatalf("rule %d is %s, it was %s", i, after.Rules[i], r)
			}
		}
		if _, again, err := withUntagged(merged); err != nil || again {
			t.Fatalf("it is added twice: %v", err)
		}
	})
}
