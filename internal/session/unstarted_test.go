package session

import (
	"log/slog"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
)

// TestAHalfLaunchIsRepeated: a machine whose launch died on the way is no machine yet; the
// launch is asked for again.
func TestAHalfLaunchIsRepeated(t *testing.T) {
	w := newWorld(1)
	s := Session{
		ID: "a", Name: "a", Provider: "aws", State: Launching, RequestedAt: w.now,
		Spec: []byte("apiVersion: curfew.session/v1\nname: a\nresources: {cpus: 1}\nlease: 1h\n"),
	}
	k := &Keeper{
		Store: memory{w}, Launchers: map[string]Launcher{"aws": provider{w}}, Installation: "us",
		Now: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler),
	}
	m := &fakeMachine{installation: "us"}
	m.Found = Found{Machine: Machine{ID: "i-1"}, Session: "a", Token: "t"}
	w.machines["i-1"] = m
	for _, unstarted := range []bool{true, false} {
		m.Unstarted = unstarted
		want := intent.Complete
		if unstarted {
			want = intent.NotDone
		}
		on := &launching{k: k, s: &s}
		if got, _, err := on.Look(t.Context(), intent.Step{Name: "launch", Key: "t"}); err != nil || got != want {
			t.Errorf("unstarted %t: %s, %v; want %s", unstarted, got, err, want)
		}
		s.Machines = nil
	}
}
