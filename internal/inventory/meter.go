package inventory

import (
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Category is the category of a charge in reports.
type Category string

// The categories. Reports split compute by duty into used and wasted.
const (
	CategoryCompute  Category = "compute"
	CategoryStorage  Category = "storage"
	CategoryNetwork  Category = "network"  // hours of gateways, load balancers and addresses
	CategoryOverhead Category = "overhead" // secrets, monitoring
	// CategoryCommitted is the fixed cost of commitments. It is shown separately, because the
	// machines they cover are listed at their own price.
	CategoryCommitted Category = "committed"
)

// Meter is one current charge of a resource, attached by an adapter; its cost is quantity × price.
type Meter struct {
	// Name names it within the resource: "compute", "storage", "iops", "hours".
	Name     string
	Category Category
	// Cloud, Service, SKU, Region and Term are the key of its price. An empty Term is on demand.
	Cloud, Service, SKU, Region, Term string
	// Unit is the priced unit: "hour", "GiB-month".
	Unit string
	// Quantity / Per is the number of units in a month of 730 hours. Per is positive if the
	// quantity is known, else zero.
	Quantity, Per int64
	// Price is the price of a unit if the adapter knows it; nil uses the price book.
	Price *Price
	// PriceChangesHourly is set for prices that change by the hour, such as spot prices.
	PriceChangesHourly bool
	// MinimumSeconds is the minimum charge of each run; 0 is no minimum.
	MinimumSeconds int64
	// Estimate states the assumption if the quantity is not exact.
	Estimate string
	// UnpricedReason is the reason if the meter cannot have a price.
	UnpricedReason string
}

// Price is a price of a unit, with its source and the time from which it holds.
type Price struct {
	Rate   money.Rate
	Source string
	AsOf   time.Time
}
