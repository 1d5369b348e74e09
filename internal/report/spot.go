package report

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/spot"
)

// Measures of the pictures, in pixels.
const (
	spotWidth = 720.0
	spotLeft  = 130.0
	spotRight = 60.0
	barStep   = 28.0
	barHigh   = 18.0
)

const (
	spotColor     = "#1f7f57"
	onDemandColor = "#c5432d"
	boundColor    = "#3b6fb6"
	fixedColor    = "#8a5fb5"
)

// spotPicture draws the saving of every strategy as a bar, with the bound as a dashed line, and
// below it one case of curfew: what it ran on over the time in which spot was up.
func spotPicture(r spot.Report) string {
	var b strings.Builder
	top := 24.0
	foot := top + barStep*float64(len(r.Results)) + 16
	svgOpen(&b, foot+90, "Saving against on-demand, by strategy")
	high := 0.01
	for _, x := range r.Results {
		high = max(high, x.Saving)
	}
	width := spotWidth - spotLeft - spotRight
	for i, x := range r.Results {
		y := top + barStep*float64(i)
		color := spotColor
		if x.Name == spot.Bound {
			color = boundColor
		}
		w := width * max(x.Saving, 0) / high
		svgText(&b, spotLeft-8, y+barHigh-4, "end", x.Name)
		fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%.1f" height="%g" fill="%s"><title>%d of %d cases miss the deadline</title></rect>`, spotLeft, y, w, barHigh, color, x.Misses, x.Cases)
		svgText(&b, spotLeft+w+6, y+barHigh-4, "start", shareText(x.Saving))
	}
	if bound := boundSaving(r); bound > 0 {
		x := spotLeft + width*bound/high
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="%s" stroke-dasharray="6 4"/>`, x, top-6, x, foot-16, boundColor)
	}
	s := r.Case
	svgText(&b, spotLeft, foot+14, "start", fmt.Sprintf("One case in %s, from hour %s on, %s h", s.Zone, plain.Number(s.Start, 0), plain.Number(float64(len(s.Ran))*s.Gap, 1)))
	lane(&b, s, foot+22, "spot is up", func(i int) string {
		if s.Up[i] {
			return "#9aa5ae"
		}
		return ""
	})
	lane(&b, s, foot+46, spot.Curfew, func(i int) string {
		switch {
		case s.Ran[i] == spot.RanOnDemand:
			return onDemandColor
		case s.Ran[i] == spot.RanSpot:
			return spotColor
		}
		return ""
	})
	fmt.Fprintf(&b, `<rect x="%g" y="%g" width="10" height="10" fill="%s"/>`, spotLeft, foot+74, spotColor)
	svgText(&b, spotLeft+16, foot+84, "start", "spot")
	fmt.Fprintf(&b, `<rect x="%g" y="%g" width="10" height="10" fill="%s"/>`, spotLeft+60, foot+74, onDemandColor)
	svgText(&b, spotLeft+76, foot+84, "start", "on-demand")
	b.WriteString("</svg>\n")
	return b.String()
}

// lane draws stretches of one color; no color leaves a hole.
func lane(b *strings.Builder, s spot.Timeline, y float64, name string, color func(int) string) {
	svgText(b, spotLeft-8, y+14, "end", name)
	x := func(i int) float64 {
		return spotLeft + (spotWidth-spotLeft-spotRight)*float64(i)/float64(max(len(s.Ran), 1))
	}
	for from := 0; from < len(s.Ran); {
		to, c := from+1, color(from)
		for to < len(s.Ran) && color(to) == c {
			to++
		}
		if c != "" {
			fmt.Fprintf(b, `<rect x="%.1f" y="%g" width="%.1f" height="%g" fill="%s"/>`, x(from), y, x(to)-x(from), barHigh, c)
		}
		from = to
	}
}

// checkpointPicture draws what every fixed interval keeps, with those of the rules marked, and as a
// dashed line what curfew keeps.
func checkpointPicture(r spot.CheckpointReport) string {
	const height, top, bottom = 280.0, 30.0, 46.0
	var b strings.Builder
	svgOpen(&b, height, "Share of paid time that ends as saved work, by interval")
	low, high := r.Curve[0].Interval.Seconds(), r.Curve[len(r.Curve)-1].Interval.Seconds()
	most := 0.01
	for _, k := range r.Curve {
		most = max(most, k.Kept)
	}
	for _, x := range r.Results {
		most = max(most, x.Kept)
	}
	x := func(s float64) float64 {
		return spotLeft + (spotWidth-spotLeft-spotRight)*math.Log(min(max(s, low), high)/low)/math.Log(high/low)
	}
	y := func(share float64) float64 { return height - bottom - (height-top-bottom)*share/most }
	fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="currentColor" stroke-opacity=".6"/>`, spotLeft, y(0), spotWidth-spotRight, y(0))
	var points []string
	for _, k := range r.Curve {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(k.Interval.Seconds()), y(k.Kept)))
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), boundColor)
	for i, k := range r.Results {
		label := k.Name + " " + shareText(k.Kept)
		if k.Name == spot.Curfew {
			fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="%s" stroke-dasharray="6 4"/>`, spotLeft, y(k.Kept), spotWidth-spotRight, y(k.Kept), spotColor)
			svgText(&b, spotLeft+4, y(k.Kept)-5, "start", label)
			continue
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s</title></circle>`, x(k.Interval), y(k.Kept), fixedColor, html.EscapeString(label))
		svgText(&b, spotLeft+8, y(0)-12-16*float64(i), "start", fmt.Sprintf("%s at %s", label, secondsText(k.Interval)))
	}
	for _, s := range []float64{60, 600, 3600, 6 * 3600, 24 * 3600} {
		if s >= low && s <= high {
			svgText(&b, x(s), height-bottom+16, "middle", secondsText(s))
		}
	}
	svgText(&b, (spotLeft+spotWidth-spotRight)/2, height-8, "middle", "work between two checkpoints")
	b.WriteString("</svg>\n")
	return b.String()
}

// secondsText says seconds the way people do.
func secondsText(seconds float64) string {
	return plain.Duration(time.Duration(math.Round(seconds)) * time.Second)
}

func svgOpen(b *strings.Builder, height float64, title string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" font-family="system-ui, sans-serif" font-size="12">`, spotWidth, height)
	fmt.Fprintf(b, "\n<title>%s</title>\n", title)
}

func svgText(b *strings.Builder, x, y float64, anchor, what string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="currentColor">%s</text>`+"\n", x, y, anchor, html.EscapeString(what))
}

// Spot shows what each strategy saves.
func Spot(r spot.Report) Sheet {
	s := Sheet{Verb: "plan spot", Picture: spotPicture(r), Caption: "What every strategy saves against on demand, the bound that none can pass, and one case: what ran when, over the time in which spot was up.",
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes}
	table := func(title string, results []spot.Result) {
		g := Grid{Title: title, Head: []string{"strategy", "saves", "mean cost", "missed", "starts", "cases"}, Right: []bool{false, true, true, true, true, true}}
		for _, x := range results {
			g.Rows = append(g.Rows, []string{x.Name, shareText(x.Saving), "$" + x.MeanCostUSD, fmt.Sprint(x.Misses), fmt.Sprint(x.Starts), fmt.Sprint(x.Cases)})
		}
		s.Tables = append(s.Tables, g)
	}
	table("strategies", r.Results)
	for _, x := range r.Results {
		s.Figures = append(s.Figures, Figure{Label: x.Name, Value: shareText(x.Saving), Note: "saved against on demand"})
		if x.Name == spot.Curfew {
			s.Title = fmt.Sprintf("%s saved against $%s on demand, %s missed of %s", shareText(x.Saving), r.OnDemandUSD, plain.Count(x.Misses, "deadline"), plain.Count(x.Cases, "case"))
		}
	}
	if len(r.Zones) > 1 {
		g := Grid{Title: "by zone", Head: []string{"zone", "up"}, Right: []bool{false, true}}
		for i, z := range r.Zones {
			row := []string{z.Name, shareText(z.Up)}
			for _, x := range z.Results {
				if i == 0 {
					g.Head, g.Right = append(g.Head, x.Name), append(g.Right, true)
				}
				row = append(row, shareText(x.Saving))
			}
			g.Rows = append(g.Rows, row)
		}
		s.Tables = append(s.Tables, g)
	}
	return s
}

// Checkpoint shows what each rule for the interval keeps.
func Checkpoint(r spot.CheckpointReport) Sheet {
	s := Sheet{Verb: "plan checkpoint", Picture: checkpointPicture(r), Caption: "What every fixed interval keeps of paid time, and what curfew's keeps.",
		Assumptions: append(r.Assumptions, "curfew begins with "+r.Prior), Coverage: r.CoverageNotes, Changes: r.Changes}
	g := Grid{Title: "rules", Head: []string{"rule", "interval", "kept"}, Right: []bool{false, true, true}}
	seconds := func(v float64) string { return plain.Duration(time.Duration(v * float64(time.Second))) }
	for _, x := range r.Results {
		g.Rows = append(g.Rows, []string{x.Name, seconds(x.Interval), plain.Percent(100*x.Kept, 2)})
		if x.Name != spot.Curfew {
			continue
		}
		s.Title = fmt.Sprintf("%s%% of paid time kept over %s", plain.Number(100*x.Kept, 1), plain.Count(r.Runs, "run"))
		s.Figures = []Figure{{Label: "save first after", Value: seconds(x.Interval), Note: "of a run"}}
		var steps []string
		for _, b := range x.ByAge {
			steps = append(steps, fmt.Sprintf("%s from an age of %s", seconds(b.Interval), seconds(b.Age)))
		}
		if len(steps) > 0 {
			s.Figures = append(s.Figures, Figure{Label: "then every", Value: strings.Join(steps[:min(len(steps), 6)], ", ")})
		}
	}
	s.Tables = []Grid{g}
	return s
}

// boundSaving is the saving of perfect foresight.
func boundSaving(r spot.Report) float64 {
	for _, x := range r.Results {
		if x.Name == spot.Bound {
			return x.Saving
		}
	}
	return 0
}

func shareText(v float64) string { return plain.Percent(100*v, 1) }

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return money.Thousands(n) + " " + many
}
