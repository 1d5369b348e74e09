package spot

import (
	"math"
	"time"
)

// prior is the hazard of a run or outage before any data: alpha / (age + beta), a Lomax
// distribution with a power tail. Both parameters were fitted to us-east-1a, us-east-2a and
// us-west-2b of the campaign aws-02-15-2023 of skypilot-org/spot-traces.
type prior struct {
	alpha float64
	beta  time.Duration
}

var (
	runPrior    = prior{0.7, 20 * time.Minute}
	outagePrior = prior{1, 40 * time.Minute}
)

// Weights of the priors, in ends of runs or outages: for the total count, for an age bucket, and
// for recent data.
const (
	scaleWeight  = 5.0
	bucketWeight = 10.0
	recentWeight = 5.0
	recent       = 72 * time.Hour
	// bucketGrowth is the ratio of the start ages of neighboring buckets, maxAge the start of the
	// last one.
	bucketGrowth = 1.4
	maxAge       = 40 * time.Hour
	// surest is the highest probability of an end within a beat.
	surest = 0.95
)

// expected returns the number of ends that the prior expects between two ages.
func (p prior) expected(from, to time.Duration) float64 {
	return p.alpha * math.Log((to+p.beta).Seconds()/(from+p.beta).Seconds())
}

// historySample is one sample of a history.
type historySample struct {
	up bool
	// changed reports that the previous run or outage ended; also if a machine moved to another
	// zone.
	changed bool
	// age is the number of gaps since the run or outage began.
	age int32
}

// marketHistory holds the samples seen so far.
type marketHistory []historySample

// clock counts ages in steps of gaps, aligned with the beat if there is one.
type clock struct {
	step float64
	beat bool
}

// hazardModel is the hazard by age in steps.
type hazardModel struct {
	clock
	// first is the start age of each bucket.
	first []int
	// ends is the expected number of ends within a step, for outages and runs, by bucket; moved is
	// the share of run ends after which another zone was up.
	ends  [2][]float64
	moved float64
}

func index(up bool) int {
	if up {
		return 1
	}
	return 0
}

// buckets returns the start ages of the buckets up to a highest age.
func buckets(highest float64) []int {
	first := []int{0}
	for at := 1.0; at < highest; at = max(at+1, at*bucketGrowth) {
		if int(at) > first[len(first)-1] {
			first = append(first, int(at))
		}
	}
	return first
}

// bucket returns the bucket of an age in steps.
func (m *hazardModel) bucket(age int) int {
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

// width returns the number of steps in a bucket; the last one is unbounded.
func (m *hazardModel) width(b int) float64 {
	if b+1 == len(m.first) {
		return 1
	}
	return float64(m.first[b+1] - m.first[b])
}

// fit learns from a history and returns the beat clock at its end.
//
// Ends are counted by age. The prior is scaled to the total count, each bucket is shrunk from its
// count toward the scaled prior, and everything is scaled to the recent count: each a posterior
// mean under a gamma prior of the given weight.
func (h marketHistory) fit(gap time.Duration, c clock) (hazardModel, beatClock) {
	m := hazardModel{clock: c}
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

// noStep marks a sample that ends no step of its run or outage.
const noStep = -1

// place holds the bucket of each sample's age, or noStep.
func (h marketHistory) place(m *hazardModel) ([]int16, beatClock) {
	at := make([]int16, len(h))
	met := beatClock{period: m.step, next: 1}
	for i, s := range h {
		age, wait := int(s.age)/int(m.step), int(m.step)-int(s.age)%int(m.step)
		if m.beat {
			met.tick(s.changed)
			age, wait = met.beats, met.wait
		}
		ends := i+1 < len(h) && h[i+1].changed
		if at[i] = noStep; wait == 1 || ends {
			at[i] = int16(m.bucket(age))
		}
	}
	return at, met
}

// steps calls each with every step of the history: the sample at its end, whether it was up, the
// bucket of its age, and 1 if the run or outage ended with it.
func (h marketHistory) steps(at []int16, each func(i, k, b int, ended float64)) {
	for i := 0; i+1 < len(h); i++ {
		if at[i] != noStep {
			each(i, index(h[i].up), int(at[i]), float64(index(h[i+1].changed)))
		}
	}
}
