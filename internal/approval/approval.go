// Package approval holds requests that a second person has to allow, and makes sure
// that what is carried out is exactly what was approved: by that plan's hash, up to
// that amount, before it expires, once, and never by the person who asked.
package approval

import (
	"context"
	"errors"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// State is where a request stands.
type State string

// The states.
const (
	Pending  State = "pending"
	Approved State = "approved"
	Denied   State = "denied"
	Used     State = "used"
	Expired  State = "expired"
	Void     State = "void" // what was asked for has changed
)

// Request asks for permission to carry out one plan.
type Request struct {
	ID string
	// Kind is the kind of the request: "fix", "job", "session".
	Kind string
	// Subject names it for people: "terminate i-0abc", "job resnet50".
	Subject string
	// PlanHash is the hash of exactly what would be carried out.
	PlanHash string
	// Plan is the plan as JSON, for people to read.
	Plan string
	// Amount is the most it may cost; zero where it costs nothing.
	Amount money.Amount
	// Roles of which an approver has to have one; empty means "approver".
	Roles []string
	// Team is the team that it is for; empty where none is known, and then a role that is
	// limited to a team does not decide it.
	Team string
	// Run is the key that the caller gave the run; may be empty.
	Run     string
	AskedBy string
	// AskedProof and Proof are the identity proofs of the requester and the approver.
	AskedProof, Proof  Proof
	AskedAt, ExpiresAt time.Time
	State              State
	DecidedBy, Reason  string
	DecidedAt          time.Time
	UsedAt             time.Time
	// Version counts changes, for conditional writes.
	Version int64
}

// Event is the author and time of a change of a request. It is recorded in the audit log with the
// change, in one transaction.
type Event struct {
	At time.Time
	By string
	// Why is the reason for which a request was voided; empty otherwise.
	Why string
}

// Errors of decisions and uses.
var (
	ErrNotFound = errors.New("no such request")
	ErrConflict = errors.New("the request changed meanwhile")
)

// Store keeps requests. The implementation is in internal/store, its conformance
// suite in internal/store/storetest.
type Store interface {
	// PutRequest writes a request whose Version is the one it was read with (0 for a
	// new one) and its event, both or none, and returns it with the next version;
	// ErrConflict otherwise.
	PutRequest(ctx context.Context, r Request, e Event) (Request, error)
	// Request returns the one with that id, or the only one whose id begins so;
	// ErrNotFound otherwise.
	Request(ctx context.Context, id string) (Request, error)
	// Requests returns those of a plan hash, or all when it is empty, newest first.
	Requests(ctx context.Context, planHash string) ([]Request, error)
}
