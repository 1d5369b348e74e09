package mig

import "context"

// best is the best known solution, with bounds on all solutions.
type best struct {
	picks []pick
	// leftOut counts the unplaced workloads by class.
	leftOut []int
	// gpus counts used GPUs; gpusLower bounds the GPUs of all solutions that leave out as few, and
	// gpusProven reports that gpus is minimal.
	gpus, gpusLower int
	gpusProven      bool
	// unplaced counts newcomers that are left out, bounded from below by unplacedLowerBound.
	unplaced, unplacedLowerBound int
	// kept counts today's placements that stay; keptUpperBound bounds it for solutions with as few
	// GPUs, and keptProven reports that it is maximal.
	kept, keptUpperBound int
	keptProven           bool
	// searched reports that a proof needed a search.
	searched bool
}

// decide minimizes GPUs and then, with as many, the placements that move.
func (p *planner) decide(ctx context.Context) (best, error) {
	homes := 0
	for _, k := range p.kinds {
		homes += len(k.home) * max(0, k.stock)
	}
	p.price, p.gain, p.limit = 1, 0, unlimited
	p.weigh(p.most() + 1)
	fewest, err := p.solve(ctx, p.stay(), p.options.Effort)
	if err != nil {
		return best{}, err
	}
	b := best{
		picks: fewest.picks, leftOut: fewest.left, gpusProven: fewest.proven(), searched: fewest.cost > fewest.lower,
	}
	left := p.leaving(fewest.left)
	b.gpus = int(fewest.cost - left)
	if err := p.boundGPUs(ctx, &b, fewest); err != nil {
		return best{}, err
	}
	if homes == 0 {
		b.keptProven = true
		return b, nil
	}
	p.price, p.gain, p.limit = 0, 1, b.gpus
	p.weigh(int64(homes) + 1)
	start := p.again(fewest.solution)
	most, err := p.solve(ctx, start, p.options.Effort)
	if err != nil {
		return best{}, err
	}
	b.picks, b.leftOut = most.picks, most.left
	left = p.leaving(most.left)
	b.kept = int(left - most.cost)
	b.keptUpperBound = min(homes, int(left-most.lower))
	if b.keptProven = most.proven(); b.keptProven {
		b.keptUpperBound = b.kept
	}
	b.searched = b.searched || most.cost > most.lower
	return b, nil
}

// boundGPUs returns lower bounds of the GPUs and of what is left out.
func (p *planner) boundGPUs(ctx context.Context, b *best, fewest outcome) error {
	for c, n := range b.leftOut {
		if !p.classes[c].today {
			b.unplaced += n
		}
	}
	b.gpusLower, b.unplacedLowerBound = b.gpus, b.unplaced
	if b.gpusProven {
		return nil
	}
	b.gpusLower = int(max(0, fewest.lower-p.leaving(b.leftOut)))
	b.unplacedLowerBound = int(max(0, ceil(fewest.lower-p.most(), p.most()+1)))
	if b.unplaced == 0 {
		return nil
	}
	// With lower penalties for leaving out, the same bound is tighter for GPUs.
	p.weigh(1)
	r, err := p.relax(ctx, p.demand(), p.supply(), &work{p.options.Effort})
	if err != nil {
		return err
	}
	lower := p.proven(p.demand(), p.supply(), r, hope(r), &work{}).bound()
	b.gpusLower = max(b.gpusLower, int(lower)-b.unplaced)
	b.gpusProven = b.gpusLower >= b.gpus && b.unplacedLowerBound >= b.unplaced
	p.weigh(p.most() + 1)
	return nil
}

// most returns the number of GPUs that can be of use.
func (p *planner) most() int64 {
	var gpus, workloads int64
	for _, k := range p.kinds {
		if k.stock == unlimited {
			gpus += maxUnits
		} else {
			gpus += int64(k.stock)
		}
	}
	for _, c := range p.classes {
		workloads += int64(c.demand)
	}
	return min(gpus, workloads)
}

// weigh sets the penalties: leaving out a newcomer outweighs everything else, and a running
// workload all newcomers.
func (p *planner) weigh(newcomer int64) {
	coming := int64(0)
	for _, c := range p.classes {
		if !c.today {
			coming += int64(c.demand)
		}
	}
	for i := range p.classes {
		if c := &p.classes[i]; c.today {
			c.penalty = newcomer * (coming + 1)
		} else {
			c.penalty = newcomer
		}
	}
}

// leaving returns the penalty of what is left out.
func (p *program) leaving(left []int) (cost int64) {
	for c, n := range left {
		cost += int64(n) * p.classes[c].penalty
	}
	return cost
}

// again recomputes the cost of a solution.
func (p *program) again(s solution) solution {
	out := solution{cost: p.leaving(s.left)}
	for _, pk := range s.picks {
		pk.cost = p.cost(pk.kind, pk.kept)
		out.picks = append(out.picks, pk)
		out.cost += pk.cost * int64(pk.n)
	}
	return out
}
