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

// Kind is how a cage holds its processes.
type Kind string

// The kinds, the best first.
const (
	// Cgroup2 ends its processes by one write (cgroup.kill, Linux 5.14).
	Cgroup2 Kind = "cgroup v2"
	// Freezer stops them all, kills each, and lets them go.
	Freezer Kind = "cgroup v1 freezer"
	// Namespace ends them with the first process of their PID namespace.
	Namespace Kind = "PID namespace"
	// Environment finds them by a variable in their environment. One that clears its
	// environment and detaches from its parent is not found.
	Environment Kind = "environment variable"
)

// Kinds are all of them, in the order in which they are tried.
var Kinds = []Kind{Cgroup2, Freezer, Namespace, Environment}

// Whole says whether what detaches from its parent ends with the cage, whatever it does.
func (k Kind) Whole() bool { return k != Environment && k != "" }

// Variable is in the environment of every process of a cage, with the cage's name.
const Variable = "CURFEW_MACHINE"

// ErrNoCage is returned where a folder holds no cage.
var ErrNoCage = errors.New("there is no cage")

// Cage is a set of processes that is ended whole, with all that they started: those
// included that went to the background as a daemon does. It is kept in a file, so that any
// process finds it again.
type Cage struct {
	dir  string
	file cageFile
}

// cageFile is what is kept of a cage. It is written before what it names is made.
type cageFile struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	Boot string `json:"boot"`
	// Whole is the folder of the machine's control group: in it are the group of its processes,
	// Path, and the one of its agent. Devices is the folder of the group that denies devices.
	// Outside is a group for what is to survive whoever started it, the watcher.
	Whole   string `json:"whole,omitempty"`
	Path    string `json:"path,omitempty"`
	Devices string `json:"devices,omitempty"`
	Outside string `json:"outside,omitempty"`
	// Memory and Processes are the folders of the groups that bound these, where they are others
	// than Whole.
	Memory    string `json:"memory,omitempty"`
	Processes string `json:"processes,omitempty"`
	// Limits are the bounds, and Bounded is by what each is held.
	Limits  Limits  `json:"limits,omitzero"`
	Bounded bounded `json:"bounded,omitzero"`
	// As is who its processes are, where that is another than who made the cage.
	As *User `json:"as,omitempty"`
	// Init is the first process of its PID namespace, User that it is of a user namespace
	// as well.
	Init *Process `json:"init,omitempty"`
	User bool     `json:"user,omitempty"`
	// Visible is what CUDA_VISIBLE_DEVICES says in it; nil: it is left alone.
	Visible *string  `json:"visible"`
	Deny    []Device `json:"deny,omitempty"`
	// Enforced says that the kernel denies what Deny lists.
	Enforced bool     `json:"enforced"`
	Helper   []string `json:"helper"`
}

// Device is a character device.
type Device struct {
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

// CageOptions are what a cage is made with.
type CageOptions struct {
	// Name is unique on the machine.
	Name string
	// Kind is how it holds its processes; empty is the first that works here.
	Kind Kind
	// Visible is what CUDA_VISIBLE_DEVICES says to its processes; nil leaves it alone. Deny
	// are the devices that the kernel is to refuse them, where it can.
	Visible *string
	Deny    []Device
	// User is who its processes are; nil: who starts them. Its agent is that user too, and starts
	// processes in the cage without more rights.
	User *User
	// Limits bound its processes; zero fields bound nothing.
	Limits Limits
	// Helper is the program that carries out [Helper], with its first arguments; nil is this
	// program with the argument "cage".
	Helper []string
}

// cageName is the form of a cage's name, which is part of the names of folders.
var cageName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// thisProgram is the program that runs, whatever became of its file.
var thisProgram = []string{"/proc/self/exe", "cage"}

// NewCage makes an empty cage and keeps it in dir, which exists.
func NewCage(ctx context.Context, dir string, o CageOptions) (*Cage, error) {
	if !cageName.MatchString(o.Name) {
		return nil, fmt.Errorf("%q is no name of a cage", o.Name)
	}
	if o.Helper == nil {
		o.Helper = thisProgram
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
			Name: o.Name, Kind: o.Kind, Boot: bootID(), Visible: o.Visible, Deny: slices.Clone(o.Deny), Helper: o.Helper,
			As: o.User, Limits: o.Limits}}
	err := c.make(ctx)
	if err == nil {
		err = c.save()
	}
	if err != nil {
		// Another context: what was begun is taken back even where the caller gave up.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("make a cage by %s: %w", o.Kind, err), c.KillAll(undo), c.Remove(undo))
	}
	return c, nil
}

// OpenCage finds the cage that is kept in a folder; ErrNoCage where there is none.
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

// save keeps the cage.
func (c *Cage) save() error {
	b, err := json.MarshalIndent(c.file, "", " ")
	if err != nil {
		return err
	}
	return durable.ReplaceBytes(filepath.Join(c.dir, cageFileName), 0o600, b)
}

// Kind is how it holds its processes.
func (c *Cage) Kind() Kind { return c.file.Kind }

// Limits are what nothing on this machine ensures, for people: empty where its processes end
// whatever they do, and the kernel denies them the GPUs that are not theirs.
func (c *Cage) Limits() (limits []string) {
	if !c.file.Kind.Whole() {
		limits = append(limits, "a program that clears its environment and detaches is not ended")
	}
	if c.file.Visible != nil && !c.file.Enforced {
		limits = append(limits, "the choice of GPUs is advisory (CUDA_VISIBLE_DEVICES)")
	}
	return append(limits, c.file.Bounded.notes(c.file.Limits)...)
}

// environment is what a command of the cage is started with.
func (c *Cage) environment(cmd *exec.Cmd) []string {
	env := cmd.Env
	if env == nil {
		env = Environ(os.Environ())
	}
	env = without(env, Variable)
	env = append(env, Variable+"="+c.file.Name)
	if c.file.Visible != nil {
		env = append(without(env, "CUDA_VISIBLE_DEVICES"), "CUDA_VISIBLE_DEVICES="+*c.file.Visible)
	}
	return env
}

// without returns the environment without a variable.
func without(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return len(v) > len(name) && v[:len(name)] == name && v[len(name)] == '='
	})
}

// Probed is how cages are made here.
type Probed struct {
	Kind Kind
	// Why says of each better kind why it does not work.
	Why map[Kind]string
}
