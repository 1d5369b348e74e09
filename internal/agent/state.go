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

// state is what has to survive the process.
type state struct {
	Session string        `json:"session"`
	Epoch   int64         `json:"epoch"`
	Anchor  anchor        `json:"anchor"`
	Order   session.Order `json:"order"`
	// Saved is the highest Order.Save that was answered.
	Saved    int64            `json:"saved"`
	Snapshot session.Snapshot `json:"snapshot"`
	// Seen is the print of the work folder that Snapshot holds (see fingerprint).
	Seen string `json:"seen,omitempty"`
	// Ready says that the set-up is done, Failed why it is not.
	Ready  bool                `json:"ready"`
	Failed string              `json:"failed,omitempty"`
	Steps  []session.SetupStep `json:"steps"`
	// Restoring says that a restore into the work folder began, so that what is there is
	// no one's work yet.
	Restoring bool `json:"restoring,omitempty"`
	// Ending is a decision to end that nothing takes back.
	Ending *ending `json:"ending,omitempty"`
	// Kept is the time of the keep file that was seen last.
	Kept time.Time `json:"kept,omitzero"`
	// Events is the number of the newest file of events, Output how much of what commands
	// printed was sent, in bytes.
	Events  int64   `json:"events"`
	Output  int64   `json:"output"`
	Setup   setup   `json:"setup"`
	Jupyter running `json:"jupyter"`
	// Slots is how many processes a node of several runs, Master the address of the first.
	Slots  int    `json:"slots,omitempty"`
	Master string `json:"master,omitempty"`
}

// running is a process, with when it began in the kernel's ticks since boot, so that another
// one with its number is not taken for it.
type running struct {
	PID   int    `json:"pid,omitempty"`
	Began uint64 `json:"began,omitempty"`
}

// ending is why and since when a session ends.
type ending struct {
	Cause   cause     `json:"cause"`
	Why     string    `json:"why"`
	Since   time.Time `json:"since"`
	Discard bool      `json:"discard"`
	// Killed says that its processes were ended, Done that nothing is left to do but to give
	// the machine back.
	Killed bool `json:"killed"`
	Done   bool `json:"done"`
}

// cause is what ends a session.
type cause string

const (
	byOrder cause = "order"
	byLease cause = "lease"
	byIdle  cause = "idle"
)

// setup is the command of Host.Setup that is under way.
type setup struct {
	PID   int    `json:"pid,omitempty"`
	Began uint64 `json:"began,omitempty"`
	// Read is how much of its output was read.
	Read int64 `json:"read,omitempty"`
	// gone says that it was seen to have ended without having said how.
	gone bool
}

// disk is the state folder. Only one process at a time has it.
type disk struct {
	dir  string
	lock *os.File
}

// openDisk takes the state folder.
func openDisk(dir string) (*disk, error) {
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
	return &disk{dir, lock}, nil
}

// ErrRunning says that another process has the state folder.
var ErrRunning = errors.New("another agent uses this state folder")

func (d *disk) close() { _ = d.lock.Close() }

func (d *disk) path(name string) string { return filepath.Join(d.dir, name) }

// load reads the state of a session; a new one has none.
func (d *disk) load(h *session.HostConfig) (*state, error) {
	s := &state{Session: h.Session, Epoch: h.Epoch}
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
			"%s is the state of session %s, start %d, and not of %s, start %d: name another folder with --state", d.dir,
			s.Session, s.Epoch, h.Session, h.Epoch)
	}
	return s, nil
}

// save writes the state: all of it or nothing.
func (d *disk) save(s *state) error {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return durable.ReplaceBytes(d.path("state.json"), 0o600, data)
}
