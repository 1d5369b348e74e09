package round

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// listCount is an account that holds something else in every round.
type changingLister struct{ now []*inventory.Resource }

func (l *changingLister) List(context.Context, Query) (*Observation, error) {
	return &Observation{
		Inventory: inventory.Inventory{Resources: slices.Clone(l.now)}, Cloud: "aws", Accounts: []string{"1", "2"},
		Regions: []string{"us-east-1"}, CommitmentsKnown: true,
	}, nil
}

// TestEngineTracksListing checks that whatever comes, goes, changes or stands twice in a list, the
// engine knows each resource of the newest list as it is there, its gang, and no other; and an
// account counts its own machines alone.
func TestEngineTracksListing(t *testing.T) {
	set, err := policy.Parse("p.yaml", []byte("apiVersion: curfew.policy/v1\npolicies:\n  - name: p\n    select: "+
		"{kind: instance, lifetime: ephemeral}\n    when: resource.age > duration(\"1h\")\n    then: [{do: notify}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	prices := setting(t, Observation{}).Prices
	rapid.Check(t, func(t *rapid.T) {
		made := map[string]*inventory.Resource{}
		account := &changingLister{}
		at := now
		e := New(Setting{Clock: func() time.Time {
			return at
		}, Lister: account, Prices: prices, Duty: duty.DefaultThresholds(), Policies: set})
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			account.now = nil
			for _, i := range rapid.SliceOfN(rapid.IntRange(0, 5), 0, 7).Draw(t, "list") {
				id := fmt.Sprint("i-", i)
				if made[id] == nil || rapid.Bool().Draw(t, "another value") {
					r := machine(id, "g6.2xlarge", 48*time.Hour)
					r.Account = []string{"1", "2"}[i%2]
					r.Gang = rapid.SampledFrom([]string{"", "run"}).Draw(t, "gang")
					r.Lifetime = rapid.SampledFrom([]inventory.Lifetime{
						inventory.Ephemeral, inventory.Persistent,
					}).Draw(t,
						"lifetime")
					made[id] = r
				}
				account.now = append(account.now, made[id])
			}
			r, err := e.Round(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			// Of a resource that stands twice, what was read last counts.
			want, selected := map[inventory.Ref]*inventory.Resource{}, map[string]int{}
			for i, res := range r.Resources {
				if f := r.Facts[i]; f.Resource.Ref() != res.Ref() {
					t.Fatalf("fact %d is about %s, not %s", i, f.Resource.ID, res.ID)
				}
				want[res.Ref()] = res
			}
			gangs := map[string]int{}
			for _, res := range want {
				if res.Lifetime == inventory.Ephemeral {
					selected[res.Account]++
				}
			}
			for _, res := range r.Resources {
				if res.Gang != "" {
					gangs["aws/"+res.Account+"/run"]++
				}
			}
			if len(e.subjects) != len(want) {
				t.Fatalf("%d subjects of %d resources", len(e.subjects), len(want))
			}
			for ref, res := range want {
				if s := e.subjects[ref]; s == nil || s.Resource != res {
					t.Fatalf("%s is not known as it is listed", ref)
				}
			}
			got := map[string]int{}
			for id, members := range e.gangs {
				got[id] = len(members)
			}
			if len(want) == len(r.Resources) && !maps.Equal(got, gangs) {
				t.Fatalf("gangs of %v, want %v", got, gangs)
			}
			for _, id := range []string{"1", "2"} {
				n := map[string]int{}
				if e.countSelected(n, id); n["p"] != selected[id] {
					t.Fatalf("of account %s %d are selected, want %d", id, n["p"], selected[id])
				}
			}
			at = at.Add(5 * time.Minute)
		}
	})
}

// combinedSource is a source that knows GPUs as one series of the machine, or not.
type combinedSource struct {
	aggregated bool
	signals    []usage.Signal
}

func (combinedSource) Name() string { return "combined" }

func (c combinedSource) Measure(_ context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	for _, r := range resources {
		sink := open(r, usage.SourceInfo{Step: time.Hour, Source: "combined", Aggregated: c.aggregated})
		for at := iv.From; at.Before(iv.To); at = at.Add(time.Hour) {
			for _, s := range c.signals {
				sink.Add("", s, usage.Point{Time: at, Mean: 1, Max: 1})
			}
		}
	}
	return usage.MeasureResult{}, nil
}

// TestAggregatedWindowNeedsAggregatedSource checks that a window stands for all GPUs of a machine
// where the source that speaks for them says so, and not because one of the host's signals comes
// from it.
func TestAggregatedWindowNeedsAggregatedSource(t *testing.T) {
	host, gpu := []usage.Signal{usage.CPUUtil}, []usage.Signal{usage.GPUUtil}
	for name, tc := range map[string]struct {
		sources []usage.Source
		want    bool
	}{
		"the source of GPUs says so":  {[]usage.Source{combinedSource{true, gpu}}, true},
		"it does not":                 {[]usage.Source{combinedSource{false, gpu}}, false},
		"one of the host does":        {[]usage.Source{combinedSource{true, host}, combinedSource{false, gpu}}, false},
		"the first of two does":       {[]usage.Source{combinedSource{true, gpu}, combinedSource{false, host}}, true},
		"the second, not listened to": {[]usage.Source{combinedSource{false, gpu}, combinedSource{true, gpu}}, false},
	} {
		m := machine("i-1", "g6.2xlarge", 48*time.Hour)
		s := setting(t, Observation{Inventory: inventory.Inventory{Resources: []*inventory.Resource{m}}})
		s.Sources = tc.sources
		r, err := New(s).Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if w := r.Windows[m.Ref()]; w == nil || w.Aggregated != tc.want {
			t.Errorf("%s: the window is %+v", name, w)
		}
	}
}

// TestWindowKeepsItsFirstSource: its step and name stay those of the source that opened it,
// whatever other sources add.
func TestWindowKeepsItsFirstSource(t *testing.T) {
	m := machine("i-1", "g6.2xlarge", 48*time.Hour)
	s := setting(t, Observation{Inventory: inventory.Inventory{Resources: []*inventory.Resource{m}}})
	s.Sources = []usage.Source{combinedSource{false, []usage.Signal{usage.GPUUtil}}, tapeOf{step: 30 * time.Minute}}
	r, err := New(s).Round(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	w := r.Windows[m.Ref()]
	if w == nil || w.Source != "combined" || w.Step != time.Hour {
		t.Fatalf("the window is %+v", w)
	}
	if st := w.Machine.Stats(usage.CPUUtil); st == nil || w.SourceOf(st) != "tape" || w.StepOf(st) != 30*time.Minute {
		t.Errorf("CPU is %+v", st)
	}
}

// tapeOf is a source of the CPUs in a step of its own.
type tapeOf struct{ step time.Duration }

func (tapeOf) Name() string { return "tape" }

func (s tapeOf) Measure(_ context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	for _, r := range resources {
		sink := open(r, usage.SourceInfo{Step: s.step, Source: "tape"})
		for at := iv.From; at.Before(iv.To); at = at.Add(s.step) {
			sink.Add("", usage.CPUUtil, usage.Point{Time: at, Mean: 1, Max: 1})
		}
	}
	return usage.MeasureResult{}, nil
}

// costlySource is a source whose calls cost as much as fits an amount.
type costlySource struct{ combinedSource }

func (c costlySource) Measure(context.Context, []*inventory.Resource, usage.Interval,
	func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	return usage.MeasureResult{Calls: []Calls{{API: "monitoring", Count: 1, Cost: math.MaxInt64}}}, nil
}

// TestCallCostOverflow, and no cost that is too small.
func TestCallCostOverflow(t *testing.T) {
	s := setting(t, Observation{
		Inventory: inventory.Inventory{Resources: []*inventory.Resource{machine("i-1", "g6.2xlarge", 48*time.Hour)}},
	})
	s.Sources = []usage.Source{costlySource{}}
	if r, err := New(s).Round(context.Background()); err != nil || r.Calls[0].Cost != math.MaxInt64 {
		t.Fatalf("one call: %+v, %v", r, err)
	}
	s.Sources = append(s.Sources, costlySource{})
	if r, err := New(s).Round(context.Background()); !errors.Is(err, money.ErrOverflow) {
		t.Errorf("two calls: %+v, %v", r, err)
	}
}

// oneRoundSource is a source that has samples for the first round alone.
type oneRoundSource struct {
	combinedSource
	rounds *int
}

func (o oneRoundSource) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	if *o.rounds++; *o.rounds > 1 {
		return usage.MeasureResult{}, nil
	}
	for _, r := range resources {
		sink := open(r, usage.SourceInfo{Step: time.Minute, Source: "once"})
		for at := iv.From; at.Before(iv.To); at = at.Add(time.Minute) {
			for _, s := range []usage.Signal{usage.GPUUtil, usage.Processes} {
				sink.Add("0", s, usage.Point{Time: at})
			}
		}
	}
	return usage.MeasureResult{}, nil
}

// TestRejudgesExpiredVerdict, though nothing is learned, and not before.
func TestRejudgesExpiredVerdict(t *testing.T) {
	at := now
	m := machine("i-1", "g6.2xlarge", 48*time.Hour)
	s := setting(t, Observation{})
	s.Audit, s.Query, s.Clock, s.Lister = nil, Query{}, func() time.Time {
		return at
	}, &changingLister{now: []*inventory.Resource{m}}
	s.Sources = []usage.Source{oneRoundSource{rounds: new(int)}}
	e := New(s)
	verdict := func() *duty.Verdict {
		r, err := e.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return r.Facts[0].Duty
	}
	first := verdict()
	if first.State != duty.Idle || !first.Expires.After(at) {
		t.Fatalf("it is %+v", first)
	}
	at = first.Expires.Add(-time.Second)
	if again := verdict(); again != first {
		t.Errorf("before it expires it is judged again: %+v", again)
	}
	at = first.Expires.Add(time.Second)
	if last := verdict(); last.State != duty.Unknown {
		t.Errorf("once it has expired it is %+v", last)
	}
}

// TestWindowStartsWithItsMachine, at the next whole step, and not before what is read.
func TestWindowStartsWithItsMachine(t *testing.T) {
	s := setting(t, Observation{})
	s.Step = time.Hour
	e := New(s)
	horizon := now.Add(-14 * 24 * time.Hour)
	for name, tc := range map[string]struct{ made, want time.Time }{
		"long ago":          {now.Add(-30 * 24 * time.Hour), horizon},
		"not known":         {time.Time{}, horizon},
		"with the window":   {horizon, horizon},
		"on a step":         {now.Add(-3 * time.Hour), now.Add(-3 * time.Hour)},
		"between two steps": {now.Add(-3*time.Hour - time.Minute), now.Add(-3 * time.Hour)},
		"ahead":             {now.Add(time.Hour), horizon},
	} {
		r := machine("i-1", "g6.2xlarge", 0)
		r.CreatedAt = tc.made
		if got := e.windowStart(r, now); !got.Equal(tc.want) {
			t.Errorf("made %s: %s, want %s", name, got, tc.want)
		}
	}
}
