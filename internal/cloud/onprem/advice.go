package onprem

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// What to know before a machine's fix: nobody but a person carries it out.
const (
	freed    = "curfew acts on no machine of yours: give it to other work, power it down or hand it back; its rate is charged while it is listed"
	askFirst = "ask its owner first: what is held in memory is lost; "
	retag    = "write the tags under machines in curfew.yaml; its cost can then be attributed"
)

// Advise implements [round.Estate]: findings about machines with GPUs, whose types the
// rules of clouds do not know, are added, and every fix says what a person can do.
func (f *Fleet) Advise(a *round.Audit, p round.Params, found []finding.Finding) ([]finding.Finding, error) {
	out := slices.DeleteFunc(slices.Clone(found), func(x finding.Finding) bool {
		_, own := f.sizes[x.Resource.Ref()]
		return own && x.Rule == "telemetry-missing" // said below in other words
	})
	for i := range out {
		if _, own := f.sizes[out[i].Resource.Ref()]; own && out[i].Fix.Action != "advise" {
			out[i].Fix = advise(out[i].Fix, freed)
			if out[i].Rule == "tag-missing" {
				out[i].Fix.Note = retag
			}
		}
	}
	for _, r := range a.Resources {
		size, own := f.sizes[r.Ref()]
		if !own || size.GPUs == 0 {
			continue
		}
		more, err := f.judge(a, p, r, size)
		if err != nil {
			return nil, fmt.Errorf("judge %s: %w", r.ID, err)
		}
		out = append(out, more...)
	}
	slices.SortStableFunc(out, func(x, y finding.Finding) int {
		return cmp.Or(cmp.Compare(dollars(y), dollars(x)), cmp.Compare(y.Savings.UpperBound, x.Savings.UpperBound), cmp.Compare(y.Cost, x.Cost))
	})
	return out, nil
}

// advise is a fix that only a person carries out.
func advise(f finding.Fix, note string) finding.Fix {
	return finding.Fix{Action: "advise", Command: f.Command, Risk: f.Risk, Undo: finding.UndoFull, Note: note}
}

// dollars is what findings are ranked by.
func dollars(f finding.Finding) money.Amount {
	if f.Savings.Known {
		return max(f.Savings.Amount, f.Waste)
	}
	return f.Waste
}

// judge returns what is found of a machine with GPUs: that nobody measured them, that
// they do nothing, or that some of them never do.
func (f *Fleet) judge(a *round.Audit, p round.Params, r *inventory.Resource, size ledger.Size) ([]finding.Finding, error) {
	defaults := finding.DefaultThresholds()
	coverage := cmp.Or(p.Thresholds.Coverage, defaults.Coverage)
	v, w := a.Verdicts[r.Ref()], a.Windows[r.Ref()]
	if v.State == duty.Unknown && v.Coverage < coverage {
		return []finding.Finding{f.unmeasured(a, r, v)}, nil
	}
	if !long(w, r, p.Query.Now, cmp.Or(p.Thresholds.MinAge, defaults.MinAge)) || v.Coverage < coverage {
		return nil, nil
	}
	switch v.State {
	case duty.Idle, duty.Held:
		if r.KeepUntil.After(p.Query.Now) {
			return nil, nil
		}
		return []finding.Finding{f.resting(a, r, v)}, nil
	case duty.Busy:
		return f.spare(p, r, size, w, coverage)
	}
	return nil, nil
}

// long says whether a machine was there, and looked at, for as long as d.
func long(w *usage.Window, r *inventory.Resource, now time.Time, d time.Duration) bool {
	if r.StateSince.After(now.Add(-d)) {
		return false
	}
	return w != nil && w.To.Sub(w.From)+2*w.Step >= d
}

// about begins a finding of a rule.
func about(rule string, step finding.Step, r *inventory.Resource) finding.Finding {
	id := finding.ID(rule, r.Ref())
	return finding.Finding{ID: id, Rule: rule, Step: step, Resource: r, Confidence: finding.High,
		Fix: finding.Fix{Action: "advise", Command: "curfew fix " + id[:8], Risk: finding.Medium, Undo: finding.UndoFull, Note: freed}}
}

// compute returns the charge of a machine's compute.
func compute(a *round.Audit, r *inventory.Resource) ledger.Charge {
	for _, c := range a.Charges[r.Ref()] {
		if c.Category == ledger.Compute {
			return c
		}
	}
	return ledger.Charge{Unpriced: "it has no meter"}
}

// resting is the finding that every GPU of a machine does nothing.
func (f *Fleet) resting(a *round.Audit, r *inventory.Resource, v duty.Verdict) finding.Finding {
	out := about("gpu-instance-idle", finding.StepIdle, r)
	if v.State == duty.Held {
		out = about("gpu-held", finding.StepIdle, r)
		out.Fix.Note = askFirst + freed
	}
	out.Because, out.Evidence = v.Why, v.Evidence
	c := compute(a, r)
	if c.Unpriced != "" {
		out.Savings.Why = c.Unpriced
		return out
	}
	out.Waste, out.Savings = c.ListCost, finding.Saving{Known: true, Amount: c.ListCost}
	out.Claims = []finding.Claim{{Resource: r.Ref(), Meter: c.Meter, Category: c.Category, Waste: c.ListCost, Savings: c.ListCost}}
	return out
}

// unmeasured is the finding that nobody measured a machine's GPUs.
func (f *Fleet) unmeasured(a *round.Audit, r *inventory.Resource, v duty.Verdict) finding.Finding {
	out := about("telemetry-missing", finding.StepMeasure, r)
	out.Savings.Why = "cannot judge without GPU telemetry"
	out.Because = v.Why + ": cannot judge"
	out.Evidence = append([]usage.Evidence{usage.Fact("type", r.Type, CloudName)}, v.Evidence...)
	out.Fix = finding.Fix{Action: "measure", Command: "curfew scan --cloud onprem --usage gpu.csv", Risk: finding.None, Undo: finding.UndoFull,
		Note: "record with nvidia-smi or DCGM on the machine; CPU and network say nothing about GPUs"}
	if c := compute(a, r); c.Unpriced == "" {
		out.Cost = c.ListCost
	}
	return out
}

// spare is the finding that some GPUs of a busy machine never computed. Nothing smaller
// is proposed in its place: no list has prices of what one could own instead.
func (f *Fleet) spare(p round.Params, r *inventory.Resource, size ledger.Size, w *usage.Window, coverage float64) ([]finding.Finding, error) {
	m := price.Machine{Type: r.Type, Cloud: CloudName, VCPUs: int(size.MilliCPUs / 1000), MemoryMiB: size.MemoryMiB,
		Accelerator: size.GPU, AcceleratorMilli: size.GPUs * 1000}
	if acc, ok := p.Prices.Accelerator(size.GPU); ok {
		m.AcceleratorMemoryMiB = acc.MemoryMiB
	}
	advice, err := rightsize.Advise(w, m, r.Region, p.Prices, rightsize.Options{Purpose: r.Purpose, MinCoverage: coverage})
	if errors.Is(err, rightsize.ErrNoAccelerator) {
		return nil, nil // a GPU that the book does not know
	}
	if err != nil {
		return nil, err
	}
	rest := int64(advice.GPUs - advice.GPUsUsed)
	if advice.Verdict == rightsize.Unknown || advice.GPUsUsed == 0 || rest <= 0 || r.Purpose == inventory.Inference {
		return nil, nil
	}
	out := about("gpu-count-over", finding.StepRightsize, r)
	out.Because = fmt.Sprintf("%d of %d GPUs used: the others could serve other work", advice.GPUsUsed, advice.GPUs)
	out.Evidence = advice.Evidence
	out.Fix.Risk, out.Fix.Note = finding.Low, "curfew acts on no machine of yours: schedule other work on the GPUs that rest"
	out.Savings.Why = "the GPUs that rest are charged until other work takes them"
	if hour, ok := f.rates.GPUHour[size.GPU]; ok {
		most, err := hour.Mul(rest*money.HoursPerMonth, 1)
		if err != nil {
			return nil, err
		}
		out.Savings.UpperBound, out.Savings.Bounded = most, true
	}
	return []finding.Finding{out}, nil
}
