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

// Change is a price that an update brought in.
type Change struct {
	// Old is the entry that was held before; its zero value when there was none.
	Old, New Entry
	// Note is a remark on the new price; empty when there is none.
	Note string
}

// Same reports whether only the source or the date changed.
func (c Change) Same() bool {
	return c.Old.Cloud != "" && samePrice(c.Old.Price, c.New.Price)
}

// Refusal is a price that was not taken, and why. What the book held stays.
type Refusal struct {
	Entry  Entry
	Reason string
}

// Update returns a book with the plausible ones of entries over b, what was
// accepted and what was refused, each in the order of the book. b stays as it is.
// The prices of zones are made one price of their region, the median; the halves
// of prices that some catalogs state are added. A price is refused by the rules
// of [DefaultBands].
func (b *Book) Update(entries iter.Seq[Entry]) (next *Book, accepted []Change, refused []Refusal) {
	return b.UpdateWithin(DefaultBands(), entries)
}

// UpdateWithin is Update with other bands.
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
	u.twice()
	u.zones()
	u.twice() // a region's own row in addition to those of its zones
	u.judge((*update).discount)
	u.judge((*update).acrossRegions)
	u.halves()
	u.judge((*update).discount)
	u.check((*update).againstOld)
	u.judge((*update).againstPeers)

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

// update is one update on its way through the checks.
type update struct {
	book  *Book
	bands Bands
	rows  []*candidate
}

// candidate is an entry of an update.
type candidate struct {
	Entry
	// reason is why it is refused; empty while it is not.
	reason string
	// merged is true when it became part of another candidate.
	merged bool
}

func (c *candidate) live() bool { return c.reason == "" && !c.merged }

// living are the candidates that nothing was found against.
func (u *update) living() iter.Seq[*candidate] {
	return func(yield func(*candidate) bool) {
		for _, c := range u.rows {
			if c.live() && !yield(c) {
				return
			}
		}
	}
}

// check refuses those for which the rule has a reason.
func (u *update) check(rule func(*update, *candidate) string) {
	u.judge(func(u *update) func(*candidate) string {
		return func(c *candidate) string { return rule(u, c) }
	})
}

// judge looks at all before it refuses any, so that the order of the rows does not
// matter. prepare gathers what the rule compares with.
func (u *update) judge(prepare func(*update) func(*candidate) string) {
	rule := prepare(u)
	reasons := map[*candidate]string{}
	for c := range u.living() {
		if r := rule(c); r != "" {
			reasons[c] = r
		}
	}
	for c, r := range reasons {
		c.reason = r
	}
}

// place identifies the priced unit of a candidate, halves and zones apart.
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

// twice merges equal rows and refuses rows that give one thing two prices.
func (u *update) twice() {
	byPlace := map[place][]*candidate{}
	for c := range u.living() {
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

// sameMachine reports whether two rows run on the same accelerators.
func sameMachine(x, y *candidate) bool {
	return x.Accelerator == y.Accelerator && x.AcceleratorMilli == y.AcceleratorMilli
}

// tiers adds the tiers that a source states by themselves to the price from the first unit on.
func (u *update) tiers() {
	type tiered struct {
		key
		zone string
	}
	above := map[tiered][]*candidate{}
	for c := range u.living() {
		if c.Above > 0 {
			k := tiered{c.key(), c.Zone}
			above[k] = append(above[k], c)
		}
	}
	for c := range u.living() {
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
		if err := c.whole(); err != nil {
			c.reason = err.Error()
		}
	}
	for c := range u.living() {
		if c.Above > 0 {
			c.reason = fmt.Sprintf("the price above %d is there, and the price from the first unit on is not", c.Above)
		}
	}
}

// farZones is how far apart two zones may be for their middle to stand for the
// region: with two there is no median to tell which is odd.
const farZones = 3

// zones makes one candidate of a region's zones, at their median.
func (u *update) zones() {
	byRegion := map[place][]*candidate{}
	var order []place
	for c := range u.living() {
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
		if len(zones) == 2 && apart(low.Price.Rate, high.Price.Rate, farZones) {
			for _, c := range zones {
				c.reason = fmt.Sprintf(
					"its two zones are more than %d times apart (%s and %s): neither stands for the region",
					farZones, low.Price.Rate, high.Price.Rate)
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

// halves adds the price of a machine without its GPU and that of the GPU.
func (u *update) halves() {
	type half struct {
		cloud, region, accelerator string
		milli                      int64
		term                       Term
	}
	of := func(c *candidate) half {
		return half{c.Cloud, c.Region, c.Accelerator, c.AcceleratorMilli, c.Term}
	}
	gpus := map[half]*candidate{}
	for c := range u.living() {
		if c.Part == GPUAlone {
			gpus[of(c)] = c
		}
	}
	used := map[*candidate]bool{}
	var whole []*candidate
	for c := range u.living() {
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

// note returns a remark on an accepted price; other is its opposite, on-demand for spot.
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
