package usage

import (
	"cmp"
	"errors"
	"iter"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// ErrNoSamples is returned for a statistic of a signal without samples.
var ErrNoSamples = errors.New("no samples")

// Point is one measurement over [Time, Time+step): a sample, or an aggregate of a metrics service.
type Point struct {
	Time time.Time
	// Mean and Max over the step; both are the value of a plain sample.
	Mean, Max float64
}

// Window holds the measurements of one resource over [From, To).
type Window struct {
	From, To time.Time
	// Step is the time covered by one point. A longer gap is unknown time.
	Step time.Duration
	// Source names the origin of the points: "cloudwatch", "recorded", "sim".
	Source string
	// Machine holds the signals of the whole resource.
	Machine Track
	// GPUs holds a track for each GPU, in the order of their names.
	GPUs []*Track
	// Aggregated is set if the GPU signals of Machine are maxima over all GPUs of the machine.
	// Otherwise they belong to one unknown GPU.
	Aggregated bool
	// Launched is the launch time of the resource from its inventory; zero is unknown.
	Launched time.Time
	// GPUMemory is the device memory of each GPU in bytes from a catalog, used if MemTotal was not
	// measured; 0 is unknown.
	GPUMemory float64
	// GPUPower is the TDP of each GPU in watts from a catalog; 0 is unknown.
	GPUPower float64

	floors *Floors
}

// NewWindow returns an empty window. A nil floors means DefaultFloors.
func NewWindow(from, to time.Time, step time.Duration, source string, floors *Floors) *Window {
	if floors == nil {
		floors = DefaultFloors()
	}
	return &Window{From: from, To: to, Step: step, Source: source, floors: floors}
}

// Track has the signals of one GPU or of a whole machine.
type Track struct {
	// Name is the GPU's index or UUID; empty for the machine.
	Name  string
	stats [numSignals]*Stats
}

// Parent returns the GPU that a track's part belongs to, and whether the track is a part.
func (t *Track) Parent() (gpu string, part bool) { return Parent(t.Name) }

// Parent returns the name of the GPU that a MIG instance or a partition belongs to, and whether
// name is one of these. Instances with UUIDs of their own share one unnamed GPU, because their GPU
// is unknown.
func Parent(name string) (gpu string, part bool) {
	i := strings.LastIndex(name, PartSeparator)
	if i < 0 {
		if strings.HasPrefix(name, migUUID) {
			return migUUID, true
		}
		return name, false
	}
	if which, _, _ := strings.Cut(name[i+len(PartSeparator):], countSeparator); !isDigits(which) {
		return name, false
	}
	return name[:i], true
}

// PartCount returns the number of parts of a partition's GPU, from the part's name; 0 for other
// names, where the parts that are present count as the whole.
func PartCount(name string) int {
	i := strings.LastIndex(name, countSeparator)
	if i < 0 {
		return 0
	}
	if _, part := Parent(name); !part {
		return 0
	}
	n, err := strconv.Atoi(name[i+len(countSeparator):])
	if err != nil || n < 2 {
		return 0
	}
	return n
}

// Stats returns the statistics of a signal; nil if it was not measured.
func (t *Track) Stats(s Signal) *Stats { return t.stats[s] }

// Buckets is the number of equal parts of a window for which [Stats.Bucket] keeps a maximum, enough
// for a chart.
const Buckets = 56

// Stats are the statistics of one signal over a window.
type Stats struct {
	Count         int
	Min, Max, Sum float64 // Max is the maximum of the points' maxima
	First, Last   time.Time
	// LastActive is the start of the newest point at or above the signal's floor, or the newest
	// rise of a counter; zero without one.
	LastActive time.Time
	// LastQuiet is the start of the newest point below the floor; zero if there is none, and for
	// counters.
	LastQuiet time.Time
	// Active counts points at or above the floor, or the rises of a counter.
	Active int

	// perGPU is true for a signal of GPUs.
	perGPU bool
	// the step and source of the window that measured the signal
	step        time.Duration
	source      string
	lastMean    float64
	digest      digest
	coverage    coverage
	maxima      maxima
	counterRuns counterRuns
	repetition  repetition
	buckets     [Buckets]float32 // maximum + 1, 0 = no point
}

// Add records a point of one GPU (gpu is its index or UUID) or of the whole resource, if gpu is
// empty or the signal is the machine's. It returns false for points outside the window and for
// invalid values (see [Signal.Check]). Points of one signal may come in any order but each only
// once. The window's Step must be set before.
func (w *Window) Add(gpu string, s Signal, p Point) bool {
	p, ok := s.Clean(p)
	if !ok || p.Time.Before(w.From) || !p.Time.Before(w.To) {
		return false
	}
	t := &w.Machine
	if gpu != "" && s.PerGPU() {
		t = w.gpu(gpu)
	}
	st := t.stats[s]
	if st == nil {
		st = &Stats{
			Min: p.Mean, Max: p.Max, First: p.Time, Last: p.Time, step: w.Step, source: w.Source, lastMean: p.Mean,
			perGPU: s.PerGPU(),
		}
		t.stats[s] = st
	}
	st.Count++
	st.Sum += p.Mean
	st.Min, st.Max = min(st.Min, p.Mean), max(st.Max, p.Max)
	if p.Time.Before(st.First) {
		st.First = p.Time
	}
	if s.FrozenAfter() > 0 {
		st.repetition.add(s, p, st.Last)
	}
	if p.Time.After(st.Last) {
		st.Last, st.lastMean = p.Time, p.Mean
	}
	at, length := p.Time.Sub(w.From), w.To.Sub(w.From)
	switch {
	case s.Counter():
		if rose, ok := st.counterRuns.add(at, p.Max); ok {
			if w.From.Add(rose).After(st.LastActive) {
				st.Active++
			}
			st.LastActive = w.From.Add(rose)
		}
	case p.Max >= w.floor(s):
		st.Active++
		if p.Time.After(st.LastActive) {
			st.LastActive = p.Time
		}
	case p.Time.After(st.LastQuiet):
		st.LastQuiet = p.Time
	}
	st.maxima.add(at, p.Max)
	st.digest.add(s, p.Mean)
	st.coverage.add(at, w.Step, length)
	b := min(int(float64(at)/float64(length)*Buckets), Buckets-1)
	st.buckets[b] = max(st.buckets[b], float32(p.Max)+1)
	return true
}

func (w *Window) floor(s Signal) float64 {
	if w.floors == nil {
		return defaultFloors[s]
	}
	return w.floors[s]
}

func (w *Window) gpu(name string) *Track {
	i := sort.Search(len(w.GPUs), func(i int) bool { return CompareGPUs(w.GPUs[i].Name, name) >= 0 })
	if i == len(w.GPUs) || w.GPUs[i].Name != name {
		w.GPUs = slices.Insert(w.GPUs, i, &Track{Name: name})
	}
	return w.GPUs[i]
}

// CompareGPUs orders GPUs by name: indexes by number ("2" before "10") and before other names, and
// the MIG instances of a GPU right after it.
func CompareGPUs(a, b string) int {
	gpuA, _ := Parent(a)
	gpuB, _ := Parent(b)
	return cmp.Or(compareIndexes(gpuA, gpuB), cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func compareIndexes(a, b string) int {
	switch numberA, numberB := isDigits(a), isDigits(b); {
	case numberA && numberB:
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	case numberA:
		return -1
	case numberB:
		return 1
	}
	return strings.Compare(a, b)
}

func isDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// Coverage returns the share of the window, 0 to 1, that points of the signal cover, each for one
// step. Time that several points cover counts once, so points close together do not make up for a
// gap.
func (w *Window) Coverage(st *Stats) float64 {
	if st == nil || !w.To.After(w.From) {
		return 0
	}
	return float64(st.coverage.total) / float64(w.To.Sub(w.From))
}

// MeasuredFrom returns the time of the first sample of any signal of the same kind, of the GPUs or
// of the host: the metrics of one agent begin together. It is the end of the window if there is
// none.
func (w *Window) MeasuredFrom(perGPU bool) time.Time {
	from := w.To
	for s := range numSignals {
		if s.PerGPU() != perGPU {
			continue
		}
		if st := w.Machine.stats[s]; st != nil && st.First.Before(from) {
			from = st.First
		}
		for _, t := range w.GPUs {
			if st := t.stats[s]; st != nil && st.First.Before(from) {
				from = st.First
			}
		}
	}
	return from
}

// MeasuredCoverage is [Window.Coverage] over the time since [Window.MeasuredFrom]. A machine
// younger than the window, or whose metrics began within it, is judged over that time.
func (w *Window) MeasuredCoverage(st *Stats) float64 {
	if st == nil {
		return 0
	}
	length := w.To.Sub(w.MeasuredFrom(st.perGPU))
	if length <= 0 {
		return 0
	}
	return float64(st.coverage.total) / float64(length)
}

// Covered returns how much time of the window the points of a signal cover.
func (w *Window) Covered(st *Stats) time.Duration {
	if st == nil {
		return 0
	}
	return st.coverage.total
}

// StepOf returns the step of a signal: the window's, or that of the window it was merged from.
func (w *Window) StepOf(st *Stats) time.Duration {
	if st == nil {
		return w.Step
	}
	return st.step
}

// staleSteps is the age in steps up to which the newest point of a signal is fresh.
const staleSteps = 3

// Expires returns the time until which the newest point of a signal is fresh: three steps after its
// time.
func (w *Window) Expires(st *Stats) time.Time {
	if st == nil {
		return time.Time{}
	}
	return st.Last.Add(staleSteps * st.step)
}

// Fresh reports whether the newest point of the signal is at most three steps old at now.
func (w *Window) Fresh(st *Stats, now time.Time) bool {
	return st != nil && !now.After(w.Expires(st))
}

// ActiveShare returns the share of the points, 0 to 1, at or above the floor.
func (s *Stats) ActiveShare() (float64, error) {
	if s == nil || s.Count == 0 {
		return 0, ErrNoSamples
	}
	return float64(s.Active) / float64(s.Count), nil
}

// Mean returns the mean over the points.
func (s *Stats) Mean() (float64, error) {
	if s == nil || s.Count == 0 {
		return 0, ErrNoSamples
	}
	return s.Sum / float64(s.Count), nil
}

// Quantile returns the value at or below which a share q, 0 to 1, of the points' means lie (nearest
// rank). Percentages are exact to 0.1, shares to 0.001, other values to 1 % (below 1e-6 it is 0).
func (s *Stats) Quantile(sig Signal, q float64) (float64, error) {
	if s == nil || s.Count == 0 {
		return 0, ErrNoSamples
	}
	rank := int(math.Ceil(q * float64(s.Count)))
	return max(s.Min, min(s.digest.valueAtRank(sig, max(rank, 1)), s.Max)), nil
}

// Newest returns the mean of the newest point.
func (s *Stats) Newest() (float64, error) {
	if s == nil || s.Count == 0 {
		return 0, ErrNoSamples
	}
	return s.lastMean, nil
}

// Peak returns the highest point since a time, and whether there is one.
func (w *Window) Peak(st *Stats, from time.Time) (float64, bool) {
	if st == nil {
		return 0, false
	}
	return st.maxima.highestSince(from.Sub(w.From))
}

// Peaks returns the points of a signal that are higher than every later one, in time order. If the
// series falls more often than is stored, some are dated too late.
func (w *Window) Peaks(st *Stats) iter.Seq2[time.Time, float64] {
	return func(yield func(time.Time, float64) bool) {
		for _, p := range st.maxima {
			if !yield(w.From.Add(p.at), p.value) {
				return
			}
		}
	}
}

// Activity returns the floors of the window's signals.
func (w *Window) Activity() Activity { return Activity{Floors: w.floors} }

// Memory returns the device memory of a GPU in bytes: the measured size, else the sum of used and
// free memory, else the catalog's size, which is that of a whole GPU and not of a MIG instance; 0
// is unknown.
func (w *Window) Memory(t *Track) float64 {
	if total, err := t.stats[MemTotal].Newest(); err == nil && total > 0 {
		return total
	}
	used, free := t.stats[MemUsed], t.stats[MemFree]
	if used != nil && free != nil && used.Last.Equal(free.Last) {
		return used.lastMean + free.lastMean
	}
	if _, part := t.Parent(); part {
		return 0
	}
	return w.GPUMemory
}

// Bucket returns the maximum in part i of the window, and whether it has a point.
func (s *Stats) Bucket(i int) (float64, bool) {
	if s == nil || s.buckets[i] == 0 {
		return 0, false
	}
	return float64(s.buckets[i]) - 1, true
}
