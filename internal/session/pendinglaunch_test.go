package session

import (
	"log/slog"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
)

// TestRepeatsPendingLaunch checks that a machine whose launch crashed midway does not count as
// launched.
func TestRepeatsPendingLaunch(t *testing.T) {
	w := newWorld(1)
	s := Session{
		ID: "a", Name: "a", Provider: "aws", State: Launching, RequestedAt: w.now,
		Spec: []byte("apiVersion: curfew.session/v1\nname: a\nresources: {cpus: 1}\nlease: 1h\n"),
	}
	k := &Keeper{
		Store: memoryStore{w}, Launchers: map[string]Launcher{"aws": fakeLauncher{w}}, Installation: "us",
		Now: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler),
	}
	m := &fakeMachine{installation: "us"}
	m.FoundMachine = FoundMachine{Machine: Machine{ID: "i-1"}, Session: "a", Token: "t"}
	w.machines["i-1"] = m
	for _, unstarted := range []bool{true, false} {
		m.LaunchPending = unstarted
		want := intent.Complete
		if unstarted {
			want = intent.NotDone
		}
		on := &launchIntent{keeper: k, session: &s}
		if got, _, err := on.Look(t.Context(), intent.Step{Name: "launch", Key: "t"}); err != nil || got != want {
			t.Errorf("unstarted %t: %s, %v; want %s", unstarted, got, err, want)
		}
		s.Machines = nil
	}
}
