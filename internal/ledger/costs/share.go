package costs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Share is a workload's part of a machine over the time of a cost.
type Share struct {
	Workload string
	// Part over Of is the allocated share of the machine, 0 to 1: GPUs of a machine (3 of 8), MIG
	// slices of a GPU (2 of 7), seconds of a time slice, or a requested fraction. Of must be
	// positive.
	Part, Of int64
	// Used over UsedOf is the used share of its allocation, 0 to 1; UsedOf 0 is unknown.
	Used, UsedOf int64
}

// Allocated is the cost of a share. Used, Idle and CannotJudge sum to Amount.
type Allocated struct {
	WorkloadCost
	// The following fields are set if the shares were measured, see [Tenancy].
	Tenant Tenant
	// ByUse is its part of the cost by use, including use beyond its request.
	ByUse money.Amount
	// Requested, Measured and UsedGPU are GPU time in parts of a GPU ([WholeGPU]) times seconds:
	// the request, the part of it with a known use, and the use.
	Requested, Measured, UsedGPU int64
	// Split is true if part of the use was measured for the whole GPU and divided by request.
	Split bool
}

// WorkloadCost is a workload's part of a machine's cost. Used, Idle and CannotJudge (unmeasured)
// sum to Amount.
type WorkloadCost struct {
	Workload string       `json:"workload"`
	Amount   money.Amount `json:"total_usd"`
	// Used is the cost of used time.
	Used money.Amount `json:"used_usd"`
	// Idle is the cost of idle time.
	Idle money.Amount `json:"idle_usd"`
	// CannotJudge is the cost of unmeasured time.
	CannotJudge money.Amount `json:"cannot_judge_usd"`
}

// Allocation is a machine's cost divided among its workloads. The workloads and Unallocated sum to
// the cost.
type Allocation struct {
	Workloads   []Allocated
	Unallocated money.Amount
	// Over states that more than the whole machine was allocated, and how it was divided; empty
	// otherwise.
	Over string
}

// Split divides a machine's cost among its workloads by allocation. The rest is Unallocated. If
// more than the whole was allocated (overlapping time slices and requests), each pays its share of
// the sum, so that no workload pays more than the machine costs and nothing is negative. Parts are
// exact by largest remainder. A negative cost, a share outside 0 to 1 and a common denominator over
// 2^63 are errors.
func Split(cost money.Amount, shares []Share) (Allocation, error) {
	if cost < 0 {
		return Allocation{}, fmt.Errorf("split %s: a machine's cost is not negative", cost)
	}
	whole := int64(1)
	for _, s := range shares {
		if s.Of <= 0 || s.Part < 0 || s.Part > s.Of {
			return Allocation{}, fmt.Errorf("split %s: %s has %d of %d: a share is 0 to 1", cost,
				s.Workload, s.Part, s.Of)
		}
		if s.UsedOf < 0 || s.Used < 0 || s.Used > s.UsedOf {
			return Allocation{}, fmt.Errorf("split %s: %s used %d of %d: a share is 0 to 1", cost,
				s.Workload, s.Used, s.UsedOf)
		}
		d := s.Of / gcd(s.Of, max(s.Part, 0))
		hi, lo := bits.Mul64(uint64(whole/gcd(whole, d)), uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return Allocation{}, fmt.Errorf("split %s: the shares: %w", cost, errDenominator)
		}
		whole = int64(lo)
	}
	weights := make([]int64, len(shares)+1)
	var sum int64
	for i, s := range shares {
		g := gcd(s.Of, s.Part)
		weights[i] = s.Part / g * (whole / (s.Of / g))
		if sum += weights[i]; sum < 0 {
			return Allocation{}, fmt.Errorf("split %s: the shares: %w", cost, errDenominator)
		}
	}
	var a Allocation
	if weights[len(shares)] = max(0, whole-sum); sum > whole {
		a.Over = fmt.Sprintf("%.0f%% of the machine was allocated; each workload has its part of that",
			100*float64(sum)/float64(whole))
	}
	parts, err := money.Split(cost, weights)
	if err != nil {
		return Allocation{}, err
	}
	a.Unallocated = parts[len(shares)]
	for i, s := range shares {
		w := Allocated{WorkloadCost: WorkloadCost{Workload: s.Workload, Amount: parts[i]}}
		if s.UsedOf == 0 {
			w.CannotJudge = w.Amount
		} else if w.Used, err = w.Amount.Mul(s.Used, s.UsedOf); err != nil {
			return Allocation{}, err
		} else {
			w.Idle = w.Amount - w.Used
		}
		a.Workloads = append(a.Workloads, w)
	}
	return a, nil
}

var errDenominator = errors.New("their common denominator is too large")

// gcd returns the greatest common divisor; a is positive, b not negative.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Divided is the cost of machines, divided among the workloads that shared them.
type Divided struct {
	Since, Until time.Time
	// Machines are sorted by cost, the highest first.
	Machines []DividedMachine
	// Uncharged are the machines without a charge in that time.
	Uncharged []string
	// Tenants is true if the shares were measured. Totals are per workload over all machines, see
	// [Divided.Group].
	Tenants bool
	Totals  []Allocated
}

// DividedMachine is one machine's cost, divided.
type DividedMachine struct {
	Resource string
	Amount   money.Amount
	Allocation
	// The following fields are set if the shares were measured, see [Tenancy]. GPUs is the number
	// of GPUs.
	GPUs int
	// Unknown is the part of Unallocated whose tenants are unknown.
	Unknown money.Amount
	// The cost of workloads by use, UnknownUse and IdleUse sum to Amount.
	UnknownUse, IdleUse money.Amount
}

// Divide divides the costs of machines, grouped by resource, among the workloads that shared them.
// Each share applies to the whole period.
func Divide(charged *Costs, all []Shared) (*Divided, error) {
	amounts := map[string]money.Amount{}
	for _, r := range charged.Rows {
		id := r.Key[0][strings.LastIndex(r.Key[0], "/")+1:]
		sum, err := amounts[id].Add(r.Amount)
		if err != nil {
			return nil, fmt.Errorf("add up %s: %w", id, err)
		}
		amounts[id] = sum
	}
	out := &Divided{Since: charged.Since, Until: charged.Until}
	shares := map[string][]Share{}
	var order []string
	for _, s := range all {
		if shares[s.Resource] == nil {
			order = append(order, s.Resource)
		}
		shares[s.Resource] = append(shares[s.Resource], s.Share)
	}
	slices.SortStableFunc(order, func(x, y string) int { return cmp.Compare(amounts[y], amounts[x]) })
	for _, id := range order {
		amount, ok := amounts[id]
		if !ok {
			out.Uncharged = append(out.Uncharged, id)
			continue
		}
		parts, err := Split(amount, shares[id])
		if err != nil {
			return nil, fmt.Errorf("divide %s: %w", id, err)
		}
		out.Machines = append(out.Machines, DividedMachine{Resource: id, Amount: amount, Allocation: parts})
	}
	return out, nil
}
