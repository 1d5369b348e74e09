package backtest

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Heard are samples of one meter that became known.
type Heard = round.FeedSamples

// Feed delivers the samples of some resources of an account, in the order in which they become
// known, and hides the samples of released resources. It serves one goroutine at a time; feeds do
// not influence one another.
type Feed struct {
	a *Account
	// listeners are in the order of their resources.
	listeners []*listener
	queue     agenda
	now       int64
}

// listener holds the state of a feed for one resource.
type listener struct {
	index int
	*traced
	series []listening
	// from is the end of the newest release; earlier samples stay hidden.
	from int64
	next int64 // when more becomes known
	// told is the resource as it was when the trace had said that much of it.
	told  *inventory.Resource
	as    *usage.Description
	count int
}

// listening is a series as far as it was heard.
type listening struct {
	player
	given  int64 // rows of the present run
	newest int64 // time of a row
	ended  bool
	// was is the previous run, and again the part of it to deliver once more, if runs are delivered
	// ahead of time.
	was, again level
}

// level is a run of equal values of utilization.
type level struct {
	at, count int64
	has       uint32
	value     float64
}

// Feed starts a feed of some resources, nil for all of them.
func (a *Account) Feed(resources []int) *Feed {
	f := &Feed{a: a, now: math.MinInt64}
	if resources == nil {
		for i := range a.resources {
			f.listen(i)
		}
		return f
	}
	for _, i := range slices.Compact(slices.Sorted(slices.Values(resources))) {
		f.listen(i)
	}
	return f
}

func (f *Feed) listen(i int) {
	l := &listener{index: i, traced: f.a.resources[i], from: math.MinInt64, next: never}
	l.series = make([]listening, len(l.traced.series))
	for k, s := range l.traced.series {
		l.series[k] = listening{player: s.player(f.a.step), newest: math.MinInt64}
		l.next = min(l.next, l.series[k].due(l))
	}
	f.queue.push(entry{l.next, len(f.listeners)})
	f.listeners = append(f.listeners, l)
}

// place returns where a resource is among the listeners.
func (f *Feed) place(resource int) int {
	if resource < len(f.listeners) && f.listeners[resource].index == resource {
		return resource
	}
	i, _ := slices.BinarySearchFunc(f.listeners, resource, func(l *listener, i int) int {
		return cmp.Compare(l.index, i)
	})
	return i
}

// due returns when the next row becomes known that is not hidden.
func (p *listening) due(l *listener) int64 {
	if p.again.skip(l.from, p.step); p.again.count > 0 {
		return p.again.at
	}
	for !p.ended {
		if p.count > 0 && p.at < l.from {
			p.given = max(p.given, min(p.count, (l.from-p.at+p.step-1)/p.step))
		}
		if p.given < p.count {
			return p.at + p.given*p.step + p.lag
		}
		if l.plain && p.count > 0 {
			p.was = p.level()
		}
		p.given = 0
		p.ended = !p.advance()
	}
	return never
}

// level returns the present run, of its values the first.
func (p *player) level() level {
	s := level{at: p.at, count: p.count, has: p.has}
	if len(p.values) > 0 {
		s.value = p.values[0]
	}
	return s
}

// skip leaves out samples before a time.
func (s *level) skip(from, step int64) {
	if s.count > 0 && s.at < from {
		n := min(s.count, (from-s.at+step-1)/step)
		s.at, s.count = s.at+n*step, s.count-n
	}
}

// NextTime returns the time of the next news, and whether there is any.
func (f *Feed) NextTime() (time.Time, bool) {
	for len(f.queue) > 0 {
		if e := f.queue[0]; e.next != f.listeners[e.place].next {
			f.queue.drop()
		} else {
			return instant(e.next), e.next != never
		}
	}
	return time.Time{}, false
}

// Advance hands over what became known up to and at a time, which does not go back. The samples of
// each meter come in time order but for late ones.
//
// Of a resource of which nothing but utilization was measured, equal samples are handed over
// together when the first of them becomes known, and may reach past the time.
func (f *Feed) Advance(to time.Time, visit func(Heard)) {
	f.now = max(f.now, to.UnixMicro())
	for len(f.queue) > 0 && f.queue[0].next <= f.now {
		e := f.queue[0]
		l := f.listeners[e.place]
		if e.next != l.next {
			f.queue.drop()
			continue
		}
		l.next = never
		for k := range l.series {
			p := &l.series[k]
			p.hear(l, f.now, visit)
			l.next = min(l.next, p.due(l))
		}
		f.queue.replace(entry{l.next, e.place})
	}
}

// hear hands over the rows of a series known at a time.
func (p *listening) hear(l *listener, now int64, visit func(Heard)) {
	for p.due(l) <= now {
		if s := p.again; s.count > 0 {
			p.newest = max(p.newest, s.at+(s.count-1)*p.step)
			l.hand(p.s, s.has, []float64{s.value}, s.at, s.count, false, visit)
			p.again = level{}
			continue
		}
		n := p.count
		if !l.plain {
			n = min(n, (now-p.lag-p.at)/p.step+1)
		}
		start, n := p.at+p.given*p.step, n-p.given
		p.given += n
		late := int64(0)
		if start <= p.newest {
			late = min(n, (p.newest-start)/p.step+1)
			l.hand(p.s, p.has, p.values, start, late, true, visit)
		}
		l.hand(p.s, p.has, p.values, start+late*p.step, n-late, false, visit)
		p.newest = max(p.newest, start+(n-1)*p.step)
	}
}

// hand hands over equal rows.
func (l *listener) hand(s *series, has uint32, values []float64, start, count int64, late bool, visit func(Heard)) {
	if count == 0 {
		return
	}
	l.traced.hand(l.index, s, has, values, start, count, late, visit)
}

func (r *traced) hand(index int, s *series, has uint32, values []float64, start, count int64, late bool,
	visit func(Heard)) {
	h := Heard{Resource: index, Start: instant(start), Count: int(count), Late: late}
	has &= s.counts
	for _, i := range s.order {
		if has&(1<<i) == 0 {
			continue
		}
		h.GPU, h.Signal, h.Value = "", s.slots[i], values[i]
		if h.Signal.PerGPU() {
			h.GPU = s.gpu
		}
		visit(h)
	}
}

// SamplesSince visits the known samples of a resource that are not hidden, from a horizon on, each
// once and those of each meter in time order, as [Feed.Advance] would have.
func (f *Feed) SamplesSince(resource int, horizon time.Time, visit func(Heard)) {
	l := f.listeners[f.place(resource)]
	f.a.points(resource, max(horizon.UnixMicro(), l.from), never, f.now, l.plain, visit)
}

// Points hands over the samples of a resource with a time in [from, to) that were known
// at a time, each once and those of each meter in order.
func (a *Account) Points(resource int, from, to, known time.Time, visit func(Heard)) {
	a.points(resource, from.UnixMicro(), to.UnixMicro(), known.UnixMicro(), false, visit)
}

// points hands over samples; ahead, whole runs that have begun.
func (a *Account) points(resource int, from, to, known int64, ahead bool, visit func(Heard)) {
	r := a.resources[resource]
	for _, s := range r.series {
		p := s.player(a.step)
		p.seek(from)
		var loose *series
		for p.advance() && p.at+p.lag <= known {
			first, end := int64(0), p.count
			if p.at < from {
				first = min(p.count, (from-p.at+a.step-1)/a.step)
			}
			// no sample after a release is ahead
			if heard := (known-p.lag-p.at)/a.step + 1; !ahead || heard <= first {
				end = min(end, heard)
			}
			if p.at+(end-1)*a.step >= to {
				end = max(0, (to-p.at+a.step-1)/a.step)
			}
			switch {
			case end <= first:
			case s.late:
				if loose == nil {
					loose = s.empty()
				}
				for i := first; i < end; i++ {
					loose.put(p.at+i*a.step, 0, a.step, p.has, 0, p.values)
				}
			default:
				r.hand(resource, s, p.has, p.values, p.at+first*a.step, end-first, false, visit)
			}
		}
		if loose == nil {
			continue
		}
		loose.finish(a.step, func(uint32, uint32) uint32 { return 0 })
		for p := loose.player(a.step); p.advance(); {
			r.hand(resource, s, p.has, p.values, p.at, p.count, false, visit)
		}
	}
}

// Resource returns a resource as it is known now, nil before its first sample and while
// it is released. The caller must not change it: until something more is said of it, it
// is the same one.
func (f *Feed) Resource(i int) *inventory.Resource {
	l := f.listeners[f.place(i)]
	if f.now < l.known || f.now < l.from {
		return nil
	}
	if d, n := l.describedAt(f.now), l.gpus(f.now); l.told == nil || l.as != d || l.count != n {
		l.told, l.as, l.count = f.a.Resource(i, instant(f.now)), d, n
	}
	return l.told
}

// List returns the resources that are there now.
func (f *Feed) List() []*inventory.Resource {
	var out []*inventory.Resource
	for _, l := range f.listeners {
		if r := f.Resource(l.index); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// agenda orders resources by when more becomes known of them: a heap.
type agenda []entry

// entry says when more becomes known of the resource in a place. It is out of date where
// the resource itself says otherwise.
type entry struct {
	next  int64
	place int
}

func (e entry) before(o entry) bool { return e.next < o.next || e.next == o.next && e.place < o.place }

func (q *agenda) push(e entry) {
	*q = append(*q, e)
	h, i := *q, len(*q)-1
	for i > 0 && e.before(h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = e
}

// replace puts an entry in the place of the first.
func (q agenda) replace(e entry) {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if right := child + 1; right < len(q) && q[right].before(q[child]) {
			child = right
		}
		if !q[child].before(e) {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = e
}

// drop leaves out the first.
func (q *agenda) drop() {
	h, n := *q, len(*q)-1
	last := h[n]
	if *q = h[:n]; n > 0 {
		q.replace(last)
	}
}

// SourceAt returns what a process sees that measures at a time: the samples known then, one taken
// at that very moment among them, from the end of each resource's newest release on. Since returns
// that end by the resource's number, the zero time where there was none; nil if there is none at
// all.
func (a *Account) SourceAt(now time.Time, since func(resource int) time.Time) usage.Source {
	return &recording{a, now, since}
}

// SourceInfo describes the samples of the trace: a row without a GPU is about the resource as a
// whole.
func (f *Feed) SourceInfo() usage.SourceInfo { return f.a.opened() }

func (a *Account) opened() usage.SourceInfo {
	return usage.SourceInfo{Step: span(a.step), Source: source, Aggregated: true}
}

type recording struct {
	a     *Account
	now   time.Time
	since func(int) time.Time
}

// Name implements [usage.Source].
func (s *recording) Name() string { return source }

// Measure implements [usage.Source]. The step is the trace's own, whatever is asked for.
func (s *recording) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	to := iv.To
	if !to.Before(s.now) {
		to = s.now.Add(time.Microsecond)
	}
	for _, r := range resources {
		if err := ctx.Err(); err != nil {
			return usage.MeasureResult{}, context.Cause(ctx)
		}
		i, ok := s.a.Index(r.ID)
		if !ok || r.Cloud != Cloud {
			continue
		}
		from := iv.From
		if s.since != nil {
			if t := s.since(i); t.After(from) {
				from = t
			}
		}
		sink := open(r, s.a.opened())
		if sink == nil {
			continue
		}
		s.a.Points(i, from, to, s.now, func(h Heard) {
			for n := range h.Count {
				sink.Add(h.GPU, h.Signal, usage.Point{
					Time: h.Start.Add(time.Duration(n) * span(s.a.step)), Mean: h.Value, Max: h.Value,
				})
			}
		})
	}
	return usage.MeasureResult{}, nil
}
