package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// segment is a part of a bar, in percent of its length.
type segment struct {
	Class    string
	From, To float64
}

// Width is the segment's length.
func (s segment) Width() float64 { return s.To - s.From }

// stack lays segments one after the other; whole is the length of the bar.
func stack(whole float64, parts ...segment) []segment {
	var out []segment
	at := 0.0
	for _, p := range parts {
		length := p.To
		if !(length > 0) || !(whole > 0) {
			continue
		}
		to := min(at+length/whole*100, 100)
		out = append(out, segment{Class: p.Class, From: rounded(at), To: rounded(to)})
		at = to
	}
	return out
}

// part is a segment whose place stack decides.
func part(class string, a money.Amount) segment {
	return segment{Class: class, To: max(0, float64(a))}
}

func rounded(v float64) float64 { return math.Round(v*100) / 100 }

// bar is one row of a chart.
type bar struct {
	Label, Note string
	Segments    []segment
	// Lane is a second bar under the first, where a row has two.
	Lane []segment
	// Band is the range that is usual, 0 wide where none is.
	Band         segment
	Value, Aside string
}

// whole draws what was charged over the window as one bar: wasted, not measured, the rest.
func (d *audit) whole() []segment {
	w := d.Window
	if w == nil {
		return nil
	}
	total, waste, dark := w.TotalUSD.Or(0), w.WastedUSD.Or(0), w.UnmeasuredUSD.Or(0)
	return stack(float64(total), part("waste", waste), part("dark", dark), part("cost", total-waste-dark))
}

// stepBars draws what each step's findings waste and save.
func (d *audit) stepBars() []bar {
	var most float64
	for _, s := range d.Steps {
		bound, _ := d.bounds(s.Step)
		most = max(most, float64(s.MonthlyWasteUSD.Or(0)), float64(s.MonthlySavingsUSD.Or(0))+float64(bound))
	}
	out := make([]bar, 0, len(d.Steps))
	for i := range d.Steps {
		s := &d.Steps[i]
		saved := s.MonthlySavingsUSD.Or(0)
		bound, _ := d.bounds(s.Step)
		b := bar{
			Label: stepName(s), Note: plain.Count(s.Findings, "finding"),
			Segments: stack(most, part("waste", s.MonthlyWasteUSD.Or(0))),
			Lane:     stack(most, part("save", saved), part("bound", bound)),
			Value:    "saves " + stepSaves(s), Aside: d.beyond(s.Step),
		}
		switch {
		case s.Step == int(finding.StepMeasure) && saved == 0:
			b.Value = "saves nothing yet"
		case !s.MonthlySavingsUSD.Known() && !s.SavingsUpperBoundUSD.Known():
			b.Value = "saving not known"
		}
		out = append(out, b)
	}
	return out
}

// maxOwners is how many teams a chart shows; the rest is one row.
const maxOwners = 10

// ownerBars draws each team's cost and the wasted part of it.
func (d *audit) ownerBars() []bar {
	list := d.Owners
	if len(list) > maxOwners+1 {
		rest := view.OwnerCost{MonthlyCostUSD: money.Known(0), MonthlyWasteUSD: money.Known(0)}
		for _, o := range list[maxOwners:] {
			rest.Resources += o.Resources
			rest.MonthlyCostUSD = rest.MonthlyCostUSD.Plus(o.MonthlyCostUSD.Or(0))
			rest.MonthlyWasteUSD = rest.MonthlyWasteUSD.Plus(o.MonthlyWasteUSD.Or(0))
		}
		rest.Team = plain.Count(len(list)-maxOwners, "more team")
		list = append(slices.Clone(list[:maxOwners]), rest)
	}
	var most money.Amount
	for _, o := range list {
		most = max(most, o.MonthlyCostUSD.Or(0), o.MonthlyWasteUSD.Or(0))
	}
	out := make([]bar, 0, len(list))
	for _, o := range list {
		cost, waste := o.MonthlyCostUSD.Or(0), o.MonthlyWasteUSD.Or(0)
		b := bar{
			Label: fit(plain.Line(o.Team), 40), Note: plain.Count(o.Resources, "resource"),
			Segments: stack(float64(most), part("waste", waste), part("cost", max(0, cost-waste))),
			Value:    o.MonthlyCostUSD.String(),
		}
		if b.Label == "" {
			b.Label = "no team tag"
		}
		if waste > 0 {
			b.Aside = waste.Dollars() + " wasted"
		}
		out = append(out, b)
	}
	return out
}

// usual is the share of an ML team's cloud bill, in percent, that the field reports
// for a category; categories that are not of that division have none.
var usual = map[string][2]float64{
	round.CategoryStorage:  {30, 40},
	round.CategoryIdle:     {20, 30},
	round.CategoryActive:   {15, 25},
	round.CategoryEgress:   {8, 15},
	round.CategoryOverhead: {5, 10},
}

// categoryTitles says what each category is.
var categoryTitles = map[string]string{
	round.CategoryStorage:  "objects, disks, logs, databases",
	round.CategoryIdle:     "compute doing nothing",
	round.CategoryActive:   "compute at work",
	round.CategoryEgress:   "data transfer",
	round.CategoryOverhead: "secrets, monitoring",
	round.CategoryUnknown:  "unmeasured compute",
	round.CategoryNetwork:  "gateways, balancers, addresses",
	round.CategoryOther:    "what the bill charges besides",
}

// categoryBars draws the share of each category with the share usual in the
// field.
func (d *audit) categoryBars() []bar {
	most := 50.0
	names, whole := d.ShownCategories()
	for _, name := range names {
		most = max(most, 100*share(*d.Categories.Named(name), whole))
	}
	out := make([]bar, 0, len(names))
	for _, name := range names {
		amount := *d.Categories.Named(name)
		part := share(amount, whole)
		b := bar{Label: name, Note: categoryTitles[name], Value: amount.String(),
			Segments: stack(most, segment{Class: categoryClass(name), To: 100 * part})}
		if u, ok := usual[name]; ok {
			b.Band = segment{From: rounded(u[0] / most * 100), To: rounded(u[1] / most * 100)}
			b.Aside = fmt.Sprintf("usual %.0f–%.0f%%", u[0], u[1])
		}
		if amount.Known() && whole.Known() {
			b.Aside = joined(", ", plain.Share(part, 0), b.Aside)
		}
		if name == round.CategoryEgress && !amount.Known() {
			b.Note = "data transfer; needs a bill"
		}
		out = append(out, b)
	}
	return out
}

func categoryClass(name string) string {
	switch name {
	case round.CategoryIdle:
		return "waste"
	case round.CategoryActive:
		return "save"
	case round.CategoryUnknown:
		return "dark"
	}
	return "cost"
}

// spark is what one signal did over a window, as bars of equal parts of it. A part
// without a sample is a gap and has no bar; a measured zero has a low one.
type spark struct {
	Signal string
	// Bars and Gaps are paths in a box of sparkWidth by sparkHeight.
	Bars, Gaps string
	// From and To name the ends of the window, Peak the largest value.
	From, To, Peak string
	// Missing is the share of the parts without a sample, for people; empty when
	// there are none.
	Missing string
}

// The box of a spark: a part is four wide, its bar three.
const (
	sparkWidth  = usage.Buckets * 4
	sparkHeight = 32
)

// sparks draws what was measured of the resource of a finding.
func sparks(f *view.Finding) []spark {
	out := make([]spark, 0, len(f.Samples))
	for i := range f.Samples {
		out = append(out, draw(&f.Samples[i]))
	}
	return out
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

// scaleOf returns the value that fills the height of a spark, and the peak for
// people. What has a natural limit is drawn against it, so that 0.4% looks small.
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
