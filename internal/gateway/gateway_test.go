package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/money"
)

// model is a model server on loopback that adds up the two numbers of each row, one request at a
// time. Its metadata proves that it takes batches.
type model struct {
	*httptest.Server
	mu       sync.Mutex
	requests []recorded
	// hook answers in place of the model where it returns true.
	hook atomic.Pointer[func(http.ResponseWriter, *http.Request, []byte) bool]
	// hold, while it is not nil, is read before each answer.
	hold atomic.Pointer[chan struct{}]
	one  sync.Mutex
}

type recorded struct {
	path   string
	header http.Header
	body   []byte
	rows   int
}

const twoColumns = `{"name":"sum","inputs":[{"name":"x","datatype":"FP64","shape":[-1,2]}],` +
	`"outputs":[{"name":"y","datatype":"FP64","shape":[-1,1]}]}`

func newModel(t testing.TB) *model {
	m := &model{}
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(m.Close)
	return m
}

func (m *model) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet {
		switch {
		case strings.HasSuffix(r.URL.Path, "/config"):
			w.WriteHeader(http.StatusNotFound)
		case strings.HasPrefix(r.URL.Path, "/v2/models/"):
			_, _ = io.WriteString(w, twoColumns)
		}
		return
	}
	if hold := m.hold.Load(); hold != nil {
		<-*hold
	}
	m.one.Lock()
	defer m.one.Unlock()
	if hook := m.hook.Load(); hook != nil && (*hook)(w, r, body) {
		return
	}
	answer, rows := sums(body)
	m.mu.Lock()
	m.requests = append(m.requests, recorded{r.URL.Path, r.Header.Clone(), body, rows})
	m.mu.Unlock()
	_, _ = w.Write(answer)
}

func (m *model) setHook(f func(http.ResponseWriter, *http.Request, []byte) bool) { m.hook.Store(&f) }

// holdAll keeps all answers back until the returned function is called.
func (m *model) holdAll() (release func()) {
	c := make(chan struct{})
	m.hold.Store(&c)
	return sync.OnceFunc(func() { m.hold.Store(nil); close(c) })
}

func (m *model) seen() []recorded {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// sums answers a request in V2 or V1.
func sums(body []byte) ([]byte, int) {
	var in struct {
		ID     *string
		Inputs []struct {
			Shape []int
			Data  []float64
		}
		Instances [][]float64
	}
	_ = json.Unmarshal(body, &in)
	if in.Instances != nil {
		out := []float64{}
		for _, row := range in.Instances {
			out = append(out, row[0]+row[1])
		}
		b, _ := json.Marshal(map[string]any{"predictions": out})
		return b, len(out)
	}
	if len(in.Inputs) == 0 {
		return []byte(`{"outputs":[]}`), 0
	}
	n := in.Inputs[0].Shape[0]
	out := make([]float64, n)
	for i := range out {
		out[i] = in.Inputs[0].Data[2*i] + in.Inputs[0].Data[2*i+1]
	}
	doc := map[string]any{
		"model_name": "sum",
		"outputs":    []any{map[string]any{"name": "y", "datatype": "FP64", "shape": []int{n, 1}, "data": out}},
	}
	if in.ID != nil {
		doc["id"] = *in.ID
	}
	b, _ := json.Marshal(doc)
	return b, n
}

// startGateway serves a configuration on loopback.
func startGateway(t testing.TB, c Config) (*Gateway, *httptest.Server) {
	t.Helper()
	return startGatewayWith(t, c, func(*Options) {})
}

// startGatewayWith is startGateway with other options.
func startGatewayWith(t testing.TB, c Config, change func(*Options)) (*Gateway, *httptest.Server) {
	t.Helper()
	if c.MaxBodyMiB == 0 {
		d := DefaultConfig()
		c.MaxBodyMiB, c.QueueMiB, c.DrainTimeout, c.OwnerHeader = d.MaxBodyMiB, d.QueueMiB, time.Minute, d.OwnerHeader
	}
	o := Options{
		Price: func(p Pool) Price {
			if p.Price == "" {
				return Price{Unknown: "no price is set"}
			}
			a, _ := money.ParseAmount(p.Price)
			return Price{Hourly: a}
		},
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}, Version: "test",
		GRPC: &http.Transport{Protocols: http2Only()},
		Log:  slog.New(slog.DiscardHandler),
	}
	change(&o)
	g, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		g.stop()
	})
	return g, s
}

func http2Only() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

// onePool is a configuration with one pool that always batches.
func onePool(upstreams ...string) Config {
	return Config{Pools: []Pool{{Upstreams: upstreams, Batch: batchAlways, Price: "3.6"}}}
}

type answer struct {
	status int
	body   string
	header http.Header
}

func post(t testing.TB, url, body string, headers ...string) answer {
	t.Helper()
	a, err := tryPost(url, strings.NewReader(body), headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func tryPost(url string, body io.Reader, headers ...string) (answer, error) {
	req, err := http.NewRequest(http.MethodPost, url, body)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := testTransport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(b), resp.Header}, err
}

var testTransport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 200}

// row is a V2 request of one row.
func row(id string, a, b float64) string {
	return fmt.Sprintf(`{"id":%q,"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[%s,%s]}]}`, id,
		strconv.FormatFloat(a, 'g', -1, 64), strconv.FormatFloat(b, 'g', -1, 64))
}

func TestBatchedAnswersEqualDirectOnes(t *testing.T) {
	m := newModel(t)
	c := onePool(m.URL)
	c.Pools[0].MaxBatch = 16
	_, s := startGateway(t, c)
	r := rand.New(rand.NewPCG(1, 9))
	type sent struct{ path, body string }
	var all []sent
	for i := range 10_000 {
		body := row(fmt.Sprint("r", i), r.NormFloat64(), r.Float64()*1e-9)
		path := "/v2/models/sum/infer"
		if i%3 == 0 {
			body, path = fmt.Sprintf(`{"instances":[[%v,%v],[1.5,%v]]}`, r.NormFloat64(),
				r.NormFloat64(), r.Float64()),
				"/v1/models/sum:predict"
		}
		all = append(all, sent{path, body})
	}
	got := make([]string, len(all))
	var wg sync.WaitGroup
	next := atomic.Int64{}
	for range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				if a, err := tryPost(s.URL+all[i].path, strings.NewReader(all[i].body)); err != nil ||
					a.status != 200 {
					t.Errorf("request %d: %v %v", i, a, err)
				} else {
					got[i] = a.body
				}
			}
		})
	}
	wg.Wait()
	batched := 0
	for _, x := range m.seen() {
		if x.rows > 16 {
			t.Errorf("a batch of %d rows", x.rows)
		}
		if x.rows > 2 {
			batched++
		}
	}
	if batched < 20 {
		t.Errorf("only %d batches of several requests", batched)
	}
	for i, one := range all {
		direct, _ := sums([]byte(one.body))
		if !sameJSON(t, got[i], string(direct)) {
			t.Fatalf("request %d:\n got %s\nwant %s", i, got[i], direct)
		}
	}
}

// sameJSON compares documents with numbers as text.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	read := func(s string) string {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return fmt.Sprint(v)
	}
	return read(a) == read(b)
}

func TestFailuresAreNeverSuccesses(t *testing.T) {
	faults := map[string]struct {
		hook func(http.ResponseWriter, *http.Request, []byte) bool
		want int
	}{
		"killed": {func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			c, _, _ := http.NewResponseController(w).Hijack()
			_ = c.Close()
			return true
		}, http.StatusBadGateway},
		"cut off": {func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
			full, _ := sums(body)
			w.Header().Set("Content-Length", strconv.Itoa(len(full)))
			_, _ = w.Write(full[:len(full)/2])
			return true
		}, http.StatusBadGateway},
		"success with an error": {func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			_, _ = io.WriteString(w, `{"error":"CUDA out of memory"}`)
			return true
		}, http.StatusBadGateway},
		"another number of rows": {func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			_, _ = io.WriteString(w, `{"outputs":[{"name":"y","datatype":"FP64","shape":[77,1],"data":[1]}]}`)
			return true
		}, http.StatusBadGateway},
		"not JSON": {func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			_, _ = io.WriteString(w, `<html>`)
			return true
		}, http.StatusBadGateway},
		"empty success": {func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.WriteHeader(http.StatusNoContent)
			return true
		}, http.StatusBadGateway},
		"error": {func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"error":"boom"}`)
			return true
		}, http.StatusInternalServerError},
	}
	for name, f := range faults {
		for _, alone := range []bool{true, false} {
			m := newModel(t)
			_, s := startGateway(t, onePool(m.URL))
			m.setHook(f.hook)
			n := 1
			if !alone {
				n = 5
			}
			release := m.holdAll()
			answers := make(chan answer, n)
			for i := range n {
				go func() {
					a, err := tryPost(s.URL+"/v2/models/sum/infer", strings.NewReader(row("a", 1, float64(i))))
					if err != nil {
						a.body = err.Error()
					}
					answers <- a
				}()
			}
			waitQueued(t, s.URL, n-1)
			release()
			for range n {
				if a := <-answers; a.status != f.want || !strings.Contains(a.body, "") {
					t.Errorf("%s, %d requests: %d %s, want %d", name, n, a.status, a.body, f.want)
				}
			}
		}
	}
}

// waitQueued waits until so many requests are in the queue of the only pool.
func waitQueued(t *testing.T, url string, n int) {
	t.Helper()
	waitFor(t, fmt.Sprint(n, " queued requests"), func() bool {
		return readStats(t, url).Pools[0].QueuedRequests == n
	})
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("waited in vain for " + what)
}

func readStats(t *testing.T, url string) stats.Stats {
	t.Helper()
	resp, err := testTransport.RoundTrip(httptest.NewRequest(http.MethodGet, url+"/curfew/stats", http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var s stats.Stats
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBadInput(t *testing.T) {
	m := newModel(t)
	c := onePool(m.URL)
	c.MaxBodyMiB, c.QueueMiB, c.OwnerHeader = 1, 4, "Curfew-Owner"
	g, s := startGateway(t, c)
	v2 := s.URL + "/v2/models/sum/infer"
	many := strings.TrimSuffix(strings.Repeat("1,", 200), ",")
	for name, x := range map[string]struct {
		url, body string
		headers   []string
		want      int
	}{
		"shape":  {v2, `{"inputs":[{"name":"x","datatype":"FP64","shape":[2,2],"data":[1]}]}`, nil, 400},
		"0 rows": {v2, `{"inputs":[{"name":"x","datatype":"FP64","shape":[0,2],"data":[]}]}`, nil, 400},
		"NaN":    {v2, `{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[NaN,1]}]}`, nil, 400},
		"too many rows": {
			v2, `{"inputs":[{"name":"x","datatype":"FP64","shape":[100,2],"data":[` + many + `]}]}`, nil, 413,
		},
		"deep":             {v2, strings.Repeat("[", 500_000), nil, 400},
		"large":            {v2, strings.Repeat(" ", 2<<20), nil, 413},
		"gzip":             {v2, "\x1f\x8b", []string{"Content-Encoding", "gzip"}, 415},
		"deadline":         {v2, row("a", 1, 2), []string{"Curfew-Deadline", "soon"}, 400},
		"negative":         {v2, row("a", 1, 2), []string{"Curfew-Deadline", "-1s"}, 400},
		"priority":         {v2, row("a", 1, 2), []string{"Curfew-Priority", "10"}, 400},
		"empty":            {v2, "", nil, 400},
		"dots":             {s.URL + "/v2/models/../models/sum/infer", row("a", 1, 2), nil, 400},
		"escaped slash":    {s.URL + "/v2/models/a%2Fsum/infer", row("a", 1, 2), nil, 400},
		"escaped dots":     {s.URL + "/v2/models/%2e%2e/sum/infer", row("a", 1, 2), nil, 400},
		"V1 empty":         {s.URL + "/v1/models/sum:predict", `{"instances":[]}`, nil, 400},
		"no model":         {s.URL + "/v1/chat/completions", `{}`, nil, 400},
		"own path":         {s.URL + "/curfew/nothing", ``, nil, 404},
		"completion, gzip": {s.URL + "/v1/completions", "x", []string{"Content-Encoding", "gzip"}, 415},
	} {
		if a := post(t, x.url, x.body, x.headers...); a.status != x.want || !json.Valid([]byte(a.body)) {
			t.Errorf("%s: %d %s, want %d", name, a.status, a.body, x.want)
		}
	}
	if n := len(m.seen()); n != 0 {
		t.Errorf("%d bad requests reached the model server", n)
	}
	if n := g.reading.Load(); n != 0 {
		t.Errorf("%d bytes of bodies are still reserved", n)
	}
	if a := post(t, v2, row("ok", 1, 2)); a.status != 200 {
		t.Errorf("a good request after the bad ones: %+v", a)
	}
}

// TestHostileConnections sends what no HTTP client sends.
func TestHostileConnections(t *testing.T) {
	m := newModel(t)
	_, s := startGateway(t, onePool(m.URL))
	host := strings.TrimPrefix(s.URL, "http://")
	for name, x := range map[string]struct{ request, want string }{
		"two lengths": {
			"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
			"400",
		},
		"bad length": {"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nabcde", "400"},
		"bad coding": {
			"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "501",
		},
		"1 GiB": {"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n", "413"},
		"space in name": {
			"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\nContent-Length: " +
				"3\r\n\r\nabc", "400",
		},
	} {
		c, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, x.request)
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		head := make([]byte, 12)
		if _, err := io.ReadFull(c, head); err != nil || string(head[9:]) != x.want {
			t.Errorf("%s: %q %v, want %s", name, head, err, x.want)
		}
		_ = c.Close()
	}
	if n := len(m.seen()); n != 0 {
		t.Errorf("%d requests reached the model server", n)
	}
}

func TestBatchesOnlyWhatMetadataProves(t *testing.T) {
	for name, x := range map[string]struct {
		metadata, triton string
		reason           string
	}{
		"batch first": {twoColumns, "", ""},
		"fixed dimension": {
			strings.Replace(twoColumns, "[-1,1]", "[4,1]", 1), "", "does not begin with a batch dimension",
		},
		"one dimension": {
			strings.Replace(twoColumns, "[-1,1]", "[-1]", 1), "", "does not begin with a batch dimension",
		},
		"other input":    {strings.Replace(twoColumns, `"x"`, `"z"`, 1), "", "has no input"},
		"Triton without": {twoColumns, `{"max_batch_size":0}`, "max_batch_size 0"},
		"Triton with":    {twoColumns, `{"max_batch_size":8}`, ""},
		"no metadata":    {"", "", "answered 404"},
	} {
		m := newModel(t)
		m.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			doc := x.metadata
			if strings.HasSuffix(r.URL.Path, "/config") {
				doc = x.triton
			}
			switch {
			case r.Method == http.MethodPost:
				m.serve(w, r)
			case doc == "":
				w.WriteHeader(http.StatusNotFound)
			default:
				_, _ = io.WriteString(w, doc)
			}
		})
		c := onePool(m.URL)
		c.Pools[0].Batch = batchAuto
		_, s := startGateway(t, c)
		url := s.URL + "/v2/models/sum/infer"
		post(t, url, row("first", 1, 1))
		waitFor(t, name+": a decision about the model", func() bool {
			if a := post(t, url, row("next", 1, 1)); a.status != 200 {
				t.Fatal(a)
			}
			d := readStats(t, s.URL)
			if x.reason == "" {
				return d.Models[0].Batches > 0
			}
			return slices.ContainsFunc(d.PassedThrough, func(p stats.Passed) bool {
				return strings.Contains(p.Reason, x.reason)
			})
		})
		if d := readStats(t, s.URL); x.reason != "" && d.Models[0].Batches > 0 {
			t.Errorf("%s: %d batches", name, d.Models[0].Batches)
		}
	}
}

func TestHeadersAreForwardedByTheList(t *testing.T) {
	m := newModel(t)
	c := onePool(m.URL)
	c.ForwardHeaders = []string{"X-Tenant"}
	_, s := startGateway(t, c)
	release := m.holdAll()
	var wg sync.WaitGroup
	for i := range 7 {
		tenant := []string{"a", "b"}[i%2]
		wg.Go(func() {
			a, err := tryPost(s.URL+"/v2/models/sum/infer", strings.NewReader(row("q", 1, 2)), "X-Tenant", tenant,
				"Authorization", "Bearer secret", "X-Api-Key", "secret", "Cookie", "secret", "X-Other", "secret")
			if err != nil || a.status != 200 {
				t.Error(a, err)
			}
		})
	}
	waitQueued(t, s.URL, 6)
	release()
	wg.Wait()
	tenants := map[string]int{}
	for _, r := range m.seen() {
		tenants[r.header.Get("X-Tenant")] += r.rows
		for h, v := range r.header {
			if slices.Contains(v, "secret") || strings.Contains(fmt.Sprint(v), "Bearer") {
				t.Errorf("%s was forwarded", h)
			}
		}
	}
	if !maps.Equal(tenants, map[string]int{"a": 4, "b": 3}) {
		t.Errorf("rows by tenant: %v", tenants)
	}
	// A request that passes through loses credentials as well.
	m.setHook(func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		_, _ = fmt.Fprint(w, r.Header)
		return true
	})
	a := post(t, s.URL+"/v2/repository/index", "{}", "Authorization", "Bearer secret", "X-Api-Key", "secret", "Cookie",
		"secret", "X-Tenant", "a", "X-Other", "kept")
	if strings.Contains(a.body, "secret") || !strings.Contains(a.body, "kept") {
		t.Error(a.body)
	}
}

func TestKeys(t *testing.T) {
	m := newModel(t)
	c := onePool(m.URL)
	c.Keys = []Key{
		{Name: "ana", Hash: hashOf("key-ana"), Owner: "vision", Models: []string{"sum"}},
		{Name: "ops", Hash: hashOf("key-ops"), Admin: true},
		{Name: "bo", Hash: hashOf("key-bo")},
		{Name: "cy", Hash: hashOf("key-cy"), BudgetUSD: "5"},
	}
	_, s := startGateway(t, c)
	infer := func(model string, headers ...string) int {
		return post(t, s.URL+"/v2/models/"+model+"/infer", row("a", 1, 2), headers...).status
	}
	for name, x := range map[string]struct{ got, want int }{
		"no key":         {infer("sum"), 401},
		"wrong key":      {infer("sum", "Authorization", "Bearer key-an"), 401},
		"empty key":      {infer("sum", "Authorization", "Bearer "), 401},
		"the hash":       {infer("sum", "Authorization", "Bearer "+hashOf("key-ana")), 401},
		"key":            {infer("sum", "Authorization", "Bearer key-ana"), 200},
		"key header":     {infer("sum", "X-Api-Key", "key-ana"), 200},
		"other model":    {infer("other", "X-Api-Key", "key-ana"), 403},
		"all models":     {infer("other", "X-Api-Key", "key-ops"), 200},
		"stats":          {get(t, s.URL+"/curfew/stats", "key-ana").status, 403},
		"stats, admin":   {get(t, s.URL+"/curfew/stats", "key-ops").status, 200},
		"metrics":        {get(t, s.URL+"/metrics", "").status, 401},
		"metrics, admin": {get(t, s.URL+"/metrics", "key-ops").status, 200},
		"health":         {get(t, s.URL+"/healthz", "").status, 200},
		"model list":     {get(t, s.URL+"/v2/repository/index", "key-ana").status, 403},
		"other model, v1": {
			post(t, s.URL+"/v1/models/other:predict", `{"instances":[[1,2]]}`, "X-Api-Key", "key-ana").status, 403,
		},
		"unload":        {post(t, s.URL+"/v2/repository/models/sum/unload", "{}", "X-Api-Key", "key-bo").status, 403},
		"unload, admin": {post(t, s.URL+"/v2/repository/models/sum/unload", "{}", "X-Api-Key", "key-ops").status, 200},
		"uncounted":     {post(t, s.URL+"/generate", "{}", "X-Api-Key", "key-cy").status, 403},
		"counted":       {infer("sum", "X-Api-Key", "key-cy"), 200},
		"completion": {
			post(t, s.URL+"/v1/completions", `{"model":"other"}`, "X-Api-Key", "key-ana").status, 403,
		},
	} {
		if x.got != x.want {
			t.Errorf("%s: %d, want %d", name, x.got, x.want)
		}
	}
	for _, r := range m.seen() {
		if r.header.Get("Authorization")+r.header.Get("X-Api-Key") != "" {
			t.Error("a key reached the model server")
		}
	}
}

func get(t testing.TB, url, key string) answer {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, url, http.NoBody)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := testTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(b), resp.Header}
}

func TestReloadUnderLoadAnswersAll(t *testing.T) {
	a, b := newModel(t), newModel(t)
	g, s := startGateway(t, onePool(a.URL))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var sent, failed atomic.Int64
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				sent.Add(1)
				x, y := float64(w), float64(i)
				got, err := tryPost(s.URL+"/v2/models/sum/infer", strings.NewReader(row("r", x, y)))
				direct, _ := sums([]byte(row("r", x, y)))
				if err != nil || got.status != 200 || !sameJSON(t, got.body, string(direct)) {
					failed.Add(1)
					t.Errorf("%+v %v, want %s", got, err, direct)
				}
			}
		})
	}
	for i := range 60 {
		c := onePool([][]string{{a.URL}, {b.URL}, {a.URL, b.URL}}[i%3]...)
		c.MaxBodyMiB, c.QueueMiB, c.DrainTimeout, c.OwnerHeader = 1, 4, time.Minute, "X"
		c.Pools[0].MaxBatch, c.Pools[0].Slots = 1+i%7, 1+i%2
		if i%10 == 9 {
			c.Pools[0].Name = fmt.Sprint("renamed", i)
		}
		if err := g.Configure(c); err != nil {
			t.Fatal(err)
		}
		before := sent.Load()
		waitFor(t, "requests", func() bool { return sent.Load() > before+5 })
	}
	close(stop)
	wg.Wait()
	if len(a.seen()) == 0 || len(b.seen()) == 0 {
		t.Errorf("%d and %d batches", len(a.seen()), len(b.seen()))
	}
}

func TestDrain(t *testing.T) {
	m := newModel(t)
	g, s := startGateway(t, onePool(m.URL))
	release := m.holdAll()
	answers := make(chan answer, 6)
	for i := range 6 {
		go func() {
			a, _ := tryPost(s.URL+"/v2/models/sum/infer", strings.NewReader(row("r", 1, float64(i))))
			answers <- a
		}()
	}
	waitQueued(t, s.URL, 5)
	closed := make(chan error, 1)
	go func() { closed <- g.Close(context.Background()) }()
	waitFor(t, "the drain", func() bool { return g.draining.Load() })
	if a := post(t, s.URL+"/v2/models/sum/infer", row("late", 1, 1)); a.status != 503 ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("a request while draining: %+v", a)
	}
	release()
	for range 6 {
		if a := <-answers; a.status != 200 {
			t.Errorf("%+v", a)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestDeadUpstream(t *testing.T) {
	m := newModel(t)
	_, s := startGateway(t, onePool(m.URL, "http://127.0.0.1:1"))
	for range 20 {
		if a := post(t, s.URL+"/v2/models/sum/infer", row("r", 1, 2)); a.status != 200 {
			t.Fatalf("with one server of two down: %+v", a)
		}
	}
	m.Close()
	waitFor(t, "a refusal", func() bool { return post(t, s.URL+"/v2/models/sum/infer", row("r", 1, 2)).status == 503 })
	if a := get(t, s.URL+"/readyz", ""); a.status != 503 {
		t.Errorf("ready without a server: %+v", a)
	}
}

func TestIdempotentPoolIsolatesABadRequest(t *testing.T) {
	m := newModel(t)
	c := onePool(m.URL)
	c.Pools[0].Idempotent = true
	_, s := startGateway(t, c)
	m.setHook(func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		if bytes.Contains(body, []byte("666")) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"poison"}`)
			return true
		}
		return false
	})
	release := m.holdAll()
	var wg sync.WaitGroup
	statuses := make([]int, 6)
	for i := range statuses {
		wg.Go(func() {
			x := float64(i)
			if i == 3 {
				x = 666
			}
			a, _ := tryPost(s.URL+"/v2/models/sum/infer", strings.NewReader(row("r", x, 1)))
			statuses[i] = a.status
		})
	}
	waitQueued(t, s.URL, 5)
	release()
	wg.Wait()
	for i, got := range statuses {
		if want := map[bool]int{true: 400, false: 200}[i == 3]; got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
}
