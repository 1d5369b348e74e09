package finding

import (
	"cmp"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// JudgedIdle reports whether a running machine's verdict can support a finding: it was judged, is
// old enough, and its window is sufficiently covered.
func (x *Index) JudgedIdle(s *Subject) bool {
	if s.State != inventory.StateRunning || !s.Judged || s.Duty.State == duty.Unknown ||
		s.Duty.Coverage < x.Thresholds.Coverage {
		return false
	}
	if age, known := x.Age(s); known && age < x.Thresholds.MinAge {
		return false
	}
	if since, known := x.since(s); known && since < x.Thresholds.MinAge {
		return false
	}
	return s.Window == nil || Spans(s.Window, x.Thresholds.MinAge)
}

// serverIdle finds machines with a model server without callers. Where no counter of requests covers the
// window, and where a GPU computed without requests, nothing is known of it.
func serverIdle(x *Index, s *Subject) *Draft {
	requests := x.unasked(s)
	if requests == nil {
		return nil
	}
	d := &Draft{Finding: Finding{
		Confidence: High,
		Because:    "its model server had no request for " + plain.Duration(s.Window.To.Sub(s.Window.From)),
		Evidence:   []usage.Evidence{Sampled("requests", "0", s.Window, requests)},
		Fix:        x.ending(s),
	}, first: "ask its owner first: the model has to be loaded again"}
	if x.JudgedIdle(s) && (s.Duty.State == duty.Idle || s.Duty.State == duty.Held) {
		d.Evidence = append(d.Evidence, s.Duty.Evidence...)
	} else {
		d.Confidence = Medium
	}
	if d.Fix.Risk == Low {
		d.Fix.Risk = Medium
	}
	d.ClaimShare(s, ledger.Compute, 1, 1, WasteAndSavings)
	d.ClaimShare(s, ledger.Network, 1, 1, WasteAndSavings)
	return d
}

// unasked returns the requests of a running machine that has a model server and was not asked throughout
// the window; nil for others, and where that is unknown.
func (x *Index) unasked(s *Subject) *usage.Stats {
	w := s.Window
	if s.State != inventory.StateRunning || !Spans(w, x.Thresholds.EndpointIdle) {
		return nil
	}
	requests := w.Machine.Stats(usage.Requests)
	if !x.Covered(w, requests) || !w.Fresh(requests, x.Now) || requests.Max > 0 || requests.Sum > 0 {
		return nil
	}
	if age, known := x.Age(s); known && age < x.Thresholds.EndpointIdle {
		return nil
	}
	if Computed(w) || s.Size.GPUs.Or(0) == 0 && s.Purpose != inventory.Inference {
		return nil // something else uses the machine
	}
	return requests
}

// gpuInstanceIdle finds accelerated machines whose every GPU is idle.
func gpuInstanceIdle(x *Index, s *Subject) *Draft {
	if s.Size.GPUs.Or(0) == 0 || !x.JudgedIdle(s) || s.Duty.State != duty.Idle || x.unasked(s) != nil {
		return nil
	}
	return x.endInstance(s)
}

// gpuHeld finds accelerated machines with allocated memory or open sessions but no computation.
func gpuHeld(x *Index, s *Subject) *Draft {
	if s.Size.GPUs.Or(0) == 0 || !x.JudgedIdle(s) || s.Duty.State != duty.Held || x.unasked(s) != nil {
		return nil
	}
	return x.endHeld(s)
}

// endHeld is the finding that a machine does nothing and is held: its owner is asked before it ends.
func (x *Index) endHeld(s *Subject) *Draft {
	d := x.endInstance(s)
	d.first = "ask its owner first: data in memory is lost"
	if d.Fix.Risk == Low {
		d.Fix.Risk = Medium
	}
	return d
}

// instanceIdle finds machines without accelerators that do nothing, or are held by sessions alone. A
// machine whose accelerators are not known is not judged by its CPU.
func instanceIdle(x *Index, s *Subject) *Draft {
	switch {
	case s.Size.Accelerated() || !x.JudgedIdle(s) || x.unasked(s) != nil:
	case s.Duty.State == duty.Idle:
		return x.endInstance(s)
	case s.Duty.State == duty.Held:
		return x.endHeld(s)
	}
	return nil
}

// endInstance returns the finding that a machine is idle: its compute is waste and is saved by
// stopping it; its disks still cost.
func (x *Index) endInstance(s *Subject) *Draft {
	d := &Draft{Finding: Finding{
		Confidence: High,
		Because:    s.Duty.Why,
		Evidence:   s.Duty.Evidence,
		Fix:        x.ending(s),
	}}
	if s.Window == nil {
		d.Confidence = Medium
	}
	if len(d.Evidence) == 0 {
		d.Evidence = []usage.Evidence{
			{
				Signal: "duty", Value: s.Duty.State.String(), Window: s.Duty.Duration, Coverage: s.Duty.Coverage,
				Source: "metrics",
			},
		}
	}
	if d.Because == "" {
		d.Because = "nothing computes for " + plain.Duration(s.Duty.Duration)
	}
	d.ClaimShare(s, ledger.Compute, 1, 1, WasteAndSavings)
	d.ClaimShare(s, ledger.Network, 1, 1, WasteAndSavings) // addresses assigned while it runs
	return d
}

// ending returns the least harmful fix that ends a machine's compute: group members through the
// group, ephemeral machines by termination, all others by stopping.
func (x *Index) ending(s *Subject) Fix {
	d, _ := s.Detail.(*inventory.Instance)
	if d == nil {
		d = &inventory.Instance{}
	}
	usual := Low
	if s.Lifetime != inventory.Ephemeral {
		usual = Medium
	}
	level, warning := Risk(s.Resource, usual)
	f := Fix{Change: change.Change{Verb: change.Stop}, Undo: UndoFull, Risk: level, Note: "its disks go on costing"}
	switch {
	case groupOf(s) != "":
		f.Change, f.Undo = change.Change{
			Verb: change.Scale, Arguments: change.Arguments{Group: groupOf(s)},
		}, UndoPartial
		f.Note = "a member of Auto Scaling group " + groupOf(s) +
			": ended only through the group, which becomes one smaller; its disks end with it"
	case warning != "": // people may depend on it: at most stop it
	case d.Market == inventory.Spot:
		f.Change.Verb, f.Undo, f.Note = change.Terminate, UndoNone,
			"refused while its disks hold unsaved data; a spot machine may not come back"
	case s.Lifetime == inventory.Ephemeral && !x.holdsPersistent(s, d):
		f.Change.Verb, f.Undo = change.Terminate, UndoNone
		f.Note = "refused while its disks hold unsaved data"
	}
	if f.Change.Verb == change.Stop {
		f.Note = Sentence(f.Note, restart(s))
	}
	if f.Change.Verb != change.Scale {
		losesLocalDisks(&f, s.Size)
	}
	if protected, known := d.TerminationProtected.Get(); known && protected && f.Change.Verb == change.Terminate {
		f.Note = Sentence(f.Note, "protected against termination")
	}
	f.Note = Sentence(warning, f.Note)
	return f
}

// groupOf returns the Auto Scaling group of a machine, or "".
func groupOf(s *Subject) string {
	if s.Manager.Kind != inventory.ManagerAutoScaling {
		return ""
	}
	return s.Manager.Name
}

// restart returns the obstacles to starting a stopped machine again.
func restart(s *Subject) string {
	if s.Size.Accelerated() {
		return "a stopped GPU machine may not start again for lack of capacity"
	}
	return ""
}

// losesLocalDisks notes on a fix that stops a machine that the data on local disks is lost
// permanently.
func losesLocalDisks(f *Fix, size inventory.Size) {
	gb := size.InstanceStorageGB.Or(0)
	if gb <= 0 {
		return
	}
	f.Note = Sentence(f.Note, plain.Number(float64(gb), 0)+" GB of instance-store data is lost")
	if f.Undo == UndoFull {
		f.Undo = UndoPartial
	}
}

// holdsPersistent reports whether termination would delete a disk that is declared persistent or
// kept, or is undeclared.
func (x *Index) holdsPersistent(s *Subject, d *inventory.Instance) bool {
	for _, disk := range d.Disks {
		if !disk.DeleteOnTermination {
			continue
		}
		if v, ok := x.near(s.Resource, inventory.KindVolume, disk.VolumeID); !ok ||
			v.Lifetime == inventory.Persistent ||
			v.KeepUntil.After(x.Now) {
			return true
		}
	}
	return false
}

// instanceOverdue warns of transient training machines that exceed the time limit. It claims no
// waste: idleness is another rule.
func instanceOverdue(x *Index, s *Subject) *Draft {
	if s.State != inventory.StateRunning || s.Lifetime != inventory.Ephemeral || s.Purpose != inventory.Training {
		return nil
	}
	age, known := x.Age(s)
	if !known || age <= x.Thresholds.OverdueAge {
		return nil
	}
	total, _ := x.Cost(s, ledger.Compute)
	d := &Draft{Stands: true, Finding: Finding{
		Savings: Saving{Known: true}, Cost: total, Confidence: High,
		Because: "training runs for " + plain.Duration(age) + "; " + x.Thresholds.overdueLimit(),
		Evidence: []usage.Evidence{
			Aged(s, "age", age),
			{
				Signal: "duty", Value: s.Duty.State.String(), Window: s.Duty.Duration, Coverage: usage.NoCoverage,
				Source: "metrics",
			},
		},
		Fix: x.ending(s),
	}}
	if s.Duty.State.Productive() || s.Duty.State == duty.Unknown {
		d.Fix = Fix{Change: change.Change{Verb: change.Notify}, Risk: None, Undo: UndoFull,
			Note: "its duty is " + s.Duty.State.String() + ": it is not ended without a confirmed checkpoint"}
	}
	return d
}

// overdueLimit describes the time limit of transient training and whether a person set it.
func (t *Thresholds) overdueLimit() string {
	whose := "your"
	if t.OverdueAge == DefaultThresholds().OverdueAge {
		whose = "the default"
	}
	return whose + " thresholds.overdue_age is " + plain.Duration(t.OverdueAge)
}

// instanceStopped finds machines stopped for so long that paying for their disks is pointless.
// Their addresses have their own findings.
func instanceStopped(x *Index, s *Subject) *Draft {
	stopped, known := x.since(s)
	if s.State != inventory.StateStopped || !known || stopped < x.Thresholds.StoppedAge {
		return nil
	}
	inst, ok := s.Detail.(*inventory.Instance)
	if !ok {
		return nil
	}
	d := &Draft{Finding: Finding{
		Confidence: High,
		Evidence:   []usage.Evidence{Aged(s, "stopped", stopped)},
		Fix: Fix{
			Change: change.Change{Verb: change.Terminate, Arguments: change.Arguments{Snapshot: inst.DeletedDisks()}},
			Undo:   UndoPartial,
			Note:   "its disks can be made again from the snapshots, whose price is counted as if the disks were full"},
	}}
	disks, stay, gib := 0, 0, int64(0)
	costs, unpriced := money.Amount(0), ""
	for _, disk := range inst.Disks {
		v, ok := x.near(s.Resource, inventory.KindVolume, disk.VolumeID)
		if !ok || v.KeepUntil.After(x.Now) || v.State == inventory.StateDeleting {
			continue
		}
		disks++
		cost, why := x.Cost(v, "")
		costs, unpriced = x.amount(costs.Add(cost)), cmp.Or(unpriced, why)
		if vol, ok := v.Detail.(*inventory.Volume); ok {
			gib += vol.SizeGiB
		}
		if disk.DeleteOnTermination {
			x.keepSnapshot(d, v)
			continue
		}
		stay++
		d.ClaimShare(v, "", 1, 1, WasteOnly)
	}
	if disks == 0 {
		return nil
	}
	if stay > 0 {
		d.Fix.Note = Sentence(d.Fix.Note, plain.Count(stay, "disk")+" stay when it is terminated and go on costing")
		if stay == disks {
			d.Stands, d.Savings = true, Saving{Known: true}
		}
	}
	d.Because = "stopped for " + plain.Duration(stopped) + ", still pays for " + plain.Count(disks, "disk")
	if unpriced == "" {
		d.Because += ", " + costs.Dollars() + " a month"
	}
	d.Evidence = append(d.Evidence, Fact(s, "disks_gib", plain.Decimal(float64(gib), 0)))
	var note string
	d.Fix.Risk, note = Risk(s.Resource, Medium)
	d.Fix.Note = Sentence(note, d.Fix.Note)
	return d
}

// quietGPUs returns for how long every GPU of a window has been at 0 without a gap, and whether
// that is at least d. It is false if a GPU has no samples or its newest sample is old.
func (x *Index) quietGPUs(w *usage.Window, n int, d time.Duration) (time.Duration, bool) {
	if !speaksForAll(w, n) {
		return 0, false
	}
	least := time.Duration(-1)
	for _, t := range w.GPUTracks() {
		st := t.Stats(usage.GPUUtil)
		if st == nil || !w.Fresh(st, x.Now) {
			return 0, false
		}
		if q := w.Quiet(st); least < 0 || q < least {
			least = q
		}
		for _, sig := range usage.ComputeSignals() {
			if st := t.Stats(sig); st != nil {
				least = min(least, w.Quiet(st))
			}
		}
	}
	return least, least >= d
}

// prepares reports whether a training run with idle GPUs may be preparing data: its CPUs work, or
// on an on-premises machine are unmeasured.
func (x *Index) prepares(s *Subject) bool {
	w := s.Window
	cpu := w.Machine.Stats(usage.CPUUtil)
	if s.Kind == inventory.KindInstance {
		return !w.Fresh(cpu, x.Now) || w.Quiet(cpu) < x.Thresholds.TrainingStalled
	}
	newest, err := cpu.Newest()
	return err == nil && newest >= usage.PreparingCPU
}

// stalled returns the finding that a training run has stopped computing.
func (x *Index) stalled(s *Subject, gpus int) *Draft {
	w := s.Window
	quiet, ok := x.quietGPUs(w, gpus, x.Thresholds.TrainingStalled)
	if !ok {
		return nil
	}
	if x.prepares(s) {
		return nil
	}
	st := w.GPUTracks()[0].Stats(usage.GPUUtil)
	d := &Draft{Finding: Finding{
		Confidence: Medium,
		Because:    "a training run at 0% GPU for " + plain.Duration(quiet),
		Evidence: []usage.Evidence{
			{Signal: "gpu_util_max_pct", Value: "0", Window: quiet, Coverage: 1, Source: w.Source},
			Sampled("gpu_active_share", plain.Decimal(share(st.Active, st.Count), 2), w, st)},
	}}
	d.ClaimShare(s, ledger.Compute, 1, 1, WasteAndSavings)
	return d
}

// standstill finds training that computes without progress: its duty is stalled.
func (x *Index) standstill(s *Subject) *Draft {
	if !s.Judged || s.Duty.State != duty.Stalled || s.Duty.Duration < x.Thresholds.TrainingStalled {
		return nil
	}
	d := &Draft{Finding: Finding{Confidence: High, Because: s.Duty.Why, Evidence: s.Duty.Evidence}}
	d.ClaimShare(s, ledger.Compute, 1, 1, WasteAndSavings)
	return d
}

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// Computed reports whether any GPU of a window ever computed.
func Computed(w *usage.Window) bool {
	return slices.ContainsFunc(w.GPUTracks(), (*usage.Track).ShowsCompute)
}

// instanceStalled finds training machines that were busy and stopped computing. Machines that are
// idle or held are left to other rules.
func instanceStalled(x *Index, s *Subject) *Draft {
	n := s.Size.GPUs.Or(0)
	if s.State != inventory.StateRunning || s.Purpose != inventory.Training || n == 0 {
		return nil
	}
	if s.Judged && (s.Duty.State == duty.Idle || s.Duty.State == duty.Held) && x.JudgedIdle(s) {
		return nil
	}
	if !Computed(s.Window) {
		return nil // no run has begun: idleness is another rule
	}
	d := x.standstill(s)
	if d == nil {
		d = x.stalled(s, n)
	}
	if d != nil {
		d.Fix = x.ending(s)
		d.Fix.Risk = higher(d.Fix.Risk, Medium)
		d.Fix.Note = Sentence("check its log and save the last checkpoint first", d.Fix.Note)
	}
	return d
}

// jobStalled finds managed training jobs that stopped computing.
func jobStalled(x *Index, s *Subject) *Draft {
	n := s.Size.GPUs.Or(0)
	if s.State != inventory.StateRunning || n == 0 {
		return nil
	}
	if j, ok := s.Detail.(*inventory.TrainingJob); !ok || (j.Count > 1 && (s.Window == nil || !s.Window.Aggregated)) {
		return nil // the metrics of one host are no evidence for the others
	}
	d := x.standstill(s)
	if d == nil {
		d = x.stalled(s, n)
	}
	if d != nil {
		d.Fix = Fix{Change: change.Change{Verb: change.Stop}, Risk: Medium, Undo: UndoNone,
			Note: "check its log first; work that is not in a checkpoint is lost"}
	}
	return d
}

// higher returns the higher of two risks.
func higher(a, b Level) Level {
	rank := map[Level]int{None: 0, Low: 1, Medium: 2, High: 3}
	if rank[a] >= rank[b] {
		return a
	}
	return b
}
