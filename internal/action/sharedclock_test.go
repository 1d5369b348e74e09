package action

import (
	"context"
	"testing"
	"time"
)

// stateClock is a store that only has a clock.
type stateClock struct{ now time.Time }

func (s stateClock) Now(context.Context) (time.Time, bool, error) { return s.now, true, nil }

// TestSetClockIsIgnored: once the time of the state was read, it goes on with the uptime, whatever
// the clock of the machine is set to; with the clock if there is none.
func TestSetClockIsIgnored(t *testing.T) {
	state := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name string
		boot string
		set  time.Duration // by how much the clock is set, half a minute later
		want time.Duration
	}{
		{"it is not set", "a", 0, 30 * time.Second},
		{"forward", "a", 15 * time.Minute, 30 * time.Second},
		{"back", "a", -25 * time.Second, 30 * time.Second},
		{"without uptime", "", 15 * time.Minute, 15*time.Minute + 30*time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			own := Clock{Wall: state.Add(10 * time.Second), Boot: tc.boot, Uptime: time.Hour}
			clock, shared, err := SharedClock(t.Context(), stateClock{state}, func() Clock { return own })
			if err != nil || !shared {
				t.Fatal(shared, err)
			}
			own.Wall, own.Uptime = own.Wall.Add(30*time.Second+tc.set), own.Uptime+30*time.Second
			if got := clock(); got.Wall.Sub(state) != tc.want {
				t.Errorf("the time of the state went on by %s, want %s", got.Wall.Sub(state), tc.want)
			}
		})
	}
}
