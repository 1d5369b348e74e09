package sim

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// telemetry is what is measured of a machine. The zero value is nothing of its
// accelerators.
type telemetry int

const (
	// bare: what every provider measures from outside, CPU and network.
	bare telemetry = iota
	// hosted adds what the metrics agent reads on the host: each GPU's utilisation,
	// memory and power, and the host's memory.
	hosted
	// profiled adds DCGM's profiling fields and the processes that hold a GPU.
	profiled
)

// Source of every simulated measurement.
const Source = "sim"

const (
	// step is what one point of a window stands for, as metrics services roll up, and
	// fineStep in a window of up to fineWindow, which is read before something is done.
	step       = time.Hour
	fineStep   = sampling
	fineWindow = 48 * time.Hour
	// sampling is how often the behaviour is looked at within a step.
	sampling = 5 * time.Minute
	// gatewayWindow is how far back gateways are looked at, whatever the query says:
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

// runs says whether there is something to measure at a time.
func (e *entry) runs(at time.Time) bool {
	r := e.resource
	if e.model == nil || at.Before(r.CreatedAt) {
		return false
	}
	return r.State != inventory.StateStopped || at.Before(r.StateSince)
}

// window rolls up the entry's behaviour over the last back before now, by the
// step; nil when nothing of it is measured. A volume that is attached to nothing is
// measured and has no point.
func (e *entry) window(now time.Time, back time.Duration, floors *usage.Floors) *usage.Window {
	r := e.resource
	behaves := e.model != nil || e.count != nil
	if r.State == inventory.StateStopped || !behaves && (r.Kind != inventory.KindVolume || r.State != inventory.StateAvailable) {
		return nil
	}
	if r.Kind == inventory.KindNATGateway {
		back = max(back, gatewayWindow)
	}
	from := now.Add(-back)
	if r.CreatedAt.After(from) {
		from = r.CreatedAt
	}
	if !now.After(from) {
		return nil
	}
	step := step
	if back <= fineWindow {
		step = fineStep
	}
	w := usage.NewWindow(from, now, step, Source, floors)
	if !behaves {
		return w
	}
	// Points lie on whole steps, and only a step that is over has one.
	first := from.Truncate(step)
	if first.Before(from) {
		first = first.Add(step)
	}
	roll := roller{entry: e, window: w, state: State{GPUs: make([]GPU, e.hardware.gpus)}, gpus: make([]gpuHour, e.hardware.gpus)}
	for hour := first; !hour.Add(step).After(now); hour = hour.Add(step) {
		if !e.lost(hour) {
			roll.hour(hour)
		}
	}
	if e.signals != nil && e.resource.Kind == inventory.KindEndpoint {
		w.Aggregated = true
	}
	return w
}

// lost says whether the telemetry of that hour was not delivered.
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

// gpuHour is one GPU's hour.
type gpuHour struct{ util, sm, tensor, dram, memory, power, processes mean }

// roller turns a behaviour into points.
type roller struct {
	entry  *entry
	window *usage.Window
	state  State
	gpus   []gpuHour
}

// hour adds the points of one hour.
func (r *roller) hour(at time.Time) {
	e, w := r.entry, r.window
	if e.count != nil {
		if v, ok := e.count(at.Truncate(step)); ok {
			if e.counted != usage.Capacity {
				v *= float64(w.Step) / float64(step) // an amount in an hour
			}
			w.Add("", e.counted, usage.Point{Time: at, Mean: v, Max: v})
		}
	}
	if e.model == nil {
		return
	}
	var cpu, host, net, requests mean
	clear(r.gpus)
	for t := at; t.Before(at.Add(w.Step)); t = t.Add(sampling) {
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
			w.Add("", s, net.total(at, w.Step))
		case usage.Requests:
			// Services publish no count for an hour in which there was nothing.
			if requests.sum > 0 {
				w.Add("", s, requests.total(at, w.Step))
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

func (h *gpuHour) add(g GPU) {
	h.util.add(g.Util)
	h.sm.add(g.SMActive)
	h.tensor.add(g.TensorActive)
	h.dram.add(g.DRAMActive)
	h.memory.add(g.Memory)
	h.power.add(g.Power)
	h.processes.add(g.Processes)
}

func (h *gpuHour) write(w *usage.Window, name string, at time.Time, e *entry) {
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
	r.window.Add("", usage.GPUUtil, util)
	r.window.Add("", usage.MemUsed, memory)
	r.window.Add("", usage.MemTotal, usage.Point{Time: at, Mean: total, Max: total})
}
