package duty

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// TestExpiresWithOldestSignal checks that a state holds until the first signal that it rests on is
// three steps old.
func TestExpiresWithOldestSignal(t *testing.T) {
	at := func(minute int) time.Time { return now.Add(time.Duration(minute-60) * time.Minute) }
	for _, tc := range []struct {
		name  string
		m     *machine
		gpus  int
		want  State
		until int // the minute of the newest sample of what expires first
	}{
		{"a GPU at work", minutes(60).series("0", usage.GPUUtil, changeAt(59, 50, -1)), 1, Busy, 58},
		{
			"the last of two at work",
			minutes(60).series("0", usage.GPUUtil, changeAt(58, 50, -1)).flat("1", usage.GPUUtil, 50),
			2, Busy, 59,
		},
		{
			"100% that only a process confirms",
			minutes(60).flat("0", usage.GPUUtil, 100).series("0", usage.Processes, changeAt(58, 1, -1)), 1, Busy, 57,
		},
		{
			"the first of two at rest",
			minutes(60).series("0", usage.GPUUtil, changeAt(58, 0, -1)).flat("1", usage.GPUUtil, 0),
			2, Held, 57,
		},
		{
			"the second of two at rest",
			minutes(60).series("1", usage.GPUUtil, changeAt(58, 0, -1)).flat("0", usage.GPUUtil, 0),
			2, Held, 57,
		},
		{
			"held by a process", minutes(60).flat("0", usage.GPUUtil, 0).series("0",
				usage.Processes, changeAt(58, 1, -1)), 1,
			Held, 57,
		},
		{
			"held memory",
			minutes(60).flat("0", usage.GPUUtil, 0).flat("0", usage.MemTotal, 80*gib).series("0", usage.MemUsed,
				changeAt(58, 60*gib, -1)),
			1, Held, 57,
		},
		{
			"memory given back",
			minutes(60).flat("0", usage.GPUUtil, 0).flat("0", usage.MemTotal, 80*gib).series("0", usage.MemUsed,
				changeAt(58, 0, -1)),
			1, Idle, 57,
		},
		{"a session", minutes(60).gpu("0", 0, 0).series("", usage.Sessions, changeAt(58, 1, -1)), 1, Held, 57},
		{"no session", minutes(60).gpu("0", 0, 0).series("", usage.Sessions, changeAt(58, 0, -1)), 1, Idle, 57},
		{"held with a quiet network", minutes(60).gpu("0", 0, 60).net(changeAt(58, 1e3, -1)), 1, Held, 57},
		{"starved by a network", minutes(60).gpu("0", 0, 60).net(changeAt(58, 40e6, -1)), 1, Starved, 57},
		{"a download", minutes(60).gpu("0", 0, 0).net(changeAt(58, 40e6, -1)), 1, Busy, 57},
		{
			"a download before a GPU at rest",
			minutes(60).series("0", usage.GPUUtil, changeAt(58, 0, -1)).net(steady(40e6)), 1,
			Busy, 57,
		},
		{"a CPU at work", minutes(60).series("", usage.CPUUtil, changeAt(58, 60, -1)), 0, Busy, 57},
		{
			"a download to a CPU machine",
			minutes(60).series("", usage.CPUUtil, changeAt(50, 1, -1)).net(changeAt(58, 40e6, -1)),
			0, Busy, 57,
		},
		{
			"stalled by an older counter", minutes(60).gpu("0", 90, 60).series("", usage.Step,
				changeAt(58, 7, -1)), 1, Stalled,
			57,
		},
		{
			"stalled on an older meter",
			minutes(60).series("0", usage.GPUUtil, changeAt(58, 90, -1)).flat("", usage.Step, 7), 1,
			Stalled, 57,
		},
	} {
		v := tc.m.verdict(t, tc.gpus, now, Thresholds{})
		if want := at(tc.until).Add(3 * time.Minute); v.State != tc.want || !v.Expires.Equal(want) {
			t.Errorf("%s: %s (%s) expires at %s, want %s at %s", tc.name, v.State, v.Why, v.Expires, tc.want, want)
		}
		consistent(t, v, tc.m.w)
	}
}

// sparse returns a window of points that are further apart than their step.
func sparse(apart, step time.Duration) *machine {
	const n = 60
	return &machine{w: usage.NewWindow(now.Add(-n*apart), now, step, "agent", nil), points: n, apart: apart}
}

// holes adds points of a signal of the machine at rest that are further apart than
// the others.
func (m *machine) holes(s usage.Signal, apart time.Duration) *machine {
	for at := m.w.From; at.Before(m.w.To); at = at.Add(apart) {
		m.add("", s, usage.Point{Time: at})
	}
	return m
}

func TestSparseSamplesAreUnknown(t *testing.T) {
	m := sparse(10*time.Second, 10*time.Second).gpu("0", 0, 0).flat("1", usage.Processes, 0)
	for at := m.w.From; at.Before(m.w.To); at = at.Add(14 * time.Second) {
		m.add("1", usage.GPUUtil, usage.Point{Time: at})
	}
	v := m.verdict(t, 2, now, Thresholds{})
	if len(v.GPUs) != 2 || v.GPUs[0].State != Idle || v.GPUs[1].State != Unknown || v.State != Unknown {
		t.Errorf("got %s of %+v, want unknown because of the second", v.State, v.GPUs)
	}
}

type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// consistent holds a verdict of Now to what its fields promise.
func consistent(t failer, v Verdict, w *usage.Window) {
	t.Helper()
	lasts := v.State == Idle || v.State == Held || v.State == Starved || v.State == Stalled
	switch {
	case v.State == Unknown && (v.Duration != 0 || !v.Since.IsZero() || !v.Until.IsZero() || !v.Expires.IsZero()):
		t.Errorf("unknown lasts %s from %s to %s, expires %s", v.Duration, v.Since, v.Until, v.Expires)
	case v.State != Unknown && (v.Until.IsZero() || v.Expires.Before(now)):
		t.Errorf("%s is known until %s and expires at %s, before now", v.State, v.Until, v.Expires)
	case lasts && v.Duration != max(0, min(now.Sub(v.Since), v.Until.Sub(v.Since))):
		t.Errorf("it lasts %s, from %s to %s", v.Duration, v.Since, v.Until)
	case lasts && v.Coverage < DefaultThresholds().MinCoverage:
		t.Errorf("%s with a coverage of %v", v.State, v.Coverage)
	case !lasts && (v.Duration != 0 || !v.Since.IsZero()):
		t.Errorf("%s lasts %s since %s", v.State, v.Duration, v.Since)
	case v.Coverage < 0 || v.Coverage > 1 || v.Why == "":
		t.Errorf("coverage is %v, why is %q", v.Coverage, v.Why)
	case w != nil && lasts && v.Since.Before(w.From):
		t.Errorf("it lasts since %s, before the window", v.Since)
	case w != nil && len(v.Evidence) == 0:
		t.Errorf("%s without evidence", v.State)
	}
}
