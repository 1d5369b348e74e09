package duty

import (
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// DefaultLookBack is how far back a verdict looks where nothing else is asked for.
const DefaultLookBack = 12 * time.Hour

// Horizon returns the time from which on samples count for a verdict at now: lookBack
// before it, rounded down to a whole block since 1970. A block is a quarter of the
// look-back, rounded up to a minute. A look-back of 0 or less is
// DefaultLookBack.
func Horizon(now time.Time, lookBack time.Duration) time.Time {
	k := Tracker{lookBack: int64(lookBack)}
	k.setBlock()
	return instant(k.horizon(nanos(now)))
}

// Machine is what is known of a machine in addition to its samples.
type Machine struct {
	// GPUs is how many it has; known to be 0 for a machine without any.
	GPUs inventory.Fact[int]
	// GPUMemory is the device memory of each GPU in bytes as a catalog has it, for GPUs
	// whose samples do not tell; 0 is unknown.
	GPUMemory float64
	// GPUPower is the TDP of each GPU in watts as a catalog has it; 0 is unknown.
	GPUPower float64
	// Launched is when it was launched last; zero is unknown.
	Launched time.Time
}

// Tracker takes the samples of one machine in order of time and tells what the machine
// does. A sample costs the same however many there were before, so do any number of
// equal ones in a row, and a verdict looks at no sample again.
//
// A verdict at a time depends on the samples from the [Horizon] of that time up to it,
// and on nothing else: neither on when it was asked before, nor on samples that were
// handed over ahead, in a run that goes on after it. A meter is one signal of one GPU
// or machine from one source at one step: another source or step starts it again.
//
// A tracker serves one goroutine at a time. The nil Tracker has no samples.
type Tracker struct {
	t               Thresholds
	a               usage.Activity
	lookBack, block int64
	// settled is when the newest points of any meter begin. A verdict before it cannot
	// be told any more.
	settled int64
	// memory and power are the machine's GPUMemory and GPUPower as they were last told or asked
	// about. They only decide which peaks are worth keeping.
	memory, power float64
	machine       track
	gpus          []*track // in order of their names
	sources       []*usage.Opened
	newest        int      // the GPU that had a sample last
	rolling       *rolling // for figures that are watched; nil for none
	progressed    Progress
}

// track is the meters of one GPU or of the machine.
type track struct {
	name, parent string
	part         bool   // a MIG instance or a partition of the parent
	parts        uint16 // how many the parent has; 0 where all that are there are
	at           [lastTracked + 1]uint8
	meters       []meter // at[signal]-1 is the signal's place
}

// NewTracker returns a tracker without samples that judges by these thresholds and
// looks back that far (see [Horizon]). The activity's floors are those of GPU signals;
// those of the host are the thresholds' own.
func NewTracker(t Thresholds, a usage.Activity, lookBack time.Duration) *Tracker {
	k := &Tracker{t: t.orDefault(), a: a, lookBack: int64(lookBack), settled: never}
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

// Expect tells which machine the samples will be of. It is worth telling where they are
// many and the size of the GPUs' memory is known only from a catalog: a verdict is exact
// without it as long as the memory in use fell no more than a few times.
func (k *Tracker) Expect(m Machine) { k.memory, k.power = m.GPUMemory, m.GPUPower }

// Open returns a sink for the points of one source. Its Add returns false for a point
// that is older than the newest of its meter, and for one of another source at that time:
// it is late, and only a tracker that takes all samples again in order can know better.
// The newest point is corrected by another one of its time, because a source that fills
// its steps bit by bit is read while it fills the newest. What is no measurement, what no
// verdict asks about and a point that is repeated are passed over.
func (k *Tracker) Open(o usage.Opened) usage.Sink { return &sink{k, k.source(o)} }

type sink struct {
	k *Tracker
	o *usage.Opened
}

// Add hands a point over.
func (s *sink) Add(gpu string, sig usage.Signal, p usage.Point) bool {
	return s.k.add(s.o, gpu, sig, p, 1)
}

// AddRun hands count equal samples over, the first at start and each one step after the
// one before. They may reach past the time of the next verdict. It returns what Add
// returns; count of 0 or less is no sample.
func (k *Tracker) AddRun(o usage.Opened, gpu string, s usage.Signal, start time.Time, count int, v float64) bool {
	if count <= 0 {
		return true
	}
	return k.add(k.source(o), gpu, s, usage.Point{Time: start, Mean: v, Max: v}, int64(count))
}

// source returns the one description of a source that all of its meters share, from
// wherever on it was read this time.
func (k *Tracker) source(o usage.Opened) *usage.Opened {
	o.From = time.Time{}
	o.Step = min(max(o.Step, 0), longestStep)
	for _, known := range k.sources {
		if *known == o {
			return known
		}
	}
	added := o // so that o itself needs no memory of its own
	k.sources = append(k.sources, &added)
	return &added
}

func (k *Tracker) add(o *usage.Opened, gpu string, s usage.Signal, p usage.Point, count int64) bool {
	p, ok := s.Clean(p)
	if sec := p.Time.Unix(); !ok || !tracked(s) && k.rolling == nil || sec < -forever || sec > forever {
		return true
	}
	at, step := p.Time.UnixNano(), int64(o.Step)
	if step == 0 {
		count = 1
	} else {
		count = min(count, (forever*1e9-at)/step+1)
	}
	if k.rolling != nil && !k.rolling.add(k, o, gpu, s, p, at, count) {
		return false
	}
	if !tracked(s) {
		return true
	}
	k.progressed.take(s, p.Time, p.Max)
	t := k.track(gpu, s, at)
	i := t.at[s]
	if i == 0 {
		t.place(newMeter(s, o, at, count, p))
		k.settled = max(k.settled, at)
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
	case at == end: // it was still being filled when it was read
		if m.count > 1 {
			m.count--
			m.fold(k)
			m.start, k.settled = at, max(k.settled, at)
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
	k.settled = max(k.settled, at)
	return true
}

// track returns the track of a GPU or of the machine.
func (k *Tracker) track(gpu string, s usage.Signal, at int64) *track {
	if gpu == "" || !s.PerGPU() {
		return &k.machine
	}
	for i := range k.gpus { // they come in turn, or again and again
		j := (k.newest + i) % len(k.gpus)
		if t := k.gpus[j]; t.name == gpu {
			k.newest = j
			return t
		}
	}
	// Points before every look-back make room.
	horizon := k.horizon(at)
	k.gpus = slices.DeleteFunc(k.gpus, func(t *track) bool { return !t.present(math.MaxInt64, horizon) })
	t := &track{name: gpu}
	t.parent, t.part = usage.Parent(gpu)
	t.parts = uint16(usage.Parts(gpu))
	i, _ := slices.BinarySearchFunc(k.gpus, gpu, func(t *track, name string) int {
		return usage.CompareGPUs(t.name, name)
	})
	// No room is left for more, and none is made twice.
	k.gpus = append(append(append(make([]*track, 0, len(k.gpus)+1), k.gpus[:i]...), t), k.gpus[i:]...)
	k.newest = 0
	return t
}

// place adds a meter. There are few, and no room is left for more.
func (t *track) place(m meter) {
	all := make([]meter, len(t.meters)+1)
	all[copy(all, t.meters)] = m
	t.meters = all
	t.at[m.signal] = uint8(len(all))
}

// present says whether any signal of the track was measured between the horizon and a
// time.
func (t *track) present(now, horizon int64) bool {
	for i := range t.meters {
		if t.meters[i].newest(now) >= horizon {
			return true
		}
	}
	return false
}

// lastTracked is the last signal that verdicts ask about; none after it is.
const lastTracked = usage.Checkpoints

// tracked says whether verdicts ask about a signal.
func tracked(s usage.Signal) bool { return s <= lastTracked }

// keepsPeaks says whether anything is asked of a signal but its newest value.
func (k *Tracker) keepsPeaks(s usage.Signal) bool {
	return s != usage.MemTotal && s != usage.MemFree && !s.Counter()
}

// peaks is how many peaks of a signal are kept.
func (k *Tracker) peaks(s usage.Signal) int {
	if s == usage.MemUsed {
		return morePeaks
	}
	return fewPeaks
}

// lines are the values of a meter at which verdicts change.
func (k *Tracker) lines(m *meter) (low, high float64) {
	switch m.signal {
	case usage.MemUsed:
		return 1, k.heldLine(m)
	case usage.Power:
		line := busyPower(k.t, k.power)
		return line, line
	case usage.Processes:
		return 1, 1
	case usage.GPUUtil, usage.GREngine, usage.SMActive, usage.TensorActive, usage.DRAMActive:
		floor := k.a.Floor(m.signal, m.opened.Step)
		return floor, floor
	}
	h, unit := k.t.host(m.signal), 1.0
	if h.rate {
		unit = m.opened.Step.Seconds()
	}
	return h.idle * unit, h.busy * unit
}

// heldLine is the value from which on the memory of a meter's GPU counts as held, as
// far as it is known by now.
func (k *Tracker) heldLine(used *meter) float64 {
	total := k.memory
	for _, t := range append(k.gpus[:len(k.gpus):len(k.gpus)], &k.machine) {
		if t.meter(usage.MemUsed) != used {
			continue
		}
		if m := t.meter(usage.MemTotal); m != nil && m.mean > 0 {
			total = m.mean
		} else if free := t.meter(usage.MemFree); free != nil {
			total = used.mean + free.mean
		} else if t.part {
			total = 0
		}
	}
	return total * k.t.HeldMemory / 100
}

// meter returns the meter of a signal, nil where there is none.
func (t *track) meter(s usage.Signal) *meter {
	if i := t.at[s]; i > 0 {
		return &t.meters[i-1]
	}
	return nil
}

// At says what the machine does at now, in no more words than a decision needs: without
// Why, Evidence and GPUs. See [Tracker.Explain].
func (k *Tracker) At(now time.Time, m Machine) Verdict { return k.ask(now, m, false) }

// Explain says what a machine is doing at now, by its newest samples; [Judge] says what
// it has been doing over days. Where it is not known how many GPUs a machine has, it is
// never judged by its CPU.
//
// A signal speaks of now when its newest sample is at most three steps old. What is
// measured and too old makes the state unknown wherever it could change it; what
// is not measured does not. No time is too short: Lasting says for how long the
// state is known to have lasted, up to now or to the end of the newest sample's step.
//
// The machine is busy when a GPU computes, and stalled when it computes while the
// training step and the checkpoints stand still for [Thresholds.StalledAfter].
// Otherwise every GPU must be seen to rest, or the state is unknown (see
// [Thresholds.GPUs] for the other rule). While they rest, data on its way makes it
// starved when a process or memory holds a GPU, and busy when none does. A GPU that
// is held, a session with input or a notebook kernel that executes make it held. A
// CPU that works with nothing held, or traffic that is neither rest nor work, make it
// unknown. Else it is idle. A utilization of 100% without a process and without
// memory is unknown: the meter may be latched. So are signals of one GPU that cannot all
// be true, and one whose exporter repeats itself. In the time after its launch
// ([Thresholds.WarmUp]) a machine that does not compute is warming, whatever else is
// known.
//
// A machine without GPUs is busy when its CPUs or its network work, and idle only
// when both were measured and rest.
//
// A machine is not judged at a time before the newest sample of any of its meters,
// except within a run: it is unknown.
func (k *Tracker) Explain(now time.Time, m Machine) Verdict { return k.ask(now, m, true) }

func (k *Tracker) ask(now time.Time, m Machine, words bool) Verdict {
	if k == nil {
		return Verdict{Why: "nothing was measured"}
	}
	k.Expect(m)
	q := k.question(nanos(now), m, words)
	if q.now < k.settled {
		return Verdict{Why: "the question is about a time before its newest samples", Next: instant(k.settled)}
	}
	v := newAnswer()
	q.answer(&v)
	q.deadlines()
	if v.Next = instant(q.next); !words {
		v.Why = ""
	}
	return v.verdict()
}

// nanos returns a time in nanoseconds since 1970.
func nanos(t time.Time) int64 {
	sec := min(max(t.Unix(), -forever), forever)
	return sec*1e9 + int64(t.Nanosecond())
}

// instant returns the time in UTC; the zero time for never.
func instant(ns int64) time.Time {
	if ns == never {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
