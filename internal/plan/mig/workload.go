// Package mig divides GPUs into MIG instances: how many divisions a GPU has, on
// how few GPUs a set of workloads fits, with the fewest moves from today's
// placements, in which order the commands run, and when MPS or time-slicing would
// serve instead.
//
// A workload takes one instance of any profile with at least its memory and
// compute. Placements follow the table of [Models]; what it does not know is never
// taken for enough.
package mig

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Workload is a process, or several alike, that needs one instance each.
type Workload struct {
	Name string
	// MemoryGiB is the usable memory of an instance that a process needs, over 0.
	MemoryGiB float64
	// ComputeSlices is the number of compute slices it needs, 1 and up.
	ComputeSlices int
	// Count is how many of it run. At 0 none is wanted, and those of today's placements are
	// let go.
	Count int
}

// Placed is one instance of today.
type Placed struct {
	// GPU is the id that nvidia-smi -i takes; Model the GPU's, empty for the first of
	// the fleet.
	GPU, Model string
	Profile    string
	// Start is the first memory slice.
	Start int
	// Workload names who uses it. Empty is unknown: the instance counts as in use by
	// something that needs all of it.
	Workload string
	// Instance is the id of the GPU instance, as nvidia-smi mig -lgi prints it; empty if it is
	// unknown.
	Instance string
}

// GPUs are some of one model.
type GPUs struct {
	Model Model
	// Count is how many there are; 0 is as many as are needed.
	Count int
}

// Fleet lists the available GPUs. Among plans with equally many GPUs, one that uses those named
// first is preferred, though not at the price of a longer search.
type Fleet []GPUs

// ParseFleet reads GPU names with optional numbers, "A100-80GB:4,A30". It returns
// ErrNoGeometry for a GPU that is not in the table, and an error for one that is
// named twice.
func ParseFleet(text string) (Fleet, error) {
	var f Fleet
	for part := range strings.SplitSeq(text, ",") {
		name, number, limited := strings.Cut(strings.TrimSpace(part), ":")
		m, err := ModelNamed(name)
		if err != nil {
			return nil, fmt.Errorf("read GPUs %.80q: %w", text, err)
		}
		g := GPUs{Model: m}
		if limited {
			if g.Count, err = strconv.Atoi(number); err != nil || g.Count < 1 || g.Count > maxUnits {
				return nil, fmt.Errorf("read GPUs %.80q: %.40q is not a number from 1 to %d", text, number, maxUnits)
			}
		}
		for _, other := range f {
			if other.Model.Name == m.Name {
				return nil, fmt.Errorf("read GPUs %.80q: %s appears twice", text, m.Name)
			}
		}
		f = append(f, g)
	}
	return f, nil
}

// String writes the fleet as ParseFleet reads it.
func (f Fleet) String() string {
	names := make([]string, len(f))
	for i, g := range f {
		if names[i] = g.Model.Name; g.Count > 0 {
			names[i] += ":" + strconv.Itoa(g.Count)
		}
	}
	return strings.Join(names, ",")
}

func (f Fleet) model(name string) (Model, error) {
	for i, g := range f {
		if strings.EqualFold(g.Model.Name, name) || (name == "" && i == 0) {
			return g.Model, nil
		}
	}
	return ModelNamed(name)
}

// Bounds of what is planned at once: they keep sums within 64 bits, and time and
// memory within reason.
const (
	// maxUnits bounds workloads, counts added up.
	maxUnits = 100_000
	// maxPlaced bounds workloads together with today's placements.
	maxPlaced = 5_000
)

// maxName bounds the names of workloads and GPUs, in bytes.
const maxName = 200

// checkName refuses what would break a line of commands or of a report.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > maxName:
		return fmt.Errorf("has more than %d bytes", maxName)
	case strings.ContainsFunc(name, unicode.IsControl) || strings.ToValidUTF8(name, "") != name:
		return errors.New("has a control character or invalid UTF-8")
	}
	return nil
}

// checkGPU also refuses what a shell would not take as one word.
func checkGPU(id string) error {
	if err := checkName(id); err != nil {
		return err
	}
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-") != "" || id[0] == '-' {
		return fmt.Errorf("%.40q is not a GPU id: expected an index, a UUID or a PCI address", id)
	}
	return nil
}

func (w Workload) check() error {
	switch {
	case checkName(w.Name) != nil:
		return fmt.Errorf("name %w", checkName(w.Name))
	case !(w.MemoryGiB > 0) || w.MemoryGiB > maxGiB:
		return fmt.Errorf("memory_gib %v is not between 0 and %d", w.MemoryGiB, maxGiB)
	case w.ComputeSlices < 1 || w.ComputeSlices > math.MaxInt16:
		return fmt.Errorf("compute_slices %d: expected 1 or more", w.ComputeSlices)
	case w.Count < 0 || w.Count > maxUnits:
		return fmt.Errorf("count %d is not between 0 and %d", w.Count, maxUnits)
	}
	return nil
}

// maxGiB is more than any device has; a larger figure is a slip of unit.
const maxGiB = 1 << 20
