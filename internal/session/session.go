// Package session is the life of an interactive machine: asked for, launched, made ready,
// watched, ended. Its keeper is level-triggered: it reads a session's record, what the
// provider has and what the hosts say, and does what is missing. So a crash anywhere is a
// restart.
package session

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// State is how far a session has come.
type State string

// The states, in their order. A session that fails to start is ended like any other, so that
// nothing of it stays, and then is Failed.
const (
	Requested State = "requested" // recorded; the gate has not let it pass yet
	Launching State = "launching" // machines are asked for
	Starting  State = "starting"  // machines are there and set themselves up
	Ready     State = "ready"
	Ending    State = "ending" // saved, then released
	Ended     State = "ended"
	Failed    State = "failed" // it never became ready; nothing of it is left
)

// Over says whether nothing of the session is left or will be.
func (s State) Over() bool { return s == Ended || s == Failed }

// Session is the record of one session. The zero value of a time is: not yet.
type Session struct {
	// ID is unique; Name is the person's word for it. Among sessions that are not over, a
	// name is unique.
	ID, Name string
	// By is who asked, Owner whose it is and who pays.
	By    string
	Owner inventory.Owner
	// Spec is the file in its canonical form (spec.Spec.Canonical) and Hash its hash: what
	// was estimated, approved and is launched.
	Spec []byte
	Hash string
	// Provider is "local" or "aws", Account its account, Region where it runs ("" local).
	Provider, Account, Region string
	// Epoch rises by one each time the name is started; it fences the snapshots of its work.
	Epoch int64
	// HoldID is the budget's hold, Rate what all its machines cost; nil where they have no
	// price.
	HoldID string
	Rate   *money.Rate
	State  State
	// Why says what led to the state, for people.
	Why      string
	Machines []Machine
	// LeaseUntil is when it ends unless it is extended; Idle ends it after so long at rest.
	LeaseUntil time.Time
	Idle       time.Duration
	Snapshot   Snapshot
	// Discard says that its owner gave up what is not saved.
	Discard                                             bool
	RequestedAt, LaunchedAt, ReadyAt, EndingAt, EndedAt time.Time
	// Version is the record's, for conditional writes; 0 for a new one.
	Version int64
}

// Machine is one machine of a session.
type Machine struct {
	// ID is the provider's, Node its place, from 0.
	ID   string
	Node int
	// Pool is where it was launched.
	Pool Pool
	// State is the provider's word for it, in the terms of inventory.
	State      inventory.State
	LaunchedAt time.Time
}

// Pool is a place to launch machines from: one type in one zone, bought one way.
type Pool struct {
	Type, Region, Zone string
	Spot               bool
	// Image is what machines start from, pinned when the pool was chosen, so that a repeated
	// launch is the same one; empty where the provider has no images.
	Image string
	// Rate is the price of one machine; nil where there is none.
	Rate *money.Rate
}

// Snapshot is the newest durable snapshot of a session's work.
type Snapshot struct {
	// Manifest is its key in the run's store, empty: there is none.
	Manifest string
	At       time.Time
	Epoch    int64
	// Complete says that it holds the whole work folder as it was at that time.
	Complete bool
	Bytes    int64
}
