package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Options configure the display of an audit.
type Options struct {
	// Width is the width of the terminal in columns: 100 if zero, and at least 60.
	Width int
	// Color is true if the terminal shows colors.
	Color bool
	// All shows every finding, not only the largest.
	All bool
	// Again is the command that shows this audit in another form; if empty, scan with the
	// document's account.
	Again string
	// Kept reports whether the audit was stored, so that `curfew why` can explain it.
	Kept bool
	// Globals are global flags given by the user, with a leading space, to repeat in suggested
	// commands.
	Globals string
	// Age is the age of a stored audit; 0 for a new one.
	Age time.Duration
	// Top is the number of findings shown, the largest first: 10 if zero.
	Top int
	// Min folds missing tags, and findings below this amount a month, into one line with their
	// count; 0 shows all.
	Min money.Amount

	// ids adds the IDs of resources to their names.
	ids bool
}

func (o Options) width() int {
	if o.Width <= 0 {
		return 100
	}
	return max(o.Width, 60)
}

func (o Options) top() int { return cmp.Or(max(o.Top, 0), 10) }

// audit is the document of an audit with what drawing it needs.
type audit struct {
	*view.Scan
	o Options
}

func newAudit(d view.Scan, o Options) *audit { return &audit{&d, o} }

// Table writes the audit for a terminal, with commands for more details.
func Table(w io.Writer, scan view.Scan, o Options) error {
	d, s := newAudit(scan, o), Audit(scan, o)
	if d.Resources.Count > 0 {
		if o.Kept {
			figure := "now.running"
			if d.Now != nil && d.Now.WastedUSD.Or(0) > 0 {
				figure = "now.wasted"
			}
			s.Next = append(s.Next, "curfew why "+figure+o.Globals)
		}
		if !o.All && len(d.shown(o.top())) < len(d.shown(-1)) {
			s.Next = append(s.Next, d.again()+" --all")
		}
		s.Next = append(s.Next, d.again()+" -o html > audit.html")
	}
	return s.Text(w, o.width())
}

// HTML writes the audit as one self-contained page.
func HTML(w io.Writer, scan view.Scan, o Options) error { return Audit(scan, o).HTML(w) }

// Markdown writes the audit for a pull request or a page, with the ids of resources.
func Markdown(w io.Writer, scan view.Scan, o Options) error {
	o.ids = true
	return Audit(scan, o).Markdown(w)
}

// maxOpen is the number of findings with evidence on a page, which keeps its size acceptable for
// browsers. The JSON output has all evidence.
const maxOpen = 1000

// maxCautions and maxUnpriced bound the listed blind spots and unpriced meters; Options.All lists
// every one.
const maxCautions, maxUnpriced = 5, 3

// Audit shows an audit: running cost and waste, the steps with their dollars, the largest findings
// (all with Options.All), and what the amounts omit.
func Audit(scan view.Scan, o Options) layout.Sheet {
	d := newAudit(scan, o)
	s := layout.Sheet{
		Verb:        "scan",
		Title:       layout.Capital(headline(d)),
		Scope:       d.scope(),
		Assumptions: d.Assumptions,
		Coverage:    d.facts(),
		Color:       o.Color,
	}
	if o.Kept { // fix only finds stored findings
		s.Next = d.firstFix(o.top())
	}
	if d.Resources.Count > 0 {
		s.Figures = d.figures()
		s.Pictures = d.pictures()
	}
	if line := notCovered(d.Billed, maxServices); line != "" {
		s.Remarks = append(s.Remarks, plain.Date(d.Billed.Start)+" to "+plain.Date(d.Billed.End)+": "+line)
	}
	if len(d.Steps) > 0 {
		s.Tables = append(s.Tables, d.stepsGrid())
	}
	if len(d.Findings) > 0 {
		s.Tables = append(s.Tables, d.findingsGrid())
	}
	if g := d.progressGrid(); len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	s.Gaps = d.gaps()
	s.Tables = append(s.Tables, d.basis()...)
	return s
}

// headline summarizes the audit in one sentence.
func headline(d *audit) string {
	cost, priced := d.MonthlyCostUSD.Get()
	var waste money.Dollars
	if d.Now != nil {
		waste = d.Now.WastedUSD
	}
	switch {
	case d.Resources.Count == 0:
		return "no resources in what could be read"
	case !priced:
		return "nothing that runs has a price"
	case d.Now == nil:
		return cost.Dollars() + " a month; scan again to see what of it is wasted"
	case !waste.Known():
		return cost.Dollars() + " a month, and the waste is unpriced"
	case waste.Or(0) == 0:
		return cost.Dollars() + " a month, and no waste in what could be judged"
	}
	return fmt.Sprintf("%s of what runs now is wasted, %s a month",
		plain.Share(share(waste, d.MonthlyCostUSD), 0), waste)
}

// scope lists the scope of the audit: "aws 123456789012", "2 regions", "16 resources", the time.
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
	if !d.FinishedAt.IsZero() {
		out = append(out, plain.Time(d.FinishedAt))
	}
	return out
}

// figures returns the totals of the audit.
func (d *audit) figures() []layout.Figure {
	now := layout.Figure{
		Label: "now", Value: d.MonthlyCostUSD.String(), Rate: hourly(d.MonthlyCostUSD), Note: d.MonthlyCostNote,
		Parts: d.parts(),
	}
	if d.MonthlyCostUSD.Known() {
		now.Unit = "a month"
	}
	saves := layout.Figure{
		Label: "can save", Value: d.Totals.MonthlySavingsUSD.String(), Note: d.beyond(allSteps),
	}
	if d.Totals.MonthlySavingsUSD.Known() {
		saves.Unit = "a month"
	}
	if d.Totals.MonthlySavingsUSD.Or(0) > 0 {
		saves.Tone = layout.ToneSaving
	}
	out := []layout.Figure{now}
	if w := d.Window; w != nil {
		out = append(out, layout.Figure{
			Label: "last " + w.Span(), Value: w.TotalUSD.String(),
			Note: "of which " + w.WastedUSD.String() + " was wasted",
		})
	}
	return append(append(out, d.runaways()...), saves)
}

// parts divides the running cost. Rounded to dollars the parts still sum to the total: the last
// absorbs the rounding.
func (d *audit) parts() []layout.Part {
	if d.Now == nil || !d.Now.RunningUSD.Known() {
		return nil
	}
	n := d.Now
	var out []layout.Part
	left := n.RunningUSD.Or(0).Printed()
	for _, p := range []struct {
		label  string
		amount money.Dollars
		tone   layout.Tone
	}{
		{"used", n.UsedUSD, layout.ToneUsed}, {"wasted", n.WastedUSD, layout.ToneWaste},
		{"unmeasured", n.UnmeasuredUSD, layout.ToneUnmeasured}, {"other", n.OtherUSD, layout.ToneOther},
	} {
		part := layout.Part{
			Label: p.label, Value: p.amount.String(), Share: share(p.amount, n.RunningUSD), Tone: p.tone,
			ShowShare: p.tone == layout.ToneWaste,
		}
		if p.tone == layout.ToneOther && p.amount.Or(0) > roundingOfParts {
			part.Value = left.Dollars()
		}
		left -= p.amount.Or(0).Printed()
		out = append(out, part)
	}
	return out
}

// roundingOfParts is the maximum shift by rounding the other parts to dollars.
const roundingOfParts = 2 * money.USD

// stepsGrid lists the steps with their dollars.
func (d *audit) stepsGrid() layout.Grid {
	g := layout.Grid{
		Head:   []string{"step", "findings", "wasted", "saves a month", "risk", ""},
		Right:  []bool{false, true, true, true},
		States: []bool{4: true},
		Fold:   []int{5},
	}
	for i := range d.Steps {
		st := &d.Steps[i]
		saves := saving(st.MonthlySavingsUSD, st.SavingsUpperBoundUSD)
		if st.Step == int(finding.StepMeasure) && st.MonthlySavingsUSD.Or(0) == 0 {
			saves = layout.None
		}
		g.Rows = append(
			g.Rows,
			[]string{
				stepName(st), plain.Number(float64(st.Findings), 0), wasted(st.MonthlyWasteUSD), saves,
				string(st.Risk), d.beyond(st.Step),
			},
		)
	}
	if len(d.Steps) > 1 {
		g.Rows = append(g.Rows, []string{
			"all", plain.Number(float64(len(d.Findings)), 0), wasted(d.Totals.FindingsWasteUSD),
			d.Totals.MonthlySavingsUSD.String(), "", "",
		})
	}
	p := layout.NewPaint(d.o.Color)
	g.Paint = func(row, column int) func(string) string {
		if row == len(d.Steps) {
			return nil
		}
		switch saved := d.Steps[row].MonthlySavingsUSD.Or(0) > 0; {
		case column == 2 && d.Steps[row].MonthlyWasteUSD.Or(0) > 0:
			return p.Waste
		case column == 3 && saved:
			return p.Saving
		case column == 5:
			return p.Dim
		}
		return nil
	}
	return g
}

// wasted formats the waste of a step, or a dash.
func wasted(d money.Dollars) string {
	if v, known := d.Get(); known && v == 0 {
		return layout.None
	}
	return d.String()
}

func stepName(s *view.ScanStep) string { return fmt.Sprintf("%d %s", s.Step, s.Name) }

// findingsGrid lists the findings, the largest first.
func (d *audit) findingsGrid() layout.Grid {
	n, list := d.IDLength(), d.ranked()
	g := layout.Grid{
		Title:    "Findings",
		Noun:     "finding",
		Head:     []string{"a month", "fix", "finding", "resource", "owner", "because", "risk", "undo"},
		Right:    []bool{true},
		Code:     []bool{false, true, true, true, true},
		States:   []bool{6: true, 7: false},
		Least:    []int{0, n, 8, 18, 9, 30},
		Priority: []int{5, 4, 3, 2, 1, 0, 6, 6},
		Fold:     []int{5, 4},
		Extra:    2,
	}
	if !d.o.All {
		g.Most = len(d.shown(d.o.top()))
	}
	g.Below = d.foldedLines()
	for i, f := range list {
		g.Rows = append(
			g.Rows,
			[]string{
				saves(f),
				short(f.ID, n),
				f.Rule,
				d.named(&f.Resource),
				owner(&f.Resource),
				f.Because,
				string(f.Fix.Risk),
				string(f.Fix.Undo),
			},
		)
		if i < maxOpen {
			g.Details = append(g.Details, detail(f))
		}
	}
	p := layout.NewPaint(d.o.Color)
	g.Paint = func(row, column int) func(string) string {
		f := list[row]
		switch {
		case column == 0 && f.MonthlySavingsUSD.Or(0) > 0:
			return p.Saving
		case column == 2 && f.MonthlyWasteUSD.Or(0) > 0:
			return p.Waste
		case column == 1, column == 4, column == 0 && f.MonthlySavingsUSD.Known():
			return p.Dim
		}
		return nil
	}
	return g
}

// ranked returns the findings that are not folded: first those of Largest, then the others.
func (d *audit) ranked() []*view.Finding {
	list := d.shown(len(d.Findings))
	seen := map[*view.Finding]bool{}
	for _, f := range list {
		seen[f] = true
	}
	for _, f := range d.shown(-1) {
		if !seen[f] {
			list = append(list, f)
		}
	}
	return list
}

// shown is [view.Scan.Largest] without folded findings.
func (d *audit) shown(n int) []*view.Finding {
	if n < 0 {
		return slices.DeleteFunc(d.Largest(n), d.isFolded)
	}
	list := slices.DeleteFunc(d.Largest(len(d.Findings)), d.isFolded)
	return list[:min(n, len(list))]
}

// named formats the resource of a finding: its name or else its ID, with the region if there are
// several.
func (d *audit) named(r *view.Resource) string {
	if d.o.ids {
		return thing(r)
	}
	short := *r
	if r.Name != "" {
		short.ID = ""
	}
	if len(d.Regions) == 1 && d.Regions[0] == r.Region {
		short.Region = ""
	}
	return thing(&short)
}

// detail returns the evidence of a finding and its fix.
func detail(f *view.Finding) *layout.Detail {
	out := &layout.Detail{
		Table: layout.Grid{
			Title: "Evidence",
			Head:  []string{"signal", "value", "window", "coverage", "source"},
			Code:  []bool{true},
		},
	}
	for i := range f.Samples {
		out.Pictures = append(out.Pictures, draw(&f.Samples[i]).picture())
	}
	for _, e := range f.Evidence {
		out.Table.Rows = append(out.Table.Rows, []string{e.Signal, e.Value, e.Window, e.Coverage, e.Source})
	}
	saves := monthly(f.MonthlySavingsUSD)
	if !f.MonthlySavingsUSD.Known() {
		saves = "an unknown amount"
		if f.SavingsUpperBoundUSD.Known() {
			saves = "at most " + monthly(f.SavingsUpperBoundUSD)
		}
		saves += ": " + f.SavingsUnknown
	}
	costs := "costs " + monthly(f.MonthlyCostUSD)
	if f.CostUnknown != "" {
		costs += " (" + f.CostUnknown + ")"
	}
	for _, t := range []layout.Term{
		{Name: "Fix", Text: f.Fix.Action, Command: f.Fix.Command},
		{Name: "Risk", Text: fmt.Sprintf("%s; undo %s; confidence %s", f.Fix.Risk, f.Fix.Undo, f.Confidence)},
		{Name: "Know before", Text: f.Fix.Note},
		policyTerm(f.Fix.Policy),
		{Name: "Money", Text: costs + ", wastes " + monthly(f.MonthlyWasteUSD) + ", saves " + saves},
		{Name: "Counted", Text: counted(f.Overlaps)},
		{Name: "Resource", Text: fmt.Sprintf("%s %s, account %s, %s; lifetime %s, purpose %s",
			f.Resource.Kind, f.Resource.ID, f.Resource.Account, f.Resource.Region,
			f.Resource.Lifetime, f.Resource.Purpose)},
		{Name: "Finding", Text: f.ID},
	} {
		if t.Text != "" {
			out.Terms = append(out.Terms, t)
		}
	}
	return out
}

// policyTerm shows the policy that would have kept a fleet at the size of its load; empty without one.
func policyTerm(p *view.FindingPolicy) layout.Term {
	if p == nil {
		return layout.Term{}
	}
	return layout.Term{Name: "Policy", Text: "follows demand; " + PolicySaving(p), Command: p.Policy}
}

// PolicySaving describes what a policy would have saved on the recorded load.
func PolicySaving(p *view.FindingPolicy) string {
	if p.MeanReplicas == nil {
		return "its saving is unknown: " + p.Reason
	}
	text := fmt.Sprintf("replayed over %s, a mean size of %s", p.Window, plain.Number(*p.MeanReplicas, 1))
	if *p.ShortShare > 0 {
		text += ", too few for " + plain.Share(*p.ShortShare, 1) + " of the time"
	}
	if !p.MonthlySavingsUSD.Known() {
		return text + "; its saving is unknown: " + p.Reason
	}
	return text + ", which saves at least " + monthly(p.MonthlySavingsUSD)
}

// counted names the finding that already counts the dollars of this one; empty if none does.
func counted(overlaps string) string {
	if overlaps == "" {
		return ""
	}
	return "in finding " + overlaps + "; here only what is beyond it"
}

// gaps lists what the audit's amounts omit.
func (d *audit) gaps() []layout.Gap {
	var out []layout.Gap
	most := func(some int) int {
		if d.o.All {
			return 1 << 20
		}
		return some
	}
	if u := d.unmeasured(); u != nil {
		out = append(out, *u)
	}
	if gap := d.Window.Gap(); gap != "" {
		out = append(out, layout.Gap{Name: "not known", Text: gap})
	}
	if len(d.Unpriced) > 0 {
		g := layout.Gap{
			Name:  "no price",
			Text:  plain.Count(d.Totals.UnpricedResources, "resource") + ", not in the figures",
			Shown: most(maxUnpriced),
		}
		for i := range d.Unpriced {
			g.Items = append(g.Items, unpricedLine(&d.Unpriced[i]))
		}
		out = append(out, g)
	}
	if n := len(d.BlindSpots); n > 0 {
		g := layout.Gap{
			Name:  "not seen",
			Text:  plain.Count(n, "source") + " could not be read",
			Shown: most(maxCautions),
		}
		for _, b := range d.BlindSpots {
			g.Items = append(g.Items, fmt.Sprintf("%s (%s): %s", b.What, b.Why, b.Effect))
		}
		out = append(out, g)
	}
	return out
}

// commonest returns the most frequent reason why machines are unmeasured.
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

// unmeasured lists the machines without telemetry and the next steps; nil if every machine was
// measured.
func (d *audit) unmeasured() *layout.Gap {
	n := len(d.CannotJudge)
	if n == 0 {
		return nil
	}
	amount := "of unknown cost"
	if v := d.Totals.MonthlyCannotJudgeUSD; v.Known() {
		amount = v.String() + " a month"
	}
	g := &layout.Gap{
		Name: "unmeasured",
		Text: fmt.Sprintf(
			"%s, %s, neither used nor wasted: %s",
			plain.Count(n, "machine"),
			amount,
			commonest(d.CannotJudge),
		),
	}
	lacking := slices.IndexFunc(d.Findings, func(f view.Finding) bool {
		return f.Rule == ruleTelemetry && f.Fix.Command != ""
	})
	switch {
	case lacking >= 0:
		g.Command = plain.Line(d.Findings[lacking].Fix.Command)
	case len(d.BlindSpots) > 0: // unreadable sources may be the only reason
		return g
	default:
		g.Command = d.rescan() + " --usage FILE"
	}
	g.Text += "; measure them:"
	return g
}

// ruleTelemetry is the rule about unmeasured machines.
const ruleTelemetry = "telemetry-missing"

// firstFix returns the command for the first of the n largest findings that saves something.
func (d *audit) firstFix(n int) []string {
	for _, f := range d.shown(n) {
		if c := plain.Line(f.Fix.Command); f.MonthlySavingsUSD.Or(0) > 0 && strings.HasPrefix(c, "curfew ") {
			return []string{c + d.o.Globals}
		}
	}
	return nil
}

// unpricedLine formats a group of unpriced meters: "3 × instance p6.48xlarge in us-east-1 (why)".
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

// facts lists the provider's bill, the cost of commitments, and the cost of the audit's own calls.
func (d *audit) facts() []string {
	var out []string
	if b := d.Billed; b != nil {
		out = append(
			out,
			fmt.Sprintf("billed: %s from %s to %s (%s)", b.TotalUSD, plain.Date(b.Start), plain.Date(b.End), b.Source),
		)
	}
	if v := d.Totals.MonthlyCommittedUSD; v.Or(0) > 0 {
		out = append(out, "commitments: "+v.String()+
			" a month is paid whatever runs, in addition to the cost above, which is at list price")
	}
	if len(d.APICalls) > 0 {
		out = append(out, "this scan: "+callsLine(d))
	}
	return out
}

// basis returns tables shown only on pages: unmeasured machines, the bill, prices, and calls.
func (d *audit) basis() []layout.Grid {
	unmeasured := layout.Grid{
		Title: "Unmeasured machines",
		Head:  []string{"a month", "machine", "owner", "why"},
		Right: []bool{true},
	}
	for i := range d.CannotJudge {
		u := &d.CannotJudge[i]
		unmeasured.Rows = append(
			unmeasured.Rows,
			[]string{u.MonthlyCostUSD.String(), thing(&u.Resource), owner(&u.Resource), u.Why},
		)
	}
	billed := layout.Grid{
		Title: "What the provider billed",
		Head:  []string{"service", "billed"},
		Right: []bool{false, true},
	}
	if d.Billed != nil {
		for _, x := range d.Billed.ByService {
			name := x.Service
			if x.NotCovered {
				name += " (not covered: " + cmp.Or(x.Why, "it is not read") + ")"
			}
			billed.Rows = append(billed.Rows, []string{name, x.CostUSD.String()})
		}
	}
	prices := layout.Grid{
		Title: "Prices",
		Head:  []string{"source", "as of", "meters"},
		Right: []bool{false, false, true},
	}
	for _, p := range d.Prices {
		as := p.From
		if p.To != p.From {
			as += " to " + p.To
		}
		prices.Rows = append(prices.Rows, []string{p.Source, as, money.Thousands(int64(p.Charges))})
	}
	calls := layout.Grid{
		Title: "Calls of this scan",
		Head:  []string{"API", "calls", "charged units", "cost"},
		Right: []bool{false, true, true, true},
	}
	for _, c := range d.APICalls {
		calls.Rows = append(
			calls.Rows,
			[]string{c.API, money.Thousands(int64(c.Count)), money.Thousands(int64(c.Units)), c.CostUSD.String()},
		)
	}
	var out []layout.Grid
	for _, g := range []layout.Grid{unmeasured, billed, prices, calls} {
		if len(g.Rows) > 0 {
			g.Folded, g.PageOnly = true, true
			out = append(out, g)
		}
	}
	return out
}

// maxServices bounds the uncovered services named on a line.
const maxServices = 5

// notCovered names the uncovered services with their billed cost, the largest first; empty if there
// are none or no bill was read.
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
			name := x.Service + " " + x.CostUSD.String()
			if x.Why != "" {
				name += " (" + x.Why + ")"
			}
			names = append(names, name)
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
	return b.NotCoveredUSD.String() + " was billed for services that are not covered: " + strings.Join(names, ", ")
}

// callsLine states the cost of the audit's own calls and its run time.
func callsLine(d *audit) string {
	n := 0
	for _, c := range d.APICalls {
		n += c.Count
	}
	took := plain.Duration(max(d.FinishedAt.Sub(d.StartedAt), 0).Round(time.Second))
	text := fmt.Sprintf("curfew %s, read only, %s in %s, which ", d.Version, plain.Count(n, "API call"), took)
	switch cost, known := d.Totals.APICallsCostUSD.Get(); {
	case !known:
		return text + "cost an unknown amount"
	case cost == 0:
		return text + "cost nothing"
	case cost < money.Cent:
		return text + "cost less than a cent"
	default:
		return text + "cost " + cost.Dollars()
	}
}

// summaryFindings is the number of findings in a summary.
const summaryFindings = 5

// Summary writes the audit in a few lines of Markdown without tables, for a pull request comment or
// a chat: the headline, the largest findings with their fix commands, and what was not measured or
// not read.
func Summary(w io.Writer, scan view.Scan, o Options) error {
	d := newAudit(scan, o)
	var b layout.Markdown
	fmt.Fprintf(
		&b,
		"**curfew scan: %s**\n%s\n",
		layout.MarkdownText(headline(d)),
		layout.MarkdownText(strings.Join(d.scope(), ", ")),
	)
	if v := d.Totals.MonthlySavingsUSD; v.Or(0) > 0 {
		fmt.Fprintf(
			&b,
			"\n%s:\n",
			layout.MarkdownText(layout.Joined(", and ", "Fixes save "+v.String()+" a month", d.beyond(allSteps))),
		)
	}
	list := d.shown(summaryFindings)
	n := d.IDLength()
	for _, f := range list {
		r := f.Resource
		if r.Name != "" {
			r.ID = ""
		}
		line := fmt.Sprintf(
			"- %s a month: %s, %s",
			saves(f),
			layout.MarkdownCode(thing(&r)),
			layout.MarkdownText(f.Because),
		)
		if who := owner(&f.Resource); who != layout.None {
			line += " (" + layout.MarkdownCode(who) + ")"
		}
		if plain.Line(f.Fix.Command) != "" && f.MonthlySavingsUSD.Or(0) > 0 {
			line += " – " + layout.MarkdownCode("curfew fix "+short(f.ID, n))
		}
		b.WriteString(line + "\n")
	}
	if more := len(d.shown(-1)) - len(list); more > 0 && len(list) > 0 {
		fmt.Fprintf(&b, "- and %s\n", plain.Count(more, "more finding"))
	}
	for _, line := range d.foldedLines() {
		fmt.Fprintf(&b, "- %s\n", layout.MarkdownText(line))
	}
	var gaps []layout.Gap
	for _, g := range d.gaps() {
		if g.Name != "not known" {
			g.Shown = 0
			gaps = append(gaps, g)
		}
	}
	if line := notCovered(d.Billed, maxServices); line != "" {
		gaps = append(gaps, layout.Gap{Text: line})
	}
	b.Gaps("Not in these figures:", gaps)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the audit as a summary: %w", err)
	}
	return nil
}
