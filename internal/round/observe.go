package round

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// overlap is the time that is read again in the next round, because sources publish late:
// CloudWatch's agent metrics arrive within a few minutes.
const overlap = 10 * time.Minute

// observe lists the resources and reads their usage since the previous round.
func (e *Engine) observe(ctx context.Context, r *Result, now time.Time) error {
	q := e.Query
	q.Now = now
	o, err := e.Lister.List(ctx, q)
	if err != nil {
		return err
	}
	r.Observation = *o
	r.Sort()
	for _, res := range r.Resources {
		e.Prices.Fill(res)
	}
	if e.Owners != nil {
		spots, err := e.Owners(ctx, r.Resources, now)
		if err != nil {
			return err
		}
		r.BlindSpots = append(r.BlindSpots, spots...)
	}
	fresh := e.sync(r.Resources)
	for _, members := range e.gangs {
		missing := unreadAnywhere(r.Unread, members[0].Account, members[0].Kind)
		for _, s := range members {
			s.maybeIncomplete = missing
		}
	}
	if err := e.measure(ctx, r, fresh, now); err != nil {
		return err
	}
	r.Sort()
	e.readUntil = now
	return nil
}

// sync updates the subjects from a listing. It returns those without samples: new ones, and new
// resources under a known name.
func (e *Engine) sync(resources []*inventory.Resource) (fresh map[*subject]bool) {
	fresh = map[*subject]bool{}
	e.listCount++
	before, distinct := e.listed, 0
	e.listed = make([]*subject, 0, len(resources))
	for i, r := range resources {
		ref := r.Ref()
		var s *subject
		if i < len(before) && before[i].Resource == r { // unchanged and at the same position
			s = before[i]
		} else {
			s = e.subjects[ref]
		}
		switch {
		case s == nil:
			s = &subject{Resource: r, ref: ref, dirty: true}
			e.subjects[ref] = s
			e.chargesCurrent, fresh[s] = false, true
		case s.Resource != r:
			if !r.CreatedAt.Equal(s.CreatedAt) || r.Incarnation != s.Incarnation || r.State != s.State {
				s.tracker, s.windowSpans, s.judgedAt, s.nextChange, fresh[s] = nil, duty.Spans{},
					time.Time{}, time.Time{}, true
			}
			s.Resource, s.dirty = r, true
			e.chargesCurrent = false
		}
		if s.listNumber < e.listCount {
			s.listNumber = e.listCount
			distinct++
		}
		e.listed = append(e.listed, s)
	}
	if len(e.subjects) > distinct {
		for ref, s := range e.subjects {
			if s.listNumber < e.listCount {
				delete(e.subjects, ref)
				e.chargesCurrent = false
			}
		}
	}
	clear(e.gangs)
	for _, s := range e.listed {
		if id := gangOf(s.Resource); id != "" {
			e.gangs[id] = append(e.gangs[id], s)
		}
	}
	return fresh
}

// measure reads the sources one after another. The windows of an audit are filled from the same
// points.
func (e *Engine) measure(ctx context.Context, r *Result, fresh map[*subject]bool, now time.Time) error {
	if len(e.Sources) == 0 {
		return nil
	}
	var all, known []*inventory.Resource
	for _, s := range e.listed {
		if e.readUntil.IsZero() || fresh[s] {
			all = append(all, s.Resource)
		} else {
			known = append(known, s.Resource)
		}
	}
	in := &intake{engine: e, now: now, choices: map[*subject]*sourceChoice{}}
	if e.Query.Window > 0 {
		in.windows = map[inventory.Ref]*usage.Window{}
	}
	for i, src := range e.Sources {
		in.source = i
		for _, part := range []struct {
			resources []*inventory.Resource
			from      time.Time
		}{{all, e.horizon(now)}, {known, e.readUntil.Add(-overlap)}} {
			if len(part.resources) == 0 {
				continue
			}
			m, err := src.Measure(ctx, part.resources, usage.Interval{From: part.from, To: now, Step: e.Step}, in.open)
			if err != nil {
				return err
			}
			r.BlindSpots = append(r.BlindSpots, m.BlindSpots...)
			r.addUnmeasured(m.Unread)
			if r.Calls, err = addCalls(r.Calls, m.Calls); err != nil {
				return err
			}
		}
	}
	for s, t := range in.choices {
		s.replaySamples(t.samples, now)
		t.samples = nil
	}
	r.Windows = in.windows
	for _, s := range e.listed {
		s.unreadReason = r.Unmeasured[s.ref]
	}
	return nil
}

// addUnmeasured records why metrics of resources could not be read; the first reason stays.
func (r *Result) addUnmeasured(why map[inventory.Ref]string) {
	if r.Unmeasured == nil && len(why) > 0 {
		r.Unmeasured = map[inventory.Ref]string{}
	}
	for ref, w := range why {
		if _, told := r.Unmeasured[ref]; !told {
			r.Unmeasured[ref] = w
		}
	}
}

// horizon returns the start of the time from which samples count.
func (e *Engine) horizon(now time.Time) time.Time {
	if e.Query.Window > 0 {
		return now.Add(-e.Query.Window).Truncate(e.Step)
	}
	return duty.Horizon(now, e.LookBack)
}

// windowStart returns the start of a resource's window: the horizon, or its creation in whole
// steps.
func (e *Engine) windowStart(r *inventory.Resource, now time.Time) time.Time {
	from := e.horizon(now)
	if r.CreatedAt.After(from) && r.CreatedAt.Before(now) {
		from = r.CreatedAt.Truncate(e.Step)
		if from.Before(r.CreatedAt) {
			from = from.Add(e.Step)
		}
	}
	return from
}

// stepFor returns the step in which usage is read over a window. Actions need minutes, over hours;
// two weeks of minutes would be too many points for one request.
func stepFor(window time.Duration) time.Duration {
	switch {
	case window <= 24*time.Hour:
		return time.Minute
	case window <= 48*time.Hour:
		return 5 * time.Minute
	}
	return time.Hour
}

// intake passes the points of sources to windows and trackers. The trackers of an audit get them
// only once all sources were read.
type intake struct {
	engine  *Engine
	now     time.Time
	source  int // the number of the current source
	windows map[inventory.Ref]*usage.Window
	mu      sync.Mutex
	choices map[*subject]*sourceChoice
}

// sourceChoice records which source is used for a signal of a resource: its number + 1, 0 for none
// yet.
type sourceChoice struct {
	by  [usage.SignalCount]uint8
	gpu uint8
	// samples are buffered for the tracker of an audit.
	samples []*series
}

// open returns the sink of a resource.
func (in *intake) open(r *inventory.Resource, o usage.SourceInfo) usage.Sink {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.engine.subjects[r.Ref()]
	if s == nil {
		return nil
	}
	t := in.choices[s]
	if t == nil {
		t = &sourceChoice{}
		in.choices[s] = t
	}
	out := &inlet{SourceInfo: o, subject: s, choice: t, number: uint8(in.source + 1)}
	if r.Kind.Traits().Measured {
		if s.tracker == nil {
			s.tracker = in.engine.newTracker(s)
		}
		if in.windows == nil {
			out.tracker = s.tracker.Open(o)
		} else {
			out.tracker = &sampleBuffer{choice: t, opened: o}
		}
	}
	if in.windows != nil {
		out.window = in.window(r, o)
	}
	return out
}

// window returns a resource's window of an audit.
func (in *intake) window(r *inventory.Resource, o usage.SourceInfo) *usage.Window {
	w := in.windows[r.Ref()]
	if w == nil {
		from := o.From
		if from.IsZero() {
			from = in.engine.windowStart(r, in.now)
		}
		w = usage.NewWindow(from, in.now, o.Step, o.Source, in.engine.Query.Floors)
		in.windows[r.Ref()] = w
	}
	return w
}

// inlet takes one resource's points of one source.
type inlet struct {
	usage.SourceInfo
	subject *subject
	choice  *sourceChoice
	number  uint8
	tracker usage.Sink
	window  *usage.Window
}

// Add implements usage.Sink.
func (in *inlet) Add(gpu string, s usage.Signal, p usage.Point) bool {
	by := &in.choice.by[s]
	if s.PerGPU() {
		by = &in.choice.gpu
	}
	if *by != 0 && *by != in.number {
		return false
	}
	ok := false
	if in.tracker != nil {
		ok = in.tracker.Add(gpu, s, p)
	}
	if w := in.window; w != nil {
		step, source := w.Step, w.Source
		w.Step, w.Source = in.Step, in.Source
		if w.Add(gpu, s, p) {
			ok = true
			w.Aggregated = w.Aggregated || in.Aggregated && s.PerGPU()
		}
		w.Step, w.Source = step, source
	}
	if ok {
		*by = in.number
		in.subject.dirty = true
	}
	return ok
}

// addCalls adds calls by API.
func addCalls(a, b []Calls) ([]Calls, error) {
	out := slices.Clone(a)
	for _, c := range b {
		i := slices.IndexFunc(out, func(x Calls) bool { return x.API == c.API })
		if i < 0 {
			out = append(out, c)
			continue
		}
		cost, err := out[i].Cost.Add(c.Cost)
		if err != nil {
			return nil, err
		}
		out[i].Count, out[i].Units, out[i].Cost = out[i].Count+c.Count, out[i].Units+c.Units, cost
	}
	slices.SortFunc(out, func(a, b Calls) int { return cmp.Compare(a.API, b.API) })
	return out, nil
}
