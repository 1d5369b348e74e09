package aws

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
)

const (
	// keepSmallObjects is the setting that keeps objects under 128 KiB in place, as the prices assume
	// (Amazon S3 User Guide, "Transitioning objects using Amazon S3 Lifecycle").
	keepSmallObjects = "all_storage_classes_128K"
	// smallObject is the size in bytes under which objects stay.
	smallObject = 128 << 10
)

// leaveSmall restricts an archive rule to the priced objects if the bucket's setting is unknown or
// not keepSmallObjects: with varies_by_storage_class, small objects would be archived too, at a higher
// cost than their saving. A rule that also expires objects keeps its whole prefix and archives
// nothing.
func leaveSmall(b *inventory.Bucket, r change.Rule) change.Rule {
	if b.LifecycleDocument.Or("") != "" && b.MinimumSize != keepSmallObjects && r.ExpireDays == 0 {
		r.LargerThan = smallObject - 1
	}
	return r
}

// putLifecycle returns the change that adds rules to a bucket's lifecycle. If the lifecycle was not
// read or is full, the change has no document and cannot be applied automatically.
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
		c.Arguments.MinimumSize = keepSmallObjects
	}
	return c
}

// ruleOf returns a rule named by its effect and prefix.
func ruleOf(does, prefix string) change.Rule {
	r := change.Rule{ID: change.RulePrefix + does, Prefix: prefix}
	if prefix != "" {
		sum := sha256.Sum256([]byte(prefix))
		r.ID += "-" + hex.EncodeToString(sum[:4])
	}
	return r
}

// colderRule moves objects to infrequent access and then to the archive.
func colderRule(t finding.Thresholds, prefix string) change.Rule {
	r := ruleOf("colder", prefix)
	r.Transitions = []change.Transition{
		{Days: t.InfrequentDays, Class: "STANDARD_IA"}, {Days: t.ArchiveDays, Class: "GLACIER"},
	}
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

// alike reports whether one rule for the whole bucket has the same effect as one per prefix: all
// prefixes hold data in the standard class.
func alike(b *inventory.Bucket, prefixes []inventory.Prefix) bool {
	for i := range prefixes {
		if kindOf(prefixes[i].Name) != dataPrefix || standardOf(b, &prefixes[i]).Bytes == 0 {
			return false
		}
	}
	return true
}
