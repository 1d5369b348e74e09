package spot

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var saves = CheckpointParams{Write: 2 * time.Minute, Restart: 3 * time.Minute}

// TestYoungAndDalyIntervals compares Young's and Daly's intervals with values worked out by hand.
func TestYoungAndDalyIntervals(t *testing.T) {
	for _, tc := range []struct{ write, mean, young, daly float64 }{
		{120, 6000, 1200, 1200 + 40 + 4.0/3 - 120}, // √(C/2M) is 0.1
		{2, 100, 20, 20 + 2.0/3 + 0.2/9 - 2},
		{200, 100, 200, 100}, // C = 2·M
	} {
		if got := youngInterval(tc.write, tc.mean); math.Abs(got-tc.young) > 1e-6*got {
			t.Errorf("Young: %g, want %g", got, tc.young)
		}
		if got := dalyInterval(tc.write, tc.mean); math.Abs(got-tc.daly) > 1e-6*got {
			t.Errorf("Daly: %g, want %g", got, tc.daly)
		}
	}
}

// TestKeptWork checks that a run of two hours pays a restart of three minutes; with half an hour
// between writes of two minutes three intervals are kept.
func TestKeptWork(t *testing.T) {
	lengths := map[time.Duration]int64{2 * time.Hour: 1}
	for _, tc := range []struct {
		interval, want time.Duration
	}{
		{30 * time.Minute, 90 * time.Minute},
		{115 * time.Minute, 115 * time.Minute},
		{116 * time.Minute, 0},
	} {
		if got := fixedKept(lengths, tc.interval, saves); got != tc.want.Seconds() {
			t.Errorf("%s keeps %g s, want %g s", tc.interval, got, tc.want.Seconds())
		}
	}
	if got := bestFixedInterval(lengths, saves); got != 115*time.Minute {
		t.Errorf("the best interval is %s, want 1h55m", got)
	}
	r, err := Checkpoint(Trace{Gap: gap, Zones: []Zone{zone("z", "############")}}, saves)
	if err != nil {
		t.Fatal(err)
	}
	if x := r.Results[2]; x.Name != BestFixed || math.Abs(x.Kept-115.0/120) > 1e-12 || x.Interval != 115*60 {
		t.Errorf("got %+v", x)
	}
}

// TestBestFixedInterval checks that no interval on a fine grid keeps more.
func TestBestFixedInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := map[time.Duration]int64{}
		for _, l := range rapid.SliceOfN(rapid.IntRange(1, 60), 1, 8).Draw(t, "lengths") {
			lengths[time.Duration(l)*gap]++
		}
		p := CheckpointParams{
			Write:   time.Duration(rapid.IntRange(10, 900).Draw(t, "write")) * time.Second,
			Restart: time.Duration(rapid.IntRange(0, 900).Draw(t, "restart")) * time.Second,
		}
		best := fixedKept(lengths, bestFixedInterval(lengths, p), p)
		for interval := p.Write / 2; interval < 11*time.Hour; interval += 7 * time.Second {
			if got := fixedKept(lengths, interval, p); got > best {
				t.Fatalf("%s keeps %g s, the best %g s", interval, got, best)
			}
		}
	})
}

// TestCheckpointIgnoresFuture: runs that end later change nothing that was kept before.
func TestCheckpointIgnoresFuture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t, 300)
		runs := tr.runs()
		if len(runs) < 4 {
			t.Skip("too few runs")
		}
		keep := func(runs []upRun) []float64 {
			var out []float64
			replayRuns(newAging(tr.Gap, len(tr.Zones), saves), runs, tr.Gap, func(kept float64) {
				out = append(out, kept)
			})
			return out
		}
		last := len(runs) - 1
		changed := slices.Clone(runs)
		changed[last].end += 40
		if got, want := keep(changed)[:last], keep(runs)[:last]; !slices.Equal(got, want) {
			t.Fatalf("a longer last run changes what is kept of the others from %v to %v", want, got)
		}
	})
}

// TestCheckpointLearns: where every run is as long as the last, a checkpoint just before
// its end is worth most, and never more is kept than one write at every end would.
func TestCheckpointLearns(t *testing.T) {
	tr := Trace{Gap: gap, Zones: []Zone{zone("z", strings.Repeat(strings.Repeat("#", 24)+"..", 300))}}
	r, err := Checkpoint(tr, saves)
	if err != nil {
		t.Fatal(err)
	}
	young, curfew := r.Results[0], r.Results[3]
	if curfew.Kept < young.Kept+0.02 || curfew.Kept > r.ceiling {
		t.Errorf("curfew keeps %g, Young %g, at most %g can be", curfew.Kept, young.Kept, r.ceiling)
	}
	if r.Prior == "" || !strings.Contains(strings.Join(r.Assumptions, "\n"), r.Prior) {
		t.Errorf("the prior is %q, and not named in %q", r.Prior, r.Assumptions)
	}
}

func TestCheckpointRejectsInvalidInput(t *testing.T) {
	up := Trace{Gap: gap, Zones: []Zone{zone("z", "##")}}
	for _, tc := range []struct {
		name string
		tr   Trace
		p    CheckpointParams
		want string
	}{
		{
			"no write", up, CheckpointParams{Restart: time.Minute},
			"plan checkpoint: write 0s, restart 1m0s: expected a write over 0 and a restart of 0 or more",
		},
		{
			"no run", Trace{Gap: gap, Zones: []Zone{zone("z", "..")}}, saves,
			"plan checkpoint: spot is never available in the trace",
		},
		{"no zone", Trace{Gap: gap}, saves, "plan checkpoint: the trace has no zone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Checkpoint(tc.tr, tc.p); err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}
