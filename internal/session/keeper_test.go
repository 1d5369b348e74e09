package session

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/gate"
)

// settle turns the clock and lets one controller and the hosts work until nothing more
// happens for the sessions, or for so many turns.
func (w *world) settle(t *testing.T, until func() bool) {
	t.Helper()
	w.fault, w.die = 0, 0
	k := w.keep()
	for range 2000 {
		w.pass(t.Context(), k)
		w.host()
		if until() {
			return
		}
		w.now = w.now.Add(3 * time.Second)
	}
	for _, s := range w.sessions {
		t.Logf("%s %s: %s; launch %s %q, end %s %q, gone %s", s.ID, s.State, s.Why, s.Launch.State(), s.Launch.Error,
			s.End.State(), s.End.Error, s.Gone)
	}
	t.Fatal("it does not come to rest")
}

func (w *world) state(id string) State { return w.sessions[id].State }

func TestASessionLivesAndEnds(t *testing.T) {
	w := newWorld(1)
	id := w.ask("demo", 2)
	w.settle(t, func() bool { return w.state(id) == Ready })
	s := w.sessions[id]
	if len(s.Machines) != 2 || s.HoldID == "" || s.Rate.String() != rated(1600).String() || len(w.alive()[id]) != 2 {
		t.Fatalf("ready with %v, hold %q, rate %v; the provider has %v", s.IDs(), s.HoldID, s.Rate, w.alive())
	}
	began := w.now
	w.now = w.now.Add(time.Hour)
	if _, err := w.keep().Stop(t.Context(), id, "ana", "down", false); err != nil {
		t.Fatal(err)
	}
	w.settle(t, func() bool { return w.state(id).Over() })
	w.ended(t)
	s = w.sessions[id]
	cost, priced, err := s.Cost(w.now)
	want, _ := rated(800).For(int64(s.EndedAt.Sub(s.LaunchedAt)/time.Second), 3600)
	want *= 2
	if s.State != Ended || err != nil || !priced || cost != want || s.EndedAt.Sub(began) < time.Hour ||
		w.holds[id] != "settled" || !w.charged[id].Equal(s.EndedAt) {
		t.Errorf("%s: it cost %s (%v %v), want %s; hold %s", s.State, cost.Exact(), priced, err, want.Exact(), w.holds[id])
	}
	var kinds []string
	for _, e := range w.events[id] {
		kinds = append(kinds, e.Kind)
	}
	for _, kind := range []string{"gate", "launching", "launched", "ready", "down", "ended"} {
		if !slices.Contains(kinds, kind) {
			t.Errorf("the journal has no %q: %v", kind, kinds)
		}
	}
	if len(w.audit) < 6 {
		t.Errorf("%d entries of the audit log", len(w.audit))
	}
}

// ended holds that nothing is left of sessions that are over, and that no work was lost.
func (w *world) ended(t *testing.T) {
	t.Helper()
	for id, s := range w.sessions {
		if !s.State.Over() {
			continue
		}
		if ids := w.alive()[id]; len(ids) > 0 {
			t.Errorf("%s is %s and has machines %v", id, s.State, ids)
		}
		if w.holds[id] == "live" {
			t.Errorf("%s is %s and its hold is live", id, s.State)
		}
		if w.leftover[id] {
			t.Errorf("%s is %s and its folder is there", id, s.State)
		}
		for node, h := range w.status[id] {
			key := fmt.Sprint(id, "/", node)
			if !s.Discard && h.Phase != HostEnding && !s.ReadyAt.IsZero() || !s.Discard && w.saved[key] < w.work[key] {
				t.Errorf("%s node %d ended in phase %s with %d of %d saved", id, node, h.Phase, w.saved[key], w.work[key])
			}
		}
	}
	for token, n := range w.launches {
		if n > 1 {
			t.Errorf("token %s launched %d times", token, n)
		}
	}
}

func TestOnlyWithoutCapacityIsAnotherPoolTried(t *testing.T) {
	w := newWorld(2)
	w.noMore["a"] = true
	id := w.ask("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	if s := w.sessions[id]; s.Pool.Zone != "b" || len(s.Tries) != 1 {
		t.Errorf("it is in zone %q after %d tries", s.Pool.Zone, len(s.Tries))
	}
	// Another session leaves the pool aside without asking, until that expires.
	w.noMore["a"] = false
	other := w.ask("other", 1)
	w.settle(t, func() bool { return w.state(other) == Ready })
	if s := w.sessions[other]; s.Pool.Zone != "b" || len(s.Tries) != 0 {
		t.Errorf("another asked zone %q after %d tries", s.Pool.Zone, len(s.Tries))
	}
	w.now = w.now.Add(time.Hour)
	third := w.ask("third", 1)
	w.settle(t, func() bool { return w.state(third) == Ready })
	if s := w.sessions[third]; s.Pool.Zone != "a" {
		t.Errorf("the pool is left aside without end: zone %q", s.Pool.Zone)
	}
	w.noMore["a"], w.noMore["b"] = true, true
	none := w.ask("none", 1)
	w.settle(t, func() bool { return w.state(none).Over() })
	if s := w.sessions[none]; s.State != Failed || !strings.Contains(s.Why, "no capacity") ||
		w.holds[none] != "released" {
		t.Errorf("%s: %s; hold %s", s.State, s.Why, w.holds[none])
	}
	w.ended(t)
}

func TestTheGateIsAsked(t *testing.T) {
	for verdict, want := range map[gate.Verdict]State{gate.Denied: Failed, gate.Held: Requested} {
		w := newWorld(3)
		w.verdict = verdict
		id := w.ask("demo", 1)
		w.settle(t, func() bool { return w.state(id) == want })
		if len(w.machines) > 0 {
			t.Errorf("%s: machines were launched", verdict)
		}
		if verdict == gate.Held {
			if s := w.sessions[id]; s.Approval == "" {
				t.Error("the request is not in the record")
			}
			w.now = w.now.Add(25 * time.Hour)
			w.settle(t, func() bool { return w.state(id) == Failed })
		}
		w.ended(t)
	}
}

func TestWorkIsSavedBeforeTheEnd(t *testing.T) {
	w := newWorld(4)
	id := w.ask("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	k := w.keep()
	if _, err := k.Stop(t.Context(), id, "ana", "down", false); err != nil {
		t.Fatal(err)
	}
	for range 300 { // its host is silent: nothing is released
		w.pass(t.Context(), k)
		w.now = w.now.Add(10 * time.Second)
	}
	if s := w.sessions[id]; s.State != Ending || len(w.alive()[id]) != 1 || !strings.Contains(s.Why, "saving its work") {
		t.Fatalf("%s (%s) with %v", s.State, s.Why, w.alive())
	}
	if _, err := k.Stop(t.Context(), id, "ana", "down", true); err != nil {
		t.Fatal(err)
	}
	w.settle(t, func() bool { return w.state(id) == Ended })
	w.ended(t)
}

func TestMachinesWithoutARecord(t *testing.T) {
	w := newWorld(5)
	add := func(id, session, installation string) {
		w.machines[id] = &fakeMachine{
			installation: installation,
			Found: Found{
				Machine: Machine{ID: id, LaunchedAt: w.now}, Session: session, LeaseUntil: w.now.Add(10 * time.Minute),
			},
		}
	}
	add("i-1", "unknown-1", "us")
	add("i-2", "unknown-2", "them")
	k := w.keep()
	w.pass(t.Context(), k)
	if s := w.sessions["unknown-1"]; !s.Adopted || !strings.Contains(s.Why, "without a record") || len(w.sessions) != 1 {
		t.Fatalf("records: %+v", w.sessions)
	}
	for range 29 {
		w.now = w.now.Add(time.Minute)
		w.pass(t.Context(), k)
	}
	if len(w.alive()["unknown-1"]) != 1 {
		t.Fatal("it was ended before its warning was over")
	}
	w.settle(t, func() bool { return w.state("unknown-1").Over() })
	if !w.machines["i-2"].ending.IsZero() {
		t.Error("a machine of another installation was ended")
	}
	// More than a few at once end none.
	for i := range 2 * MaxStrays {
		add(fmt.Sprint("i-x", i), fmt.Sprint("unknown-x", i), "us")
	}
	for range 100 {
		w.pass(t.Context(), k)
		w.now = w.now.Add(time.Minute)
	}
	for i := range 2 * MaxStrays {
		if s := w.sessions[fmt.Sprint("unknown-x", i)]; s.State != Ending ||
			!w.machines[fmt.Sprint("i-x", i)].ending.IsZero() || !strings.Contains(s.Why, "by hand") {
			t.Errorf("%s: %s", s.State, s.Why)
		}
	}
}

// TestAMachineThatComesBack holds that a machine of a session that is over is ended.
func TestAMachineThatComesBack(t *testing.T) {
	w := newWorld(6)
	id := w.ask("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	if _, err := w.keep().Stop(t.Context(), id, "ana", "down", false); err != nil {
		t.Fatal(err)
	}
	w.settle(t, func() bool { return w.state(id).Over() })
	w.now = w.now.Add(time.Minute)
	w.ask("demo", 1) // the name is another's by now
	w.machines["i-late"] = &fakeMachine{
		installation: "us", Found: Found{Machine: Machine{ID: "i-late", LaunchedAt: w.now}, Session: id},
	}
	w.settle(t, func() bool { return !w.machines["i-late"].ending.IsZero() && w.state(id).Over() })
}

func TestVanishedMachinesEndTheSession(t *testing.T) {
	w := newWorld(7)
	id := w.ask("demo", 2)
	w.settle(t, func() bool { return w.state(id) == Ready })
	m := w.machines[w.sessions[id].Machines[0].ID]
	w.now = w.now.Add(5 * time.Minute)
	m.ending, m.left = w.now, w.now
	w.settle(t, func() bool { return w.state(id).Over() })
	if s := w.sessions[id]; !strings.Contains(s.Why, "1 of its 2 machines are gone") {
		t.Errorf("why: %s", s.Why)
	}
	if n := len(w.alive()); n > 0 {
		t.Errorf("machines of %d sessions are left", n)
	}
}

// TestRandomSchedules lets two controllers work on sessions at once, with answers that are
// lost, calls that fail, processes that die before and after every step, and a provider that
// shows things late. Whatever the schedule: no token launches twice, the machines are those
// of the records once it is calm, and nothing is left after the end.
func TestRandomSchedules(t *testing.T) {
	runs := 400
	if os.Getenv("CURFEW_SLOW") != "" { //nolint:forbidigo // how long a test runs
		runs = 5000
	}
	for seed := range runs {
		w := newWorld(uint64(seed))
		w.late = time.Duration(w.rng.IntN(60)) * time.Second
		w.noMore["a"] = w.rng.IntN(3) == 0
		w.fault, w.die = w.rng.Float64()*0.3, w.rng.Float64()*0.3
		ids := []string{w.ask("one", 1), w.ask("four", 4)}
		fault, die := w.fault, w.die
		end := map[string]int{ids[0]: w.rng.IntN(60), ids[1]: w.rng.IntN(60)}
		keepers := []*Keeper{w.keep(), w.keep()}
		for turn := range 60 {
			k := keepers[w.rng.IntN(2)]
			w.pass(t.Context(), k)
			if w.rng.IntN(2) == 0 {
				w.host()
			}
			for id, at := range end {
				if at == turn {
					w.fault, w.die = 0, 0
					if _, err := k.Stop(t.Context(), id, "ana", "down", false); err != nil {
						t.Fatal(err)
					}
					w.fault, w.die = fault, die
				}
			}
			w.now = w.now.Add(time.Duration(w.rng.IntN(20)) * time.Second)
			if w.rng.IntN(40) == 0 {
				w.now = w.now.Add(10 * time.Minute) // all processes were dead for a while
			}
		}
		if w.rng.IntN(2) == 0 { // it is calm: what runs is what the records say
			third := w.ask("three", 2)
			w.settle(t, func() bool { return w.state(third) == Ready })
			if got, want := w.alive()[third], slices.Sorted(slices.Values(ids2(w.sessions[third]))); !slices.Equal(got, want) {
				t.Fatalf("seed %d: the provider has %v and the record %v", seed, got, want)
			}
			if _, err := keepers[0].Stop(t.Context(), third, "ana", "down", false); err != nil {
				t.Fatal(err)
			}
		}
		w.settle(t, func() bool {
			for _, s := range w.sessions {
				if !s.State.Over() {
					return false
				}
			}
			return true
		})
		w.now = w.now.Add(10 * time.Minute)
		w.settle(t, func() bool {
			for _, s := range w.sessions {
				if !s.State.Over() {
					return false
				}
			}
			return len(w.alive()) == 0 && len(w.roles) == 0
		})
		w.ended(t)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func ids2(s Session) []string { return s.IDs() }
