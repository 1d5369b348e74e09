package duty

import (
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

func windowMachine(w *usage.Window, gpus int) Machine {
	m := Machine{GPUMemory: w.GPUMemory, GPUPower: w.GPUPower, Launched: w.Launched}
	if gpus >= 0 {
		m.GPUs = inventory.Known(gpus)
	}
	return m
}

// unlimitedLookBack reaches further back than any window.
const unlimitedLookBack = 1 << 62

// restoreTracker returns a tracker that gives the verdicts of one with all samples of a window, at
// and after its newest points. It must not take more samples.
func restoreTracker(w *usage.Window, t Thresholds) *Tracker {
	k := NewTracker(t, w.Activity(), unlimitedLookBack)
	k.gpuMemory, k.gpuPower = w.GPUMemory, w.GPUPower
	for _, t := range w.GPUs {
		name, part := t.Parent()
		own := &track{name: t.Name, parent: name, isPart: part, partCount: uint16(usage.PartCount(t.Name))}
		k.gpus = append(k.gpus, own)
		own.restore(k, w, t)
	}
	k.machine.restore(k, w, &w.Machine)
	return k
}

// restore fills a track from the statistics of a window.
func (t *track) restore(k *Tracker, w *usage.Window, of *usage.Track) {
	for s := range lastTracked + 1 {
		st := of.Stats(s)
		if st == nil {
			continue
		}
		o := k.source(usage.SourceInfo{Step: w.StepOf(st), Source: w.SourceOf(st), Aggregated: w.Aggregated})
		p := usage.Point{Time: st.Last}
		p.Mean, _ = st.Newest()
		p.Max, _ = w.Peak(st, st.Last)
		last, step := nanos(st.Last), int64(o.Step)
		m := newMeter(s, o, last, 1, p)
		unbroken := w.Unbroken(st)
		from, covered := last, int64(0) // defaults of a meter with too many gaps
		if unbroken.Coverage > 0 {
			from = nanos(unbroken.From)
			covered = int64(unbroken.Coverage * float64(last+step-from))
		}
		m.previousAt, m.covered, m.marks[0] = last-step, covered-2*step, mark{from, 0}
		if !st.LastQuiet.IsZero() {
			m.lastQuietAt = nanos(st.LastQuiet)
		}
		for at, v := range w.Peaks(st) {
			if k.keepsPeaks(s) && at.Before(st.Last) {
				m.maxima = m.maxima.add(nanos(at), v, k, &m)
			}
		}
		if m.counter != nil {
			m.counter.value = p.Max
			m.counter.blocks[0] = tally{first: nanos(st.First), rises: int32(st.Active)}
			if st.Active > 0 {
				m.counter.lastRise = nanos(st.LastActive)
			}
		}
		if s.FrozenAfter() > 0 {
			m.repetition = &repetition{frozen: never, oldest: never}
			m.repetition.restore(k, &m, st)
		}
		t.addMeter(m)
	}
}

// trackNamed returns the track of a GPU, or of the machine for an empty name.
func (k *Tracker) trackNamed(gpu string) *track {
	for _, t := range k.gpus {
		if t.name == gpu {
			return t
		}
	}
	return &k.machine
}
