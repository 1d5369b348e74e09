package mig

import (
	"cmp"
	"slices"
)

// Do is the action of a step.
type Do string

// The steps. Drain ends the processes of a workload, with a checkpoint where it can;
// MIG cannot move a running process.
const (
	// DrainGPU ends every process on a GPU: enabling MIG resets it.
	DrainGPU Do = "drain-gpu"
	Enable   Do = "enable"
	Create   Do = "create"
	Drain    Do = "drain"
	Start    Do = "start"
	Destroy  Do = "destroy"
)

// Step is one thing to do.
type Step struct {
	// Do is the action.
	Do Do `json:"do"`
	Site
	// Workload is the workload concerned; empty is unknown or none.
	Workload string `json:"workload,omitempty"`
	// Instance is the id of the GPU instance to destroy, where it is known.
	Instance string `json:"instance,omitempty"`
}

// Site is an instance on a GPU. Profile is empty if the whole GPU is meant.
type Site struct {
	// GPU is the id of the GPU.
	GPU     string `json:"gpu"`
	Profile string `json:"profile,omitempty"`
	// Start is the first memory slice.
	Start int `json:"start"`
}

// Move is a workload that changes its instance.
type Move struct {
	Workload string `json:"workload"`
	// From is where it is.
	From Site `json:"from"`
	// To is where it goes.
	To Site `json:"to"`
	// Via is a spare placement in between, where places are changed in a circle; that
	// is one more restart.
	Via *Site `json:"via,omitempty"`
	// Waits is true if the workload stands still until its place is free: there is a
	// circle and no spare placement.
	Waits bool `json:"waits,omitempty"`
}

// moving is a move on its way.
type moving struct {
	Move
	class int
	// source holds the slices of the instance it is in now, 0 while it waits.
	source, target uint8
	at             Site
	instance       string
	again          bool // it has been in a spare placement
}

// sequence orders what leads from today to the plan, so that no two instances ever
// overlap and nothing is destroyed before it is drained.
type sequence struct {
	*planner
	// held are the slices of every GPU that instances are on.
	held map[string]uint8
	geos map[string]*geometry
	ids  []string
	// whole are the GPUs on which MIG has to be enabled before anything else.
	whole map[string]bool
	steps []Step
	moves []Move
}

func (p *planner) sequence() *sequence {
	s := &sequence{
		planner: p, held: map[string]uint8{}, geos: map[string]*geometry{}, whole: map[string]bool{}, steps: []Step{},
	}
	for _, id := range p.layouts.order {
		l := p.layouts.gpus[id]
		s.ids, s.held[id], s.geos[id] = append(s.ids, id), l.used, l.geo
	}
	for i := range p.today {
		if p.fate[i] == released {
			t := p.layouts.placed[i]
			_, sp := p.placed(i)
			s.vacate(Site{t.GPU, t.Profile, t.Start}, sp.slices, t.Workload, t.Instance)
		}
	}
	for _, u := range p.gpus {
		if u.layout == nil {
			s.ids, s.geos[u.id], s.whole[u.id] = append(s.ids, u.id), u.geo, true
		}
	}
	s.relocate(s.pending())
	for _, u := range p.gpus {
		var coming []seat
		for _, t := range u.seats {
			if t.unit.today < 0 {
				coming = append(coming, t)
				s.create(u.site(t.spot), t.slices, t.unit.workload)
			}
		}
		for _, t := range coming {
			s.steps = append(s.steps, Step{Do: Start, Site: u.site(t.spot), Workload: t.unit.workload})
		}
	}
	return s
}

func (u *used) site(sp spot) Site { return Site{u.id, u.geo.Profiles[sp.profile].Name, sp.start} }

// pending lists the moves.
func (s *sequence) pending() []*moving {
	var out []*moving
	for _, u := range s.gpus {
		for _, t := range u.seats {
			if t.unit.today < 0 {
				continue
			}
			_, sp := s.placed(t.unit.today)
			from := s.layouts.placed[t.unit.today]
			site := Site{from.GPU, from.Profile, from.Start}
			out = append(out, &moving{
				Move: Move{Workload: t.unit.workload, From: site, To: u.site(t.spot)}, class: t.class,
				source: sp.slices, target: t.slices, at: site, instance: from.Instance,
			})
		}
	}
	return out
}

// relocate carries out moves as their places become free. Where none is, places are changed in a
// circle: one of it goes to a spare placement first, or if there is none is drained and waits.
func (s *sequence) relocate(pending []*moving) {
	for len(pending) > 0 {
		before := len(pending)
		pending = slices.DeleteFunc(pending, func(m *moving) bool {
			free := s.held[m.To.GPU]&m.target == 0
			// No other instance blocks growing or shrinking in place.
			if own := s.held[m.To.GPU] &^ m.source; !free && m.at.GPU == m.To.GPU && own&m.target == 0 {
				s.vacate(m.at, m.source, m.Workload, m.instance)
				m.source, free = 0, true
			}
			if free {
				s.shift(m, m.To, m.target)
				s.moves = append(s.moves, m.Move)
			}
			return free
		})
		if len(pending) < before {
			continue
		}
		if !s.sidestep(pending) {
			m := slices.MinFunc(slices.DeleteFunc(slices.Clone(pending), func(m *moving) bool {
				return !blocks(m, pending)
			}),
				func(a, b *moving) int { return cmp.Compare(a.source, b.source) })
			s.vacate(m.at, m.source, m.Workload, m.instance)
			m.source, m.Waits = 0, true
		}
	}
}

// blocks reports whether a move stands where another one goes.
func blocks(m *moving, pending []*moving) bool {
	return slices.ContainsFunc(pending, func(o *moving) bool {
		return o != m && o.To.GPU == m.at.GPU && o.target&m.source != 0
	})
}

// sidestep brings one of a circle to a spare placement, once each, and off the
// targets of the others if it can be.
func (s *sequence) sidestep(pending []*moving) bool {
	for _, avoid := range []bool{true, false} {
		for _, m := range pending {
			if m.again || m.source == 0 || !blocks(m, pending) {
				continue
			}
			for i, fits := range s.classes[m.class].fits {
				for _, id := range s.ids {
					if s.geos[id] != s.program.geos[i] {
						continue
					}
					shut := s.held[id]
					for _, o := range pending {
						if avoid && o.To.GPU == id {
							shut |= o.target
						}
					}
					for _, sp := range s.geos[id].spots {
						if fits&(1<<sp.profile) != 0 && sp.slices&shut == 0 {
							via := Site{id, s.geos[id].Profiles[sp.profile].Name, sp.start}
							m.Via, m.again = &via, true
							s.shift(m, via, sp.slices)
							m.at, m.source, m.instance = via, sp.slices, ""
							return true
						}
					}
				}
			}
		}
	}
	return false
}

// create makes an instance, on a GPU that MIG is enabled on by then.
func (s *sequence) create(at Site, slices uint8, workload string) {
	if s.whole[at.GPU] {
		s.steps = append(s.steps, Step{Do: DrainGPU, Site: Site{GPU: at.GPU}},
			Step{Do: Enable, Site: Site{GPU: at.GPU}})
		s.whole[at.GPU] = false
	}
	s.steps = append(s.steps, Step{Do: Create, Site: at, Workload: workload})
	s.held[at.GPU] |= slices
}

// shift starts a workload in a new instance and ends the one it was in.
func (s *sequence) shift(m *moving, to Site, slices uint8) {
	s.create(to, slices, m.Workload)
	if m.source == 0 {
		s.steps = append(s.steps, Step{Do: Start, Site: to, Workload: m.Workload})
		return
	}
	s.steps = append(s.steps, Step{Do: Drain, Site: m.at, Workload: m.Workload},
		Step{Do: Start, Site: to, Workload: m.Workload},
		Step{Do: Destroy, Site: m.at, Workload: m.Workload, Instance: m.instance})
	s.held[m.at.GPU] &^= m.source
}

// vacate ends a workload and its instance.
func (s *sequence) vacate(at Site, slices uint8, workload, instance string) {
	s.steps = append(s.steps, Step{Do: Drain, Site: at, Workload: workload},
		Step{Do: Destroy, Site: at, Workload: workload, Instance: instance})
	s.held[at.GPU] &^= slices
}
