package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// result is what one load showed.
type result struct {
	sent, ok  int
	seconds   float64
	latencies []time.Duration // of good answers, sorted
}

func (r result) rate() float64 { return float64(r.ok) / r.seconds }

// at returns a percentile.
func (r result) at(share float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	return r.latencies[min(len(r.latencies)-1, int(share*float64(len(r.latencies))))]
}

func (r result) mean() time.Duration {
	var sum time.Duration
	for _, l := range r.latencies {
		sum += l
	}
	return sum / time.Duration(max(1, len(r.latencies)))
}

var transport = &http.Transport{
	MaxIdleConnsPerHost: 4096, MaxIdleConns: 8192, DisableCompression: true,
}

// bodies are requests of one row with different numbers.
var bodies = func() [][]byte {
	r := rand.New(rand.NewPCG(36, 36))
	out := make([][]byte, 256)
	for i := range out {
		out[i] = rowBody(r)
	}
	return out
}()

func rowBody(r *rand.Rand) []byte {
	var b bytes.Buffer
	b.WriteString(`{"instances":[[`)
	for i := range 16 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%.6f", r.NormFloat64())
	}
	b.WriteString(`]]}`)
	return b.Bytes()
}

// send posts one request and returns its answer.
func send(ctx context.Context, url string, body []byte, deadline time.Duration) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if deadline > 0 {
		req.Header.Set("Curfew-Deadline", deadline.String())
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// closedLoop lets clients send one request after another for a time.
func closedLoop(url string, clients int, d time.Duration) result {
	var mu sync.Mutex
	var all result
	var wg sync.WaitGroup
	start := time.Now()
	for c := range clients {
		wg.Go(func() {
			var mine result
			for i := c; time.Since(start) < d; i++ {
				at := time.Now()
				status, _, err := send(context.Background(), url, bodies[i%len(bodies)], 0)
				mine.sent++
				if err == nil && status == http.StatusOK {
					mine.ok++
					mine.latencies = append(mine.latencies, time.Since(at))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.sent, all.ok = all.sent+mine.sent, all.ok+mine.ok
			all.latencies = append(all.latencies, mine.latencies...)
		})
	}
	wg.Wait()
	all.seconds = time.Since(start).Seconds()
	slices.Sort(all.latencies)
	return all
}

// openLoop sends requests at a rate with Poisson arrivals, whether answers come or not. Latency
// counts from the time at which a request was due. With a deadline only answers in time are good.
func openLoop(url string, rate float64, d, deadline time.Duration) result {
	r := rand.New(rand.NewPCG(36, uint64(rate)))
	var mu sync.Mutex
	var all result
	var wg sync.WaitGroup
	var open atomic.Int64
	start := time.Now()
	due := start
	for i := 0; ; i++ {
		due = due.Add(time.Duration(r.ExpFloat64() / rate * float64(time.Second)))
		if due.Sub(start) > d {
			break
		}
		time.Sleep(time.Until(due))
		all.sent++
		if open.Load() > 8000 {
			continue // the server is lost: more connections show nothing
		}
		at := due
		open.Add(1)
		wg.Go(func() {
			defer open.Add(-1)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			status, _, err := send(ctx, url, bodies[i%len(bodies)], deadline)
			took := time.Since(at)
			if err != nil || status != http.StatusOK || deadline > 0 && took > deadline {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all.ok++
			all.latencies = append(all.latencies, took)
		})
	}
	all.seconds = time.Since(start).Seconds()
	wg.Wait()
	slices.Sort(all.latencies)
	return all
}
