package round

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// DefaultWindow is how far back usage is read where a query does not say.
const DefaultWindow = 14 * 24 * time.Hour

// ObserveWindows lists an account and measures what it holds into windows. Of what
// several sources measure, the first one's holds, as in [usage.Window.Merge].
func ObserveWindows(ctx context.Context, l Lister, q Query, sources ...usage.Source) (*Observation, error) {
	if q.Window <= 0 {
		q.Window = DefaultWindow
	}
	q.Now = q.Now.UTC()
	var far Progress
	told := q.Progress
	if told != nil {
		q.Progress = func(p Progress) {
			p.Total += len(sources) // each is one part more
			far = p
			told(p)
		}
	}
	o, err := l.List(ctx, q)
	if err != nil {
		return nil, err
	}
	o.Windows = map[inventory.Ref]*usage.Window{}
	iv := usage.Interval{From: q.Now.Add(-q.Window), To: q.Now}
	for _, source := range sources {
		windows := map[inventory.Ref]*usage.Window{}
		measured, err := source.Measure(ctx, o.Resources, iv, func(r *inventory.Resource, opened usage.Opened) usage.Sink {
			w := windows[r.Ref()]
			if w == nil {
				w = usage.NewWindow(opened.From, iv.To, opened.Step, opened.Source, q.Floors)
				w.Aggregated = opened.Aggregated
				windows[r.Ref()] = w
			}
			return stepped{w, opened.Step}
		})
		if err != nil {
			return nil, err
		}
		for ref, w := range windows {
			if first := o.Windows[ref]; first != nil {
				first.Merge(w)
			} else {
				o.Windows[ref] = w
			}
		}
		o.BlindSpots = append(o.BlindSpots, measured.BlindSpots...)
		if o.Calls, err = addCalls(o.Calls, measured.Calls); err != nil {
			return nil, err
		}
		if told != nil {
			far.What, far.Done = source.Name()+" usage", far.Done+1
			told(far)
		}
	}
	o.Sort()
	return o, ctx.Err()
}

// stepped is a window that takes points of a step of their own.
type stepped struct {
	window *usage.Window
	step   time.Duration
}

// Add implements [usage.Sink].
func (s stepped) Add(gpu string, signal usage.Signal, p usage.Point) bool {
	whole := s.window.Step
	s.window.Step = s.step
	defer func() { s.window.Step = whole }()
	return s.window.Add(gpu, signal, p)
}

// addCalls adds up calls, by API.
func addCalls(a, b []Calls) ([]Calls, error) {
	out := slices.Clone(a)
	for _, c := range b {
		i := slices.IndexFunc(out, func(x Calls) bool { return x.API == c.API })
		if i < 0 {
			out = append(out, c)
			continue
		}
		cost, err := out[i].Cost.Add(c.Cost)
		if err != nil {
			return nil, err
		}
		out[i].Count, out[i].Units, out[i].Cost = out[i].Count+c.Count, out[i].Units+c.Units, cost
	}
	slices.SortFunc(out, func(a, b Calls) int { return cmp.Compare(a.API, b.API) })
	return out, nil
}
