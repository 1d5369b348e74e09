package view

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Progress is the last progress of work: a new highest step, or a complete checkpoint.
type Progress struct {
	// Since is the time of the last progress, or of the start of the work where there was none.
	Since time.Time `json:"since"`
	// SpentUSD is the cost since then at the rate of the audit; null without a price.
	SpentUSD money.Dollars `json:"spent_usd"`
	// Reported is set if the work ever reported steps or checkpoints.
	Reported bool `json:"reported"`
}

// SeenProgress is the last progress as of an audit.
type SeenProgress struct {
	Progress
	// At is the time of the audit.
	At time.Time `json:"at"`
}

// newProgress returns the last progress of a busy machine whose purpose makes any, unlike serving.
func newProgress(f *policy.Facts, state string) (Progress, bool) {
	purposes := []inventory.Purpose{inventory.Training, inventory.Evaluation, inventory.Experimentation}
	since, known := f.LastProgress()
	if !known || !slices.Contains(purposes, f.Resource.Purpose) ||
		state != duty.Busy.String() && state != duty.Stalled.String() {
		return Progress{}, false
	}
	p := Progress{Since: since.UTC(), Reported: f.ReportsProgress()}
	if spent, priced := f.SpentSinceProgress(); priced {
		p.SpentUSD = money.Known(spent)
	}
	return p, true
}

// SeenResource is a kept resource with its duty at an audit.
type SeenResource struct {
	KeptResource
	Duty string
	At   time.Time
}

// LastProgress returns the last progress of the work that machines do together: a step of one is a
// step of all, and each costs money since. It is unknown where the machines rest or serve, and its
// dollars are not where one has no price.
func LastProgress(tags inventory.TagMapping, machines ...SeenResource) (out SeenProgress, known bool) {
	var work duty.Progress
	for _, m := range machines {
		if m.Progress != nil {
			work = duty.Progress(*m.Progress).Or(work)
		}
	}
	for _, m := range machines {
		if m.Progress == nil {
			continue
		}
		own := work
		own.From = m.Progress.From
		r := m.Priced(tags)
		p, ok := newProgress(&policy.Facts{
			Resource: r.Resource, Hourly: r.Hourly, Now: m.At, Progress: inventory.Known(own),
		}, m.Duty)
		switch {
		case !ok:
		case !known:
			out, known = SeenProgress{Progress: p, At: m.At.UTC()}, true
		default:
			out.add(p)
		}
	}
	return out, known
}

// add takes in the progress of another machine of the run.
func (p *SeenProgress) add(o Progress) {
	if o.Since.After(p.Since) {
		p.Since = o.Since
	}
	spent, known := o.SpentUSD.Get()
	if p.SpentUSD = p.SpentUSD.Plus(spent); !known {
		p.SpentUSD = money.Dollars{}
	}
	p.Reported = p.Reported || o.Reported
}
