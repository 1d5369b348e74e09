package estimate

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"sort"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

const (
	gib     = 1 << 30
	hour    = 3600 // seconds
	monthly = money.HoursPerMonth * hour
)

// outcome is the cost of a candidate.
type outcome struct {
	candidate
	work             work
	lines            []Line
	p50, p95, hourly money.Amount
	// uncappedCost is the cost of the usual course without max_cost, or of an hour of it where
	// nothing else ends it: machines are compared by it.
	uncappedCost money.Amount
	duration     Duration
	unknown      []string
	// openCosts is the part of unknown that may be large.
	openCosts []string
	// unsizedTransfers is how many transfers from other regions could not be priced for want
	// of a size. A machine that needs none is preferred.
	unsizedTransfers int
}

// scenario is one possible course of a run: how long each machine is paid, how it is bought, and
// the number of restarts.
type scenario struct {
	spot     bool
	wall     time.Duration
	restarts int
}

// price computes the cost of a candidate.
func (c *chooser) price(o *outcome) error {
	disk, err := c.book.Rate(c.params.Defaults.Disk, o.region)
	if err != nil {
		return notKnown(fmt.Sprintf("price of the disk (%s) in %s", c.params.Defaults.Disk, o.region))
	}
	limit, by := c.spec.Cap()
	if limit == 0 {
		limit = noLimit
	}
	spent := c.spec.MaxCost > 0 && o.work.p95 == noLimit // only max_cost limits it
	if spent {
		longest := scenario{spot: o.hasSpot && c.spec.Capacity != spec.OnDemand, wall: limit}
		most := c.longest(longest, func(x scenario) (money.Amount, error) { return c.paid(o, disk, x) })
		o.work.p95 = min(o.work.p95, most)
		if o.work.basis == Capped {
			o.work.p50 = min(o.work.p50, most)
		}
		o.work.p95 = max(o.work.p50, o.work.p95)
	}
	usual, worst := c.courses(o, limit)
	whole := usual
	if limit == noLimit && o.work.basis == Capped {
		whole = scenario{spot: usual.spot, wall: time.Hour}
	}
	if o.uncappedCost, err = c.total(o, disk, whole); err != nil {
		return err
	}
	if c.spec.MaxCost > 0 {
		if err := c.afford(o, disk, &usual); err != nil {
			return err
		}
		wanted := worst.wall
		if err := c.afford(o, disk, &worst); err != nil {
			return err
		}
		if spent || worst.wall < wanted {
			limit, by = worst.wall, "max_cost"
		}
		o.work.exceedsCap = o.work.exceedsCap || o.work.basis != Capped && usual.wall < o.work.p50
	}
	p50, err := c.total(o, disk, usual)
	if err != nil {
		return err
	}
	p95, err := c.total(o, disk, worst)
	if err != nil {
		return err
	}
	if p95 < p50 { // both end by max_cost, each at a whole second
		worst = usual
	}
	o.duration = Duration{
		P50: durationText(usual.wall), P95: durationText(worst.wall), Basis: o.work.basis, Runs: o.work.runs,
		RestartsP50: usual.restarts, RestartsP95: worst.restarts, p50: usual.wall, p95: worst.wall}
	if by != "" {
		limit = max(limit, usual.wall)
		o.duration.Cap, o.duration.CapBy, o.duration.limit = durationText(limit), by, limit
	}
	if err := c.timed(o, disk, usual, worst); err != nil {
		return err
	}
	if err := c.fixed(o, usual, worst); err != nil {
		return err
	}
	if o.p50, o.p95, err = sum(o.lines); err != nil {
		return err
	}
	o.hourly, err = c.paid(o, disk, scenario{spot: c.spec.Capacity == spec.Spot, wall: time.Hour})
	return err
}

// afford shortens a scenario to the time that max_cost pays for.
func (c *chooser) afford(o *outcome, disk price.Price, x *scenario) error {
	most := c.longest(*x, func(x scenario) (money.Amount, error) { return c.total(o, disk, x) })
	if most <= 0 {
		extras, err := c.extras(o, scenario{restarts: x.restarts})
		if err != nil {
			return err
		}
		return fmt.Errorf(
			"estimate %s: max_cost of $%s does not pay for a second: the costs without the machines are already $%s",
			c.spec.Name, c.spec.MaxCost, extras)
	}
	x.wall = most
	return nil
}

// extras returns the cost of a scenario without machine time.
func (c *chooser) extras(o *outcome, x scenario) (money.Amount, error) {
	trial := outcome{candidate: o.candidate}
	if err := c.fixed(&trial, x, x); err != nil {
		return 0, err
	}
	amount, _, err := sum(trial.lines)
	return amount, err
}

// total returns the whole cost of a scenario.
func (c *chooser) total(o *outcome, disk price.Price, x scenario) (money.Amount, error) {
	paid, err := c.paid(o, disk, x)
	if err != nil {
		return 0, err
	}
	extras, err := c.extras(o, x)
	if err != nil {
		return 0, err
	}
	return paid.Add(extras)
}

// courses returns the scenarios at the p50 and p95. Where spot capacity may run out, the p95 is the
// more expensive of many interruptions and no spot capacity at all.
func (c *chooser) courses(o *outcome, limit time.Duration) (usual, worst scenario) {
	if !o.hasSpot || c.spec.Capacity == spec.OnDemand {
		return scenario{wall: min(o.work.p50, limit)}, scenario{wall: min(o.work.p95, limit)}
	}
	w50, w95, n50, n95 := c.ordeal(o.count).duration(o.work)
	usual, worst = scenario{true, min(w50, limit), n50}, scenario{true, min(w95, limit), n95}
	if c.spec.Capacity == spec.Auto {
		plain := scenario{wall: min(o.work.p95, limit)}
		if float64(o.onDemand.Rate)*float64(plain.wall) >= float64(o.spot.Rate)*float64(worst.wall) {
			plain.restarts = n95 // before the last spot machine was lost
			worst = plain
		}
	}
	return usual, worst
}

// timed adds the costs of machine time.
func (c *chooser) timed(o *outcome, disk price.Price, usual, worst scenario) error {
	for _, way := range []struct {
		spot bool
		name string
		p    price.Price
	}{{true, "on spot", o.spot}, {false, "on demand", o.onDemand}} {
		var n [2]int64
		for i, x := range []scenario{usual, worst} {
			if x.spot == way.spot {
				n[i] = seconds(x.wall) * int64(o.count)
			}
		}
		if n != [2]int64{} {
			if err := o.add(fmt.Sprintf("%d × %s %s in %s", o.count, o.machine.Type, way.name,
				o.region), way.p, n[0], n[1],
				hour); err != nil {
				return err
			}
		}
	}
	size := c.disk() * int64(o.count)
	return o.add(fmt.Sprintf("%d × %d GiB of root disk (%s)", o.count, c.disk(),
		strings.TrimPrefix(string(c.params.Defaults.Disk), "ebs:")), disk,
		size*seconds(usual.wall), size*seconds(worst.wall), monthly)
}

// disk returns the size of a machine's root disk in GiB.
func (c *chooser) disk() int64 {
	if c.spec.DiskGiB > 0 {
		return c.spec.DiskGiB
	}
	return c.params.Defaults.DiskGiB
}

// paid returns the cost of a scenario's machines and disks.
func (c *chooser) paid(o *outcome, disk price.Price, x scenario) (money.Amount, error) {
	machine := o.onDemand
	if x.spot {
		machine = o.spot
	}
	n := seconds(x.wall) * int64(o.count)
	a, err := machine.Cost(n, hour)
	if err != nil {
		return 0, err
	}
	b, err := disk.Cost(n*c.disk(), monthly)
	if err != nil {
		return 0, err
	}
	return a.Add(b)
}

// longest returns the longest time up to that of a scenario, in whole seconds, that max_cost pays
// for.
func (c *chooser) longest(x scenario, cost func(scenario) (money.Amount, error)) time.Duration {
	n := sort.Search(int(seconds(x.wall)), func(i int) bool {
		paid, err := cost(scenario{spot: x.spot, wall: time.Duration(i+1) * time.Second, restarts: x.restarts})
		return err != nil || paid > c.spec.MaxCost
	})
	return min(time.Duration(n)*time.Second, x.wall)
}

// fixed adds the costs besides machine time: transfers and storage.
func (c *chooser) fixed(o *outcome, usual, worst scenario) error {
	for _, set := range c.spec.Data {
		size := set.SizeBytes
		if size == 0 {
			size = c.params.DataBytes[set.URI]
		}
		if err := c.transfer(o, transfer{
			uri: spec.Shown(set.URI), size: size, in: true, times50: 1 + int64(usual.restarts),
			times95: 1 + int64(worst.restarts),
		}); err != nil {
			return err
		}
	}
	if p := c.spec.Checkpoint; p != nil {
		size := p.SizeBytes
		if size == 0 {
			size = c.params.CheckpointBytes
		}
		every := c.ordeal(1).saveInterval
		if err := c.transfer(o, transfer{
			uri: spec.Shown(p.To), size: size, times50: int64(usual.wall / every), times95: int64(worst.wall / every),
		}); err != nil {
			return err
		}
		// It is read back after each interruption. What is unknown is said above.
		if name, _ := Bucket(p.To); size > 0 && c.params.DataRegions[name] != "" && worst.restarts > 0 {
			if err := c.transfer(o, transfer{
				uri: spec.Shown(p.To), size: size, in: true, times50: int64(usual.restarts),
				times95: int64(worst.restarts),
			}); err != nil {
				return err
			}
		}
		if err := c.kept(o, p.To, "checkpoint", size, int64(p.Keep)); err != nil {
			return err
		}
	}
	if a := c.spec.Artifacts; a != nil {
		if err := c.transfer(o, transfer{uri: spec.Shown(a.To), times50: 1, times95: 1}); err != nil {
			return err
		}
		return c.kept(o, a.To, "artifact", 0, 1)
	}
	return nil
}

// leaveOpen records a cost that is unknown and may be large.
func (o *outcome) leaveOpen(what string) {
	o.unknown, o.openCosts = append(o.unknown, what), append(o.openCosts, what)
}

// transfer is a repeated data transfer from or to a bucket.
type transfer struct {
	uri string
	// size is in bytes; 0 if unknown.
	size int64
	// in reports that the machines read the data.
	in               bool
	times50, times95 int64
}

// transfer adds the cost of moving data between regions. Within a region, and from outside of AWS
// over HTTP, it is free.
func (c *chooser) transfer(o *outcome, t transfer) error {
	name, isS3 := Bucket(t.uri)
	there := c.params.DataRegions[name]
	verb := "writing"
	if t.in {
		verb = "reading"
	}
	switch {
	case t.in && (strings.HasPrefix(t.uri, "https://") || strings.HasPrefix(t.uri, "http://")):
		return nil
	case !isS3:
		o.leaveOpen(
			fmt.Sprintf("%s %s: what its provider charges for the transfer is not in the price book", verb, t.uri))
		o.unsizedTransfers++
		return nil
	case there == o.region:
		return nil
	}
	from, to := there, o.region
	if !t.in {
		from, to = o.region, there
	}
	where := from
	if where == "" {
		where = o.region
	}
	p, err := c.book.Rate(price.ItemEgressRegion, where)
	rate := "at a price that is not known"
	if err == nil {
		rate = "at $" + p.Rate.String() + " a GiB"
	}
	switch {
	case there == "":
		o.unknown = append(o.unknown,
			fmt.Sprintf("%s %s: the region of the bucket is not known; outside %s each time is charged by the GiB, %s",
				verb,
				t.uri, o.region, rate))
		return nil // unknown in every region alike, so it favors none
	case t.size == 0:
		o.leaveOpen(
			fmt.Sprintf("%s %s from %s to %s: its size is not known; it is charged by the GiB each time, %s", verb,
				t.uri, from, to, rate))
		o.unsizedTransfers++
		return nil
	case err != nil:
		return notKnown(fmt.Sprintf("price of transfer from %s to other regions", from))
	}
	n50, ok50 := product(t.size, t.times50)
	n95, ok95 := product(t.size, t.times95)
	if !ok50 || !ok95 {
		return fmt.Errorf("estimate %s: the transfer of %s: %w", c.spec.Name, t.uri, money.ErrOverflow)
	}
	return o.add(fmt.Sprintf("%s %s from %s to %s", verb, t.uri, from, to), p, n50, n95, gib)
}

// kept adds a month of storage of the data that stays in a bucket after the run.
func (c *chooser) kept(o *outcome, uri, what string, size, copies int64) error {
	uri = spec.Shown(uri)
	name, isS3 := Bucket(uri)
	region := c.params.DataRegions[name]
	if region == "" {
		region = o.region
	}
	p, err := c.book.Rate(price.ItemS3Standard, region)
	switch {
	case !isS3:
		o.unknown = append(o.unknown,
			fmt.Sprintf("keeping %ss in %s: what its provider charges is not in the price book",
				what, uri))
		return nil
	case size == 0 && err == nil:
		o.unknown = append(o.unknown,
			fmt.Sprintf("keeping %ss in %s: their size is not known; a GiB costs $%s a month",
				what, uri, p.Rate))
		return nil
	case err != nil:
		return notKnown(fmt.Sprintf("price of S3 storage in %s", region))
	}
	n, ok := product(size, copies)
	if !ok {
		return fmt.Errorf("estimate %s: keeping %ss: %w", c.spec.Name, what, money.ErrOverflow)
	}
	return o.add(fmt.Sprintf("%d × %s kept in %s for a month", copies, what, uri), p, n, n, gib)
}

// add adds a line of n/d units.
func (o *outcome) add(what string, p price.Price, n50, n95, d int64) error {
	l, err := line(what, p, n50, n95, d)
	if err != nil {
		return err
	}
	o.lines = append(o.lines, l)
	return nil
}

// line returns a cost of n/d units.
func line(what string, p price.Price, n50, n95, d int64) (Line, error) {
	l := Line{What: what, Quantity: quantity(n50, d), QuantityP95: quantity(n95, d), Unit: p.Unit, UnitPrice: p.Rate,
		Source: p.Source, AsOf: p.AsOf.Format(time.DateOnly)}
	var err error
	if l.P50, err = p.Cost(n50, d); err == nil {
		l.P95, err = p.Cost(n95, d)
	}
	if err != nil {
		return l, fmt.Errorf("estimate %s: %w", what, err)
	}
	return l, nil
}

// quantity formats n/d with at most six digits after the point.
func quantity(n, d int64) string {
	s := big.NewRat(n, d).FloatString(6)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// product returns a × b of nonnegative numbers, and whether it fits.
func product(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo <= math.MaxInt64
}

// notKnown returns the error for a price that is not in the book.
func notKnown(what string, didYouMean ...string) error {
	if near := strings.Join(didYouMean, ""); near != "" {
		return fmt.Errorf("%s is not known%s: %w", what, near, price.ErrUnpriced)
	}
	return fmt.Errorf("%s is not known: run `curfew price update`, or allow other machines or regions: %w", what,
		price.ErrUnpriced)
}
