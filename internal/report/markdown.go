package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// Markdown writes the audit for a pull request or a page: the sums, the steps, the
// largest findings (with Options.All every one) and what the figures do not cover.
// Names from outside are in code spans or escaped, so that they are only ever text.
func Markdown(w io.Writer, scan view.Scan, o Options) error {
	d := newAudit(scan, o)
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("## curfew scan: %s\n\n", mdText(headline(d)))
	p("%s, %s\n\n", mdText(strings.Join(d.scope(), ", ")), d.FinishedAt.Format("2006-01-02 15:04 MST"))
	if d.Resources.Count > 0 {
		p("| | a month | an hour | |\n|---|---:|---:|---|\n")
		p("| running | %s | %s | %s |\n", d.MonthlyCostUSD, hourly(d.MonthlyCostUSD), mdText(d.MonthlyCostNote))
		part := ""
		if d.MonthlyWasteUSD.Known() {
			part = plain.Share(d.wasteShare(), 0) + " of the cost"
		}
		p("| **wasted** | **%s** | %s | %s |\n", d.MonthlyWasteUSD, hourly(d.MonthlyWasteUSD), mdText(joined(" ", part, d.MonthlyWasteNote)))
		p("| findings | %s | %s | is wasted at today's rate |\n", d.Totals.FindingsWasteUSD, hourly(d.Totals.FindingsWasteUSD))
		p("| can save | %s | | %s |\n", d.Totals.MonthlySavingsUSD, mdText(d.beyond(allSteps)))
		if len(d.CannotJudge) > 0 {
			p("| unmeasured | %s | %s | %s, neither used nor wasted |\n", d.Totals.MonthlyCannotJudgeUSD, hourly(d.Totals.MonthlyCannotJudgeUSD), plain.Count(len(d.CannotJudge), "machine"))
		}
		p("\n")
		if t := d.terms(); t != "" {
			p("%s\n\n", mdText(t))
		}
	}
	if len(d.Steps) > 0 {
		p("| step | findings | saves a month | | risk |\n|---|---:|---:|---|---|\n")
		for i := range d.Steps {
			s := &d.Steps[i]
			amount := stepSaves(s)
			if s.Step == int(finding.StepMeasure) && s.MonthlySavingsUSD.Or(0) == 0 {
				amount = "–"
			}
			p("| %s | %s | %s | %s | %s |\n", mdText(stepName(s)), money.Thousands(int64(s.Findings)), amount, mdText(d.beyond(s.Step)), mdText(string(s.Risk)))
		}
		p("\n")
	}
	list, title := d.Largest(o.top()), "Largest findings"
	if o.All {
		list, title = d.Largest(-1), "Findings"
	}
	if len(list) > 0 {
		n := d.IDLength()
		p("### %s\n\n| a month | fix | finding | resource | owner | because | risk | undo |\n|---:|---|---|---|---|---|---|---|\n", title)
		for _, f := range list {
			p("| %s | %s | %s | %s | %s | %s | %s | %s |\n", saves(f), mdCode(short(f.ID, n)), mdCode(f.Rule), mdCode(thing(&f.Resource)),
				mdCode(owner(&f.Resource)), mdText(f.Because), mdText(string(f.Fix.Risk)), mdText(string(f.Fix.Undo)))
		}
		if more := len(d.Findings) - len(list); more > 0 {
			p("\nAnd %s.\n", plain.Count(more, "more finding"))
		}
		p("\n")
	}
	gap := d.Window.Gap()
	if len(d.CannotJudge)+len(d.Unpriced)+len(d.BlindSpots) > 0 || gap != "" {
		p("### What these figures do not cover\n\n")
		if u := d.unmeasured(); u != nil {
			p("- Unmeasured: %s %s\n", mdText(u.Text), mdCode(u.Command))
		}
		if gap != "" {
			p("- Not known: %s\n", mdText(gap))
		}
		for i := range d.Unpriced {
			p("- No price: %s\n", mdText(unpricedLine(&d.Unpriced[i])))
		}
		for _, s := range d.BlindSpots {
			p("- Not seen: %s (%s): %s\n", mdText(s.What), mdCode(s.Why), mdText(s.Effect))
		}
		p("\n")
	}
	if d.Billed != nil {
		p("Billed: %s from %s to %s (%s). ", d.Billed.TotalUSD, d.Billed.Start.Format(time.DateOnly), d.Billed.End.Format(time.DateOnly), mdText(d.Billed.Source))
		if line := notCovered(d.Billed, len(d.Billed.ByService)); line != "" {
			p("Not covered: %s. ", mdText(line))
		}
	}
	if len(d.APICalls) > 0 {
		p("This scan: %s.", mdText(callsLine(d)))
	}
	if _, err := io.WriteString(w, strings.TrimRight(b.String(), "\n ")+"\n"); err != nil {
		return fmt.Errorf("write the audit as Markdown: %w", err)
	}
	return nil
}

// summaryFindings is how many findings a summary names.
const summaryFindings = 5

// Summary writes the audit in a few lines of Markdown without tables, for a comment on a
// pull request or a post in a chat: the headline, the largest findings with the commands
// that fix them, what was not measured and what was not read.
func Summary(w io.Writer, scan view.Scan, o Options) error {
	d := newAudit(scan, o)
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("**curfew scan: %s**\n%s\n", mdText(headline(d)), mdText(strings.Join(d.scope(), ", ")))
	if v := d.Totals.MonthlySavingsUSD; v.Or(0) > 0 {
		p("\nFixes save %s a month", v)
		if more := d.beyond(allSteps); more != "" {
			p(", and %s", mdText(more))
		}
		p(":\n")
	}
	list := d.Largest(summaryFindings)
	n := d.IDLength()
	for _, f := range list {
		r := f.Resource
		if r.Name != "" {
			r.ID = ""
		}
		p("- %s a month: %s, %s", saves(f), mdCode(thing(&r)), mdText(f.Because))
		if who := owner(&f.Resource); who != none {
			p(" (%s)", mdCode(who))
		}
		if plain.Line(f.Fix.Command) != "" && f.MonthlySavingsUSD.Or(0) > 0 {
			p(" – %s", mdCode("curfew fix "+short(f.ID, n)))
		}
		p("\n")
	}
	if more := len(d.Findings) - len(list); more > 0 && len(list) > 0 {
		p("- and %s\n", plain.Count(more, "more finding"))
	}
	var notes []string
	if u := d.unmeasured(); u != nil {
		notes = append(notes, mdText(u.Text)+" "+mdCode(u.Command))
	}
	if line := notCovered(d.Billed, maxServices); line != "" {
		notes = append(notes, mdText(line))
	}
	if len(d.BlindSpots) > 0 {
		notes = append(notes, plain.Count(len(d.BlindSpots), "source")+" could not be read")
	}
	if k := d.Totals.UnpricedResources; k > 0 {
		notes = append(notes, plain.Count(k, "resource")+" without a price")
	}
	if len(notes) > 0 {
		p("\nNot in these figures:\n")
		for _, note := range notes {
			p("- %s\n", note)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the audit as a summary: %w", err)
	}
	return nil
}

// headline is the audit in one sentence.
func headline(d *audit) string {
	cost, priced := d.MonthlyCostUSD.Get()
	waste, known := d.MonthlyWasteUSD.Get()
	switch {
	case d.Resources.Count == 0:
		return "no resources in what could be read"
	case !priced:
		return "nothing that runs has a price"
	case !known:
		return cost.Dollars() + " a month, and what is wasted has no price"
	case waste == 0:
		return cost.Dollars() + " a month, and no waste in what could be judged"
	}
	return waste.Dollars() + " a month is wasted, " + plain.Share(d.wasteShare(), 0) + " of what the last " + d.Window.Span() + " cost"
}

var mdSpecial = strings.NewReplacer(
	"&", "&amp;", "<", "&lt;", ">", "&gt;", `\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "{", `\{`, "}", `\}`, "[", `\[`, "]", `\]`,
	"://", `:\//`, "www.", `www\.`, "#", `\#`, "+", `\+`, "!", `\!`, "|", `\|`, "~", `\~`, "@", `\@`,
)

// mdText escapes text so that Markdown shows it as it is.
func mdText(s string) string { return mdSpecial.Replace(plain.Line(s)) }

// mdCode puts text from outside into a code span, in which no name is a link, a
// mention or markup. A bar is escaped because tables are cut before spans are.
func mdCode(s string) string {
	s = strings.NewReplacer("`", "'", "|", `\|`).Replace(plain.Line(s))
	if s == "" || s == none {
		return s
	}
	return "`" + s + "`"
}
