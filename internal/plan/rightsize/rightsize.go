// Package rightsize judges by measured usage whether a machine's accelerators fit its work, and
// which smaller ones would, with their price and the reasons against each. It is a pure function of
// the usage, the machine and the price book.
package rightsize

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// ErrNoAccelerator is returned for a machine without accelerators, or with ones
// that the price book does not know.
var ErrNoAccelerator = errors.New("no known accelerator")

// Verdict is how well the accelerators fit the work. The zero Verdict is unknown.
type Verdict string

// The verdicts. The lines between them are those users expect: a mean utilization
// under 25% is overprovisioned, under 60% underutilized, from there on well used;
// inference aims at 60 to 80% and scales out above 85%.
const (
	Unknown         Verdict = ""
	Overprovisioned Verdict = "overprovisioned"
	Underutilized   Verdict = "underutilised"
	WellUsed        Verdict = "well-used"
	ScaleOut        Verdict = "scale-out"
)

// String returns the verdict's name; "unknown" for the zero Verdict.
func (v Verdict) String() string {
	if v == Unknown {
		return "unknown"
	}
	return string(v)
}

// Lines between the verdicts, in percent of mean utilization.
const (
	OverprovisionedBelow = 25
	UnderutilizedBelow   = 60
	ScaleOutAbove        = 85
)

// Options are the assumptions. A field that is zero means its default.
type Options struct {
	// Purpose sets the target: inference keeps room for peaks.
	Purpose inventory.Purpose
	// Headroom is kept free above what was measured, of device memory, host memory
	// and vCPUs, as a share of it. 0.2.
	Headroom float64
	// MinCoverage is the share of the window that samples must cover on every GPU
	// before anything is advised. 0.9.
	MinCoverage float64
	// Tensor lets tensor activity stand for compute where multiprocessor activity was
	// not measured.
	Tensor bool
	// Needs are the features that the work is known to use, and NeedsKnown that it uses no others. A
	// machine without one of them does not fit. Unless they are known, the work may use what its
	// accelerator has: a machine without bfloat16 or NVLink is listed after all others.
	Needs      []Feature
	NeedsKnown bool
	// Clouds looks at the machines of other clouds too, at their lowest price in any
	// region.
	Clouds bool
}

// Advice is the right-sizing result for measured usage.
type Advice struct {
	Verdict Verdict
	// Why is the reason in a few words.
	Why string
	// Samples counts utilization samples over all GPUs; Coverage is the least share
	// of the window, 0 to 1, that they cover on any.
	Samples  int
	Coverage float64
	// GPUs is how many the machine has, GPUsUsed how many of them computed at any time in the
	// window.
	GPUs, GPUsUsed int
	// UtilMean, UtilP50, UtilP95 and UtilMax are GPU utilization in percent over all GPUs and
	// samples. They are 0 if Samples is 0.
	UtilMean, UtilP50, UtilP95, UtilMax float64
	// MemoryKnown reports whether device memory was measured over the window. The
	// figures are of the GPU that used most.
	MemoryKnown                 bool
	MemoryPeakGiB, MemoryP95GiB float64
	// Accelerator is the accelerator of the machine.
	Accelerator price.Accelerator
	// ComputeTFLOPS is the demand of the busiest GPU at the 95th percentile, dense at 16 bits, and
	// Basis its signal: sm_active, tensor_active where the options let it, or gpu_util, which
	// overstates it.
	ComputeTFLOPS float64
	Basis         usage.Signal
	// Hourly is the machine's own price; unknown when the book has none, with the
	// reason in Unpriced.
	Hourly   inventory.Fact[money.Amount]
	Unpriced string
	// Candidates are the machines that fit and, where the own price is known, cost
	// less: cheapest first, and last those that lack a feature that the work may use.
	Candidates []Candidate
	// Warnings name the unmeasured assumptions of the advice.
	Warnings []string
	Evidence []usage.Evidence
}

// Candidate is a machine type that fits the measured work.
type Candidate struct {
	Machine     price.Machine
	Accelerator price.Accelerator
	// GPUs is how many it has.
	GPUs int
	// Region is where it has its price.
	Region string
	// Price is of an hour on demand, with source and date; Hourly is its amount.
	Price  price.Price
	Hourly money.Amount
	// Saving is the saving in a month of 730 hours at list price; unknown when the machine's own
	// price is.
	Saving inventory.Fact[money.Amount]
	// MemoryShare is the share of its device memory that the measured peak would fill; 0 if memory
	// was not measured.
	MemoryShare float64
	// ComputeShare is the share of its throughput, 0 and up, that the measured 95th
	// percentile would take.
	ComputeShare float64
	// Lacks are the features that the work may use and that it does not have: it is no advice before
	// that is known.
	Lacks []Feature
	// Against are reasons against it.
	Against []string
}

// Sizing is the advice on one machine whose candidates are searched when they are asked for;
// those of its Advice are nil.
type Sizing struct {
	Advice
	m       *measured
	options Options
	offers  []offer
}

// First returns the cheapest candidate that lacks nothing and for which fits is true; nil takes any.
func (s *Sizing) First(fits func(Candidate) bool) (Candidate, bool) {
	for c := range s.candidates {
		if len(c.Lacks) == 0 && (fits == nil || fits(c)) {
			return c, true
		}
	}
	return Candidate{}, false
}

// Advise judges the usage of a machine of type from in a region and looks for the
// machines of the same cloud that fit it: the same vendor and host architecture,
// device memory for the measured peak and headroom, throughput at 16 bits for the
// measured 95th percentile, and host memory and vCPUs for what was measured, or
// where they are unmeasured as much for each GPU in use as now.
//
// Where samples cover too little, or GPUs are missing among them, the verdict is
// unknown and there are no candidates. It returns ErrNoAccelerator for a machine
// whose accelerators the book does not know.
func Advise(w *usage.Window, from price.Machine, region string, book *price.Book, o Options) (Advice, error) {
	a, _, err := NewOffers(book).advise(w, from, region, o)
	return a, err
}

// advise is [Advise] with what was measured, which is nil if nothing was.
func (f *Offers) advise(w *usage.Window, from price.Machine, region string, o Options) (Advice, *measured, error) {
	s, err := f.Size(w, from, region, o)
	if err != nil {
		return Advice{}, nil, err
	}
	s.Candidates = slices.Collect(s.candidates)
	slices.SortStableFunc(s.Candidates, func(x, y Candidate) int {
		return cmp.Compare(min(len(x.Lacks), 1), min(len(y.Lacks), 1))
	})
	return s.Advice, s.m, nil
}

// Size is [Advise] for callers that need the first of the candidates alone.
func (f *Offers) Size(w *usage.Window, from price.Machine, region string, o Options) (Sizing, error) {
	if o.Headroom <= 0 {
		o.Headroom = defaultHeadroom
	}
	if o.MinCoverage <= 0 {
		o.MinCoverage = defaultCoverage
	}
	acc, ok := f.book.Accelerator(from.Accelerator)
	if from.GPUs() == 0 || !ok {
		return Sizing{}, fmt.Errorf("right-size %s: %w", from.Type, ErrNoAccelerator)
	}
	s := Sizing{Advice: Advice{GPUs: from.GPUs(), Accelerator: acc}, options: o}
	if p, err := f.book.OnDemand(from.Type, region); err == nil {
		hourly, err := p.Hourly()
		if err == nil {
			_, err = hourly.Monthly() // the bound of every saving
		}
		if err != nil {
			return Sizing{}, fmt.Errorf("right-size %s: %w", from.Type, err)
		}
		s.Hourly = inventory.Known(hourly)
	} else if errors.Is(err, price.ErrUnpriced) {
		s.Unpriced = err.Error()
	} else {
		return Sizing{}, fmt.Errorf("right-size %s: %w", from.Type, err)
	}
	if w == nil {
		s.Why = "nothing was measured"
		return s, nil
	}
	s.m = measure(w, from, acc, o)
	s.m.report(&s.Advice)
	s.Verdict, s.Why = s.m.verdict(o.Purpose)
	if s.Verdict == Unknown || s.m.used == 0 {
		return s, nil
	}
	var err error
	k := offerKey{cloud: from.Cloud, arch: from.Arch, region: region, clouds: o.Clouds}
	if s.offers, err = f.list(k); err != nil {
		return Sizing{}, fmt.Errorf("right-size %s: %w", from.Type, err)
	}
	return s, nil
}

// The defaults of [Options].
const (
	defaultHeadroom = 0.2
	defaultCoverage = 0.9
)
