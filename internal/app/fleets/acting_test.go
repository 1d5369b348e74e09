package fleets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/backtest/scaling"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/serving"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/policy"
)

// group is a provider of one fleet, with state and faults.
type group struct {
	desired, most int
	members       []string
	launched      int
	drains        bool
	// chooses is set if the manager alone chooses which machines end.
	chooses  bool
	lifetime inventory.Lifetime
	// fault meets the next call: "throttled" without an effect, a "lost" answer after it, "killed" before
	// and "killed-after" behind it, "refused" by the provider.
	fault string
	// noCapacity launches no machine.
	noCapacity bool
	// before is called before each change of the size.
	before func(to int, ends []string)
	calls  int
	// read, when set, is called before each reading.
	read func()
}

type killed struct{}

var groupRef = inventory.Ref{
	Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindAutoScalingGroup, ID: "embed",
}

func newGroup(n int) *group {
	g := &group{desired: n, most: 50, lifetime: inventory.Persistent}
	g.fill()
	return g
}

// fill launches the machines that are missing.
func (g *group) fill() {
	for len(g.members) < g.desired && !g.noCapacity {
		g.launched++
		g.members = append(g.members, fmt.Sprintf("i-%04d", g.launched))
	}
}

func (g *group) resource() *inventory.Resource {
	return &inventory.Resource{
		ID: groupRef.ID, Kind: groupRef.Kind, Cloud: groupRef.Cloud, Account: groupRef.Account,
		Region: groupRef.Region,
		Type:   "g5.xlarge", State: inventory.StateAvailable, CreatedAt: start.Add(-time.Hour),
		Tags: map[string]string{}, Lifetime: g.lifetime,
		Detail: &inventory.AutoScalingGroup{Desired: int64(g.desired), Instances: g.members},
	}
}

func (g *group) Fleet(context.Context, inventory.Ref) (action.Fleet, error) {
	if g.read != nil {
		g.read()
	}
	f := action.Fleet{Resource: g.resource(), Desired: g.desired, Max: g.most, Drains: g.drains}
	if g.chooses {
		return f, nil
	}
	for _, id := range g.members {
		f.Replicas = append(f.Replicas, action.Replica{ID: id, Hosts: []string{id}, Serving: true})
	}
	return f, nil
}

type groupStep struct {
	From, To int
	End      []string
}

func (g *group) Plan(_ context.Context, _ *inventory.Resource, do policy.Do) ([]action.Step, error) {
	params, err := json.Marshal(groupStep{g.desired, do.To, do.Members})
	return []action.Step{{Name: "scale", Params: string(params)}}, err
}

func (g *group) Do(_ context.Context, t action.Task) (string, error) {
	fault := g.fault
	g.fault = ""
	switch fault {
	case "throttled":
		return "", errors.New("ThrottlingException: rate exceeded")
	case "refused":
		return "", &action.Refusal{Rule: "other-writer", Why: "scaling policy by-cpu sets its size as well"}
	case "killed":
		panic(killed{})
	}
	var s groupStep
	if err := json.Unmarshal([]byte(t.Step.Params), &s); err != nil {
		return "", err
	}
	ends := slices.DeleteFunc(slices.Clone(s.End), func(id string) bool { return !slices.Contains(g.members, id) })
	switch {
	case len(s.End) > 0 && len(ends) > 0:
		g.calls++
		g.before(g.desired-len(ends), ends)
		g.desired -= len(ends)
		g.members = slices.DeleteFunc(g.members, func(id string) bool { return slices.Contains(ends, id) })
	case len(s.End) == 0 && g.desired != s.To:
		if g.desired != s.From {
			return "", &action.Refusal{Rule: "changed", Why: "it has another size"}
		}
		g.calls++
		g.before(s.To, nil)
		g.desired = s.To
		g.members = g.members[:min(len(g.members), g.desired)]
	}
	g.fill()
	switch fault {
	case "killed-after":
		panic(killed{})
	case "lost":
		return "", errors.New("connection reset by peer")
	}
	return "", nil
}

func (g *group) Look(_ context.Context, t action.Task) (action.Progress, string, error) {
	var s groupStep
	if err := json.Unmarshal([]byte(t.Step.Params), &s); err != nil {
		return action.NotDone, "", err
	}
	gone := !slices.ContainsFunc(s.End, func(id string) bool { return slices.Contains(g.members, id) })
	if len(s.End) > 0 && gone || len(s.End) == 0 && g.desired == s.To {
		return action.Complete, "", nil
	}
	return action.NotDone, "", nil
}

func (g *group) Undo(context.Context, action.Task) error {
	return &action.Refusal{Rule: "irrevocable", Why: "demand sets it"}
}

func (g *group) Rehearse(context.Context, action.Task) (string, error) { return "", nil }

// acted is one process that acts on a group.
type acted struct {
	*Watcher
	source *stub
	clock  *actiontest.Clock
	store  action.Store
	group  *group
	refuse string
	// held counts the reservations that are not given back.
	held int
}

// acting returns a process over a group and a state that others may share.
func acting(c fleet.Config, g *group, store action.Store, clock *actiontest.Clock, source *stub) *acted {
	p := &acted{source: source, clock: clock, store: store, group: g}
	p.Watcher = NewWatcher(slog.New(slog.DiscardHandler))
	if g.before == nil {
		g.before = func(int, []string) {}
	}
	p.Find = func(context.Context, *policy.Do) (*Provider, error) {
		return &Provider{Ref: groupRef, Cloud: g, Machine: func(string, string) Machine {
			return Machine{Hourly: inventory.Known(money.USD)}
		}}, nil
	}
	p.set(c)
	return p
}

// set puts a configuration in force.
func (p *acted) set(c fleet.Config) {
	do := policy.Do{Verb: policy.Scale, Fleet: "asg/embed", Min: c.Min, Max: c.Max, ScratchDisks: true}
	p.Set(Configured{"asg/embed": {
		config: c, readers: []reader{p.source},
		policy: &policy.Policy{Name: "embed-fleet", Do: do, Mode: policy.Enforce},
		status: Status{ID: "asg/embed", Policy: "embed-fleet", Bounds: c.Bounds},
	}})
}

// step reads and acts once; it returns true where the process was killed by a fault.
func (p *acted) step(t testing.TB) (died bool) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if _, died = r.(killed); !died {
				panic(r)
			}
		}
	}()
	p.Look(t.Context(), p.clock.Wall)
	p.act(t)
	return false
}

// act carries out the newest decision.
func (p *acted) act(t testing.TB) {
	t.Helper()
	_, err := p.Act(t.Context(), Acting{
		Ladder: func(*Provider) (*action.Ladder, error) {
			return &action.Ladder{
				Store: p.store, Cloud: p.group, Notifier: actiontest.NewPeople(), Account: "aws/1", Actor: "curfew",
				Enforce: true, Clock: p.clock.Read,
			}, nil
		},
		Admit: func(context.Context, Growth) (func(context.Context) error, error) {
			if p.refuse != "" {
				return nil, &action.Refusal{Rule: "budget", Why: p.refuse}
			}
			p.held++
			return func(context.Context) error { p.held--; return nil }, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// says sets the demand now, and the hosts without requests.
func (p *acted) says(inFlight, rate float64, idle ...string) {
	p.source.says(p.clock.Wall, inFlight, rate, len(p.group.members), 0)
	p.source.reading.Idle = map[string]bool{}
	for _, host := range idle {
		p.source.reading.Idle[host] = true
	}
}

func (p *acted) audit(t testing.TB) (out []action.Entry) {
	t.Helper()
	err := p.store.Entries(t.Context(), action.Query{}, func(e action.Entry) error {
		out = append(out, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newActed(c fleet.Config, n int) *acted {
	clock := actiontest.NewClock(start.Add(365 * 24 * time.Hour))
	return acting(c, newGroup(n), actiontest.NewStore(), clock, &stub{})
}

// TestActsAsAReplay lets a live fleet on a stepped clock act on what a replay of arrivals saw: each
// decision, and each size that follows, is that of the replay.
func TestActsAsAReplay(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	at, arrivals := 0.0, []float64{}
	for i := range 30_000 {
		at += random.ExpFloat64() / (3 + 20*float64(i/5000%2))
		arrivals = append(arrivals, at)
	}
	type step struct {
		reading  fleet.Reading
		decision fleet.Decision
	}
	var replayed []step
	params := scaling.Params{
		Config: fleetConfig(), Arrivals: arrivals, Start: 2, ColdStart: time.Minute,
		Decided: func(r fleet.Reading, d fleet.Decision) { replayed = append(replayed, step{r, d}) },
	}
	if _, err := scaling.Run(params, scaling.New(params)); err != nil {
		t.Fatal(err)
	}
	p := newActed(params.Config, 2)
	p.clock.Wall = start
	p.group.drains = true
	differences, changes := 0, 0
	p.Decided = func(_ string, _ fleet.Config, _ fleet.Reading, d fleet.Decision) {
		if d != replayed[0].decision {
			differences++
		}
	}
	for len(replayed) > 0 {
		s := replayed[0]
		p.clock.Advance(s.reading.At.Sub(p.clock.Wall))
		p.source.says(s.reading.At, s.reading.Demand.InFlight.Or(-1), s.reading.Demand.Rate.Or(-1), s.reading.Ready,
			s.reading.Actual-s.reading.Ready)
		p.step(t)
		if p.group.desired != s.decision.Wanted {
			t.Fatalf("at %s the size is %d, %d in the replay: %+v", s.reading.At, p.group.desired, s.decision.Wanted,
				p.All()[0])
		}
		if s.decision.Wanted != s.decision.Actual {
			changes++
		}
		replayed = replayed[1:]
	}
	if differences != 0 || changes < 4 || p.group.calls != changes {
		t.Errorf("%d decisions differ; %d changes by %d calls", differences, changes, p.group.calls)
	}
}

// busyThenQuiet lets a fleet grow, and demand end afterwards.
func busyThenQuiet(t *testing.T, p *acted) {
	t.Helper()
	p.says(150, 30)
	p.step(t)
	if p.group.desired <= 2 {
		t.Fatalf("does not grow: %+v", p.All()[0])
	}
}

func TestGrowsAtOnceAndRecordsWhy(t *testing.T) {
	p := newActed(fleetConfig(), 2)
	busyThenQuiet(t, p)
	var what []string
	for _, e := range p.audit(t) {
		what = append(what, e.What)
		if e.What == action.EventConfirmed && !strings.Contains(e.Because, "replicas of work") {
			t.Errorf("no reason: %+v", e)
		}
	}
	if got := strings.Join(what, " "); got != "observed intent outcome confirmed" || p.held != 1 {
		t.Errorf("audit log %q, %d reservations", got, p.held)
	}
}

// TestEndsDrainedMachinesOnly shrinks by the machines that metrics show without requests.
func TestEndsDrainedMachinesOnly(t *testing.T) {
	p := newActed(fleetConfig(), 6)
	var ended []string
	p.group.before = func(_ int, ends []string) { ended = append(ended, ends...) }
	for range 30 { // 7 minutes of little demand on every machine
		p.says(2, 0.5)
		p.step(t)
		p.clock.Advance(15 * time.Second)
	}
	if len(ended) > 0 || !strings.Contains(p.All()[0].Blocked, "drained") {
		t.Fatalf("ended %v; %q", ended, p.All()[0].Blocked)
	}
	p.says(2, 0.5, "i-0003", "i-0005")
	p.step(t)
	if !slices.Equal(ended, []string{"i-0003", "i-0005"}) || p.group.desired != 4 {
		t.Errorf("ended %v, size %d", ended, p.group.desired)
	}
}

// TestManagerChoosesMachines shrinks a fleet whose manager drains the machines that it chooses.
func TestManagerChoosesMachines(t *testing.T) {
	p := newActed(fleetConfig(), 4)
	p.group.drains, p.group.chooses = true, true
	for range 30 {
		p.says(1, 0.2)
		p.step(t)
		p.clock.Advance(15 * time.Second)
	}
	if p.group.desired != 1 || p.group.calls != 1 {
		t.Errorf("size %d after %d calls: %+v", p.group.desired, p.group.calls, p.All()[0])
	}
}

// TestRequestRacesTheEnd gives a drained machine a request between the decision and the verification.
func TestRequestRacesTheEnd(t *testing.T) {
	p := newActed(fleetConfig(), 2)
	p.group.before = func(to int, ends []string) { t.Errorf("ended %v", ends) }
	for range 30 {
		p.says(1, 0.2, "i-0001")
		p.source.then = func() { p.source.reading.Idle = nil }
		p.step(t)
		p.clock.Advance(15 * time.Second)
	}
	if p.group.calls != 0 || p.All()[0].Decision.Wanted != 1 {
		t.Errorf("%d calls; %+v", p.group.calls, p.All()[0])
	}
}

// TestChangesBeforeTheCall changes demand or bounds between each decision and its verification.
func TestChangesBeforeTheCall(t *testing.T) {
	for _, tc := range []struct {
		name   string
		size   int
		demand float64
		steps  int
		change func(p *acted)
	}{
		{"demand returns", 3, 1, 30, func(p *acted) { p.says(150, 30) }},
		{"demand falls silent", 3, 1, 30, func(p *acted) { p.source.reading.Sample = fleet.Sample{Source: "vllm"} }},
		{"demand ends", 2, 150, 1, func(p *acted) { p.says(1, 0.2) }},
		{"the owner raises the minimum", 3, 1, 30, func(p *acted) {
			c := fleetConfig()
			c.Min = 3
			p.set(c)
		}},
		{"the owner lowers the maximum", 2, 150, 1, func(p *acted) {
			c := fleetConfig()
			c.Max = 2
			p.set(c)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newActed(fleetConfig(), tc.size)
			p.group.drains = true
			verified := false
			for range tc.steps {
				p.says(tc.demand, tc.demand/5)
				p.set(fleetConfig())
				reads := 0
				p.group.read = func() {
					if reads++; reads == 2 { // the first one was for the decision
						verified = true
						tc.change(p)
					}
				}
				p.step(t)
				p.clock.Advance(15 * time.Second)
			}
			if !verified || p.group.calls != 0 {
				t.Errorf("%d calls: %+v", p.group.calls, p.All()[0])
			}
		})
	}
}

func TestBudgetAndFreezeHoldGrowth(t *testing.T) {
	p := newActed(fleetConfig(), 2)
	p.refuse = "budget inference has $0.10 left"
	for range 3 {
		p.says(150, 30)
		p.step(t)
		p.clock.Advance(15 * time.Second)
	}
	if p.group.calls != 0 || !strings.Contains(p.All()[0].Blocked, "$0.10") {
		t.Fatalf("grew over the budget: %+v", p.All()[0])
	}
	if n := len(p.audit(t)); n != 1 {
		t.Errorf("%d entries for one reason", n)
	}
	p.refuse = ""
	if err := p.store.Freeze(t.Context(), action.Freeze{By: "ana", Reason: "incident", At: p.clock.Wall}); err != nil {
		t.Fatal(err)
	}
	p.says(150, 30)
	p.step(t)
	if p.group.calls != 0 || p.held != 0 {
		t.Errorf("acted while frozen: %d calls, %d reservations", p.group.calls, p.held)
	}
}

func TestRefusedCallGivesTheReservationBack(t *testing.T) {
	p := newActed(fleetConfig(), 2)
	p.group.fault = "refused"
	p.says(150, 30)
	p.step(t)
	if p.group.calls != 0 || p.held != 0 || !strings.Contains(p.All()[0].Blocked, "by-cpu") {
		t.Errorf("%d calls, %d reservations, %q", p.group.calls, p.held, p.All()[0].Blocked)
	}
}

func TestObservingPolicyDoesNotAct(t *testing.T) {
	p := newActed(fleetConfig(), 2)
	p.fleets["asg/embed"].policy.Mode = policy.Observe
	p.says(150, 30)
	p.step(t)
	if p.group.calls != 0 || p.All()[0].Target <= 2 {
		t.Errorf("%d calls: %+v", p.group.calls, p.All()[0])
	}
}

func TestUnpricedMachinesAreNotStarted(t *testing.T) {
	p := newActed(fleetConfig(), 2)
	p.Find = func(context.Context, *policy.Do) (*Provider, error) {
		return &Provider{
			Ref: groupRef, Cloud: p.group, Machine: func(string, string) Machine { return Machine{} },
		}, nil
	}
	p.says(150, 30)
	p.step(t)
	if p.group.calls != 0 || !strings.Contains(p.All()[0].Blocked, "no price") {
		t.Errorf("%d calls, %q", p.group.calls, p.All()[0].Blocked)
	}
}

// TestMixedFleetHasItsHighestPrice prices a group without a machine that chooses among types.
func TestMixedFleetHasItsHighestPrice(t *testing.T) {
	prices := map[string]money.Amount{"g5.xlarge": money.USD, "g6.xlarge": 3 * money.USD}
	p := &Provider{Machine: func(name, _ string) Machine {
		hourly, priced := prices[name]
		if !priced {
			return Machine{}
		}
		return Machine{Hourly: inventory.Known(hourly)}
	}}
	at := action.Fleet{Resource: &inventory.Resource{}, Types: []string{"g5.xlarge", "g6.xlarge"}}
	if got := p.machine(at).Hourly.Or(0); got != 3*money.USD {
		t.Errorf("got %s, want the highest", got)
	}
	at.Types = append(at.Types, "x9.unknown")
	if hourly, priced := p.machine(at).Hourly.Get(); priced {
		t.Errorf("got %s with a type without a price", hourly)
	}
	z := &resize{provider: p, at: at}
	if why := z.noPrice(); !strings.Contains(why, "x9.unknown") {
		t.Errorf("the reason is %q", why)
	}
}

// TestFaultsKeepTheBounds plays random demand, silence, faults, kills, changes of the bounds and two
// processes. Each change of the size is within the bounds in force, and none follows unknown demand.
func TestFaultsKeepTheBounds(t *testing.T) {
	grown, shrunk := 0, 0
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := fleetConfig()
		c.Min, c.Max = 2, 8
		clock := actiontest.NewClock(start.Add(365 * 24 * time.Hour))
		g, store := newGroup(3), actiontest.NewStore()
		sources := []*stub{{}, {}}
		known := true
		var busy []string
		g.before = func(to int, ends []string) {
			switch {
			case to < c.Min, to > c.Max && to > g.desired:
				t.Fatalf("seed %d: to %d, outside of %d to %d", seed, to, c.Min, c.Max)
			case to < g.desired && !known:
				t.Fatalf("seed %d: from %d to %d on unknown demand", seed, g.desired, to)
			case to > g.desired && !known && to > c.Min:
				t.Fatalf("seed %d: grows to %d on unknown demand", seed, to)
			case slices.ContainsFunc(ends, func(id string) bool { return slices.Contains(busy, id) }):
				t.Fatalf("seed %d: a busy machine of %v ends", seed, ends)
			}
			if to > g.desired {
				grown++
			} else {
				shrunk++
			}
		}
		processes := []*acted{acting(c, g, store, clock, sources[0]), acting(c, g, store, clock, sources[1])}
		load := 20.0
		for range 250 {
			if random.IntN(40) == 0 {
				load = random.Float64() * 200
			}
			if random.IntN(60) == 0 {
				c.Max = 4 + random.IntN(6)
				for _, p := range processes {
					p.set(c)
				}
			}
			faults := []string{"", "", "", "", "throttled", "lost", "killed", "killed-after", "refused"}
			g.fault = faults[random.IntN(len(faults))]
			g.noCapacity = random.IntN(4) == 0
			g.fill()
			known = random.IntN(30) > 0
			busy = nil
			var idle []string
			for _, id := range g.members {
				if load > 30 && random.IntN(3) == 0 {
					busy = append(busy, id)
				} else {
					idle = append(idle, id)
				}
			}
			for i, p := range processes {
				p.says(load, load/4, idle...)
				if !known {
					p.source.reading = serving.Reading{Sample: fleet.Sample{Source: "vllm", Problem: "silent"}}
				}
				if p.step(t) { // another process starts in its place
					processes[i] = acting(c, g, store, clock, p.source)
				}
			}
			clock.Advance(15 * time.Second)
		}
	}
	if grown < 30 || shrunk < 30 {
		t.Errorf("grew %d times and shrank %d times: the schedules show little", grown, shrunk)
	}
}

// TestKilledInTheMiddle ends the process before or after the provider's effect: the next one makes no
// more calls than one that lived, and comes to its size.
func TestKilledInTheMiddle(t *testing.T) {
	run := func(fault string) (calls, size int) {
		p := newActed(fleetConfig(), 2)
		p.group.fault = fault
		for i := range 8 {
			p.says(80, 14)
			if died := p.step(t); died != (i == 0 && fault != "") {
				t.Fatalf("killed %t at step %d", died, i)
			} else if died {
				p = acting(fleetConfig(), p.group, p.store, p.clock, p.source)
			}
			p.clock.Advance(15 * time.Second)
		}
		return p.group.calls, p.group.desired
	}
	calls, size := run("")
	for _, fault := range []string{"killed", "killed-after"} {
		if gotCalls, got := run(fault); gotCalls != calls || got != size || calls == 0 {
			t.Errorf("%s: %d calls to size %d, want %d to %d", fault, gotCalls, got, calls, size)
		}
	}
}

func TestNoCapacityIsAskedForOnce(t *testing.T) {
	p := newActed(fleetConfig(), 2)
	p.group.noCapacity = true
	for range 40 {
		p.says(90, 18)
		p.step(t)
		p.clock.Advance(15 * time.Second)
	}
	if p.group.calls != 1 || len(p.group.members) != 2 || p.group.desired > fleetConfig().Max {
		t.Errorf("%d calls, wants %d", p.group.calls, p.group.desired)
	}
}

// TestCarriesADecisionOutOnce acts several times between two readings.
func TestCarriesADecisionOutOnce(t *testing.T) {
	p := newActed(fleetConfig(), 2)
	busyThenQuiet(t, p)
	entries := len(p.audit(t))
	for range 3 {
		p.act(t)
	}
	if p.group.calls != 1 || p.held != 1 || len(p.audit(t)) != entries {
		t.Errorf("%d calls, %d reservations, %d entries after %d", p.group.calls, p.held, len(p.audit(t)), entries)
	}
}
