package serving

import (
	"math"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/metrics/httpapi"
	"github.com/curfew-dev/curfew/test/prometheus"
)

// TestReadsFromPrometheus asks a real server: two replicas, whose counters rise by 30 a minute each.
func TestReadsFromPrometheus(t *testing.T) {
	end := time.Now().UTC().Truncate(time.Minute).Add(-3 * time.Hour)
	series := func(name, instance string, at func(step int) float64) prometheus.Series {
		s := prometheus.Series{Name: name, Labels: `job="embed",instance="` + instance + `"`}
		for i := range 41 {
			when := end.Add(time.Duration(i-40) * 15 * time.Second)
			s.Points = append(s.Points, prometheus.Point{At: when, V: at(i)})
		}
		return s
	}
	is := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	rises := func(by float64) func(int) float64 { return func(i int) float64 { return by * float64(i) } }
	var history []prometheus.Series
	for _, instance := range []string{"a:8000", "b:8000"} {
		for name, at := range map[string]func(int) float64{
			"up": is(1), "vllm:num_requests_running": is(8), "vllm:num_requests_waiting": is(2),
			"vllm:request_success_total": rises(7.5), "vllm:gpu_cache_usage_perc": is(0.6),
			"sglang:num_running_reqs": is(8), "sglang:num_queue_reqs": is(2), "sglang:num_requests_total": rises(7.5),
			"sglang:token_usage": is(0.6), "tgi_queue_size": is(2), "tgi_batch_current_size": is(8),
			"tgi_request_count": rises(7.5), "llamacpp:requests_processing": is(8),
			"llamacpp:requests_deferred":    is(2),
			"llamacpp:kv_cache_usage_ratio": is(0.6), "nv_inference_request_success": rises(7.5),
			"nv_inference_request_duration_us": rises(15 * 10 * 1e6), "request_predict_seconds_count": rises(7.5),
			"request_predict_seconds_sum": rises(15 * 10),
		} {
			history = append(history, series(name, instance, at))
		}
	}
	url := prometheus.Start(t, history, "")
	near := func(got, want float64) bool { return math.Abs(got-want) < want/50 }
	for _, kind := range Kinds() {
		r, err := New(Options{
			Access: httpapi.Access{URL: url}, Server: kind, Select: `job="embed"`, Step: 15 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		got := r.Read(t.Context(), end)
		s := got.Sample
		if s.Problem != "" || got.Ready != 2 || got.Starting != 0 || !s.At.Equal(end) || !near(s.InFlight.Or(-1), 20) {
			t.Errorf("%s: %+v", kind, got)
		}
		if servers[kind].rate != "" && !near(s.Rate.Or(-1), 1) {
			t.Errorf("%s: rate %v, want 1", kind, s.Rate)
		}
		if servers[kind].cache != "" && s.CacheUse.Or(-1) != 0.6 {
			t.Errorf("%s: cache %v, want 0.6", kind, s.CacheUse)
		}
		if late := r.Read(t.Context(), end.Add(10*time.Minute)); late.Sample.Problem == "" {
			t.Errorf("%s: ten minutes later it reads %+v", kind, late)
		}
	}
}
