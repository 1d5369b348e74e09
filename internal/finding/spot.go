package finding

import (
	"errors"
	"math"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// hourly returns a machine price of the book as an amount an hour.
func (x *Index) hourly(find func(b *price.Book) (price.Price, error)) (money.Amount, error) {
	if x.account.Prices == nil {
		return 0, price.ErrUnpriced
	}
	p, err := find(x.account.Prices)
	if err != nil {
		return 0, err
	}
	return p.Hourly()
}

// trainingOnDemand finds busy ephemeral training machines at the on-demand price
// whose spot price, time lost to restarts included, is lower.
func trainingOnDemand(x *Index, s *Subject) *Draft {
	i, ok := onDemand(s)
	if !ok || s.Purpose != inventory.Training || s.Lifetime != inventory.Ephemeral || !s.Judged || s.Duty.State != duty.Busy ||
		i.CapacityReservationID != "" {
		return nil
	}
	d := &Draft{Finding: Finding{
		Confidence: Medium,
		Because:    "training on demand that may be interrupted",
		Evidence: []usage.Evidence{Fact(s, "market", string(i.Market)), Fact(s, "lifetime", string(s.Lifetime)),
			{Signal: "duty", Value: s.Duty.State.String(), Coverage: s.Duty.Coverage, Source: "metrics"}},
		Fix: Fix{Change: change.Change{Verb: change.UseSpot}, Risk: Low, Undo: UndoFull,
			Note: "needs checkpoints that a restart resumes from; spot capacity may not be there when it is wanted"},
	}}
	if level, note := Risk(s.Resource, Low); note != "" {
		d.Fix.Risk, d.Fix.Note = level, Sentence(note, d.Fix.Note)
	}
	list, err := x.hourly(func(b *price.Book) (price.Price, error) { return b.OnDemand(s.Type, s.Region) })
	if err == nil {
		var spot money.Amount
		if spot, err = x.hourly(func(b *price.Book) (price.Price, error) { return b.Spot(s.Type, s.Region) }); err == nil {
			return x.onSpot(d, s, list, spot)
		}
	}
	if !errors.Is(err, price.ErrUnpriced) {
		x.fail(err)
	}
	d.Stands, d.Savings = true, Saving{Why: err.Error()}
	d.Cost, _ = x.Cost(s, ledger.Compute)
	return d
}

// onSpot claims what spot saves: the on-demand price less the spot price and the
// share of its time that restarts cost.
func (x *Index) onSpot(d *Draft, s *Subject, list, spot money.Amount) *Draft {
	const parts = 1000
	paid, err := spot.Mul(parts+int64(math.Round(x.Thresholds.SpotOverhead*parts)), parts)
	if err != nil {
		x.fail(err)
		return nil
	}
	if paid >= list {
		return nil
	}
	d.Because = "on-demand training; spot costs " + Percent(money.Ratio(paid, list)) + " of it, restarts included"
	d.Evidence = append(d.Evidence, Priced("on_demand_usd_per_hour", list, "price book"), Priced("spot_usd_per_hour", spot, "price book"),
		usage.Fact("restart_overhead", Percent(x.Thresholds.SpotOverhead), "threshold"))
	d.ClaimShare(s, ledger.Compute, int64(list-paid), int64(list), SavingsOnly)
	x.cover.toSpot[s.at] = true
	return d
}
