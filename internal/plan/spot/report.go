package spot

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/curfew-dev/curfew/internal/money"
)

// Report is a replay, in the shape of its JSON. Shares and savings are 0 to 1.
type Report struct {
	Schema string `json:"schema"`
	// WorkHours and DeadlineHours are of one case; the deadline is in whole gaps.
	WorkHours     float64 `json:"work_hours"`
	DeadlineHours float64 `json:"deadline_hours"`
	// OnDemandUSD is the on-demand cost of one case: work and restart.
	OnDemandUSD money.Amount `json:"on_demand_cost_usd"`
	// AcrossZones reports whether one case may use all zones.
	AcrossZones bool `json:"across_zones"`
	// Results are of all cases of all zones.
	Results []Result `json:"results"`
	// Zones are the same by zone; with AcrossZones there is one of all together.
	Zones []ZoneReport `json:"zones"`
	// Advisor is the published interruption band of the machine type; null if it is not read.
	Advisor *Band `json:"advisor,omitempty"`
	// Placements are the placement scores of the machine type; null if they are not read.
	Placements *Placements `json:"placement_scores,omitempty"`
	// Assumptions are those behind the figures.
	Assumptions []string `json:"assumptions"`
	// CoverageNotes are the gaps of the data.
	CoverageNotes []string `json:"coverage_notes"`
	// Changes would change the answer.
	Changes []string `json:"changes"`

	// Case is one case of curfew's strategy.
	Case Timeline `json:"-"`
}

// Result is how one strategy did.
type Result struct {
	// Name is the strategy.
	Name string `json:"name"`
	// Saving is 1 − mean cost / ((work + restart) × on-demand price); below 0 if the strategy costs
	// more than that.
	Saving float64 `json:"saving"`
	// Misses is how many cases did not end by the deadline.
	Misses int `json:"misses"`
	// Starts is how many machines were started, over all cases.
	Starts int `json:"starts"`
	// Cases are how many cases there are.
	Cases int `json:"cases"`
	// MeanCostUSD is the mean cost of a case in dollars.
	MeanCostUSD money.Amount `json:"mean_cost_usd"`
}

// ZoneReport is the results of one zone.
type ZoneReport struct {
	Name    string `json:"name"`
	Samples int    `json:"samples"`
	// Up is the share of samples in which spot was available.
	Up      float64  `json:"up_share"`
	Results []Result `json:"results"`
}

// Timeline is one case of curfew's strategy: where it ran, and when spot was available.
type Timeline struct {
	Zone string
	// Start is hours after the start of the trace, Gap the hours of a step.
	Start, Gap float64
	// Up and Ran are by step: whether spot was available, and where the case ran.
	Up  []bool
	Ran []Place
}

// Place is where a case runs in one step.
type Place int

// The places. A case that waits runs nowhere.
const (
	RanNowhere Place = iota
	RanOnDemand
	RanSpot
)

func placeOf(m machine) Place {
	switch {
	case m == onDemand:
		return RanOnDemand
	case m >= inZone:
		return RanSpot
	}
	return RanNowhere
}

// strategies are replayed, in the order of the report.
var strategies = []struct {
	name string
	make func(market, Params) strategy
}{
	{Greedy, func(market, Params) strategy { return &greedy{} }},
	{UniformProgress, func(market, Params) strategy { return &greedy{progress: true} }},
	{Curfew, func(m market, p Params) strategy { return newPlanner(m.gap, len(m.zones), p) }},
}

// Replay runs every case of a trace under each strategy, and the bound. Zones are
// replayed at the same time. An error says what of the parameters or the trace cannot
// be replayed.
func Replay(tr Trace, p Params) (Report, error) {
	if err := p.check(tr); err != nil {
		return Report{}, err
	}
	markets, err := tr.markets(p)
	if err != nil {
		return Report{}, err
	}
	tallies := make([][]strategyOutcome, len(markets))
	var g errgroup.Group
	for i, m := range markets {
		tallies[i] = make([]strategyOutcome, len(strategies)+1)
		for j, s := range strategies {
			g.Go(func() (err error) {
				tallies[i][j], err = m.replay(p, s.make(m, p), nil)
				return err
			})
		}
		g.Go(func() (err error) {
			tallies[i][len(strategies)], err = m.bound(p)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Report{}, fmt.Errorf("plan spot: %w", err)
	}
	return report(tr, p, markets, tallies)
}

func report(tr Trace, p Params, markets []market, tallies [][]strategyOutcome) (Report, error) {
	window := time.Duration(p.window(tr.Gap)) * tr.Gap
	full, err := p.OnDemandPrice.Mul(int64(p.Work+p.Restart), int64(time.Hour))
	if err != nil {
		return Report{}, fmt.Errorf("price the work on-demand: %w", err)
	}
	r := Report{
		Schema: Schema, WorkHours: p.Work.Hours(), DeadlineHours: window.Hours(), OnDemandUSD: full,
		AcrossZones: p.AcrossZones,
	}
	all := make([]strategyOutcome, len(strategies)+1)
	for i, m := range markets {
		z := ZoneReport{Name: m.name, Samples: m.samples, Up: m.up()}
		for j, y := range tallies[i] {
			if err := all[j].add(y); err != nil {
				return Report{}, err
			}
			result, err := y.result(j, full)
			if err != nil {
				return Report{}, err
			}
			z.Results = append(z.Results, result)
		}
		r.Zones = append(r.Zones, z)
	}
	for j, y := range all {
		result, err := y.result(j, full)
		if err != nil {
			return Report{}, err
		}
		r.Results = append(r.Results, result)
	}
	r.show(markets, tallies)
	r.explain(tr, p, markets)
	return r, nil
}

// up is the share of samples in which any zone is up.
func (m market) up() float64 {
	n := 0
	for t := range m.samples {
		for _, z := range m.zones {
			if z.Up[t] {
				n++
				break
			}
		}
	}
	return float64(n) / float64(m.samples)
}

// result is a tally against the cost of a case on-demand.
func (y strategyOutcome) result(j int, full money.Amount) (Result, error) {
	name := Bound
	if j < len(strategies) {
		name = strategies[j].name
	}
	mean, err := y.cost.Mul(1, int64(y.cases))
	if err != nil {
		return Result{}, fmt.Errorf("average cases: %w", err)
	}
	return Result{
		Name: name, Saving: 1 - money.Ratio(y.cost, full)/float64(y.cases), Misses: y.misses, Starts: y.starts,
		Cases: y.cases, MeanCostUSD: mean,
	}, nil
}

// result returns the outcome of a strategy over all zones.
func (r Report) result(name string) Result {
	for _, x := range r.Results {
		if x.Name == name {
			return x
		}
	}
	return Result{}
}
