package duty

import (
	"slices"
	"sort"
)

// crest is a series as it looks from its newest point: the points that are higher than
// every later one, in order of time. It knows when the series last reached any line.
type crest []peak

type peak struct {
	at    int64
	value float64
}

// A crest is bounded. It holds fewest peaks, of device memory most, whose line is not
// known before the size of the memory is. It is exact, whatever its length, for the
// lines of its signal: no peak moves over one of them. Otherwise a peak may appear
// later than it was, and only evidence depends on that.
const (
	fewPeaks  = 4
	morePeaks = 8
)

// add returns the crest with a point that is later than all of it.
func (c crest) add(at int64, v float64, k *Tracker, m *meter) crest {
	n := len(c)
	for n > 0 && c[n-1].value <= v {
		n--
	}
	c = c[:n]
	if c == nil {
		c = make(crest, 0, k.peaks(m.signal))
	} else if n == cap(c) {
		c = c.thin(k, m, at)
	}
	return append(c, peak{at, v})
}

// thin makes room for a point: it drops the oldest peak where no verdict looks back to
// it any more, else it merges two that follow one another, are closest for their age and
// have no line between them. The higher value moves to the later time, so that no line is
// reached later than it says.
func (c crest) thin(k *Tracker, m *meter, newest int64) crest {
	if c[0].at < k.horizon(newest) {
		return slices.Delete(c, 0, 1)
	}
	low, high := k.lines(m)
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

// reached returns when the series was last at or above a line; never where it was not.
func (c crest) reached(line float64) int64 {
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].value >= line {
			return c[i].at
		}
	}
	return never
}

// from returns the highest value from a time on; 0 where there is none.
func (c crest) from(at int64) float64 {
	i := sort.Search(len(c), func(i int) bool { return c[i].at >= at })
	if i == len(c) {
		return 0
	}
	return c[i].value
}
