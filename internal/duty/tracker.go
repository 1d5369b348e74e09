package duty

import (
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// DefaultLookBack is the default of a tracker's look-back.
const DefaultLookBack = 12 * time.Hour

// Horizon returns the oldest time of samples that count for a verdict at now: lookBack before it,
// rounded down to a whole block since 1970. A block is a quarter of the look-back, rounded up to a
// minute. A look-back of 0 or less is DefaultLookBack.
func Horizon(now time.Time, lookBack time.Duration) time.Time {
	k := Tracker{lookBack: int64(lookBack)}
	k.setBlock()
	return instant(k.horizon(nanos(now)))
}

// Machine has the properties of a machine that its samples do not tell.
type Machine struct {
	// GPUs is the number of GPUs; known to be 0 for a machine without any.
	GPUs inventory.Fact[int]
	// GPUMemory is the device memory of each GPU in bytes from a catalog, used if samples do not
	// tell; 0 is unknown.
	GPUMemory float64
	// GPUPower is the TDP of each GPU in watts from a catalog; 0 is unknown.
	GPUPower float64
	// Launched is the time of the last launch; zero is unknown.
	Launched time.Time
}

// Tracker takes the samples of one machine in order of time and judges the machine. A sample, or a
// run of equal samples, takes constant time, and a verdict reads no sample again.
//
// A verdict at a time depends only on the samples from the [Horizon] of that time up to it: neither
// on earlier verdicts nor on later samples of a run. A meter is one signal of one GPU or machine
// from one source at one step: another source or step resets it.
//
// A tracker is not safe for concurrent use. The nil Tracker has no samples.
type Tracker struct {
	thresholds      Thresholds
	activity        usage.Activity
	lookBack, block int64
	// earliestVerdict is the latest start of any meter's newest points. An earlier verdict is not
	// possible any more.
	earliestVerdict int64
	// gpuMemory and gpuPower are the GPUMemory and GPUPower of the newest SetMachine. They only
	// decide which peaks are kept.
	gpuMemory, gpuPower float64
	machine             track
	gpus                []*track // in order of their names
	sources             []*usage.SourceInfo
	lastGPU             int      // index of the GPU of the newest sample
	rolling             *rolling // for watched figures; nil without any
	progress            Progress
}

// track has the meters of one GPU or of the machine.
type track struct {
	name, parent string
	isPart       bool   // a MIG instance or a partition of the parent
	partCount    uint16 // the parent's number of partitions; 0 if all that exist are measured
	meterIndex   [lastTracked + 1]uint8
	meters       []meter // meterIndex[signal]-1 is the index of the signal's meter
}

// NewTracker returns a tracker without samples that judges by these thresholds and looks back that
// far (see [Horizon]). The activity's floors apply to GPU signals; the limits of host signals are
// in the thresholds.
func NewTracker(t Thresholds, a usage.Activity, lookBack time.Duration) *Tracker {
	k := &Tracker{thresholds: t.orDefault(), activity: a, lookBack: int64(lookBack), earliestVerdict: never}
	k.setBlock()
	return k
}

func (k *Tracker) setBlock() {
	if k.lookBack <= 0 {
		k.lookBack = int64(DefaultLookBack)
	}
	const quarter = (blocks - 1) * int64(time.Minute)
	k.block = (k.lookBack + quarter - 1) / quarter * int64(time.Minute)
}

func (k *Tracker) blockOf(at int64) int64 {
	b := at / k.block
	if at%k.block < 0 {
		b--
	}
	return b
}

func (k *Tracker) horizon(now int64) int64 { return k.blockOf(now-k.lookBack) * k.block }

// SetMachine tells the tracker the machine of its samples. It is useful for many samples if the
// size of the GPUs' memory is known only from a catalog: without it verdicts are exact as long as
// the memory in use fell no more than a few times.
func (k *Tracker) SetMachine(m Machine) { k.gpuMemory, k.gpuPower = m.GPUMemory, m.GPUPower }

// Open returns a sink for the points of one source. Its Add returns false for a late point: one
// older than the newest of its meter, or one of another source at the same time. Only a tracker
// that takes all samples again in order can use it. A point at the time of the newest replaces it,
// because a source may still be filling its newest step. Invalid values, signals without effect on
// verdicts and repeated points are ignored.
func (k *Tracker) Open(o usage.SourceInfo) usage.Sink { return &sink{k, k.source(o)} }

type sink struct {
	k *Tracker
	o *usage.SourceInfo
}

// Add adds a point.
func (s *sink) Add(gpu string, sig usage.Signal, p usage.Point) bool {
	return s.k.add(s.o, gpu, sig, p, 1)
}

// AddRun adds count equal samples, the first at start and each one step after the previous. They
// may extend past the time of the next verdict. It returns the same as Add; a count of 0 or less
// adds nothing.
func (k *Tracker) AddRun(o usage.SourceInfo, gpu string, s usage.Signal, start time.Time, count int, v float64) bool {
	if count <= 0 {
		return true
	}
	return k.add(k.source(o), gpu, s, usage.Point{Time: start, Mean: v, Max: v}, int64(count))
}

// source returns the description that all meters of a source share, regardless of where this read
// began.
func (k *Tracker) source(o usage.SourceInfo) *usage.SourceInfo {
	o.From = time.Time{}
	o.Step = min(max(o.Step, 0), longestStep)
	for _, known := range k.sources {
		if *known == o {
			return known
		}
	}
	added := o // a copy, so that o itself is not heap-allocated
	k.sources = append(k.sources, &added)
	return &added
}

func (k *Tracker) add(o *usage.SourceInfo, gpu string, s usage.Signal, p usage.Point, count int64) bool {
	p, ok := s.Clean(p)
	if sec := p.Time.Unix(); !ok || !isTracked(s) && k.rolling == nil || sec < -maxSeconds || sec > maxSeconds {
		return true
	}
	at, step := p.Time.UnixNano(), int64(o.Step)
	if step == 0 {
		count = 1
	} else {
		count = min(count, (maxSeconds*1e9-at)/step+1)
	}
	if k.rolling != nil && !k.rolling.add(k, o, gpu, s, p, at, count) {
		return false
	}
	if !isTracked(s) {
		return true
	}
	k.progress.add(s, p.Time, p.Max)
	t := k.track(gpu, s, at)
	i := t.meterIndex[s]
	if i == 0 {
		t.addMeter(newMeter(s, o, at, count, p))
		k.earliestVerdict = max(k.earliestVerdict, at)
		return true
	}
	m := &t.meters[i-1]
	switch end := m.end(); {
	case at < end:
		return false
	case at == end && p.Mean == m.mean && p.Max == m.max:
		if m.opened == o {
			m.count += count - 1
		}
		return true
	case at == end && m.opened != o:
		return false
	case at == end: // the source was still filling this step when it was read
		if m.count > 1 {
			m.count--
			m.fold(k)
			m.start, k.earliestVerdict = at, max(k.earliestVerdict, at)
		}
		m.count, m.mean, m.max = count, p.Mean, p.Max
		return true
	case m.opened != o:
		*m = newMeter(s, o, at, count, p)
	case at == end+step && p.Mean == m.mean && p.Max == m.max:
		m.count += count
		return true
	default:
		m.fold(k)
		m.start, m.count, m.mean, m.max = at, count, p.Mean, p.Max
	}
	k.earliestVerdict = max(k.earliestVerdict, at)
	return true
}

// track returns the track of a GPU or of the machine.
func (k *Tracker) track(gpu string, s usage.Signal, at int64) *track {
	if gpu == "" || !s.PerGPU() {
		return &k.machine
	}
	for i := range k.gpus { // samples arrive GPU by GPU, or repeatedly for one
		j := (k.lastGPU + i) % len(k.gpus)
		if t := k.gpus[j]; t.name == gpu {
			k.lastGPU = j
			return t
		}
	}
	// Forget GPUs without samples since the horizon.
	horizon := k.horizon(at)
	k.gpus = slices.DeleteFunc(k.gpus, func(t *track) bool { return !t.hasSamples(math.MaxInt64, horizon) })
	t := &track{name: gpu}
	t.parent, t.isPart = usage.Parent(gpu)
	t.partCount = uint16(usage.PartCount(gpu))
	i, _ := slices.BinarySearchFunc(k.gpus, gpu, func(t *track, name string) int {
		return usage.CompareGPUs(t.name, name)
	})
	// Allocate exactly, in one step.
	k.gpus = append(append(append(make([]*track, 0, len(k.gpus)+1), k.gpus[:i]...), t), k.gpus[i:]...)
	k.lastGPU = 0
	return t
}

// addMeter adds a meter, without spare capacity because there are few.
func (t *track) addMeter(m meter) {
	all := make([]meter, len(t.meters)+1)
	all[copy(all, t.meters)] = m
	t.meters = all
	t.meterIndex[m.signal] = uint8(len(all))
}

// hasSamples reports whether any signal of the track was measured between the horizon and now.
func (t *track) hasSamples(now, horizon int64) bool {
	for i := range t.meters {
		if t.meters[i].newestAt(now) >= horizon {
			return true
		}
	}
	return false
}

// lastTracked is the last signal that verdicts use.
const lastTracked = usage.Events

// isTracked reports whether verdicts use a signal.
func isTracked(s usage.Signal) bool { return s <= lastTracked }

// keepsPeaks reports whether verdicts need more of a signal than its newest value.
func (k *Tracker) keepsPeaks(s usage.Signal) bool {
	return s != usage.MemTotal && s != usage.MemFree && !s.Counter()
}

// peakCount returns the number of peaks that are kept of a signal.
func (k *Tracker) peakCount(s usage.Signal) int {
	if s == usage.MemUsed {
		return maxMemoryPeaks
	}
	return maxPeaks
}

// verdictLimits returns the values of a meter at which verdicts change.
func (k *Tracker) verdictLimits(m *meter) (low, high float64) {
	switch m.signal {
	case usage.MemUsed:
		return 1, k.heldLimit(m)
	case usage.Power:
		line := busyPower(k.thresholds, k.gpuPower)
		return line, line
	case usage.Processes:
		return 1, 1
	case usage.GPUUtil, usage.GREngine, usage.SMActive, usage.TensorActive, usage.DRAMActive:
		floor := k.activity.Floor(m.signal, m.opened.Step)
		return floor, floor
	}
	h, unit := k.thresholds.hostLimits(m.signal), 1.0
	if h.perSecond {
		unit = m.opened.Step.Seconds()
	}
	return h.idle * unit, h.busy * unit
}

// heldLimit returns the value from which the memory of a meter's GPU counts as held, as far as its
// size is known.
func (k *Tracker) heldLimit(used *meter) float64 {
	total := k.gpuMemory
	for _, t := range append(k.gpus[:len(k.gpus):len(k.gpus)], &k.machine) {
		if t.meter(usage.MemUsed) != used {
			continue
		}
		if m := t.meter(usage.MemTotal); m != nil && m.mean > 0 {
			total = m.mean
		} else if free := t.meter(usage.MemFree); free != nil {
			total = used.mean + free.mean
		} else if t.isPart {
			total = 0
		}
	}
	return total * k.thresholds.HeldMemory / 100
}

// meter returns the meter of a signal, or nil.
func (t *track) meter(s usage.Signal) *meter {
	if i := t.meterIndex[s]; i > 0 {
		return &t.meters[i-1]
	}
	return nil
}

// Verdict judges the machine at now without Why, Evidence and GPUs. See [Tracker.Explain].
func (k *Tracker) Verdict(now time.Time, m Machine) Verdict { return k.evaluate(now, m, false) }

// Explain judges a machine at now by its newest samples; [Judge] judges it over days. A machine
// whose number of GPUs is unknown is never judged by its CPU.
//
// A signal is fresh if its newest sample is at most three steps old. A stale signal makes the state
// unknown wherever it could change it; an unmeasured one does not. No time is too short: Duration
// is how long the state is known to have lasted, up to now or to the end of the newest sample's
// step.
//
// The machine is busy if a GPU computes, and stalled if it computes while the training step and the
// checkpoints stand still for [Thresholds.StalledAfter]. Otherwise every GPU must be seen to rest,
// or the state is unknown (see [Thresholds.GPUs] for the other rule). While all rest, a data
// transfer makes the machine starved if a process or memory holds a GPU, and busy if none does. A
// held GPU, a session with input or a running notebook kernel make it held. A working CPU with
// nothing held, or traffic between rest and work, make it unknown. Otherwise it is idle.
//
// A utilization of 100% without a process and without memory is unknown, because the meter may be
// latched. So are contradictory signals of one GPU, and a GPU whose exporter repeats itself. Within
// [Thresholds.WarmUp] of its launch a machine that does not compute is warming in any case.
//
// A machine without GPUs is busy if its CPUs or its network work, and idle only if both were
// measured and rest.
//
// At a time before the newest sample of any meter the state is unknown, except within a run.
func (k *Tracker) Explain(now time.Time, m Machine) Verdict { return k.evaluate(now, m, true) }

func (k *Tracker) evaluate(now time.Time, m Machine, words bool) Verdict {
	if k == nil {
		return Verdict{Why: "nothing was measured"}
	}
	k.SetMachine(m)
	q := k.newEvaluation(nanos(now), m, words)
	if q.now < k.earliestVerdict {
		return Verdict{Why: "the question is about a time before its newest samples", Next: instant(k.earliestVerdict)}
	}
	v := newVerdictBuilder()
	q.evaluate(&v)
	q.findDeadlines()
	if v.Next = instant(q.next); !words {
		v.Why = ""
	}
	return v.build()
}

// nanos returns a time in nanoseconds since 1970.
func nanos(t time.Time) int64 {
	sec := min(max(t.Unix(), -maxSeconds), maxSeconds)
	return sec*1e9 + int64(t.Nanosecond())
}

// instant returns the time in UTC; zero for never.
func instant(ns int64) time.Time {
	if ns == never {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
