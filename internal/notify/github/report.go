package github

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Report is the content of a comment. None of its text is taken for markup.
type Report struct {
	// Key tells the comments on one pull request apart: the path of the file.
	Key string
	// Subject names what was asked for: "job resnet50".
	Subject string
	// Decision is "allow", "ask" or "deny"; anything else is shown as undecided.
	Decision string
	Reasons  []string
	// P50, P95 and Hourly are the estimate; nil is unknown.
	P50, P95, Hourly *money.Amount
	Lines            []Line
	// Unknown lists the unpriced parts of the estimate, Assumptions its assumptions.
	Unknown, Assumptions []string
	Budgets              []Budget
	// Approval is the id of the request that waits until Until for an approver to allow
	// at most Limit.
	Approval string
	Limit    money.Amount
	Until    time.Time
	// Plan is the plan to approve, line by line, and WouldPass alternatives to a denied one that
	// pass.
	Plan, WouldPass []string
}

// Line is a line of the estimate, its figures written out.
type Line struct {
	What, Quantity, UnitPrice string
	P50, P95                  money.Amount
	// Source is where the unit price is from, and of when.
	Source string
}

// Budget is a budget: what is committed of Amount without and with what was asked for.
type Budget struct {
	Name                  string
	Before, After, Amount money.Amount
}

// Longest parts of a comment, in entries and characters. Together they stay under the
// 65,536 characters that GitHub takes.
const (
	maxList  = 20
	maxTable = 40
	maxText  = 300
	maxCell  = 120
)

// marker returns the first line of the comment, which is invisible to readers.
func (r Report) marker() string {
	sum := sha256.Sum256([]byte(r.Key))
	return "<!-- curfew-gate " + hex.EncodeToString(sum[:8]) + " -->"
}

// headlines are the decisions in words.
var headlines = map[string]string{"allow": "is allowed", "ask": "waits for an approval", "deny": "is denied"}

// markdown formats the report for a head commit: the decision in a sentence, one table, and the
// rest collapsed. The commit is the only hash: a review only counts for that commit.
func (r Report) markdown(head string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n**curfew: %s %s** at %s: %s%s.\n", r.marker(), cell(cmp.Or(r.Subject, r.Key)),
		cmp.Or(headlines[r.Decision], "is undecided"), cell(short(head)), r.cost(), r.call())
	if len(r.Budgets) > 0 {
		table(&b, "| budget | before | after | of |\n| --- | ---: | ---: | ---: |\n", r.Budgets,
			func(x Budget) []string {
				return []string{cell(x.Name), x.Before.Exact(), x.After.Exact(), x.Amount.Exact()}
			})
	} else {
		r.lines(&b)
	}
	fmt.Fprintf(&b, "\n<details><summary>%s</summary>\n", strings.Join(r.folded(), ", "))
	list(&b, "Reasons:", r.Reasons)
	list(&b, "Unknown, not counted:", r.Unknown)
	list(&b, "What is approved:", r.Plan)
	list(&b, "What would pass:", r.WouldPass)
	if len(r.Budgets) > 0 {
		r.lines(&b)
	}
	list(&b, "Assumed:", r.Assumptions)
	b.WriteString(r.next())
	fmt.Fprintf(&b, "\nFile: %s\n\n</details>\n", cell(r.Key))
	return b.String()
}

// cost returns the estimate in words.
func (r Report) cost() string {
	if r.P50 == nil || r.P95 == nil {
		return "the cost is **not known**"
	}
	s := "it costs **" + r.P50.Exact() + "**"
	if *r.P95 != *r.P50 {
		s += " to **" + r.P95.Exact() + "** (p50 to p95)"
	}
	if r.Hourly != nil {
		s += ", " + r.Hourly.Exact() + " an hour"
	}
	return s
}

// call returns the end of the sentence: what an approver does, or the first reason.
func (r Report) call() string {
	if r.Decision != "ask" {
		if len(r.Reasons) == 0 {
			return ""
		}
		return "; " + code(r.Reasons[0], maxText)
	}
	s := "; an approver approves this pull request"
	if r.Approval != "" {
		s += ", or runs " + cell("curfew approve "+r.Approval)
	}
	if !r.Until.IsZero() {
		s += ", by " + r.Until.UTC().Format("Mon 2 Jan 2006, 15:04 MST")
	}
	return s
}

// folded returns the names of the collapsed parts.
func (r Report) folded() []string {
	var names []string
	for _, part := range []struct {
		name string
		has  bool
	}{
		{"reasons", len(r.Reasons) > 0},
		{fmt.Sprintf("%d unknown", len(r.Unknown)), len(r.Unknown) > 0},
		{"what is approved", len(r.Plan) > 0},
		{"what would pass", len(r.WouldPass) > 0},
		{"estimate", len(r.Lines)+len(r.Assumptions) > 0},
	} {
		if part.has {
			names = append(names, part.name)
		}
	}
	return append(names, "what to do")
}

// lines writes the lines of the estimate.
func (r Report) lines(b *strings.Builder) {
	table(b, "| what | quantity | unit price | p50 | p95 | source |\n| --- | ---: | ---: | ---: | ---: | --- |\n",
		r.Lines, func(l Line) []string {
			return []string{
				cell(l.What), cell(l.Quantity), cell(l.UnitPrice), l.P50.Exact(), l.P95.Exact(), cell(l.Source),
			}
		})
}

// next returns the next step in full.
func (r Report) next() string {
	switch r.Decision {
	case "ask":
		return "\nThe approver wrote none of this pull request, and is named in the configuration. After the approval " +
			"this check is run again. It allows exactly this, once, for at most " + r.Limit.Exact() + ".\n"
	case "deny":
		return "\nNothing starts. Make it smaller or cheaper, or have the limit changed that is named above; then push or " +
			"run this check again.\n"
	}
	return ""
}

// table writes a table of at most maxTable rows, and the number of further rows.
func table[T any](b *strings.Builder, header string, rows []T, cells func(T) []string) {
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n" + header)
	for _, row := range rows[:min(len(rows), maxTable)] {
		b.WriteString("| " + strings.Join(cells(row), " | ") + " |\n")
	}
	if n := len(rows) - maxTable; n > 0 {
		fmt.Fprintf(b, "\nand %d more\n", n)
	}
}

// list writes a list of at most maxList entries, and the number of further entries.
func list(b *strings.Builder, title string, entries []string) {
	if len(entries) == 0 {
		return
	}
	if title != "" {
		b.WriteString("\n" + title + "\n")
	}
	b.WriteString("\n")
	for _, e := range entries[:min(len(entries), maxList)] {
		b.WriteString("- " + code(e, maxText) + "\n")
	}
	if n := len(entries) - maxList; n > 0 {
		fmt.Fprintf(b, "- and %d more\n", n)
	}
}

// cell returns code for a table cell, which ends at a |, escaped or not.
func cell(s string) string { return code(strings.ReplaceAll(s, "|", "¦"), maxCell) }

// code returns a text as code without backticks: in code, GitHub recognizes neither markup nor
// mentions, references or links.
func code(s string, n int) string {
	s = plain.Cut(plain.Line(strings.ReplaceAll(s, "`", "'")), n)
	if s == "" {
		return "–"
	}
	return "`" + s + "`"
}
