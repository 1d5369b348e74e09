package ledger

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// ErrConflict is returned by [Store.Append] if the account's version is not the one that the
// entries were derived from: something was recorded or appended since. Read and derive again.
var ErrConflict = errors.New("the ledger of the account changed meanwhile")

// ErrAhead is returned by [Post] for a round far ahead of the store's time, because charging up to
// it would invent costs.
var ErrAhead = errors.New("the clock of this host is ahead")

// Poster stores rounds, observations and entries for [Post]. Every account has a version, initially
// 0, which each Record and Append that adds something increments. Rows may be read during writes;
// the version reveals conflicts.
type Poster interface {
	// Now returns the store's time, which is shared by hosts with wrong clocks.
	Now(ctx context.Context) (time.Time, error)
	// Record stores a round and its observations in one transaction. Existing rows, by account and
	// time of the round and by reference and time of an observation, stay as they are; new parts of
	// the round are added. If anything was added the version is incremented, and the round is
	// pending with the new version as its mark.
	Record(ctx context.Context, r Round, observations []Observation) error
	// Pending returns the recorded rounds of an account that are not settled, in time order.
	Pending(ctx context.Context, a Account) ([]PendingRound, error)
	// Settle marks a round as posted if its mark is still the given one; otherwise the round stays
	// pending without an error. It does not change the version.
	Settle(ctx context.Context, r PendingRound) error
	// Touched returns every resource whose charges a round can change, in the order of their
	// references: those observed by the round, and for each of its complete parts those with an
	// observation between the part's previous and next complete rounds, both included (unbounded if
	// there is none). Other pending rounds do not bound the range, because posted entries may or
	// may not reflect them; the times of a Touch are of settled rounds.
	Touched(ctx context.Context, r Round) ([]Touch, error)
	// Histories returns the histories of resources of one account over the whole hours [from, to),
	// one per reference in the given order. Version is the account's, read first.
	Histories(ctx context.Context, a Account, refs []inventory.Ref, from, to time.Time) (h []History, version int64,
		err error)
	// Append adds entries of one account and their roll-ups in one transaction, and returns the new
	// version. If the account's version is not the given one it returns ErrConflict and adds
	// nothing.
	Append(ctx context.Context, a Account, version int64, entries []Entry) (int64, error)
}

// Store keeps the ledger of an installation.
//
// Entries are never deleted. Roll-ups by day and month, with and without the resource, change in
// the same transaction as Append, so that a query over a year reads thousands of rows instead of a
// hundred million.
type Store interface {
	Poster
	// Version returns the account's version.
	Version(ctx context.Context, a Account) (int64, error)
	// Sums sums the entries of all accounts by period and dimensions, sorted by period and values.
	// Periods start at q.Since at the earliest, so the first may be incomplete.
	Sums(ctx context.Context, q SumQuery) ([]Sum, error)
	// ResourceDays sums the entries of an account over the whole days of [from, to), in the order
	// of [CompareResourceDays].
	ResourceDays(ctx context.Context, a Account, from, to time.Time) ([]ResourceDay, error)
	// Entries returns the entries of one resource with Hour in [from, to), in the order of
	// appending.
	Entries(ctx context.Context, ref inventory.Ref, from, to time.Time) ([]Entry, error)
	// Rounds returns the rounds of an account with At in [from, to), in time order.
	Rounds(ctx context.Context, a Account, from, to time.Time) ([]Round, error)
	// Reach returns the recorded time of each completely listed part of an account, by region and
	// kind.
	Reach(ctx context.Context, a Account) ([]Reach, error)
	// Accounts returns every account with a round or an entry, sorted.
	Accounts(ctx context.Context) ([]Account, error)
}

// PendingRound is a recorded round that is not posted yet.
type PendingRound struct {
	Round
	// Mark is the account's version after the last addition to the round.
	Mark int64
}

// Touch is a resource whose charges a round can change, with the affected time.
type Touch struct {
	Ref inventory.Ref
	// From is the time of its last settled observation before the round; without one, of the last
	// settled round before it that listed the part completely (else the round's own), or of the
	// oldest pending round if that is earlier.
	From time.Time
	// To is the time of its first settled observation after the round; without one, of the first
	// settled round after it that listed the part completely (else the round's own), or of the
	// newest pending round if that is later.
	To time.Time
}

// History holds the observations and entries of a resource around some hours [from, to).
type History struct {
	Ref inventory.Ref
	// Observations are those with At in [from, to) and the nearest one on each side, in time order.
	Observations []Observation
	// Rounds are the times, distinct and in order, of rounds that listed the resource's part
	// completely: from the last one before the first observation to the first one after the last
	// observation. Rounds not adjacent to an observation may be left out.
	Rounds []time.Time
	// Posted holds the accruals and corrections with Hour in [from, to), in any order; equal hours
	// and lines may be merged.
	Posted []Entry
}

// SumQuery is a query for sums of entries.
type SumQuery struct {
	// By are the dimensions of a sum's key, without repetition.
	By []Dimension
	// Since and Until bound the whole hours [Since, Until).
	Since, Until time.Time
	// Granularity is the length of a period.
	Granularity Granularity
	// Filter selects the entries.
	Filter Filter
	// Accrued excludes reconciliations, which refer to whole days.
	Accrued bool
}

// Sum is the sum of the entries of a period and key.
type Sum struct {
	// Period is the start of the period; Since if the granularity is Whole.
	Period time.Time
	// Key holds a value for each requested dimension; empty is unknown.
	Key []string
	// Sums cover charged time, Unknown gaps (only Seconds, AtMost and Unbounded).
	Sums    Sums
	Unknown Sums
}

// ResourceDay is the sum of a resource's entries of a day that are equal in all dimensions of
// costs.
type ResourceDay struct {
	Ref        inventory.Ref
	Day        time.Time
	Category   Category
	Duty       string
	Service    string
	Pricing    Pricing
	Attributes Attributes
	// Accrued is the sum of accruals and corrections, Reconciled of reconciliations.
	Accrued, Reconciled money.Amount
	// Unknown sums the gaps with a price, UnpricedSeconds those without.
	Unknown         Sums
	UnpricedSeconds int64
}

// Line returns the line that the day's entries share.
func (d *ResourceDay) Line() Line {
	return Line{
		Ref: d.Ref, Attributes: d.Attributes, Category: d.Category, Service: d.Service,
		Pricing: d.Pricing, Duty: d.Duty,
	}
}

// CompareResourceDays orders days by resource, day and the remaining key.
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

// Reach is the recorded time of one part of an account: from the first complete listing to the
// last.
type Reach struct {
	Part
	First, Last time.Time
}
