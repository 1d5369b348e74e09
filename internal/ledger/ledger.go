// Package ledger charges resources: each has meters, at prices with a source and a date.
// The cost of an unpriced resource is unknown, never zero.
//
// [RunRates] returns the current costs of resources. [Post] records the observations of a
// round and adds their charges, hour by hour, to an append-only ledger. Package costs
// reports on the ledger.
package ledger

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Category is where a charge belongs in the bill.
type Category = inventory.Category

// The categories.
const (
	Compute   = inventory.CategoryCompute
	Storage   = inventory.CategoryStorage
	Network   = inventory.CategoryNetwork
	Overhead  = inventory.CategoryOverhead
	Committed = inventory.CategoryCommitted
)

// Charge is the cost of one meter of a resource in a month of 730 hours at its current state, at
// list price.
type Charge struct {
	Resource *inventory.Resource
	// Meter names it within the resource: "compute", "storage", "iops", "hours".
	Meter    string
	Category Category
	// ListCost is the month's cost; it is meaningless when Unpriced is set.
	ListCost money.Amount
	// AtMost is the most that a month can cost where the price moves: for spot the
	// on-demand price, which the provider does not go over. 0 is not known.
	AtMost money.Amount
	// Quantity and Unit say how much of what: "500", "GiB-month".
	Quantity, Unit string
	// UnitPrice is the price of one unit with its source and date.
	UnitPrice string
	Source    string
	AsOf      time.Time
	// Moves and MinimumSeconds are those of [inventory.Meter].
	Moves          bool
	MinimumSeconds int64
	// Estimate says what was assumed, where the quantity is not exact.
	Estimate string
	// Unpriced is the reason why there is no price; empty when there is one.
	Unpriced string
}
