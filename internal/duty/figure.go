package duty

import (
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Quantity is a measured property of GPUs, of which figures are computed.
type Quantity uint8

// The quantities, each of one GPU except LostGPUs. Shares are 0 to 1.
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

// Statistic reduces the samples of a window to one number.
type Statistic uint8

// The statistics. Rise is the increase of a counter, Count a number of GPUs.
const (
	Mean Statistic = iota
	Max
	Min
	Rise
	Count
)

// statistics are the names of the statistics.
var statistics = [...]string{Mean: "mean", Max: "max", Min: "min", Rise: "rise", Count: "count"}

// String returns the statistic's name.
func (s Statistic) String() string { return statistics[s] }

// Bounds of the window of a figure.
const (
	ShortestWindow = time.Minute
	LongestWindow  = 24 * time.Hour
)

// Figure is a statistic of the samples of a quantity in a window. Mean is the mean over the GPUs;
// Max and Min are the highest and the lowest sample of any GPU. With Worst it is the figure of the
// worst GPU alone: the one with the highest value, or with the lowest if little is bad.
type Figure struct {
	Quantity  Quantity
	Statistic Statistic
	Worst     bool
	// Window is ShortestWindow to LongestWindow, in whole seconds.
	Window time.Duration
}

// quantity describes a Quantity.
type quantity struct {
	name, doc, unit string
	statistics      []Statistic
	// worst is highest or lowest, by which the worst GPU is chosen; empty if there is no worst.
	worst string
	// feeds are the meters that the quantity is computed from, its own first.
	feeds []feed
}

// The values of quantity.worst.
const (
	highest = "highest"
	lowest  = "lowest"
)

var samples = []Statistic{Mean, Max, Min}

// quantities describes all quantities, in the order of the documentation.
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
		[]feed{{signal: usage.Throttle, bits: usage.ThrottledByAny}}},
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
			{signal: usage.GPUUtil, presence: true}, {signal: usage.SMActive, presence: true},
			{signal: usage.MemUsed, presence: true},
			{signal: usage.Power, presence: true},
			{signal: usage.Temperature, presence: true}, {signal: usage.XID, code: usage.XIDFellOffBus},
			{signal: usage.GPUCount}}},
}

// presenceFeeds is the number of feeds of LostGPUs, from the first, that show the presence of a
// GPU.
const presenceFeeds = 5

// QuantityInfo describes a quantity for documentation.
type QuantityInfo struct {
	Quantity        Quantity
	Name, Doc, Unit string
	Statistics      []Statistic
	// Worst is "highest" or "lowest", the value of the worst GPU; empty if there is no worst.
	Worst string
}

// Quantities returns all quantities, in the order of the documentation.
func Quantities() []QuantityInfo {
	out := make([]QuantityInfo, numQuantities)
	for i, q := range quantities {
		out[i] = QuantityInfo{Quantity(i), q.name, q.doc, q.unit, q.statistics, q.worst}
	}
	return out
}

// Name returns the name of the figure in conditions, without its window: "gpu.util.worst.mean".
func (f Figure) Name() string {
	name := quantities[f.Quantity].name
	if f.Worst {
		name += ".worst"
	}
	return name + "." + f.Statistic.String()
}

// Reading is the value of a figure at a time.
type Reading struct {
	// Value is valid if Known is set.
	Value float64
	Known bool
	// Why is the reason, in words, if the figure is unknown.
	Why string
	// Next is the next moment at which the reading may change without a new sample; zero is never.
	Next time.Time
}

// Gauge computes figures about the GPUs of a machine. The zero Gauge knows none.
type Gauge struct {
	Tracker *Tracker
	Machine Machine
}

// Read returns a figure at now, which must not be before the time of an earlier call. Reading.Why
// is filled only if withText is set.
//
// The window of a GPU ends with its newest sample, because sources publish late, and holds the
// samples whose steps are within it. Samples must cover [Thresholds.MinCoverage] of it, and the
// newest may be three steps old. A figure is known only if it is known of every GPU of the machine
// and no GPU has contradictory signals.
func (g Gauge) Read(now time.Time, f Figure, words bool) Reading {
	k := g.Tracker
	if k == nil || k.rolling == nil {
		return Reading{Why: "nothing was measured"}
	}
	k.SetMachine(g.Machine)
	r := &figureEvaluation{
		evaluation: k.newEvaluation(nanos(now), g.Machine, words), figureSpec: f, window: int64(f.Window),
		tdp: g.Machine.GPUPower,
	}
	var v float64
	var ok bool
	if r.now < k.earliestVerdict {
		r.explainUnknown("the question is about a time before its newest samples")
		r.changesAt(k.earliestVerdict)
	} else if f.Quantity == LostGPUs {
		v, ok = r.lostGPUs()
	} else {
		v, ok = r.figure()
	}
	if r.anyMeasured {
		r.changesAt(r.horizon + k.block + k.lookBack)
	}
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return Reading{Why: r.why, Next: instant(r.next)}
	}
	return Reading{Value: v, Known: true, Next: instant(r.next)}
}

// figureEvaluation computes one figure at one time.
type figureEvaluation struct {
	evaluation
	figureSpec Figure
	window     int64
	tdp        float64
	why        string
	// anyMeasured is set if any sample is within the horizon, so that moving the horizon matters.
	anyMeasured bool
}

// explainUnknown records why a figure is unknown; the first reason stays.
func (r *figureEvaluation) explainUnknown(why string) {
	if r.why == "" {
		r.why = why
	}
}

// gpuFigures aggregates the figures of GPUs.
type gpuFigures struct {
	gpus, known int
	sum         float64
	high, low   float64
}

func (s *gpuFigures) add(v float64, ok bool) {
	if s.gpus++; !ok {
		return
	}
	if s.known++; s.known == 1 {
		s.high, s.low = v, v
	}
	s.sum, s.high, s.low = s.sum+v, max(s.high, v), min(s.low, v)
}

// combine reduces the figures of GPUs, or of the parts of one GPU, to one.
func (s *gpuFigures) combine(f Figure) float64 {
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

// figure computes the figure over the GPUs.
func (r *figureEvaluation) figure() (float64, bool) {
	var all, parts gpuFigures
	place := r.k.rolling.watch.find(quantities[r.figureSpec.Quantity].feeds[0])
	parent, whole := "", false
	end := func() {
		if parts.gpus > 0 && !whole {
			all.add(parts.combine(r.figureSpec), parts.known == parts.gpus)
		}
		parts, whole = gpuFigures{}, false
	}
	for _, s := range r.k.rolling.gpus {
		if s.parent != parent {
			end()
			parent = s.parent
		}
		h := r.historyOf(s, place)
		switch {
		case h == nil || whole:
		case s.part:
			parts.add(r.gpuFigure(s, h))
		default:
			whole = true
			all.add(r.gpuFigure(s, h))
		}
	}
	end()
	switch machine := r.historyOf(&r.k.rolling.machine, place); {
	case r.gpus == 0:
		r.why = "it has no GPUs"
		return 0, false
	case all.gpus == 0 && machine == nil:
		r.explainUnknown(quantities[r.figureSpec.Quantity].feeds[0].signal.String() + " is not measured")
		return 0, false
	case r.gpus < 0:
		r.why = "its number of GPUs is unknown"
		return 0, false
	case all.gpus == 0:
		peak := r.figureSpec.Statistic == Max &&
			(!r.figureSpec.Worst || quantities[r.figureSpec.Quantity].worst == highest)
		if r.gpus > 1 && !(machine.opened.Aggregated && peak) {
			r.why = "one series of samples stands for several GPUs"
			return 0, false
		}
		return r.gpuFigure(&r.k.rolling.machine, machine)
	case all.gpus < r.gpus:
		r.why = r.text(func() string { return fmt.Sprintf("%d of %d GPUs were measured", all.gpus, r.gpus) })
		return 0, false
	}
	return all.combine(r.figureSpec), all.known == all.gpus
}

// historyOf returns the samples of a feed of a GPU or of the machine, or nil if there are none
// since the horizon.
func (r *figureEvaluation) historyOf(s *gpuHistories, place int) *history {
	h := s.history(place)
	if h == nil || r.now < h.start || h.newestAt(r.now) < r.horizon {
		if h != nil {
			r.changesAt(h.start)
			r.changesWithNextSampleOf(h)
		}
		return nil
	}
	r.anyMeasured = true
	return h
}

// changesWithNextSampleOf notes that the next sample of a run may change the figure.
func (r *figureEvaluation) changesWithNextSampleOf(h *history) {
	if at := h.newestAt(r.now); at < h.end() {
		r.changesAt(at + h.step())
	}
}

// gpuFigure returns the figure of one GPU.
func (r *figureEvaluation) gpuFigure(s *gpuHistories, h *history) (float64, bool) {
	w := r.rollWindow(h, r.window)
	if !r.isTrusted(s, h, w) {
		return 0, false
	}
	t := r.k.rolling.track(r.k, s)
	switch r.figureSpec.Quantity {
	case MemoryShare:
		m := memory{}
		if t != nil {
			m = r.memoryOf(t)
		}
		if m.total <= 0 {
			r.explainUnknown("the size of its memory is unknown")
			return 0, false
		}
		return h.value(w.statistic(r.figureSpec.Statistic)) / m.total, true
	case PowerShare:
		if r.tdp <= 0 {
			r.explainUnknown("the price book has no TDP of its GPUs")
			return 0, false
		}
		return h.value(w.statistic(r.figureSpec.Statistic)) / r.tdp, true
	case Headroom:
		slowdown := r.historyOf(s, r.k.rolling.watch.find(quantities[Headroom].feeds[1]))
		if slowdown == nil {
			r.explainUnknown("the temperature at which it slows down is unknown")
			return 0, false
		}
		opposite := map[Statistic]Statistic{Mean: Mean, Max: Min, Min: Max}[r.figureSpec.Statistic]
		return slowdown.value(float64(slowdown.mean)) - h.value(w.statistic(opposite)), true
	}
	return h.value(w.statistic(r.figureSpec.Statistic)), true
}

// isTrusted reports whether the samples of a window are fresh, cover enough and do not contradict
// one another.
func (r *figureEvaluation) isTrusted(s *gpuHistories, h *history, w *rollingWindow) bool {
	label := func() string {
		if s.name == "" {
			return ""
		}
		return "GPU " + s.name + ": "
	}
	switch coverage := w.coverage; {
	case r.now > h.newestAt(r.now)+staleSteps*h.step():
		r.explainUnknown(r.text(func() string { return label() + "its newest sample is too old" }))
		return false
	case coverage < r.k.thresholds.MinCoverage:
		r.explainUnknown(r.text(func() string {
			return label() + "samples cover " + plain.Percent(100*coverage, 0) + " of " + plain.Duration(
				time.Duration(r.window))
		}))
		return false
	}
	t := r.k.rolling.track(r.k, s)
	if t == nil {
		return true
	}
	if why, wrong := r.contradiction(t); wrong {
		r.explainUnknown(r.text(func() string { return label() + why }))
		return false
	}
	return true
}

// rollWindow moves a history's window up to now and notes when it next changes without new samples.
func (r *figureEvaluation) rollWindow(h *history, length int64) *rollingWindow {
	w := h.windowOf(length)
	w.roll(h, r.now, r.horizon)
	r.changesAt(h.end() + staleSteps*h.step() + 1)
	if !w.isSteady {
		r.changesWithNextSampleOf(h)
	}
	return w
}

// lostGPUs counts the GPUs that the machine should have and that are gone.
func (r *figureEvaluation) lostGPUs() (float64, bool) {
	if r.gpus < 0 {
		r.explainUnknown("its number of GPUs is unknown")
	}
	feeds := quantities[LostGPUs].feeds
	places := make([]int, len(feeds))
	for i, f := range feeds {
		places[i] = r.k.rolling.watch.find(f)
	}
	shelves := r.k.rolling.gpus
	if r.gpus == 1 && len(shelves) == 0 {
		shelves = []*gpuHistories{&r.k.rolling.machine}
	}
	// The newest sample of any GPU, and the coverage of the GPU that is measured best.
	newest, step, coverage := int64(never), int64(0), 0.0
	for _, s := range shelves {
		for _, place := range places[:presenceFeeds] {
			if h := r.historyOf(s, place); h != nil {
				w := r.rollWindow(h, r.window)
				r.changesWithNextSampleOf(h)
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
		for _, place := range places[:presenceFeeds] {
			h := r.historyOf(s, place)
			there = there || h != nil && h.newestAt(r.now) > newest-r.window
		}
		if !there || seen > 0 && s.parent == parent {
			continue
		}
		seen, parent = seen+1, s.parent
		if h := r.historyOf(s, places[presenceFeeds]); h != nil && r.rollWindow(h, r.window).statistic(Max) > 0 {
			fallen++
		}
	}
	lost, known := max(r.gpus-seen, 0)+fallen, false
	switch {
	case newest == never:
		r.explainUnknown("its GPUs were not measured")
		lost = 0
	case r.now > newest+staleSteps*step:
		r.explainUnknown("its newest sample is too old")
	case coverage < r.k.thresholds.MinCoverage:
		r.explainUnknown(r.text(func() string {
			return "samples cover " + plain.Percent(100*coverage, 0) + " of " + plain.Duration(time.Duration(r.window))
		}))
	default:
		known = true
	}
	if h := r.historyOf(&r.k.rolling.machine, places[presenceFeeds+1]); h != nil {
		if w := r.rollWindow(h, r.window); r.now <= h.newestAt(r.now)+staleSteps*h.step() &&
			w.coverage >= r.k.thresholds.MinCoverage {
			unseen := r.gpus - int(w.statistic(Max))
			if !known {
				lost, known = 0, true
			}
			lost = max(lost, unseen)
		}
	}
	return float64(lost), known && r.gpus >= 0
}
