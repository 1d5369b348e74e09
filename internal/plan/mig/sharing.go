package mig

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
)

// Advice is another way to share the GPUs, and what it lacks.
type Advice struct {
	// Mode is mps, time-slicing, double-memory or whole-gpu.
	Mode string `json:"mode"`
	// GPUs is how many would do, by first fit and so perhaps not the fewest; null if that is
	// not the point.
	GPUs *int `json:"gpus"`
	// Serves is true if it needs fewer GPUs than the plan.
	Serves bool `json:"serves"`
	// When is the condition for its use, Lacks the missing isolation.
	When  string   `json:"when"`
	Lacks []string `json:"lacks"`
}

// mpsClients is the number of processes that share a device under MPS up to CUDA
// 13.0; it is 60 from then on (NVIDIA MPS documentation).
const mpsClients = 48

// advise computes the result of other ways of sharing on the largest GPU of the fleet. Under MPS
// processes run side by side, so memory, compute slices and clients have to fit; under time-slicing
// they take turns, and only memory has to.
func (p *planner) advise(ctx context.Context, wanted []Workload, r Report) ([]Advice, error) {
	out := []Advice{}
	on := slices.MaxFunc(p.fleet, func(a, b GPUs) int {
		return cmp.Compare(a.Model.Profiles[a.Model.largest()].UsableGiB,
			b.Model.Profiles[b.Model.largest()].UsableGiB)
	}).Model
	if memory := on.Profiles[on.largest()].UsableGiB; memory > 0 && p.today == nil && r.GPUsUsed > 0 {
		mps := firstFit(wanted, memory, on.ComputeSlices, mpsClients)
		turns := firstFit(wanted, memory, math.MaxInt, math.MaxInt)
		out = append(out, Advice{
			Mode: "mps", GPUs: &mps, Serves: mps < r.GPUsUsed,
			When: fmt.Sprintf(
				"on %s, for trusted processes of one owner, at most %d on a GPU (60 on CUDA later than 13.0)",
				on.Name, mpsClients),
			Lacks: []string{
				"memory is not isolated",
				"a fault in one process can end the others on the GPU",
				"dcgm-exporter does not attribute metrics to containers",
			},
		}, Advice{
			Mode: "time-slicing", GPUs: &turns, Serves: turns < r.GPUsUsed,
			When: fmt.Sprintf("on %s, for processes that compute occasionally and can wait for each other, such as "+
				"notebooks; their memory must fit at the same time", on.Name),
			Lacks: []string{
				"memory and faults are not isolated, and a process has no limits",
				"no process has a guaranteed share of the compute",
				"older versions of dcgm-exporter report one pod per GPU",
			},
		})
	}
	whole := 0
	for _, g := range r.GPUs {
		if m, err := p.fleet.model(g.Model); err == nil && len(g.Placements) == 1 &&
			g.Placements[0].Size == m.MemorySlices {
			whole++
		}
	}
	if whole > 0 {
		out = append(out, Advice{
			Mode: "whole-gpu", GPUs: &whole,
			When:  "the workload uses a whole GPU: without MIG it has a little more memory and all of the compute",
			Lacks: []string{},
		})
	}
	if double, err := p.doubled(ctx, wanted, r.GPUsUsed); err != nil {
		return nil, err
	} else if double != nil {
		out = append(out, *double)
	}
	return out, nil
}

// maxOpen is how many GPUs first fit looks at.
const maxOpen = 200

// firstFit counts the GPUs that workloads fill, the largest memory first. What fits
// on no GPU is in no count.
func firstFit(workloads []Workload, memory float64, slots, clients int) int {
	type gpu struct {
		memory         float64
		slots, clients int
	}
	var gpus []gpu
	closed := 0
	sorted := slices.Clone(workloads)
	slices.SortStableFunc(sorted, func(a, b Workload) int { return cmp.Compare(b.MemoryGiB, a.MemoryGiB) })
	for _, w := range sorted {
		if w.MemoryGiB > memory || w.ComputeSlices > slots {
			continue
		}
		for n, at := w.Count, closed; n > 0; at++ {
			if at == len(gpus) {
				gpus = append(gpus, gpu{memory, slots, clients})
				// The oldest is as full as it gets, or nearly so.
				closed = max(0, len(gpus)-maxOpen)
			}
			g := &gpus[at]
			fit := min(n, g.clients, g.slots/w.ComputeSlices, int(math.Min(g.memory/w.MemoryGiB, maxUnits)))
			g.memory -= float64(fit) * w.MemoryGiB
			g.slots -= fit * w.ComputeSlices
			g.clients -= fit
			n -= fit
		}
	}
	return len(gpus)
}

// doubled reports whether profiles with double memory would save GPUs.
func (p *planner) doubled(ctx context.Context, wanted []Workload, used int) (*Advice, error) {
	o := p.options
	if o.DoubleMemory || p.today != nil || len(p.full) > 0 {
		return nil, nil
	}
	o.DoubleMemory, o.Effort = true, o.Effort/10
	q := &planner{fleet: p.fleet, options: o}
	if err := q.check(wanted); err != nil {
		return nil, err
	}
	q.build(wanted, nil)
	if slices.EqualFunc(p.classes, q.classes, func(a, b class) bool { return slices.Equal(a.fits, b.fits) }) {
		return nil, nil
	}
	best, err := q.decide(ctx)
	if err != nil {
		return nil, err
	}
	q.settle(best.picks)
	n := len(q.gpus)
	if n >= used || len(q.full) > 0 {
		return nil, nil
	}
	return &Advice{
		Mode: "double-memory", GPUs: &n, Serves: true,
		When: "with profiles of one compute slice and double memory (--double-memory)", Lacks: []string{},
	}, nil
}
