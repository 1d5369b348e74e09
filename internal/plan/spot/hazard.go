package spot

import (
	"math"
	"time"
)

// prior is what is taken for the hazard of a run or an outage before anything has been
// seen: alpha / (age + beta). The longer it has lasted, the longer it goes on (a Lomax
// distribution, whose tail is a power); both were fitted to us-east-1a, us-east-2a and
// us-west-2b of the campaign aws-02-15-2023 of skypilot-org/spot-traces.
type prior struct {
	alpha float64
	beta  time.Duration
}

var (
	runPrior    = prior{0.7, 20 * time.Minute}
	outagePrior = prior{1, 40 * time.Minute}
)

// How fast what is seen takes over from what was taken for granted, in ends of runs or
// outages: for their number as a whole, for those of an age, and for those of late.
const (
	scaleWeight  = 5.0
	bucketWeight = 10.0
	recentWeight = 5.0
	recent       = 72 * time.Hour
	// bucketGrowth is the ratio of the ages at which neighboring buckets start, maxAge
	// where the last does.
	bucketGrowth = 1.4
	maxAge       = 40 * time.Hour
	// surest is the highest probability that something ends within a beat.
	surest = 0.95
)

// expected is how many ends the prior expects from an age to a later one.
func (p prior) expected(from, to time.Duration) float64 {
	return p.alpha * math.Log((to+p.beta).Seconds()/(from+p.beta).Seconds())
}

// moment is one sample of a history.
type moment struct {
	up bool
	// ended says that the run or outage before it ended; up as well where a machine
	// went on in another zone.
	ended bool
	// age is gaps since the run or the outage began.
	age int32
}

// history is what has been seen.
type history []moment

// clock says how ages are counted: in steps of so many gaps, on a beat where there is
// one.
type clock struct {
	step float64
	beat bool
}

// model is the hazard by age, in steps.
type model struct {
	clock
	// first is the age at which each bucket starts.
	first []int
	// ends is the expected number of ends within a step, of an outage and of a run, by
	// bucket; moved the share of ends of runs after which another zone was up.
	ends  [2][]float64
	moved float64
}

func index(up bool) int {
	if up {
		return 1
	}
	return 0
}

// buckets are the ages, under a highest, at which buckets start.
func buckets(highest float64) []int {
	first := []int{0}
	for at := 1.0; at < highest; at = max(at+1, at*bucketGrowth) {
		if int(at) > first[len(first)-1] {
			first = append(first, int(at))
		}
	}
	return first
}

// bucket is that of an age in steps.
func (m *model) bucket(age int) int {
	lo, hi := 0, len(m.first)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; m.first[mid] <= age {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// width is how many steps a bucket covers; the last covers all that follow.
func (m *model) width(b int) float64 {
	if b+1 == len(m.first) {
		return 1
	}
	return float64(m.first[b+1] - m.first[b])
}

// fit learns from a history, and returns the metronome as it stands at its end.
//
// Ends are counted by age. The prior is scaled to how many there were in all, each
// bucket drawn from there to what was counted in it, and everything scaled to how many
// there were of late: each of these a mean under a gamma prior of the given weight.
func (h history) fit(gap time.Duration, c clock) (model, metronome) {
	m := model{clock: c}
	step := time.Duration(c.step * float64(gap))
	m.first = buckets(float64(maxAge) / float64(step))
	n := len(m.first)
	var base, counted, exposed [2][]float64
	for k, p := range []prior{outagePrior, runPrior} {
		base[k], counted[k], exposed[k], m.ends[k] = make([]float64, n), make([]float64, n), make([]float64,
			n), make([]float64, n)
		for b := range n {
			mid := time.Duration((float64(m.first[b]) + (m.width(b)-1)/2) * float64(step))
			base[k][b] = p.expected(mid, mid+step)
		}
	}
	at, met := h.place(&m)
	var total, due [2]float64
	var runs, moves float64
	h.steps(at, func(i, k, b int, ended float64) {
		counted[k][b] += ended
		exposed[k][b]++
		total[k] += ended
		due[k] += base[k][b]
		if k == 1 && ended > 0 {
			runs++
			moves += float64(index(h[i+1].up))
		}
	})
	if runs > 0 {
		m.moved = moves / (runs + 1)
	}
	for k := range 2 {
		scale := (scaleWeight + total[k]) / (scaleWeight + due[k])
		for b := range n {
			m.ends[k][b] = (counted[k][b] + bucketWeight) / (exposed[k][b] + bucketWeight/(scale*base[k][b]))
		}
	}
	var late, lateDue [2]float64
	fade := math.Exp(-float64(step) / float64(recent))
	h.steps(at, func(_, k, b int, ended float64) {
		for k := range 2 {
			late[k], lateDue[k] = late[k]*fade, lateDue[k]*fade
		}
		late[k] += ended
		lateDue[k] += m.ends[k][b]
	})
	for k := range 2 {
		for b := range n {
			m.ends[k][b] *= (recentWeight + late[k]) / (recentWeight + lateDue[k])
		}
	}
	return m, met
}

// between marks a sample after which no step of its run or outage ends.
const between = -1

// place is by sample the bucket of its age, or between.
func (h history) place(m *model) ([]int16, metronome) {
	at := make([]int16, len(h))
	met := metronome{period: m.step, next: 1}
	for i, s := range h {
		age, wait := int(s.age)/int(m.step), int(m.step)-int(s.age)%int(m.step)
		if m.beat {
			met.tick(s.ended)
			age, wait = met.beats, met.wait
		}
		ends := i+1 < len(h) && h[i+1].ended
		if at[i] = between; wait == 1 || ends {
			at[i] = int16(m.bucket(age))
		}
	}
	return at, met
}

// steps calls each with every step of the history: the sample at its end, whether it was
// up, the bucket of the age, and 1 where the run or outage ended with it.
func (h history) steps(at []int16, each func(i, k, b int, ended float64)) {
	for i := 0; i+1 < len(h); i++ {
		if at[i] != between {
			each(i, index(h[i].up), int(at[i]), float64(index(h[i+1].ended)))
		}
	}
}
