package report

import (
	"fmt"
	"strconv"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// Capacity shows the number of replicas required for a request rate.
func Capacity(r capacity.Report) layout.Sheet {
	s := layout.Sheet{
		Verb: "plan capacity", Title: r.Title, Picture: capacityPicture(r), Assumptions: r.Assumptions,
		Coverage: r.CoverageNotes, Changes: r.Changes,
	}
	s.Caption = "p99 latency by the number of replicas. Fewer replicas cost less; each point has its utilization."
	if r.P99LatencyMS == nil {
		s.Caption = "Mean wait by load, for requests served one at a time (Erlang C); the target is a third of the " +
			"service time. Give --profile for the latency of batches."
	}
	figure := func(label string, v *float64, unit, note string) {
		if v != nil {
			s.Figures = append(s.Figures, layout.Figure{Label: label, Value: plain.Number(*v, 1) + unit, Note: note})
		}
	}
	s.Figures = append(s.Figures, layout.Figure{
		Label: "Replicas", Value: strconv.Itoa(r.Replicas), Note: "method: " + string(r.Method),
	},
		layout.Figure{
			Label: "Utilization", Value: plain.Share(r.Utilization, 1),
			Note: "the rate is " + plain.Share(r.Load, 1) + " of the maximum",
		})
	if r.CostUSDPerHour.Known() {
		s.Figures = append(s.Figures, layout.Figure{Label: "Cost", Value: r.CostUSDPerHour.String() + "/h"})
	}
	if r.CostUSDPerMillion.Known() {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "Cost of a million requests", Value: r.CostUSDPerMillion.String(),
		})
	}
	note := ""
	if r.P99ErrorMS > 0 {
		note = "± " + plain.Number(r.P99ErrorMS, 1) + " ms"
	}
	figure("p99 latency", r.P99LatencyMS, " ms", note)
	figure("Mean latency", r.MeanLatencyMS, " ms", "")
	figure("Mean batch size", r.MeanBatch, "", "")
	figure("Mean running requests per replica", r.MeanRunning, "", "")
	figure("Longest wait for a batch", r.MaxWaitMS, " ms", "with which the objective is still met")
	if len(r.Curve) > 0 {
		g := layout.Grid{
			Title: "Replicas and latency", Head: []string{"replicas", "p99 latency", "utilization"},
			Right: []bool{true, true, true},
		}
		for _, p := range r.Curve {
			g.Rows = append(g.Rows, []string{
				strconv.Itoa(p.Replicas), plain.Number(p.P99LatencyMS, 1) + " ms", plain.Share(p.Utilization, 1),
			})
		}
		s.Tables = append(s.Tables, g)
	}
	if r.Scaling != nil {
		s.Tables = append(s.Tables, scaling(r.Scaling))
	}
	if z := r.ScaleToZero; z != nil {
		verdict := "saves nothing"
		if z.Pays {
			verdict = "saves money"
		}
		s.Changes = append(s.Changes,
			fmt.Sprintf("scaling to zero %s: it saves money below %s requests/s; keep an idle replica for %ss",
				verdict,
				plain.Number(z.BreakEvenQPS, 4), plain.Number(z.KeepSeconds, 0)))
	}
	return s
}

// scaling lists the signals by which to scale.
func scaling(sc *capacity.Scaling) layout.Grid {
	g := layout.Grid{Title: "When to scale", Head: []string{"signal", "threshold"}, Right: []bool{false, true}}
	threshold := func(signal string, v *float64, unit string) {
		if v != nil {
			g.Rows = append(g.Rows, []string{signal, plain.Number(*v, 1) + unit})
		}
	}
	threshold("requests waiting or in service per replica", sc.Concurrency, "")
	threshold("Knative target (containerConcurrency)", sc.KnativeTarget, "")
	threshold("request rate per replica", &sc.QPSPerReplica, "/s")
	threshold("wait before service", sc.QueueWaitMS, " ms")
	for _, w := range []struct {
		name    string
		seconds int
	}{
		{"stable window", sc.StableWindowSeconds}, {"panic window", sc.PanicWindowSeconds},
		{"polling interval", sc.PollSeconds}, {"cool-down period", sc.CoolDownSeconds},
	} {
		g.Rows = append(g.Rows, []string{w.name, strconv.Itoa(w.seconds) + "s"})
	}
	return g
}

// capacityPicture draws the p99 latency by number of replicas with the objective; without a
// profile, the mean wait by load with the target. Latencies over three times the larger of the
// objective and the plan's latency are left out.
func capacityPicture(r capacity.Report) string {
	if r.P99LatencyMS == nil {
		return waitPicture(r)
	}
	s := chart.Series{Name: "p99 latency", Color: chart.Blue}
	c := chart.Lines{
		Title: "p99 latency by the number of replicas", X: chart.Axis{Label: "replicas", Ticks: []float64{}},
		Y: chart.Axis{Label: "p99 latency in milliseconds", Format: func(v float64) string {
			return plain.Number(v, 1) + " ms"
		}}}
	highest := *r.P99LatencyMS
	if r.ObjectiveMS != nil {
		highest = max(highest, 3**r.ObjectiveMS)
		c.Limits = append(c.Limits, chart.Mark{At: *r.ObjectiveMS, Label: "objective"})
	}
	for _, p := range r.Curve {
		if r.ObjectiveMS != nil && p.P99LatencyMS > highest {
			continue
		}
		x := float64(p.Replicas)
		c.X.Ticks = append(c.X.Ticks, x)
		s.Points = append(s.Points, chart.Point{
			X: x, Y: p.P99LatencyMS, Note: "at " + plain.Share(p.Utilization, 0) + " utilization",
		})
	}
	c.Series = []chart.Series{s}
	if n := len(s.Points); n > 0 {
		c.X.Least, c.X.Most = s.Points[0].X-0.5, s.Points[n-1].X+0.5
		c.Moments = []chart.Mark{{At: float64(r.Replicas), Label: "plan: replicas"}}
	}
	return c.SVG()
}

// waitPicture draws the mean wait by load.
func waitPicture(r capacity.Report) string {
	s := chart.Series{Name: "mean wait", Color: chart.Blue}
	for percent := 10; percent <= 95; percent += 5 {
		load := float64(percent) / 100
		s.Points = append(s.Points, chart.Point{X: load, Y: capacity.ErlangWait(r.Replicas, load)})
	}
	c := chart.Lines{
		Title: "Mean wait of " + plain.Count(r.Replicas, "replica") + " by load (Erlang C)", Series: []chart.Series{s},
		X: chart.Axis{
			Label: "load", Format: chart.Percent, Least: 0.05, Most: 1,
			Ticks: []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9},
		},
		Y:      chart.Axis{Label: "mean wait, in service times"},
		Limits: []chart.Mark{{At: capacity.WaitTarget, Label: "target"}}}
	if r.Load > 0 && r.Load < 1 {
		c.Moments = []chart.Mark{{At: r.Load, Label: "plan: load"}}
	}
	return c.SVG()
}
