package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// FleetReplay shows policies of serving fleets on recorded arrivals. next are suggested commands.
func FleetReplay(doc view.FleetReplay, next []string) layout.Sheet {
	s := layout.Sheet{Verb: "backtest", Title: "Nothing was replayed", Next: next, Assumptions: doc.Assumptions}
	for i := range doc.Fleets {
		f := &doc.Fleets[i]
		own, ok := f.Own()
		if !ok {
			continue
		}
		if len(s.Tables) == 0 {
			s.Title = fleetHeadline(f, own)
			s.Figures = fleetFigures(own)
		}
		s.Tables = append(s.Tables, fleetGrid(f))
	}
	if len(s.Tables) > 0 {
		s.Coverage = []string{fmt.Sprintf("%s in %s, %s replicas of work on average",
			plain.Count(doc.Requests, "request"), plain.Duration(time.Duration(doc.Seconds*float64(time.Second))),
			plain.Number(doc.WorkReplicas, 2))}
	}
	return s
}

// TunedFleets shows policies of serving fleets that were fitted on recorded arrivals.
func TunedFleets(doc view.FleetReplay, next []string) layout.Sheet {
	s := FleetReplay(doc, next)
	s.Verb = "policy tune"
	for i := range doc.Fleets {
		f := &doc.Fleets[i]
		text := fmt.Sprintf("Keep %s: no setting had as few late answers with fewer replica hours", f.Policy)
		if f.Tuned != nil {
			text = fmt.Sprintf("Keep %s: the fitted setting (%s) does not pay less on the second half without more late "+
				"answers", f.Policy, tunedText(f.Tuned))
		}
		if f.Tuned != nil && f.Tuned.Better {
			text = fmt.Sprintf("Change %s: %s in curfew.yaml", f.Policy, tunedText(f.Tuned))
		}
		if i == 0 {
			s.Title = text
			continue
		}
		s.Because = append(s.Because, text)
	}
	return s
}

// tunedText describes a fitted setting.
func tunedText(t *view.TunedFleet) string {
	of := func(s float64) string { return plain.ExactDuration(time.Duration(s * float64(time.Second))) }
	return fmt.Sprintf("target %s, with stabilization %s and window %s", plain.Decimal(t.Target, 2),
		of(t.StabilizationSeconds), of(t.WindowSeconds))
}

// fleetHeadline compares a policy with the cheapest other scaler that has no more late answers.
func fleetHeadline(f *view.ReplayedFleet, own view.FleetResult) string {
	title := fmt.Sprintf("%s would have paid %s replica-hours with %s late", f.Policy,
		plain.Number(own.ReplicaHours, 2), plain.Share(own.LateShare, 2))
	var best *view.FleetResult
	for i := range f.Results {
		r := &f.Results[i]
		if r.Name == own.Name || r.Name == "tuned" || r.LateAnswers > own.LateAnswers {
			continue
		}
		if best == nil || r.ReplicaHours < best.ReplicaHours {
			best = r
		}
	}
	if best == nil {
		return title + ". No other scaler had as few late answers"
	}
	return fmt.Sprintf("%s. %s paid %s with no more late answers", title, best.Name,
		plain.Number(best.ReplicaHours, 2))
}

func fleetFigures(own view.FleetResult) []layout.Figure {
	out := []layout.Figure{
		{Label: "Replica-hours", Value: plain.Number(own.ReplicaHours, 2)},
		{
			Label: "Late answers", Value: plain.Count(own.LateAnswers, "request"),
			Note: plain.Share(own.LateShare, 2) + " of all",
		},
		{Label: "p99 latency", Value: plain.Number(own.P99LatencyMS, 0) + " ms"},
		{Label: "Cold starts", Value: plain.Number(float64(own.ColdStarts), 0)},
	}
	if own.CostUSD.Known() {
		out = append(out, layout.Figure{Label: "Cost", Value: own.CostUSD.String()})
	}
	return out
}

func fleetGrid(f *view.ReplayedFleet) layout.Grid {
	g := layout.Grid{
		Title: fmt.Sprintf("%s: %s, %d to %d replicas, target %s", f.Policy, f.Fleet, f.Min, f.Max,
			plain.Share(f.Target, 0)),
		Head:  []string{"scaler", "replica-hours", "cost", "late", "p99 latency", "cold starts", "most"},
		Right: []bool{false, true, true, true, true, true, true},
	}
	priced := false
	for _, r := range f.Results {
		cost := "-"
		if r.CostUSD.Known() {
			cost, priced = r.CostUSD.String(), true
		}
		name := r.Name
		if r.Setting != "" {
			name = "tuned on the first half"
		}
		g.Rows = append(g.Rows, []string{
			name, plain.Number(r.ReplicaHours, 2), cost, plain.Number(float64(r.LateAnswers), 0),
			plain.Number(r.P99LatencyMS, 0) + " ms", plain.Number(float64(r.ColdStarts), 0),
			plain.Number(float64(r.MaxReplicas), 0),
		})
		g.Notes = append(g.Notes, strings.TrimSpace(r.Setting))
	}
	if !priced {
		for i := range g.Rows {
			g.Rows[i] = append(g.Rows[i][:2:2], g.Rows[i][3:]...)
		}
		g.Head = append(g.Head[:2:2], g.Head[3:]...)
		g.Right = append(g.Right[:2:2], g.Right[3:]...)
	}
	return g
}
