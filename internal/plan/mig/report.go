package mig

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Schema names the shape of a [Report] and of [Counts] in JSON.
const Schema = "curfew.plan.mig/v1"

// Proof is how a plan is known to be the best.
type Proof string

// The proofs. Gap is none: fewer GPUs or moves may do, down to the bounds.
const (
	// ByBound: the plan needs no more than the lower bound.
	ByBound Proof = "bound"
	// BySearch: all plans were looked at, and none needs less.
	BySearch Proof = "search"
	Gap      Proof = "gap"
)

// Report is a plan, in the shape of its JSON.
type Report struct {
	Schema string `json:"schema"`
	// Fleet is the available fleet, as ParseFleet reads it.
	Fleet string `json:"gpu"`
	// DoubleMemory reports whether each instance gets twice the memory slices.
	DoubleMemory bool `json:"double_memory"`
	// Workloads counts the instances asked for, today's that stay included.
	Workloads int `json:"workloads"`
	// GPUsUsed are how many GPUs are used.
	GPUsUsed int `json:"gpus_used"`
	// LowerBound is proven: no plan that leaves out as few uses fewer GPUs.
	LowerBound int `json:"lower_bound"`
	// Optimal is true if no plan has fewer GPUs, or as few and fewer moves.
	Optimal bool `json:"optimal"`
	// Proof is the proof of the answer.
	Proof Proof `json:"proof"`
	GPUs  []GPU `json:"gpus"`
	// Unplaced are the workloads that do not fit, with reasons.
	Unplaced []Unplaced `json:"unplaced"`
	// Moves are of today's placements, in order; null if the plan starts from empty GPUs.
	// MovesLowerBound is proven for plans with as few GPUs; what goes by way of a spare placement
	// is one move in it.
	Moves           []Move `json:"moves"`
	MovesLowerBound *int   `json:"moves_lower_bound"`
	// Released are current instances that no workload needs.
	Released []Released `json:"released,omitempty"`
	// Steps are the steps to carry out, in an order in which no two instances ever overlap;
	// Commands are the same for a shell.
	Steps    []Step   `json:"steps"`
	Commands []string `json:"commands"`
	// Cost is the cost of the GPUs.
	Cost *Cost `json:"cost,omitempty"`
	// Advice are remarks on sharing.
	Advice []Advice `json:"advice"`
	// Notes say, for people, what the plan rests on and what it leaves behind.
	Notes []string `json:"notes,omitempty"`
}

// GPU is a GPU that the plan uses.
type GPU struct {
	// GPU is the id for nvidia-smi -i. GPUs to come are numbered from 0, today's ids
	// left out.
	GPU        string      `json:"gpu"`
	Model      string      `json:"model"`
	Placements []Placement `json:"placements"`
	// Room is the profiles that still fit, the largest first.
	Room []string `json:"room,omitempty"`
}

// Placement is an instance of a plan.
type Placement struct {
	Profile string `json:"profile"`
	// Start is the first memory slice, Size how many there are.
	Start int `json:"start"`
	Size  int `json:"size"`
	// Workload is the user of the instance; empty is unknown.
	Workload string `json:"workload"`
	// Instance is the id of the GPU instance; empty if it is unknown.
	Instance string `json:"instance,omitempty"`
}

// Unplaced is workloads without the instance they need.
type Unplaced struct {
	Workload string `json:"workload"`
	Count    int    `json:"count"`
	Why      string `json:"why"`
}

// Released is an instance that is let go.
type Released struct {
	Workload string `json:"workload"`
	Site
}

// report writes the plan down.
func (p *planner) report(ctx context.Context, wanted []Workload, b best) (Report, error) {
	r := Report{
		Schema: Schema, Fleet: p.fleet.String(), DoubleMemory: p.options.DoubleMemory, GPUsUsed: len(p.gpus),
		GPUs: []GPU{},
	}
	for _, c := range p.classes {
		r.Workloads += c.demand
	}
	for _, f := range p.fate {
		if f == fixed {
			r.Workloads++
		}
	}
	for _, u := range p.unfit {
		r.Workloads += u.Count
	}
	r.Unplaced = append([]Unplaced{}, slices.Concat(p.unfit, p.full, p.tooSmall)...)
	for _, u := range p.gpus {
		r.GPUs = append(r.GPUs, p.written(u))
	}
	seq := p.sequence()
	r.Steps, r.Commands = seq.steps, Commands(seq.steps)
	if p.today != nil {
		r.Moves = append([]Move{}, seq.moves...)
	}
	for i, f := range p.fate {
		if t := p.layouts.placed[i]; f == released {
			r.Released = append(r.Released, Released{t.Workload, Site{t.GPU, t.Profile, t.Start}})
		}
	}
	if err := p.prove(ctx, &r, b); err != nil {
		return Report{}, err
	}
	r.Notes = p.notes(r)
	if b.unplacedLowerBound < b.unplaced {
		r.Notes = append(r.Notes, fmt.Sprintf("%s found no room; a better plan may leave out fewer, but at least %d",
			plain.Count(b.unplaced, "workload"), b.unplacedLowerBound))
	}
	var err error
	r.Advice, err = p.advise(ctx, wanted, r)
	return r, err
}

// written writes one GPU down.
func (p *planner) written(u *used) GPU {
	g := GPU{GPU: u.id, Model: u.geo.Name}
	free := u.geo.full
	add := func(s spot, workload, instance string) {
		q := u.geo.Profiles[s.profile]
		g.Placements = append(g.Placements, Placement{q.Name, s.start, q.MemorySlices, workload, instance})
		free &^= s.slices
	}
	for _, i := range u.kept {
		_, s := p.placed(i)
		add(s, p.layouts.placed[i].Workload, p.layouts.placed[i].Instance)
	}
	for _, s := range u.seats {
		add(s.spot, s.unit.workload, "")
	}
	slices.SortFunc(g.Placements, func(a, b Placement) int { return cmp.Compare(a.Start, b.Start) })
	for i, q := range slices.Backward(u.geo.Profiles) {
		for _, s := range u.geo.spots {
			if s.profile == i && s.slices&^free == 0 && !q.MediaEngines &&
				(p.options.DoubleMemory || !q.DoubleMemory) {
				g.Room = append(g.Room, q.Name)
				free &^= s.slices
			}
		}
	}
	return g
}

// prove adds the proven quality of the plan.
func (p *planner) prove(ctx context.Context, r *Report, b best) error {
	switch r.Optimal = b.gpusProven && b.keptProven; {
	case !r.Optimal:
		r.Proof = Gap
	case b.searched:
		r.Proof = BySearch
	default:
		r.Proof = ByBound
	}
	if r.Moves != nil {
		moves := -b.keptUpperBound
		for _, f := range p.fate {
			if f >= 0 {
				moves++
			}
		}
		r.MovesLowerBound = &moves
	}
	held := 0 // GPUs on which something has to stay
	for _, k := range p.kinds {
		if k.fixed != 0 {
			held += len(k.ids)
		}
	}
	if r.LowerBound = b.gpusLower + held; !p.options.KeepGPUs {
		return nil
	}
	// Of all GPUs, today's included, there is only what the relaxation tells.
	for k := range p.kinds {
		p.kinds[k].counted = p.kinds[k].fixed == 0
	}
	p.price, p.gain, p.limit = 1, 0, unlimited
	p.weigh(p.most() + 1)
	relaxed, err := p.relax(ctx, p.demand(), p.supply(), &work{p.options.Effort})
	if err != nil {
		return err
	}
	lower := p.proven(p.demand(), p.supply(), relaxed, hope(relaxed), &work{}).bound()
	r.LowerBound = held + int(max(0, lower-p.leaving(b.leftOut)))
	return nil
}

// notes list the assumptions of the plan and the work that it leaves.
func (p *planner) notes(r Report) []string {
	var out []string
	note := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, g := range p.geos {
		if g.Inferred {
			note("the placements of %s are inferred from A100 and H100 GPUs with the same profiles; check them with "+
				"nvidia-smi mig -lgipp", g.Name)
		}
		for _, q := range g.Profiles {
			if q.UsableGiB == 0 {
				note("the usable memory of %s on %s is unknown: the plan assumes that of the next smaller instance",
					q.Name,
					g.Name)
			}
		}
	}
	unnamed := 0
	for _, t := range p.layouts.placed {
		if t.Workload == "" {
			unnamed++
		}
	}
	if unnamed > 0 {
		note("%s today without a known workload: the plan treats each as fully used", plain.Count(unnamed, "instance"))
	}
	var fresh []string
	inUse := map[string]bool{}
	for _, u := range p.gpus {
		if inUse[u.id] = true; u.layout == nil && p.today != nil {
			fresh = append(fresh, u.id)
		}
	}
	if len(fresh) > 0 {
		note("GPUs %s are new: replace these numbers with the ids of free GPUs", strings.Join(fresh, ", "))
	}
	for _, id := range p.layouts.order {
		if !inUse[id] {
			note("GPU %s is empty afterwards: to turn MIG off, run nvidia-smi -i %s -mig 0", id, id)
		}
	}
	for _, m := range r.Moves {
		switch {
		case m.Via != nil:
			note("%s moves twice, because workloads swap places in a cycle", m.Workload)
		case m.Waits:
			note(
				"%s is stopped until its place is free, because workloads swap places in a cycle and no GPU has spare room",
				m.Workload)
		}
	}
	return append(out, "instances of one GPU share its PCIe link and its power limit")
}
