package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
)

// CostsSchema names the shape of [Costs]. Fields are only added to it.
const CostsSchema = "curfew.costs/v1"

// Costs is the output of `costs`.
type Costs struct {
	Schema string `json:"schema"`
	*costs.Costs
	// Progress is the last progress of the machines at work, if rows are resources.
	Progress []CostsProgress `json:"progress,omitempty"`
}

// CostsProgress is the last progress of the work of a machine.
type CostsProgress struct {
	// Resource is the value of the dimension resource.
	Resource string `json:"resource"`
	SeenProgress
}

// NewCosts makes the document of costs.
func NewCosts(c *costs.Costs) Costs { return Costs{Schema: CostsSchema, Costs: c} }

// UnitsSchema names the shape of [Units], UnitCostsSchema that of [UnitCosts].
const (
	UnitsSchema     = "curfew.units/v1"
	UnitCostsSchema = "curfew.unit-costs/v1"
)

// Units is the output of `costs units`.
type Units struct {
	Schema string      `json:"schema"`
	Units  []UnitCosts `json:"units"`
}

// UnitCosts is the cost of one unit over time.
type UnitCosts struct {
	Schema string `json:"schema"`
	*costs.UnitCosts
}

// NewUnits makes the document of unit costs.
func NewUnits(all []*costs.UnitCosts) Units {
	u := Units{Schema: UnitsSchema, Units: make([]UnitCosts, 0, len(all))}
	for _, c := range all {
		u.Units = append(u.Units, UnitCosts{UnitCostsSchema, c})
	}
	return u
}

// ReconciliationSchema names the shape of [Reconciliation].
const ReconciliationSchema = "curfew.reconcile/v1"

// Reconciliation is the output of `bill reconcile`.
type Reconciliation struct {
	Schema string `json:"schema"`
	*costs.Reconciliation
	// Posted is how many corrections were added to the ledger.
	Posted int `json:"posted,omitempty"`
}

// NewReconciliation makes the document of a reconciliation.
func NewReconciliation(r *costs.Reconciliation, posted int) Reconciliation {
	return Reconciliation{Schema: ReconciliationSchema, Reconciliation: r, Posted: posted}
}

// BillSchema names the shape of [Bill], BillShowSchema that of [BillShow].
const (
	BillSchema     = "curfew.bill/v1"
	BillShowSchema = "curfew.bill.show/v1"
)

// Bill is the output of `bill import`.
type Bill struct {
	Schema string `json:"schema"`
	bill.Summary
}

// NewBill makes the document of a bill and, if planned is not nil, of the effect of importing it.
func NewBill(b *bill.Bill, planned []bill.Planned) Bill {
	return Bill{BillSchema, bill.Summarize(b, planned)}
}

// BillShow is the output of `bill show`.
type BillShow struct {
	Schema     string      `json:"schema"`
	Since      time.Time   `json:"since"`
	Until      time.Time   `json:"until"`
	Categories []bill.Part `json:"categories"`
	// ByDuty are the categories by the duty of machines.
	ByDuty []bill.Slice `json:"categories_by_duty"`
	// Allocation divides the bill among those who pay.
	Allocation *bill.Allocation `json:"allocation"`
	Egress     []bill.Flow      `json:"egress"`
	// Commitments are the cost and coverage of commitments.
	Commitments bill.Commitments `json:"commitments"`
	// CoverageNotes name the included charges of other months, and the omitted ones.
	CoverageNotes []string `json:"coverage_notes"`
}
