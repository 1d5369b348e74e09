package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// maxRows bounds the rows of a table for people.
const maxRows = 40

// usd formats an amount for people.
func usd(a money.Amount) string { return a.Dollars() }

// unknownText formats a time in seconds for people; empty for zero.
func unknownText(seconds int64) string {
	if seconds == 0 {
		return ""
	}
	return plain.Duration(time.Duration(seconds) * time.Second)
}

// Costs shows costs.
func Costs(c view.Costs) layout.Sheet {
	span := plain.Date(c.Since) + " to " + plain.Time(c.Until)
	t := c.Total
	s := layout.Sheet{Verb: "costs", Title: usd(t.Amount) + " spent from " + span, Picture: costsPicture(c),
		Caption:     "Cost by use: compute that worked, storage and network, compute without measurements, and waste.",
		Assumptions: c.Assumptions, Coverage: c.CoverageNotes, Changes: c.Changes}
	if !c.Recorded {
		s.Title, s.Picture, s.Caption = "No costs are recorded from "+span, "", ""
		s.Commands = []string{"curfew scan"}
		return s
	}
	against(&s, c, span)
	compute := t.Used + t.Wasted + t.CannotJudge
	share := func(part money.Amount) string {
		if compute <= 0 {
			return ""
		}
		return plain.Share(float64(part)/float64(compute), 0) + " of compute"
	}
	s.Figures = []layout.Figure{
		{Label: "used", Value: usd(t.Used), Note: share(t.Used)},
		{Label: "wasted", Value: usd(t.Wasted), Note: share(t.Wasted)},
		{Label: "unmeasured", Value: usd(t.CannotJudge), Note: share(t.CannotJudge)},
		{Label: "other", Value: usd(t.Other), Note: "storage, network, overhead"},
	}
	if t.UnknownSeconds > 0 {
		most := t.AtMostReason
		if t.AtMost != nil {
			most = "at most " + usd(*t.AtMost)
		}
		s.Figures = append(s.Figures, layout.Figure{
			Label: "unknown", Value: unknownText(t.UnknownSeconds), Note: "not charged: " + most,
		})
	}
	g := layout.Grid{Head: []string{}, Right: []bool{}}
	column := func(name string, right bool) { g.Head, g.Right = append(g.Head, name), append(g.Right, right) }
	periods := c.Granularity != "total"
	if periods {
		column("period", false)
	}
	for _, d := range c.By {
		column(string(d), false)
	}
	for _, name := range []string{"total", "used", "wasted", "unmeasured", "other", "unknown"} {
		column(name, true)
	}
	progress := map[string]*view.SeenProgress{}
	resource := slices.Index(c.By, ledger.ByResource)
	for i := 0; resource >= 0 && i < len(c.Progress); i++ {
		progress[c.Progress[i].Resource] = &c.Progress[i].SeenProgress
	}
	if len(progress) > 0 {
		column(progressHead, true)
	}
	for i, r := range c.Rows {
		if i == maxRows {
			g.Title = fmt.Sprintf("the first %d of %d rows; -o csv has all", maxRows, len(c.Rows))
			break
		}
		var row []string
		if periods {
			row = append(row, r.Period.Format(periodLayouts[c.Granularity]))
		}
		for i, k := range r.Key {
			row = append(row, c.By[i].Label(k))
		}
		row = append(row, costCells(r)...)
		if len(progress) > 0 {
			row = append(row, sinceProgress(progress[r.Key[resource]]))
		}
		g.Rows = append(g.Rows, row)
	}
	if keys := slices.Index(g.Head, "total"); len(c.Rows) > 1 && keys > 0 {
		row := make([]string, keys, len(g.Head))
		row[0] = "total"
		row = append(row, costCells(t)...)
		g.Rows = append(g.Rows, row[:len(g.Head)])
	}
	if len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	if c.Total.Wasted > 0 {
		s.Commands = []string{"curfew costs --by resource,duty --since " + plain.Date(c.Since), "curfew scan"}
	}
	return s
}

// shownChanges limits the changes in the title of costs.
const shownChanges = 3

// changeText describes the change against the previous period and its largest parts.
func changeText(b *costs.PeriodChange) string {
	text := ""
	switch change := *b.Change; {
	case change.Dollars() == money.Amount(0).Dollars():
		text = "as much as in the period before"
	default:
		word := "more"
		if change < 0 {
			word, change = "less", -change
		}
		text = usd(change)
		if *b.Total > 0 {
			text += " (" + plain.Share(float64(change)/float64(*b.Total), 0) + ")"
		}
		text += " " + word + " than in the period before"
	}
	var parts []string
	for i, change := range b.Changes {
		if i == shownChanges {
			parts = append(parts, fmt.Sprintf("%d more", len(b.Changes)-i))
			break
		}
		parts = append(parts, b.By.Label(change.Key)+" "+change.Change.Signed())
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// LastWeek describes the change of the last 7 days against the 7 before, or why it is unknown.
func LastWeek(c view.Costs) string {
	switch {
	case c.Costs == nil || !c.Recorded:
		return "Nothing of the last 7 days is recorded yet, so that nothing is compared with last week"
	case c.Comparison == nil:
		return "Last 7 days: " + usd(c.Total.Amount) + " spent"
	case c.Comparison.Unknown != "":
		return fmt.Sprintf("Last 7 days: %s spent. Not compared with the 7 days before: %s", usd(c.Total.Amount),
			c.Comparison.Unknown)
	}
	return "Last 7 days: " + usd(c.Total.Amount) + " spent, " + changeText(c.Comparison)
}

// against adds the change to the previous period by the first dimension to the title, and the dates
// below the totals.
func against(s *layout.Sheet, c view.Costs, span string) {
	b := c.Comparison
	switch {
	case b == nil:
		return
	case b.Unknown != "":
		s.Remarks = append(s.Remarks, fmt.Sprintf("Not compared with the period before, %s to %s: %s.",
			plain.Date(b.Since), plain.Time(b.Until), b.Unknown))
		return
	}
	s.Title = usd(c.Total.Amount) + " spent, " + changeText(b)
	dates := fmt.Sprintf("%s, compared with %s to %s", span, plain.Date(b.Since), plain.Time(b.Until))
	if b.UnknownSeconds > 0 {
		dates += ", of which " + plain.MeteredHours(b.UnknownSeconds) + " are not charged"
	}
	s.Remarks = append(s.Remarks, dates+".")
}

// costCells returns the amounts of a row.
func costCells(c costs.Cost) []string {
	return []string{
		usd(c.Amount), usd(c.Used), usd(c.Wasted), usd(c.CannotJudge), usd(c.Other), unknownText(c.UnknownSeconds),
	}
}

// CostsCSV writes a header and a row for each cost. Amounts have all digits so that they sum up;
// unknown amounts are empty. Text that a spreadsheet would read as a formula is prefixed with an
// apostrophe.
func CostsCSV(w io.Writer, c view.Costs) error {
	return layout.WriteCSV(w, "costs", func(yield func([]string) bool) {
		row := []string{"period"}
		for _, d := range c.By {
			row = append(row, string(d))
		}
		row = append(row, "used_usd", "wasted_usd", "cannot_judge_usd", "other_usd", "total_usd", "unknown_seconds",
			"unknown_at_most_usd",
			"unbounded_seconds", "starved_usd", "warming_usd")
		for i := 0; yield(row) && i < len(c.Rows); i++ {
			r := &c.Rows[i]
			row = append([]string{r.Period.Format(time.RFC3339)}, r.Key...)
			for _, a := range []money.Amount{r.Used, r.Wasted, r.CannotJudge, r.Other, r.Amount} {
				row = append(row, everyDigit(&a))
			}
			row = append(row, strconv.FormatInt(r.UnknownSeconds, 10), everyDigit(r.AtMost),
				strconv.FormatInt(r.UnboundedSeconds, 10),
				everyDigit(&r.Starved), everyDigit(&r.Warming))
		}
	})
}

// everyDigit formats an amount for programs; unknown is empty.
func everyDigit(d *money.Amount) string {
	if d == nil {
		return ""
	}
	return d.String()
}
