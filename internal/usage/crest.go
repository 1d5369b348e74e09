package usage

import (
	"slices"
	"sort"
	"time"
)

// crest is a series as it looks from its newest point: the points that are higher
// than every later one, in order of time. It knows when the series last reached any
// line. Times are offsets from the start of the window.
type crest []peak

type peak struct {
	at    time.Duration
	value float64
}

// maxPeaks bounds what a series that only falls costs in memory.
const maxPeaks = 64

// add records a point; points may come in any order.
func (c *crest) add(at time.Duration, v float64) {
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
		c.thin()
	}
}

// thin merges the two neighbors that are closest for their age. The higher value
// moves to the later time, so that a line is never reached later than it says.
func (c *crest) thin() {
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

// reached returns when the series was last at or above a line. After more falls
// than are kept it may say later than it was.
func (c crest) reached(line float64) (time.Duration, bool) {
	i := sort.Search(len(c), func(i int) bool { return c[i].value < line })
	if i == 0 {
		return 0, false
	}
	return c[i-1].at, true
}

// from returns the highest value from a time on.
func (c crest) from(at time.Duration) (float64, bool) {
	i := sort.Search(len(c), func(i int) bool { return c[i].at >= at })
	if i == len(c) {
		return 0, false
	}
	return c[i].value, true
}
