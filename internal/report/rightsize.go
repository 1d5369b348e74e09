package report

import (
	"fmt"
	"html"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/usage"
)

// maxMachines is how many resources the picture shows.
const maxMachines = 40

// rightsizePicture draws the utilization of each resource from median to 95th percentile, with the
// mean as a dot, over the lines between the verdicts. At most 40 resources are drawn.
func rightsizePicture(r rightsize.Report) string {
	const width, label, row, top = 720.0, 190.0, 22.0, 24.0
	shown := r.Resources[:min(len(r.Resources), maxMachines)]
	height := top + row*float64(len(shown)) + 10
	if len(shown) < len(r.Resources) {
		height += row
	}
	x := func(percent float64) float64 { return label + (width-label-20)*percent/100 }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="GPU utilization of each resource, median to 95th percentile, in percent">`, width, height)
	for _, v := range []float64{0, rightsize.OverprovisionedBelow, rightsize.UnderutilizedBelow, rightsize.ScaleOutAbove, 100} {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="currentColor" stroke-opacity=".2"/>`, x(v), top-4, x(v), height-6)
		fmt.Fprintf(&b, `<text x="%.1f" y="14" text-anchor="middle" font-size="12" fill="currentColor">%g</text>`, x(v), v)
	}
	for i, it := range shown {
		y := top + row*float64(i) + row/2
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" font-size="12" fill="currentColor">%s</text>`, label-8, y+4, html.EscapeString(shortName(it.Name)))
		if it.UtilP50 == nil || it.UtilP95 == nil || it.UtilMean == nil {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" font-size="12" fill="currentColor" fill-opacity=".6">not measured</text>`, x(0)+6, y+4)
			continue
		}
		color := map[string]string{string(rightsize.Overprovisioned): "#c5432d", string(rightsize.Underutilized): "#b98512", string(rightsize.WellUsed): "#1f7f57", string(rightsize.ScaleOut): "#3565b0"}[it.Verdict]
		if color == "" {
			color = "#888888"
		}
		low, high := min(*it.UtilP50, *it.UtilP95), max(*it.UtilP50, *it.UtilP95)
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="8" rx="3" fill="%s" fill-opacity=".45"/>`, x(low), y-4, max(x(high)-x(low), 2), color)
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s"/>`, x(*it.UtilMean), y, color)
	}
	if hidden := len(r.Resources) - len(shown); hidden > 0 {
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" font-size="12" fill="currentColor">and %d more</text>`, label, height-8, hidden)
	}
	b.WriteString("</svg>")
	return b.String()
}

// shortName cuts a name to what fits beside its bar.
func shortName(name string) string {
	letters := []rune(name)
	if len(letters) <= 26 {
		return name
	}
	return string(letters[:25]) + "…"
}

// Rightsize shows the types that fit what was measured.
func Rightsize(r rightsize.Report) Sheet {
	s := Sheet{Verb: "plan rightsize", Title: r.Verdict + ": " + r.Why, Picture: rightsizePicture(r), Caption: "What was measured of each GPU, and the types that fit.",
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes}
	figure := func(label string, v *float64, unit string) {
		value := "not measured"
		if v != nil {
			value = plain.Number(*v, 1) + unit
		}
		s.Figures = append(s.Figures, Figure{Label: label, Value: value})
	}
	figure("GPU utilization, median", r.UtilP50, "%")
	figure("GPU utilization, 95th percentile", r.UtilP95, "%")
	figure("memory, peak", r.MemoryPeakGiB, " GiB")
	s.Figures = append(s.Figures, Figure{Label: "GPUs that computed", Value: fmt.Sprintf("%d of %d", r.GPUsUsedMax, r.GPUs)},
		Figure{Label: "samples", Value: plain.Count(r.Samples, "sample"), Note: "coverage " + shareText(r.Coverage)})
	if r.SavingUSD != nil {
		s.Figures = append(s.Figures, Figure{Label: "could save", Value: "$" + *r.SavingUSD + " a month", Note: "at list price"})
	}
	g := Grid{Title: "types that fit, cheapest first", Head: []string{"type", "GPUs", "memory", "$/h", "saves a month", "against"}, Right: []bool{false, false, true, true, true, false}}
	for _, f := range r.Fits {
		saving := "?"
		if f.SavingUSD != nil {
			saving = "$" + *f.SavingUSD
		}
		g.Rows = append(g.Rows, []string{f.Type, fmt.Sprintf("%d × %s", f.GPUs, f.Accelerator), plain.Number(f.MemoryGiB, 0) + " GiB", f.HourlyUSD, saving, strings.Join(f.Against, "; ")})
	}
	if len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	if len(r.Resources) > 0 {
		g := Grid{Title: "machines", Head: []string{"resource", "type", "verdict", "p50%", "p95%", "fits", "why it is low"}, Right: []bool{false, false, false, true, true, false, false}}
		number := func(v *float64) string {
			if v == nil {
				return "-"
			}
			return plain.Number(*v, 1)
		}
		for _, res := range r.Resources[:min(len(r.Resources), shownOffers)] {
			fits, why := "-", []string{}
			if len(res.Fits) > 0 {
				fits = res.Fits[0].Type
			}
			for _, reason := range res.Reasons {
				if reason.Answer == usage.True.String() {
					why = append(why, reason.Name)
				}
			}
			g.Rows = append(g.Rows, []string{res.Name, res.Type, res.Verdict, number(res.UtilP50), number(res.UtilP95), fits, strings.Join(why, ", ")})
		}
		s.Tables = append(s.Tables, g)
	}
	return s
}
