package aws

import (
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

const standard = "STANDARD"

// standardMeter is the meter of the standard storage class.
const standardMeter = "storage:" + standard

// standardBytes returns the size of a bucket's standard class, if known.
func standardBytes(b *inventory.Bucket) (int64, bool) {
	sizes, known := b.Sizes.Get()
	return sizes[standard], known
}

// empty reports whether a bucket is known to be empty.
func empty(b *inventory.Bucket) bool {
	sizes, known := b.Sizes.Get()
	if !known {
		n, known := b.Objects.Get()
		return known && n == 0
	}
	for _, n := range sizes {
		if n > 0 {
			return false
		}
	}
	return true
}

// standardSaved returns the monthly saving in a bucket's standard storage without some of its
// bytes; the price falls with size, so the last bytes are the cheapest.
func standardSaved(x *finding.Index, s *finding.Subject, b *inventory.Bucket, bytes int64) (money.Amount, error) {
	total, known := standardBytes(b)
	p, err := x.Rate(price.Item("s3:"+standard), s.Region)
	if err != nil {
		return 0, err
	}
	if !known {
		total = bytes
	}
	before, err := p.Cost(total, gib)
	if err != nil {
		return 0, err
	}
	after, err := p.Cost(max(0, total-bytes), gib)
	return before - after, err
}

// bucketMultipart finds buckets with uploads started over a week ago and never completed, and
// without a rule that aborts them. Their parts are charged but not listed.
func bucketMultipart(x *finding.Index, s *finding.Subject) *finding.Draft {
	b, ok := s.Detail.(*inventory.Bucket)
	if !ok {
		return nil
	}
	uploads, known := b.Uploads.Get()
	rules, rulesKnown := b.Lifecycle.Get()
	if !known || !rulesKnown || uploads.Count == 0 {
		return nil
	}
	for _, r := range rules {
		if r.Enabled && !r.Filtered && r.Prefix == "" && r.AbortMultipartDays > 0 {
			return nil
		}
	}
	if !uploads.Oldest.IsZero() && x.Now.Sub(uploads.Oldest) < days(x.Thresholds.MultipartDays) {
		return nil
	}
	n := plain.Count(uploads.Count, "incomplete upload")
	if !uploads.Complete {
		n = "at least " + n
	}
	rule := change.Rule{ID: change.RulePrefix + "incomplete-uploads", AbortDays: x.Thresholds.MultipartDays}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    n + ", no rule aborts them",
		Evidence:   []usage.Evidence{finding.Fact(s, "incomplete_uploads", plain.Decimal(float64(uploads.Count), 0))},
		Fix: finding.Fix{Change: putLifecycle(b, rule), Risk: finding.Low, Undo: finding.UndoNone,
			Note: "aborts uploads " + plain.Count(x.Thresholds.MultipartDays, "day") +
				" after they began; merged into the rules that are there"},
	}}
	limits := limitsOf(b)
	if why := limits.forbids(rule); why != "" {
		d.Because = n + ", and no rule aborts those of the whole bucket"
		if limits.refuse(d, rule, why) {
			return d
		}
	}
	if !uploads.Oldest.IsZero() {
		d.Evidence = append(d.Evidence, finding.Aged(s, "oldest_upload", x.Now.Sub(uploads.Oldest)))
	}
	bytes, sized := uploads.Bytes.Get()
	if sized {
		d.Evidence = append(d.Evidence, finding.Fact(s, "incomplete_bytes", plain.Decimal(float64(bytes), 0)))
	}
	if sized && uploads.Complete {
		saved, err := standardSaved(x, s, b, bytes)
		switch {
		case err == nil && saved == 0:
			d.Stands, d.Savings = true, finding.Saving{Known: true}
		case err != nil || !d.ClaimAmount(s, standardMeter, saved, finding.WasteAndSavings):
			d.NoPrice(s, err)
		}
		return d
	}
	d.Unknown = "how much the parts of the uploads hold could not be read"
	d.ClaimShare(s, "", 1, 1, finding.SavingsOnly)
	return d
}

// bucketNoncurrent finds versioned buckets without a rule that expires noncurrent versions.
func bucketNoncurrent(x *finding.Index, s *finding.Subject) *finding.Draft {
	b, ok := s.Detail.(*inventory.Bucket)
	if !ok || empty(b) {
		return nil
	}
	versioned, known := b.Versioned.Get()
	rules, rulesKnown := b.Lifecycle.Get()
	if !known || !versioned || !rulesKnown {
		return nil
	}
	for _, r := range rules {
		if r.Enabled && !r.Filtered && r.Prefix == "" && (r.NoncurrentExpirationDays > 0 || r.NoncurrentTransition) {
			return nil
		}
	}
	rule := change.Rule{ID: change.RulePrefix + "replaced-versions", NoncurrentDays: x.Thresholds.NoncurrentDays}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    "versioned, and noncurrent versions never expire",
		Evidence:   []usage.Evidence{finding.Fact(s, "versioned", "true"), finding.Fact(s, "noncurrent_rule", "none")},
		Fix: finding.Fix{Change: putLifecycle(b, rule), Risk: finding.Medium, Undo: finding.UndoNone,
			Note: "expires versions " + plain.Count(x.Thresholds.NoncurrentDays, "day") +
				" after they were replaced; expired objects are gone"},
	}}
	limits := limitsOf(b)
	why := limits.forbids(rule)
	if why != "" {
		d.Because = "versioned, and noncurrent versions of the whole bucket never expire"
		if by := limits.overriddenBy(rule); by != "" {
			d.Evidence[1] = finding.Fact(s, "noncurrent_rule", by)
		}
		if limits.refuse(d, rule, why) {
			return d
		}
	}
	old, known := b.Noncurrent.Get()
	switch {
	case known && old.Complete && old.Bytes == 0 && old.Objects == 0:
		return nil
	case known && old.Complete:
		if why == "" {
			d.Because = plain.Size(old.Bytes) + " of noncurrent versions that never expire"
		}
		d.Evidence = append(d.Evidence, finding.Fact(s, "noncurrent_bytes", plain.Decimal(float64(old.Bytes), 0)),
			finding.Fact(s, "noncurrent_versions", plain.Decimal(float64(old.Objects), 0)))
		d.Unknown = "how old the replaced versions are is not known; those under " +
			plain.Count(x.Thresholds.NoncurrentDays,
				"day") + " stay"
		locked(d, s, b)
		protect(d, s, b)
		if b.Locked.Bytes >= old.Bytes {
			d.Stands, d.Savings = true, finding.Saving{Known: true}
			return d
		}
		saved, err := standardSaved(x, s, b, old.Bytes-b.Locked.Bytes)
		if err == nil && d.ClaimAmount(s, standardMeter, saved, finding.SavingsOnly) {
			return d
		}
		d.ClaimShare(s, "", 1, 1, finding.SavingsOnly)
	default:
		d.Unknown = "how much replaced versions hold is not known"
		locked(d, s, b)
		protect(d, s, b)
		d.ClaimShare(s, "", 1, 1, finding.SavingsOnly)
	}
	return d
}

// locked adds the noncurrent versions that Object Lock still retains by the bucket's default
// retention, and the delete markers that remain without versions behind them.
func locked(d *finding.Draft, s *finding.Subject, b *inventory.Bucket) {
	if b.Locked.Objects > 0 {
		d.Evidence = append(d.Evidence, finding.Fact(s, "locked_bytes", plain.Decimal(float64(b.Locked.Bytes), 0)))
		if !b.LockedUntil.IsZero() {
			d.Evidence = append(d.Evidence, finding.Fact(s, "locked_until", b.LockedUntil.Format(time.DateOnly)))
		}
		d.Fix.Note = finding.Sentence(d.Fix.Note, plain.Size(b.Locked.Bytes)+" stay until their retention ends")
	}
	if b.DeleteMarkers > 0 {
		d.Evidence = append(d.Evidence, finding.Fact(s, "delete_markers", plain.Decimal(float64(b.DeleteMarkers), 0)))
		d.Fix.Note = finding.Sentence(d.Fix.Note, plain.Count(b.DeleteMarkers, "delete marker")+
			" stay, which cost next to nothing and slow listings")
	}
}

// prefixKind is the kind of data suggested by a prefix's name.
type prefixKind int

const (
	dataPrefix prefixKind = iota
	checkpointPrefix
	experimentPrefix
)

var prefixWords = map[string]prefixKind{
	"ckpt": checkpointPrefix, "ckpts": checkpointPrefix, "checkpoint": checkpointPrefix,
	"checkpoints": checkpointPrefix,
	"exp":         experimentPrefix, "exps": experimentPrefix, "experiment": experimentPrefix,
	"experiments": experimentPrefix,
	"runs":        experimentPrefix, "sweep": experimentPrefix, "sweeps": experimentPrefix, "tmp": experimentPrefix,
	"temp": experimentPrefix, "scratch": experimentPrefix, "wandb": experimentPrefix, "mlruns": experimentPrefix,
}

// kindOf reads a prefix's name word by word; the first known word decides.
func kindOf(prefix string) prefixKind {
	for word := range strings.FieldsFuncSeq(strings.ToLower(prefix), func(c rune) bool {
		return c == '/' || c == '-' || c == '_' || c == '.' || c == ' '
	}) {
		if k, ok := prefixWords[word]; ok {
			return k
		}
	}
	return dataPrefix
}

// archiving are the storage classes for stale checkpoints.
var archiving = []string{"GLACIER", "GLACIER_IR", "DEEP_ARCHIVE"}

// handled reports whether an enabled rule already archives or expires a prefix.
func handled(rules []inventory.LifecycleRule, prefix string) bool {
	for _, r := range rules {
		if !r.Enabled || r.Filtered || !strings.HasPrefix(prefix, r.Prefix) {
			continue
		}
		if r.ExpirationDays > 0 {
			return true
		}
		for _, class := range archiving {
			if _, ok := r.TransitionDays[class]; ok {
				return true
			}
		}
	}
	return false
}

// checkpointStale finds checkpoints without a new object for 90 days. They are archived, not
// deleted: the last one may be the only copy of a model.
func checkpointStale(x *finding.Index, s *finding.Subject) *finding.Draft {
	b, ok := s.Detail.(*inventory.Bucket)
	if !ok {
		return nil
	}
	prefixes, known := b.Prefixes.Get()
	rules, rulesKnown := b.Lifecycle.Get()
	if !known || !rulesKnown {
		return nil
	}
	limits := limitsOf(b)
	total, _ := standardBytes(b)
	readers := bucketReaders(x, s, b, total)
	var m moves
	var names []string
	newest := x.Now.Sub(x.Now)
	for i := range prefixes {
		p := &prefixes[i]
		// A truncated listing may have missed the newest object.
		here := standardOf(b, p)
		if kindOf(p.Name) != checkpointPrefix || !p.Complete || p.Newest.IsZero() || handled(rules, p.Name) {
			continue
		}
		quiet := x.Now.Sub(p.Newest)
		if quiet < x.Thresholds.CheckpointStale {
			continue
		}
		moving := inventory.Stored{Bytes: here.Bytes - p.Small.Bytes, Objects: here.Objects - p.Small.Objects}
		if moving.Bytes <= 0 {
			continue
		}
		if by := readBy(readers, p); by != "" {
			m.keep(p, moving.Bytes, by)
			continue
		}
		m.access(p, x.Now)
		rule := leaveSmall(b, archiveRule(x.Thresholds, p.Name))
		if why := limits.forbids(rule); why != "" {
			m.left += moving.Bytes
			m.why = append(m.why, notProposed(p.Name, why))
			continue
		}
		m.archive.add(moving)
		m.small.add(p.Small)
		if len(names) == 0 || quiet < newest {
			newest = quiet
		}
		names = append(names, p.Name)
		m.rules = append(m.rules, rule)
	}
	if len(names) == 0 && m.left == 0 {
		return nil
	}
	if len(names) == 0 {
		d := &finding.Draft{Finding: finding.Finding{
			Confidence: finding.High,
			Because:    plain.Size(m.left) + " of checkpoints untouched, no rule is proposed",
			Evidence:   []usage.Evidence{finding.Fact(s, "left_to_rules", plain.Size(m.left))},
			Fix: finding.Fix{Change: putLifecycle(b), Risk: finding.Low, Undo: finding.UndoPartial,
				Note: strings.Join(m.why[:min(len(m.why), 3)], "; ")},
		}, Stands: true}
		d.Savings = finding.Saving{Known: true}
		monitored(x, d, s, b)
		return d
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    plain.Size(m.archive.Bytes) + " of checkpoints untouched for " + plain.Duration(newest),
		Evidence: []usage.Evidence{
			finding.Fact(s, "prefixes", firstFew(names)), finding.Aged(s, "newest_object", newest),
		},
		Fix: finding.Fix{Change: putLifecycle(b, m.rules...), Risk: finding.Low, Undo: finding.UndoPartial,
			Note: "archives them, deletes nothing; keep the last one in the standard class where a run may resume from it"},
	}}
	if len(m.why) > 0 {
		d.Fix.Note = finding.Sentence(d.Fix.Note, strings.Join(m.why[:min(len(m.why), 3)], "; "))
		monitored(x, d, s, b)
	}
	m.weigh(&d.Fix)
	priceMoves(x, d, s, b, &m)
	return d
}

// firstFew joins up to three names.
func firstFew(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:3], ", ") + " and " + plain.Count(int64(len(names)-3), "other")
}
