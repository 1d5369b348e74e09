package backtest

import (
	"cmp"
	"slices"
	"time"
)

// Timeline is when the resources that one rule would have saved most on worked,
// rested and were released, for pictures.
type Timeline struct {
	// Rule is the name of the result.
	Rule string `json:"rule"`
	// From and To are the ends of the picture. ResolutionSeconds is how finely it is
	// drawn: of shorter changes the state that held longest is shown.
	From              time.Time `json:"from"`
	To                time.Time `json:"to"`
	ResolutionSeconds float64   `json:"resolution_seconds"`
	// Resources are in the order of their savings, the most first.
	Resources []Drawn `json:"resources"`
	// More is how many resources are not drawn.
	More int `json:"more"`
}

// Drawn is one resource of a [Timeline].
type Drawn struct {
	Resource      string  `json:"resource"`
	Team          string  `json:"team,omitempty"`
	User          string  `json:"user,omitempty"`
	NetSavedHours float64 `json:"net_saved_hours"`
	Restarts      int64   `json:"restarts"`
	// Spans do not overlap and are in order; before the first and after the last the
	// resource was not there.
	Spans []Span `json:"spans"`
}

// Span is a time in one state: "busy", "idle" (held while idle), "unknown" (no
// sample) or "released".
type Span struct {
	State string    `json:"state"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
}

// The states of a picture. Released time is drawn over its former state.
const (
	drawnBusy = iota
	drawnIdle
	drawnReleased
	drawnUnknown
	drawnStates
)

// States are the states of a [Span], in the order in which pictures draw them.
var States = [drawnStates]string{"busy", "idle", "released", "unknown"}

// Bounds of a picture: how many parts its length is divided into, and how many
// resources it holds.
const (
	drawnParts = 480
	maxDrawn   = 48
)

// timeline draws the resources on which a rule saved most.
func (t *trace) timeline(rule string, got outcome, limit int) *Timeline {
	order := make([]int, len(t.resources))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(got.by[b].Net(t.restart), got.by[a].Net(t.restart))
	})
	order = order[:min(limit, maxDrawn, len(order))]
	row := map[int][]release{}
	for _, i := range order {
		row[i] = nil
	}
	for _, r := range got.releases {
		if list, ok := row[r.resource]; ok {
			row[r.resource] = append(list, r)
		}
	}
	from, to := t.span()
	width := (to - from + drawnParts - 1) / drawnParts
	out := &Timeline{
		Rule: rule, From: instant(from), To: instant(to), ResolutionSeconds: span(width).Seconds(),
		More: len(t.resources) - len(order),
	}
	for _, i := range order {
		p := painter{from: from, to: to, width: width}
		p.track(t.tracks[i], t.step)
		for _, r := range row[i] {
			p.paint(drawnReleased, r.from, r.to)
		}
		out.Resources = append(out.Resources, Drawn{
			Resource: t.resources[i].Name, Team: ownerOf(t.resources[i]).team, User: ownerOf(t.resources[i]).user,
			NetSavedHours: hours(got.by[i].Net(t.restart)), Restarts: got.by[i].Restarts, Spans: p.spans(),
		})
	}
	return out
}

// painter adds up how long each state held in each part of a picture.
type painter struct {
	from, to, width int64
	parts           [drawnParts][drawnStates]int64
}

// paint adds a state that held from a to b.
func (p *painter) paint(state int, a, b int64) {
	for a < b {
		part := (a - p.from) / p.width
		end := min(b, p.from+(part+1)*p.width)
		p.parts[part][state] += end - a
		a = end
	}
}

// track paints samples, and the gaps between them as unknown.
func (p *painter) track(t *track, step int64) {
	at := t.first
	for c := t.cursor(step); c.advance(); {
		end := c.run.start + c.run.count*step
		state := drawnBusy
		if c.run.idle {
			state = drawnIdle
		}
		p.paint(drawnUnknown, at, c.run.start)
		p.paint(state, max(at, c.run.start), end)
		at = max(at, end)
	}
}

// spans joins neighboring parts in which the same state held longest.
func (p *painter) spans() []Span {
	var out []Span
	for i := range p.parts {
		part := p.parts[i]
		// What was released was idle, or else busy.
		idle := min(part[drawnIdle], part[drawnReleased])
		part[drawnIdle] -= idle
		part[drawnBusy] -= min(part[drawnBusy], part[drawnReleased]-idle)
		state, most := 0, int64(0)
		for s, length := range part {
			if length > most {
				state, most = s, length
			}
		}
		if most == 0 {
			continue
		}
		from := p.from + int64(i)*p.width
		to := instant(min(from+p.width, p.to))
		if n := len(out); n > 0 && out[n-1].State == States[state] && out[n-1].To.Equal(instant(from)) {
			out[n-1].To = to
			continue
		}
		out = append(out, Span{States[state], instant(from), to})
	}
	return out
}
