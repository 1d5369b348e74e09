package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Kind is the mechanism with which a cage holds its processes.
type Kind string

// The kinds, best first.
const (
	// Cgroup2 kills all processes with one write (cgroup.kill, Linux 5.14).
	Cgroup2 Kind = "cgroup v2"
	// Freezer freezes all processes, kills each, and thaws them.
	Freezer Kind = "cgroup v1 freezer"
	// Namespace kills the first process of the PID namespace.
	Namespace Kind = "PID namespace"
	// Environment finds processes by a variable in their environment. It misses a process that
	// clears its environment and detaches from its parent.
	Environment Kind = "environment variable"
)

// Kinds are all kinds in the order in which they are tried.
var Kinds = []Kind{Cgroup2, Freezer, Namespace, Environment}

// KillsDaemons reports whether ending the cage also ends processes that daemonized.
func (k Kind) KillsDaemons() bool { return k != Environment && k != "" }

// CageVariable holds the cage's name in the environment of each of its processes.
const CageVariable = "CURFEW_MACHINE"

// ErrNoCage means that a folder holds no cage.
var ErrNoCage = errors.New("there is no cage")

// Cage is a set of processes that ends as a whole, including daemonized descendants. It is stored
// in a file, so that any process can open it.
type Cage struct {
	dir  string
	file cageFile
}

// cageFile is the stored state of a cage. It is written before the resources that it names are
// created.
type cageFile struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	Boot string `json:"boot"`
	// MachineGroup is the folder of the machine's control group, which contains the groups of its
	// processes (Path) and its agent. Devices is the folder of the group that denies devices.
	// AgentGroup is a group for the watcher, which survives its starter.
	MachineGroup string `json:"whole,omitempty"`
	Path         string `json:"path,omitempty"`
	Devices      string `json:"devices,omitempty"`
	AgentGroup   string `json:"outside,omitempty"`
	// Memory and Processes are the folders of the groups with these limits, if they differ from
	// MachineGroup.
	Memory    string `json:"memory,omitempty"`
	Processes string `json:"processes,omitempty"`
	// Limits are the limits, HeldBy what enforces each.
	Limits Limits       `json:"limits,omitzero"`
	HeldBy limitHolders `json:"bounded,omitzero"`
	// User is the user of the processes if it is not the creator of the cage.
	User *User `json:"as,omitempty"`
	// Init is the first process of the PID namespace. UserNamespace reports that it has a user
	// namespace too.
	Init          *Process `json:"init,omitempty"`
	UserNamespace bool     `json:"user,omitempty"`
	// VisibleGPUs is the value of CUDA_VISIBLE_DEVICES in the cage; nil leaves it unchanged.
	VisibleGPUs *string  `json:"visible"`
	Deny        []Device `json:"deny,omitempty"`
	// Enforced reports that the kernel denies the devices in Deny.
	Enforced bool     `json:"enforced"`
	Helper   []string `json:"helper"`
}

// Device is a character device.
type Device struct {
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

// CageOptions configure a new cage.
type CageOptions struct {
	// Name is unique on the machine.
	Name string
	// Kind is the mechanism; empty takes the first that works here.
	Kind Kind
	// VisibleGPUs is the value of CUDA_VISIBLE_DEVICES; nil leaves it unchanged. The kernel denies
	// DeniedDevices if it can.
	VisibleGPUs   *string
	DeniedDevices []Device
	// User is the user of the processes and of the agent, which gains no privileges; nil means the
	// current user.
	User *User
	// Limits bound the processes; zero fields set no limit.
	Limits Limits
	// Helper is the command line that runs [Helper]; nil is this program with the argument "cage".
	Helper []string
}

// cageNamePattern matches cage names, which become parts of folder names.
var cageNamePattern = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// selfCommand is the running program, even if its file was replaced.
var selfCommand = []string{"/proc/self/exe", "cage"}

// NewCage creates an empty cage and stores it in an existing folder.
func NewCage(ctx context.Context, dir string, o CageOptions) (*Cage, error) {
	if !cageNamePattern.MatchString(o.Name) {
		return nil, fmt.Errorf("%q is no name of a cage", o.Name)
	}
	if o.Helper == nil {
		o.Helper = selfCommand
	}
	if o.Kind == "" {
		found, err := Probe(ctx, o.Helper)
		if err != nil {
			return nil, err
		}
		o.Kind = found.Kind
	}
	c := &Cage{
		dir: dir, file: cageFile{
			Name: o.Name, Kind: o.Kind, Boot: bootID(), VisibleGPUs: o.VisibleGPUs,
			Deny:   slices.Clone(o.DeniedDevices),
			Helper: o.Helper,
			User:   o.User, Limits: o.Limits}}
	err := c.make(ctx)
	if err == nil {
		err = c.save()
	}
	if err != nil {
		// Clean up with a fresh context, even if the caller gave up.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("make a cage by %s: %w", o.Kind, err), c.KillAll(undo), c.Remove(undo))
	}
	return c, nil
}

// OpenCage opens the cage stored in a folder, or returns ErrNoCage.
func OpenCage(dir string) (*Cage, error) {
	b, err := os.ReadFile(filepath.Join(dir, cageFileName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoCage)
	}
	if err != nil {
		return nil, err
	}
	c := &Cage{dir: dir}
	if err := json.Unmarshal(b, &c.file); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, cageFileName), err)
	}
	return c, nil
}

const cageFileName = "cage.json"

// save stores the cage.
func (c *Cage) save() error {
	b, err := json.MarshalIndent(c.file, "", " ")
	if err != nil {
		return err
	}
	return durable.ReplaceBytes(filepath.Join(c.dir, cageFileName), 0o600, b)
}

// Kind returns the mechanism of the cage.
func (c *Cage) Kind() Kind { return c.file.Kind }

// Limits returns, for people, the guarantees that are missing: empty if all processes end with the
// cage and the kernel denies foreign GPUs.
func (c *Cage) Limits() (limits []string) {
	if !c.file.Kind.KillsDaemons() {
		limits = append(limits, "a program that clears its environment and detaches is not ended")
	}
	if c.file.VisibleGPUs != nil && !c.file.Enforced {
		limits = append(limits, "the choice of GPUs is advisory (CUDA_VISIBLE_DEVICES)")
	}
	return append(limits, c.file.HeldBy.warnings(c.file.Limits)...)
}

// environment returns the environment of a command in the cage.
func (c *Cage) environment(cmd *exec.Cmd) []string {
	env := cmd.Env
	if env == nil {
		env = Environ(os.Environ())
	}
	env = withoutVariable(env, CageVariable)
	env = append(env, CageVariable+"="+c.file.Name)
	if c.file.VisibleGPUs != nil {
		env = append(withoutVariable(env, "CUDA_VISIBLE_DEVICES"), "CUDA_VISIBLE_DEVICES="+*c.file.VisibleGPUs)
	}
	return env
}

// withoutVariable removes a variable from an environment.
func withoutVariable(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return len(v) > len(name) && v[:len(name)] == name && v[len(name)] == '='
	})
}

// ProbeResult is the best kind of cage that works here.
type ProbeResult struct {
	Kind Kind
	// Failures explains why each better kind does not work.
	Failures map[Kind]string
}
