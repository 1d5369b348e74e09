package budget

import (
	"context"
	"errors"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Errors of a store.
var (
	ErrNotFound = errors.New("no such hold")
	ErrConflict = errors.New("the hold changed meanwhile")
)

// Spend is the amount charged in a period.
type Spend struct {
	// Used is the sum of priced charges. Unknown is the upper bound of unpriced charges; it is not
	// in Used.
	Used, Unknown money.Amount
	// Unbounded is the resource time of charges of which not even the most is known; they
	// are in neither.
	Unbounded time.Duration
	// ByHold is the part of Used that carries a hold's id (inventory.TagHold) and that the
	// owner of the hold spent (Hold.Owns), by that id. All other charges are in no entry.
	ByHold map[string]money.Amount
	// Daily is Used by 24 hours, counted from the stretch's beginning and not from
	// midnight: Daily[i] is of [from + 24h·i, from + 24h·(i+1)), the last one cut off at
	// its end. Its length is the stretch's in days, rounded up; a day without charges is
	// zero.
	Daily []money.Amount
	// Through is the end of the newest charge of the whole ledger, whoever's, that begins
	// before the stretch ends; zero where there is none. After it nothing is known yet.
	Through time.Time
}

// Spending reads charges from the ledger.
type Spending interface {
	// Spent sums the charges that begin in [from, to) and whose owner and purpose the
	// match covers; a charge that carries a hold's id takes from the hold what it does not
	// say itself of its owner and purpose (Match.Covers; an implementation may group charges by owner, purpose
	// and hold in SQL and ask Covers of each group). Each charge counts once. An empty
	// stretch is the zero Spend.
	Spent(ctx context.Context, m Match, from, to time.Time) (Spend, error)
}

// Reading has the inputs of a budget's status.
type Reading interface {
	Spending
	// Holds returns those whose [From, ExpiresAt) overlaps [from, to), of every state and
	// owner, in the order of their ids.
	Holds(ctx context.Context, from, to time.Time) ([]Hold, error)
}

// Event is the author and time of a change of a hold. It is recorded in the audit log with the
// change, in one transaction.
type Event struct {
	At time.Time
	By string
	// Verb is the action. The zero Verb records nothing: the gate keeps its own record of
	// reservations and admissions. The zero Verb records nothing: the gate keeps its own record of
	// what it reserves and admits.
	Verb Verb
}

// Verb is an action of a person on a hold.
type Verb string

// The verbs.
const (
	Settle  Verb = "settle"
	Release Verb = "release"
	Extend  Verb = "extend"
)

// Store keeps holds. The implementation is in internal/store, its conformance suite in
// internal/store/storetest, a small one in memory in budgettest.
type Store interface {
	Reading

	// Reserve writes r.Hold if r.Check allows it, in one transaction:
	//
	//  1. It locks r.Locks() in that order (a row for each name, made where it is
	//     missing), so that of all reservations that share a budget or a quota one is
	//     decided after the other.
	//  2. Where r.Hold.Version is 0 and a hold with its Key exists, that hold is returned
	//     as it is, in whatever state, and nothing is checked or written. This holds also
	//     where the other one is written at the same time.
	//     Where Version is not 0, the hold must be stored with that version: ErrConflict
	//     otherwise, and where its Key is another hold's; ErrNotFound where it is not
	//     stored at all.
	//  3. It reads, after the locks were taken, the holds that overlap r.Span() (as Holds
	//     does) and what was spent in each of r.Reads(holds), in order, and asks r.Check, which
	//     is pure. Its error is returned so that errors.As finds an *Overdrawn in it, and
	//     nothing is written.
	//  4. It writes the hold with the next version and r.Event, both or none, and returns
	//     the hold.
	//
	// A crash at any point leaves the hold written as a whole or not at all.
	Reserve(ctx context.Context, r Reservation) (Hold, error)

	// PutHold writes a stored hold whose Version is the one it was read with and its event,
	// both or none, and returns it with the next version; ErrConflict otherwise, and where
	// its Key is another hold's. Nothing is checked: it is for what gives back.
	PutHold(ctx context.Context, h Hold, e Event) (Hold, error)

	// Hold returns the one with that id, or the only one whose id begins so; ErrNotFound
	// otherwise.
	Hold(ctx context.Context, id string) (Hold, error)

	// Keyed returns the hold with that key; ErrNotFound where there is none.
	Keyed(ctx context.Context, key string) (Hold, error)
}
