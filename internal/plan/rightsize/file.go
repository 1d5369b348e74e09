package rightsize

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// FromUsage judges recorded usage: each resource over the time from its first to its
// last sample, and all of them together. machineType is of the resources of which the
// file does not say one. r is read twice from its beginning: for the times, and for
// the samples.
//
// A malformed file is a *[usage.FileError]; a type that the book does not know, or
// that has no accelerators, is an error.
func FromUsage(ctx context.Context, r io.ReadSeeker, f usage.Format, machineType string, book *price.Book,
	p Params) (Report, error) {
	p.Region = cmp.Or(p.Region, "us-east-1")
	if p.Most <= 0 {
		p.Most = 5
	}
	p.Tensor, p.Clouds = true, true
	found, step, err := survey(ctx, r, f, p.Only)
	if err != nil {
		return Report{}, err
	}
	f.Step = step
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return Report{}, fmt.Errorf("read %s again: %w", f.Name, err)
	}
	windows := map[string]*usage.Window{}
	if _, err := usage.Collect(ctx, r, f, func(name string) usage.Sink {
		s := found[name]
		if s == nil {
			return nil
		}
		windows[name] = usage.NewWindow(s.first, s.last.Add(step), step, "recorded", nil)
		return windows[name]
	}); err != nil {
		return Report{}, err
	}
	sum := total{p: p, offers: NewOffers(book)}
	for _, name := range slices.Sorted(maps.Keys(windows)) {
		if err := sum.add(name, cmp.Or(found[name].machine, machineType), windows[name]); err != nil {
			return Report{}, err
		}
	}
	return sum.report(f.Name)
}

// Measured is a machine with what was measured of it.
type Measured struct {
	Name, Type, Region string
	Purpose            inventory.Purpose
	Window             *usage.Window
	// Rest is the duty of a machine that is not busy, such as "idle", "held" or "unknown", and RestWhy
	// its evidence. Such a machine has no right size: it is to be ended or measured, not moved.
	Rest, RestWhy string
	// Host asks for the CPUs and the memory of a machine without accelerators, Spot reports that it runs at
	// the spot price, which is not compared.
	Host, Spot bool
}

// FromWindows judges machines of an account, each in its own region and for its own
// purpose. Those whose accelerators the book does not know are left out and named. It returns an error
// where nothing is left.
func FromWindows(name string, machines []Measured, book *price.Book, p Params) (Report, error) {
	if p.Most <= 0 {
		p.Most = 5
	}
	p.Tensor = true
	sum := total{p: p, offers: NewOffers(book)}
	var without []string
	for _, m := range machines {
		if m.Host {
			if err := sum.host(m); err != nil {
				return Report{}, err
			}
			continue
		}
		if from, ok := book.Machine(m.Type); !ok || from.GPUs() == 0 {
			without = append(without, m.Name)
			continue
		}
		sum.p.Region, sum.p.Purpose = m.Region, m.Purpose
		if m.Rest != "" {
			sum.rest(m)
		} else if err := sum.add(m.Name, m.Type, m.Window); err != nil {
			return Report{}, err
		}
	}
	if len(sum.resources)+len(sum.hosts) == 0 {
		return Report{}, fmt.Errorf("right-size %s: no machine with accelerators that are in the price book", name)
	}
	sum.p.Region, sum.p.Purpose = "the region of each machine", p.Purpose
	r, err := sum.report(name)
	if len(without) > 0 {
		r.CoverageNotes = append(r.CoverageNotes,
			fmt.Sprintf("%d machines left out, because their accelerators are not in the price book: %s", len(without),
				strings.Join(without[:min(len(without), 5)], ", ")))
	}
	return r, err
}

// seen is when a resource was sampled and what the file says it is.
type seen struct {
	first, last time.Time
	machine     string
}

func survey(ctx context.Context, r io.Reader, f usage.Format, only func(resource string) bool) (map[string]*seen,
	time.Duration, error) {
	found := map[string]*seen{}
	summary, err := usage.Read(ctx, r, f, func(s *usage.Sample) error {
		it := found[s.Resource]
		if it == nil && only != nil && !only(s.Resource) {
			return nil
		}
		if it == nil {
			it = &seen{first: s.Time, last: s.Time}
			found[s.Resource] = it
		}
		if s.Time.Before(it.first) {
			it.first = s.Time
		}
		if s.Time.After(it.last) {
			it.last = s.Time
		}
		if s.Description != nil && s.Description.Type != "" {
			it.machine = s.Description.Type
		}
		return nil
	})
	step := cmp.Or(f.Step, summary.Step)
	switch {
	case err != nil:
		return nil, 0, err
	case len(found) == 0:
		return nil, 0, &usage.FileError{File: f.Name, Reason: "no samples"}
	case step <= 0:
		return nil, 0, &usage.FileError{
			File: f.Name, Reason: "no series has two samples, so the sampling step is unknown: give it with --step",
		}
	}
	return found, step, nil
}

// total adds up resources.
type total struct {
	p         Params
	offers    *Offers
	resources []Resource
	hosts     []Host
	judged    []sized
	unmetered []sized // without a verdict
	resting   int     // resources that do not work
	short     int     // resources with under a day of samples
}

// sized is a resource with what was measured of it.
type sized struct {
	Resource
	advice Advice
	m      *measured
}

// day is the least time that holds the daily rhythm of use.
const day = 24 * time.Hour

// rest adds a machine that does not work.
func (t *total) rest(m Measured) {
	r := Resource{
		Name: m.Name, Type: m.Type, Warnings: []string{}, Devices: []Device{},
		Figures: Figures{Verdict: m.Rest, Why: m.RestWhy, Fits: []Fit{}},
	}
	t.resources = append(t.resources, r)
	if m.Rest == Unknown.String() {
		t.unmetered = append(t.unmetered, sized{Resource: r, advice: Advice{Why: m.RestWhy}})
	} else {
		t.resting++
	}
}

func (t *total) add(name, machineType string, w *usage.Window) error {
	if machineType == "" {
		return fmt.Errorf("right-size %s: unknown machine type: give --type, or add a column type", name)
	}
	from, ok := t.offers.book.Machine(machineType)
	if !ok {
		return fmt.Errorf("right-size %s: machine type %q is not in the price book%s", name, machineType,
			t.offers.book.DidYouMean(machineType))
	}
	window := w
	reason := unfit(w, from)
	if reason != "" {
		window = nil
	}
	a, m, err := t.offers.advise(window, from, t.p.Region, t.p.Options)
	if err != nil {
		return fmt.Errorf("right-size %s: %w", name, err)
	}
	a.Why = cmp.Or(reason, a.Why)
	s := sized{
		advice: a, m: m,
		Resource: Resource{
			Name: name, Type: from.Type, Figures: a.figures(t.p.Most), Warnings: append([]string{}, a.Warnings...),
		},
	}
	if a.Unpriced != "" {
		s.Warnings = append(s.Warnings, a.Unpriced)
	}
	if m != nil {
		s.Reasons = m.reasons(a.Verdict)
	}
	s.Devices = []Device{}
	for _, g := range w.GPUs {
		s.Devices = append(s.Devices, device(w, g))
	}
	if w.To.Sub(w.From) < day {
		t.short++
	}
	t.resources = append(t.resources, s.Resource)
	if a.Verdict == Unknown {
		t.unmetered = append(t.unmetered, s)
	} else {
		t.judged = append(t.judged, s)
	}
	return nil
}

// unfit returns the reason why samples are invalid for a machine, or useless.
func unfit(w *usage.Window, from price.Machine) string {
	if w.To.Sub(w.From) <= w.Step {
		return "one sample is too few to judge"
	}
	devices := map[string]bool{}
	for _, g := range w.GPUs {
		parent, _ := g.Parent()
		devices[parent] = true
	}
	if from.GPUs() > 0 && len(devices) > from.GPUs() {
		return fmt.Sprintf("the file has %d GPUs of it, but a %s has %d", len(devices), from.Type, from.GPUs())
	}
	return ""
}

// device returns the figures of one GPU.
func device(w *usage.Window, g *usage.Track) Device {
	d := Device{GPU: g.Name, Used: g.ShowsCompute()}
	if st := g.Stats(usage.GPUUtil); st != nil {
		d.Samples, d.Coverage = st.Count, w.Coverage(st)
		d.UtilP50, d.UtilP95 = quantile(st, usage.GPUUtil, 0.5, 1), quantile(st, usage.GPUUtil, 0.95, 1)
		if mean, err := st.Mean(); err == nil {
			d.UtilMean = &mean
		}
	}
	if st := g.Stats(usage.MemUsed); st != nil {
		peak := st.Max / gib
		d.MemoryPeakGiB, d.MemoryP95GiB = &peak, quantile(st, usage.MemUsed, 0.95, gib)
	}
	return d
}

// quantile returns a quantile in a unit, nil if nothing was measured.
func quantile(st *usage.Stats, s usage.Signal, q, unit float64) *float64 {
	v, err := st.Quantile(s, q)
	if err != nil {
		return nil
	}
	v /= unit
	return &v
}

// figures are an advice as its document has it, with at most most candidates.
func (a *Advice) figures(most int) Figures {
	f := Figures{
		Verdict: a.Verdict.String(), Why: a.Why, Samples: a.Samples, Coverage: a.Coverage, GPUs: a.GPUs,
		GPUsUsedMax: a.GPUsUsed, Fitting: len(a.Candidates), Fits: []Fit{},
	}
	if a.Samples > 0 {
		f.UtilP50, f.UtilP95, f.UtilMean = &a.UtilP50, &a.UtilP95, &a.UtilMean
	}
	if a.MemoryKnown {
		f.MemoryPeakGiB, f.MemoryP95GiB = &a.MemoryPeakGiB, &a.MemoryP95GiB
	}
	if a.Verdict != Unknown {
		f.ComputeTFLOPS, f.Basis = &a.ComputeTFLOPS, a.Basis.String()
	}
	if hourly, ok := a.Hourly.Get(); ok {
		f.HourlyUSD = money.Known(hourly)
	}
	for _, c := range a.Candidates[:min(most, len(a.Candidates))] {
		f.Fits = append(f.Fits, c.fit(a.MemoryKnown))
	}
	return f
}

func (c Candidate) fit(memoryKnown bool) Fit {
	f := Fit{
		Type: c.Machine.Type, Cloud: c.Machine.Cloud, Region: c.Region, Accelerator: c.Accelerator.Name, GPUs: c.GPUs,
		VCPUs:        c.Machine.VCPUs,
		MemoryGiB:    float64(c.Machine.AcceleratorMemoryMiB) * mib / gib,
		ComputeShare: c.ComputeShare, HourlyUSD: c.Hourly,
		Source: c.Price.Source, AsOf: c.Price.AsOf.Format(time.DateOnly),
		Lacks: []string{}, Against: slices.Concat([]string{}, c.Against)}
	for _, x := range c.Lacks {
		f.Lacks = append(f.Lacks, string(x))
	}
	if memoryKnown {
		f.MemoryShare = &c.MemoryShare
	}
	if saving, ok := c.Saving.Get(); ok {
		f.SavingUSD = money.Known(saving)
	}
	return f
}

// report closes the sum.
func (t *total) report(name string) (Report, error) {
	r := Report{
		Schema: Schema, Region: t.p.Region, Judged: len(t.judged), Unknown: len(t.unmetered), Resting: t.resting,
		Resources: append([]Resource{}, t.resources...), Hosts: append([]Host{}, t.hosts...),
	}
	of := t.judged
	if len(of) == 0 {
		of = t.unmetered
	}
	a := Advice{Why: "no machine is busy"}
	if len(of) > 0 {
		var err error
		if a, err = t.together(of); err != nil {
			return Report{}, fmt.Errorf("right-size %s: %w", name, err)
		}
	}
	r.Figures = a.figures(t.p.Most)
	saving, known, err := hostSavings(t.hosts)
	if err != nil {
		return Report{}, fmt.Errorf("right-size %s: %w", name, err)
	}
	for _, s := range t.judged {
		if len(s.advice.Candidates) > 0 && len(s.advice.Candidates[0].Lacks) == 0 {
			if v, ok := s.advice.Candidates[0].Saving.Get(); ok {
				known = true
				if saving, err = saving.Add(v); err != nil {
					return Report{}, fmt.Errorf("right-size %s: add up the savings: %w", name, err)
				}
			}
		}
	}
	if known {
		r.SavingUSD = money.Known(saving)
	}
	t.notes(&r)
	t.hostNotes(&r)
	return r, nil
}

// together is the advice for resources as one.
func (t *total) together(of []sized) (Advice, error) {
	a := of[0].advice
	if len(of) == 1 {
		return a, nil
	}
	a = Advice{Coverage: 1, MemoryKnown: true, Basis: usage.SMActive}
	var meters []*usage.Stats
	hourly, priced := money.Amount(0), true
	for _, s := range of {
		x := s.advice
		if s.m != nil {
			meters = append(meters, s.m.util)
		}
		a.Coverage = min(a.Coverage, x.Coverage)
		a.GPUs += x.GPUs
		a.GPUsUsed = max(a.GPUsUsed, x.GPUsUsed)
		a.MemoryKnown = a.MemoryKnown && x.MemoryKnown
		a.MemoryPeakGiB, a.MemoryP95GiB = max(a.MemoryPeakGiB, x.MemoryPeakGiB), max(a.MemoryP95GiB, x.MemoryP95GiB)
		if x.ComputeTFLOPS > a.ComputeTFLOPS || a.ComputeTFLOPS == 0 {
			a.ComputeTFLOPS, a.Basis = x.ComputeTFLOPS, x.Basis
		}
		own, ok := x.Hourly.Get()
		priced = priced && ok
		var err error
		if hourly, err = hourly.Add(own); err != nil {
			return Advice{}, err
		}
	}
	if priced {
		a.Hourly = inventory.Known(hourly)
	}
	a.Why = fmt.Sprintf("none of %d machines has enough samples", len(of))
	if pool := usage.Pool(meters...); pool != nil {
		a.Samples, a.UtilMax = pool.Count, pool.Max
		a.UtilMean, _ = pool.Mean()
		a.UtilP50, _ = pool.Quantile(usage.GPUUtil, 0.5)
		a.UtilP95, _ = pool.Quantile(usage.GPUUtil, 0.95)
	}
	if len(t.judged) == 0 {
		return a, nil
	}
	a.Verdict = judge(a.UtilMean, t.p.Purpose)
	a.Why = fmt.Sprintf("%s mean GPU utilization over %s", plain.Percent(a.UtilMean, 1),
		plain.Count(len(of), "machine"))
	var err error
	a.Candidates, err = shared(of)
	return a, err
}

// shared returns the types that fit every resource, each at what one machine of it
// costs, with the saving of all of them together.
func shared(of []sized) ([]Candidate, error) {
	var out []Candidate
	for _, c := range of[0].advice.Candidates {
		saving, known := c.Saving.Get()
		all := true
		for _, s := range of[1:] {
			i := slices.IndexFunc(s.advice.Candidates, func(x Candidate) bool {
				return x.Machine.Type == c.Machine.Type && x.Machine.Cloud == c.Machine.Cloud
			})
			if all = i >= 0; !all {
				break
			}
			x := s.advice.Candidates[i]
			c.MemoryShare, c.ComputeShare = max(c.MemoryShare, x.MemoryShare), max(c.ComputeShare, x.ComputeShare)
			for _, note := range x.Against {
				if !slices.Contains(c.Against, note) {
					c.Against = append(slices.Clip(c.Against), note)
				}
			}
			for _, f := range x.Lacks {
				if !slices.Contains(c.Lacks, f) {
					c.Lacks = append(slices.Clip(c.Lacks), f)
				}
			}
			more, ok := x.Saving.Get()
			known = known && ok
			var err error
			if saving, err = saving.Add(more); err != nil {
				return nil, err
			}
		}
		if !all {
			continue
		}
		c.Saving = inventory.Fact[money.Amount]{}
		if known {
			c.Saving = inventory.Known(saving)
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(x, y Candidate) int {
		return cmp.Compare(min(len(x.Lacks), 1), min(len(y.Lacks), 1))
	})
	return out, nil
}

// notes list the assumptions of the report.
func (t *total) notes(r *Report) {
	headroom := cmp.Or(max(t.p.Headroom, 0), defaultHeadroom)
	least := cmp.Or(max(t.p.MinCoverage, 0), defaultCoverage)
	r.Assumptions = []string{
		fmt.Sprintf(
			"headroom: %s of GPU memory, host memory and vCPUs above the measured use; a slower GPU runs at no "+
				"more than %s of its throughput",
			plain.Share(headroom, 0), plain.Share(fullest, 0)),
		"throughput is dense at 16 bits, from vendor data sheets; work can be split over fewer GPUs",
		"on-demand list prices for Linux in " + t.p.Region +
			"; a month has 730 hours; other clouds at their lowest price of any region",
		"mean GPU utilization below 25% is overprovisioned, below 60% underutilized; inference above 85% needs to scale out",
		"candidates have accelerators of the same vendor and hosts of the same architecture",
	}
	judged := fmt.Sprintf("%d of %d machines have a verdict", r.Judged, len(r.Resources))
	r.CoverageNotes = []string{
		fmt.Sprintf("%s; the others have samples for less than %s of the time, or not for every GPU", judged,
			plain.Share(least, 0)),
	}
	if r.Unknown == 0 {
		r.CoverageNotes[0] = judged
	}
	if t.resting > 0 {
		r.CoverageNotes = append(r.CoverageNotes, plain.Count(t.resting, "machine")+
			" without a right size, because what does not work is ended and not moved: `curfew scan` finds them")
	}
	if t.short > 0 {
		r.CoverageNotes = append(r.CoverageNotes,
			fmt.Sprintf("%d of them have samples for less than a day: peaks at other hours are not included", t.short))
	}
	seen := map[string]bool{}
	for _, s := range slices.Concat(t.judged, t.unmetered) {
		for _, warning := range s.Warnings {
			if !seen[warning] {
				seen[warning] = true
				r.CoverageNotes = append(r.CoverageNotes, warning)
			}
		}
	}
	r.Changes = t.changes(r)
}

// changes list the facts that would change the answer.
func (t *total) changes(r *Report) []string {
	out := []string{}
	if r.Unknown > 0 {
		out = append(out, "complete samples of every GPU would give the other machines a verdict")
	}
	if len(t.judged) == 0 {
		return out
	}
	if slices.ContainsFunc(t.judged, func(s sized) bool {
		return s.advice.Basis == usage.GPUUtil && s.advice.GPUsUsed > 0
	}) {
		out = append(out, "sm_active instead of gpu_util may show a smaller need, so that smaller accelerators fit")
	}
	if slices.ContainsFunc(t.judged, func(s sized) bool { return !s.advice.MemoryKnown }) {
		out = append(out, "with GPU memory in the file, smaller accelerators may fit")
	}
	if slices.ContainsFunc(t.judged, func(s sized) bool {
		return slices.ContainsFunc(s.advice.Candidates, func(c Candidate) bool { return len(c.Lacks) > 0 })
	}) {
		out = append(out, "where the work uses no bfloat16 or NVLink, `--needs none` advises the types without them too")
	}
	if len(r.Fits) > 0 && r.MemoryPeakGiB != nil && r.Fits[0].MemoryShare != nil {
		held := r.Fits[0].MemoryGiB / (1 + cmp.Or(max(t.p.Headroom, 0), defaultHeadroom))
		out = append(out, fmt.Sprintf("a memory peak above %s GiB on a GPU rules out %s", plain.Number(held, 1),
			r.Fits[0].Type))
	}
	return out
}
