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

// settle advances the clock and runs one keeper and the hosts until the condition holds.
func (w *world) settle(t *testing.T, until func() bool) {
	t.Helper()
	w.failureRate, w.crashRate = 0, 0
	k := w.newKeeper()
	for range 2000 {
		w.pass(t.Context(), k)
		w.runHosts()
		if until() {
			return
		}
		w.now = w.now.Add(3 * time.Second)
	}
	for _, s := range w.sessions {
		t.Logf("%s %s: %s; launch %s %q, end %s %q, gone %s", s.ID, s.State, s.Why,
			s.LaunchStep.State(), s.LaunchStep.Error,
			s.EndStep.State(), s.EndStep.Error, s.GoneSince)
	}
	t.Fatal("the condition never held")
}

func (w *world) state(id string) State { return w.sessions[id].State }

func TestSessionLifecycle(t *testing.T) {
	w := newWorld(1)
	id := w.addSession("demo", 2)
	w.settle(t, func() bool { return w.state(id) == Ready })
	s := w.sessions[id]
	if len(s.Machines) != 2 || s.HoldID == "" || s.Rate.String() != pricePtr(1600).String() ||
		len(w.runningMachines()[id]) != 2 {
		t.Fatalf("ready with %v, hold %q, rate %v; the provider has %v", s.MachineIDs(), s.HoldID, s.Rate,
			w.runningMachines())
	}
	began := w.now
	w.now = w.now.Add(time.Hour)
	if _, err := w.newKeeper().Stop(t.Context(), id, "ana", "down", false); err != nil {
		t.Fatal(err)
	}
	w.settle(t, func() bool { return w.state(id).IsFinal() })
	w.checkEnded(t)
	s = w.sessions[id]
	cost, priced, err := s.Cost(w.now)
	want, _ := pricePtr(800).For(int64(s.EndedAt.Sub(s.LaunchedAt)/time.Second), 3600)
	want *= 2
	if s.State != Ended || err != nil || !priced || cost != want || s.EndedAt.Sub(began) < time.Hour ||
		w.holds[id] != "settled" || !w.charged[id].Equal(s.EndedAt) {
		t.Errorf("%s: it cost %s (%v %v), want %s; hold %s", s.State, cost.Exact(), priced, err,
			want.Exact(), w.holds[id])
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

// checkEnded checks that sessions that are over left nothing behind and lost no work.
func (w *world) checkEnded(t *testing.T) {
	t.Helper()
	for id, s := range w.sessions {
		if !s.State.IsFinal() {
			continue
		}
		if ids := w.runningMachines()[id]; len(ids) > 0 {
			t.Errorf("%s is %s and has machines %v", id, s.State, ids)
		}
		if w.holds[id] == "live" {
			t.Errorf("%s is %s and its hold is live", id, s.State)
		}
		if w.folders[id] {
			t.Errorf("%s is %s and its folder is there", id, s.State)
		}
		for node, h := range w.status[id] {
			key := fmt.Sprint(id, "/", node)
			if !s.Discard && h.Phase != HostEnding && !s.ReadyAt.IsZero() || !s.Discard && w.saved[key] < w.work[key] {
				t.Errorf("%s node %d ended in phase %s with %d of %d saved", id, node, h.Phase,
					w.saved[key], w.work[key])
			}
		}
	}
	for token, n := range w.launches {
		if n > 1 {
			t.Errorf("token %s launched %d times", token, n)
		}
	}
}

func TestCapacityFailureTriesNextPool(t *testing.T) {
	w := newWorld(2)
	w.emptyPools["a"] = true
	id := w.addSession("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	if s := w.sessions[id]; s.Pool.Zone != "b" || len(s.CapacityFailures) != 1 {
		t.Errorf("it is in zone %q after %d tries", s.Pool.Zone, len(s.CapacityFailures))
	}
	// Another session avoids the pool until the backoff expires.
	w.emptyPools["a"] = false
	other := w.addSession("other", 1)
	w.settle(t, func() bool { return w.state(other) == Ready })
	if s := w.sessions[other]; s.Pool.Zone != "b" || len(s.CapacityFailures) != 0 {
		t.Errorf("another asked zone %q after %d tries", s.Pool.Zone, len(s.CapacityFailures))
	}
	w.now = w.now.Add(time.Hour)
	third := w.addSession("third", 1)
	w.settle(t, func() bool { return w.state(third) == Ready })
	if s := w.sessions[third]; s.Pool.Zone != "a" {
		t.Errorf("the pool is left aside without end: zone %q", s.Pool.Zone)
	}
	w.emptyPools["a"], w.emptyPools["b"] = true, true
	none := w.addSession("none", 1)
	w.settle(t, func() bool { return w.state(none).IsFinal() })
	if s := w.sessions[none]; s.State != Failed || !strings.Contains(s.Why, "no capacity") ||
		w.holds[none] != "released" {
		t.Errorf("%s: %s; hold %s", s.State, s.Why, w.holds[none])
	}
	w.checkEnded(t)
}

func TestGateBlocksLaunch(t *testing.T) {
	for verdict, want := range map[gate.Verdict]State{gate.Denied: Failed, gate.Held: Requested} {
		w := newWorld(3)
		w.verdict = verdict
		id := w.addSession("demo", 1)
		w.settle(t, func() bool { return w.state(id) == want })
		if len(w.machines) > 0 {
			t.Errorf("%s: machines were launched", verdict)
		}
		if verdict == gate.Held {
			if s := w.sessions[id]; s.ApprovalID == "" {
				t.Error("the request is not in the record")
			}
			w.now = w.now.Add(25 * time.Hour)
			w.settle(t, func() bool { return w.state(id) == Failed })
		}
		w.checkEnded(t)
	}
}

func TestStopWaitsForSave(t *testing.T) {
	w := newWorld(4)
	id := w.addSession("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	k := w.newKeeper()
	if _, err := k.Stop(t.Context(), id, "ana", "down", false); err != nil {
		t.Fatal(err)
	}
	for range 300 { // while the host is silent, nothing is released
		w.pass(t.Context(), k)
		w.now = w.now.Add(10 * time.Second)
	}
	if s := w.sessions[id]; s.State != Ending || len(w.runningMachines()[id]) != 1 ||
		!strings.Contains(s.Why, "saving its work") {
		t.Fatalf("%s (%s) with %v", s.State, s.Why, w.runningMachines())
	}
	if _, err := k.Stop(t.Context(), id, "ana", "down", true); err != nil {
		t.Fatal(err)
	}
	w.settle(t, func() bool { return w.state(id) == Ended })
	w.checkEnded(t)
}

func TestOrphansEndAfterGrace(t *testing.T) {
	w := newWorld(5)
	add := func(id, session, installation string) {
		w.machines[id] = &fakeMachine{
			installation: installation,
			FoundMachine: FoundMachine{
				Machine: Machine{ID: id, LaunchedAt: w.now}, Session: session, LeaseUntil: w.now.Add(10 * time.Minute),
			},
		}
	}
	add("i-1", "unknown-1", "us")
	add("i-2", "unknown-2", "them")
	k := w.newKeeper()
	w.pass(t.Context(), k)
	if s := w.sessions["unknown-1"]; !s.Orphan ||
		!strings.Contains(s.Why, "without a record") || len(w.sessions) != 1 {
		t.Fatalf("records: %+v", w.sessions)
	}
	for range 29 {
		w.now = w.now.Add(time.Minute)
		w.pass(t.Context(), k)
	}
	if len(w.runningMachines()["unknown-1"]) != 1 {
		t.Fatal("it was ended before its warning was over")
	}
	w.settle(t, func() bool { return w.state("unknown-1").IsFinal() })
	if !w.machines["i-2"].terminatedAt.IsZero() {
		t.Error("a machine of another installation was ended")
	}
	// When more are due than MaxDueOrphans, none is ended.
	for i := range 2 * MaxDueOrphans {
		add(fmt.Sprint("i-x", i), fmt.Sprint("unknown-x", i), "us")
	}
	for range 100 {
		w.pass(t.Context(), k)
		w.now = w.now.Add(time.Minute)
	}
	for i := range 2 * MaxDueOrphans {
		if s := w.sessions[fmt.Sprint("unknown-x", i)]; s.State != Ending ||
			!w.machines[fmt.Sprint("i-x", i)].terminatedAt.IsZero() || !strings.Contains(s.Why, "by hand") {
			t.Errorf("%s: %s", s.State, s.Why)
		}
	}
}

func TestReopensSessionForReappearedMachine(t *testing.T) {
	w := newWorld(6)
	id := w.addSession("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	if _, err := w.newKeeper().Stop(t.Context(), id, "ana", "down", false); err != nil {
		t.Fatal(err)
	}
	w.settle(t, func() bool { return w.state(id).IsFinal() })
	w.now = w.now.Add(time.Minute)
	w.addSession("demo", 1) // another session has the name by now
	w.machines["i-late"] = &fakeMachine{
		installation: "us", FoundMachine: FoundMachine{Machine: Machine{ID: "i-late", LaunchedAt: w.now}, Session: id},
	}
	w.settle(t, func() bool { return !w.machines["i-late"].terminatedAt.IsZero() && w.state(id).IsFinal() })
}

func TestVanishedMachinesEndSession(t *testing.T) {
	w := newWorld(7)
	id := w.addSession("demo", 2)
	w.settle(t, func() bool { return w.state(id) == Ready })
	m := w.machines[w.sessions[id].Machines[0].ID]
	w.now = w.now.Add(5 * time.Minute)
	m.terminatedAt, m.goneAt = w.now, w.now
	w.settle(t, func() bool { return w.state(id).IsFinal() })
	if s := w.sessions[id]; !strings.Contains(s.Why, "1 of its 2 machines are gone") {
		t.Errorf("why: %s", s.Why)
	}
	if n := len(w.runningMachines()); n > 0 {
		t.Errorf("machines of %d sessions are left", n)
	}
}

// TestConvergesUnderRandomFaults runs two keepers with lost responses, failing calls, crashes
// before and after every step and delayed listings. No token launches twice, the machines match the
// records once the faults stop, and nothing remains after the end.
func TestConvergesUnderRandomFaults(t *testing.T) {
	runs := 400
	if os.Getenv("CURFEW_SLOW") != "" { //nolint:forbidigo // length of the test
		runs = 5000
	}
	for seed := range runs {
		w := newWorld(uint64(seed))
		w.visibilityDelay = time.Duration(w.rng.IntN(60)) * time.Second
		w.emptyPools["a"] = w.rng.IntN(3) == 0
		w.failureRate, w.crashRate = w.rng.Float64()*0.3, w.rng.Float64()*0.3
		ids := []string{w.addSession("one", 1), w.addSession("four", 4)}
		fault, die := w.failureRate, w.crashRate
		end := map[string]int{ids[0]: w.rng.IntN(60), ids[1]: w.rng.IntN(60)}
		keepers := []*Keeper{w.newKeeper(), w.newKeeper()}
		for turn := range 60 {
			k := keepers[w.rng.IntN(2)]
			w.pass(t.Context(), k)
			if w.rng.IntN(2) == 0 {
				w.runHosts()
			}
			for id, at := range end {
				if at == turn {
					w.failureRate, w.crashRate = 0, 0
					if _, err := k.Stop(t.Context(), id, "ana", "down", false); err != nil {
						t.Fatal(err)
					}
					w.failureRate, w.crashRate = fault, die
				}
			}
			w.now = w.now.Add(time.Duration(w.rng.IntN(20)) * time.Second)
			if w.rng.IntN(40) == 0 {
				w.now = w.now.Add(10 * time.Minute) // all processes were down
			}
		}
		if w.rng.IntN(2) == 0 { // without faults, the machines match the record
			third := w.addSession("three", 2)
			w.settle(t, func() bool { return w.state(third) == Ready })
			if got, want := w.runningMachines()[third], slices.Sorted(
				slices.Values(ids2(w.sessions[third]))); !slices.Equal(
				got, want) {
				t.Fatalf("seed %d: the provider has %v and the record %v", seed, got, want)
			}
			if _, err := keepers[0].Stop(t.Context(), third, "ana", "down", false); err != nil {
				t.Fatal(err)
			}
		}
		w.settle(t, func() bool {
			for _, s := range w.sessions {
				if !s.State.IsFinal() {
					return false
				}
			}
			return true
		})
		w.now = w.now.Add(10 * time.Minute)
		w.settle(t, func() bool {
			for _, s := range w.sessions {
				if !s.State.IsFinal() {
					return false
				}
			}
			return len(w.runningMachines()) == 0 && len(w.roles) == 0
		})
		w.checkEnded(t)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func ids2(s Session) []string { return s.MachineIDs() }
