package aws

import (
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// logGroupNoRetention finds log groups without a retention. The share of data older than a
// retention is not published, so the saving is bounded by the whole storage.
func logGroupNoRetention(x *finding.Index, s *finding.Subject) *finding.Draft {
	g, ok := s.Detail.(*inventory.LogGroup)
	if !ok {
		return nil
	}
	retention, known := g.RetentionDays.Get()
	bytes, sized := g.StoredBytes.Get()
	if !known || retention > 0 || (sized && bytes == 0) {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.Medium,
		Because:    "never expires",
		Evidence:   []usage.Evidence{finding.Fact(s, "retention_days", "none")},
		Fix: finding.Fix{
			Change: change.Change{
				Verb: change.PutRetention, Arguments: change.Arguments{RetentionDays: x.Thresholds.LogRetentionDays},
			}, Risk: finding.Medium, Undo: finding.UndoNone,
			Note: "deletes logs older than " + plain.Count(x.Thresholds.LogRetentionDays, "day") +
				"; expired objects are gone"},
	}}
	if age, known := x.Age(s); known && age < days(x.Thresholds.LogRetentionDays) {
		d.Because = "never expires, created " + plain.Duration(age) + " ago"
		d.Confidence = finding.Low
	}
	if sized {
		d.Because = plain.Size(bytes) + " of logs that never expire"
		d.Evidence = append(d.Evidence, finding.Fact(s, "stored_bytes", plain.Decimal(float64(bytes), 0)))
		if bytes >= int64(x.Thresholds.LogGroupGiB)*gib {
			d.Confidence = finding.High
		}
	}
	d.Cost, _ = x.Cost(s, "")
	d.Unknown = "how much of it is older than the retention is not published"
	d.ClaimShare(s, "", 1, 1, finding.SavingsOnly)
	return d
}

// registryPrice bounds the monthly cost of images by their sizes; layers shared with other images
// still cost.
func registryPrice(x *finding.Index, s *finding.Subject, bytes int64) (money.Amount, error) {
	p, err := x.Rate(price.ItemECR, s.Region)
	if err != nil {
		return 0, err
	}
	return p.Cost(bytes, gib)
}

// repositoryUntagged finds repositories that hold untagged images: their
// tags have moved to newer images.
func repositoryUntagged(x *finding.Index, s *finding.Subject) *finding.Draft {
	r, ok := s.Detail.(*inventory.Repository)
	if !ok || r.UntaggedImages == 0 {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    plain.Count(r.UntaggedImages, "untagged image") + " of " + plain.Number(float64(r.Images), 0),
		Evidence: []usage.Evidence{finding.Fact(s, "untagged_images", plain.Decimal(float64(r.UntaggedImages), 0)),
			finding.Fact(s, "images", plain.Decimal(float64(r.Images), 0))},
		Fix: finding.Fix{
			Change: change.Change{Verb: change.DeleteUntagged, Arguments: change.Arguments{Images: r.UntaggedDigests}},
			Risk:   finding.Medium, Undo: finding.UndoNone,
			Note: "images that are pulled by digest have no tag either: look for such uses first"},
	}}
	claimImages(x, d, s, r.UntaggedBytes, "untagged_bytes")
	return d
}

// claimImages bounds the saving of deleting images by their sizes.
func claimImages(x *finding.Index, d *finding.Draft, s *finding.Subject, bytes inventory.Fact[int64], signal string) {
	n, sized := bytes.Get()
	if !sized {
		d.Unknown = "the sizes of the images could not be read"
		d.ClaimShare(s, "", 1, 1, finding.SavingsOnly)
		return
	}
	d.Evidence = append(d.Evidence, finding.Fact(s, signal, plain.Decimal(float64(n), 0)))
	cost, err := registryPrice(x, s, n)
	if err != nil {
		d.NoPrice(s, err)
		return
	}
	d.Unknown = "layers that other images share go on costing"
	if !d.ClaimAmount(s, "storage", cost, finding.SavingsOnly) {
		d.NoPrice(s, nil)
	}
}

// untaggedDays is the age at which images without a tag expire: without
// a pull for so long, an image counts as unused.
const untaggedDays = 90

// repositoryNoLifecycle finds repositories in which untagged images accumulate. The proposed rule
// expires them by push time; tagged images stay, because ECR cannot expire by the last pull.
func repositoryNoLifecycle(x *finding.Index, s *finding.Subject) *finding.Draft {
	r, ok := s.Detail.(*inventory.Repository)
	if !ok || r.Images == 0 {
		return nil
	}
	if policy, known := r.LifecyclePolicy.Get(); !known || policy {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because: "no lifecycle policy, " + plain.Count(r.UntaggedImages, "untagged image") + " of " + plain.Number(
			float64(r.Images), 0),
		Evidence: []usage.Evidence{
			finding.Fact(s, "lifecycle_policy", "none"),
			finding.Fact(s, "images", plain.Decimal(float64(r.Images), 0)),
			finding.Fact(s, "unpulled_images", plain.Decimal(float64(r.UnpulledImages), 0))},
		Fix: finding.Fix{
			Change: change.Change{Verb: change.PutLifecycle}, Risk: finding.Medium, Undo: finding.UndoNone,
			Note: "expires untagged images " + plain.Count(untaggedDays, "day") +
				" after they were pushed; expired objects are gone"},
	}}
	if before, known := r.LifecycleDocument.Get(); known {
		if document, changed, err := change.WithUntagged(before, untaggedDays); err == nil && changed {
			d.Fix.Change.Document, d.Fix.Change.Before = document, before
		}
	}
	if r.UnpulledImages > 0 {
		d.Fix.Note = finding.Sentence(d.Fix.Note,
			plain.Count(r.UnpulledImages, "tagged image")+" not pulled for 90 days stay: delete them by hand")
	}
	if r.UntaggedImages == 0 {
		d.Stands, d.Savings = true, finding.Saving{Known: true}
		return d
	}
	claimImages(x, d, s, r.UntaggedBytes, "untagged_bytes")
	d.Unknown = "untagged images under " + plain.Count(untaggedDays, "day") +
		" stay, and layers that other images share go on costing"
	return d
}
