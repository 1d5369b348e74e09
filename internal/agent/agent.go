// Package agent is the side of a session that runs on its machine: it obeys the keeper's
// orders, says how it is, sets the machine up, saves the work folder, and ends the session by
// its lease or its idle rule also where no keeper is left.
//
// Everything that it needs to go on is in its state folder. So it may be killed at any point
// and started again.
package agent

import (
	"context"
	"os/exec"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Store is where the documents of a session are, relative to its control prefix. It answers
// as a checkpoint.Backend does.
type Store interface {
	Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error)
	Create(ctx context.Context, key string, data []byte) error
	Replace(ctx context.Context, key string, data []byte, version string) (string, error)
}

// Cage holds the processes of a session, also those that left their process group.
type Cage interface {
	// Start starts a command inside.
	Start(ctx context.Context, c *exec.Cmd) error
	// Processes lists those that are inside now. The agent is none of them.
	Processes() ([]int, error)
	// Kill ends all of them, and returns once none is left.
	Kill(ctx context.Context) error
}

// Ender gives the machine back where it goes with the session. It may be asked again.
type Ender interface {
	End(ctx context.Context) error
}

// GPUs reads the GPUs of the machine.
type GPUs interface {
	// Read returns what each GPU that the driver shows is doing now. ErrNoGPUs: the machine
	// has none.
	Read(ctx context.Context) ([]GPU, error)
}

// GPU is one reading of one GPU. A signal that was not measured is not in Signals.
type GPU struct {
	Index, UUID string
	Signals     map[usage.Signal]float64
}

// Parameters reads what Host.Secrets names.
type Parameters interface {
	Parameter(ctx context.Context, name string) (string, error)
}

// Notices tells of the end that the provider announces for a spot machine.
type Notices interface {
	// Notice returns when the provider takes the machine; zero: nothing is announced.
	Notice(ctx context.Context) (time.Time, error)
}

// Datasets brings what Host.Data names to the machine.
type Datasets interface {
	// Fetch makes what lies at an address readable below a folder. A fetch that was cut off
	// is fetched again.
	Fetch(ctx context.Context, from, dir string) error
}

// Options are an agent's session and what it reaches. Fields that may be nil say what that
// means.
type Options struct {
	Host session.HostConfig
	// State is the folder for what has to survive the process; it is on this machine.
	State string
	// Home is the home of the session's user: "~" of Host.WorkDir, and where .curfew/keep is.
	Home string
	// Control is the store at Host.Control, Work opens the one of a URL below Host.Work.
	Control Store
	Work    func(ctx context.Context, url string) (checkpoint.Backend, error)
	Cage    Cage
	// Ender ends the machine; nil: it stays, and its files with it.
	Ender Ender
	// GPUs is nil where the session has none.
	GPUs GPUs
	// Parameters, Notices and Datasets are nil where there are none to be had.
	Parameters Parameters
	Notices    Notices
	Datasets   Datasets
	// Now is the wall clock. Uptime names the machine's boot and says how long ago it was,
	// by a clock that no one sets.
	Now    func() time.Time
	Uptime func() (boot string, up time.Duration)
	// Environ is the environment of what runs in the session.
	Environ []string
	// Address is where peers reach this machine; empty: unknown.
	Address string
	// Memory is a folder in memory for secrets; empty: there is none, and a session with
	// secrets fails to set up.
	Memory string
	// Log is told what the agent does, a line each; nil: no one.
	Log func(line string)
	// Paces change how often things are done; zero fields mean the defaults.
	Paces Paces
}

// Paces are how often the agent does things, and how long steps of the set-up may take.
type Paces struct {
	Poll   time.Duration // between looks at the orders: 5 s
	Status time.Duration // between statuses that say nothing new, at most: 30 s
	Sample time.Duration // that a measurement stands for, of which two looks are taken: 10 s, less where Idle is short
	Tick   time.Duration // between decisions: 1 s, less where Sample is
	Retry  time.Duration // between tries of a save that fails: 1 s, then twice that up to 30 s
	Flush  time.Duration // until events are sent: 2 s
	Notice time.Duration // between looks for a spot notice: 5 s
	Quiet  time.Duration // that files have to stay as they are to count as finished: 2 s
	Step   time.Duration // most that a step of the set-up may take: 30 min
}

// withDefaults returns the paces for an idle time.
func (p Paces) withDefaults(idle time.Duration) Paces {
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
	or(&p.Quiet, 2*time.Second)
	or(&p.Step, 30*time.Minute)
	return p
}
