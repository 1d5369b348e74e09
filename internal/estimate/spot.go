package estimate

import (
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/spec"
)

// interruptions returns the rate of spot interruptions from past runs of the same name, or else
// from all past runs, on top of the default rate.
func interruptions(s *spec.Spec, p Params) spot.Interruptions {
	own, taken := learn(p, func(r Run) bool { return r.Name == s.Name })
	if own == 0 {
		own, taken = learn(p, func(Run) bool { return true })
	}
	return p.Defaults.Interruptions.Learn(taken, own)
}

// learn sums the machine hours and interruptions of past spot runs.
func learn(p Params, of func(Run) bool) (hours float64, taken int) {
	for _, r := range p.History {
		if of(r) && r.SpotTime > 0 && !r.Finished.After(p.Now) {
			hours += r.SpotTime.Hours() * float64(max(r.Machines, 1))
			taken += max(r.Interruptions, 0)
		}
	}
	return hours, taken
}

// Interruptions returns the interruption rate learned from all past runs, starting from a known
// rate.
func Interruptions(before spot.Interruptions, runs []Run, now time.Time) spot.Interruptions {
	hours, taken := learn(Params{History: runs, Now: now}, func(Run) bool { return true })
	return before.Learn(taken, hours)
}

// interruptedWork is work on machines that are interrupted at a constant rate.
type interruptedWork struct {
	// perHour is the rate at which any of the machines is interrupted, which stops all.
	perHour float64
	// saveInterval is the work between two checkpoints; 0 means none.
	saveInterval, restart time.Duration
	// retries is the maximum number of restarts.
	retries int
}

// duration returns the time and number of restarts at the p50 and p95.
//
// The work is a sequence of parts, each of which succeeds with p = exp(-perHour × part) or is
// repeated, so that the number of restarts is negative binomial. A restart costs its own time and
// the lost part: at the p50 the mean loss, 1/perHour − part·p/(1−p), at the p95 the whole part.
func (o interruptedWork) duration(w work) (p50, p95 time.Duration, restarts50, restarts95 int) {
	p50, restarts50 = o.at(w.p50, 0.5)
	p95, restarts95 = o.at(w.p95, 0.95)
	return p50, max(p50, p95), restarts50, max(restarts50, restarts95)
}

// at returns the time and restarts at a quantile.
func (o interruptedWork) at(length time.Duration, share float64) (time.Duration, int) {
	if o.perHour <= 0 || length <= 0 {
		return length, 0
	}
	part, parts := length, 1.0
	if o.saveInterval > 0 && o.saveInterval < length {
		part, parts = o.saveInterval, math.Ceil(float64(length)/float64(o.saveInterval))
	}
	fail := -math.Expm1(-o.perHour * part.Hours())
	n := negativeBinomial(parts, fail, share, o.retries)
	lost := part
	if share <= 0.5 {
		mean := 1/o.perHour - part.Hours()*(1-fail)/fail
		lost = time.Duration(math.Max(0, mean) * float64(time.Hour))
	}
	total := float64(length) + float64(n)*float64(o.restart+lost)
	return time.Duration(math.Min(total, float64(noLimit))), n
}

// negativeBinomial returns the quantile of the number of failures before a number of successes, at
// most the maximum.
func negativeBinomial(successes, fail, share float64, most int) int {
	if fail <= 0 {
		return 0
	}
	sum := 0.0
	logSuccess, logFail := successes*math.Log1p(-fail), math.Log(fail)
	all, _ := math.Lgamma(successes)
	for k := range most {
		ways, _ := math.Lgamma(successes + float64(k))
		same, _ := math.Lgamma(float64(k) + 1)
		if sum += math.Exp(ways - same - all + logSuccess + float64(k)*logFail); sum >= share {
			return k
		}
	}
	return most
}
