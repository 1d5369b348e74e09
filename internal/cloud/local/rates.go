package local

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// tariff is [Rates], read.
type tariff struct {
	// gpu is the price of an hour of one GPU, by the book's name of it.
	gpu map[string]money.Amount
	// vcpu and memory are those of a CPU and of a GiB. Unknown means that the price of the
	// GPUs includes them; a machine without GPUs then has no price.
	vcpu, memory inventory.Fact[money.Amount]
	source       string
	asOf         time.Time
}

// meter is what a machine of a cloud is charged for: its hours, at what an hour of all that it has
// costs.
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
		m.Unpriced = err.Error()
	}
	return m
}

// hour returns what an hour of a machine costs.
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
		{r.vcpu, size.MilliCPUs.Or(0), 1000, "a CPU-hour"}, {r.memory, size.MemoryMiB.Or(0), 1024, "a GiB-hour of memory"},
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

// Prices are those of single GPUs, for a price book to know.
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
