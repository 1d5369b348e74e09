package sim

import (
	"math"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// meter is one signal of a resource or of one of its GPUs.
type meter struct {
	ref    inventory.Ref
	gpu    string
	signal usage.Signal
}

// points collects delivered points.
type points map[meter]map[time.Time]usage.Point

type taker func(gpu string, s usage.Signal, p usage.Point)

func (f taker) Add(gpu string, s usage.Signal, p usage.Point) bool { f(gpu, s, p); return true }

func measured(t *testing.T, c *Cloud, o *round.Observation, iv usage.Interval) (points,
	map[inventory.Ref]usage.SourceInfo) {
	t.Helper()
	out, opened := points{}, map[inventory.Ref]usage.SourceInfo{}
	_, err := c.Measure(t.Context(), o.Resources, iv, func(r *inventory.Resource, as usage.SourceInfo) usage.Sink {
		opened[r.Ref()] = as
		return taker(func(gpu string, s usage.Signal, p usage.Point) {
			m := meter{r.Ref(), gpu, s}
			if out[m] == nil {
				out[m] = map[time.Time]usage.Point{}
			}
			out[m][p.Time] = p
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, opened
}

// TestStepsAgree checks that half a day by the minute equals the same by the hour, because an hour
// is sampled every five minutes.
func TestStepsAgree(t *testing.T) {
	c := at(1, now)
	o, err := c.List(t.Context(), round.Query{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	iv := usage.Interval{From: now.Add(-12 * time.Hour), To: now, Step: time.Minute}
	fine, opened := measured(t, c, o, iv)
	iv.Step = time.Hour
	coarse, _ := measured(t, c, o, iv)
	counted := map[meter]bool{}
	for _, e := range layout(1, now).entries {
		counted[meter{e.resource.Ref(), "", e.counted}] = e.count != nil && e.counted != usage.Capacity
	}
	hours := 0
	for m, byHour := range coarse {
		if opened[m.ref].Step != time.Minute {
			continue // a gateway
		}
		for at, want := range byHour {
			var got mean
			total, every := 0.0, 0
			for i := range 60 {
				p, ok := fine[m][at.Add(time.Duration(i)*time.Minute)]
				if !ok {
					continue
				}
				every++
				total += p.Mean
				if i%5 == 0 {
					got.add(p.Max)
				}
			}
			hours++
			mean, most := got.sum/float64(got.n), got.max
			switch {
			case counted[m]:
				mean, most = total, total // counted in the hour, and a sixtieth of it in a minute
			case m.signal == usage.NetBytes, m.signal == usage.Requests:
				mean = got.sum * 5 // amounts in twelve of sixty minutes
				most = mean
			}
			if every != 60 || off(mean, want.Mean) || off(most, want.Max) {
				t.Fatalf("%s %s %s at %s: %d minutes come to %g, %g, the hour is %+v", m.ref, m.gpu,
					m.signal, at, every, mean,
					most, want)
			}
		}
	}
	if hours < 1000 {
		t.Errorf("%d hours were compared", hours)
	}
}

func off(a, b float64) bool { return math.Abs(a-b) > 1e-9*max(1, math.Abs(b)) }

// TestEveryStep checks that for any step, points are at multiples of it and in order, and that the
// counts of a day equal the sum of its hours.
func TestEveryStep(t *testing.T) {
	c := at(1, now)
	o, err := c.List(t.Context(), round.Query{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []time.Duration{time.Second, 7 * time.Second, 7 * time.Minute, 5 * time.Hour} {
		iv := usage.Interval{From: now.Add(-max(20*step, 10*time.Minute)), To: now, Step: step}
		got, opened := measured(t, c, o, iv)
		for m, points := range got {
			for at := range points {
				if own := opened[m.ref].Step; !at.Equal(at.Truncate(own)) || at.Add(own).After(iv.To) ||
					at.Before(opened[m.ref].From) || own != max(step, own) {
					t.Fatalf("by %s, %s has a point at %s", step, m.ref, at)
				}
			}
		}
		if len(got) < 100 {
			t.Errorf("by %s there are %d meters", step, len(got))
		}
	}
	iv := usage.Interval{From: now.Add(-10 * day), To: now, Step: day}
	days, _ := measured(t, c, o, iv)
	iv.Step = time.Hour
	hours, _ := measured(t, c, o, iv)
	compared := 0
	for m, byDay := range days {
		if m.signal != usage.Requests || m.ref.Kind != inventory.KindLoadBalancer {
			continue
		}
		for at, p := range byDay {
			total := 0.0
			for i := range 24 {
				total += hours[m][at.Add(time.Duration(i)*time.Hour)].Mean
			}
			compared++
			if off(p.Mean, total) {
				t.Errorf("%s: the day of %s counts %g, its hours %g", m.ref, at, p.Mean, total)
			}
		}
	}
	if compared == 0 {
		t.Error("no day was compared")
	}
}
