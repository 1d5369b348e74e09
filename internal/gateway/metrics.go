package gateway

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/money"
)

// collector shows the statistics to Prometheus.
type collector struct{ g *Gateway }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("curfew_gateway_"+name, help, labels, nil)
}

// The metrics of a gateway.
var (
	requestsDesc = desc("requests_total", "Inference requests by their end.", "pool", "model", "end")
	batchesDesc  = desc("batches_total", "Batches that were sent.", "pool", "model")
	rowsDesc     = desc("batch_rows_total", "Rows of these batches.", "pool", "model")
	predictDesc  = desc("predictions_total", "Rows that were answered.", "pool", "model", "owner")
	tokensDesc   = desc("tokens_total", "Tokens of OpenAI-compatible paths.", "pool", "model", "owner", "direction")
	usedDesc     = desc("used_dollars_total", "Dollars of server time that worked; absent without a price.",
		"pool", "model", "owner")
	allocatedDesc = desc("allocated_dollars_total", "Dollars of all server time; absent without a price.", "pool")
	perDesc       = desc("prediction_dollars", "Dollars of one prediction since the start; absent without a price.",
		"pool", "model", "part")
	tokenCostDesc = desc("million_tokens_dollars",
		"Dollars of a million tokens since the start; absent without a price or a stream that shows its first token.",
		"pool", "model", "direction", "part")
	latencyDesc = desc("latency_seconds", "Latency of recent answers.", "pool", "model", "quantile")
	refusedDesc = desc("refused_total", "Requests that no model server answered.", "reason")
	queuedDesc  = desc("queued_rows", "Rows in the queue.", "pool")
	waitingDesc = desc("waiting_requests", "Requests that wait for a server.", "pool", "model")
	runningDesc = desc("running_requests", "Requests that servers work on.", "pool", "model")
	arrivalDesc = desc("arrivals_per_second", "Requests a second, refused ones included, over the last 60 s.",
		"pool", "model")
	utilDesc   = desc("utilization", "Share of server time in use over 5 minutes.", "pool")
	healthDesc = desc("upstream_healthy", "1 where the model server is healthy.", "pool", "upstream")
	fitDesc    = desc("batch_seconds", "Fitted time of a batch: by row, and fixed.", "pool",
		"model", "upstream", "part")
	stateDesc = desc("pool_state", "1 for the state of a pool that sleeps, 0 for its other states.", "pool", "state")
	heldDesc  = desc("held_requests", "Requests that wait for a server to wake.", "pool")
	wakesDesc = desc("wakes_total", "Sleeps that a request ended or ends.", "pool")
	coldDesc  = desc("cold_start_seconds", "Time from the first held request until a server answered.", "pool",
		"quantile")
)

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		requestsDesc, batchesDesc, rowsDesc, predictDesc, tokensDesc, usedDesc, allocatedDesc,
		perDesc, tokenCostDesc, latencyDesc,
		refusedDesc, queuedDesc, waitingDesc, runningDesc, arrivalDesc, utilDesc, healthDesc, fitDesc,
		stateDesc, heldDesc, wakesDesc, coldDesc,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	s, err := c.g.Stats()
	if err != nil {
		to <- prometheus.NewInvalidMetric(allocatedDesc, err)
		return
	}
	count := func(d *prometheus.Desc, v int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	dollars := func(d *prometheus.Desc, kind prometheus.ValueType, v money.Dollars, labels ...string) {
		if amount, known := v.Get(); known {
			to <- prometheus.MustNewConstMetric(d, kind, float64(amount)/float64(money.USD), labels...)
		}
	}
	for _, p := range s.Pools {
		c.pool(to, p)
		dollars(allocatedDesc, prometheus.CounterValue, p.AllocatedUSD, p.Name)
	}
	for _, m := range s.Models {
		count(requestsDesc, m.Requests, m.Pool, m.Model, "arrived")
		count(requestsDesc, m.Answered, m.Pool, m.Model, "answered")
		count(requestsDesc, m.Failed, m.Pool, m.Model, "failed")
		count(batchesDesc, m.Batches, m.Pool, m.Model)
		count(rowsDesc, m.BatchedRows, m.Pool, m.Model)
		dollars(perDesc, prometheus.GaugeValue, m.PerPrediction.UsedUSD, m.Pool, m.Model, "used")
		dollars(perDesc, prometheus.GaugeValue, m.PerPrediction.IdleUSD, m.Pool, m.Model, "idle")
		dollars(perDesc, prometheus.GaugeValue, m.PerPrediction.AllocatedUSD, m.Pool, m.Model, "allocated")
		for direction, u := range map[string]stats.UnitCost{
			"input": m.PerMillionInputTokens, "output": m.PerMillionOutputTokens,
		} {
			dollars(tokenCostDesc, prometheus.GaugeValue, u.UsedUSD, m.Pool, m.Model, direction, "used")
			dollars(tokenCostDesc, prometheus.GaugeValue, u.IdleUSD, m.Pool, m.Model, direction, "idle")
			dollars(tokenCostDesc, prometheus.GaugeValue, u.AllocatedUSD, m.Pool, m.Model, direction, "allocated")
		}
		c.model(to, m)
	}
	for _, o := range s.Owners {
		count(predictDesc, o.Predictions, o.Pool, o.Model, o.Owner)
		count(tokensDesc, o.InputTokens, o.Pool, o.Model, o.Owner, "input")
		count(tokensDesc, o.OutputTokens, o.Pool, o.Model, o.Owner, "output")
		dollars(usedDesc, prometheus.CounterValue, o.UsedUSD, o.Pool, o.Model, o.Owner)
	}
	for _, r := range s.Refused {
		count(refusedDesc, r.Count, r.Reason)
	}
}

// pool shows the state of a pool.
func (collector) pool(to chan<- prometheus.Metric, p stats.Pool) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(queuedDesc, float64(p.QueuedRows), p.Name)
	if p.Utilization != nil {
		gauge(utilDesc, *p.Utilization, p.Name)
	}
	for _, u := range p.Upstreams {
		gauge(healthDesc, flag(u.Healthy), p.Name, u.URL)
	}
	if p.Sleep == nil {
		return
	}
	for _, state := range []string{stats.Awake, stats.Draining, stats.Asleep, stats.Waking} {
		gauge(stateDesc, flag(p.Sleep.State == state), p.Name, state)
	}
	gauge(heldDesc, float64(p.Sleep.HeldRequests), p.Name)
	to <- prometheus.MustNewConstMetric(wakesDesc, prometheus.CounterValue, float64(p.Sleep.Wakes), p.Name)
	if p.Sleep.ColdStartP50 != nil && p.Sleep.ColdStartP95 != nil {
		gauge(coldDesc, *p.Sleep.ColdStartP50, p.Name, "0.5")
		gauge(coldDesc, *p.Sleep.ColdStartP95, p.Name, "0.95")
	}
}

// flag is 1 for true.
func flag(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

// model shows the latency and the fits of a model.
func (collector) model(to chan<- prometheus.Metric, m stats.Model) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(waitingDesc, float64(m.Demand.WaitingRequests), m.Pool, m.Model)
	gauge(runningDesc, float64(m.Demand.RunningRequests), m.Pool, m.Model)
	if m.Demand.ArrivalsPerSecond != nil {
		gauge(arrivalDesc, *m.Demand.ArrivalsPerSecond, m.Pool, m.Model)
	}
	if l := m.LatencyMS; l != nil {
		gauge(latencyDesc, l.P50/1000, m.Pool, m.Model, "0.5")
		gauge(latencyDesc, l.P95/1000, m.Pool, m.Model, "0.95")
		gauge(latencyDesc, l.P99/1000, m.Pool, m.Model, "0.99")
	}
	for _, f := range m.Fits {
		if f.AMS != nil {
			gauge(fitDesc, *f.AMS/1000, m.Pool, m.Model, f.Upstream, "row")
			gauge(fitDesc, *f.BMS/1000, m.Pool, m.Model, f.Upstream, "base")
		}
	}
}

func (g *Gateway) serveMetrics(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(g.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}).ServeHTTP(w, r)
}
