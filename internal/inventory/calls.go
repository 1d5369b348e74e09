package inventory

import "github.com/curfew-dev/curfew/internal/money"

// Calls counts the calls an observation made to one API, and what the provider
// charges for them.
type Calls struct {
	API   string // "cloudwatch:GetMetricData"
	Count int
	// Units is what is charged for: metrics requested, requests made.
	Units int
	Cost  money.Amount
}
