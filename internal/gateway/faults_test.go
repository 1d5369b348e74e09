package gateway

import (
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

// TestCompletionFailuresAreNeverSuccesses: whatever a server that batches by itself does, a caller
// gets an error or a broken stream, and nothing is counted as answered.
func TestCompletionFailuresAreNeverSuccesses(t *testing.T) {
	event := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	abort := func(w http.ResponseWriter) {
		c, _, _ := http.NewResponseController(w).Hijack()
		_ = c.Close()
	}
	stall := make(chan struct{})
	t.Cleanup(func() { close(stall) })
	const choice = "data: {\"choices\":[{\"delta\":{\"content\":\"w\"}}]}\n\n"
	for name, f := range map[string]struct {
		serve func(http.ResponseWriter)
		// want is the status; 0 is a stream that breaks off.
		want int
	}{
		"killed":         {abort, http.StatusBadGateway},
		"stalled":        {func(http.ResponseWriter) { <-stall }, http.StatusGatewayTimeout},
		"stalled stream": {func(w http.ResponseWriter) { event(w, choice); <-stall }, 0},
		"cut off": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"choices":[`)
		}, http.StatusBadGateway},
		"200 with an error": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"error":{"message":"CUDA out of memory"}}`)
		}, http.StatusBadGateway},
		"stream that is an error": {func(w http.ResponseWriter) {
			event(w, "data: {\"error\":{\"message\":\"CUDA out of memory\"}}\n\ndata: [DONE]\n\n")
		}, http.StatusBadGateway},
		"stream killed": {func(w http.ResponseWriter) { event(w, choice); abort(w) }, 0},
		"error":         {func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, 500},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_, _ = io.ReadAll(r.Body)
					f.serve(w)
				}
			}))
			t.Cleanup(server.CloseClientConnections)
			c := onePool(server.URL)
			c.Pools[0].Timeout = 300 * time.Millisecond
			_, s := startGateway(t, c)
			a, err := tryPost(s.URL+"/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true}`))
			right := err == nil && a.status == f.want
			if f.want == 0 {
				right = err != nil && strings.HasPrefix(a.body, "data: ")
			}
			if !right {
				t.Errorf("%d %q, %v; want %d", a.status, a.body, err, f.want)
			}
			waitFor(t, "the failure", func() bool {
				d := readStats(t, s.URL)
				return len(d.Models) == 1 && d.Models[0].Failed == 1 && d.Models[0].Answered == 0 &&
					d.Models[0].Predictions == 0 && d.Models[0].Demand.RunningRequests == 0
			})
		})
	}
}

// TestErrorLateInAStreamIsNoAnswer: its bytes pass, and it counts as failed.
func TestErrorLateInAStreamIsNoAnswer(t *testing.T) {
	const text = "data: {\"choices\":[{\"delta\":{\"content\":\"w\"}}]}\n\ndata: {\"error\":{\"message\":\"full\"}}\n\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	_, s := startGateway(t, onePool(server.URL))
	if a := post(t, s.URL+"/v1/completions", `{"model":"m","stream":true}`); a.body != text {
		t.Errorf("%d %q", a.status, a.body)
	}
	waitFor(t, "the failure", func() bool {
		m := readStats(t, s.URL).Models
		return len(m) == 1 && m[0].Failed == 1 && m[0].Answered == 0
	})
}

func TestNullErrorIsNone(t *testing.T) {
	for body, want := range map[string]bool{
		`{"error":null,"choices":[]}`: false, `{"error":null}`: false, `{"error":"x"}`: true,
		`{"error":{"message":"x"},"choices":[]}`: false, `{"error":"x","data":[]}`: false, `{"a":"\"error\""}`: false,
	} {
		if got := isError([]byte(body)); got != want {
			t.Errorf("isError(%s) = %v", body, got)
		}
	}
}

// TestDeadlineEndsACompletion: an answer after the caller's deadline is of no use.
func TestDeadlineEndsACompletion(t *testing.T) {
	l := newLLM(t)
	hold := make(chan struct{})
	l.hold.Store(&hold)
	defer close(hold)
	_, s := startGateway(t, onePool(l.URL))
	a := post(t, s.URL+"/v1/completions", `{"model":"m","prompt":"x"}`, "Curfew-Deadline", "50ms")
	if a.status != http.StatusGatewayTimeout {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestServersDieUnderLoad: connections are cut, answers cut off, stalled and false, while the pool is
// reloaded. Each request gets exactly one answer, which is its own sum or an error.
func TestServersDieUnderLoad(t *testing.T) {
	a, b := newModel(t), newModel(t)
	var n atomic.Int64
	for _, m := range []*model{a, b} {
		m.setHook(func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
			full, _ := sums(body)
			switch n.Add(1) % 7 {
			case 0:
				c, _, _ := http.NewResponseController(w).Hijack()
				_ = c.Close()
			case 1:
				w.Header().Set("Content-Length", fmt.Sprint(len(full)))
				_, _ = w.Write(full[:len(full)/2])
			case 2:
				_, _ = io.WriteString(w, `{"error":"CUDA out of memory"}`)
			case 3:
				time.Sleep(60 * time.Millisecond) // over the timeout
				return false
			default:
				return false
			}
			return true
		})
	}
	c := onePool(a.URL, b.URL)
	c.Pools[0].Timeout = 40 * time.Millisecond
	g, s := startGateway(t, c)
	var sent, right, failed atomic.Int64
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 60 {
				sent.Add(1)
				body := row("r", float64(w), float64(i))
				got, err := tryPost(s.URL+"/v2/models/sum/infer", strings.NewReader(body))
				direct, _ := sums([]byte(body))
				switch {
				case err != nil:
					t.Errorf("no answer: %v", err)
				case got.status == http.StatusOK && sameJSON(t, got.body, string(direct)):
					right.Add(1)
				case got.status >= 500 && strings.Contains(got.body, `"error"`):
					failed.Add(1)
				default:
					t.Errorf("%d %s, want %s", got.status, got.body, direct)
				}
			}
		})
	}
	for i := range 20 {
		next := onePool([][]string{{a.URL}, {b.URL}, {a.URL, b.URL}}[i%3]...)
		next.MaxBodyMiB, next.QueueMiB, next.DrainTimeout, next.OwnerHeader = 1, 4, time.Minute, "X"
		next.Pools[0].Timeout = 40 * time.Millisecond
		if err := g.Configure(next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	wg.Wait()
	if right.Load()+failed.Load() != sent.Load() || right.Load() == 0 || failed.Load() == 0 {
		t.Errorf("%d sent, %d right, %d failed", sent.Load(), right.Load(), failed.Load())
	}
	waitFor(t, "the counts", func() bool {
		d := readStats(t, s.URL)
		m := stats.Model{}
		for _, one := range d.Models {
			m.Answered += one.Answered
			m.Demand.RunningRequests += one.Demand.RunningRequests
		}
		return m.Answered == right.Load() && m.Demand.RunningRequests == 0
	})
}
