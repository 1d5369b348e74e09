package action

import (
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
)

const (
	// clockSlack is the tolerated difference between two clock readings: they are not taken at one
	// instant, and clocks are slewed.
	clockSlack = time.Minute
	// DefaultMaxRoundGap is the longest pause between two rounds after which grace periods
	// continue.
	DefaultMaxRoundGap = 2 * time.Hour
)

// clockJumped reports whether the time between two readings is not confirmed: the wall clock was
// set, according to the uptime of one boot or a step backwards, or the pause was longer than gap.
func clockJumped(last, now Clock, gap time.Duration) bool {
	wall := now.Wall.Sub(last.Wall)
	if wall > gap || wall < -clockSlack {
		return true
	}
	if last.Boot == "" || last.Boot != now.Boot {
		return false
	}
	return wall < 0 || (wall-(now.Uptime-last.Uptime)).Abs() > clockSlack
}

// maxSkew is the largest difference between the clocks of a machine and the store at which the
// machine acts.
const maxSkew = 30 * time.Second

// SkewError means that the clock of a machine differs from that of the state.
type SkewError struct {
	// Ahead is how far the machine's clock is ahead of the state's, negative if behind.
	Ahead time.Duration
}

// Error names the wrong clock, its difference, and the next step.
func (e *SkewError) Error() string {
	way := "ahead of"
	if e.Ahead < 0 {
		way = "behind"
	}
	return fmt.Sprintf("the clock of this machine is %s %s the state's, so nothing is decided here: set it",
		plain.Duration(e.Ahead.Abs()), way)
}

// SharedClock returns a clock with the time of a store, read once and continued by the machine's
// uptime, so that setting the machine's clock has no effect; without an uptime the machine's clock
// continues it. If the store has no clock, it is the machine's own. shared is set if all machines
// share it ([Store.Now]). It also returns a *[SkewError] if the machine's clock differs by more
// than 30 seconds: everything that decides or acts checks it first.
func SharedClock(ctx context.Context, s interface {
	Now(context.Context) (now time.Time, common bool, err error)
}, own func() Clock) (clock func() Clock, shared bool, err error) {
	before := own()
	now, shared, err := s.Now(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("read the clock of the state: %w", err)
	}
	if now.IsZero() {
		return own, false, nil
	}
	// The store answered between the two readings.
	after := own()
	ahead := before.Wall.Sub(now)
	if late := after.Wall.Sub(now); ahead < 0 {
		ahead = min(late, 0)
	}
	clock = func() Clock {
		c := own()
		if c.Boot != "" && c.Boot == after.Boot {
			c.Wall = after.Wall.Add(c.Uptime - after.Uptime)
		}
		c.Wall = c.Wall.Add(-ahead)
		return c
	}
	if ahead.Abs() > maxSkew {
		err = &SkewError{ahead}
	}
	return clock, shared, err
}

// withStoreClock returns the ladder with the clock of the state, or a *[SkewError] if this
// machine's clock is too far off.
func (l *Ladder) withStoreClock(ctx context.Context) (own *Ladder, shared bool, err error) {
	clock, shared, err := SharedClock(ctx, l.Store, l.Clock)
	if err != nil {
		return nil, false, err
	}
	timed := *l
	timed.Clock = clock
	return &timed, shared, nil
}

// clockJumped reports whether the time since a reading is not confirmed. If machines share no
// clock, another boot may be another machine, whose clock proves nothing about this one.
func (s *pass) clockJumped(last Clock) bool {
	other := !s.shared && last.Boot != "" && s.startedAt.Boot != "" && last.Boot != s.startedAt.Boot
	return other || clockJumped(last, s.startedAt, s.maxGap)
}

// clock returns the clocks at which a round last confirmed the item.
func (it Item) clock() Clock { return Clock{Wall: it.UpdatedAt, Boot: it.Boot, Uptime: it.Uptime} }
