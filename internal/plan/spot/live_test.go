package spot

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// newLiveRun returns the strategy for a run of ten hours after a day in which zone 1 was up and zone 0 was not.
func newLiveRun(t *testing.T) *Live {
	t.Helper()
	const gap = 5 * time.Minute
	l := NewLive(gap, []Prior{{}, {}}, Params{
		Work: 10 * time.Hour, Deadline: 40 * time.Hour, Restart: 6 * time.Minute, SpotPrice: money.USD,
		OnDemandPrice: 3 * money.USD, AcrossZones: true,
	})
	for range 24 * 12 {
		l.Observe([]Offer{{Price: money.USD}, {Up: true, Price: money.USD}})
	}
	return l
}

// TestMachineOfAZoneThatWasUpUnseenIsTrusted checks that a zone which just came up is left alone where a machine is
// little cheaper there, as its machines are often taken soon, and that it is taken where it was up for longer
// without being tried. Asking teaches the strategy nothing.
func TestMachineOfAZoneThatWasUpUnseenIsTrusted(t *testing.T) {
	run := Running{Samples: 24 * 12, Work: 8 * time.Hour, On: InZone + 1}
	for _, c := range []struct {
		cents  int64
		unseen []int
		want   Machine
	}{
		{50, nil, InZone},
		{90, nil, InZone + 1},
		{90, []int{3, 0}, InZone},
		{95, []int{3, 0}, InZone + 1},
		{95, []int{12, 0}, InZone},
		{90, []int{0, 100}, InZone + 1}, // of the zone that the run is in nothing is unseen
	} {
		l := newLiveRun(t)
		sample := []Offer{{true, money.Amount(c.cents) * money.USD / 100}, {true, money.USD}}
		for range 2 {
			if got := l.DecideUnseen(sample, c.unseen, run); got != c.want {
				t.Errorf("at %d cents, unseen %v: machine %d, want %d", c.cents, c.unseen, got, c.want)
			}
		}
		if got, want := l.Decide(sample, run), newLiveRun(t).Decide(sample, run); got != want {
			t.Errorf("after it was asked, the strategy decides %d instead of %d", got, want)
		}
	}
}
