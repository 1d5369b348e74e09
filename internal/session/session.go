// Package session runs interactive machines from request to release. Its keeper is level-triggered:
// each pass reads the session's record, the provider's machines and the hosts' statuses, and takes
// the next missing step, so a crash is only a restart.
package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// State is the phase of a session's life.
type State string

// The states, in order. A session that fails to start passes through Ending too, so that its
// machines are released, and is then Failed.
const (
	Requested State = "requested" // recorded; the gate has not allowed it yet
	Launching State = "launching" // machines are being launched
	Starting  State = "starting"  // machines run and set themselves up
	Ready     State = "ready"
	Ending    State = "ending" // saving work, then releasing machines
	Ended     State = "ended"
	Failed    State = "failed" // ended without having been ready
)

// IsFinal reports whether the session is over and nothing of it remains.
func (s State) IsFinal() bool { return s == Ended || s == Failed }

// Session is the record of one session. Zero times mean "not yet". It is stored as JSON under the
// names of the tags, and under the field name where there is no tag.
type Session struct {
	// ID is unique; Name is chosen by the person and unique among open sessions.
	ID, Name string
	// RequestedBy is the actor who requested the session; Owner pays for it.
	RequestedBy string `json:"By"`
	Owner       inventory.Owner
	// Spec is the canonical specification (spec.Spec.Canonical) that was estimated and approved
	// and is launched, and Hash its hash.
	Spec []byte
	Hash string
	// Provider is "local" or "aws", Account its account and Region its region ("" for local).
	Provider, Account, Region string
	// AllowedUser may connect to the machines, as the provider's permissions check it (tag
	// curfew:owner); empty allows Owner.User.
	AllowedUser string `json:"Person"`
	// Epoch increases each time the name is started; it fences the snapshots of the work.
	Epoch int64
	// HoldID is the budget reservation; ApprovalID the pending or used approval request.
	HoldID     string
	ApprovalID string `json:"Approval"`
	// Rate is the hourly price of all machines; nil if unknown.
	Rate *money.Rate
	// HourlyCeiling is the highest hourly cost that the gate allowed; 0 if it allowed the session
	// without a price.
	HourlyCeiling money.Amount `json:"Ceiling"`
	State         State
	// Why explains the state to people.
	Why      string
	Machines []Machine
	// At LeaseUntil the session ends unless the lease is extended; IdleTimeout ends it earlier.
	LeaseUntil  time.Time
	IdleTimeout time.Duration `json:"Idle"`
	Snapshot    Snapshot
	// PreviousSnapshot is the newest snapshot that an earlier start of the same name confirmed: the
	// host restores none older. It is set for sessions of one node.
	PreviousSnapshot Snapshot `json:"Earlier"`
	// Connections are people's connections to the machines by the hosts' last statuses.
	Connections []NodeConnection
	// ControlPrefix is the prefix of the documents between keeper and hosts, WorkPrefix that of the
	// snapshots; empty disables either.
	ControlPrefix string `json:"Control"`
	WorkPrefix    string `json:"Work"`
	// LaunchStep launches the machines from Pool, EndStep releases them. LaunchAttempts counts the
	// tried pools, which makes each attempt's token unique.
	LaunchStep     intent.Step `json:"Launch"`
	EndStep        intent.Step `json:"End"`
	Pool           Pool
	LaunchAttempts int `json:"Launches"`
	// CapacityFailures are the tried pools without capacity.
	CapacityFailures []CapacityFailure `json:"Tries"`
	// OrderSerial is the serial of the newest order, SaveRequest the highest requested snapshot.
	OrderSerial int64 `json:"Serial"`
	SaveRequest int64 `json:"Save"`
	// EndedBy is the actor of the end and EndReason its reason. An orphan does not end before
	// EndNotBefore.
	EndedBy      string    `json:"EndBy"`
	EndReason    string    `json:"EndWhy"`
	EndNotBefore time.Time `json:"NotBefore"`
	// MissingSince is the first lookup without machines that no one ended; GoneSince the first one
	// without machines after the end was accepted.
	MissingSince time.Time `json:"Missing"`
	GoneSince    time.Time `json:"Gone"`
	// ChargedUntil is the time up to which the ledger was charged.
	ChargedUntil time.Time `json:"Charged"`
	// Orphan marks machines that were found without a record. OwnerNotifiedAt is the time when a
	// channel accepted the message to their owner, NotifyOwnerAt the time of the next attempt.
	Orphan          bool      `json:"Adopted"`
	OwnerNotifiedAt time.Time `json:"ToldAt"`
	NotifyOwnerAt   time.Time `json:"TellAt"`
	// UserLaunched marks machines that a person launched and put under a lease. The safety ladder
	// ends them by policy, with warnings; the keeper stops them only on request and never
	// terminates them. Place locates them.
	UserLaunched bool `json:"ByHand"`
	Place        Place
	// Discard reports that the owner gave up unsaved work.
	Discard bool
	// UnsavedWork describes the work that was not saved at release; empty if none is known.
	UnsavedWork string `json:"Lost"`
	// RejectedFields describes the invalid parts of host documents, recorded at RejectedAt.
	RejectedFields string    `json:"Wrong"`
	RejectedAt     time.Time `json:"WrongAt"`
	// NoteCount counts the writes since NotesSince that only record host reports. It limits the
	// writes caused by a host that reports something new at every poll.
	NoteCount  int       `json:"Noted"`
	NotesSince time.Time `json:"NotedAt"`
	// LeaseNotified is the end of the lease of which the owner was notified.
	LeaseNotified time.Time `json:",omitzero"`
	// Job is the job that the session is an attempt of; empty for a person's session. The job's keeper
	// records the session after the gate allowed the job, and settles the hold.
	Job string `json:",omitempty"`
	// Attempt is the number of the attempt, from 1, KeepOnFailure how long its machine is kept after a
	// failure.
	Attempt       int           `json:",omitempty"`
	KeepOnFailure time.Duration `json:",omitempty"`
	// An attempt's lease ends by LeaseLimit, and once the pool's rate has spent CostLimit (0: no limit).
	// FirstLease is the end of its lease at its launch, which later bounds may be after.
	LeaseLimit, FirstLease time.Time    `json:",omitzero"`
	CostLimit              money.Amount `json:",omitempty"`
	// Places are the places that may be tried, in this order; nil allows every pool. A Held session's
	// hosts set nothing up before it is Begun: the attempt before it still works.
	Places []Pool `json:",omitempty"`
	Held   bool   `json:",omitempty"`
	Begun  bool   `json:",omitempty"`
	// An Unplaced attempt found no machine in its Places, and waits until the keeper of its job chooses
	// others: Placings counts these choices, and PlacedAt is the time of the last one.
	Unplaced bool      `json:",omitempty"`
	Placings int       `json:",omitempty"`
	PlacedAt time.Time `json:",omitzero"`
	// Code is the archive of the job's code, Outcome how its command ended (nil: not yet), CommandAt
	// when it began, Restored the snapshot that it began from and Step the highest step that it declared.
	Code      string    `json:",omitempty"`
	Outcome   *Outcome  `json:",omitempty"`
	CommandAt time.Time `json:",omitzero"`
	Restored  Snapshot  `json:",omitzero"`
	Step      *int64    `json:",omitempty"`
	// MaxReplacements is the number of lost machines that may be replaced while the others stay; 0 ends the
	// session with the first one. Replacement is the one under way, Former are the replaced machines.
	MaxReplacements int          `json:",omitempty"`
	Replacement     *Replacement `json:",omitempty"`
	Former          []Machine    `json:",omitempty"`
	// Restarts are the restarts of all nodes after the loss of one; their number is the session's round.
	Restarts []Restart `json:",omitempty"`
	// CommonStep is the highest step of which every node keeps a snapshot, RestoreStep the one that the nodes
	// begin from (nil: each from its newest).
	CommonStep, RestoreStep *int64 `json:",omitempty"`
	// NodeLost reports that the session ends because a machine was lost: the failures of the others that
	// follow from it are none of the command's own. StraysEndedAt is the time at which machines that are no
	// longer part of it were last ended.
	NodeLost      bool      `json:",omitempty"`
	StraysEndedAt time.Time `json:",omitzero"`
	// RunAs is the Unix user of the processes of a local session; empty means the launching user.
	RunAs                                               string
	RequestedAt, LaunchedAt, ReadyAt, EndingAt, EndedAt time.Time
	// Version is the version of the record for conditional writes; 0 for a new one.
	Version int64
}

// Place locates the machines of a session that a person launched.
type Place struct {
	// Refs identify the machines, in node order.
	Refs []inventory.Ref
	// Profile and Role select the credentials that read their account; empty takes the configured
	// ones.
	Profile, Role string
}

// NodeConnection is a person's connection to one machine of a session.
type NodeConnection struct {
	// Node is the index of the machine, from 0.
	Node int
	Connection
}

// Machine is one machine of a session.
type Machine struct {
	// ID is the provider's id, Node the index within the session, from 0.
	ID   string
	Node int
	// Pool is the pool that the machine was launched from.
	Pool Pool
	// State is the provider's state, in the terms of package inventory.
	State      inventory.State
	LaunchedAt time.Time
	// Round is the round that it was launched for: 0 with the session, and above that as a replacement.
	// EndedAt is the time since which it was not listed; zero while it runs.
	Round   int64     `json:",omitempty"`
	EndedAt time.Time `json:",omitzero"`
}

// CapacityFailure records a pool without capacity, which no session tries again before Until.
type CapacityFailure struct {
	Pool  Pool
	Why   string
	At    time.Time
	Until time.Time
	// Past marks a failure from before the places of an attempt were last chosen.
	Past bool `json:",omitempty"`
}

// Pool is one way to launch a machine: a type in one zone, on demand or spot.
type Pool struct {
	Type, Region, Zone string
	Spot               bool
	// Image is pinned when the pool is chosen, so that a repeated launch is identical; empty where
	// the provider has no images.
	Image string
	// Rate is the hourly price of one machine; nil if unknown.
	Rate *money.Rate
}

// SamePlace reports whether two pools are equal apart from image and price.
func (p Pool) SamePlace(o Pool) bool {
	return p.Type == o.Type && p.Region == o.Region && p.Zone == o.Zone && p.Spot == o.Spot
}

// String returns the pool as people read it: "g6.2xlarge spot in us-east-1a".
func (p Pool) String() string {
	s := p.Type
	if p.Spot {
		s += " spot"
	}
	if where := cmp.Or(p.Zone, p.Region); where != "" {
		s += " in " + where
	}
	return s
}

// Cost returns the cost of the machines up to now: seconds since launch at the pool's rate. It
// returns false if a machine has no price.
func (s *Session) Cost(now time.Time) (money.Amount, bool, error) {
	if !s.EndedAt.IsZero() && s.EndedAt.Before(now) {
		now = s.EndedAt
	}
	var total money.Amount
	for _, m := range s.EveryMachine() {
		if m.Pool.Rate == nil {
			return 0, false, nil
		}
		now := now
		if !m.EndedAt.IsZero() && m.EndedAt.Before(now) {
			now = m.EndedAt
		}
		ran := now.Truncate(time.Second).Sub(m.LaunchedAt.Truncate(time.Second))
		cost, err := m.Pool.Rate.For(max(0, int64(ran/time.Second)), 3600)
		if err == nil {
			total, err = total.Add(cost)
		}
		if err != nil {
			return 0, false, err
		}
	}
	return total, true, nil
}

// EveryMachine returns the machines that the session has and had.
func (s *Session) EveryMachine() []Machine { return slices.Concat(s.Machines, s.Former) }

// MachineIDs returns the ids of the machines in node order.
func (s *Session) MachineIDs() []string {
	ids := make([]string, 0, len(s.Machines))
	for _, m := range s.Machines {
		ids = append(ids, m.ID)
	}
	return ids
}

// Snapshot describes the newest durable snapshot of a session's work.
type Snapshot struct {
	// Manifest is its key in the run's store; empty means that there is no snapshot.
	Manifest string    `json:"manifest,omitempty"`
	At       time.Time `json:"at,omitzero"`
	Epoch    int64     `json:"epoch,omitempty"`
	// Complete reports whether it holds the whole work folder as of At.
	Complete bool  `json:"complete"`
	Bytes    int64 `json:"bytes"`
	// Step is the newest step that the work declared as saved in it; nil if unknown.
	Step *int64 `json:"step,omitempty"`
	// Until is the time of the saved work: that of its declaration, else of the save.
	Until time.Time `json:"until,omitzero"`
}
