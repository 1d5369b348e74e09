// Package approval holds requests that a second person must approve, and ensures that exactly the
// approved plan is carried out: by its hash, up to the approved amount, before the approval
// expires, once, and never approved by its requester.
package approval

import (
	"context"
	"errors"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// State is the state of a request.
type State string

// The states.
const (
	Pending  State = "pending"
	Approved State = "approved"
	Denied   State = "denied"
	Used     State = "used"
	Expired  State = "expired"
	Void     State = "void" // the requested plan has changed
)

// Request asks for permission to carry out one plan.
type Request struct {
	ID string
	// Kind is the kind of the request: "fix", "job", "session".
	Kind string
	// Subject describes it for people: "terminate i-0abc", "job resnet50".
	Subject string
	// PlanHash is the hash of the exact plan.
	PlanHash string
	// Plan is the plan as JSON, for people to read.
	Plan string
	// Amount is the maximum cost; zero if it costs nothing.
	Amount money.Amount
	// Roles of which an approver must have one; empty means "approver".
	Roles []string
	// Team is the team that it is for; if empty, a role limited to a team cannot decide it.
	Team string
	// Run is the caller's key of the run; may be empty.
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

// Event is the author and time of a change of a request. It is recorded in the audit log in the
// same transaction.
type Event struct {
	At time.Time
	By string
	// Why is the reason for voiding a request; empty otherwise.
	Why string
}

// Errors of decisions and uses.
var (
	ErrNotFound = errors.New("no such request")
	ErrConflict = errors.New("the request changed meanwhile")
)

// Store stores requests. The implementation is in internal/store, its conformance suite in
// internal/store/storetest.
type Store interface {
	// PutRequest writes a request if its Version is unchanged (0 for a new one), and its event,
	// both or none, and returns it with the next version; ErrConflict otherwise.
	PutRequest(ctx context.Context, r Request, e Event) (Request, error)
	// Request returns the request with an ID or a unique prefix of one; ErrNotFound otherwise.
	Request(ctx context.Context, id string) (Request, error)
	// Requests returns the requests with a plan hash, or all if it is empty, newest first.
	Requests(ctx context.Context, planHash string) ([]Request, error)
}
