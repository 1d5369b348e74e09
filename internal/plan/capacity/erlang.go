package capacity

import "math"

// ErlangC returns the share of requests, 0 to 1, that wait in an M/M/c queue: Poisson
// arrivals, service times that are exponential, c servers, a load from 0 to below 1 of
// each. It is 1 from a load of 1 on. Source: Erlang (1917), computed from the recursion
// of Erlang B, which neither overflows nor cancels.
func ErlangC(c int, load float64) float64 {
	switch {
	case c < 1 || load >= 1:
		return 1
	case !(load > 0):
		return 0
	}
	offered, blocked := float64(c)*load, 1.0
	for k := 1; k <= c; k++ {
		blocked = offered * blocked / (float64(k) + offered*blocked)
	}
	return blocked / (1 - load*(1-blocked))
}

// ErlangWait returns the mean wait of the same queue in mean service times: C / (c (1 -
// load)). It is +Inf from a load of 1 on.
func ErlangWait(c int, load float64) float64 {
	if load >= 1 || c < 1 {
		return math.Inf(1)
	}
	return ErlangC(c, load) / (float64(c) * (1 - load))
}

// WaitTarget is the mean wait, in service times, at which replicas count as full. A
// third of one puts 4 to 8 replicas between 60 and 80%, one far below, and 16 close to
// 90%, which is what operators aim at.
const WaitTarget = 1.0 / 3

// UtilizationTarget returns the highest load of each of c replicas, 0 to 1, at which the
// mean wait of an M/M/c queue stays within a third of a service time.
func UtilizationTarget(c int) float64 {
	low, high := 0.0, 1.0
	for range 50 {
		if mid := (low + high) / 2; ErlangWait(c, mid) <= WaitTarget {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}
