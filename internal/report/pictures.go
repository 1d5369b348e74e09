package report

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// pictures draws costs by use, step, team and category.
func (d *audit) pictures() []layout.Picture {
	var out []layout.Picture
	if n := d.Now; n != nil && n.RunningUSD.Or(0) > 0 {
		p := d.parts() // which sum as printed
		out = append(out, layout.Picture{Title: "What runs now", SVG: nowPicture(n), Caption: fmt.Sprintf(
			"Of %s a month, %s is used, %s is wasted, %s was not measured, and %s is storage, network and services.",
			n.RunningUSD, p[0].Value, p[1].Value, p[2].Value, p[3].Value,
		)})
	}
	if len(d.Steps) > 0 {
		out = append(
			out,
			layout.Picture{
				Title:   "What to do, in this order",
				SVG:     d.stepsPicture(),
				Caption: "What the fixes of each step save a month, and what its findings waste.",
			},
		)
	}
	return append(
		out,
		layout.Picture{
			Title:   "By team",
			SVG:     d.ownersPicture(),
			Caption: "Cost a month by team, and what of it is wasted.",
		},
		layout.Picture{
			Title: "By category",
			SVG:   d.categoriesPicture(),
			Caption: "Cost a month by category; the outlined band is the share usual for ML teams. " +
				"Storage is objects, disks, logs and databases; network is gateways, balancers and addresses; " +
				"overhead is secrets and monitoring; unknown is unmeasured compute.",
		},
	)
}

// nowPicture draws the running cost as one bar.
func nowPicture(n *view.ScanNow) string {
	b := chart.Bars{
		Title:   "Cost of what runs now by use",
		Axis:    chart.Axis{Label: "dollars a month", Format: chart.USD},
		Ordered: true,
	}
	row := chart.Bar{Label: "now", Note: n.RunningUSD.String()}
	for i, amount := range []money.Dollars{n.UsedUSD, n.OtherUSD, n.UnmeasuredUSD, n.WastedUSD} {
		b.Parts, b.Colors = append(b.Parts, costParts[i].name), append(b.Colors, costParts[i].color)
		row.Parts = append(row.Parts, max(0, inDollars(amount.Or(0))))
	}
	b.Rows = []chart.Bar{row}
	return b.SVG()
}

// stepsPicture draws the savings and waste of each step.
func (d *audit) stepsPicture() string {
	b := chart.Bars{
		Title:   "Savings and waste a month by step",
		Axis:    chart.Axis{Label: "dollars a month", Format: chart.USD},
		Ordered: true,
		Parts: []string{
			"saved by the fixes",
			"at most, not known yet",
		},
		Colors: []chart.Color{chart.Green, chart.SoftGreen},
		Limit:  "wasted",
	}
	for i := range d.Steps {
		s := &d.Steps[i]
		saved := s.MonthlySavingsUSD.Or(0)
		bound, _ := d.bounds(s.Step)
		note := "saves " + saving(s.MonthlySavingsUSD, s.SavingsUpperBoundUSD)
		switch {
		case s.Step == int(finding.StepMeasure) && saved == 0:
			note = "saves nothing yet"
		case !s.MonthlySavingsUSD.Known() && !s.SavingsUpperBoundUSD.Known():
			note = "saving not known"
		}
		b.Rows = append(
			b.Rows,
			chart.Bar{Label: stepName(s), Note: note, Limit: max(0, inDollars(s.MonthlyWasteUSD.Or(0))),
				Parts: []float64{max(0, inDollars(saved)), max(0, inDollars(bound))}},
		)
	}
	return b.SVG()
}

// maxOwners bounds the teams in a chart; the rest share a row.
const maxOwners = 10

// ownersPicture draws each team's cost and its wasted part.
func (d *audit) ownersPicture() string {
	list := d.Owners
	if len(list) > maxOwners+1 {
		rest := view.OwnerCost{MonthlyCostUSD: money.Known(0), WastedNowUSD: money.Known(0)}
		for _, o := range list[maxOwners:] {
			rest.Resources += o.Resources
			rest.MonthlyCostUSD = rest.MonthlyCostUSD.Plus(o.MonthlyCostUSD.Or(0))
			rest.WastedNowUSD = rest.WastedNowUSD.Plus(o.WastedNowUSD.Or(0))
		}
		rest.Team = plain.Count(len(list)-maxOwners, "more team")
		list = append(slices.Clone(list[:maxOwners]), rest)
	}
	b := chart.Bars{
		Title:   "Cost and waste a month by team",
		Axis:    chart.Axis{Label: "dollars a month", Format: chart.USD},
		Ordered: true,
		Parts:   []string{"wasted", "the rest of the cost"},
		Colors:  []chart.Color{chart.Orange, chart.SoftBlue},
	}
	for _, o := range list {
		cost, waste := o.MonthlyCostUSD.Or(0), max(0, o.WastedNowUSD.Or(0))
		row := chart.Bar{
			Label: layout.Fit(plain.Line(o.Team), 40),
			Note:  o.MonthlyCostUSD.String(),
			Parts: []float64{inDollars(waste), max(0, inDollars(cost-waste))},
		}
		if row.Label == "" {
			row.Label = "no team tag"
		}
		if waste > 0 {
			row.Note += ", " + waste.Dollars() + " wasted"
		}
		b.Rows = append(b.Rows, row)
	}
	return b.SVG()
}

// usual is the typical share, in percent, of a category in an ML team's cloud bill; other
// categories have none.
var usual = map[string][2]float64{
	round.CategoryStorage:  {30, 40},
	round.CategoryIdle:     {20, 30},
	round.CategoryActive:   {15, 25},
	round.CategoryEgress:   {8, 15},
	round.CategoryOverhead: {5, 10},
}

// categoriesPicture draws the share of each category with the usual share.
func (d *audit) categoriesPicture() string {
	names, whole := d.ShownCategories()
	b := chart.Bars{
		Title:   "Cost a month by category, as a share of all",
		Axis:    chart.Axis{Label: "share of the cost", Format: chart.Percent},
		Band:    "usual share",
		Ordered: true,
	}
	for _, name := range names {
		amount := *d.Categories.Named(name)
		row := chart.Bar{Label: name, Value: share(amount, whole), Note: amount.String(), Color: categoryColor(name)}
		if amount.Known() && whole.Known() {
			row.Note = plain.Share(row.Value, 0) + ", " + row.Note
		}
		if u, ok := usual[name]; ok {
			row.BandFrom, row.BandTo = u[0]/100, u[1]/100
		}
		if name == round.CategoryEgress && !amount.Known() {
			row.Note += ": needs a bill"
		}
		b.Rows = append(b.Rows, row)
	}
	return b.SVG()
}

func categoryColor(name string) chart.Color {
	switch name {
	case round.CategoryIdle:
		return chart.Orange
	case round.CategoryActive:
		return chart.Blue
	case round.CategoryUnknown:
		return chart.Hatched
	}
	return chart.SoftBlue
}

// spark draws one signal over a window as bars of equal time. A part without a sample is a gap; a
// measured zero has a low bar.
type spark struct {
	Signal string
	// Bars and Gaps are paths in a box of sparkWidth by sparkHeight.
	Bars, Gaps string
	// From and To are the ends of the window, Peak the maximum.
	From, To, Peak string
	// Missing is the share of parts without a sample, for people; empty if none.
	Missing string
}

// The size of a spark: a part is four wide, its bar three.
const (
	sparkWidth  = usage.Buckets * 4
	sparkHeight = 32
)

// picture returns the spark as inline SVG with a caption.
func (s spark) picture() layout.Picture {
	label := layout.Joined(", ", s.Signal, "peak "+s.Peak, s.Missing)
	return layout.Picture{
		Title:   s.Signal,
		Caption: layout.Joined(" · ", "peak "+s.Peak, s.From+" to "+s.To, s.Missing),
		SVG: fmt.Sprintf(
			`<svg class="spark" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s"><path class="gap" d="%s"/><path class="level" d="%s"/></svg>`,
			sparkWidth,
			sparkHeight,
			html.EscapeString(plain.Line(label)),
			s.Gaps,
			s.Bars,
		),
	}
}

func draw(in *view.Samples) spark {
	sig, _ := usage.SignalNamed(in.Signal)
	limit, peak := scaleOf(in, sig)
	var bars, gaps strings.Builder
	missing := 0
	for i, v := range in.Values {
		x := i * 4
		if v == nil {
			missing++
			fmt.Fprintf(&gaps, "M%d %dh4v-%dh-4z", x, sparkHeight, sparkHeight)
			continue
		}
		height := 1.5
		if limit > 0 {
			height = max(height, min(float64(*v)/limit, 1)*sparkHeight)
		}
		text := strconv.FormatFloat(height, 'f', 1, 64)
		fmt.Fprintf(&bars, "M%d %dh3v-%sh-3z", x, sparkHeight, text)
	}
	s := spark{Signal: signalTitle(sig), Bars: bars.String(), Gaps: gaps.String(), Peak: peak,
		From: plain.Duration(in.To.Sub(in.From)) + " ago", To: in.To.UTC().Format(time.DateOnly)}
	if missing > 0 {
		s.Missing = plain.Share(float64(missing)/float64(len(in.Values)), 0) + " of the time not measured"
	}
	return s
}

// scaleOf returns the value at full height of a spark, and the peak as text. Signals with a natural
// limit are drawn against it, so that 0.4% looks small.
func scaleOf(in *view.Samples, sig usage.Signal) (limit float64, peak string) {
	switch sig {
	case usage.GPUUtil, usage.CPUUtil:
		return 100, plain.Percent(in.Max, 1)
	case usage.SMActive:
		return 1, plain.Percent(in.Max*100, 1)
	case usage.MemUsed:
		if in.Of > 0 {
			return in.Of, plain.Percent(100*in.Max/in.Of, 0) + " of the memory"
		}
		return in.Max, plain.Size(in.Max)
	case usage.NetBytes:
		return in.Max, plain.Size(in.Max)
	}
	return in.Max, plain.Number(in.Max, 0)
}

func signalTitle(s usage.Signal) string {
	switch s {
	case usage.GPUUtil:
		return "busiest GPU"
	case usage.SMActive:
		return "GPU cores busy"
	case usage.MemUsed:
		return "GPU memory held"
	case usage.CPUUtil:
		return "CPU busy"
	case usage.Requests:
		return "requests"
	case usage.NetBytes:
		return "network traffic"
	case usage.DiskOps:
		return "disk operations"
	case usage.Healthy:
		return "healthy targets"
	case usage.Capacity:
		return "machines"
	}
	return s.String()
}
