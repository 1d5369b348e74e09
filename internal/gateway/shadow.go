package gateway

import (
	"net/http"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
)

// shadowCount simulates the batches of a model whose requests are forwarded untouched: while a
// batch would be on its way, what arrives gathers in the next one. A batch is taken to last as
// long as a request does, because nothing else is measured.
type shadowCount struct {
	batchable, batches, rows int64
	// until is when the running batch ends, took how long recent requests last on average.
	until time.Time
	took  time.Duration
	open  map[string]*openBatch
}

// openBatch gathers requests with equal keys.
type openBatch struct{ rows int }

// arrive counts a request that could be in a batch. The caller holds the lock of the counters.
func (s *shadowCount) arrive(key string, rows, maxRows int, now time.Time) {
	s.batchable++
	s.rows += int64(rows)
	if now.After(s.until) || s.open == nil {
		s.open = map[string]*openBatch{}
		s.until = now.Add(s.took)
		s.batches++ // a free server takes the request at once
		return
	}
	if len(s.open) >= maxModels {
		clear(s.open)
	}
	b := s.open[key]
	if b == nil || b.rows+rows > maxRows {
		s.open[key] = &openBatch{rows}
		s.batches++
		return
	}
	b.rows += rows
}

// shadow forwards an inference request untouched and counts what batching would do with it.
func (g *Gateway) shadow(w http.ResponseWriter, r *http.Request, s *state, c *call, body []byte, reason string) {
	if reason == "" {
		c.headers = http.Header{}
		key := batchKey(c)
		g.counts.mu.Lock()
		g.counts.of(c.pool.name, c.model).shadow.arrive(key, c.parsed.Rows, c.pool.config.MaxBatch, time.Now())
		g.counts.mu.Unlock()
	} else {
		g.counts.passed(c.pool.name, c.model, reason)
	}
	start := time.Now()
	g.sendAlone(w, r, s, c, body, &batch.Item{})
	g.counts.mu.Lock()
	defer g.counts.mu.Unlock()
	one := &g.counts.of(c.pool.name, c.model).shadow
	if took := time.Since(start); one.took == 0 {
		one.took = took
	} else {
		one.took += (took - one.took) / 16
	}
}
