package finding

import (
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// logGroupNoRetention finds log groups that keep everything for ever. How much of
// it is older than the retention is not published, so what a retention saves is
// not known beyond its bound, the whole storage.
func logGroupNoRetention(x *index, s *subject) *draft {
	g, ok := s.Detail.(*inventory.LogGroup)
	if !ok {
		return nil
	}
	retention, known := g.RetentionDays.Get()
	bytes, sized := g.StoredBytes.Get()
	if !known || retention > 0 || (sized && bytes == 0) {
		return nil
	}
	d := &draft{Finding: Finding{
		Confidence: Medium,
		Because:    "kept for ever",
		Evidence:   []usage.Evidence{fact(s, "retention_days", "none")},
		Fix: Fix{Action: "put-retention", Risk: Medium, Undo: UndoNone,
			Note: "deletes logs older than " + count(int64(x.t.LogRetentionDays), "day") + "; what has expired is gone"},
	}}
	if age, known := x.age(s); known && age < days(x.t.LogRetentionDays) {
		d.Because = "kept for ever, made " + usage.Span(age) + " ago"
		d.Confidence = Low
	}
	if sized {
		d.Because = size(bytes) + " of logs, kept for ever"
		d.Evidence = append(d.Evidence, fact(s, "stored_bytes", usage.Number(float64(bytes), 0)))
		if bytes >= int64(x.t.LogGroupGiB)*gib {
			d.Confidence = High
		}
	}
	d.Cost, _ = x.cost(s, "")
	d.unknown = "how much of it is older than the retention is not published"
	d.claimShare(s, "", 1, 1, savingsOnly)
	return d
}

// registryPrice bounds what images cost a month, by their own sizes; layers that
// stay in use by others go on costing.
func (x *index) registryPrice(s *subject, bytes int64) (money.Amount, error) {
	p, err := x.rate(price.ItemECR, s.Region)
	if err != nil {
		return 0, err
	}
	return p.Cost(bytes, gib)
}

// repositoryUntagged finds repositories that hold untagged images: what a tag was
// moved away from, which nobody can name any more.
func repositoryUntagged(x *index, s *subject) *draft {
	r, ok := s.Detail.(*inventory.Repository)
	if !ok || r.UntaggedImages == 0 {
		return nil
	}
	d := &draft{Finding: Finding{
		Confidence: High,
		Because:    count(int64(r.UntaggedImages), "untagged image") + " of " + usage.Number(float64(r.Images), 0),
		Evidence: []usage.Evidence{fact(s, "untagged_images", usage.Number(float64(r.UntaggedImages), 0)),
			fact(s, "images", usage.Number(float64(r.Images), 0))},
		Fix: Fix{Action: "delete-untagged", Risk: Medium, Undo: UndoNone,
			Note: "images that are pulled by digest have no tag either: look for such uses first"},
	}}
	x.claimImages(d, s, r.UntaggedBytes, "untagged_bytes")
	return d
}

// claimImages bounds the saving of deleting images by their sizes.
func (x *index) claimImages(d *draft, s *subject, bytes inventory.Fact[int64], signal string) {
	n, sized := bytes.Get()
	if !sized {
		d.unknown = "the sizes of the images could not be read"
		d.claimShare(s, "", 1, 1, savingsOnly)
		return
	}
	d.Evidence = append(d.Evidence, fact(s, signal, usage.Number(float64(n), 0)))
	cost, err := x.registryPrice(s, n)
	if err != nil {
		d.unpriced(s, err)
		return
	}
	d.unknown = "layers that other images share go on costing"
	if !d.claimAmount(s, "storage", cost, savingsOnly) {
		d.unpriced(s, nil)
	}
}

// repositoryNoLifecycle finds repositories in which images pile up for ever.
func repositoryNoLifecycle(x *index, s *subject) *draft {
	r, ok := s.Detail.(*inventory.Repository)
	if !ok || r.Images == 0 {
		return nil
	}
	if policy, known := r.LifecyclePolicy.Get(); !known || policy {
		return nil
	}
	d := &draft{Finding: Finding{
		Confidence: High,
		Because:    "no lifecycle policy, " + count(int64(r.UnpulledImages), "image") + " not pulled for 90 days",
		Evidence: []usage.Evidence{fact(s, "lifecycle_policy", "none"), fact(s, "images", usage.Number(float64(r.Images), 0)),
			fact(s, "unpulled_images", usage.Number(float64(r.UnpulledImages), 0))},
		Fix: Fix{Action: "put-lifecycle-policy", Risk: Medium, Undo: UndoNone,
			Note: "expires untagged images and those nobody pulled for 90 days; what has expired is gone"},
	}}
	if r.UnpulledImages == 0 {
		d.Because = "no lifecycle policy, " + count(int64(r.Images), "image")
		d.advice, d.Savings = true, Saving{Known: true}
		return d
	}
	x.claimImages(d, s, r.UnpulledBytes, "unpulled_bytes")
	return d
}
