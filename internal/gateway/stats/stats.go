// Package stats holds the documents in which a gateway describes itself.
package stats

import (
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Schema is the version of [Stats], ProfileSchema that of [Profile], KeySchema that of [NewKey].
const (
	Schema        = "curfew.gateway/v1"
	ProfileSchema = "curfew.gateway-profile/v1"
	KeySchema     = "curfew.gateway-key/v1"
	DrainedSchema = "curfew.gateway-drained/v1"
	UnitsSchema   = "curfew.gateway-units/v1"
)

// Stats is what a gateway did since it started.
type Stats struct {
	Schema    string    `json:"schema"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	At        time.Time `json:"at"`
	// Shadow is true where requests are forwarded untouched.
	Shadow bool `json:"shadow"`
	// Pools are the groups of model servers.
	Pools []Pool `json:"pools"`
	// Models are the models that were asked for.
	Models []Model `json:"models"`
	// Owners is what each owner used of each model.
	Owners []Owner `json:"owners"`
	// Refused counts requests that got no answer from a model server, by reason.
	Refused []Count `json:"refused"`
	// PassedThrough counts requests that were sent alone, by reason.
	PassedThrough []Passed `json:"passed_through"`
	// Keys are the API keys that have a budget.
	Keys []Key `json:"keys"`
}

// Pool is a group of model servers.
type Pool struct {
	Name      string     `json:"name"`
	Upstreams []Upstream `json:"upstreams"`
	MaxBatch  int        `json:"max_batch"`
	// QueuedRequests, QueuedRows and QueuedBytes wait now.
	QueuedRequests int   `json:"queued_requests"`
	QueuedRows     int   `json:"queued_rows"`
	QueuedBytes    int64 `json:"queued_bytes"`
	// WaitingRequests wait for a server, in the queue of batches or alone; RunningRequests are sent
	// to servers and not yet answered.
	WaitingRequests int `json:"waiting_requests"`
	RunningRequests int `json:"running_requests"`
	// Utilization is the share of server time in use over the last 5 minutes; null before.
	Utilization *float64 `json:"utilization"`
	// UtilizationStatus compares it with 60% to 80%: below, within, above; unknown where null.
	UtilizationStatus string `json:"utilization_status"`
	// ServerHours is the time of servers since the start.
	ServerHours float64 `json:"server_hours"`
	// AllocatedUSD is what that time cost: UsedUSD worked on requests, IdleUSD waited for them.
	AllocatedUSD money.Dollars `json:"allocated_usd"`
	UsedUSD      money.Dollars `json:"used_usd"`
	IdleUSD      money.Dollars `json:"idle_usd"`
	// USDReason is why dollars are null; empty where they are known.
	USDReason string `json:"usd_reason"`
	// Sleep is the sleep of the pool; null for one that never sleeps.
	Sleep *Sleep `json:"sleep"`
}

// The states of a pool that sleeps.
const (
	Awake    = "awake"
	Draining = "draining"
	Asleep   = "asleep"
	Waking   = "waking"
)

// Sleep is the sleep of a pool.
type Sleep struct {
	// State is awake while a server takes requests, draining while those that answer take no new ones,
	// waking while requests wait for one, and asleep.
	State string `json:"state"`
	// HeldRequests and HeldBytes wait for a server to wake.
	HeldRequests int   `json:"held_requests"`
	HeldBytes    int64 `json:"held_bytes"`
	// Wakes counts the sleeps that ended or end by a request.
	Wakes int64 `json:"wakes"`
	// ColdStartP50 and ColdStartP95 are seconds from the first held request until a server answered, over
	// ColdStarts measured ones; null without one.
	ColdStartP50 *float64 `json:"cold_start_p50_seconds"`
	ColdStartP95 *float64 `json:"cold_start_p95_seconds"`
	ColdStarts   int      `json:"cold_starts"`
}

// DrainRequest asks that servers get no new requests.
type DrainRequest struct {
	Pool string `json:"pool"`
	// Hosts are names or addresses of servers, with or without their port; none is the whole pool.
	Hosts []string `json:"hosts"`
	// Seconds is the duration of the drain; 0 ends it.
	Seconds int `json:"seconds"`
}

// Drained holds the open requests of servers that get no new ones.
type Drained struct {
	Schema string `json:"schema"`
	Pool   string `json:"pool"`
	// Upstreams are the servers of the hosts, and Running their requests together.
	Upstreams []Upstream `json:"upstreams"`
	Running   int        `json:"running_requests"`
	// Waiting requests of the pool have no server.
	Waiting int `json:"waiting_requests"`
}

// Upstream is one model server.
type Upstream struct {
	URL      string `json:"url"`
	Healthy  bool   `json:"healthy"`
	Draining bool   `json:"draining"`
	// Slots is how many batches it works on at once, Running how many it has now.
	Slots   int `json:"slots"`
	Running int `json:"running"`
	// Server is what an OpenAI-compatible server's /metrics shows; null where it has none.
	Server *Load `json:"server"`
}

// Load is the load of a server that batches continuously.
type Load struct {
	// Kind is the server: vllm, sglang, tgi or llama.cpp.
	Kind    string   `json:"kind"`
	Waiting *float64 `json:"waiting_requests"`
	Running *float64 `json:"running_requests"`
	// CacheUse is the used share of the KV cache, 0 to 1.
	CacheUse *float64 `json:"kv_cache_use"`
	// FirstTokenMS is the mean time to the first token in milliseconds, since the server's start.
	FirstTokenMS *float64 `json:"time_to_first_token_ms"`
	// Limit is how many requests the gateway sends to the server at once.
	Limit int `json:"limit"`
}

// Model is one model of a pool.
type Model struct {
	Pool  string `json:"pool"`
	Model string `json:"model"`
	// Requests arrived; Answered of them have an answer, Failed an error of the model server.
	Requests int64 `json:"requests"`
	Answered int64 `json:"answered"`
	Failed   int64 `json:"failed"`
	// Demand is the recent demand for the model.
	Demand Demand `json:"demand"`
	// Batches and BatchedRows were sent in batches.
	Batches     int64 `json:"batches"`
	BatchedRows int64 `json:"batched_rows"`
	// MeanBatch is rows by batch; null without batches.
	MeanBatch *float64 `json:"mean_batch"`
	// LatencyMS is of recent answered requests; null without any.
	LatencyMS *Percentiles `json:"latency_ms"`
	// Predictions are the rows that were answered.
	Predictions int64 `json:"predictions"`
	// PerPrediction is the cost of one prediction.
	PerPrediction UnitCost `json:"per_prediction"`
	// InputTokens and OutputTokens were told by OpenAI-compatible servers.
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// PerMillionTokens is the cost of a million input and output tokens.
	PerMillionTokens UnitCost `json:"per_million_tokens"`
	// PerMillionInputTokens and PerMillionOutputTokens divide that cost by the server time up to the
	// first token of streams, and from then on. Both together are the cost of all tokens.
	PerMillionInputTokens  UnitCost `json:"per_million_input_tokens"`
	PerMillionOutputTokens UnitCost `json:"per_million_output_tokens"`
	// Fits are the batch times on each server.
	Fits []Fit `json:"fits"`
	// ConcurrencyFits are the times of completions by the requests c that run on the server, which
	// batches continuously by itself: a·c + b. Rows and batches are running requests and completions
	// there, and c / (a·c + b) is the throughput.
	ConcurrencyFits []Fit `json:"concurrency_fits"`
	// Shadow is what batching would give; null unless the gateway is a shadow.
	Shadow *Shadow `json:"shadow"`
}

// Demand is the recent demand for a model, as a scaler reads it. Refused requests count as arrived.
type Demand struct {
	// WaitingRequests and RunningRequests wait for a server, and are sent to one, now.
	WaitingRequests int `json:"waiting_requests"`
	RunningRequests int `json:"running_requests"`
	// ArrivalsPerSecond and RowsPerSecond are means over WindowSeconds, at most the last 60 s; null in
	// the first seconds of the gateway.
	ArrivalsPerSecond *float64 `json:"arrivals_per_second"`
	RowsPerSecond     *float64 `json:"rows_per_second"`
	WindowSeconds     int      `json:"window_seconds"`
	// LastArrivalAt is the time of the newest request.
	LastArrivalAt time.Time `json:"last_arrival_at"`
}

// Percentiles are of a distribution.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// UnitCost is the cost of one unit: of the time that worked, of all time, and of the difference.
type UnitCost struct {
	UsedUSD      money.Dollars `json:"used_usd"`
	AllocatedUSD money.Dollars `json:"allocated_usd"`
	IdleUSD      money.Dollars `json:"idle_usd"`
	// P50 and P95 are over units, by the minute in which they were made, of the last day and of
	// all models of the pool; null where unknown.
	P50 *Split `json:"p50"`
	P95 *Split `json:"p95"`
	// Reason is why the cost is null; empty where it is known.
	Reason string `json:"reason"`
}

// Split is one cost in its parts.
type Split struct {
	UsedUSD      money.Dollars `json:"used_usd"`
	AllocatedUSD money.Dollars `json:"allocated_usd"`
	IdleUSD      money.Dollars `json:"idle_usd"`
}

// Fit is how long a batch of n rows takes on one server: a·n + b.
type Fit struct {
	Upstream string `json:"upstream"`
	// AMS and BMS are a and b in milliseconds; null while too little is measured.
	AMS *float64 `json:"a_ms"`
	BMS *float64 `json:"b_ms"`
	// MinRows and MaxRows are the smallest and the largest batch that were measured: the line says
	// nothing about others.
	MinRows int `json:"min_rows"`
	MaxRows int `json:"max_rows"`
	// Error and ErrorP90 are the median and the 90th percentile of the relative error.
	Error    *float64 `json:"error"`
	ErrorP90 *float64 `json:"error_p90"`
	// Batches is how many recent batches of how many Sizes were fitted.
	Batches int `json:"batches"`
	Sizes   int `json:"sizes"`
	// Levels are the measured ranges of running requests; absent for batches.
	Levels []Level `json:"levels,omitempty"`
	// LevelChanges is how often the server became faster or slower by more than 25%; the
	// measurements before the last change, at ChangedAt, are dropped.
	LevelChanges int        `json:"level_changes"`
	ChangedAt    *time.Time `json:"changed_at"`
}

// Level has the completions during which a range of requests ran.
type Level struct {
	// Low to High is the range, Requests how many recent completions were in it.
	Low      int `json:"low"`
	High     int `json:"high"`
	Requests int `json:"requests"`
	// Running is the mean of running requests over the time of these completions, LatencyMS their mean
	// time, and RequestsPerSecond what the server answers so: running requests by their time.
	Running           float64 `json:"running"`
	LatencyMS         float64 `json:"latency_ms"`
	RequestsPerSecond float64 `json:"requests_per_second"`
}

// Owner is what one owner used of one model.
type Owner struct {
	Owner string `json:"owner"`
	Pool  string `json:"pool"`
	Model string `json:"model"`

	Requests     int64 `json:"requests"`
	Predictions  int64 `json:"predictions"`
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// RequestsWithoutTokens did not tell their tokens.
	RequestsWithoutTokens int64 `json:"requests_without_tokens"`
	// UsedUSD is the server time that worked for the owner. IdleUSD is the owner's share of idle
	// time, in proportion to the used time. Both together are AllocatedUSD.
	UsedUSD          money.Dollars `json:"used_usd"`
	IdleUSD          money.Dollars `json:"idle_usd"`
	AllocatedUSD     money.Dollars `json:"allocated_usd"`
	PerPredictionUSD money.Dollars `json:"per_prediction_usd"`
	// PerMillionInputTokens and PerMillionOutputTokens are the costs of the owner's tokens, without
	// percentiles.
	PerMillionInputTokens  UnitCost `json:"per_million_input_tokens"`
	PerMillionOutputTokens UnitCost `json:"per_million_output_tokens"`
	// Reason is why dollars are null; empty where they are known.
	Reason string `json:"reason"`
}

// Count is how often something happened.
type Count struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// Passed counts requests that were sent alone.
type Passed struct {
	Pool   string `json:"pool"`
	Model  string `json:"model"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// Key is what an API key used of its budget in the running period.
type Key struct {
	Name         string        `json:"name"`
	Period       string        `json:"period"`
	UsedUSD      money.Dollars `json:"used_usd"`
	BudgetUSD    money.Dollars `json:"budget_usd"`
	UsedTokens   int64         `json:"used_tokens"`
	BudgetTokens *int64        `json:"budget_tokens"`
	Exceeded     bool          `json:"exceeded"`
}

// Units are the predictions and tokens of a gateway by hour, across its restarts.
type Units struct {
	Schema string `json:"schema"`
	// CountedFrom is the first hour that was counted from its start; At is the time of the answer.
	CountedFrom time.Time `json:"counted_from"`
	At          time.Time `json:"at"`
	// Hours are in order; one without units is absent.
	Hours []HourUnits `json:"hours"`
}

// HourUnits has the predictions and tokens of one owner and model in one hour in UTC, as far as servers
// told tokens.
type HourUnits struct {
	Hour         time.Time `json:"hour"`
	Pool         string    `json:"pool"`
	Model        string    `json:"model"`
	Owner        string    `json:"owner"`
	Predictions  int64     `json:"predictions"`
	InputTokens  int64     `json:"input_tokens"`
	OutputTokens int64     `json:"output_tokens"`
}

// Shadow is what batching would give a model whose requests are forwarded untouched.
type Shadow struct {
	// Batchable requests could share batches.
	Batchable int64 `json:"batchable_requests"`
	// Batches is how many batches they would be if a batch took as long as a request took.
	Batches int64 `json:"batches"`
	// MeanBatch is the mean size of these batches in rows; null without any.
	MeanBatch *float64 `json:"mean_batch"`
}

// Profile is the measured batch time of one model in the form that `plan capacity --profile` takes.
type Profile struct {
	Schema string `json:"schema"`
	Pool   string `json:"pool"`
	Model  string `json:"model"`
	// Profile is the line: a=1.2ms,b=10ms for batches, and a=48ms,b=1.74s,running=1-48 for a server
	// that batches continuously.
	Profile string `json:"profile"`
	// MaxBatch is the most rows of a batch; 0 for a server that batches continuously.
	MaxBatch int `json:"max_batch"`
	Fit      Fit `json:"fit"`
}

// NewKey is an API key with the hash that a configuration holds.
type NewKey struct {
	Schema string `json:"schema"`
	Key    string `json:"key"`
	Hash   string `json:"hash"`
}
