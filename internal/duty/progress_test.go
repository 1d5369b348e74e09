package duty

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// countsUntil returns a counter that rises every so many minutes until it stops.
func countsUntil(every, stop int) func(int) float64 {
	return func(i int) float64 { return float64(100 + min(i, stop)/every) }
}

// stalledFixtures are machines of two GPUs.
func stalledFixtures() []nowFixture {
	training := func() *machine { return minutes(240).gpus(2, 97, 60) }
	return []nowFixture{
		{
			name: "a frozen step counter with busy GPUs",
			m:    training().series("", usage.Step, countsUntil(1, 120)), want: Stalled,
			why: "it computes, and no step for 2h", lasting: 2 * time.Hour,
		},
		{name: "but: steps go on", m: training().series("", usage.Step, countsUntil(1, 1000)), want: Busy},
		{name: "but: steps are slow", m: training().series("", usage.Step, countsUntil(25, 1000)), want: Busy},
		{name: "but: it froze 20 minutes ago", m: training().series("", usage.Step, countsUntil(1, 220)), want: Busy},
		{
			name: "but: 20 minutes are too long here", m: training().series("", usage.Step, countsUntil(1, 220)),
			t: Thresholds{StalledAfter: 15 * time.Minute}, want: Stalled, lasting: 20 * time.Minute,
		},
		{name: "but: no steps are counted", m: training(), want: Busy},
		{
			name: "but: the GPUs rest as well",
			m:    minutes(240).gpus(2, 0, 60).series("", usage.Step, countsUntil(1, 120)),
			want: Held,
		},
		{
			name: "but: the counter is of a run that ended, and another one computes for 10 minutes",
			m: minutes(240).gpu("1", 0, 0).flat("0", usage.MemUsed, 60*gib).flat("0", usage.MemTotal, 80*gib).
				series("0", usage.GPUUtil, changeAt(230, 0, 97)).series("", usage.Step,
				countsUntil(1, 120)), want: Busy},
		{
			name: "but: the step is unknown by now", m: training().series("", usage.Step, changeAt(200, 100, -1)),
			want: Busy,
		},
		{
			name: "but: the counter has a gap 10 minutes ago",
			m:    training().series("", usage.Step, exceptAt(230, 100, -1)),
			want: Busy,
		},
		{
			name: "but: a restart from 0, and steps go on",
			m:    training().series("", usage.Step, func(i int) float64 { return float64(max(0, i-150)) }), want: Busy,
		},
		{
			name: "a restart from 0 without a step",
			m: training().series("", usage.Step, func(i int) float64 {
				return float64(min(i, 120) * min(1, max(0, 180-i)))
			}),
			want: Stalled, lasting: 2 * time.Hour,
		},
		{
			name: "but: the counter has holes",
			m:    sparse(time.Minute, 45*time.Second).gpus(2, 97, 60).flat("", usage.Step, 7), want: Busy,
		},
		{name: "it never takes a step", m: training().flat("", usage.Step, 0), want: Stalled, lasting: 4 * time.Hour},
		{
			name: "one of two GPUs does not pause",
			m: minutes(240).gpu("0", 97, 60).series("1", usage.GPUUtil, exceptAt(230, 97, 0)).series("", usage.Step,
				countsUntil(1, 120)),
			want: Stalled, lasting: 2 * time.Hour,
		},

		{
			name: "checkpoints that stopped",
			m:    training().series("", usage.Checkpoints, countsUntil(10, 120)), want: Stalled,
			why: "no checkpoint for 2h", lasting: 2 * time.Hour,
		},
		{
			name: "but: they are always this far apart",
			m:    training().series("", usage.Checkpoints, countsUntil(60, 120)),
			want: Busy,
		},
		{
			name: "but: their distance is unknown", m: training().series("", usage.Checkpoints, changeAt(20, 0, 1)),
			want: Busy,
		},
		{
			name: "but: steps go on",
			m: training().series("", usage.Checkpoints, countsUntil(10, 120)).series("", usage.Step,
				countsUntil(1, 1000)), want: Busy,
		},
		{
			name: "steps stand still, but checkpoints come",
			m: training().series("", usage.Checkpoints, countsUntil(10, 1000)).series("", usage.Step,
				countsUntil(1, 120)), want: Busy,
		},
		{
			name: "both stopped",
			m: training().series("", usage.Checkpoints, countsUntil(10, 60)).series("",
				usage.Step, countsUntil(1, 120)),
			want: Stalled,
			why:  "no step for 2h", lasting: 2 * time.Hour,
		},
		{
			name: "the time of the newest checkpoint",
			m: training().series("", usage.Checkpoints, func(i int) float64 {
				return 1.7e9 + 600*float64(min(i, 120)/10)
			}),
			want: Stalled, lasting: 2 * time.Hour,
		},
	}
}

func TestStalled(t *testing.T) {
	for _, tc := range stalledFixtures() {
		t.Run(tc.name, func(t *testing.T) {
			for name, got := range map[string]Verdict{
				"Now": tc.m.verdict(t, 2, now, tc.t), "Judge": Judge(tc.m.w, 2, now, withWindow(tc.t)),
			} {
				if name == "Judge" && tc.want == Held {
					continue // an audit looks at hours of work before as well
				}
				if got.State != tc.want || !strings.Contains(got.Why, tc.why) {
					t.Errorf("%s: got %s because %q, want %s because %q", name, got.State, got.Why, tc.want, tc.why)
				}
				if tc.lasting != 0 && got.Duration != tc.lasting {
					t.Errorf("%s: it lasts %s, want %s", name, got.Duration, tc.lasting)
				}
				if name == "Now" {
					consistent(t, got, tc.m.w)
				}
			}
		})
	}
}

// withWindow lets an audit judge a window of hours.
func withWindow(t Thresholds) Thresholds {
	t.MinWindow = time.Hour
	return t
}

func TestEvidenceListsProgress(t *testing.T) {
	m := minutes(240).gpus(1, 97, 60).series("", usage.Step, countsUntil(1, 120)).series("", usage.Checkpoints,
		countsUntil(10, 120))
	for name, v := range map[string]Verdict{
		"Now": m.verdict(t, 1, now, Thresholds{}), "Judge": Judge(m.w, 1, now, Thresholds{}),
	} {
		want := map[string]string{"training_step": "220", "checkpoints": "112"}
		for _, e := range v.Evidence {
			value, ok := want[e.Signal]
			if !ok {
				continue
			}
			if delete(want, e.Signal); e.Value != value || e.Window != 2*time.Hour ||
				e.Coverage != 1 || e.Source != "agent" {
				t.Errorf("%s: evidence is %+v, want the value %s standing still for 2h", name, e, value)
			}
		}
		if len(want) > 0 {
			t.Errorf("%s: no evidence of %v", name, want)
		}
	}
}

// TestJudgeMatchesExplainForSharedStates compares the states that audits share with the present
// with their look-alikes.
func TestJudgeMatchesExplainForSharedStates(t *testing.T) {
	for _, tc := range []struct {
		name string
		m    *machine
		want State
		why  string
	}{
		{
			"held while data streams all the time", days(14).gpus(1, 0, 60).host(1, 40e6*86400/1e6), Starved,
			"40 MB/s cross its network",
		},
		{
			"held, and data came in until yesterday",
			days(14).gpus(1, 0, 60).flat("", usage.CPUUtil, 1).series("", usage.NetBytes,
				changeAt(312, 40e6*3600, 0)), Held, "",
		},
		{
			"held, and data comes in only now",
			days(14).gpus(1, 0, 60).flat("", usage.CPUUtil, 1).series("", usage.NetBytes,
				changeAt(335, 0, 40e6*3600)), Held, "",
		},
		{
			"data streams and nothing is held", days(14).gpus(1, 0, 0).host(1, 40e6*86400/1e6), Busy,
			"cross its network",
		},
		{"a kernel that executes", days(14).gpus(1, 0, 0).host(1, 1).flat("", usage.Kernels, 1), Held, "session"},
		{"kernels that rest", days(14).gpus(1, 0, 0).host(1, 1).flat("", usage.Kernels, 0), Idle, ""},
		{"launched ten minutes ago", hours(1).launched(10 * time.Minute), Warming, "launched 10m ago"},
		{"launched an hour ago", hours(1).launched(time.Hour), Unknown, ""},
		{
			"two parts of one GPU of two",
			days(14).flat("0:1", usage.SMActive, 0).flat("0:1", usage.Processes, 0).flat("0:2",
				usage.SMActive, 0).flat("0:2",
				usage.Processes, 0),
			Unknown, "1 of 2 GPUs",
		},
	} {
		gpus := 1
		if len(tc.m.w.GPUs) == 2 {
			gpus = 2
		}
		v := Judge(tc.m.w, gpus, now, DefaultThresholds())
		if v.State != tc.want || !strings.Contains(v.Why, tc.why) {
			t.Errorf("%s: got %s because %q, want %s because %q", tc.name, v.State, v.Why, tc.want, tc.why)
		}
		if !v.Since.IsZero() || !v.Until.IsZero() || !v.Expires.IsZero() {
			t.Errorf("%s: an audit says since %s until %s, expires %s", tc.name, v.Since, v.Until, v.Expires)
		}
	}
}
