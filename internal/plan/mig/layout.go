package mig

import (
	"fmt"
	"strings"
)

// layouts collects placements by GPU and refuses illegal ones.
type layouts struct {
	fleet  Fleet
	gpus   map[string]*layout
	order  []string
	placed []Placed
	geos   map[string]*geometry
}

// layout is the present state of one GPU.
type layout struct {
	id    string
	geo   *geometry
	used  uint8
	media bool
	// spots go with the placements, by their number in layouts.placed.
	spots   []spot
	numbers []int
}

func newLayouts(fleet Fleet) (*layouts, error) {
	l := &layouts{fleet: fleet, gpus: map[string]*layout{}, geos: map[string]*geometry{}}
	for _, g := range fleet {
		if _, err := l.geometry(g.Model); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *layouts) geometry(m Model) (*geometry, error) {
	if g := l.geos[m.Name]; g != nil {
		return g, nil
	}
	g, err := newGeometry(m)
	if err == nil {
		l.geos[m.Name] = g
	}
	return g, err
}

func (l *layouts) modelOf(gpu string) Model { return l.gpus[gpu].geo.Model }

// last is the size of the placement added last.
func (l *layouts) last() int {
	p := l.placed[len(l.placed)-1]
	g := l.gpus[p.GPU]
	return g.geo.Profiles[g.spots[len(g.spots)-1].profile].MemorySlices
}

// add adds a placement; errors refer to column.
func (l *layouts) add(p Placed) (column string, err error) {
	if err := checkGPU(p.GPU); err != nil {
		return "gpu", err
	}
	if p.Workload != "" {
		if err := checkName(p.Workload); err != nil {
			return "workload", err
		}
	}
	if strings.Trim(p.Instance, "0123456789") != "" || len(p.Instance) > 9 {
		return "instance", fmt.Errorf("%.40q is not the number of a GPU instance", p.Instance)
	}
	if len(l.placed) == maxPlaced {
		return "gpu", fmt.Errorf("is one of more than %d placements", maxPlaced)
	}
	g := l.gpus[p.GPU]
	if g == nil || p.Model != "" {
		m, err := l.fleet.model(p.Model)
		if err != nil {
			return "model", err
		}
		if g != nil && g.geo.Name != m.Name {
			return "model", fmt.Errorf("%s: GPU %s is a %s in an earlier placement", m.Name, p.GPU, g.geo.Name)
		}
		if g == nil {
			geo, err := l.geometry(m)
			if err != nil {
				return "model", err
			}
			g = &layout{id: p.GPU, geo: geo}
		}
	}
	i := g.geo.index(p.Profile)
	if i < 0 {
		var names []string
		for _, q := range g.geo.Profiles {
			names = append(names, q.Name)
		}
		return "profile", fmt.Errorf("%.40q is not a profile of %s: %s", p.Profile, g.geo.Name,
			strings.Join(names, " "))
	}
	s, ok := g.geo.spot(i, p.Start)
	switch {
	case !ok:
		return "start", fmt.Errorf("%d is not a start of %s: %v", p.Start, p.Profile, g.geo.Profiles[i].Starts)
	case s.slices&g.used != 0:
		return "start", fmt.Errorf("%d overlaps an earlier placement on GPU %s", p.Start, p.GPU)
	case g.media && g.geo.Profiles[i].MediaEngines:
		return "profile", fmt.Errorf("%s is the second +me instance on GPU %s", p.Profile, p.GPU)
	}
	if l.gpus[p.GPU] == nil {
		l.gpus[p.GPU] = g
		l.order = append(l.order, p.GPU)
	}
	p.Model = g.geo.Name
	g.used |= s.slices
	g.media = g.media || g.geo.Profiles[i].MediaEngines
	g.spots, g.numbers = append(g.spots, s), append(g.numbers, len(l.placed))
	l.placed = append(l.placed, p)
	return "", nil
}
