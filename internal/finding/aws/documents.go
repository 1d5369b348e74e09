package aws

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// smallStay is the setting by which objects under 128 KiB do not move, which is what is
// priced (Amazon S3 User Guide, "Transitioning objects using Amazon S3 Lifecycle").
const smallStay = "all_storage_classes_128K"

// putLifecycle returns the change that adds rules to a bucket's lifecycle, and nothing
// else. Where the lifecycle was not read, or takes no more rules, it has no document, and
// nothing carries it out.
func putLifecycle(b *inventory.Bucket, rules ...change.Rule) change.Change {
	c := change.Change{Verb: change.PutLifecycle}
	before, known := b.LifecycleDocument.Get()
	if !known || len(rules) == 0 {
		return c
	}
	document, err := change.WithRules(before, rules)
	if err != nil {
		return c
	}
	c.Document, c.Before, c.Arguments.MinimumSize = document, before, b.MinimumSize
	if before == "" {
		c.Arguments.MinimumSize = smallStay
	}
	return c
}

// ownerRules are the lifecycle rules that a bucket has, read once for all that is proposed for it.
// The zero ownerRules is a lifecycle that was not read, for which nothing is put.
type ownerRules struct {
	lifecycle *change.Lifecycle
	err       error
}

// ownerRulesOf reads the lifecycle rules of a bucket.
func ownerRulesOf(b *inventory.Bucket) ownerRules {
	document, known := b.LifecycleDocument.Get()
	if !known {
		return ownerRules{}
	}
	lifecycle, err := change.ParseLifecycle(document)
	return ownerRules{lifecycle, err}
}

// overriddenBy names the rules that a proposal would override, empty where there is none: the
// proposal is not made then, because no filter of S3 leaves the objects of another rule out.
func (o ownerRules) overriddenBy(r change.Rule) string {
	switch {
	case o.err != nil:
		return "the lifecycle, which cannot be read"
	case o.lifecycle == nil:
		return ""
	}
	competing := o.lifecycle.Competing(r)
	names := make([]string, len(competing))
	for i, c := range competing {
		under := "the whole bucket"
		if c.Prefix != "" {
			under = c.Prefix
		}
		names[i] = "rule " + c.ID + " for " + under
	}
	return firstFew(names)
}

// notProposed says of a rule that is not proposed what it would override.
func notProposed(under, by string) string {
	if under == "" {
		under = "the whole bucket"
	}
	return "no rule is proposed for " + under + ": it would override " + by
}

// ruleOf names a rule by what it does and for which prefix.
func ruleOf(does, prefix string) change.Rule {
	r := change.Rule{ID: change.RuleMark + does, Prefix: prefix}
	if prefix != "" {
		sum := sha256.Sum256([]byte(prefix))
		r.ID += "-" + hex.EncodeToString(sum[:4])
	}
	return r
}

// colderRule moves objects to infrequent access and then to the archive.
func colderRule(t finding.Thresholds, prefix string) change.Rule {
	r := ruleOf("colder", prefix)
	r.Transitions = []change.Transition{{Days: t.InfrequentDays, Class: "STANDARD_IA"}, {Days: t.ArchiveDays, Class: "GLACIER"}}
	return r
}

// expireRule moves objects to infrequent access and then deletes them.
func expireRule(t finding.Thresholds, prefix string) change.Rule {
	r := ruleOf("expire", prefix)
	r.Transitions, r.ExpireDays = []change.Transition{{Days: t.InfrequentDays, Class: "STANDARD_IA"}}, t.ExpireDays
	return r
}

// archiveRule moves objects to the archive once they are as old as a stale checkpoint.
func archiveRule(t finding.Thresholds, prefix string) change.Rule {
	r := ruleOf("archive", prefix)
	r.Transitions = []change.Transition{{Days: int(t.CheckpointStale / (24 * time.Hour)), Class: "GLACIER"}}
	return r
}

// alike says whether one rule for the whole bucket does what one for each prefix would:
// all of it is data in the standard class.
func alike(b *inventory.Bucket, prefixes []inventory.Prefix) bool {
	for i := range prefixes {
		if kindOf(prefixes[i].Name) != dataPrefix || standardOf(b, &prefixes[i]).Bytes == 0 {
			return false
		}
	}
	return true
}
