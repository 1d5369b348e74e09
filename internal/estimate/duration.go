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

// Basis is where a duration comes from.
type Basis string

// The bases.
const (
	Learned  Basis = "learned"  // from past runs of the same name
	Declared Basis = "declared" // by the specification's duration
	Capped   Basis = "capped"   // by the bound that ends it
)

// Duration is how long something runs. Times are of the wall clock, lost work and
// restarts included, as "12h".
type Duration struct {
	P50   string `json:"p50"`
	P95   string `json:"p95"`
	Basis Basis  `json:"basis"`
	// Runs is how many past runs it was learned from.
	Runs int `json:"runs"`
	// Cap is the longest that it can run and CapBy the key that says so; empty where
	// nothing ends it.
	Cap   string `json:"cap,omitempty"`
	CapBy string `json:"cap_by,omitempty"`
	// RestartsP50 and RestartsP95 are interruptions of spot machines.
	RestartsP50 int `json:"restarts_p50"`
	RestartsP95 int `json:"restarts_p95"`

	p50, p95, limit time.Duration
}

const (
	// halfLife is the age at which a past run counts half.
	halfLife = 90 * 24 * time.Hour
	// manyRuns is how many past runs carry a 95% quantile of their own: from one in
	// twenty there is one beyond it. With fewer it is the bound that ends the run.
	manyRuns = 20
	// sameRuns is how many past runs on the same machines replace those on all.
	sameRuns = 5
	// forever is longer than anything runs that nothing ends in time.
	forever = 10 * 365 * 24 * time.Hour
)

// work is how long it takes without lost work and restarts.
type work struct {
	p50, p95 time.Duration
	basis    Basis
	runs     int
	// same says that the runs were on the same machines, thin that they are too few
	// for a quantile, beyond that the work is expected to outlast its cap.
	same, thin, beyond bool
}

// work says how long the work takes on a number of machines of a type.
func (c *chooser) work(machine string, count int) (work, error) {
	limit, _ := c.spec.Cap()
	end := limit // what ends it
	if end == 0 && c.spec.MaxCost > 0 {
		end = forever // or all that max_cost pays for
	}
	w := work{basis: Capped}
	runs := c.completed(machine, count, &w)
	switch {
	case len(runs) > 0:
		w.basis, w.runs, w.thin = Learned, len(runs), len(runs) < manyRuns
		w.p50, w.p95 = c.quantile(runs, 0.5), c.quantile(runs, 0.95)
		if w.thin {
			w.p95 = max(w.p95, end)
		}
	case c.spec.Duration > 0:
		w.basis, w.p50, w.p95 = Declared, c.spec.Duration, max(c.spec.Duration, end)
	case end > 0:
		w.p50, w.p95 = end, end
	default:
		return w, fmt.Errorf(
			"estimate %s: nothing says how long it runs: add max_runtime, or duration for how long the work takes", c.spec.Name)
	}
	w.beyond = limit > 0 && w.p50 > limit
	return w, nil
}

// completed are the runs to learn from: those on the same machines where they are
// enough, or else all.
func (c *chooser) completed(machine string, count int, w *work) []Run {
	same := slices.DeleteFunc(slices.Clone(c.runs), func(r Run) bool {
		return r.Machine != machine || r.Machines != count
	})
	if w.same = len(same) >= sameRuns; w.same {
		return same
	}
	return c.runs
}

// pastRuns are the completed runs of a name that ended by now, the shortest first.
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

// quantile is the shortest work that a share of the runs, weighted by their age, did not
// outlast.
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

// durationText writes a duration to the second: "1d12h", "30m", "0s".
func durationText(d time.Duration) string { return plain.ExactDuration(d.Round(time.Second)) }
