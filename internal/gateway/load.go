package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// loadMetrics are the names under which a kind of server shows its load, the newest first.
type loadMetrics struct {
	kind                     string
	waiting, running, cache  []string
	firstTokenSum, firstSeen string
}

// loadKinds are the servers whose metrics are read, by the documentation of vLLM, SGLang,
// Text Generation Inference and llama.cpp.
var loadKinds = []loadMetrics{
	{
		kind: "vllm", waiting: []string{"vllm:num_requests_waiting"}, running: []string{"vllm:num_requests_running"},
		cache:         []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
		firstTokenSum: "vllm:time_to_first_token_seconds_sum", firstSeen: "vllm:time_to_first_token_seconds_count",
	},
	{
		kind: "sglang", waiting: []string{"sglang:num_queue_reqs"}, running: []string{"sglang:num_running_reqs"},
		cache:         []string{"sglang:token_usage"},
		firstTokenSum: "sglang:time_to_first_token_seconds_sum", firstSeen: "sglang:time_to_first_token_seconds_count",
	},
	{kind: "tgi", waiting: []string{"tgi_queue_size"}, running: []string{"tgi_batch_current_size"}},
	{
		kind: "llama.cpp", waiting: []string{"llamacpp:requests_deferred"},
		running: []string{"llamacpp:requests_processing"}, cache: []string{"llamacpp:kv_cache_usage_ratio"},
	},
}

// readLoad reads the metrics of a server; nil where it shows none that are known.
func (p *pool) readLoad(ctx context.Context, server string) (*stats.Load, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := p.gateway.o.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
	text, err := readAll(resp, 16<<20)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s/metrics answered %d", server, resp.StatusCode)
	}
	return parseLoad(text), nil
}

// parseLoad finds the load in metrics of the Prometheus text format. Values of one name with
// several sets of labels are added, but shares of caches, of which the largest counts.
func parseLoad(text []byte) *stats.Load {
	sums, largest := map[string]float64{}, map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		end := strings.IndexAny(line, "{ ")
		if end <= 0 || line[0] == '#' {
			continue
		}
		rest := line[end:]
		if i := strings.LastIndexByte(rest, '}'); i >= 0 {
			rest = rest[i+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || v != v || v < 0 {
			continue
		}
		name := line[:end]
		sums[name] += v
		largest[name] = max(largest[name], v)
	}
	first := func(from map[string]float64, names []string) *float64 {
		for _, n := range names {
			if v, ok := from[n]; ok {
				return &v
			}
		}
		return nil
	}
	for _, k := range loadKinds {
		load := stats.Load{
			Kind: k.kind, Waiting: first(sums, k.waiting), Running: first(sums, k.running),
			CacheUse: first(largest, k.cache),
		}
		if n := sums[k.firstSeen]; n > 0 {
			ms := sums[k.firstTokenSum] / n * 1000
			load.FirstTokenMS = &ms
		}
		if load.Waiting != nil || load.Running != nil || load.CacheUse != nil {
			return &load
		}
	}
	return nil
}
