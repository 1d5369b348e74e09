package spot

import "math"

// What a beat is looked for with: lengths of runs and outages up to longestCounted gaps,
// at least fewestCounted of them, whose lengths keep step better than leastAccord, and
// periods of 2 to 12 gaps. By chance alone lengths in any number of gaps keep step with
// some period by less than 0.5 once there are that many.
const (
	longestCounted = 128
	fewestCounted  = 24
	leastAccord    = 0.5
	frequencies    = 1600
	slowest        = 1.0 / 12
	fastest        = 1.0 / 2
	// follow is how far the next beat is moved toward a change that came close to it.
	follow = 0.3
)

// beats looks for a beat: availability that is probed less often than it is sampled
// changes only when it is probed, and then its runs last whole numbers of beats.
type beats struct {
	accord []float64
	n      int
}

// observe takes the length of a run or an outage that has ended, in gaps.
func (b *beats) observe(length int) {
	if length > longestCounted {
		return
	}
	if b.accord == nil {
		b.accord = make([]float64, frequencies+1)
	}
	for i := range b.accord {
		b.accord[i] += math.Cos(2 * math.Pi * frequency(i) * float64(length))
	}
	b.n++
}

// period is the beat in gaps; there is none before enough has been seen.
func (b *beats) period() (gaps float64, ok bool) {
	if b.n < fewestCounted {
		return 0, false
	}
	best := 0
	for i, a := range b.accord {
		if a > b.accord[best] {
			best = i
		}
	}
	return 1 / frequency(best), b.accord[best] >= leastAccord*float64(b.n)
}

func frequency(i int) float64 { return slowest + (fastest-slowest)*float64(i)/frequencies }

// metronome counts beats since the last change, and how many gaps the next is away.
type metronome struct {
	period float64
	// next is when the next beat is due, in gaps.
	next        float64
	t           int
	beats, wait int
}

// tick takes one sample; changed says that the run or outage before it has ended.
func (m *metronome) tick(changed bool) {
	t := float64(m.t)
	passed := false
	for m.next <= t+1e-9 {
		m.next += m.period
		passed = true
	}
	switch {
	case changed:
		off := t - 0.5 - (m.next - m.period) // it came in the gap before the sample
		if late := t - 0.5 - m.next; -late < off {
			off = late
		}
		m.next += follow * off
		for m.next <= t+0.3 {
			m.next += m.period
		}
		m.next = min(m.next, t+m.period+0.5)
		m.beats = 0
	case passed:
		m.beats++
	}
	m.wait = max(1, int(math.Ceil(m.next-t-1e-9)))
	m.t++
}
