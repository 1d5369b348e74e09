package sessions

import (
	"context"
	"errors"
	"fmt"

	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// newPlacer returns what chooses the places of jobs. What cannot be read about a place is left out, and
// said in its note.
func (a *Sessions) newPlacer(launchers map[string]session.Launcher) *job.Placer {
	return &job.Placer{Sessions: a.store.Sessions(), Launchers: launchers, Prior: a.prior}
}

// prior returns what is published of the interruptions of a pool, and what its data costs there.
func (a *Sessions) prior(ctx context.Context, sp *spec.Spec, p session.Pool) (known job.Prior) {
	if p.Region == "" {
		return known // this machine
	}
	note := func(format string, args ...any) {
		if known.Note != "" {
			known.Note += "; "
		}
		known.Note += fmt.Sprintf(format, args...)
	}
	if p.Spot {
		advisor, err := a.Request.Advisor(a.Config.Spot.Advisor)
		if err != nil {
			note("the Spot Advisor cannot be read: %s", err)
		} else if advisor != nil {
			band, err := advisor.Published(p.Type, p.Region)
			if err == nil {
				known.Interruptions = band.Relative()
				note("%s interrupted in a month", band.Label)
			} else if !errors.Is(err, spot.ErrNotInAdvisor) {
				note("%s", err)
			}
		}
	}
	if len(sp.Data) == 0 {
		return known
	}
	start, err := a.transfer(ctx, sp, p.Region)
	if err != nil {
		note("%s", err)
	}
	if known.Start = start; start > 0 {
		note("its data costs %s at each start", start.Dollars())
	}
	return known
}

// transfer returns what it costs to read the data of a job once in a region.
func (a *Sessions) transfer(ctx context.Context, sp *spec.Spec, region string) (money.Amount, error) {
	regions, err := govern.DataRegions(ctx, a.store, a.Config, a.now())
	if err != nil {
		return 0, err
	}
	book, err := a.Request.PriceBook(a.Config)
	if err != nil {
		return 0, err
	}
	var total money.Amount
	for _, d := range sp.Data {
		name, ok := estimate.Bucket(d.URI)
		from := regions[name]
		if !ok || from == region {
			continue
		}
		if from == "" || d.SizeBytes == 0 {
			return total, fmt.Errorf("what reading %s costs there is unknown: its region or size is not known",
				spec.Shown(d.URI))
		}
		rate, err := book.Rate(price.ItemEgressRegion, from)
		if err != nil {
			return total, err
		}
		cost, err := rate.Rate.For(d.SizeBytes, 1<<30)
		if err == nil {
			total, err = total.Add(cost)
		}
		if err != nil {
			return total, err
		}
	}
	return total.Mul(int64(max(1, sp.Resources.Nodes)), 1)
}
