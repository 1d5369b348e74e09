package sim

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// launchWorld is an account with a launcher and a clock that tests move.
type launchWorld struct {
	mu       sync.Mutex
	now      time.Time
	cloud    *Cloud
	launcher *Launcher
}

func newLaunchWorld(faults map[string]int64) *launchWorld {
	w := &launchWorld{now: now}
	w.cloud = New(Options{Seed: 1, Now: now})
	w.launcher = w.cloud.Launcher(LauncherOptions{
		Clock: w.clock, MemoryFaults: faults, Scarce: []string{"g6.12xlarge"},
		Types: func(*spec.Spec) ([]string, error) { return []string{"g6.xlarge"}, nil },
		Rate: func(machineType, _ string, spot bool) *money.Rate {
			rate := 8000 * money.PicoUSD
			if spot {
				rate = 3000 * money.PicoUSD
			}
			if machineType == "x9.huge" {
				return nil
			}
			return &rate
		},
	})
	return w
}

func (w *launchWorld) clock() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now }

func (w *launchWorld) pass(d time.Duration) { w.mu.Lock(); defer w.mu.Unlock(); w.now = w.now.Add(d) }

func oneMachine(machineType string, c spec.Capacity) *spec.Spec {
	return &spec.Spec{
		Kind: spec.Session, Name: "demo", Capacity: c, Duration: 2 * time.Hour,
		Resources: spec.Resources{InstanceType: machineType, Nodes: 1},
	}
}

func TestLauncher(t *testing.T) {
	cloudtest.TestLauncher(t, func(testing.TB) cloudtest.LauncherCase {
		w := newLaunchWorld(nil)
		return cloudtest.LauncherCase{
			Launcher: w.launcher, Nodes: 4,
			Again: func(testing.TB) session.Launcher { return w.launcher },
			Spec:  oneMachine("g6.xlarge", spec.OnDemand), Impossible: oneMachine("x9.huge", spec.OnDemand),
			Pass:   func(testing.TB) { w.pass(time.Second) },
			Inject: func(testing.TB, cloudtest.LaunchFault) bool { return false },
			Left:   w.left,
		}
	})
}

// left returns the listed machines of a session with their tags.
func (w *launchWorld) left(tb testing.TB, id string) map[string]map[string]string {
	seen, err := w.cloud.List(tb.Context(), round.Query{Now: w.clock()})
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]map[string]string{}
	for _, r := range seen.Resources {
		if r.Tags[inventory.TagSession] == id {
			out[r.ID] = r.Tags
		}
	}
	return out
}

// launch launches a machine for a job.
func (w *launchWorld) launch(t *testing.T, s *spec.Spec, p session.Pool) (session.Session, session.Machine) {
	t.Helper()
	run := session.Session{
		ID: "s1", Name: s.Name, Provider: CloudName, Epoch: 1, LeaseUntil: w.now.Add(20 * time.Hour),
	}
	got, err := w.launcher.Launch(t.Context(), session.Launch{
		Token: "t1", Session: run, Spec: s, Pool: p, Nodes: 1,
		Tags: map[string]string{inventory.TagInstallation: "us"},
		Host: session.HostConfig{
			Session: run.ID, Name: run.Name, Epoch: 1, LeaseUntil: run.LeaseUntil,
			Command: &session.Command{Run: "train"},
		},
	})
	if err != nil || len(got) != 1 {
		t.Fatalf("launched %v, %v", got, err)
	}
	return run, got[0]
}

// status reads the last report of the host.
func (w *launchWorld) status(t *testing.T, run *session.Session) (st session.Status) {
	t.Helper()
	store, ok := w.launcher.Control(run)
	if !ok {
		t.Fatal("the session has no documents")
	}
	o, err := store.Get(t.Context(), "status-0.json", 1<<20)
	if err == nil {
		err = json.Unmarshal(o.Data, &st)
	}
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestLaunchedMachineIsListedAndMeasured(t *testing.T) {
	w := newLaunchWorld(nil)
	pools, err := w.launcher.Pools(t.Context(), oneMachine("g6.xlarge", spec.OnDemand))
	if err != nil {
		t.Fatal(err)
	}
	_, m := w.launch(t, oneMachine("g6.xlarge", spec.OnDemand), pools[0])
	listed := func() bool {
		seen, err := w.cloud.List(t.Context(), round.Query{Now: w.clock()})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(seen.Resources, func(r *inventory.Resource) bool { return r.ID == m.ID })
	}
	if !listed() {
		t.Error("a launched machine is not listed")
	}
	if err := w.launcher.End(t.Context(), "s1", []string{m.ID}); err != nil {
		t.Fatal(err)
	}
	if listed() {
		t.Error("an ended machine is listed")
	}
}

func TestCommandGoesOnUntilItSucceeds(t *testing.T) {
	w := newLaunchWorld(nil)
	s := oneMachine("g6.xlarge", spec.OnDemand)
	pools, err := w.launcher.Pools(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	run, _ := w.launch(t, s, pools[0])
	if st := w.status(t, &run); st.Phase != session.HostStarting || st.Command != nil {
		t.Errorf("at its launch: %+v", st)
	}
	w.pass(time.Hour)
	st := w.status(t, &run)
	if st.Phase != session.HostReady || st.Command == nil || *st.Command.Step != 112 || st.Snapshot.Step == nil ||
		*st.Snapshot.Step != 80 {
		t.Errorf("after an hour: %s, %+v, %+v", st.Phase, st.Command, st.Snapshot)
	}
	w.pass(90 * time.Minute)
	st = w.status(t, &run)
	if st.Phase != session.HostEnding || st.Command.Outcome == nil || st.Command.Outcome.Class != session.Succeeded ||
		*st.Snapshot.Step != 240 {
		t.Errorf("at the end: %s, %+v, %+v", st.Phase, st.Command, st.Snapshot)
	}
	events, err := session.Documents{Open: w.documents}.Events(t.Context(), &run, 0, st.Events)
	if err != nil || len(events) == 0 || events[len(events)-1].Kind != "ended" {
		t.Errorf("the last events: %v, %v", events, err)
	}
}

func TestMemoryFaultEndsCommand(t *testing.T) {
	w := newLaunchWorld(map[string]int64{"demo": 60})
	s := oneMachine("g6.xlarge", spec.OnDemand)
	pools, err := w.launcher.Pools(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	run, _ := w.launch(t, s, pools[0])
	w.pass(time.Hour)
	st := w.status(t, &run)
	if st.Command.Outcome == nil || st.Command.Outcome.Class != session.GPUMemory || *st.Command.Step != 60 ||
		*st.Snapshot.Step != 40 {
		t.Errorf("%+v, %+v", st.Command, st.Snapshot)
	}
}

func TestSpotMachinesAreTakenAndScarceTypesHaveNone(t *testing.T) {
	w := newLaunchWorld(nil)
	scarce, err := w.launcher.Pools(t.Context(), oneMachine("g6.12xlarge", spec.Spot))
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.launcher.Launch(t.Context(), session.Launch{
		Token: "none", Spec: oneMachine("g6.12xlarge", spec.Spot), Pool: scarce[0], Nodes: 1,
	})
	if err == nil {
		t.Error("a type without capacity was launched")
	}
	s := oneMachine("g6.xlarge", spec.Spot)
	pools, err := w.launcher.Pools(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pools {
		if _, err := w.launcher.Launch(t.Context(), session.Launch{
			Token: "probe " + p.Zone, Spec: s, Pool: p, Nodes: 1,
			Tags: map[string]string{inventory.TagInstallation: "us"},
		}); err != nil {
			continue
		}
		for range 200 {
			w.pass(time.Hour)
			found, err := w.launcher.Find(t.Context(), "us", "")
			if err != nil {
				t.Fatal(err)
			}
			if len(found) == 0 {
				return
			}
		}
		t.Fatal("a spot machine was never taken")
	}
	t.Fatal("no spot pool has capacity")
}

func (w *launchWorld) documents(_ context.Context, s *session.Session) (session.ControlStore, error) {
	store, _ := w.launcher.Control(s)
	return store, nil
}
