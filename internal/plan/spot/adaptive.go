package spot

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// Run ages are counted in gaps, or in multiples such that Young's interval of a one-hour run
	// has unitsPerYoung of them. Plans cover horizon units, intervals up to longestInterval.
	unitsPerYoung   = 8
	longestInterval = 128
	horizon         = 2048
	// agedWeight is the checkpoint counterpart of bucketWeight, fitted like the priors to three
	// zones of the campaign.
	agedWeight = 20.0
)

// hazardCounts counts ends of runs (events) and units in which a run could have ended (atRisk) by
// age bucket.
type hazardCounts struct{ events, atRisk []float64 }

func newEnds(buckets int) hazardCounts {
	return hazardCounts{make([]float64, buckets), make([]float64, buckets)}
}

// ageLearner learns the hazard of runs and plans checkpoints.
type ageLearner struct {
	unit           time.Duration
	write, restart float64     // seconds
	m              hazardModel // for its buckets
	base           []float64
	all            hazardCounts
	zones          []hazardCounts
}

// savePlan is a plan of checkpoints: units from the start of a run to the end of the first
// checkpoint, and from one at an age to the next.
type savePlan struct {
	first int
	next  []int
}

func newAging(gap time.Duration, zones int, p CheckpointParams) *ageLearner {
	a := &ageLearner{
		unit: gap * time.Duration(
			max(1, int(youngInterval(p.Write.Seconds(), time.Hour.Seconds())/gap.Seconds()/unitsPerYoung))),
		write: p.Write.Seconds(), restart: p.Restart.Seconds(),
	}
	a.m.first = buckets(horizon)
	n := len(a.m.first)
	for b := range n {
		mid := time.Duration((float64(a.m.first[b]) + (a.m.width(b)-1)/2) * float64(a.unit))
		a.base = append(a.base, runPrior.expected(mid, mid+a.unit))
	}
	a.all = newEnds(n)
	for range zones {
		a.zones = append(a.zones, newEnds(n))
	}
	return a
}

// observe adds a finished run; if truncated, only its recording ended.
func (a *ageLearner) observe(zone int, length time.Duration, cut bool) {
	units := int((length + a.unit - 1) / a.unit)
	for _, e := range []hazardCounts{a.all, a.zones[zone]} {
		for b, first := range a.m.first {
			if first >= units {
				break
			}
			last := units
			if b+1 < len(a.m.first) {
				last = min(last, a.m.first[b+1])
			}
			e.atRisk[b] += float64(last - first)
		}
		if !cut {
			e.events[a.m.bucket(units-1)]++
		}
	}
}

// shrinkHazard returns a hazard shrunk from the observed counts toward base: first overall, then by
// bucket.
func (e hazardCounts) drawn(base []float64) []float64 {
	total, due := scaleWeight, scaleWeight
	for b := range base {
		total += e.events[b]
		due += e.atRisk[b] * base[b]
	}
	out := make([]float64, len(base))
	for b := range base {
		out[b] = (e.events[b] + agedWeight) / (e.atRisk[b] + agedWeight/(total/due*base[b]))
	}
	return out
}

// plan returns the checkpoints that maximize the expected kept work under the hazards of all zones,
// or of a given one.
func (a *ageLearner) plan(zone int) savePlan {
	hazard := a.all.drawn(a.base)
	if zone >= 0 {
		hazard = a.zones[zone].drawn(hazard)
	}
	lasts := make([]float64, 0, horizon+longestInterval) // share of runs of an age that survive one more unit
	for age, b := 0, 0; age < cap(lasts); age++ {
		if b+1 < len(hazard) && a.m.first[b+1] <= age {
			b++
		}
		lasts = append(lasts, math.Exp(-hazard[b]))
	}
	unit := a.unit.Seconds()
	s := savePlan{next: make([]int, horizon)}
	value := make([]float64, len(lasts))
	// Beyond the horizon the hazard is constant, so each checkpoint is a renewal.
	steady, most := 1, math.Inf(-1)
	for n := 1; n <= longestInterval; n++ {
		q := math.Exp(-hazard[len(hazard)-1] * float64(n))
		if v := q * (float64(n)*unit - a.write) / (1 - q); v > most {
			steady, most = n, v
		}
	}
	for age := horizon; age < len(value); age++ {
		value[age] = most
	}
	best := func(age int, pay float64) (int, float64) {
		n, most, share := steady, 0.0, 1.0
		for i := 1; i <= longestInterval; i++ {
			share *= lasts[age+i-1]
			kept := float64(i)*unit - pay
			if v := share * (kept + value[age+i]); kept > 0 && v > most {
				n, most = i, v
			}
		}
		return n, most
	}
	for age := horizon - 1; age > 0; age-- {
		s.next[age], value[age] = best(age, a.write)
	}
	s.next[0] = steady
	s.first, _ = best(0, a.write+a.restart)
	return s
}

// after returns the units from a checkpoint at an age to the end of the next one.
func (s savePlan) after(age int) int {
	return s.next[min(age, len(s.next)-1)]
}

// kept returns the seconds of work that a plan keeps of a run.
func (a *ageLearner) kept(s savePlan, length time.Duration) float64 {
	units := int(length / a.unit)
	if s.first > units {
		return 0
	}
	sum := float64(s.first)*a.unit.Seconds() - a.restart - a.write
	for age := s.first; age+s.after(age) <= units; age += s.after(age) {
		sum += float64(s.after(age))*a.unit.Seconds() - a.write
	}
	return max(sum, 0)
}

// replayRuns calls each with the kept work of every run, planned from the runs that ended before it
// started. Afterwards the learner knows all runs.
func replayRuns(a *ageLearner, runs []upRun, gap time.Duration, each func(kept float64)) {
	byEnd := slices.SortedStableFunc(slices.Values(runs), func(a, b upRun) int { return cmp.Compare(a.end, b.end) })
	seen := 0
	for _, r := range runs {
		for ; byEnd[seen].end <= r.start; seen++ {
			a.observe(byEnd[seen].zone, byEnd[seen].length(gap), byEnd[seen].truncated)
		}
		each(a.kept(a.plan(r.zone), r.length(gap)))
	}
	for _, r := range byEnd[seen:] {
		a.observe(r.zone, r.length(gap), r.truncated)
	}
}

// adaptive replays curfew's rule.
func adaptive(tr Trace, runs []upRun, p CheckpointParams, total float64) CheckpointResult {
	a := newAging(tr.Gap, len(tr.Zones), p)
	sum := 0.0
	replayRuns(a, runs, tr.Gap, func(kept float64) { sum += kept })
	zone := -1
	if len(tr.Zones) == 1 {
		zone = 0
	}
	s := a.plan(zone)
	unit := a.unit.Seconds()
	out := CheckpointResult{Name: Curfew, Kept: sum / total, Interval: float64(s.first)*unit - a.restart - a.write}
	out.ByAge = append(out.ByAge, AgedInterval{0, out.Interval})
	for age := s.first; age < horizon; age += s.after(age) {
		if interval := float64(s.after(age))*unit - a.write; interval != out.ByAge[len(out.ByAge)-1].Interval {
			out.ByAge = append(out.ByAge, AgedInterval{float64(age) * unit, interval})
		}
	}
	return out
}
