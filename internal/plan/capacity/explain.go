package capacity

import (
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// explain writes the title, the assumptions and what would change the answer.
func (r *Report) explain(p Params) {
	r.Title = r.title()
	r.Assumptions, r.CoverageNotes, r.Changes = r.assumed(p), r.covered(p), r.changes(p)
	if r.Curve == nil {
		r.Curve = []Point{}
	}
}

// title is the answer in one sentence.
func (r *Report) title() string {
	cost := ""
	if r.CostUSDPerHour.Known() {
		cost = " at " + r.CostUSDPerHour.String() + "/h"
	}
	s := fmt.Sprintf("Run %s for %s requests/s%s: %s utilization", plain.Count(r.Replicas, "replica"),
		plain.Number(r.QPS, 2), cost, plain.Share(r.Utilization, 1))
	switch {
	case r.Met != nil && *r.Met:
		s += fmt.Sprintf(", p99 latency %s ms, objective %s ms met", plain.Number(*r.P99LatencyMS, 1),
			plain.Number(*r.ObjectiveMS, 1))
	case r.Met != nil:
		s += fmt.Sprintf(", p99 latency %s ms, objective %s ms missed", plain.Number(*r.P99LatencyMS, 1),
			plain.Number(*r.ObjectiveMS, 1))
	case r.P99LatencyMS != nil:
		s += fmt.Sprintf(", p99 latency %s ms", plain.Number(*r.P99LatencyMS, 1))
	}
	if c := r.Crowded; c != nil {
		s += fmt.Sprintf("; %s of capacity is over %s, use %s for %s", plain.Share(r.Load, 1), plain.Share(c.Limit, 0),
			plain.Count(c.Replicas, "replica"), plain.Share(c.Load, 1))
	}
	return s
}

// assumed lists the assumptions.
func (r *Report) assumed(p Params) []string {
	var out []string
	note := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	switch {
	case r.Method == ByFormula:
		note("one replica serves %s requests/s, whatever the arrival pattern", plain.Number(p.QPSPerGPU, 2))
	case p.shared():
		l := p.Law
		note("a request takes %s × c + %s while c requests run on its replica, measured for %d to %d; so a replica "+
			"serves at most %s requests/s", l.PerItem, l.Base, l.Min, l.Max, plain.Number(l.Throughput(l.Max), 2))
		if l.Min > 1 {
			note("fewer than %d running requests were not measured: they take as long as %d", l.Min, l.Min)
		}
		note("a request goes to the replica that runs the fewest, and waits in one first-in, first-out queue while "+
			"each runs %d; no request is rejected", l.Max)
		note("the work of requests (their tokens) is exponentially distributed around the measured mean")
	default:
		note("a batch of n items takes %s × n + %s on every replica", p.Profile.PerItem, p.Profile.Base)
		takes := "the whole queue as one batch"
		if p.MaxBatch > 0 {
			takes = "up to " + plain.Count(p.MaxBatch, "item") + " of the queue as one batch"
		}
		note("the replicas share one first-in, first-out queue; an idle replica takes %s; no request is rejected",
			takes)
	}
	switch r.Method {
	case ByChain, BySimulation:
		note("requests arrive independently (Poisson arrivals); bursts increase latency")
	case ByReplay:
		if rate := p.Arrivals.Rate(); rate != r.QPS {
			note("the recorded arrivals had %s requests/s; their timestamps are scaled to %s requests/s",
				plain.Number(rate, 3),
				plain.Number(r.QPS, 3))
		}
	}
	switch {
	case p.Headroom > 0 && p.Replicas > 0:
		note("the number of replicas is given, so the headroom of %s is not applied", plain.Share(p.Headroom, 1))
	case p.Headroom > 0:
		note("headroom %s: the replicas can serve %s requests/s", plain.Share(p.Headroom, 1),
			plain.Number(p.QPS/(1-p.Headroom), 2))
	}
	if p.Target > 0 {
		note("the fewest replicas with at most %s utilization; change this with --headroom, --p99 or --replicas",
			plain.Share(p.Target, 0))
	}
	if p.Band {
		note("the replicas aim for %s to %s utilization, as close to %s as whole replicas come; change this with "+
			"--headroom, --p99 or --replicas", plain.Share(BandLow, 0), plain.Share(BandHigh, 0),
			plain.Share(DefaultTarget, 0))
	}
	if p.HourlyPrice > 0 {
		note("a replica costs %s an hour, whether it is busy or idle", p.HourlyPrice.Dollars())
	}
	return out
}

// covered describes the coverage of the figures.
func (r *Report) covered(p Params) []string {
	var out []string
	note := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	switch r.Method {
	case ByFormula:
		note("latency is unknown: it needs the batch profile (--profile)")
	case ByChain:
		note("the figures are computed from a batch-service queue, without random sampling")
	case BySimulation:
		if p.shared() {
			note("utilization is the share of the highest throughput: a busy GPU alone says nothing")
		}
		note("%s requests simulated with a fixed seed: p99 latency ± %s ms (95%% confidence)",
			money.Thousands(int64(r.Requests)), plain.Number(r.P99ErrorMS, 2))
		if r.P99ErrorMS > 0.1**r.P99LatencyMS {
			note("the load is close to 100%%: the simulated latency has not converged and may be far higher")
		}
		if r.ObjectiveMS != nil && math.Abs(*r.ObjectiveMS-*r.P99LatencyMS) < r.P99ErrorMS {
			note("the objective is within the error of the p99 latency: add one replica to be sure")
		}
	case ByReplay:
		times := p.Arrivals.Times
		span := time.Duration((times[len(times)-1] - times[0]) * float64(time.Second))
		note("%s arrivals over %s replayed; the slowest %s set the p99 latency; other days may differ",
			money.Thousands(int64(len(times))),
			plain.Duration(span), money.Thousands(int64(max(1, len(times)/100))))
		if p.Arrivals.Sizes == nil {
			note("the arrivals have no column size, so each request is one item")
		}
	}
	if p.HourlyPrice == 0 {
		note("cost is unknown: the price of a replica is missing (--price)")
	}
	if p.ColdStart == 0 {
		note("scaling to zero is not evaluated: the cold start time is missing (--cold-start)")
	}
	return out
}

// changes lists the facts that would change the answer.
func (r *Report) changes(p Params) []string {
	var out []string
	note := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	for _, c := range r.Curve {
		if c.Replicas == r.Replicas-1 || c.Replicas == r.Replicas+1 {
			note("with %s, p99 latency is %s ms", plain.Count(c.Replicas, "replica"), plain.Number(c.P99LatencyMS, 1))
		}
	}
	if c := r.Crowded; c != nil {
		note(
			"the plan is at %s of capacity: above %s latency rises fast, and nothing is left for a rise or a replica "+
				"that fails; %s are at %s", plain.Share(r.Load, 1), plain.Share(c.Limit, 0),
			plain.Count(c.Replicas, "replica"), plain.Share(c.Load, 1))
	}
	if r.Load > 0 {
		note("above %s requests/s, the queue of %s grows without limit", plain.Number(r.QPS/r.Load, 1),
			plain.Count(r.Replicas, "replica"))
	}
	note("rule of thumb (Erlang C, one request at a time): at %s load of %s the mean wait is a third of the service "+
		"time; stay below that load",
		plain.Share(r.Erlang.UtilizationTarget, 0), plain.Count(r.Replicas, "replica"))
	if q := r.Poisson; q != nil {
		note(
			"Poisson arrivals at the same rate have a p99 latency of %s ms; the recorded arrivals take %s times as long",
			plain.Number(q.P99LatencyMS, 1), plain.Number(q.P99Ratio, 2))
	}
	if r.MaxWaitMS != nil && *r.MaxWaitMS > 0 {
		note("a replica may wait up to %s ms for a batch to fill and still meet the objective; start with 20 to 30 ms",
			plain.Number(*r.MaxWaitMS, 1))
	}
	if z := r.ScaleToZero; z != nil {
		verdict := "saves nothing"
		if z.Pays {
			verdict = "saves money"
		}
		note("scaling to zero %s: %s of the time of the last replica is paid, cold starts included, and %s of the "+
			"requests wait for a cold start",
			verdict, plain.Share(z.PaidShare, 1), plain.Share(z.ColdShare, 1))
		if z.Pays && z.BreaksObjective {
			note("cold starts alone miss the objective of %s: keep one replica", p.P99)
		}
	}
	return out
}
