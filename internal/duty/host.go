package duty

import (
	"fmt"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// hostLimits are the limits of a signal of the whole machine: below idle it rests, from busy on it
// works, and in between its work is unknown.
type hostLimits struct {
	name       string
	idle, busy float64
	perSecond  bool // idle and busy are per second
}

// transferSignals measure data transfers, userSignals a person at work.
var (
	transferSignals = [...]usage.Signal{usage.NetBytes, usage.DiskBytes}
	userSignals     = [...]usage.Signal{usage.Sessions, usage.Kernels}
	hostSignals     = [...]usage.Signal{usage.NetBytes, usage.DiskBytes, usage.Sessions, usage.Kernels, usage.CPUUtil}
)

// hostLimits returns the limits of a host signal.
func (t *Thresholds) hostLimits(s usage.Signal) hostLimits {
	switch s {
	case usage.NetBytes:
		return hostLimits{"network", t.IdleNetRate, t.BusyNetRate, true}
	case usage.DiskBytes:
		return hostLimits{"disks", t.IdleDiskRate, t.BusyDiskRate, true}
	case usage.Sessions:
		return hostLimits{"sessions", 1, 1, false}
	case usage.Kernels:
		return hostLimits{"notebook kernels", 1, 1, false}
	}
	return hostLimits{"CPUs", t.IdleCPU, t.BusyCPU, false}
}

// hostReading is a host signal at the time of an evaluation.
type hostReading struct {
	hostLimits
	reading
	// level is the peak within the newest sample, per second for rates. isFresh is false if the
	// newest sample is missing or too old.
	level   float64
	isFresh bool
}

// readHost reads a host signal.
func (q *evaluation) readHost(s usage.Signal) hostReading {
	h := hostReading{hostLimits: q.k.thresholds.hostLimits(s), reading: q.read(&q.k.machine, s)}
	if unit := h.unit(); q.fresh(h.reading) && unit > 0 {
		h.level, h.isFresh = h.max/unit, true
	}
	return h
}

// unit returns the factor from the unit of a limit to that of the meter's points.
func (h *hostReading) unit() float64 {
	if h.perSecond && h.meter != nil {
		return h.opened.Step.Seconds()
	}
	return 1
}

// narrowRestByHost cuts the rest period to the time in which a host signal was below a limit.
func (q *evaluation) narrowRestByHost(h *hostReading, line float64) {
	if h.meter != nil {
		q.restPeriod = q.restPeriod.intersect(q.quietBelow(h.reading, line*h.unit()))
		q.expires = min(q.expires, h.freshUntil())
	}
}

// holding describes how the GPUs of a machine are held. certain means by a measurement, not by
// assumption.
type holding struct {
	found, certain bool
	why            func() string
}

// judgeWithoutCompute completes the verdict on a machine that does not compute. A machine without
// GPUs is never idle if its CPU or network is not measured.
func (q *evaluation) judgeWithoutCompute(v *verdictBuilder, held holding) {
	for _, s := range transferSignals {
		if q.k.machine.meterIndex[s] == 0 {
			continue
		}
		h := q.readHost(s)
		if !h.isFresh || h.level < h.busy {
			continue
		}
		why := func() string { return fmt.Sprintf("%s MB/s cross its %s", plain.Number(h.level/1e6, 1), h.name) }
		if held.certain {
			q.expires = min(q.expires, h.freshUntil())
			q.setResting(v, Starved, func() string { return held.why() + " and " + why() })
		} else {
			q.setBusyByHost(v, &h, q.text(why))
		}
		return
	}
	q.judgeWithoutTransfer(v, held)
}

// setBusyByHost sets the verdict busy because of a host signal.
func (q *evaluation) setBusyByHost(v *verdictBuilder, h *hostReading, why string) {
	now := q.unbroken(h.reading)
	v.State, v.Why, v.Coverage, v.until, v.expires = Busy, why, now.coverage, now.to, h.freshUntil()
	if q.now <= q.expires { // the verdict also depends on the signals that were read before
		v.expires = min(v.expires, q.expires)
	}
}

// judgeWithoutTransfer decides between held, idle and unknown if no data is being transferred.
func (q *evaluation) judgeWithoutTransfer(v *verdictBuilder, held holding) {
	for _, s := range transferSignals {
		if q.k.machine.meterIndex[s] == 0 {
			continue
		}
		h := q.readHost(s)
		if h.meter != nil && !q.fresh(h.reading) {
			v.setUnknown(q.text(h.tooOldText))
			return
		}
		q.narrowRestByHost(&h, h.busy)
	}
	if held.certain {
		q.setResting(v, Held, held.why)
		return
	}
	for _, s := range userSignals {
		if q.k.machine.meterIndex[s] == 0 {
			continue
		}
		if h := q.readHost(s); h.isFresh && h.level >= h.busy {
			q.expires = min(q.expires, h.freshUntil())
			q.setResting(v, Held, func() string { return plain.Number(h.level, 0) + " of its " + h.name + " at work" })
			return
		}
	}
	for _, s := range hostSignals {
		required := q.hostOnly && (s == usage.CPUUtil || s == usage.NetBytes)
		if q.k.machine.meterIndex[s] == 0 && !required {
			continue
		}
		h := q.readHost(s)
		switch {
		case h.meter == nil && required:
			v.setUnknown(q.text(func() string { return "its " + h.name + " is not measured" }))
			return
		case h.meter == nil:
			continue
		case !h.isFresh:
			v.setUnknown(q.text(h.tooOldText))
			return
		case h.level >= h.idle:
			v.setUnknown(q.text(h.betweenText))
			return
		}
		q.narrowRestByHost(&h, h.idle)
	}
	if held.found {
		q.setResting(v, Held, held.why)
	} else {
		q.setResting(v, Idle, func() string { return "nothing held" })
	}
}

func (h *hostReading) tooOldText() string {
	return "the newest sample of its " + h.name + " is too old"
}

func (h *hostReading) betweenText() string {
	if h.perSecond {
		return fmt.Sprintf("%s MB/s cross its %s, which is neither rest nor work",
			plain.Number(h.level/1e6, 2), h.name)
	}
	return fmt.Sprintf("its %s reach %s%% and nothing is held: work, or a loop", h.name, plain.Number(h.level, 0))
}

// judgeHostOnly judges a machine without GPUs.
func (q *evaluation) judgeHostOnly(v *verdictBuilder) {
	q.hostOnly = true
	cpu := q.readHost(usage.CPUUtil)
	if cpu.isFresh && cpu.level >= q.k.thresholds.IdleCPU {
		q.expires = never
		q.setBusyByHost(v, &cpu, q.text(func() string { return "CPU reaches " + plain.Percent(cpu.level, 1) }))
	} else {
		q.restText = q.text(func() string { return "CPU under " + plain.Percent(q.k.thresholds.IdleCPU, 1) })
		q.restPeriod, q.expires = q.quietBelow(cpu.reading, q.k.thresholds.IdleCPU), never
		if cpu.meter != nil {
			q.expires = cpu.freshUntil()
		}
		q.judgeWithoutCompute(v, holding{})
	}
	if v.State != Busy {
		q.applyWarmUp(v)
	}
	if q.withText {
		v.Evidence = append(q.evidence(v, nil, 0), v.Evidence...)
	}
}
