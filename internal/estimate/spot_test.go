package estimate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/spot"
)

func TestNegativeBinomial(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		successes, fail, share float64
		most, want             int
	}{
		{"never fails", 10, 0, 0.95, 20, 0},
		{"one part, even odds, half the cases", 1, 0.5, 0.5, 20, 0},
		{"one part, even odds, p95", 1, 0.5, 0.95, 20, 4}, // 1 − 2^-(k+1) ≥ 0.95
		{"two parts", 2, 0.5, 0.6, 20, 2},                 // 1/4 + 1/4 + 3/16
		{"given up", 1, 0.999, 0.95, 7, 7},
		{"hopeless", 1000, 0.999999, 0.95, 20, 20},
	} {
		if got := negativeBinomial(tc.successes, tc.fail, tc.share, tc.most); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestInterruptedWorkMatchesSimulation plays the work out, machine by machine, and holds that about
// half of the cases are done in the predicted p50, and about 95% in the predicted p95.
func TestInterruptedWorkMatchesSimulation(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    interruptedWork
		work time.Duration
	}{
		{
			"saved often", interruptedWork{
				perHour: 0.33, saveInterval: 10 * time.Minute, restart: 10 * time.Minute, retries: 1000,
			},
			12 * time.Hour,
		},
		{
			"saved seldom", interruptedWork{
				perHour: 0.33, saveInterval: 2 * time.Hour, restart: 5 * time.Minute, retries: 1000,
			},
			24 * time.Hour,
		},
		{"never saved", interruptedWork{perHour: 0.1, restart: 5 * time.Minute, retries: 1000}, 6 * time.Hour},
	} {
		p50, p95, n50, n95 := tc.o.duration(work{p50: tc.work, p95: tc.work})
		if p50 < tc.work || p95 < p50 || n95 < n50 {
			t.Errorf("%s: %s and %s, %d and %d restarts", tc.name, p50, p95, n50, n95)
		}
		chance := rand.New(rand.NewPCG(1, 2))
		const cases = 4000
		within50, within95, few := 0, 0, 0
		for range cases {
			took, restarts := play(tc.o, tc.work, chance)
			if took <= p50 {
				within50++
			}
			if took <= p95 {
				within95++
			}
			if restarts <= n95 {
				few++
			}
		}
		// A part's loss is taken at its mean in the one case and whole in the other.
		if within50 < cases*40/100 || within50 > cases*80/100 || within95 < cases*94/100 || few < cases*94/100 {
			t.Errorf("%s: %d%% are done within the p50, %d%% within the p95, %d%% with so few restarts", tc.name,
				100*within50/cases, 100*within95/cases, 100*few/cases)
		}
	}
}

// play does the work once.
func play(o interruptedWork, length time.Duration, chance *rand.Rand) (took time.Duration, restarts int) {
	for done := time.Duration(0); done < length; {
		part := min(length-done, max(o.saveInterval, time.Duration(0)))
		if o.saveInterval == 0 {
			part = length
		}
		lasts := time.Duration(chance.ExpFloat64() / o.perHour * float64(time.Hour))
		if lasts >= part {
			done, took = done+part, took+part
		} else {
			restarts, took = restarts+1, took+lasts+o.restart
		}
	}
	return took, restarts
}

// TestUnsavedSpotWorkCostsMore checks that unsaved work on spot machines costs more than saved.
func TestUnsavedSpotWorkCostsMore(t *testing.T) {
	b := testBook(t)
	saved, err := New(parse(t, p4d+"capacity: spot\nduration: 10h\ncheckpoint: {dir: /c, to: s3://b/c}\n"), b,
		Params{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	lost, err := New(parse(t, p4d+"capacity: spot\nduration: 10h\n"), b, Params{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	many, err := New(parse(t, "resources: {instance_type: p4d.24xlarge, nodes: 8}\nregions: us-east-1\ncapacity: "+
		"spot\nduration: 10h\ncheckpoint: {dir: /c, to: s3://b/c}\n"), b, Params{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if saved.P95 >= lost.P95 || saved.P50 > lost.P50 {
		t.Errorf("saved %s and %s, not saved %s and %s", saved.P50, saved.P95, lost.P50, lost.P95)
	}
	if many.Duration.RestartsP50 <= 4*saved.Duration.RestartsP50 {
		t.Errorf("one machine is taken away %d times, one of eight %d times", saved.Duration.RestartsP50,
			many.Duration.RestartsP50)
	}
	for _, e := range []*Estimate{saved, lost} {
		if e.Duration.limit > 0 {
			t.Error("nothing ends it")
		}
	}
}

// TestLearnsInterruptions: past runs of the name come first, then all past runs; a stated rate
// stays.
func TestLearnsInterruptions(t *testing.T) {
	run := func(name string, hours time.Duration, taken int) Run {
		return Run{
			Name: name, Finished: now.Add(-time.Hour), Work: time.Hour, Machines: 2, SpotTime: hours * time.Hour,
			Interruptions: taken,
		}
	}
	s := parse(t, p4d+"capacity: spot\nduration: 10h\n")
	all := spot.Unmeasured()
	for _, tc := range []struct {
		name   string
		before spot.Interruptions
		runs   []Run
		want   spot.Interruptions
	}{
		{"nothing known", all, nil, all},
		{"of the name", all, []Run{run(s.Name, 200, 4), run("other", 50, 9)}, all.Learn(4, 400)},
		{"of others", all, []Run{run("other", 50, 9), run("third", 10, 0)}, all.Learn(9, 120)},
		{"stated", spot.Configured(0.5), []Run{run(s.Name, 200, 4)}, spot.Configured(0.5)},
	} {
		if got := interruptions(s, Params{
			Now: now, History: tc.runs, Defaults: Defaults{Interruptions: tc.before},
		}); got !=
			tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}
