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
func NewCosts(c *costs.Costs) Costs { return Costs{CostsSchema, c} }

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
	u := Units{UnitsSchema, make([]UnitCosts, 0, len(all))}
	for _, c := range all {
		u.Units = append(u.Units, UnitCosts{UnitCostsSchema, c})
	}
	return u
}

// SharesSchema names the shape of [Shares].
const SharesSchema = "curfew.shares/v1"

// Shares is what `costs shares` prints: the cost of machines, divided among the workloads
// that shared them.
type Shares struct {
	Schema   string         `json:"schema"`
	Since    time.Time      `json:"since"`
	Until    time.Time      `json:"until"`
	Machines []MachineShare `json:"machines"`
	// Notes says which machines of the file were not charged.
	Notes []string `json:"-"`
}

// MachineShare is one machine's cost. Its workloads and Unallocated add up to Amount.
type MachineShare struct {
	Resource  string          `json:"resource"`
	Amount    costs.Dollars   `json:"total_usd"`
	Workloads []WorkloadShare `json:"workloads"`
	// Unallocated is the dollars of no workload.
	Unallocated costs.Dollars `json:"unallocated_usd"`
	// Note says that more than the whole machine was allocated, and how it was divided.
	Note string `json:"note,omitempty"`
}

// WorkloadShare is a workload's part of a machine's cost. Used, Idle and CannotJudge
// (unmeasured) add up to Amount.
type WorkloadShare struct {
	Workload string        `json:"workload"`
	Amount   costs.Dollars `json:"total_usd"`
	// Used is the dollars of used time.
	Used costs.Dollars `json:"used_usd"`
	// Idle is the dollars of idle time.
	Idle costs.Dollars `json:"idle_usd"`
	// CannotJudge is the dollars of unmeasured time.
	CannotJudge costs.Dollars `json:"cannot_judge_usd"`
}

// NewShares makes the document of machines that are divided.
func NewShares(d *costs.Divided) Shares {
	s := Shares{Schema: SharesSchema, Since: d.Since, Until: d.Until, Machines: make([]MachineShare, 0, len(d.Machines))}
	for _, m := range d.Machines {
		doc := MachineShare{Resource: m.Resource, Amount: costs.Dollars(m.Amount), Unallocated: costs.Dollars(m.Unallocated), Note: m.Over, Workloads: []WorkloadShare{}}
		for _, w := range m.Workloads {
			doc.Workloads = append(doc.Workloads, WorkloadShare{w.Workload, costs.Dollars(w.Amount), costs.Dollars(w.Used), costs.Dollars(w.Idle), costs.Dollars(w.CannotJudge)})
		}
		s.Machines = append(s.Machines, doc)
	}
	for _, id := range d.Uncharged {
		s.Notes = append(s.Notes, id+" has no charges in this period: nothing to divide")
	}
	return s
}

// ReconciliationSchema names the shape of [Reconciliation].
const ReconciliationSchema = "curfew.reconcile/v1"

// Reconciliation is what `bill reconcile` prints.
type Reconciliation struct {
	Schema string `json:"schema"`
	*costs.Reconciliation
	// Posted is how many corrections were added to the ledger.
	Posted int `json:"-"`
}

// NewReconciliation makes the document of a reconciliation.
func NewReconciliation(r *costs.Reconciliation, posted int) Reconciliation {
	return Reconciliation{ReconciliationSchema, r, posted}
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
}
