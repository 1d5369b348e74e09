package price

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Change is a price that an update added or replaced.
type Change struct {
	// Old is the previous entry; zero if there was none.
	Old, New Entry
	// Note is a remark on the new price, or empty.
	Note string
}

// Same reports whether only the source or the date changed.
func (c Change) Same() bool {
	return c.Old.Cloud != "" && samePrice(c.Old.Price, c.New.Price)
}

// Refusal is a rejected price with the reason. The book keeps its old price.
type Refusal struct {
	Entry  Entry
	Reason string
}

// Update returns b with the plausible entries added, the changes and the refusals, each in the
// order of the book. b is unchanged. Zone prices are merged to the region's median, and partial
// prices of some catalogs are added up. A price is refused by the rules of [DefaultBands].
func (b *Book) Update(entries iter.Seq[Entry]) (next *Book, accepted []Change, refused []Refusal) {
	return b.UpdateWithin(DefaultBands(), entries)
}

// UpdateWithin is like Update with other bands.
func (b *Book) UpdateWithin(bands Bands, entries iter.Seq[Entry]) (next *Book, accepted []Change, refused []Refusal) {
	u := &update{book: b, bands: bands}
	for e := range entries {
		if e.Term == "" {
			e.Term = OnDemand
		}
		if a, ok := b.Accelerator(e.Accelerator); ok {
			e.Accelerator = a.Name
		}
		if m, ok := b.machines[e.Type]; ok && e.Accelerator == "" && e.Cloud == m.Cloud {
			e.Accelerator, e.AcceleratorMilli = m.Accelerator, m.AcceleratorMilli
		}
		u.rows = append(u.rows, &candidate{Entry: e})
	}
	u.check((*update).intrinsic)
	u.tiers()
	u.repeated()
	u.mergeDuplicates()
	u.zones()
	u.mergeDuplicates() // a region's row alongside those of its zones
	u.apply((*update).discount)
	u.apply((*update).acrossRegions)
	u.joinParts()
	u.apply((*update).discount)
	u.check((*update).againstOld)
	u.apply((*update).againstPeers)

	next = &Book{
		machines: b.machines, catalog: b.catalog, accelerators: b.accelerators, base: b.base,
		overlay: maps.Clone(b.overlay),
	}
	if next.overlay == nil {
		next.overlay = map[key]Entry{}
	}
	onDemand := u.opposites()
	for _, c := range u.rows {
		if c.reason != "" {
			refused = append(refused, Refusal{Entry: c.Entry, Reason: c.reason})
			continue
		}
		if c.merged {
			continue
		}
		old, _ := b.held(c.key())
		e := c.Entry
		e.Zone, e.Line, e.Price.AsOf = "", 0, day(e.Price.AsOf)
		next.overlay[c.key()] = e
		accepted = append(accepted, Change{Old: old, New: e, Note: note(e, old, onDemand(c))})
	}
	slices.SortStableFunc(accepted, func(x, y Change) int { return compareKeys(x.New.key(), y.New.key()) })
	slices.SortStableFunc(refused, func(x, y Refusal) int {
		return cmp.Or(compareKeys(x.Entry.key(), y.Entry.key()), cmp.Compare(x.Entry.Line, y.Entry.Line))
	})
	return next, accepted, refused
}

// update is the state of one update.
type update struct {
	book  *Book
	bands Bands
	rows  []*candidate
}

// candidate is an entry of an update.
type candidate struct {
	Entry
	// reason is the reason for refusal; empty while it is accepted.
	reason string
	// merged is true when it became part of another candidate.
	merged bool
}

func (c *candidate) live() bool { return c.reason == "" && !c.merged }

// accepted returns the candidates that are neither refused nor merged.
func (u *update) accepted() iter.Seq[*candidate] {
	return func(yield func(*candidate) bool) {
		for _, c := range u.rows {
			if c.live() && !yield(c) {
				return
			}
		}
	}
}

// check refuses the candidates for which the rule returns a reason.
func (u *update) check(rule func(*update, *candidate) string) {
	u.apply(func(u *update) func(*candidate) string {
		return func(c *candidate) string { return rule(u, c) }
	})
}

// apply evaluates all candidates before it refuses any, so that the order of rows does not matter.
// prepare collects the data that the rule compares with.
func (u *update) apply(prepare func(*update) func(*candidate) string) {
	rule := prepare(u)
	reasons := map[*candidate]string{}
	for c := range u.accepted() {
		if r := rule(c); r != "" {
			reasons[c] = r
		}
	}
	for c, r := range reasons {
		c.reason = r
	}
}

// place identifies the priced unit of a candidate, with parts and zones distinct.
type place struct {
	key
	zone, accelerator string
	milli             int64
	part              Part
}

func (c *candidate) place() place {
	p := place{key: c.key(), zone: c.Zone, part: c.Part}
	if c.Part != Whole {
		p.accelerator, p.milli = c.Accelerator, c.AcceleratorMilli
	}
	return p
}

// mergeDuplicates merges equal rows and refuses rows with different prices for one unit.
func (u *update) mergeDuplicates() {
	byPlace := map[place][]*candidate{}
	for c := range u.accepted() {
		byPlace[c.place()] = append(byPlace[c.place()], c)
	}
	for _, same := range byPlace {
		differ := slices.ContainsFunc(same, func(c *candidate) bool {
			return !samePrice(c.Price, same[0].Price) || !sameMachine(c, same[0])
		})
		for _, c := range same[1:] {
			c.merged = !differ
		}
		if differ {
			for _, c := range same {
				c.reason = "the source gives it two different prices or accelerators"
			}
		}
	}
}

// sameMachine reports whether two rows have the same accelerators.
func sameMachine(x, y *candidate) bool {
	return x.Accelerator == y.Accelerator && x.AcceleratorMilli == y.AcceleratorMilli
}

// tiers adds separately listed tiers to the price from the first unit on.
func (u *update) tiers() {
	type tiered struct {
		key
		zone string
	}
	above := map[tiered][]*candidate{}
	for c := range u.accepted() {
		if c.Above > 0 {
			k := tiered{c.key(), c.Zone}
			above[k] = append(above[k], c)
		}
	}
	for c := range u.accepted() {
		k := tiered{c.key(), c.Zone}
		if c.Above > 0 || len(above[k]) == 0 {
			continue
		}
		slices.SortStableFunc(above[k], func(x, y *candidate) int { return cmp.Compare(x.Above, y.Above) })
		c.Price.Tiers = slices.Clone(c.Price.Tiers)
		for _, t := range above[k] {
			c.Price.Tiers = append(c.Price.Tiers, Tier{Above: t.Above, Rate: t.Price.Rate})
			t.merged = true
		}
		if err := c.checkComplete(); err != nil {
			c.reason = err.Error()
		}
	}
	for c := range u.accepted() {
		if c.Above > 0 {
			c.reason = fmt.Sprintf("the price above %d is there, and the price from the first unit on is not", c.Above)
		}
	}
}

// maxZoneRatio is the maximum factor between two zones for which their mean represents the region; two
// values have no median that shows which is wrong.
const maxZoneRatio = 3

// zones replaces the zones of a region by one candidate, their median.
func (u *update) zones() {
	byRegion := map[place][]*candidate{}
	var order []place
	for c := range u.accepted() {
		if c.Zone == "" {
			continue
		}
		p := c.place()
		p.zone = ""
		if byRegion[p] == nil {
			order = append(order, p)
		}
		byRegion[p] = append(byRegion[p], c)
	}
	for _, p := range order {
		zones := byRegion[p]
		slices.SortStableFunc(zones, func(x, y *candidate) int { return cmp.Compare(x.Price.Rate, y.Price.Rate) })
		low, high := zones[(len(zones)-1)/2], zones[len(zones)/2]
		if slices.ContainsFunc(zones, func(c *candidate) bool { return !sameMachine(c, low) }) {
			for _, c := range zones {
				c.reason = "the source gives its zones different accelerators"
			}
			continue
		}
		if len(zones) == 2 && apart(low.Price.Rate, high.Price.Rate, maxZoneRatio) {
			for _, c := range zones {
				c.reason = fmt.Sprintf(
					"its two zones are more than %d times apart (%s and %s): neither stands for the region",
					maxZoneRatio, low.Price.Rate, high.Price.Rate)
			}
			continue
		}
		for _, c := range zones {
			c.merged = c != low
		}
		low.Zone = ""
		low.Price.Rate += (high.Price.Rate - low.Price.Rate) / 2
		if len(zones) > 1 {
			low.Price.Source += "; median over zones"
		}
	}
}

// joinParts adds the price of a machine without its GPU and that of the GPU.
func (u *update) joinParts() {
	type half struct {
		cloud, region, accelerator string
		milli                      int64
		term                       Term
	}
	of := func(c *candidate) half {
		return half{c.Cloud, c.Region, c.Accelerator, c.AcceleratorMilli, c.Term}
	}
	gpus := map[half]*candidate{}
	for c := range u.accepted() {
		if c.Part == GPUAlone {
			gpus[of(c)] = c
		}
	}
	used := map[*candidate]bool{}
	var whole []*candidate
	for c := range u.accepted() {
		if c.Part != WithoutGPU {
			continue
		}
		gpu, ok := gpus[of(c)]
		if !ok {
			c.reason = "half a price: it is without its GPU, whose price is missing or was refused"
			continue
		}
		sum := c.Price.Rate + gpu.Price.Rate
		if sum < c.Price.Rate {
			c.reason = money.ErrOverflow.Error()
			continue
		}
		e := c.Entry
		e.Part, e.Price.Rate = Whole, sum
		e.Price.Source += "; machine and GPU added"
		whole = append(whole, &candidate{Entry: e})
		c.merged, used[gpu] = true, true
	}
	for _, gpu := range gpus {
		if used[gpu] {
			gpu.merged = true
		} else {
			gpu.reason = "half a price: it is a GPU alone, and the machine that holds it has no price here"
		}
	}
	u.rows = append(u.rows, whole...)
}

// note returns a remark on an accepted price; other is the price of the other term, on-demand for
// spot.
func note(e, old Entry, other money.Rate) string {
	switch {
	case e.Term == Spot && !apart(e.Price.Rate, other/10, equalWithin):
		return "a tenth of on-demand: in a quiet zone that may be the provider's floor"
	case e.Term == Spot && e.Service == Compute && other == 0:
		return "there is no on-demand price to hold it against"
	case old.Cloud != "" && e.Price.AsOf.Before(old.Price.AsOf):
		return fmt.Sprintf("its date, %s, is before that of the price it replaces", e.Price.AsOf.Format(time.DateOnly))
	}
	return ""
}
