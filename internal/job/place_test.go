package job

import (
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/test/data"
)

// campaign reads recorded availability of skypilot-org/spot-traces (Can't Be Late, NSDI 2024).
func campaign(t *testing.T) spot.Trace {
	t.Helper()
	f, err := os.Open(data.Path(t, "skypilot-spot/runs.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := spot.Read(z, "runs.csv", spot.Map{
		Columns: map[string]string{"zone": "trace", "time": "t_s", "length": "len_s", "up": "nodes_up"},
		Gap:     195 * time.Second, Zones: "availability/aws-02-15-2023/*",
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func campaignParams(t *testing.T) spot.Params {
	t.Helper()
	deadline, err := spot.ParseDeadline("1.15x", 48*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return spot.Params{Work: 48 * time.Hour, Deadline: deadline, Restart: 12 * time.Minute, Every: 12 * time.Hour,
		SpotPrice: 918 * money.USD / 1000, OnDemandPrice: 306 * money.Cent}
}

// placedWorld is a world in which a job runs on the machines of recorded zones, through the live keeper.
type placedWorld struct {
	*world
	p     spot.Params
	gap   time.Duration
	zones []spot.Zone
	start int
	zero  time.Time
	k     *Keeper
	id    string
	// tries counts the launches that found no machine.
	tries int
}

func newPlacedWorld(t testing.TB, tr spot.Trace, zones []spot.Zone, p spot.Params, start int,
	sight bool) *placedWorld {
	w := &placedWorld{world: newWorld(t, 1), p: p, gap: tr.Gap, zones: zones, start: start}
	w.exact, w.setup, w.steps = true, p.Restart, int64(p.Work/time.Second)
	w.zero = w.now.Add(-time.Duration(start) * tr.Gap)
	rate := func(a money.Amount) *money.Rate { r := money.Rate(a) * 1000; return &r }
	w.pools = []session.Pool{{Type: "p3.2xlarge", Region: "us-east-1", Rate: rate(p.OnDemandPrice)}}
	for z := range zones {
		w.pools = append(w.pools, session.Pool{
			Type: "p3.2xlarge", Region: "us-east-1", Zone: fmt.Sprint(z), Spot: true, Rate: rate(p.SpotPrice),
		})
	}
	w.up = func(pool session.Pool, at time.Time) bool {
		up := !pool.Spot || w.isUp(pool, at)
		if !up {
			w.tries++
		}
		return up
	}
	w.id = w.submit("resources: {gpus: V100}\ncapacity: auto\nduration: 48h\nretries: {interruptions: 10000}\n" +
		"deadline: " + p.Deadline.String() + "\n" +
		"checkpoint: {dir: /ckpt, to: \"s3://b/c\", restart: " + p.Restart.String() + "}\n")
	j := w.jobs[w.id]
	j.AdmittedAt, j.HoldID = w.now, "h"
	w.jobs[w.id] = j
	w.k = w.keeper()
	w.k.Sessions.Timeouts["sim"] = session.Timeouts{
		VisibilityDelay: 1, LookupInterval: 1, TerminateRetry: 1, Grace: 1, Save: 1, PoolBackoff: 1,
	}
	w.k.Placer = &Placer{Sessions: sessionStore{w.world}, Launchers: w.k.Sessions.Launchers, Look: tr.Gap}
	if sight {
		w.k.Placer.Sight, w.k.Placer.SightSince = w.isUp, w.zero
	}
	return w
}

// isUp reports whether a zone has machines at a time.
func (w *placedWorld) isUp(pool session.Pool, at time.Time) bool {
	for z, p := range w.pools[1:] {
		if p.SamePlace(pool) {
			return w.zones[z].Up[int(at.Sub(w.zero)/w.gap)]
		}
	}
	return false
}

// settle passes until nothing changes. Each pass takes a millisecond.
func (w *placedWorld) settle() {
	w.t.Helper()
	for range 150 {
		before := w.versions()
		w.pass(w.k, w.id)
		w.tick(time.Millisecond)
		if w.versions() == before {
			return
		}
	}
	w.t.Fatalf("the records do not settle: %+v", w.jobs[w.id])
}

func (w *placedWorld) versions() (sum int64) {
	for _, s := range w.sessions {
		sum += s.Version
	}
	return sum + w.jobs[w.id].Version + w.orderSerials()
}

func (w *placedWorld) orderSerials() (sum int64) {
	for _, o := range w.orders {
		sum += o.Serial
	}
	return sum
}

// on returns the machine that runs, and fails the test where more than one does.
func (w *placedWorld) on() spot.Machine {
	on := spot.Nothing
	for _, m := range w.machines {
		if !m.goneAt.IsZero() {
			continue
		}
		if on != spot.Nothing {
			w.t.Fatalf("two machines run at %s", w.now)
		}
		on = spot.OnDemand
		for z, p := range w.pools[1:] {
			if p.SamePlace(m.Pool) {
				on = spot.InZone + spot.Machine(z)
			}
		}
	}
	return on
}

// replay runs the job to its end and returns its machine in each gap.
func (w *placedWorld) replay() (machines []spot.Machine) {
	w.t.Helper()
	t0 := w.now
	for n := range int(w.p.Deadline / w.gap) {
		at := t0.Add(time.Duration(n) * w.gap)
		if n > 0 { // the keeper has heard of all that happened before
			w.tick(at.Add(-100 * time.Millisecond).Sub(w.now))
			if w.unheard() {
				w.settle()
			}
			w.tick(at.Sub(w.now))
		}
		if w.jobs[w.id].State.IsFinal() {
			break
		}
		for _, m := range w.machines {
			if m.goneAt.IsZero() && m.Pool.Spot && !w.isUp(m.Pool, w.now) {
				m.goneAt = w.now // its work is saved within the notice
			}
		}
		w.settle()
		machines = append(machines, w.on())
	}
	if end := t0.Add(w.p.Deadline / w.gap * w.gap); !w.jobs[w.id].State.IsFinal() {
		w.tick(end.Sub(w.now))
		w.settle()
	}
	return machines
}

// unheard reports whether a command began or ended, and the keeper has not heard of it.
func (w *placedWorld) unheard() bool {
	for _, m := range w.machines {
		s := w.sessions[m.Session]
		if m.goneAt.IsZero() && (!m.commandAt.IsZero() && s.CommandAt.IsZero() || m.outcome != nil) {
			return true
		}
	}
	return false
}

// amount returns what machines cost, gaps being paid whole.
func (w *placedWorld) amount(machines []spot.Machine) money.Amount {
	onDemand, onSpot := int64(0), int64(0)
	for _, m := range machines {
		switch {
		case m == spot.OnDemand:
			onDemand++
		case m >= spot.InZone:
			onSpot++
		}
	}
	seconds := int64(w.gap / time.Second)
	a, err := w.p.OnDemandPrice.Mul(onDemand*seconds, 3600)
	b, errSpot := w.p.SpotPrice.Mul(onSpot*seconds, 3600)
	sum, errSum := a.Add(b)
	if err := errors.Join(err, errSpot, errSum); err != nil {
		w.t.Fatal(err)
	}
	return sum
}

// cost returns what machines cost in dollars.
func (w *placedWorld) cost(machines []spot.Machine) float64 { return float64(w.amount(machines)) / 1e9 }

// checkLive compares the dollars that the job knows of with its machines: it pays seconds.
func (w *placedWorld) checkLive(t *testing.T, machines []spot.Machine) {
	t.Helper()
	j := w.jobs[w.id]
	spent, err := j.Spent()
	if err != nil {
		t.Fatal(err)
	}
	most := w.amount(machines) + money.Amount(len(j.Attempts)) // each attempt rounds once
	if spent > most || spent < most-30*money.Cent {
		t.Errorf("the job counts %s, its machines cost %s", spent.Exact(), most.Exact())
	}
	if j.State != Succeeded || w.now.Sub(j.RequestedAt) > w.p.Deadline {
		t.Errorf("%s (%s) after %s", j.State, j.Why, w.now.Sub(j.RequestedAt))
	}
}

// slowly reports whether all of the recorded data is to be replayed.
func slowly() bool { return os.Getenv("CURFEW_SLOW") != "" }

// TestPlacedJobDecidesAsPlanSpot replays recorded availability through the live keeper, which sees as
// much of it as plan spot: each decision is the same.
func TestPlacedJobDecidesAsPlanSpot(t *testing.T) {
	tr, p := campaign(t), campaignParams(t)
	if !slowly() {
		tr.Zones = tr.Zones[:2]
		p.Every = 300 * time.Hour
	}
	cases, err := spot.Cases(tr, p)
	if err != nil {
		t.Fatal(err)
	}
	each(cases, func(c spot.Case) {
		w := newPlacedWorld(t, tr, zonesOf(tr, c), p, c.Start, true)
		got := w.replay()
		if n := len(c.Machines); !slices.Equal(got[:min(n, len(got))], c.Machines) {
			at := 0
			for at < min(n, len(got)) && got[at] == c.Machines[at] {
				at++
			}
			t.Errorf("%s from sample %d: gap %d of %d differs", c.Market, c.Start, at, n)
			return
		}
		w.checkLive(t, got)
	})
	t.Logf("%d cases", len(cases))
}

// each calls a function with each case, several at once.
func each(cases []spot.Case, do func(spot.Case)) {
	var wait sync.WaitGroup
	defer wait.Wait()
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, c := range cases {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			do(c)
		})
	}
}

func zonesOf(tr spot.Trace, c spot.Case) []spot.Zone {
	i := slices.IndexFunc(tr.Zones, func(z spot.Zone) bool { return z.Name == c.Market })
	return tr.Zones[i : i+1]
}

// TestPlacedJobSavesByTryingAlone replays the same availability through a keeper that knows only what
// its own launches and interruptions tell. It saves more than the published strategy uniform progress
// does with sight, and misses no deadline.
func TestPlacedJobSavesByTryingAlone(t *testing.T) {
	tr, p := campaign(t), campaignParams(t)
	if !slowly() {
		tr.Zones = tr.Zones[:1]
		p.Every = 300 * time.Hour
	}
	cases, err := spot.Cases(tr, p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := spot.Replay(tr, p)
	if err != nil {
		t.Fatal(err)
	}
	full := (p.Work + p.Restart).Hours() * float64(p.OnDemandPrice) / 1e9
	var mu sync.Mutex
	paid, tries, launches := 0.0, 0, 0
	each(cases, func(c spot.Case) {
		w := newPlacedWorld(t, tr, zonesOf(tr, c), p, c.Start, false)
		got := w.replay()
		w.checkLive(t, got)
		mu.Lock()
		defer mu.Unlock()
		paid, tries, launches = paid+w.cost(got), tries+w.tries, launches+w.runs
	})
	saving := 1 - paid/float64(len(cases))/full
	t.Logf("%d cases save %.2f %%, with %d launches and %d tries without a machine", len(cases), 100*saving, launches,
		tries)
	for _, x := range r.Results {
		t.Logf("%s saves %.2f %% of the same cases", x.Name, 100*x.Saving)
		if x.Name == spot.UniformProgress && saving <= x.Saving {
			t.Errorf("the job saves %.2f %%, and %s %.2f %% with sight", 100*saving, x.Name, 100*x.Saving)
		}
	}
	if slowly() && saving <= 0.39 {
		t.Errorf("the job saves %.2f %%", 100*saving)
	}
}

// TestMovedJobHasOneWriter moves a job between places that come and go, while keepers are killed at any
// call: the attempt that takes over is launched next to the one that works, and writes only once that is
// over. Nothing is left running, and the job pays for no more than its limit.
func TestMovedJobHasOneWriter(t *testing.T) {
	moves := 0
	for seed := range 12 {
		w := newWorld(t, uint64(seed))
		w.crashRate, w.steps = 0.02, 240
		rate := func(cents int64) *money.Rate { r := money.Rate(cents) * money.USDPerUnit / 100; return &r }
		w.pools = []session.Pool{{Type: "g6.xlarge", Region: "us-east-1", Rate: rate(200)}}
		for z := range 3 {
			w.pools = append(w.pools, session.Pool{
				Type: "g6.xlarge", Region: "us-east-1", Zone: fmt.Sprint(z), Spot: true, Rate: rate(60 + int64(z)),
			})
		}
		w.up = func(p session.Pool, at time.Time) bool {
			return !p.Spot || at.Unix()/3600%3 == 2 && at.Unix()/600%4 != int64(p.Zone[0]-'0')
		}
		id := w.submit("resources: {gpus: L4}\ncapacity: auto\nduration: 4h\ndeadline: 7h\nmax_cost: 20\n" +
			"retries: {interruptions: 1000}\ncheckpoint: {dir: /ckpt, to: \"s3://b/c\", restart: 4m}\n")
		placer := &Placer{Sessions: sessionStore{w}, Launchers: map[string]session.Launcher{"sim": launcher{w}}}
		w.placer = placer
		j := w.run(id, 1+seed%2, func() {
			for _, m := range w.machines {
				if m.goneAt.IsZero() && m.Pool.Spot && !w.up(m.Pool, w.now) {
					m.goneAt = w.now
				}
			}
			w.reconcile()
		})
		late := j.EndedAt.Sub(j.RequestedAt) > 7*time.Hour // of killed keepers
		if j.State != Succeeded && !late || j.State == Succeeded && w.store.step < w.steps {
			t.Errorf("seed %d: %s: %s; step %d of %d is saved", seed, j.State, j.Why, w.store.step, w.steps)
		}
		for epoch, by := range w.store.writers {
			if len(by) > 1 {
				t.Errorf("seed %d: epoch %d was written by %v", seed, epoch, by)
			}
		}
		for _, a := range j.Attempts {
			if a.EndedBy == Moved {
				moves++
			}
			if !a.Over() {
				t.Errorf("seed %d: attempt %d is not over", seed, a.Number)
			}
		}
		for _, s := range w.sessions {
			if !s.State.IsFinal() {
				t.Errorf("seed %d: session %s is %s", seed, s.Name, s.State)
			}
		}
	}
	if moves == 0 {
		t.Error("no job moved: the test does not reach what it is for")
	}
	t.Logf("%d moves", moves)
}

// TestPlaceOfFaultyGPUIsAvoided lets a GPU fail at the cheapest place: the next attempt goes elsewhere,
// with and without a placer, on spot and on demand, unless there is no other place.
func TestPlaceOfFaultyGPUIsAvoided(t *testing.T) {
	rate := func(cents int64) *money.Rate { r := money.Rate(cents) * money.USDPerUnit / 100; return &r }
	pool := func(zone string, onSpot bool, cents int64) session.Pool {
		return session.Pool{Type: "g6.xlarge", Region: "us-east-1", Zone: zone, Spot: onSpot, Rate: rate(cents)}
	}
	for _, c := range []struct {
		name, capacity, deadline string
		pools                    []session.Pool
		placed                   bool
		want                     []string
		waits                    time.Duration // below 0: as long as it likes
	}{
		{"launch", "on-demand", "20h", []session.Pool{pool("a", false, 100), pool("b", false, 200)}, false,
			[]string{"a", "b"}, 0},
		{"spot", "spot", "20h", []session.Pool{pool("a", true, 30), pool("b", true, 40)}, true, []string{"a", "b"}, 0},
		{"no time to wait", "auto", "90m",
			[]session.Pool{pool("a", true, 30), pool("a", false, 100), pool("b", false, 110)}, true,
			[]string{"a", "b"}, -1}, // by its deadline
		{"only place", "spot", "20h", []session.Pool{pool("a", true, 30)}, true, []string{"a", "a"}, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.pools = c.pools
			w.fail = func(attempt int, step int64) *session.Outcome {
				if attempt > 1 || step < 5 {
					return nil
				}
				return &session.Outcome{Class: session.GPUFault, Evidence: "NVRM: Xid 79", At: w.now}
			}
			if c.placed {
				w.placer = &Placer{
					Sessions: sessionStore{w}, Launchers: map[string]session.Launcher{"sim": launcher{w}},
				}
			}
			id := w.submit("resources: {gpus: L4}\ncapacity: " + c.capacity + "\nduration: 1h\n" +
				"deadline: " + c.deadline +
				"\ncheckpoint: {dir: /ckpt, to: \"s3://b/c\"}\n")
			noted := false
			j := w.run(id, 1, func() {
				if p := w.jobs[id].Placed; p != nil {
					noted = noted || slices.ContainsFunc(p.Options, func(o Option) bool {
						return strings.Contains(o.Note, "avoided after the GPU fault")
					})
				}
			})
			var zones []string
			for _, a := range j.Attempts {
				if !a.LaunchedAt.IsZero() {
					zones = append(zones, a.Pool.Zone)
				}
			}
			if j.State != Succeeded || len(zones) < 2 || !slices.Equal(zones[:2], c.want) ||
				j.Attempts[0].EndedBy != session.GPUFault {
				t.Errorf("%s (%s) in %q, want it in %q", j.State, j.Why, zones, c.want)
			}
			waited := j.Attempts[1].BeganAt.Sub(j.Attempts[0].EndedAt)
			if c.waits >= 0 && (waited < c.waits || waited > c.waits+20*time.Second) {
				t.Errorf("it waited %s, want about %s", waited, c.waits)
			}
			if want := c.placed && c.want[0] != c.want[1]; noted != want {
				t.Errorf("the fault is among the figures: %t, want %t", noted, want)
			}
		})
	}
}

// TestWaitingJobTriesAgainAtEachLook checks a job without capacity: it has one attempt in one session,
// and tries each place once between two looks, also places that cost more than its gate allowed.
func TestWaitingJobTriesAgainAtEachLook(t *testing.T) {
	for _, c := range []struct {
		name    string
		ceiling money.Amount
		tries   int
	}{
		{"no machines", 0, 2 * 12 * 3},
		{"one place over the ceiling", 61 * money.Cent, 12 * 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			rate := func(cents int64) *money.Rate { r := money.Rate(cents) * money.USDPerUnit / 100; return &r }
			w.pools = nil
			for z := range 2 {
				w.pools = append(w.pools, session.Pool{
					Type: "g6.xlarge", Region: "us-east-1", Zone: fmt.Sprint(z), Spot: true,
					Rate: rate(60 + 10*int64(z)),
				})
			}
			opens, tries := w.now.Add(3*time.Hour), 0
			w.up = func(_ session.Pool, at time.Time) bool {
				if at.Before(opens) {
					tries++
				}
				return !at.Before(opens)
			}
			id := w.submit("resources: {gpus: L4}\ncapacity: spot\nduration: 1h\n" +
				"checkpoint: {dir: /ckpt, to: \"s3://b/c\", restart: 4m}\n")
			j := w.jobs[id]
			j.AdmittedAt, j.HoldID, j.HourlyCeiling = w.now, "h", c.ceiling
			w.jobs[id] = j
			w.placer = &Placer{Sessions: sessionStore{w}, Launchers: map[string]session.Launcher{"sim": launcher{w}}}
			waited := false
			j = w.run(id, 1, func() {
				if j := w.jobs[id]; j.State == Waiting {
					waited = true
					if j.Why == "" {
						t.Error("it does not say why it waits")
					}
				}
			})
			if j.State != Succeeded || !waited || len(j.Attempts) != 1 || len(w.sessions) != 1 {
				t.Errorf("%s (%s) after %d attempts in %d sessions, waited %t", j.State, j.Why, len(j.Attempts),
					len(w.sessions), waited)
			}
			if tries < c.tries*9/10 || tries > c.tries*11/10 {
				t.Errorf("%d tries in 3 hours, want about %d", tries, c.tries)
			}
			if s := w.sessions[j.Attempts[0].Session]; len(s.CapacityFailures) > 4 || s.Version > int64(tries)*6+100 {
				t.Errorf("its session keeps %d failures after %d writes", len(s.CapacityFailures), s.Version)
			}
		})
	}
}

// TestWaitingJobEndsByItsBounds checks that a job without capacity ends at its deadline and by Cancel,
// and that waiting uses up neither max_runtime nor dollars.
func TestWaitingJobEndsByItsBounds(t *testing.T) {
	cancel := func(w *world, id string) error {
		_, err := w.keeper().Cancel(t.Context(), id, "ana", false)
		return err
	}
	end := func(w *world, id string) error { // its session alone: the job goes on with another
		j := w.jobs[id]
		s, err := w.keeper().Sessions.Stop(t.Context(), j.Current().Session, "bob", "asked", false)
		if s.Unplaced {
			t.Errorf("session %s is %s, and waits for places", s.Name, s.State)
		}
		return err
	}
	for _, c := range []struct {
		name, text string
		opens      time.Duration
		do         func(w *world, id string) error
		state      State
		why        string
	}{
		{"deadline", "deadline: 5h\n", 100 * time.Hour, nil, Failed, "its deadline was 2026-11-01 14:00 UTC"},
		{"cancel", "", 100 * time.Hour, cancel, Canceled, "by ana"},
		{"end of the session", "", 9 * time.Hour, end, Succeeded, "exit code 0"},
		{"max_runtime and max_cost", "max_runtime: 2h\nmax_cost: 2\n", 9 * time.Hour, nil, Succeeded, "exit code 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 2)
			rate := 60 * money.USDPerUnit / 100
			w.pools = []session.Pool{{Type: "g6.xlarge", Region: "us-east-1", Zone: "a", Spot: true, Rate: &rate}}
			opens := w.now.Add(c.opens)
			w.up = func(_ session.Pool, at time.Time) bool { return !at.Before(opens) }
			id := w.submit("resources: {gpus: L4}\ncapacity: spot\nduration: 1h\n" + c.text)
			w.placer = &Placer{Sessions: sessionStore{w}, Launchers: map[string]session.Launcher{"sim": launcher{w}}}
			j := w.run(id, 1, func() {
				if c.do != nil && w.now.Sub(w.jobs[id].RequestedAt) == time.Hour {
					if err := c.do(w, id); err != nil {
						t.Fatal(err)
					}
				}
			})
			if j.State != c.state || !strings.Contains(j.Why, c.why) {
				t.Errorf("%s: %s, want %s: %s", j.State, j.Why, c.state, c.why)
			}
			for _, s := range w.sessions {
				if !s.State.IsFinal() {
					t.Errorf("session %s is %s", s.Name, s.State)
				}
			}
		})
	}
}
