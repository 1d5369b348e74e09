package cloudtest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// listed checks that a list equals an observation without measurements.
func listed(tb testing.TB, s *subject) {
	o := s.list(tb, s.Query)
	if o == nil {
		return
	}
	if o.Windows != nil {
		tb.Errorf("the list has %d windows", len(o.Windows))
	}
	if d := gocmp.Diff(s.first.Resources, o.Resources, deepEqual); d != "" {
		tb.Errorf("the resources listed are others than those observed (-observed +listed):\n%s", d)
	}
	if d := gocmp.Diff(
		s.first.Unread, o.Unread, deepEqual,
	); d != "" || o.CommitmentsKnown != s.first.CommitmentsKnown {
		tb.Errorf("the list has other unread kinds than the observation, or knows other commitments:\n%s", d)
	}
	for _, b := range o.BlindSpots {
		if !slices.Contains(s.first.BlindSpots, b) {
			tb.Errorf("blind spot %+v is told by the list only", b)
		}
	}
}

// listsSubset checks that listing some resources returns only those, omits deleted ones, and fails
// for those of another cloud.
func listsSubset(tb testing.TB, s *subject) {
	q := s.Query
	q.Only = map[inventory.Ref]bool{}
	var want []inventory.Ref
	for i, r := range s.first.Resources {
		if i%3 == 0 {
			q.Only[r.Ref()] = true
			want = append(want, r.Ref())
		}
	}
	for _, ref := range s.Lacks {
		q.Only[ref] = true
	}
	if o := s.list(tb, q); o != nil {
		var got []inventory.Ref
		for _, r := range o.Resources {
			got = append(got, r.Ref())
		}
		slices.SortFunc(got, inventory.CompareRefs)
		if d := gocmp.Diff(want, got, deepEqual); d != "" {
			tb.Errorf("asked for some resources, others were listed (-asked +listed):\n%s", d)
		}
	}
	q.Only = map[inventory.Ref]bool{}
	if o := s.list(tb, q); o != nil && len(o.Resources) > 0 {
		tb.Errorf("asked for nothing, %d resources were listed", len(o.Resources))
	}
	q.Only = map[inventory.Ref]bool{
		{Cloud: "elsewhere", Account: "1", Region: "moon", Kind: inventory.KindInstance, ID: "i-1"}: true,
	}
	if _, err := s.New(tb).List(s.ctx, q); err == nil {
		tb.Error("a resource of another cloud is listed as absent")
	}
}

// list lists with a new client.
func (s *subject) list(tb testing.TB, q round.Query) *round.Observation {
	o, err := s.New(tb).List(s.ctx, q)
	if err != nil {
		tb.Errorf("list: %v", err)
		return nil
	}
	o.Resources = slices.DeleteFunc(o.Resources, func(r *inventory.Resource) bool { return r == nil })
	o.Sort()
	return o
}

// meter is one signal of a resource or of one of its GPUs.
type meter struct {
	ref    inventory.Ref
	gpu    string
	signal usage.Signal
}

// collected collects the points of a source.
type collected struct {
	usage.MeasureResult
	first  map[inventory.Ref]usage.SourceInfo // the source info at the first open
	points map[meter][]usage.Point
}

// from returns the later start of an interval and of the points.
func (t *collected) from(ref inventory.Ref, iv usage.Interval) time.Time {
	if o := t.first[ref].From; o.After(iv.From) {
		return o
	}
	return iv.From
}

// take measures resources and checks the order of points.
func take(
	tb testing.TB, s *subject, source usage.Source, resources []*inventory.Resource, iv usage.Interval,
) *collected {
	t := &collected{first: map[inventory.Ref]usage.SourceInfo{}, points: map[meter][]usage.Point{}}
	given := map[*inventory.Resource]bool{}
	for _, r := range resources {
		given[r] = true
	}
	var busy atomic.Bool
	alone := func(do func()) {
		if !busy.CompareAndSwap(false, true) {
			tb.Error("two goroutines hand over at once")
			return
		}
		runtime.Gosched() // lets concurrent calls become visible
		do()
		busy.Store(false)
	}
	var err error
	t.MeasureResult, err = source.Measure(s.ctx, resources, iv,
		func(r *inventory.Resource, o usage.SourceInfo) (out usage.Sink) {
			alone(func() {
				if !given[r] {
					tb.Errorf("%s is opened, which is not among the resources", r.Ref())
				}
				if o.Source != source.Name() || o.Source == "" || o.Step <= 0 ||
					!o.From.Before(iv.To) || o.Step < iv.Step {
					tb.Errorf("%s is opened for %+v by %q within %+v", r.Ref(), o, source.Name(), iv)
				}
				if _, ok := t.first[r.Ref()]; !ok {
					t.first[r.Ref()] = o
				}
				out = sink(func(gpu string, signal usage.Signal, p usage.Point) bool {
					alone(func() {
						m := meter{r.Ref(), gpu, signal}
						if old := t.points[m]; len(old) > 0 && !p.Time.After(old[len(old)-1].Time) {
							tb.Errorf("%s %s %s: %s comes after %s", m.ref, gpu, signal, p.Time, old[len(old)-1].Time)
						}
						if p.Time.Before(o.From) || !p.Time.Before(iv.To) {
							tb.Errorf("%s %s %s: %s is outside [%s, %s)", m.ref, gpu, signal, p.Time, o.From, iv.To)
						}
						t.points[m] = append(t.points[m], p)
					})
					return true
				})
			})
			return out
		})
	if err != nil {
		tb.Errorf("measure: %v", err)
	}
	return t
}

// sink adapts a function to usage.Sink.
type sink func(gpu string, s usage.Signal, p usage.Point) bool

// Add implements [usage.Sink].
func (f sink) Add(gpu string, s usage.Signal, p usage.Point) bool { return f(gpu, s, p) }

// source returns the cloud as a source with its list; nil if it measures nothing.
func (s *subject) source(tb testing.TB) (usage.Source, *round.Observation) {
	cloud := s.New(tb)
	source, ok := cloud.(usage.Source)
	if !ok {
		if len(s.first.Windows) > 0 {
			tb.Errorf("%d windows, of what is no source", len(s.first.Windows))
		}
		return nil, nil
	}
	o, err := cloud.List(s.ctx, s.Query)
	if err != nil {
		tb.Errorf("list: %v", err)
		return nil, nil
	}
	o.Resources = slices.DeleteFunc(o.Resources, func(r *inventory.Resource) bool { return r == nil })
	return source, o
}

func (s *subject) interval(step time.Duration) usage.Interval {
	return usage.Interval{From: s.Query.Now.Add(-s.Query.Window), To: s.Query.Now, Step: step}
}

// folded checks that the list and the measurements together equal the observation.
func folded(tb testing.TB, s *subject) {
	source, o := s.source(tb)
	if source == nil {
		return
	}
	windows := map[inventory.Ref]*usage.Window{}
	measured, err := source.Measure(s.ctx, o.Resources, s.interval(0),
		func(r *inventory.Resource, opened usage.SourceInfo) usage.Sink {
			w := windows[r.Ref()]
			if w == nil {
				w = usage.NewWindow(opened.From, s.Query.Now.UTC(), opened.Step, opened.Source, s.Query.Floors)
				w.Aggregated = opened.Aggregated
				windows[r.Ref()] = w
			}
			own := w.Step
			return sink(func(gpu string, signal usage.Signal, p usage.Point) bool {
				w.Step = opened.Step
				kept := w.Add(gpu, signal, p)
				w.Step = own
				return kept
			})
		})
	if err != nil {
		tb.Errorf("measure: %v", err)
		return
	}
	for ref := range s.first.Windows {
		if windows[ref] == nil {
			tb.Errorf("%s is observed with usage and not measured", ref)
		}
	}
	for ref, w := range windows {
		if other := s.first.Windows[ref]; other == nil {
			tb.Errorf("%s is measured and observed without usage", ref)
		} else if !same(w, other) {
			tb.Errorf("%s: what is measured differs from what is observed", ref)
		}
	}
	told := inventory.Inventory{BlindSpots: slices.Concat(o.BlindSpots, measured.BlindSpots)}
	told.Sort()
	if d := gocmp.Diff(s.first.BlindSpots, told.BlindSpots, deepEqual); d != "" {
		tb.Errorf("listing and measuring have other blind spots than observing (-observed +told):\n%s", d)
	}
	calls := map[string]inventory.Calls{}
	for _, c := range slices.Concat(o.Calls, measured.Calls) {
		sum := calls[c.API]
		calls[c.API] = inventory.Calls{
			API: c.API, Count: sum.Count + c.Count, Units: sum.Units + c.Units, Cost: sum.Cost + c.Cost,
		}
	}
	all := slices.SortedFunc(maps.Values(calls), func(a, b inventory.Calls) int { return cmp.Compare(a.API, b.API) })
	if d := gocmp.Diff(s.first.Calls, all, deepEqual); d != "" {
		tb.Errorf("listing and measuring make other calls than observing (-observed +made):\n%s", d)
	}
}

// same compares values deeply; reflect is faster than cmp.
func same(a, b any) bool { return reflect.DeepEqual(a, b) || gocmp.Equal(a, b, deepEqual) }

// inOrder checks that points arrive in time order, within bounds, from one goroutine at a time, and
// with the requested step or a coarser one.
func inOrder(tb testing.TB, s *subject) {
	if source, o := s.source(tb); source != nil {
		take(tb, s, source, o.Resources, s.interval(0))
		take(tb, s, source, o.Resources, s.interval(partStep))
	}
}

// alone checks, for a few resources of each kind, that a measurement does not depend on the other
// resources.
func alone(tb testing.TB, s *subject) {
	source, o := s.source(tb)
	if source == nil {
		return
	}
	all := take(tb, s, source, o.Resources, s.interval(0))
	of := map[inventory.Kind]int{}
	for _, r := range o.Resources {
		if _, measured := all.first[r.Ref()]; !measured || of[r.Kind] == 4 {
			continue
		}
		of[r.Kind]++
		one := take(tb, s, source, []*inventory.Resource{r}, s.interval(0))
		want := map[meter][]usage.Point{}
		for m, points := range all.points {
			if m.ref == r.Ref() {
				want[m] = points
			}
		}
		if one.first[r.Ref()] != all.first[r.Ref()] || !same(want, one.points) {
			tb.Errorf("%s: measured alone it is another", r.Ref())
		}
	}
}

// partStep is the step of an interval that is measured in two parts.
const partStep = time.Hour

// inParts checks that an interval measured in two parts has the same points as in one.
func inParts(tb testing.TB, s *subject) {
	source, o := s.source(tb)
	if source == nil {
		return
	}
	iv := s.interval(partStep)
	cut := iv.From.Add(s.Query.Window / 2)
	for _, unit := range []time.Duration{24 * time.Hour, partStep} {
		if at := cut.Truncate(unit); at.After(iv.From) {
			cut = at
			break
		}
	}
	before, after := iv, iv
	before.To, after.From = cut, cut
	at := take(tb, s, source, o.Resources, iv)
	older, newer := take(tb, s, source, o.Resources, before), take(tb, s, source, o.Resources, after)
	for _, m := range slices.SortedFunc(maps.Keys(at.points), func(a, b meter) int {
		return cmp.Or(inventory.CompareRefs(a.ref, b.ref), cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.signal, b.signal))
	}) {
		within := func(points []usage.Point, from, to time.Time) []usage.Point {
			return slices.DeleteFunc(slices.Clone(points), func(p usage.Point) bool {
				return p.Time.Before(from) || !p.Time.Before(to)
			})
		}
		from := at.from(m.ref, iv)
		parts := append(within(older.points[m], from, cut), within(newer.points[m], cut, iv.To)...)
		if once := within(at.points[m], from, iv.To); !same(once, parts) {
			tb.Errorf("%s %s %s: measured in parts it is another (-at once +in parts):\n%s", m.ref, m.gpu, m.signal,
				gocmp.Diff(once, parts, deepEqual))
		}
	}
}

// unwanted checks that a source accepts nil sinks, and makes no call if there is nothing to
// measure.
func unwanted(tb testing.TB, s *subject) {
	source, o := s.source(tb)
	if source == nil {
		return
	}
	if _, err := source.Measure(s.ctx, o.Resources, s.interval(0),
		func(*inventory.Resource, usage.SourceInfo) usage.Sink {
			return nil
		}); err != nil {
		tb.Errorf("measure what is not wanted: %v", err)
	}
	elsewhere := &inventory.Resource{
		ID: "i-1", Kind: inventory.KindInstance, Cloud: "elsewhere", Account: "1", Region: "moon",
		State: inventory.StateRunning, Detail: &inventory.Instance{},
	}
	for what, resources := range map[string][]*inventory.Resource{"nothing": nil, "another cloud": {elsewhere}} {
		t := take(tb, s, source, resources, s.interval(0))
		if len(t.Calls) > 0 || len(t.first) > 0 {
			tb.Errorf("measuring %s takes the calls %+v and opens %+v", what, t.Calls, t.first)
		}
	}
}

// measuringCanceled checks that a measurement with a canceled context returns promptly with an
// error.
func measuringCanceled(tb testing.TB, s *subject) {
	source, o := s.source(tb)
	if source == nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	done := make(chan error, 1)
	go func() {
		_, err := source.Measure(ctx, o.Resources, s.interval(0),
			func(*inventory.Resource, usage.SourceInfo) usage.Sink {
				return nil
			})
		done <- err
	}()
	timer := time.NewTimer(s.Prompt)
	defer timer.Stop()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			tb.Errorf("a canceled measurement returned %v, want %v", err, context.Canceled)
		}
	case <-timer.C:
		tb.Errorf("a canceled measurement was still at it after %s", s.Prompt)
	}
}
