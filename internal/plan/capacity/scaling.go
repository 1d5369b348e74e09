package capacity

import "math"

// Defaults of autoscalers. Knative: pods = concurrency / (target ×
// 0.7), over 60 s and in a panic over 6 s (config-autoscaler); KEDA: a poll every 30 s
// and 300 s until it scales to zero (pollingInterval, cooldownPeriod).
const (
	knativeShare  = 0.7
	knativeStable = 60
	knativePanic  = 6
	kedaPoll      = 30
	kedaCoolDown  = 300
)

// Scaling is the signals on which to change the number of replicas, each for one
// replica at the planned rate, headroom included.
type Scaling struct {
	// Concurrency is requests waiting or in service for each replica; above it one more
	// is needed. KnativeTarget is the containerConcurrency target with which Knative
	// keeps it at its utilization of 70%. Both are null without a profile.
	Concurrency   *float64 `json:"concurrency_per_replica"`
	KnativeTarget *float64 `json:"knative_target"`
	// QPSPerReplica is the threshold where requests a second are the signal, as in KEDA.
	QPSPerReplica float64 `json:"qps_per_replica"`
	// QueueWaitMS is the wait before a batch of mean size above which the objective is
	// about to be missed; null without an objective.
	QueueWaitMS *float64 `json:"queue_wait_ms"`
	// ReactSeconds is the time until a new replica serves: a poll of the autoscaler and the cold
	// start; null if that is unknown. The headroom serves the requests until then.
	ReactSeconds *float64 `json:"react_seconds"`
	// Windows over which autoscalers average the signals, and the time until zero, in seconds.
	StableWindowSeconds int `json:"stable_window_seconds"`
	// PanicWindowSeconds is the window in seconds over which a burst is seen.
	PanicWindowSeconds int `json:"panic_window_seconds"`
	// PollSeconds is how often in seconds the load is read.
	PollSeconds int `json:"poll_seconds"`
	// CoolDownSeconds is the time in seconds before scaling in.
	CoolDownSeconds int `json:"cool_down_seconds"`
}

// signals need no profile: requests per second and replica, and the times of autoscalers.
func signals(p Params, each float64) *Scaling {
	s := &Scaling{
		QPSPerReplica: each, StableWindowSeconds: knativeStable,
		PanicWindowSeconds: knativePanic, PollSeconds: kedaPoll,
		CoolDownSeconds: kedaCoolDown,
	}
	if p.ColdStart > 0 {
		s.ReactSeconds = known(kedaPoll + p.ColdStart.Seconds())
	}
	return s
}

// scale adds the signals.
func (r *Report) scale(s *sizing, n int) {
	f := s.figures(n, s.p.QPS, 0)
	qps := s.p.QPS
	if planned := s.planned(); s.p.Headroom > 0 && (s.p.Arrivals != nil || s.load(n, planned) < 1) {
		qps, f = planned, s.figures(n, planned, 0)
	}
	concurrency := qps * f.mean / float64(n) // Little's law
	r.Scaling = signals(s.p, qps/float64(n))
	r.Scaling.Concurrency, r.Scaling.KnativeTarget = known(concurrency), known(concurrency/knativeShare)
	if s.p.P99 > 0 {
		batch := s.p.Profile.PerItem.Seconds()*f.meanBatch + s.p.Profile.Base.Seconds()
		if s.p.shared() {
			batch = s.p.Law.Time(int(f.running + 0.5))
		}
		r.Scaling.QueueWaitMS = known(millis(max(0, s.p.P99.Seconds()-batch)))
	}
}

// ScaleToZero is whether ending the last replica when nothing comes saves money. It is
// kept for as long as a cold start after the last request: this never costs more
// than twice the optimum with perfect foresight (Karlin and others, 1988).
type ScaleToZero struct {
	// Pays is true if scaling to zero reduces the paid time, cold starts included.
	Pays bool `json:"pays"`
	// BreakEvenQPS is the rate of Poisson arrivals below which it pays: one in a cold
	// start.
	BreakEvenQPS float64 `json:"break_even_qps"`
	// KeepSeconds is how long a replica without requests is kept.
	KeepSeconds float64 `json:"keep_seconds"`
	// PaidShare is the paid time of the last replica as a share of all time; over 1
	// where cold starts cost more than the pauses save.
	PaidShare float64 `json:"paid_share"`
	// ColdShare is the share of requests, 0 to 1, that wait for a cold start;
	// BreaksObjective says that they are too many for the latency objective.
	ColdShare       float64 `json:"cold_share"`
	BreaksObjective bool    `json:"breaks_objective"`
}

// zero weighs an end of the last replica, where the cold start is known. Gaps between
// requests count as idle: the service time is short compared with the cold start.
func (r *Report) zero(p Params) {
	cold := p.ColdStart.Seconds()
	if cold <= 0 {
		return
	}
	z := &ScaleToZero{BreakEvenQPS: 1 / cold, KeepSeconds: cold}
	if p.Arrivals == nil {
		// A gap is exponential: it is longer than the cold start with probability e^-(rate cold),
		// and its remainder is as long as any gap.
		z.ColdShare = math.Exp(-r.QPS * cold)
		z.PaidShare = 1 - z.ColdShare*(1-r.QPS*cold)
	} else {
		times, stretch := p.Arrivals.Times, p.Arrivals.Rate()/r.QPS
		saved, starts := 0.0, 0
		for i := 1; i < len(times); i++ {
			if gap := (times[i] - times[i-1]) * stretch; gap > cold {
				saved += gap - 2*cold
				starts++
			}
		}
		z.ColdShare = float64(starts) / float64(len(times)-1)
		z.PaidShare = 1 - saved/((times[len(times)-1]-times[0])*stretch)
	}
	z.Pays = z.PaidShare < 1-1e-9
	z.BreaksObjective = p.P99 > 0 && cold > p.P99.Seconds() && z.ColdShare > 0.01
	r.ScaleToZero = z
}
