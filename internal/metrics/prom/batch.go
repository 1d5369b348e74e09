package prom

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// batch holds the series of one response that belong to wanted machines.
type batch struct {
	list []*rawSeries
	// parts holds the series of which statistics were received, by name and labels.
	parts map[string]*rawSeries
}

// rawSeries is one received series.
type rawSeries struct {
	machine *inventory.Resource
	// device is the GPU; nil if the signal describes the machine.
	device *usage.Device
	gpu    string
	signal usage.Signal
	// addend is the metric if the signal is the sum of several metrics; else empty.
	addend string
	points []sample
	// stats holds the statistics of each step of a long interval.
	stats map[string][]point
	// expected is the number of samples in a complete step; 0 if unknown.
	expected float64
}

// sample is one sample, or the aggregate of the samples of a step.
type sample struct {
	at        time.Time
	mean, max float64
	count     float64
}

// machineOf returns the wanted machine that a series belongs to, or nil.
func (r *reading) machineOf(labels map[string]string) *inventory.Resource {
	m := r.found.find(labels)
	if m == nil {
		return nil
	}
	ref := m.Ref()
	if _, ahead := r.clocksAhead[ref]; ahead {
		return nil
	}
	return r.here[ref]
}

func (r *reading) taken(labels map[string]string, signal usage.Signal) *rawSeries {
	m := r.machineOf(labels)
	if m == nil {
		return nil
	}
	t := &rawSeries{machine: m, signal: signal}
	if signal.PerGPU() {
		d := deviceOf(labels)
		d.InMIGMode = !d.IsPart() && (r.migGPUs[gpuKey{m.Ref(), d.UUID}] || r.migGPUs[gpuKey{m.Ref(), d.Index}])
		t.device = &d
		if h, ok := holderOf(d.Name(""), labels); ok {
			r.recordHolder(m.Ref(), h)
		}
	}
	return t
}

// markMIG records that a GPU is in MIG mode: a series says so, or a MIG instance has series.
func (r *reading) markMIG(m *inventory.Resource, d usage.Device) {
	for _, name := range []string{d.UUID, d.Index} {
		if name != "" {
			r.migGPUs[gpuKey{m.Ref(), name}] = true
		}
	}
}

// countImpossible counts a reading that is not a measurement.
func (r *reading) countImpossible(m *inventory.Resource, signal usage.Signal, reading usage.Validity) {
	if reading == usage.Impossible {
		r.impossible[impossibleKey{m.ID, signal}]++
	}
}

// add adds the samples of a series that lie within [from, to).
func (b *batch) add(r *reading, x series, from, to time.Time) {
	name, labels := x.Labels["__name__"], lowerKeys(x.Labels)
	if r.mode(name, labels, x.Points) {
		return
	}
	m, ok := r.words[name]
	if !ok || m.Label != "" && labels[m.Label] != m.Value {
		return
	}
	t := r.taken(labels, m.Signal)
	if t == nil || t.device != nil && !m.NamesGPU(*t.device) {
		return
	}
	t.addend = r.words.addend(name, labels)
	t.points = make([]sample, 0, len(x.Points))
	for _, p := range x.Points {
		at := time.UnixMilli(p.At).UTC()
		if at.Before(from) || !at.Before(to) {
			continue
		}
		v, reading := t.read(m, p.V)
		if reading != usage.Valid {
			r.countImpossible(t.machine, m.Signal, reading)
			continue
		}
		t.points = append(t.points, sample{at, v, v, 1})
	}
	if len(t.points) > 0 {
		b.list = append(b.list, t)
	}
}

// read converts a value of a metric to the unit of its signal.
func (t *rawSeries) read(m usage.Metric, v float64) (float64, usage.Validity) {
	if t.device == nil {
		return m.Read(v, usage.Device{})
	}
	return m.Read(v, *t.device)
}

// mode records whether a GPU is in MIG mode, from a series that reports the mode.
func (r *reading) mode(name string, labels map[string]string, points []point) bool {
	if !slices.Contains(usage.MIGModeMetrics(), name) {
		return false
	}
	if m := r.machineOf(labels); m != nil && slices.ContainsFunc(points, func(p point) bool { return p.V == 1 }) {
		r.markMIG(m, deviceOf(labels))
	}
	return true
}

// value converts a value of a host expression to the value of a point over a step.
func (h hostExpression) value(v float64, step time.Duration) float64 {
	if h.rate {
		v *= step.Seconds()
	}
	return max(v, 0) // slightly more than all CPU time is a rounding error
}

// addHost adds a computed series, whose values describe the step before their time.
func (b *batch) addHost(r *reading, h hostExpression, x series, step time.Duration, from, to time.Time) {
	t := r.taken(lowerKeys(x.Labels), h.signal)
	if t == nil {
		return
	}
	for _, p := range x.Points {
		at := time.UnixMilli(p.At).UTC().Round(step).Add(-step)
		if at.Before(from.Add(-step)) || !at.Before(to.Add(-step)) {
			continue
		}
		v := h.value(p.V, step)
		t.points = append(t.points, sample{at, v, v, 1})
	}
	if len(t.points) > 0 {
		r.every[meterKey{t.machine.Ref(), "", h.signal}] = step
		b.list = append(b.list, t)
	}
}

// addStatistic adds one statistic of a metric's steps.
func (b *batch) addStatistic(r *reading, name, statistic string, x series) {
	m := r.words[name]
	if m.Label != "" && lowerKeys(x.Labels)[m.Label] != m.Value {
		return
	}
	b.statistic(r, m.Signal, name, statistic, x, func(t *rawSeries, v float64) (float64, bool) {
		v, reading := t.read(m, v)
		if reading == usage.Impossible && statistic == "max" {
			r.countImpossible(t.machine, m.Signal, reading)
		}
		return v, reading == usage.Valid
	})
}

// addHostStatistic adds one statistic of a host expression's steps.
func (b *batch) addHostStatistic(r *reading, h hostExpression, statistic string, x series, step time.Duration) {
	t := b.statistic(r, h.signal, "", statistic, x, func(_ *rawSeries, v float64) (float64, bool) {
		return h.value(v, step), true
	})
	if t != nil {
		t.expected = float64(step / min(subStep, step))
	}
}

// statistic adds one statistic of a series. The first one creates the series.
func (b *batch) statistic(r *reading, signal usage.Signal, name, statistic string, x series,
	value func(t *rawSeries, v float64) (float64, bool)) *rawSeries {
	labels := lowerKeys(x.Labels)
	delete(labels, "__name__") // some servers keep it, for some of the statistics
	key := name + "\x00" + signature(labels)
	t := b.parts[key]
	if t == nil {
		t = r.taken(labels, signal)
		if t == nil || t.device != nil && !r.words[name].NamesGPU(*t.device) {
			return nil
		}
		t.addend = r.words.addend(name, labels)
		if b.parts == nil {
			b.parts = map[string]*rawSeries{}
		}
		t.stats = map[string][]point{}
		b.parts[key], b.list = t, append(b.list, t)
	}
	for _, p := range x.Points {
		v, ok := p.V, true
		if statistic != statistics[0] {
			v, ok = value(t, v)
		}
		if ok {
			t.stats[statistic] = append(t.stats[statistic], point{At: p.At, V: v})
		}
	}
	return t
}

// signature returns the labels as a map key.
func signature(labels map[string]string) string {
	keys := make([]string, 0, len(labels))
	for k := range labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out []byte
	for _, k := range keys {
		out = append(append(append(append(out, k...), 0), labels[k]...), 0)
	}
	return string(out)
}

// addSteps makes one point for each step that has all of its statistics.
func (b *batch) addSteps(step time.Duration) {
	for _, t := range b.list {
		means, counts := byTime(t.stats["avg"]), byTime(t.stats["count"])
		for _, p := range t.stats["max"] {
			mean, ok := means[p.At]
			count := counts[p.At]
			if !ok || count <= 0 {
				continue
			}
			at := time.UnixMilli(p.At).UTC().Round(step).Add(-step)
			t.points = append(t.points, sample{at, min(mean, p.V), p.V, count})
		}
		t.stats = nil
	}
	b.list = slices.DeleteFunc(b.list, func(t *rawSeries) bool { return len(t.points) == 0 })
}

func byTime(points []point) map[int64]float64 {
	out := make(map[int64]float64, len(points))
	for _, p := range points {
		out[p.At] = p.V
	}
	return out
}

// identify decides which GPU each series belongs to. A series without a UUID gets the UUID that
// another series has for the same place in the machine. The utilization of a GPU with MIG instances
// is dropped: only that of its instances is meaningful.
func (b *batch) identify(r *reading) {
	type place struct {
		ref   inventory.Ref
		index string
	}
	uuids := map[place]string{}
	for _, t := range b.list {
		if t.device == nil {
			continue
		}
		if t.device.UUID != "" && t.device.Index != "" {
			uuids[place{t.machine.Ref(), t.device.Index}] = t.device.UUID
		}
		if t.device.Instance != "" {
			r.markMIG(t.machine, *t.device)
		}
	}
	b.list = slices.DeleteFunc(b.list, func(t *rawSeries) bool {
		if t.device == nil {
			return false
		}
		t.gpu = t.device.Name(uuids[place{t.machine.Ref(), t.device.Index}])
		return t.signal == usage.GPUUtil && !t.device.IsPart() && (r.migGPUs[gpuKey{t.machine.Ref(), t.device.UUID}] ||
			r.migGPUs[gpuKey{t.machine.Ref(), t.device.Index}])
	})
}

// merged is the series of one meter: replicas, and duplicates that differ in job, pod or exporter.
type merged struct {
	key     meterKey
	machine *inventory.Resource
	series  []*rawSeries
}

// meters groups series by meter, in a fixed order, those with the most samples first.
func (b *batch) meters() []*merged {
	known := map[meterKey]*merged{}
	var out []*merged
	for _, t := range b.list {
		k := meterKey{t.machine.Ref(), t.gpu, t.signal}
		m := known[k]
		if m == nil {
			m = &merged{key: k, machine: t.machine}
			known[k], out = m, append(out, m)
		}
		m.series = append(m.series, t)
	}
	for _, m := range out {
		slices.SortStableFunc(m.series, func(a, b *rawSeries) int { return len(b.points) - len(a.points) })
		m.series = sumParts(m.series)
	}
	slices.SortStableFunc(out, func(a, b *merged) int {
		return cmp.Or(cmp.Compare(a.key.ref.ID, b.key.ref.ID), usage.CompareGPUs(a.key.gpu, b.key.gpu),
			cmp.Compare(a.key.signal, b.key.signal))
	})
	return out
}

// sumParts sums the parts of a signal where their times agree. Of replicas of one part the higher
// value is used.
func sumParts(series []*rawSeries) []*rawSeries {
	if len(series) < 2 || series[0].addend == "" {
		return series
	}
	parts := map[string][]sample{}
	for _, t := range series {
		if known := parts[t.addend]; known != nil {
			parts[t.addend] = overlay(known, t.points)
		} else {
			parts[t.addend] = t.points
		}
	}
	sums := map[time.Time]sample{}
	for _, points := range parts {
		for _, p := range points {
			sum := sums[p.at]
			sums[p.at] = sample{p.at, sum.mean + p.mean, sum.max + p.max, max(sum.count, p.count)}
		}
	}
	all := *series[0]
	all.points = slices.SortedFunc(maps.Values(sums), func(a, b sample) int { return a.at.Compare(b.at) })
	return []*rawSeries{&all}
}

// sampleInterval returns the most frequent interval between samples in whole seconds, or 0 if there are too
// few samples.
func sampleInterval(points []sample) time.Duration {
	const enough = 4
	if len(points) < enough {
		return 0
	}
	gaps := make([]time.Duration, 0, len(points)-1)
	for i := 1; i < len(points); i++ {
		gaps = append(gaps, points[i].at.Sub(points[i-1].at))
	}
	slices.Sort(gaps)
	return max(gaps[len(gaps)/2].Round(time.Second), time.Second)
}

// deliver passes the points on, per meter in time order.
func (b *batch) deliver(r *reading) {
	b.identify(r)
	for _, m := range b.meters() {
		points, step := r.points(m)
		if len(points) == 0 {
			continue
		}
		r.hand(m, m.key.signal, points, step, 1)
		gpu := gpuKey{m.key.ref, m.key.gpu}
		switch m.key.signal {
		case usage.GPUUtil:
			r.utilized[gpu] = true
		case usage.GREngine: // a substitute for utilization where that is not measured
			if !r.utilized[gpu] {
				r.hand(m, usage.GPUUtil, points, step, 100)
			}
		}
	}
}

func (r *reading) hand(m *merged, signal usage.Signal, points []sample, step time.Duration, scale float64) {
	to := r.sink(m.machine, step)
	if to == nil {
		return
	}
	for _, p := range points {
		if p.at.Before(r.iv.From) || !p.at.Before(r.iv.To) {
			continue
		}
		to.Add(m.key.gpu, signal, usage.Point{Time: p.at, Mean: scale * p.mean, Max: scale * p.max})
	}
}

// points returns the points of a meter and the time that each covers.
func (r *reading) points(m *merged) ([]sample, time.Duration) {
	best := m.series[0]
	if r.iv.To.Sub(r.iv.From) > fineLength {
		return r.completeSteps(m), r.iv.Step
	}
	if !best.signal.PerGPU() {
		return mergeReplicas(m.series, r.every[m.key]), r.every[m.key]
	}
	every := sampleInterval(best.points)
	if known := r.every[m.key]; known > 0 && (every == 0 || every*10 > known*8 && every*10 < known*12) {
		every = known
	}
	if every == 0 {
		every = max(r.iv.Step, defaultStep)
	} else {
		r.every[m.key] = every
	}
	if every >= r.iv.Step {
		return mergeReplicas(m.series, every), every
	}
	return r.bucket(m, every), r.iv.Step
}

// mergeReplicas merges the samples of all replicas of a series. Samples within half an interval of each
// other become one with the higher value.
func mergeReplicas(series []*rawSeries, every time.Duration) []sample {
	out := series[0].points
	for _, other := range series[1:] {
		next := make([]sample, 0, len(out)+len(other.points))
		i := 0
		for _, p := range other.points {
			for i < len(out) && out[i].at.Add(every/2).Before(p.at) {
				next = append(next, out[i])
				i++
			}
			if i < len(out) && !out[i].at.Add(-every/2).After(p.at) {
				out[i].max, out[i].mean = max(out[i].max, p.max), max(out[i].mean, p.mean)
				continue
			}
			next = append(next, p)
		}
		out = append(next, out[i:]...)
	}
	return out
}

// bucket aggregates samples that are closer than a step. A step with too few samples is used only
// if it shows activity.
func (r *reading) bucket(m *merged, every time.Duration) []sample {
	step, floor := r.iv.Step, usage.DefaultFloors()[m.key.signal]
	var out []sample
	for n, t := range m.series {
		own := inSteps(t.points, step)
		if n == 0 {
			out = own
		} else {
			out = overlay(out, own)
		}
	}
	expected := float64(step) / float64(every)
	newest := out[len(out)-1].at
	return slices.DeleteFunc(out, func(p sample) bool {
		return p.count < expected/2 && p.max < floor && p.at.Before(newest)
	})
}

// inSteps aggregates samples in time order to one sample a step.
func inSteps(points []sample, step time.Duration) []sample {
	var out []sample
	for _, p := range points {
		at := p.at.Truncate(step)
		if last := len(out) - 1; last >= 0 && out[last].at.Equal(at) {
			out[last].mean += p.mean
			out[last].max = max(out[last].max, p.max)
			out[last].count++
			continue
		}
		out = append(out, sample{at, p.mean, p.max, 1})
	}
	for i := range out {
		out[i].mean /= out[i].count
	}
	return out
}

// overlay merges two replicas on the same grid: the higher values and sample count at each time.
func overlay(a, b []sample) []sample {
	all := append(slices.Clone(a), b...)
	slices.SortStableFunc(all, func(x, y sample) int { return x.at.Compare(y.at) })
	out := all[:0]
	for _, p := range all {
		if last := len(out) - 1; last >= 0 && out[last].at.Equal(p.at) {
			out[last].mean, out[last].max, out[last].count = max(out[last].mean, p.mean), max(out[last].max,
				p.max), max(out[last].count, p.count)
			continue
		}
		out = append(out, p)
	}
	return out
}

// minCoverage is the share of its expected samples that a step of a long interval needs to prove
// idleness.
const minCoverage = 0.9

// completeSteps returns the steps of a long interval that have enough samples or show activity.
func (r *reading) completeSteps(m *merged) []sample {
	out := m.series[0].points
	for _, other := range m.series[1:] {
		out = overlay(out, other.points)
	}
	expected := m.series[0].expected
	if every := r.every[m.key]; expected == 0 && every > 0 {
		expected = float64(r.iv.Step) / float64(every)
	}
	if expected == 0 {
		for _, p := range out {
			expected = max(expected, p.count)
		}
	}
	floor := usage.DefaultFloors()[m.key.signal]
	kept := make([]sample, 0, len(out))
	for _, p := range out {
		share := p.count / math.Max(expected, 1)
		if m.key.signal.PerGPU() {
			if r.sampled++; share < 0.5 {
				r.thinned++
				if end := p.at.Add(r.iv.Step); end.After(r.until) {
					r.until = end
				}
			}
		}
		if share >= minCoverage || p.max >= floor && floor > 0 {
			kept = append(kept, p)
		}
	}
	return kept
}
