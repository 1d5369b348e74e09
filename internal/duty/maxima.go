package duty

import (
	"slices"
	"sort"
)

// maxima are the points of a series that are higher than every later one, in time order. They tell
// when the series last reached any limit.
type maxima []peak

type peak struct {
	at    int64
	value float64
}

// The number of maxima is bounded. The limit of device memory is known only once the size of the
// memory is, so more are kept of it. The limits of a signal are exact at any length, because no
// peak moves across one. Other peaks may appear later than they were, which only affects evidence.
const (
	maxPeaks       = 4
	maxMemoryPeaks = 8
)

// add returns the maxima with a point that is later than all of them.
func (c maxima) add(at int64, v float64, k *Tracker, m *meter) maxima {
	n := len(c)
	for n > 0 && c[n-1].value <= v {
		n--
	}
	c = c[:n]
	if c == nil {
		c = make(maxima, 0, k.peakCount(m.signal))
	} else if n == cap(c) {
		c = c.compact(k, m, at)
	}
	return append(c, peak{at, v})
}

// compact makes room for a point. It drops the oldest peak if it is before the horizon. Otherwise
// it merges the two neighbors that are closest relative to their age and have no limit between
// them; the higher value moves to the later time, so that no limit is reached later than recorded.
func (c maxima) compact(k *Tracker, m *meter, newest int64) maxima {
	if c[0].at < k.horizon(newest) {
		return slices.Delete(c, 0, 1)
	}
	low, high := k.verdictLimits(m)
	best, least := -1, 2.0
	for i := range len(c) - 1 {
		over := func(line float64) bool { return c[i].value >= line && c[i+1].value < line }
		if over(low) || over(high) {
			continue
		}
		if share := float64(c[i+1].at-c[i].at) / float64(newest-c[i].at); share < least {
			best, least = i, share
		}
	}
	c[best].at = c[best+1].at
	return slices.Delete(c, best+1, best+2)
}

// lastReached returns when the series was last at or above a limit, or never.
func (c maxima) lastReached(line float64) int64 {
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].value >= line {
			return c[i].at
		}
	}
	return never
}

// highestSince returns the highest value from a time on, or 0.
func (c maxima) highestSince(at int64) float64 {
	i := sort.Search(len(c), func(i int) bool { return c[i].at >= at })
	if i == len(c) {
		return 0
	}
	return c[i].value
}
