package finding

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// ownersRule is a lifecycle rule written by an owner. Zero fields have no effect.
type ownersRule struct {
	prefix, tag             string
	larger, smaller         int64
	disabled                bool
	expire, abort           int
	date                    bool // it expires objects on a date, at the age expire
	transitions, noncurrent map[string]int
	replaced                int
	newer                   int
}

// object is a kind of object by the properties that filters select.
type object struct {
	key, tag string
	size     int64
}

// matches reports whether a rule's filter selects an object.
func (r *ownersRule) matches(o object) bool {
	return !r.disabled && strings.HasPrefix(o.key, r.prefix) && (r.tag == "" || r.tag == o.tag) &&
		(r.larger == 0 || o.size > r.larger) && (r.smaller == 0 || o.size < r.smaller)
}

// xml formats a rule as S3 returns it.
func (r *ownersRule) xml(i int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<Rule><ID>owner-%d</ID><Filter><And><Prefix>%s</Prefix>", i, r.prefix)
	if r.tag != "" {
		fmt.Fprintf(&b, "<Tag><Key>keep</Key><Value>%s</Value></Tag>", r.tag)
	}
	if r.larger > 0 {
		fmt.Fprintf(&b, "<ObjectSizeGreaterThan>%d</ObjectSizeGreaterThan>", r.larger)
	}
	if r.smaller > 0 {
		fmt.Fprintf(&b, "<ObjectSizeLessThan>%d</ObjectSizeLessThan>", r.smaller)
	}
	status := "Enabled"
	if r.disabled {
		status = "Disabled"
	}
	b.WriteString("</And></Filter><Status>" + status + "</Status>")
	for class, days := range r.transitions {
		fmt.Fprintf(&b, "<Transition><Days>%d</Days><StorageClass>%s</StorageClass></Transition>", days, class)
	}
	switch {
	case r.expire > 0 && r.date:
		b.WriteString("<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>")
	case r.expire > 0:
		fmt.Fprintf(&b, "<Expiration><Days>%d</Days></Expiration>", r.expire)
	}
	for class, days := range r.noncurrent {
		fmt.Fprintf(&b,
			"<NoncurrentVersionTransition><NoncurrentDays>%d</NoncurrentDays><StorageClass>%s</StorageClass></NoncurrentVersionTransition>", days, class)
	}
	if r.replaced > 0 {
		fmt.Fprintf(&b, "<NoncurrentVersionExpiration><NoncurrentDays>%d</NoncurrentDays>", r.replaced)
		if r.newer > 0 {
			fmt.Fprintf(&b, "<NewerNoncurrentVersions>%d</NewerNoncurrentVersions>", r.newer)
		}
		b.WriteString("</NoncurrentVersionExpiration>")
	}
	if r.abort > 0 {
		fmt.Fprintf(&b,
			"<AbortIncompleteMultipartUpload><DaysAfterInitiation>%d</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
			r.abort)
	}
	b.WriteString("</Rule>")
	return b.String()
}

// seen returns the rule as in the inventory.
func (r *ownersRule) seen() inventory.LifecycleRule {
	out := inventory.LifecycleRule{Enabled: !r.disabled, Prefix: r.prefix, Filtered: r.tag != "" || r.larger > 0 ||
		r.smaller > 0, TransitionDays: r.transitions,
		NoncurrentExpirationDays: r.replaced, NoncurrentTransition: len(r.noncurrent) > 0, AbortMultipartDays: r.abort}
	if !r.date {
		out.ExpirationDays = r.expire
	}
	return out
}

// fate is the effect of lifecycle rules on an object: its class, and whether it is gone, by age in
// days. Of several rules the shortest expiration and the cheapest class apply (Amazon S3 User
// Guide, "Examples of S3 Lifecycle configurations").
type fate struct{ current, replaced, upload []string }

var colder = []string{
	"STANDARD", "INTELLIGENT_TIERING", "STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE",
}

func fateOf(rules []ownersRule, o object) (f fate) {
	at := func(age int, days func(r *ownersRule) (gone int, classes map[string]int)) string {
		class := 0
		for i := range rules {
			if !rules[i].matches(o) {
				continue
			}
			gone, classes := days(&rules[i])
			if gone > 0 && age >= gone {
				return "gone"
			}
			for to, after := range classes {
				if age >= after && o.size >= 128<<10 {
					class = max(class, slices.Index(colder, to))
				}
			}
		}
		return colder[class]
	}
	for _, age := range []int{1, 5, 8, 29, 31, 61, 89, 91, 181, 366, math.MaxInt32} {
		f.current = append(f.current, at(age, func(r *ownersRule) (int, map[string]int) {
			return r.expire, r.transitions
		}))
		f.replaced = append(f.replaced, at(age, func(r *ownersRule) (int, map[string]int) {
			return r.replaced, r.noncurrent
		}))
		f.upload = append(f.upload, at(age, func(r *ownersRule) (int, map[string]int) { return r.abort, nil }))
	}
	return f
}

// TestProposalsRespectOwnersRules generates an owner's rules and a bucket's objects. No
// proposed rule may expire or move an object earlier, or to a colder class, than a rule of the
// owner that covers it.
func TestProposalsRespectOwnersRules(t *testing.T) {
	tb := t
	names := []string{"", "data/", "data/raw/", "runs/", "runs/final/", "checkpoints/", "legal/", "tmp/"}
	tops := []string{"data/", "runs/", "checkpoints/", "legal/", "tmp/"}
	put, held := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		days := rapid.SampledFrom([]int{1, 7, 30, 60, 90, 180, 365})
		moves := rapid.MapOfN(rapid.SampledFrom(colder[1:]), days, 0, 2)
		rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ownersRule {
			maybe := func(what string) int { return rapid.SampledFrom([]int{0, 0, 0, 7, 30, 90, 365}).Draw(t, what) }
			return ownersRule{
				prefix: rapid.SampledFrom(names).Draw(t, "prefix"),
				tag: rapid.SampledFrom([]string{"", "", "yes", "no"}).Draw(t,
					"tag"),
				larger:   rapid.SampledFrom([]int64{0, 0, 1 << 20}).Draw(t, "larger"),
				smaller:  rapid.SampledFrom([]int64{0, 0, 8 << 20}).Draw(t, "smaller"),
				disabled: rapid.IntRange(0, 5).Draw(t, "disabled") == 0,
				expire:   maybe("expire"), abort: maybe("abort"),
				date:        rapid.Bool().Draw(t, "date"),
				transitions: moves.Draw(t, "transitions"), noncurrent: moves.Draw(t, "noncurrent"),
				replaced: maybe("replaced"),
				newer:    rapid.IntRange(0, 3).Draw(t, "newer")}
		}), 0, 4).Draw(t, "rules")
		document := ""
		var seen []inventory.LifecycleRule
		for i := range rules {
			document += rules[i].xml(i)
			seen = append(seen, rules[i].seen())
		}
		if document != "" {
			document = `<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + document +
				"</LifecycleConfiguration>"
		}
		f := newFixture(tb)
		f.bucket("b", func(b *inventory.Bucket) {
			var prefixes []inventory.Prefix
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(tops), 0, 5, rapid.ID).Draw(t, "prefixes") {
				prefixes = append(prefixes,
					prefix(name, 1<<40, 1000, map[int]inventory.Stored{
						30: {Bytes: 1 << 39, Objects: 500}, 90: {Bytes: 1 << 39, Objects: 500},
						180: {Bytes: 1 << 39, Objects: 500},
					}))
			}
			b.Lifecycle, b.LifecycleDocument, b.Versioned = inventory.Known(seen), inventory.Known(
				document), inventory.Known(
				true)
			b.Prefixes, b.Sizes = inventory.Known(prefixes), inventory.Known(map[string]int64{
				"STANDARD": int64(max(1, len(prefixes))) << 40,
			})
			b.Uploads = inventory.Known(inventory.Uploads{
				Count: 3, Bytes: inventory.Known(int64(1 << 30)), Complete: true,
			})
			if rapid.Bool().Draw(t, "analyzed") {
				whole := prefix("", 1<<40, 1000, map[int]inventory.Stored{30: {Bytes: 1 << 39, Objects: 500}})
				b.Ages, b.AgesSource = inventory.Known(whole), "Storage Class Analysis"
			}
		})
		for _, x := range f.evaluate() {
			if x.Fix.Change.Document == "" {
				if strings.Contains(x.Fix.Note, "would override") {
					held++
				}
				continue
			}
			put++
			after, err := change.Rules(x.Fix.Change.Document)
			if err != nil {
				t.Fatal(err)
			}
			merged := slices.Clone(rules)
			for _, r := range after {
				if !strings.HasPrefix(r.ID, change.RulePrefix) {
					continue
				}
				to := ownersRule{
					prefix: r.Prefix, larger: r.LargerThan, expire: r.ExpireDays, abort: r.AbortDays,
					replaced:    r.NoncurrentDays,
					transitions: map[string]int{},
				}
				for _, m := range r.Transitions {
					to.transitions[m.Class] = m.Days
				}
				merged = append(merged, to)
			}
			for _, key := range append(slices.Clone(names), "other/") {
				for _, tag := range []string{"", "yes", "no"} {
					for _, size := range []int64{1 << 10, 512 << 10, 4 << 20, 1 << 30} {
						o := object{key + "object", tag, size}
						was, is := fateOf(rules, o), fateOf(merged, o)
						covers := func(acts func(r *ownersRule) bool) bool {
							return slices.ContainsFunc(rules, func(r ownersRule) bool {
								return r.matches(o) && acts(&r)
							})
						}
						if covers(func(r *ownersRule) bool {
							return r.expire > 0 || len(r.transitions) > 0
						}) && !slices.Equal(was.current, is.current) {
							t.Fatalf("%s changes %+v from %v to %v:\n%s", x.Rule, o, was.current,
								is.current, x.Fix.Change.Document)
						}
						if covers(func(r *ownersRule) bool { return r.replaced > 0 || len(r.noncurrent) > 0 }) &&
							!slices.Equal(was.replaced, is.replaced) {
							t.Fatalf("%s changes replaced versions of %+v from %v to %v:\n%s", x.Rule, o,
								was.replaced, is.replaced,
								x.Fix.Change.Document)
						}
						if covers(func(r *ownersRule) bool {
							return r.abort > 0
						}) && !slices.Equal(was.upload, is.upload) {
							t.Fatalf("%s changes uploads of %+v from %v to %v:\n%s", x.Rule, o, was.upload, is.upload,
								x.Fix.Change.Document)
						}
					}
				}
			}
		}
	})
	if put == 0 || held == 0 {
		t.Errorf("%d documents were put and %d proposals held back: the draws show nothing", put, held)
	}
}
