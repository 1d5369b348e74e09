package spot

import (
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// fewCases is how many cases say little.
const fewCases = 20

// String names a prior, as reports do: "hazard 0.7 / (age + 20m)".
func (p prior) String() string {
	return fmt.Sprintf("hazard %s / (age + %s)", plain.Number(p.alpha, 2), plain.Duration(p.beta))
}

// explain adds the assumptions of the replay.
func (r *Report) explain(tr Trace, p Params, markets []market) {
	r.Assumptions = []string{
		"machines are paid for whole sampling steps; each start and each move costs " + plain.Duration(p.Restart) +
			" of paid time without progress, and loses no other work",
		"on-demand is always available, at $" + p.OnDemandPrice.String() +
			" an hour; all machines work at the same speed",
		"availability is that of the trace: spot starts whenever its zone is available, and runs until the zone is not",
		fmt.Sprintf("%s learns from the trace before each decision; it starts with %s for interruptions and %s for "+
			"outages, fitted to three zones of the public data set spot-traces (aws-02-15-2023)", Curfew, runPrior,
			outagePrior),
		"the cost excludes data transfer between zones, storage and checkpoints",
	}
	if p.SpotPrice > 0 && markets[0].zones[0].Prices == nil {
		r.Assumptions = append(r.Assumptions, "spot costs $"+p.SpotPrice.String()+" an hour at all times")
	}
	curfew, bound := r.result(Curfew), r.result(Bound)
	samples := 0
	for _, m := range markets {
		samples += m.samples
	}
	r.CoverageNotes = []string{
		fmt.Sprintf("%d zones, %s samples of %s, %d cases; the cases overlap and are not independent", len(tr.Zones),
			money.Thousands(int64(samples)), plain.Duration(tr.Gap), curfew.Cases),
	}
	if curfew.Cases < fewCases*len(markets) {
		r.CoverageNotes = append(r.CoverageNotes, fmt.Sprintf("fewer than %d cases per zone: the result is uncertain",
			fewCases))
	}
	for _, x := range r.Results {
		if x.Misses > 0 {
			r.CoverageNotes = append(r.CoverageNotes,
				fmt.Sprintf("%s misses the deadline in %d of %d cases", x.Name, x.Misses,
					x.Cases))
		}
	}
	r.Changes = append(r.Changes,
		fmt.Sprintf("perfect foresight saves %s, curfew %s; no strategy saves more than perfect foresight",
			plain.Share(bound.Saving, 1), plain.Share(curfew.Saving, 1)))
	if len(r.Zones) > 1 {
		low, high := r.Zones[0], r.Zones[0]
		for _, z := range r.Zones {
			if z.saving() < low.saving() {
				low = z
			}
			if z.saving() > high.saving() {
				high = z
			}
		}
		r.Changes = append(r.Changes, fmt.Sprintf("the zone matters: %s saves %s, %s saves %s", high.Name,
			plain.Share(high.saving(), 1), low.Name, plain.Share(low.saving(), 1)))
		p.AcrossZones = true
		if all, err := tr.markets(p); err == nil {
			if y, err := all[0].bound(p); err == nil {
				if x, err := y.result(len(strategies), r.OnDemandUSD); err == nil {
					r.Changes = append(r.Changes,
						"with moves between these zones (--across-zones), a case can save up to "+
							plain.Share(x.Saving, 1))
				}
			}
		}
	}
}

// saving is that of curfew in the zone.
func (z ZoneReport) saving() float64 {
	for _, x := range z.Results {
		if x.Name == Curfew {
			return x.Saving
		}
	}
	return 0
}

// show picks the case of the picture: that in the middle of the zone which is up nearest
// to half of the time.
func (r *Report) show(markets []market, tallies [][]strategyOutcome) {
	best := math.Inf(1)
	for i, m := range markets {
		for j, s := range strategies {
			off := math.Abs(r.Zones[i].Up - 0.5)
			if s.name != Curfew || off >= best {
				continue
			}
			best = off
			y := tallies[i][j]
			r.Case = Timeline{Zone: m.name, Start: float64(y.first) * m.gap.Hours(), Gap: m.gap.Hours()}
			for t, on := range y.sample {
				up := false
				for _, z := range m.zones {
					up = up || z.Up[y.first+t]
				}
				r.Case.Up, r.Case.Ran = append(r.Case.Up, up), append(r.Case.Ran, placeOf(on))
			}
		}
	}
}

// explain adds the assumptions of the replay of the runs.
func (r *CheckpointReport) explain(tr Trace, runs []upRun) {
	r.Prior = runPrior.String()
	r.Assumptions = []string{
		"a run pays for one restart; whole intervals of work and write are kept, the rest is lost; no checkpoint is saved " +
			"within the interruption notice",
		"each zone is one machine that runs whenever spot is available",
		fmt.Sprintf("%s and %s know the mean run of the whole trace, and %s knows all of its runs in advance", Young,
			Daly,
			BestFixed),
		fmt.Sprintf(
			"%s learns from earlier runs only; it starts with %s, fitted to three zones of the public data set "+
				"spot-traces (aws-02-15-2023)", Curfew, r.Prior),
	}
	cut := 0
	for _, u := range runs {
		if u.truncated {
			cut++
		}
	}
	r.CoverageNotes = []string{
		fmt.Sprintf("%d zones, %d runs of %s on average; the trace ends during %d of them", len(tr.Zones), len(runs),
			plain.Duration(time.Duration(r.MeanRunSeconds*float64(time.Second)).Round(time.Second)), cut)}
	if len(runs) < fewCases {
		r.CoverageNotes = append(r.CoverageNotes, fmt.Sprintf("fewer than %d runs: the result is uncertain", fewCases))
	}
	r.Changes = []string{"a faster write keeps more: the loss grows with the square root of the write time",
		fmt.Sprintf("one last checkpoint before each interruption keeps %s", plain.Share(r.ceiling, 1))}
}
