package gateway

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// sharedServer answers completions as a server that batches continuously: a request takes
// perRunning·c + base while c run.
func sharedServer(t *testing.T, perRunning, base time.Duration) (*httptest.Server, *atomic.Int64) {
	var running atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.ReadAll(r.Body)
		running.Add(1)
		defer running.Add(-1)
		last := time.Now()
		for work := 0.0; work < 1; {
			time.Sleep(time.Millisecond)
			now := time.Now()
			whole := perRunning.Seconds()*float64(running.Load()) + base.Seconds()
			work += now.Sub(last).Seconds() / whole
			last = now
		}
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":7}}`)
	}))
	t.Cleanup(s.Close)
	return s, &running
}

// loop lets clients send one completion after another.
func loop(t *testing.T, url string, clients, each int) {
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range each {
				if a := post(t, url+"/v1/completions", `{"model":"m","prompt":"x"}`); a.status != http.StatusOK {
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
	wg.Wait()
}

// TestProfileOfRunningRequests: the profile of a server that batches continuously is its law, in the
// form of plan capacity, and too few numbers of running requests are an error that names the others.
func TestProfileOfRunningRequests(t *testing.T) {
	server, _ := sharedServer(t, 4*time.Millisecond, 20*time.Millisecond)
	c := onePool(server.URL)
	c.Pools[0].Concurrency = 8
	g, s := startGateway(t, c)
	loop(t, s.URL, 1, 12)
	_, err := g.Profile("m")
	if err == nil || !strings.Contains(err.Error(), "2, 3-4, 5-8 running") {
		t.Fatalf("with one at a time: %v", err)
	}
	for _, clients := range []int{2, 4, 8} {
		loop(t, s.URL, clients, 12)
	}
	p, err := g.Profile("")
	if err != nil {
		t.Fatal(err)
	}
	if p.Model != "m" || p.MaxBatch != 0 || p.Fit.MinRows != 1 || p.Fit.MaxRows < 6 || p.Fit.MaxRows > 8 ||
		!strings.HasSuffix(p.Profile, ",running=1-"+string(rune('0'+p.Fit.MaxRows))) {
		t.Errorf("%+v", p)
	}
	for _, l := range p.Fit.Levels {
		// The server sleeps in steps, and a busy machine adds to them: only short of its law it never is.
		got, least := *p.Fit.AMS*l.Running+*p.Fit.BMS, 4*l.Running+20
		if math.Abs(got/l.LatencyMS-1) > 0.2 || l.LatencyMS < 0.95*least {
			t.Errorf("%.1f running take %.1f ms, measured %.1f, at least %.1f: %s", l.Running, got, l.LatencyMS, least,
				p.Profile)
		}
		if got := l.Running / l.LatencyMS * 1000; math.Abs(got/l.RequestsPerSecond-1) > 0.01 || l.Requests < 5 {
			t.Errorf("%+v", l)
		}
	}
	d, err := g.Stats()
	if err != nil || len(d.Models) != 1 || len(d.Models[0].ConcurrencyFits) != 1 ||
		d.Models[0].ConcurrencyFits[0].AMS == nil {
		t.Errorf("%+v, %v", d.Models, err)
	}
}

// TestLawCountsRequestsOfOthers: running requests that the server's metrics show count, and requests
// that waited in the server are no measurement.
func TestLawCountsRequestsOfOthers(t *testing.T) {
	b := newBalancer()
	b.set([]string{"http://a"}, 64, func(string) bool { return true })
	one := func(load *stats.Load) []law {
		name, err := b.take(t.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		from := b.begin(name, time.Now())
		time.Sleep(2 * time.Millisecond)
		if load != nil {
			b.adjust(name, load)
		}
		b.measure(name, "m", from, time.Now())
		b.release(name)
		return b.lawsOf("m")
	}
	number := func(v float64) *float64 { return &v }
	b.adjust("http://a", &stats.Load{Running: number(6)})
	for range 10 {
		one(nil)
	}
	laws := one(&stats.Load{Running: number(6), Waiting: number(2)})
	if len(laws) != 1 || laws[0].line.Min != 7 || laws[0].line.Max != 7 || laws[0].line.Batches != 10 {
		b, _ := json.Marshal(describeLaws(laws))
		t.Errorf("%s", b)
	}
}
