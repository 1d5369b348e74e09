package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
)

// SharesSchema names the shape of [Shares].
const SharesSchema = "curfew.shares/v1"

// Shares is the output of `costs shares`: the cost of machines, divided among the workloads
// that shared them.
type Shares struct {
	Schema string    `json:"schema"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	// By is the level that workloads are grouped by, where a metrics server knows it: pod,
	// controller, namespace, team, project or user.
	By       string         `json:"by,omitempty"`
	Machines []MachineShare `json:"machines"`
	// Totals are those of each workload over all machines, where a metrics server told of
	// them.
	Totals []WorkloadShare `json:"totals,omitempty"`
	// BlindSpots are the sources that could not be read.
	BlindSpots []inventory.BlindSpot `json:"blind_spots,omitempty"`
	// Notes name machines of the file that were not charged.
	Notes []string `json:"notes,omitempty"`
}

// MachineShare is one machine's cost. Its workloads and Unallocated add up to Amount.
type MachineShare struct {
	Resource  string          `json:"resource"`
	Amount    money.Amount    `json:"total_usd"`
	Workloads []WorkloadShare `json:"workloads"`
	// Unallocated is the dollars of no workload.
	Unallocated money.Amount `json:"unallocated_usd"`
	// Note explains how more than a whole machine's allocation was divided.
	Note string `json:"note,omitempty"`
	// Use is there where a metrics server told of the workloads.
	Use *MachineUse `json:"use,omitempty"`
}

// MachineUse divides a machine's cost by use. What workloads cost by use, IdleByUse and
// UnmeasuredByUse add up to it.
type MachineUse struct {
	// GPUs is how many the machine has.
	GPUs int `json:"gpus"`
	// Unknown is the part of Unallocated of which nothing says who held the GPUs.
	Unknown         money.Amount `json:"unknown_usd"`
	IdleByUse       money.Amount `json:"idle_by_use_usd"`
	UnmeasuredByUse money.Amount `json:"unmeasured_by_use_usd"`
}

// WorkloadShare is a workload's part of a machine's cost.
type WorkloadShare struct {
	costs.WorkloadCost
	// Use is there where a metrics server told of the workloads.
	Use *WorkloadUse `json:"use,omitempty"`
}

// WorkloadUse is the requested and used capacity of a workload.
type WorkloadUse struct {
	// ByUse is its part of the machine's cost by what it used, beyond its request as well.
	ByUse money.Amount `json:"by_use_usd"`
	// RequestedGPUHours is the workload's time by its request, MeasuredGPUHours the measured part
	// of it.
	RequestedGPUHours float64 `json:"requested_gpu_hours"`
	MeasuredGPUHours  float64 `json:"measured_gpu_hours"`
	// UsedGPUHours is the used time; null if unknown.
	UsedGPUHours *float64 `json:"used_gpu_hours"`
	// DividedUse is true if a part of the use is that of a whole GPU, divided among those who
	// shared it by their requests.
	DividedUse bool `json:"divided_use"`
}

// NewShares makes the document of machines that are divided.
func NewShares(d *costs.Divided, by string, blind []inventory.BlindSpot) Shares {
	s := Shares{
		Schema: SharesSchema, Since: d.Since, Until: d.Until, By: by,
		Machines:   make([]MachineShare, 0, len(d.Machines)),
		BlindSpots: blind,
	}
	for _, m := range d.Machines {
		doc := MachineShare{
			Resource: m.Resource, Amount: m.Amount, Unallocated: m.Unallocated, Note: m.Over,
			Workloads: workloads(m.Workloads, d.Tenants),
		}
		if d.Tenants {
			doc.Use = &MachineUse{m.GPUs, m.Unknown, m.IdleUse, m.UnknownUse}
		}
		s.Machines = append(s.Machines, doc)
	}
	if d.Tenants {
		s.Totals = workloads(d.Totals, true)
	}
	for _, id := range d.Uncharged {
		s.Notes = append(s.Notes, id+" has no charges in this period: nothing to divide")
	}
	return s
}

func workloads(all []costs.Allocated, use bool) []WorkloadShare {
	out := []WorkloadShare{}
	for _, w := range all {
		x := WorkloadShare{WorkloadCost: w.WorkloadCost}
		if use {
			x.Use = &WorkloadUse{w.ByUse, gpuHours(w.Requested), gpuHours(w.Measured), nil, w.Split}
			if hours := gpuHours(w.UsedGPU); w.Measured > 0 {
				x.Use.UsedGPUHours = &hours
			}
		}
		out = append(out, x)
	}
	return out
}

// gpuHours returns parts of a GPU times seconds in hours of a GPU.
func gpuHours(parts int64) float64 { return float64(parts) / costs.WholeGPU / 3600 }
