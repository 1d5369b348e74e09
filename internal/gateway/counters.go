package gateway

import (
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// Bounds of what is counted apart.
const (
	maxModels    = 1024
	maxReasons   = 1024
	maxLatencies = 4096
	maxArrivals  = 65536
)

// modelKey names a model of a pool.
type modelKey struct{ pool, model string }

// modelCount is what happened to the requests of one model.
type modelCount struct {
	requests, answered, failed int64
	batches, rows              int64
	latencies                  ring[time.Duration]
	arrivals                   ring[arrival]
	recent                     arrivalRate
	shadow                     shadowCount
}

// arrival is one request as a replay of arrivals needs it.
type arrival struct {
	at   time.Time
	rows int32
}

// ring keeps the newest values.
type ring[T any] struct {
	values []T
	next   int
}

func (r *ring[T]) add(v T, limit int) {
	if len(r.values) < limit {
		r.values = append(r.values, v)
		return
	}
	r.values[r.next] = v
	r.next = (r.next + 1) % limit
}

// ordered returns the values from the oldest on.
func (r *ring[T]) ordered() []T {
	return append(slices.Clone(r.values[r.next:]), r.values[:r.next]...)
}

// Bounds of the time over which arrivals are averaged, in seconds.
const (
	maxRateWindow = 60
	minRateWindow = 5
)

// arrivalRate counts the arrivals of the last minute by second. Seconds are those of the gateway's
// monotonic clock, so that a wall clock that jumps moves no arrival.
type arrivalRate struct {
	seconds [maxRateWindow + 1]struct{ second, requests, rows int64 }
	last    time.Time
}

func (r *arrivalRate) add(second int64, rows int, at time.Time) {
	one := &r.seconds[second%int64(len(r.seconds))]
	if one.second != second {
		one.second, one.requests, one.rows = second, 0, 0
	}
	one.requests++
	one.rows += int64(rows)
	r.last = at
}

// mean returns requests and rows a second over the whole seconds before now; window is 0 where they
// are too few.
func (r *arrivalRate) mean(now int64) (requests, rows float64, window int) {
	length := min(now, maxRateWindow)
	if length < minRateWindow {
		return 0, 0, 0
	}
	for _, one := range r.seconds {
		if one.second < now && one.second >= now-length {
			requests, rows = requests+float64(one.requests), rows+float64(one.rows)
		}
	}
	return requests / float64(length), rows / float64(length), int(length)
}

// counters count what happens to requests.
type counters struct {
	mu      sync.Mutex
	started time.Time
	models  map[modelKey]*modelCount
	refusal map[string]int64
	passing map[stats.Passed]int64
}

func newCounters(started time.Time) *counters {
	return &counters{
		started: started, models: map[modelKey]*modelCount{},
		refusal: map[string]int64{}, passing: map[stats.Passed]int64{},
	}
}

// of returns the counts of a model. The caller holds the lock.
func (c *counters) of(pool, model string) *modelCount {
	k := modelKey{pool, model}
	m := c.models[k]
	if m == nil {
		if len(c.models) >= maxModels {
			k.model = otherAccount
			if m = c.models[k]; m != nil {
				return m
			}
		}
		m = &modelCount{}
		c.models[k] = m
	}
	return m
}

func (c *counters) arrive(pool, model string, rows int, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.of(pool, model)
	m.requests++
	m.recent.add(c.second(at), rows, at)
	m.arrivals.add(arrival{at, int32(min(rows, 1_000_000))}, maxArrivals)
}

// second returns a time as seconds of the gateway's clock.
func (c *counters) second(at time.Time) int64 { return int64(max(0, at.Sub(c.started)) / time.Second) }

func (c *counters) answered(pool, model string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.of(pool, model)
	m.answered++
	m.latencies.add(took, maxLatencies)
}

func (c *counters) failed(pool, model string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(pool, model).failed++
}

func (c *counters) refused(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal[reason]++
}

func (c *counters) passed(pool, model, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := stats.Passed{Pool: pool, Model: model, Reason: reason}
	if _, known := c.passing[k]; !known && len(c.passing) >= maxReasons {
		k.Model, k.Reason = otherAccount, otherAccount
	}
	c.passing[k]++
}

func (c *counters) exchange(pool string, x batch.Exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.of(pool, x.Items[0].Payload.(*call).model)
	m.batches++
	m.rows += int64(x.Rows)
}

// latencyPercentiles returns those of recent answers.
func (m *modelCount) latencyPercentiles() *stats.Percentiles {
	if len(m.latencies.values) == 0 {
		return nil
	}
	sorted := slices.Clone(m.latencies.values)
	slices.Sort(sorted)
	at := func(share float64) float64 {
		return float64(sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]) / float64(time.Millisecond)
	}
	return &stats.Percentiles{P50: at(0.5), P95: at(0.95), P99: at(0.99)}
}
