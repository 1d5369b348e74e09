package mig

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// Cost is the cost of a plan's GPUs, and of as many GPUs as there are workloads, each alone on one.
// Amounts are null if a GPU has no price.
type Cost struct {
	// HourUSD is an hour of the GPUs in use, MonthUSD a month of 730 hours.
	HourUSD  money.Dollars `json:"cost_usd_per_hour"`
	MonthUSD money.Dollars `json:"monthly_cost_usd"`
	// ApartMonthUSD is a month with a GPU of the same model for each placed workload, and SavingUSD
	// the difference. Where the plan starts from current placements, BeforeGPUs are the GPUs they
	// use, and the saving is that of the GPUs that become free.
	ApartMonthUSD money.Dollars `json:"monthly_cost_without_sharing_usd"`
	BeforeGPUs    *int          `json:"gpus_used_before,omitempty"`
	SavingUSD     money.Dollars `json:"monthly_saving_usd"`
	// Prices are those of each model in use.
	Prices []GPUPrice `json:"prices"`
}

// GPUPrice is the price of an hour of one GPU.
type GPUPrice struct {
	Model   string        `json:"model"`
	HourUSD money.Dollars `json:"usd_per_hour"`
	// Machine is the machine whose price is divided by its GPUs, in a region.
	Machine string `json:"machine,omitempty"`
	Region  string `json:"region,omitempty"`
	Source  string `json:"source,omitempty"`
	AsOf    string `json:"as_of,omitempty"`
	// Why says why there is no price.
	Why string `json:"why,omitempty"`
}

// PriceOf returns the lowest on-demand price of a GPU of a model in a region: that of a machine with
// whole GPUs, divided by their number. A price given in its place is that of every GPU; 0 is none.
func PriceOf(book *price.Book, model, region string, given money.Amount) (GPUPrice, error) {
	best := GPUPrice{Model: model}
	if given > 0 {
		best.HourUSD, best.Source = money.Known(given), "given"
		return best, nil
	}
	want, known := book.Accelerator(model)
	for _, m := range book.Machines() {
		acc, ok := book.Accelerator(m.Accelerator)
		if !known || !ok || acc.Name != want.Name || m.AcceleratorMilli < 1000 {
			continue
		}
		p, err := book.Price(m.Cloud, price.Compute, m.Type, region, price.OnDemand)
		if errors.Is(err, price.ErrUnpriced) {
			continue
		}
		var hourly money.Amount
		if err == nil {
			hourly, err = p.Cost(1000, m.AcceleratorMilli)
		}
		if err != nil {
			return best, fmt.Errorf("price a GPU of %s: %w", m.Type, err)
		}
		if was, ok := best.HourUSD.Get(); !ok || hourly < was {
			best.HourUSD, best.Machine, best.Region = money.Known(hourly), m.Type, region
			best.Source, best.AsOf = p.Source, p.AsOf.Format(time.DateOnly)
		}
	}
	if !best.HourUSD.Known() {
		best.Why = fmt.Sprintf("no machine with %s has a price in %s: give --price or --region", model, region)
	}
	return best, nil
}

// Charge adds the cost of the plan by the price of each model; before are the GPUs in use today by
// model, nil if the plan starts from empty GPUs.
func (r *Report) Charge(priceOf func(model string) (GPUPrice, error), before map[string]int) error {
	used, apart := map[string]int{}, map[string]int{}
	for _, g := range r.GPUs {
		used[g.Model]++
		apart[g.Model] += len(g.Placements)
	}
	c := Cost{HourUSD: money.Known(0), ApartMonthUSD: money.Known(0), Prices: []GPUPrice{}}
	was := money.Known(0)
	if before != nil {
		n := 0
		for _, of := range before {
			n += of
		}
		c.BeforeGPUs = &n
	}
	var models []string
	for _, m := range []map[string]int{used, before} {
		for model := range m {
			models = append(models, model)
		}
	}
	slices.Sort(models)
	for _, model := range slices.Compact(models) {
		p, err := priceOf(model)
		if err != nil {
			return err
		}
		c.Prices = append(c.Prices, p)
		for _, part := range []struct {
			sum   *money.Dollars
			units int64
		}{
			{&c.HourUSD, int64(used[model])}, {&c.ApartMonthUSD, int64(apart[model]) * money.HoursPerMonth},
			{&was, int64(before[model]) * money.HoursPerMonth},
		} {
			if err := addUnits(part.sum, p.HourUSD, part.units); err != nil {
				return fmt.Errorf("add up the GPUs of the plan: %w", err)
			}
		}
	}
	if hour, ok := c.HourUSD.Get(); ok {
		month, err := hour.Monthly()
		if err != nil {
			return fmt.Errorf("add up the GPUs of the plan: %w", err)
		}
		c.MonthUSD = money.Known(month)
		from := c.ApartMonthUSD
		if before != nil {
			from = was
		}
		if v, ok := from.Get(); ok {
			c.SavingUSD = money.Known(v - month)
		}
	}
	r.Cost = &c
	return nil
}

// addUnits adds a number of units of a price; a price that is unknown makes the sum unknown.
func addUnits(sum *money.Dollars, each money.Dollars, units int64) error {
	v, known := each.Get()
	have, summed := sum.Get()
	if units == 0 || !summed {
		return nil
	}
	if !known {
		*sum = money.Dollars{}
		return nil
	}
	a, err := v.Mul(units, 1)
	if err == nil {
		a, err = have.Add(a)
	}
	*sum = money.Known(a)
	return err
}

// GPUsOf counts the GPUs of current placements by model.
func GPUsOf(f Fleet, today []Placed) map[string]int {
	seen, out := map[string]bool{}, map[string]int{}
	for _, p := range today {
		if seen[p.GPU] {
			continue
		}
		seen[p.GPU] = true
		model := p.Model
		if m, err := ModelNamed(model); err == nil {
			model = m.Name
		} else if model == "" && len(f) > 0 {
			model = f[0].Model.Name
		}
		out[model]++
	}
	return out
}
