package spot

import (
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// few is how many cases say little.
const few = 20

// String names a prior, as reports do: "hazard 0.7 / (age + 20m)".
func (p prior) String() string {
	return fmt.Sprintf("hazard %s / (age + %s)", plain.Number(p.alpha, 2), plain.Duration(p.beta))
}

// explain says what the replay rests on.
func (r *Report) explain(tr Trace, p Params, markets []market) {
	r.Assumptions = []string{
		"gaps are paid whole; a start and a change of machine cost " + plain.Duration(p.Restart) + ", paid and without progress, and no work is lost beside that",
		"on-demand is always there, at $" + p.OnDemandPrice.String() + " an hour; every machine does the same work in an hour",
		"availability is that of the trace: a machine that is wanted where it is up is had, and kept until it is not",
		fmt.Sprintf("%s learns from the part of the trace before each choice; before that it takes runs to end with %s, and outages with %s, fitted to three zones of the campaign aws-02-15-2023 of spot-traces", Curfew, runPrior, outagePrior),
		"data that has to follow from zone to zone, storage and checkpoints are not in the cost",
	}
	if p.SpotPrice > 0 && markets[0].zones[0].Prices == nil {
		r.Assumptions = append(r.Assumptions, "spot costs $"+p.SpotPrice.String()+" an hour throughout")
	}
	curfew, bound := r.result(Curfew), r.result(Bound)
	samples := 0
	for _, m := range markets {
		samples += m.samples
	}
	r.CoverageNotes = []string{fmt.Sprintf("%d zones, %s samples of %s, %d cases; cases overlap and are not independent", len(tr.Zones), money.Thousands(int64(samples)), plain.Duration(tr.Gap), curfew.Cases)}
	if curfew.Cases < few*len(markets) {
		r.CoverageNotes = append(r.CoverageNotes, fmt.Sprintf("under %d cases a zone say little", few))
	}
	for _, x := range r.Results {
		if x.Misses > 0 {
			r.CoverageNotes = append(r.CoverageNotes, fmt.Sprintf("%s misses the deadline in %d of %d cases", x.Name, x.Misses, x.Cases))
		}
	}
	r.Changes = append(r.Changes, fmt.Sprintf("knowing what comes would save %s instead of %s: nothing saves more", plain.Share(bound.Saving, 1), plain.Share(curfew.Saving, 1)))
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
		r.Changes = append(r.Changes, fmt.Sprintf("the zone decides: %s saves %s, %s %s", high.Name, plain.Share(high.saving(), 1), low.Name, plain.Share(low.saving(), 1)))
		p.AcrossZones = true
		if all, err := tr.markets(p); err == nil {
			if y, err := all[0].bound(p); err == nil {
				if x, err := y.result(len(strategies), r.full); err == nil {
					r.Changes = append(r.Changes, "a case that may move between these zones could save up to "+plain.Share(x.Saving, 1))
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
func (r *Report) show(markets []market, tallies [][]tally) {
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

// explain says what the replay of the runs rests on.
func (r *CheckpointReport) explain(tr Trace, runs []upRun) {
	r.Prior = runPrior.String()
	r.Assumptions = []string{
		"a run pays the restart once, then whole intervals of work and write are kept and the rest is lost; nothing is saved within the notice of an interruption",
		"each zone is a machine of its own that runs whenever the zone is up",
		fmt.Sprintf("%s and %s are given the mean run of the whole trace, and %s all of its runs, before they happen", Young, Daly, BestFixed),
		fmt.Sprintf("%s learns from the runs that ended before one starts; before that it takes runs to end with %s, fitted to three zones of the campaign aws-02-15-2023 of spot-traces", Curfew, r.Prior),
	}
	cut := 0
	for _, u := range runs {
		if u.cut {
			cut++
		}
	}
	r.CoverageNotes = []string{fmt.Sprintf("%d zones, %d runs of %s on average, %d of them cut off by the end of the trace", len(tr.Zones), len(runs),
		plain.Duration(time.Duration(r.MeanRunSeconds*float64(time.Second)).Round(time.Second)), cut)}
	if len(runs) < few {
		r.CoverageNotes = append(r.CoverageNotes, fmt.Sprintf("under %d runs say little", few))
	}
	r.Changes = []string{"a faster write keeps more: what the best interval loses grows with the square root of the time of a write",
		fmt.Sprintf("one last write in time before every end would keep %s", plain.Share(r.ceiling, 1))}
}
