package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
)

// Measures of the picture, in pixels.
const (
	capacityWidth  = 720.0
	capacityHeight = 260.0
	capacityLeft   = 70.0
	capacityRight  = 50.0
	capacityTop    = 44.0
	capacityBottom = 46.0
)

// capacityMark is a point of the picture.
type capacityMark struct {
	x, y  float64
	label string
}

// capacityPicture draws the p99 latency against the number of replicas, with the objective as a
// dashed line; without a profile the mean wait of as many servers against their load,
// with the target. What is higher than three times the objective, or the plan's own
// latency where that is more, is drawn at the upper edge with its value.
func capacityPicture(r capacity.Report) string {
	var marks []capacityMark
	var line, here float64
	title, below := "p99 latency in ms by number of replicas", "replicas (share of time busy)"
	if r.P99LatencyMS == nil {
		title, below = fmt.Sprintf("Mean wait in service times by load of %s (Erlang C)", plain.Count(r.Replicas, "replica")), "load"
		line, here = capacity.WaitTarget, r.Load
		for percent := 10; percent <= 95; percent += 5 {
			label := ""
			if percent%10 == 0 {
				label = strconv.Itoa(percent) + "%"
			}
			marks = append(marks, capacityMark{float64(percent) / 100, capacity.ErlangWait(r.Replicas, float64(percent)/100), label})
		}
	} else {
		here = float64(r.Replicas)
		if r.ObjectiveMS != nil {
			line = *r.ObjectiveMS
		}
		for _, c := range r.Curve {
			marks = append(marks, capacityMark{float64(c.Replicas), c.P99LatencyMS, fmt.Sprintf("%d (%.0f%%)", c.Replicas, 100*c.Utilization)})
		}
	}
	return capacityPlot(title, below, marks, line, here)
}

// capacityPlot draws marks joined by a line, a dashed line across, and a line up where the plan
// is.
func capacityPlot(title, below string, marks []capacityMark, across, here float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" font-family="system-ui, sans-serif" font-size="12">`, capacityWidth, capacityHeight)
	fmt.Fprintf(&b, "\n<title>%s</title>\n", title)
	if len(marks) == 0 {
		fmt.Fprintf(&b, `<text x="%g" y="%g" fill="currentColor">these replicas cannot serve the rate: the latency grows without end</text></svg>`+"\n", capacityLeft, capacityHeight/2)
		return b.String()
	}
	low, high, bound, top := marks[0].x, marks[len(marks)-1].x, 3*across, across
	for _, m := range marks {
		if m.x == here {
			bound = max(bound, m.y)
		}
	}
	for _, m := range marks {
		if bound == 0 || m.y <= bound {
			top = max(top, m.y)
		} else {
			top = bound
			break
		}
	}
	low, high = min(low, here), max(high, here)
	if high == low {
		low, high = low-1, high+1
	}
	x := func(v float64) float64 {
		return capacityLeft + (capacityWidth-capacityLeft-capacityRight)*(v-low)/(high-low)
	}
	y := func(v float64) float64 {
		return capacityHeight - capacityBottom - (capacityHeight-capacityTop-capacityBottom)*min(v/top, 1)
	}
	rule := func(v float64, style, label string) {
		fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="currentColor" %s/>`, capacityLeft, y(v), capacityWidth-capacityRight, y(v), style)
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" fill="currentColor">%s</text>`+"\n", capacityLeft-8, y(v)+4, label)
	}
	fmt.Fprintf(&b, `<text x="%g" y="16" fill="currentColor">%s</text>`+"\n", capacityLeft, title)
	rule(0, `stroke-opacity=".6"`, "0")
	if across > 0 {
		rule(across, `stroke-dasharray="6 4"`, shortValue(across))
	}
	fmt.Fprintf(&b, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="currentColor" stroke-dasharray="2 4" stroke-opacity=".6"/>`+"\n", x(here), capacityTop, x(here), capacityHeight-capacityBottom)
	var points []string
	for _, m := range marks {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(m.x), y(m.y)))
		color := "#1f7f57"
		if across > 0 && m.y > across {
			color = "#c5432d"
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s</title></circle>`, x(m.x), y(m.y), color, shortValue(m.y))
		if m.label != "" {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="currentColor">%s</text>`, x(m.x), y(m.y)-8, shortValue(m.y))
			fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle" fill="currentColor">%s</text>`+"\n", x(m.x), capacityHeight-capacityBottom+18, m.label)
		}
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="#3b6fb6" stroke-width="2"/>`+"\n", strings.Join(points, " "))
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle" fill="currentColor">%s</text></svg>`+"\n", (capacityLeft+capacityWidth-capacityRight)/2, capacityHeight-8, below)
	return b.String()
}

// shortValue prints a value of the picture.
func shortValue(v float64) string {
	if v >= 100 {
		return money.Thousands(int64(math.Round(v)))
	}
	return plain.Number(v, 2)
}

// Capacity shows how many replicas a rate of requests needs.
func Capacity(r capacity.Report) Sheet {
	s := Sheet{Verb: "plan capacity", Title: r.Title, Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes}
	if len(r.Curve) > 0 {
		s.Picture, s.Caption = capacityPicture(r), "Latency with fewer and more replicas; the line is the objective."
	}
	figure := func(label string, v *float64, unit, note string) {
		if v != nil {
			s.Figures = append(s.Figures, Figure{Label: label, Value: plain.Number(*v, 1) + unit, Note: note})
		}
	}
	s.Figures = append(s.Figures, Figure{Label: "replicas", Value: strconv.Itoa(r.Replicas), Note: "by " + string(r.Method)},
		Figure{Label: "utilization", Value: shareText(r.Utilization), Note: "of capacity asked for: " + shareText(r.Load)})
	figure("mean batch", r.MeanBatch, "", "items")
	figure("mean latency", r.MeanLatencyMS, " ms", "")
	note := ""
	if r.P99ErrorMS > 0 {
		note = "± " + plain.Number(r.P99ErrorMS, 1) + " ms"
	}
	figure("p99 latency", r.P99LatencyMS, " ms", note)
	figure("longest wait for a batch", r.MaxWaitMS, " ms", "with which the objective is still met")
	if r.CostUSDPerHour != nil {
		s.Figures = append(s.Figures, Figure{Label: "cost", Value: "$" + *r.CostUSDPerHour + " an hour"})
	}
	if r.CostUSDPerMillion != nil {
		s.Figures = append(s.Figures, Figure{Label: "a million requests", Value: "$" + *r.CostUSDPerMillion})
	}
	if len(r.Curve) > 0 {
		g := Grid{Title: "replicas and latency", Head: []string{"replicas", "p99 ms", "utilization"}, Right: []bool{true, true, true}}
		for _, p := range r.Curve {
			g.Rows = append(g.Rows, []string{strconv.Itoa(p.Replicas), plain.Number(p.P99LatencyMS, 1), shareText(p.Utilization)})
		}
		s.Tables = append(s.Tables, g)
	}
	if sc := r.Scaling; sc != nil {
		g := Grid{Title: "when to scale", Head: []string{"signal", "threshold"}, Right: []bool{false, true}}
		threshold := func(signal string, v *float64, unit string) {
			if v != nil {
				g.Rows = append(g.Rows, []string{signal, plain.Number(*v, 1) + unit})
			}
		}
		threshold("requests waiting or in service, each replica", sc.Concurrency, "")
		threshold("Knative target (containerConcurrency)", sc.KnativeTarget, "")
		threshold("requests a second, each replica", &sc.QPSPerReplica, "")
		threshold("wait before service", sc.QueueWaitMS, " ms")
		g.Rows = append(g.Rows, []string{"windows: stable, panic, poll, cool down",
			fmt.Sprintf("%d s, %d s, %d s, %d s", sc.StableWindowSeconds, sc.PanicWindowSeconds, sc.PollSeconds, sc.CoolDownSeconds)})
		s.Tables = append(s.Tables, g)
	}
	if z := r.ScaleToZero; z != nil {
		verdict := "does not pay"
		if z.Pays {
			verdict = "pays"
		}
		s.Changes = append(s.Changes, fmt.Sprintf("scaling to zero %s: it pays under %s requests a second; keep an idle replica for %s s; %s of requests would wait for a cold start",
			verdict, plain.Number(z.BreakEvenQPS, 4), plain.Number(z.KeepSeconds, 0), shareText(z.ColdShare)))
	}
	return s
}
