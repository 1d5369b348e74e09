package finding

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/mig"
	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	// servingWindow is the minimum observed time before removing machines: load follows the days of
	// the week.
	servingWindow = 7 * day
	// saturated is the load, in percent, above which serving has no headroom and latency rises
	// steeply.
	saturated = 100 * capacity.CrowdedAbove
	// servingHeadroom is the share of memory kept free when work is consolidated.
	servingHeadroom = 0.2
)

// fleetKey identifies machines of one fleet.
type fleetKey struct {
	cloud, account, region, machine, market string
	owner                                   inventory.Owner
}

// servers is a fleet: serving machines of one owner, purpose and type.
type servers struct {
	// members are the busy machines, least loaded first; idle ones have their own findings.
	members []*member
	gpus    int // of each machine
	// load is the sum of the GPUs' p95 in percent of one GPU, coverage the minimum coverage of any.
	load, coverage float64
	// device is the memory of a GPU, peak the maximum in use on one GPU, both in bytes; peaks is
	// the sum over GPUs. They are valid only if memory is set.
	device, peak, peaks float64
	memory              bool
	// least is the minimum number of machines regardless of load.
	least int
}

// member is a machine of a fleet.
type member struct {
	*Subject
	load float64
}

// fleetOf returns the fleet of a serving machine; nil if it does not serve, or if a member was not
// measured.
func (x *Index) fleetOf(s *Subject) *servers {
	if x.fleets == nil {
		x.fleets = map[fleetKey]*servers{}
		for i := range x.subjects {
			x.enlist(&x.subjects[i])
		}
	}
	k, ok := servingKey(s)
	if !ok {
		return nil
	}
	f := x.fleets[k]
	if f == nil || f.gpus == 0 || len(f.members) == 0 {
		return nil
	}
	return f
}

// servingKey returns the fleet of a machine, if it serves.
func servingKey(s *Subject) (fleetKey, bool) {
	i, ok := s.Detail.(*inventory.Instance)
	if !ok || s.Kind != inventory.KindInstance || s.State != inventory.StateRunning ||
		s.Purpose != inventory.Inference {
		return fleetKey{}, false
	}
	return fleetKey{s.Cloud, s.Account, s.Region, s.Type, string(i.Market), s.Owner}, true
}

// enlist adds a machine to its fleet. An unmeasured machine makes its fleet unknown.
func (x *Index) enlist(s *Subject) {
	k, ok := servingKey(s)
	if !ok {
		return
	}
	f := x.fleets[k]
	if f == nil {
		m, _ := x.machineOf(s)
		f = &servers{
			gpus: m.GPUs(), coverage: 1, device: float64(m.AcceleratorMemoryMiB) * (1 << 20),
			memory: m.AcceleratorMemoryMiB > 0, least: 1,
		}
		if s.Owner.InProduction() {
			f.least = 2 // for redundancy
		}
		x.fleets[k] = f
	}
	if s.Judged && (s.Duty.State == duty.Idle || s.Duty.State == duty.Held) {
		return
	}
	tracks := s.Window.GPUTracks()
	if f.gpus == 0 || !s.Judged || s.Duty.State != duty.Busy || len(tracks) != f.gpus ||
		!Spans(s.Window, x.Thresholds.MinAge) {
		f.gpus = 0
		return
	}
	m := &member{Subject: s}
	for _, t := range tracks {
		st := t.Stats(usage.GPUUtil)
		if !x.Covered(s.Window, st) || !s.Window.Fresh(st, x.Now) {
			f.gpus = 0
			return
		}
		p95, err := st.Quantile(usage.GPUUtil, 0.95)
		if err != nil {
			f.gpus = 0
			return
		}
		m.load += p95
		f.coverage = min(f.coverage, s.Window.Coverage(st))
		if mem := t.Stats(usage.MemUsed); x.Covered(s.Window, mem) {
			f.peak, f.peaks = max(f.peak, mem.Max), f.peaks+mem.Max
		} else {
			f.memory = false
		}
	}
	f.load += m.load
	f.members = append(f.members, m)
	slices.SortFunc(f.members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.load, b.load), inventory.CompareRefs(a.ref, b.ref))
	})
}

// Fleet is a set of machines that serve together: of one owner, purpose, type and region.
type Fleet struct {
	// Resource is one of the machines, Machines the number of busy ones.
	Resource *inventory.Resource
	Machines int
	// Load is the sum of their p95 utilization in machines: 1.5 is one and a half busy machines.
	Load float64
	// Short is true if a machine has less than the week of samples required for scaling in.
	Short bool

	servers *servers
}

// Needed returns the number of machines that carry the load at a target share, over 0 and at most
// 1, with all of their memory, and at least two in production. A fleet within the usual band is
// left unchanged for a target in the middle of the band.
func (f Fleet) Needed(target float64) int { return f.servers.planned(target * 100) }

// Fleets returns the completely measured serving fleets of an account, ordered by resource.
func Fleets(a *Account, t Thresholds) ([]Fleet, error) {
	t, err := t.withDefaults()
	if err != nil {
		return nil, err
	}
	x := newIndex(a, t, nil)
	var out []Fleet
	for i := range x.subjects {
		s := &x.subjects[i]
		if f := x.fleetOf(s); f != nil && f.representative() == s {
			out = append(out, Fleet{s.Resource, len(f.members), f.load / 100 / float64(f.gpus), f.short(), f})
		}
	}
	return out, x.err
}

// representative returns the member that carries the findings of the fleet.
func (f *servers) representative() *Subject {
	return slices.MinFunc(f.members, func(a, b *member) int { return inventory.CompareRefs(a.ref, b.ref) }).Subject
}

// percent returns the load of the fleet in percent of all its GPUs.
func (f *servers) percent() float64 { return f.load / float64(f.gpus*len(f.members)) }

// atLeast rounds up, with a tolerance for binary fractions.
func atLeast(v float64) int { return int(math.Ceil(v*(1-1e-9) - 1e-9)) }

// short reports whether a member has less than a week of samples.
func (f *servers) short() bool {
	return slices.ContainsFunc(f.members, func(m *member) bool { return !Spans(m.Window, servingWindow) })
}

// planned returns the target number of machines for a utilization in percent: the present number if
// the target is the middle of the usual band and the load is within it.
func (f *servers) planned(target float64) int {
	if load := f.percent() / 100; target == 100*capacity.DefaultTarget &&
		load >= capacity.BandLow && load <= capacity.BandHigh {
		return len(f.members)
	}
	return f.needed(target)
}

// needed returns the number of machines that carry the load at the target and, if measured, hold
// all of its memory, so that the work of removed machines fits on the others.
func (f *servers) needed(target float64) int {
	n := max(f.least, atLeast(f.load/target/float64(f.gpus)))
	if f.memory {
		n = max(n, atLeast(f.peaks*(1+servingHeadroom)/f.device/float64(f.gpus)))
	}
	return n
}

// shared is a placement of a fleet's work in MIG instances, one for each GPU it uses now.
type shared struct {
	layout         string // "3g.20gb at 0 and 4"
	gpus, machines int
}

// share finds how many of the fleet's processes fit on one GPU in MIG instances.
func (f *servers) share(accelerator string, target float64) (shared, bool) {
	model, err := mig.ModelNamed(accelerator)
	if err != nil || !f.memory {
		return shared{}, false
	}
	slices := max(1, atLeast(f.percent()/target*float64(model.ComputeSlices)))
	r, err := mig.Pack(context.Background(), mig.Fleet{{Model: model, Count: 1}}, []mig.Workload{{
		Name: "replica", MemoryGiB: f.peak * (1 + servingHeadroom) / (1 << 30), ComputeSlices: slices,
		Count: model.ComputeSlices,
	}}, mig.Options{})
	if err != nil || len(r.GPUs) != 1 || len(r.GPUs[0].Placements) < 2 {
		return shared{}, false
	}
	var starts []string
	profile := r.GPUs[0].Placements[0].Profile
	for _, p := range r.GPUs[0].Placements {
		starts = append(starts, plain.Number(float64(p.Start), 0))
		if p.Profile != profile {
			return shared{}, false // identical work needs identical instances
		}
	}
	k, all := len(starts), f.gpus*len(f.members)
	s := shared{
		layout: profile + " at " + strings.Join(starts[:k-1], ", ") + " and " + starts[k-1], gpus: (all + k - 1) / k,
	}
	s.machines = max(f.least, (s.gpus+f.gpus-1)/f.gpus)
	return s, true
}

// inferenceFleet finds fleets far below their target utilization: the number of machines that
// suffices, and how their work can share GPUs if each process must stay separate.
func inferenceFleet(x *Index, f *servers) *Draft {
	target, n := x.Thresholds.InferenceTarget, len(f.members)
	needed := f.planned(target)
	if n < 2 || needed >= n || f.short() {
		return nil
	}
	s := f.representative()
	d := &Draft{Finding: Finding{
		Confidence: Medium,
		Because: plain.Count(n, "machine") + " serve at " + plain.Percent(f.percent(), 0) + ": " + plain.Number(
			float64(needed), 0) + " would do at " + plain.Percent(target, 0),
		Evidence: append(f.evidence(s),
			usage.Fact("machines_at_target", plain.Decimal(float64(needed), 0), "threshold"),
			usage.Fact("load_at_target_pct", plain.Decimal(f.load/float64(f.gpus*needed), 0), "computed")),
		Fix: Fix{
			Change: change.Change{Verb: change.Advise}, Undo: UndoFull,
			Note: "take machines out one at a time and watch the latency; let the group scale by its load",
		},
	}}
	if !f.memory {
		d.Fix.Note = Sentence("GPU memory was not measured: see that the models fit together", d.Fix.Note)
		d.Confidence = Low
	}
	m, _ := x.machineOf(s)
	if mig, ok := f.share(m.Accelerator, target); ok && mig.machines < n {
		d.Evidence = append(d.Evidence, usage.Fact("mig_layout", mig.layout, "MIG geometry"),
			usage.Fact("mig_gpus", plain.Decimal(float64(mig.gpus), 0), "computed"),
			usage.Fact("mig_machines", plain.Decimal(float64(mig.machines), 0), "computed"))
		// MIG cannot save again what the smaller fleet saves.
		if month, unpriced := x.Cost(s, ledger.Compute); unpriced == "" && mig.machines < needed {
			d.Evidence = append(d.Evidence,
				Priced("mig_saves_more_monthly_usd", x.amount(month.Mul(int64(needed-mig.machines), 1)),
					"price book"))
		}
		d.Fix.Note = Sentence(d.Fix.Note, "where each process must stay apart, MIG instances "+mig.layout+
			" on each GPU need "+plain.Count(mig.machines, "machine"))
	}
	var note string
	d.Fix.Risk, note = Risk(s.Resource, Medium)
	d.Fix.Note = Sentence(note, d.Fix.Note)
	a := &d.Fix.Change.Arguments
	for _, m := range f.members[:n-needed] {
		a.Members = append(a.Members, m.ID)
		d.ClaimShare(m.Subject, ledger.Compute, 1, 1, SavingsOnly)
	}
	a.Group = f.group()
	if group, ok := x.near(s.Resource, inventory.KindAutoScalingGroup, a.Group); ok {
		if g, ok := group.Detail.(*inventory.AutoScalingGroup); ok {
			d.Fix.Policy = x.followGroup(group, g)
		}
	}
	return d
}

// group returns the Auto Scaling group of all machines of the fleet, or "".
func (f *servers) group() string {
	name := groupOf(f.members[0].Subject)
	if slices.ContainsFunc(f.members, func(m *member) bool { return groupOf(m.Subject) != name }) {
		return ""
	}
	return name
}

// evidence returns the measurements of a fleet.
func (f *servers) evidence(s *Subject) []usage.Evidence {
	w := s.Window
	out := []usage.Evidence{
		{
			Signal: "gpu_util_p95_pct", Value: plain.Number(f.percent(), 1),
			Window: w.To.Sub(w.From), Coverage: f.coverage,
			Source: w.Source,
		},
		Fact(s, "machines", plain.Decimal(float64(len(f.members)), 0)),
		Fact(s, "gpus", plain.Decimal(float64(f.gpus*len(f.members)), 0)),
	}
	if f.memory {
		out = append(out, usage.Evidence{
			Signal: "gpu_memory_peak_gib", Value: plain.Number(f.peak/(1<<30), 1), Window: w.To.Sub(w.From),
			Coverage: f.coverage, Source: w.Source,
		})
	}
	return out
}

// inferenceSaturated warns of serving machines without headroom.
func inferenceSaturated(x *Index, s *Subject) *Draft {
	f := x.fleetOf(s)
	if f == nil || f.representative() != s || f.percent() <= saturated {
		return nil
	}
	n := len(f.members)
	needed := max(n+1, f.needed(x.Thresholds.InferenceTarget))
	d := &Draft{Stands: true, Finding: Finding{
		Savings: Saving{Why: "it needs more machines, not fewer"}, Confidence: High,
		Because: plain.Count(n, "machine") + " at " + plain.Percent(f.percent(), 1) + ", over " +
			plain.Percent(saturated,
				0) + ": scale out to " + plain.Number(float64(needed), 0),
		Evidence: append(f.evidence(s),
			usage.Fact("machines_at_target", plain.Decimal(float64(needed), 0), "threshold")),
		Fix: Fix{
			Change: change.Change{
				Verb: change.Advise, Arguments: change.Arguments{Count: new(int64(needed - n)), Group: f.group()},
			},
			Risk: Low, Undo: UndoFull,
			Note: "add machines before the load rises: latency grows fast over " + plain.Percent(saturated, 0),
		},
	}}
	if month, unpriced := x.Cost(s, ledger.Compute); unpriced == "" {
		d.Cost = x.amount(month.Mul(int64(n), 1))
		d.Evidence = append(d.Evidence,
			Priced("more_monthly_usd", x.amount(month.Mul(int64(needed-n), 1)), "price book"))
	}
	return d
}

// saturatedEndpoint warns of an endpoint whose machines have no headroom.
func saturatedEndpoint(x *Index, s *Subject) *Draft {
	e, ok := s.Detail.(*inventory.Endpoint)
	if !ok || s.State != inventory.StateRunning || len(e.Variants) != 1 || e.Variants[0].Serverless ||
		e.Variants[0].Count < 1 || !Spans(s.Window, x.Thresholds.MinAge) {
		return nil
	}
	gpus, known := s.Size.GPUs.Get()
	if !known {
		return nil
	}
	sig, st := x.loadOf(s.Window, gpus)
	if st == nil {
		return nil
	}
	load, err := st.Quantile(sig, 0.95)
	if err != nil || load <= saturated {
		return nil
	}
	n := e.Variants[0].Count
	needed := max(n+1, int64(atLeast(float64(n)*load/x.Thresholds.InferenceTarget)))
	d := &Draft{Stands: true, Finding: Finding{
		Savings: Saving{Why: "it needs more replicas, not fewer"}, Confidence: Medium,
		Because: "p95 load " + plain.Percent(load, 1) + ", over " + plain.Percent(saturated, 0) + ": scale out to " +
			plain.Count(needed, "replica"),
		Evidence: []usage.Evidence{
			Sampled("load_p95_pct", plain.Decimal(load, 1), s.Window, st),
			Fact(s, "replicas", plain.Decimal(float64(n), 0)),
			usage.Fact("replicas_at_target", plain.Decimal(float64(needed), 0), "threshold")},
		Fix: Fix{
			Change: change.Change{
				Verb: change.Advise, Arguments: change.Arguments{Count: new(needed), Part: e.Variants[0].Name},
			},
			Risk: Low, Undo: UndoFull, Note: "add replicas before the load rises, or let it scale by its load",
		},
	}}
	d.Cost, _ = x.Cost(s, ledger.Compute)
	return d
}
