package fit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// serveShared lets requests of drawn work share one server, in steps of virtual time, and adds each
// to a Concurrency. A request does 1/(perRow·c + base) of its work in a second while c run.
func serveShared(e *Concurrency, perRow, base float64, work func() float64, rate float64, most int, r *rand.Rand) {
	type job struct {
		left, begun, area float64
		start             int
	}
	var jobs []job
	now, next := 0.0, 0.0
	for added := 0; added < 20_000; {
		c := float64(len(jobs))
		first, at := -1, next
		for i, j := range jobs {
			if end := now + j.left*(perRow*c+base); end < at || len(jobs) >= most && first < 0 {
				first, at = i, end
			}
		}
		for i := range jobs {
			jobs[i].left -= (at - now) / (perRow*c + base)
			jobs[i].area += (at - now) * c
		}
		now = at
		if first < 0 {
			jobs = append(jobs, job{work(), now, 0, len(jobs) + 1})
			next = now + r.ExpFloat64()/rate
			continue
		}
		j := jobs[first]
		jobs = append(jobs[:first], jobs[first+1:]...)
		e.Add(j.start, j.area/(now-j.begun), time.Duration((now-j.begun)*float64(time.Second)),
			time.Unix(0, 0).Add(time.Duration(now*float64(time.Second))))
		added++
	}
}

// TestFindsTheConcurrencyLaw: whatever the lengths of requests, the line is that of the server.
func TestFindsTheConcurrencyLaw(t *testing.T) {
	const perRow, base = 0.048, 1.74
	r := rand.New(rand.NewPCG(36, 1))
	for name, work := range map[string]func() float64{
		"equal":       func() float64 { return 1 },
		"exponential": r.ExpFloat64,
	} {
		e := &Concurrency{}
		for _, rate := range []float64{0.3, 2, 5, 8} {
			serveShared(e, perRow, base, work, rate, 40, r)
		}
		l, ok := e.Line()
		if !ok || l.Max < 16 || e.changes > 0 {
			t.Fatalf("%s: %+v, %v, %d changes", name, l, ok, e.changes)
		}
		for _, c := range []float64{float64(l.Min), 8, 16, float64(l.Max)} {
			got, want := l.PerRow*c+l.Base, perRow*c+base
			if math.Abs(got/want-1) > 0.1 {
				t.Errorf("%s: %.0f running take %.3f s, want %.3f s (%+v)", name, c, got, want, l)
			}
		}
		for _, level := range e.Levels(16) {
			if level.Batches == 0 || name != "equal" {
				continue
			}
			if want := perRow*level.Running + base; math.Abs(level.Time.Seconds()/want-1) > 0.15 {
				t.Errorf("%s: level %+v, want %.3f s", name, level, want)
			}
		}
	}
}

// TestBurstsAreOneLevel: requests that begin and end together show one number of running requests.
func TestBurstsAreOneLevel(t *testing.T) {
	e := &Concurrency{}
	for range 20 {
		for start := 1; start <= 8; start++ {
			e.Add(start, 8, 2*time.Second, time.Unix(0, 0))
		}
	}
	for _, l := range e.Levels(16) {
		if want := l.Low == 5; (l.Batches > 0) != want {
			t.Errorf("%d-%d: %d requests", l.Low, l.High, l.Batches)
		}
	}
	if l, ok := e.Line(); !ok || l.Min != 8 || l.Max != 8 || math.Abs(l.PerRow*8+l.Base-2) > 1e-6 {
		t.Errorf("%+v, %v", l, ok)
	}
}

func TestNoticesAnotherLevelOfRunningRequests(t *testing.T) {
	r := rand.New(rand.NewPCG(36, 2))
	e := &Concurrency{}
	add := func(n int, factor float64) {
		for range n {
			c := 1 + r.IntN(8)
			took := factor * (0.1*float64(c) + 1) * r.ExpFloat64()
			e.Add(c, float64(c), time.Duration(took*float64(time.Second)), time.Unix(9, 0))
		}
	}
	add(3000, 1)
	if n, _ := e.Changes(); n != 0 {
		t.Fatalf("%d changes of a steady server", n)
	}
	add(2*changeWindow, 3)
	n, at := e.Changes()
	l, _ := e.Line()
	if n < 1 || n > 2 || !at.Equal(time.Unix(9, 0)) || l.PerRow*4+l.Base < 3*1.4*0.7 {
		t.Errorf("%d changes, the last at %s: %+v", n, at, l)
	}
}

func TestConcurrencyIgnoresWhatIsNoRequest(t *testing.T) {
	e := &Concurrency{}
	e.Add(0, 1, time.Second, time.Time{})
	e.Add(1, 0, time.Second, time.Time{})
	e.Add(1, 1, 0, time.Time{})
	if _, ok := e.Line(); ok || len(e.groups) != 0 {
		t.Errorf("%+v", e)
	}
}
