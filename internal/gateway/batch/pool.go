package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/fit"
)

// Pool has a queue and the servers that take from it. It is safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	o       Options
	servers []*server
	queues  map[string]*queue
	order   queueHeap
	flows   map[string]*flow
	rows    int
	length  int
	// prioritized is how many queued items have a priority.
	prioritized int
	bytes       int64
	seq         uint64
	flying      int
	closed      bool
	timer       *time.Timer
	changed     chan struct{} // closed and replaced whenever a batch ends
}

// New returns a pool without servers.
func New(o Options) *Pool {
	return &Pool{o: o, queues: map[string]*queue{}, flows: map[string]*flow{}, changed: make(chan struct{})}
}

// Configure replaces the options of future batches.
func (p *Pool) Configure(o Options) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.o = o
	p.dispatch()
}

// SetServers replaces the servers. One that is left out finishes its batches and takes no new
// ones; one that stays keeps its health and its measurements.
func (p *Pool) SetServers(names []string, slots int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		s.draining = !slices.Contains(names, s.name)
	}
	for _, name := range names {
		i := slices.IndexFunc(p.servers, func(s *server) bool { return s.name == name })
		if i < 0 {
			i = len(p.servers)
			p.servers = append(p.servers, &server{
				name: name, healthy: true, running: map[*running]struct{}{}, fits: map[string]*fit.Estimator{},
			})
		}
		p.servers[i].slots = slots
	}
	p.forgetDrained()
	p.dispatch()
}

func (p *Pool) forgetDrained() {
	p.servers = slices.DeleteFunc(p.servers, func(s *server) bool { return s.draining && len(s.running) == 0 })
}

// SetHealthy sets whether a server may get batches.
func (p *Pool) SetHealthy(name string, healthy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if s.name == name {
			s.healthy = healthy
		}
	}
	p.dispatch()
}

// SetPaused sets whether a server takes no new batches; it finishes those that it has.
func (p *Pool) SetPaused(name string, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if s.name == name {
			s.paused = paused
		}
	}
	p.dispatch()
}

// isUsable reports whether a server takes new batches.
func (s *server) isUsable() bool { return s.healthy && !s.draining && !s.paused }

func (p *Pool) anyUsable() bool { return slices.ContainsFunc(p.servers, (*server).isUsable) }

// failQueued answers all queued items with an error.
func (p *Pool) failQueued(err error) {
	for len(p.order) > 0 {
		q := p.order[0]
		it := q.items[0]
		p.remove(q, it)
		it.done <- Result{Err: err}
	}
}

// Do queues an item and returns its answer. A context that ends takes the item out of the queue,
// or out of the batch that is on its way.
func (p *Pool) Do(ctx context.Context, it *Item) (any, error) {
	if !it.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, it.Deadline, &LateError{InQueue: true})
		defer cancel()
	}
	it.done = make(chan Result, 1)
	if err := p.admit(it); err != nil {
		return nil, err
	}
	select {
	case r := <-it.done:
		return r.Value, r.Err
	case <-ctx.Done():
		p.leave(it)
		return nil, context.Cause(ctx)
	}
}

// admit queues an item, or refuses it.
func (p *Pool) admit(it *Item) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.closed:
		return ErrClosed
	case !p.anyUsable():
		return ErrNoServer
	case it.Rows > p.o.MaxRows:
		return ErrTooManyRows
	case p.bytes+it.Bytes > p.o.MaxBytes:
		return ErrQueueFull
	}
	p.arrive(it.Key, now)
	p.seq++
	it.seq, it.arrived = p.seq, now
	it.rank = now.Add(-time.Duration(it.Priority) * p.o.Aging)
	if !it.Deadline.IsZero() {
		if expected, known := p.expected(it, now); known && now.Add(expected).After(it.Deadline) {
			return &LateError{Expected: expected}
		}
	}
	p.enqueue(it)
	p.dispatch()
	return nil
}

// leave takes an item out of the pool, wherever it is.
func (p *Pool) leave(it *Item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	it.left = true
	switch {
	case it.index >= 0 && p.queues[it.Key] != nil && it.run == nil:
		p.remove(p.queues[it.Key], it)
	case it.run != nil:
		// The first batches go to their end without callers: they show how long one takes.
		if it.run.gone++; it.run.gone == len(it.run.items) && it.run.measured {
			it.run.cancel()
		}
	}
}

// dispatch gives batches to free slots. The caller holds the lock.
func (p *Pool) dispatch() {
	for next := p.next(); next != nil; next = p.next() {
		go p.run(next)
	}
}

// next takes a batch for a free slot from the queue; nil where there is no slot, or no batch yet. The
// caller holds the lock, and runs the batch.
func (p *Pool) next() *running {
	if !p.anyUsable() {
		p.failQueued(ErrNoServer)
	}
	for {
		s := p.freeServer()
		if s == nil || len(p.order) == 0 {
			return nil
		}
		q, now := p.order[0], time.Now()
		if p.dropLate(q, s, now) {
			continue
		}
		if d := p.worthWaiting(q, s, now); d > 0 {
			p.wakeAfter(d)
			return nil
		}
		return p.start(s, p.take(q), now)
	}
}

// wakeAfter dispatches again after a time.
func (p *Pool) wakeAfter(d time.Duration) {
	if p.timer == nil {
		p.timer = time.AfterFunc(d, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.dispatch()
		})
		return
	}
	p.timer.Reset(d)
}

// freeServer returns the healthy server with a free slot that has the fewest batches.
func (p *Pool) freeServer() *server {
	var best *server
	for _, s := range p.servers {
		if s.isUsable() && len(s.running) < s.slots &&
			(best == nil || len(s.running) < len(best.running)) {
			best = s
		}
	}
	return best
}

// take removes the next batch from a queue: its first items, as long as their rows fit.
func (p *Pool) take(q *queue) []*Item {
	var items []*Item
	for rows := 0; len(q.items) > 0; {
		it := q.items[0]
		if len(items) > 0 && (rows+it.Rows > p.o.MaxRows || it.alone) {
			break
		}
		rows += it.Rows
		p.remove(q, it)
		if items = append(items, it); it.alone {
			break
		}
	}
	q.waitSince = time.Time{}
	return items
}

// start takes a slot of a server for a batch. The caller holds the lock.
func (p *Pool) start(s *server, items []*Item, now time.Time) *running {
	r := &running{items: items, server: s, started: now, options: p.o}
	r.ctx, r.cancel = context.WithTimeout(context.Background(), p.o.Timeout)
	for _, it := range items {
		r.rows += it.Rows
		it.run = r
	}
	_, r.measured = s.line(items[0].Model)
	s.running[r] = struct{}{}
	p.flying++
	return r
}

// run exchanges a batch with its server, and then the next one that is due.
func (p *Pool) run(r *running) {
	for r != nil {
		r = p.exchange(r)
	}
}

// exchange sends a batch and returns the next one. A server has nothing to do until it gets that, so
// another goroutine divides and measures the answer.
func (p *Pool) exchange(r *running) (next *running) {
	defer r.cancel()
	answer, err := r.options.Exchange(r.ctx, r.server.name, r.items)
	r.ended = time.Now()
	var notSent *NotSentError
	again := errors.As(err, &notSent)
	if err != nil && errors.Is(r.ctx.Err(), context.DeadlineExceeded) {
		err = context.DeadlineExceeded
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(r.server.running, r)
	if again {
		r.server.healthy = false
	}
	requeued := (again || err != nil && r.options.Idempotent && len(r.items) > 1) && p.requeue(r, !again)
	p.forgetDrained()
	next = p.next()
	p.dispatch()
	go p.finish(r, answer, err, requeued)
	return next
}

// finish counts a batch that has ended, and answers its items unless they are queued again.
func (p *Pool) finish(r *running, answer any, err error, requeued bool) {
	if err == nil {
		p.mu.Lock()
		r.server.estimator(r.items[0].Model).Add(r.rows, r.ended.Sub(r.started), r.ended)
		p.mu.Unlock()
	}
	if r.options.Observe != nil {
		r.options.Observe(Exchange{r.server.name, r.items[0].Model, r.items, r.rows, r.started, r.ended, err})
	}
	if !requeued {
		r.answer(answer, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying--
	p.notify()
}

// notify wakes Close. The caller holds the lock.
func (p *Pool) notify() {
	if p.closed {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// answer gives the items of a batch their results.
func (r *running) answer(answer any, err error) {
	var values []any
	if err == nil {
		values, err = r.options.Divide(r.items, answer)
	}
	for i, it := range r.items {
		if err != nil {
			it.done <- Result{Err: err}
			continue
		}
		it.done <- Result{Value: values[i]}
	}
}

// requeue puts the items of a batch back where they were, for those whose callers still wait. It
// reports whether a server is left for them. The caller holds the lock.
func (p *Pool) requeue(r *running, alone bool) bool {
	if !p.anyUsable() {
		return false
	}
	for _, it := range r.items {
		if !it.left {
			it.run, it.alone = nil, it.alone || alone
			p.enqueue(it)
		}
	}
	return true
}

// Close refuses new items and waits until all are answered, or the context ends.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for {
		p.mu.Lock()
		idle, changed := p.flying == 0 && p.length == 0, p.changed
		p.mu.Unlock()
		if idle {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
