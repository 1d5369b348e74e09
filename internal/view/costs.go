package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
)

// CostsSchema names the shape of [Costs]. Fields are only added to it.
const CostsSchema = "curfew.costs/v1"

// Costs is what `costs` prints.
type Costs struct {
	Schema string `json:"schema"`
	*costs.Costs
}

// NewCosts makes the document of costs.
func NewCosts(c *costs.Costs) Costs { return Costs{Schema: CostsSchema, Costs: c} }

// UnitsSchema names the shape of [Units], UnitCostsSchema that of [UnitCosts].
const (
	UnitsSchema     = "curfew.units/v1"
	UnitCostsSchema = "curfew.unit-costs/v1"
)

// Units is what `costs units` prints.
type Units struct {
	Schema string      `json:"schema"`
	Units  []UnitCosts `json:"units"`
}

// UnitCosts is what one unit costs over time.
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

// Reconciliation is what `bill reconcile` prints.
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

// Bill is what `bill import` prints.
type Bill struct {
	Schema string `json:"schema"`
	bill.Summary
}

// NewBill makes the document of a bill and, where planned is not nil, of what importing it
// does.
func NewBill(b *bill.Bill, planned []bill.Planned) Bill {
	return Bill{BillSchema, bill.Summarize(b, planned)}
}

// BillShow is what `bill show` prints.
type BillShow struct {
	Schema     string      `json:"schema"`
	Since      time.Time   `json:"since"`
	Until      time.Time   `json:"until"`
	Categories []bill.Part `json:"categories"`
	// ByDuty are the categories by what machines were doing.
	ByDuty []bill.Slice `json:"categories_by_duty"`
	// Allocation is who pays for what.
	Allocation *bill.Allocation `json:"allocation"`
	Egress     []bill.Flow      `json:"egress"`
	// Commitments are what commitments cost and cover.
	Commitments bill.Commitments `json:"commitments"`
	// CoverageNotes say which charges of other months are in the figures, and which are not.
	CoverageNotes []string `json:"coverage_notes"`
}
