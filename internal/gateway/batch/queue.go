package batch

import (
	"container/heap"
	"math"
	"slices"
	"time"
)

// queue holds the items of one key in the order of their rank.
type queue struct {
	key   string
	items []*Item
	rows  int
	index int // in the pool's heap
	// waitSince is when a free slot began to wait for more items; zero where none waits.
	waitSince time.Time
}

func before(a, b *Item) bool {
	if !a.rank.Equal(b.rank) {
		return a.rank.Before(b.rank)
	}
	return a.seq < b.seq
}

// itemHeap implements heap.Interface over the items of a queue.
type itemHeap struct{ *queue }

func (h itemHeap) Len() int           { return len(h.items) }
func (h itemHeap) Less(i, j int) bool { return before(h.items[i], h.items[j]) }
func (h itemHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index, h.items[j].index = i, j
}

func (h itemHeap) Push(x any) {
	it := x.(*Item)
	it.index = len(h.items)
	h.items = append(h.items, it)
}

func (h itemHeap) Pop() any {
	last := h.items[len(h.items)-1]
	h.items[len(h.items)-1] = nil
	h.items = h.items[:len(h.items)-1]
	last.index = -1
	return last
}

// queueHeap orders queues by their first item.
type queueHeap []*queue

func (h queueHeap) Len() int           { return len(h) }
func (h queueHeap) Less(i, j int) bool { return before(h[i].items[0], h[j].items[0]) }
func (h queueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *queueHeap) Push(x any) {
	q := x.(*queue)
	q.index = len(*h)
	*h = append(*h, q)
}

func (h *queueHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// enqueue adds an item to the queue of its key.
func (p *Pool) enqueue(it *Item) {
	q := p.queues[it.Key]
	if q == nil {
		q = &queue{key: it.Key}
		p.queues[it.Key] = q
	}
	heap.Push(itemHeap{q}, it)
	q.rows += it.Rows
	p.rows, p.bytes, p.length = p.rows+it.Rows, p.bytes+it.Bytes, p.length+1
	if it.Priority != 0 {
		p.prioritized++
	}
	if len(q.items) == 1 {
		heap.Push(&p.order, q)
	} else {
		heap.Fix(&p.order, q.index)
	}
}

// remove takes an item out of its queue.
func (p *Pool) remove(q *queue, it *Item) {
	q.rows -= it.Rows
	p.rows, p.bytes, p.length = p.rows-it.Rows, p.bytes-it.Bytes, p.length-1
	if it.Priority != 0 {
		p.prioritized--
	}
	p.notify()
	if len(q.items) == 1 { // the order of queues needs a first item to compare
		heap.Remove(&p.order, q.index)
		heap.Remove(itemHeap{q}, it.index)
		delete(p.queues, q.key)
		return
	}
	heap.Remove(itemHeap{q}, it.index)
	heap.Fix(&p.order, q.index)
}

// flow is the recent arrivals of one key.
type flow struct {
	last time.Time
	gaps [15]time.Duration
	n    int
}

// maxFlows bounds the keys whose arrivals are remembered.
const maxFlows = 1024

func (p *Pool) arrive(key string, now time.Time) {
	f := p.flows[key]
	if f == nil {
		if len(p.flows) >= maxFlows {
			clear(p.flows)
		}
		f = &flow{last: now}
		p.flows[key] = f
		return
	}
	f.gaps[f.n%len(f.gaps)] = now.Sub(f.last)
	f.last = now
	f.n++
}

// gap returns the expected time between two arrivals, from the median of the recent ones: one
// pause, as between the bursts of callers that wait for a batch, does not count. The median of
// an exponential distribution is ln 2 of its mean. It returns false while too few are known.
func (f *flow) gap() (time.Duration, bool) {
	if f == nil || f.n < len(f.gaps) {
		return 0, false
	}
	sorted := f.gaps
	slices.Sort(sorted[:])
	return time.Duration(float64(sorted[len(sorted)/2]) / math.Ln2), true
}
