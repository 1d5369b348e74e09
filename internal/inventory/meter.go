package inventory

import (
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Category is where a charge belongs in the bill.
type Category string

// The categories. Compute is split by duty into used and wasted when it is shown.
const (
	CategoryCompute  Category = "compute"
	CategoryStorage  Category = "storage"
	CategoryNetwork  Category = "network"  // the hours of gateways, balancers and addresses
	CategoryOverhead Category = "overhead" // secrets, monitoring
	// CategoryCommitted is what commitments cost whatever runs; shown apart, because the
	// machines they cover are listed at their own price.
	CategoryCommitted Category = "committed"
)

// Meter is one thing that a resource is charged for as it runs now. An adapter attaches it;
// its cost is quantity × price.
type Meter struct {
	// Name names it within the resource: "compute", "storage", "iops", "hours".
	Name     string
	Category Category
	// Cloud, Service, SKU, Region and Term are what its price is looked up by. An empty Term
	// is on demand.
	Cloud, Service, SKU, Region, Term string
	// Unit is what is priced: "hour", "GiB-month".
	Unit string
	// Quantity / Per is how many units a month of 730 hours has. Per is positive wherever
	// the quantity is known, else zero.
	Quantity, Per int64
	// Price is the price of a unit where the adapter knows it; nil takes the price book's.
	Price *Price
	// Moves says that the price changes by the hour, as spot prices do.
	Moves bool
	// MinimumSeconds is what is billed at least of each run; 0 is no minimum.
	MinimumSeconds int64
	// Estimate says what was assumed, where the quantity is not exact.
	Estimate string
	// Unpriced is the reason why it can have no price; empty where it can.
	Unpriced string
}

// Price is a price of a unit, with its source and the time from which it holds.
type Price struct {
	Rate   money.Rate
	Source string
	AsOf   time.Time
}
