package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/session"
)

// state is the agent's state that survives its process.
type state struct {
	Session string        `json:"session"`
	Epoch   int64         `json:"epoch"`
	Anchor  clockAnchor   `json:"anchor"`
	Order   session.Order `json:"order"`
	// Round is the round of the command (see session.Order).
	Round int64 `json:"round,omitempty"`
	// AnsweredSave is the highest Order.SaveRequest that was carried out.
	AnsweredSave int64            `json:"saved"`
	Snapshot     session.Snapshot `json:"snapshot"`
	// SavedSteps are the declared steps of the snapshots that are kept.
	SavedSteps []int64 `json:"saved_steps,omitempty"`
	// Left are the snapshots that the last restore left behind.
	Left snapshotRange `json:"left,omitzero"`
	// SavedFingerprint is the fingerprint of the work folder at Snapshot.
	SavedFingerprint string `json:"seen,omitempty"`
	// Ready reports that the setup is done, FailReason why it failed.
	Ready      bool                `json:"ready"`
	FailReason string              `json:"failed,omitempty"`
	Steps      []session.SetupStep `json:"steps"`
	// Restoring reports that a restore is in progress, so that files in the work folder are
	// no one's work yet.
	Restoring bool `json:"restoring,omitempty"`
	// Ending is an end that nothing cancels.
	Ending *ending `json:"ending,omitempty"`
	// KeepFileTime is the last seen modification time of the keep file.
	KeepFileTime time.Time `json:"kept,omitzero"`
	// LeaseWarnings counts the warnings before the end of WarnedLease.
	WarnedLease   time.Time `json:"warned_lease,omitzero"`
	LeaseWarnings int       `json:"lease_warnings,omitempty"`
	// Events is the number of the newest event file, Output the sent command output in bytes.
	Events int64       `json:"events"`
	Output int64       `json:"output"`
	Setup  scriptState `json:"setup"`
	// Command is the running command of a job, CommandAt its start and Outcome its end.
	Command   scriptState      `json:"command,omitzero"`
	CommandAt time.Time        `json:"command_at,omitzero"`
	Outcome   *session.Outcome `json:"outcome,omitempty"`
	// Restored is the snapshot that the work folder was restored from.
	Restored session.Snapshot `json:"restored,omitzero"`
	// Kills counts the processes that the kernel had killed for lack of memory when it started.
	Kills int64 `json:"kills,omitempty"`
	// GPUErrors are the uncorrected memory errors of each GPU when it started.
	GPUErrors map[string]int64 `json:"gpu_errors,omitempty"`
	Jupyter   processRef       `json:"jupyter"`
	// Slots is the number of processes per node, Master the address of node 0, for distributed
	// runs.
	Slots  int    `json:"slots,omitempty"`
	Master string `json:"master,omitempty"`
}

// processRef identifies a process by PID and start time in ticks since boot, because PIDs are
// reused.
type processRef struct {
	PID        int    `json:"pid,omitempty"`
	StartTicks uint64 `json:"began,omitempty"`
}

// ending describes the end of a session.
type ending struct {
	Cause   cause     `json:"cause"`
	Why     string    `json:"why"`
	Since   time.Time `json:"since"`
	Discard bool      `json:"discard"`
	// AskedAt is the time of the request to save and end; zero: not yet. Nothing cancels the end
	// of a session afterwards.
	AskedAt time.Time `json:"asked_at,omitzero"`
	// Killed reports that the processes were ended, Done that only the release of the machine is
	// left.
	Killed bool `json:"killed"`
	Done   bool `json:"done"`
}

// cause is the cause of an end.
type cause string

const (
	causeOrder cause = "order"
	causeLease cause = "lease"
	causeIdle  cause = "idle"
	// causeCommand means that the command of a job ended, causeStall that it made no progress.
	causeCommand cause = "command"
	causeStall   cause = "stall"
	// causeReplaced means that another machine was launched for the node.
	causeReplaced cause = "replaced"
)

// scriptState is a running command of a user.
type scriptState struct {
	PID        int    `json:"pid,omitempty"`
	StartTicks uint64 `json:"began,omitempty"`
	// OutputRead is the number of output bytes already recorded.
	OutputRead int64 `json:"read,omitempty"`
}

// stateFolder is the state folder, locked by one process at a time.
type stateFolder struct {
	dir  string
	lock *os.File
}

// openStateFolder creates and locks the state folder.
func openStateFolder(dir string) (*stateFolder, error) {
	if err := os.MkdirAll(filepath.Join(dir, "events"), 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the state folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("%w: %s", ErrRunning, dir)
	}
	return &stateFolder{dir, lock}, nil
}

// ErrRunning means that another process has locked the state folder.
var ErrRunning = errors.New("another agent uses this state folder")

func (d *stateFolder) close() { _ = d.lock.Close() }

func (d *stateFolder) path(name string) string { return filepath.Join(d.dir, name) }

// load reads the state of a session, empty for a new one.
func (d *stateFolder) load(h *session.HostConfig) (*state, error) {
	s := &state{Session: h.Session, Epoch: h.Epoch, Round: h.Round}
	data, err := os.ReadFile(d.path("state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state: %w", err)
	}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read %s: %w", d.path("state.json"), err)
	}
	if s.Session != h.Session || s.Epoch != h.Epoch {
		return nil, fmt.Errorf(
			"%s is the state of session %s, start %d, and not of %s, start %d: name another folder with --state",
			d.dir,
			s.Session, s.Epoch, h.Session, h.Epoch)
	}
	return s, nil
}

// save writes the state atomically.
func (d *stateFolder) save(s *state) error {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return durable.ReplaceBytes(d.path("state.json"), 0o600, data)
}
