package cloudtest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// DefaultWindow is the default lookback for usage.
const DefaultWindow = 14 * 24 * time.Hour

// Observe lists an account and measures its resources into windows, like one round of an audit.
func Observe(ctx context.Context, l round.Lister, q round.Query) (*round.Observation, error) {
	if o, ok := l.(observer); ok {
		return o.Observe(ctx, q)
	}
	var sources []usage.Source
	if s, ok := l.(usage.Source); ok {
		sources = append(sources, s)
	}
	if q.Window <= 0 {
		q.Window = DefaultWindow
	}
	q.Now = q.Now.UTC()
	var far round.Progress
	told := q.Progress
	if told != nil {
		q.Progress = func(p round.Progress) {
			p.Total += len(sources) // one more part per source
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
		measured, err := source.Measure(ctx, o.Resources, iv,
			func(r *inventory.Resource, opened usage.SourceInfo) usage.Sink {
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
		for _, c := range measured.Calls {
			i := slices.IndexFunc(o.Calls, func(x inventory.Calls) bool { return x.API == c.API })
			if i < 0 {
				o.Calls = append(o.Calls, c)
				continue
			}
			o.Calls[i].Count, o.Calls[i].Units = o.Calls[i].Count+c.Count, o.Calls[i].Units+c.Units
			if o.Calls[i].Cost, err = o.Calls[i].Cost.Add(c.Cost); err != nil {
				return nil, err
			}
		}
		slices.SortFunc(o.Calls, func(a, b inventory.Calls) int { return cmp.Compare(a.API, b.API) })
		if told != nil {
			far.What, far.Done = source.Name()+" usage", far.Done+1
			told(far)
		}
	}
	o.Sort()
	return o, ctx.Err()
}

// Recheck lists and measures only some resources again.
func Recheck(ctx context.Context, l round.Lister, refs []inventory.Ref, q round.Query) (*round.Observation, error) {
	q.Only = make(map[inventory.Ref]bool, len(refs))
	for _, ref := range refs {
		q.Only[ref] = true
	}
	return Observe(ctx, l, q)
}

// stepped is a window for points with a step of their own.
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
