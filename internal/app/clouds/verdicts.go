package clouds

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
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
		Query: round.Query{Window: window},
	}
	r, err := round.New(audit).Round(ctx)
	if err != nil {
		return nil, nil, CloudError(err)
	}
	r.JudgeWindows(setting.Duty)
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
	return r.Verdicts, spots, nil
}
