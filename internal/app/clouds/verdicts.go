package clouds

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/round"
)

// repeatedListing returns the resources of an earlier round again without calling the provider.
type repeatedListing struct{ of round.Observation }

func (l repeatedListing) List(context.Context, round.Query) (*round.Observation, error) {
	o := l.of
	o.BlindSpots, o.Windows, o.Unmeasured, o.Calls = nil, nil, nil, nil
	return &o, nil
}

// AuditVerdicts judges the resources of an earlier round over the window of an audit, at the time
// of that round. It only reads the usage of those that keep selects, and returns the new blind
// spots.
func AuditVerdicts(ctx context.Context, setting round.Setting, seen *round.Result, window time.Duration,
	keep func(*inventory.Resource) bool) (map[inventory.Ref]duty.Verdict, []inventory.BlindSpot, error) {
	r, spots, err := auditAgain(ctx, setting, seen, window, nil, keep)
	if err != nil {
		return nil, nil, err
	}
	r.JudgeWindows(setting.Duty)
	return r.Verdicts, spots, nil
}

// foundAtRest returns why findings by other evidence than samples, such as the dates of a notebook, take the
// whole compute of a machine without a verdict for waste.
func foundAtRest(r *round.Result) (map[inventory.Ref]string, error) {
	parts, err := round.Parts(r)
	if err != nil {
		return nil, CloudError(err)
	}
	wasted, left := map[inventory.Ref]bool{}, map[inventory.Ref]bool{}
	for c, part := range parts {
		if c.Category == ledger.Compute {
			ref := c.Resource.Ref()
			wasted[ref] = wasted[ref] || part.Wasted > 0
			left[ref] = left[ref] || part.Unmeasured > 0 || c.Unpriced != ""
		}
	}
	out := map[inventory.Ref]string{}
	for _, f := range r.Findings {
		for _, c := range f.Claims {
			ref := c.Resource
			if c.Waste > 0 && c.Category == ledger.Compute && r.Verdicts[ref].State == duty.Unknown && wasted[ref] &&
				!left[ref] {
				out[ref] = f.Rule + ": " + f.Because
			}
		}
	}
	return out, nil
}

// auditAgain audits resources of an earlier round over window, at the time of that round; without rules, windows
// are read and not judged. It returns the blind spots that are new as well.
func auditAgain(ctx context.Context, setting round.Setting, seen *round.Result, window time.Duration,
	rules *round.Audit, keep func(*inventory.Resource) bool) (*round.Result, []inventory.BlindSpot, error) {
	listing := seen.Observation
	listing.Resources = nil
	for _, r := range seen.Resources {
		if keep(r) {
			listing.Resources = append(listing.Resources, r)
		}
	}
	audit := round.Setting{
		Lister: repeatedListing{listing}, Sources: setting.Sources, Prices: setting.Prices, Duty: setting.Duty,
		Activity: setting.Activity, Step: setting.Step, Clock: func() time.Time { return seen.StartedAt },
		Query: round.Query{Window: window}, Audit: rules,
	}
	r, err := round.New(audit).Round(ctx)
	if err != nil {
		return nil, nil, CloudError(err)
	}
	known := map[inventory.BlindSpot]bool{}
	for _, b := range seen.BlindSpots {
		known[b] = true
	}
	var spots []inventory.BlindSpot
	for _, b := range r.BlindSpots {
		if !known[b] {
			known[b], spots = true, append(spots, b)
		}
	}
	return r, spots, nil
}
