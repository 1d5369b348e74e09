package rightsize

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
)

// fullest is the share of a slower device's throughput, or memory bandwidth, that
// the measured 95th percentile may take: above 85% one scales out.
const fullest = 0.85

// offer is a machine with accelerators at its on-demand price of an hour.
type offer struct {
	machine     price.Machine
	accelerator price.Accelerator
	region      string
	price       price.Price
	hourly      money.Amount
}

// offerKey names a list of offers: the machines of a cloud with a host architecture that a
// region sells, and with clouds those of the other clouds at their lowest price too.
type offerKey struct {
	cloud, arch, region string
	clouds              bool
	// hosts selects the machines without accelerators instead, of every architecture.
	hosts bool
}

// Offers are the machines with accelerators of a price book. Each region is priced once, by
// ascending price, however many machines are judged. They are not safe for concurrent use.
type Offers struct {
	book   *price.Book
	byList map[offerKey][]offer
}

// NewOffers returns the offers of a price book, which may be nil: then nothing is for sale.
func NewOffers(book *price.Book) *Offers {
	if book == nil {
		book = &price.Book{}
	}
	return &Offers{book: book, byList: map[offerKey][]offer{}}
}

// list returns the offers under a key, cheapest first, then by type.
func (f *Offers) list(k offerKey) ([]offer, error) {
	if offers, ok := f.byList[k]; ok {
		return offers, nil
	}
	var offers []offer
	add := func(m price.Machine, region string, p price.Price) error {
		acc, ok := f.book.Accelerator(m.Accelerator)
		if !ok || m.GPUs() == 0 {
			return nil
		}
		hourly, err := p.Hourly()
		if err != nil {
			return err
		}
		offers = append(offers, offer{machine: m, accelerator: acc, region: region, price: p, hourly: hourly})
		return nil
	}
	for _, m := range f.book.Machines() {
		if m.GPUs() == 0 || m.Cloud != k.cloud || m.Arch != k.arch {
			continue
		}
		p, err := f.book.OnDemand(m.Type, k.region)
		if errors.Is(err, price.ErrUnpriced) {
			continue // not sold there, or unknown: nothing can be promised
		}
		if err != nil {
			return nil, err
		}
		if err := add(m, k.region, p); err != nil {
			return nil, err
		}
	}
	if k.clouds {
		for _, e := range elsewhere(f.book, k.cloud) {
			if err := add(machineOf(e, f.book), e.Region, e.Price); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(offers, func(x, y offer) int {
		return cmp.Or(cmp.Compare(x.hourly, y.hourly), cmp.Compare(x.machine.Type, y.machine.Type))
	})
	f.byList[k] = offers
	return offers, nil
}

// candidates yields the offers that fit and, where the own price is known, cost less:
// cheapest first, then what has the least against it. A search that stops early looks at no
// more expensive offer.
func (s *Sizing) candidates(yield func(Candidate) bool) {
	own, priced := s.Hourly.Get()
	var alike []Candidate // of one price
	for i, o := range s.offers {
		if priced && o.hourly >= own {
			break
		}
		if c, ok := s.consider(o); ok {
			alike = append(alike, c)
		}
		if i+1 < len(s.offers) && s.offers[i+1].hourly == o.hourly {
			continue
		}
		slices.SortStableFunc(alike, func(x, y Candidate) int {
			return cmp.Compare(len(x.Against), len(y.Against))
		})
		for _, c := range alike {
			if !yield(c) {
				return
			}
		}
		alike = alike[:0]
	}
	for _, c := range alike {
		if !yield(c) {
			return
		}
	}
}

// consider returns the candidate of an offer, and whether it fits.
func (s *Sizing) consider(o offer) (Candidate, bool) {
	if o.machine.Type == s.m.from.Type || o.accelerator.Vendor != s.Accelerator.Vendor {
		return Candidate{}, false
	}
	c := Candidate{
		Machine: o.machine, Accelerator: o.accelerator, GPUs: o.machine.GPUs(), Region: o.region, Price: o.price,
		Hourly: o.hourly,
	}
	if !s.m.fits(&c, s.Accelerator, s.options) {
		return Candidate{}, false
	}
	needed, possible := s.m.lacks(&c, s.Accelerator, s.options)
	if len(needed) > 0 {
		return Candidate{}, false
	}
	c.Lacks = possible
	if own, priced := s.Hourly.Get(); priced {
		monthly, _ := (own - c.Hourly).Monthly() // less than the own price's, which Size checks
		c.Saving = inventory.Known(monthly)
	}
	s.m.against(&c, s.Accelerator)
	return c, true
}

// elsewhere returns the lowest on-demand price of each machine with accelerators of
// the clouds other than own.
func elsewhere(book *price.Book, own string) []price.Entry {
	var out []price.Entry
	at := map[[2]string]int{}
	for _, e := range book.Entries() {
		if e.Cloud == own || e.Service != price.Compute || e.Term != price.OnDemand {
			continue
		}
		k := [2]string{e.Cloud, e.Type}
		if i, ok := at[k]; !ok {
			at[k] = len(out)
			out = append(out, e)
		} else if e.Price.Rate < out[i].Price.Rate {
			out[i] = e
		}
	}
	return out
}

// machineOf returns what is known of the machine that an entry prices: where the book
// does not know it, its accelerators alone.
func machineOf(e price.Entry, book *price.Book) price.Machine {
	if m, ok := book.Machine(e.Type); ok && m.Cloud == e.Cloud {
		return m
	}
	m := price.Machine{
		Type: e.Type, Cloud: e.Cloud, Accelerator: e.Accelerator, AcceleratorMilli: e.AcceleratorMilli,
		Source: e.Price.Source, AsOf: e.Price.AsOf,
	}
	if acc, ok := book.Accelerator(e.Accelerator); ok {
		m.AcceleratorMemoryMiB = int64(float64(acc.MemoryMiB) * fraction(m))
	}
	return m
}

// hostKnown reports whether the book knows the CPUs and the memory of a machine.
func hostKnown(m price.Machine) bool { return m.VCPUs > 0 && m.MemoryMiB > 0 }

// fits reports whether a machine carries the measured work, and notes how full it
// would be.
func (m *measured) fits(c *Candidate, from price.Accelerator, o Options) bool {
	to := c.Machine
	usable := min(c.GPUs, m.used)
	if usable == 0 || c.Accelerator.BF16TFLOPS <= 0 || from.BF16TFLOPS <= 0 {
		return false
	}
	device := float64(to.AcceleratorMemoryMiB) * mib
	if m.memory {
		if device < m.peak*(1+o.Headroom) || device*float64(usable) < m.peaks*(1+o.Headroom) {
			return false
		}
		c.MemoryShare = m.peak / device
	} else if device < m.device || usable < m.used {
		return false
	}
	throughput, before := c.Accelerator.BF16TFLOPS*fraction(to), from.BF16TFLOPS*fraction(m.from)
	spread := m.total / float64(usable) // where fewer GPUs share the work
	c.ComputeShare = max(m.compute, spread) / throughput
	if alike := throughput >= before && usable == m.used; !alike && c.ComputeShare > fullest {
		return false
	}
	bandwidth := c.Accelerator.MemoryBandwidthGBps * fraction(to)
	if m.transfers && bandwidth > 0 && bandwidth < from.MemoryBandwidthGBps*fraction(m.from) &&
		m.transfer > fullest*bandwidth {
		return false
	}
	if !hostKnown(to) {
		return true // the reason against it
	}
	part := float64(m.used) / float64(m.gpus)
	memory, cpus := float64(m.from.MemoryMiB)*part, float64(m.from.VCPUs)*part
	if m.hostMemory > 0 {
		memory = m.hostMemory
	}
	if m.hostCPU > 0 {
		cpus = m.hostCPU
	}
	return float64(to.MemoryMiB) >= memory && float64(to.VCPUs) >= cpus &&
		(to.NetworkMbps == 0 || m.network <= fullest*float64(to.NetworkMbps))
}

// against notes what speaks against a machine that fits.
func (m *measured) against(c *Candidate, from price.Accelerator) {
	to, add := c.Machine, func(format string, args ...any) {
		c.Against = append(c.Against, fmt.Sprintf(format, args...))
	}
	if c.GPUs < m.used {
		add("the work of %d GPUs runs on %d", m.used, c.GPUs)
	}
	if c.GPUs > m.used {
		add("%d of its %d GPUs stay unused", c.GPUs-m.used, c.GPUs)
	}
	if to.AcceleratorMilli < 1000 {
		add("fractional GPU: needs a vGPU driver")
	}
	for _, f := range c.Lacks {
		add("%s has no %s, which the work may use", c.Accelerator.Name, f)
	}
	if from.FP8TFLOPS > 0 && c.Accelerator.FP8TFLOPS == 0 {
		add("%s has no FP8", c.Accelerator.Name)
	}
	now, then := from.BF16TFLOPS*fraction(m.from), c.Accelerator.BF16TFLOPS*fraction(to)
	if then < now {
		add("%s TFLOP/s instead of %s: work that is compute bound takes longer",
			plain.Number(then, 0), plain.Number(now, 0))
	}
	wide, narrow := from.MemoryBandwidthGBps*fraction(m.from), c.Accelerator.MemoryBandwidthGBps*fraction(to)
	switch {
	case narrow > 0 && narrow < wide && !m.transfers:
		add("memory bandwidth %s GB/s instead of %s; use of it is unmeasured", plain.Number(narrow, 0),
			plain.Number(wide, 0))
	case narrow == 0:
		add("memory bandwidth unknown")
	}
	if to.Cloud != m.from.Cloud {
		add("another cloud: migration cost not included")
	}
	if !hostKnown(to) {
		add("CPUs, memory, disks and network not in the price book")
		return
	}
	if m.hostCPUPeak > float64(to.VCPUs) {
		add("peak CPU use of %s vCPUs exceeds its %d", plain.Number(m.hostCPUPeak, 0), to.VCPUs)
	}
	if to.NetworkMbps > 0 && m.from.NetworkMbps > to.NetworkMbps && !m.networkKnown {
		add("network %s Gbit/s instead of %s; use of it is unmeasured", plain.Number(float64(to.NetworkMbps)/1e3, 1),
			plain.Number(float64(m.from.NetworkMbps)/1e3, 1))
	}
	if to.InstanceStorageGB < m.from.InstanceStorageGB {
		add("local disk %d GB instead of %d", to.InstanceStorageGB, m.from.InstanceStorageGB)
	}
}
