// Package estimate estimates costs before something starts: a job, a session, a Kubernetes workload
// or a Terraform plan. Every line has its quantity, unit price, source and date. A missing price is
// an error, never zero; a priced item of unknown quantity is listed as unknown.
package estimate

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

// KindTerraform is the kind of a Terraform plan's estimate; other kinds are those of [spec.Kind].
const KindTerraform = "terraform"

// Estimate is a cost estimate in its JSON form. Amounts are exact: the lines add up to P50 and P95.
type Estimate struct {
	// Title is a one-sentence summary.
	Title string `json:"title"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	// SpecHash is the hash that an approval is bound to: of the specification, or of the changes
	// and costs of a Terraform plan.
	SpecHash string            `json:"spec_hash"`
	Owner    inventory.Owner   `json:"owner"`
	Purpose  inventory.Purpose `json:"purpose,omitempty"`
	// P50 is the median cost, P95 the 95th percentile. For a Terraform plan both cover a month of
	// 730 hours.
	P50 money.Amount `json:"p50_usd"`
	P95 money.Amount `json:"p95_usd"`
	// Hourly is the cost per hour of all running machines and disks, with the more expensive option
	// if Capacity is auto.
	Hourly money.Amount `json:"hourly_usd"`
	// Machine is the chosen machine; nil for a Terraform plan.
	Machine *Machine `json:"machine,omitempty"`
	// Region is where.
	Region string `json:"region,omitempty"`
	// Alternatives are other machines and regions, cheapest first.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Machines counts concurrent machines, GPUs their accelerators by name.
	Machines int            `json:"machines"`
	GPUs     map[string]int `json:"gpus,omitempty"`
	// Duration is the expected runtime; nil for a Terraform plan.
	Duration *Duration `json:"duration,omitempty"`
	Lines    []Line    `json:"lines"`
	// Terraform holds the parts that only a Terraform plan has.
	Terraform     *Terraform `json:"terraform,omitempty"`
	Assumptions   []string   `json:"assumptions"`
	CoverageNotes []string   `json:"coverage_notes"`
	Changes       []string   `json:"changes"`
	// Unknown lists costs that could not be estimated; they are in no amount.
	Unknown []string `json:"unknown"`
	// Open is the part of Unknown that may be large and needs an approval: remote reads of unknown
	// size, unlimited work, machines known only at run time. The rest of Unknown is small, like
	// keeping a file of unknown size.
	Open []string `json:"-"`

	longest time.Duration // sum over several workloads
	unread  bool          // covers something unknown
}

// Unpriced reports that nothing of the cost is known: the estimate has no lines.
func (e *Estimate) Unpriced() bool {
	return len(e.Lines) == 0 && len(e.Open) > 0 && e.Terraform == nil
}

// Machine is a machine type with its purchase option.
type Machine struct {
	Type     string        `json:"type"`
	Capacity spec.Capacity `json:"capacity"`
	// Count is the number of machines, GPUs the accelerators of each.
	Count int    `json:"count"`
	GPU   string `json:"gpu,omitempty"`
	GPUs  int    `json:"gpus,omitempty"`
}

// Alternative is a machine that was not chosen.
type Alternative struct {
	Machine
	Region string       `json:"region"`
	Hourly money.Amount `json:"hourly_usd"`
	P50    money.Amount `json:"p50_usd"`
	P95    money.Amount `json:"p95_usd"`
	// Unknown counts its costs that could not be estimated.
	Unknown int `json:"unknown"`
}

// Line is one cost item.
type Line struct {
	// What names the item, or the resource address in a Terraform plan.
	What     string `json:"what"`
	Resource string `json:"resource,omitempty"`
	// Quantity and QuantityP95 are decimal numbers rounded to six digits; amounts are computed from
	// exact values.
	Quantity    string       `json:"quantity"`
	QuantityP95 string       `json:"quantity_p95"`
	Unit        string       `json:"unit"`
	UnitPrice   money.Rate   `json:"unit_price"`
	P50         money.Amount `json:"p50_usd"`
	P95         money.Amount `json:"p95_usd"`
	Source      string       `json:"source"`
	// AsOf is the date of the price, "2026-11-21".
	AsOf string `json:"as_of"`
}

// Params are the inputs of an estimate besides the specification and the prices.
type Params struct {
	// Now is the time of the estimate, from which the age of past runs is counted.
	Now time.Time
	// History holds past runs; those of other names are ignored.
	History []Run
	// DataRegions maps buckets to regions.
	DataRegions map[string]string
	// DataBytes maps addresses to read sizes, for specifications without a size.
	DataBytes map[string]int64
	// CheckpointBytes is the checkpoint size for specifications without one; 0 means unknown.
	CheckpointBytes int64
	// Tags maps tags of Terraform resources to owners; nil is the default mapping.
	Tags *inventory.TagMapping
	// Defaults apply where the specification is silent. Zero fields take the values of
	// [DefaultDefaults].
	Defaults Defaults
}

// Defaults are used where a specification is silent.
type Defaults struct {
	// Regions are the regions to compare; if empty, a specification must name one.
	Regions []string
	// Runtime is the expected runtime of a Kubernetes workload without one; 0 requires one.
	Runtime time.Duration
	// Nodes are a cluster's machines, for workloads without a machine type. The first that fits is
	// used, see [Node].
	Nodes []Node
	// DiskGiB is the size of the root disk, Disk its type.
	DiskGiB int64
	Disk    price.Item
	// Interruptions is the rate of spot interruptions, updated by past runs.
	Interruptions spot.Interruptions
	// Advisor has the published bands of interruptions; nil without its data.
	Advisor *spot.Advisor
	// CheckpointEvery is the default checkpoint interval, Restart the time from an interruption
	// until work continues.
	CheckpointEvery, Restart time.Duration
}

// Node is a kind of machine in a cluster.
type Node struct {
	// Labels are node labels. A workload that requires another value does not fit; unlisted labels
	// are unknown and fit.
	Labels map[string]string `yaml:"labels"`
	// Type is the machine type.
	Type string `yaml:"instance_type" form:"required"`
	// Region is the region; empty is unknown.
	Region string `yaml:"region"`
	// Spot reports that it is spot capacity.
	Spot bool `yaml:"spot"`
	// Whole reports that Labels is complete because it was read from the node.
	Whole bool `yaml:"-"`
}

// DefaultDefaults returns the defaults of every estimate.
func DefaultDefaults() Defaults {
	return Defaults{
		DiskGiB: 100, Disk: price.ItemGP3, Interruptions: spot.Unmeasured(), CheckpointEvery: spot.CheckpointEvery,
		Restart: spot.Restart,
	}
}

// Run is a past run, for [Params].
type Run struct {
	Name     string
	Finished time.Time
	// Completed reports that the work was finished. Other runs say nothing about its duration.
	Completed bool
	// Work is the duration without lost work and restarts.
	Work time.Duration
	// Machine is the machine type, Machines the number of machines.
	Machine  string
	Machines int
	// SpotTime is the uptime of each machine on spot capacity, Interruptions the number of
	// interruptions.
	SpotTime      time.Duration
	Interruptions int
}

// New estimates a job or session. It chooses the machine and region with the lowest median cost;
// where transfers of unknown size matter, it prefers regions without them.
//
// It wraps [price.ErrUnpriced] if no allowed machine in an allowed region is completely priced.
// Other errors say what the specification lacks: a region, an existing GPU, or a bound of its
// duration.
func New(s *spec.Spec, book *price.Book, p Params) (*Estimate, error) {
	return newEstimate(s, book, p)
}
