package usage

import "time"

// localTimes converts times without a time zone to instants.
type localTimes struct {
	location *time.Location
	// offset is the location's offset between from and to, in seconds. A margin keeps clock changes
	// outside.
	from, to, offset int64
	last             time.Time
	// zoneless counts the times without a zone, repeated those in an hour repeated by a clock
	// change.
	zoneless, repeated int
}

// clockChange exceeds any clock change, in seconds.
const clockChange = 3 * 60 * 60

// instant returns the instant of a wall clock time, given as if it were UTC. A time that clocks
// skip is an error. Of the two instants in a repeated hour it returns the one closer to the
// previous time, and preferably after it, so that ordered rows stay in order.
func (l *localTimes) instant(wall time.Time) (time.Time, error) {
	if l.location == nil {
		return time.Time{}, errNoZone
	}
	l.zoneless++
	at := wall.Unix() - l.offset
	if at >= l.from && at < l.to {
		l.last = wall.Add(-time.Duration(l.offset) * time.Second)
		return l.last, nil
	}
	var found []time.Time
	for _, probe := range []int64{-clockChange, clockChange} {
		_, offset := wall.Add(time.Duration(probe) * time.Second).In(l.location).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second)
		if _, real := t.In(l.location).Zone(); real == offset && (len(found) == 0 || !found[0].Equal(t)) {
			found = append(found, t)
		}
	}
	if len(found) == 0 {
		return time.Time{}, errGap
	}
	t := found[0]
	if len(found) == 2 {
		l.repeated++
		if l.distance(t) > l.distance(found[1]) {
			t = found[1]
		}
	} else {
		l.cacheOffset(t)
	}
	l.last = t
	return t, nil
}

// distance returns the distance of a time from the previous one; going back counts double.
func (l *localTimes) distance(t time.Time) time.Duration {
	if d := t.Sub(l.last); d >= 0 {
		return d
	}
	return 2 * l.last.Sub(t)
}

// cacheOffset caches the zone's offset around a time.
func (l *localTimes) cacheOffset(t time.Time) {
	here := t.In(l.location)
	_, offset := here.Zone()
	from, to := here.ZoneBounds()
	l.from, l.to, l.offset = -1<<62, 1<<62, int64(offset)
	if !from.IsZero() {
		l.from = from.Unix() + clockChange
	}
	if !to.IsZero() {
		l.to = to.Unix() - clockChange
	}
}
