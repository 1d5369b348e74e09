package price

import (
	"fmt"
	"math"
	"slices"

	"github.com/curfew-dev/curfew/internal/money"
)

// againstPeers compares a machine's price with those of the same and of similar
// accelerators, a managed machine's with the bare machine's, and a cloud's default
// rates with those of other clouds.
func (u *update) againstPeers() func(*candidate) string {
	f := u.field()
	return func(c *candidate) string {
		switch {
		case c.Service == Rates:
			return f.defaults(c)
		case c.Service != Compute:
			return f.managed(c)
		case c.AcceleratorMilli > 0:
			if reason := f.same(c); reason != "" {
				return reason
			}
			return f.similar(c)
		}
		return ""
	}
}

// priced is the price of one device in one region.
type priced struct {
	key  key
	rate money.Rate
}

// field indexes on-demand machine prices per device, of the updated book.
type field struct {
	book     *Book
	bands    Bands
	devices  map[string][]priced
	machines map[key]money.Rate
	rates    map[Item][]priced
}

func (u *update) field() *field {
	f := &field{
		book: u.book, bands: u.bands, devices: map[string][]priced{}, machines: map[key]money.Rate{},
		rates: map[Item][]priced{},
	}
	fresh := map[key]bool{}
	for c := range u.accepted() {
		fresh[c.key()] = true
		f.add(c.Entry)
	}
	for _, e := range u.book.Entries() {
		if !fresh[e.key()] {
			f.add(e)
		}
	}
	return f
}

func (f *field) add(e Entry) {
	switch {
	case e.Term != OnDemand:
	case e.Service == Rates:
		f.rates[e.Item] = append(f.rates[e.Item], priced{e.key(), e.Price.Rate})
	case e.Service == Compute:
		f.machines[e.key()] = e.Price.Rate
		if m, ok := f.book.machines[e.Type]; ok && e.Accelerator == "" {
			e.Accelerator, e.AcceleratorMilli = m.Accelerator, m.AcceleratorMilli
		}
		if r, ok := perAccelerator(e); ok {
			f.devices[e.Accelerator] = append(f.devices[e.Accelerator], priced{e.key(), r})
		}
	}
}

// perAccelerator returns the machine's price divided by its devices.
func perAccelerator(e Entry) (money.Rate, bool) {
	if e.AcceleratorMilli <= 0 || e.Accelerator == "" {
		return 0, false
	}
	v := float64(e.Price.Rate) * perDevice / float64(e.AcceleratorMilli)
	if v < 1 || v > math.MaxInt64/2 {
		return 0, false
	}
	return money.Rate(v), true
}

// others returns the peers of other machine types.
func others(all []priced, of key) []money.Rate {
	var rates []money.Rate
	for _, p := range all {
		if p.key.name != of.name || p.key.cloud != of.cloud {
			rates = append(rates, p.rate)
		}
	}
	slices.Sort(rates)
	return rates
}

// minPeers is the minimum number of contradicting prices for a refusal.
const minPeers = 2

// same compares with other machines with the same accelerator. Spot prices can be low for good
// reasons, so only high ones are reported.
func (f *field) same(c *candidate) string {
	mine, ok := perAccelerator(c.Entry)
	if !ok {
		return ""
	}
	peers := others(f.devices[c.Accelerator], c.key())
	if len(peers) == 0 || c.Term == Spot && mine < peers[len(peers)/2] {
		return ""
	}
	if !outvoted(mine, peers, f.bands.Same, minPeers) {
		return ""
	}
	return fmt.Sprintf("%s an hour for one %s is more than %g times off others' %s", mine, c.Accelerator, f.bands.Same,
		peers[len(peers)/2])
}

// similar compares by throughput and memory with accelerators of similar age.
func (f *field) similar(c *candidate) string {
	mine, ok := perAccelerator(c.Entry)
	a, known := f.book.Accelerator(c.Accelerator)
	if !ok || !known || a.BF16TFLOPS <= 0 {
		return ""
	}
	var byThroughput, byMemory []float64
	for name, all := range f.devices {
		b, known := f.book.Accelerator(name)
		if !known || name == a.Name || b.BF16TFLOPS <= 0 || b.Precision != a.Precision ||
			distance(a.ReleaseYear, b.ReleaseYear) > f.bands.SimilarYears {
			continue
		}
		// One peer per device, its median price: sizes and regions of one device are not
		// independent.
		rates := others(all, c.key())
		if len(rates) == 0 {
			continue
		}
		median := float64(rates[len(rates)/2])
		byThroughput = append(byThroughput, median/b.BF16TFLOPS)
		byMemory = append(byMemory, median/float64(b.MemoryMiB))
	}
	if len(byThroughput) < minPeers {
		return ""
	}
	slices.Sort(byThroughput)
	slices.Sort(byMemory)
	throughput := float64(mine) / a.BF16TFLOPS / byThroughput[len(byThroughput)/2]
	memory := float64(mine) / float64(a.MemoryMiB) / byMemory[len(byMemory)/2]
	dear := throughput > f.bands.Similar && memory > f.bands.Similar
	cheap := c.Term != Spot && throughput < 1/f.bands.Similar && memory < 1/f.bands.Similar
	if !dear && !cheap {
		return ""
	}
	return fmt.Sprintf(
		"%s an hour for one %s is %.2g times what accelerators of its time cost by TFLOP/s and %.2g times by GiB",
		mine,
		c.Accelerator, throughput, memory)
}

func distance(a, b int) int { return max(a-b, b-a) }

// managed compares with the bare machine in the same region.
func (f *field) managed(c *candidate) string {
	k := c.key()
	k.service = Compute
	bare, ok := f.machines[k]
	if !ok || !apart(c.Price.Rate, bare, f.bands.Managed) {
		return ""
	}
	return fmt.Sprintf("%s is more than %g times off the machine without the service, %s",
		c.Price.Rate, f.bands.Managed,
		bare)
}

// cheapestDivisor bounds how far below the book's cheapest device a default GPU price may be, as a
// divisor.
const cheapestDivisor = 3

// defaults compares a cloud's default rates with those of other clouds, and a
// default GPU with the cheapest device known.
func (f *field) defaults(c *candidate) string {
	if c.Term != OnDemand {
		return ""
	}
	switch c.Item {
	case ItemDefaultVCPU, ItemDefaultMemory, ItemDefaultGPU:
	default:
		return ""
	}
	var peers []money.Rate
	for _, p := range f.rates[c.Item] {
		if p.key.cloud != c.Cloud {
			peers = append(peers, p.rate)
		}
	}
	if outvoted(c.Price.Rate, peers, f.bands.Defaults, minPeers) {
		slices.Sort(peers)
		return fmt.Sprintf("%s is more than %g times off other clouds' default, %s", c.Price.Rate, f.bands.Defaults,
			peers[len(peers)/2])
	}
	if c.Item != ItemDefaultGPU {
		return ""
	}
	cheapest := money.Rate(math.MaxInt64)
	for _, all := range f.devices {
		for _, p := range all {
			cheapest = min(cheapest, p.rate)
		}
	}
	if cheapest != math.MaxInt64 && c.Price.Rate < cheapest/cheapestDivisor {
		return fmt.Sprintf("%s for a GPU is more than %d times below the cheapest device known, %s", c.Price.Rate,
			cheapestDivisor, cheapest)
	}
	return ""
}
