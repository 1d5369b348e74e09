package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// share returns part/whole, at most 1; 0 if either is unknown.
func share(part, whole money.Dollars) float64 {
	p, okP := part.Get()
	w, okW := whole.Get()
	if !okP || !okW || p <= 0 || w <= 0 {
		return 0
	}
	return min(1, money.Ratio(p, w))
}

// hourly formats a monthly amount per hour: "$41.20/h".
func hourly(d money.Dollars) string {
	a, ok := d.Get()
	if !ok {
		return ""
	}
	h, err := a.Mul(1, money.HoursPerMonth)
	if err != nil {
		return ""
	}
	return money.Known(h).String() + "/h"
}

// monthly formats an amount with its period: "$12,311 a month".
func monthly(d money.Dollars) string {
	if !d.Known() {
		return "unknown"
	}
	return d.String() + " a month"
}

// saves formats the monthly saving of a finding.
func saves(f *view.Finding) string { return saving(f.MonthlySavingsUSD, f.SavingsUpperBoundUSD) }

// saving formats a saving for a table: "$2,190", "≤ $640" if only a bound is known, "?" otherwise.
func saving(known, bound money.Dollars) string {
	switch {
	case known.Known():
		return known.String()
	case bound.Known():
		return "≤ " + bound.String()
	}
	return "?"
}

// allSteps selects the findings of every step in beyond.
const allSteps = -1

// bounds returns the upper bound of the unknown savings of a step, and the number of findings
// without a bound. Findings of the measuring step promise no saving and are excluded.
func (d *audit) bounds(step int) (most money.Amount, open int) {
	for i := range d.Findings {
		f := &d.Findings[i]
		if f.MonthlySavingsUSD.Known() || f.Step == int(finding.StepMeasure) || (step != allSteps && f.Step != step) {
			continue
		}
		bound, ok := f.SavingsUpperBoundUSD.Get()
		if !ok {
			open++
		}
		if v, err := most.Add(bound); err == nil {
			most = v
		}
	}
	return most, open
}

// beyond describes the possible savings of a step beyond the known ones: "perhaps $640 more; 1 not
// estimated". It is empty if there are none.
func (d *audit) beyond(step int) string {
	most, open := d.bounds(step)
	var more, unknown string
	if most > 0 {
		more = "perhaps " + most.Dollars() + " more"
	}
	if open > 0 {
		unknown = fmt.Sprintf("%d not estimated", open)
	}
	return layout.Joined("; ", more, unknown)
}

// thing formats a resource: its type, its name or ID, its region.
func thing(r *view.Resource) string {
	parts := []string{r.Type, r.ID}
	if r.Name != "" && r.Name != r.ID {
		parts = []string{r.Type, r.Name, r.ID}
	}
	return plain.Line(strings.Join(append(parts, r.Region), " "))
}

// owner formats the owner of a resource: "vision/ana".
func owner(r *view.Resource) string {
	who := plain.Line(cmp.Or(r.Owner.User, r.Owner.Project))
	team := plain.Line(r.Owner.Team)
	switch {
	case team == "" && who == "":
		return layout.None
	case team == "":
		return "?/" + who
	case who == "":
		return team
	}
	return team + "/" + who
}

func short(id string, n int) string {
	return id[:min(n, len(id))]
}

// again returns the command that shows this audit in another form.
func (d *audit) again() string {
	if d.o.Again != "" {
		return d.o.Again
	}
	return d.rescan()
}

// rescan returns the command that scans the account again.
func (d *audit) rescan() string { return d.command("scan") }

// command returns a command for the cloud of the audit.
func (d *audit) command(name string) string {
	if d.Cloud == "sim" {
		name += " --demo"
	}
	return "curfew " + name + d.o.Globals
}
