package duty

import (
	"fmt"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// hostMeter is one signal of the whole machine: under idle it rests, from busy on it
// works, and in between the work is unknown.
type hostMeter struct {
	name       string
	idle, busy float64
	rate       bool // the lines are a second
}

// flows are the meters of data on its way, people those of a person at work.
var (
	flows  = [...]usage.Signal{usage.NetBytes, usage.DiskBytes}
	people = [...]usage.Signal{usage.Sessions, usage.Kernels}
	hosts  = [...]usage.Signal{usage.NetBytes, usage.DiskBytes, usage.Sessions, usage.Kernels, usage.CPUUtil}
)

// host returns the lines of a signal of the host.
func (t *Thresholds) host(s usage.Signal) hostMeter {
	switch s {
	case usage.NetBytes:
		return hostMeter{"network", t.IdleNetRate, t.BusyNetRate, true}
	case usage.DiskBytes:
		return hostMeter{"disks", t.IdleDiskRate, t.BusyDiskRate, true}
	case usage.Sessions:
		return hostMeter{"sessions", 1, 1, false}
	case usage.Kernels:
		return hostMeter{"notebook kernels", 1, 1, false}
	}
	return hostMeter{"CPUs", t.IdleCPU, t.BusyCPU, false}
}

// hostReading is a meter of the host as a question sees it.
type hostReading struct {
	hostMeter
	reading
	// level is the peak within the newest sample, a second for rates; speaks is false
	// where the meter does not speak of now.
	level  float64
	speaks bool
}

// host reads a signal of the host.
func (q *question) host(s usage.Signal) hostReading {
	h := hostReading{hostMeter: q.k.t.host(s), reading: q.read(&q.k.machine, s)}
	if unit := h.unit(); q.fresh(h.reading) && unit > 0 {
		h.level, h.speaks = h.max/unit, true
	}
	return h
}

// unit is what a line is multiplied by to be in the unit of the meter's points.
func (h *hostReading) unit() float64 {
	if h.rate && h.meter != nil {
		return h.opened.Step.Seconds()
	}
	return 1
}

// uses narrows the time of rest to that in which a meter was under a line.
func (q *question) uses(h *hostReading, line float64) {
	if h.meter != nil {
		q.rest = q.rest.and(q.under(h.reading, line*h.unit()))
		q.expires = min(q.expires, h.until())
	}
}

// holds says what holds the GPUs of a machine, and sure that this was seen and not
// only assumed.
type holds struct {
	any, sure bool
	why       func() string
}

// settle completes the verdict on a machine that does not compute. Without accelerators
// no machine is idle whose CPU and network are not measured.
func (q *question) settle(v *answer, held holds) {
	for _, s := range flows {
		if q.k.machine.at[s] == 0 {
			continue
		}
		h := q.host(s)
		if !h.speaks || h.level < h.busy {
			continue
		}
		why := func() string { return fmt.Sprintf("%s MB/s cross its %s", plain.Number(h.level/1e6, 1), h.name) }
		if held.sure {
			q.expires = min(q.expires, h.until())
			q.lasts(v, Starved, func() string { return held.why() + " and " + why() })
		} else {
			q.works(v, &h, q.say(why))
		}
		return
	}
	q.quiet(v, held)
}

// works is the verdict that a machine is busy by one of its host meters.
func (q *question) works(v *answer, h *hostReading, why string) {
	now := q.unbroken(h.reading)
	v.State, v.Why, v.Coverage, v.until, v.expires = Busy, why, now.coverage, now.to, h.until()
	if q.now <= q.expires { // what was known before it still has to be
		v.expires = min(v.expires, q.expires)
	}
}

// quiet tells held, idle and unknown where no data is on its way.
func (q *question) quiet(v *answer, held holds) {
	for _, s := range flows {
		if q.k.machine.at[s] == 0 {
			continue
		}
		h := q.host(s)
		if h.meter != nil && !q.fresh(h.reading) {
			v.unknown(q.say(h.tooOld))
			return
		}
		q.uses(&h, h.busy)
	}
	if held.sure {
		q.lasts(v, Held, held.why)
		return
	}
	for _, s := range people {
		if q.k.machine.at[s] == 0 {
			continue
		}
		if h := q.host(s); h.speaks && h.level >= h.busy {
			q.expires = min(q.expires, h.until())
			q.lasts(v, Held, func() string { return plain.Number(h.level, 0) + " of its " + h.name + " at work" })
			return
		}
	}
	for _, s := range hosts {
		required := q.bare && (s == usage.CPUUtil || s == usage.NetBytes)
		if q.k.machine.at[s] == 0 && !required {
			continue
		}
		h := q.host(s)
		switch {
		case h.meter == nil && required:
			v.unknown(q.say(func() string { return "its " + h.name + " is not measured" }))
			return
		case h.meter == nil:
			continue
		case !h.speaks:
			v.unknown(q.say(h.tooOld))
			return
		case h.level >= h.idle:
			v.unknown(q.say(h.between))
			return
		}
		q.uses(&h, h.idle)
	}
	if held.any {
		q.lasts(v, Held, held.why)
	} else {
		q.lasts(v, Idle, func() string { return "nothing held" })
	}
}

func (h *hostReading) tooOld() string { return "the newest sample of its " + h.name + " is too old" }

func (h *hostReading) between() string {
	if h.rate {
		return fmt.Sprintf("%s MB/s cross its %s, which is neither rest nor work",
			plain.Number(h.level/1e6, 2), h.name)
	}
	return fmt.Sprintf("its %s reach %s%% and nothing is held: work, or a loop", h.name, plain.Number(h.level, 0))
}

// host judges a machine without GPUs.
func (q *question) bareHost(v *answer) {
	q.bare = true
	cpu := q.host(usage.CPUUtil)
	if cpu.speaks && cpu.level >= q.k.t.IdleCPU {
		q.expires = never
		q.works(v, &cpu, q.say(func() string { return "CPU reaches " + plain.Percent(cpu.level, 1) }))
	} else {
		q.still = q.say(func() string { return "CPU under " + plain.Percent(q.k.t.IdleCPU, 1) })
		q.rest, q.expires = q.under(cpu.reading, q.k.t.IdleCPU), never
		if cpu.meter != nil {
			q.expires = cpu.until()
		}
		q.settle(v, holds{})
	}
	if v.State != Busy {
		q.warming(v)
	}
	if q.words {
		v.Evidence = append(q.evidence(v, nil, 0), v.Evidence...)
	}
}
