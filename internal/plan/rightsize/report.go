package rightsize

import (
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Schema names the shape of a [Report] in JSON.
const Schema = "curfew.plan.rightsize/v1"

// Params are the choices of a report on recorded usage.
type Params struct {
	// Options are the assumptions; tensor activity stands for compute where the file
	// holds no better, and other clouds are looked at, whatever they say.
	Options
	// Region is where the machines run; empty is us-east-1.
	Region string
	// Most is how many types that fit are listed of each resource; 0 is 5.
	Most int
	// Only leaves out resources of a file for which it answers false; nil takes all.
	Only func(resource string) bool
	// LeastSaving is the least share of its price that a move of a machine without accelerators saves.
	LeastSaving float64
}

// Report is the right-sizing result for recorded usage of all resources, in the shape of its JSON.
// Its own figures are of the resources together: percentiles over the samples of all their GPUs,
// memory of the fullest GPU, the least coverage, and the types that fit each of them. Where some
// resources could be judged, the others are left out.
type Report struct {
	Schema string `json:"schema"`
	Region string `json:"region"`
	Figures
	// Judged counts the resources with a verdict, Unknown the others.
	Judged  int `json:"resources_judged"`
	Unknown int `json:"resources_unknown"`
	// Resting counts the resources that are idle, held or stalled, which are in neither count.
	Resting int `json:"resources_resting"`
	// SavingUSD is a month's saving when each resource moves to the cheapest type that fits it;
	// null if none has a saving that is known.
	SavingUSD money.Dollars `json:"saving_usd_per_month"`
	Resources []Resource    `json:"resources"`
	// Hosts are the machines without accelerators, whose savings are in SavingUSD and of which the other
	// figures and counts do not speak.
	Hosts []Host `json:"cpu_machines"`
	// Assumptions are those behind the figures.
	Assumptions []string `json:"assumptions"`
	// CoverageNotes are the gaps of the data.
	CoverageNotes []string `json:"coverage_notes"`
	// Changes would change the answer.
	Changes []string `json:"changes"`
}

// Resource is a machine of the file.
type Resource struct {
	Name string `json:"resource"`
	Type string `json:"type"`
	Figures
	// Devices are its GPUs, those in the file, in order of name.
	Devices []Device `json:"per_gpu"`
	// Reasons are the usual causes of low utilization, each told from the series
	// where they allow it. Empty for GPUs that are well used or do nothing.
	Reasons []Reason `json:"reasons,omitempty"`
	// Warnings are remarks on the data.
	Warnings []string `json:"warnings"`
}

// Device has the measurements of one GPU. A figure that was not measured is null.
type Device struct {
	// GPU is the name of the GPU.
	GPU string `json:"gpu"`
	// Used is true if it computed at any time.
	Used bool `json:"used"`
	// UtilP50 is the median of its utilization in percent.
	UtilP50 *float64 `json:"gpu_util_p50"`
	// UtilP95 is the 95th percentile of its utilization in percent.
	UtilP95 *float64 `json:"gpu_util_p95"`
	// UtilMean is the mean of its utilization in percent.
	UtilMean *float64 `json:"gpu_util_mean"`
	// MemoryPeakGiB is the most memory that it used in GiB.
	MemoryPeakGiB *float64 `json:"memory_peak_gib"`
	// MemoryP95GiB is the 95th percentile of its memory in GiB.
	MemoryP95GiB *float64 `json:"memory_p95_gib"`
	Samples      int      `json:"samples"`
	// Coverage is the share of the time that samples cover, 0 to 1.
	Coverage float64 `json:"coverage"`
}

// Figures are measurements and the types that fit. A figure that was not measured is null.
type Figures struct {
	// Verdict is a [Verdict], "unknown" where samples cover too little, or the duty of a machine that
	// does not work: "idle", "held", "stalled".
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	// UtilP50, UtilP95 and UtilMean are GPU utilization in percent, over the samples
	// of all GPUs.
	UtilP50  *float64 `json:"gpu_util_p50"`
	UtilP95  *float64 `json:"gpu_util_p95"`
	UtilMean *float64 `json:"gpu_util_mean"`
	// MemoryPeakGiB and MemoryP95GiB are of the GPU that used most.
	MemoryPeakGiB *float64 `json:"memory_peak_gib"`
	MemoryP95GiB  *float64 `json:"memory_p95_gib"`
	// Samples counts utilization samples; Coverage is the least share of the time from
	// first to last sample, 0 to 1, that they cover on any GPU.
	Samples  int     `json:"samples"`
	Coverage float64 `json:"coverage"`
	// GPUs is the number of GPUs it has.
	GPUs int `json:"gpus"`
	// GPUsUsedMax is how many GPUs computed at any time; of several resources, the most of
	// any.
	GPUsUsedMax int `json:"gpus_used_max"`
	// ComputeTFLOPS is the demand of the busiest GPU at the 95th percentile, dense at 16 bits,
	// Basis its signal; null if there is no verdict.
	ComputeTFLOPS *float64 `json:"compute_tflops_p95"`
	Basis         string   `json:"compute_basis,omitempty"`
	// HourlyUSD is the list price of what there is now, on demand; null if the book has none.
	HourlyUSD money.Dollars `json:"usd_per_hour"`
	// Fits are the types that fit, cheapest first, and Fitting how many there are.
	Fits    []Fit `json:"candidates"`
	Fitting int   `json:"candidates_total"`
}

// Fit is a machine type that fits the measured work.
type Fit struct {
	Type        string `json:"type"`
	Cloud       string `json:"cloud"`
	Region      string `json:"region"`
	Accelerator string `json:"accelerator"`
	// GPUs is the number of GPUs it has.
	GPUs int `json:"gpus"`
	// VCPUs is the number of CPUs it has.
	VCPUs int `json:"vcpus"`
	// MemoryGiB is device memory of one GPU.
	MemoryGiB float64 `json:"gpu_memory_gib"`
	// MemoryShare is the share of it that the peak would fill, null if that was not measured;
	// ComputeShare the share of its throughput that the 95th percentile takes.
	MemoryShare  *float64 `json:"memory_share"`
	ComputeShare float64  `json:"compute_share"`
	// HourlyUSD is the price of an hour in dollars.
	HourlyUSD money.Amount `json:"usd_per_hour"`
	// SavingUSD is a month's saving at list price; null if today's price is unknown.
	SavingUSD money.Dollars `json:"saving_usd_per_month"`
	Source    string        `json:"source"`
	// AsOf is the date from which the price holds.
	AsOf string `json:"as_of"`
	// Lacks are features that the work may use and that it does not have: bf16, nvlink. It is listed
	// after all others, and no advice.
	Lacks []string `json:"lacks"`
	// Against are reasons against it.
	Against []string `json:"against"`
}

// Advised returns the type to move to: the cheapest that fits and lacks nothing.
func (f *Figures) Advised() (Fit, bool) {
	if len(f.Fits) == 0 || len(f.Fits[0].Lacks) > 0 {
		return Fit{}, false
	}
	return f.Fits[0], true
}

// Reason is one usual cause of low utilization.
type Reason struct {
	// Name is small-batches, cpu-bound-input, memory-bandwidth, transfers or
	// concurrency-limit.
	Name string `json:"name"`
	// Answer is true, false, or unknown where the series do not tell.
	Answer string `json:"answer"`
	Why    string `json:"why"`
	// Next is the next measurement or remedy; empty if the answer is no.
	Next string `json:"next,omitempty"`
}

// nextSteps are the measurement that decides on each cause, and its remedy.
var nextSteps = map[string][2]string{
	"small-batches": {
		"record sm_active and dram_active (dcgm-exporter: DCGM_FI_PROF_SM_ACTIVE, DCGM_FI_PROF_DRAM_ACTIVE)",
		"raise the batch size until device memory or latency limits it, or fuse small kernels (CUDA graphs)",
	},
	"cpu-bound-input": {
		"record the utilization of each core (mpstat -P ALL 5): one full core of many does not show in their mean",
		"add loader processes, decode on the GPU, or prepare the data before the run",
	},
	"memory-bandwidth": {
		"record dram_active (dcgm-exporter: DCGM_FI_PROF_DRAM_ACTIVE)",
		"a type with more memory bandwidth helps, and more compute does not; smaller data types halve the traffic",
	},
	"transfers": {
		"measure the bus (nvidia-smi dmon -s t, or DCGM_FI_PROF_PCIE_TX_BYTES and RX_BYTES)",
		"keep data on the machine, pin host memory, and overlap copies with compute",
	},
	"concurrency-limit": {
		"record the requests in each step, and how many are in flight at the server",
		"raise the server's limit of concurrent requests, or batch them",
	},
}

func reason(name string, a usage.Tristate, why string) Reason {
	r := Reason{Name: name, Answer: a.String(), Why: why}
	switch a {
	case usage.Unknown:
		r.Next = nextSteps[name][0]
	case usage.True:
		r.Next = nextSteps[name][1]
	}
	return r
}
