package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// strategyNames are the display names of planners' strategies and rules.
var strategyNames = map[string]string{
	spot.Greedy: "spot whenever available", spot.UniformProgress: "uniform progress", spot.Bound: "perfect foresight",
	spot.Young: "Young's formula", spot.Daly: "Daly's formula", spot.BestFixed: "best fixed interval",
}

func strategyName(name string) string { return cmp.Or(strategyNames[name], name) }

// placementFigure shows the placement scores of a machine type by zone.
func placementFigure(p *spot.Placements) layout.Figure {
	f := layout.Figure{Label: "Placement score", Value: "none", Note: "AWS has no score"}
	zones := make([]string, len(p.Scores))
	for i, z := range p.Scores {
		zones[i] = fmt.Sprintf("%s %d", z.ZoneID, z.Score)
	}
	if len(zones) > 0 {
		f.Value = fmt.Sprintf("%d of 10", p.Scores[0].Score)
		f.Note = strings.Join(zones, ", ")
	}
	f.Note += fmt.Sprintf(": %s of %s in %s at %s; AWS rates a request for one type low", plain.Count(p.Machines, "machine"),
		p.Type, p.Region, plain.Time(p.At))
	return f
}

// Spot shows the saving of each strategy.
func Spot(r spot.Report) layout.Sheet {
	s := layout.Sheet{
		Verb: "plan spot", Picture: spotPicture(r),
		Caption: "Saving of each strategy compared with on-demand. No strategy can exceed perfect foresight.",
		Pictures: []layout.Picture{
			{
				Title: "One case in " + r.Case.Zone, SVG: casePicture(r.Case),
				Caption: "When spot was available, and where the work ran.",
			},
		},
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes}
	g := layout.Grid{
		Title: "Strategies", Head: []string{"strategy", "saving", "mean cost", "deadlines missed", "starts", "cases"},
		Right: []bool{false, true, true, true, true, true},
	}
	if b := r.Advisor; b != nil {
		high := "more"
		if b.High != nil {
			high = plain.Number(*b.High, 5) + "/h"
		}
		s.Figures = append(s.Figures, layout.Figure{
			Label: "Spot Advisor", Value: b.Label + " interrupted in a month",
			Note: fmt.Sprintf("%s in %s, %s: %s/h to %s; the trace records %s/h", b.Type, b.Region, b.AsOf,
				plain.Number(b.Low, 5), high, plain.Number(b.RecordedPerHour, 5)),
		})
	}
	if p := r.Placements; p != nil {
		s.Figures = append(s.Figures, placementFigure(p))
	}
	best := "unknown"
	for _, x := range sortedStrategies(r.Results) {
		starts := plain.Number(float64(x.Starts), 0)
		if x.Name == spot.Bound {
			starts = "–"
		}
		g.Rows = append(g.Rows, []string{strategyName(x.Name), plain.Share(x.Saving, 1), x.MeanCostUSD.Dollars(),
			plain.Number(float64(x.Misses), 0), starts, plain.Number(float64(x.Cases), 0)})
		switch x.Name {
		case spot.Curfew:
			s.Title = spotTitle(r, x)
			s.Figures = append(s.Figures, layout.Figure{
				Label: "Mean cost of a case", Value: x.MeanCostUSD.Dollars(),
				Note: "on-demand " + r.OnDemandUSD.Dollars(),
			},
				layout.Figure{Label: "Saving", Value: plain.Share(x.Saving, 1), Note: "perfect foresight " + best},
				layout.Figure{
					Label: "Deadlines missed", Value: plain.Number(float64(x.Misses), 0),
					Note: "of " + plain.Count(x.Cases, "case"),
				})
		case spot.Bound:
			best = plain.Share(x.Saving, 1)
		}
	}
	s.Tables = append(s.Tables, g)
	if len(r.Zones) > 1 {
		s.Tables = append(s.Tables, spotZones(r))
	}
	return s
}

// spotTitle states whether to use spot.
func spotTitle(r spot.Report, x spot.Result) string {
	switch {
	case x.Saving <= 0:
		return fmt.Sprintf("Use on-demand: spot saves nothing; one run costs %s on-demand and %s with spot",
			r.OnDemandUSD.Dollars(), x.MeanCostUSD.Dollars())
	case x.Misses > 0:
		return fmt.Sprintf("Use spot only with a later deadline: it saves %s, but misses the deadline in %d of %s",
			plain.Share(x.Saving, 1), x.Misses, plain.Count(x.Cases, "case"))
	}
	return fmt.Sprintf(
		"Use spot: one run costs %s instead of %s on-demand (saves %s), and no deadline is missed in %s",
		x.MeanCostUSD.Dollars(), r.OnDemandUSD.Dollars(), plain.Share(x.Saving, 1), plain.Count(x.Cases, "case"))
}

func sortedStrategies(all []spot.Result) []spot.Result {
	return slices.SortedStableFunc(slices.Values(all), func(a, b spot.Result) int {
		return cmp.Compare(b.Saving, a.Saving)
	})
}

// spotZones lists savings by zone, the best zone for curfew first.
func spotZones(r spot.Report) layout.Grid {
	g := layout.Grid{Title: "Saving by zone", Head: []string{"zone", "spot available"}, Right: []bool{false, true}}
	saving := func(z spot.ZoneReport) float64 {
		for _, x := range z.Results {
			if x.Name == spot.Curfew {
				return x.Saving
			}
		}
		return 0
	}
	for _, x := range r.Zones[0].Results {
		g.Head, g.Right = append(g.Head, strategyName(x.Name)), append(g.Right, true)
	}
	for _, z := range slices.SortedStableFunc(slices.Values(r.Zones), func(a, b spot.ZoneReport) int {
		return cmp.Compare(saving(b), saving(a))
	}) {
		row := []string{z.Name, plain.Share(z.Up, 1)}
		for _, x := range z.Results {
			row = append(row, plain.Share(x.Saving, 1))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// spotPicture draws the saving of every strategy and of perfect foresight.
func spotPicture(r spot.Report) string {
	c := chart.Bars{
		Title: "Saving compared with on-demand, by strategy",
		Axis:  chart.Axis{Label: "saving compared with on-demand", Format: chart.Percent},
	}
	for _, x := range r.Results {
		b := chart.Bar{Label: strategyName(x.Name), Value: x.Saving, Color: chart.Gray, Note: chart.Percent(x.Saving)}
		switch x.Name {
		case spot.Curfew:
			b.Color = chart.Blue
		case spot.Bound:
			b.Color = chart.SoftBlue
		}
		if x.Misses > 0 {
			b.Color = chart.Orange
			b.Note += ", " + plain.Count(x.Misses, "deadline") + " missed"
		}
		c.Rows = append(c.Rows, b)
	}
	return c.SVG()
}

// casePicture draws where one run took place, and when spot was available.
func casePicture(t spot.Timeline) string {
	c := chart.Lanes{
		Title: "One case in " + t.Zone, Axis: chart.Axis{
			Label: "hours after the start of the case", Format: func(v float64) string { return plain.Number(v, 1) },
			Least: 0, Most: float64(len(t.Ran)) * t.Gap},
		Kinds: []chart.Kind{
			{Name: "spot available", Color: chart.SoftBlue}, {Name: "ran on spot", Color: chart.Blue},
			{Name: "ran on-demand", Color: chart.Orange},
		},
		Rows: []chart.Lane{
			{
				Label:  "spot available",
				Blocks: stretches(t.Up, t.Gap, func(up bool) (chart.Color, bool) { return chart.SoftBlue, up }),
			},
			{Label: "curfew", Blocks: stretches(t.Ran, t.Gap, func(p spot.Place) (chart.Color, bool) {
				if p == spot.RanOnDemand {
					return chart.Orange, true
				}
				return chart.Blue, p == spot.RanSpot
			})},
		}}
	return c.SVG()
}

// stretches merges equal neighbors into blocks; step is the width of one.
func stretches[T comparable](all []T, step float64, color func(T) (chart.Color, bool)) []chart.Block {
	var out []chart.Block
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to] == all[from] {
			to++
		}
		if c, drawn := color(all[from]); drawn {
			out = append(out, chart.Block{From: float64(from) * step, To: float64(to) * step, Color: c})
		}
		from = to
	}
	return out
}

// Checkpoint shows the efficiency of each checkpoint interval rule.
func Checkpoint(r spot.CheckpointReport) layout.Sheet {
	s := layout.Sheet{Verb: "plan checkpoint", Picture: checkpointPicture(r),
		Caption: "The line is what each fixed interval keeps. Shorter intervals spend more time on writes; longer " +
			"intervals lose more work at an interruption.",
		Assumptions: append(slices.Clip(r.Assumptions), "curfew starts with "+r.Prior), Coverage: r.CoverageNotes,
		Changes: r.Changes}
	g := layout.Grid{
		Title: "Rules", Head: []string{"rule", "interval", "paid time kept"}, Right: []bool{false, true, true},
	}
	for _, x := range slices.SortedStableFunc(slices.Values(r.Results), func(a, b spot.CheckpointResult) int {
		return cmp.Compare(b.Kept, a.Kept)
	}) {
		interval := secondsText(x.Interval)
		if x.Name == spot.Curfew {
			interval += " at first"
			s.Title = fmt.Sprintf(
				"Save the first checkpoint after %s, then at growing intervals: keeps %s of the paid time",
				secondsText(x.Interval), plain.Share(x.Kept, 1))
			s.Figures = []layout.Figure{
				{Label: "First checkpoint", Value: secondsText(x.Interval), Note: "after the start of a run"},
				{Label: "Paid time kept", Value: plain.Share(x.Kept, 1), Note: "over " + plain.Count(r.Runs, "run")}}
			if len(x.ByAge) > 0 {
				s.Tables = append(s.Tables, byAge(x.ByAge))
			}
		}
		g.Rows = append(g.Rows, []string{strategyName(x.Name), interval, plain.Share(x.Kept, 2)})
	}
	s.Tables = append([]layout.Grid{g}, s.Tables...)
	return s
}

// byAge lists intervals by the age of a run.
func byAge(all []spot.AgedInterval) layout.Grid {
	g := layout.Grid{
		Title: "curfew's interval by age of the run", Head: []string{"age of the run", "interval"},
		Right: []bool{true, true},
	}
	for _, b := range all {
		g.Rows = append(g.Rows, []string{"from " + secondsText(b.Age), secondsText(b.Interval)})
	}
	return g
}

// checkpointPicture draws the efficiency of every fixed interval, with the rules as points and
// curfew, whose interval varies, as a limit.
func checkpointPicture(r spot.CheckpointReport) string {
	fixed := chart.Series{Name: "fixed interval", Color: chart.Gray}
	for _, p := range r.Curve {
		fixed.Points = append(fixed.Points, chart.Point{X: p.Interval.Seconds(), Y: p.Kept})
	}
	c := chart.Lines{Title: "Share of paid time kept, by checkpoint interval", Series: []chart.Series{fixed},
		X: chart.Axis{
			Label: "work between two checkpoints", Log: true,
			Ticks: []float64{60, 300, 900, 3600, 3 * 3600, 12 * 3600, 48 * 3600, 168 * 3600}, Format: secondsText,
		},
		Y: chart.Axis{Label: "share of paid time that ends as saved work", Format: chart.Percent}}
	colors := map[string]chart.Color{spot.Young: chart.Orange, spot.Daly: chart.SoftOrange, spot.BestFixed: chart.Ink}
	for _, x := range r.Results {
		if x.Name == spot.Curfew {
			c.Limits = append(c.Limits, chart.Mark{At: x.Kept, Label: "curfew (growing intervals)"})
			continue
		}
		c.Series = append(c.Series, chart.Series{
			Name:  fmt.Sprintf("%s: %s at %s", strategyName(x.Name), plain.Share(x.Kept, 1), secondsText(x.Interval)),
			Color: colors[x.Name], Scatter: true,
			Points: []chart.Point{{X: x.Interval, Y: x.Kept}}})
	}
	return c.SVG()
}

// secondsText formats seconds as a duration.
func secondsText(seconds float64) string {
	return strings.TrimSpace(plain.Duration(time.Duration(seconds * float64(time.Second)).Round(time.Second)))
}
