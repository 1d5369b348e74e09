package capacity

import (
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// explain writes for people what the plan says, rests on, and what would change it.
func (r *Report) explain(p Params) {
	r.Title = r.title()
	r.Assumptions, r.CoverageNotes, r.Changes = r.assumed(p), r.covered(p), r.changes(p)
	if r.Curve == nil {
		r.Curve = []Point{}
	}
}

// title is the answer in one sentence.
func (r *Report) title() string {
	s := fmt.Sprintf("%s for %s requests a second, %s%% busy", plain.Count(r.Replicas, "replica"), plain.Number(r.QPS, 2), plain.Number(100*r.Utilization, 1))
	switch {
	case r.Met != nil && *r.Met:
		s += fmt.Sprintf(": 99 of 100 are done in %s ms, within the objective of %s ms", plain.Number(*r.P99LatencyMS, 1), plain.Number(*r.ObjectiveMS, 1))
	case r.Met != nil:
		s += fmt.Sprintf(": 99 of 100 are done in %s ms, which misses the objective of %s ms", plain.Number(*r.P99LatencyMS, 1), plain.Number(*r.ObjectiveMS, 1))
	case r.P99LatencyMS != nil:
		s += fmt.Sprintf(": 99 of 100 are done in %s ms", plain.Number(*r.P99LatencyMS, 1))
	}
	return s
}

// assumed says what the plan rests on.
func (r *Report) assumed(p Params) []string {
	var out []string
	note := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	if r.Method == ByFormula {
		note("one replica serves %s requests a second, however they come", plain.Number(p.QPSPerGPU, 2))
	} else {
		note("a batch of n items takes %s n + %s on every replica, for every n", p.Profile.PerItem, p.Profile.Base)
		takes := "the whole queue as one batch"
		if p.MaxBatch > 0 {
			takes = "up to " + plain.Count(p.MaxBatch, "item") + " of the queue as one batch"
		}
		note("the replicas share one queue in order of arrival, and an idle one takes %s; nothing is shed", takes)
	}
	switch r.Method {
	case ByChain, BySimulation:
		note("requests know nothing of one another (Poisson arrivals); bursts make them wait longer")
	case ByReplay:
		if rate := p.Arrivals.Rate(); rate != r.QPS {
			note("the arrivals had %s a second: their time is changed to give %s", plain.Number(rate, 3), plain.Number(r.QPS, 3))
		}
	}
	switch {
	case p.Headroom > 0 && p.Replicas > 0:
		note("the replicas are given: a headroom of %s%% is not looked for", plain.Number(100*p.Headroom, 1))
	case p.Headroom > 0:
		note("a headroom of %s%%: the replicas are enough for %s requests a second", plain.Number(100*p.Headroom, 1), plain.Number(p.QPS/(1-p.Headroom), 2))
	}
	if p.Target > 0 {
		note("the replicas are the fewest that are at most %s%% busy; --headroom, --p99 or --replicas choose otherwise", plain.Number(100*p.Target, 0))
	}
	if p.HourlyPrice > 0 {
		note("a replica costs %s an hour, busy or not", p.HourlyPrice.Dollars())
	}
	return out
}

// covered says how far the figures go.
func (r *Report) covered(p Params) []string {
	var out []string
	note := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	switch r.Method {
	case ByFormula:
		note("no latency is known without the profile of a batch")
	case ByChain:
		note("the figures are computed from the batch-service queue; nothing is drawn")
	case BySimulation:
		note("%s requests are simulated with a fixed seed: the p99 is good to %s ms either way (95%%)", money.Thousands(int64(r.Requests)), plain.Number(r.P99ErrorMS, 2))
		if r.P99ErrorMS > 0.1**r.P99LatencyMS {
			note("the load is so near 1 that the latency does not settle: it may be far higher")
		}
		if r.ObjectiveMS != nil && math.Abs(*r.ObjectiveMS-*r.P99LatencyMS) < r.P99ErrorMS {
			note("the p99 is closer to the objective than it is known: one more replica makes it sure")
		}
	case ByReplay:
		times := p.Arrivals.Times
		span := time.Duration((times[len(times)-1] - times[0]) * float64(time.Second))
		note("%s arrivals over %s are replayed; the p99 rests on the slowest %s, and other days may differ", money.Thousands(int64(len(times))),
			plain.Duration(span), money.Thousands(int64(max(1, len(times)/100))))
		if p.Arrivals.Sizes == nil {
			note("the arrivals have no column size: every request counts as one item")
		}
	}
	if p.HourlyPrice == 0 {
		note("the price of a replica is not known, and so are the costs")
	}
	if p.ColdStart == 0 {
		note("the cold start is not known: whether to scale to zero is left open")
	}
	return out
}

// changes says what would change the answer.
func (r *Report) changes(p Params) []string {
	var out []string
	note := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	for _, c := range r.Curve {
		if c.Replicas == r.Replicas-1 || c.Replicas == r.Replicas+1 {
			note("with %s 99 of 100 requests are done in %s ms", plain.Count(c.Replicas, "replica"), plain.Number(c.P99LatencyMS, 1))
		}
	}
	if r.Load > 0 {
		note("over %s requests a second the queue of %s grows without end", plain.Number(r.QPS/r.Load, 1), plain.Count(r.Replicas, "replica"))
	}
	note("requests served one at a time, with times as different as an exponential's, wait a third of one on average at %s%% load of %s; aim below it",
		plain.Number(100*r.Erlang.UtilizationTarget, 0), plain.Count(r.Replicas, "replica"))
	if q := r.Poisson; q != nil {
		note("with Poisson arrivals of the same rate 99 of 100 are done in %s ms: the recorded ones take %s times as long", plain.Number(q.P99LatencyMS, 1), plain.Number(q.P99Ratio, 2))
	}
	if r.MaxWaitMS != nil && *r.MaxWaitMS > 0 {
		note("a batch may be held back for %s ms at most to grow; 20 to 30 ms is where to start", plain.Number(*r.MaxWaitMS, 1))
	}
	if z := r.ScaleToZero; z != nil {
		verdict := "does not pay"
		if z.Pays {
			verdict = "pays"
		}
		note("scaling to zero %s: %s%% of the last replica's time would be paid, cold starts included, and %s%% of the requests wait for one",
			verdict, plain.Number(100*z.PaidShare, 1), plain.Number(100*z.ColdShare, 1))
		if z.Pays && z.BreaksObjective {
			note("the cold starts alone miss the objective of %s: keep one replica", p.P99)
		}
	}
	return out
}
