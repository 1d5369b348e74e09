package usage

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Sample is one row of recorded usage: the measurements of one GPU, or of a whole resource, at one
// time.
type Sample struct {
	Resource string
	// GPU is the GPU's index or UUID; empty if the row names none.
	GPU  string
	Time time.Time
	// Received is when the sample became known; zero means at its Time.
	Received time.Time
	// Description holds the optional columns about the resource; nil if the file has none. It is
	// shared between samples and must not be changed.
	Description *Description

	values [numSignals]float64
	has    uint32
	// unsupported are the signals that the row marks as not measurable.
	unsupported uint32
}

// Get returns the value of a signal and whether it was measured.
func (s *Sample) Get(sig Signal) (float64, bool) {
	if sig >= numSignals || s.has&(1<<sig) == 0 {
		return 0, false
	}
	return s.values[sig], true
}

// Set records the value of a signal.
func (s *Sample) Set(sig Signal, v float64) {
	if sig < numSignals {
		s.values[sig] = v
		s.has |= 1 << sig
	}
}

// Unsupported reports whether the row marks a signal as not measurable, as "[N/A]" or by a value
// without meaning on its device. An empty or missing field does not.
func (s *Sample) Unsupported(sig Signal) bool { return s.unsupported&(1<<sig) != 0 }

// derive fills signals that follow from others: the engine's activity is the utilization if NVML
// offers none, as on MIG instances.
func (s *Sample) derive() {
	if v, ok := s.Get(GREngine); ok && s.has&(1<<GPUUtil) == 0 {
		s.Set(GPUUtil, 100*v)
		s.unsupported &^= 1 << GPUUtil
	}
}

// Signals returns the measured signals as a bit set.
func (s *Sample) Signals() uint32 { return s.has }

// Description holds the properties of a resource that recorded usage states. An empty field is
// unknown.
type Description struct {
	Kind                inventory.Kind
	Lifetime            inventory.Lifetime
	Purpose             inventory.Purpose
	Type                string
	Team, Project, User string
	Environment         string
	Tags                map[string]string
	// GPUs is the number of GPUs of the resource, measured or not.
	GPUs inventory.Fact[int]
	// Launched is the time of the launch.
	Launched time.Time
}

// Format configures the reading of recorded usage.
type Format struct {
	// Name of the file, for errors.
	Name string
	// Map maps our columns to the file's: {"resource": "pod"}.
	Map map[string]string
	// Resource is the resource of every row if the file names none, as the output of nvidia-smi
	// does not.
	Resource string
	// Step is the time covered by one sample; 0 is unknown. See [InferStep].
	Step time.Duration
	// First is the time of the first sample of output of nvidia-smi without timestamps, which needs
	// a Step; zero is 1970.
	First time.Time
	// Epoch is the origin of times in plain seconds; zero is 1970.
	Epoch time.Time
	// Location is the time zone of times without one, as nvidia-smi writes them; nil is UTC for
	// nvidia-smi, and an error elsewhere.
	Location *time.Location
	// OnSummary, if set, is called once the file was read to its end.
	OnSummary func(Summary)
}

// Summary describes a file of recorded usage.
type Summary struct {
	// Rows counts samples, without Duplicates: rows with the resource, GPU and time of the previous
	// row and no new signal.
	Rows, Duplicates int
	Resources        int
	// Unsupported counts values that mean "not supported", or that are not measurements of their
	// device, such as the utilization of a MIG instance. Impossible counts values outside their
	// range, and ReadErrors values for which the row has an error.
	Unsupported, Impossible, ReadErrors int
	// BadRowCount counts bad rows, including those with impossible values, of which the rest is
	// read. BadRows are the first of them. TruncatedLine is the last line if it ends in the middle.
	BadRowCount   int
	BadRows       []*FileError
	TruncatedLine *FileError
	// Zoneless counts times without a time zone, and RepeatedHour those of them in an hour that
	// clocks went back over.
	Zoneless, RepeatedHour int
	// Untimed is true if the file has no times; they are derived from its order and the step.
	Untimed bool
	// First and Last are the earliest and the latest time of a sample; zero without any.
	First, Last time.Time
	// Step is the median time between neighboring samples of one meter, from the first few thousand
	// of them; 0 if no meter has two.
	Step time.Duration
	// UnknownColumns are the columns of the file that were not read, in its order.
	UnknownColumns []string
}

// FileError is an error of a file of recorded usage.
type FileError struct {
	File string
	// Line counts from 1, including the header; in Parquet it is the row, from 1. 0 is the whole
	// file.
	Line int
	// Column counts fields from 1; 0 is the whole line.
	Column int
	// Reason states the error and what is expected.
	Reason string
	// Err is the cause, if any.
	Err error
}

// Error returns "usage.csv:17:3: gpu_util "abc" is not a number".
func (e *FileError) Error() string {
	at := e.File
	if at == "" {
		at = "usage"
	}
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", at, e.Line)
		if e.Column > 0 {
			at = fmt.Sprintf("%s:%d", at, e.Column)
		}
	}
	if e.Err != nil {
		return at + ": " + e.Reason + ": " + e.Err.Error()
	}
	return at + ": " + e.Reason
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }
