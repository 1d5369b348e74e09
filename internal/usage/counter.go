package usage

import (
	"slices"
	"sort"
	"time"
)

// counterRuns holds the points of a counter since the one before its newest rise, as runs of equal
// values in time order, of which only the second may be higher than the one before it. A fall is a
// restart; the counter rises again at the next higher point. Times are offsets from the start of
// the window.
type counterRuns []run

type run struct {
	from, to time.Duration
	value    float64
}

// maxRuns bounds the memory of a counter that falls repeatedly without a rise.
const maxRuns = 16

// add records a point and returns when the counter last rose; ok is false if it never did. Points
// may come in any order. A late point inside a run, with another value, may make the rise appear
// later, up to the end of the run, because the points of a run are not kept.
func (r *counterRuns) add(at time.Duration, v float64) (rose time.Duration, ok bool) {
	list := *r
	i := sort.Search(len(list), func(i int) bool { return list[i].to >= at })
	switch {
	case i < len(list) && at >= list[i].from:
		if whole := list[i]; v != whole.value && at > whole.from && at < whole.to {
			rest := run{at, whole.to, whole.value}
			if v < whole.value {
				rest.from = whole.to
			}
			list[i].to = at
			list = slices.Insert(list, i+1, run{at, at, v}, rest)
		}
	case i < len(list) && list[i].value == v:
		list[i].from = at
	case i > 0 && list[i-1].value == v:
		list[i-1].to = at
	default:
		list = slices.Insert(list, i, run{at, at, v})
	}
	for k := len(list) - 1; k > 0; k-- {
		if list[k].value > list[k-1].value {
			list = slices.Delete(list, 0, k-1)
			rose, ok = list[1].from, true
			break
		}
	}
	if len(list) > maxRuns {
		list = slices.Delete(list, 0, len(list)-1)
	}
	*r = list
	return rose, ok
}
