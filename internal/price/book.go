package price

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
)

// AWS is the cloud of look-ups that do not name one.
const AWS = "aws"

// Book holds machine types, accelerators and prices. The zero Book is empty and prices nothing. A
// Book may be read concurrently, but not during Load.
type Book struct {
	machines map[string]Machine
	// catalog holds the machines sorted, for planners that iterate over them.
	catalog      []Machine
	accelerators map[string]Accelerator // by canonical name
	base         map[key]Entry          // as embedded; shared between books, never written
	overlay      map[key]Entry          // the user's prices
	commitments  []Commitment           // as embedded
}

// Machine returns a machine type, and false if it is unknown.
func (b *Book) Machine(t string) (Machine, bool) {
	m, ok := b.machines[t]
	return m, ok
}

// Machines returns all machine types by cloud, family and size. The slice must not be changed.
func (b *Book) Machines() []Machine { return b.catalog }

// ordered sorts machine types by cloud, family and size.
func ordered(machines map[string]Machine) []Machine {
	return slices.SortedFunc(maps.Values(machines), func(x, y Machine) int {
		return cmp.Or(cmp.Compare(x.Cloud, y.Cloud), cmp.Compare(x.Family, y.Family), cmp.Compare(x.VCPUs, y.VCPUs),
			cmp.Compare(x.MemoryMiB, y.MemoryMiB), cmp.Compare(x.Type, y.Type))
	})
}

// Accelerator returns a device by its name or a common alias ("A100-80", "H100-NVL", "Tesla T4"),
// and false if it is unknown.
func (b *Book) Accelerator(name string) (Accelerator, bool) {
	c := canonical(name)
	if alias, ok := acceleratorAliases[c]; ok {
		c = canonical(alias)
	}
	a, ok := b.accelerators[c]
	return a, ok
}

// Accelerators returns all devices by release year and name.
func (b *Book) Accelerators() []Accelerator {
	return slices.SortedFunc(maps.Values(b.accelerators), func(x, y Accelerator) int {
		return cmp.Or(cmp.Compare(x.ReleaseYear, y.ReleaseYear), cmp.Compare(x.Name, y.Name))
	})
}

// DidYouMean suggests a machine type, accelerator or region similar to an unknown name (see
// [document.DidYouMean]).
func (b *Book) DidYouMean(name string) string {
	var names []string
	for _, m := range b.catalog {
		names = append(names, m.Type)
	}
	for _, a := range b.Accelerators() {
		base, _, _ := strings.Cut(a.Name, "-") // "H100" is a name of H100-80GB too
		names = append(names, a.Name, base)
	}
	return document.DidYouMean(name, slices.Concat(names, b.Regions()))
}

// Regions returns the regions with at least one price, sorted.
func (b *Book) Regions() []string {
	regions := map[string]bool{}
	for _, prices := range []map[key]Entry{b.base, b.overlay} {
		for k := range prices {
			if k.region != "" {
				regions[k.region] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(regions))
}

// Price returns the unit price of a cloud's offer in a region: of Compute by machine type, of Rates
// by item, and of machines of a managed service by the service's name ("sagemaker", "rds:postgres",
// "opensearch"). A price without a region applies to all. An empty term is OnDemand. It wraps
// ErrUnpriced if there is no price.
func (b *Book) Price(cloud, service, sku, region string, term Term) (Price, error) {
	k := key{cloud, service, sku, region, cmp.Or(term, OnDemand)}
	if p, ok := b.find(k); ok {
		return p, nil
	}
	k.region = ""
	if p, ok := b.find(k); ok {
		return p, nil
	}
	hint := updateHint(cloud, service, sku, region, k.term)
	switch service {
	case Rates:
		return Price{}, fmt.Errorf("rate of %s in %s: %s: %w", named(sku), named(region), hint, ErrUnpriced)
	case Compute:
		if _, known := b.machines[sku]; !known {
			hint = "the type is not in the price book; " + hint
		}
		service = string(k.term)
	}
	return Price{}, fmt.Errorf("%s price of %s in %s: %s: %w", service, named(sku), named(region), hint, ErrUnpriced)
}

// OnDemand returns the hourly on-demand price of an AWS machine: Linux without a paid license,
// shared tenancy. It wraps ErrUnpriced if there is none.
func (b *Book) OnDemand(machineType, region string) (Price, error) {
	return b.Price(AWS, Compute, machineType, region, OnDemand)
}

// Spot returns the hourly spot price of an AWS machine, the median over the region's zones on its
// date. It wraps ErrUnpriced if there is none.
func (b *Book) Spot(machineType, region string) (Price, error) {
	return b.Price(AWS, Compute, machineType, region, Spot)
}

// MachineRate returns the spot or on-demand price of an AWS machine, or nil.
func (b *Book) MachineRate(machineType, region string, spot bool) *money.Rate {
	look := b.OnDemand
	if spot {
		look = b.Spot
	}
	p, err := look(machineType, region)
	if err != nil {
		return nil
	}
	return &p.Rate
}

// Managed returns the hourly price of a machine of a managed AWS service: "sagemaker" (the type
// without "ml."), "rds:postgres" and "rds:mysql" (the class, one zone), "opensearch" (the type with
// its ".search"). It wraps ErrUnpriced if there is none.
func (b *Book) Managed(service, machineType, region string) (Price, error) {
	if service == "sagemaker" {
		machineType = strings.TrimPrefix(machineType, "ml.")
	}
	return b.Price(AWS, service, machineType, region, OnDemand)
}

// Rate returns the unit price of an AWS item; [Price.Cost] applies its tiers. It wraps ErrUnpriced
// if there is none.
func (b *Book) Rate(item Item, region string) (Price, error) {
	return b.Price(AWS, Rates, string(item), region, OnDemand)
}

// With returns the book with further prices, which replace existing ones.
func (b *Book) With(entries ...Entry) *Book {
	next := *b
	if next.overlay = maps.Clone(b.overlay); next.overlay == nil {
		next.overlay = map[key]Entry{}
	}
	for _, e := range entries {
		next.overlay[e.key()] = e
	}
	return &next
}

// named keeps an error readable when a name is empty.
func named(s string) string { return cmp.Or(s, `""`) }

func (b *Book) find(k key) (Price, bool) {
	e, ok := b.held(k)
	return e.Price, ok
}

func (b *Book) held(k key) (Entry, bool) {
	if e, ok := b.overlay[k]; ok {
		return e, true
	}
	e, ok := b.base[k]
	return e, ok
}

// Entries returns every price of the book, with the user's prices in place of embedded ones, by
// cloud, service, name, region and term.
func (b *Book) Entries() []Entry {
	all := make([]Entry, 0, len(b.base)+len(b.overlay))
	for k, e := range b.base {
		if _, own := b.overlay[k]; !own {
			all = append(all, e)
		}
	}
	for _, e := range b.overlay {
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y Entry) int { return compareKeys(x.key(), y.key()) })
	return all
}

// Own reports whether an entry is the user's: from an update or a file, not embedded.
func (b *Book) Own(e Entry) bool {
	_, own := b.overlay[e.key()]
	return own
}
