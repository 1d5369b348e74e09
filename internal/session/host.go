package session

import (
	"cmp"
	"strings"
	"time"
)

// Schemas of the documents below the session's control prefix: order.json, written by the keeper,
// and status-NODE.json and events-NODE/NUMBER.jsonl, written by each host (NUMBER is decimal, from
// 1).
const (
	HostSchema   = "curfew.session-host/v1"
	OrderSchema  = "curfew.session-order/v1"
	StatusSchema = "curfew.session-status/v1"
)

// HostConfig is the configuration that a machine is launched with: a file next to the process of a
// local machine, or user data. It holds no secrets.
type HostConfig struct {
	Schema  string `json:"schema"`
	Session string `json:"session"`
	Name    string `json:"name"`
	Node    int    `json:"node"`
	Nodes   int    `json:"nodes"`
	Epoch   int64  `json:"epoch"`
	// Control is the URL prefix of the documents (file:///… or s3://…). Work is the prefix of the
	// snapshots, one run per node below it ("node-0"); empty disables snapshots.
	Control string `json:"control"`
	Work    string `json:"work,omitempty"`
	// WorkDir is the work folder on the machine; "~/" is its user's home.
	WorkDir string `json:"work_dir"`
	// NewestSnapshot is the key of the newest snapshot confirmed before this start. The host
	// restores nothing older; empty sets no bound.
	NewestSnapshot string `json:"seen,omitempty"`
	// IdleTimeout ends the session after that much idle time (0: never). At LeaseUntil the host
	// ends the session by itself unless an order extends the lease.
	SaveInterval Duration  `json:"every"`
	IdleTimeout  Duration  `json:"idle"`
	LeaseUntil   time.Time `json:"lease_until"`
	// Grace is the time between the warning and the end, SaveLimit the longest that the last
	// snapshot may take.
	Grace     Duration `json:"grace"`
	SaveLimit Duration `json:"save"`
	// EndTimeout bounds the end, counted from the end of the lease; 0 takes the default of
	// EndLimit.
	EndTimeout Duration `json:"limit,omitempty"`
	// Setup runs once in the work folder. Secrets maps environment variables to parameters read at
	// run time. Ports are forwarded by `connect`.
	Setup   string            `json:"setup,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Secrets map[string]string `json:"secrets,omitempty"`
	Ports   []int             `json:"ports,omitempty"`
	Data    []string          `json:"data,omitempty"`
	// GPUs are indexes or UUIDs. Nil means all GPUs if WholeMachine is set, none otherwise.
	GPUs []string `json:"gpus,omitempty"`
	// WholeMachine makes the end shut the machine down, disks included. If false, the session is a
	// set of processes on a machine that stays, with its files.
	WholeMachine bool `json:"machine,omitempty"`
	// Round is the round that the machine is launched for: 0 with the session, and above that in the place of
	// a lost machine of Node. RestoreStep is the step that its node goes on from; nil takes the newest.
	Round       int64  `json:"round,omitempty"`
	RestoreStep *int64 `json:"restore_step,omitempty"`
	// Command is the work of a job; nil for a session of people. Work then holds the snapshots of
	// Command.CheckpointDir, and WorkDir is where the command runs.
	Command *Command `json:"command,omitempty"`
}

// Command is the work of a job.
type Command struct {
	// Run is a shell command.
	Run string `json:"run"`
	// Job is the name of the job, Attempt the number of this attempt, from 1.
	Job     string `json:"job"`
	Attempt int    `json:"attempt"`
	// Code is the URL of an archive that is unpacked to the work folder, ending in its SHA-256; empty
	// leaves the folder empty.
	Code string `json:"code,omitempty"`
	// CheckpointDir is the folder that is saved, Done a pattern that marks finished checkpoints in it.
	CheckpointDir string `json:"checkpoint_dir"`
	Done          string `json:"done,omitempty"`
	Keep          int    `json:"keep,omitempty"`
	// ArtifactsDir is copied below Artifacts when the command succeeded; empty means that it leaves none.
	ArtifactsDir string `json:"artifacts_dir,omitempty"`
	Artifacts    string `json:"artifacts,omitempty"`
	// StallLimit ends a command that makes no progress for so long; 0 never does.
	StallLimit Duration `json:"stall,omitempty"`
	// Held makes the setup wait for an order that does not hold it: the attempt before still works.
	Held bool `json:"held,omitempty"`
	// KeepOnFailure keeps the machine so long after a failure, within its lease.
	KeepOnFailure Duration `json:"keep_on_failure,omitempty"`
	// PeerWait is the time that a command of one of several nodes which failed without a cause of its own is
	// kept, because the loss of another node may have made it fail.
	PeerWait Duration `json:"peer_wait,omitempty"`
}

// HostNumber returns the number under which the host writes its documents (see [Session.HostNumber]).
func (h *HostConfig) HostNumber() int { return hostNumber(h.Node, h.Nodes, h.Round) }

// EndLimit returns how long after its lease the session ends even if work is unfinished.
func (h *HostConfig) EndLimit() Duration {
	return cmp.Or(h.EndTimeout, h.Grace+h.SaveLimit+Duration(EndMargin))
}

// Order is the keeper's desired state for the hosts. It is replaced as a whole; a host obeys the
// order of its epoch with the highest Serial.
type Order struct {
	Schema  string    `json:"schema"`
	Session string    `json:"session"`
	Epoch   int64     `json:"epoch"`
	Serial  int64     `json:"serial"`
	At      time.Time `json:"at"`
	// LeaseUntil replaces the lease of the HostConfig.
	LeaseUntil  time.Time `json:"lease_until"`
	IdleTimeout Duration  `json:"idle"`
	// SaveRequest numbers the requested snapshots: a host that answered a lower number saves at
	// once.
	SaveRequest int64 `json:"save"`
	// End requests saving and ending; nil lets the session continue.
	End *End `json:"end,omitempty"`
	// Held keeps a host that was launched so from its setup.
	Held bool `json:"held,omitempty"`
	// Peers are the addresses of all nodes in node order; empty until all are known.
	Peers []string `json:"peers,omitempty"`
	// Round numbers the restarts of all nodes: a host of a lower one ends the command, restores RestoreStep
	// (nil: the newest snapshot) and runs it again. MachineRounds are the rounds that the machines of the
	// nodes were launched for: a host that was launched for a lower one was replaced, and ends.
	Round         int64   `json:"round,omitempty"`
	RestoreStep   *int64  `json:"restore_step,omitempty"`
	MachineRounds []int64 `json:"machine_rounds,omitempty"`
}

// End is the request to end a session.
type End struct {
	Why string    `json:"why"`
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	// Discard skips saving: unsaved work is lost.
	Discard bool `json:"discard"`
}

// Reason returns the reason together with the actor, naming the actor only once.
func (e End) Reason() string {
	if strings.HasSuffix(e.Why, " by "+e.By) {
		return e.Why
	}
	return e.Why + ", by " + e.By
}

// stepRunning is the suffix of the event text of a setup step that begins.
const stepRunning = ": running"

// StepRunning returns the event text for a setup step that begins.
func StepRunning(name string) string { return name + stepRunning }

// RunningStep returns the name of the setup step whose beginning an event text reports.
func RunningStep(text string) (name string, begins bool) { return strings.CutSuffix(text, stepRunning) }

// Phase is the phase of a host.
type Phase string

// The phases of a host.
const (
	HostStarting Phase = "starting"
	HostReady    Phase = "ready"
	HostWarned   Phase = "warned" // people in its terminals were warned of the end
	HostSaving   Phase = "saving" // taking the last snapshot
	HostEnding   Phase = "ending" // saved or discarded; the machine goes away
	HostFailed   Phase = "failed" // a setup step failed
)

// Status is a host's report about itself, written at least every 30 seconds.
type Status struct {
	Schema  string    `json:"schema"`
	Session string    `json:"session"`
	Node    int       `json:"node"`
	Epoch   int64     `json:"epoch"`
	At      time.Time `json:"at"`
	Boot    string    `json:"boot"`
	// OrderSerial is the serial of the obeyed order, AnsweredSave the highest Order.SaveRequest
	// that was carried out.
	OrderSerial  int64 `json:"serial"`
	AnsweredSave int64 `json:"saved"`
	Phase        Phase `json:"phase"`
	// Why explains the phase: the reason of the end, or the setup step that failed.
	Why   string      `json:"why,omitempty"`
	Steps []SetupStep `json:"steps,omitempty"`
	// LeaseUntil is the lease that the host applies.
	LeaseUntil time.Time `json:"lease_until"`
	// Activity is busy, held, idle or unknown, ActivitySince its start.
	Activity      string    `json:"activity"`
	ActivitySince time.Time `json:"since"`
	// EndsAt is the planned end if nothing changes; zero means none.
	EndsAt time.Time `json:"ends_at,omitzero"`
	// Snapshot is the newest confirmed snapshot of this host's work folder.
	Snapshot Snapshot `json:"snapshot"`
	// UnsavedReason explains why the newest work is not saved; empty means that it is.
	UnsavedReason string       `json:"unsaved,omitempty"`
	Terminals     int          `json:"terminals"`
	Connections   []Connection `json:"connections,omitempty"`
	// Address is the address that peers connect to.
	Address string `json:"address,omitempty"`
	// Events is the number of the newest event file.
	Events int64 `json:"events"`
	// Command is the state of a job's command; nil before it started.
	Command *CommandStatus `json:"command,omitempty"`
	// Round is the round of its command. NoticeAt is the time at which the provider takes the machine; zero
	// while none is announced.
	Round    int64     `json:"round,omitempty"`
	NoticeAt time.Time `json:"notice_at,omitzero"`
	// SavedSteps are the declared steps of the snapshots that are kept, the newest ones.
	SavedSteps []int64 `json:"saved_steps,omitempty"`
}

// MaxSavedSteps is the most steps that a host reports.
const MaxSavedSteps = 64

// Measurements are appended to SamplesFile in a host's state folder, one JSON [Measurement] a line;
// PreviousSamplesFile is the full file before it. They let an outside collector judge the machine.
const (
	SamplesFile         = "samples.jsonl"
	PreviousSamplesFile = "samples-1.jsonl"
)

// Measurement holds the mean signals over some steps.
type Measurement struct {
	Start time.Time `json:"from"`
	Step  Duration  `json:"step"`
	// Steps is the number of steps of length Step that the measurement covers.
	Steps int `json:"steps"`
	// Host holds signals of the machine and GPUs those of each GPU, by their names in package
	// usage.
	Host map[string]float64            `json:"host,omitempty"`
	GPUs map[string]map[string]float64 `json:"gpus,omitempty"`
}

// SetupStep is the progress of one step of the setup.
type SetupStep struct {
	Name       string    `json:"name"`
	State      string    `json:"state"` // waiting, running, done, failed, skipped
	StartedAt  time.Time `json:"started_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	Why        string    `json:"why,omitempty"`
}

// Connection is a person's connection to a machine.
type Connection struct {
	Kind   string    `json:"kind"` // shell, ssh, port
	Source string    `json:"from,omitempty"`
	Since  time.Time `json:"since"`
}

// Event is a line of a host's journal, shown by `logs`.
type Event struct {
	At   time.Time `json:"at"`
	Node int       `json:"node"`
	// Kind is step, ready, idle, busy, warned, extended, snapshot, ended, output, unsaved, notice
	// (of a spot interruption), connection, clock, order or resumed.
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Duration is a time.Duration that the documents write as text ("30m0s").
type Duration time.Duration

// MarshalText writes the format of time.Duration.String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses the format of time.ParseDuration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// String returns the format of time.Duration.String.
func (d Duration) String() string { return time.Duration(d).String() }
