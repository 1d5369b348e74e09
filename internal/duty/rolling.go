package duty

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// feed is the meter of a signal as a figure takes it: its values, whether any of some bits
// are set, whether it has a code, or only that it was measured.
type feed struct {
	signal usage.Signal
	bits   uint64
	code   float64
	seen   bool
}

// Watch is the figures that are asked for. Trackers that are told of it keep what those need
// and nothing else; it does not change any more and is shared by all of them.
type Watch struct {
	feeds []watched
	of    [usage.Signals][]int // the feeds of a signal
}

// watched is a feed with the lengths of its windows, the longest last.
type watched struct {
	feed
	windows []int64
	scale   float64
}

// NewWatch returns what has to be kept for some figures; nil where there are none.
func NewWatch(figures []Figure) *Watch {
	if len(figures) == 0 {
		return nil
	}
	w := &Watch{}
	for _, f := range figures {
		for _, want := range quantities[f.Quantity].feeds {
			i := w.find(want)
			if i < 0 {
				i = len(w.feeds)
				w.feeds = append(w.feeds, watched{feed: want, scale: want.scale()})
				w.of[want.signal] = append(w.of[want.signal], i)
			}
			if all := &w.feeds[i].windows; !slices.Contains(*all, int64(f.Window)) {
				*all = append(*all, int64(f.Window))
				slices.Sort(*all)
			}
		}
	}
	return w
}

// find returns the place of a feed, negative where there is none.
func (w *Watch) find(f feed) int {
	for _, i := range w.of[f.signal] {
		if w.feeds[i].feed == f {
			return i
		}
	}
	return -1
}

// scale is what a value is multiplied by. What is kept are whole numbers, so that sums are
// the same whatever was added to them and taken away before.
func (f feed) scale() float64 {
	switch {
	case f.bits != 0 || f.code != 0 || f.seen:
		return 1
	case f.signal == usage.MemUsed:
		return 1.0 / 1024
	case f.signal == usage.XID, f.signal == usage.ECCErrors, f.signal == usage.GPUCount:
		return 1
	}
	return 1e6
}

// most is the largest number that is kept, and finest the shortest step: no sum of the
// longest window overflows.
const (
	most   = 1e12
	finest = int64(LongestWindow / 8e6)
)

// take returns a value as it is kept; ok is false where a rolled-up point does not tell it.
func (w *watched) take(p usage.Point) (mean, high int64, ok bool) {
	is := func(yes bool) (int64, int64, bool) {
		if yes {
			return 1, 1, true
		}
		return 0, 0, true
	}
	switch {
	case w.seen:
		return is(true)
	case w.bits != 0:
		if p.Mean != p.Max {
			return 0, 0, false
		}
		return is(uint64(p.Max)&w.bits != 0)
	case w.code != 0:
		return is(p.Mean == w.code || p.Max == w.code)
	}
	fixed := func(v float64) int64 { return int64(math.Round(min(v*w.scale, most))) }
	if w.signal == usage.ECCErrors { // a count rises to its most
		p.Mean = p.Max
	}
	return fixed(p.Mean), fixed(p.Max), true
}

// rolling is what a tracker keeps for a watch.
type rolling struct {
	watch   *Watch
	machine shelf
	gpus    []*shelf // in order of their names
	newest  int      // the GPU that had a sample last
}

// shelf is the histories of one GPU or of the machine.
type shelf struct {
	name, parent string
	part         bool
	histories    []history
}

// history is the samples of one feed, as far back as its longest window.
type history struct {
	place   int // of the feed
	watched *watched
	opened  *usage.Opened
	run           // the newest samples: equal ones, a step apart
	runs    []run // those before, of which the first is the number first
	first   int
	windows []rolled
}

// run is equal samples, a step apart.
type run struct {
	start, count int64
	mean, high   int64
	// cover and rise are what the last sample before it covers up to it, and by how much a
	// count rose since; 0 where there is none.
	cover, rise int64
}

// rolled is one window of a history: what is summed up of the samples in it, without the
// newest ones of the history until it is rolled to a time.
type rolled struct {
	length int64
	// next is the number of the first run of which skip samples are no more in it.
	next int
	skip int64
	sums
	highs, lows []extreme // those that no later one exceeds
	// At the time that it was rolled to: all of it, and how much of it samples cover.
	all      sums
	coverage float64
	most     int64
	least    int64
	// steady says that further equal samples change nothing.
	steady bool
}

// sums are over samples; covered and risen are over pairs of neighbors.
type sums struct{ count, sum, covered, risen int64 }

// extreme is the value of a run, whose last sample was at a time.
type extreme struct{ at, value int64 }

// Watch makes the tracker keep what figures need. It is told before the first sample.
func (k *Tracker) Watch(w *Watch) *Tracker {
	if w != nil {
		k.rolling = &rolling{watch: w}
	}
	return k
}

// add takes samples as [Tracker.AddRun] does, and returns what that returns.
func (r *rolling) add(k *Tracker, o *usage.Opened, gpu string, s usage.Signal, p usage.Point, at, count int64) bool {
	if int64(o.Step) < finest || len(r.watch.of[s]) == 0 {
		return true
	}
	to, ok := r.shelf(k, gpu, s, at), true
	for _, place := range r.watch.of[s] {
		ok = to.at(&r.watch.feeds[place], place).add(o, p, at, count) && ok
	}
	return ok
}

// shelf returns that of a GPU or of the machine.
func (r *rolling) shelf(k *Tracker, gpu string, s usage.Signal, at int64) *shelf {
	if gpu == "" || !s.PerGPU() {
		return &r.machine
	}
	for i := range r.gpus { // they come in turn, or again and again
		j := (r.newest + i) % len(r.gpus)
		if r.gpus[j].name == gpu {
			r.newest = j
			return r.gpus[j]
		}
	}
	horizon := k.horizon(at) // what is older makes room
	r.gpus = slices.DeleteFunc(r.gpus, func(s *shelf) bool {
		return !slices.ContainsFunc(s.histories, func(h history) bool { return h.end() >= horizon })
	})
	s2 := &shelf{name: gpu}
	s2.parent, s2.part = usage.Parent(gpu)
	i := sort.Search(len(r.gpus), func(i int) bool { return usage.CompareGPUs(r.gpus[i].name, gpu) >= 0 })
	r.gpus, r.newest = slices.Insert(r.gpus, i, s2), i
	return s2
}

// track returns the tracker's own meters of a GPU, nil where it has none.
func (r *rolling) track(k *Tracker, s *shelf) *track {
	if s == &r.machine {
		return &k.machine
	}
	for _, t := range k.gpus {
		if t.name == s.name {
			return t
		}
	}
	return nil
}

// history returns that of a feed, nil where nothing was measured.
func (s *shelf) history(place int) *history {
	for i := range s.histories {
		if s.histories[i].place == place {
			return &s.histories[i]
		}
	}
	return nil
}

// at returns the history of a feed, and makes it.
func (s *shelf) at(w *watched, place int) *history {
	if h := s.history(place); h != nil {
		return h
	}
	s.histories = append(s.histories, history{place: place, watched: w})
	return &s.histories[len(s.histories)-1]
}

func (h *history) step() int64 { return int64(h.opened.Step) }

// value returns a number that is kept as the value that it stands for.
func (h *history) value(v float64) float64 { return v / h.watched.scale }

// end returns the time of the newest sample of all.
func (h *history) end() int64 { return h.last(h.step()) }

func (r *run) last(step int64) int64 { return r.start + (r.count-1)*step }

// newestAt returns the time of the newest sample at a time that is not before the newest
// samples.
func (h *history) newestAt(now int64) int64 {
	if end := h.end(); now >= end {
		return end
	}
	return h.start + (now-h.start)/h.step()*h.step()
}

// add takes equal samples.
func (h *history) add(o *usage.Opened, p usage.Point, at, count int64) bool {
	mean, high, ok := h.watched.take(p)
	if !ok {
		return true
	}
	if h.opened == nil || h.opened != o && at > h.end() {
		*h = history{
			place: h.place, watched: h.watched, opened: o, run: run{start: at, count: count, mean: mean, high: high},
		}
		for _, length := range h.watched.windows {
			h.windows = append(h.windows, rolled{length: length})
		}
		return true
	}
	same, step := mean == h.mean && high == h.high, h.step()
	switch end := h.end(); {
	case at < end, at == end && h.opened != o && !same:
		return false
	case at == end && same:
		if h.opened == o {
			h.count += count - 1
		}
	case at == end: // it was still being filled when it was read
		if h.count--; h.count > 0 {
			h.fold()
		}
		h.begin(at, count, mean, high)
	case at == end+step && same:
		h.count += count
	default:
		h.fold()
		h.begin(at, count, mean, high)
	}
	return true
}

// begin makes samples the newest ones; the runs before are folded.
func (h *history) begin(at, count, mean, high int64) {
	h.run = run{start: at, count: count, mean: mean, high: high}
	if n := len(h.runs); n > 0 {
		before := &h.runs[n-1]
		h.cover = min(h.step(), at-before.last(h.step()))
		if h.rise = mean - before.mean; h.rise < 0 { // it started again
			h.rise = mean
		}
	}
	// No question is about a time before these samples.
	keep := h.first + len(h.runs)
	for i := range h.windows {
		h.windows[i].evict(h, at-h.windows[i].length)
		keep = min(keep, h.windows[i].next)
	}
	if n := keep - h.first; n > len(h.runs)/2 {
		h.runs = slices.Delete(h.runs, 0, n)
		h.first = keep
	}
}

// fold makes the newest samples those that came before.
func (h *history) fold() {
	h.runs = append(h.runs, h.run)
	r, step := &h.runs[len(h.runs)-1], h.step()
	for i := range h.windows {
		w := &h.windows[i]
		if w.count > 0 {
			w.covered, w.risen = w.covered+r.cover, w.risen+r.rise
		} else {
			w.next, w.skip = h.first+len(h.runs)-1, 0
		}
		w.count, w.sum, w.covered = w.count+r.count, w.sum+r.mean*r.count, w.covered+(r.count-1)*step
		last := r.last(step)
		w.highs = append(dropped(w.highs, func(e extreme) bool { return e.value <= r.high }), extreme{last, r.high})
		w.lows = append(dropped(w.lows, func(e extreme) bool { return e.value >= r.mean }), extreme{last, r.mean})
	}
}

// dropped leaves out the last ones that a later one exceeds.
func dropped(all []extreme, exceeded func(extreme) bool) []extreme {
	for len(all) > 0 && exceeded(all[len(all)-1]) {
		all = all[:len(all)-1]
	}
	return all
}

// windowOf returns the window of a length.
func (h *history) windowOf(length int64) *rolled {
	for i := range h.windows {
		if h.windows[i].length == length {
			return &h.windows[i]
		}
	}
	return &rolled{length: length}
}

// evict leaves out the samples up to and at a time, of those that came before the newest.
func (w *rolled) evict(h *history, upTo int64) {
	step := h.step()
	for w.count > 0 {
		r := &h.runs[w.next-h.first]
		if r.start+w.skip*step > upTo {
			break
		}
		gone := min(r.count, (upTo-r.start)/step+1)
		drop, pairs := gone-w.skip, gone-w.skip
		if gone == r.count {
			pairs--
		}
		w.count, w.sum, w.covered, w.skip = w.count-drop, w.sum-r.mean*drop, w.covered-pairs*step, gone
		if gone < r.count {
			break
		}
		if w.next, w.skip = w.next+1, 0; w.count > 0 {
			after := &h.runs[w.next-h.first]
			w.covered, w.risen = w.covered-after.cover, w.risen-after.rise
		}
	}
	gone := func(e extreme) bool { return e.at > upTo }
	w.highs, w.lows = since(w.highs, gone), since(w.lows, gone)
}

// since leaves out the first ones up to one that is to stay.
func since(all []extreme, stays func(extreme) bool) []extreme {
	n := 0
	for n < len(all) && !stays(all[n]) {
		n++
	}
	if n == len(all) {
		return all[:0]
	}
	return all[n:]
}

// roll sums up the samples in the window that ends with the newest one at a time, of those
// from the horizon on.
func (w *rolled) roll(h *history, now, horizon int64) {
	step, newest := h.step(), h.newestAt(now)
	upTo := max(newest-w.length, horizon-1)
	w.evict(h, upTo)
	from := h.start // of the newest samples
	if upTo >= from {
		from += ((upTo-from)/step + 1) * step
	}
	n := (newest-from)/step + 1
	w.all = w.sums
	w.all.count, w.all.sum = w.all.count+n, w.all.sum+n*h.mean
	w.all.covered += n * step
	w.most, w.least = h.high, h.mean
	if w.count > 0 {
		w.all.covered, w.all.risen = w.all.covered+h.cover, w.all.risen+h.rise
		w.most, w.least = max(w.most, w.highs[0].value), min(w.least, w.lows[0].value)
	}
	w.all.covered -= w.before(h, newest+step-w.length, from)
	w.coverage = float64(w.all.covered) / float64(w.length)
	w.steady = w.count == 0 && from-step <= newest-w.length
}

// before returns how much of what the samples cover is before a start, of which from is the
// oldest of the newest ones. Where samples are closer together than a step, the steps of
// several begin before it.
func (w *rolled) before(h *history, start, from int64) int64 {
	step, out := h.step(), int64(0)
	if w.count > 0 {
		for i, skip := w.next-h.first, w.skip; i < len(h.runs); i, skip = i+1, 0 {
			r := &h.runs[i]
			at, covers := r.start+skip*step, step
			if at >= start {
				return out
			}
			if skip == r.count-1 {
				covers = h.cover
				if i+1 < len(h.runs) {
					covers = h.runs[i+1].cover
				}
			}
			out += min(start-at, covers)
		}
	}
	return out + min(max(start-from, 0), step)
}

// of returns a statistic as it is kept.
func (w *rolled) of(s Statistic) float64 {
	switch s {
	case Max:
		return float64(w.most)
	case Min:
		return float64(w.least)
	case Rise:
		return float64(w.all.risen)
	}
	return float64(w.all.sum) / float64(max(w.all.count, 1))
}

// Horizon returns how far figures look back: the longest window.
func (w *Watch) Horizon() time.Duration {
	var longest int64
	if w != nil {
		for i := range w.feeds {
			longest = max(longest, w.feeds[i].windows[len(w.feeds[i].windows)-1])
		}
	}
	return time.Duration(longest)
}
