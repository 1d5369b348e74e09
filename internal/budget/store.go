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
	// Unbounded is the resource time of charges without an upper bound; neither amount includes
	// them.
	Unbounded time.Duration
	// ByHold is the part of Used tagged with a hold's ID (inventory.TagHold) and spent by the owner
	// of the hold (Hold.Owns), by that ID. All other charges are in no entry.
	ByHold map[string]money.Amount
	// Daily is Used by 24 hours from the start of the range, not from midnight: Daily[i] covers
	// [from + 24h·i, from + 24h·(i+1)), the last one truncated. Its length is that of the range in
	// days, rounded up; a day without charges is zero.
	Daily []money.Amount
	// Through is the end of the newest charge of the whole ledger, of any owner, that begins before
	// the end of the range; zero if there is none. Later spend is unknown.
	Through time.Time
}

// Spending reads charges from the ledger.
type Spending interface {
	// Spent sums the charges that begin in [from, to) and whose owner and purpose match; missing
	// parts of these are taken from the hold of a tagged charge (Match.Covers; an implementation
	// may group charges by owner, purpose and hold in SQL and call Covers for each group). Each
	// charge counts once. An empty range yields the zero Spend.
	Spent(ctx context.Context, m Match, from, to time.Time) (Spend, error)
}

// Reading has the inputs of a budget's status.
type Reading interface {
	Spending
	// Holds returns the holds of every state and owner whose [From, ExpiresAt) overlaps [from, to),
	// sorted by ID.
	Holds(ctx context.Context, from, to time.Time) ([]Hold, error)
}

// Event is the author and time of a change of a hold. It is recorded in the audit log with the
// change, in one transaction.
type Event struct {
	At time.Time
	By string
	// Verb is the action. The zero Verb records nothing: the gate has its own records of
	// reservations and admissions.
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

// Store stores holds. The implementation is in internal/store, its conformance suite in
// internal/store/storetest, an in-memory one in budgettest.
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

	// PutHold writes a stored hold if its Version is unchanged, and its event, both or none, and
	// returns it with the next version; ErrConflict otherwise, and if its Key belongs to another
	// hold. Nothing is checked, because it only releases.
	PutHold(ctx context.Context, h Hold, e Event) (Hold, error)

	// Hold returns the hold with an ID or a unique prefix of one; ErrNotFound otherwise.
	Hold(ctx context.Context, id string) (Hold, error)

	// Keyed returns the hold with a key; ErrNotFound if there is none.
	Keyed(ctx context.Context, key string) (Hold, error)
}
