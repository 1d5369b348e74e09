package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/usage"
)

// maxMachines bounds the machines in the picture of right-sizing.
const maxMachines = 25

// Rightsize shows the types that fit the measured usage.
func Rightsize(r rightsize.Report) layout.Sheet {
	s := layout.Sheet{Verb: "plan rightsize", Title: rightsizeTitle(r), Picture: rightsizePicture(r),
		Caption: "Mean GPU utilization of each machine as a bar, p50 to p95 as a line, and the thresholds of the " +
			"verdicts. Savings are a month at list price.",
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes}
	figure := func(label string, v *float64, unit string) {
		value := "unmeasured"
		if v != nil {
			value = plain.Number(*v, 1) + unit
		}
		s.Figures = append(s.Figures, layout.Figure{Label: label, Value: value})
	}
	if r.SavingUSD.Known() {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "Saving", Value: r.SavingUSD.String(), Note: "a month, at list price",
		})
		s.Next = append(s.Next, "curfew plan tco --saving "+plain.Shell(r.SavingUSD.Cents()+"/month")+" --effort 2d")
	}
	if len(r.Resources) > 0 {
		figure("GPU utilization p50", r.UtilP50, "%")
		figure("GPU utilization p95", r.UtilP95, "%")
		figure("Peak GPU memory", r.MemoryPeakGiB, " GiB")
		s.Figures = append(s.Figures, layout.Figure{
			Label: "GPUs used", Value: fmt.Sprintf("%d of %d", r.GPUsUsedMax, r.GPUs),
		},
			layout.Figure{
				Label: "Samples", Value: plain.Number(float64(r.Samples), 0),
				Note: "coverage " + plain.Share(r.Coverage, 1),
			})
		s.Because = []string{verdictName(r.Verdict) + ": " + r.Why}
	} else {
		s.Picture, s.Caption = "", ""
	}
	if len(r.Fits) > 0 {
		g := layout.Grid{
			Title: "Types that fit, cheapest first", Head: []string{
				"type", "GPUs", "GPU memory", "price", "saves a month",
			},
			Right: []bool{false, false, true, true, true},
		}
		for _, f := range r.Fits {
			saving := "unknown"
			if f.SavingUSD.Known() {
				saving = f.SavingUSD.String()
			}
			against := ""
			if len(f.Against) > 0 {
				against = "but: " + strings.Join(f.Against, "; ")
			}
			g.Rows = append(g.Rows, []string{
				f.Type, fmt.Sprintf("%d × %s", f.GPUs, f.Accelerator), plain.Number(f.MemoryGiB, 0) + " GiB",
				perHour(f.HourlyUSD), saving,
			})
			g.Notes = append(g.Notes, against)
		}
		s.Tables = append(s.Tables, g)
	}
	if len(r.Resources) > 0 {
		s.Tables = append(s.Tables, rightsizeMachines(r))
	}
	if len(r.Hosts) > 0 {
		s.Tables = append(s.Tables, rightsizeHosts(r.Hosts))
	}
	s.Tables = append(s.Tables, slowGPUs(r)...)
	return s
}

// slowGPUs returns the causes of low utilization of the machine with the largest saving that has
// any.
func slowGPUs(r rightsize.Report) []layout.Grid {
	for _, m := range bySaving(r.Resources) {
		if len(m.Reasons) == 0 {
			continue
		}
		g := layout.Grid{
			Title: "Why the GPUs of " + m.Name + " are slow", Head: []string{"cause", "holds", "evidence"},
		}
		for _, x := range m.Reasons {
			holds := map[string]string{usage.True.String(): "yes", usage.False.String(): "no"}[x.Answer]
			g.Rows = append(g.Rows, []string{
				strings.ReplaceAll(x.Name, "-", " "), cmp.Or(holds, "unknown"), x.Why,
			})
			next := ""
			if x.Next != "" {
				next = "next: " + x.Next
			}
			g.Notes = append(g.Notes, next)
		}
		return []layout.Grid{g}
	}
	return nil
}

// rightsizeTitle states the decision with its dollars.
func rightsizeTitle(r rightsize.Report) string {
	moves := 0
	for _, m := range r.Resources {
		if moveSaving(m) > 0 {
			moves++
		}
	}
	for _, h := range r.Hosts {
		if hostSaving(h) > 0 {
			moves++
		}
	}
	switch {
	case r.SavingUSD.Known() && moves == 1 && len(r.Resources) == 1 && len(r.Hosts) == 0:
		m := r.Resources[0]
		to, _ := m.Advised()
		return fmt.Sprintf("Move %s from %s to %s: saves %s a month", m.Name, m.Type, to.Type, r.SavingUSD.String())
	case r.SavingUSD.Known() && moves > 0:
		return fmt.Sprintf("Move %s to smaller types: saves %s a month",
			plain.Count(moves, "machine"), r.SavingUSD.String())
	case len(r.Resources) == 0:
		return "Keep the current types: no fitting type with a known price is cheaper"
	case r.Judged == 0:
		return fmt.Sprintf("No verdict: %s", r.Why)
	}
	if _, ok := r.Advised(); !ok && len(r.Fits) > 0 {
		return fmt.Sprintf("Keep the current types: the cheaper ones lack %s, which the work may use",
			strings.Join(r.Fits[0].Lacks, " and "))
	}
	return fmt.Sprintf("Keep the current types: no fitting type with a known price is cheaper (%s)", r.Why)
}

// moveSaving returns the monthly saving of the cheapest fitting type; 0 if there is none.
func moveSaving(m rightsize.Resource) money.Amount {
	to, ok := m.Advised()
	if !ok {
		return 0
	}
	return to.SavingUSD.Or(0)
}

// bySaving returns the machines by saving, the largest first.
func bySaving(all []rightsize.Resource) []rightsize.Resource {
	return slices.SortedStableFunc(slices.Values(all), func(a, b rightsize.Resource) int {
		return cmp.Compare(moveSaving(b), moveSaving(a))
	})
}

// verdictName formats a verdict.
func verdictName(v string) string {
	return strings.ReplaceAll(strings.ReplaceAll(v, "utilised", "utilized"), "-", " ")
}

// rightsizeMachines is the table of machines.
func rightsizeMachines(r rightsize.Report) layout.Grid {
	g := layout.Grid{
		Title: "Machines, the largest saving first", Head: []string{
			"machine", "type", "verdict", "p50", "p95", "move to", "saves a month",
		},
		Right: []bool{false, false, false, true, true, false, true}, States: []bool{2: false},
		Priority: []int{2, 0, 2, 0, 0, 1, 3}}
	number := func(v *float64) string {
		if v == nil {
			return "–"
		}
		return plain.Percent(*v, 1)
	}
	for _, m := range bySaving(r.Resources)[:min(len(r.Resources), shownOffers)] {
		to, saving, why := "–", "–", []string{}
		if v := moveSaving(m); v > 0 {
			fit, _ := m.Advised()
			to, saving = fit.Type, v.Dollars()
		}
		for _, reason := range m.Reasons {
			if reason.Answer == usage.True.String() {
				why = append(why, reason.Name)
			}
		}
		note := ""
		if len(why) > 0 {
			note = "low because of " + strings.Join(why, ", ")
		}
		g.Rows, g.Notes = append(g.Rows, []string{
			m.Name, m.Type, verdictName(m.Verdict), number(m.UtilP50), number(m.UtilP95), to, saving,
		}), append(g.Notes, note)
	}
	return g
}

// hostSaving is the monthly saving of the type to move a machine without GPUs to; 0 where there is none.
func hostSaving(h rightsize.Host) money.Amount {
	if h.Advised == nil {
		return 0
	}
	return h.Advised.SavingUSD.Or(0)
}

// rightsizeHosts is the table of machines without GPUs.
func rightsizeHosts(hosts []rightsize.Host) layout.Grid {
	g := layout.Grid{
		Title: "Machines without GPUs, the largest saving first", Head: []string{
			"machine", "type", "verdict", "CPU p95", "vCPUs needed", "move to", "saves a month",
		},
		Right: []bool{false, false, false, true, true, false, true}, States: []bool{2: false},
		Priority: []int{2, 0, 2, 0, 0, 1, 3},
	}
	sorted := slices.SortedStableFunc(slices.Values(hosts), func(a, b rightsize.Host) int {
		return cmp.Compare(hostSaving(b), hostSaving(a))
	})
	for _, h := range sorted[:min(len(sorted), shownOffers)] {
		p95, needed, to, saving, note := "–", "–", "–", "–", ""
		if h.CPUUtilP95 != nil {
			p95 = plain.Percent(*h.CPUUtilP95, 1)
		}
		if h.VCPUsNeeded != nil {
			needed = plain.Number(*h.VCPUsNeeded, 1)
		}
		if h.Advised != nil {
			to, saving = h.Advised.Type, h.Advised.SavingUSD.String()
			note = strings.Join(h.Advised.Drawbacks, "; ")
		}
		if h.Graviton != nil {
			option := fmt.Sprintf("option: %s (Graviton) at %s, once its work is built for arm64", h.Graviton.Type,
				perHour(h.Graviton.HourlyUSD))
			if note != "" {
				option = note + "; " + option
			}
			note = option
		}
		g.Rows = append(g.Rows, []string{h.Name, h.Type, verdictName(h.Verdict), p95, needed, to, saving})
		g.Notes = append(g.Notes, note)
	}
	return g
}

// rightsizePicture draws the mean utilization of each machine with p50 to p95, the largest
// saving first.
func rightsizePicture(r rightsize.Report) string {
	verdicts := []string{
		string(rightsize.Overprovisioned), string(rightsize.Underutilized), string(rightsize.WellUsed),
		string(rightsize.ScaleOut),
	}
	c := chart.Bars{
		Title: "GPU utilization of each machine", Axis: chart.Axis{
			Label: "GPU utilization", Format: func(v float64) string {
				return plain.Percent(v, 0)
			}, Least: 0, Most: 100, Ticks: []float64{0, 25, 50, 75, 100}},
		Parts: slices.Clone(verdicts), Colors: []chart.Color{chart.Orange, chart.SoftOrange, chart.Blue, chart.Ink},
		Range: "p50 to p95", Ordered: true,
		Marks: []chart.Mark{
			{At: rightsize.OverprovisionedBelow, Label: "overprovisioned below"},
			{At: rightsize.UnderutilizedBelow, Label: "underutilized below"},
			{At: rightsize.ScaleOutAbove, Label: "inference: scale out above"},
		}}
	machines := bySaving(r.Resources)
	for _, m := range machines[:min(len(machines), maxMachines)] {
		b := chart.Bar{Label: m.Name, Note: "unmeasured"}
		if m.UtilP50 != nil && m.UtilP95 != nil && m.UtilMean != nil {
			b.Low, b.High = min(*m.UtilP50, *m.UtilP95), max(*m.UtilP50, *m.UtilP95)
			b.Note = plain.Percent(*m.UtilMean, 0)
			if i := slices.Index(verdicts, m.Verdict); i >= 0 {
				b.Parts = make([]float64, len(verdicts))
				b.Parts[i] = *m.UtilMean
			} else {
				b.Value, b.Color, b.Note = *m.UtilMean, chart.Gray, b.Note+", no verdict"
			}
		}
		if v := moveSaving(m); v > 0 {
			b.Label += ", saves " + v.Dollars()
		}
		c.Rows = append(c.Rows, b)
	}
	for i, v := range verdicts {
		c.Parts[i] = verdictName(v)
	}
	if hidden := len(machines) - len(c.Rows); hidden > 0 {
		c.Rows = append(c.Rows, chart.Bar{Label: "and " + plain.Count(hidden, "more machine"), Note: "in -o json"})
	}
	return c.SVG()
}
