package bill

import (
	"iter"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Row is one resource on one day of a period, under one service, category and commitment: the sum
// of the lines that agree in all of it. Fields that a line leaves out are empty. Rows of a period
// differ in something besides their sums.
type Row struct {
	// Account is the billing account, and Start the start of the billing period; they
	// are those of the period.
	Account string
	Start   time.Time
	// Day is midnight UTC of the day in which the charge begins.
	Day                             time.Time
	Provider                        string
	SubAccount                      string
	Resource                        string
	Service                         string
	Region                          string
	Category                        Category
	Transfer                        Transfer
	ToRegion                        string // the far end of a transfer
	ChargeCategory, PricingCategory string
	// Commitment is the id of the commitment that the charge buys, uses or leaves
	// unused; Status is Used, Unused or empty.
	Commitment, Status string
	// CapacityStatus reports whether reserved capacity was used: Used, Unused or empty.
	CapacityStatus string
	// Type is the type of the machine, where the bill names it.
	Type    string
	Owner   inventory.Owner
	Purpose inventory.Purpose
	// Unknown says which costs the bill leaves out for all lines of the row; they are 0
	// below and belong in no total.
	Unknown Costs
	Cost    Cost
	// Bytes moved, for transfers; a GB of the bill counts 10^9 (FOCUS units). 0 if the bill gives
	// no amount of data.
	Bytes int64
	// Lines of the bill in the row.
	Lines int64
}

// Unused reports whether the bill itself says that nothing used the paid capacity: reserved
// capacity, or a part of a commitment.
func (r *Row) Unused() bool { return r.Status == Unused || r.CapacityStatus == Unused }

// Cost is the four costs of FOCUS in nano-dollars. Negative amounts are credits.
type Cost struct {
	Billed, Effective, List, Contracted money.Amount
}

// PeriodKey identifies a billing period: one billing account, or the source where the
// bill does not name one, and the start.
type PeriodKey struct {
	Account string
	Start   time.Time
}

// Period is a billing period as it is kept, without its rows.
type Period struct {
	PeriodKey
	// End is the zero time where the bill does not say.
	End time.Time
	// Source is where it was imported from: a file, a folder, "s3://bucket/prefix".
	Source string
	// Digest identifies the content: equal digests, equal rows.
	Digest string
	// Lines of the bill and Rows they came to.
	Lines, Rows int64
	// Total is the sum of the rows, to the nano-dollar; Exact the same with all digits.
	Total Cost
	Exact Exact
	// Unknown lines: how many lack the cost.
	NoEffective, NoList, NoContracted int64
	// ImportedAt is when; it is no part of the digest.
	ImportedAt time.Time
}

// Exact is the four costs as decimal text with all digits of the bill.
type Exact struct {
	Billed, Effective, List, Contracted string
}

// Replacement is a period as it shall be.
type Replacement struct {
	Period
	// Replaces is the digest of the period that is kept now; empty for none is.
	Replaces string
	// Content yields the rows in a fixed order, any number of times; Period.Rows counts
	// them. Nil: the period is removed.
	Content iter.Seq[Row]
}
