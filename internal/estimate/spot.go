package estimate

import (
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/spec"
)

// interruptions is how often a spot machine is taken away: by past runs of the same name,
// or without any by all past runs, over the rate of the defaults.
func interruptions(s *spec.Spec, p Params) spot.Interruptions {
	own, taken := learn(p, func(r Run) bool { return r.Name == s.Name })
	if own == 0 {
		own, taken = learn(p, func(Run) bool { return true })
	}
	return p.Defaults.Interruptions.Learn(taken, own)
}

// learn adds up the machine hours and interruptions of past runs on spot.
func learn(p Params, of func(Run) bool) (hours float64, taken int) {
	for _, r := range p.History {
		if of(r) && r.SpotTime > 0 && !r.Finished.After(p.Now) {
			hours += r.SpotTime.Hours() * float64(max(r.Machines, 1))
			taken += max(r.Interruptions, 0)
		}
	}
	return hours, taken
}

// Interruptions is how often spot machines are taken away by all past runs, over a rate
// that is known before.
func Interruptions(before spot.Interruptions, runs []Run, now time.Time) spot.Interruptions {
	hours, taken := learn(Params{History: runs, Now: now}, func(Run) bool { return true })
	return before.Learn(taken, hours)
}

// ordeal is work on machines that are taken away, each at any time alike.
type ordeal struct {
	// perHour is how often one of the machines is taken away, which stops all.
	perHour float64
	// every is how much work is done between two savings; 0: nothing is saved.
	every, restart time.Duration
	// retries is how often it goes on.
	retries int
}

// outlast returns how long work takes and how often it begins again, at the p50 and at
// the p95.
//
// The work is a row of parts, each of which succeeds with p = exp(-perHour × part) or is
// begun again, so that the number of restarts is negative binomial. One restart costs
// its own time and what was lost of the part: the mean, 1/perHour − part·p/(1−p), in the
// first case, and the whole part in the second.
func (o ordeal) outlast(w work) (p50, p95 time.Duration, restarts50, restarts95 int) {
	p50, restarts50 = o.at(w.p50, 0.5)
	p95, restarts95 = o.at(w.p95, 0.95)
	return p50, max(p50, p95), restarts50, max(restarts50, restarts95)
}

// at returns the time and the restarts that a share of the cases stay within.
func (o ordeal) at(length time.Duration, share float64) (time.Duration, int) {
	if o.perHour <= 0 || length <= 0 {
		return length, 0
	}
	part, parts := length, 1.0
	if o.every > 0 && o.every < length {
		part, parts = o.every, math.Ceil(float64(length)/float64(o.every))
	}
	fail := -math.Expm1(-o.perHour * part.Hours())
	n := negativeBinomial(parts, fail, share, o.retries)
	lost := part
	if share <= 0.5 {
		mean := 1/o.perHour - part.Hours()*(1-fail)/fail
		lost = time.Duration(math.Max(0, mean) * float64(time.Hour))
	}
	total := float64(length) + float64(n)*float64(o.restart+lost)
	return time.Duration(math.Min(total, float64(forever))), n
}

// negativeBinomial returns the least number of failures before the given number of
// successes that a share of the cases do not exceed, most at the highest.
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
