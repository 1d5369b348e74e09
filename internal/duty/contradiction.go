package duty

import (
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// contradictions lists pairs of signals of one GPU of which the first cannot be active while the
// second is inactive: kernels keep the engine active, and multiprocessors and tensor pipes work
// only in kernels.
//
// Device memory is not listed: copies keep it busy without a kernel. Neither are inactive
// multiprocessors under utilization: a kernel of one block uses 1 of 132 of them (see isLatched).
// Neither is zero utilization while a profiling metric is active: utilization is the coarser meter
// and reads 0 if it is not supported, so the GPU computes.
var contradictions = [...]struct{ active, inactive usage.Signal }{
	{usage.GPUUtil, usage.GREngine},
	{usage.SMActive, usage.GREngine},
	{usage.TensorActive, usage.SMActive},
	{usage.TensorActive, usage.GREngine},
}

// clearActivity is the share of its range at which a signal certainly shows activity: 10%, ten
// times the floor. Our own choice; meters that sample at different moments differ by less.
const clearActivity = 0.1

// fullScale returns the end of the range of a compute signal.
func fullScale(s usage.Signal) float64 {
	if s == usage.GPUUtil {
		return 100
	}
	return 1
}

// readingText describes the value of a compute signal: "the graphics engine reads 0%".
func readingText(s usage.Signal, v float64) string {
	name := map[usage.Signal]string{
		usage.GPUUtil: "utilization reads ", usage.GREngine: "the graphics engine reads ",
		usage.SMActive:     "its multiprocessors read ",
		usage.TensorActive: "its tensor pipes read ", usage.DRAMActive: "its memory activity reads ",
	}[s]
	return name + plain.Percent(100*v/fullScale(s), 1)
}

func contradictionText(a usage.Signal, va float64, b usage.Signal, vb float64) string {
	return fmt.Sprintf("%s while %s: one of them is wrong", readingText(a, va), readingText(b, vb))
}

// wholeGPU returns the track of the GPU that a MIG instance belongs to, which has its power,
// temperature and energy. For any other GPU it returns the track itself.
func (q *evaluation) wholeGPU(t *track) *track {
	if t.isPart {
		for _, g := range q.k.gpus {
			if g.name == t.parent {
				return g
			}
		}
	}
	return t
}

// contradiction reports why fresh samples of a GPU are not trusted: two of its signals cannot both
// be true, its exporter repeats itself, or its energy meter was reset.
func (q *evaluation) contradiction(t *track) (why string, ok bool) {
	for _, p := range contradictions {
		if t.meterIndex[p.active] == 0 || t.meterIndex[p.inactive] == 0 {
			continue
		}
		a, b := q.read(t, p.active), q.read(t, p.inactive)
		if q.fresh(a) && q.fresh(b) && a.mean >= clearActivity*fullScale(p.active) && b.max < q.floor(b) {
			return q.text(func() string { return contradictionText(p.active, a.mean, p.inactive, b.mean) }), true
		}
	}
	w := q.exporterSignals(t)
	if now := q.fresh(w.energy) && w.energy.mean > 0 && w.drawsPower() && q.isFrozen(w.energy); now {
		return q.text(func() string {
			draw := ""
			if w.power.meter != nil {
				draw = " while it draws " + plain.Number(w.power.mean, 1) + " W"
			}
			return "its energy meter stands still at " + plain.Number(w.energy.mean, 0) + " J" + draw +
				": its exporter is frozen"
		}), true
	}
	if q.fresh(w.power) && q.fresh(w.temperature) && w.drawsPower() && q.isFrozen(w.power) &&
		q.isFrozen(w.temperature) {
		return q.text(func() string {
			return fmt.Sprintf(
				"power stands still at %s W and temperature at %s C for %d samples: its exporter is frozen",
				plain.Number(w.power.mean, 3), plain.Number(w.temperature.mean, 1), usage.Power.FrozenAfter())
		}), true
	}
	if !q.fresh(w.energy) {
		return "", false
	}
	from, at := w.energy.lastFall(q.horizon)
	if at != w.energy.newestAt {
		return "", false
	}
	q.changesWithNextSample(w.energy.meter)
	return q.text(func() string {
		return fmt.Sprintf("its energy meter fell from %s J to %s J: the driver or the exporter was restarted",
			plain.Number(from, 0), plain.Number(w.energy.max, 0))
	}), true
}

// exporterSignals are the signals of a whole GPU that show whether its exporter is alive.
type exporterSignals struct{ power, temperature, energy reading }

func (q *evaluation) exporterSignals(t *track) exporterSignals {
	t = q.wholeGPU(t)
	return exporterSignals{q.read(t, usage.Power), q.read(t, usage.Temperature), q.read(t, usage.Energy)}
}

// drawsPower reports whether the GPU draws power, as every powered GPU does. Without a power
// reading, or with one of 0, a frozen temperature or energy meter proves nothing.
func (w *exporterSignals) drawsPower() bool { return w.power.meter == nil || w.power.mean > 0 }

// trustedSince returns the time from which the meters of a GPU are trusted: the end of the last
// frozen samples or the last reset of its energy meter. It returns never if they always were.
func (q *evaluation) trustedSince(t *track) int64 {
	w := q.exporterSignals(t)
	from := int64(never)
	if w.power.meter != nil && w.temperature.meter != nil && w.drawsPower() {
		power, heat := q.lastFrozen(w.power), q.lastFrozen(w.temperature)
		if power != never && heat >= power {
			from = power + w.power.step()
		}
		if power == w.power.newestAt {
			q.changesWithNextSample(w.power.meter)
		}
	}
	if w.energy.meter != nil && w.energy.mean > 0 && w.drawsPower() {
		if at := q.lastFrozen(w.energy); at != never {
			from = max(from, at+w.energy.step())
		}
	}
	if w.energy.meter != nil {
		_, at := w.energy.lastFall(q.horizon)
		from = max(from, at)
	}
	return from
}

// isFrozen reports whether the newest samples of a meter are equal to the last bit and as many as
// only a frozen exporter sends. If more equal samples could make it so, it notes when.
func (q *evaluation) isFrozen(r reading) bool {
	if r.signal.MayRepeat(r.max) {
		return false
	}
	need := int64(r.signal.FrozenAfter())
	count, at := r.countEqual(r.newestAt, need)
	switch {
	case count < need && r.newestAt < r.end():
		q.changesAt(r.newestAt + (need-count)*r.step())
	case at < q.horizon:
		q.changesWithNextSample(r.meter)
	}
	return count >= need && at >= q.horizon
}

// lastFrozen returns the newest sample of the last frozen sequence, or never.
func (q *evaluation) lastFrozen(r reading) int64 {
	if q.isFrozen(r) {
		return r.newestAt
	}
	if r.repetition != nil && r.repetition.oldest >= q.horizon {
		return r.repetition.frozen
	}
	return never
}

// repetition is the state by which a meter detects a frozen exporter. It exists once a value was
// repeated.
type repetition struct {
	// times of the samples before the newest points that equal the last of them, in order and
	// without that one; at most as many as a frozen sequence needs.
	times []int64
	// frozen is the newest sample of the last frozen sequence, and oldest the oldest sample that
	// the sequence needs to count as frozen.
	frozen, oldest int64
	fall           *fall // the last fall of a meter that should only rise
}

// fall is a sample of a rising meter that was lower than the previous one, which was measured at
// previousAt and read previousValue.
type fall struct {
	at, previousAt int64
	previousValue  float64
}

// recordRepetition updates the repetition state before the newest points are folded.
func (m *meter) recordRepetition() {
	need := m.signal.FrozenAfter()
	before, ok := m.previous()
	equal, falls := ok && before == m.max &&
		!m.signal.MayRepeat(m.max), m.signal == usage.Energy && ok && before > m.max
	if m.repetition == nil {
		if !equal && !falls && m.count == 1 {
			return
		}
		m.repetition = &repetition{frozen: never, oldest: never}
	}
	r := m.repetition
	if falls {
		r.fall = &fall{m.start, m.previousAt, before}
	}
	if count, at := m.countEqual(m.end(), int64(need)); count >= int64(need) {
		r.frozen, r.oldest = m.end(), at
	}
	if equal {
		r.times = append(r.times, m.previousAt)
	} else {
		r.times = r.times[:0]
	}
	for i := max(0, m.count-int64(need)); i < m.count-1 && !m.signal.MayRepeat(m.max); i++ {
		r.times = append(r.times, m.start+i*m.step())
	}
	if over := len(r.times) - (need - 1); over > 0 {
		r.times = slices.Delete(r.times, 0, over)
	}
}

// previous returns the value of the sample before the newest points, of a meter that keeps maxima:
// that sample is the last of them.
func (m *meter) previous() (v float64, ok bool) {
	if n := len(m.maxima); m.previousAt != never && n > 0 {
		return m.maxima[n-1].value, true
	}
	return 0, false
}

// countEqual returns how many samples up to newest are equal, at most need, and the time of the
// oldest of them.
func (m *meter) countEqual(newest, need int64) (count, at int64) {
	if m.signal.MayRepeat(m.max) {
		return 1, newest
	}
	count = 1
	if step := m.step(); step > 0 {
		count = (newest-m.start)/step + 1
	}
	if count >= need {
		return need, newest - (need-1)*m.step()
	}
	if before, ok := m.previous(); !ok || before != m.max {
		return count, m.start
	}
	if need -= count + 1; need == 0 || m.repetition == nil || len(m.repetition.times) == 0 {
		return count + 1, m.previousAt
	}
	times := m.repetition.times
	before := min(int64(len(times)), need)
	return count + 1 + before, times[int64(len(times))-before]
}

// lastFall returns the value before the last fall of a rising meter and the time of the fall, of
// the samples from the horizon on; never without one.
func (m *meter) lastFall(horizon int64) (from float64, at int64) {
	if before, ok := m.previous(); ok && m.previousAt >= horizon && before > m.max {
		return before, m.start
	}
	if m.repetition != nil && m.repetition.fall != nil && m.repetition.fall.previousAt >= horizon {
		return m.repetition.fall.previousValue, m.repetition.fall.at
	}
	return 0, never
}

// restore fills the repetition from the statistics of a window's signal.
func (r *repetition) restore(k *Tracker, m *meter, st *usage.Stats) {
	if m.signal == usage.Energy {
		m.maxima = nil // its last maximum would be taken for the previous sample
	}
	if st.IsFrozen() {
		m.maxima = m.maxima.add(m.previousAt, m.max, k, m)
		for i := range m.signal.FrozenAfter() {
			r.times = append(r.times, m.previousAt-int64(m.signal.FrozenAfter()-i)*m.step())
		}
	}
	if froze := st.LastFrozen(); !froze.IsZero() {
		r.frozen, r.oldest = nanos(froze), nanos(froze)
	}
	if f := st.LastFall(); !f.At.IsZero() {
		if r.fall = (&fall{nanos(f.At), nanos(f.At), f.Before}); f.At.Equal(st.Last) {
			m.maxima = m.maxima.add(m.previousAt, f.Before, k, m)
		}
	}
}

// contradiction returns why the window's signals of a GPU are not trusted: two cannot both be true,
// or its exporter was frozen. It returns "" if they are trusted.
func (j *judge) contradiction(t *usage.Track, works bool) string {
	whole := j.wholeGPU(t)
	power, heat, energy := whole.Stats(usage.Power), whole.Stats(usage.Temperature), whole.Stats(usage.Energy)
	draws := power == nil || power.Max > 0
	switch {
	case energy != nil && energy.Max > 0 && draws && !energy.LastFrozen().IsZero():
		return fmt.Sprintf("its energy meter stood still up to %s: its exporter was frozen",
			plain.Time(energy.LastFrozen()))
	case power != nil && heat != nil && draws && !power.LastFrozen().IsZero() && !heat.LastFrozen().IsZero():
		return fmt.Sprintf("its power and temperature stood still up to %s: its exporter was frozen",
			plain.Time(power.LastFrozen()))
	}
	for _, p := range contradictions {
		a, b := t.Stats(p.active), t.Stats(p.inactive)
		if j.isActive(a) && a.Max >= clearActivity*fullScale(p.active) && j.isKnown(b) && b.Active == 0 {
			return contradictionText(p.active, a.Max, p.inactive, b.Max)
		}
	}
	if !works && power != nil && j.drewPowerAtRest(t, power) {
		return fmt.Sprintf("its meters show no work while it drew up to %s W: one of them is wrong",
			plain.Number(power.Max, 0))
	}
	return ""
}

// drewPowerAtRest reports whether a GPU drew as much power as one at work after its meters last
// showed work. One sample step is tolerated, because meters are read one after another.
func (j *judge) drewPowerAtRest(t *usage.Track, power *usage.Stats) bool {
	var drew, worked time.Time
	line := busyPower(j.thresholds, j.window.GPUPower)
	for at, v := range j.window.Peaks(power) {
		if v >= line {
			drew = at
		}
	}
	for _, sig := range usage.ComputeSignals() {
		if st := t.Stats(sig); st != nil && st.LastActive.After(worked) {
			worked = st.LastActive.Add(j.window.StepOf(st))
		}
	}
	return !drew.IsZero() && drew.After(worked.Add(j.window.StepOf(power)))
}

// busyPower returns the power of a GPU in watts that proves work: the threshold, or half of the TDP
// of its model if that is known and less. Boards that keep a context or high clocks draw up to
// about 40% of the TDP at rest (T4, L4, A10), large ones a quarter.
func busyPower(t Thresholds, tdp float64) float64 {
	if tdp > 0 {
		return min(t.BusyPower, tdp/2)
	}
	return t.BusyPower
}

// wholeGPU returns the track of the GPU that a MIG instance belongs to, or the track itself.
func (j *judge) wholeGPU(t *usage.Track) *usage.Track {
	if parent, part := t.Parent(); part {
		for _, g := range j.window.GPUs {
			if g.Name == parent {
				return g
			}
		}
	}
	return t
}
