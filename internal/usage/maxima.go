package usage

import (
	"slices"
	"sort"
	"time"
)

// maxima holds the points of a series that are higher than every later one, in time order. They
// give the time at which the series last reached any limit. Times are offsets from the start of the
// window.
type maxima []peak

type peak struct {
	at    time.Duration
	value float64
}

// maxPeaks bounds the memory of a series that only falls.
const maxPeaks = 64

// add records a point; points may come in any order.
func (c *maxima) add(at time.Duration, v float64) {
	i := len(*c)
	for i > 0 && (*c)[i-1].at > at {
		i--
	}
	if i < len(*c) && (*c)[i].value >= v {
		return
	}
	j := i
	for j > 0 && (*c)[j-1].value <= v {
		j--
	}
	*c = slices.Replace(*c, j, i, peak{at, v})
	if len(*c) > maxPeaks {
		c.compact()
	}
}

// compact merges the two neighbors that are closest relative to their age. The higher value moves
// to the later time, so that no limit is reached later than recorded.
func (c *maxima) compact() {
	list := *c
	newest := list[len(list)-1].at
	best, least := 0, 2.0
	for i := range len(list) - 1 {
		if share := float64(list[i+1].at-list[i].at) / float64(newest-list[i].at); share < least {
			best, least = i, share
		}
	}
	list[best].at = list[best+1].at
	*c = slices.Delete(list, best+1, best+2)
}

// lastReached returns when the series was last at or above a limit. If the series falls more often
// than maxima keeps, the time may be too late.
func (c maxima) lastReached(line float64) (time.Duration, bool) {
	i := sort.Search(len(c), func(i int) bool { return c[i].value < line })
	if i == 0 {
		return 0, false
	}
	return c[i-1].at, true
}

// highestSince returns the highest value from a time on.
func (c maxima) highestSince(at time.Duration) (float64, bool) {
	i := sort.Search(len(c), func(i int) bool { return c[i].at >= at })
	if i == len(c) {
		return 0, false
	}
	return c[i].value, true
}
