package cli

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// traced is the account that a trace describes: its resources, as a replay makes them,
// and what was measured of them up to a time.
type traced struct {
	app    *app
	name   string
	format usage.Format
}

// newest returns the end of the trace's last sample.
func (t *traced) newest(ctx context.Context) (time.Time, error) {
	file, err := t.app.opened(ctx, t.name, &t.format)
	if err != nil {
		return time.Time{}, err
	}
	defer file.Close()
	s, err := usage.Survey(ctx, file, t.format)
	return s.Last.Add(t.format.Step), err
}

// Observe implements round.Observer.
func (t *traced) Observe(ctx context.Context, q round.Query) (*round.Observation, error) {
	o := &round.Observation{Cloud: "trace", Accounts: []string{""}, Regions: []string{""}, Windows: map[inventory.Ref]*usage.Window{}, CommitmentsKnown: true}
	byName := map[string]*inventory.Resource{}
	file, err := t.app.opened(ctx, t.name, &t.format)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	_, err = usage.Read(ctx, file, t.format, func(s *usage.Sample) error {
		if !s.Time.Before(q.Now) {
			return nil
		}
		r := byName[s.Resource]
		if r == nil {
			r = backtest.Resource{Name: s.Resource, Description: s.Description}.Inventory()
			r.Cloud, r.CreatedAt = o.Cloud, s.Time
			byName[s.Resource] = r
			o.Resources = append(o.Resources, r)
		}
		if s.Time.Before(r.CreatedAt) {
			r.CreatedAt = s.Time
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	again, err := t.app.opened(ctx, t.name, &t.format)
	if err != nil {
		return nil, err
	}
	defer again.Close()
	_, err = usage.Collect(ctx, again, t.format, func(resource string) *usage.Window {
		r := byName[resource]
		if r == nil {
			return nil
		}
		w := usage.NewWindow(round.WindowStart(r, q), q.Now, t.format.Step, "recorded", q.Floors)
		w.Aggregated = true // a row without a GPU is about the resource, as in a replay
		o.Windows[r.Ref()] = w
		return w
	})
	return o, err
}
