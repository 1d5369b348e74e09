package ledger

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// ErrConflict is returned by [Store.Append] when the account's version is not the one
// that the entries were derived at: something was recorded or appended since. Read
// again and derive again.
var ErrConflict = errors.New("the ledger of the account changed meanwhile")

// ErrAhead is returned by [Post] for a round whose time the store's own has not reached by
// far: charging up to it would invent costs.
var ErrAhead = errors.New("the clock of this host is ahead")

// Poster keeps what [Post] reads and writes: rounds, observations and entries. Every account has a version, 0 at
// first, which each Record that adds something and each Append that adds something
// raises by one. Rows may be read while others write; the version tells.
type Poster interface {
	// Now returns the store's own time, which hosts with wrong clocks share.
	Now(ctx context.Context) (time.Time, error)
	// Record keeps a round and its observations in one transaction. What is already
	// there, by account and time for the round and by reference and time for an
	// observation, stays as it is; parts of the round that are new are added. When
	// anything was added the version is raised, and the round is pending with the new
	// version as its mark.
	Record(ctx context.Context, r Round, observations []Observation) error
	// Pending returns the rounds of an account that were recorded and not settled, in
	// order of time.
	Pending(ctx context.Context, a Account) ([]PendingRound, error)
	// Settle marks a round as posted if its mark is still the given one; a round that
	// was added to meanwhile stays pending, without an error. It does not raise the
	// version.
	Settle(ctx context.Context, r PendingRound) error
	// Touched returns every resource whose charges a round can change, in the order of
	// their references: those the round observed, and of each of its complete parts
	// those with an observation from the part's newest complete round before it to the
	// part's oldest complete round after it, both included (without one before: since
	// ever; without one after: until ever). Another round that is pending bounds nothing,
	// because what is posted may or may not know of it: observations count even behind
	// it, and the times of a Touch are those of rounds that are settled.
	Touched(ctx context.Context, r Round) ([]Touch, error)
	// Histories returns what is known of resources of one account over [from, to),
	// whole hours, one history for each reference and in that order. Version is the
	// account's, read before the rest.
	Histories(ctx context.Context, a Account, refs []inventory.Ref, from, to time.Time) (h []History, version int64,
		err error)
	// Append adds entries of one account in one transaction, with the roll-ups, and
	// returns the new version. When the account's version is not the given one it
	// returns ErrConflict and adds nothing.
	Append(ctx context.Context, a Account, version int64, entries []Entry) (int64, error)
}

// Store keeps the ledger of an installation.
//
// Entries are never deleted. Roll-ups by day and by month, with and without the
// resource, are stored with them and change in the same transaction as Append, so
// that a question over a year reads thousands of rows and not a hundred million.
type Store interface {
	Poster
	// Version returns the account's version.
	Version(ctx context.Context, a Account) (int64, error)
	// Sums adds up entries of all accounts by period and by the values of dimensions,
	// in order of period and then of values. Periods start at q.Since at the earliest,
	// so the first of them may be a part.
	Sums(ctx context.Context, q SumQuery) ([]Sum, error)
	// ResourceDays adds up the entries of an account over the whole days of [from, to), in
	// the order of [CompareResourceDays].
	ResourceDays(ctx context.Context, a Account, from, to time.Time) ([]ResourceDay, error)
	// Entries returns the entries of one resource with Hour in [from, to), in the order
	// in which they were appended.
	Entries(ctx context.Context, ref inventory.Ref, from, to time.Time) ([]Entry, error)
	// Rounds returns the rounds of an account with At in [from, to), in order of time.
	Rounds(ctx context.Context, a Account, from, to time.Time) ([]Round, error)
	// Reach returns the time that is recorded of each part of an account that some round
	// listed whole, in order of region and kind.
	Reach(ctx context.Context, a Account) ([]Reach, error)
	// Accounts returns every account that has a round or an entry, in order.
	Accounts(ctx context.Context) ([]Account, error)
}

// PendingRound is a round that is recorded and not posted yet.
type PendingRound struct {
	Round
	// Mark is the account's version at which something was added to it last.
	Mark int64
}

// Touch is a resource whose charges a round can change, and the time over which.
type Touch struct {
	Ref inventory.Ref
	// From is the time of its newest settled observation before the round; where there is
	// none, that of the newest settled round before it that listed the part whole (else
	// the round's own), or of the oldest pending round if that is earlier.
	From time.Time
	// To is the time of its oldest settled observation after the round; where there is
	// none, that of the oldest settled round after it that listed the part whole (else
	// the round's own), or of the newest pending round if that is later.
	To time.Time
}

// History holds the observations and entries of a resource around some hours [from, to).
type History struct {
	Ref inventory.Ref
	// Observations are those with At in [from, to), and the nearest one on each side,
	// in order of time.
	Observations []Observation
	// Rounds are the times of rounds that listed the resource's part whole, in order
	// and without repetition: from the newest one before the first observation (if any)
	// to the first one after the last observation (if any). Only those matter that are
	// next to an observation on either side; others may be left out.
	Rounds []time.Time
	// Posted are the accruals and corrections with Hour in [from, to), in any order;
	// those of one hour and line may be added up into one.
	Posted []Entry
}

// SumQuery asks for sums of entries.
type SumQuery struct {
	// By are the dimensions whose values make a sum's key, without repetition.
	By []Dimension
	// Since and Until bound the hours: [Since, Until), whole hours.
	Since, Until time.Time
	// Granularity is the length of a period.
	Granularity Granularity
	// Filter keeps entries that match every one of its parts.
	Filter Filter
	// Accrued leaves reconciliations out, which are of whole days and not of hours.
	Accrued bool
}

// Sum is the sum of the entries of a period with equal values.
type Sum struct {
	// Period is the start of the period; Since where the granularity is Whole.
	Period time.Time
	// Key holds a value for each dimension asked for; empty is not known.
	Key []string
	// Sums are those of charged time, Unknown those of gaps (Seconds, AtMost and
	// Unbounded only).
	Sums    Sums
	Unknown Sums
}

// ResourceDay is the sum of a resource's entries of a day that agree in all dimensions of costs.
type ResourceDay struct {
	Ref        inventory.Ref
	Day        time.Time
	Category   Category
	Duty       string
	Service    string
	Pricing    Pricing
	Attributes Attributes
	// Accrued is the sum of accruals and corrections, Reconciled that of reconciliations.
	Accrued, Reconciled money.Amount
	// Unknown sums up the gaps other than those without a price, UnpricedSeconds those
	// without.
	Unknown         Sums
	UnpricedSeconds int64
}

// Line returns what the entries of the day have in common, apart from the day.
func (d *ResourceDay) Line() Line {
	return Line{
		Ref: d.Ref, Attributes: d.Attributes, Category: d.Category, Service: d.Service,
		Pricing: d.Pricing, Duty: d.Duty,
	}
}

// CompareResourceDays orders days by resource, day and then by the rest of what tells them
// apart.
func CompareResourceDays(x, y ResourceDay) int {
	a, b := x.Line(), y.Line()
	return cmp.Or(inventory.CompareRefs(x.Ref, y.Ref), x.Day.Compare(y.Day), CompareLines(&a, &b))
}

// CompareLines orders lines by resource, category, duty, service, pricing and attributes.
func CompareLines(x, y *Line) int {
	return cmp.Or(inventory.CompareRefs(x.Ref, y.Ref), cmp.Compare(x.Category, y.Category),
		cmp.Compare(x.Duty, y.Duty),
		cmp.Compare(x.Service, y.Service), cmp.Compare(x.Pricing, y.Pricing), x.Attributes.compare(y.Attributes))
}

// Reach is the time that is recorded of one part of an account: from the first round
// that listed it whole to the newest.
type Reach struct {
	Part
	First, Last time.Time
}
