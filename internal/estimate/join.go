package estimate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Join adds up the estimates of several workloads that one file starts, such as the
// templates of a workflow, under the file's name. Its P95 is the sum of theirs: an upper
// bound, because not all go badly together. Owner and purpose are those that all share.
// One estimate is returned as it is; none is an error.
func Join(name string, all []*Estimate) (*Estimate, error) {
	switch len(all) {
	case 0:
		return nil, fmt.Errorf("estimate %s: there is nothing to estimate", name)
	case 1:
		return all[0], nil
	}
	e := &Estimate{Schema: Schema, Kind: all[0].Kind, Name: name, Owner: all[0].Owner, Purpose: all[0].Purpose, GPUs: map[string]int{},
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
		}{{&e.Assumptions, x.Assumptions}, {&e.CoverageNotes, x.CoverageNotes}, {&e.Changes, x.Changes}, {&e.Unknown, x.Unknown}, {&e.Open, x.Open}} {
			for _, line := range part.from {
				*part.to = append(*part.to, x.Name+": "+line)
			}
		}
		for gpu, n := range x.GPUs {
			e.GPUs[gpu] += n
		}
		e.Machines += x.Machines
		e.longest += x.Longest()
		if e.Owner != x.Owner {
			e.Owner = common(e.Owner, x.Owner)
		}
		if e.Purpose != x.Purpose {
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
	e.Title = fmt.Sprintf("%s: %s, at most %s, for %s", name, e.P50.Dollars(), e.P95.Dollars(), plain.Count(len(all), "workload"))
	return e, nil
}

// Longest is the longest that the work is expected to take, or that it can run where
// something ends it: of several workloads all of them together, because they may follow
// one another. It is 0 for a plan of Terraform.
func (e *Estimate) Longest() time.Duration {
	if d := e.Duration; d != nil {
		return max(d.limit, d.p95)
	}
	return e.longest
}

// common is what two owners share.
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
