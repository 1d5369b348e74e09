package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
)

// Files in a machine's folder.
const (
	recordFile  = "machine.json" // description, written with the folder
	hostFile    = "host.json"    // agent configuration, written with the folder
	watcherFile = "watcher.json" // watcher process
	agentFile   = "agent.json"   // agent process
	endingFile  = "ending.json"  // request to end
	endedFile   = "ended.json"   // no process left
	rescueFile  = "rescue.json"  // preserve its files at the end
	watcherLock = "watcher.lock"
	logFile     = "agent.log"
)

// record describes a machine. It is written before anything starts and never changes.
type record struct {
	ID           string `json:"id"`
	Installation string `json:"installation"`
	Session      string `json:"session"`
	Token        string `json:"token"`
	// RequestHash is the hash of the launch request of the token.
	RequestHash string            `json:"asked"`
	Node        int               `json:"node"`
	Nodes       int               `json:"nodes"`
	Pool        session.Pool      `json:"pool"`
	Tags        map[string]string `json:"tags"`
	LeaseUntil  time.Time         `json:"lease_until"`
	LaunchedAt  time.Time         `json:"launched_at"`
	// GPUs are the ids of the assigned GPUs, Deny the devices of the others.
	GPUs []string `json:"gpus,omitempty"`
	Deny []Device `json:"deny,omitempty"`
	// VisibleGPUs is the value of CUDA_VISIBLE_DEVICES; nil if the machine is unknown to have GPUs.
	VisibleGPUs *string `json:"visible"`
	Kind        Kind    `json:"cage"`
	Size        size    `json:"size"`
	// Agent is the agent's command line without the path of its configuration.
	Agent  []string `json:"agent"`
	Helper []string `json:"helper"`
	// EndTimeout is how long after its lease the machine ends whatever its agent does.
	EndTimeout session.Duration `json:"limit"`
	// Limits bound its processes.
	Limits Limits `json:"limits"`
	// User is the user of its processes; nil means the launching user. UserDir then holds their
	// files, below a folder of the session; otherwise they are in the machine's folder.
	User    *User  `json:"user,omitempty"`
	UserDir string `json:"own,omitempty"`
	// Control is the prefix of the documents between keeper and agent.
	Control string `json:"control"`
	// HostNumber is the number of the agent's documents if it is not Node.
	HostNumber int `json:"host_number,omitempty"`
}

// size is a share of this machine.
type size struct {
	GPU       string `json:"gpu,omitempty"`
	GPUs      int    `json:"gpus"`
	MilliCPUs int64  `json:"milli_cpus"`
	MemoryMiB int64  `json:"memory_mib,omitempty"`
}

// resource converts the size for the inventory.
func (s size) resource() inventory.Size {
	out := inventory.Size{GPUs: inventory.Known(s.GPUs), GPU: s.GPU, MilliCPUs: inventory.Known(s.MilliCPUs)}
	if s.MemoryMiB > 0 {
		out.MemoryMiB = inventory.Known(s.MemoryMiB)
	}
	return out
}

// ending is a request to end.
type ending struct {
	At time.Time `json:"at"`
}

// ended is the time and reason of a machine's end.
type ended struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// machine is a machine and its folder.
type machine struct {
	dir string
	record
}

// path returns the path of a file in its folder.
func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// userTree returns the folder that its processes write to.
func (m *machine) userTree() tree {
	if m.User == nil {
		return tree{base: m.dir}
	}
	return tree{base: m.UserDir, rel: filepath.Join(m.Session, m.ID), user: m.User}
}

// readJSON reads a file of a machine; false if it does not exist.
func readJSON(path string, v any) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return durable.ReplaceBytes(path, 0o600, append(b, '\n'))
}

// openMachine reads a machine's folder.
func openMachine(dir string) (*machine, error) {
	m := &machine{dir: dir}
	there, err := readJSON(m.path(recordFile), &m.record)
	if err == nil && (!there || m.ID != filepath.Base(dir)) {
		err = fmt.Errorf("%s is no machine's folder", dir)
	}
	return m, err
}

// machines returns all machines by session and node.
func (p *Provider) machines() ([]*machine, error) {
	entries, err := os.ReadDir(p.machinesDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the machines of this computer: %w", err)
	}
	var out []*machine
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinishedPrefix) {
			continue
		}
		m, err := openMachine(filepath.Join(p.machinesDir(), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *machine) int {
		if a.Session != b.Session {
			return strings.Compare(a.Session, b.Session)
		}
		if a.Node != b.Node {
			return a.Node - b.Node
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, nil
}

// machineState is the current state of a machine.
type machineState struct {
	// State is pending, running or deleting; empty if nothing runs or will run.
	State          inventory.State
	Watcher, Agent Process
	// Started reports that the agent was started at least once.
	Started bool
	// HasOrphans reports processes in the cage without a watcher.
	HasOrphans bool
	Ended      ended
}

// readState returns the state of a machine.
func (m *machine) readState() (machineState, error) {
	var s machineState
	over, err := readJSON(m.path(endedFile), &s.Ended)
	if err != nil || over {
		return s, err
	}
	var order ending
	asked, err := readJSON(m.path(endingFile), &order)
	if err != nil {
		return s, err
	}
	// Read the agent last: a watcher ends only after its agent.
	if _, err = readJSON(m.path(watcherFile), &s.Watcher); err != nil {
		return s, err
	}
	watched := s.Watcher.Alive()
	if s.Started, err = readJSON(m.path(agentFile), &s.Agent); err != nil {
		return s, err
	}
	alive := watched || s.Agent.Alive()
	if !alive && s.Started {
		pids, err := m.processes()
		if err != nil {
			return s, err
		}
		s.HasOrphans = len(pids) > 0
	}
	if !alive && !asked {
		// The watcher may have written this just before its end.
		if over, err := readJSON(m.path(endedFile), &s.Ended); err != nil || over {
			return s, err
		}
	}
	switch {
	case asked && (alive || s.HasOrphans):
		s.State = inventory.StateDeleting
	case asked:
	case alive && s.Started, s.HasOrphans:
		s.State = inventory.StateRunning
	case alive || !s.Started:
		s.State = inventory.StatePending
	}
	return s, nil
}

// processes returns the processes of the machine's cage.
func (m *machine) processes() ([]int, error) {
	c, err := OpenCage(m.dir)
	if errors.Is(err, ErrNoCage) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c.Processes()
}

// sessionMachine converts the machine for package session.
func (m *machine) sessionMachine(state inventory.State) session.Machine {
	return session.Machine{ID: m.ID, Node: m.Node, Pool: m.Pool, State: state, LaunchedAt: m.LaunchedAt}
}

// tokenRecord records a token whose machines are gone, so that it does not launch again.
type tokenRecord struct {
	Asked    string            `json:"asked"`
	Machines []session.Machine `json:"machines"`
}

// tokenMemory is how long tokens are remembered; EC2 lists terminated machines for about an hour.
const tokenMemory = 24 * time.Hour
