package finding

import (
	"errors"
	"strings"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/usage"
)

// gravitonWork is the work of changing to machines of another architecture.
const gravitonWork = "build images and native libraries for arm64, and check that agents and licenses run there"

// cpuUnderutilized finds machines without accelerators that use only part of their CPUs. An idle
// machine is left to instance-idle, which uses the same verdict.
func cpuUnderutilized(x *Index, s *Subject) *Draft {
	m, known := x.machineOf(s)
	if !known || s.Size.Accelerated() || m.GPUs() > 0 || s.State != inventory.StateRunning || !s.Judged ||
		s.Duty.State != duty.Busy || x.account.Advice != nil || !Spans(s.Window, rightsize.HostSpan) {
		return nil
	}
	a, err := x.offers().SizeCPU(s.Window, m, s.Region, rightsize.Options{MinCoverage: x.Thresholds.Coverage})
	if err != nil {
		x.fail(err)
		return nil
	}
	if a.Why != "" {
		return nil
	}
	now, priced := a.Hourly.Get()
	accept := func(c rightsize.CPUCandidate) bool { return !priced || x.worthwhile(now, c.Hourly) }
	c, ok := a.First(m.Arch, accept)
	var graviton rightsize.CPUCandidate
	portable := false
	if m.Arch != rightsize.ARM {
		graviton, portable = a.First(rightsize.ARM, accept)
	}
	if !ok && !portable {
		return nil
	}
	d := x.resizedCPU(s, &a)
	if !ok {
		return x.onGraviton(d, s, &a, graviton)
	}
	d.Because += ": " + c.Machine.Type + " would do"
	d.Fix.Change = change.Change{Verb: change.ChangeType, Arguments: change.Arguments{Type: c.Machine.Type}}
	d.Fix.Undo, d.Fix.Note = UndoFull, Sentence("it is stopped for the change", d.Fix.Note)
	d.Evidence = append(d.Evidence, Fact(s, "fits", c.Machine.Type),
		usage.Fact("usd_per_hour_after", c.Hourly.String(), c.Price.Source))
	if len(c.Drawbacks) > 0 {
		d.Confidence = Medium
		d.Fix.Note = Sentence(d.Fix.Note, "against it: "+strings.Join(c.Drawbacks, ", "))
	}
	if portable && graviton.Hourly < c.Hourly {
		d.Fix.Note = Sentence(d.Fix.Note, "option: "+graviton.Machine.Type+" (Graviton) costs "+
			graviton.Hourly.Exact()+" an hour in place of "+c.Hourly.Exact()+"; the work: "+gravitonWork)
	}
	losesLocalDisks(&d.Fix, s.Size)
	if !priced {
		d.NoPrice(s, errors.New(a.Unpriced))
		return d
	}
	if x.cover.toSpot[s.at] {
		return x.resizedOnSpot(d, s, c.Machine.Type)
	}
	d.ClaimShare(s, ledger.Compute, int64(now-c.Hourly), int64(now), SavingsOnly)
	return d
}

// resizedCPU describes a machine that is too large for its work.
func (x *Index) resizedCPU(s *Subject, a *rightsize.CPUSizing) *Draft {
	st := s.Window.Machine.Stats(usage.CPUUtil)
	d := &Draft{Finding: Finding{
		Confidence: High,
		Because:    "CPUs " + plain.Percent(a.UtilP95, 0) + " used at p95",
		Evidence: []usage.Evidence{
			Sampled("cpu_util_p95_pct", plain.Decimal(a.UtilP95, 1), s.Window, st),
			Sampled("cpu_util_mean_pct", plain.Decimal(a.UtilMean, 1), s.Window, st),
			Fact(s, "vcpus_needed", plain.Decimal(a.VCPUs, 1)),
		},
	}}
	if a.MemoryKnown {
		mem := s.Window.Machine.Stats(usage.HostMemUsed)
		d.Evidence = append(d.Evidence, Sampled("memory_needed_gib", plain.Decimal(a.MemoryGiB, 1), s.Window, mem))
	} else {
		d.Fix.Note = "memory is unmeasured: the other type has as much"
	}
	if i, ok := s.Detail.(*inventory.Instance); ok && i.Market == inventory.Spot {
		d.Unknown = "it runs at the spot price; the other type's is not compared"
	}
	if group := groupOf(s); group != "" {
		d.Fix.Note = Sentence(d.Fix.Note, "changed through the launch template of Auto Scaling group "+group)
	}
	var note string
	d.Fix.Risk, note = Risk(s.Resource, Medium)
	d.Fix.Note = Sentence(note, d.Fix.Note)
	return d
}

// onGraviton returns the finding for the case that only a machine of another architecture fits and
// costs less: advice with an upper bound, because the work may not run there.
func (x *Index) onGraviton(d *Draft, s *Subject, a *rightsize.CPUSizing, c rightsize.CPUCandidate) *Draft {
	d.Confidence = Low
	d.Because += ": " + c.Machine.Type + " (Graviton) would do"
	d.Evidence = append(d.Evidence, Fact(s, "fits_on_arm64", c.Machine.Type),
		usage.Fact("usd_per_hour_after", c.Hourly.String(), c.Price.Source))
	d.Fix.Change, d.Fix.Undo = change.Change{Verb: change.Advise}, UndoFull
	d.Fix.Note = Sentence(d.Fix.Note, "the work: "+gravitonWork)
	now, priced := a.Hourly.Get()
	if !priced {
		d.NoPrice(s, errors.New(a.Unpriced))
		return d
	}
	d.Unknown = "whether its work runs on arm64 is not known"
	d.ClaimShare(s, ledger.Compute, int64(now-c.Hourly), int64(now), SavingsOnly)
	return d
}
