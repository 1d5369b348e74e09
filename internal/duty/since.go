package duty

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// MachineOf returns what the inventory knows of a machine.
func MachineOf(r *inventory.Resource) Machine {
	return Machine{
		GPUs: r.Size.GPUs, GPUMemory: float64(r.Size.GPUMemory.Or(0)), GPUPower: float64(r.Size.GPUPower.Or(0)),
		Launched: r.CreatedAt,
	}
}

// Since returns since when a machine is known to have been in the state of its verdict at
// now: a busy one for the longest unbroken work up to now, a warming one since its launch.
// Zero is not known.
func (k *Tracker) Since(now time.Time, v Verdict, m Machine) time.Time {
	switch v.State {
	case Unknown:
		return time.Time{}
	case Warming:
		return m.Launched
	case Busy:
	default:
		return v.Since
	}
	q := k.question(nanos(now), m, false)
	signals := usage.HostWork()
	tracks := append(k.gpus[:len(k.gpus):len(k.gpus)], &k.machine)
	for _, t := range tracks {
		for _, s := range usage.Compute() {
			if t.meter(s) != nil {
				signals = usage.Compute()
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
			if work := q.work(r); instant(work.to).Equal(v.Until) && (since == never || work.from < since) {
				since = work.from
			}
		}
	}
	return instant(since)
}

// Ahead returns the end of what the samples stand for that were handed over, those of runs
// that go on after any time that was asked about included; the zero time without samples.
// Until then a verdict may last although its Until is before it.
func (k *Tracker) Ahead() time.Time {
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
