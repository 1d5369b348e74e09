package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Bounds of a replay's report.
const (
	maxReasons  = 6  // reasons why a policy did nothing
	ownersDrawn = 12 // in the picture
)

// Backtest shows a replay. next are suggested commands.
func Backtest(doc view.Backtest, next []string) layout.Sheet {
	s := layout.Sheet{Verb: "backtest", Title: "Nothing was replayed", Next: next}
	rule := doc.Headline()
	if rule == nil {
		return s
	}
	foresight := doc.Named(backtest.PerfectForesight)
	s.Title = replayHeadline(rule)
	if rule.AsSessions != nil {
		s.Title = sessionsHeadline(rule)
	}
	notices, told := noticesGrid(&doc)
	if told != "" {
		s.Title = told
	}
	if n := doc.Rules(); n > 1 && rule.NetSavedHours > 0 {
		s.Title += fmt.Sprintf(". No other of the %d policies saves more", n)
	}
	s.Figures = backtestFigures(rule, foresight)
	s.Pictures = backtestPictures(&doc, rule)
	if len(notices.Rows) > 0 {
		s.Tables = append(s.Tables, notices)
	}
	s.Tables = append(s.Tables, rulesGrid(&doc))
	for i := range doc.Results {
		if g, any := whyNotGrid(&doc.Results[i]); any {
			s.Tables = append(s.Tables, g)
		}
	}
	t := doc.Trace
	floor := "at 0% GPU utilization"
	if t.IdleBelowPct > 0 {
		floor = "under " + plain.Percent(t.IdleBelowPct, 2) + " GPU utilization"
	}
	priced := fmt.Sprintf("Dollars are unknown: %d of %d resources have no price. State their types, or give --price.",
		t.Unpriced, t.Resources)
	switch {
	case t.PriceUSD.Known():
		priced = "A resource costs " + t.PriceUSD.String() + " an hour."
	case doc.Priced():
		priced = "A machine costs the on-demand price of its type in us-east-1."
	}
	s.Assumptions = append([]string{
		"A sample is idle " + floor + ".",
		"A restart costs " + spanText(t.RestartCostSeconds) +
			" of the resource. It is charged where work comes back to a released resource.",
		priced,
	}, doc.Notes...)
	s.Coverage = []string{
		fmt.Sprintf("%s, %s of %s from %s to %s, %s.", plain.Count(t.Resources, "resource"),
			plain.Count(t.Samples, "sample"),
			spanText(t.StepSeconds), plain.Time(t.First), plain.Time(t.Last),
			plain.Count(t.IdlePeriods, "idle period"))}
	if all := rule.ResourceHours + rule.UnknownHours; all > 0 && rule.UnknownHours > 0 {
		s.Coverage = append(s.Coverage,
			fmt.Sprintf(
				"Samples cover %s of the time. The other %s are unknown: they end idle periods and are not counted.",
				plain.Share(rule.ResourceHours/all, 1), hoursText(rule.UnknownHours)))
	}
	return s
}

// replayHeadline states the decision with its dollars.
func replayHeadline(r *backtest.Result) string {
	switch {
	case r.IdleHours == 0 && r.ReleasedHours == 0:
		return fmt.Sprintf("Nothing to release: none of %s was idle", hoursText(r.ResourceHours))
	case r.ReleasedHours == 0:
		return fmt.Sprintf("%s would have released nothing of %s idle", r.Name, hoursText(r.IdleHours))
	}
	saved := hoursText(r.NetSavedHours) + " saved"
	switch {
	case r.SavedUSD.Known() && r.NetSavedHours < 0:
		saved = (-r.SavedUSD.Or(0)).Dollars() + " lost"
	case r.SavedUSD.Known():
		saved = r.SavedUSD.String() + " saved"
	case r.NetSavedHours < 0:
		saved = hoursText(-r.NetSavedHours) + " lost"
	}
	return fmt.Sprintf("%s would have released %s of %s: %s, %s", r.Name,
		plain.Share(r.ReleasedHours/r.ResourceHours, 0),
		hoursText(r.ResourceHours),
		saved, plain.Count(r.Restarts, "restart"))
}

// sessionsHeadline states the cost of the machines as sessions.
func sessionsHeadline(r *backtest.Result) string {
	as := r.AsSessions
	what := fmt.Sprintf("As sessions that end after %s idle, the machines would have", spanText(as.IdleSeconds))
	launches := plain.Count(as.Launches, "launch")
	if !as.CostUSD.Known() {
		return fmt.Sprintf("%s run %s of %s, in %s", what, hoursShort(as.SessionHours),
			hoursText(r.ResourceHours), launches)
	}
	return fmt.Sprintf("%s cost %s instead of %s: %s of %s, in %s", what, as.CostUSD.String(), r.CostUSD.String(),
		hoursShort(as.SessionHours), hoursText(r.ResourceHours), launches)
}

func backtestFigures(r, foresight *backtest.Result) []layout.Figure {
	idle := layout.Figure{
		Label: "idle machine-hours", Value: hoursNumber(r.IdleHours),
		Note: "of " + hoursNumber(r.ResourceHours) + " measured",
	}
	if r.CostUSD.Known() {
		idle.Note += ", which cost " + r.CostUSD.String()
	}
	saved := layout.Figure{
		Label: "saved, net of restarts", Value: hoursText(r.NetSavedHours),
		Note: fmt.Sprintf("%s released, %s lost to restarts", hoursShort(r.ReleasedHours), hoursShort(r.RestartHours)),
	}
	if r.SavedUSD.Known() {
		saved.Value, saved.Note = r.SavedUSD.String(), hoursShort(r.NetSavedHours)+": "+saved.Note
	}
	out := []layout.Figure{
		idle, saved,
		{
			Label: "restarts", Value: plain.Number(float64(r.Restarts), 0),
			Note: plain.Number(float64(r.Interrupted), 0) + " restarts interrupted work",
		},
	}
	if foresight == nil {
		return out
	}
	share := layout.Figure{
		Label: "share of the best possible", Value: "unknown",
		Note: "the best possible saves " + hoursText(foresight.NetSavedHours),
	}
	switch {
	case r.OfForesight != nil:
		share.Value = plain.Share(*r.OfForesight, 0)
	case r.OfForesightWhy != "":
		share.Note = r.OfForesightWhy
	}
	return append(out, share)
}

// noticesGrid lists the notices of policies that only notify; without other policies, they are the
// headline.
func noticesGrid(doc *view.Backtest) (g layout.Grid, headline string) {
	g = layout.Grid{
		Title: "Notices that would have been sent", Head: []string{
			"policy", "notices", "resources", "condition held", "cost then", "cost since progress",
		},
		Right: []bool{false, true, true, true, true, true},
	}
	times, spent := int64(0), money.Known(0)
	for _, r := range doc.Results[:doc.Rules()] {
		if n := r.Notices; n != nil {
			times += n.Times
			g.Rows = append(g.Rows, []string{
				r.Name, plain.Number(float64(n.Times), 0), plain.Number(float64(n.Resources), 0), hoursShort(n.Hours),
				noticeCost(n.CostUSD), noticeCost(n.UnprogressedUSD),
			})
			if n.UnprogressedUSD.Or(0) > spent.Or(0) {
				spent = n.UnprogressedUSD
			}
		}
	}
	if n := len(g.Rows); n > 0 && n == doc.Rules() {
		name := plain.Count(n, "policy")
		if n == 1 {
			name = g.Rows[0][0]
		}
		headline = fmt.Sprintf("%s would have sent %s in %s", name, plain.Count(times, "notice"),
			hoursText(doc.Results[0].ResourceHours))
		if spent.Or(0) > 0 {
			headline += ", about work that cost " + spent.String() + " without progress"
		}
	}
	return g, headline
}

// noticeCost is a cell with the dollars of notices.
func noticeCost(v money.Dollars) string {
	if !v.Known() {
		return layout.None
	}
	return v.String()
}

// rulesGrid lists the simulated actions of every rule.
func rulesGrid(doc *view.Backtest) layout.Grid {
	g := layout.Grid{
		Title: "What each rule would have done",
		Head:  []string{"rule", "released", "restarts", "saved", "share", "foresight"},
		Right: []bool{false, true, true, true, true, true},
	}
	for _, r := range doc.Results {
		name := ruleName(r.Name)
		if r.WaitSeconds != nil && name == backtest.BestFixed {
			name += " (" + spanText(*r.WaitSeconds) + ")"
		}
		of := "-"
		if r.OfForesight != nil {
			of = plain.Share(*r.OfForesight, 1)
		}
		saved := hoursShort(r.NetSavedHours)
		if doc.Priced() {
			saved = r.SavedUSD.String()
		}
		g.Rows = append(g.Rows, []string{
			name, hoursShort(r.ReleasedHours), plain.Number(float64(r.Restarts), 0), saved,
			plain.Share(r.NetSavedShare, 1),
			of,
		})
	}
	return g
}

// ruleName formats the name of a rule.
func ruleName(name string) string {
	if name == backtest.PerfectForesight {
		return "best possible"
	}
	return name
}

// whyNotGrid lists where, why and how long a policy did nothing.
func whyNotGrid(r *backtest.Result) (layout.Grid, bool) {
	g := layout.Grid{
		Title: "Where " + r.Name + " did nothing", Folded: true, Head: []string{
			"answer", "time", "resources", "because",
		},
		Right: []bool{false, true, true}, States: []bool{true},
	}
	for _, n := range r.WhyNot[:min(len(r.WhyNot), maxReasons)] {
		g.Rows = append(g.Rows, []string{
			n.Answer, hoursShort(n.Hours), plain.Number(float64(n.Resources), 0), n.Reason,
		})
	}
	if more := len(r.WhyNot) - maxReasons; more > 0 {
		g.Rows = append(g.Rows, []string{"", "", "", "and " + plain.Count(more, "other reason")})
	}
	return g, len(g.Rows) > 0
}

// Tune shows the parameters learned from a trace. next are suggested commands.
func Tune(doc view.Tune, next []string) layout.Sheet {
	saved := hoursText(doc.Tested.NetSavedHours)
	if doc.Tested.SavedUSD.Known() {
		saved = doc.Tested.SavedUSD.String()
	}
	s := layout.Sheet{Verb: "policy tune", Next: next,
		Title: fmt.Sprintf("The learned waits would have saved %s, %s of the time of %s", saved,
			plain.Share(doc.Tested.NetSavedShare, 1), plain.Count(doc.Trace.Resources, "resource")),
		Figures: []layout.Figure{
			{
				Label: "learned waits", Value: hoursText(doc.Tested.NetSavedHours),
				Note: "tested on idle periods after the history they were learned from",
			},
			{
				Label: "waiting one restart cost", Value: hoursText(doc.BreakEven.NetSavedHours),
				Note: "without any history",
			},
			{
				Label: "perfect foresight", Value: hoursText(doc.PerfectForesight.NetSavedHours),
				Note: "the most that any rule can save",
			},
		}}
	g := layout.Grid{
		Title: "How long to wait",
		Head:  []string{"class", "wait", "learned from", "idle periods", "ended by work", "saved", "share"},
		Right: []bool{false, true, false, true, true, true, true},
	}
	for _, c := range append(slices.Clone(doc.Classes), doc.Fleet) {
		name := learn.Class{
			Kind: inventory.Kind(c.Kind), Type: c.Type, Purpose: inventory.Purpose(c.Purpose), Team: c.Team,
		}.String()
		if c.Kind == "" {
			name = "all together"
		}
		g.Rows = append(g.Rows, []string{
			name, spanText(c.WaitSeconds), c.Basis, plain.Number(float64(c.IdlePeriods), 0),
			plain.Number(float64(c.EndedByWork), 0),
			hoursShort(c.Tested.NetSavedHours), plain.Share(c.Tested.NetSavedShare, 1)})
		if c.Why != "" {
			s.Because = append(s.Because, name+" gets no policy: "+c.Why+".")
		}
	}
	s.Tables = []layout.Grid{g}
	s.Assumptions = []string{"A restart costs " + spanText(doc.Trace.RestartCostSeconds) + " of the resource.",
		"A class or the fleet decides by its own history from 30 idle periods on. Before, the wait is one restart cost " +
			"(break-even)."}
	s.Coverage = []string{
		fmt.Sprintf("%s, %s, %s from %s to %s.", plain.Count(doc.Trace.Resources, "resource"),
			plain.Count(doc.Trace.IdlePeriods, "idle period"),
			plain.Count(doc.Trace.Samples, "sample"), plain.Time(doc.Trace.First), plain.Time(doc.Trace.Last))}
	return s
}

// backtestPictures returns the charts of a replay.
func backtestPictures(doc *view.Backtest, rule *backtest.Result) []layout.Picture {
	return slices.DeleteFunc([]layout.Picture{
		{
			Title: "When " + rule.Name + " would have released resources", SVG: timelineChart(doc.Timeline),
			Caption: "The resources with the largest savings come first.",
		},
		{
			Title: "Savings against restarts", SVG: savingsChart(doc),
			Caption: "Higher saves more, further left restarts less often. Each point is a rule of the table.",
		},
		{
			Title: "Savings by team and user", SVG: ownersChart(doc, rule.Name),
			Caption: "The largest savings come first.",
		},
	}, func(p layout.Picture) bool { return p.SVG == "" })
}

// stateColors are the colors of the states of a timeline; unknown has none.
var stateColors = map[string]chart.Kind{
	"busy": {Name: "working", Color: chart.Gray}, "idle": {Name: "idle", Color: chart.Orange},
	"released": {Name: "released", Color: chart.Blue},
}

// Bounds of the timeline's picture.
const (
	maxLanes = 16
	minBlock = 160 // relative length under which a block is merged into the previous one
)

func timelineChart(t *backtest.Timeline) string {
	if t == nil || !t.To.After(t.From) || len(t.Resources) == 0 {
		return ""
	}
	l := chart.Lanes{
		Title: "When " + t.Rule + " would have released what, by resource", Axis: chart.Dates(t.From, t.To),
		Kinds: []chart.Kind{stateColors["busy"], stateColors["idle"], stateColors["released"]}}
	least := t.To.Sub(t.From) / minBlock
	for _, r := range t.Resources[:min(len(t.Resources), maxLanes)] {
		lane := chart.Lane{Label: r.Resource}
		for _, s := range coarse(r.Spans, least) {
			if kind, known := stateColors[s.State]; known {
				lane.Blocks = append(lane.Blocks, chart.Block{
					From: chart.Second(s.From), To: chart.Second(s.To), Label: kind.Name, Color: kind.Color,
				})
			}
		}
		l.Rows = append(l.Rows, lane)
	}
	return l.SVG()
}

// coarse merges short spans into the previous one.
func coarse(spans []backtest.Span, least time.Duration) []backtest.Span {
	var out []backtest.Span
	for _, s := range spans {
		n := len(out)
		switch {
		case n > 0 && out[n-1].To.Equal(s.From) && (s.To.Sub(s.From) < least || out[n-1].State == s.State):
			out[n-1].To = s.To
		default:
			out = append(out, s)
		}
	}
	return out
}

func savingsChart(doc *view.Backtest) string {
	if len(doc.Results) < 2 {
		return ""
	}
	c := chart.Lines{Title: "Net savings of every rule against its restarts",
		X: chart.Axis{Label: "restarts over the trace", Format: func(v float64) string { return plain.Number(v, 0) }},
		Y: chart.Axis{Label: "share of all resource hours saved, net of restarts", Format: chart.Percent}}
	var most int64
	best := 0.0
	for _, r := range doc.Results {
		most, best = max(most, r.Restarts), max(best, r.NetSavedShare)
	}
	lowest := -max(best, 0.01) // losses beyond the largest gain are cut off
	point := func(restarts int64, share float64, note string) chart.Point {
		return chart.Point{X: float64(restarts), Y: max(share, lowest), Note: note}
	}
	waits := chart.Series{Name: "fixed waits", Color: chart.Gray}
	for _, w := range doc.Waits {
		if w.Restarts <= most && w.NetSavedShare >= lowest {
			waits.Points = append(waits.Points, point(w.Restarts, w.NetSavedShare, "wait "+spanText(w.WaitSeconds)))
		}
	}
	if len(waits.Points) > 0 {
		c.Series = append(c.Series, waits)
	}
	policies := chart.Series{Name: "policies", Color: chart.Orange, Scatter: true}
	if !doc.Baseline(0) && (len(doc.Results) == 1 || doc.Baseline(1)) {
		policies.Name = doc.Results[0].Name
	}
	other := chart.Series{Name: "other baselines", Color: chart.SoftBlue, Scatter: true}
	for i, r := range doc.Results {
		p := point(r.Restarts, r.NetSavedShare, r.Name)
		switch {
		case !doc.Baseline(i):
			policies.Points = append(policies.Points, p)
		case r.Name == backtest.PerfectForesight:
			c.Series = append(c.Series, chart.Series{
				Name: "perfect foresight", Color: chart.Ink, Scatter: true, Points: []chart.Point{p},
			})
		case r.Name == backtest.Learned:
			c.Series = append(c.Series, chart.Series{
				Name: "learned (online policy)", Color: chart.Blue, Scatter: true, Points: []chart.Point{p},
			})
		default:
			other.Points = append(other.Points, p)
		}
	}
	for _, s := range []chart.Series{policies, other} {
		if len(s.Points) > 0 {
			c.Series = append(c.Series, s)
		}
	}
	return c.SVG()
}

func ownersChart(doc *view.Backtest, rule string) string {
	var owned []backtest.Owned
	for _, o := range doc.ByOwner {
		if o.Rule == rule {
			owned = append(owned, o)
		}
	}
	if len(owned) == 0 {
		return ""
	}
	slices.SortStableFunc(owned, func(a, b backtest.Owned) int {
		return cmp.Or(cmp.Compare(b.SavedUSD.Or(0), a.SavedUSD.Or(0)), cmp.Compare(b.NetSavedHours, a.NetSavedHours))
	})
	c := chart.Bars{
		Title: "Hours of each team and user that " + rule + " would have released", Ordered: true,
		Parts: []string{"released", "idle and kept", "working"},
		Colors: []chart.Color{
			chart.Blue, chart.Orange, chart.Gray,
		}, Axis: chart.Axis{Label: "resource hours", Format: func(v float64) string { return plain.Number(v, 0) }}}
	for _, o := range owned[:min(len(owned), ownersDrawn)] {
		idle := max(0, o.IdleHours-o.ReleasedHours)
		note := "nothing saved"
		if o.ReleasedHours > 0 {
			saved := hoursShort(o.NetSavedHours)
			if o.SavedUSD.Known() {
				saved = o.SavedUSD.String()
			}
			note = saved + " saved, " + plain.Count(o.Restarts, "restart")
		}
		c.Rows = append(c.Rows, chart.Bar{Label: cmp.Or(strings.Trim(o.Team+" / "+o.User, " /"), "unallocated"),
			Parts: []float64{o.ReleasedHours, idle, max(0, o.ResourceHours-idle-o.ReleasedHours)}, Note: note})
	}
	return c.SVG()
}

// hoursText prints hours of resources: "1,204 machine-hours".
func hoursText(h float64) string { return hoursNumber(h) + " machine-hours" }

// hoursShort prints hours of resources in tables: "1,204 h".
func hoursShort(h float64) string { return hoursNumber(h) + " h" }

func hoursNumber(h float64) string {
	digits := 0
	if h < 100 && h > -100 {
		digits = 1
	}
	return plain.Number(h, digits)
}

// spanText prints a span of a document.
func spanText(s float64) string { return plain.Duration(time.Duration(s * float64(time.Second))) }
