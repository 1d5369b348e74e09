package rightsize

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
)

// fullest is the share of a slower device's throughput, or memory bandwidth, that
// the measured 95th percentile may take: above 85% one scales out.
const fullest = 0.85

// look fills in the candidates.
func (a *Advice) look(m *measured, from price.Machine, region string, book *price.Book, o Options) error {
	for _, to := range book.Machines() {
		if to.Type == from.Type || to.Cloud != from.Cloud || to.Arch != from.Arch {
			continue
		}
		p, err := book.OnDemand(to.Type, region)
		if errors.Is(err, price.ErrUnpriced) {
			continue // not sold there, or unknown: nothing can be promised
		}
		if err != nil {
			return err
		}
		if err := a.consider(m, to, region, p, book, o); err != nil {
			return err
		}
	}
	if o.Clouds {
		for _, e := range elsewhere(book, from.Cloud) {
			if err := a.consider(m, machineOf(e, book), e.Region, e.Price, book, o); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(a.Candidates, func(x, y Candidate) int {
		return cmp.Or(cmp.Compare(x.Hourly, y.Hourly), cmp.Compare(len(x.Against), len(y.Against)),
			cmp.Compare(x.Machine.Type, y.Machine.Type))
	})
	return nil
}

// consider adds a machine to the candidates where it fits and costs less.
func (a *Advice) consider(m *measured, to price.Machine, region string, p price.Price, book *price.Book,
	o Options) error {
	acc, ok := book.Accelerator(to.Accelerator)
	if !ok || acc.Vendor != a.Accelerator.Vendor {
		return nil
	}
	c := Candidate{Machine: to, Accelerator: acc, GPUs: to.GPUs(), Region: region, Price: p}
	if !m.fits(&c, a.Accelerator, o) {
		return nil
	}
	var err error
	if c.Hourly, err = p.Hourly(); err != nil {
		return err
	}
	if own, priced := a.Hourly.Get(); priced {
		if c.Hourly >= own {
			return nil
		}
		monthly, err := (own - c.Hourly).Monthly()
		if err != nil {
			return err
		}
		c.Saving = inventory.Known(monthly)
	}
	m.against(&c, a.Accelerator)
	a.Candidates = append(a.Candidates, c)
	return nil
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
		return true // said against it
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
	if from.Precision == "bf16" && c.Accelerator.Precision != "bf16" {
		add("%s has no bfloat16", c.Accelerator.Name)
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
