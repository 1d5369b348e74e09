package mig

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
)

// settle turns a solution into GPUs with placements, and says in stranded what of
// today found no place.
func (p *planner) settle(picks []pick) {
	next := make([]int, len(p.kinds))
	over := make([]int, len(p.classes))
	for c := range over {
		over[c] = -p.classes[c].demand
	}
	p.gpus = nil
	for _, pk := range picks {
		for range pk.n {
			u := &used{geo: p.geos[p.kinds[pk.kind].geo], kind: pk.kind, slots: slices.Clone(pk.slots)}
			if n := next[pk.kind]; n < len(p.kinds[pk.kind].ids) {
				u.id = p.kinds[pk.kind].ids[n]
				u.layout = p.layouts.gpus[u.id]
				for kept := pk.kept; kept != 0; kept &= kept - 1 {
					u.kept = append(u.kept, p.numbers[pk.kind][n][bits.TrailingZeros8(kept)])
				}
			}
			next[pk.kind]++
			for c, n := range pk.cover {
				over[c] += n
			}
			p.gpus = append(p.gpus, u)
		}
	}
	// GPUs that nothing was picked for stay in use where something has to stay.
	for k, kd := range p.kinds {
		for ; kd.fixed != 0 && next[k] < len(kd.ids); next[k]++ {
			id := kd.ids[next[k]]
			p.gpus = append(p.gpus, &used{
				geo: p.geos[kd.geo], kind: k, id: id, layout: p.layouts.gpus[id], slots: make([]int, len(p.classes)),
			})
		}
	}
	for _, u := range p.gpus {
		if u.layout != nil {
			for _, i := range u.layout.numbers {
				if p.fate[i] == fixed {
					u.kept = append(u.kept, i)
				}
			}
		}
	}
	// What is covered more often than asked for gives way, on the last GPUs first.
	for _, u := range slices.Backward(p.gpus) {
		for c := range u.slots {
			spare := min(u.slots[c], max(0, over[c]))
			u.slots[c] -= spare
			over[c] -= spare
		}
	}
	p.gpus = slices.DeleteFunc(p.gpus, func(u *used) bool {
		return len(u.kept) == 0 && !slices.ContainsFunc(u.slots, func(n int) bool { return n > 0 })
	})
	p.name()
	arranged := map[string][]seat{}
	for _, u := range p.gpus {
		kept, leaving := uint8(0), uint8(0)
		if u.layout != nil {
			for _, i := range u.kept {
				_, s := p.placed(i)
				kept |= s.slices
			}
			leaving = u.layout.used &^ kept
		}
		key := fmt.Sprint(u.kind, kept, leaving, u.slots)
		seats, ok := arranged[key]
		if !ok {
			seats = p.arrange(u, u.geo.full&^kept, leaving)
			arranged[key] = seats
		}
		u.seats = slices.Clone(seats)
	}
	p.seat()
}

// name orders GPUs as they were listed and numbers those to come on from 0.
func (p *planner) name() {
	slices.SortStableFunc(p.gpus, func(a, b *used) int {
		at := func(u *used) int {
			if u.layout == nil {
				return len(p.layouts.order) + u.kind
			}
			return slices.Index(p.layouts.order, u.id)
		}
		return cmp.Compare(at(a), at(b))
	})
	number := 0
	for _, u := range p.gpus {
		for u.id == "" {
			if id := strconv.Itoa(number); p.layouts.gpus[id] == nil {
				u.id = id
			}
			number++
		}
	}
}

// arrange finds where the new instances of a GPU go: off the slices that have to
// be emptied first where it can, then with the most room left, for the largest
// profiles first.
func (p *planner) arrange(u *used, free, leaving uint8) []seat {
	var items []int // class by class, the largest first
	for c, n := range u.slots {
		for range n {
			items = append(items, c)
		}
	}
	geo := p.kinds[u.kind].geo
	size := func(c int) int {
		return u.geo.Profiles[bits.TrailingZeros32(p.classes[c].fits[geo])].MemorySlices
	}
	slices.SortStableFunc(items, func(a, b int) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(a, b))
	})
	var best, now []seat
	var bestFree, bestOver uint8
	var place func(at int, free uint8)
	place = func(at int, free uint8) {
		if at == len(items) {
			over := uint8(0)
			for _, s := range now {
				over |= s.slices & leaving
			}
			order := cmp.Or(cmp.Compare(bits.OnesCount8(over), bits.OnesCount8(bestOver)),
				u.geo.compareRoom(bestFree, free))
			if best == nil || order < 0 {
				best, bestFree, bestOver = slices.Clone(now), free, over
			}
			return
		}
		for _, sp := range u.geo.spots {
			fits := p.classes[items[at]].fits[geo]&(1<<sp.profile) != 0
			// Equals go from left to right: their order means nothing.
			again := at > 0 && items[at-1] == items[at] && now[at-1].start > sp.start
			if !fits || again || sp.slices&^free != 0 {
				continue
			}
			now = append(now, seat{spot: sp, class: items[at]})
			place(at+1, free&^sp.slices)
			now = now[:at]
		}
	}
	place(0, free)
	return best
}

// compareRoom orders sets of free slices by how many of the largest profile fit,
// then of the next.
func (g *geometry) compareRoom(a, b uint8) int {
	for i := len(g.Profiles) - 1; i >= 0; i-- {
		if d := cmp.Compare(g.room[a][i], g.room[b][i]); d != 0 {
			return d
		}
	}
	return 0
}

// seat gives the new instances to workloads: to those that move first, on slices
// that are free today before others.
func (p *planner) seat() {
	kept := make([]bool, len(p.today))
	for _, u := range p.gpus {
		for _, i := range u.kept {
			kept[i] = true
		}
	}
	left := map[string]int{}
	for c := range p.classes {
		var free, blocked []*seat
		for _, u := range p.gpus {
			for i := range u.seats {
				s := &u.seats[i]
				switch {
				case s.class != c:
				case u.layout != nil && u.layout.used&s.slices != 0:
					blocked = append(blocked, s)
				default:
					free = append(free, s)
				}
			}
		}
		seats := append(free, blocked...)
		var moving, coming []unit
		for _, u := range p.classes[c].units {
			switch {
			case u.today < 0:
				coming = append(coming, u)
			case !kept[u.today]:
				moving = append(moving, u)
			}
		}
		for i, u := range append(moving, coming...) {
			switch {
			case i < len(seats):
				seats[i].unit = u
			case u.today >= 0:
				p.stranded = append(p.stranded, u.today)
			default:
				left[u.workload]++
			}
		}
	}
	for _, name := range p.names {
		if n := left[name]; n > 0 {
			p.full = append(p.full, Unplaced{name, n, fmt.Sprintf("no room left on the available GPUs (%s)", p.fleet)})
		}
	}
}
