package duty

import (
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

func machineOf(w *usage.Window, gpus int) Machine {
	m := Machine{GPUMemory: w.GPUMemory, GPUPower: w.GPUPower, Launched: w.Launched}
	if gpus >= 0 {
		m.GPUs = inventory.Known(gpus)
	}
	return m
}

// always looks back further than any window.
const always = 1 << 62

// readings returns a tracker that answers at and after the newest points of a window as
// if it had seen all of it. It is no use for anything else.
func readings(w *usage.Window, t Thresholds) *Tracker {
	k := NewTracker(t, w.Activity(), always)
	k.memory, k.power = w.GPUMemory, w.GPUPower
	for _, t := range w.GPUs {
		name, part := t.Parent()
		own := &track{name: t.Name, parent: name, part: part, parts: uint16(usage.Parts(t.Name))}
		k.gpus = append(k.gpus, own)
		own.readings(k, w, t)
	}
	k.machine.readings(k, w, &w.Machine)
	return k
}

// readings fills a track.
func (t *track) readings(k *Tracker, w *usage.Window, of *usage.Track) {
	for s := range lastTracked + 1 {
		st := of.Stats(s)
		if st == nil {
			continue
		}
		o := k.source(usage.Opened{Step: w.StepOf(st), Source: w.SourceOf(st), Aggregated: w.Aggregated})
		p := usage.Point{Time: st.Last}
		p.Mean, _ = st.Newest()
		p.Max, _ = w.Peak(st, st.Last)
		last, step := nanos(st.Last), int64(o.Step)
		m := newMeter(s, o, last, 1, p)
		unbroken := w.Unbroken(st)
		from, covered := last, int64(0) // of a meter with too many holes
		if unbroken.Coverage > 0 {
			from = nanos(unbroken.From)
			covered = int64(unbroken.Coverage * float64(last+step-from))
		}
		m.last, m.covered, m.marks[0] = last-step, covered-2*step, mark{from, 0}
		if !st.LastQuiet.IsZero() {
			m.quiet = nanos(st.LastQuiet)
		}
		for at, v := range w.Peaks(st) {
			if k.keepsPeaks(s) && at.Before(st.Last) {
				m.crest = m.crest.add(nanos(at), v, k, &m)
			}
		}
		if m.counter != nil {
			m.counter.value = p.Max
			m.counter.blocks[0] = tally{first: nanos(st.First), rises: int32(st.Active)}
			if st.Active > 0 {
				m.counter.rose = nanos(st.LastActive)
			}
		}
		if s.Repeats() > 0 {
			m.repeats = &repeats{frozen: never, enough: never}
			m.repeats.readings(k, &m, st)
		}
		t.place(m)
	}
}

// named returns the track of a GPU, or with an empty name that of the machine.
func (k *Tracker) named(gpu string) *track {
	for _, t := range k.gpus {
		if t.name == gpu {
			return t
		}
	}
	return &k.machine
}
