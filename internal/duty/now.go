package duty

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// present is one judgement of now.
type present struct {
	judge
	// rest is the time in which nothing that decided was active and no sample of it
	// is missing; expires is when the first of what decided becomes too old.
	rest    usage.Stretch
	expires time.Time
	still   string // what rests, for people
}

// Now says what a machine is doing at now, by its newest samples; [Judge] says what
// it has been doing over days. gpus is how many GPUs it has: 0 for a machine without
// any, negative where that is not known. A nil window is a machine nobody measured.
//
// A signal speaks of now when its newest sample is at most three steps old. What is
// measured and too old makes the state unknown wherever it could change it; what
// nobody measures does not. No window is too short: Lasting says for how long the
// state is known to have lasted, up to now or to the end of the newest sample's step.
//
// The machine is busy when a GPU computes, and stalled when it computes while the
// training step and the checkpoints stand still for [Thresholds.StalledAfter].
// Otherwise every GPU must be seen to rest, or the state is unknown (see
// [Thresholds.GPUs] for the other rule). While they rest, data on its way makes it
// starved when a process or memory holds a GPU, and busy when none does. A GPU that
// is held, a session with input or a notebook kernel that executes make it held. A
// CPU that works with nothing held, or traffic that is neither rest nor work, make it
// unknown. Else it is idle. A utilisation of 100 % without a process and without
// memory is unknown: the meter may be latched. In the time after its launch
// ([Thresholds.WarmUp]) a machine that does not compute is warming, whatever else is
// known.
//
// A machine without GPUs is busy when its CPUs or its network work, and idle only
// when both were measured and rest.
func Now(w *usage.Window, gpus int, now time.Time, t Thresholds) Verdict {
	if w == nil {
		return Verdict{Why: "nothing was measured"}
	}
	p := &present{judge: judge{w: w, now: now, t: t.orDefault()}}
	if gpus == 0 && len(w.GPUs) == 0 && !w.Machine.MeasuresCompute() {
		return p.host()
	}
	return p.accelerated(gpus)
}

// accelerated judges a machine with GPUs.
func (p *present) accelerated(gpus int) Verdict {
	p.still = "0 % compute"
	tracks, all := p.tracks()
	seen := make([]moment, 0, len(tracks))
	for _, t := range tracks {
		seen = append(seen, p.moment(t))
	}
	// A series of the whole machine is one more witness that something computes, and
	// a witness of rest only where it speaks for every GPU.
	machine, unnamed := p.moment(&p.w.Machine), p.w.Machine.MeasuresCompute()
	if all == 0 && unnamed && (gpus == 1 || p.w.Aggregated) {
		seen, all = append(seen, machine), max(gpus, 1)
	}
	var v Verdict
	var busy, resting []moment
	unknown := ""
	for _, m := range seen {
		switch m.State {
		case Busy:
			busy = append(busy, m)
		case Unknown:
			if unknown == "" {
				unknown = label(m.gpu) + m.Why
			}
		default:
			resting = append(resting, m)
		}
		if m.Name != "" {
			v.GPUs = append(v.GPUs, m.GPU)
		}
	}
	if len(busy) == 0 && machine.State == Busy {
		busy = append(busy, machine)
	}
	expected := max(gpus, len(seen))
	switch {
	case p.t.GPUs == AnyGPU && len(resting) > 0 && len(resting) < expected:
		v = p.warming(p.one(v, resting, expected))
	case len(busy) > 0:
		v = p.computing(v, busy, len(seen))
	case len(seen) == 0 && unnamed:
		v = p.warming(v.unknown("one series of samples stands for an unknown GPU of several"))
	case len(seen) == 0:
		v = p.warming(v.unknown("its GPUs were not measured"))
	case gpus < 0:
		v = p.warming(v.unknown("nobody knows how many GPUs it has"))
	case all < gpus:
		v = p.warming(v.unknown("%d of %d GPUs were measured", all, gpus))
	case unknown != "":
		v = p.warming(v.unknown("%s", unknown))
	default:
		v = p.warming(p.resting(v, resting))
	}
	v.Evidence = append(p.evidence(v, seen, all, gpus), v.Evidence...)
	return v
}

// computing completes the verdict on a machine of which some GPUs compute.
func (p *present) computing(v Verdict, busy []moment, all int) Verdict {
	tracks := make([]*usage.Track, len(busy))
	v.Coverage = 1
	for i, m := range busy {
		tracks[i] = m.track
		v.Until, v.Expires = later(v.Until, m.stretch.To), later(v.Expires, m.expires)
		v.Coverage = min(v.Coverage, m.Coverage)
	}
	v.State, v.Why = Busy, busy[0].Why
	if all > 1 {
		v.Why = fmt.Sprintf("%d of %d GPUs compute", len(busy), all)
	}
	if s, ok := p.standstill(tracks); ok {
		v = v.since(s.Stretch, s.expires, p.now)
		v.State, v.Why = Stalled, s.why
	}
	return v
}

// one completes the verdict on a machine of which one GPU at rest is enough: an idle
// one rather than a held one, and the one that rests longest.
func (p *present) one(v Verdict, resting []moment, all int) Verdict {
	best := resting[0]
	for _, m := range resting[1:] {
		if (m.State == best.State && m.Lasting > best.Lasting) || (m.State == Idle && best.State != Idle) {
			best = m
		}
	}
	p.rest, p.expires = best.stretch, best.expires
	return p.lasts(v, best.State, fmt.Sprintf("%d of %d GPUs rest: %s%s", len(resting), all, label(best.gpu), best.Why))
}

// resting completes the verdict on a machine none of whose GPUs computes.
func (p *present) resting(v Verdict, gpus []moment) Verdict {
	p.rest, p.expires = gpus[0].stretch, gpus[0].expires
	var held []gpu
	sure := false
	for _, m := range gpus {
		p.rest, p.expires = p.rest.And(m.stretch), earlier(p.expires, m.expires)
		if m.State == Held {
			held, sure = append(held, m.gpu), sure || !m.assumed
		}
	}
	holds := ""
	if len(held) > 0 {
		holds = p.heldWhy(held)
	}
	return p.settle(v, holds, sure)
}

// lasts is the verdict that the machine rests in a state for the time that was found;
// where samples are too old or cover too little of that time it is unknown.
func (p *present) lasts(v Verdict, s State, why string) Verdict {
	switch v.Coverage = p.rest.Coverage; {
	case p.now.After(p.expires):
		return v.unknown("the newest sample of what would decide is too old")
	case v.Coverage < p.t.MinCoverage:
		return v.unknown("samples cover %s %% of the time since it rests", usage.Number(100*v.Coverage, 0))
	}
	v = v.since(p.rest, p.expires, p.now)
	v.State, v.Why = s, why+", "+p.still+" for "+usage.Span(v.Lasting)
	return v
}

// since sets how long the state has lasted, and until when it holds.
func (v Verdict) since(s usage.Stretch, expires, now time.Time) Verdict {
	v.Lasting, v.Since, v.Until, v.Expires, v.Coverage = s.Length(now), earlier(s.From, s.To), s.To, expires, s.Coverage
	return v
}

// warming returns the verdict on a machine that does not compute in view of when it
// was launched.
func (j *judge) warming(v Verdict) Verdict {
	launched := j.w.Launched
	end := launched.Add(j.t.WarmUp)
	if launched.IsZero() || launched.After(j.now) || j.now.After(end) {
		return v
	}
	age := usage.Span(j.now.Sub(launched))
	v.State, v.Why = Warming, "it was launched "+age+" ago"
	v.Evidence = append(v.Evidence, usage.Fact("age", age, "inventory"))
	v.Lasting, v.Since, v.Until, v.Expires = 0, time.Time{}, end, end
	return v
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
