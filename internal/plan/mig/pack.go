package mig

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Options are choices about a plan. The zero Options is the plain plan.
type Options struct {
	// DoubleMemory lets workloads take profiles with double memory.
	DoubleMemory bool
	// KeepGPUs keeps today's GPUs in use: only new ones count, and nothing moves just
	// to empty one.
	KeepGPUs bool
	// Effort bounds the search, in units of about half a nanosecond; 0 is 6e9, and
	// a plan that it did not suffice to prove says so.
	Effort int64
}

const defaultEffort = 6_000_000_000

// Pack places workloads on empty GPUs, on as few as it can: as few as possible
// where [Report].Optimal, else down to LowerBound. What fits into no instance, or
// not into the number of GPUs there is, is in Unplaced; as few as possible are.
// Without workloads the plan is empty.
//
// It returns an error for workloads or models out of range, and that of ctx.
func Pack(ctx context.Context, fleet Fleet, workloads []Workload, o Options) (Report, error) {
	r, err := plan(ctx, fleet, nil, workloads, o)
	if err != nil {
		return Report{}, fmt.Errorf("pack workloads: %w", err)
	}
	return r, nil
}

// Rearrange starts from today's placements: as few GPUs as possible, then as few
// moves as possible among plans with as few GPUs. A placement whose workload wanted
// does not name stays in use and needs as much as it has; where wanted asks for
// fewer of a workload than there are, the rest is released, from the emptiest GPUs
// first. An instance with media engines never moves, and neither does what runs
// today for want of room elsewhere.
//
// It returns an error for placements that the GPUs do not allow, for workloads out
// of range, and that of ctx.
func Rearrange(ctx context.Context, fleet Fleet, current []Placed, wanted []Workload, o Options) (Report, error) {
	if current == nil {
		current = []Placed{}
	}
	r, err := plan(ctx, fleet, current, wanted, o)
	if err != nil {
		return Report{}, fmt.Errorf("rearrange placements: %w", err)
	}
	return r, nil
}

func plan(ctx context.Context, fleet Fleet, current []Placed, wanted []Workload, o Options) (Report, error) {
	o.Effort = cmp.Or(o.Effort, defaultEffort)
	p := &planner{fleet: fleet, options: o, today: current}
	if err := p.check(wanted); err != nil {
		return Report{}, err
	}
	pinned := map[int]bool{}
	for {
		p.build(wanted, pinned)
		best, err := p.optimize(ctx)
		if err != nil {
			return Report{}, err
		}
		p.settle(best.picks)
		// What runs today is not ended for want of room: it stays as it is.
		if len(p.stranded) == 0 {
			return p.report(ctx, wanted, best)
		}
		for _, n := range p.stranded {
			pinned[n] = true
		}
	}
}

// planner turns workloads and placements into a program, and its solution into
// GPUs.
type planner struct {
	program
	fleet   Fleet
	options Options
	today   []Placed
	layouts *layouts
	// fate is the class of each of today's placements, -1 where it is released.
	fate []int
	// numbers are today's placements that may stay, by kind and GPU, in the order of
	// the kind's home.
	numbers [][][]int
	total   int
	names   []string // of the workloads wanted, in order
	// unfit is what fits into no instance, full what found no room, tooSmall what stays
	// in an instance that its workload outgrew.
	unfit, full, tooSmall []Unplaced
	gpus                  []*used
	// stranded are today's placements that found no room.
	stranded []int
}

// used is a GPU of the plan.
type used struct {
	geo    *geometry
	kind   int
	id     string
	layout *layout // nil for a GPU to come
	kept   []int   // today's placements that stay
	slots  []int   // new instances by class
	seats  []seat
}

// seat is a new instance and who takes it.
type seat struct {
	spot
	class int
	unit  unit
}

// check refuses what cannot be planned.
func (p *planner) check(wanted []Workload) error {
	if len(p.fleet) == 0 {
		return fmt.Errorf("there is no GPU to place on: name one, such as %s", models[2].Name)
	}
	var err error
	if p.layouts, err = newLayouts(p.fleet); err != nil {
		return err
	}
	for i, t := range p.today {
		if column, err := p.layouts.add(t); err != nil {
			return fmt.Errorf("placement %d: %s %w", i+1, column, err)
		}
	}
	p.total = len(p.today)
	names := map[string]bool{}
	for _, w := range wanted {
		if err := w.check(); err != nil {
			return fmt.Errorf("workload %.60q: %w", w.Name, err)
		}
		if names[w.Name] {
			return fmt.Errorf("workload %.60q is there twice", w.Name)
		}
		names[w.Name] = true
		p.names = append(p.names, w.Name)
		p.total += w.Count
		if most := maxUnits; p.total > most || (p.today != nil && p.total > maxPlaced) {
			if p.today != nil {
				most = maxPlaced
			}
			return fmt.Errorf("more than %d workloads: plan them in parts", most)
		}
	}
	for _, g := range p.fleet {
		here := 0
		for _, l := range p.layouts.gpus {
			if l.geo.Name == g.Model.Name {
				here++
			}
		}
		if g.Count < 0 || (g.Count > 0 && here > g.Count) {
			return fmt.Errorf("the fleet has %d %s, today's placements are on %d", g.Count, g.Model.Name, here)
		}
	}
	return nil
}

// need is what a workload asks of an instance.
type need struct {
	gib    float64
	slices int
}

func (n need) String() string {
	return strconv.FormatFloat(n.gib, 'f', -1, 64) + " GiB and " + counted(n.slices, "compute slice")
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// build sets up classes and kinds. pinned are placements that may not move.
func (p *planner) build(wanted []Workload, pinned map[int]bool) {
	p.program = program{}
	p.unfit, p.full, p.tooSmall, p.gpus, p.stranded, p.numbers = nil, nil, nil, nil, nil, nil
	index := map[*geometry]int{}
	geometryOf := func(g *geometry) {
		if _, ok := index[g]; !ok {
			index[g] = len(p.geos)
			p.geos = append(p.geos, g)
		}
	}
	for _, g := range p.fleet {
		geometryOf(p.layouts.geos[g.Model.Name])
	}
	for _, id := range p.layouts.order {
		geometryOf(p.layouts.gpus[id].geo)
	}
	p.fate = make([]int, len(p.today))
	stays := make([]bool, len(p.today))
	running := map[string][]int{}
	for i, t := range p.layouts.placed {
		running[t.Workload] = append(running[t.Workload], i)
	}
	classes := map[string]int{}
	classify := func(fits []uint32, today, pin bool, u unit) int {
		key := fmt.Sprint(fits, today)
		if pin {
			key, fits = "pinned "+strconv.Itoa(u.today), make([]uint32, len(p.geos))
		}
		c, ok := classes[key]
		if !ok {
			c = len(p.classes)
			classes[key] = c
			p.classes = append(p.classes, class{fits: fits, today: today})
		}
		p.classes[c].units = append(p.classes[c].units, u)
		p.classes[c].demand++
		return c
	}
	named := map[string]bool{"": false}
	for _, w := range wanted {
		named[w.Name] = true
		n := need{w.MemoryGiB, w.ComputeSlices}
		fits, any := p.fits(n)
		here := running[w.Name]
		if len(here) > w.Count {
			here = p.release(here, len(here)-w.Count)
		}
		small := 0
		for _, i := range here {
			g, s := p.placed(i)
			enough := g.Profiles[s.profile].ComputeSlices >= n.slices && g.atLeastGiB(s.profile) >= n.gib
			stuck := pinned[i] || (!any && !enough)
			if stuck && !enough {
				small++
			}
			stays[i] = enough || stuck
			p.fate[i] = classify(fits, true, stuck || (enough && g.Profiles[s.profile].MediaEngines), unit{w.Name, i})
		}
		if small > 0 {
			p.tooSmall = append(p.tooSmall, Unplaced{w.Name, small, "it needs " + n.String() + ": it stays in an instance that is too small, as there is no room in a larger one"})
		}
		for range w.Count - len(here) {
			if any {
				classify(fits, false, false, unit{w.Name, -1})
			}
		}
		if !any && w.Count > len(here) {
			p.unfit = append(p.unfit, Unplaced{w.Name, w.Count - len(here), p.whyNot(n)})
		}
	}
	for i, t := range p.layouts.placed {
		if !named[t.Workload] {
			g, s := p.placed(i)
			stays[i] = true
			p.fate[i] = classify(p.fitsLike(g, s.profile), true, pinned[i] || g.Profiles[s.profile].MediaEngines, unit{t.Workload, i})
		}
	}
	p.addKinds(index, stays)
}

// placed returns the GPU and the spot of one of today's placements.
func (p *planner) placed(i int) (*geometry, spot) {
	l := p.layouts.gpus[p.layouts.placed[i].GPU]
	return l.geo, l.spots[slices.Index(l.numbers, i)]
}

// fits returns by geometry the profiles that meet a need.
func (p *planner) fits(n need) (fits []uint32, any bool) {
	for _, g := range p.geos {
		f := g.slim(g.fitting(n.gib, n.slices, p.options.DoubleMemory))
		fits, any = append(fits, f), any || f != 0
	}
	return fits, any
}

// fitsLike returns by geometry the profiles that can stand in for one in use.
func (p *planner) fitsLike(own *geometry, profile int) []uint32 {
	have := own.Profiles[profile]
	var out []uint32
	for _, g := range p.geos {
		var fits uint32
		switch {
		case g == own:
			for i, q := range g.Profiles {
				if !q.MediaEngines && q.ComputeSlices >= have.ComputeSlices && q.MemorySlices >= have.MemorySlices && (i == profile || p.options.DoubleMemory || !q.DoubleMemory) {
					fits |= 1 << i
				}
			}
		case have.UsableGiB > 0:
			fits = g.fitting(have.UsableGiB, have.ComputeSlices, p.options.DoubleMemory)
		}
		out = append(out, g.slim(fits))
	}
	return out
}

// whyNot says why a need fits into no instance.
func (p *planner) whyNot(n need) string {
	var largest []string
	for _, g := range p.geos {
		top := g.Profiles[g.largest()]
		memory := strconv.FormatFloat(top.UsableGiB, 'f', -1, 64) + " GiB"
		if top.UsableGiB == 0 {
			memory = "usable memory that is not known"
		}
		largest = append(largest, fmt.Sprintf("%s of %s has %s and %s", top.Name, g.Name, memory, counted(top.ComputeSlices, "compute slice")))
	}
	return "it needs " + n.String() + ", and the largest instance, " + strings.Join(largest, ", ") + ", is not known to have that"
}

// release picks n of a workload's placements to let go, from the emptiest GPUs, and
// returns the others.
func (p *planner) release(here []int, n int) []int {
	byFill := slices.Clone(here)
	slices.SortStableFunc(byFill, func(a, b int) int {
		used := func(i int) int { return len(p.layouts.gpus[p.layouts.placed[i].GPU].spots) }
		return cmp.Or(cmp.Compare(used(a), used(b)), cmp.Compare(b, a))
	})
	for _, i := range byFill[:n] {
		p.fate[i] = -1
	}
	rest := slices.Clone(byFill[n:])
	slices.Sort(rest)
	return rest
}

// addKinds groups today's GPUs that are alike and adds those to come.
func (p *planner) addKinds(index map[*geometry]int, stays []bool) {
	kinds := map[string]int{}
	for _, id := range p.layouts.order {
		l := p.layouts.gpus[id]
		var home []stay
		var numbers []int
		for j, i := range l.numbers {
			if p.fate[i] >= 0 && stays[i] {
				home, numbers = append(home, stay{p.fate[i], l.spots[j].slices}), append(numbers, i)
			}
		}
		order := make([]int, len(home))
		for j := range order {
			order[j] = j
		}
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(home[a].class, home[b].class), cmp.Compare(home[a].slices, home[b].slices))
		})
		sorted, names := make([]stay, len(home)), make([]int, len(home))
		for j, o := range order {
			sorted[j], names[j] = home[o], numbers[o]
		}
		key := fmt.Sprint(index[l.geo], sorted)
		k, ok := kinds[key]
		if !ok {
			k = len(p.kinds)
			kinds[key] = k
			p.kinds = append(p.kinds, kind{geo: index[l.geo], home: sorted})
			p.numbers = append(p.numbers, nil)
		}
		p.kinds[k].stock++
		p.kinds[k].ids = append(p.kinds[k].ids, id)
		p.numbers[k] = append(p.numbers[k], names)
	}
	for _, g := range p.fleet {
		k := kind{geo: index[p.layouts.geos[g.Model.Name]], stock: unlimited}
		if g.Count > 0 {
			k.stock = g.Count
			for _, l := range p.layouts.gpus {
				if l.geo.Name == g.Model.Name {
					k.stock--
				}
			}
		}
		p.kinds = append(p.kinds, k)
	}
	for i := range p.kinds {
		k := &p.kinds[i]
		k.counted = len(k.ids) == 0 || !p.options.KeepGPUs
		*k = newKind(*k, p.geos[k.geo])
	}
}
