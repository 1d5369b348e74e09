package batch

import (
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/fit"
)

// minBase is the fixed time of a batch below which waiting is never worth a timer.
const minBase = 200 * time.Microsecond

// worthWaiting returns how long a free slot waits for another item of a queue, 0 for not at all.
//
// A batch of n items that waits for one more delays each of them by the gap until it arrives, and
// its own row. Without waiting, the next item waits until the batch is done. With a batch time of
// a·n + b the sum of latencies is less with waiting if (n + 1) · gap < b. Only half of b is counted,
// because the gap is an estimate. A slot waits at most for 3 gaps without an arrival, and at most
// for b in all.
func (p *Pool) worthWaiting(q *queue, s *server, now time.Time) time.Duration {
	first := q.items[0]
	if q.rows >= p.o.MaxRows || len(p.order) > 1 || first.alone || p.closed {
		return 0
	}
	line, ok := s.line(first.Model)
	base := time.Duration(line.Base * float64(time.Second))
	if !ok || line.Sizes < 2 || base < minBase {
		return 0
	}
	f := p.flows[q.key]
	gap, known := f.gap()
	if !known || time.Duration(len(q.items)+1)*gap*2 >= base {
		return 0
	}
	if q.waitSince.IsZero() {
		q.waitSince = now
	}
	until := f.last.Add(3 * gap)
	if limit := q.waitSince.Add(base); limit.Before(until) {
		until = limit
	}
	for _, it := range q.items {
		if it.Deadline.IsZero() {
			continue
		}
		if latest := it.Deadline.Add(-timeOf(line, q.rows+1)); latest.Before(until) {
			until = latest
		}
	}
	return until.Sub(now)
}

// timeOf returns the time that a batch takes in nine of ten cases. Outside of the measured sizes it
// is an upper bound: a smaller batch takes no longer than the smallest that was measured, and a
// larger one no longer than its rows in batches of the largest.
func timeOf(line fit.Line, rows int) time.Duration {
	measured := min(max(rows, line.Min), line.Max)
	took, _ := line.Time(measured)
	took = time.Duration(float64(took) * (1 + line.ErrorP90))
	if rows > line.Max {
		took = time.Duration(float64(took) * float64(rows) / float64(line.Max))
	}
	return took
}

// dropLate answers the first items of a queue whose answers would come too late, and reports
// whether there were any. What a slot does for a late answer is lost to the others.
func (p *Pool) dropLate(q *queue, s *server, now time.Time) bool {
	dropped := false
	for len(q.items) > 0 {
		it := q.items[0]
		if it.Deadline.IsZero() {
			break
		}
		took := time.Duration(0)
		if line, ok := s.line(it.Model); ok {
			took = timeOf(line, min(q.rows, p.o.MaxRows))
		}
		if !now.Add(took).After(it.Deadline) {
			break
		}
		p.remove(q, it)
		it.done <- Result{Err: &LateError{Expected: took, InQueue: true}}
		dropped = true
	}
	return dropped
}

// expected returns the time until the answer to a new item; false where the batch times are not
// known.
func (p *Pool) expected(it *Item, now time.Time) (time.Duration, bool) {
	var line fit.Line
	known, servers, free := false, 0, time.Duration(-1)
	for _, s := range p.servers {
		if !s.healthy || s.draining {
			continue
		}
		servers += s.slots
		l, ok := s.line(it.Model)
		if !ok {
			continue
		}
		line, known = l, true
		if d, ok := s.freeAfter(now); ok && (free < 0 || d < free) {
			free = d
		}
	}
	if !known || free < 0 {
		return 0, false
	}
	ahead := p.rowsBefore(it)
	full, rest := ahead/p.o.MaxRows, ahead%p.o.MaxRows
	if rest+it.Rows > p.o.MaxRows {
		full, rest = full+1, 0
	}
	if full == 0 {
		return free + timeOf(line, rest+it.Rows), true
	}
	whole := timeOf(line, p.o.MaxRows)
	// The item's own batch fills up while it waits.
	return free + whole*time.Duration(full)/time.Duration(servers) + whole, true
}

// freeAfter returns the time until a slot of a server is free; false where that is not known.
func (s *server) freeAfter(now time.Time) (time.Duration, bool) {
	if len(s.running) < s.slots {
		return 0, true
	}
	least, found := time.Duration(0), false
	for r := range s.running {
		line, ok := s.line(r.items[0].Model)
		if !ok {
			continue
		}
		if left := max(0, timeOf(line, r.rows)-now.Sub(r.started)); !found || left < least {
			least, found = left, true
		}
	}
	return least, found
}

// rowsBefore returns the queued rows that go before a new item.
func (p *Pool) rowsBefore(it *Item) int {
	if it.Priority == 0 && p.prioritized == 0 {
		return p.rows
	}
	rows := 0
	for _, q := range p.order {
		for _, other := range q.items {
			if before(other, it) {
				rows += other.Rows
			}
		}
	}
	return rows
}

// Fits returns the lines of all models on all servers.
func (p *Pool) Fits() []ModelFit {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []ModelFit
	for _, s := range p.servers {
		for model, e := range s.fits {
			f := ModelFit{Server: s.name, Model: model, Sizes: e.Sizes()}
			f.Line, f.Fitted = e.Line()
			f.Changes, f.ChangedAt = e.Changes()
			out = append(out, f)
		}
	}
	return out
}

// Ranges returns how many batches of each range of sizes were measured for a model on the server
// that has the most of them.
func (p *Pool) Ranges(model string) []fit.Range {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best []fit.Range
	most := -1
	for _, s := range p.servers {
		ranges, total := (&fit.Estimator{}).Ranges(p.o.MaxRows), 0
		if e := s.fits[model]; e != nil {
			ranges = e.Ranges(p.o.MaxRows)
		}
		for _, r := range ranges {
			total += r.Batches
		}
		if total > most {
			best, most = ranges, total
		}
	}
	return best
}

// Servers returns the servers as they are now.
func (p *Pool) Servers() []ServerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]ServerStatus, len(p.servers))
	for i, s := range p.servers {
		out[i] = ServerStatus{s.name, s.slots, len(s.running), s.healthy, s.draining || s.paused}
	}
	return out
}

// QueuedBy counts the items in the queue by a name.
func (p *Pool) QueuedBy(name func(*Item) string) map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]int{}
	for _, q := range p.order {
		out[name(q.items[0])] += len(q.items) // all of one model
	}
	return out
}

// Queued returns the items and the rows in the queue, and their memory.
func (p *Pool) Queued() (items, rows int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.length, p.rows, p.bytes
}
