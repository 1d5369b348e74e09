package finding

import (
	"math"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// commitmentUnused finds commitments beyond the running machines: reserved instances without a
// machine to cover, and savings plans larger than all usage that they can apply to at list price.
func commitmentUnused(x *Index, s *Subject) *Draft {
	c, ok := s.Detail.(*inventory.Commitment)
	if !ok || !active(s, c, x.Now) {
		return nil
	}
	if c.CommitmentType == inventory.ReservedInstances {
		return x.reservedUnused(s, c)
	}
	return x.planUnused(s, c)
}

// reservedUnused compares running with reserved machines. Reservations of a family that cover any
// size are counted in normalized units.
func (x *Index) reservedUnused(s *Subject, c *inventory.Commitment) *Draft {
	if c.Count <= 0 || c.Platform == "" || !x.readEverywhere(s.Region, inventory.KindInstance) {
		return nil
	}
	own := fleet{s.Cloud, s.Account, s.Region, s.Type, c.Platform}
	f := x.cover.fleets[own]
	if f == nil {
		return nil
	}
	var unused, of int64
	switch {
	case c.Zonal:
		of = f.zonal[s.Zone]
		unused = of - f.running[s.Zone] - x.cover.elsewhere(own)
	case c.Platform == inventory.LinuxPlatform &&
		x.cover.families[[4]string{s.Cloud, s.Account, s.Region, price.Family(s.Type)}] != nil:
		var known bool
		if unused, of, known = x.familyUnused(s); !known {
			return nil
		}
	default:
		of = f.regional
		unused = f.regionalUnused() - x.cover.elsewhere(own)
	}
	if unused <= 0 || of <= 0 {
		return nil
	}
	part := float64(unused) / float64(of)
	d := &Draft{Finding: Finding{
		Confidence: Medium, // another account of the organization may use it
		Because: plain.Share(part, 0) + " of " + plain.Count(c.Count, "reserved instance") + " of " + s.Type +
			" cover nothing",
		Evidence: []usage.Evidence{Fact(s, "reserved", plain.Decimal(float64(c.Count), 0)),
			Fact(s, "unused_share", plain.Decimal(part, 2))},
		Fix: Fix{Change: change.Change{Verb: change.UseCommitment}, Risk: Low, Undo: UndoFull,
			Note: "run such machines under it, exchange it, or sell it on the provider's marketplace; it costs " +
				"until it ends"},
	}}
	if !c.EndsAt.IsZero() {
		d.Evidence = append(d.Evidence, Aged(s, "ends_in", c.EndsAt.Sub(x.Now)))
	}
	d.Unknown = "depends on whether it can be used, exchanged or sold"
	d.ClaimShare(s, "", unused, of, WasteAndSavings)
	return d
}

// familyUse counts, in units, the reservations of a family for any size and the running machines
// that no zonal reservation covers.
type familyUse struct {
	reserved, running int64
	// unsized is true if some size has no known units.
	unsized bool
}

// familyUses counts the Linux machines and reserved instances of each cloud, region and family by
// account, once.
func (x *Index) familyUses() map[[3]string]map[string]*familyUse {
	if x.families != nil {
		return x.families
	}
	x.families = map[[3]string]map[string]*familyUse{}
	use := func(cloud, region, account, machineType string) (*familyUse, int64) {
		k := [3]string{cloud, region, price.Family(machineType)}
		if x.families[k] == nil {
			x.families[k] = map[string]*familyUse{}
		}
		if x.families[k][account] == nil {
			x.families[k][account] = &familyUse{}
		}
		return x.families[k][account], price.SizeFactor(machineType)
	}
	for i := range x.subjects {
		o := &x.subjects[i]
		if d, ok := onDemand(o); ok && d.Platform == inventory.LinuxPlatform {
			u, units := use(o.Cloud, o.Region, o.Account, o.Type)
			u.running, u.unsized = u.running+units, u.unsized || units == 0
		}
		if d, ok := o.Detail.(*inventory.Commitment); ok &&
			d.CommitmentType == inventory.ReservedInstances && !d.Zonal &&
			d.Platform == inventory.LinuxPlatform && active(o, d, x.Now) {
			u, units := use(o.Cloud, o.Region, o.Account, o.Type)
			u.reserved, u.unsized = u.reserved+d.Count*units, u.unsized || units == 0
		}
	}
	for k, f := range x.cover.fleets {
		if k.platform != inventory.LinuxPlatform {
			continue
		}
		for zone, n := range f.running {
			u, units := use(k.cloud, k.region, k.account, k.machineType)
			u.running -= min(n, f.zonal[zone]) * units
		}
	}
	return x.families
}

// familyUnused returns the units of a family that an account reserved for any size and that no
// account uses, and whether all sizes are known.
func (x *Index) familyUnused(s *Subject) (unused, of int64, known bool) {
	for account, u := range x.familyUses()[[3]string{s.Cloud, s.Region, price.Family(s.Type)}] {
		switch {
		case u.unsized:
			return 0, 0, false
		case account == s.Account:
			of = u.reserved
			unused += u.reserved - u.running
		default:
			unused -= max(0, u.running-u.reserved)
		}
	}
	return unused, of, true
}

// planUnused finds savings plans that cost more than the list price of everything they could apply
// to, so that part of each is surely unused.
func (x *Index) planUnused(s *Subject, c *inventory.Commitment) *Draft {
	var p *plan
	for _, q := range x.cover.plans {
		if q.Commitment == c {
			p = q
		}
	}
	if p == nil || !p.known || p.monthly <= 0 || len(x.account.Unread) > 0 {
		return nil
	}
	var usable money.Amount
	for i := range x.subjects {
		o := &x.subjects[i]
		if !p.covers(o) {
			continue
		}
		cost, unpriced := x.Cost(o, ledger.Compute)
		if unpriced != "" {
			return nil // it may use the whole plan
		}
		usable = x.amount(usable.Add(cost))
	}
	if usable >= p.monthly {
		return nil
	}
	part := money.Ratio(p.monthly-usable, p.monthly)
	d := &Draft{Finding: Finding{
		Confidence: Medium, // functions, containers and other accounts may use it
		Because:    "at least " + plain.Share(part, 0) + " of the savings plan is used by no machine",
		Evidence: []usage.Evidence{
			Fact(s, "unused_share_at_least", plain.Decimal(part, 2)), Priced("plan_monthly_usd", p.monthly, "billing"),
			Priced("usable_at_list_monthly_usd", usable, "price book")},
		Fix: Fix{
			Change: change.Change{Verb: change.UseCommitment}, Risk: Low, Undo: UndoFull,
			Note: "move work under it; it costs until it ends",
		},
	}}
	d.Unknown = "depends on whether work can be moved under it"
	d.ClaimShare(s, "", int64(p.monthly-usable), int64(p.monthly), WasteAndSavings)
	return d
}

// reservationUnused finds capacity reservations with over a tenth unused for a week or, without
// that metric, unused now.
func reservationUnused(x *Index, s *Subject) *Draft {
	c, ok := s.Detail.(*inventory.CapacityReservation)
	if !ok || c.Total <= 0 || c.Available <= 0 {
		return nil
	}
	d := &Draft{Finding: Finding{
		Confidence: High,
		Fix: Fix{Change: change.Change{Verb: change.ModifyReservation}, Risk: Medium, Undo: UndoNone,
			Note: "capacity that is given back may not be had again"},
	}}
	spare, unused := float64(c.Available), float64(c.Available)
	w := s.Window
	var used *usage.Stats
	if w != nil {
		used = w.Machine.Stats(usage.Capacity)
	}
	if Spans(w, x.Thresholds.ReservationWindow) && x.Covered(w, used) && w.Fresh(used, x.Now) {
		mean, err := used.Mean()
		if err != nil {
			return nil
		}
		unused, spare = float64(c.Total)-mean, float64(c.Total)-math.Ceil(used.Max)
		d.Evidence = []usage.Evidence{
			Sampled("used_mean", plain.Decimal(mean, 1), w, used),
			Sampled("used_max", plain.Decimal(used.Max, 0), w, used),
		}
	} else {
		if age, known := x.Age(s); !known || age < x.Thresholds.ReservationWindow {
			return nil
		}
		d.Confidence = Medium
		d.Evidence = []usage.Evidence{Fact(s, "available", plain.Decimal(float64(c.Available), 0))}
	}
	part := unused / float64(c.Total)
	if part <= x.Thresholds.ReservationUnused {
		return nil
	}
	d.Because = plain.Share(part, 0) + " of " + plain.Count(c.Total, "reserved machine") + " unused"
	d.Evidence = append(d.Evidence, Fact(s, "total", plain.Decimal(float64(c.Total), 0)))
	if c.Block {
		d.Fix = Fix{
			Change: change.Change{Verb: change.UseCommitment}, Risk: Low, Undo: UndoFull,
			Note: "paid up front until it ends: run work in it",
		}
	}
	// The charge is for the part unused now. The part unused all week is waste, and the part that
	// no peak needed can be released.
	const parts = 1000
	now := c.Available * parts
	d.ClaimShare(s, "", int64(math.Round(min(unused, float64(c.Available))*parts)), now, WasteOnly)
	d.ClaimShare(s, "", int64(math.Round(min(max(spare, 0), float64(c.Available))*parts)), now, SavingsOnly)
	if d.Fix.Change.Verb == change.ModifyReservation && spare > 0 {
		d.Fix.Change.Arguments.Count = new(c.Total - int64(spare))
	}
	if spare <= 0 {
		d.Unknown = "all of it was in use at times"
	}
	return d
}
