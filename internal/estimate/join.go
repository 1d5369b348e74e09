package estimate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

// UnplacedError means that a workload needs GPUs whose type neither the file nor the cluster's
// nodes name.
type UnplacedError struct {
	Name string
	// GPUs is the number for each of Nodes pods.
	GPUs, Nodes int
}

// Error names the input to provide.
func (e *UnplacedError) Error() string {
	return fmt.Sprintf(
		"estimate %s: it says how many GPUs it needs and not which: name the GPU (nvidia.com/gpu.product) "+
			"or the machine (%s), or give the nodes of the cluster (estimate.nodes, --nodes)", e.Name, labelType)
}

// unread returns an estimate without amounts for unknown parts of a file, which makes the gate ask.
func unread(s *spec.Spec, unknown []string) *Estimate {
	return &Estimate{
		Title:         s.Name + ": its cost cannot be estimated",
		Kind:          string(s.Kind),
		Name:          s.Name,
		SpecHash:      s.Hash(),
		Owner:         s.Owner,
		Purpose:       s.Purpose,
		Lines:         []Line{},
		Assumptions:   []string{},
		CoverageNotes: []string{},
		Changes:       []string{},
		Unknown:       slices.Clone(unknown),
		Open:          slices.Clone(unknown),
		unread:        true,
	}
}

// File estimates the workloads of a file as one estimate under its name. Workloads with an unknown
// GPU and unread parts make the gate ask; if nothing can be estimated for that reason, it returns
// *UnplacedError.
func File(name string, specs []*spec.Spec, book *price.Book, p Params) (*Estimate, error) {
	parts := make([]*Estimate, 0, len(specs))
	estimated, unplaced := false, error(nil)
	for _, s := range specs {
		e, err := New(s, book, p)
		var which *UnplacedError
		switch {
		case errors.As(err, &which) && s.Digest != "":
			unplaced = err
			why := fmt.Sprintf(
				"what %d × %s of an unknown type cost: name the type (%s) or give the nodes of the cluster "+
					"(estimate.nodes, --nodes)", which.Nodes, plain.Count(which.GPUs, "GPU"), labelType)
			e = unread(s, append(slices.Clone(s.Unknown), why))
		case err != nil:
			return nil, err
		default:
			estimated = true
		}
		parts = append(parts, e)
	}
	if unplaced != nil && !estimated {
		return nil, unplaced
	}
	return Join(name, parts)
}

// Join adds up the estimates of several workloads of one file under its name. The P95 is the sum of
// theirs, an upper bound, because they rarely all run long together. Owner and purpose are the
// common ones. A single estimate is returned unchanged; an empty list is an error.
func Join(name string, all []*Estimate) (*Estimate, error) {
	switch len(all) {
	case 0:
		return nil, fmt.Errorf("estimate %s: there is nothing to estimate", name)
	case 1:
		return all[0], nil
	}
	known := all[0]
	if i := slices.IndexFunc(all, func(x *Estimate) bool { return !x.unread }); i >= 0 {
		known = all[i]
	}
	e := &Estimate{Kind: all[0].Kind, Name: name, Owner: known.Owner, Purpose: known.Purpose, GPUs: map[string]int{},
		Lines: []Line{}, Assumptions: []string{}, CoverageNotes: []string{}, Changes: []string{}, Unknown: []string{}}
	var hashes []string
	for _, x := range all {
		var err error
		if e.Hourly, err = e.Hourly.Add(x.Hourly); err != nil {
			return nil, fmt.Errorf("estimate %s: %w", name, err)
		}
		for _, l := range x.Lines {
			l.Resource = x.Name
			e.Lines = append(e.Lines, l)
		}
		for _, part := range []struct {
			to   *[]string
			from []string
		}{
			{&e.Assumptions, x.Assumptions}, {&e.CoverageNotes, x.CoverageNotes}, {&e.Changes, x.Changes},
			{&e.Unknown, x.Unknown}, {&e.Open, x.Open},
		} {
			for _, line := range part.from {
				*part.to = append(*part.to, x.Name+": "+line)
			}
		}
		for gpu, n := range x.GPUs {
			e.GPUs[gpu] += n
		}
		e.Machines += x.Machines
		e.longest += x.Longest()
		if e.Owner != x.Owner && x.unread == known.unread {
			e.Owner = common(e.Owner, x.Owner)
		}
		if e.Purpose != x.Purpose && x.unread == known.unread {
			e.Purpose = inventory.PurposeUnknown
		}
		hashes = append(hashes, x.SpecHash)
	}
	var err error
	if e.P50, e.P95, err = sum(e.Lines); err != nil {
		return nil, fmt.Errorf("estimate %s: %w", name, err)
	}
	slices.Sort(hashes)
	h := sha256.Sum256([]byte(strings.Join(hashes, "\n")))
	e.SpecHash = hex.EncodeToString(h[:])
	e.Title = fmt.Sprintf("%s: %s, at most %s, for %s", name, e.P50.Dollars(), e.P95.Dollars(),
		plain.Count(len(all), "workload"))
	return e, nil
}

// Longest returns the longest expected or limited runtime, summed over workloads because they may
// run in sequence. It is 0 for a Terraform plan.
func (e *Estimate) Longest() time.Duration {
	if d := e.Duration; d != nil {
		return max(d.limit, d.p95)
	}
	return e.longest
}

// common returns the equal fields of two owners.
func common(a, b inventory.Owner) inventory.Owner {
	same := func(x, y string) string {
		if x == y {
			return x
		}
		return ""
	}
	return inventory.Owner{Team: same(a.Team, b.Team), Project: same(a.Project, b.Project), User: same(a.User, b.User),
		Environment: same(a.Environment, b.Environment), CostCenter: same(a.CostCenter, b.CostCenter)}
}
