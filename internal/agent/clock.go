package agent

import "time"

const (
	// jumpFrom is by how much the wall clock may leave the time since boot at once before it
	// counts as set: NTP slews by less.
	jumpFrom = 5 * time.Second
	// jumpStands is how long a wall clock that was set forward has to stay so until the lease
	// goes by it.
	jumpStands = 5 * time.Minute
)

// anchor is a moment on both clocks of one boot of the machine.
type anchor struct {
	Boot string        `json:"boot"`
	Up   time.Duration `json:"up"`
	Wall time.Time     `json:"wall"`
}

// clock is the time that decisions go by: that of the wall clock as long as it agrees with
// the time since boot. A wall clock that is set back never gives the session more time, one
// that is set forward ends it only when it stays so.
type clock struct {
	now    func() time.Time
	uptime func() (string, time.Duration)
	anchor anchor
	// away is by how much the wall clock was set, since when on the time since boot.
	away  time.Duration
	since time.Duration
}

// newClock returns a clock that goes on from the anchor of an earlier process of the same
// boot.
func newClock(now func() time.Time, uptime func() (string, time.Duration), old anchor) *clock {
	c := &clock{now: now, uptime: uptime, anchor: old}
	if boot, up := uptime(); old.Boot != boot || old.Wall.IsZero() || up < old.Up {
		c.anchor = anchor{Boot: boot, Up: up, Wall: now().Round(0).UTC()}
	}
	return c
}

// read returns the time, and by how much the wall clock was set since the last reading; 0
// where it was not.
func (c *clock) read() (now time.Time, jumped time.Duration) {
	_, up := c.uptime()
	wall := c.now().Round(0).UTC()
	now = c.anchor.Wall.Add(up - c.anchor.Up)
	off := wall.Sub(now)
	if by := off - c.away; by > jumpFrom || by < -jumpFrom {
		jumped = by
		c.away, c.since = off, up
	}
	switch {
	case c.away == 0, off > -jumpFrom && off < jumpFrom, c.away > 0 && up-c.since >= jumpStands:
		// The clocks agree, but for the little that NTP slews.
		c.anchor.Up, c.anchor.Wall, c.away = up, wall, 0
		return wall, jumped
	default:
		c.away = off
	}
	return now, jumped
}
