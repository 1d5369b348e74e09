package view

import (
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/money"
)

// PlanFigure begins the ids of the figures of the plan of the account.
const PlanFigure = "plan"

// planFigures are the figures of the plan that the audit keeps.
func (d *Scan) planFigures() []figure {
	p := d.Kept.Plan
	if p == nil {
		return nil
	}
	const id, command = PlanFigure, "curfew plan account"
	basis := "a month at list price, each step on what the ones before leave"
	out := []figure{
		{
			id: id + ".before", label: "a month of what runs now", value: money.Known(p.BeforeUSD), basis: d.atRate(),
			rows: func() (rows []WhyRow) {
				for _, t := range p.Teams {
					rows = addRow(rows, "team."+t.Team+".running", team(t.Team), t.BeforeUSD)
				}
				return rows
			}, command: command, excluded: d.committed(),
		},
		{
			id: id + ".saves", label: "saved a month by the plan", value: money.Known(p.SavingUSD), basis: basis,
			rows: func() []WhyRow { return stepRows(p.Steps, 1) }, command: command,
			excluded: planBounded(p.PerhapsUSD),
		},
		{
			id: id + ".after", label: "a month after the plan", value: money.Known(p.AfterUSD), basis: basis,
			rows: func() []WhyRow {
				first := WhyRow{Figure: id + ".before", Label: "today", AmountUSD: money.Known(p.BeforeUSD)}
				return append([]WhyRow{first}, stepRows(p.Steps, -1)...)
			}, command: command,
		},
		{
			id: id + ".perhaps", label: "what changes with a bounded saving may save a month in addition, at most",
			value: money.Known(p.PerhapsUSD), basis: basis, command: command,
			rows: func() []WhyRow {
				return itemRows(p.Steps, func(it *accountplan.Item) money.Amount { return it.PerhapsUSD })
			},
		},
	}
	before := p.BeforeUSD
	for i := range p.Steps {
		out = append(out, planStepFigures(p.Steps[i:i+1], before, basis, command)...)
		before = p.Steps[i].AfterUSD
	}
	for _, r := range p.Risks {
		out = append(out, figure{
			id: id + ".risk." + r.Risk, label: "saved a month by changes with risk " + r.Risk,
			value: money.Known(r.SavingUSD), basis: basis, command: command,
			rows: func() []WhyRow {
				return itemRows(p.Steps, func(it *accountplan.Item) money.Amount {
					if it.Risk != r.Risk {
						return 0
					}
					return it.SavingUSD.Or(0)
				})
			},
		})
	}
	for _, t := range p.Teams {
		out = append(out, figure{
			id: id + ".team." + t.Team, label: "a month of " + team(t.Team) + " after the plan",
			value: money.Known(t.AfterUSD), basis: basis, command: command,
			rows: func() []WhyRow { return d.planTeam(p, t) }, excluded: []string{"commitments, which are of no team"},
		})
	}
	return out
}

// planStepFigures are the figures of one step, whose bill before it is before.
func planStepFigures(step []accountplan.Step, before money.Amount, basis, command string) []figure {
	s := &step[0]
	id := PlanFigure + ".step." + strconv.Itoa(s.Number)
	return []figure{
		{
			id: id + ".saves", label: "saved a month by step " + s.Name, value: money.Known(s.SavingUSD), basis: basis,
			rows: func() []WhyRow {
				return itemRows(step, func(it *accountplan.Item) money.Amount { return it.SavingUSD.Or(0) })
			}, command: command, excluded: planBounded(s.PerhapsUSD),
		},
		{
			id: id + ".after", label: "a month after step " + s.Name, value: money.Known(s.AfterUSD), basis: basis,
			rows: func() []WhyRow {
				prior := WhyRow{Label: "today", Figure: PlanFigure + ".before", AmountUSD: money.Known(before)}
				if s.Number > 1 {
					prior.Label = "after the step before"
					prior.Figure = PlanFigure + ".step." + strconv.Itoa(s.Number-1) + ".after"
				}
				return append([]WhyRow{prior}, stepRows(step, -1)...)
			}, command: command,
		},
	}
}

// addRow appends a row with an amount other than zero.
func addRow(rows []WhyRow, figure, label string, v money.Amount) []WhyRow {
	if v == 0 {
		return rows
	}
	return append(rows, WhyRow{Figure: figure, Label: label, AmountUSD: money.Known(v)})
}

// planBounded names the savings that are bounded alone, and in no sum.
func planBounded(perhaps money.Amount) []string {
	if perhaps == 0 {
		return nil
	}
	return []string{"up to " + perhaps.Dollars() + " more, of changes whose saving is only bounded"}
}

// stepRows are the savings of steps, times sign.
func stepRows(steps []accountplan.Step, sign money.Amount) (rows []WhyRow) {
	for _, s := range steps {
		rows = addRow(rows, PlanFigure+".step."+strconv.Itoa(s.Number)+".saves", "step "+s.Name, sign*s.SavingUSD)
	}
	return rows
}

// itemFigure is the explanation of a change; a commitment is explained by its planner alone.
func itemFigure(it *accountplan.Item) string {
	if it.Finding == "" {
		return ""
	}
	return "finding." + it.Finding + ".saves"
}

// itemRows are the amounts of the changes of steps.
func itemRows(steps []accountplan.Step, of func(*accountplan.Item) money.Amount) (rows []WhyRow) {
	for i := range steps {
		for k := range steps[i].Items {
			it := &steps[i].Items[k]
			n := len(rows)
			if rows = addRow(rows, itemFigure(it), strings.TrimSpace(it.Rule+" "+it.Resource), of(it)); len(rows) > n {
				rows[n].Note = it.Because
			}
		}
	}
	return rows
}

// planTeam divides what a plan leaves of a team: what it pays today, less what each change saves of it.
func (d *Scan) planTeam(p *accountplan.Account, t accountplan.Party) []WhyRow {
	owner := map[string]string{}
	for i := range d.Kept.Charges {
		owner[d.Kept.Charges[i].Resource] = d.Kept.Charges[i].Team
	}
	claims := map[string][]*ScanClaim{}
	for i := range d.Kept.Claims {
		c := &d.Kept.Claims[i]
		claims[c.Finding] = append(claims[c.Finding], c)
	}
	rows := []WhyRow{{
		Figure: "team." + t.Team + ".running", Label: "today", AmountUSD: money.Known(t.BeforeUSD),
	}}
	return append(rows, itemRows(p.Steps, func(it *accountplan.Item) money.Amount {
		if it.Finding == "" {
			return 0
		}
		left, saved := it.SavingUSD.Or(0), money.Amount(0)
		for _, c := range claims[it.Finding] {
			part := min(c.SavesUSD, left)
			if left -= part; owner[c.Resource] == t.Team {
				saved += part
			}
		}
		if it.Team == t.Team {
			saved += left
		}
		return -saved
	})...)
}
