package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// Commit shows the advised commitments.
func Commit(r commit.Report) layout.Sheet {
	proof := "no choice from these offers costs less"
	if !r.Optimal {
		proof = "no choice costs less than " + r.LowerBoundUSD.Dollars()
	}
	s := layout.Sheet{
		Verb: "plan commit", Title: commitTitle(r), Picture: commitPicture(r),
		Caption: "Use over the window at on-demand prices, and what covers it.",
		Figures: []layout.Figure{
			{
				Label: "On demand", Value: r.OnDemandUSD.Dollars(),
				Note: "in " + plain.Duration(time.Duration(r.Hours)*time.Hour) + " of use",
			},
			{Label: "With all commitments", Value: r.PlannedUSD.Dollars(), Note: proof},
			{Label: "With the advised ones", Value: r.AdvisedUSD.Dollars()},
			{Label: "Effective savings rate", Value: plain.Share(r.EffectiveSavingsRate, 1)},
			{Label: "Coverage", Value: plain.Share(r.Coverage, 1), Note: "of use, at on-demand prices"},
			{Label: "Utilization", Value: plain.Share(r.Utilization, 1), Note: "of what commitments charge"},
		},
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes}
	if slices.ContainsFunc(r.Commitments, func(c commit.Commitment) bool { return c.Advised }) {
		s.Figures = slices.Insert(s.Figures, 0, expectedSaving(r))
	}
	if len(r.Commitments) > 0 {
		s.Tables = append(s.Tables, commitments(r))
	}
	if len(r.Existing) > 0 {
		s.Tables = append(s.Tables, existingCommitments(r.Existing))
	}
	if len(r.WhatIf) > 0 {
		g := layout.Grid{
			Title: "If demand drops", Head: []string{"drop", "on demand", "planned", "saving", "utilization"},
			Right: []bool{true, true, true, true, true},
		}
		for _, w := range r.WhatIf {
			g.Rows = append(g.Rows, []string{
				plain.Share(w.Drop, 1), w.OnDemandUSD.Dollars(), w.PlannedUSD.Dollars(),
				plain.Share(w.EffectiveSavingsRate, 1),
				plain.Share(w.Utilization, 1),
			})
		}
		s.Tables = append(s.Tables, g)
	}
	if o := r.Online; o != nil {
		s.Figures = append(s.Figures, layout.Figure{Label: "Online policy", Value: o.CostUSD.Dollars(),
			Note: fmt.Sprintf("%s × the lowest cost of the window, proven at most %s ×", plain.Number(o.Ratio, 3),
				plain.Number(o.Bound, 3))})
	}
	for _, c := range r.Commitments {
		if c.Advised && c.Kind == commit.Reserved {
			if command := offering(c); command != "" {
				s.Next = append(s.Next, command)
			}
		}
	}
	return s
}

// commitTitle states the decision with the expected dollars of a year and the risk.
func commitTitle(r commit.Report) string {
	var advised []commit.Commitment
	var all money.Amount
	for _, c := range r.Commitments {
		all += c.YearlyUSD
		if c.Advised {
			advised = append(advised, c)
		}
	}
	switch {
	case len(advised) > 0:
	case len(r.Commitments) > 0:
		return fmt.Sprintf("Buy nothing yet: %s would save %s a year at this use, but each fails a check",
			plain.Count(len(r.Commitments), "commitment"), all.Dollars())
	default:
		return fmt.Sprintf("Buy nothing: no offer costs less than %s on demand", r.OnDemandUSD.Dollars())
	}
	saving := "saves " + r.YearlyUSD.Dollars() + " a year at the same use"
	if v, known := r.ExpectedYearlyUSD.Get(); known {
		saving = "expected to save " + v.Dollars() + " a year"
	}
	if r.AdvisedLossDrop != nil {
		saving += ", a loss if demand drops by " + plain.Share(*r.AdvisedLossDrop, 1)
	}
	if c := advised[0]; len(advised) == 1 && c.Starts != nil && c.Starts.After(r.End) {
		saving += "; start it on " + plain.Date(*c.Starts)
	}
	return "Buy " + purchasesOf(advised, r.End) + ": " + saving
}

// purchasesOf names one or two commitments, two with their start dates if after the window, and
// counts further ones.
func purchasesOf(all []commit.Commitment, end time.Time) string {
	if len(all) > 2 {
		return plain.Count(len(all), "commitment")
	}
	var names []string
	for _, c := range all {
		name := described(c)
		if len(all) > 1 && c.Starts != nil && c.Starts.After(end) {
			name += " from " + plain.Date(*c.Starts)
		}
		names = append(names, name)
	}
	return strings.Join(names, " and ")
}

// expectedSaving is the figure of the advised commitments, with the best case in its note.
func expectedSaving(r commit.Report) layout.Figure {
	f := layout.Figure{
		Label: "Expected saving a year", Value: "unknown", Note: "no rate at which work leaves the types",
	}
	if v, known := r.ExpectedYearlyUSD.Get(); known {
		f.Value, f.Note = v.Dollars(), "of the advised ones; "+r.YearlyUSD.Dollars()+" at the same use"
	}
	return f
}

// described names a commitment: "3 reserved g5.2xlarge in us-east-1 for 12 months".
func described(c commit.Commitment) string {
	machine, region, ok := strings.Cut(c.Key, "/")
	if ok {
		machine += " in " + region
	}
	if c.Kind == commit.SavingsPlan {
		return fmt.Sprintf("a savings plan of $%s/h for %s, %s", c.DollarsPerHour, machine, termOf(c))
	}
	return fmt.Sprintf("%s reserved %s for %s", plain.Number(float64(c.Quantity), 0), machine, termOf(c))
}

func termOf(c commit.Commitment) string { return plain.Count(c.TermMonths, "month") }

// offering returns the command that finds the offering to buy; empty if the key is not an AWS
// machine type in a region.
func offering(c commit.Commitment) string {
	machine, region, ok := strings.Cut(c.Key, "/")
	payment := map[commit.Payment]string{
		commit.NoUpfront: "No Upfront", commit.PartialUpfront: "Partial Upfront", commit.AllUpfront: "All Upfront",
	}[c.Payment]
	if !ok || payment == "" || c.TermMonths%12 != 0 || strings.Contains(machine, "*") {
		return ""
	}
	seconds := c.TermMonths / 12 * 365 * 24 * 3600
	return fmt.Sprintf("aws ec2 describe-reserved-instances-offerings --region %s --instance-type %s "+
		"--product-description Linux/UNIX --offering-class standard --offering-type %s --min-duration %d "+
		"--max-duration %d",
		plain.Shell(region), plain.Shell(machine), plain.Shell(payment), seconds, seconds)
}

// committed names the commitment of a row.
func committed(c commit.Commitment) string {
	if c.Kind == commit.SavingsPlan {
		return "$" + c.DollarsPerHour + "/h on " + c.Key
	}
	return fmt.Sprintf("%d × %s", c.Quantity, c.Key)
}

// byYearlySaving sorts commitments: advised ones first, then by saving, the largest first.
func byYearlySaving(all []commit.Commitment) []commit.Commitment {
	return slices.SortedStableFunc(slices.Values(all), func(a, b commit.Commitment) int {
		switch {
		case a.Advised && !b.Advised:
			return -1
		case b.Advised && !a.Advised:
			return 1
		}
		return cmp.Compare(b.YearlyUSD, a.YearlyUSD)
	})
}

// commitments returns the table of purchases.
func commitments(r commit.Report) layout.Grid {
	g := layout.Grid{Title: "Commitments to buy",
		Head: []string{"what", "term", "payment", "expected a year", "same use", "used", "lowest month", "pays back",
			"advised"},
		Right:    []bool{false, true, false, true, true, true, true, true, false},
		States:   []bool{8: true},
		Priority: []int{1, 0, 0, 1, 0, 0, 0, 0, 1}}
	for _, c := range byYearlySaving(r.Commitments) {
		pays := "never"
		if c.BreakEvenDays != nil {
			pays = "after " + plain.Number(*c.BreakEvenDays, 0) + "d"
			if *c.BreakEvenDays == 0 {
				pays = "at once"
			}
		}
		advised, note := "yes", ""
		if !c.Advised {
			advised, note = "no", c.Why
		}
		if k := c.Risk; k != nil && note == "" {
			note = fmt.Sprintf("if work leaves the type at %s a year (%s): expected saving over the term %s",
				plain.Share(k.LeavePerYear, 0), k.Why, k.SavingUSD.Dollars())
			if k.PaysFromMonths != nil {
				note += ", pays from month " + plain.Number(*k.PaysFromMonths, 0)
			}
		}
		if c.Starts != nil && c.Starts.After(r.End) {
			note = strings.TrimSuffix("starts on "+plain.Date(*c.Starts)+", when the commitment before it ends; "+note,
				"; ")
		}
		g.Rows = append(g.Rows, []string{committed(c), termOf(c), string(c.Payment),
			orUnknown(c.ExpectedYearlyUSD), c.YearlyUSD.Dollars(), plain.Share(c.Utilization, 1),
			plain.Share(c.LowestMonth, 1),
			pays, advised})
		g.Notes = append(g.Notes, note)
	}
	return g
}

func orUnknown(d money.Dollars) string {
	if v, known := d.Get(); known {
		return v.Dollars()
	}
	return "unknown"
}

// existingCommitments returns the table of existing commitments with their use in the window.
func existingCommitments(all []commit.Commitment) layout.Grid {
	g := layout.Grid{Title: "Existing commitments, by their use in the window",
		Head:     []string{"what", "state", "until", "saved a year", "used", "lowest month"},
		Right:    []bool{false, false, false, true, true, true},
		Priority: []int{1, 1, 1, 0, 0, 0}}
	for _, c := range byYearlySaving(all) {
		g.Rows = append(g.Rows, []string{committed(c), string(c.State), plain.Date(*c.Expires), c.YearlyUSD.Dollars(),
			plain.Share(c.Utilization, 1), plain.Share(c.LowestMonth, 1)})
		g.Notes = append(g.Notes, c.Follows)
	}
	return g
}

// maxLayers is the maximum number of distinct commitments in the picture.
const maxLayers = 4

// commitPicture draws demand over the window: the part covered by each commitment and the on-demand
// part. Commitments beyond the fourth share a layer.
func commitPicture(r commit.Report) string {
	c := chart.Columns{
		Title: "Use at on-demand prices, by what covers it", X: "date (UTC)",
		Y: chart.Axis{Label: "dollars an hour, at on-demand prices", Format: chart.USD},
	}
	colors := []chart.Color{chart.Blue, chart.SoftBlue, chart.Gray, chart.Ink}
	for i, l := range r.Layers {
		switch {
		case l.OnDemand:
			c.Parts = append(c.Parts, chart.Part{Name: "on demand", Color: chart.SoftOrange, Values: l.Mean})
		case i < maxLayers:
			c.Parts = append(c.Parts, chart.Part{Name: l.Name, Color: colors[i], Values: l.Mean})
		default:
			last := &c.Parts[maxLayers-1]
			last.Name, last.Values = "other commitments", slices.Clone(last.Values)
			for j, v := range l.Mean {
				last.Values[j] += v
			}
		}
	}
	if len(r.Layers) > 0 {
		parts := len(r.Layers[0].Mean)
		for i := range parts {
			c.Labels = append(c.Labels,
				plain.Date(r.Start.Add(r.End.Sub(r.Start)*time.Duration(i)/time.Duration(parts))))
		}
	}
	return c.SVG()
}
