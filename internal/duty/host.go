package duty

import (
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/usage"
)

// hostMeter is one signal of the whole machine: under idle it rests, from busy on it
// works, and in between nobody can tell.
type hostMeter struct {
	signal     usage.Signal
	name       string
	idle, busy float64
	rate       bool // the lines are a second
}

// flows are the meters of data on its way.
func (j *judge) flows() []hostMeter {
	return []hostMeter{
		{usage.NetBytes, "network", j.t.IdleNetRate, j.t.BusyNetRate, true},
		{usage.DiskBytes, "disks", j.t.IdleDiskRate, j.t.BusyDiskRate, true},
	}
}

// people are the meters of somebody at work.
func (j *judge) people() []hostMeter {
	return []hostMeter{{usage.Sessions, "sessions", 1, 1, false}, {usage.Kernels, "notebook kernels", 1, 1, false}}
}

func (j *judge) cpu() hostMeter {
	return hostMeter{usage.CPUUtil, "CPUs", j.t.IdleCPU, j.t.BusyCPU, false}
}

func (j *judge) stats(m hostMeter) *usage.Stats { return j.w.Machine.Stats(m.signal) }

// unit is what a line is multiplied by to be in the unit of the meter's points.
func (j *judge) unit(m hostMeter) float64 {
	if m.rate {
		return j.w.StepOf(j.stats(m)).Seconds()
	}
	return 1
}

// level returns the peak within the newest sample, a second for rates; ok is false
// where the meter does not speak of now.
func (j *judge) level(m hostMeter) (v float64, ok bool) {
	st := j.stats(m)
	if !j.fresh(st) || j.unit(m) <= 0 {
		return 0, false
	}
	v, ok = j.w.Peak(st, st.Last)
	return v / j.unit(m), ok
}

// uses narrows the time of rest to that in which a meter was under a line.
func (p *present) uses(m hostMeter, line float64) {
	if st := p.stats(m); st != nil {
		p.rest = p.rest.And(p.w.Rest(st, line*p.unit(m)))
		p.expires = earlier(p.expires, p.w.Expires(st))
	}
}

// settle completes the verdict on a machine that does not compute. holds says what
// holds its GPUs, and sure that this was seen and not only assumed. required are
// meters without which nothing is idle.
func (p *present) settle(v Verdict, holds string, sure bool, required ...usage.Signal) Verdict {
	for _, m := range p.flows() {
		rate, ok := p.level(m)
		if !ok || rate < m.busy {
			continue
		}
		why := fmt.Sprintf("%s MB/s cross its %s", usage.Number(rate/1e6, 1), m.name)
		if sure {
			p.expires = earlier(p.expires, p.w.Expires(p.stats(m)))
			return p.lasts(v, Starved, holds+" and "+why)
		}
		return p.works(v, m, why)
	}
	state, why := p.quiet(holds, sure, required)
	if state == Unknown {
		return v.unknown("%s", why)
	}
	return p.lasts(v, state, why)
}

// works is the verdict that a machine is busy by one of its host meters.
func (p *present) works(v Verdict, m hostMeter, why string) Verdict {
	now := p.w.Unbroken(p.stats(m))
	v.State, v.Why, v.Coverage, v.Until, v.Expires = Busy, why, now.Coverage, now.To, p.w.Expires(p.stats(m))
	if !p.now.After(p.expires) { // what was known before it still has to be
		v.Expires = earlier(v.Expires, p.expires)
	}
	return v
}

// quiet tells held, idle and unknown where no data is on its way.
func (p *present) quiet(holds string, sure bool, required []usage.Signal) (s State, why string) {
	for _, m := range p.flows() {
		if p.stats(m) != nil && !p.fresh(p.stats(m)) {
			return Unknown, "the newest sample of its " + m.name + " is too old"
		}
		p.uses(m, m.busy)
	}
	if sure {
		return Held, holds
	}
	for _, m := range p.people() {
		if n, ok := p.level(m); ok && n >= m.busy {
			p.expires = earlier(p.expires, p.w.Expires(p.stats(m)))
			return Held, usage.Number(n, 0) + " of its " + m.name + " at work"
		}
	}
	for _, m := range slices.Concat(p.flows(), p.people(), []hostMeter{p.cpu()}) {
		level, ok := p.level(m)
		switch {
		case p.stats(m) == nil && slices.Contains(required, m.signal):
			return Unknown, "nobody measured its " + m.name
		case p.stats(m) == nil:
			continue
		case !ok:
			return Unknown, "the newest sample of its " + m.name + " is too old"
		case level >= m.idle && m.rate:
			return Unknown, fmt.Sprintf("%s MB/s cross its %s, which is neither rest nor work", usage.Number(level/1e6, 2), m.name)
		case level >= m.idle:
			return Unknown, fmt.Sprintf("its %s reach %s %% and nothing is held: work, or a loop", m.name, usage.Number(level, 0))
		}
		p.uses(m, m.idle)
	}
	if holds != "" {
		return Held, holds
	}
	return Idle, "nothing held"
}

// host judges a machine without GPUs.
func (p *present) host() Verdict {
	var v Verdict
	cpu := p.stats(p.cpu())
	if peak, ok := p.level(p.cpu()); ok && peak >= p.t.IdleCPU {
		v = p.works(v, p.cpu(), "CPU reaches "+usage.Number(peak, 1)+" %")
	} else {
		p.still = "CPU under " + usage.Number(p.t.IdleCPU, 1) + " %"
		p.rest, p.expires = p.w.Rest(cpu, p.t.IdleCPU), p.w.Expires(cpu)
		v = p.settle(v, "", false, usage.CPUUtil, usage.NetBytes)
	}
	if v.State != Busy {
		v = p.warming(v)
	}
	v.Evidence = append(p.evidence(v, nil, 0, 0), v.Evidence...)
	return v
}
