package usage

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Sample is one row of recorded usage: what was measured of one GPU, or of a
// resource as a whole, at one time.
type Sample struct {
	Resource string
	// GPU is the GPU's index or UUID; empty where the row names none.
	GPU  string
	Time time.Time
	// Received is when the sample became known; zero where the file does not say, which
	// means at its Time.
	Received time.Time
	// Description is what optional columns say of the resource; nil where the file
	// has none of them. It is shared between samples and must not be changed.
	Description *Description

	values [numSignals]float64
	has    uint32
	// unsupported are the signals of which the row says that they cannot be measured.
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

// Unsupported says whether the row tells that a signal cannot be measured, as "[N/A]" or by a
// value that means nothing on its device. A field that is empty, or missing, tells nothing.
func (s *Sample) Unsupported(sig Signal) bool { return s.unsupported&(1<<sig) != 0 }

// derive completes what a source says in other words: the engine's activity is the
// utilization where NVML offers none, as on MIG instances.
func (s *Sample) derive() {
	if v, ok := s.Get(GREngine); ok && s.has&(1<<GPUUtil) == 0 {
		s.Set(GPUUtil, 100*v)
		s.unsupported &^= 1 << GPUUtil
	}
}

// Signals returns the signals that were measured, a bit for each.
func (s *Sample) Signals() uint32 { return s.has }

// Description is what recorded usage says of a resource itself. An empty field is
// not known.
type Description struct {
	Kind                inventory.Kind
	Lifetime            inventory.Lifetime
	Purpose             inventory.Purpose
	Type                string
	Team, Project, User string
	Environment         string
	Tags                map[string]string
	// GPUs is how many GPUs the resource has, measured or not.
	GPUs inventory.Fact[int]
	// Launched is when the resource was launched.
	Launched time.Time
}

// Format says how to read recorded usage.
type Format struct {
	// Name of the file, for errors.
	Name string
	// Map names the file's column for a column of ours: {"resource": "pod"}.
	Map map[string]string
	// Resource is the resource of every row where the file names none, as the
	// output of nvidia-smi does not.
	Resource string
	// Step is the time one sample stands for; 0 is unknown. See [InferStep].
	Step time.Duration
	// Epoch is what times in plain seconds count from; the zero Epoch is 1970.
	Epoch time.Time
	// Location is where times without a zone were written, as nvidia-smi writes
	// them; nil is UTC for nvidia-smi, and an error elsewhere.
	Location *time.Location
	// Left, where it is not nil, is told what a file held once it is read to its end.
	Left func(Summary)
}

// Summary is what a file of recorded usage held.
type Summary struct {
	// Rows counts samples, without Duplicates: rows with the resource, GPU and time of
	// the row before them and no signal that it lacks.
	Rows, Duplicates int
	Resources        int
	// Unsupported counts values that were left out because they stand for "not supported", or
	// mean nothing on their device, such as the utilization of a MIG instance. Impossible counts
	// those that cannot be true, and Failed those of which the row tells an error.
	Unsupported, Impossible, Failed int
	// Bad counts the rows that are wrong, impossible values included: what can be read of them
	// is. BadRows are the first of them. Cut is the last line where it ends in the middle.
	Bad     int
	BadRows []*FileError
	Cut     *FileError
	// Zoneless counts times without a time zone, Repeated those of them in an hour that clocks
	// went back over.
	Zoneless, Repeated int
	// First and Last are the earliest and the latest time of a sample; zero without
	// any.
	First, Last time.Time
	// Step is the median time between neighboring samples of one meter, from the
	// first few thousand of them; 0 when no meter has two.
	Step time.Duration
	// UnknownColumns are the columns of the file that were not read, in its order.
	UnknownColumns []string
}

// FileError is a file that cannot be read as recorded usage.
type FileError struct {
	File string
	// Line counts from 1, the header included; in Parquet it is the row, from 1.
	// 0 is the file as a whole.
	Line int
	// Column counts fields from 1; 0 is the whole line.
	Column int
	// Reason says what is there and what is expected.
	Reason string
	// Err is the cause, where there is one.
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
