package round

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/usage"
)

// series is the points of one meter from one source, in time order.
type series struct {
	gpu    string
	signal usage.Signal
	opened usage.SourceInfo
	points []point
}

// point is a usage.Point of half the size.
type point struct {
	at        int64 // nanoseconds since 1970
	mean, max float64
}

// sampleBuffer buffers the points of a source, because sources deliver them meter by meter and the
// tracker needs them in time order.
type sampleBuffer struct {
	choice    *sourceChoice
	opened    usage.SourceInfo
	series    []*series
	lastIndex int
}

// Add implements usage.Sink.
func (h *sampleBuffer) Add(gpu string, s usage.Signal, p usage.Point) bool {
	var to *series
	for i := range h.series { // points arrive meter by meter, or repeatedly for one
		j := (h.lastIndex + i) % len(h.series)
		if x := h.series[j]; x.signal == s && x.gpu == gpu {
			h.lastIndex, to = j, x
			break
		}
	}
	if to == nil {
		to = &series{gpu: gpu, signal: s, opened: h.opened}
		h.lastIndex = len(h.series)
		h.series, h.choice.samples = append(h.series, to), append(h.choice.samples, to)
	}
	to.points = append(to.points, point{p.Time.UnixNano(), p.Mean, p.Max})
	return true
}

// replaySamples adds the samples of an audit to the tracker in time order, and judges the machine
// at each sample and at each later change up to now.
func (s *subject) replaySamples(all []*series, now time.Time) {
	if len(all) == 0 {
		return
	}
	machine := duty.MachineOf(s.Resource)
	sinks := make([]usage.Sink, len(all))
	for i, x := range all {
		sinks[i] = s.tracker.Open(x.opened)
		if byTime := func(a, b point) int {
			return int(min(max(a.at-b.at, -1), 1))
		}; !slices.IsSortedFunc(x.points, byTime) {
			slices.SortStableFunc(x.points, byTime)
		}
	}
	ask := func(at time.Time) {
		if at.After(now) || at.Before(s.judgedAt) {
			return
		}
		v := s.tracker.Verdict(at, machine)
		s.windowSpans.Add(at, v)
		s.judgedAt, s.nextChange = at, v.Next
	}
	until := func(end time.Time) { // judge at the changes before end
		for s.nextChange.After(s.judgedAt) && s.nextChange.Before(end) && !s.nextChange.After(now) {
			ask(s.nextChange)
		}
	}
	for {
		at, found := int64(0), false
		for _, x := range all {
			if len(x.points) > 0 && (!found || x.points[0].at < at) {
				at, found = x.points[0].at, true
			}
		}
		if !found {
			break
		}
		moment := time.Unix(0, at).UTC()
		until(moment)
		for i, x := range all {
			for len(x.points) > 0 && x.points[0].at == at {
				sinks[i].Add(x.gpu, x.signal, usage.Point{Time: moment, Mean: x.points[0].mean, Max: x.points[0].max})
				x.points = x.points[1:]
			}
		}
		ask(moment)
	}
	until(now.Add(1))
}

// pastSpans returns the states of every resource up to now, over the window of an audit. Machines
// of a gang have the states of the gang.
func (e *Engine) pastSpans(r *Result, now time.Time) map[inventory.Ref][]ledger.Span {
	out := map[inventory.Ref][]ledger.Span{}
	for ref, s := range e.subjects {
		out[ref] = s.pastSpans(now)
	}
	for _, members := range e.gangs {
		if len(members) > 1 || members[0].maybeIncomplete {
			whole := gangSpans(members, now)
			for _, s := range members {
				out[s.ref] = whole
			}
		}
	}
	for ref, w := range r.Windows {
		if s := e.subjects[ref]; s != nil && s.Kind.Traits().Attachable && s.State == inventory.StateAvailable {
			out[ref] = append(out[ref], ledger.Span{From: lastUsed(w), To: now, State: ledger.Unused})
		}
	}
	return out
}

func (s *subject) pastSpans(now time.Time) []ledger.Span {
	if s.judgedAt.IsZero() {
		return nil
	}
	spans := s.windowSpans.Until(now)
	out := make([]ledger.Span, len(spans))
	for i, x := range spans {
		out[i] = ledger.Span(x)
	}
	return out
}

// gangSpans returns the states of a gang as a whole.
func gangSpans(members []*subject, now time.Time) []ledger.Span {
	var moments []time.Time
	spans := make([][]ledger.Span, len(members))
	for i, s := range members {
		spans[i] = s.pastSpans(now)
		moments = append(moments, s.CreatedAt)
		for _, x := range spans[i] {
			moments = append(moments, x.From, x.To)
		}
	}
	slices.SortFunc(moments, time.Time.Compare)
	moments = slices.CompactFunc(moments, time.Time.Equal)
	var out []ledger.Span
	next := make([]int, len(members))
	for i := 0; i+1 < len(moments); i++ {
		from, to := moments[i], moments[i+1]
		var verdicts []duty.Verdict
		for j, s := range members {
			for next[j] < len(spans[j]) && !spans[j][next[j]].To.After(from) {
				next[j]++
			}
			if s.CreatedAt.After(from) || s.ownVerdict == nil {
				continue
			}
			var v duty.Verdict
			if k := next[j]; k < len(spans[j]) && !spans[j][k].From.After(from) {
				v.State = spans[j][k].State
			}
			verdicts = append(verdicts, v)
		}
		if members[0].maybeIncomplete {
			verdicts = append(verdicts, duty.Verdict{})
		}
		state := duty.Gang(verdicts).State
		if n := len(out); state == duty.Unknown {
			continue
		} else if n > 0 && out[n-1].State == state && out[n-1].To.Equal(from) {
			out[n-1].To = to
		} else {
			out = append(out, ledger.Span{From: from, To: to, State: state})
		}
	}
	return out
}

// lastUsed returns the end of the newest sample of a volume's input and output, which providers
// measure only while it is attached; the start of the window without one.
func lastUsed(w *usage.Window) time.Time {
	at := w.From
	for _, sig := range []usage.Signal{usage.DiskOps, usage.DiskBytes} {
		if st := w.Machine.Stats(sig); st != nil {
			if end := st.Last.Add(w.StepOf(st)); end.After(at) {
				at = end
			}
		}
	}
	return at
}
