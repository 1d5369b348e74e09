package mig

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Options configure a plan. The zero Options is the plain plan.
type Options struct {
	// DoubleMemory allows profiles with double memory.
	DoubleMemory bool
	// KeepGPUs keeps today's GPUs in use: only new ones count, and nothing moves just to empty one.
	KeepGPUs bool
	// Effort bounds the search in units of about half a nanosecond; 0 means 6e9. A plan that could
	// not be proven within it says so.
	Effort int64
}

const defaultEffort = 6_000_000_000

// Pack places workloads on as few empty GPUs as possible if [Report].Optimal, else close to
// LowerBound. Workloads that fit no instance, or not the available GPUs, are in Unplaced, which is
// minimal too. Without workloads the plan is empty.
//
// It returns an error for workloads or models out of range, and the context's error.
func Pack(ctx context.Context, fleet Fleet, workloads []Workload, o Options) (Report, error) {
	r, err := plan(ctx, fleet, nil, workloads, o)
	if err != nil {
		return Report{}, fmt.Errorf("pack workloads: %w", err)
	}
	return r, nil
}

// Rearrange starts from today's placements and uses as few GPUs as possible, then as few moves as
// possible. A placement whose workload is not in wanted stays unchanged; if fewer instances of a
// workload are wanted, the rest is released, emptiest GPUs first. Instances with media engines
// never move, and neither does running work for lack of room elsewhere.
//
// It returns an error for illegal placements, for workloads out of range, and the context's error.
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
		best, err := p.decide(ctx)
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

// planner converts workloads and placements to a program, and its solution to GPUs.
type planner struct {
	program
	fleet   Fleet
	options Options
	today   []Placed
	layouts *layouts
	// fate is the class of each of today's placements, or one of the constants below.
	fate []int
	// stays reports for each placement whether its instance suffices for its workload.
	stays []bool
	// index finds the class of what fits the same profiles.
	index map[string]int
	// numbers are today's placements that may stay, by kind and GPU, in the order of
	// the kind's home.
	numbers [][][]int
	total   int
	names   []string // of the workloads wanted, in order
	// unfit are workloads that fit into no instance, full those without room, tooSmall those that
	// stay in an instance that they outgrew.
	unfit, full, tooSmall []Unplaced
	gpus                  []*used
	// stranded are today's placements that found no room.
	stranded []int
}

// What becomes of placements that are of no class.
const (
	released = -1
	fixed    = -2 // it stays whatever happens
)

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

// seat is a new instance and its user.
type seat struct {
	spot
	class int
	unit  unit
}

// check refuses invalid input.
func (p *planner) check(wanted []Workload) error {
	if len(p.fleet) == 0 {
		return fmt.Errorf("no GPU to place workloads on: name one, such as %s", models[2].Name)
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
			return fmt.Errorf("workload %.60q appears twice", w.Name)
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
			return fmt.Errorf("the fleet has %d %s, but the current placements use %d", g.Count, g.Model.Name, here)
		}
	}
	return nil
}

// need is a workload's requirement for an instance.
type need struct {
	gib    float64
	slices int
}

func (n need) String() string {
	return strconv.FormatFloat(n.gib, 'f', -1, 64) + " GiB and " + plain.Count(n.slices, "compute slice")
}

// build creates classes and kinds. Pinned placements may not move.
func (p *planner) build(wanted []Workload, pinned map[int]bool) {
	p.program = program{}
	p.unfit, p.full, p.tooSmall, p.gpus, p.stranded, p.numbers = nil, nil, nil, nil, nil, nil
	p.index, p.fate, p.stays = map[string]int{}, make([]int, len(p.today)), make([]bool, len(p.today))
	for _, g := range p.fleet {
		p.geometry(p.layouts.geos[g.Model.Name])
	}
	for _, id := range p.layouts.order {
		p.geometry(p.layouts.gpus[id].geo)
	}
	running := map[string][]int{}
	for i, t := range p.layouts.placed {
		running[t.Workload] = append(running[t.Workload], i)
	}
	named := map[string]bool{}
	for _, w := range wanted {
		named[w.Name] = true
		p.want(w, running[w.Name], pinned)
	}
	for i, t := range p.layouts.placed {
		if named[t.Workload] {
			continue
		}
		g, s := p.placed(i)
		p.stays[i] = true
		if p.fate[i] = fixed; !pinned[i] && !g.Profiles[s.profile].MediaEngines {
			p.fate[i] = p.class(p.fitsLike(g, s.profile), true)
			p.add(p.fate[i], unit{t.Workload, i})
		}
	}
	p.addKinds()
}

// geometry returns the index of a geometry, adding new ones.
func (p *planner) geometry(g *geometry) int {
	i := slices.Index(p.geos, g)
	if i < 0 {
		i = len(p.geos)
		p.geos = append(p.geos, g)
	}
	return i
}

// class returns the class of workloads with the same fitting profiles, adding new ones.
func (p *planner) class(fits []uint32, today bool) int {
	key := fmt.Sprint(fits, today)
	c, ok := p.index[key]
	if !ok {
		c = len(p.classes)
		p.index[key] = c
		p.classes = append(p.classes, class{fits: fits, today: today})
	}
	return c
}

// add adds a workload to a class.
func (p *planner) add(c int, u unit) {
	p.classes[c].units = append(p.classes[c].units, u)
	p.classes[c].demand++
}

// want adds a workload with its present placements.
func (p *planner) want(w Workload, here []int, pinned map[int]bool) {
	n := need{w.MemoryGiB, w.ComputeSlices}
	fits, some := p.fits(n)
	if len(here) > w.Count {
		here = p.release(here, len(here)-w.Count)
	}
	small := 0
	for _, i := range here {
		g, s := p.placed(i)
		enough := g.Profiles[s.profile].ComputeSlices >= n.slices && g.atLeastGiB(s.profile) >= n.gib
		stuck := pinned[i] || (!some && !enough)
		if stuck && !enough {
			small++
		}
		p.stays[i] = enough
		if p.fate[i] = fixed; !stuck && !(enough && g.Profiles[s.profile].MediaEngines) {
			p.fate[i] = p.class(fits, true)
			p.add(p.fate[i], unit{w.Name, i})
		}
	}
	if small > 0 {
		why := "it needs " + n.String() + ": it stays in an instance that is too small, because no larger one has room"
		p.tooSmall = append(p.tooSmall, Unplaced{w.Name, small, why})
	}
	switch coming := w.Count - len(here); {
	case coming == 0:
	case some:
		c := p.class(fits, false)
		for range coming {
			p.add(c, unit{w.Name, -1})
		}
	default:
		p.unfit = append(p.unfit, Unplaced{w.Name, coming, p.whyNot(n)})
	}
}

// placed returns the GPU and spot of a present placement.
func (p *planner) placed(i int) (*geometry, spot) {
	l := p.layouts.gpus[p.layouts.placed[i].GPU]
	return l.geo, l.spots[slices.Index(l.numbers, i)]
}

// fits returns by geometry the profiles that meet a need.
func (p *planner) fits(n need) (fits []uint32, some bool) {
	for _, g := range p.geos {
		f := g.slim(g.fitting(n.gib, n.slices, p.options.DoubleMemory))
		fits, some = append(fits, f), some || f != 0
	}
	return fits, some
}

// fitsLike returns by geometry the profiles that can replace one in use.
func (p *planner) fitsLike(own *geometry, profile int) []uint32 {
	have := own.Profiles[profile]
	var out []uint32
	for _, g := range p.geos {
		var fits uint32
		switch {
		case g == own:
			for i, q := range g.Profiles {
				if !q.MediaEngines && q.ComputeSlices >= have.ComputeSlices && q.MemorySlices >= have.MemorySlices &&
					(i == profile || p.options.DoubleMemory || !q.DoubleMemory) {
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

// whyNot explains why a need fits no instance.
func (p *planner) whyNot(n need) string {
	var largest []string
	for _, g := range p.geos {
		top := g.Profiles[g.largest()]
		memory := strconv.FormatFloat(top.UsableGiB, 'f', -1, 64) + " GiB"
		if top.UsableGiB == 0 {
			memory = "unknown usable memory"
		}
		largest = append(largest, fmt.Sprintf("%s of %s has %s and %s", top.Name, g.Name, memory,
			plain.Count(top.ComputeSlices, "compute slice")))
	}
	return "it needs " + n.String() + "; the largest instance has less: " + strings.Join(largest, ", ")
}

// release selects n placements of a workload to release, from the emptiest GPUs, and returns the
// others.
func (p *planner) release(here []int, n int) []int {
	byFill := slices.Clone(here)
	slices.SortStableFunc(byFill, func(a, b int) int {
		used := func(i int) int { return len(p.layouts.gpus[p.layouts.placed[i].GPU].spots) }
		return cmp.Or(cmp.Compare(used(a), used(b)), cmp.Compare(b, a))
	})
	for _, i := range byFill[:n] {
		p.fate[i] = released
	}
	rest := slices.Clone(byFill[n:])
	slices.Sort(rest)
	return rest
}

// addKinds groups identical GPUs of today and adds new ones.
func (p *planner) addKinds() {
	kinds := map[string]int{}
	for _, id := range p.layouts.order {
		l := p.layouts.gpus[id]
		var home []stay
		var numbers []int
		var held uint8
		for j, i := range l.numbers {
			if p.fate[i] == fixed {
				held |= l.spots[j].slices
			}
			if p.fate[i] >= 0 && p.stays[i] {
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
		key := fmt.Sprint(p.geometry(l.geo), held, sorted)
		k, ok := kinds[key]
		if !ok {
			k = len(p.kinds)
			kinds[key] = k
			p.kinds = append(p.kinds, kind{geo: p.geometry(l.geo), fixed: held, home: sorted})
			p.numbers = append(p.numbers, nil)
		}
		p.kinds[k].stock++
		p.kinds[k].ids = append(p.kinds[k].ids, id)
		p.numbers[k] = append(p.numbers[k], names)
	}
	for _, g := range p.fleet {
		k := kind{geo: p.geometry(p.layouts.geos[g.Model.Name]), stock: unlimited}
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
		k.counted = len(k.ids) == 0 || (!p.options.KeepGPUs && k.fixed == 0)
		*k = newKind(*k, p.geos[k.geo])
	}
}
