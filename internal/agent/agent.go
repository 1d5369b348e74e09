// Package agent runs on the machine of a session: it obeys the keeper's orders, writes statuses,
// sets the machine up, saves the work folder, and ends the session by its lease or idle rule even
// without a keeper.
//
// All state that it needs is in its state folder, so it may be killed at any point and restarted.
package agent

import (
	"context"
	"os/exec"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Store holds the documents of a session, keyed relative to its control prefix. Its errors are
// those of checkpoint.Backend.
type Store interface {
	Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error)
	Create(ctx context.Context, key string, data []byte) error
	Replace(ctx context.Context, key string, data []byte, version string) (string, error)
}

// Cage contains the processes of a session, including those that left their process group.
type Cage interface {
	// Start starts a command in the cage.
	Start(ctx context.Context, c *exec.Cmd) error
	// Processes returns the current processes in the cage, without the agent.
	Processes() ([]int, error)
	// Killable returns the processes that Kill would end.
	Killable() ([]int, error)
	// Kill ends all processes in the cage and waits until none is left.
	Kill(ctx context.Context) error
}

// MachineTerminator terminates the machine of a whole-machine session. Terminate is idempotent.
type MachineTerminator interface {
	Terminate(ctx context.Context) error
}

// GPUs reads the GPUs of the machine.
type GPUs interface {
	// Read returns the current state of each GPU that the driver lists, or ErrNoGPUs.
	Read(ctx context.Context) ([]GPU, error)
}

// GPU is one reading of one GPU. Signals lacks the signals that were not measured.
type GPU struct {
	Index, UUID string
	Signals     map[usage.Signal]float64
}

// Parameters reads the parameters named by HostConfig.Secrets.
type Parameters interface {
	Parameter(ctx context.Context, name string) (string, error)
}

// Notices reads spot interruption notices.
type Notices interface {
	// Notice returns the announced termination time; zero if there is none.
	Notice(ctx context.Context) (time.Time, error)
}

// Datasets fetches the datasets of HostConfig.Data.
type Datasets interface {
	// Fetch makes the data at a URL readable below dir. An interrupted fetch is repeated.
	Fetch(ctx context.Context, from, dir string) error
}

// Options configure an agent.
type Options struct {
	Host session.HostConfig
	// State is a local folder for the state that survives the process.
	State string
	// Home replaces "~" in HostConfig.WorkDir and holds .curfew/keep.
	Home string
	// Control is the store at HostConfig.Control; Work opens a store at a URL below
	// HostConfig.Work.
	Control Store
	Work    func(ctx context.Context, url string) (checkpoint.Backend, error)
	Cage    Cage
	// Terminator terminates the machine; nil keeps the machine and its files.
	Terminator MachineTerminator
	// GPUs is nil if the session has none.
	GPUs GPUs
	// Parameters, Notices and Datasets are nil where the machine has no such source.
	Parameters Parameters
	Notices    Notices
	Datasets   Datasets
	// Now is the wall clock. Uptime returns the boot id and the time since boot by a monotonic
	// clock.
	Now    func() time.Time
	Uptime func() (boot string, up time.Duration)
	// Environ is the environment of commands in the session.
	Environ []string
	// Address is the address that peers connect to; empty if unknown.
	Address string
	// Memory is an in-memory folder for secrets; empty makes the setup of a session with secrets
	// fail.
	Memory string
	// Log receives a line per action of the agent; nil discards them.
	Log func(line string)
	// Intervals override the default intervals where not zero.
	Intervals Intervals
}

// Intervals are the intervals and timeouts of the agent; zero fields take the default named at
// each.
type Intervals struct {
	Poll        time.Duration // between reads of the order: 5 s
	Status      time.Duration // between unchanged statuses: 30 s
	Sample      time.Duration // covered by one sample, made of two measurements: 10 s, less with a short idle time
	Tick        time.Duration // between decisions: 1 s, less with a short Sample
	Retry       time.Duration // between failing saves: 1 s, doubled up to 30 s
	Flush       time.Duration // before events are sent: 2 s
	Notice      time.Duration // between reads of the spot notice: 5 s
	FileQuiet   time.Duration // without changes until a file counts as finished: 2 s
	StepTimeout time.Duration // for one step of the setup: 30 min
	Command     time.Duration // between looks at the command of a job: 100 ms
}

// withDefaults returns the intervals with defaults for an idle time.
func (p Intervals) withDefaults(idle time.Duration) Intervals {
	or := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	or(&p.Poll, 5*time.Second)
	or(&p.Status, 30*time.Second)
	sample := 10 * time.Second
	if idle > 0 {
		sample = max(min(sample, idle/10), time.Second)
	}
	or(&p.Sample, sample)
	or(&p.Tick, max(min(time.Second, p.Sample), 50*time.Millisecond))
	or(&p.Retry, time.Second)
	or(&p.Flush, 2*time.Second)
	or(&p.Notice, 5*time.Second)
	or(&p.FileQuiet, 2*time.Second)
	or(&p.Command, 100*time.Millisecond)
	or(&p.StepTimeout, 30*time.Minute)
	return p
}
