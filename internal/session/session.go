// Package session is the life of an interactive machine: asked for, launched, made ready,
// watched, ended. Its keeper is level-triggered: it reads a session's record, what the
// provider has and what the hosts say, and does what is missing. So a crash anywhere is a
// restart.
package session

import (
	"cmp"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
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
	// By is who asked, Owner the team and person that pay.
	By    string
	Owner inventory.Owner
	// Spec is the file in its canonical form (spec.Spec.Canonical) and Hash its hash: what
	// was estimated, approved and is launched.
	Spec []byte
	Hash string
	// Provider is "local" or "aws", Account its account, Region where it runs ("" local).
	Provider, Account, Region string
	// Person is who may connect to its machines, as the provider's own permissions name them
	// (the tag curfew:owner); empty: Owner.User.
	Person string
	// Epoch rises by one each time the name is started; it fences the snapshots of its work.
	Epoch int64
	// HoldID is the budget's hold, Rate what all its machines cost an hour; nil where they
	// have no price. Approval is the request that waits, or that was used up.
	HoldID, Approval string
	Rate             *money.Rate
	// Ceiling is what an hour of all its machines may cost by what the gate let pass; 0: the
	// gate let it pass without a price.
	Ceiling money.Amount
	State   State
	// Why says what led to the state, for people.
	Why      string
	Machines []Machine
	// LeaseUntil is when it ends unless it is extended; Idle ends it after so long at rest.
	LeaseUntil time.Time
	Idle       time.Duration
	Snapshot   Snapshot
	// Earlier is the newest snapshot that a start of the same name confirmed before this one:
	// its host restores none that is older. It is known for sessions of one node.
	Earlier Snapshot
	// Connections are those that people have to its machines, by what the hosts said last.
	Connections []Connected
	// Control is the prefix of the documents between the keeper and its hosts, Work where its
	// snapshots are; empty: nowhere.
	Control, Work string
	// Launch is the call that starts its machines from Pool, and End the one that releases
	// them. Launches counts the pools that were tried: it makes the token of each a new one.
	Launch, End intent.Step
	Pool        Pool
	Launches    int
	// Tries are pools that had no machine.
	Tries []Try
	// Serial is that of the newest order, Save the highest snapshot that was asked for.
	Serial, Save int64
	// EndBy is who ended it, EndWhy why; NotBefore is before when a machine without a record
	// is not ended.
	EndBy, EndWhy string
	NotBefore     time.Time
	// Missing is when its machines were first not seen any more though no one ended them;
	// Gone is when they were first seen to be gone after their end was accepted.
	Missing, Gone time.Time
	// Charged is until when the ledger was told of its machines.
	Charged time.Time
	// Adopted says that it stands for machines that were found without a record. ToldAt is when
	// their owner's channel took the message about it, TellAt when it is tried again until then.
	Adopted        bool
	ToldAt, TellAt time.Time
	// ByHand says that a person started its machines and put them under a lease: no launcher
	// knows them. The ladder ends them by its policies, with its warnings; the keeper stops
	// them only where a person asks, and never terminates them. Place is where they are.
	ByHand bool
	Place  Place
	// Discard says that its owner gave up what is not saved.
	Discard bool
	// Lost says which work was not saved when its machines were released; empty: none is known.
	Lost string
	// Wrong says what its hosts wrote that cannot be, for people; it was ignored. WrongAt is when
	// that was noted.
	Wrong   string
	WrongAt time.Time
	// Noted counts, from NotedAt, the changes that only keep what hosts say. A host that says
	// something else each time is not followed each time.
	Noted   int
	NotedAt time.Time
	// RunAs is the Unix user that its processes run as on a machine of the provider "local"; empty:
	// the user of whoever launches it.
	RunAs                                               string
	RequestedAt, LaunchedAt, ReadyAt, EndingAt, EndedAt time.Time
	// Version is the record's, for conditional writes; 0 for a new one.
	Version int64
}

// Place is how the machines of a session are reached that were started by hand.
type Place struct {
	// Refs are the identities of the machines, in the order of their nodes.
	Refs []inventory.Ref
	// Profile and Role are what their account is read with; empty: what the configuration says.
	Profile, Role string
}

// Connected is a connection that a person has to a machine of a session.
type Connected struct {
	// Node is the place of the machine, from 0.
	Node int
	Connection
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

// Try is a pool that had no machine: it is left aside until a time, by all sessions.
type Try struct {
	Pool  Pool
	Why   string
	At    time.Time
	Until time.Time
}

// Pool is a place to launch machines from: one type in one zone, bought one way.
type Pool struct {
	Type, Region, Zone string
	Spot               bool
	// Image is what machines start from, pinned when the pool was chosen, so that a repeated
	// launch is the same one; empty where the provider has no images.
	Image string
	// Rate is the price of an hour of one machine; nil where there is none.
	Rate *money.Rate
}

// Same says whether two pools are the same place, whatever they cost.
func (p Pool) Same(o Pool) bool {
	return p.Type == o.Type && p.Region == o.Region && p.Zone == o.Zone && p.Spot == o.Spot
}

// String names the pool for people: "g6.2xlarge spot in us-east-1a".
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

// Cost is what its machines came to until a time: for each the seconds since its launch, at
// the pool's rate. It is false where a machine has no price.
func (s *Session) Cost(now time.Time) (money.Amount, bool, error) {
	if !s.EndedAt.IsZero() && s.EndedAt.Before(now) {
		now = s.EndedAt
	}
	var total money.Amount
	for _, m := range s.Machines {
		if m.Pool.Rate == nil {
			return 0, false, nil
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

// IDs are the machines' ids, in the order of their nodes.
func (s *Session) IDs() []string {
	ids := make([]string, 0, len(s.Machines))
	for _, m := range s.Machines {
		ids = append(ids, m.ID)
	}
	return ids
}

// Snapshot is the newest durable snapshot of a session's work.
type Snapshot struct {
	// Manifest is its key in the run's store, empty: there is none.
	Manifest string    `json:"manifest,omitempty"`
	At       time.Time `json:"at,omitzero"`
	Epoch    int64     `json:"epoch,omitempty"`
	// Complete says that it holds the whole work folder as it was at that time.
	Complete bool  `json:"complete"`
	Bytes    int64 `json:"bytes"`
}
