package capacity

import "github.com/curfew-dev/curfew/internal/money"

// Schema names the shape of a [Report] in JSON.
const Schema = "curfew.plan.capacity/v1"

// Method is how the figures were found.
type Method string

// The methods.
const (
	// ByFormula: the rate divided by what one replica serves; no latency.
	ByFormula Method = "formula"
	// ByChain: the batch-service queue, solved numerically for one replica.
	ByChain Method = "markov-chain"
	// BySimulation: Poisson arrivals, drawn with a fixed seed.
	BySimulation Method = "simulation"
	// ByReplay: the recorded arrivals.
	ByReplay Method = "replay"
)

// Report is the outcome, in the shape of its JSON. Figures that do not
// follow from the parameters are null.
type Report struct {
	Schema string `json:"schema"`
	// Title is the question.
	Title string `json:"title"`
	// Method is how it was computed.
	Method Method `json:"method"`
	// QPS is requests a second, Headroom the share of capacity kept free.
	QPS      float64 `json:"qps"`
	Headroom float64 `json:"headroom"`
	// Replicas is how many replicas there are.
	Replicas int `json:"replicas"`
	// MeanBatch is items a batch, over the batches.
	MeanBatch *float64 `json:"mean_batch"`
	// MeanRunning is the requests that one replica runs at once, with a profile of running requests.
	MeanRunning *float64 `json:"mean_running,omitempty"`
	// MeanLatencyMS and P99LatencyMS are from arrival to the end of service.
	MeanLatencyMS *float64 `json:"mean_latency_ms"`
	P99LatencyMS  *float64 `json:"p99_latency_ms"`
	// P99ErrorMS is half the 95% confidence interval of P99LatencyMS, from ten parts of a
	// simulation; 0 if nothing is drawn.
	P99ErrorMS float64 `json:"p99_error_ms"`
	// Requests is how many were simulated or replayed.
	Requests int `json:"requests"`
	// Utilization is the share of the replicas' time, 0 to 1, in which they serve.
	Utilization float64 `json:"utilization"`
	// Load is the rate as a share of the highest that the replicas can serve, with the
	// largest batches; over 1 only in a replay.
	Load float64 `json:"load"`
	// Crowded is set where the load is over 85% of capacity: the replicas have no room for a rise.
	Crowded *Crowded `json:"crowded,omitempty"`
	// ObjectiveMS is the p99 latency objective, Met whether it is met.
	ObjectiveMS *float64 `json:"objective_ms"`
	Met         *bool    `json:"objective_met"`
	// MaxWaitMS is the longest that a replica may hold a batch back for it to grow,
	// counted from its first request, with which the objective is still met.
	MaxWaitMS *float64 `json:"max_wait_ms"`
	// CostUSDPerHour is the cost of an hour in dollars; null without a price.
	CostUSDPerHour money.Dollars `json:"cost_usd_per_hour"`
	// CostUSDPerMillion is the cost of a million requests in dollars; null without a price.
	CostUSDPerMillion money.Dollars `json:"cost_usd_per_million"`
	// Erlang is the same by a queue of Poisson arrivals.
	Erlang Erlang `json:"erlang"`
	// Poisson is the latency of Poisson arrivals at the same rate; null without a
	// replay, and where they would overload the replicas.
	Poisson *Poisson `json:"poisson"`
	// Scaling is when to scale.
	Scaling *Scaling `json:"scaling"`
	// ScaleToZero is null if the cold start is unknown.
	ScaleToZero *ScaleToZero `json:"scale_to_zero"`
	// Curve is the latency with fewer and more replicas.
	Curve []Point `json:"curve"`
	// Assumptions are those behind the figures.
	Assumptions []string `json:"assumptions"`
	// CoverageNotes are the gaps of the data.
	CoverageNotes []string `json:"coverage_notes"`
	// Changes would change the answer.
	Changes []string `json:"changes"`
}

// Crowded is a plan over 85% of capacity, and the replicas that have room for a rise.
type Crowded struct {
	// Limit is the load above which one scales out.
	Limit float64 `json:"limit"`
	// Replicas is the fewest replicas with a load of at most 80%, Load their load.
	Replicas int     `json:"replicas"`
	Load     float64 `json:"load"`
}

// Erlang is the rule of thumb for as many replicas, one request each at a time.
type Erlang struct {
	// WaitPerService is the mean wait in service times at this load; null from 1 on.
	WaitPerService *float64 `json:"wait_per_service"`
	// UtilizationTarget is the load at which it is a third.
	UtilizationTarget float64 `json:"utilization_target"`
}

// Poisson is a queue with independent arrivals.
type Poisson struct {
	// Method is how it was computed.
	Method Method `json:"method"`
	// MeanLatencyMS is the mean latency in milliseconds.
	MeanLatencyMS float64 `json:"mean_latency_ms"`
	// P99LatencyMS is the 99th percentile of the latency in milliseconds.
	P99LatencyMS float64 `json:"p99_latency_ms"`
	// P99Ratio is the replayed p99 over this one.
	P99Ratio float64 `json:"p99_ratio"`
}

// Point is the latency that a number of replicas has.
type Point struct {
	// Replicas is how many replicas there are.
	Replicas int `json:"replicas"`
	// P99LatencyMS is the 99th percentile of the latency in milliseconds.
	P99LatencyMS float64 `json:"p99_latency_ms"`
	// Utilization is the share of capacity in use.
	Utilization float64 `json:"utilization"`
}

// erlang adds the rule of thumb.
func (r *Report) erlang() {
	r.Erlang.UtilizationTarget = UtilizationTarget(r.Replicas)
	if r.Load < 1 {
		r.Erlang.WaitPerService = known(ErlangWait(r.Replicas, r.Load))
	}
}
