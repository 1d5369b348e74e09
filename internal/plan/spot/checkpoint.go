package spot

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Rules for the checkpoint interval.
const (
	Young     = "young"
	Daly      = "daly"
	BestFixed = "best-fixed"
)

// CheckpointParams are the times to save and to restart. Both must be positive.
type CheckpointParams struct {
	Write, Restart time.Duration
}

// CheckpointReport is the result of each rule in JSON form.
type CheckpointReport struct {
	Schema string `json:"schema"`
	// Runs counts the runs, MeanRunSeconds is their mean length.
	Runs           int                `json:"runs"`
	MeanRunSeconds float64            `json:"mean_run_s"`
	Results        []CheckpointResult `json:"results"`
	// Prior is the hazard prior of curfew's rule.
	Prior string `json:"prior"`
	// Assumptions of the results.
	Assumptions []string `json:"assumptions"`
	// CoverageNotes describe what the data does not cover.
	CoverageNotes []string `json:"coverage_notes"`
	// Changes describe what would change the result.
	Changes []string `json:"changes"`

	// Curve is the share kept by fixed intervals, shortest first.
	Curve []CurvePoint `json:"-"`

	// ceiling is the share kept by one write just before every end.
	ceiling float64
}

// CheckpointResult is the result of one rule.
type CheckpointResult struct {
	// Name is the name of the rule.
	Name string `json:"name"`
	// Interval is the work in seconds between checkpoints; for curfew the first interval of a run
	// today.
	Interval float64 `json:"interval"`
	// Kept is the share of paid time, 0 to 1, that becomes saved work.
	Kept float64 `json:"kept"`
	// ByAge is curfew's interval by run age, as learned from the whole trace.
	ByAge []AgedInterval `json:"by_age,omitempty"`
}

// AgedInterval is the interval from an age of the run on, both in seconds.
type AgedInterval struct {
	// Age is the age of the run in seconds.
	Age float64 `json:"age"`
	// Interval is the interval in seconds.
	Interval float64 `json:"interval"`
}

// CurvePoint is the share of paid time, 0 to 1, kept by a fixed interval.
type CurvePoint struct {
	Interval time.Duration
	Kept     float64
}

// upRun is a time without interruption, in samples of the trace.
type upRun struct {
	zone, start, end int
	// truncated reports that the trace ended before the run.
	truncated bool
}

func (u upRun) length(gap time.Duration) time.Duration { return time.Duration(u.end-u.start) * gap }

// runs returns the runs of all zones by start.
func (tr Trace) runs() []upRun {
	var out []upRun
	for z, zone := range tr.Zones {
		start := -1
		for i, up := range zone.Up {
			if up && start < 0 {
				start = i
			}
			last := i+1 == len(zone.Up)
			if start >= 0 && (!up || last) {
				end := i
				if up {
					end++
				}
				out = append(out, upRun{z, zone.First + start, zone.First + end, up})
				start = -1
			}
		}
	}
	slices.SortStableFunc(out, func(a, b upRun) int { return cmp.Compare(a.start, b.start) })
	return out
}

// Checkpoint replays the runs of a trace under each rule, each zone as one machine. A run pays the
// restart once; whole intervals of work and write are kept, and the rest is lost.
func Checkpoint(tr Trace, p CheckpointParams) (CheckpointReport, error) {
	if err := tr.check(); err != nil {
		return CheckpointReport{}, fmt.Errorf("plan checkpoint: %w", err)
	}
	const longest = 365 * 24 * time.Hour
	if p.Write <= 0 || p.Restart < 0 || p.Write > longest || p.Restart > longest {
		return CheckpointReport{}, fmt.Errorf(
			"plan checkpoint: write %s, restart %s: expected a write over 0 and a restart of 0 or more", p.Write,
			p.Restart)
	}
	runs := tr.runs()
	if len(runs) == 0 {
		return CheckpointReport{}, errors.New("plan checkpoint: spot is never available in the trace")
	}
	lengths := map[time.Duration]int64{} // number of runs by length
	total := 0.0
	for _, r := range runs {
		lengths[r.length(tr.Gap)]++
		total += r.length(tr.Gap).Seconds()
	}
	mean := total / float64(len(runs))
	r := CheckpointReport{Schema: CheckpointSchema, Runs: len(runs), MeanRunSeconds: mean}
	for _, rule := range []struct {
		name     string
		interval time.Duration
	}{
		{Young, seconds(youngInterval(p.Write.Seconds(), mean))},
		{Daly, seconds(dalyInterval(p.Write.Seconds(), mean))},
		{BestFixed, bestFixedInterval(lengths, p)},
	} {
		r.Results = append(r.Results, CheckpointResult{
			Name: rule.name, Interval: rule.interval.Seconds(), Kept: fixedKept(lengths, rule.interval, p) / total,
		})
	}
	r.Results = append(r.Results, adaptive(tr, runs, p, total))
	r.Curve = keptCurve(lengths, total, p)
	for _, u := range runs {
		r.ceiling += max(0, u.length(tr.Gap)-p.Restart-p.Write).Seconds() / total
	}
	r.explain(tr, runs)
	return r, nil
}

func seconds(s float64) time.Duration { return time.Duration(max(s, 1e-9) * float64(time.Second)) }

// youngInterval returns √(2·C·M) for write time C and mean time M between interruptions (Young, A
// First Order Approximation to the Optimum Checkpoint Interval, CACM 1974).
func youngInterval(write, mean float64) float64 { return math.Sqrt(2 * write * mean) }

// dalyInterval returns the higher-order estimate (Daly, A Higher Order Estimate of the Optimum
// Checkpoint Interval for Restart Dumps, FGCS 2006), which is M for C ≥ 2·M.
func dalyInterval(write, mean float64) float64 {
	if write >= 2*mean {
		return mean
	}
	x := write / (2 * mean)
	return youngInterval(write, mean)*(1+math.Sqrt(x)/3+x/9) - write
}

// fixedKept returns the seconds of work kept by one interval.
func fixedKept(lengths map[time.Duration]int64, interval time.Duration, p CheckpointParams) float64 {
	n := int64(0)
	for l, runs := range lengths {
		if l > p.Restart {
			n += runs * int64((l-p.Restart)/(interval+p.Write))
		}
	}
	return float64(n) * interval.Seconds()
}

// bestFixedInterval returns the best interval in hindsight. The kept work grows with the interval
// until one more run loses a whole interval, so the best is (length − restart) / k − write for some
// run and whole k. Intervals under half a write keep less than a third of the time and are skipped.
func bestFixedInterval(lengths map[time.Duration]int64, p CheckpointParams) time.Duration {
	best, most := time.Duration(0), -1.0
	seen := map[time.Duration]bool{}
	try := func(interval time.Duration) {
		if seen[interval] {
			return
		}
		seen[interval] = true
		if k := fixedKept(lengths, interval, p); k > most || k == most && interval > best {
			best, most = interval, k
		}
	}
	try(max(p.Write/2, 1))
	for l := range lengths {
		for k := time.Duration(1); (l-p.Restart)/k >= p.Write+max(p.Write/2, 1); k++ {
			try((l-p.Restart)/k - p.Write)
		}
	}
	return best
}

// keptCurve returns the work kept by intervals from half a write to the longest run.
func keptCurve(lengths map[time.Duration]int64, total float64, p CheckpointParams) []CurvePoint {
	const points = 160
	low, high := p.Write.Seconds()/2, max(slices.Max(slices.Collect(maps.Keys(lengths))).Seconds(), p.Write.Seconds())
	var out []CurvePoint
	for i := range points + 1 {
		interval := seconds(low * math.Pow(high/low, float64(i)/points))
		out = append(out, CurvePoint{interval, fixedKept(lengths, interval, p) / total})
	}
	return out
}
