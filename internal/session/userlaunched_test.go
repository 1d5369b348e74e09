package session

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestNotifiesOrphanOwnerOnce checks that failed notifications are retried and successful ones are
// not repeated.
func TestNotifiesOrphanOwnerOnce(t *testing.T) {
	w := newWorld(5)
	w.machines["i-1"] = &fakeMachine{
		installation: "us",
		FoundMachine: FoundMachine{
			Machine: Machine{ID: "i-1", LaunchedAt: w.now}, Session: "unknown-1",
			LeaseUntil: w.now.Add(10 * time.Minute),
			Owner:      inventory.Owner{User: "ana"},
		},
	}
	k := w.newKeeper()
	var told []string
	refusing := true
	k.NotifyOwner = func(_ context.Context, s *Session) (string, error) {
		if refusing {
			return "", errors.New("the channel is archived")
		}
		told = append(told, s.Owner.User+": "+s.Why)
		return "slack:ana", nil
	}
	for range 3 {
		w.pass(t.Context(), k)
		w.now = w.now.Add(time.Minute)
	}
	untold := 0
	for _, e := range w.events["unknown-1"] {
		if e.Kind == "untold" && strings.Contains(e.Text, "archived") {
			untold++
		}
	}
	if s := w.sessions["unknown-1"]; untold != 1 || !s.OwnerNotifiedAt.IsZero() {
		t.Errorf("it was tried %d times; told at %s", untold, s.OwnerNotifiedAt)
	}
	refusing = false
	for range 25 {
		w.pass(t.Context(), k)
		w.now = w.now.Add(time.Minute)
	}
	if len(told) != 1 || !strings.HasPrefix(told[0], "ana: it was found without a record; it ends after ") {
		t.Errorf("told %q", told)
	}
	w.settle(t, func() bool { return w.state("unknown-1").IsFinal() })
}

// userLaunchedObservation returns a running session whose machine a person launched.
func userLaunchedObservation(now time.Time) Observation {
	m := Machine{ID: "i-1", LaunchedAt: now}
	return Observation{
		Now: now.Add(time.Hour), MachinesListed: true, HostsRead: true, FoundMachines: []FoundMachine{
			{Machine: m, Session: "s1"},
		},
		Session: Session{
			ID: "s1", Name: "box", Provider: "aws", State: Ready, UserLaunched: true,
			Machines: []Machine{m}, LaunchedAt: now,
			ReadyAt: now, LeaseUntil: now.Add(4 * time.Hour), IdleTimeout: 30 * time.Minute, Version: 3,
		}}
}

// TestNeverEndsUserLaunchedMachines checks that the keeper ends machines that a person launched
// only on request, however long the lease is over.
func TestNeverEndsUserLaunchedMachines(t *testing.T) {
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	timing := DefaultTimeouts()
	for _, c := range []struct {
		name   string
		change func(v *Observation)
		act    Step
		state  State
		why    string
	}{
		{"running", func(*Observation) {}, StepWait, Ready, ""},
		{"not listed", func(v *Observation) { v.MachinesListed, v.FoundMachines = false, nil }, StepWait, Ready, ""},
		{"lease over", func(v *Observation) {
			v.Now = now.Add(5 * time.Hour)
		}, StepWriteRecord, Ready, "its lease ended"},
		{"lease long over", func(v *Observation) {
			v.Now = now.Add(500 * time.Hour)
		}, StepWriteRecord, Ready, "its lease ended"},
		{"expiry recorded already", func(v *Observation) {
			v.Now = now.Add(500 * time.Hour)
			v.Session.Why = "its lease ended at 2026-11-23T13:00:00Z; a policy that selects expired leases stops it"
		}, StepWait, Ready, "its lease ended"},
		{"lease extended", func(v *Observation) { v.Session.Why = "its lease ended" }, StepWriteRecord, Ready, ""},
		{"tags pending", func(v *Observation) {
			v.Session.State, v.Session.Why = Launching, "its tags are being written"
		}, StepWait, Launching, "its tags"},
		{"missing in one lookup", func(v *Observation) { v.FoundMachines = nil }, StepWriteRecord, Ready, ""},
		{"missing in two lookups", func(v *Observation) {
			v.FoundMachines, v.Session.MissingSince = nil, now.Add(30*time.Minute)
		}, StepWriteRecord, Ending, "stopped, ended or given back"},
		{"listed again", func(v *Observation) {
			v.Session.MissingSince = now.Add(30 * time.Minute)
		}, StepWriteRecord, Ready, ""},
		{"end requested", func(v *Observation) {
			v.Session.State, v.Session.EndReason = Ending, "ended by ana"
		}, StepWriteRecord, Ending, ""},
	} {
		v := userLaunchedObservation(now)
		c.change(&v)
		n := Decide(v, timing)
		if n.Step != c.act || n.Session.State != c.state || !strings.Contains(n.Session.Why, c.why) || c.why == "" &&
			n.Session.Why != "" {
			t.Errorf("%s: %s, %s %q; want %s, %s %q", c.name, n.Step, n.Session.State,
				n.Session.Why, c.act, c.state, c.why)
		}
		if n.Session.State != Ending && (n.Step == StepRelease || n.Session.EndStep.Key != "") {
			t.Errorf("%s: it is released", c.name)
		}
	}
}

// forbiddenLauncher fails the test when it is called.
type forbiddenLauncher struct {
	Launcher
	t *testing.T
}

func (n forbiddenLauncher) Find(context.Context, string, string) ([]FoundMachine, error) {
	n.t.Error("the launcher of the provider was asked")
	return nil, nil
}

func (n forbiddenLauncher) End(context.Context, string, []string) error {
	n.t.Error("the launcher of the provider was asked to end it")
	return nil
}

func TestUserLaunchedMachinesUseUserLauncher(t *testing.T) {
	w := newWorld(5)
	v := userLaunchedObservation(w.now)
	v.Session.Provider = "fake"
	w.sessions["s1"] = v.Session
	w.now = w.now.Add(time.Hour)
	w.machines["i-1"] = &fakeMachine{installation: "us", FoundMachine: v.FoundMachines[0]}
	k := w.newKeeper()
	k.UserLauncher, k.Launchers = k.Launchers["fake"], map[string]Launcher{"fake": forbiddenLauncher{t: t}}
	if _, err := k.Stop(t.Context(), "s1", "ana", "ended by ana", false); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := k.Keep(t.Context(), "s1"); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Minute)
	}
	if w.state("s1") != Ended || w.machines["i-1"] != nil && w.machines["i-1"].terminatedAt.IsZero() {
		t.Errorf("it is %s: %+v", w.state("s1"), w.machines["i-1"])
	}
	// Without a UserLauncher the session is left alone.
	v.Session.Version, v.Session.State = 1, Ending
	w.sessions["s1"] = v.Session
	k.UserLauncher = nil
	if after, err := k.Keep(t.Context(), "s1"); err != nil || after != time.Hour || w.state("s1") != Ending {
		t.Errorf("after %s, %v: %s", after, err, w.state("s1"))
	}
}
