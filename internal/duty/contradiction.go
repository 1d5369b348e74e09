package duty

import (
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// impossible are pairs of signals of one GPU of which the first cannot work while the
// second rests: kernels keep the engine active, multiprocessors and tensor pipes work only
// in kernels. Memory is not among them, which copies keep busy without a kernel, nor are
// multiprocessors at rest under utilization, because a kernel of one block fills 1 of
// 132; that pair only tells a latched meter. Nor is utilization at rest while a profiling
// metric works: it is the coarser meter, which reads 0 where it is not supported, and the GPU
// computes.
var impossible = [...]struct{ works, rests usage.Signal }{
	{usage.GPUUtil, usage.GREngine},
	{usage.SMActive, usage.GREngine},
	{usage.TensorActive, usage.SMActive},
	{usage.TensorActive, usage.GREngine},
}

// plainWork is the share of its range from which on a signal certainly shows work: 10%,
// ten times the floor. Our own choice; meters that sample at other moments differ by less.
const plainWork = 0.1

// scaleOf is the end of the range of a signal of compute.
func scaleOf(s usage.Signal) float64 {
	if s == usage.GPUUtil {
		return 100
	}
	return 1
}

// reads says what a signal of compute reads: "the graphics engine reads 0%".
func reads(s usage.Signal, v float64) string {
	name := map[usage.Signal]string{
		usage.GPUUtil: "utilization reads ", usage.GREngine: "the graphics engine reads ",
		usage.SMActive:     "its multiprocessors read ",
		usage.TensorActive: "its tensor pipes read ", usage.DRAMActive: "its memory activity reads ",
	}[s]
	return name + plain.Percent(100*v/scaleOf(s), 1)
}

func contradict(a usage.Signal, va float64, b usage.Signal, vb float64) string {
	return fmt.Sprintf("%s while %s: one of them is wrong", reads(a, va), reads(b, vb))
}

// whole returns the track of the GPU that a MIG instance is part of, which has its power,
// temperature and energy; of any other GPU the track itself.
func (q *question) whole(t *track) *track {
	if t.part {
		for _, g := range q.k.gpus {
			if g.name == t.parent {
				return g
			}
		}
	}
	return t
}

// wrong says why what is measured of a GPU is not believed although it is new: two of its
// signals cannot both be true, its exporter repeats itself, or its energy meter started
// again.
func (q *question) wrong(t *track) (why string, ok bool) {
	for _, p := range impossible {
		if t.at[p.works] == 0 || t.at[p.rests] == 0 {
			continue
		}
		a, b := q.read(t, p.works), q.read(t, p.rests)
		if q.fresh(a) && q.fresh(b) && a.mean >= plainWork*scaleOf(p.works) && b.max < q.floor(b) {
			return q.say(func() string { return contradict(p.works, a.mean, p.rests, b.mean) }), true
		}
	}
	w := q.witnesses(t)
	if now := q.fresh(w.energy) && w.energy.mean > 0 && w.draws() && q.repeated(w.energy); now {
		return q.say(func() string {
			draw := ""
			if w.power.meter != nil {
				draw = " while it draws " + plain.Number(w.power.mean, 1) + " W"
			}
			return "its energy meter stands still at " + plain.Number(w.energy.mean, 0) + " J" + draw +
				": its exporter is frozen"
		}), true
	}
	if q.fresh(w.power) && q.fresh(w.heat) && w.draws() && q.repeated(w.power) && q.repeated(w.heat) {
		return q.say(func() string {
			return fmt.Sprintf(
				"power stands still at %s W and temperature at %s C for %d samples: its exporter is frozen",
				plain.Number(w.power.mean, 3), plain.Number(w.heat.mean, 1), usage.Power.Repeats())
		}), true
	}
	if !q.fresh(w.energy) {
		return "", false
	}
	from, at := w.energy.fallen(q.horizon)
	if at != w.energy.at {
		return "", false
	}
	q.goesOn(w.energy.meter)
	return q.say(func() string {
		return fmt.Sprintf("its energy meter fell from %s J to %s J: the driver or the exporter was restarted",
			plain.Number(from, 0), plain.Number(w.energy.max, 0))
	}), true
}

// witnesses are the signals of a whole GPU that tell whether its exporter is alive.
type witnesses struct{ power, heat, energy reading }

func (q *question) witnesses(t *track) witnesses {
	t = q.whole(t)
	return witnesses{q.read(t, usage.Power), q.read(t, usage.Temperature), q.read(t, usage.Energy)}
}

// draws says whether the GPU draws power, as every one does; where power is not measured or
// reads 0, which is no measurement, nothing follows from the other two.
func (w *witnesses) draws() bool { return w.power.meter == nil || w.power.mean > 0 }

// trusted returns from when on the meters of a GPU are believed, never for always: not
// before the end of the last samples that were repeated, nor before its energy meter
// started again.
func (q *question) trusted(t *track) int64 {
	w := q.witnesses(t)
	from := int64(never)
	if w.power.meter != nil && w.heat.meter != nil && w.draws() {
		power, heat := q.froze(w.power), q.froze(w.heat)
		if power != never && heat >= power {
			from = power + w.power.step()
		}
		if power == w.power.at {
			q.goesOn(w.power.meter)
		}
	}
	if w.energy.meter != nil && w.energy.mean > 0 && w.draws() {
		if at := q.froze(w.energy); at != never {
			from = max(from, at+w.energy.step())
		}
	}
	if w.energy.meter != nil {
		_, at := w.energy.fallen(q.horizon)
		from = max(from, at)
	}
	return from
}

// repeated says whether the newest samples of a meter are equal to the last bit and as
// many as only a frozen exporter gives; if they are not yet but may be soon, when.
func (q *question) repeated(r reading) bool {
	if r.signal.Steady(r.max) {
		return false
	}
	need := int64(r.signal.Repeats())
	count, at := r.repeated(r.at, need)
	switch {
	case count < need && r.at < r.end():
		q.soon(r.at + (need-count)*r.step())
	case at < q.horizon:
		q.goesOn(r.meter)
	}
	return count >= need && at >= q.horizon
}

// froze returns the newest sample of the last row of repeated ones; never where none was.
func (q *question) froze(r reading) int64 {
	if q.repeated(r) {
		return r.at
	}
	if r.repeats != nil && r.repeats.enough >= q.horizon {
		return r.repeats.frozen
	}
	return never
}

// repeats is what a meter keeps besides where repeated values mean that its exporter is
// frozen, once one was repeated.
type repeats struct {
	// times are those of the samples that are equal to the newest one before the newest
	// points of the meter, in order and without that one; as many as it takes.
	times []int64
	// frozen is the newest sample of the last row of equal ones that was long enough, and
	// enough the oldest one that it takes for that.
	frozen, enough int64
	fall           *fall // of a meter that only rises
}

// fall is a sample of a meter that only rises that was lower than the one before it, which
// was at before and read from.
type fall struct {
	at, before int64
	from       float64
}

// repeat takes the newest points, which become those that came before.
func (m *meter) repeat() {
	need := m.signal.Repeats()
	before, ok := m.before()
	equal, falls := ok && before == m.max && !m.signal.Steady(m.max), m.signal == usage.Energy && ok && before > m.max
	if m.repeats == nil {
		if !equal && !falls && m.count == 1 {
			return
		}
		m.repeats = &repeats{frozen: never, enough: never}
	}
	r := m.repeats
	if falls {
		r.fall = &fall{m.start, m.last, before}
	}
	if count, at := m.repeated(m.end(), int64(need)); count >= int64(need) {
		r.frozen, r.enough = m.end(), at
	}
	if equal {
		r.times = append(r.times, m.last)
	} else {
		r.times = r.times[:0]
	}
	for i := max(0, m.count-int64(need)); i < m.count-1 && !m.signal.Steady(m.max); i++ {
		r.times = append(r.times, m.start+i*m.step())
	}
	if over := len(r.times) - (need - 1); over > 0 {
		r.times = slices.Delete(r.times, 0, over)
	}
}

// before returns the value of the sample before the newest points of a meter that keeps
// peaks, of which that sample is the last.
func (m *meter) before() (v float64, ok bool) {
	if n := len(m.crest); m.last != never && n > 0 {
		return m.crest[n-1].value, true
	}
	return 0, false
}

// repeated returns how many of the newest samples at a time are equal, at most need, and
// when the oldest of those was measured.
func (m *meter) repeated(newest, need int64) (count, at int64) {
	if m.signal.Steady(m.max) {
		return 1, newest
	}
	count = 1
	if step := m.step(); step > 0 {
		count = (newest-m.start)/step + 1
	}
	if count >= need {
		return need, newest - (need-1)*m.step()
	}
	if before, ok := m.before(); !ok || before != m.max {
		return count, m.start
	}
	if need -= count + 1; need == 0 || m.repeats == nil || len(m.repeats.times) == 0 {
		return count + 1, m.last
	}
	times := m.repeats.times
	before := min(int64(len(times)), need)
	return count + 1 + before, times[int64(len(times))-before]
}

// fallen returns when a meter that only rises read less than before, and what it had read
// then, of the samples from the horizon on; never where it did not.
func (m *meter) fallen(horizon int64) (from float64, at int64) {
	if before, ok := m.before(); ok && m.last >= horizon && before > m.max {
		return before, m.start
	}
	if m.repeats != nil && m.repeats.fall != nil && m.repeats.fall.before >= horizon {
		return m.repeats.fall.from, m.repeats.fall.at
	}
	return 0, never
}

// readings fills what is kept of a window's signal, whose newest point the meter has.
func (r *repeats) readings(k *Tracker, m *meter, st *usage.Stats) {
	if m.signal == usage.Energy {
		m.crest = nil // its last one is taken for the sample before
	}
	if st.Repeated() {
		m.crest = m.crest.add(m.last, m.max, k, m)
		for i := range m.signal.Repeats() {
			r.times = append(r.times, m.last-int64(m.signal.Repeats()-i)*m.step())
		}
	}
	if froze := st.Froze(); !froze.IsZero() {
		r.frozen, r.enough = nanos(froze), nanos(froze)
	}
	if f := st.Fell(); !f.At.IsZero() {
		if r.fall = (&fall{nanos(f.At), nanos(f.At), f.From}); f.At.Equal(st.Last) {
			m.crest = m.crest.add(m.last, f.From, k, m)
		}
	}
}

// wrong says what of a window's signals of a GPU cannot be true, or that its exporter
// repeated itself; empty where all can.
func (j *judge) wrong(t *usage.Track, works bool) string {
	whole := j.whole(t)
	power, heat, energy := whole.Stats(usage.Power), whole.Stats(usage.Temperature), whole.Stats(usage.Energy)
	draws := power == nil || power.Max > 0
	switch {
	case energy != nil && energy.Max > 0 && draws && !energy.Froze().IsZero():
		return fmt.Sprintf("its energy meter stood still up to %s: its exporter was frozen",
			plain.Time(energy.Froze()))
	case power != nil && heat != nil && draws && !power.Froze().IsZero() && !heat.Froze().IsZero():
		return fmt.Sprintf("its power and temperature stood still up to %s: its exporter was frozen",
			plain.Time(power.Froze()))
	}
	for _, p := range impossible {
		a, b := t.Stats(p.works), t.Stats(p.rests)
		if j.active(a) && a.Max >= plainWork*scaleOf(p.works) && j.known(b) && b.Active == 0 {
			return contradict(p.works, a.Max, p.rests, b.Max)
		}
	}
	if !works && power != nil && j.drewAtRest(t, power) {
		return fmt.Sprintf("its meters show no work while it drew up to %s W: one of them is wrong",
			plain.Number(power.Max, 0))
	}
	return ""
}

// drewAtRest says whether a GPU last drew power like one at work when none of its meters showed
// work: after the last of it, with a sample's time for meters that are read one after another.
func (j *judge) drewAtRest(t *usage.Track, power *usage.Stats) bool {
	var drew, worked time.Time
	line := busyPower(j.t, j.w.GPUPower)
	for at, v := range j.w.Peaks(power) {
		if v >= line {
			drew = at
		}
	}
	for _, sig := range usage.Compute() {
		if st := t.Stats(sig); st != nil && st.LastActive.After(worked) {
			worked = st.LastActive.Add(j.w.StepOf(st))
		}
	}
	return !drew.IsZero() && drew.After(worked.Add(j.w.StepOf(power)))
}

// busyPower is the power of a GPU, in watts, from which on it does not rest: the threshold, or
// half of the TDP of its model where that is known and less. Boards that keep a context or their
// clocks up draw up to about 40% of it at rest (T4, L4, A10), large ones a quarter.
func busyPower(t Thresholds, tdp float64) float64 {
	if tdp > 0 {
		return min(t.BusyPower, tdp/2)
	}
	return t.BusyPower
}

// whole returns the track of the GPU that a MIG instance is part of, or the track itself.
func (j *judge) whole(t *usage.Track) *usage.Track {
	if parent, part := t.Parent(); part {
		for _, g := range j.w.GPUs {
			if g.Name == parent {
				return g
			}
		}
	}
	return t
}
