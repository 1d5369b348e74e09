package backtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Report is the outcome of a replay, in the shape of its JSON.
type Report struct {
	Trace   Trace    `json:"trace"`
	Results []Result `json:"results"`
	// Waits are the results of fixed waits of increasing length, for pictures and as evidence for a
	// threshold; with the baselines only.
	Waits []Wait `json:"waits,omitempty"`
	// Learned are the weights of the learned rule at the end of the trace.
	Learned []learn.Weight `json:"learned,omitempty"`
	// ByOwner are the results of policies and of the learned rule for each team and user, if the
	// trace names them, rule by rule, the largest saving first.
	ByOwner []Owned `json:"by_owner,omitempty"`
	// Timeline shows the releases of the headline's rule, if [Params.Draw] asks for it.
	Timeline *Timeline `json:"timeline,omitempty"`
	// Notes qualify the figures of policies: their basis, and the unmeasured resources.
	Notes []string `json:"notes,omitempty"`
}

// Names of the results that reports show apart.
const (
	Learned          = "learned"
	BestFixed        = "best-fixed"
	PerfectForesight = "oracle"
)

// Baseline says whether the i-th result is a baseline: they come last.
func (r *Report) Baseline(i int) bool {
	first := slices.IndexFunc(r.Results, func(res Result) bool { return res.Name == fixedWaits[0].name })
	return first >= 0 && i >= first
}

// Named returns the result of a name, nil where there is none.
func (r *Report) Named(name string) *Result {
	for i := range r.Results {
		if r.Results[i].Name == name {
			return &r.Results[i]
		}
	}
	return nil
}

// Headline returns the result that a report is about: the policy or decider that saves most, else
// the learned rule. It is nil if nothing was replayed.
func (r *Report) Headline() *Result {
	if len(r.Results) == 0 {
		return nil
	}
	best := &r.Results[0]
	if r.Baseline(0) {
		return cmp.Or(r.Named(Learned), best)
	}
	for i := 1; i < r.Rules(); i++ {
		if r.Results[i].NetSavedHours > best.NetSavedHours {
			best = &r.Results[i]
		}
	}
	return best
}

// Rules counts the policies and deciders: the results that are no baselines.
func (r *Report) Rules() int {
	n := 0
	for n < len(r.Results) && !r.Baseline(n) {
		n++
	}
	return n
}

// Priced says whether there are dollars.
func (r Report) Priced() bool { return r.Trace.Unpriced == 0 }

// Wait is the result of one fixed wait.
type Wait struct {
	WaitSeconds   float64 `json:"wait_seconds"`
	Restarts      int64   `json:"restarts"`
	ReleasedHours float64 `json:"released_hours"`
	NetSavedHours float64 `json:"net_saved_hours"`
	NetSavedShare float64 `json:"net_saved_share"`
}

// Trace describes the replayed trace.
type Trace struct {
	Name      string    `json:"name"`
	Resources int       `json:"resources"`
	Samples   int64     `json:"samples"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	// StepSeconds and RestartCostSeconds are the settings of the replay; MedianStepSeconds is the
	// step found in the trace, 0 if there is none.
	StepSeconds        float64 `json:"step_seconds"`
	MedianStepSeconds  float64 `json:"median_step_seconds"`
	RestartCostSeconds float64 `json:"restart_cost_seconds"`
	IdleBelowPct       float64 `json:"idle_below_pct"`
	// Stretches is how many idle periods there are.
	IdlePeriods int64 `json:"stretches"`
	// PriceUSD is the price of a resource an hour where all have the same; null where they
	// differ, and where any has none.
	PriceUSD money.Dollars `json:"price_usd"`
	// Unpriced is how many resources have no price, so that dollars are null.
	Unpriced int `json:"unpriced"`
}

// Result is the result of one rule. Hours are hours of a resource. Samples of a resource count a
// step each, missing ones are unknown and in no share.
type Result struct {
	Name          string  `json:"name"`
	ResourceHours float64 `json:"resource_hours"`
	IdleHours     float64 `json:"idle_hours"`
	ReleasedHours float64 `json:"released_hours"`
	Restarts      int64   `json:"restarts"`
	RestartHours  float64 `json:"restart_hours"`
	// NetSavedHours is released less restart hours, NetSavedShare that of the
	// resource hours.
	NetSavedHours float64 `json:"net_saved_hours"`
	NetSavedShare float64 `json:"net_saved_share"`
	// OfForesight is the net saving over the oracle's; null where the oracle saves
	// nothing.
	OfForesight *float64 `json:"of_oracle"`
	// Interrupted counts releases after which work came back within the restart cost.
	Interrupted  int64   `json:"cut_short"`
	UnknownHours float64 `json:"unknown_hours"`
	// CostUSD is the price of the resource hours, SavedUSD of the net saving; null
	// when unpriced.
	CostUSD  money.Dollars `json:"cost_usd"`
	SavedUSD money.Dollars `json:"saved_usd"`
	// OfForesightWhy says why OfForesight is null.
	OfForesightWhy string `json:"of_oracle_why,omitempty"`
	// ReleasedByState divides the released hours by the verdict at the moment of the
	// release, and VerdictUnknownHours is the time in which the verdict was unknown; WhyNot
	// is why a policy did nothing. Only policies have them.
	ReleasedByState     map[string]float64 `json:"released_by_state,omitempty"`
	VerdictUnknownHours *float64           `json:"verdict_unknown_hours,omitempty"`
	WhyNot              []WhyNot           `json:"why_not,omitempty"`
	// Notices are those of a policy that only tells people; null for all else.
	Notices *Notices `json:"notices,omitempty"`
	// AsSessions are the resources as sessions; null for other rules.
	AsSessions *Sessions `json:"as_sessions,omitempty"`
	// WaitSeconds is the wait of a rule that has only one.
	WaitSeconds *float64 `json:"wait_seconds,omitempty"`
}

// The waits of the baselines that are fixed.
var fixedWaits = []struct {
	name string
	wait time.Duration
}{
	{"fixed-1m", time.Minute}, {"fixed-5m", 5 * time.Minute}, {"fixed-15m", 15 * time.Minute},
	{"fixed-60m", time.Hour},
}

// deadmanAfter is the wait of the baseline deadman-12h.
const deadmanAfter = 12 * time.Hour

// replay runs every rule over the trace.
func (t *trace) replay(ctx context.Context, p Params) (Report, error) {
	sum := t.totals()
	oracle := func(r learn.Periods) learn.Tally { return r.PerfectForesight(t.step, t.restart) }
	w := writer{trace: t, sum: sum, oracle: oracle(sum.Periods), p: p}
	w.Report = Report{Trace: t.describe(p, sum)}
	if p.Policies != nil {
		for _, pol := range p.Policies.Policies {
			got, err := t.obey(ctx, pol, p, w.draws())
			if err := w.rule(pol.Name, got, err); err != nil {
				return Report{}, err
			}
			r := &w.Results[len(w.Results)-1]
			r.obey(got)
			if pol.Do.Verb == policy.Notify {
				if r.Notices, err = t.noticesOf(pol, got); err != nil {
					return Report{}, fmt.Errorf("%s: %w", pol.Name, err)
				}
			}
			if p.AsSessions > 0 && pol.Name == sessionRule(p.AsSessions) {
				if err := r.sessions(p.AsSessions, len(t.resources)); err != nil {
					return Report{}, fmt.Errorf("%s: %w", pol.Name, err)
				}
			}
			if !got.acted {
				w.Notes = append(w.Notes, r.silence())
			}
		}
		w.Notes = append(w.Notes, t.account.Assumptions().notes()...)
		if slices.ContainsFunc(p.Policies.Policies, (*policy.Policy).UsesCharges) {
			w.Notes = append(w.Notes, t.budgetNote(p))
		}
		if p.Caps {
			w.Notes = append(w.Notes,
				"The limits of policies bind. A fuse that blows, because over half of what a policy "+
					"selects is due at once, is confirmed by a person at once.")
		}
	}
	if u := w.Report.Trace.Unpriced; u > 0 && u < w.Report.Trace.Resources {
		w.Notes = append(w.Notes,
			fmt.Sprintf("Dollars are unknown: %d of %d resources have no price. State their types, or give one "+
				"price for all.",
				u, w.Report.Trace.Resources))
	}
	fleet := learn.Fleet{Step: p.Format.Step, RestartCost: p.RestartCost, Resources: t.resources}
	for _, d := range p.Deciders {
		got, err := t.follow(ctx, d.New(fleet), w.draws(), nil)
		if err := w.rule(d.Name, got, err); err != nil {
			return Report{}, err
		}
	}
	if !p.Baselines {
		return w.Report, nil
	}
	for _, f := range fixedWaits {
		wait := micros(f.wait)
		if err := w.add(f.name, &wait, sum.each(func(r learn.Periods) learn.Tally {
			return r.Fixed(wait, t.step, t.restart)
		})); err != nil {
			return Report{}, err
		}
	}
	deadman := make([]learn.Tally, len(t.tracks))
	for i, track := range t.tracks {
		track.deadman(micros(deadmanAfter), t.step, t.restart, &deadman[i])
	}
	if err := w.add("deadman-12h", nil, sum.split(deadman)); err != nil {
		return Report{}, err
	}
	wait, _ := sum.BestFixed(t.step, t.restart)
	if err := w.add(BestFixed, &wait, sum.each(func(r learn.Periods) learn.Tally {
		return r.Fixed(wait, t.step, t.restart)
	})); err != nil {
		return Report{}, err
	}
	learner := learn.NewLearned(fleet)
	learned, err := t.follow(ctx, learner, w.draws(), nil)
	if err := w.rule(Learned, learned, err); err != nil {
		return Report{}, err
	}
	w.Learned, w.Waits = learner.Weights(), t.waits(sum)
	return w.Report, w.add(PerfectForesight, nil, sum.each(oracle))
}

// describe describes the trace.
func (t *trace) describe(p Params, sum totals) Trace {
	d := Trace{
		Name: p.Format.Name, Resources: len(t.resources), Samples: sum.samples,
		First: t.summary.First, Last: t.summary.Last,
		StepSeconds: p.Format.Step.Seconds(), MedianStepSeconds: t.summary.Step.Seconds(),
		RestartCostSeconds: p.RestartCost.Seconds(), IdleBelowPct: p.IdleBelow,
	}
	for _, n := range sum.Periods {
		d.IdlePeriods += n
	}
	for _, h := range t.hourly {
		if h == nil {
			d.Unpriced++
		}
	}
	if len(sum.rated) == 1 && d.Unpriced == 0 {
		d.PriceUSD = money.Known(*sum.rated[0].hourly)
	}
	return d
}

// writer builds a report rule by rule.
type writer struct {
	Report
	trace  *trace
	sum    totals
	oracle learn.Tally
	p      Params
}

// draws says whether the next rule may be the one that is drawn. Rules after the
// baselines are drawn only where no rule before them is.
func (w *writer) draws() bool {
	return w.p.Draw > 0 && (w.Timeline == nil || !w.Baseline(len(w.Results)-1))
}

// rule adds the result of a rule that was replayed resource by resource.
func (w *writer) rule(name string, got outcome, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	draws := w.draws()
	if err := w.add(name, nil, w.sum.split(got.by)); err != nil {
		return err
	}
	owned, err := w.trace.byOwner(name, w.sum, got)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	w.ByOwner = append(w.ByOwner, owned...)
	if draws && w.Headline().Name == name {
		w.Timeline = w.trace.timeline(name, got, w.p.Draw)
	}
	return nil
}

// add adds a result: that of a rule in each part of the resources.
func (w *writer) add(name string, wait *int64, got []share) error {
	res, err := w.trace.result(name, w.sum, got, w.oracle)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if wait != nil {
		seconds := span(*wait).Seconds()
		res.WaitSeconds = &seconds
	}
	w.Results = append(w.Results, res)
	return nil
}

// waits returns the results of fixed waits, each an eighth longer than the one before but at least
// a step, up to the longest idle period.
func (t *trace) waits(sum totals) []Wait {
	var longest int64
	for s := range sum.Periods {
		longest = max(longest, s.Samples)
	}
	var out []Wait
	for k := int64(0); k < longest; k += max(1, k/8) {
		got := sum.Fixed(k*t.step, t.step, t.restart)
		net := got.Net(t.restart)
		out = append(out, Wait{
			WaitSeconds: span(k * t.step).Seconds(), Restarts: got.Restarts, ReleasedHours: hours(got.Released),
			NetSavedHours: hours(net), NetSavedShare: shareOf(net, sum.samples*t.step),
		})
	}
	return out
}

// shareOf is a part of a time; 0 where no time was measured.
func shareOf(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func (t *trace) result(name string, sum totals, parts []share, oracle learn.Tally) (Result, error) {
	got := together(parts)
	total, net := sum.samples*t.step, got.Net(t.restart)
	r := Result{
		Name: name, ResourceHours: hours(total), IdleHours: hours(sum.idle * t.step),
		ReleasedHours: hours(got.Released), Restarts: got.Restarts, RestartHours: hours(got.Restarts * t.restart),
		NetSavedHours: hours(net), NetSavedShare: shareOf(net, total),
		Interrupted: got.Interrupted, UnknownHours: hours(sum.unknown),
	}
	if best := oracle.Net(t.restart); best > 0 {
		share := float64(net) / float64(best)
		r.OfForesight = &share
	}
	var err error
	r.CostUSD, r.SavedUSD, err = t.dollars(parts)
	return r, err
}

// noticesOf returns the notices of a policy that only notifies people, with their dollars.
func (t *trace) noticesOf(p *policy.Policy, got outcome) (*Notices, error) {
	n := &Notices{Times: got.notices.Times, Resources: len(got.told)}
	cost, unprogressed, priced := money.Amount(0), money.Amount(0), true
	length := int64(0)
	for i, h := range got.held {
		length += h.length
		hourly := t.hourly[t.place[i]]
		if hourly == nil {
			priced = false
			continue
		}
		for sum, part := range map[*money.Amount]int64{&cost: h.length, &unprogressed: h.length + h.before} {
			amount, err := hourly.Mul(part, micros(time.Hour))
			if err == nil {
				*sum, err = sum.Add(amount)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	n.Hours = hours(length)
	if priced {
		n.CostUSD = money.Known(cost)
		if p.AsksProgress() {
			n.UnprogressedUSD = money.Known(unprogressed)
		}
	}
	return n, nil
}

// obey completes the result of a policy.
func (r *Result) obey(got outcome) {
	unknown := hours(got.unknown)
	r.VerdictUnknownHours, r.WhyNot, r.ReleasedByState = &unknown, got.reasons(), map[string]float64{}
	for state, length := range got.byState {
		r.ReleasedByState[state.String()] = hours(length)
	}
	if got.busy {
		r.OfForesight, r.OfForesightWhy = nil,
			"it releases time that the baselines, which go by utilization alone, call busy"
	}
}

// budgetNote describes the basis of conditions about budgets.
func (t *trace) budgetNote(p Params) string {
	switch unpriced := t.account.unpriced(p.Setting.Prices); {
	case len(p.Budgets.Budgets()) == 0:
		return "Budgets are unknown: the configuration has none."
	case unpriced > 0:
		return fmt.Sprintf("Budgets are unknown: %d of %d resources have no price.", unpriced, t.account.Len())
	}
	return "Budgets start with nothing spent when the trace starts. Only what its resources cost counts against them, " +
		"hour by hour; nothing is reserved."
}

// silence says in words that a policy did nothing at all, and why.
func (r *Result) silence() string {
	const most = 3
	var why []string
	for _, w := range r.WhyNot[:min(len(r.WhyNot), most)] {
		reason := w.Reason
		switch w.Answer {
		case "refused":
			reason = "by the rule " + reason
		case "deferred":
			reason = "by the cap " + reason
		}
		why = append(why, fmt.Sprintf("%s for %s h on %s (%s)", w.Answer, plain.Number(w.Hours, 1),
			plain.Count(w.Resources, "resource"), reason))
	}
	if why == nil {
		return r.Name + " never acted."
	}
	return r.Name + " never acted. Its answer was " + strings.Join(why, ", ") + "."
}

// notes are the assumptions that hold of any resource, with how many of them.
func (c Assumptions) notes() []string {
	out := []string{
		"Policies are replayed as if they were enforced, each for itself, and see only what was known by then. Every " +
			"warning is accepted at once. A grace of 0 is allowed, and so are resources without a price.",
		"Assumed of every resource: nothing else manages it, nothing protects it, it has no local disks.",
	}
	for _, n := range []struct {
		count int
		text  string
	}{
		{c.Governed, "policies may act on it"},
		{c.Tags, "it has no tags"},
		{c.Launched, "its launch time is unknown: so is its age, and nothing is warm-up"},
		{c.GPUs, "the GPUs with samples are all it has"},
		{c.Kind, "it is an instance"},
		{c.Lifetime, "it is ephemeral"},
		{c.Purpose, "it is for experimentation"},
	} {
		if n.count > 0 {
			of := fmt.Sprintf("%d of %d resources", n.count, c.Resources)
			if n.count == c.Resources {
				of = "every resource"
			}
			out = append(out, fmt.Sprintf("Assumed of %s: %s.", of, n.text))
		}
	}
	if c.Size > 0 {
		out = append(out,
			fmt.Sprintf("%d of %d resources are of a type that the price book does not know: how many GPUs "+
				"they have is unknown, and so is what they do.", c.Size, c.Resources))
	}
	return out
}
