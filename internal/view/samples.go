package view

import (
	"cmp"
	"slices"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// pictured are the signals that are kept for pictures, in the order in which they are
// looked for.
var pictured = []usage.Signal{
	usage.GPUUtil, usage.SMActive, usage.Requests, usage.MemUsed, usage.CPUUtil, usage.Capacity, usage.Healthy,
	usage.NetBytes, usage.DiskOps,
}

// Bounds of the samples that are kept for pictures.
const (
	// SampledFindings is how many of the largest findings have samples.
	SampledFindings = 10
	// maxSamples is how many signals are kept of one finding.
	maxSamples = 3
)

// sample adds the samples of their resources to the largest findings.
func (d *Scan) sample(a *round.Result) {
	resources := make(map[string]*inventory.Resource, len(a.Findings))
	for i := range a.Findings {
		resources[valid(a.Findings[i].ID)] = a.Findings[i].Resource
	}
	for _, f := range d.Largest(SampledFindings) {
		if r := resources[f.ID]; r != nil {
			f.Samples = SamplesOf(a.Windows[r.Ref()])
		}
	}
}

// SamplesOf returns the signals of a window that are fit for a picture, at most three.
func SamplesOf(w *usage.Window) []Samples {
	if w == nil {
		return nil
	}
	var out []Samples
	for _, sig := range pictured {
		st := pooled(w, sig)
		if st == nil || len(out) == maxSamples {
			continue
		}
		s := Samples{
			Signal: sig.String(), From: w.From.UTC(), To: w.To.UTC(),
			Values: make([]*float32, usage.Buckets), Max: st.Max,
		}
		for i := range s.Values {
			if v, ok := st.Bucket(i); ok {
				short := float32(v)
				s.Values[i] = &short
			}
		}
		if sig == usage.MemUsed {
			s.Of = w.GPUMemory
			if t := pooled(w, usage.MemTotal); t != nil {
				s.Of = t.Max
			}
		}
		out = append(out, s)
	}
	return out
}

// pooled is a signal over all GPUs and the machine; nil when it was not measured.
func pooled(w *usage.Window, sig usage.Signal) *usage.Stats {
	meters := []*usage.Stats{w.Machine.Stats(sig)}
	for _, g := range w.GPUs {
		meters = append(meters, g.Stats(sig))
	}
	return usage.Pool(meters...)
}

// Weight returns the sort keys of a finding: its savings, known or possible, then the waste on its
// resource.
func (f *Finding) Weight() (saved, wasted money.Amount) {
	return f.MonthlySavingsUSD.Or(f.SavingsUpperBoundUSD.Or(0)), f.MonthlyWasteUSD.Or(0)
}

// Largest returns the findings with money in them, the largest first: at most n of
// them, or all with n < 0. Findings that save nothing or that another finding
// already counts come after the others and only where all are asked for.
func (d *Scan) Largest(n int) []*Finding {
	out := make([]*Finding, 0, len(d.Findings))
	for i := range d.Findings {
		f := &d.Findings[i]
		if saved, wasted := f.Weight(); n < 0 || saved > 0 || wasted > 0 ||
			(f.Step > int(finding.StepMeasure) && !f.SavingsUpperBoundUSD.Known()) {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(x, y *Finding) int {
		sx, wx := x.Weight()
		sy, wy := y.Weight()
		return cmp.Or(cmp.Compare(sy, sx), cmp.Compare(wy, wx))
	})
	if n >= 0 && len(out) > n {
		out = out[:n]
	}
	return out
}

// IDLength returns how many characters of an id, at least four, tell the findings
// apart.
func (d *Scan) IDLength() int {
	ids := make([]string, 0, len(d.Findings))
	for _, f := range d.Findings {
		ids = append(ids, f.ID)
	}
	slices.Sort(ids)
	n := 4
	for i := 1; i < len(ids); i++ {
		same := 0
		for same < len(ids[i]) && same < len(ids[i-1]) && ids[i][same] == ids[i-1][same] {
			same++
		}
		n = max(n, same+1)
	}
	return n
}
