package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// fit cuts s to at most width columns, ending in "…" where something was cut.
func fit(s string, width int) string {
	if width <= 0 {
		return ""
	}
	return ansi.Truncate(s, width, "…")
}

// wordwrap breaks text at its spaces into lines of at most width columns. A word that is
// longer has a line of its own: names, and commands in backticks, are never broken.
func wordwrap(s string, width int) []string {
	var lines []string
	for _, word := range wholeWords(s) {
		if last := len(lines) - 1; last >= 0 && wide(lines[last])+1+wide(word) <= width {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

// wholeWords are the words of a text; a command in backticks is one.
func wholeWords(s string) []string {
	words := strings.Fields(s)
	odd := func(word string) bool { return strings.Count(word, "`")%2 == 1 }
	var out []string
	for i := 0; i < len(words); i++ {
		if !odd(words[i]) {
			out = append(out, words[i])
			continue
		}
		end := i + 1 + slices.IndexFunc(words[i+1:], odd) // i where nothing closes it
		out = append(out, strings.Join(words[i:end+1], " "))
		i = end
	}
	return out
}

// wide returns the columns that s takes in a terminal.
func wide(s string) int { return ansi.StringWidth(s) }

// share is part's share of the whole, at most 1 and 0 where either is not known.
func share(part, whole money.Dollars) float64 {
	p, okP := part.Get()
	w, okW := whole.Get()
	if !okP || !okW || p <= 0 || w <= 0 {
		return 0
	}
	return min(1, money.Ratio(p, w))
}

// wasteShare is the part of what was charged over the window that was wasted.
func (d *audit) wasteShare() float64 {
	if d.Window == nil {
		return 0
	}
	return share(d.Window.WastedUSD, d.Window.TotalUSD)
}

// hourly prints what a month's amount is an hour: "$41.20/h".
func hourly(d money.Dollars) string {
	a, ok := d.Get()
	if !ok {
		return ""
	}
	h, err := a.Mul(1, money.HoursPerMonth)
	if err != nil {
		return ""
	}
	sign := ""
	if strings.HasPrefix(h.Cents(), "-") {
		sign = "-"
	}
	whole, cents, _ := strings.Cut(strings.TrimPrefix(h.Cents(), "-"), ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return ""
	}
	return sign + "$" + money.Thousands(n) + "." + cents + "/h"
}

// saves prints what a finding saves a month for a table: "$2,190", "≤ $640" where
// only a bound is known, "?" where not even that.
func saves(f *view.Finding) string {
	switch {
	case f.MonthlySavingsUSD.Known():
		return f.MonthlySavingsUSD.String()
	case f.SavingsUpperBoundUSD.Known():
		return "≤ " + f.SavingsUpperBoundUSD.String()
	}
	return "?"
}

// stepSaves is saves for a step.
func stepSaves(s *view.ScanStep) string {
	switch {
	case s.MonthlySavingsUSD.Known():
		return s.MonthlySavingsUSD.String()
	case s.SavingsUpperBoundUSD.Known():
		return "≤ " + s.SavingsUpperBoundUSD.String()
	}
	return "?"
}

// allSteps asks Document.beyond for the findings of every step.
const allSteps = -1

// bounds returns what findings of a step whose saving is not known may save at
// most, and how many of them have no bound either. What is first to be measured
// promises nothing and is left out.
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

// beyond says what may come on top of the known savings of a step: "up to $640
// more, 1 finding without a figure". It is empty when nothing may.
func (d *audit) beyond(step int) string {
	most, open := d.bounds(step)
	var more, unknown string
	if most > 0 {
		more = "up to " + most.Dollars() + " more"
	}
	if open > 0 {
		unknown = plain.Count(open, "finding") + " without a figure"
	}
	return joined(", ", more, unknown)
}

// joined joins what is not empty.
func joined(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), separator)
}

// thing names a resource for people: its type, its name or id, its region.
func thing(r *view.Resource) string {
	parts := []string{r.Type, r.ID}
	if r.Name != "" && r.Name != r.ID {
		parts = []string{r.Type, r.Name, r.ID}
	}
	return plain.Line(strings.Join(append(parts, r.Region), " "))
}

// owner names who answers for a resource: "vision/ana".
func owner(r *view.Resource) string {
	who := plain.Line(cmp.Or(r.Owner.User, r.Owner.Project))
	team := plain.Line(r.Owner.Team)
	switch {
	case team == "" && who == "":
		return none
	case team == "":
		return "?/" + who
	case who == "":
		return team
	}
	return team + "/" + who
}

// none stands where there is nothing to say.
const none = "–"

func short(id string, n int) string {
	return id[:min(n, len(id))]
}

// took is how long the audit ran: "38 s".
func (d *audit) took() string {
	t := d.FinishedAt.Sub(d.StartedAt)
	switch {
	case t < 0:
		return "0 s"
	case t.Seconds() < 1:
		return "<1 s"
	case t.Minutes() < 2:
		return strconv.Itoa(int(t.Seconds()+0.5)) + " s"
	}
	return strconv.Itoa(int(t.Minutes())) + " min"
}

// scope says what was looked at: "aws 123456789012, us-east-1" or "2 accounts".
func (d *audit) scope() []string {
	out := []string{plain.Line(d.Cloud)}
	switch len(d.Accounts) {
	case 0:
	case 1:
		out[0] += " " + plain.Line(d.Accounts[0])
	default:
		out = append(out, plain.Count(len(d.Accounts), "account"))
	}
	switch len(d.Regions) {
	case 0:
	case 1:
		out = append(out, plain.Line(d.Regions[0]))
	default:
		out = append(out, plain.Count(len(d.Regions), "region"))
	}
	out = append(out, plain.Count(d.Resources.Count, "resource"))
	if d.o.Age > 0 {
		out = append(out, "as read "+plain.Duration(d.o.Age)+" ago")
	}
	return out
}

// again is the command that shows this audit in another form.
func (d *audit) again() string {
	if d.o.Again != "" {
		return d.o.Again
	}
	return d.rescan()
}

// rescan is the command that reads the account again.
func (d *audit) rescan() string {
	if d.Cloud == "sim" {
		return "curfew scan --demo" + d.o.Globals
	}
	return "curfew scan" + d.o.Globals
}
