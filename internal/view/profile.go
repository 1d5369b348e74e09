package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
)

// ProfileSchema is the schema of a profile.
const ProfileSchema = "curfew.profile/v1"

// Profile describes the use of a machine by a command.
type Profile struct {
	Schema string `json:"schema"`
	// Command is the command; empty for a process that ran before.
	Command []string `json:"command"`
	PID     int      `json:"pid"`
	// ExitCode is the exit code of the command; null: a signal ended it, or it was not ended.
	ExitCode *int      `json:"exit_code"`
	BeganAt  time.Time `json:"began_at"`
	Seconds  float64   `json:"seconds"`
	Samples  int       `json:"samples"`
	// CPUs is the number of CPUs that worked for it, MemoryGiB the memory of all its processes. Null: it ended
	// before two samples.
	CPUs      *ProfileRange `json:"cpus"`
	MemoryGiB *ProfileRange `json:"memory_gib"`
	// MachineCPUs and MachineMemoryGiB are those of this machine; null: unknown.
	MachineCPUs      int      `json:"machine_cpus"`
	MachineMemoryGiB *float64 `json:"machine_memory_gib"`
	// GPUs are those of this machine, whoever uses them.
	GPUs []ProfileGPU `json:"gpus"`
	// GPUsUnknown is the reason for missing measurements of GPUs; empty for none are missing.
	GPUsUnknown string `json:"gpus_unknown"`
	// Waits explains the samples in which the GPUs hardly computed; null: they are unmeasured, or there were
	// none.
	Waits *ProfileWaits `json:"gpu_waits"`
	// Rightsize is the judgment of the GPUs, with the causes of waiting; null without GPUs or --type.
	Rightsize *rightsize.Report `json:"rightsize"`
	// Fits are the smallest machines that fit, the cheapest first, in Region.
	Region string       `json:"region"`
	Fits   []ProfileFit `json:"fits"`
	Notes  []string     `json:"notes"`
}

// ProfileRange describes samples of a figure.
type ProfileRange struct {
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	Peak float64 `json:"peak"`
}

// ProfileGPU describes the use of one GPU meanwhile. Null is unmeasured.
type ProfileGPU struct {
	GPU       string        `json:"gpu"`
	Util      *ProfileRange `json:"util_percent"`
	MemoryGiB *ProfileRange `json:"memory_gib"`
	PowerW    *ProfileRange `json:"power_w"`
}

// ProfileWaits describes the samples in which no GPU computed for half of the time.
type ProfileWaits struct {
	// Share is their share of all samples, 0 to 1.
	Share float64 `json:"share"`
	// Causes are the most frequent first; their shares are of these samples.
	Causes []ProfileWait `json:"causes"`
}

// ProfileWait is one cause of waiting.
type ProfileWait struct {
	// Cause is cpus, cpu-core, storage or unknown.
	Cause string  `json:"cause"`
	Share float64 `json:"share"`
	Why   string  `json:"why"`
}

// ProfileFit is a machine that fits.
type ProfileFit struct {
	Type      string        `json:"type"`
	VCPUs     int           `json:"vcpus"`
	MemoryGiB float64       `json:"memory_gib"`
	GPUs      int           `json:"gpus"`
	HourlyUSD money.Dollars `json:"hourly_usd"`
	Source    string        `json:"source"`
	AsOf      time.Time     `json:"as_of"`
}
