package session

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestOwnersOfStraysAreTold holds that the owner of machines without a record is told once, and
// tried again while no channel takes it.
func TestOwnersOfStraysAreTold(t *testing.T) {
	w := newWorld(5)
	w.machines["i-1"] = &fakeMachine{
		installation: "us",
		Found: Found{
			Machine: Machine{ID: "i-1", LaunchedAt: w.now}, Session: "unknown-1", LeaseUntil: w.now.Add(10 * time.Minute),
			Owner: inventory.Owner{User: "ana"},
		},
	}
	k := w.keep()
	var told []string
	refusing := true
	k.Tell = func(_ context.Context, s *Session) (string, error) {
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
	if s := w.sessions["unknown-1"]; untold != 1 || !s.ToldAt.IsZero() {
		t.Errorf("it was tried %d times; told at %s", untold, s.ToldAt)
	}
	refusing = false
	for range 25 {
		w.pass(t.Context(), k)
		w.now = w.now.Add(time.Minute)
	}
	if len(told) != 1 || !strings.HasPrefix(told[0], "ana: it was found without a record; it ends after ") {
		t.Errorf("told %q", told)
	}
	w.settle(t, func() bool { return w.state("unknown-1").Over() })
}

// byHand is a session whose machine a person started.
func byHand(now time.Time) View {
	m := Machine{ID: "i-1", LaunchedAt: now}
	return View{Now: now.Add(time.Hour), Looked: true, Heard: true, Found: []Found{{Machine: m, Session: "s1"}},
		Session: Session{
			ID: "s1", Name: "box", Provider: "aws", State: Ready, ByHand: true, Machines: []Machine{m}, LaunchedAt: now,
			ReadyAt: now, LeaseUntil: now.Add(4 * time.Hour), Idle: 30 * time.Minute, Version: 3,
		}}
}

// TestMachinesOfPeopleAreLeftAlone holds what the keeper does about machines that a person
// started: it never ends one by itself, whatever the time is.
func TestMachinesOfPeopleAreLeftAlone(t *testing.T) {
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	timing := DefaultTiming()
	for _, c := range []struct {
		name   string
		change func(v *View)
		act    Act
		state  State
		why    string
	}{
		{"it runs", func(*View) {}, Wait, Ready, ""},
		{"it was not looked at", func(v *View) { v.Looked, v.Found = false, nil }, Wait, Ready, ""},
		{"its lease is over", func(v *View) { v.Now = now.Add(5 * time.Hour) }, Change, Ready, "its lease ended"},
		{"its lease is long over", func(v *View) { v.Now = now.Add(500 * time.Hour) }, Change, Ready, "its lease ended"},
		{"that is known", func(v *View) {
			v.Now = now.Add(500 * time.Hour)
			v.Session.Why = "its lease ended at 2026-11-23T13:00:00Z; a policy that selects expired leases stops it"
		}, Wait, Ready, "its lease ended"},
		{"it was prolonged", func(v *View) { v.Session.Why = "its lease ended" }, Change, Ready, ""},
		{"its tags are not written yet", func(v *View) {
			v.Session.State, v.Session.Why = Launching, "its tags are being written"
		}, Wait, Launching, "its tags"},
		{"it does not show once", func(v *View) { v.Found = nil }, Change, Ready, ""},
		{"it does not show twice", func(v *View) {
			v.Found, v.Session.Missing = nil, now.Add(30*time.Minute)
		}, Change, Ending, "stopped, ended or given back"},
		{"it shows again", func(v *View) { v.Session.Missing = now.Add(30 * time.Minute) }, Change, Ready, ""},
		{"a person asked for its end", func(v *View) {
			v.Session.State, v.Session.EndWhy = Ending, "ended by ana"
		}, Change, Ending, ""},
	} {
		v := byHand(now)
		c.change(&v)
		n := Decide(v, timing)
		if n.Act != c.act || n.Session.State != c.state || !strings.Contains(n.Session.Why, c.why) || c.why == "" &&
			n.Session.Why != "" {
			t.Errorf("%s: %s, %s %q; want %s, %s %q", c.name, n.Act, n.Session.State, n.Session.Why, c.act, c.state, c.why)
		}
		if n.Session.State != Ending && (n.Act == Release || n.Session.End.Key != "") {
			t.Errorf("%s: it is released", c.name)
		}
	}
}

// none is a launcher that must not be asked.
type none struct {
	Launcher
	t *testing.T
}

func (n none) Find(context.Context, string, string) ([]Found, error) {
	n.t.Error("the launcher of the provider was asked")
	return nil, nil
}

func (n none) End(context.Context, string, []string) error {
	n.t.Error("the launcher of the provider was asked to end it")
	return nil
}

// TestHandsReachThem holds that machines that a person started are reached by hands alone, and
// by no launcher.
func TestHandsReachThem(t *testing.T) {
	w := newWorld(5)
	v := byHand(w.now)
	v.Session.Provider = "fake"
	w.sessions["s1"] = v.Session
	w.now = w.now.Add(time.Hour)
	w.machines["i-1"] = &fakeMachine{installation: "us", Found: v.Found[0]}
	k := w.keep()
	k.Hands, k.Launchers = k.Launchers["fake"], map[string]Launcher{"fake": none{t: t}}
	if _, err := k.Stop(t.Context(), "s1", "ana", "ended by ana", false); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := k.Keep(t.Context(), "s1"); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Minute)
	}
	if w.state("s1") != Ended || w.machines["i-1"] != nil && w.machines["i-1"].ending.IsZero() {
		t.Errorf("it is %s: %+v", w.state("s1"), w.machines["i-1"])
	}
	// Without hands it is left alone.
	v.Session.Version, v.Session.State = 1, Ending
	w.sessions["s1"] = v.Session
	k.Hands = nil
	if after, err := k.Keep(t.Context(), "s1"); err != nil || after != time.Hour || w.state("s1") != Ending {
		t.Errorf("after %s, %v: %s", after, err, w.state("s1"))
	}
}
