package sim

import (
	"context"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// telemetry is the set of signals of a machine. The zero value has none of its accelerators. The
// zero value is nothing of its accelerators.
type telemetry int

const (
	// bare: CPU and network, which every provider measures from outside.
	bare telemetry = iota
	// hosted adds the metrics of the agent on the host: each GPU's utilization, memory and power,
	// and the host's memory.
	hosted
	// profiled adds DCGM's profiling fields and the processes that hold a GPU.
	profiled
)

// Source of every simulated measurement.
const Source = "sim"

const (
	// step is the length of one point, as metrics services roll up, and fineStep that in an
	// interval of up to fineWindow, which is read before an action, where the caller leaves the
	// choice.
	step       = time.Hour
	fineStep   = sampling
	fineWindow = 48 * time.Hour
	// sampling is how often the behavior is looked at within a step.
	sampling = 5 * time.Minute
	// gatewayWindow is how far back gateways are looked at, whatever the interval:
	// 30 days without a byte is the field's line for an unused one.
	gatewayWindow = 30 * 24 * time.Hour
)

// outage is time in which a machine's telemetry was not delivered, as ages of the
// machine.
type outage struct{ from, to time.Duration }

// at returns the entry's state at a time.
func (e *entry) at(at time.Time) (State, bool) {
	if !e.runs(at) {
		return State{}, false
	}
	var s State
	if e.hardware.gpus > 0 {
		s.GPUs = make([]GPU, e.hardware.gpus)
	}
	e.model(e.moment(at), &s)
	return s, true
}

func (e *entry) moment(at time.Time) moment {
	return moment{key: e.key, hardware: e.hardware, at: at, age: at.Sub(e.resource.CreatedAt), unix: at.Unix()}
}

// runs reports whether there is something to measure at a time.
func (e *entry) runs(at time.Time) bool {
	r := e.resource
	if e.model == nil || at.Before(r.CreatedAt) {
		return false
	}
	return r.State != inventory.StateStopped || at.Before(r.StateSince)
}

// Name implements [usage.Source].
func (c *Cloud) Name() string { return Source }

// Measure implements [usage.Source]: it rolls up, by any step of a second or more, what
// resources of this account did. Points lie on whole steps, and only a step that is over
// has one. Gateways are read as far back as the rules about them look, by the hour or a
// longer step. It returns ctx's error when ctx ends, and no other.
func (c *Cloud) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(r *inventory.Resource, o usage.SourceInfo) usage.Sink,
) (usage.MeasureResult, error) {
	iv.From, iv.To = iv.From.UTC(), iv.To.UTC()
	c.mu.Lock()
	byRef := map[inventory.Ref]*entry{}
	for _, e := range c.at(iv.To).entries {
		byRef[e.resource.Ref()] = e
	}
	c.mu.Unlock()
	var out usage.MeasureResult
	dark := map[string]bool{}
	for _, region := range Regions() {
		dark[region] = slices.ContainsFunc(c.options.BlindSpots, func(b Blindness) bool {
			return b.Kind == "" && (b.Region == "" || b.Region == region)
		})
		if dark[region] {
			out.BlindSpots = append(out.BlindSpots, inventory.BlindSpot{What: "usage in " + region,
				Why: "AccessDenied: metrics", Effect: "rules that need usage are not evaluated in " + region})
		}
	}
	for _, r := range resources {
		if err := ctx.Err(); err != nil {
			return usage.MeasureResult{}, err
		}
		if e := byRef[r.Ref()]; e != nil && !dark[r.Region] {
			e.measure(r, iv, open)
		}
	}
	return out, ctx.Err()
}

// measure rolls up the entry's behavior over an interval, where something of it is
// measured. A volume that is unattached is measured and has no point.
func (e *entry) measure(r *inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) {
	behaves := e.model != nil || e.count != nil
	if r.State == inventory.StateStopped || !behaves &&
		(r.Kind != inventory.KindVolume || r.State != inventory.StateAvailable) {
		return
	}
	o := usage.SourceInfo{
		From: iv.From, Step: max(iv.Step, time.Second), Source: Source,
		Aggregated: r.Kind == inventory.KindEndpoint && e.signals != nil,
	}
	if iv.Step <= 0 {
		o.Step = step
		if iv.To.Sub(iv.From) <= fineWindow {
			o.Step = fineStep
		}
	}
	if r.Kind == inventory.KindNATGateway {
		o.Step = max(o.Step, step)
		if back := iv.To.Add(-gatewayWindow); back.Before(o.From) {
			o.From = back
		}
	}
	if r.CreatedAt.After(o.From) {
		o.From = r.CreatedAt
	}
	if !iv.To.After(o.From) {
		return
	}
	sink := open(r, o)
	if sink == nil || !behaves {
		return
	}
	at := o.From.Truncate(o.Step)
	if at.Before(o.From) {
		at = at.Add(o.Step)
	}
	roll := roller{
		entry: e, sink: sink, step: o.Step, state: State{GPUs: make([]GPU, e.hardware.gpus)},
		gpus: make([]gpuMeans, e.hardware.gpus),
	}
	for ; !at.Add(o.Step).After(iv.To); at = at.Add(o.Step) {
		if !e.lost(at) {
			roll.up(at)
		}
	}
}

// lost reports whether the telemetry of that hour was not delivered.
func (e *entry) lost(hour time.Time) bool {
	age := hour.Sub(e.resource.CreatedAt)
	for _, o := range e.outages {
		if age >= o.from && age < o.to {
			return true
		}
	}
	return false
}

// mean collects the samples of one quantity over a step.
type mean struct {
	sum, max float64
	n        int
}

func (m *mean) add(v float64) {
	m.sum += v
	m.max = max(m.max, v)
	m.n++
}

func (m mean) point(at time.Time) usage.Point {
	return usage.Point{Time: at, Mean: m.sum / float64(m.n), Max: m.max}
}

// total is the point of a quantity a second, summed over a step.
func (m mean) total(at time.Time, step time.Duration) usage.Point {
	v := m.sum / float64(m.n) * step.Seconds()
	return usage.Point{Time: at, Mean: v, Max: v}
}

// gpuMeans is one GPU's step.
type gpuMeans struct{ util, sm, tensor, dram, memory, power, processes mean }

// roller turns a behavior into points.
type roller struct {
	entry *entry
	sink  usage.Sink
	step  time.Duration
	state State
	gpus  []gpuMeans
}

// counted sums the counts in the hours of a step; a shorter one has its part.
func (r *roller) counted(at time.Time) {
	var hours mean
	for hour := at.Truncate(step); hour.Before(at.Add(r.step)); hour = hour.Add(step) {
		if v, ok := r.entry.count(hour); ok {
			hours.add(v)
		}
	}
	switch {
	case hours.n == 0:
	case r.entry.counted == usage.Capacity:
		r.sink.Add("", usage.Capacity, hours.point(at))
	default:
		v := hours.sum * min(1, float64(r.step)/float64(step))
		r.sink.Add("", r.entry.counted, usage.Point{Time: at, Mean: v, Max: v})
	}
}

// up adds the points of one step.
func (r *roller) up(at time.Time) {
	e, w := r.entry, r.sink
	if e.count != nil {
		r.counted(at)
	}
	if e.model == nil {
		return
	}
	var cpu, host, net, requests mean
	clear(r.gpus)
	for t := at; t.Before(at.Add(r.step)); t = t.Add(min(sampling, r.step)) {
		clear(r.state.GPUs)
		r.state = State{GPUs: r.state.GPUs}
		e.model(e.moment(t), &r.state)
		cpu.add(r.state.CPU)
		host.add(r.state.HostMemory)
		net.add(r.state.Network)
		requests.add(r.state.Requests)
		for i, g := range r.state.GPUs {
			r.gpus[i].add(g)
		}
	}
	for _, s := range e.signals {
		switch s {
		case usage.CPUUtil:
			w.Add("", s, cpu.point(at))
		case usage.NetBytes:
			w.Add("", s, net.total(at, r.step))
		case usage.Requests:
			// Services publish no count for an hour in which there was nothing.
			if requests.sum > 0 {
				w.Add("", s, requests.total(at, r.step))
			}
		}
	}
	if e.telemetry == bare || !e.hardware.nvidia {
		return
	}
	if e.resource.Kind == inventory.KindInstance {
		w.Add("", usage.HostMemUsed, host.point(at))
	}
	if e.resource.Kind == inventory.KindEndpoint {
		r.aggregate(at)
		return
	}
	for i := range r.gpus {
		r.gpus[i].write(w, gpuNames[i], at, e)
	}
}

var gpuNames = [...]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"}

func (h *gpuMeans) add(g GPU) {
	h.util.add(g.Util)
	h.sm.add(g.SMActive)
	h.tensor.add(g.TensorActive)
	h.dram.add(g.DRAMActive)
	h.memory.add(g.Memory)
	h.power.add(g.Power)
	h.processes.add(g.Processes)
}

func (h *gpuMeans) write(w usage.Sink, name string, at time.Time, e *entry) {
	w.Add(name, usage.GPUUtil, h.util.point(at))
	w.Add(name, usage.MemUsed, h.memory.point(at))
	w.Add(name, usage.MemTotal, usage.Point{Time: at, Mean: e.hardware.memory, Max: e.hardware.memory})
	w.Add(name, usage.Power, h.power.point(at))
	if e.telemetry == profiled {
		w.Add(name, usage.SMActive, h.sm.point(at))
		w.Add(name, usage.TensorActive, h.tensor.point(at))
		w.Add(name, usage.DRAMActive, h.dram.point(at))
		w.Add(name, usage.Processes, h.processes.point(at))
	}
}

// aggregate writes one series for all GPUs, their maximum, as managed endpoints
// publish.
func (r *roller) aggregate(at time.Time) {
	var util, memory usage.Point
	for i := range r.gpus {
		u, m := r.gpus[i].util.point(at), r.gpus[i].memory.point(at)
		util = usage.Point{Time: at, Mean: max(util.Mean, u.Mean), Max: max(util.Max, u.Max)}
		memory = usage.Point{Time: at, Mean: max(memory.Mean, m.Mean), Max: max(memory.Max, m.Max)}
	}
	if len(r.gpus) == 0 {
		return
	}
	total := r.entry.hardware.memory
	r.sink.Add("", usage.GPUUtil, util)
	r.sink.Add("", usage.MemUsed, memory)
	r.sink.Add("", usage.MemTotal, usage.Point{Time: at, Mean: total, Max: total})
}
