package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// Table writes the audit for a terminal: what runs and what of it is wasted, the
// steps with their dollars, the largest findings, what was not seen, and what to do
// next. No line is longer than the width.
func Table(w io.Writer, scan view.Scan, o Options) error {
	d := newAudit(scan, o)
	s := screen{doc: d, width: o.width(), top: o.top(), all: o.All, paint: newPaint(o.Color)}
	s.header()
	s.money()
	s.explain()
	s.notCovered()
	s.steps()
	s.findings()
	s.cautions()
	s.facts()
	s.next()
	if _, err := io.WriteString(w, s.b.String()); err != nil {
		return fmt.Errorf("write the audit as a table: %w", err)
	}
	return nil
}

// paint gives text its meaning in color: waste is red, what needs attention
// yellow, savings green, what is secondary dim.
type paint struct{ bold, dim, waste, attention, saving func(string) string }

func newPaint(color bool) paint {
	if !color {
		same := func(s string) string { return s }
		return paint{same, same, same, same, same}
	}
	style := func(s lipgloss.Style) func(string) string {
		return func(text string) string {
			if text == "" {
				return ""
			}
			return s.Render(text)
		}
	}
	base := lipgloss.NewStyle
	return paint{
		bold: style(base().Bold(true)), dim: style(base().Faint(true)),
		waste: style(base().Foreground(lipgloss.Red)), attention: style(base().Foreground(lipgloss.Yellow)),
		saving: style(base().Foreground(lipgloss.Green)),
	}
}

// screen is a table being written.
type screen struct {
	doc        *audit
	width, top int
	all        bool
	paint      paint
	b          strings.Builder
}

// line writes cells one after the other, cutting what does not fit.
func (s *screen) line(cells ...cell) {
	left := s.width
	var out strings.Builder
	for _, c := range cells {
		text := c.text
		if c.width > 0 {
			text = c.pad()
		}
		text = fit(text, left)
		left -= wide(text)
		if c.paint != nil {
			// Spaces around the text stay outside the color.
			body := strings.TrimSpace(text)
			lead := text[:len(text)-len(strings.TrimLeft(text, " "))]
			out.WriteString(lead + c.paint(body) + text[len(lead)+len(body):])
			continue
		}
		out.WriteString(text)
	}
	s.b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
}

// cell is text in a column.
type cell struct {
	text  string
	width int // 0: as wide as the text
	right bool
	paint func(string) string
}

func (c cell) pad() string {
	text := fit(c.text, c.width)
	space := strings.Repeat(" ", c.width-wide(text))
	if c.right {
		return space + text
	}
	return text + space
}

// gap is the space between columns.
var gap = cell{text: "  "}

func (s *screen) header() {
	s.remark([]cell{{text: "curfew scan ", paint: s.paint.bold}}, strings.Join(append(s.doc.scope(), s.doc.took()), ", "), 0)
}

// barWidth is the length of the bar of waste where there is room.
const barWidth = 20

func (s *screen) money() {
	d := s.doc
	if d.Resources.Count == 0 {
		s.line()
		s.line(cell{text: "  nothing found: no resources in what could be read"})
		return
	}
	label, perHour, perMonth := 11, 0, 0
	rows := []struct {
		name   string
		amount money.Dollars
	}{{"running", d.MonthlyCostUSD}, {"wasted", d.MonthlyWasteUSD}, {"findings", d.Totals.FindingsWasteUSD}, {"can save", d.Totals.MonthlySavingsUSD}}
	for _, r := range rows {
		perHour, perMonth = max(perHour, wide(hourly(r.amount))), max(perMonth, wide(monthly(r.amount)))
	}
	share := d.wasteShare()
	s.line()
	for _, r := range rows {
		cells := []cell{gap, {text: r.name, width: label}, {text: hourly(r.amount), width: perHour, right: true}, gap,
			{text: monthly(r.amount), width: perMonth, right: true}}
		note := ""
		switch r.name {
		case "running":
			cells[4].paint = s.paint.bold
			note = d.MonthlyCostNote
		case "wasted":
			if d.MonthlyWasteUSD.Or(0) > 0 {
				cells[1].paint, cells[2].paint, cells[4].paint = s.paint.waste, s.paint.waste, s.paint.waste
			}
			note = d.MonthlyWasteNote
			if d.MonthlyWasteUSD.Known() {
				bar := max(0, min(barWidth, s.width-label-perHour-perMonth-14))
				full := int(share*float64(bar) + 0.5)
				if share > 0 {
					full = min(max(full, 1), bar)
				}
				cells = append(cells, gap, cell{text: plain.Share(share, 0), width: 6, right: true, paint: cells[1].paint}, gap,
					cell{text: strings.Repeat("█", full), paint: cells[1].paint},
					cell{text: strings.Repeat("░", bar-full), paint: s.paint.dim})
			}
		case "findings":
			note = "is wasted at today's rate"
			if !d.Totals.FindingsWasteUSD.Known() {
				note = "no finding has a price"
			}
		case "can save":
			if d.Totals.MonthlySavingsUSD.Or(0) > 0 {
				cells[1].paint, cells[2].paint, cells[4].paint = s.paint.saving, s.paint.saving, s.paint.saving
			}
			cells[2].text = ""
			note = d.beyond(allSteps)
		}
		s.remark(cells, note, label)
	}
}

// explain says what the two sums mean that do not add up to one another.
func (s *screen) explain() {
	for _, l := range wordwrap(s.doc.terms(), s.width-2) {
		s.line(gap, cell{text: l, paint: s.paint.dim})
	}
}

// remark writes cells with a remark after them, or under them where the line is
// too short for both.
func (s *screen) remark(cells []cell, text string, indent int) {
	used := 0
	for _, c := range cells {
		used += max(c.width, wide(c.text))
	}
	switch {
	case text == "":
		s.line(cells...)
	case used+2+wide(text) <= s.width:
		s.line(append(cells, gap, cell{text: text, paint: s.paint.dim})...)
	default:
		s.line(cells...)
		for _, l := range wordwrap(text, s.width-2-indent) {
			s.line(gap, cell{text: " ", width: indent}, cell{text: l, paint: s.paint.dim})
		}
	}
}

// monthly is an amount with its period: "$12,311 a month".
func monthly(d money.Dollars) string {
	if !d.Known() {
		return "unknown"
	}
	return d.String() + " a month"
}

func (s *screen) steps() {
	if len(s.doc.Steps) == 0 {
		s.line()
		if s.doc.Resources.Count > 0 {
			s.line(gap, cell{text: "no waste found in what could be judged", paint: s.paint.saving})
		}
		return
	}
	g := Grid{Head: []string{"step", "findings", "saves a month", "risk", ""}, Right: []bool{false, true, true}, States: []bool{3: true}}
	for i := range s.doc.Steps {
		st := &s.doc.Steps[i]
		saves := stepSaves(st)
		if st.Step == int(finding.StepMeasure) && st.MonthlySavingsUSD.Or(0) == 0 {
			saves = none
		}
		g.Rows = append(g.Rows, []string{stepName(st), plain.Number(float64(st.Findings), 0), saves, string(st.Risk), s.doc.beyond(st.Step)})
	}
	g.paint = func(row, column int) func(string) string {
		switch saved := s.doc.Steps[row].MonthlySavingsUSD.Or(0) > 0; {
		case column == 2 && saved:
			return s.paint.saving
		case column == 4:
			return s.paint.dim
		}
		return nil
	}
	if all, _ := g.widths(s.width); all[4] < g.natural(4) {
		for i, row := range g.Rows {
			g.Notes = append(g.Notes, row[4])
			g.Rows[i] = row[:4]
		}
		g.Head = g.Head[:4]
	}
	s.line()
	g.text(&s.b, s.width, s.paint)
}

func stepName(s *view.ScanStep) string { return strconv.Itoa(s.Step) + " " + s.Name }

// narrow is the width under which a finding's reason goes on a line of its own,
// because a reason that is cut explains nothing.
const narrow = 124

func (s *screen) findings() {
	list := s.doc.Largest(s.top)
	if s.all {
		list = s.doc.Largest(-1)
	}
	if len(list) == 0 {
		return
	}
	n := s.doc.IDLength()
	// The reason needs room: it goes under its row where a column would be too narrow
	// for it, and so does the owner on a small screen.
	folded, slim := s.width < narrow, s.width < 84
	g := Grid{Head: []string{"a month", "fix", "finding", "resource", "owner", "because"}, Right: []bool{true}, Least: []int{0, n, 8, 18, 9, 30},
		Priority: []int{5, 4, 3, 2, 1, 0}}
	for _, f := range list {
		who, why := owner(&f.Resource), f.Because
		row := []string{saves(f), short(f.ID, n), f.Rule, s.thing(f, s.width/3), who, why}
		switch {
		case slim:
			if who != none {
				why = who + ": " + why
			}
			row = row[:4]
		case folded:
			row = row[:5]
		}
		if folded {
			g.Notes = append(g.Notes, why)
		}
		g.Rows = append(g.Rows, row)
	}
	g.Head = g.Head[:len(g.Rows[0])]
	g.paint = func(row, column int) func(string) string {
		f := list[row]
		switch {
		case column == 0 && f.MonthlySavingsUSD.Or(0) > 0:
			return s.paint.saving
		case column == 2:
			return s.rulePaint(f)
		case column == 1, column == 4, column == 0 && f.MonthlySavingsUSD.Known():
			return s.paint.dim
		}
		return nil
	}
	s.line()
	g.text(&s.b, s.width, s.paint)
	if more := len(s.doc.Findings) - len(list); more > 0 {
		s.line(gap, cell{text: "and " + plain.Count(more, "more finding"), paint: s.paint.dim})
	}
}

// thing names the resource of a finding in as much detail as the width has room
// for. The region is left out where there is only one.
func (s *screen) thing(f *view.Finding, width int) string {
	r := f.Resource
	if len(s.doc.Regions) == 1 && s.doc.Regions[0] == r.Region {
		r.Region = ""
	}
	full := thing(&r)
	if wide(full) <= width && width < s.width {
		return full
	}
	if r.Name != "" {
		r.ID = ""
	}
	if name := thing(&r); wide(name) <= width {
		return name
	}
	r.Region = ""
	return thing(&r)
}

// rulePaint is red for findings about dollars spent on nothing.
func (s *screen) rulePaint(f *view.Finding) func(string) string {
	if f.MonthlyWasteUSD.Or(0) > 0 {
		return s.paint.waste
	}
	return nil
}

// maxCautions is how many blind spots and reasons are named; --all names all.
const maxCautions = 5

// cautions says what the figures do not cover.
func (s *screen) cautions() {
	d := s.doc
	gap := d.Window.Gap()
	if len(d.CannotJudge)+len(d.Unpriced)+len(d.BlindSpots) > 0 || gap != "" {
		s.line()
	}
	if u := d.unmeasured(); u != nil {
		s.caution("unmeasured", u.Text)
		if u.Command != "" {
			s.b.WriteString(strings.Repeat(" ", 2+margin) + u.Command + "\n")
		}
	}
	if gap != "" {
		s.caution("not known", gap)
	}
	if len(d.Unpriced) > 0 {
		shown := 3
		if s.all {
			shown = len(d.Unpriced)
		}
		var parts []string
		for i := range d.Unpriced[:min(len(d.Unpriced), shown)] {
			parts = append(parts, unpricedLine(&d.Unpriced[i]))
		}
		if more := len(d.Unpriced) - len(parts); more > 0 {
			parts = append(parts, fmt.Sprintf("%d more", more))
		}
		s.caution("no price", plain.Count(d.Totals.UnpricedResources, "resource")+", not in the figures: "+strings.Join(parts, "; "))
	}
	for i, b := range d.BlindSpots {
		if i == maxCautions && !s.all {
			s.caution("", fmt.Sprintf("and %d more that could not be read", len(d.BlindSpots)-i))
			break
		}
		name := ""
		if i == 0 {
			name = "not seen"
		}
		s.caution(name, fmt.Sprintf("%s (%s): %s", b.What, b.Why, b.Effect))
	}
}

// margin is the width of the labels at the foot of the table.
const margin = 14

// caution writes a label and a text over as many lines as it takes, within reason.
func (s *screen) caution(name, text string) {
	most := 4
	if s.all {
		most = 1 << 10
	}
	s.paragraph(name, text, most, s.paint.attention, nil)
}

// paragraph writes a label and a text, broken between words, in at most a number
// of lines.
func (s *screen) paragraph(name, text string, most int, label, body func(string) string) {
	width := s.width - margin - 2
	lines := wordwrap(plain.Line(text), width)
	if len(lines) > most {
		lines = append(lines[:most-1], strings.Join(lines[most-1:], " ")) // cut below
	}
	for i, l := range lines {
		if i > 0 {
			name = ""
		}
		s.line(gap, cell{text: name, width: margin, paint: label}, cell{text: fit(l, width), paint: body})
	}
}

// commonest returns the reason that most machines cannot be judged for.
func commonest(list []view.Unjudged) string {
	count := map[string]int{}
	best := ""
	for _, u := range list {
		count[u.Why]++
		if c := count[u.Why]; best == "" || c > count[best] || (c == count[best] && u.Why < best) {
			best = u.Why
		}
	}
	return best
}

// unmeasured says which machines have no telemetry and what to do about them.
type unmeasured struct{ Text, Command string }

// unmeasured returns nil where every machine was measured.
func (d *audit) unmeasured() *unmeasured {
	n := len(d.CannotJudge)
	if n == 0 {
		return nil
	}
	amount := "of unknown cost"
	if v := d.Totals.MonthlyCannotJudgeUSD; v.Known() {
		amount = v.String() + " a month"
	}
	u := &unmeasured{Text: fmt.Sprintf("%s, %s, neither used nor wasted: %s; measure them:", plain.Count(n, "machine"), amount, commonest(d.CannotJudge)),
		Command: d.rescan() + " --usage FILE"}
	for i := range d.Findings {
		if f := &d.Findings[i]; f.Rule == ruleTelemetry && f.Fix.Command != "" {
			u.Command = plain.Line(f.Fix.Command)
			break
		}
	}
	return u
}

// firstFix returns the command that shows the fix of the largest finding that saves
// something, among the n largest.
func (d *audit) firstFix(n int) []string {
	for _, f := range d.Largest(n) {
		if c := plain.Line(f.Fix.Command); f.MonthlySavingsUSD.Or(0) > 0 && strings.HasPrefix(c, "curfew ") {
			return []string{c + d.o.Globals}
		}
	}
	return nil
}

// terms explains waste and savings where both stand; else it is empty.
func (d *audit) terms() string {
	if d.MonthlyWasteUSD.Or(0) > 0 && d.Totals.MonthlySavingsUSD.Or(0) > 0 {
		return terms
	}
	return ""
}

// ruleTelemetry is the rule about machines whose use none measured.
const ruleTelemetry = "telemetry-missing"

// unpricedLine names a group of meters without a price: "3 × instance p6.48xlarge
// in us-east-1 (why)".
func unpricedLine(u *view.Unpriced) string {
	name := u.Kind
	if u.Type != "" {
		name += " " + u.Type
	}
	if n := len(u.Resources); n > 1 {
		name = money.Thousands(int64(n)) + " × " + name
	}
	if u.Region != "" {
		name += " in " + u.Region
	}
	return name + " (" + u.Why + ")"
}

// facts says what the provider billed and what the audit's own calls cost.
func (s *screen) facts() {
	d := s.doc
	if d.Billed == nil && len(d.APICalls) == 0 {
		return
	}
	s.line()
	if b := d.Billed; b != nil {
		s.paragraph("billed", fmt.Sprintf("%s from %s to %s (%s)", b.TotalUSD, b.Start.Format(time.DateOnly), b.End.Format(time.DateOnly), b.Source), 2, s.paint.dim, s.paint.dim)
	}
	if len(d.APICalls) > 0 {
		s.paragraph("this scan", callsLine(d), 2, s.paint.dim, s.paint.dim)
	}
}

// notCovered says below the money the billed cost of services that it leaves out.
func (s *screen) notCovered() {
	if line := notCovered(s.doc.Billed, maxServices); line != "" {
		s.line()
		s.caution("not covered", s.doc.Billed.Start.Format(time.DateOnly)+" to "+s.doc.Billed.End.Format(time.DateOnly)+": "+line)
	}
}

// maxServices is how many services that are not covered are named on a line.
const maxServices = 5

// notCovered names the services of which nothing is read with their billed cost,
// the largest first; empty where all are read or no bill was.
func notCovered(b *view.ScanBilled, most int) string {
	if b == nil {
		return ""
	}
	var names []string
	rest := 0
	for _, x := range b.ByService {
		switch {
		case !x.NotCovered || x.CostUSD.Or(0) == 0:
		case len(names) < most:
			names = append(names, x.Service+" "+x.CostUSD.String())
		default:
			rest++
		}
	}
	if len(names) == 0 {
		return ""
	}
	if rest > 0 {
		names = append(names, plain.Count(rest, "other service"))
	}
	return b.NotCoveredUSD.String() + " was billed for services that curfew does not read: " + strings.Join(names, ", ")
}

// callsLine says what the audit's own calls cost.
func callsLine(d *audit) string {
	n := 0
	for _, c := range d.APICalls {
		n += c.Count
	}
	cost, known := d.Totals.APICallsCostUSD.Get()
	text := "read only, " + plain.Count(n, "API call") + ", which "
	switch {
	case !known:
		return text + "cost an unknown amount"
	case cost == 0:
		return text + "cost nothing"
	case cost < money.Cent:
		return text + "cost less than a cent"
	}
	return text + "cost " + cost.Dollars()
}

// next says what to do now.
func (s *screen) next() {
	if s.doc.Resources.Count == 0 {
		return
	}
	again := s.doc.again()
	var commands []string
	if !s.all && len(s.doc.Largest(s.top)) < len(s.doc.Findings) {
		commands = append(commands, again+" --all")
	}
	commands = append(commands, s.doc.firstFix(s.top)...)
	commands = append(commands, again+" -o html > audit.html")
	s.line()
	label := "next"
	for _, c := range commands {
		s.b.WriteString("  " + s.paint.bold(label) + strings.Repeat(" ", margin-len(label)) + c + "\n")
		label = ""
	}
}
