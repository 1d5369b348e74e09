package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
)

// TestLostPeerRestartsTheCommandFromTheCommonStep checks a host of two nodes whose order begins a new round: the
// command is ended, the snapshot of the common step is restored, though a newer one is kept, and it runs again.
// The round survives the agent's death in between, and its snapshots are fenced by a later epoch.
func TestLostPeerRestartsTheCommandFromTheCommonStep(t *testing.T) {
	t.Parallel()
	w := commandWorld(t, `at="$CURFEW_CHECKPOINT_DIR/model"
[ ! -e "$at" ] || { cat "$at" >> "$CURFEW_HOSTFILE.found"; sleep 1000; }
for step in 5 6; do
  echo $step > "$at"
  printf '{"event":"saved","path":"%s","step":%d,"at":"%s"}\n' "$at" $step "$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)" >> "$CURFEW_RUN_DIR/events.jsonl"
  sleep 3
done
sleep 1000`)
	w.config.Host.Nodes, w.config.Address = 2, "127.0.0.1"
	peers := func(o *session.Order) { o.Peers = []string{"127.0.0.1", "127.0.0.2"} }
	w.order(peers)
	agent := w.start()
	await(t, "both steps are saved", func() bool {
		saved := w.status(0).SavedSteps
		return slices.Contains(saved, 5) && slices.Contains(saved, 6)
	})
	agent.kill()
	five := int64(5)
	w.order(func(o *session.Order) {
		peers(o)
		o.Round, o.RestoreStep, o.MachineRounds = 1, &five, []int64{0, 1}
	})
	w.start()
	await(t, "the command runs in the new round", func() bool {
		s := w.status(0)
		return s.Round == 1 && s.Phase == session.HostReady && s.Command != nil && !s.Command.StartedAt.IsZero()
	})
	await(t, "it found a snapshot", func() bool {
		found, err := os.ReadFile(filepath.Join(w.config.State, "hostfile.found"))
		return err == nil && string(found) == "5\n"
	})
	s := w.status(0)
	if from := s.Command.Restored; from == nil || from.Step == nil || *from.Step != 5 || s.Command.Outcome != nil ||
		slices.Contains(s.SavedSteps, 6) {
		t.Errorf("it goes on from %+v and keeps the steps %v: %+v", from, s.SavedSteps, s.Command.Outcome)
	}
}

// TestReplacedHostEndsAndWritesNothing checks a host that learns that another machine was launched for its node:
// it ends, and saves nothing more.
func TestReplacedHostEndsAndWritesNothing(t *testing.T) {
	t.Parallel()
	w := commandWorld(t, `echo 1 > "$CURFEW_CHECKPOINT_DIR/model"; sleep 1000`)
	w.config.Host.Nodes = 2
	peers := func(o *session.Order) { o.Peers = []string{"127.0.0.1", "127.0.0.2"} }
	w.order(peers)
	agent := w.start()
	await(t, "the command runs", func() bool { return w.status(0).Command != nil })
	w.order(func(o *session.Order) { peers(o); o.Round, o.MachineRounds = 1, []int64{1, 0} })
	if err := agent.wait(); err != nil {
		t.Fatal(err)
	}
	if s := w.status(0); s.Phase != session.HostEnding || s.Snapshot.Manifest != "" || s.Round != 0 {
		t.Errorf("it is %s (%s) with the snapshot %+v", s.Phase, s.Why, s.Snapshot)
	}
}

// TestFailureOfOneOfSeveralNodesWaitsForItsPeers checks that a command which fails by itself is kept for a while
// where another node may have been lost, and that one with a cause of its own is not.
func TestFailureOfOneOfSeveralNodesWaitsForItsPeers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		run  string
		ends bool
	}{{"exit 1", false}, {"echo CUDA out of memory; exit 1", true}} {
		t.Run(c.run, func(t *testing.T) {
			t.Parallel()
			w := commandWorld(t, c.run)
			w.config.Host.Nodes, w.config.Host.Command.PeerWait = 2, session.Duration(time.Hour)
			w.order(func(o *session.Order) { o.Peers = []string{"127.0.0.1", "127.0.0.2"} })
			w.start()
			w.outcome()
			if c.ends {
				w.awaitPhase(session.HostEnding)
				return
			}
			await(t, "it says why it waits", func() bool {
				s := w.status(0)
				return s.Phase == session.HostReady && strings.Contains(s.Why, "whether another node was lost")
			})
		})
	}
}
