package ledger

import (
	"fmt"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Rates are prices that the user states for machines that no price book knows:
// Kubernetes nodes on premises, colocated servers.
type Rates struct {
	// GPUHour is the price of an hour of one GPU, by its name on the machine.
	GPUHour map[string]money.Amount
	// VCPUHour and MemoryGiBHour are those of a CPU and of a GiB. Unknown means that
	// the price of the GPUs includes them; a machine without GPUs then has no price.
	VCPUHour, MemoryGiBHour inventory.Fact[money.Amount]
	// Source says whose prices they are: "finance, capacity plan 2026". AsOf is the
	// date they hold from.
	Source string
	AsOf   time.Time
}

// Size is what of a machine is paid for.
type Size struct {
	GPUs int64
	// GPU is the name of its GPUs; empty where it has none.
	GPU string
	// MilliCPUs is CPUs × 1000, as Kubernetes states them.
	MilliCPUs, MemoryMiB int64
}

// Fill adds a compute charge to every running machine whose size is given and which has
// no compute charge with a price. Those without a rate are unpriced and say so.
func (r Rates) Fill(resources []*inventory.Resource, sizes map[inventory.Ref]Size, charges map[inventory.Ref][]Charge) {
	for _, res := range resources {
		ref := res.Ref()
		size, ok := sizes[ref]
		if !ok || res.State != inventory.StateRunning {
			continue
		}
		var kept []Charge
		priced := false
		for _, c := range charges[ref] {
			priced = priced || (c.Category == Compute && c.Unpriced == "")
			if c.Category != Compute || c.Unpriced == "" {
				kept = append(kept, c)
			}
		}
		if !priced {
			charges[ref] = append(kept, r.charge(res, size))
		}
	}
}

// charge prices one machine.
func (r Rates) charge(res *inventory.Resource, size Size) Charge {
	c := Charge{
		Resource: res, Meter: "compute", Category: Compute, Quantity: strconv.Itoa(money.HoursPerMonth), Unit: "hour",
		Source: r.Source, AsOf: r.AsOf, Estimate: "at the configured rates",
	}
	hour, err := r.hour(size)
	if err == nil {
		c.UnitPrice = hour.String()
		c.ListCost, err = hour.Monthly()
	}
	if err != nil {
		c.Unpriced = err.Error()
	}
	return c
}

// hour returns what an hour of a machine costs.
func (r Rates) hour(size Size) (money.Amount, error) {
	var total money.Amount
	if size.GPUs > 0 {
		gpu, ok := r.GPUHour[size.GPU]
		if !ok {
			return 0, fmt.Errorf("no rate of a GPU-hour of %q is configured", size.GPU)
		}
		var err error
		if total, err = gpu.Mul(size.GPUs, 1); err != nil {
			return 0, err
		}
	}
	for _, part := range []struct {
		rate inventory.Fact[money.Amount]
		n, d int64
		what string
	}{{r.VCPUHour, size.MilliCPUs, 1000, "a CPU-hour"}, {r.MemoryGiBHour, size.MemoryMiB, 1024, "a GiB-hour of memory"}} {
		rate, known := part.rate.Get()
		if !known && size.GPUs > 0 {
			continue
		}
		if !known {
			return 0, fmt.Errorf("no rate of %s is configured", part.what)
		}
		cost, err := rate.Mul(part.n, part.d)
		if err != nil {
			return 0, err
		}
		if total, err = total.Add(cost); err != nil {
			return 0, err
		}
	}
	if total <= 0 {
		return 0, fmt.Errorf("the configured rates come to %s an hour", total)
	}
	return total, nil
}
