package action

import (
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
)

const (
	// clockSlack is by how much two readings of clocks may differ without a clock
	// having been set: readings are not taken at one instant, and clocks are slewed.
	clockSlack = time.Minute
	// DefaultMaxRoundGap is the longest pause between two rounds that is vouched for.
	DefaultMaxRoundGap = 2 * time.Hour
)

// jumped says whether no round vouches for the time between two readings: the wall
// clock was set, as far as the uptime of one boot or a step backwards shows, or the
// pause was longer than gap.
func jumped(last, now Clock, gap time.Duration) bool {
	wall := now.Wall.Sub(last.Wall)
	if wall > gap || wall < -clockSlack {
		return true
	}
	if last.Boot == "" || last.Boot != now.Boot {
		return false
	}
	return wall < 0 || (wall-(now.Uptime-last.Uptime)).Abs() > clockSlack
}

// maxSkew is by how much the clock of a machine may differ from the store's for the
// machine to act.
const maxSkew = 30 * time.Second

// SkewError says that the clock of a machine is not that of the state.
type SkewError struct {
	// Ahead is by how much the machine's clock is ahead of the state's, negative behind.
	Ahead time.Duration
}

// Error says which clock is wrong by how much, and what to do.
func (e *SkewError) Error() string {
	way := "ahead of"
	if e.Ahead < 0 {
		way = "behind"
	}
	return fmt.Sprintf("the clock of this machine is %s %s the state's, so nothing is decided here: set it",
		plain.Duration(e.Ahead.Abs()), way)
}

// SharedClock returns clocks that tell the time of a store, taken once, and go on with the
// uptime of the machine, so that setting its clock changes nothing; with its clock where the
// uptime is unknown. Where the store has no clock they are the machine's own. Shared
// says that all machines have it in common ([Store.Now]). A *[SkewError] comes with them
// when the machine's clock differs by more than the 30 seconds within which it may act:
// whatever decides or acts asks here first.
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
	// The answer was given at some moment between the two readings.
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

// inTime returns the ladder by the clock of the state; a *[SkewError] where that of this
// machine is not to be acted by.
func (l *Ladder) inTime(ctx context.Context) (own *Ladder, shared bool, err error) {
	clock, shared, err := SharedClock(ctx, l.Store, l.Clock)
	if err != nil {
		return nil, false, err
	}
	timed := *l
	timed.Clock = clock
	return &timed, shared, nil
}

// jumped says whether no round vouches for the time since a reading. Where machines have no
// clock in common, the clock of another boot may be another machine's, which says nothing
// of this one's.
func (s *pass) jumped(last Clock) bool {
	other := !s.shared && last.Boot != "" && s.began.Boot != "" && last.Boot != s.began.Boot
	return other || jumped(last, s.began, s.gap)
}

// clock is the reading at which a round last vouched for the item.
func (it Item) clock() Clock { return Clock{Wall: it.UpdatedAt, Boot: it.Boot, Uptime: it.Uptime} }
