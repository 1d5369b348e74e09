// Package serving reads the demand for a fleet of model servers from a server that speaks
// Prometheus's HTTP API: requests in flight, their rate, the use of the KV cache, and which replicas
// serve.
package serving

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/httpapi"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// names are the metrics of a model server; older names follow newer ones.
type names struct {
	// anchor is a metric that every replica always exports.
	anchor string
	// inFlight are expressions whose sum is the number of requests in service and waiting. %s is
	// replaced by a label selector.
	inFlight []string
	// rate is the rate of requests per second; empty if the server does not count them.
	rate string
	// cache is the used share of the KV cache; empty if not exported.
	cache string
}

// servers are the model servers by kind. vLLM: https://docs.vllm.ai/en/latest/usage/metrics.html;
// SGLang: https://docs.sglang.ai/references/production_metrics.html; TGI:
// https://huggingface.co/docs/text-generation-inference/reference/metrics; Triton:
// https://docs.nvidia.com/deeplearning/triton-inference-server (metrics); llama.cpp:
// tools/server/README.md; KServe: https://kserve.github.io/website (Prometheus metrics). Triton and
// KServe do not export running requests; by Little's law they equal the seconds of completed work
// per second.
var servers = map[string]names{
	"vllm": {
		anchor:   "vllm:num_requests_running",
		inFlight: []string{"sum(vllm:num_requests_running%s)", "sum(vllm:num_requests_waiting%s)"},
		rate:     "sum(rate(vllm:request_success_total%s[1m]))",
		cache:    `max({__name__=~"vllm:kv_cache_usage_perc|vllm:gpu_cache_usage_perc"%s})`,
	},
	"sglang": {
		anchor:   "sglang:num_running_reqs",
		inFlight: []string{"sum(sglang:num_running_reqs%s)", "sum(sglang:num_queue_reqs%s)"},
		rate:     "sum(rate(sglang:num_requests_total%s[1m]))",
		cache:    "max(sglang:token_usage%s)",
	},
	"tgi": {
		anchor:   "tgi_queue_size",
		inFlight: []string{"sum(tgi_batch_current_size%s)", "sum(tgi_queue_size%s)"},
		rate:     "sum(rate(tgi_request_count%s[1m]))",
	},
	"llama.cpp": {
		anchor:   "llamacpp:requests_processing",
		inFlight: []string{"sum(llamacpp:requests_processing%s)", "sum(llamacpp:requests_deferred%s)"},
		cache:    "max(llamacpp:kv_cache_usage_ratio%s)",
	},
	"triton": {
		anchor:   "nv_inference_request_success",
		inFlight: []string{"sum(rate(nv_inference_request_duration_us%s[1m])) / 1e6"},
		rate:     "sum(rate(nv_inference_request_success%s[1m]))",
	},
	"kserve": {
		anchor:   "request_predict_seconds_count",
		inFlight: []string{"sum(rate(request_predict_seconds_sum%s[1m]))"},
		rate:     "sum(rate(request_predict_seconds_count%s[1m]))",
	},
}

// Kinds returns the supported kinds of model servers, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(servers)) }

// Options locate the metrics of one fleet.
type Options struct {
	Access httpapi.Access
	// Server is one of Kinds.
	Server string
	// Select holds matchers on the targets' labels, such as job="embed". It must not be empty,
	// because a fleet is not every server there is.
	Select string
	// Step is the time between two scrapes.
	Step time.Duration
}

// Limits of one response: a number, or one per replica.
const (
	maxAnswer = 1 << 20
	maxSeries = fleet.MaxReplicas
)

// Reader reads the demand for one fleet.
type Reader struct {
	api     *httpapi.Client
	names   names
	options Options
}

// New returns a reader. It makes no request.
func New(o Options) (*Reader, error) {
	n, known := servers[o.Server]
	switch {
	case !known:
		return nil, fmt.Errorf("server %q is not known; it is one of %s", o.Server, strings.Join(Kinds(), ", "))
	case strings.TrimSpace(o.Select) == "" || strings.ContainsAny(o.Select, "{}"):
		return nil, fmt.Errorf(`select %q: write matchers of labels, such as job="embed"`, o.Select)
	case o.Step <= 0:
		return nil, errors.New("the step must be over 0")
	}
	api, err := httpapi.New(o.Access, httpapi.Limits{Bytes: maxAnswer, Series: maxSeries})
	if err != nil {
		return nil, err
	}
	return &Reader{api: api, names: n, options: o}, nil
}

// Reading is the demand for a fleet and its replicas at a moment.
type Reading struct {
	Sample fleet.Sample
	// Ready replicas export metrics. Starting ones are targets that never answered.
	Ready, Starting int
	// Servers are the addresses of ready replicas, for sources that know some of them too.
	Servers []string
	// Replicas is false if the number of replicas is unknown.
	Replicas bool
	// Idle has an entry for each known host; true if its replicas have no request in service or
	// waiting.
	Idle map[string]bool
}

// Read reads the fleet at a time. A failed query, a replica without the metric, or a target that
// responded within the last hour and no longer does becomes the problem of the sample and makes
// demand unknown.
func (r *Reader) Read(ctx context.Context, now time.Time) Reading {
	out := Reading{Sample: fleet.Sample{Source: r.options.Server + " at " + r.api.Host(), Step: r.options.Step}}
	if err := r.read(ctx, now, &out); err != nil {
		out.Sample.Problem = err.Error()
	}
	return out
}

func (r *Reader) read(ctx context.Context, now time.Time, out *Reading) error {
	braces, bare := "{"+r.options.Select+"}", ", "+r.options.Select
	targets, err := r.number(ctx, now, "count(up"+braces+")")
	if err != nil {
		return err
	}
	up, err := r.number(ctx, now, "count(up"+braces+" == 1)")
	if err != nil {
		return err
	}
	lost, err := r.number(ctx, now, "count((max_over_time(up"+braces+"[1h]) == 1) and (up"+braces+" == 0))")
	if err != nil {
		return err
	}
	ready, err := r.number(ctx, now, "count(count by (instance) ("+r.names.anchor+braces+"))")
	switch {
	case err != nil:
		return err
	case !targets.Known():
		return fmt.Errorf("no target has the labels %s", r.options.Select)
	}
	out.Replicas = true
	out.Ready, out.Starting = int(ready.Or(0)), int(targets.Or(0)-up.Or(0)-lost.Or(0))
	switch {
	case lost.Or(0) > 0:
		return fmt.Errorf("%s of %s answered before and is silent", plain.Number(lost.Or(0), 0),
			plain.Count(int(targets.Or(0)), "replica"))
	case up.Or(0) > ready.Or(0):
		return fmt.Errorf("%s of %s export no %s", plain.Number(up.Or(0)-ready.Or(0), 0),
			plain.Count(int(up.Or(0)), "replica"), r.names.anchor)
	case ready.Or(0) == 0:
		// No replica is up and none has disappeared, so the servers have no requests. Requests may
		// wait elsewhere: the rate is unknown.
		out.Sample.At, out.Sample.InFlight = now, inventory.Known(0.0)
		return nil
	}
	oldest, err := r.required(ctx, now, "min(timestamp("+r.names.anchor+braces+"))")
	if err != nil {
		return err
	}
	out.Sample.At = time.UnixMilli(int64(oldest * 1000)).UTC()
	inFlight := 0.0
	for _, expression := range r.names.inFlight {
		v, err := r.required(ctx, now, fmt.Sprintf(expression, braces))
		if err != nil {
			return err
		}
		inFlight += v
	}
	out.Sample.InFlight = inventory.Known(inFlight)
	if out.Idle, err = r.idle(ctx, now, braces); err != nil {
		return err
	}
	if r.names.rate != "" {
		// A counter that was never increased has no series or only one sample: its rate is unknown.
		if out.Sample.Rate, err = r.number(ctx, now, fmt.Sprintf(r.names.rate, braces)); err != nil {
			return err
		}
	}
	if r.names.cache != "" {
		labels := braces
		if strings.Contains(r.names.cache, "__name__") {
			labels = bare
		}
		out.Sample.CacheUse, err = r.number(ctx, now, fmt.Sprintf(r.names.cache, labels))
	}
	return err
}

// idle returns for each host whether all of its replicas report no request in flight.
func (r *Reader) idle(ctx context.Context, now time.Time, braces string) (map[string]bool, error) {
	var sums []string
	for _, expression := range r.names.inFlight {
		each := strings.Replace(fmt.Sprintf(expression, braces), "sum(", "sum by (instance) (", 1)
		sums = append(sums, each)
	}
	expression := strings.Join(sums, " + ")
	idle := map[string]bool{} // a host may run several replicas
	result, err := r.api.Instant(ctx, httpapi.Query{Expression: expression, At: now, NonFinite: true},
		func(s httpapi.Series) error {
			host := HostOf(s.Labels["instance"])
			others, seen := idle[host]
			idle[host] = len(s.Points) == 1 && !s.Histogram && s.Points[0].V == 0 && (others || !seen)
			return nil
		})
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", expression, err)
	case len(result.Warnings) > 0:
		return nil, fmt.Errorf("ask %s: %s", expression, result.Warnings[0])
	}
	return idle, nil
}

// HostOf returns the host of a target address, which may have a port.
func HostOf(instance string) string {
	if host, _, err := net.SplitHostPort(instance); err == nil {
		return host
	}
	return instance
}

// required reads a number and fails if there is none.
func (r *Reader) required(ctx context.Context, now time.Time, expression string) (float64, error) {
	v, err := r.number(ctx, now, expression)
	if err != nil {
		return 0, err
	}
	n, known := v.Get()
	if !known {
		return 0, fmt.Errorf("no answer to %s", expression)
	}
	return n, nil
}

// number reads one number; unknown if there is no series. A partial response is an error.
func (r *Reader) number(ctx context.Context, now time.Time, expression string) (inventory.Fact[float64], error) {
	var out inventory.Fact[float64]
	result, err := r.api.Instant(ctx, httpapi.Query{Expression: expression, At: now, NonFinite: true},
		func(s httpapi.Series) error {
			if len(s.Points) != 1 || s.Histogram || out.Known() {
				return errors.New("the answer is not one number")
			}
			if v := s.Points[0].V; math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("the answer is %v", v)
			}
			out = inventory.Known(s.Points[0].V)
			return nil
		})
	switch {
	case err != nil:
		return inventory.Fact[float64]{}, fmt.Errorf("ask %s: %w", expression, err)
	case len(result.Warnings) > 0:
		return inventory.Fact[float64]{}, fmt.Errorf("ask %s: %s", expression, result.Warnings[0])
	}
	return out, nil
}
