package finding

import (
	"cmp"
	"errors"
	"math"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// hourly returns the hourly price of a machine as an amount.
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

// trainingOnDemand finds busy on-demand training machines with a lower spot price, time lost to
// restarts included. Persistent machines are excluded; an unknown lifetime lowers the confidence.
// It is advice only.
func trainingOnDemand(x *Index, s *Subject) *Draft {
	i, ok := onDemand(s)
	if !ok || s.Purpose != inventory.Training || s.Lifetime == inventory.Persistent || !s.Judged ||
		s.Duty.State != duty.Busy ||
		i.CapacityReservationID != "" {
		return nil
	}
	d := &Draft{Finding: Finding{
		Confidence: Medium,
		Because:    "training on demand that may be interrupted",
		Evidence: []usage.Evidence{
			Fact(s, "market", string(i.Market)), Fact(s, "lifetime", cmp.Or(string(s.Lifetime), "unknown")),
			{Signal: "duty", Value: s.Duty.State.String(), Coverage: s.Duty.Coverage, Source: "metrics"}},
		Fix: Fix{Change: change.Change{Verb: change.UseSpot}, Risk: Low, Undo: UndoFull,
			Note: "needs checkpoints that a restart resumes from; spot capacity may not be there when it is wanted"},
	}}
	if s.Lifetime == inventory.LifetimeUnknown {
		d.Confidence = Low
		d.Fix.Note = Sentence("no tag says that it may be interrupted: ask its owner", d.Fix.Note)
	}
	if level, note := Risk(s.Resource, Low); note != "" {
		d.Fix.Risk, d.Fix.Note = level, Sentence(note, d.Fix.Note)
	}
	list, err := x.hourly(func(b *price.Book) (price.Price, error) { return b.OnDemand(s.Type, s.Region) })
	if err == nil {
		var paid money.Amount
		if paid, err = x.hourly(func(b *price.Book) (price.Price, error) {
			return b.Spot(s.Type, s.Region)
		}); err == nil {
			return x.onSpot(d, s, list, paid)
		}
	}
	if !errors.Is(err, price.ErrUnpriced) {
		x.fail(err)
	}
	d.Stands, d.Savings = true, Saving{Why: err.Error()}
	d.Cost, _ = x.Cost(s, ledger.Compute)
	return d
}

// onSpot claims the saving of spot: the on-demand price less the spot price and the time lost to
// restarts, at the interruption rate and save interval that estimates assume.
func (x *Index) onSpot(d *Draft, s *Subject, list, price money.Amount) *Draft {
	rate := x.Thresholds.Interruptions
	paid := func(perHour float64) (money.Amount, float64) {
		const parts = 1_000_000_000
		over := spot.Overhead(perHour, spot.CheckpointEvery, spot.Restart)
		return x.amount(price.Mul(parts+int64(math.Round(over*parts)), parts)), over
	}
	now, over := paid(rate.PerHour)
	if x.err != nil || now >= list {
		return nil
	}
	overhead, cost := plain.Share(over, 0), plain.Share(money.Ratio(now, list), 0)
	if rate.Ranged() {
		least, low := paid(rate.Low)
		most, high := paid(rate.High)
		overhead += " (" + plain.Share(low, 0) + " to " + plain.Share(high, 0) + ")"
		cost += " (" + plain.Share(money.Ratio(least, list), 0) + " to " +
			plain.Share(money.Ratio(most, list), 0) + ")"
		d.Fix.Note = Sentence(d.Fix.Note,
			"how often it is interrupted is not measured here: state spot.interruptions_per_hour or spot.runs")
	}
	d.Because = "on-demand training; spot costs " + plain.Share(money.Ratio(now, list), 0) +
		" of it, restarts included"
	d.Evidence = append(d.Evidence, Priced("on_demand_usd_per_hour", list, "price book"),
		Priced("spot_usd_per_hour", price, "price book"),
		usage.Fact("interruptions", rate.String(), rate.Source), usage.Fact("restart_overhead", overhead, "formula"),
		usage.Fact("cost_on_spot", cost, "price book"))
	if x.Thresholds.Advisor != nil {
		d.Evidence = append(d.Evidence, published(x.Thresholds.Advisor, s))
	}
	d.ClaimShare(s, ledger.Compute, int64(list-now), int64(list), SavingsOnly)
	x.cover.toSpot[s.at] = true
	return d
}

// published returns the published interruption band of the machine type of s as evidence.
func published(a *spot.Advisor, s *Subject) usage.Evidence {
	band, err := a.Published(s.Type, s.Region)
	if err != nil {
		return usage.Fact("published_interruptions", "none for "+Describe(s.Resource), band.Source())
	}
	return usage.Fact("published_interruptions", band.String(), band.Source())
}
