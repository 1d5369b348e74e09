package estimate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Place is a location with stated rates for sessions on machines outside of the price book.
type Place struct {
	// Machine is the machine, Region its location; empty if unnamed.
	Machine, Region string
	// Hourly is the hourly price of a machine; nil if there is none.
	Hourly *money.Rate
	// Source is the source of the price, AsOf its date.
	Source string
	AsOf   time.Time
	// Missing is the advice for a missing price; empty means to state it.
	Missing string
}

// At estimates a session at a place until its lease ends. Without a price the amounts are empty and
// the cost is open, so that the gate asks.
func At(s *spec.Spec, p Place) (*Estimate, error) {
	limit, by := s.Cap()
	if limit <= 0 {
		return nil, fmt.Errorf("estimate %s: nothing says how long it runs", s.Name)
	}
	n := int64(s.Resources.Nodes)
	e := &Estimate{
		Kind: string(s.Kind), Name: s.Name, SpecHash: s.Hash(), Owner: s.Owner, Purpose: s.Purpose, Region: p.Region,
		Machines: s.Resources.Nodes,
		Machine: &Machine{
			Type: p.Machine, Capacity: s.Capacity, Count: s.Resources.Nodes,
			GPU: s.Resources.GPU, GPUs: s.Resources.GPUs,
		},
		Duration: &Duration{
			P50: durationText(limit), P95: durationText(limit), Basis: Capped, Cap: durationText(limit), CapBy: by,
			p50: limit, p95: limit, limit: limit,
		},
		Assumptions:   []string{fmt.Sprintf("it runs until %s ends it", by)},
		CoverageNotes: []string{"the machine alone; power, network and its disks are in its rate or not counted"},
		Changes:       []string{}, Unknown: []string{}, Lines: []Line{}}
	if s.Resources.GPUs > 0 {
		e.GPUs = map[string]int{s.Resources.GPU: s.Resources.GPUs * s.Resources.Nodes}
	}
	if p.Hourly == nil {
		why := fmt.Sprintf("the price of %s: %s", p.Machine,
			cmp.Or(p.Missing, "state it under machines and rates in curfew.yaml"))
		e.Unknown, e.Open = []string{why}, []string{why}
		e.Title = fmt.Sprintf("%s: %d × %s for %s, without a price", s.Name, n, p.Machine, plain.Duration(limit))
		return e, nil
	}
	cost, err := p.Hourly.For(seconds(limit)*n, hour)
	if err == nil {
		e.Hourly, err = p.Hourly.Times(n)
	}
	if err != nil {
		return nil, fmt.Errorf("estimate %s: %w", s.Name, err)
	}
	e.P50, e.P95 = cost, cost
	hours := quantity(seconds(limit)*n, hour)
	e.Lines = []Line{
		{
			What: p.Machine, Quantity: hours, QuantityP95: hours, Unit: "machine-hour",
			UnitPrice: *p.Hourly, P50: cost,
			P95: cost, Source: p.Source, AsOf: p.AsOf.Format(time.DateOnly),
		},
	}
	e.Title = fmt.Sprintf("%s: at most %s: %d × %s for %s", s.Name, cost.Dollars(), n,
		p.Machine, plain.Duration(limit))
	return e, nil
}

// Leeway raises the p95 and hourly price to those of the most expensive alternative whose hourly
// price is at most a percentage higher, for launches that fall back to it. The p50 stays.
func (e *Estimate) Leeway(percent int64) error {
	most, err := e.Hourly.Mul(100+percent, 100)
	if err != nil {
		return fmt.Errorf("estimate %s: %w", e.Name, err)
	}
	var top *Alternative
	for i := range e.Alternatives {
		a := &e.Alternatives[i]
		if a.Unknown == 0 && a.Hourly <= most && a.Hourly > e.Hourly && a.P95 > e.P95 &&
			(top == nil || a.Hourly > top.Hourly) {
			top = a
		}
	}
	if top == nil {
		return nil
	}
	what := fmt.Sprintf("another machine where there is no capacity, at most %s in %s", top.Type, top.Region)
	more := top.P95 - e.P95
	price, err := more.Rate()
	if err != nil {
		return fmt.Errorf("estimate %s: %w", e.Name, err)
	}
	e.Lines = append(e.Lines, Line{
		What: what, Quantity: "0", QuantityP95: "1", Unit: "run", UnitPrice: price, P95: more,
		Source: "the alternative's estimate", AsOf: e.Lines[0].AsOf,
	})
	e.Title = strings.Replace(e.Title, " to "+e.P95.Dollars()+" (p95)", " to "+top.P95.Dollars()+" (p95)", 1)
	e.P95, e.Hourly = top.P95, top.Hourly
	e.Assumptions = append(e.Assumptions,
		fmt.Sprintf(
			"the cheapest machine that has capacity is taken; the p95 and the price of an hour are those of %s",
			top.Type))
	return nil
}
