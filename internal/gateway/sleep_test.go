package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// startable is a model server that begins to listen when it is started.
type startable struct {
	*model
	address string
	server  *http.Server
}

func newStartable(t *testing.T) *startable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return &startable{model: &model{}, address: l.Addr().String()}
}

func (s *startable) url() string { return "http://" + s.address }

func (s *startable) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.server = &http.Server{Handler: http.HandlerFunc(s.serve)}
	go func() { _ = s.server.Serve(l) }()
	t.Cleanup(s.stop)
}

func (s *startable) stop() { _ = s.server.Close() }

// sleeping is a configuration with one pool that sleeps.
func sleeping(sleep Sleep, upstreams ...string) Config {
	c := onePool(upstreams...)
	c.Pools[0].Name, c.Pools[0].Sleep = "sum", sleep
	return c
}

func sleepOf(t *testing.T, url string) stats.Sleep {
	t.Helper()
	s := readStats(t, url).Pools[0].Sleep
	if s == nil {
		t.Fatal("the pool does not sleep")
	}
	return *s
}

// wantMetrics looks for lines of the metrics, without their prefix.
func wantMetrics(t *testing.T, url string, lines ...string) {
	t.Helper()
	text := get(t, url+"/metrics", "").body
	for _, line := range lines {
		if !strings.Contains(text, "\ncurfew_gateway_"+line+"\n") {
			t.Errorf("the metrics have no %s", line)
		}
	}
}

// TestSleepingPoolIsWokenOnce sends many requests of all kinds to a pool whose server has to be started.
func TestSleepingPoolIsWokenOnce(t *testing.T) {
	m := newStartable(t)
	var calls atomic.Int64
	started := make(chan struct{})
	waker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // it is asked again
			return
		}
		if string(body) != `{"pool":"sum"}` {
			t.Errorf("asked with %s", body)
		}
		close(started)
	}))
	defer waker.Close()
	var mu sync.Mutex
	kept := map[string][]time.Duration{}
	_, s := startGatewayWith(t, sleeping(Sleep{Hold: time.Minute, WakeURL: waker.URL}, m.url()), func(o *Options) {
		o.KeepColdStarts = func(now map[string][]time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			kept = now
			return nil
		}
	})
	paths := []struct{ path, body string }{
		{"/v2/models/sum/infer", row("a", 1, 2)}, {"/v1/models/sum:predict", `{"instances":[[1,2]]}`},
		{"/v2/models/sum/infer?alone=1", row("b", 1, 2)},
		{"/v1/completions", `{"model":"sum","prompt":"x"}`}, {"/v1/rerank", `{"inputs":[]}`},
	}
	var all sync.WaitGroup
	const each = 5
	for _, p := range paths {
		for range each {
			all.Go(func() {
				a, err := tryPost(s.URL+p.path, strings.NewReader(p.body))
				if err != nil || a.status != http.StatusOK {
					t.Errorf("%s: %v %d %s", p.path, err, a.status, a.body)
				}
			})
		}
	}
	<-started
	waitFor(t, "all requests are held", func() bool { return sleepOf(t, s.URL).HeldRequests == each*len(paths) })
	if got := sleepOf(t, s.URL); got.State != stats.Waking || got.Wakes != 1 || got.HeldBytes == 0 {
		t.Errorf("while it waits: %+v", got)
	}
	if waiting := readStats(t, s.URL).Pools[0].WaitingRequests; waiting != each*len(paths) {
		t.Errorf("%d requests wait, want all that are held", waiting)
	}
	wantMetrics(t, s.URL, `pool_state{pool="sum",state="waking"} 1`, `pool_state{pool="sum",state="awake"} 0`,
		fmt.Sprintf(`held_requests{pool="sum"} %d`, each*len(paths)), `wakes_total{pool="sum"} 1`)
	m.start(t)
	all.Wait()
	rows := 0
	for _, r := range m.seen() {
		rows += max(1, r.rows)
	}
	if rows != each*len(paths) {
		t.Errorf("the model got %d rows and requests, want each once: %d", rows, each*len(paths))
	}
	got := sleepOf(t, s.URL)
	if got.State != stats.Awake || got.HeldRequests != 0 || got.HeldBytes != 0 || got.Wakes != 1 ||
		got.ColdStarts != 1 || *got.ColdStartP50 <= 0 || calls.Load() != 2 {
		t.Errorf("after it: %+v, %d calls", got, calls.Load())
	}
	wantMetrics(t, s.URL, `pool_state{pool="sum",state="awake"} 1`, `pool_state{pool="sum",state="waking"} 0`,
		`held_requests{pool="sum"} 0`, fmt.Sprintf(`cold_start_seconds{pool="sum",quantile="0.95"} %g`, *got.ColdStartP95))
	waitFor(t, "the cold start is kept", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(kept["sum"]) == 1
	})
}

// TestSleepingPoolRefusesWhatItCannotHold answers with the time in which a server is expected.
func TestSleepingPoolRefusesWhatItCannotHold(t *testing.T) {
	m := newStartable(t)
	_, s := startGatewayWith(t, sleeping(Sleep{Hold: time.Minute, HoldMiB: 1}, m.url()), func(o *Options) {
		o.ColdStarts = map[string][]time.Duration{"sum": {20 * time.Second, 30 * time.Second, 40 * time.Second}}
	})
	small, large := row("a", 1, 2), row(strings.Repeat("x", 1<<20), 1, 2)
	url := s.URL + "/v2/models/sum/infer"
	for name, c := range map[string]struct {
		body, deadline string
		why            string
	}{
		"a deadline before its start": {small, "5s", "its start takes longer than the deadline"},
		"more bytes than it may hold": {large, "50s", "of requests wait for it"},
	} {
		a := post(t, url, c.body, deadlineHeader, c.deadline)
		retry, _ := strconv.Atoi(a.header.Get("Retry-After"))
		if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, c.why) || retry < 20 || retry > 40 {
			t.Errorf("%s: %d %s, retry after %d", name, a.status, a.body, retry)
		}
	}
	if resp := get(t, s.URL+"/v2/health/ready", ""); resp.status != http.StatusServiceUnavailable {
		t.Errorf("a question for its health answers %d, and must not wait", resp.status)
	}
	if resp := get(t, s.URL+"/readyz", ""); resp.status != http.StatusOK {
		t.Errorf("a gateway that holds requests is ready; it answers %d", resp.status)
	}
}

// TestHeldRequestEndsWithItsDeadline holds a request of a pool without a measured cold start.
func TestHeldRequestEndsWithItsDeadline(t *testing.T) {
	m := newStartable(t)
	_, s := startGateway(t, sleeping(Sleep{Hold: time.Minute}, m.url()))
	a := post(t, s.URL+"/v1/models/sum:predict", `{"instances":[[1,2]]}`, deadlineHeader, "300ms")
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "no server answered") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func drain(t *testing.T, url string, in stats.DrainRequest) (out stats.Drained) {
	t.Helper()
	b, _ := json.Marshal(in)
	a := post(t, url+"/curfew/drain", string(b))
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	return out
}

// TestDrainedServersGetNoRequests drains one of two servers while it works, and then the whole pool.
func TestDrainedServersGetNoRequests(t *testing.T) {
	a, b := newModel(t), newModel(t)
	_, s := startGateway(t, sleeping(Sleep{Hold: time.Minute}, a.URL, b.URL))
	url := s.URL + "/v1/models/sum:predict"
	const body = `{"instances":[[1,2]]}`
	releaseA, releaseB := a.holdAll(), b.holdAll()
	defer releaseA()
	defer releaseB()
	var first sync.WaitGroup
	for range 2 {
		first.Go(func() { _, _ = tryPost(url, strings.NewReader(body)) })
	}
	running := func() (n int) {
		for _, u := range readStats(t, s.URL).Pools[0].Upstreams {
			n += u.Running
		}
		return n
	}
	waitFor(t, "both work", func() bool { return running() == 2 })
	host := strings.TrimPrefix(a.URL, "http://")
	got := drain(t, s.URL, stats.DrainRequest{Pool: "sum", Hosts: []string{host}, Seconds: 600})
	if got.Running != 1 || len(got.Upstreams) != 1 || !got.Upstreams[0].Draining {
		t.Errorf("drained while it works: %+v", got)
	}
	releaseA()
	releaseB()
	first.Wait()
	before := len(a.seen())
	for range 10 {
		if got := post(t, url, body); got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if n := len(a.seen()); n != before {
		t.Errorf("the drained server got %d requests", n-before)
	}
	if got := drain(t, s.URL, stats.DrainRequest{Pool: "sum", Hosts: []string{host}, Seconds: 600}); got.Running != 0 {
		t.Errorf("it still has requests: %+v", got)
	}
	drain(t, s.URL, stats.DrainRequest{Pool: "sum", Seconds: 600})
	held := make(chan answer, 1)
	go func() { a, _ := tryPost(url, strings.NewReader(body)); held <- a }()
	waitFor(t, "the request is held", func() bool {
		return drain(t, s.URL, stats.DrainRequest{Pool: "sum", Seconds: 600}).Waiting == 1
	})
	drain(t, s.URL, stats.DrainRequest{Pool: "sum"})
	if got := <-held; got.status != http.StatusOK {
		t.Errorf("held by the drain: %d %s", got.status, got.body)
	}
	for name, bad := range map[string]string{
		"another pool": `{"pool":"x","seconds":1}`, "no JSON": `{`, "another key": `{"pool":"sum","forever":true}`,
		"a time below 0": `{"pool":"sum","seconds":-1}`, "a long time": `{"pool":"sum","seconds":99999999}`,
	} {
		if got := post(t, s.URL+"/curfew/drain", bad); got.status != 400 && got.status != 404 {
			t.Errorf("%s: %d", name, got.status)
		}
	}
}

// controlled is a server with model control of each kind.
type controlled struct {
	*model
	mu            sync.Mutex
	loaded        bool
	loads, unload int
}

func (c *controlled) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body := map[string]any{}
	if strings.HasPrefix(r.URL.Path, "/models/") || strings.HasPrefix(r.URL.Path, "/api/") {
		_ = json.NewDecoder(r.Body).Decode(&body)
	}
	set := func(loaded bool) {
		if c.loaded = loaded; loaded {
			c.loads++
		} else {
			c.unload++
		}
	}
	switch r.URL.Path {
	case "/v2/repository/models/sum/load", "/models/load":
		set(true)
	case "/v2/repository/models/sum/unload", "/models/unload":
		set(false)
	case "/api/generate":
		set(body["keep_alive"] != 0.0)
	case "/v2/models/sum/ready":
		if !c.loaded {
			w.WriteHeader(http.StatusBadRequest)
		}
	case "/models":
		_, _ = fmt.Fprintf(w, `{"data":[{"id":"sum","status":{"value":%q}}]}`,
			map[bool]string{true: "loaded", false: "unloaded"}[c.loaded])
	case "/api/ps":
		if c.loaded {
			_, _ = io.WriteString(w, `{"models":[{"name":"sum:latest","model":"sum:latest"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"models":[]}`)
	default:
		if r.Method == http.MethodPost && !c.loaded {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.model.serve(w, r)
	}
}

// TestUnloadsIdleModels lets each kind of server give up its model and load it for the next request.
func TestUnloadsIdleModels(t *testing.T) {
	for kind := range unloaders {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := &controlled{model: &model{}}
			server := httptest.NewServer(http.HandlerFunc(c.serve))
			defer server.Close()
			conf := sleeping(Sleep{Hold: time.Minute, Unload: kind, UnloadAfter: time.Second}, server.URL)
			conf.Pools[0].Models = []string{"sum"}
			_, s := startGateway(t, conf)
			for i := range 2 {
				if a := post(t, s.URL+"/v1/models/sum:predict", `{"instances":[[1,2]]}`); a.status != http.StatusOK {
					t.Fatalf("%d %s", a.status, a.body)
				}
				waitFor(t, "the model is unloaded", func() bool {
					c.mu.Lock()
					defer c.mu.Unlock()
					return !c.loaded && c.unload == i+1 && c.loads == i+1
				})
			}
			if got := sleepOf(t, s.URL); got.ColdStarts != 2 || got.State != stats.Asleep {
				t.Errorf("%+v", got)
			}
			if n := len(c.model.seen()); n != 2 {
				t.Errorf("the model got %d requests, want 2", n)
			}
		})
	}
}

func TestRejectsSleep(t *testing.T) {
	for name, c := range map[string]struct {
		sleep Sleep
		why   string
	}{
		"no hold":         {Sleep{WakeURL: "http://a"}, "sleep needs the longest time"},
		"two ways":        {Sleep{Hold: 1, WakeURL: "http://a", WakeCommand: []string{"a"}}, "and not both"},
		"no URL":          {Sleep{Hold: 1, WakeURL: "ftp://a"}, "expected a URL"},
		"another server":  {Sleep{Hold: 1, Unload: "vllm"}, "expected llama.cpp"},
		"no models":       {Sleep{Hold: 1, Unload: "triton"}, "names no models"},
		"time alone":      {Sleep{Hold: 1, UnloadAfter: 1}, "it needs unload"},
		"negative":        {Sleep{Hold: -1}, "expected a time"},
		"negative size":   {Sleep{Hold: 1, HoldMiB: -1}, "expected 1"},
		"nothing to run":  {Sleep{Hold: 1, WakeCommand: []string{""}}, "is empty"},
		"longer than day": {Sleep{Hold: 48 * time.Hour}, "expected a time"},
	} {
		err := sleeping(c.sleep, "http://127.0.0.1:1").Pools[0].validate("pools[0]")
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
}
