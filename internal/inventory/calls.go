package inventory

import "github.com/curfew-dev/curfew/internal/money"

// Calls counts the calls of one API and the provider's charge for them.
type Calls struct {
	API   string // "cloudwatch:GetMetricData"
	Count int
	// Units is the number of charged units: metrics requested, requests made.
	Units int
	Cost  money.Amount
}
