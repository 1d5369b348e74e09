package local

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// tariff holds parsed [Rates].
type tariff struct {
	// gpu is the hourly price of a GPU by the book's name.
	gpu map[string]money.Amount
	// vcpu and memory are the hourly prices of a CPU and a GiB. Unknown means that the GPU price
	// includes them; machines without GPUs are then unpriced.
	vcpu, memory inventory.Fact[money.Amount]
	source       string
	asOf         time.Time
}

// meter returns the hourly charge for a machine of a size.
func (r tariff) meter(cloud string, size inventory.Size) inventory.Meter {
	m := inventory.Meter{
		Name: "compute", Category: inventory.CategoryCompute, Cloud: cloud, Service: price.Compute, Unit: "hour",
		Quantity: money.HoursPerMonth, Per: 1, Price: &inventory.Price{Source: r.source, AsOf: r.asOf},
		Estimate: "at the configured rates"}
	hour, err := r.hour(size)
	if err == nil {
		m.Price.Rate, err = hour.Rate()
	}
	if err != nil {
		m.UnpricedReason = err.Error()
	}
	return m
}

// hour returns the hourly price of a machine.
func (r tariff) hour(size inventory.Size) (money.Amount, error) {
	var total money.Amount
	gpus := int64(size.GPUs.Or(0))
	if gpus > 0 {
		gpu, ok := r.gpu[size.GPU]
		if !ok {
			return 0, fmt.Errorf("no rate of a GPU-hour of %q is configured", size.GPU)
		}
		var err error
		if total, err = gpu.Mul(gpus, 1); err != nil {
			return 0, err
		}
	}
	for _, part := range []struct {
		rate inventory.Fact[money.Amount]
		n, d int64
		what string
	}{
		{
			r.vcpu, size.MilliCPUs.Or(0), 1000, "a CPU-hour",
		}, {r.memory, size.MemoryMiB.Or(0), 1024, "a GiB-hour of memory"},
	} {
		rate, known := part.rate.Get()
		if !known && gpus > 0 {
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

// Prices returns the prices of single GPUs for a price book.
func (f *Fleet) Prices() []price.Entry {
	var out []price.Entry
	for name, hour := range f.rates.gpu {
		if rate, err := hour.Rate(); err == nil {
			out = append(out, price.Entry{Cloud: OnPremises, Service: price.GPUs, Type: name, Term: price.OnDemand,
				Price: price.Price{Unit: "hour", Rate: rate, Source: f.rates.source, AsOf: f.rates.asOf}})
		}
	}
	return out
}
