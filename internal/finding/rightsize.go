package finding

import (
	"errors"
	"math"
	"strings"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// sizing caches right-sizing's advice on one machine for several rules.
type sizing struct {
	of     *Subject
	advice rightsize.Sizing
	ok     bool
}

// size returns the advice on a running, busy machine whose GPUs were measured.
func (x *Index) size(s *Subject) (*rightsize.Sizing, bool) {
	if x.lastSizing.of == s {
		return &x.lastSizing.advice, x.lastSizing.ok
	}
	x.lastSizing = sizing{of: s}
	m, known := x.machineOf(s)
	if !known || m.GPUs() == 0 || s.State != inventory.StateRunning || !s.Judged || s.Duty.State != duty.Busy ||
		!Spans(s.Window, x.Thresholds.MinAge) || !roomy(s.Window, float64(m.AcceleratorMemoryMiB)*(1<<20)) {
		return nil, false
	}
	if age, known := x.Age(s); known && age < x.Thresholds.MinAge {
		return nil, false
	}
	a, err := x.offers().Size(s.Window, m, s.Region, rightsize.Options{
		Purpose: s.Purpose, MinCoverage: x.Thresholds.Coverage,
	})
	switch {
	case errors.Is(err, rightsize.ErrNoAccelerator):
	case err != nil:
		x.fail(err)
	default:
		x.lastSizing.advice, x.lastSizing.ok = a, a.Verdict != rightsize.Unknown && a.GPUsUsed > 0
	}
	return &x.lastSizing.advice, x.lastSizing.ok
}

// offers returns the machines for sale with their prices, shared by all judgments of a region.
func (x *Index) offers() *rightsize.Offers {
	if x.saleOffers == nil {
		x.saleOffers = rightsize.NewOffers(x.account.Prices)
	}
	return x.saleOffers
}

// roomy reports whether any rule could find a machine too large: a GPU that is not well used, or
// memory that was never half in use. It avoids a search for alternatives.
func roomy(w *usage.Window, device float64) bool {
	peak, measured := 0.0, false
	for _, t := range w.GPUTracks() {
		st := t.Stats(usage.GPUUtil)
		if mean, err := st.Mean(); err != nil || mean < wellUsed {
			return true
		}
		if mem := t.Stats(usage.MemUsed); mem != nil {
			peak, measured = max(peak, mem.Max), true
		}
	}
	return measured && peak <= memoryOver*device
}

// idlesInPart reports whether mean utilization is below that of well-used machines.
func idlesInPart(a *rightsize.Sizing) bool {
	return a.Verdict == rightsize.Overprovisioned || a.Verdict == rightsize.Underutilized
}

// gpuCountOver finds machines with GPUs that never computed, if a machine with fewer GPUs suffices.
func gpuCountOver(x *Index, s *Subject) *Draft {
	a, ok := x.size(s)
	if !ok || s.Purpose == inventory.Inference || a.GPUsUsed >= a.GPUs {
		return nil
	}
	if x.account.Advice != nil {
		return x.spare(s, a)
	}
	return x.resize(s, a, plain.Count(a.GPUsUsed, "GPU")+" of "+plain.Number(float64(a.GPUs), 0)+" used",
		func(c rightsize.Candidate) bool { return c.GPUs < a.GPUs })
}

// spare returns the finding that some GPUs of a machine never computed, if no smaller machine is
// for sale.
func (x *Index) spare(s *Subject, a *rightsize.Sizing) *Draft {
	rest := int64(a.GPUs - a.GPUsUsed)
	d := &Draft{Finding: Finding{
		Confidence: High,
		Because: plain.Number(float64(a.GPUsUsed), 0) + " of " + plain.Number(float64(a.GPUs), 0) +
			" GPUs used: the others could serve other work",
		Evidence: a.Evidence,
		Fix: Fix{
			Change: change.Change{Verb: change.Advise}, Risk: Low, Undo: UndoFull, Note: x.account.Advice.Spare,
		},
	}, Unknown: "the GPUs that rest are charged until other work takes them"}
	if p, err := x.account.Prices.Price(s.Cloud, price.GPUs, s.Size.GPU, s.Region, price.OnDemand); err == nil {
		d.Bound = x.amount(p.Cost(rest*money.HoursPerMonth, 1))
	}
	return d
}

// gpuUnderutilized finds machines whose GPUs are busy only part of the time, if a cheaper type
// suffices.
func gpuUnderutilized(x *Index, s *Subject) *Draft {
	a, ok := x.size(s)
	if !ok || s.Purpose == inventory.Inference || a.GPUsUsed < a.GPUs || !idlesInPart(a) {
		return nil
	}
	return x.resize(s, a, "GPUs "+plain.Number(a.UtilMean, 0)+"% used", nil)
}

// memoryOver is the share of device memory below which an accelerator is too large: with the usual
// headroom of a fifth, half of its memory suffices.
const memoryOver = 0.4

// gpuMemoryOver finds well-used machines whose accelerators have far more memory than was ever in
// use, if an equivalent with less memory is cheaper.
func gpuMemoryOver(x *Index, s *Subject) *Draft {
	a, ok := x.size(s)
	if !ok || s.Purpose == inventory.Inference || a.GPUsUsed < a.GPUs || idlesInPart(a) || !a.MemoryKnown {
		return nil
	}
	m, _ := x.machineOf(s)
	device := float64(m.AcceleratorMemoryMiB) / 1024
	if a.MemoryPeakGiB > memoryOver*device {
		return nil
	}
	return x.resize(s, a, "at most "+plain.Number(a.MemoryPeakGiB, 1)+" of "+plain.Number(device,
		0)+" GiB of GPU memory used",
		func(c rightsize.Candidate) bool {
			return c.Machine.AcceleratorMemoryMiB < m.AcceleratorMemoryMiB && c.GPUs >= a.GPUs
		})
}

// inferenceInstance finds inference machines below the target utilization: fewer machines of a
// fleet, or a cheaper type, suffice.
func inferenceInstance(x *Index, s *Subject) *Draft {
	if f := x.fleetOf(s); f != nil {
		if d := inferenceFleet(x, f); d != nil {
			if f.representative() == s {
				return d
			}
			return nil // reported for the fleet
		}
	}
	a, ok := x.size(s)
	if !ok || s.Purpose != inventory.Inference || !idlesInPart(a) {
		return nil
	}
	return x.resize(s, a, "inference at "+plain.Number(a.UtilMean, 0)+"% GPU, target "+
		plain.Number(x.Thresholds.InferenceTarget, 0)+"%", nil)
}

// alike reports whether work for one accelerator runs on another: every NVIDIA GPU runs CUDA, while
// the clouds' chips are made for either training or inference.
func alike(a, b price.Accelerator) bool {
	line := func(a price.Accelerator) string {
		name, _, _ := strings.Cut(a.Name, "-")
		return strings.TrimRight(name, "0123456789")
	}
	return a.Vendor == b.Vendor && (strings.EqualFold(a.Vendor, "NVIDIA") || line(a) == line(b))
}

// worthwhile reports whether a lower price justifies the change.
func (x *Index) worthwhile(now, then money.Amount) bool {
	return float64(then) <= (1-x.Thresholds.RightsizeSaving)*float64(now)
}

// resize returns the finding that the cheapest fitting machine costs less.
func (x *Index) resize(s *Subject, a *rightsize.Sizing, because string, fits func(rightsize.Candidate) bool) *Draft {
	if x.account.Advice != nil {
		return nil // an on-premises machine has no other size to buy
	}
	now, priced := a.Hourly.Get()
	c, ok := a.First(func(c rightsize.Candidate) bool {
		return alike(c.Accelerator, a.Accelerator) && (fits == nil || fits(c)) &&
			(!priced || x.worthwhile(now, c.Hourly))
	})
	if !ok {
		return nil
	}
	d := x.resized(s, a, c, because)
	d.Evidence = append(d.Evidence, usage.Fact("usd_per_hour_after", c.Hourly.String(), c.Price.Source))
	if !priced {
		d.NoPrice(s, errors.New(a.Unpriced))
		return d
	}
	if i, ok := s.Detail.(*inventory.Instance); ok {
		if i.Market == inventory.Spot {
			d.Unknown = "it runs at the spot price; the other type's is not compared"
		}
		if group := groupOf(s); group != "" {
			d.Fix.Note = Sentence(d.Fix.Note, "changed through the launch template of Auto Scaling group "+group)
		}
	}
	if x.cover.toSpot[s.at] {
		return x.resizedOnSpot(d, s, c.Machine.Type)
	}
	d.ClaimShare(s, ledger.Compute, int64(now-c.Hourly), int64(now), SavingsOnly)
	return d
}

// resizedOnSpot claims the saving of another type for a machine that another finding moves to spot:
// the difference of the spot prices. Restarts take the same share of time on both types.
func (x *Index) resizedOnSpot(d *Draft, s *Subject, to string) *Draft {
	spot := func(machine string) (money.Amount, error) {
		return x.hourly(func(b *price.Book) (price.Price, error) { return b.Spot(machine, s.Region) })
	}
	now, err := spot(s.Type)
	if err != nil {
		x.fail(err) // the price is in the finding that moves it
		return d
	}
	then, err := spot(to)
	switch {
	case errors.Is(err, price.ErrUnpriced):
		d.Unknown = "it moves to spot first, and the spot price of " + to + " is not known"
		d.ClaimShare(s, ledger.Compute, 1, 1, SavingsOnly)
		return d
	case err != nil:
		x.fail(err)
		return d
	}
	d.Evidence = append(d.Evidence, Priced("spot_usd_per_hour", now, "price book"),
		Priced("spot_usd_per_hour_after", then, "price book"))
	if then >= now {
		d.Stands, d.Savings = true, Saving{Known: true}
		d.Fix.Note = Sentence("saves nothing on top of spot: "+to+" costs "+then.Exact()+" an hour there", d.Fix.Note)
		return d
	}
	d.ClaimShare(s, ledger.Compute, int64(now-then), int64(now), SavingsOnly)
	return d
}

// resized describes a candidate.
func (x *Index) resized(s *Subject, a *rightsize.Sizing, c rightsize.Candidate, because string) *Draft {
	d := &Draft{Finding: Finding{
		Confidence: High,
		Because:    because + ": " + c.Machine.Type + " would do",
		Evidence:   append([]usage.Evidence{}, a.Evidence...),
		Fix: Fix{
			Change: change.Change{
				Verb: change.ChangeType, Arguments: change.Arguments{Type: c.Machine.Type},
			}, Undo: UndoFull,
			Note: "it is stopped for the change; try it on one run first",
		},
	}}
	d.Evidence = append(d.Evidence, Fact(s, "fits", c.Machine.Type))
	if len(c.Against) > 0 {
		d.Confidence = Medium
		d.Fix.Note = Sentence(d.Fix.Note, "against it: "+strings.Join(c.Against, ", "))
	}
	if a.Basis == usage.GPUUtil || len(a.Warnings) > 0 {
		d.Confidence = Medium
	}
	if len(a.Warnings) > 0 {
		d.Fix.Note = Sentence(d.Fix.Note, strings.Join(a.Warnings, ", "))
	}
	if s.Kind == inventory.KindInstance {
		losesLocalDisks(&d.Fix, s.Size)
	}
	var note string
	d.Fix.Risk, note = Risk(s.Resource, Medium)
	d.Fix.Note = Sentence(note, d.Fix.Note)
	return d
}

// inferenceEndpoint finds endpoints far below their target utilization: fewer replicas or a cheaper
// type suffice.
func inferenceEndpoint(x *Index, s *Subject) *Draft {
	e, ok := s.Detail.(*inventory.Endpoint)
	if !ok || s.State != inventory.StateRunning || len(e.Variants) != 1 || e.Variants[0].Serverless ||
		e.Variants[0].Count < 1 ||
		!Spans(s.Window, 7*day) {
		return nil
	}
	v := e.Variants[0]
	n, known := s.Size.GPUs.Get()
	if !known {
		return nil
	}
	sig, st := x.loadOf(s.Window, n)
	if st == nil {
		return nil
	}
	load, err := st.Quantile(sig, 0.95)
	if err != nil || load == 0 {
		return nil
	}
	least := int64(1)
	if s.Owner.InProduction() && v.Count > 1 {
		least = 2 // for redundancy
	}
	if needed := max(least, int64(math.Ceil(float64(v.Count)*load/x.Thresholds.InferenceTarget))); needed < v.Count {
		return x.fewerReplicas(s, v, needed, load, st)
	}
	if v.Count == 1 && load < x.Thresholds.InferenceTarget {
		return x.smallerEndpoint(s, v)
	}
	return nil
}

// loadOf returns the signal of an endpoint's load: GPU utilization of machines with GPUs, CPU
// utilization of others.
func (x *Index) loadOf(w *usage.Window, gpus int) (usage.Signal, *usage.Stats) {
	if gpus == 0 {
		if st := w.Machine.Stats(usage.CPUUtil); x.Covered(w, st) && w.Fresh(st, x.Now) {
			return usage.CPUUtil, st
		}
		return 0, nil
	}
	tracks := w.GPUTracks()
	if len(tracks) != 1 {
		return 0, nil
	}
	if st := tracks[0].Stats(usage.GPUUtil); x.Covered(w, st) && w.Fresh(st, x.Now) {
		return usage.GPUUtil, st
	}
	return 0, nil
}

func (x *Index) fewerReplicas(s *Subject, v inventory.Variant, needed int64, load float64, st *usage.Stats) *Draft {
	d := &Draft{Finding: Finding{
		Confidence: Medium,
		Because: "p95 load " + plain.Percent(load, 0) + ": " + plain.Number(float64(needed), 0) + " of " +
			plain.Count(v.Count, "replica") + " would do",
		Evidence: []usage.Evidence{
			Sampled("load_p95_pct", plain.Decimal(load, 1), s.Window, st),
			Fact(s, "replicas", plain.Decimal(float64(v.Count), 0)),
			usage.Fact("replicas_at_target", plain.Decimal(float64(needed), 0), "threshold")},
		Fix: Fix{
			Change: change.Change{Verb: change.Scale, Arguments: change.Arguments{Count: new(needed), Part: v.Name}},
			Undo:   UndoFull, Note: "let it scale by its load; latency rises as utilization does",
		},
	}}
	d.Fix.Policy = x.followEndpoint(s, v, st)
	var note string
	d.Fix.Risk, note = Risk(s.Resource, Medium)
	d.Fix.Note = Sentence(note, d.Fix.Note)
	d.ClaimShare(s, ledger.Compute, v.Count-needed, v.Count, SavingsOnly)
	return d
}

// smallerEndpoint compares the managed service's prices of fitting machines.
func (x *Index) smallerEndpoint(s *Subject, v inventory.Variant) *Draft {
	m, known := x.machine(v.Type)
	if !known || m.GPUs() == 0 || x.account.Prices == nil {
		return nil
	}
	a, err := x.offers().Size(s.Window, m, s.Region, rightsize.Options{
		Purpose: inventory.Inference, MinCoverage: x.Thresholds.Coverage,
	})
	if err != nil || a.Verdict == rightsize.Unknown || !idlesInPart(&a) {
		if err != nil && !errors.Is(err, rightsize.ErrNoAccelerator) {
			x.fail(err)
		}
		return nil
	}
	managed := func(t string) (money.Amount, error) {
		return x.hourly(func(b *price.Book) (price.Price, error) { return b.Managed("sagemaker", t, s.Region) })
	}
	now, err := managed(v.Type)
	if err != nil {
		return nil
	}
	var then money.Amount
	c, ok := a.First(func(c rightsize.Candidate) bool {
		p, err := managed(c.Machine.Type)
		if err != nil || !alike(c.Accelerator, a.Accelerator) || !x.worthwhile(now, p) {
			return false
		}
		then = p
		return true
	})
	if !ok {
		return x.tooManyGPUs(s, m, &a, now, managed)
	}
	d := x.resized(s, &a, c, "inference at "+plain.Number(a.UtilMean, 0)+"% GPU")
	d.Fix.Note = Sentence(d.Fix.Note, "put a new configuration in place, then switch")
	d.Evidence = append(d.Evidence, Priced("usd_per_hour", now, "price book"),
		Priced("usd_per_hour_after", then, "price book"))
	d.ClaimShare(s, ledger.Compute, int64(now-then), int64(now), SavingsOnly)
	return d
}

// tooManyGPUs returns the finding that an endpoint on a machine with several GPUs is far below its
// target, if no cheaper machine surely fits because the model's memory is unmeasured: the saving is
// at most the price difference to the smallest machine with the same accelerator.
func (x *Index) tooManyGPUs(s *Subject, m price.Machine, a *rightsize.Sizing, now money.Amount,
	managed func(string) (money.Amount, error)) *Draft {
	if a.Verdict != rightsize.Overprovisioned || a.MemoryKnown || m.GPUs() < 2 {
		return nil
	}
	least, name := now, ""
	for _, c := range x.devices() {
		if c.Accelerator != m.Accelerator || c.GPUs() >= m.GPUs() {
			continue
		}
		if p, err := managed(c.Type); err == nil && p < least {
			least, name = p, c.Type
		}
	}
	if name == "" {
		return nil
	}
	d := &Draft{Finding: Finding{
		Confidence: Medium,
		Because: "inference at " + plain.Percent(a.UtilMean, 0) + " of " + plain.Count(int64(m.GPUs()), "GPU") +
			": fewer would do",
		Evidence: append(append([]usage.Evidence{}, a.Evidence...), Fact(s, "smallest", name)),
		Fix: Fix{
			Change: change.Change{Verb: change.ChangeType, Arguments: change.Arguments{Type: name}}, Undo: UndoFull,
			Note: "measure how much GPU memory its model takes, then put a new configuration in place"},
	}, Unknown: "whether its model fits on fewer GPUs is not measured"}
	var note string
	d.Fix.Risk, note = Risk(s.Resource, Medium)
	d.Fix.Note = Sentence(note, d.Fix.Note)
	d.ClaimShare(s, ledger.Compute, int64(now-least), int64(now), SavingsOnly)
	return d
}
