package round

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
	"github.com/curfew-dev/curfew/internal/usage"
)

// fleet is an account of idle machines with the ladder of one process.
type fleet struct {
	machines []*inventory.Resource
	busy     map[string]bool
	// worked says when machines worked besides.
	worked func(id string, at time.Time) bool
	// unread are the regions that cannot be read; again runs before machines are read again.
	unread map[string]bool
	again  func()
	step   time.Duration
	clock  *actiontest.Clock
	cloud  *actiontest.Cloud
	store  action.Store
}

func newFleet(n int) *fleet {
	f := &fleet{
		busy: map[string]bool{}, unread: map[string]bool{}, step: time.Minute, clock: actiontest.NewClock(now),
		store: actiontest.NewStore(),
	}
	f.cloud = actiontest.NewCloud(func() time.Time { return f.clock.Wall })
	for i := range n {
		r := machine(fmt.Sprintf("i-%d", i+1), "g6.2xlarge", 30*days)
		r.Lifetime, r.Managed, r.Owner.User = inventory.Ephemeral, true, "ana"
		f.machines = append(f.machines, r)
		f.cloud.Put(actiontest.Resource{ID: r.ID, CreatedAt: r.CreatedAt})
	}
	return f
}

func (f *fleet) List(_ context.Context, q Query) (*Observation, error) {
	if q.Only != nil && f.again != nil {
		f.again()
	}
	o := &Observation{
		Cloud: "aws", Accounts: []string{"1"}, Regions: []string{"us-east-1", "us-west-2"}, Unread: map[string]bool{},
		CommitmentsKnown: true,
	}
	for region := range f.unread {
		o.Unread["1/"+region+"/instance"] = true
	}
	for _, r := range f.machines {
		if f.unread[r.Region] || q.Only != nil && !q.Only[r.Ref()] {
			continue
		}
		copied := *r
		o.Resources = append(o.Resources, &copied)
	}
	aws.Attach(o.Resources)
	return o, nil
}

func (f *fleet) Name() string { return "test" }

// Measure implements usage.Source.
func (f *fleet) Measure(_ context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	for _, r := range resources {
		w := open(r, usage.SourceInfo{Step: f.step, Source: "test"})
		for at := iv.From; at.Before(iv.To); at = at.Add(f.step) {
			load := 0.0
			if f.busy[r.ID] || f.worked != nil && f.worked(r.ID, at) {
				load = 95
			}
			for s, v := range map[usage.Signal]float64{
				usage.GPUUtil: load, usage.MemUsed: 1 << 20, usage.MemTotal: 24 << 30,
			} {
				w.Add("0", s, usage.Point{Time: at, Mean: v, Max: v})
			}
			w.Add("", usage.CPUUtil, usage.Point{Time: at, Mean: 1, Max: 1})
			w.Add("", usage.NetBytes, usage.Point{Time: at, Mean: 100, Max: 100})
		}
	}
	return usage.MeasureResult{}, nil
}

func (f *fleet) ladder(account string) *action.Ladder {
	return &action.Ladder{
		Store: f.store, Cloud: f.cloud, Notifier: actiontest.NewPeople(), Account: account,
		Actor: "ana", Enforce: true,
		Clock: f.clock.Read,
	}
}

func (f *fleet) now() time.Time { return f.clock.Wall }

// pass makes one pass of a policy that ends idle machines.
func (f *fleet) pass(t testing.TB, recordings ...Recording) (*Result, error) {
	t.Helper()
	return f.passOf(t, `duty.state == "idle" && duty.lasting >= duration("30m")`, recordings...)
}

// passOf makes one pass of a policy that ends machines under a condition.
func (f *fleet) passOf(t testing.TB, when string, recordings ...Recording) (*Result, error) {
	t.Helper()
	set, err := policy.Parse("idle.yaml", []byte(`apiVersion: curfew.policy/v1
policies:
  - name: idle
    select: {kind: instance, lifetime: ephemeral}
    when: `+when+`
    then:
      - warn: {notify: [owner], grace: 15m}
      - {do: terminate, disks: {instance_store: scratch, root: scratch}}
    limits: {per_hour: 100, share: "100%", dollars_per_hour: 1000}
    mode: enforce
`))
	if err != nil {
		t.Fatal(err)
	}
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return New(f.setting(set, book, recordings...)).Round(context.Background())
}

func (f *fleet) setting(set *policy.Set, book *price.Book, recordings ...Recording) Setting {
	out := Setting{
		Clock: f.now, Lister: f, Prices: book, Duty: duty.DefaultThresholds(), LookBack: 3 * time.Hour, Policies: set,
		Ladder: f.ladder,
	}
	for _, r := range recordings {
		out.Sources = append(out.Sources, RecordedSource(r))
	}
	out.Sources = append(out.Sources, f)
	return out
}

// passes lets half an hour go by in steps of ten minutes, which is enough to warn, to
// wait, and to act.
func (f *fleet) passes(t testing.TB, recordings ...Recording) (last *Result) {
	t.Helper()
	for range 4 {
		var err error
		if last, err = f.pass(t, recordings...); err != nil {
			t.Fatal(err)
		}
		f.clock.Advance(10 * time.Minute)
	}
	return last
}

func TestJudgesGangAsAWhole(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(f *fleet)
		ended  int
	}{
		{"all idle", func(*fleet) {}, 8},
		{"one idle, the others work", func(f *fleet) {
			for _, r := range f.machines[1:] {
				f.busy[r.ID] = true
			}
		}, 0},
		{"the one that works is in a region that cannot be read", func(f *fleet) {
			f.busy["i-8"], f.unread["us-west-2"] = true, true
		}, 0},
		{"only one was seen", func(f *fleet) {
			f.unread["us-west-2"] = true
			for _, r := range f.machines[1:] {
				r.Region = "us-west-2"
			}
		}, 0},
		{"a region cannot be read any more", func(f *fleet) { f.again = func() { f.unread["us-west-2"] = true } }, 0},
		{"one begins to work in the last minute", func(f *fleet) { f.again = func() { f.busy["i-8"] = true } }, 0},
		{"one is only starting", func(f *fleet) { f.machines[7].State = inventory.StatePending }, 0},
		{"the state of one is not known", func(f *fleet) { f.machines[7].State = inventory.StateUnknown }, 0},
		{"only one runs yet", func(f *fleet) {
			for _, r := range f.machines[1:] {
				r.State = inventory.StatePending
			}
		}, 0},
		{"one is stopped", func(f *fleet) { f.machines[7].State = inventory.StateStopped }, 7},
		{"the GPUs of one are unknown", func(f *fleet) { f.machines[7].Type = "p99.48xlarge" }, 0},
		{"the policy does not select one", func(f *fleet) { f.machines[7].Lifetime = inventory.Persistent }, 0},
		{"one is kept by its tag", func(f *fleet) { f.machines[7].KeepUntil = now.Add(days) }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(8 + 9) // nine others work, so that no fuse blows
			for i, r := range f.machines {
				if f.busy[r.ID] = i >= 8; i < 8 {
					r.Gang = "run-1"
				}
			}
			f.machines[7].Region = "us-west-2"
			tc.change(f)
			p := f.passes(t)
			if got := f.cloud.Carried("terminate"); len(got) != tc.ended {
				t.Errorf("ended %v, want %d machines; %+v", got, tc.ended, p.Lines())
			}
		})
	}
}

// TestGrowingGangIsJudgedAgain checks that a second call is made only when the machines that came
// meanwhile rest as well.
func TestGrowingGangIsJudgedAgain(t *testing.T) {
	f := newFleet(3)
	for _, r := range f.machines {
		r.Gang = "run-1"
	}
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	e := New(f.setting(&policy.Set{}, book))
	e.Setting.Ladder = nil
	if _, err := e.Round(context.Background()); err != nil {
		t.Fatal(err)
	}
	read := map[inventory.Ref]bool{}
	e.Lister = listing(func(q Query) { read = q.Only })
	item := action.Item{Ref: f.machines[0].Ref(), Gang: []inventory.Ref{f.machines[1].Ref()}}
	if _, err := e.verify(context.Background(), []action.Item{item}); err != nil {
		t.Fatal(err)
	}
	if !read[f.machines[2].Ref()] || len(read) != 3 {
		t.Errorf("read %v again, want the whole gang", read)
	}
}

// listing notes what is read again.
type listing func(q Query)

func (l listing) List(_ context.Context, q Query) (*Observation, error) {
	l(q)
	return &Observation{}, nil
}

// quietRecording is a recording of a machine that rests, minute by minute.
type quietRecording struct {
	name string
	f    *fleet
}

func (quietRecording) Name() string { return "quiet.csv" }

func (q quietRecording) Collect(_ context.Context,
	resolve func(string, time.Duration) usage.Sink) (usage.Summary, error) {
	if w := resolve(q.name, time.Minute); w != nil {
		for at := q.f.now().Add(-16 * time.Hour); at.Before(q.f.now()); at = at.Add(time.Minute) {
			w.Add("0", usage.GPUUtil, usage.Point{Time: at})
			w.Add("0", usage.MemUsed, usage.Point{Time: at})
		}
	}
	return usage.Summary{}, nil
}

// TestAmbiguousNamesMatchNothing: what was recorded under a name that two machines have
// speaks for neither, also when only one of them is read again.
func TestAmbiguousNamesMatchNothing(t *testing.T) {
	for _, other := range []string{"trainer", "another"} {
		f := newFleet(2)
		f.machines[0].Name, f.machines[1].Name, f.machines[1].Lifetime = "trainer", other, inventory.Persistent
		f.again = func() { f.busy["i-1"] = true }
		f.passes(t, quietRecording{"trainer", f})
		if got := len(f.cloud.Carried("terminate")); (got > 0) != (other == "another") {
			t.Errorf("the other one is named %q: %d machines were ended", other, got)
		}
	}
}

// failingStore is a store that breaks down after some admissions.
type failingStore struct {
	*actiontest.Store
	admissions int
}

func (s *failingStore) Admit(ctx context.Context, b action.Batch) ([]action.AdmissionResult, error) {
	s.admissions++
	return s.Store.Admit(ctx, b)
}

func (s *failingStore) Keeps(ctx context.Context, at time.Time) ([]action.Keep, error) {
	if s.admissions > 0 {
		return nil, errors.New("the disk is full")
	}
	return s.Store.Keeps(ctx, at)
}

// TestErrorKeepsEarlierResults checks that the result of an aborted pass contains what was done
// before.
func TestErrorKeepsEarlierResults(t *testing.T) {
	f := newFleet(1)
	f.store = &failingStore{Store: actiontest.NewStore()}
	for range 4 {
		p, err := f.pass(t)
		if err != nil {
			if p == nil || len(p.Reports) != 1 {
				t.Errorf("with error %v the pass is %+v", err, p)
			}
			return
		}
		f.clock.Advance(10 * time.Minute)
	}
	t.Fatal("the store did not break")
}

// TestWorkBetweenPassesRestartsWarning checks that a machine that was warned, worked, and rests
// again when the next pass comes, is warned about again; so are those of a run of which one worked.
func TestWorkBetweenPassesRestartsWarning(t *testing.T) {
	for _, tc := range []struct {
		name   string
		gang   bool
		worked func(id string, at time.Duration) bool // after the warning
		ended  int
	}{
		{"nothing", false, func(string, time.Duration) bool { return false }, 2},
		{"sixteen minutes", false, func(_ string, at time.Duration) bool {
			return at >= time.Minute && at < 17*time.Minute
		}, 0},
		{"one sample", false, func(_ string, at time.Duration) bool {
			return at >= 5*time.Minute && at < 6*time.Minute
		}, 0},
		{"one of two", false, func(id string, at time.Duration) bool {
			return id == "i-1" && at >= 5*time.Minute && at < 6*time.Minute
		}, 1},
		{"one of a run of two", true, func(id string, at time.Duration) bool {
			return id == "i-1" && at >= 5*time.Minute && at < 6*time.Minute
		}, 0},
		{"none of a run of two", true, func(string, time.Duration) bool { return false }, 2},
	} {
		for _, late := range []time.Duration{20 * time.Minute, 100 * time.Minute} {
			t.Run(tc.name+", "+late.String(), func(t *testing.T) {
				f := newFleet(2)
				warned := f.now()
				f.worked = func(id string, at time.Time) bool { return tc.worked(id, at.Sub(warned)) }
				for _, r := range f.machines {
					if tc.gang {
						r.Gang = "run-1"
					}
				}
				for range 2 {
					if _, err := f.passOf(t, `duty.state == "idle"`); err != nil {
						t.Fatal(err)
					}
					f.clock.Advance(late)
				}
				if got := f.cloud.Carried("terminate"); len(got) != tc.ended {
					t.Errorf("ended %v, want %d machines", got, tc.ended)
				}
			})
		}
	}
}

// TestRereadsNewestMinute checks that in its next round an engine rereads the newest minute, which
// may have been incomplete, and then has the same result as a new engine.
func TestRereadsNewestMinute(t *testing.T) {
	f := newFleet(1)
	first := f.clock.Wall
	newest := first.Add(-f.step)
	f.worked = func(_ string, at time.Time) bool {
		return !at.Before(newest) && at.Before(first) && f.clock.Wall.After(first)
	}
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	s := Setting{Clock: func() time.Time {
		return f.clock.Wall
	}, Lister: f, Sources: []usage.Source{f}, Prices: book, Duty: duty.DefaultThresholds(), LookBack: time.Hour}
	state := func(e *Engine) duty.Verdict {
		r, err := e.Round(context.Background())
		if err != nil || r.Facts[0].Duty == nil {
			t.Fatalf("no verdict: %v", err)
		}
		v := *r.Facts[0].Duty
		v.Evidence = nil
		return v
	}
	e := New(s)
	if v := state(e); v.State != duty.Idle || v.Duration < 30*time.Minute {
		t.Fatalf("at first it is %s for %s", v.State, v.Duration)
	}
	f.clock.Wall = first.Add(5 * time.Minute)
	got, want := state(e), state(New(s))
	if got.State != duty.Idle || !got.Since.Equal(first) || got.State != want.State || !got.Since.Equal(want.Since) {
		t.Errorf("it is %s since %s, and to who has seen nothing before %s since %s", got.State, got.Since, want.State,
			want.Since)
	}
}
