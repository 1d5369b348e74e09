package finding

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	fleetplan "github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/usage"
)

// FleetPolicy is a policy that follows the demand for a serving fleet, replayed on the recorded load with
// the arithmetic by which a service decides.
type FleetPolicy struct {
	// Text is an item of the policies of a file.
	Text string
	// Why is the reason for an unknown load; the fields below mean nothing then.
	Why    string
	Window time.Duration
	// MeanReplicas ran on average. ShortShare is the share of the time in which the load exceeded them.
	MeanReplicas, ShortShare float64
	// Savings is a month's saving against a fixed size; it means nothing unless Priced. The load is the
	// highest of each part of the window, so that it is at least this.
	Savings money.Amount
	Priced  bool
}

// writable matches ids of fleets that need no quotes in YAML.
var writable = lazyregexp.New(`^[a-z]+/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// followedFleet is a fleet of a fixed size and the machines whose load it serves.
type followedFleet struct {
	// id is the fleet in policies: asg/NAME or endpoint/NAME.
	id string
	// size is the number of replicas, least and most the bounds of the policy.
	size, least, most int
	// loads are those of members, in replicas; month is the cost of one replica.
	loads  []memberLoad
	month  money.Amount
	priced bool
	// unmeasured is the reason for an unknown load; empty without one.
	unmeasured string
}

// memberLoad is the load of one machine, or of all replicas of an endpoint.
type memberLoad struct {
	window *usage.Window
	// stats are percentages of which the mean is the load of the member.
	stats []*usage.Stats
	// replicas is the number of replicas whose load it is.
	replicas float64
}

// follow returns the policy by which a fleet follows its load; nil for an id that no policy can name.
func (x *Index) follow(f followedFleet) *FleetPolicy {
	if f.size < 1 || !writable.MatchString(f.id) {
		return nil
	}
	target := x.Thresholds.InferenceTarget / 100
	const item = "{name: follow-%s, then: [{do: scale, fleet: %s, min: %d, max: %d, target: %s}]}"
	name := strings.NewReplacer("/", "-", ".", "-", "_", "-").Replace(f.id)
	p := &FleetPolicy{Text: fmt.Sprintf(item, name, f.id, f.least, f.most, plain.Decimal(target, 2))}
	if p.Why = f.unmeasured; p.Why != "" {
		return p
	}
	loads, why := f.recorded()
	if p.Why = why; why != "" {
		return p
	}
	r := fleetplan.ReplayLoad(fleetplan.Config{
		Bounds: fleetplan.Bounds{Min: f.least, Max: max(f.most, f.size)}, Target: target,
	}, loads, f.size)
	p.Window, p.MeanReplicas = r.Span, r.MeanReplicas()
	p.ShortShare = r.Short.Seconds() / r.Span.Seconds()
	spared := max(0, time.Duration(f.size)*r.Span-r.Paid)
	p.Priced = f.priced
	p.Savings = x.amount(f.month.Mul(int64(spared/time.Second), int64(r.Span/time.Second)))
	return p
}

// recorded returns the load of the fleet in each part of the window of its members, as far as all of them
// were measured. It is unknown with less than a week.
func (f followedFleet) recorded() (loads []fleetplan.Load, why string) {
	if len(f.loads) == 0 {
		return nil, "no load was measured"
	}
	w := f.loads[0].window // the one that begins last: all machines were there from then on
	for _, m := range f.loads {
		if m.window.From.After(w.From) {
			w = m.window
		}
	}
	part := w.To.Sub(w.From) / usage.Buckets
	measured := time.Duration(0)
	for i := range usage.Buckets {
		from, sum, known := w.From.Add(time.Duration(i)*part), 0.0, true
		for _, m := range f.loads {
			load, ok := m.between(from, from.Add(part))
			known, sum = known && ok, sum+load
		}
		switch {
		case known:
			loads, measured = append(loads, fleetplan.Load{Replicas: inventory.Known(sum), For: part}), measured+part
		case len(loads) > 0: // a gap; what came before the first measurement is left out
			loads = append(loads, fleetplan.Load{For: part})
		}
	}
	if measured+2*w.Step < servingWindow {
		return nil, "less than 7 days of it were measured"
	}
	return loads, ""
}

// between returns the highest load of a part of the window, and false where it was not measured.
func (m memberLoad) between(from, to time.Time) (load float64, known bool) {
	w := m.window
	width := w.To.Sub(w.From) / usage.Buckets
	if width <= 0 || from.Before(w.From) || from.After(w.To) {
		return 0, false
	}
	first := int(from.Sub(w.From) / width)
	last := min(int((to.Sub(w.From)-1)/width), usage.Buckets-1)
	sum := 0.0
	for _, st := range m.stats {
		most, ok := 0.0, false
		for i := first; i <= last; i++ {
			if v, has := st.Bucket(i); has {
				most, ok = max(most, v), true
			}
		}
		if !ok {
			return 0, false
		}
		sum += most
	}
	return m.replicas * sum / 100 / float64(len(m.stats)), true
}

// loadOfMachine returns the load of one machine, and false where not all of it was measured.
func (x *Index) loadOfMachine(s *Subject) (memberLoad, bool) {
	if s.Window == nil {
		return memberLoad{}, false
	}
	out := memberLoad{window: s.Window, replicas: 1}
	m, _ := x.machineOf(s)
	tracks := s.Window.GPUTracks()
	if m.GPUs() == 0 {
		out.stats = []*usage.Stats{s.Window.Machine.Stats(usage.CPUUtil)}
	}
	if len(tracks) != m.GPUs() {
		return memberLoad{}, false
	}
	for _, t := range tracks {
		out.stats = append(out.stats, t.Stats(usage.GPUUtil))
	}
	return out, !slices.Contains(out.stats, nil)
}

// followGroup returns the policy by which an Auto Scaling group follows the load of its members.
func (x *Index) followGroup(s *Subject, g *inventory.AutoScalingGroup) *FleetPolicy {
	f := followedFleet{
		id: "asg/" + s.ID, size: int(g.Desired), least: max(1, int(g.Min)), most: int(max(g.Max, g.Desired)),
		priced: true,
	}
	for _, id := range slices.Sorted(slices.Values(g.Instances)) {
		m, ok := x.near(s.Resource, inventory.KindInstance, id)
		if !ok {
			f.unmeasured = "its machine " + id + " was not read"
			continue
		}
		load, measured := x.loadOfMachine(m)
		if !measured {
			f.unmeasured = "the load of " + id + " was not measured"
			continue
		}
		f.loads = append(f.loads, load)
		month, unpriced := x.Cost(m, ledger.Compute)
		if f.priced = f.priced && unpriced == ""; len(f.loads) == 1 || month < f.month {
			f.month = month // the cheapest may be the one that is spared
		}
	}
	if f.unmeasured == "" && len(f.loads) != f.size {
		f.unmeasured = fmt.Sprintf("%d of %s run", len(f.loads), plain.Count(f.size, "machine"))
	}
	return x.follow(f)
}

// followEndpoint returns the policy by which an endpoint of one variant follows its load.
func (x *Index) followEndpoint(s *Subject, v inventory.Variant, st *usage.Stats) *FleetPolicy {
	f := followedFleet{
		id: "endpoint/" + s.ID, size: int(v.Count), least: 1, most: int(v.Count),
		loads: []memberLoad{{window: s.Window, stats: []*usage.Stats{st}, replicas: float64(v.Count)}},
	}
	all, unpriced := x.Cost(s, ledger.Compute)
	f.priced, f.month = unpriced == "", x.amount(all.Mul(1, v.Count))
	return x.follow(f)
}
