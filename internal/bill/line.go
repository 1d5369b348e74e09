// Package bill holds a provider's bill in the words of the FinOps Open Cost and Usage Specification
// (FOCUS 1.0 to 1.3, https://focus.finops.org): lines, their exact sums by resource and day, the
// periods that are replaced as a whole, and the conclusions from them.
//
// Costs of lines are exact decimals. They become integers of nano-dollars once, when a period's
// rows are settled, by largest remainder, so that the rows of a period add up to the bill's own
// total. A cost that a bill leaves out is unknown, never zero.
package bill

import "time"

// Charge categories, FOCUS ChargeCategory.
const (
	Usage      = "Usage"
	Purchase   = "Purchase"
	Tax        = "Tax"
	Credit     = "Credit"
	Adjustment = "Adjustment"
)

// Pricing categories, FOCUS PricingCategory.
const (
	Standard  = "Standard"
	Dynamic   = "Dynamic"
	Committed = "Committed"
)

// Statuses of commitments and of reserved capacity, FOCUS CommitmentDiscountStatus and
// CapacityReservationStatus.
const (
	Used   = "Used"
	Unused = "Unused"
)

// Correction is the FOCUS ChargeClass of a line that corrects an earlier period.
const Correction = "Correction"

// Line is one line of a bill. A text that the bill leaves out is empty. Times are UTC,
// periods half-open; a zero time is unknown.
type Line struct {
	BillingAccountID, SubAccountID string
	// BillingCurrency is empty if the bill has no such column.
	BillingCurrency                      string
	BillingPeriodStart, BillingPeriodEnd time.Time
	// ChargePeriodStart says to which day the line belongs.
	ChargePeriodStart              time.Time
	ChargeCategory, ChargeClass    string
	ChargeDescription              string
	ServiceProviderName            string
	ServiceCategory, ServiceName   string
	ResourceID, RegionID           string
	PricingCategory                string
	CommitmentID, CommitmentStatus string // FOCUS CommitmentDiscountId and -Status
	// CapacityStatus is FOCUS CapacityReservationStatus.
	CapacityStatus string
	// MachineType is the type of the machine ("p5.48xlarge"), where the bill names it.
	MachineType                             string
	ConsumedUnit                            string
	ConsumedQuantity                        Decimal
	BilledCost                              Decimal
	EffectiveCost, ListCost, ContractedCost Decimal
	// Unknown says which of the costs the bill leaves out. BilledCost never is.
	Unknown Costs
	// UsageType is the provider's own name of the meter ("USE1-USW2-AWS-Out-Bytes"),
	// where the bill has it.
	UsageType string
	// FromRegion and ToRegion are the ends of a transfer, where the bill names them.
	FromRegion, ToRegion string
	// Tags is a JSON object of strings; empty for none, or the bill has no such column.
	Tags string
	// Derived is a line that a reader added to another of the same row of the file,
	// such as the unused part of a fee; it is not counted.
	Derived bool
	// Withheld is money that the bill lists and takes back in lines of its own: usage
	// under a savings plan and its negation. It has to come to zero.
	Withheld Decimal
}

// Costs is a set of a line's costs.
type Costs uint8

// The costs besides BilledCost.
const (
	EffectiveCost Costs = 1 << iota
	ListCost
	ContractedCost
)

// Has reports whether all of o are in c.
func (c Costs) Has(o Costs) bool { return c&o == o }
