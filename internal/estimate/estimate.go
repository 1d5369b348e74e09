// Package estimate says what something will cost before it starts: a job, a session, a
// workload of Kubernetes or a plan of Terraform. Every line carries its quantity, unit
// price, source and date. What has no known price is an error, never zero; what has a
// price and no known quantity is listed as unknown.
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

// Estimate is what something will cost, in the shape of its JSON. Amounts are exact:
// the lines add up to P50 and P95 to the last nano-dollar.
type Estimate struct {
	// Title is the answer in one sentence.
	Title string `json:"title"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	// SpecHash is what an approval is bound to: the hash of the specification, or of
	// what a plan of Terraform changes and costs.
	SpecHash string            `json:"spec_hash"`
	Owner    inventory.Owner   `json:"owner"`
	Purpose  inventory.Purpose `json:"purpose,omitempty"`
	// P50 is the median cost, P95 the 95th percentile: 95% of the runs
	// cost less. For a plan of Terraform both are a month of 730 hours.
	P50 money.Amount `json:"p50_usd"`
	P95 money.Amount `json:"p95_usd"`
	// Hourly is what all machines and disks cost an hour while they run, bought the
	// more expensive way where Capacity is auto.
	Hourly money.Amount `json:"hourly_usd"`
	// Machine is what was chosen; nil for a plan of Terraform.
	Machine *Machine `json:"machine,omitempty"`
	// Region is where.
	Region string `json:"region,omitempty"`
	// Alternatives are the other machines and regions, the cheapest first.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Machines is how many machines run at once, GPUs how many accelerators they have,
	// by name.
	Machines int            `json:"machines"`
	GPUs     map[string]int `json:"gpus,omitempty"`
	// Duration is how long it runs; nil for a plan of Terraform.
	Duration *Duration `json:"duration,omitempty"`
	Lines    []Line    `json:"lines"`
	// Terraform is what only a plan of Terraform has.
	Terraform     *Terraform `json:"terraform,omitempty"`
	Assumptions   []string   `json:"assumptions"`
	CoverageNotes []string   `json:"coverage_notes"`
	Changes       []string   `json:"changes"`
	// Unknown is what costs money and could not be estimated; it is in no amount.
	Unknown []string `json:"unknown"`
	// Open is the part of Unknown that may be large: data of an unknown size read from
	// afar, work that nothing ends, machines that only the run names. It needs an approval.
	// The rest is what it costs to keep or move a file of unknown size near by.
	Open []string `json:"-"`

	longest time.Duration // of several workloads
	unread  bool          // it is of something that is not known
}

// Unpriced says that nothing of the cost is known: the amounts are zero for want of a line.
func (e *Estimate) Unpriced() bool {
	return len(e.Lines) == 0 && len(e.Open) > 0 && e.Terraform == nil
}

// Machine is a type of machine as it is bought.
type Machine struct {
	Type     string        `json:"type"`
	Capacity spec.Capacity `json:"capacity"`
	// Count is how many, GPUs how many accelerators each has.
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
	// Unknown is how many of its costs could not be estimated.
	Unknown int `json:"unknown"`
}

// Line is one cost.
type Line struct {
	// What it is, and the address of the resource in a plan of Terraform.
	What     string `json:"what"`
	Resource string `json:"resource,omitempty"`
	// Quantity and QuantityP95 are decimal numbers of units, rounded to six digits
	// after the point; the amounts are not computed from them.
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

// Params are what an estimate rests on besides the specification and the prices.
type Params struct {
	// Now is the time of the estimate; past runs are weighted by their age.
	Now time.Time
	// History is past runs; those of other names are passed over.
	History []Run
	// DataRegions are the regions of buckets, by their names.
	DataRegions map[string]string
	// DataBytes is how much is read of an address; it is taken where the
	// specification gives no size.
	DataBytes map[string]int64
	// CheckpointBytes is the size of a checkpoint where the specification gives none; 0
	// not known.
	CheckpointBytes int64
	// Tags says which tags of a Terraform plan's resources name the owner; nil is the
	// default mapping.
	Tags *inventory.TagMapping
	// Defaults hold where the specification says nothing. Fields that are zero take
	// those of [DefaultDefaults].
	Defaults Defaults
}

// Defaults hold where a specification says nothing.
type Defaults struct {
	// Regions are those to look at; without them a specification must name its own.
	Regions []string
	// Runtime is how long a workload of Kubernetes is expected to run that says nothing of
	// it; 0: it must say.
	Runtime time.Duration
	// Nodes are the machines of a cluster, for workloads that name none. The first that
	// fit are taken, see [Node].
	Nodes []Node
	// DiskGiB is the root disk of a machine, Disk what it is.
	DiskGiB int64
	Disk    price.Item
	// Interruptions is how often a spot machine is taken away; past runs change it.
	Interruptions spot.Interruptions
	// CheckpointEvery is the interval where a checkpoint is kept and none is given,
	// Restart the time from an interruption until work goes on.
	CheckpointEvery, Restart time.Duration
}

// Node is a kind of machine that a cluster has.
type Node struct {
	// Labels are the labels of the node. A workload that asks for another value of one does
	// not fit; a label that is not listed is unknown, and fits.
	Labels map[string]string `yaml:"labels"`
	// Type is the machine type.
	Type string `yaml:"instance_type" form:"required"`
	// Region is the region; empty is unknown.
	Region string `yaml:"region"`
	// Spot says whether it is bought as spot capacity.
	Spot bool `yaml:"spot"`
	// Whole says that Labels are all that the node has, because they were read from it.
	Whole bool `yaml:"-"`
}

// DefaultDefaults are the defaults of every estimate.
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
	// Completed says that the work was done. Runs that failed or were canceled say
	// nothing of how long it takes.
	Completed bool
	// Work is the time that it took without lost work and restarts.
	Work time.Duration
	// Machine is the type it ran on, Machines how many.
	Machine  string
	Machines int
	// SpotTime is how long each of its machines was up on spot capacity, and
	// Interruptions how often one was taken away.
	SpotTime      time.Duration
	Interruptions int
}

// New estimates a job or session. It chooses the machine and region that cost least in
// one case of two; where the transfer of data of unknown size is a part of the cost, it
// prefers regions that need none.
//
// It wraps [price.ErrUnpriced] where no allowed machine in an allowed region has a known
// price, or something that the machine needs has none. Other errors say what the specification lacks:
// a region, a GPU that some machine has, or a bound of its duration.
func New(s *spec.Spec, book *price.Book, p Params) (*Estimate, error) {
	return newEstimate(s, book, p)
}
