package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// AccountChanges is the title of the table of changes.
const AccountChanges = "Changes"

// ItemSaves returns what a change of a plan saves a month.
func ItemSaves(it accountplan.Item) string {
	if v, ok := it.SavingUSD.Get(); ok {
		return v.Dollars()
	}
	return "up to " + it.PerhapsUSD.Dollars()
}

// accountItems is the number of changes per step in the table.
const accountItems = 5

// Account shows the plan of an account, from the bill of today to the bill after.
func Account(r accountplan.Account) layout.Sheet {
	s := layout.Sheet{
		Verb: "plan account", Picture: accountPicture(r),
		Caption: "A month of what runs now, and what each step leaves of it: the green part is saved by the step.",
		Figures: []layout.Figure{
			{Label: "Today", Value: r.BeforeUSD.Dollars(), Note: "a month of what runs now"},
			{Label: "After all steps", Value: r.AfterUSD.Dollars()},
			{Label: "Saving", Value: r.SavingUSD.Dollars(), Note: plain.Share(r.SavingShare, 0) + " of today"},
			{Label: "Work", Value: plain.Number(r.PersonDays, 1) + " person-days"},
		},
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes,
	}
	s.Title = fmt.Sprintf("From %s to %s a month: %s saved in %s person-days", r.BeforeUSD.Dollars(),
		r.AfterUSD.Dollars(), plain.Share(r.SavingShare, 0), plain.Number(r.PersonDays, 1))
	if r.SavingUSD == 0 {
		s.Title = "Change nothing: no finding saves known dollars of " + r.BeforeUSD.Dollars() + " a month"
	}
	if r.PerhapsUSD > 0 {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "Perhaps", Value: r.PerhapsUSD.Dollars(), Note: "more, where a saving is only bounded",
		})
	}
	if r.Unpriced > 0 {
		s.Coverage = append(s.Coverage, plain.Count(r.Unpriced, "resource")+" without a price, in no amount")
	}
	steps := layout.Grid{
		Title: "Steps", Head: []string{"step", "changes", "saves a month", "then", "person-days", "risk"},
		Right: []bool{false, true, true, true, true, false},
	}
	changes := layout.Grid{
		Title: AccountChanges,
		Head:  []string{"saves a month", "step", "change", "resource", "team", "risk", "command"},
		Right: []bool{true}, Priority: []int{1, 0, 1, 1},
	}
	for _, step := range r.Steps {
		note := ""
		if step.PerhapsUSD > 0 {
			note = "perhaps " + step.PerhapsUSD.Dollars() + " more"
		}
		steps.Rows = append(steps.Rows, []string{
			fmt.Sprintf("%d %s", step.Number, step.Name), strconv.Itoa(len(step.Items)), step.SavingUSD.Dollars(),
			step.AfterUSD.Dollars(), plain.Number(step.PersonDays, 1), step.Risk,
		})
		steps.Notes = append(steps.Notes, note)
		for i, it := range step.Items[:min(len(step.Items), accountItems)] {
			note = it.Because
			if more := len(step.Items) - accountItems; more > 0 && i == accountItems-1 {
				note += fmt.Sprintf("; %d more changes in this step (-o json has all)", more)
			}
			changes.Rows = append(changes.Rows, []string{
				ItemSaves(it), strconv.Itoa(step.Number), it.Rule, it.Resource, it.Team, it.Risk, it.Command,
			})
			changes.Notes = append(changes.Notes, note)
		}
	}
	s.Tables = append(s.Tables, steps)
	if len(changes.Rows) > 0 {
		if commands := len(changes.Head) - 1; !slices.ContainsFunc(changes.Rows, func(row []string) bool {
			return row[commands] != ""
		}) {
			changes.Head = changes.Head[:commands]
			for i := range changes.Rows {
				changes.Rows[i] = changes.Rows[i][:commands]
			}
		}
		s.Tables = append(s.Tables, changes)
	}
	s.Tables = append(s.Tables, accountTeams(r), accountRisks(r))
	return s
}

func accountTeams(r accountplan.Account) layout.Grid {
	g := layout.Grid{
		Title: "Teams", Head: []string{"team", "today", "after", "saves"}, Right: []bool{false, true, true, true},
	}
	for _, p := range r.Teams {
		g.Rows = append(g.Rows, []string{
			cmp.Or(p.Team, "unallocated"), p.BeforeUSD.Dollars(), p.AfterUSD.Dollars(),
			(p.BeforeUSD - p.AfterUSD).Dollars(),
		})
	}
	return g
}

func accountRisks(r accountplan.Account) layout.Grid {
	g := layout.Grid{
		Title: "Risk", Head: []string{"risk", "changes", "saves a month"}, Right: []bool{false, true, true},
	}
	for _, p := range r.Risks {
		g.Rows = append(g.Rows, []string{p.Risk, strconv.Itoa(p.Changes), p.SavingUSD.Dollars()})
	}
	return g
}

// accountPicture draws today's bill after each step.
func accountPicture(r accountplan.Account) string {
	usd := func(a money.Amount) float64 { return float64(a) / float64(money.USD) }
	b := chart.Bars{
		Title: "From the bill of today to the bill after each step", Ordered: true,
		Axis: chart.Axis{Label: "dollars a month", Format: func(v float64) string {
			return money.Amount(v * float64(money.USD)).Dollars()
		}},
		Parts: []string{"stays", "saved by the step"}, Colors: []chart.Color{chart.Blue, chart.Green},
		Rows: []chart.Bar{{
			Label: "today", Parts: []float64{usd(r.BeforeUSD), 0}, Note: r.BeforeUSD.Dollars(),
		}},
	}
	for _, step := range r.Steps {
		b.Rows = append(b.Rows, chart.Bar{
			Label: step.Name, Parts: []float64{usd(step.AfterUSD), usd(step.SavingUSD)},
			Note: step.AfterUSD.Dollars() + ", " + step.SavingUSD.Dollars() + " saved",
		})
	}
	return b.SVG()
}
