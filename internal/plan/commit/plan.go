package commit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Plan finds the commitments that cost least in the period ahead, which begins where the
// window of the usage ends and in which its use repeats. Existing commitments that last are in
// force all the time, expired ones are not, and the plan is for the time after those that
// expire soon; what replaces them starts on the day on which they end. Idle machines come off
// first. Groups of keys that no commitment joins are searched on their own. It returns an
// error for usage that is empty or contradicts itself, for offers out of range and for sums
// that are.
func Plan(usage []Usage, offers []Offer, existing []Existing, o Options) (Report, error) {
	if !(o.Drop >= 0 && o.Drop <= 1) {
		return Report{}, fmt.Errorf("plan commitments: demand drop %v: expected 0 to 1", o.Drop)
	}
	d, held, err := open(usage, offers, existing)
	if err != nil {
		return Report{}, err
	}
	if o.Effort <= 0 {
		o.Effort = defaultEffort
	}
	o.Soon = cmp.Or(o.Soon, defaultExpirySoon)
	lasting, expiring := d.inState(held, o.Soon, Active), d.inState(held, o.Soon, Expiring)
	var all groupPlan
	for _, keys := range d.groups(offers, held) {
		part, err := d.part(keys)
		if err != nil {
			return Report{}, err
		}
		p, err := group{d: part, lasting: part.among(lasting), expiring: part.among(expiring), o: o}.plan(offers)
		if err != nil {
			return Report{}, err
		}
		all.best, all.advised = append(all.best, p.best...), append(all.advised, p.advised...)
		all.gap += p.gap
	}
	r, err := d.report(all, held, o)
	if before := len(existing) - len(held); before > 0 {
		r.CoverageNotes = append(r.CoverageNotes,
			plain.Count(before, "existing commitment")+" ended before the window: not counted")
	}
	return r, err
}

// open checks what is given, and lays it out by key and hour.
func open(usage []Usage, offers []Offer, existing []Existing) (*demand, []line, error) {
	d, err := newDemand(usage)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range offers {
		if err := o.check(); err != nil {
			return nil, nil, err
		}
		if o.TermMonths <= 0 {
			return nil, nil, fmt.Errorf("offer of %s: term of %d months: expected more than 0", o.Key, o.TermMonths)
		}
	}
	var held []line
	for _, e := range existing {
		if err := e.check(); err != nil {
			return nil, nil, err
		}
		level := e.Machines
		if e.Kind == SavingsPlan {
			level = int64(e.DollarsPerHour)
		}
		if level <= 0 || e.Kind == Reserved && level > maxMachines {
			return nil, nil, fmt.Errorf("existing commitment to %s: its size is out of range", e.Key)
		}
		if until := d.until(e.Expires); until > 0 {
			held = append(held, line{
				offer: e.Offer, keys: d.covered(e.Offer), level: level, until: until, existing: &e,
			})
		}
	}
	order(held)
	return d, held, nil
}

func (o Offer) check() error {
	switch {
	case o.Kind == Reserved && (o.Hourly < 0 || o.Upfront < 0 || o.Upfront > 0 && o.TermMonths <= 0 ||
		o.TermMonths > maxTerm):
		return fmt.Errorf("commitment to %s: its price or term is out of range", o.Key)
	case o.Kind == SavingsPlan && (o.Discount <= 0 || o.Discount >= fullDiscount || o.Hourly != 0 || o.Upfront != 0 ||
		o.TermMonths > maxTerm):
		return fmt.Errorf("commitment to %s: its discount or term is out of range, or it has a rate of its own", o.Key)
	case o.Kind != Reserved && o.Kind != SavingsPlan:
		return errors.New("commitment to " + o.Key + ": expected reserved or savings-plan")
	}
	return nil
}

// groups parts the keys so that no savings plan covers keys of two groups.
func (d *demand) groups(offers []Offer, held []line) [][]int {
	group := make([]int, len(d.keys))
	for k := range group {
		group[k] = k
	}
	join := func(keys []int) {
		for _, k := range keys {
			from, to := group[k], group[keys[0]]
			for i, g := range group {
				if g == from {
					group[i] = to
				}
			}
		}
	}
	for _, o := range offers {
		join(d.covered(o))
	}
	for _, l := range held {
		join(l.keys)
	}
	var out [][]int
	for g := range group {
		var keys []int
		for k := range group {
			if group[k] == g {
				keys = append(keys, k)
			}
		}
		if len(keys) > 0 {
			out = append(out, keys)
		}
	}
	return out
}

// part is the demand of some of the keys.
func (d *demand) part(keys []int) (*demand, error) {
	p := &demand{start: d.start, hours: d.hours}
	for _, k := range keys {
		p.keys, p.need, p.rate = append(p.keys, d.keys[k]), append(p.need, d.need[k]), append(p.rate, d.rate[k])
		p.pools, p.units = append(p.pools, d.pools[k]), append(p.units, d.units[k])
		for t, q := range d.need[k] {
			a, err := cost(d.rate[k][t], q)
			if err != nil {
				return nil, err
			}
			p.onDemand += a // at most what was added up before
		}
	}
	return p, nil
}

// among returns the lines that cover keys of the demand.
func (d *demand) among(lines []line) []line {
	var out []line
	for _, l := range lines {
		if l.keys = d.covered(l.offer); len(l.keys) > 0 {
			out = append(out, l)
		}
	}
	return slices.Clip(out)
}
