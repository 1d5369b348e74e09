package fleets

import (
	"cmp"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/view"
)

// Document returns the fleets with their newest decisions.
func (w *Watcher) Document(now time.Time) view.ServingFleets {
	doc := view.ServingFleets{Schema: view.ServingFleetsSchema, At: now.UTC(), Fleets: []view.ServingFleet{}}
	for _, s := range w.All() {
		one := s.document()
		one.Next = s.next(w.Find != nil)
		doc.Fleets = append(doc.Fleets, one)
	}
	return doc
}

// Planned returns the fleets of a configuration that no service decides about here.
func Planned(req *runtime.Request, cfg config.Config, set *policy.Set) (view.ServingFleets, error) {
	const reason = "a service decides (curfew serve), and none answered here"
	configured, err := Configure(req, cfg, set)
	if err != nil {
		return view.ServingFleets{}, err
	}
	w := NewWatcher(nil)
	for id, one := range configured {
		w.fleets[id] = one
	}
	doc := w.Document(req.Now())
	doc.Reason = reason
	for i := range doc.Fleets {
		doc.Fleets[i].Next = "none without a service"
	}
	return doc, nil
}

func (s Status) document() view.ServingFleet {
	out := view.ServingFleet{
		ID: s.ID, Policy: s.Policy, Mode: cmp.Or(string(s.Mode), "observe"), Min: s.Bounds.Min, Max: s.Bounds.Max,
		Rule: s.Decision.Rule, Why: s.Decision.Why, Blocked: s.Blocked, PriceReason: s.Unpriced,
		Demand: s.demand(),
	}
	if s.Known {
		out.Wanted = new(s.Target)
	}
	if s.ReplicasKnown {
		out.Actual = new(s.Replicas)
	}
	if !s.Decision.At.IsZero() {
		out.DecidedAt = new(s.Decision.At.UTC())
	}
	if s.AddTime > 0 {
		out.AddSeconds = new(s.AddTime.Seconds())
	}
	if hourly, priced := s.Hourly.Get(); priced {
		out.ReplicaHourlyUSD = money.Known(hourly)
		if all, err := hourly.Mul(int64(s.Replicas), 1); err == nil && s.ReplicasKnown {
			out.HourlyUSD = money.Known(all)
		}
	}
	return out
}

func (s Status) demand() view.FleetDemand {
	d := view.FleetDemand{Known: s.Demand.Known, Why: s.Demand.Why}
	if !d.Known {
		d.Why = cmp.Or(d.Why, "no reading so far")
		return d
	}
	known := func(f inventory.Fact[float64]) *float64 {
		if v, ok := f.Get(); ok {
			return &v
		}
		return nil
	}
	d.InFlight, d.RequestsPerSecond = known(s.Demand.InFlight), known(s.Demand.Rate)
	d.CacheUse, d.Load, d.Need = known(s.Demand.CacheUse), new(s.Decision.Load), new(s.Decision.Need)
	return d
}

// next returns the next step, in words. Enforces is false in a service that sets no size.
func (s Status) next(enforces bool) string {
	d := s.Decision
	switch {
	case d.At.IsZero():
		return "none before the first reading of its demand and its size"
	case s.Blocked != "":
		return "tried again at the next decision"
	case !d.Known:
		return "none until its demand is known"
	case d.Rule == "stabilization":
		return fmt.Sprintf("fewer than %d from %s UTC, if demand stays", d.Actual,
			s.ShrinksAfter.UTC().Format(time.TimeOnly))
	case d.Rule == "second-reading":
		return "smaller at the next reading, if it confirms that"
	case d.Wanted == d.Actual:
		return "none while its demand stays"
	case s.Mode != policy.Enforce:
		return fmt.Sprintf("other autoscalers are told %d: its policy observes", d.Wanted)
	case !enforces:
		return fmt.Sprintf("other autoscalers are told %d: the service runs without --enforce", d.Wanted)
	case d.Wanted > d.Actual:
		return fmt.Sprintf("budgets are asked, then the provider starts %s", plain.Count(d.Wanted-d.Actual, "replica"))
	}
	return fmt.Sprintf("%s ends once drained", plain.Count(d.Actual-d.Wanted, "replica"))
}
