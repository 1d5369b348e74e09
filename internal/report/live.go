package report

import (
	"fmt"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// WastedNow says in one sentence what of an audit is wasted, with the whole that it is a part of.
func WastedNow(scan view.Scan) string {
	n := scan.Now
	if n == nil || !n.RunningUSD.Known() || !n.WastedUSD.Known() || n.WastedUSD.Or(0) == 0 {
		return layout.Capital(headline(newAudit(scan, Options{})))
	}
	return fmt.Sprintf("%s a month is wasted now, %s of %s", n.WastedUSD,
		plain.Share(share(n.WastedUSD, n.RunningUSD), 0), n.RunningUSD)
}

// NowParts divide what runs now, the wasted part first.
func NowParts(scan view.Scan) []layout.Part {
	parts := newAudit(scan, Options{}).parts()
	if len(parts) != 4 {
		return parts
	}
	used, wasted, unmeasured, other := parts[0], parts[1], parts[2], parts[3]
	return []layout.Part{wasted, unmeasured, used, other}
}

// Shown returns at most n findings in the order in which they are worth doing; all with n < 0.
func Shown(scan view.Scan, n int) []*view.Finding { return newAudit(scan, Options{}).shown(n) }

// Ranked returns all findings, the most worthwhile first.
func Ranked(scan view.Scan) []*view.Finding {
	return newAudit(scan, Options{All: true}).ranked()
}

// Saves prints what a finding saves a month.
func Saves(f *view.Finding) string { return saves(f) }

// Thing names a resource by its type, its name, its id and its region.
func Thing(r *view.Resource) string { return thing(r) }

// Owner names who answers for a resource: "vision/ana".
func Owner(r *view.Resource) string { return owner(r) }

// Evidence is what a reader sees of a finding who opens it.
func Evidence(f *view.Finding) *layout.Detail { return detail(f) }

// Spark draws one signal of a resource.
func Spark(in view.Samples) layout.Picture { return draw(&in).picture() }

// StepName names a step in which waste is removed.
func StepName(s *view.ScanStep) string { return stepName(s) }

// BudgetState is the state of a budget in words.
func BudgetState(b *view.Budget) string { return budgetState(b) }
