package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// llm is a stand-in of an OpenAI-compatible server: it streams its words, with usage where the
// request asks for it.
type llm struct {
	*httptest.Server
	words   int
	metrics atomic.Pointer[string]
	hold    atomic.Pointer[chan struct{}]
	running atomic.Int64
	most    atomic.Int64
}

func newLLM(t testing.TB) *llm {
	l := &llm{words: 20}
	l.Server = httptest.NewServer(http.HandlerFunc(l.serve))
	t.Cleanup(l.Close)
	return l
}

func (l *llm) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" {
		if text := l.metrics.Load(); text != nil {
			_, _ = io.WriteString(w, *text)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost {
		return
	}
	n := l.running.Add(1)
	defer l.running.Add(-1)
	for most := l.most.Load(); n > most && !l.most.CompareAndSwap(most, n); most = l.most.Load() {
		continue
	}
	if hold := l.hold.Load(); hold != nil {
		<-*hold
	}
	var in struct {
		Stream        bool
		Tokens        int            `json:"max_tokens"`
		StreamOptions map[string]any `json:"stream_options"`
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &in)
	if !in.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, "{\"choices\": [ ], \"usage\":{\"prompt_tokens\":5,\"completion_tokens\":%d}}\n",
			l.words)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	usage := in.StreamOptions["include_usage"] == true
	null := ""
	if usage {
		null = `, "usage": null`
	}
	out := http.NewResponseController(w)
	for i := range l.words {
		_, _ = fmt.Fprintf(w,
			"data: {\"id\": \"c\", \"choices\": [{\"delta\": {\"content\": \"w%d \\\"usage\\\": é\"}}]%s}\n\n", i,
			null)
		_ = out.Flush()
	}
	if usage {
		_, _ = fmt.Fprintf(w, "data: {\"id\": \"c\", \"choices\": [], \"usage\": {\"prompt_tokens\": 5, "+
			"\"completion_tokens\": %d}}\n\n", l.words)
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

func TestStreamsEqualDirectOnes(t *testing.T) {
	l := newLLM(t)
	c := onePool(l.URL)
	g, s := startGateway(t, c)
	for name, body := range map[string]string{
		"stream":            `{"model":"llm","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		"stream with usage": `{"model":"llm","stream":true,"stream_options":{"include_usage":true}}`,
		"usage false":       `{"stream_options":{"include_usage":false},"model":"llm","stream":true}`,
		"no stream":         `{"model":"llm","messages":[]}`,
	} {
		direct := post(t, l.URL+"/v1/chat/completions", body)
		got := post(t, s.URL+"/v1/chat/completions", body, "Curfew-Owner", name)
		if got.body != direct.body || got.status != 200 ||
			got.header.Get("Content-Type") != direct.header.Get("Content-Type") {
			t.Errorf("%s:\n got %q\nwant %q", name, got.body, direct.body)
		}
	}
	waitFor(t, "the tokens", func() bool {
		for _, o := range readStats(t, s.URL).Owners {
			if o.InputTokens != 5 || o.OutputTokens != 20 || o.RequestsWithoutTokens != 0 {
				return false
			}
		}
		m := readStats(t, s.URL).Models[0]
		return len(g.meter.accounts()) == 4 && len(m.ConcurrencyFits) == 1 && m.ConcurrencyFits[0].Batches == 4
	})
	m := readStats(t, s.URL).Models[0]
	if len(m.ConcurrencyFits) != 1 || m.ConcurrencyFits[0].Batches != 4 || m.ConcurrencyFits[0].Levels[0].High != 1 {
		t.Errorf("%+v", m.ConcurrencyFits)
	}
	if !m.PerMillionTokens.AllocatedUSD.Known() || m.InputTokens != 20 || m.OutputTokens != 80 {
		t.Errorf("%+v", m)
	}
}

func TestTokensAreUnknownWithoutUsage(t *testing.T) {
	m := newModel(t)
	m.setHook(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		_, _ = io.WriteString(w, `{"choices":[]}`)
		return true
	})
	_, s := startGateway(t, onePool(m.URL))
	post(t, s.URL+"/v1/completions", `{"model":"m"}`)
	waitFor(t, "the count", func() bool {
		o := readStats(t, s.URL).Owners
		return len(o) == 1 && o[0].RequestsWithoutTokens == 1 && o[0].OutputTokens == 0
	})
}

func TestBrokenStreamIsNotComplete(t *testing.T) {
	m := newModel(t)
	m.setHook(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[1]}\n\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	_, s := startGateway(t, onePool(m.URL))
	a, err := tryPost(s.URL+"/v1/completions", strings.NewReader(`{"model":"m","stream":true}`))
	if err == nil {
		t.Errorf("a broken stream ended as a whole one: %+v", a)
	}
	waitFor(t, "the failure", func() bool {
		d := readStats(t, s.URL)
		return len(d.Models) == 1 && d.Models[0].Failed == 1
	})
}

// TestConcurrencyFollowsTheServersQueue: while requests wait in the server, the gateway keeps
// further ones back, and sends them once the server has room.
func TestConcurrencyFollowsTheServersQueue(t *testing.T) {
	l := newLLM(t)
	text := "# HELP x\nvllm:num_requests_waiting{model_name=\"m\"} 3.0\nvllm:num_requests_running{model_name=\"m\"} 4\n" +
		"vllm:kv_cache_usage_perc{model_name=\"m\"} 0.5\nvllm:time_to_first_token_seconds_sum 4\n" +
		"vllm:time_to_first_token_seconds_count 8\n"
	l.metrics.Store(&text)
	g, s := startGateway(t, onePool(l.URL))
	post(t, s.URL+"/v1/completions", `{"model":"m"}`)
	p := g.state.Load().pools[0]
	p.check(t.Context(), l.URL)
	load := readStats(t, s.URL).Pools[0].Upstreams[0].Server
	if load == nil || load.Kind != "vllm" || *load.Waiting != 3 || *load.FirstTokenMS != 500 || load.Limit != 4 {
		t.Fatalf("%+v", load)
	}
	hold := make(chan struct{})
	l.hold.Store(&hold)
	l.most.Store(0)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { post(t, s.URL+"/v1/completions", `{"model":"m"}`) })
	}
	waitFor(t, "the limit", func() bool { return l.running.Load() == 4 && p.plain.waits() == 6 })
	late := post(t, s.URL+"/v1/completions", `{"model":"m"}`, "Curfew-Deadline", "20ms")
	if late.status != http.StatusGatewayTimeout {
		t.Errorf("%+v", late)
	}
	l.hold.Store(nil)
	close(hold)
	wg.Wait()
	if l.most.Load() != 4 {
		t.Errorf("%d requests ran at once", l.most.Load())
	}
}

// TestDemandCountsWaitingAndRunning: a scaler reads requests that wait and run, and their rate.
func TestDemandCountsWaitingAndRunning(t *testing.T) {
	l := newLLM(t)
	hold := make(chan struct{})
	l.hold.Store(&hold)
	c := onePool(l.URL)
	c.Pools[0].Concurrency = 3
	g, s := startGateway(t, c)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			post(t, s.URL+"/v1/completions", `{"model":"m","prompt":"x"}`)
		})
	}
	demand := func() (stats.Pool, stats.Model) {
		d, err := g.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Models) == 0 {
			return d.Pools[0], stats.Model{}
		}
		return d.Pools[0], d.Models[0]
	}
	waitFor(t, "3 to run and 5 to wait", func() bool {
		p, m := demand()
		return m.Demand.RunningRequests == 3 && m.Demand.WaitingRequests == 5 &&
			p.RunningRequests == 3 && p.WaitingRequests == 5
	})
	close(hold)
	wg.Wait()
	waitFor(t, "none to run", func() bool {
		p, m := demand()
		return m.Demand.RunningRequests+m.Demand.WaitingRequests+p.RunningRequests+p.WaitingRequests == 0
	})
	if _, m := demand(); m.Requests != 8 || m.Demand.LastArrivalAt.IsZero() {
		t.Errorf("demand %+v of %d requests", m.Demand, m.Requests)
	}
}

// TestArrivalRateOfTheLastMinute: the rate is a mean over whole seconds, and unknown at first.
func TestArrivalRateOfTheLastMinute(t *testing.T) {
	r := &arrivalRate{}
	for second := range int64(200) {
		if second == 4 {
			if _, _, window := r.mean(second); window != 0 {
				t.Errorf("a rate over %d s after 4 s", window)
			}
		}
		for range 1 + second/100 { // 1 a second, from 100 s on 2
			r.add(second, 3, time.Now())
		}
	}
	for now, want := range map[int64]float64{200: 2, 230: 1, 300: 0} {
		requests, rows, window := r.mean(now)
		if requests != want || rows != 3*want || window != 60 {
			t.Errorf("after %d s: %v requests, %v rows over %d s, want %v", now, requests, rows, window, want)
		}
	}
}

func TestLoadOfServers(t *testing.T) {
	for kind, text := range map[string]string{
		"sglang": "sglang:num_running_reqs{a=\"}\"} 2\nsglang:num_queue_reqs 1\nsglang:token_usage 0.25\n",
		"tgi":    "tgi_queue_size 1\ntgi_batch_current_size 2\n",
		"llama.cpp": "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1 " +
			"1700000000000\nllamacpp:kv_cache_usage_ratio 0.25\n",
		"vllm": "vllm:num_requests_running 2\nvllm:num_requests_waiting{e=\"0\"} " +
			"1\nvllm:gpu_cache_usage_perc{e=\"0\"} 0.25\nvllm:gpu_cache_usage_perc{e=\"1\"} 0.125\n",
	} {
		l := parseLoad([]byte(text))
		if l == nil || l.Kind != kind || *l.Running != 2 || *l.Waiting != 1 || kind != "tgi" && *l.CacheUse != 0.25 {
			t.Errorf("%s: %+v", kind, l)
		}
	}
	if l := parseLoad([]byte("up 1\nvllm:num_requests_running NaN\nbroken{\n")); l != nil {
		t.Errorf("%+v", l)
	}
}

// TestBudgetSurvivesARestart: a gateway goes on with what the one before it kept.
func TestBudgetSurvivesARestart(t *testing.T) {
	l := newLLM(t)
	c := onePool(l.URL)
	c.Keys = []Key{{Name: "ana", Hash: hashOf("k"), BudgetTokens: 25}}
	kept := map[string]KeyUsage{}
	for i, want := range []int{200, 429} {
		g, s := startGatewayWith(t, c, func(o *Options) {
			o.KeyUsage, o.Keep = kept, func(u map[string]KeyUsage) error { kept = u; return nil }
		})
		if a := post(t, s.URL+"/v1/completions", `{"model":"m"}`, "X-Api-Key", "k"); a.status != want {
			t.Errorf("start %d: %+v", i, a)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if u := kept[hashOf("k")]; u.Tokens != 25 {
		t.Errorf("%+v", kept)
	}
}

func TestTokenBudget(t *testing.T) {
	l := newLLM(t)
	c := onePool(l.URL)
	c.Keys = []Key{{Name: "ana", Hash: hashOf("k"), BudgetTokens: 50, Admin: true}}
	_, s := startGateway(t, c)
	var last answer
	for i := range 4 {
		last = post(t, s.URL+"/v1/completions", `{"model":"m","stream":true}`, "X-Api-Key", "k")
		if i < 2 && last.status != 200 {
			t.Fatalf("request %d: %+v", i, last)
		}
		waitFor(t, "the charge", func() bool {
			k := get(t, s.URL+"/curfew/stats", "k").body
			return i > 1 || strings.Contains(k, fmt.Sprintf(`"used_tokens":%d,`, 25*(i+1)))
		})
	}
	if last.status != http.StatusTooManyRequests || !strings.Contains(last.body, "of 50 tokens") ||
		last.header.Get("Retry-After") == "" {
		t.Errorf("%+v", last)
	}
}
