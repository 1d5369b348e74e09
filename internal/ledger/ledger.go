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

// Category is the category of a charge.
type Category = inventory.Category

// The categories.
const (
	Compute   = inventory.CategoryCompute
	Storage   = inventory.CategoryStorage
	Network   = inventory.CategoryNetwork
	Overhead  = inventory.CategoryOverhead
	Committed = inventory.CategoryCommitted
)

// Charge is the cost of one meter of a resource for a month of 730 hours in its current state, at
// list price.
type Charge struct {
	Resource *inventory.Resource
	// Meter is unique within the resource: "compute", "storage", "iops", "hours".
	Meter    string
	Category Category
	// ListCost is the month's cost; it is meaningless when Unpriced is set.
	ListCost money.Amount
	// AtMost is the maximum monthly cost if the price moves: for spot the on-demand price, which
	// the provider does not exceed. 0 is unknown.
	AtMost money.Amount
	// Quantity and Unit are for display: "500", "GiB-month".
	Quantity, Unit string
	// UnitPrice is the price of one unit with its source and date.
	UnitPrice string
	Source    string
	AsOf      time.Time
	// Moves and MinimumSeconds are copied from [inventory.Meter].
	Moves          bool
	MinimumSeconds int64
	// Estimate states the assumption if the quantity is not exact.
	Estimate string
	// Unpriced is the reason for a missing price; empty if there is one.
	Unpriced string
}
