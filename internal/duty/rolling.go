package duty

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// feed is the part of a signal that a figure needs: its values, whether any of some bits are set,
// whether it equals a code, or only its presence.
type feed struct {
	signal   usage.Signal
	bits     uint64
	code     float64
	presence bool
}

// Watch is the set of feeds that some figures need. Trackers with a Watch keep those and nothing
// else. It is immutable and shared by trackers.
type Watch struct {
	feeds    []watchedFeed
	bySignal [usage.SignalCount][]int // indices of the feeds of a signal
}

// watchedFeed is a feed with the lengths of its windows, the longest last.
type watchedFeed struct {
	feed
	windows []int64
	scale   float64
}

// NewWatch returns the Watch of some figures; nil without figures.
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
				w.feeds = append(w.feeds, watchedFeed{feed: want, scale: want.scale()})
				w.bySignal[want.signal] = append(w.bySignal[want.signal], i)
			}
			if all := &w.feeds[i].windows; !slices.Contains(*all, int64(f.Window)) {
				*all = append(*all, int64(f.Window))
				slices.Sort(*all)
			}
		}
	}
	return w
}

// find returns the index of a feed, or a negative number.
func (w *Watch) find(f feed) int {
	for _, i := range w.bySignal[f.signal] {
		if w.feeds[i].feed == f {
			return i
		}
	}
	return -1
}

// scale returns the factor by which values are multiplied. Stored values are integers, so that sums
// do not depend on what was added and subtracted before.
func (f feed) scale() float64 {
	switch {
	case f.bits != 0 || f.code != 0 || f.presence:
		return 1
	case f.signal == usage.MemUsed:
		return 1.0 / 1024
	case f.signal == usage.XID, f.signal == usage.ECCErrors, f.signal == usage.GPUCount:
		return 1
	}
	return 1e6
}

// maxStored is the largest stored value, and minStep the shortest step: no sum over the longest
// window overflows.
const (
	maxStored = 1e12
	minStep   = int64(LongestWindow / 8e6)
)

// quantize returns a point as stored integers. ok is false if a rolled-up point does not tell.
func (w *watchedFeed) quantize(p usage.Point) (mean, high int64, ok bool) {
	is := func(yes bool) (int64, int64, bool) {
		if yes {
			return 1, 1, true
		}
		return 0, 0, true
	}
	switch {
	case w.presence:
		return is(true)
	case w.bits != 0:
		if p.Mean != p.Max {
			return 0, 0, false
		}
		return is(uint64(p.Max)&w.bits != 0)
	case w.code != 0:
		return is(p.Mean == w.code || p.Max == w.code)
	}
	fixed := func(v float64) int64 { return int64(math.Round(min(v*w.scale, maxStored))) }
	if w.signal == usage.ECCErrors { // a rolled-up count ends at its maximum
		p.Mean = p.Max
	}
	return fixed(p.Mean), fixed(p.Max), true
}

// rolling is the state that a tracker keeps for a Watch.
type rolling struct {
	watch   *Watch
	machine gpuHistories
	gpus    []*gpuHistories // in order of their names
	lastGPU int             // the GPU that had a sample last
}

// gpuHistories are the histories of one GPU or of the machine.
type gpuHistories struct {
	name, parent string
	part         bool
	histories    []history
}

// history keeps the samples of one feed, as far back as its longest window.
type history struct {
	feedIndex   int // of the feed
	watchedFeed *watchedFeed
	opened      *usage.SourceInfo
	run               // the newest samples: equal ones, one step apart
	runs        []run // earlier runs, of which the first has number firstNumber
	firstNumber int
	windows     []rollingWindow
}

// run is a sequence of equal samples, one step apart.
type run struct {
	start, count int64
	mean, high   int64
	// coverBefore is the time that the sample before the run covers up to it, and riseBefore the
	// rise of a counter since; 0 without one.
	coverBefore, riseBefore int64
}

// rollingWindow is one window of a history. Its sums exclude the newest run of the history until
// roll adds it.
type rollingWindow struct {
	length int64
	// next is the number of the first run in the window, of which skip samples are already outside.
	next int
	skip int64
	sums
	highs, lows []extreme // values that no later one exceeds
	// State at the time of the last roll: the sums with the newest run, and their coverage.
	total    sums
	coverage float64
	highest  int64
	lowest   int64
	// isSteady is set if further equal samples change nothing.
	isSteady bool
}

// sums are over samples; covered and rise are over pairs of neighbors.
type sums struct{ count, sum, covered, rise int64 }

// extreme is the value of a run whose last sample was at a time.
type extreme struct{ at, value int64 }

// Watch makes the tracker keep the samples of figures. Call it before the first sample.
func (k *Tracker) Watch(w *Watch) *Tracker {
	if w != nil {
		k.rolling = &rolling{watch: w}
	}
	return k
}

// add takes samples like [Tracker.AddRun], with the same result.
func (r *rolling) add(k *Tracker, o *usage.SourceInfo, gpu string, s usage.Signal,
	p usage.Point, at, count int64) bool {
	if int64(o.Step) < minStep || len(r.watch.bySignal[s]) == 0 {
		return true
	}
	to, ok := r.historiesOf(k, gpu, s, at), true
	for _, place := range r.watch.bySignal[s] {
		ok = to.historyOf(&r.watch.feeds[place], place).add(o, p, at, count) && ok
	}
	return ok
}

// historiesOf returns the histories of a GPU or of the machine.
func (r *rolling) historiesOf(k *Tracker, gpu string, s usage.Signal, at int64) *gpuHistories {
	if gpu == "" || !s.PerGPU() {
		return &r.machine
	}
	for i := range r.gpus { // samples arrive GPU by GPU, or repeatedly for one
		j := (r.lastGPU + i) % len(r.gpus)
		if r.gpus[j].name == gpu {
			r.lastGPU = j
			return r.gpus[j]
		}
	}
	horizon := k.horizon(at) // forget GPUs without samples since the horizon
	r.gpus = slices.DeleteFunc(r.gpus, func(s *gpuHistories) bool {
		return !slices.ContainsFunc(s.histories, func(h history) bool { return h.end() >= horizon })
	})
	s2 := &gpuHistories{name: gpu}
	s2.parent, s2.part = usage.Parent(gpu)
	i := sort.Search(len(r.gpus), func(i int) bool { return usage.CompareGPUs(r.gpus[i].name, gpu) >= 0 })
	r.gpus, r.lastGPU = slices.Insert(r.gpus, i, s2), i
	return s2
}

// track returns the tracker's meters of a GPU; nil without any.
func (r *rolling) track(k *Tracker, s *gpuHistories) *track {
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

// history returns the history of a feed; nil if nothing was measured.
func (s *gpuHistories) history(place int) *history {
	for i := range s.histories {
		if s.histories[i].feedIndex == place {
			return &s.histories[i]
		}
	}
	return nil
}

// historyOf returns the history of a feed, and creates it if needed.
func (s *gpuHistories) historyOf(w *watchedFeed, place int) *history {
	if h := s.history(place); h != nil {
		return h
	}
	s.histories = append(s.histories, history{feedIndex: place, watchedFeed: w})
	return &s.histories[len(s.histories)-1]
}

func (h *history) step() int64 { return int64(h.opened.Step) }

// value converts a stored number to the unit of the signal.
func (h *history) value(v float64) float64 { return v / h.watchedFeed.scale }

// end returns the time of the newest sample, including samples after the time of an evaluation.
func (h *history) end() int64 { return h.last(h.step()) }

func (r *run) last(step int64) int64 { return r.start + (r.count-1)*step }

// newestAt returns the time of the newest sample at now, which must not be before the newest run.
func (h *history) newestAt(now int64) int64 {
	if end := h.end(); now >= end {
		return end
	}
	return h.start + (now-h.start)/h.step()*h.step()
}

// add adds equal samples.
func (h *history) add(o *usage.SourceInfo, p usage.Point, at, count int64) bool {
	mean, high, ok := h.watchedFeed.quantize(p)
	if !ok {
		return true
	}
	if h.opened == nil || h.opened != o && at > h.end() {
		*h = history{
			feedIndex: h.feedIndex, watchedFeed: h.watchedFeed, opened: o,
			run: run{start: at, count: count, mean: mean, high: high},
		}
		for _, length := range h.watchedFeed.windows {
			h.windows = append(h.windows, rollingWindow{length: length})
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
	case at == end: // the source was still filling this step when it was read
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

// begin starts the newest run; earlier runs are folded already.
func (h *history) begin(at, count, mean, high int64) {
	h.run = run{start: at, count: count, mean: mean, high: high}
	if n := len(h.runs); n > 0 {
		before := &h.runs[n-1]
		h.coverBefore = min(h.step(), at-before.last(h.step()))
		if h.riseBefore = mean - before.mean; h.riseBefore < 0 { // the counter was reset
			h.riseBefore = mean
		}
	}
	// No evaluation is at a time before these samples.
	keep := h.firstNumber + len(h.runs)
	for i := range h.windows {
		h.windows[i].evict(h, at-h.windows[i].length)
		keep = min(keep, h.windows[i].next)
	}
	if n := keep - h.firstNumber; n > len(h.runs)/2 {
		h.runs = slices.Delete(h.runs, 0, n)
		h.firstNumber = keep
	}
}

// fold moves the newest run to the earlier ones.
func (h *history) fold() {
	h.runs = append(h.runs, h.run)
	r, step := &h.runs[len(h.runs)-1], h.step()
	for i := range h.windows {
		w := &h.windows[i]
		if w.count > 0 {
			w.covered, w.rise = w.covered+r.coverBefore, w.rise+r.riseBefore
		} else {
			w.next, w.skip = h.firstNumber+len(h.runs)-1, 0
		}
		w.count, w.sum, w.covered = w.count+r.count, w.sum+r.mean*r.count, w.covered+(r.count-1)*step
		last := r.last(step)
		w.highs = append(trimDominated(w.highs, func(e extreme) bool {
			return e.value <= r.high
		}), extreme{last, r.high})
		w.lows = append(trimDominated(w.lows, func(e extreme) bool {
			return e.value >= r.mean
		}), extreme{last, r.mean})
	}
}

// trimDominated removes the last extremes that a later one exceeds.
func trimDominated(all []extreme, exceeded func(extreme) bool) []extreme {
	for len(all) > 0 && exceeded(all[len(all)-1]) {
		all = all[:len(all)-1]
	}
	return all
}

// windowOf returns the window of a length.
func (h *history) windowOf(length int64) *rollingWindow {
	for i := range h.windows {
		if h.windows[i].length == length {
			return &h.windows[i]
		}
	}
	return &rollingWindow{length: length}
}

// evict removes the samples up to and including a time, except the newest run.
func (w *rollingWindow) evict(h *history, upTo int64) {
	step := h.step()
	for w.count > 0 {
		r := &h.runs[w.next-h.firstNumber]
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
			after := &h.runs[w.next-h.firstNumber]
			w.covered, w.rise = w.covered-after.coverBefore, w.rise-after.riseBefore
		}
	}
	gone := func(e extreme) bool { return e.at > upTo }
	w.highs, w.lows = dropUntil(w.highs, gone), dropUntil(w.lows, gone)
}

// dropUntil removes the first extremes, up to one that stays.
func dropUntil(all []extreme, stays func(extreme) bool) []extreme {
	n := 0
	for n < len(all) && !stays(all[n]) {
		n++
	}
	if n == len(all) {
		return all[:0]
	}
	return all[n:]
}

// roll computes the window that ends with the newest sample at now, from the horizon on.
func (w *rollingWindow) roll(h *history, now, horizon int64) {
	step, newest := h.step(), h.newestAt(now)
	upTo := max(newest-w.length, horizon-1)
	w.evict(h, upTo)
	from := h.start // first sample of the newest run in the window
	if upTo >= from {
		from += ((upTo-from)/step + 1) * step
	}
	n := (newest-from)/step + 1
	w.total = w.sums
	w.total.count, w.total.sum = w.total.count+n, w.total.sum+n*h.mean
	w.total.covered += n * step
	w.highest, w.lowest = h.high, h.mean
	if w.count > 0 {
		w.total.covered, w.total.rise = w.total.covered+h.coverBefore, w.total.rise+h.riseBefore
		w.highest, w.lowest = max(w.highest, w.highs[0].value), min(w.lowest, w.lows[0].value)
	}
	w.total.covered -= w.coveredBefore(h, newest+step-w.length, from)
	w.coverage = float64(w.total.covered) / float64(w.length)
	w.isSteady = w.count == 0 && from-step <= newest-w.length
}

// coveredBefore returns how much of the covered time is before start; from is the first sample of
// the newest run. If samples are closer together than a step, the steps of several begin before it.
func (w *rollingWindow) coveredBefore(h *history, start, from int64) int64 {
	step, out := h.step(), int64(0)
	if w.count > 0 {
		for i, skip := w.next-h.firstNumber, w.skip; i < len(h.runs); i, skip = i+1, 0 {
			r := &h.runs[i]
			at, covers := r.start+skip*step, step
			if at >= start {
				return out
			}
			if skip == r.count-1 {
				covers = h.coverBefore
				if i+1 < len(h.runs) {
					covers = h.runs[i+1].coverBefore
				}
			}
			out += min(start-at, covers)
		}
	}
	return out + min(max(start-from, 0), step)
}

// statistic returns a statistic in stored units.
func (w *rollingWindow) statistic(s Statistic) float64 {
	switch s {
	case Max:
		return float64(w.highest)
	case Min:
		return float64(w.lowest)
	case Rise:
		return float64(w.total.rise)
	}
	return float64(w.total.sum) / float64(max(w.total.count, 1))
}

// Horizon returns the longest window, which is how far figures look back.
func (w *Watch) Horizon() time.Duration {
	var longest int64
	if w != nil {
		for i := range w.feeds {
			longest = max(longest, w.feeds[i].windows[len(w.feeds[i].windows)-1])
		}
	}
	return time.Duration(longest)
}
