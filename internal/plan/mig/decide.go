package mig

import "context"

// best is a solution to both questions, and what is known of others.
type best struct {
	picks []pick
	// left counts by class what is left out.
	left []int
	// gpus is how many GPUs that count are used; gpusLower bounds them for all that
	// leave out as few, and gpusProven says that there are no fewer.
	gpus, gpusLower int
	gpusProven      bool
	// out is how many newcomers are left out, and outLower bounds it.
	out, outLower int
	// stays is how many of today's placements stay; staysUpper bounds them for all
	// with as few GPUs, and staysProven says that no more can.
	stays, staysUpper int
	staysProven       bool
	// searched says that a proof took looking at all plans.
	searched bool
}

// decide asks for as few GPUs as possible, and then, with as many, for as much to
// stay where it is as possible.
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
	b := best{picks: fewest.picks, left: fewest.left, gpusProven: fewest.proven(), searched: fewest.cost > fewest.lower}
	left := p.leaving(fewest.left)
	b.gpus = int(fewest.cost - left)
	if err := p.boundGPUs(ctx, &b, fewest); err != nil {
		return best{}, err
	}
	if homes == 0 {
		b.staysProven = true
		return b, nil
	}
	p.price, p.gain, p.limit = 0, 1, b.gpus
	p.weigh(int64(homes) + 1)
	start := p.again(fewest.solution)
	most, err := p.solve(ctx, start, p.options.Effort)
	if err != nil {
		return best{}, err
	}
	b.picks, b.left = most.picks, most.left
	left = p.leaving(most.left)
	b.stays = int(left - most.cost)
	b.staysUpper = min(homes, int(left-most.lower))
	if b.staysProven = most.proven(); b.staysProven {
		b.staysUpper = b.stays
	}
	b.searched = b.searched || most.cost > most.lower
	return b, nil
}

// boundGPUs says how few GPUs could do for as few left out, and how few that is.
func (p *planner) boundGPUs(ctx context.Context, b *best, fewest outcome) error {
	for c, n := range b.left {
		if !p.classes[c].today {
			b.out += n
		}
	}
	b.gpusLower, b.outLower = b.gpus, b.out
	if b.gpusProven {
		return nil
	}
	b.gpusLower = int(max(0, fewest.lower-p.leaving(b.left)))
	b.outLower = int(max(0, ceil(fewest.lower-p.most(), p.most()+1)))
	if b.out == 0 {
		return nil
	}
	// With less at stake for what is left out the same bound says more of the GPUs.
	p.weigh(1)
	r, err := p.relax(ctx, p.demand(), p.supply(), &work{p.options.Effort})
	if err != nil {
		return err
	}
	lower := p.proven(p.demand(), p.supply(), r, hope(r), &work{}).bound()
	b.gpusLower = max(b.gpusLower, int(lower)-b.out)
	b.gpusProven = b.gpusLower >= b.gpus && b.outLower >= b.out
	p.weigh(p.most() + 1)
	return nil
}

// most is how many GPUs there can be use for.
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

// weigh sets what leaving out costs: a newcomer more than anything else can, and
// what runs today more than all newcomers.
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

// leaving is what leaving out costs.
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
