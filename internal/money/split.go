package money

import (
	"errors"
	"fmt"
	"math/bits"
	"sort"
)

// Split divides total over weights by largest remainder: each part is within one
// nano-dollar of its exact share and the parts add up to total exactly. Weights
// must not be negative and not all zero. Ties go to the earlier weight.
func Split(total Amount, weights []int64) ([]Amount, error) {
	var totalWeight int64
	for _, w := range weights {
		if w < 0 {
			return nil, fmt.Errorf("split %s: a weight of %d is negative", total, w)
		}
		if totalWeight += w; totalWeight < 0 {
			return nil, fmt.Errorf("split %s: the weights: %w", total, ErrOverflow)
		}
	}
	if totalWeight == 0 {
		return nil, errors.New("split " + total.String() + ": no weight is positive")
	}
	parts := make([]Amount, len(weights))
	order := make([]int, len(weights))
	remainders := make([]uint64, len(weights))
	unassigned := magnitude(int64(total))
	for i, w := range weights {
		hi, lo := bits.Mul64(magnitude(int64(total)), uint64(w))
		q, r := bits.Div64(hi, lo, uint64(totalWeight))
		parts[i], remainders[i], order[i] = Amount(q), r, i
		unassigned -= q
	}
	sort.SliceStable(order, func(a, b int) bool { return remainders[order[a]] > remainders[order[b]] })
	for _, i := range order[:unassigned] {
		parts[i]++
	}
	if total < 0 {
		for i := range parts {
			parts[i] = -parts[i]
		}
	}
	return parts, nil
}
