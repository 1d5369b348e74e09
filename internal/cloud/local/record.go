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

// Files of a machine's folder.
const (
	recordFile  = "machine.json" // what it is; written with the folder
	hostFile    = "host.json"    // what its agent is told; written with the folder
	watcherFile = "watcher.json" // the process that stays with it
	agentFile   = "agent.json"   // the agent
	endingFile  = "ending.json"  // it was asked to end
	endedFile   = "ended.json"   // nothing of it runs any more
	rescueFile  = "rescue.json"  // its files are put aside when it ends
	watcherLock = "watcher.lock"
	logFile     = "agent.log"
)

// record is what is written of a machine before anything of it starts. It never changes.
type record struct {
	ID           string `json:"id"`
	Installation string `json:"installation"`
	Session      string `json:"session"`
	Token        string `json:"token"`
	// Asked is the hash of what was asked for with the token.
	Asked      string            `json:"asked"`
	Node       int               `json:"node"`
	Nodes      int               `json:"nodes"`
	Pool       session.Pool      `json:"pool"`
	Tags       map[string]string `json:"tags"`
	LeaseUntil time.Time         `json:"lease_until"`
	LaunchedAt time.Time         `json:"launched_at"`
	// GPUs are the ids of those that were given to it, Deny the devices of the others.
	GPUs []string `json:"gpus,omitempty"`
	Deny []Device `json:"deny,omitempty"`
	// Visible is what CUDA_VISIBLE_DEVICES says; nil: the machine is not known to have GPUs.
	Visible *string `json:"visible"`
	Kind    Kind    `json:"cage"`
	Size    size    `json:"size"`
	// Agent is the program that its file of what the agent is told is appended to.
	Agent  []string `json:"agent"`
	Helper []string `json:"helper"`
	// Limit is how long after its lease it ends whatever its agent does.
	Limit session.Duration `json:"limit"`
	// Limits bound what its processes use.
	Limits Limits `json:"limits"`
	// User is who its processes are; nil: the user of whoever launched it. Own is the folder that
	// has their files then, below a folder of the session; else they are in the machine's own.
	User *User  `json:"user,omitempty"`
	Own  string `json:"own,omitempty"`
	// Control is the prefix of the documents between the keeper and the agent.
	Control string `json:"control"`
}

// size is what a machine has of this one.
type size struct {
	GPU       string `json:"gpu,omitempty"`
	GPUs      int    `json:"gpus"`
	MilliCPUs int64  `json:"milli_cpus"`
	MemoryMiB int64  `json:"memory_mib,omitempty"`
}

// resource is the size in the inventory's words.
func (s size) resource() inventory.Size {
	out := inventory.Size{GPUs: inventory.Known(s.GPUs), GPU: s.GPU, MilliCPUs: inventory.Known(s.MilliCPUs)}
	if s.MemoryMiB > 0 {
		out.MemoryMiB = inventory.Known(s.MemoryMiB)
	}
	return out
}

// ending is an order to end.
type ending struct {
	At time.Time `json:"at"`
}

// ended is when the last process of a machine was gone, and why it ended.
type ended struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// machine is a machine with its folder.
type machine struct {
	dir string
	record
}

// path is a file of its folder.
func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// own is the folder that its processes write.
func (m *machine) own() tree {
	if m.User == nil {
		return tree{base: m.dir}
	}
	return tree{base: m.Own, rel: filepath.Join(m.Session, m.ID), own: m.User}
}

// readJSON reads a file of a machine; false where it is not there.
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

// machines reads all that there are, by session and node.
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
		if strings.HasPrefix(e.Name(), unfinished) {
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

// stand is how a machine stands now.
type stand struct {
	// State is pending, running or deleting; empty: nothing of it runs, and nothing will.
	State          inventory.State
	Watcher, Agent Process
	// Started says that its agent was started once.
	Started bool
	// Strays are processes in its cage while nothing watches over it.
	Strays bool
	Ended  ended
}

// look says how a machine stands.
func (m *machine) look() (stand, error) {
	var s stand
	over, err := readJSON(m.path(endedFile), &s.Ended)
	if err != nil || over {
		return s, err
	}
	var order ending
	asked, err := readJSON(m.path(endingFile), &order)
	if err != nil {
		return s, err
	}
	// The agent is read last: a watcher that ends has let its agent end before.
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
		s.Strays = len(pids) > 0
	}
	if !alive && !asked {
		// Whoever watched may have written this as the last thing.
		if over, err := readJSON(m.path(endedFile), &s.Ended); err != nil || over {
			return s, err
		}
	}
	switch {
	case asked && (alive || s.Strays):
		s.State = inventory.StateDeleting
	case asked:
	case alive && s.Started, s.Strays:
		s.State = inventory.StateRunning
	case alive || !s.Started:
		s.State = inventory.StatePending
	}
	return s, nil
}

// processes are those of its cage.
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

// shown is the machine in the session's words.
func (m *machine) shown(state inventory.State) session.Machine {
	return session.Machine{ID: m.ID, Node: m.Node, Pool: m.Pool, State: state, LaunchedAt: m.LaunchedAt}
}

// past is what is remembered of a token whose machines are gone, so that it does not launch
// again.
type past struct {
	Asked    string            `json:"asked"`
	Machines []session.Machine `json:"machines"`
}

// memory is how long that is remembered; EC2 shows terminated machines for about an hour.
const memory = 24 * time.Hour
