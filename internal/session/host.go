package session

import (
	"cmp"
	"strings"
	"time"
)

// Schemas of the documents between the keeper and the hosts. They lie below the session's
// control prefix: order.json (the keeper writes it), status-NODE.json and
// events-NODE/NUMBER.jsonl (each host writes its own; NUMBER is decimal, from 1).
const (
	HostSchema   = "curfew.session-host/v1"
	OrderSchema  = "curfew.session-order/v1"
	StatusSchema = "curfew.session-status/v1"
)

// Host is what a machine is told when it is launched: a file next to the process of a local
// machine, the user data of another. It holds no secret.
type Host struct {
	Schema  string `json:"schema"`
	Session string `json:"session"`
	Name    string `json:"name"`
	Node    int    `json:"node"`
	Nodes   int    `json:"nodes"`
	Epoch   int64  `json:"epoch"`
	// Control is the prefix of the documents (file:///… or s3://…); Work is where snapshots
	// of the work folder go, each node's below it as a run of its own, "node-0" and so on;
	// empty: nowhere.
	Control string `json:"control"`
	Work    string `json:"work,omitempty"`
	// WorkDir is the folder on the machine; "~/" is the home of its user.
	WorkDir string `json:"work_dir"`
	// Seen is the key of the newest snapshot that was confirmed before this start; nothing
	// older is restored. Empty: none is known.
	Seen string `json:"seen,omitempty"`
	// Every is the time between snapshots, Idle how long at rest ends it (0: never), Lease
	// when it ends by itself without word from the keeper.
	Every Duration  `json:"every"`
	Idle  Duration  `json:"idle"`
	Lease time.Time `json:"lease_until"`
	// Grace is how long after the warning it goes on, Save the most that the last snapshot
	// may take.
	Grace Duration `json:"grace"`
	Save  Duration `json:"save"`
	// Limit is the most that an end may take after the lease; 0 is that of EndLimit.
	Limit Duration `json:"limit,omitempty"`
	// Setup runs once in the work folder; Env is added to the environment of what runs;
	// Secrets maps variables to parameters that are read at run time; Ports are those that
	// connect forwards.
	Setup   string            `json:"setup,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Secrets map[string]string `json:"secrets,omitempty"`
	Ports   []int             `json:"ports,omitempty"`
	Data    []string          `json:"data,omitempty"`
	// GPUs are the indexes or UUIDs given to it; nil: all of a Machine, none of another.
	GPUs []string `json:"gpus,omitempty"`
	// Machine says that the whole machine is the session: to end it is to shut it down, and
	// its disks go with it. False: the session is some processes of a machine that stays,
	// and so do its files.
	Machine bool `json:"machine,omitempty"`
}

// EndLimit is how long after its lease the session ends whatever is unfinished.
func (h *Host) EndLimit() Duration {
	return cmp.Or(h.Limit, h.Grace+h.Save+Duration(EndMargin))
}

// Order is what the keeper wants of the hosts. It is replaced whole; a host obeys the one
// with the highest Serial of its epoch.
type Order struct {
	Schema  string    `json:"schema"`
	Session string    `json:"session"`
	Epoch   int64     `json:"epoch"`
	Serial  int64     `json:"serial"`
	At      time.Time `json:"at"`
	// Lease replaces the host's.
	Lease time.Time `json:"lease_until"`
	Idle  Duration  `json:"idle"`
	// Save asks for a snapshot: a host that has answered a lower number saves at once.
	Save int64 `json:"save"`
	// End asks it to save and end; nil: go on.
	End *End `json:"end,omitempty"`
	// Peers are the addresses of all nodes, by node; empty until they are known.
	Peers []string `json:"peers,omitempty"`
}

// End is an order to end.
type End struct {
	Why string    `json:"why"`
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	// Discard gives up what is not saved.
	Discard bool `json:"discard"`
}

// Reason says why it ends and who ends it, each once.
func (e End) Reason() string {
	if strings.HasSuffix(e.Why, " by "+e.By) {
		return e.Why
	}
	return e.Why + ", by " + e.By
}

// stepRunning ends the text of the event of a step that begins.
const stepRunning = ": running"

// StepRunning returns the text of the event of a step that begins.
func StepRunning(name string) string { return name + stepRunning }

// RunningStep returns the name of the step that begins by the text of its event.
func RunningStep(text string) (name string, begins bool) { return strings.CutSuffix(text, stepRunning) }

// Phase is what a host is doing.
type Phase string

// The phases of a host.
const (
	HostStarting Phase = "starting"
	HostReady    Phase = "ready"
	HostWarned   Phase = "warned" // its terminals were told that it ends
	HostSaving   Phase = "saving" // the last snapshot
	HostEnding   Phase = "ending" // saved, or given up; the machine goes
	HostFailed   Phase = "failed" // its set-up failed
)

// Status is what a host says of itself, at least every 30 seconds.
type Status struct {
	Schema  string    `json:"schema"`
	Session string    `json:"session"`
	Node    int       `json:"node"`
	Epoch   int64     `json:"epoch"`
	At      time.Time `json:"at"`
	Boot    string    `json:"boot"`
	// Serial is that of the order it obeys, Saved the highest Order.Save that it answered.
	Serial int64 `json:"serial"`
	Saved  int64 `json:"saved"`
	Phase  Phase `json:"phase"`
	// Why says why it is in the phase: the reason of an end, the step that failed.
	Why   string `json:"why,omitempty"`
	Steps []Step `json:"steps,omitempty"`
	// Lease is what the host goes by.
	Lease time.Time `json:"lease_until"`
	// Activity is busy, held, idle or unknown; Since when.
	Activity string    `json:"activity"`
	Since    time.Time `json:"since"`
	// EndsAt is when it ends if nothing changes; zero: not planned.
	EndsAt time.Time `json:"ends_at,omitzero"`
	// Snapshot is the newest confirmed one of this host's work folder.
	Snapshot Snapshot `json:"snapshot"`
	// Unsaved is why the newest work is not saved; empty: it is.
	Unsaved     string       `json:"unsaved,omitempty"`
	Terminals   int          `json:"terminals"`
	Connections []Connection `json:"connections,omitempty"`
	// Address is where its peers reach it.
	Address string `json:"address,omitempty"`
	// Events is the number of the newest file of events.
	Events int64 `json:"events"`
}

// SamplesFile is the file in a host's state folder to which it appends what it measured, a
// [Sampled] a line; the one before it, which was full, has SamplesBefore. They are for those
// who judge the machine from outside.
const (
	SamplesFile   = "samples.jsonl"
	SamplesBefore = "samples-1.jsonl"
)

// Sampled is what a host measured over some steps.
type Sampled struct {
	From time.Time `json:"from"`
	Step Duration  `json:"step"`
	// Steps is how many steps it stands for.
	Steps int `json:"steps"`
	// Host are signals of the machine, GPUs those of each GPU, by the names of usage.
	Host map[string]float64            `json:"host,omitempty"`
	GPUs map[string]map[string]float64 `json:"gpus,omitempty"`
}

// Step is one step of the set-up.
type Step struct {
	Name       string    `json:"name"`
	State      string    `json:"state"` // waiting, running, done, failed, skipped
	StartedAt  time.Time `json:"started_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	Why        string    `json:"why,omitempty"`
}

// Connection is one that a person has to the machine.
type Connection struct {
	Kind  string    `json:"kind"` // shell, ssh, port
	From  string    `json:"from,omitempty"`
	Since time.Time `json:"since"`
}

// Event is a line of a host's journal, as `logs` shows it.
type Event struct {
	At   time.Time `json:"at"`
	Node int       `json:"node"`
	// Kind is the event: step, ready, idle, busy, warned, extended, snapshot, ended, output;
	// unsaved, notice (of a spot machine), connection, clock, order, resumed.
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Duration is a duration as the documents write it ("30m0s").
type Duration time.Duration

// MarshalText writes it as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what Go writes.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// String writes it for people: "30m0s".
func (d Duration) String() string { return time.Duration(d).String() }
