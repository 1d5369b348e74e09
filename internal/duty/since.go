package duty

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// MachineOf returns the properties of a machine that the inventory knows.
func MachineOf(r *inventory.Resource) Machine {
	return Machine{
		GPUs: r.Size.GPUs, GPUMemory: float64(r.Size.GPUMemory.Or(0)), GPUPower: float64(r.Size.GPUPower.Or(0)),
		Launched: r.CreatedAt,
	}
}

// StateSince returns when the machine entered the state of its verdict at now: a busy one at the
// start of its longest uninterrupted work, a warming one at its launch. Zero is unknown.
func (k *Tracker) StateSince(now time.Time, v Verdict, m Machine) time.Time {
	switch v.State {
	case Unknown:
		return time.Time{}
	case Warming:
		return m.Launched
	case Busy:
	default:
		return v.Since
	}
	q := k.newEvaluation(nanos(now), m, false)
	signals := usage.HostWorkSignals()
	tracks := append(k.gpus[:len(k.gpus):len(k.gpus)], &k.machine)
	for _, t := range tracks {
		for _, s := range usage.ComputeSignals() {
			if t.meter(s) != nil {
				signals = usage.ComputeSignals()
			}
		}
	}
	since := int64(never)
	for _, t := range tracks {
		for _, s := range signals {
			r := q.read(t, s)
			if r.meter == nil || r.max < q.floor(r) {
				continue
			}
			if work := q.activePeriod(r); instant(work.to).Equal(v.Until) && (since == never || work.from < since) {
				since = work.from
			}
		}
	}
	return instant(since)
}

// CoveredUntil returns the end of the last sample's step, including samples of runs that extend
// past the time of any verdict; zero without samples. Until then a verdict may last although its
// Until is earlier.
func (k *Tracker) CoveredUntil() time.Time {
	if k == nil {
		return time.Time{}
	}
	end := int64(never)
	for _, t := range append(k.gpus[:len(k.gpus):len(k.gpus)], &k.machine) {
		for i := range t.meters {
			end = max(end, t.meters[i].end()+t.meters[i].step())
		}
	}
	return instant(end)
}
