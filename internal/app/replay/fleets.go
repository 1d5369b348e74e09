package replay

import (
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/backtest/scaling"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/view"
)

// FleetOptions are recorded arrivals and the properties of one replica of the fleet, as people
// write them.
type FleetOptions struct {
	Arrivals, Columns, Profile, ProfileTokens, LateAfter, ColdStart, Price string
	// MaxBatch is the maximum number of requests in a batch, MaxRunning that of concurrent
	// requests; exactly one is positive.
	MaxBatch, MaxRunning int
	// Tune fits target, stabilization and window to the first half of the arrivals, and compares
	// all scalers on the second half.
	Tune bool
}

// Fleets replays the policies of serving fleets over recorded arrivals.
func Fleets(req *runtime.Request, o FleetOptions, set *policy.Set) (view.FleetReplay, error) {
	doc := view.FleetReplay{Schema: view.FleetReplaySchema}
	p, price, err := o.params()
	if err != nil {
		return doc, err
	}
	columns, err := scaling.ParseColumns(o.Columns)
	if err != nil {
		return doc, runtime.Invalid("--map: %w", err)
	}
	recorded, err := runtime.ReadPlan(req, o.Arrivals, scaling.ReadArrivals(columns))
	if err != nil {
		return doc, err
	}
	p.Arrivals, p.Work = recorded.Times, recorded.Work
	doc.Assumptions = o.assumptions(recorded)
	if o.ProfileTokens != "" {
		tokens, err := scaling.ParseTokens(o.ProfileTokens)
		switch {
		case err != nil:
			return doc, runtime.Invalid("--profile-tokens: %w", err)
		case !recorded.ByTokens:
			return doc, runtime.Invalid("--profile-tokens: the arrivals have no tokens; name their columns with --map")
		}
		p.Work = recorded.RelativeTo(tokens)
	}
	doc.Requests, doc.Seconds = len(p.Arrivals), p.Arrivals[len(p.Arrivals)-1]
	if o.Tune {
		first, second, ok := scaling.Halves(p)
		if !ok {
			return doc, runtime.Invalid("--tune: %d requests are too few to fit a setting on half of them", len(p.Arrivals))
		}
		doc.Assumptions = append(doc.Assumptions, fmt.Sprintf("The tuned setting was fitted on the first %s; every result "+
			"is of the %s after them.", plain.Count(len(first.Arrivals), "request"),
			plain.Count(len(second.Arrivals), "request")))
	}
	for _, one := range set.Policies {
		if !one.IsFleet() {
			doc.Assumptions = append(doc.Assumptions, "Policy "+one.Name+" names no fleet and is left out.")
			continue
		}
		replayed, err := replayFleet(p, price, one, o.Tune)
		if err != nil {
			return doc, runtime.Invalid("policy %s: %w", one.Name, err)
		}
		doc.Fleets = append(doc.Fleets, replayed)
	}
	if len(doc.Fleets) == 0 {
		return doc, runtime.Invalid("--arrivals: none of the policies names a fleet: give one with do: scale and fleet")
	}
	p.Config.Bounds = fleet.Bounds{Min: 1, Max: 1}
	doc.WorkReplicas = scaling.MeanLoad(p)
	return doc, nil
}

// Tuned returns the policies of fleets with their tuned targets, where these pay less on requests that they
// were not fitted on.
func Tuned(set *policy.Set, doc view.FleetReplay) *policy.Set {
	out := &policy.Set{}
	for _, p := range set.Policies {
		for _, f := range doc.Fleets {
			if f.Policy != p.Name || f.Fleet != p.Do.Fleet {
				continue
			}
			one := *p
			if f.Tuned != nil && f.Tuned.Better {
				one.Do.Target = f.Tuned.Target
			}
			out.Policies = append(out.Policies, &one)
		}
	}
	return out
}

// params reads the options of a replica.
func (o FleetOptions) params() (scaling.Params, money.Dollars, error) {
	var p scaling.Params
	var price money.Dollars
	fail := func(format string, a ...any) (scaling.Params, money.Dollars, error) {
		return p, price, runtime.Invalid(format, a...)
	}
	s := &p.Config.Server
	switch {
	case o.Profile == "":
		return fail("--arrivals needs --profile: the time of n requests on one replica, such as a=48ms,b=1.74s")
	case (o.MaxBatch > 0) == (o.MaxRunning > 0):
		return fail("--arrivals needs --max-batch or --max-running, and not both: the requests that one replica " +
			"serves in a batch, or side by side")
	case o.LateAfter == "":
		return fail("--arrivals needs --late-after: the latency that an answer should keep, such as 4s")
	}
	var err error
	if s.Profile, err = capacity.ParseProfile(o.Profile); err != nil {
		return fail("--profile: %w", err)
	}
	s.Law, s.Limit = fleet.Batch, o.MaxBatch
	if o.MaxRunning > 0 {
		s.Law, s.Limit = fleet.Concurrency, o.MaxRunning
	}
	for _, d := range []struct {
		flag, text string
		to         *time.Duration
	}{{"late-after", o.LateAfter, &s.Objective}, {"cold-start", o.ColdStart, &p.ColdStart}} {
		if *d.to, err = config.ParseDuration(d.text); err != nil || *d.to <= 0 || *d.to > 24*time.Hour {
			return fail("--%s %q: it is a duration over 0s and up to 24h, such as 3m", d.flag, d.text)
		}
	}
	p.Config.AddTime = p.ColdStart
	if o.Price != "" {
		v, err := money.ParseAmount(strings.TrimPrefix(o.Price, "$"))
		if err != nil || v <= 0 {
			return fail("--price %q: it is dollars an hour such as 3.06", o.Price)
		}
		price = money.Known(v)
	}
	if err := s.Check(); err != nil {
		return fail("--profile: %w", err)
	}
	return p, price, nil
}

// assumptions returns sentences about the assumptions of the replay that are not in the arrivals.
func (o FleetOptions) assumptions(r *scaling.Recording) []string {
	out := []string{
		fmt.Sprintf("A replica serves %s after it was started.", plain.ExactDuration(mustDuration(o.ColdStart))),
		"Requests wait in one queue in order of arrival; each replica takes as many as it serves in time.",
		"Each replay begins with the replicas that the mean load needs. Scalers see the past only.",
		"KEDA, Knative and target tracking follow their published algorithms with their defaults, and the same target.",
	}
	switch {
	case r.ByTokens && o.ProfileTokens == "":
		out = append(out, "The profile is that of a request with the mean tokens of the file; a token in costs a tenth "+
			"of a token out.")
	case r.ByTokens:
		out = append(out, "The profile is that of "+o.ProfileTokens+" tokens in and out; a token in costs a tenth of a "+
			"token out.")
	case r.Work == nil:
		out = append(out, "Each request is one of the profile.")
	}
	if r.Work != nil {
		out = append(out, "A request with more work than one of the profile may take longer in proportion before it is late.")
	}
	return out
}

// mustDuration parses a duration that params has validated.
func mustDuration(text string) time.Duration {
	d, _ := config.ParseDuration(text) // params has refused invalid ones
	return d
}

// maxFixed is the largest fixed size to try.
const maxFixed = 200

// replayFleet replays one policy and its alternatives.
func replayFleet(p scaling.Params, price money.Dollars, one *policy.Policy, tune bool) (view.ReplayedFleet, error) {
	p.Config.Bounds, p.Config.Target = one.Do.FleetBounds(), one.Do.Target
	out := view.ReplayedFleet{
		Policy: one.Name, Fleet: one.Do.Fleet, Min: one.Do.Min, Max: one.Do.Max, Target: one.Do.Target,
	}
	if out.Target == 0 {
		out.Target = capacity.DefaultTarget
	}
	fit := p
	if tune {
		fit, p, _ = scaling.Halves(p)
	}
	p.Start = scaling.StartFor(p)
	add := func(r scaling.Result, name, setting string) error {
		cost, err := costOf(r, price)
		out.Results = append(out.Results, view.FleetResult{
			Name: name, Setting: setting, ReplicaHours: r.ReplicaHours, CostUSD: cost, LateAnswers: r.Late,
			LateShare: r.LateShare, ColdStarts: r.ColdStarts, MeanReplicas: r.MeanReplicas, MaxReplicas: r.MaxReplicas,
			P50LatencyMS: float64(r.P50.Milliseconds()), P99LatencyMS: float64(r.P99.Milliseconds()),
		})
		return err
	}
	own, err := scaling.Run(p, scaling.New(p))
	if err != nil {
		return out, err
	}
	if err := add(own, one.Name, ""); err != nil {
		return out, err
	}
	if tune {
		best, found, err := fitted(fit)
		if err != nil {
			return out, err
		}
		if found {
			t := p
			t.Config.Target, t.Config.Stabilization, t.Config.Window = best.Target, best.Stabilization, best.Window
			r, err := scaling.Run(t, scaling.New(t))
			if err != nil {
				return out, err
			}
			if err := add(r, "tuned", best.Setting()); err != nil {
				return out, err
			}
			out.Tuned = &view.TunedFleet{
				Target: best.Target, StabilizationSeconds: best.Stabilization.Seconds(),
				WindowSeconds: best.Window.Seconds(), Better: r.Late <= own.Late && r.ReplicaHours < own.ReplicaHours,
			}
		}
	}
	for _, s := range scaling.Peers(p) {
		r, err := scaling.Run(p, s)
		if err != nil {
			return out, err
		}
		if err := add(r, s.Name(), ""); err != nil {
			return out, err
		}
	}
	fixed, found, err := fewestFixed(p, own.Late)
	if err != nil || !found {
		return out, err
	}
	return out, add(fixed, fixed.Name, "")
}

// fitted returns the setting with the fewest replica hours that has no more late answers than the
// policy's setting on the same arrivals.
func fitted(p scaling.Params) (scaling.Tuned, bool, error) {
	p.Start = scaling.StartFor(p)
	own, err := scaling.Run(p, scaling.New(p))
	if err != nil {
		return scaling.Tuned{}, false, err
	}
	tried, err := scaling.Tune(p)
	if err != nil {
		return scaling.Tuned{}, false, err
	}
	best, found := scaling.Fewest(tried, own.Late)
	return best, found, nil
}

// fewestFixed returns the smallest fleet of fixed size with no more late answers.
func fewestFixed(p scaling.Params, late int) (scaling.Result, bool, error) {
	for n := 1; n <= min(p.Config.Max, maxFixed); n++ {
		p.Start = n
		r, err := scaling.Run(p, scaling.Fixed(n))
		if err != nil {
			return r, false, err
		}
		if r.Late <= late {
			return r, true, nil
		}
	}
	return scaling.Result{}, false, nil
}

// costOf returns the price of the paid time, to the millisecond; unknown without a price.
func costOf(r scaling.Result, price money.Dollars) (money.Dollars, error) {
	hourly, known := price.Get()
	if !known {
		return money.Dollars{}, nil
	}
	cost, err := hourly.Mul(r.Paid.Milliseconds(), time.Hour.Milliseconds())
	if err != nil {
		return money.Dollars{}, fmt.Errorf("price the replica hours: %w", err)
	}
	return money.Known(cost), nil
}
