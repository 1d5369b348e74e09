package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// result is the result of one load.
type result struct {
	sent, ok  int
	seconds   float64
	latencies []time.Duration // of good answers, sorted
	late      time.Duration   // of all requests that were sent after they were due
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

// connections holds idle connections by host. One goroutine writes a request and reads the
// response: the two goroutines per connection of net/http would use as much of the shared core as
// the gateway needs per request.
var connections = struct {
	sync.Mutex
	idle map[string][]*connection
}{idle: map[string][]*connection{}}

// connection is one HTTP/1.1 connection to a host.
type connection struct {
	net.Conn
	reader *bufio.Reader
}

// connect returns an idle connection to a host, or a new one.
func connect(ctx context.Context, host string) (*connection, error) {
	connections.Lock()
	if idle := connections.idle[host]; len(idle) > 0 {
		c := idle[len(idle)-1]
		connections.idle[host] = idle[:len(idle)-1]
		connections.Unlock()
		return c, nil
	}
	connections.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	return &connection{conn, bufio.NewReaderSize(conn, 1024)}, nil
}

// release returns a connection for the next request.
func (c *connection) release(host string) {
	connections.Lock()
	defer connections.Unlock()
	connections.idle[host] = append(connections.idle[host], c)
}

// exchange writes a request and reads its answer.
func (c *connection) exchange(request []byte) (status int, body []byte, reusable bool, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, nil, false, err
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0, nil, false, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err == nil && !resp.Close, err
}

// send posts one request and returns its answer.
func send(ctx context.Context, url string, body []byte, deadline time.Duration) (int, []byte, error) {
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	c, err := connect(ctx, host)
	if err != nil {
		return 0, nil, err
	}
	until, _ := ctx.Deadline() // the zero time is no limit
	if err := c.SetDeadline(until); err != nil {
		return 0, nil, errors.Join(err, c.Close())
	}
	request := fmt.Appendf(make([]byte, 0, 256+len(body)), "POST /%s HTTP/1.1\r\nHost: %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n", path, host, len(body))
	if deadline > 0 {
		request = fmt.Appendf(request, "Curfew-Deadline: %s\r\n", deadline)
	}
	request = append(append(request, "\r\n"...), body...)
	status, answer, reusable, err := c.exchange(request)
	if !reusable {
		return status, answer, errors.Join(err, c.Close())
	}
	c.release(host)
	return status, answer, nil
}

// lateness returns how late requests were sent on average.
func (r result) lateness() time.Duration { return r.late / time.Duration(max(1, r.sent)) }

// sleepUntil sleeps to a time. time.Sleep would be late by up to a millisecond, the resolution of
// epoll_wait, and would gather the arrivals of that time in a burst.
func sleepUntil(due time.Time) {
	for d := time.Until(due); d > 0; d = time.Until(due) {
		t := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&t, nil) // a signal ends it early
	}
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

// openLoop sends requests at a rate with Poisson arrivals, regardless of responses. Latency is
// measured from the scheduled time of a request. With a deadline, only responses in time count. The
// duration of the load ends with the last such response.
func openLoop(url string, rate float64, d, deadline time.Duration) result {
	// The thread that sleeps holds a processor of Go's meanwhile.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
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
		sleepUntil(due)
		all.late += max(0, time.Since(due))
		all.sent++
		if open.Load() > 8000 {
			continue // the server is overloaded, so more connections show nothing
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
			all.seconds = max(all.seconds, time.Since(start).Seconds())
			all.latencies = append(all.latencies, took)
		})
	}
	wg.Wait()
	all.seconds = max(all.seconds, d.Seconds())
	slices.Sort(all.latencies)
	return all
}
