package spot

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// The ages of a run are counted in gaps, or in so many that Young's interval for a
	// run of an hour still has unitsPerYoung of them; plans reach horizon units, intervals
	// longestInterval.
	unitsPerYoung   = 8
	longestInterval = 128
	horizon         = 2048
	// agedWeight is to checkpoints what bucketWeight is to strategies; found, as the
	// priors were, on three zones of the campaign.
	agedWeight = 20.0
)

// ends counts ends of runs, and units of them in which they could have ended, by bucket.
type ends struct{ counted, exposed []float64 }

func newEnds(buckets int) ends { return ends{make([]float64, buckets), make([]float64, buckets)} }

// aging learns the hazard of runs, and when to save.
type aging struct {
	unit           time.Duration
	write, restart float64 // seconds
	m              model   // for its buckets
	base           []float64
	all            ends
	zones          []ends
}

// saving is a plan of checkpoints: units from the start of a run to the first one's end,
// and from the end of one at an age to that of the next.
type saving struct {
	first int
	next  []int
}

func newAging(gap time.Duration, zones int, p CheckpointParams) *aging {
	a := &aging{
		unit:  gap * time.Duration(max(1, int(young(p.Write.Seconds(), time.Hour.Seconds())/gap.Seconds()/unitsPerYoung))),
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

// observe takes in a run that is over; cut says that only its recording is.
func (a *aging) observe(zone int, length time.Duration, cut bool) {
	units := int((length + a.unit - 1) / a.unit)
	for _, e := range []ends{a.all, a.zones[zone]} {
		for b, first := range a.m.first {
			if first >= units {
				break
			}
			last := units
			if b+1 < len(a.m.first) {
				last = min(last, a.m.first[b+1])
			}
			e.exposed[b] += float64(last - first)
		}
		if !cut {
			e.counted[a.m.bucket(units-1)]++
		}
	}
}

// drawn is a hazard drawn from base to what was counted: first as a whole, then bucket
// by bucket.
func (e ends) drawn(base []float64) []float64 {
	total, due := scaleWeight, scaleWeight
	for b := range base {
		total += e.counted[b]
		due += e.exposed[b] * base[b]
	}
	out := make([]float64, len(base))
	for b := range base {
		out[b] = (e.counted[b] + agedWeight) / (e.exposed[b] + agedWeight/(total/due*base[b]))
	}
	return out
}

// plan finds when to save so that most is expected to be kept of a run, by the hazards
// of all zones, and of one of them where it is one.
func (a *aging) plan(zone int) saving {
	hazard := a.all.drawn(a.base)
	if zone >= 0 {
		hazard = a.zones[zone].drawn(hazard)
	}
	lasts := make([]float64, 0, horizon+longestInterval) // the share of runs of an age that outlast one unit more
	for age, b := 0, 0; age < cap(lasts); age++ {
		if b+1 < len(hazard) && a.m.first[b+1] <= age {
			b++
		}
		lasts = append(lasts, math.Exp(-hazard[b]))
	}
	unit := a.unit.Seconds()
	s := saving{next: make([]int, horizon)}
	value := make([]float64, len(lasts))
	// From the horizon on the hazard stays as it is: a renewal at every checkpoint.
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

// after is how many units the next checkpoint ends after one that ended at an age.
func (s saving) after(age int) int {
	return s.next[min(age, len(s.next)-1)]
}

// kept is the seconds of work that a plan keeps of a run.
func (a *aging) kept(s saving, length time.Duration) float64 {
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

// replayRuns calls each with what is kept of every run, by a plan learned from the runs
// that ended before it started. In the end all are learned from.
func replayRuns(a *aging, runs []upRun, gap time.Duration, each func(kept float64)) {
	byEnd := slices.SortedStableFunc(slices.Values(runs), func(a, b upRun) int { return cmp.Compare(a.end, b.end) })
	seen := 0
	for _, r := range runs {
		for ; byEnd[seen].end <= r.start; seen++ {
			a.observe(byEnd[seen].zone, byEnd[seen].length(gap), byEnd[seen].cut)
		}
		each(a.kept(a.plan(r.zone), r.length(gap)))
	}
	for _, r := range byEnd[seen:] {
		a.observe(r.zone, r.length(gap), r.cut)
	}
}

// adaptive is the rule curfew.
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
