package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
)

// RunsSchema names the shape of [Runs], and SessionLogSchema that of [SessionLog].
const (
	RunsSchema       = "curfew.runs/v1"
	SessionLogSchema = "curfew.session.log/v1"
)

// Runs is the output of `up`, `ls` and `status`: sessions and jobs.
type Runs struct {
	Schema string `json:"schema"`
	Runs   []Run  `json:"runs"`
}

// Run is one session or job.
type Run struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Kind is session or job.
	Kind string `json:"kind"`
	// State is requested, launching, starting, ready, ending, ended or failed; that of a job is waiting,
	// launching, starting, running, saving, succeeded, failed or canceled.
	State string `json:"state"`
	// Why is the reason for the state; empty if it needs none.
	Why string `json:"why"`
	// Provider is where it runs: local or aws.
	Provider string `json:"provider"`
	Region   string `json:"region"`
	// Type is the machine type; Nodes is how many machines run together.
	Type  string `json:"type"`
	Nodes int    `json:"nodes"`
	// Image is the machine image; empty if the provider has no images.
	Image string `json:"image,omitempty"`
	// ResourceIDs are the ids of its machines at the provider.
	ResourceIDs []string `json:"resource_ids"`
	// Attempt is how many pools were asked for its machines, Epoch how often the name was
	// started.
	Attempt int             `json:"attempt"`
	Epoch   int64           `json:"epoch"`
	Owner   inventory.Owner `json:"owner"`
	AskedBy string          `json:"asked_by"`
	// LeaseUntil is when it ends unless it is extended.
	LeaseUntil time.Time `json:"lease_until"`
	// Idle is the time at rest after which it ends; empty: never.
	Idle string `json:"idle"`
	// Checkpoint is the newest confirmed snapshot of its work; null: there is none.
	Checkpoint *RunCheckpoint `json:"checkpoint"`
	// Progress is the last progress of its work as of the newest audit; absent where no audit saw it work.
	Progress *SeenProgress `json:"progress,omitempty"`
	// HourlyUSD is the cost per hour, CostUSD the cost so far; null if the machines are unpriced.
	HourlyUSD *money.Rate   `json:"hourly_usd"`
	CostUSD   money.Dollars `json:"cost_usd"`
	// Unpriced is the reason why there are no dollars.
	Unpriced string `json:"unpriced,omitempty"`
	// HoldID is the budget reservation; empty for none. ApprovalID is the request that waits or was
	// used.
	HoldID      string     `json:"hold_id"`
	ApprovalID  string     `json:"approval_id,omitempty"`
	RequestedAt time.Time  `json:"requested_at"`
	LaunchedAt  *time.Time `json:"launched_at"`
	ReadyAt     *time.Time `json:"ready_at"`
	EndedAt     *time.Time `json:"ended_at"`
	// RunAs is the Unix user of its processes, for a session on the machine of the service or of who
	// gave the command.
	RunAs string `json:"run_as,omitempty"`
	// ReleaseBy is when its machines are released though its work is not saved; only `status` of a
	// session that ends has it. Lost says which work was not saved by then.
	ReleaseBy *time.Time `json:"release_by,omitempty"`
	Lost      string     `json:"lost,omitempty"`
	// Wrong names impossible values that the machines wrote; they were ignored.
	Wrong string `json:"wrong,omitempty"`
	// Notes are remarks on its machines, such as advisory limits; only a session that is ready has
	// them, and lists do not.
	Notes []string `json:"notes,omitempty"`
	// Connections are those of people to its machines, as its keeper last heard; absent if there
	// are none.
	Connections []RunConnected `json:"connections,omitempty"`
	// Gate is the decision of the gate; only `up` and `extend` have one.
	Gate *RunGate `json:"gate,omitempty"`
	// Hosts are the last reports of its machines; only `status` reads them.
	Hosts []RunHost `json:"hosts,omitempty"`
	// Job holds the fields of a job; absent for a session.
	Job *RunJob `json:"job,omitempty"`
}

// RunGate is a decision of the gate about a run.
type RunGate struct {
	// Decision is allow, ask or deny.
	Decision string   `json:"decision"`
	Reasons  []string `json:"reasons"`
}

// RunCheckpoint is a snapshot of a run's work.
type RunCheckpoint struct {
	// Step is that of a training; null for a session.
	Step     *int64    `json:"step"`
	At       time.Time `json:"at"`
	Manifest string    `json:"manifest"`
}

// RunHost is the last report of a machine of a run.
type RunHost struct {
	Node  int       `json:"node"`
	Phase string    `json:"phase"`
	Why   string    `json:"why,omitempty"`
	At    time.Time `json:"at"`
	// Activity is busy, held, idle or unknown, Since when.
	Activity string    `json:"activity"`
	Since    time.Time `json:"since"`
	// EndsAt is when it ends if nothing changes; null: by its lease.
	EndsAt *time.Time `json:"ends_at"`
	// Unsaved is the reason why the newest work is not saved.
	Unsaved   string `json:"unsaved,omitempty"`
	Terminals int    `json:"terminals"`
	// Connections are those of people to the machine.
	Connections []RunConnection `json:"connections"`
	// Steps are those of its set-up.
	Steps []session.SetupStep `json:"steps"`
}

// RunConnection is a connection that a person has to a machine.
type RunConnection struct {
	// Kind is shell, ssh or port.
	Kind string `json:"kind"`
	// From is the connection's name at Systems Manager, which begins with the person's, an
	// address, or a terminal.
	From  string    `json:"from"`
	Since time.Time `json:"since"`
}

// RunConnected is a connection that a person has to a machine of a run.
type RunConnected struct {
	// Node is the place of the machine, from 0.
	Node int `json:"node"`
	RunConnection
}

// NewRun makes the document of a session at a time.
func NewRun(s session.Session, now time.Time) Run {
	r := Run{
		ID: s.ID, Name: s.Name, Kind: "session", State: string(s.State), Why: s.Why,
		Provider: s.Provider, Region: s.Region,
		Type: s.Pool.Type, Nodes: len(s.Machines), Image: s.Pool.Image, ResourceIDs: s.MachineIDs(),
		Attempt: s.LaunchAttempts, Epoch: s.Epoch, Owner: s.Owner, AskedBy: s.RequestedBy,
		LeaseUntil: s.LeaseUntil.UTC(),
		HoldID:     s.HoldID,
		ApprovalID: s.ApprovalID, RequestedAt: s.RequestedAt.UTC(),
		LaunchedAt: optionalTime(s.LaunchedAt), ReadyAt: optionalTime(s.ReadyAt), EndedAt: optionalTime(s.EndedAt),
		HourlyUSD: s.Rate, RunAs: s.RunAs, Lost: s.UnsavedWork, Wrong: s.RejectedFields}
	if s.IdleTimeout > 0 {
		r.Idle = session.Duration(s.IdleTimeout).String()
	}
	if s.State == session.Ready {
		for _, c := range s.Connections {
			r.Connections = append(r.Connections, RunConnected{c.Node, RunConnection{c.Kind, c.Source, c.Since.UTC()}})
		}
	}
	if c := s.Snapshot; c.Manifest != "" {
		r.Checkpoint = &RunCheckpoint{At: c.At.UTC(), Manifest: c.Manifest}
	}
	cost, priced, err := s.Cost(now)
	switch {
	case err != nil:
		r.Unpriced = err.Error()
	case !priced:
		r.Unpriced = "its machine has no price"
	default:
		r.CostUSD = money.Known(cost)
	}
	return r
}

// NewRunHost makes the document of a host's status.
func NewRunHost(h session.Status) RunHost {
	connections := make([]RunConnection, 0, len(h.Connections))
	for _, c := range h.Connections {
		connections = append(connections, RunConnection{c.Kind, c.Source, c.Since.UTC()})
	}
	return RunHost{
		Node: h.Node, Phase: string(h.Phase), Why: h.Why, At: h.At.UTC(), Activity: h.Activity,
		Since:  h.ActivitySince.UTC(),
		EndsAt: optionalTime(h.EndsAt), Unsaved: h.UnsavedReason,
		Terminals: h.Terminals, Connections: connections, Steps: append([]session.SetupStep{}, h.Steps...)}
}

// SessionLog is the output of `logs`.
type SessionLog struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	ID     string `json:"id"`
	// Events are in the order of time.
	Events []SessionEvent `json:"events"`
}

// SessionEvent is one line of a session's journal.
type SessionEvent struct {
	At time.Time `json:"at"`
	// Node is the machine that wrote it; null is the keeper.
	Node *int   `json:"node"`
	Kind string `json:"kind"`
	// Text names a part of the output where Kind is output-part: the log with that part has its lines.
	Text string `json:"text"`
}

// NewSessionLog makes the document of a session's journal.
func NewSessionLog(s session.Session, events []session.LoggedEvent) SessionLog {
	doc := SessionLog{Schema: SessionLogSchema, Name: s.Name, ID: s.ID, Events: make([]SessionEvent, 0, len(events))}
	for _, e := range events {
		one := SessionEvent{At: e.At.UTC(), Kind: e.Kind, Text: e.Text}
		if e.Node != session.KeeperNode {
			one.Node = &e.Node
		}
		doc.Events = append(doc.Events, one)
	}
	return doc
}
