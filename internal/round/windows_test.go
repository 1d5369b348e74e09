package round

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// listing is an account that holds one machine.
type listing struct{ err error }

func (l listing) List(_ context.Context, q Query) (*Observation, error) {
	if q.Progress != nil {
		q.Progress(Progress{What: "machines", Done: 1, Total: 1, Resources: 1})
	}
	o := &Observation{Cloud: "aws", Accounts: []string{"1"}, Calls: []Calls{{API: "b:List", Count: 1, Units: 1, Cost: 1}}}
	o.Resources = append(o.Resources, machine("i-1", "g6.2xlarge", 30*days))
	return o, l.err
}

// telling is a source of one signal, in the steps that it is given.
type telling struct {
	name   string
	signal usage.Signal
	value  float64
	steps  []time.Duration
	spots  []inventory.BlindSpot
	calls  []Calls
	err    error
	asked  *usage.Interval
}

func (s telling) Name() string { return s.name }

func (s telling) Measure(_ context.Context, resources []*inventory.Resource, iv usage.Interval, open func(*inventory.Resource, usage.Opened) usage.Sink) (usage.Measured, error) {
	*s.asked = iv
	for _, r := range resources {
		for i, step := range s.steps {
			sink := open(r, usage.Opened{From: iv.From, Step: step, Source: s.name, Aggregated: true})
			sink.Add("", s.signal+usage.Signal(i), usage.Point{Time: iv.From.Add(time.Hour), Mean: s.value, Max: s.value})
		}
	}
	return usage.Measured{BlindSpots: s.spots, Calls: s.calls}, s.err
}

func TestObserveWindows(t *testing.T) {
	var asked usage.Interval
	first := telling{name: "first", signal: usage.CPUUtil, value: 1, steps: []time.Duration{time.Hour, 5 * time.Minute}, asked: &asked,
		spots: []inventory.BlindSpot{{What: "a"}}, calls: []Calls{{API: "a:Get", Count: 2, Units: 3, Cost: 4}, {API: "b:List", Count: 1, Units: 1, Cost: 1}}}
	second := first
	second.name, second.value, second.steps, second.spots, second.calls = "second", 2, []time.Duration{time.Minute, time.Minute, time.Minute}, nil, nil
	var told []Progress
	local := now.In(time.FixedZone("here", 3600))
	o, err := ObserveWindows(t.Context(), listing{}, Query{Now: local, Progress: func(p Progress) { told = append(told, p) }}, first, second)
	if err != nil {
		t.Fatal(err)
	}
	if want := (usage.Interval{From: now.UTC().Add(-DefaultWindow), To: now.UTC()}); asked != want {
		t.Errorf("asked for %+v, want %+v", asked, want)
	}
	w := o.Windows[o.Resources[0].Ref()]
	if w == nil || w.Source != "first" || w.Step != time.Hour || !w.Aggregated || w.From != asked.From || w.To != asked.To {
		t.Fatalf("the window is %+v", w)
	}
	for i, want := range []struct {
		source string
		step   time.Duration
		value  float64
	}{{"first", time.Hour, 1}, {"first", 5 * time.Minute, 1}, {"second", time.Minute, 2}} {
		st := w.Machine.Stats(usage.CPUUtil + usage.Signal(i))
		if st == nil || w.SourceOf(st) != want.source || w.StepOf(st) != want.step || st.Max != want.value || w.Covered(st) != want.step {
			t.Errorf("signal %d: %+v, want %+v", i, st, want)
		}
	}
	wantCalls := []Calls{{API: "a:Get", Count: 2, Units: 3, Cost: 4}, {API: "b:List", Count: 2, Units: 2, Cost: 2}}
	if d := cmp.Diff(wantCalls, o.Calls); d != "" || len(o.BlindSpots) != 1 {
		t.Errorf("the blind spots are %+v, the calls differ (- want, + got):\n%s", o.BlindSpots, d)
	}
	wantTold := []Progress{{"machines", 1, 3, 1}, {"first usage", 2, 3, 1}, {"second usage", 3, 3, 1}}
	if d := cmp.Diff(wantTold, told); d != "" {
		t.Errorf("progress (- want, + got):\n%s", d)
	}
}

func TestObserveWindowsFails(t *testing.T) {
	var asked usage.Interval
	good := telling{name: "a", signal: usage.CPUUtil, asked: &asked}
	denied, huge := good, good
	denied.err = inventory.ErrDenied
	huge.calls = []Calls{{API: "b:List", Cost: money.Amount(1<<63 - 1)}}
	for name, tc := range map[string]struct {
		lister listing
		source telling
	}{"no list": {listing{err: inventory.ErrDenied}, good}, "no usage": {listing{}, denied}, "more than there is": {listing{}, huge}} {
		if o, err := ObserveWindows(t.Context(), tc.lister, Query{Now: now}, tc.source); err == nil || o != nil {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ObserveWindows(ctx, listing{}, Query{Now: now}, good); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
