package ledger

import (
	"errors"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// RunRates returns the monthly cost of each resource in its current state at list price: one charge
// per meter, quantity × price. Resources without a meter have no entry.
func RunRates(resources []*inventory.Resource, book *price.Book) map[inventory.Ref][]Charge {
	out := make(map[inventory.Ref][]Charge, len(resources))
	for _, r := range resources {
		if len(r.Meters) == 0 {
			continue
		}
		charges := make([]Charge, len(r.Meters))
		for i := range r.Meters {
			charges[i] = charge(r, &r.Meters[i], book)
		}
		out[r.Ref()] = charges
	}
	return out
}

// charge prices a meter.
func charge(r *inventory.Resource, m *inventory.Meter, book *price.Book) Charge {
	c := Charge{
		Resource: r, Meter: m.Name, Category: m.Category, Unit: m.Unit, Moves: m.PriceChangesHourly,
		MinimumSeconds: m.MinimumSeconds,
		Estimate:       m.Estimate, Unpriced: m.UnpricedReason}
	if m.Per > 0 {
		c.Quantity = quotient(m.Quantity, m.Per)
	}
	if m.Price != nil {
		c.Source, c.AsOf = m.Price.Source, m.Price.AsOf
	}
	if c.Unpriced != "" {
		return c
	}
	var p price.Price
	var err error
	if m.Price != nil {
		p = price.Price{Unit: m.Unit, Rate: m.Price.Rate, Source: m.Price.Source, AsOf: m.Price.AsOf}
	} else {
		p, err = book.Price(m.Cloud, m.Service, m.SKU, m.Region, price.Term(m.Term))
	}
	if m.PriceChangesHourly {
		if most, err := book.Price(m.Cloud, m.Service, m.SKU, m.Region, price.OnDemand); err == nil {
			c.AtMost, _ = most.Cost(m.Quantity, m.Per) // without a bound on overflow
		}
	}
	if err == nil {
		c.UnitPrice, c.Source, c.AsOf = p.Rate.String(), p.Source, p.AsOf
		c.ListCost, err = p.Cost(m.Quantity, m.Per)
	}
	if err != nil {
		c.Unpriced = err.Error()
		if errors.Is(err, price.ErrUnpriced) {
			c.Unpriced = strings.TrimSuffix(strings.TrimSuffix(c.Unpriced, price.ErrUnpriced.Error()), ": ")
		}
	}
	return c
}

// AnHour returns the hourly sum of charges; unknown if one has no price or if there are none.
func AnHour(charges []Charge) (inventory.Fact[money.Amount], error) {
	var month money.Amount
	for _, c := range charges {
		if c.Unpriced != "" {
			return inventory.Fact[money.Amount]{}, nil
		}
		var err error
		if month, err = month.Add(c.ListCost); err != nil {
			return inventory.Fact[money.Amount]{}, err
		}
	}
	if len(charges) == 0 {
		return inventory.Fact[money.Amount]{}, nil
	}
	hour, err := month.Mul(1, money.HoursPerMonth)
	return inventory.Known(hour), err
}

// quotient formats n/d with up to three fractional digits.
func quotient(n, d int64) string {
	s := strconv.FormatFloat(float64(n)/float64(d), 'f', 3, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
