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

// The rules of a checkpoint's interval.
const (
	Young     = "young"
	Daly      = "daly"
	BestFixed = "best-fixed"
)

// CheckpointParams is what saving and starting again take. Both must be over 0.
type CheckpointParams struct {
	Write, Restart time.Duration
}

// CheckpointReport is what each rule keeps, in the shape of its JSON.
type CheckpointReport struct {
	Schema string `json:"schema"`
	// Runs is how many there are, MeanRunSeconds how long they last on average.
	Runs           int                `json:"runs"`
	MeanRunSeconds float64            `json:"mean_run_s"`
	Results        []CheckpointResult `json:"results"`
	// Prior is what curfew starts from.
	Prior string `json:"prior"`
	// Assumptions are what the figures take for granted.
	Assumptions []string `json:"assumptions"`
	// CoverageNotes are what the data does not cover.
	CoverageNotes []string `json:"coverage_notes"`
	// Changes are what would change the answer.
	Changes []string `json:"changes"`

	// Curve is the share that fixed intervals keep, shortest first.
	Curve []CurvePoint `json:"-"`

	// ceiling is what one write in time before every end would keep.
	ceiling float64
}

// CheckpointResult is one rule.
type CheckpointResult struct {
	// Name is the strategy.
	Name string `json:"name"`
	// Interval is seconds of work between two checkpoints; of curfew the first of a run
	// as it would be now.
	Interval float64 `json:"interval"`
	// Kept is the share, 0 to 1, of paid time that ends as saved work.
	Kept float64 `json:"kept"`
	// ByAge is how the interval grows with the age of a run, of curfew as learned from
	// the whole trace.
	ByAge []AgedInterval `json:"by_age,omitempty"`
}

// AgedInterval is the interval from an age of the run on, both in seconds.
type AgedInterval struct {
	// Age is the age of the run in seconds.
	Age float64 `json:"age"`
	// Interval is the interval in seconds.
	Interval float64 `json:"interval"`
}

// CurvePoint is the share of paid time, 0 to 1, that a fixed interval keeps.
type CurvePoint struct {
	Interval time.Duration
	Kept     float64
}

// upRun is a time without interruption. Its samples are those of the clock of the trace.
type upRun struct {
	zone, start, end int
	// cut says that the trace ended before the run.
	cut bool
}

func (u upRun) length(gap time.Duration) time.Duration { return time.Duration(u.end-u.start) * gap }

// runs are those of all zones, by when they start.
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

// Checkpoint replays the runs of a trace, each zone a machine of its own, under each
// rule. A run pays the restart once; then whole intervals of work and write are kept,
// and the rest of it is lost.
func Checkpoint(tr Trace, p CheckpointParams) (CheckpointReport, error) {
	if err := tr.check(); err != nil {
		return CheckpointReport{}, fmt.Errorf("plan checkpoint: %w", err)
	}
	const longest = 365 * 24 * time.Hour
	if p.Write <= 0 || p.Restart < 0 || p.Write > longest || p.Restart > longest {
		return CheckpointReport{}, fmt.Errorf(
			"plan checkpoint: write %s, restart %s: expected a write over 0 and a restart of 0 or more", p.Write, p.Restart)
	}
	runs := tr.runs()
	if len(runs) == 0 {
		return CheckpointReport{}, errors.New("plan checkpoint: spot is never available in the trace")
	}
	lengths := map[time.Duration]int64{} // how many runs last that long
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
		{Young, seconds(young(p.Write.Seconds(), mean))},
		{Daly, seconds(daly(p.Write.Seconds(), mean))},
		{BestFixed, bestFixed(lengths, p)},
	} {
		r.Results = append(r.Results, CheckpointResult{
			Name: rule.name, Interval: rule.interval.Seconds(), Kept: fixed(lengths, rule.interval, p) / total,
		})
	}
	r.Results = append(r.Results, adaptive(tr, runs, p, total))
	r.Curve = curve(lengths, total, p)
	for _, u := range runs {
		r.ceiling += max(0, u.length(tr.Gap)-p.Restart-p.Write).Seconds() / total
	}
	r.explain(tr, runs)
	return r, nil
}

func seconds(s float64) time.Duration { return time.Duration(max(s, 1e-9) * float64(time.Second)) }

// young is √(2·C·M) for writing C and a mean M between interruptions (Young, A First
// Order Approximation to the Optimum Checkpoint Interval, CACM 1974).
func young(write, mean float64) float64 { return math.Sqrt(2 * write * mean) }

// daly is the higher order estimate (Daly, A Higher Order Estimate of the Optimum
// Checkpoint Interval for Restart Dumps, FGCS 2006): from C = 2·M on it is M.
func daly(write, mean float64) float64 {
	if write >= 2*mean {
		return mean
	}
	x := write / (2 * mean)
	return young(write, mean)*(1+math.Sqrt(x)/3+x/9) - write
}

// fixed is the seconds of work that one interval keeps.
func fixed(lengths map[time.Duration]int64, interval time.Duration, p CheckpointParams) float64 {
	n := int64(0)
	for l, runs := range lengths {
		if l > p.Restart {
			n += runs * int64((l-p.Restart)/(interval+p.Write))
		}
	}
	return float64(n) * interval.Seconds()
}

// bestFixed is the interval that keeps most in hindsight. What is kept grows with the
// interval until one run more has one whole interval less, so that the best is
// (length − restart) / k − write of some run, for a whole k; intervals under half a
// write, which keep less than a third of the time, are passed over.
func bestFixed(lengths map[time.Duration]int64, p CheckpointParams) time.Duration {
	best, most := time.Duration(0), -1.0
	seen := map[time.Duration]bool{}
	try := func(interval time.Duration) {
		if seen[interval] {
			return
		}
		seen[interval] = true
		if k := fixed(lengths, interval, p); k > most || k == most && interval > best {
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

// curve is what intervals from half a write to the longest run keep, for the picture.
func curve(lengths map[time.Duration]int64, total float64, p CheckpointParams) []CurvePoint {
	const points = 160
	low, high := p.Write.Seconds()/2, max(slices.Max(slices.Collect(maps.Keys(lengths))).Seconds(), p.Write.Seconds())
	var out []CurvePoint
	for i := range points + 1 {
		interval := seconds(low * math.Pow(high/low, float64(i)/points))
		out = append(out, CurvePoint{interval, fixed(lengths, interval, p) / total})
	}
	return out
}
