package estimate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Basis is the source of a duration.
type Basis string

// The bases.
const (
	Learned  Basis = "learned"  // from past runs of the same name
	Declared Basis = "declared" // by the specification's duration
	Capped   Basis = "capped"   // by the bound that ends it
)

// Duration is an expected wall-clock runtime including lost work and restarts, as "12h".
type Duration struct {
	P50   string `json:"p50"`
	P95   string `json:"p95"`
	Basis Basis  `json:"basis"`
	// Runs is the number of past runs that it was learned from.
	Runs int `json:"runs"`
	// Cap is the longest possible runtime and CapBy the key that sets it; empty without a limit.
	Cap   string `json:"cap,omitempty"`
	CapBy string `json:"cap_by,omitempty"`
	// RestartsP50 and RestartsP95 count spot interruptions.
	RestartsP50 int `json:"restarts_p50"`
	RestartsP95 int `json:"restarts_p95"`

	p50, p95, limit time.Duration
}

const (
	// halfLife is the age at which a past run has half its weight.
	halfLife = 90 * 24 * time.Hour
	// manyRuns is the number of past runs that support a 95% quantile: with one in twenty, one run
	// is beyond it. With fewer, the runtime limit is used.
	manyRuns = 20
	// sameRuns is the number of past runs on the same machines that suffices to ignore other runs.
	sameRuns = 5
	// noLimit is longer than any run without a limit takes.
	noLimit = 10 * 365 * 24 * time.Hour
)

// work is a duration without lost work and restarts.
type work struct {
	p50, p95 time.Duration
	basis    Basis
	runs     int
	// sameMachines reports that the runs used the same machines, tooFewRuns that they do not
	// support a quantile, exceedsCap that the work is expected to outlast its cap.
	sameMachines, tooFewRuns, exceedsCap bool
}

// work returns the duration of the work on a number of machines of a type.
func (c *chooser) work(machine string, count int) (work, error) {
	limit, _ := c.spec.Cap()
	end := limit // the limit that ends it
	if end == 0 && c.spec.MaxCost > 0 {
		end = noLimit // or all that max_cost pays for
	}
	w := work{basis: Capped}
	runs := c.completed(machine, count, &w)
	switch {
	case len(runs) > 0:
		w.basis, w.runs, w.tooFewRuns = Learned, len(runs), len(runs) < manyRuns
		w.p50, w.p95 = c.quantile(runs, 0.5), c.quantile(runs, 0.95)
		if w.tooFewRuns {
			w.p95 = max(w.p95, end)
		}
	case c.spec.Duration > 0:
		w.basis, w.p50, w.p95 = Declared, c.spec.Duration, max(c.spec.Duration, end)
	case end > 0:
		w.p50, w.p95 = end, end
	default:
		return w, fmt.Errorf(
			"estimate %s: nothing says how long it runs: add max_runtime, or duration for how long the work takes",
			c.spec.Name)
	}
	w.exceedsCap = limit > 0 && w.p50 > limit
	return w, nil
}

// completed returns the runs to learn from: those on the same machines if there are enough, else
// all.
func (c *chooser) completed(machine string, count int, w *work) []Run {
	same := slices.DeleteFunc(slices.Clone(c.runs), func(r Run) bool {
		return r.Machine != machine || r.Machines != count
	})
	if w.sameMachines = len(same) >= sameRuns; w.sameMachines {
		return same
	}
	return c.runs
}

// pastRuns returns the completed runs of a name that ended before now, shortest first.
func pastRuns(s *spec.Spec, p Params) []Run {
	var runs []Run
	for _, r := range p.History {
		if r.Name == s.Name && r.Completed && r.Work > 0 && !r.Finished.After(p.Now) {
			runs = append(runs, r)
		}
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return cmp.Compare(a.Work, b.Work) })
	return runs
}

// quantile returns a quantile of the runs' work, weighted by age.
func (c *chooser) quantile(runs []Run, share float64) time.Duration {
	weights, total := make([]float64, len(runs)), 0.0
	for i, r := range runs {
		weights[i] = math.Exp2(-float64(c.params.Now.Sub(r.Finished)) / float64(halfLife))
		total += weights[i]
	}
	sum := 0.0
	for i, r := range runs {
		if sum += weights[i]; sum >= share*total {
			return r.Work
		}
	}
	return runs[len(runs)-1].Work
}

// durationText formats a duration to the second: "1d12h", "30m", "0s".
func durationText(d time.Duration) string { return plain.ExactDuration(d.Round(time.Second)) }
