package spot

import "math"

// Limits of the beat detector: it uses lengths of runs and outages up to longestCounted gaps, at
// least fewestCounted of them, with an accord of at least leastAccord, and periods of 2 to 12 gaps.
// The accord of random lengths is below 0.5 with that many.
const (
	longestCounted = 128
	fewestCounted  = 24
	leastAccord    = 0.5
	frequencies    = 1600
	slowest        = 1.0 / 12
	fastest        = 1.0 / 2
	// follow is how far a nearby change shifts the next beat.
	follow = 0.3
)

// beatDetector finds the period of availability that is probed less often than sampled: then runs
// last whole numbers of probes.
type beatDetector struct {
	accord []float64
	n      int
}

// observe adds the length in gaps of a finished run or outage.
func (b *beatDetector) observe(length int) {
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

// period returns the beat in gaps, if there is enough data.
func (b *beatDetector) period() (gaps float64, ok bool) {
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

// beatClock counts beats since the last change and the gaps to the next beat.
type beatClock struct {
	period float64
	// next is the number of gaps to the next beat.
	next        float64
	t           int
	beats, wait int
}

// tick advances by one sample; changed reports that the previous run or outage has ended.
func (m *beatClock) tick(changed bool) {
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
