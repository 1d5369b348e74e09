package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

const (
	// oneDay is how long policies act in `enforce --demo -o json`, and the length of the previous
	// period that it is compared with.
	oneDay = 24 * time.Hour
	// minInterval and demoMost bound the time between two passes of that day.
	minInterval = 15 * time.Minute
	maxInterval = time.Hour
	// watchInterval is the time between two passes of the day before, in which nothing acts.
	watchInterval = 4 * time.Hour
)

// day is a simulated day of passes.
type day struct {
	set     *policy.Set
	seed    uint64
	cloud   *sim.Cloud
	clock   *sim.Clock
	setting round.Setting
	store   *store.Store
	bar     runtime.Bar
}

// run accounts for a day without actions, and then lets the policies act for another.
func (d *day) run(ctx context.Context) (*view.Demo, error) {
	d.setting.Books = ledger.Journal{Store: d.store.Ledger()}
	from := d.clock.Now().Add(oneDay)
	until := from.Add(oneDay)
	before := d.setting
	before.Policies, before.Ladder = nil, nil
	watching, enforcing := round.New(before), round.New(d.setting)
	for d.clock.Now().Before(from) {
		if _, err := pass(ctx, watching); err != nil {
			return nil, err
		}
		d.clock.Forward(d.clock.Now().Add(watchInterval))
	}
	doc := view.NewDemo(d.seed, from, until, d.set)
	work := [2]map[inventory.Ref]sim.Work{d.cloud.Work(from.Add(-oneDay), from), d.cloud.Work(from, until)}
	for {
		now := d.clock.Now()
		pass, err := pass(ctx, enforcing)
		if err != nil {
			return nil, err
		}
		doc.Passes++
		d.bar.Report(round.Progress{
			What: now.Format("Mon 15:04"), Done: int(now.Sub(from) / time.Minute), Total: int(oneDay / time.Minute),
		})
		for _, r := range pass.Resources {
			ref := r.Ref()
			if before, simulated := work[0][ref]; simulated {
				after := work[1][ref]
				doc.Machine(r, view.NewDemoWork(before.Worked, before.Rested),
					view.NewDemoWork(after.Worked, after.Rested))
			}
		}
		for _, l := range pass.Lines() {
			if !l.Verb.IsDestructive() || l.Result != action.ResultActed && l.Result != action.ResultConfirmed &&
				l.Result != action.ResultFailed {
				continue
			}
			state, _ := d.cloud.At(l.Resource, now)
			doc.Act(l.Resource, view.DemoDone{
				At: now, Policy: l.Source, Verb: string(l.Verb), Result: string(l.Result),
				Why: l.Why, Worked: state.Works,
			},
				l.Result == action.ResultActed)
		}
		if !now.Before(until) {
			break
		}
		next := pass.NextAt()
		if next.IsZero() || next.After(now.Add(maxInterval)) {
			next = now.Add(maxInterval)
		}
		if least := now.Add(minInterval); next.Before(least) {
			next = least
		}
		if next.After(until) {
			next = until
		}
		d.clock.Forward(next)
	}
	var tables [3]*costs.Costs
	for i, span := range [3][2]time.Time{{from.Add(-oneDay), from}, {from, until}, {until.Add(-time.Hour), until}} {
		var err error
		tables[i], err = costs.Spent(ctx, d.store.Ledger(), costs.Query{
			By: []ledger.Dimension{ledger.ByResource, ledger.ByDuty}, Since: span[0], Until: span[1],
		})
		if err != nil {
			return nil, err
		}
	}
	return doc, doc.Charge(tables[0], tables[1], tables[2])
}

// pass makes one pass and returns an error if its charges were not stored.
func pass(ctx context.Context, e *round.Engine) (*round.Result, error) {
	r, err := e.Round(ctx)
	if err != nil {
		return nil, err
	}
	for account, err := range r.Unposted {
		return nil, fmt.Errorf("charge %s: %w", account, err)
	}
	return r, nil
}
