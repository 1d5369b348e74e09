package agent

import "time"

const (
	// jumpThreshold is the change of the wall clock against the time since boot that counts as a
	// jump; NTP slews by less.
	jumpThreshold = 5 * time.Second
	// jumpSettleTime is how long a forward jump has to persist before the lease follows it.
	jumpSettleTime = 5 * time.Minute
)

// clockAnchor is a moment on both clocks of one boot.
type clockAnchor struct {
	Boot string        `json:"boot"`
	Up   time.Duration `json:"up"`
	Wall time.Time     `json:"wall"`
}

// clock is the clock for decisions: the wall clock as long as it agrees with the time since boot.
// Setting the wall clock back never gives a session more time; setting it forward ends a session
// only if it persists.
type clock struct {
	now    func() time.Time
	uptime func() (string, time.Duration)
	anchor clockAnchor
	// offset is the jump of the wall clock, offsetSince the time since boot at which it happened.
	offset      time.Duration
	offsetSince time.Duration
}

// newClock returns a clock that continues from the anchor of an earlier process of this boot.
func newClock(now func() time.Time, uptime func() (string, time.Duration), old clockAnchor) *clock {
	c := &clock{now: now, uptime: uptime, anchor: old}
	if boot, up := uptime(); old.Boot != boot || old.Wall.IsZero() || up < old.Up {
		c.anchor = clockAnchor{Boot: boot, Up: up, Wall: now().Round(0).UTC()}
	}
	return c
}

// read returns the time and the jump of the wall clock since the last reading; 0 if there was none.
func (c *clock) read() (now time.Time, jumped time.Duration) {
	_, up := c.uptime()
	wall := c.now().Round(0).UTC()
	now = c.anchor.Wall.Add(up - c.anchor.Up)
	offset := wall.Sub(now)
	if by := offset - c.offset; by > jumpThreshold || by < -jumpThreshold {
		jumped = by
		c.offset, c.offsetSince = offset, up
	}
	switch {
	case c.offset == 0,
		offset > -jumpThreshold && offset < jumpThreshold,
		c.offset > 0 && up-c.offsetSince >= jumpSettleTime:
		// The clocks agree up to NTP slewing.
		c.anchor.Up, c.anchor.Wall, c.offset = up, wall, 0
		return wall, jumped
	default:
		c.offset = offset
	}
	return now, jumped
}
