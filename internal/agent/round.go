package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// errNewRound ends the main loop for a restart of all nodes: the next one begins with a clean slate.
var errNewRound = errors.New("all nodes begin again")

// roundIsOver reports whether the newest order begins a later round than that of the command. What ends the
// session comes first.
func (h *host) roundIsOver() bool {
	st := h.readState()
	return h.options.Host.Command != nil && st.Order.Round > st.Round && st.Order.End == nil &&
		st.Ending == nil && (h.ending == nil || h.ending.AskedAt.IsZero()) && !h.replaced(&st)
}

// replaced reports whether another machine was launched for this node.
func (h *host) replaced(st *state) bool {
	rounds := st.Order.MachineRounds
	return h.options.Host.Node < len(rounds) && rounds[h.options.Host.Node] > h.options.Host.Round
}

// numberOf returns the number of the host of a node by the newest order.
func (h *host) numberOf(node int) int {
	of := h.options.Host
	of.Node, of.Round = node, 0
	if rounds := h.readState().Order.MachineRounds; node < len(rounds) {
		of.Round = rounds[node]
	}
	return of.HostNumber()
}

// beginRound prepares the restart that the newest order requests: it ends the command and everything that it
// left, because what it does without the lost node is lost anyway, and lets the setup restore the snapshot of
// all nodes. A crash at any point is resumed here by the next process.
func (h *host) beginRound(ctx context.Context) error {
	st := h.readState()
	h.work.round, h.work.restoreStep, h.work.left = st.Round, h.options.Host.RestoreStep, st.Left
	if st.Round > h.options.Host.Round {
		h.work.restoreStep = st.Order.RestoreStep
	}
	if !h.roundIsOver() {
		return nil
	}
	h.journal.add("restart", fmt.Sprintf("a node was lost: the command is ended, and all nodes begin again (%s)",
		plain.Count(st.Order.Round, "restart")))
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := h.options.Cage.Kill(limited); err != nil {
		return fmt.Errorf("end the command before all nodes begin again: %w", err)
	}
	// Declarations of the ended command describe files that the restore replaces.
	if err := os.RemoveAll(h.bootstrap.runDir()); err != nil {
		return fmt.Errorf("remove what the ended command declared: %w", err)
	}
	s := h.bootstrap.commandScript()
	if err := s.sendOutput(true); err != nil {
		h.options.Log("read the last output: " + err.Error())
	}
	if err := os.Remove(s.exitFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the exit status of the ended command: %w", err)
	}
	if err := h.updateState(func(st *state) {
		st.Round, st.Ready, st.FailReason, st.Outcome, st.CommandAt = st.Order.Round, false, "", nil, time.Time{}
		st.Command = scriptState{OutputRead: st.Command.OutputRead}
		st.Restored, st.Restoring, st.SavedFingerprint = session.Snapshot{}, true, ""
		for i := range st.Steps {
			if name := st.Steps[i].Name; name == "work" || name == "nodes" {
				st.Steps[i] = session.SetupStep{Name: name, State: "waiting"}
			}
		}
	}); err != nil {
		return err
	}
	h.phase, h.phaseReason = h.normalPhase()
	h.work.round, h.work.restoreStep = st.Order.Round, st.Order.RestoreStep
	return nil
}
