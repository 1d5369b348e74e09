package aws

import (
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
)

// bucketLimits restrict the lifecycle rules that may be proposed for a bucket: the owner's rules
// and those of S3. They are read once for all proposals.
type bucketLimits struct {
	bucket *inventory.Bucket
	// lifecycle is nil if it was not read; then no rule is proposed.
	lifecycle *change.Lifecycle
	err       error
}

func limitsOf(b *inventory.Bucket) bucketLimits {
	document, known := b.LifecycleDocument.Get()
	if !known {
		return bucketLimits{bucket: b}
	}
	lifecycle, err := change.ParseLifecycle(document)
	return bucketLimits{b, lifecycle, err}
}

// forbids returns why a rule must not be proposed, or "".
//
// S3 accepts no lifecycle in a bucket with MFA delete (Amazon S3 User Guide, "Setting an S3
// Lifecycle configuration on a bucket"). No filter can exclude the objects of another rule. Expired
// objects in a bucket with Object Lock get a delete marker, and their versions stay until the
// retention ends ("Managing Object Lock", "Using S3 Lifecycle with Object Lock"). Replicas are a
// backup, whose owner decides about expiry.
func (l bucketLimits) forbids(r change.Rule) string {
	b := l.bucket
	lock := b.ObjectLock.Or(inventory.ObjectLock{})
	from := b.ReplicatedFrom.Or(nil)
	switch by := l.overriddenBy(r); {
	case b.MFADelete.Or(false):
		return "S3 takes no lifecycle while MFA delete is on"
	case by != "":
		return "it would override " + by
	case (r.ExpireDays > 0 || r.NoncurrentDays > 0) && len(from) > 0:
		return "it would delete the copies that replication of " + firstFew(from) + " keeps here"
	case r.ExpireDays > 0 && lock.RetentionDays >= r.ExpireDays:
		return "Object Lock keeps every version for " + plain.Count(lock.RetentionDays, "day") +
			", so that nothing is saved before"
	case archives(r) && l.answersAtOnce(r.Prefix) != "":
		return "it would move " + l.answersAtOnce(r.Prefix) + " to the archive, where reading takes hours"
	case r.LargerThan > 0 && l.lifecycle != nil && !l.lifecycle.HasFilters():
		return "small objects would go to the archive too, and a lifecycle of before 2016 cannot leave them out"
	}
	return ""
}

// refuse turns a draft without a proposed rule into one that states the reason. If a rule of the
// owner prevents it, the saving is still bounded; if S3 does, nothing can be saved.
func (l bucketLimits) refuse(d *finding.Draft, r change.Rule, why string) (final bool) {
	d.Fix.Change, d.Fix.Note = putLifecycle(l.bucket), notProposed(r.Prefix, why)
	if l.overriddenBy(r) != "" && !l.bucket.MFADelete.Or(false) {
		return false
	}
	d.Stands, d.Savings = true, finding.Saving{Known: true}
	return true
}

// overriddenBy names the owner's rules that a rule would override.
func (l bucketLimits) overriddenBy(r change.Rule) string {
	switch {
	case l.err != nil:
		return "the lifecycle, which cannot be read"
	case l.lifecycle == nil:
		return ""
	}
	competing := l.lifecycle.Competing(r)
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

// archives reports whether a rule moves objects to the archive.
func archives(r change.Rule) bool {
	return slices.ContainsFunc(r.Transitions, func(t change.Transition) bool {
		return slices.Contains(archiving, t.Class)
	})
}

// instantClasses are the cheaper classes with instant access from which a rule would still move
// objects to the archive.
var instantClasses = []string{"INTELLIGENT_TIERING", "GLACIER_IR"}

// answersAtOnce describes the objects under a prefix that an archive rule would take out of the
// instant classes, or "" if there are none. If the prefix was not listed completely, the bucket's
// unlisted objects of these classes may be under it.
func (l bucketLimits) answersAtOnce(under string) string {
	sizes, sized := l.bucket.Sizes.Get()
	left := int64(0)
	for _, class := range instantClasses {
		left += sizes[class]
	}
	prefixes, listed := l.bucket.Prefixes.Get()
	here, complete := int64(0), listed
	for _, p := range prefixes {
		left -= p.Tiered.Bytes + p.Instant.Bytes
		if strings.HasPrefix(p.Name, under) {
			here += p.Tiered.Bytes + p.Instant.Bytes
			complete = complete && p.Complete
		}
	}
	const which = " of Intelligent-Tiering or Glacier Instant Retrieval"
	switch {
	case here > 0:
		return plain.Size(here) + which
	case !complete && (left > 0 || !sized):
		return "what there may be" + which
	}
	return ""
}

// notProposed formats why a rule is not proposed.
func notProposed(under, why string) string {
	if under == "" {
		under = "the whole bucket"
	}
	return "no rule is proposed for " + under + ": " + why
}

// keepsVersions returns why versions may remain although a rule deletes them, or "". Retention and
// legal holds of single versions are not listed (Amazon S3 User Guide, "Locking objects with Object
// Lock").
func keepsVersions(b *inventory.Bucket) string {
	if !b.Versioned.Or(true) {
		return ""
	}
	switch lock, known := b.ObjectLock.Get(); {
	case !known:
		return "whether Object Lock keeps versions was not read"
	case !lock.Enabled:
		return ""
	case lock.RetentionDays > 0:
		return "Object Lock keeps versions for " + plain.Count(lock.RetentionDays, "day") +
			" after they were made, and longer by a retention or legal hold of their own, which is not read"
	}
	return "Object Lock is on: versions with a retention or legal hold stay, and which those are is not read"
}

// protect adds the protection and the copies of objects to a draft that deletes them.
func protect(d *finding.Draft, s *finding.Subject, b *inventory.Bucket) {
	if !b.Versioned.Or(true) {
		return
	}
	fact := func(signal, value string) { d.Evidence = append(d.Evidence, finding.Fact(s, signal, value)) }
	switch lock, known := b.ObjectLock.Get(); {
	case !known:
		fact("object_lock", "not read")
	case lock.RetentionDays > 0:
		fact("object_lock", lock.Mode+" for "+plain.Count(lock.RetentionDays, "day"))
	case lock.Enabled:
		fact("object_lock", "no default retention")
	}
	switch to, known := b.ReplicatesTo.Get(); {
	case !known:
		fact("replicated_to", "not read")
	case len(to) > 0:
		fact("replicated_to", firstFew(to))
		d.Fix.Note = finding.Sentence(d.Fix.Note, "the copies in "+firstFew(to)+
			" stay: replication does not follow a lifecycle, and a lifecycle waits for it")
	}
	if !b.ReplicatedFrom.Known() {
		fact("replicated_from", "not read")
	}
	if keeps := keepsVersions(b); keeps != "" {
		d.Unknown = finding.Sentence(d.Unknown, keeps)
	}
}

// monitored notes the upper bound of Intelligent-Tiering's monitoring cost for objects that stay.
// Objects under 128 KiB are not monitored (Amazon S3 User Guide, "How S3 Intelligent-Tiering
// works").
func monitored(x *finding.Index, d *finding.Draft, s *finding.Subject, b *inventory.Bucket) {
	var tiered stored
	for _, p := range b.Prefixes.Or(nil) {
		tiered.add(p.Tiered)
	}
	if tiered.Objects == 0 {
		return
	}
	what := plain.Size(tiered.Bytes) + " in " + plain.Count(tiered.Objects, "object")
	d.Evidence = append(d.Evidence, finding.Fact(s, "intelligent_tiering", what))
	p, err := x.Rate(price.ItemS3Monitoring, s.Region)
	if err != nil {
		d.Fix.Note = finding.Sentence(d.Fix.Note,
			"what Intelligent-Tiering costs for monitoring has no price: "+err.Error())
		return
	}
	if fee, err := p.Cost(tiered.Objects, 1); err == nil {
		d.Evidence = append(d.Evidence, finding.Priced("intelligent_tiering_monitoring_usd_at_most", fee, p.Source))
	}
}
