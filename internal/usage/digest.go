package usage

import (
	"math"
	"slices"
	"sort"
)

// digest is a histogram: linear bins for percentages and shares, bins of 1 % width for values that
// span magnitudes. It is sparse, because most meters repeat values.
type digest []bin

type bin struct {
	key   int32
	count uint32
}

const zeroKey = math.MinInt32

// minBinned is the smallest value that is distinguished from 0 in logarithmic bins.
const minBinned = 1e-6

// maxLinear is the last linear bin, which bounds the size of a digest: higher counts of sessions,
// processes and machines are not distinguished.
const maxLinear = 1 << 14

func (d *digest) add(s Signal, v float64) { d.addCount(keyOf(s, v), 1) }

func (d *digest) addCount(k int32, n uint32) {
	i := sort.Search(len(*d), func(i int) bool { return (*d)[i].key >= k })
	if i == len(*d) || (*d)[i].key != k {
		*d = slices.Insert(*d, i, bin{key: k})
	}
	(*d)[i].count += n
}

// valueAtRank returns the value of the bin with the rank-th smallest value.
func (d digest) valueAtRank(s Signal, rank int) float64 {
	for _, b := range d {
		if rank -= int(b.count); rank <= 0 {
			return valueOf(s, b.key)
		}
	}
	return valueOf(s, d[len(d)-1].key)
}

var logWidth = math.Log(1.01)

func keyOf(s Signal, v float64) int32 {
	switch {
	case scale(s) > 0:
		return int32(math.Round(min(v*scale(s), maxLinear)))
	case v < minBinned:
		return zeroKey
	}
	return int32(math.Ceil(math.Log(v) / logWidth))
}

func valueOf(s Signal, k int32) float64 {
	switch {
	case scale(s) > 0:
		return float64(k) / scale(s)
	case k == zeroKey:
		return 0
	}
	return math.Exp(float64(k) * logWidth)
}

// scale returns the number of linear bins per unit; 0 for logarithmic bins.
func scale(s Signal) float64 {
	switch s {
	case GPUUtil, CPUUtil, HostMemUsed:
		return 10
	case SMActive, TensorActive, DRAMActive, SMOccupancy:
		return 1000
	case Sessions, Processes, Kernels, Healthy, Capacity, Throttle, XID, GPUCount:
		return 1
	}
	return 0
}

// Pool returns the statistics over all points of several meters of one signal, such as all GPUs of
// a machine. Nil meters are ignored; without any it returns nil. Coverage and quiet time of the
// result are 0, because they have no meaning.
func Pool(meters ...*Stats) *Stats {
	var pool *Stats
	for _, st := range meters {
		if st == nil || st.Count == 0 {
			continue
		}
		if pool == nil {
			pool = &Stats{
				Min: st.Min, Max: st.Max, First: st.First, Last: st.Last, step: st.step, source: st.source,
				lastMean: st.lastMean,
			}
		}
		pool.Count += st.Count
		pool.Active += st.Active
		pool.Sum += st.Sum
		pool.Min, pool.Max = min(pool.Min, st.Min), max(pool.Max, st.Max)
		if st.First.Before(pool.First) {
			pool.First = st.First
		}
		if st.Last.After(pool.Last) {
			pool.Last, pool.lastMean = st.Last, st.lastMean
		}
		if st.LastActive.After(pool.LastActive) {
			pool.LastActive = st.LastActive
		}
		for _, b := range st.digest {
			pool.digest.addCount(b.key, b.count)
		}
		for i, b := range st.buckets {
			pool.buckets[i] = max(pool.buckets[i], b)
		}
	}
	return pool
}
