package usage

import "time"

// localTimes makes instants of times that were written without a time zone.
type localTimes struct {
	location *time.Location
	// offset is that of the location between from and to, in seconds, with a margin in which no
	// clock was changed.
	from, to, offset int64
	last             time.Time
	// read counts the times without a zone, repeated those in an hour that clocks went back
	// over.
	read, repeated int
}

// clockChange is more than clocks are changed by at once, in seconds.
const clockChange = 3 * 60 * 60

// instant returns the instant of a wall clock time, which is given as if it were UTC. An hour
// that clocks go forward over has none, which is an error; of the two in an hour that they go
// back over it is the one that is closer to the time before, and rather after it, so that rows in
// order of time stay in order.
func (l *localTimes) instant(wall time.Time) (time.Time, error) {
	if l.location == nil {
		return time.Time{}, errNoZone
	}
	l.read++
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
		if l.away(t) > l.away(found[1]) {
			t = found[1]
		}
	} else {
		l.remember(t)
	}
	l.last = t
	return t, nil
}

// away is how far a time is from the one before; going back counts double.
func (l *localTimes) away(t time.Time) time.Duration {
	if d := t.Sub(l.last); d >= 0 {
		return d
	}
	return 2 * l.last.Sub(t)
}

// remember keeps the offset around a time, so that the next ones need no look at the zone.
func (l *localTimes) remember(t time.Time) {
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
