package duty

import (
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Quantity is what figures about the GPUs of a machine are of.
type Quantity uint8

// The quantities, each of one GPU but for LostGPUs. Shares are 0 to 1.
const (
	Util Quantity = iota
	MemoryShare
	SMActive
	Tensor
	Occupancy
	DRAM
	Temperature
	Headroom
	Power
	PowerShare
	Throttle
	ThermalThrottle
	PowerThrottle
	Xid
	ECCErrors
	LostGPUs

	numQuantities
)

// Statistic is how the samples of a window become one figure.
type Statistic uint8

// The statistics. Rise is by how much a count rose, Count how many GPUs it is so of.
const (
	Mean Statistic = iota
	Max
	Min
	Rise
	Count
)

// statistics are their names.
var statistics = [...]string{Mean: "mean", Max: "max", Min: "min", Rise: "rise", Count: "count"}

// String returns the statistic's name.
func (s Statistic) String() string { return statistics[s] }

// Bounds of a window.
const (
	LeastWindow   = time.Minute
	LongestWindow = 24 * time.Hour
)

// Figure is one number about the GPUs of a machine: a statistic of the samples of a window.
// Mean is the mean over the GPUs, Max and Min are the highest and the lowest sample of any
// GPU. Of the worst GPU they are that GPU's own: of the one with the highest figure, or
// where little is bad with the lowest.
type Figure struct {
	Quantity  Quantity
	Statistic Statistic
	Worst     bool
	// Window is LeastWindow to LongestWindow, in whole seconds.
	Window time.Duration
}

// quantity is what there is to know of a quantity.
type quantity struct {
	name, doc, unit string
	statistics      []Statistic
	// worst says which GPU is the worst; empty where none is.
	worst string
	// feeds are the meters that it is made of, the first one its own.
	feeds []feed
}

// Which GPU is the worst.
const (
	highest = "highest"
	lowest  = "lowest"
)

var samples = []Statistic{Mean, Max, Min}

// quantities are all of them, in the order of the documentation.
var quantities = [numQuantities]quantity{
	Util: {"gpu.util", "utilization: share of time in which a kernel ran", "percent, 0 to 100", samples, lowest,
		[]feed{{signal: usage.GPUUtil}}},
	MemoryShare: {"gpu.memory.share", "device memory in use", "share, 1 is all", samples, highest,
		[]feed{{signal: usage.MemUsed}}},
	SMActive: {"gpu.sm", "share of streaming multiprocessors with work", "share, 0 to 1", samples, lowest,
		[]feed{{signal: usage.SMActive}}},
	Tensor: {"gpu.tensor", "share of time in which tensor cores work", "share, 0 to 1", samples, lowest,
		[]feed{{signal: usage.TensorActive}}},
	Occupancy: {
		"gpu.occupancy", "share of the warps that multiprocessors have room for", "share, 0 to 1", samples, lowest,
		[]feed{{signal: usage.SMOccupancy}}},
	DRAM: {"gpu.dram", "share of time in which device memory transfers data", "share, 0 to 1", samples, lowest,
		[]feed{{signal: usage.DRAMActive}}},
	Temperature: {"gpu.temperature", "temperature", "degrees Celsius", samples, highest,
		[]feed{{signal: usage.Temperature}}},
	Headroom: {
		"gpu.temperature.headroom", "how far the temperature is below the one at which the device slows down",
		"degrees Celsius", samples, lowest,
		[]feed{{signal: usage.Temperature}, {signal: usage.SlowdownTemperature}}},
	Power: {"gpu.power", "power draw", "watts", samples, highest,
		[]feed{{signal: usage.Power}}},
	PowerShare: {
		"gpu.power.share", "power draw over the TDP of the model in the price book",
		"share, 1 is the TDP", samples, highest,
		[]feed{{signal: usage.Power}}},
	Throttle: {
		"gpu.throttle", "share of samples in which heat, power or the hardware lowers the clocks", "share, 0 to 1",
		[]Statistic{Mean, Max}, highest,
		[]feed{{signal: usage.Throttle, bits: usage.ThrottledBy}}},
	ThermalThrottle: {
		"gpu.throttle.thermal", "share of samples in which heat lowers the clocks",
		"share, 0 to 1", []Statistic{Mean, Max},
		highest,
		[]feed{{signal: usage.Throttle, bits: usage.ThrottledByHeat}}},
	PowerThrottle: {
		"gpu.throttle.power", "share of samples in which a power limit lowers the clocks", "share, 0 to 1",
		[]Statistic{Mean, Max}, highest,
		[]feed{{signal: usage.Throttle, bits: usage.ThrottledByPower}}},
	Xid: {
		"gpu.xid",
		"highest code of an Xid error, 0 for none; exporters repeat the newest one until the driver is loaded again",
		"code",
		[]Statistic{Max}, "",
		[]feed{{signal: usage.XID}}},
	ECCErrors: {"gpu.ecc", "memory errors of all GPUs that were not corrected", "errors", []Statistic{Rise}, "",
		[]feed{{signal: usage.ECCErrors}}},
	LostGPUs: {
		"gpu.lost", "GPUs of the machine that sent no sample while others did, that the driver does not see, or " +
			"with Xid 79",
		"GPUs", []Statistic{Count}, "",
		[]feed{
			{signal: usage.GPUUtil, seen: true}, {signal: usage.SMActive, seen: true},
			{signal: usage.MemUsed, seen: true},
			{signal: usage.Power, seen: true},
			{signal: usage.Temperature, seen: true}, {signal: usage.XID, code: usage.FellOffTheBus},
			{signal: usage.GPUCount}}},
}

// presences is how many feeds of LostGPUs, from the first, show that a GPU is there.
const presences = 5

// QuantityInfo is a quantity for people.
type QuantityInfo struct {
	Quantity        Quantity
	Name, Doc, Unit string
	Statistics      []Statistic
	// Worst says which GPU is the worst, "highest" or "lowest"; empty where there is none.
	Worst string
}

// Quantities returns what figures can be of, in the order of the documentation.
func Quantities() []QuantityInfo {
	out := make([]QuantityInfo, numQuantities)
	for i, q := range quantities {
		out[i] = QuantityInfo{Quantity(i), q.name, q.doc, q.unit, q.statistics, q.worst}
	}
	return out
}

// Name returns how conditions call the figure, without its window: "gpu.util.worst.mean".
func (f Figure) Name() string {
	name := quantities[f.Quantity].name
	if f.Worst {
		name += ".worst"
	}
	return name + "." + f.Statistic.String()
}

// Reading is a figure at a time.
type Reading struct {
	// Value is the figure where it is Known.
	Value float64
	Known bool
	// Why says for people why it is not known.
	Why string
	// Next is when it may be another one although no sample arrives; zero is never.
	Next time.Time
}

// Gauge tells figures about the GPUs of a machine. The zero Gauge knows none.
type Gauge struct {
	Tracker *Tracker
	Machine Machine
}

// Read returns a figure at a time that is not before any it was asked about; words says
// that people want to read why it is not known.
//
// The window of a GPU ends with its newest sample, because sources publish late, and holds
// the samples whose steps are within it. It has to be covered by [Thresholds.MinCoverage],
// and the newest sample may be three steps old. A figure is known only where it is known
// of every GPU that the machine has, and where none of them has signals that contradict one
// another.
func (g Gauge) Read(now time.Time, f Figure, words bool) Reading {
	k := g.Tracker
	if k == nil || k.rolling == nil {
		return Reading{Why: "nothing was measured"}
	}
	k.Expect(g.Machine)
	r := &gauging{
		question: k.question(nanos(now), g.Machine, words), f: f, window: int64(f.Window), tdp: g.Machine.GPUPower,
	}
	var v float64
	var ok bool
	if r.now < k.settled {
		r.missing("the question is about a time before its newest samples")
		r.soon(k.settled)
	} else if f.Quantity == LostGPUs {
		v, ok = r.lost()
	} else {
		v, ok = r.figure()
	}
	if r.measured {
		r.soon(r.horizon + k.block + k.lookBack)
	}
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return Reading{Why: r.why, Next: instant(r.next)}
	}
	return Reading{Value: v, Known: true, Next: instant(r.next)}
}

// gauging is one question for a figure.
type gauging struct {
	question
	f      Figure
	window int64
	tdp    float64
	why    string
	// measured says that something was, so that the horizon matters.
	measured bool
}

// missing notes why a figure is not known; the first reason stays.
func (r *gauging) missing(why string) {
	if r.why == "" {
		r.why = why
	}
}

// spread gathers the figures of GPUs.
type spread struct {
	n, known  int
	sum       float64
	high, low float64
}

func (s *spread) add(v float64, ok bool) {
	if s.n++; !ok {
		return
	}
	if s.known++; s.known == 1 {
		s.high, s.low = v, v
	}
	s.sum, s.high, s.low = s.sum+v, max(s.high, v), min(s.low, v)
}

// of makes one figure of those of GPUs, or of a GPU's of those of its parts.
func (s *spread) of(f Figure) float64 {
	most := f.Statistic == Max
	if f.Worst {
		most = quantities[f.Quantity].worst == highest
	}
	switch {
	case f.Statistic == Rise:
		return s.sum
	case f.Statistic == Mean && !f.Worst:
		return s.sum / float64(s.known)
	case most:
		return s.high
	}
	return s.low
}

// figure joins what is known of the GPUs.
func (r *gauging) figure() (float64, bool) {
	var all, parts spread
	place := r.k.rolling.watch.find(quantities[r.f.Quantity].feeds[0])
	parent, whole := "", false
	end := func() {
		if parts.n > 0 && !whole {
			all.add(parts.of(r.f), parts.known == parts.n)
		}
		parts, whole = spread{}, false
	}
	for _, s := range r.k.rolling.gpus {
		if s.parent != parent {
			end()
			parent = s.parent
		}
		h := r.heard(s, place)
		switch {
		case h == nil || whole:
		case s.part:
			parts.add(r.of(s, h))
		default:
			whole = true
			all.add(r.of(s, h))
		}
	}
	end()
	switch machine := r.heard(&r.k.rolling.machine, place); {
	case r.gpus == 0:
		r.why = "it has no GPUs"
		return 0, false
	case all.n == 0 && machine == nil:
		r.missing(quantities[r.f.Quantity].feeds[0].signal.String() + " is not measured")
		return 0, false
	case r.gpus < 0:
		r.why = "its number of GPUs is unknown"
		return 0, false
	case all.n == 0:
		peak := r.f.Statistic == Max && (!r.f.Worst || quantities[r.f.Quantity].worst == highest)
		if r.gpus > 1 && !(machine.opened.Aggregated && peak) {
			r.why = "one series of samples stands for several GPUs"
			return 0, false
		}
		return r.of(&r.k.rolling.machine, machine)
	case all.n < r.gpus:
		r.why = r.say(func() string { return fmt.Sprintf("%d of %d GPUs were measured", all.n, r.gpus) })
		return 0, false
	}
	return all.of(r.f), all.known == all.n
}

// heard returns what a GPU or machine has of a feed from the horizon on, nil where that is
// nothing.
func (r *gauging) heard(s *shelf, place int) *history {
	h := s.history(place)
	if h == nil || r.now < h.start || h.newestAt(r.now) < r.horizon {
		if h != nil {
			r.soon(h.start)
			r.goesOnAt(h)
		}
		return nil
	}
	r.measured = true
	return h
}

// goesOnAt says that the next sample of a run may change the figure.
func (r *gauging) goesOnAt(h *history) {
	if at := h.newestAt(r.now); at < h.end() {
		r.soon(at + h.step())
	}
}

// of returns the figure of one GPU.
func (r *gauging) of(s *shelf, h *history) (float64, bool) {
	w := r.rolled(h, r.window)
	if !r.believed(s, h, w) {
		return 0, false
	}
	t := r.k.rolling.track(r.k, s)
	switch r.f.Quantity {
	case MemoryShare:
		m := memory{}
		if t != nil {
			m = r.memoryOf(t)
		}
		if m.total <= 0 {
			r.missing("the size of its memory is unknown")
			return 0, false
		}
		return h.value(w.of(r.f.Statistic)) / m.total, true
	case PowerShare:
		if r.tdp <= 0 {
			r.missing("the price book has no TDP of its GPUs")
			return 0, false
		}
		return h.value(w.of(r.f.Statistic)) / r.tdp, true
	case Headroom:
		slowdown := r.heard(s, r.k.rolling.watch.find(quantities[Headroom].feeds[1]))
		if slowdown == nil {
			r.missing("the temperature at which it slows down is unknown")
			return 0, false
		}
		opposite := map[Statistic]Statistic{Mean: Mean, Max: Min, Min: Max}[r.f.Statistic]
		return slowdown.value(float64(slowdown.mean)) - h.value(w.of(opposite)), true
	}
	return h.value(w.of(r.f.Statistic)), true
}

// believed says whether what a window holds can be told.
func (r *gauging) believed(s *shelf, h *history, w *rolled) bool {
	label := func() string {
		if s.name == "" {
			return ""
		}
		return "GPU " + s.name + ": "
	}
	switch coverage := w.coverage; {
	case r.now > h.newestAt(r.now)+staleSteps*h.step():
		r.missing(r.say(func() string { return label() + "its newest sample is too old" }))
		return false
	case coverage < r.k.t.MinCoverage:
		r.missing(r.say(func() string {
			return label() + "samples cover " + plain.Percent(100*coverage, 0) + " of " + plain.Duration(
				time.Duration(r.window))
		}))
		return false
	}
	t := r.k.rolling.track(r.k, s)
	if t == nil {
		return true
	}
	if why, wrong := r.wrong(t); wrong {
		r.missing(r.say(func() string { return label() + why }))
		return false
	}
	return true
}

// rolled brings a history's window up to now and says when that changes by itself.
func (r *gauging) rolled(h *history, length int64) *rolled {
	w := h.windowOf(length)
	w.roll(h, r.now, r.horizon)
	r.soon(h.end() + staleSteps*h.step() + 1)
	if !w.steady {
		r.goesOnAt(h)
	}
	return w
}

// lost counts the GPUs that are not there any more.
func (r *gauging) lost() (float64, bool) {
	if r.gpus < 0 {
		r.missing("its number of GPUs is unknown")
	}
	feeds := quantities[LostGPUs].feeds
	places := make([]int, len(feeds))
	for i, f := range feeds {
		places[i] = r.k.rolling.watch.find(f)
	}
	shelves := r.k.rolling.gpus
	if r.gpus == 1 && len(shelves) == 0 {
		shelves = []*shelf{&r.k.rolling.machine}
	}
	// What is measured now, and how much of the window of the GPU that is measured best.
	newest, step, coverage := int64(never), int64(0), 0.0
	for _, s := range shelves {
		for _, place := range places[:presences] {
			if h := r.heard(s, place); h != nil {
				w := r.rolled(h, r.window)
				r.goesOnAt(h)
				if at := h.newestAt(r.now); at > newest {
					newest, step = at, h.step()
				}
				if r.now <= h.newestAt(r.now)+staleSteps*h.step() {
					coverage = max(coverage, w.coverage)
				}
			}
		}
	}
	seen, fallen, parent := 0, 0, ""
	for _, s := range shelves {
		there := false
		for _, place := range places[:presences] {
			h := r.heard(s, place)
			there = there || h != nil && h.newestAt(r.now) > newest-r.window
		}
		if !there || seen > 0 && s.parent == parent {
			continue
		}
		seen, parent = seen+1, s.parent
		if h := r.heard(s, places[presences]); h != nil && r.rolled(h, r.window).of(Max) > 0 {
			fallen++
		}
	}
	lost, known := max(r.gpus-seen, 0)+fallen, false
	switch {
	case newest == never:
		r.missing("its GPUs were not measured")
		lost = 0
	case r.now > newest+staleSteps*step:
		r.missing("its newest sample is too old")
	case coverage < r.k.t.MinCoverage:
		r.missing(r.say(func() string {
			return "samples cover " + plain.Percent(100*coverage, 0) + " of " + plain.Duration(time.Duration(r.window))
		}))
	default:
		known = true
	}
	if h := r.heard(&r.k.rolling.machine, places[presences+1]); h != nil {
		if w := r.rolled(h, r.window); r.now <= h.newestAt(r.now)+staleSteps*h.step() &&
			w.coverage >= r.k.t.MinCoverage {
			unseen := r.gpus - int(w.of(Max))
			if !known {
				lost, known = 0, true
			}
			lost = max(lost, unseen)
		}
	}
	return float64(lost), known && r.gpus >= 0
}
