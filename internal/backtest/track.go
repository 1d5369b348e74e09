package backtest

import (
	"container/heap"
	"encoding/binary"
)

// Times and spans inside the replay are microseconds: a year of a million machines
// still adds up in 64 bits.

// track holds the samples of one meter, in time order, as runs of equal samples. A run takes one or
// two bytes, so that a trace of a hundred million samples fits into memory.
type track struct {
	runs []byte // sealed runs, as [cursor] reads them
	// first is the time of the first sample, next where the open run's next sample
	// is expected, last the time of the newest sample.
	first, next, last int64
	count             uint64 // samples of the open run; 0 is none at all
	idle              bool
	// unknown is time without a known sample behind the last one.
	unknown int64
}

// Bits of a run's header, under its count.
const (
	idleBit    = 1 << iota
	offsetBit  // the next run does not start a step after the last sample
	gapBit     // a sample is missing before the next run
	headerBits = iota
)

// units are the spans in which offsets are written, so that clocks that tell whole
// seconds cost a byte where they stray.
var units = [...]int64{1_000_000, 1000, 1}

// appendOffset writes a span as the zigzag of its number of units, and the unit.
func appendOffset(b []byte, us int64) []byte {
	unit := 0
	for us%units[unit] != 0 {
		unit++
	}
	n := us / units[unit]
	return binary.AppendUvarint(b, uint64(n<<1^n>>63)<<2|uint64(unit))
}

// readOffset reads an offset of appendOffset and its length.
func readOffset(b []byte) (us int64, bytes int) {
	u, bytes := binary.Uvarint(b)
	z := u >> 2
	return (int64(z>>1) ^ -int64(z&1)) * units[u&3], bytes
}

// add appends a sample; one at or before the last is passed over.
// Between samples half a step is jitter; from there on a sample is missing, which
// is where [usage.Window] draws the line as well. Times are kept to the microsecond.
func (t *track) add(at, step int64, idle bool) {
	if t.count == 0 {
		t.first, t.next, t.last, t.count, t.idle = at, at+step, at, 1, idle
		return
	}
	if at <= t.last {
		return
	}
	gap := at-t.last-step >= (step+1)/2
	drift := at - t.next
	if idle == t.idle && drift == 0 {
		t.count++
		t.next += step
		t.last = at
		return
	}
	header := t.count << headerBits
	if t.idle {
		header |= idleBit
	}
	if gap {
		header |= gapBit
	}
	if drift != 0 {
		header |= offsetBit
	}
	t.runs = binary.AppendUvarint(t.runs, header)
	if drift != 0 {
		t.runs = appendOffset(t.runs, drift)
	}
	t.next, t.last, t.count, t.idle = at+step, at, 1, idle
}

// addRun appends equal samples a step apart, the first of which is after the last.
func (t *track) addRun(at, step, count int64, idle bool) {
	t.add(at, step, idle)
	t.count += uint64(count - 1)
	t.next += (count - 1) * step
	t.last = at + (count-1)*step
}

// run is a number of equal samples a step apart.
type run struct {
	start int64
	count int64
	idle  bool
	// gap says that a sample is missing before the run.
	gap bool
	// offset is the time between the end of the run before and the start of this.
	offset int64
}

// cursor reads the runs of a track in order.
type cursor struct {
	run
	rest []byte
	step int64
	// open is the track's last run, without its start.
	open  run
	ahead run // start, gap and offset of the next run
}

func (t *track) cursor(step int64) cursor {
	return cursor{rest: t.runs, step: step, open: run{count: int64(t.count), idle: t.idle}, ahead: run{start: t.first}}
}

// peek returns the start of the next run, and whether there is one.
func (c *cursor) peek() (start int64, ok bool) {
	return c.ahead.start, len(c.rest) > 0 || c.open.count > 0
}

// advance moves to the next run and says whether there is one.
func (c *cursor) advance() bool {
	if len(c.rest) == 0 {
		if c.open.count == 0 {
			return false
		}
		c.run = run{c.ahead.start, c.open.count, c.open.idle, c.ahead.gap, c.ahead.offset}
		c.open.count = 0
		return true
	}
	header, n := binary.Uvarint(c.rest)
	c.rest = c.rest[n:]
	c.run = run{c.ahead.start, int64(header >> headerBits), header&idleBit != 0, c.ahead.gap, c.ahead.offset}
	c.ahead.gap, c.ahead.offset = header&gapBit != 0, 0
	if header&offsetBit != 0 {
		c.ahead.offset, n = readOffset(c.rest)
		c.rest = c.rest[n:]
	}
	c.ahead.start += c.count*c.step + c.ahead.offset
	return true
}

// part is a track of one GPU, or a piece of it where rows were not in order.
type part struct {
	track
	gpu int
}

// merged returns the track of a resource out of those of its GPUs: busy where any
// of them is, idle where all are, and nothing where one of them was not sampled,
// for unknown is not idle. A GPU counts from its first sample on. Rows within half
// a step of one another are of one stamp, each GPU once; of two rows of one GPU at
// one time the busy one counts. Where the utilization of some GPUs cannot be measured, the
// resource is busy where another one is, and unknown otherwise.
func merged(parts []*part, gpus int, step int64, unmeasured []*series) *track {
	if len(parts) == 1 && len(unmeasured) == 0 {
		return &parts[0].track
	}
	if len(parts) == 0 {
		out := &track{first: unmeasured[0].from, last: unmeasured[0].to}
		for _, s := range unmeasured {
			out.first, out.last = min(out.first, s.from), max(out.last, s.to)
			out.unknown = max(out.unknown, s.unsupported*step)
		}
		return out
	}
	queue := make(partQueue, 0, len(parts))
	for _, p := range parts {
		if r := (&reader{cursor: p.cursor(step), gpu: p.gpu}); r.next() {
			queue = append(queue, r)
		}
	}
	heap.Init(&queue)
	m := merger{out: &track{}, step: step, seen: make([]int64, gpus), known: len(unmeasured)}
	for len(queue) > 0 {
		r := queue[0]
		m.add(r.at, r.gpu, r.run.idle)
		if r.next() {
			heap.Fix(&queue, 0)
		} else {
			heap.Pop(&queue)
		}
	}
	m.close()
	return m.out
}

// merger joins samples of several GPUs, handed over in time order, into stamps.
type merger struct {
	out  *track
	step int64
	// seen is the number of the last stamp in which a GPU was sampled; 0 is none.
	seen           []int64
	known, present int
	stamp          int64
	at, newest     int64
	busy           bool
}

func (m *merger) add(at int64, gpu int, idle bool) {
	again := m.seen[gpu] == m.stamp && m.stamp > 0
	if m.stamp == 0 || at-m.at >= (m.step+1)/2 || (again && at != m.newest) {
		m.close()
		m.stamp++
		m.at, m.present, m.busy = at, 0, false
		again = false
	}
	if !again {
		if m.seen[gpu] == 0 {
			m.known++
		}
		m.seen[gpu] = m.stamp
		m.present++
	}
	m.newest = at
	m.busy = m.busy || !idle
}

func (m *merger) close() {
	switch {
	case m.stamp == 0:
	case m.busy || m.present == m.known:
		m.out.add(m.at, m.step, !m.busy)
		m.out.unknown = 0
	default:
		m.out.unknown += m.step
	}
}

// reader reads the samples of a part one by one.
type reader struct {
	cursor
	gpu  int
	at   int64
	left int64
}

func (r *reader) next() bool {
	if r.left == 0 {
		if !r.advance() {
			return false
		}
		r.at, r.left = r.run.start, r.run.count
	} else {
		r.at += r.step
	}
	r.left--
	return true
}

// partQueue orders parts by the time of their next sample, then by GPU.
type partQueue []*reader

func (q partQueue) Len() int { return len(q) }
func (q partQueue) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].gpu < q[j].gpu
}
func (q partQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push is of [heap.Interface].
func (q *partQueue) Push(x any) { *q = append(*q, x.(*reader)) }

// Pop is of [heap.Interface].
func (q *partQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
