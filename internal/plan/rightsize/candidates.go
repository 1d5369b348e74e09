package rightsize

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// fullest is the share of a slower device's throughput, or memory bandwidth, that
// the measured 95th percentile may take: above 85 % one scales out.
const fullest = 0.85

// look fills in the candidates.
func (a *Advice) look(m *measured, from price.Machine, region string, book *price.Book, o Options) error {
	own, priced := a.Hourly.Get()
	for _, to := range book.Machines() {
		if to.Type == from.Type || to.Cloud != from.Cloud || to.Arch != from.Arch {
			continue
		}
		acc, ok := book.Accelerator(to.Accelerator)
		if !ok || acc.Vendor != a.Accelerator.Vendor {
			continue
		}
		c := Candidate{Machine: to, Accelerator: acc, GPUs: to.GPUs()}
		if !m.fits(&c, a.Accelerator, o) {
			continue
		}
		p, err := book.OnDemand(to.Type, region)
		if errors.Is(err, price.ErrUnpriced) {
			continue // not sold there, or unknown: nothing can be promised
		}
		if err != nil {
			return err
		}
		if c.Hourly, err = p.Hourly(); err != nil {
			return err
		}
		c.Price = p
		if priced {
			if c.Hourly >= own {
				continue
			}
			monthly, err := (own - c.Hourly).Monthly()
			if err != nil {
				return err
			}
			c.Saving = inventory.Known(monthly)
		}
		m.against(&c, a.Accelerator)
		a.Candidates = append(a.Candidates, c)
	}
	slices.SortStableFunc(a.Candidates, func(x, y Candidate) int {
		return cmp.Or(cmp.Compare(x.Hourly, y.Hourly), cmp.Compare(len(x.Against), len(y.Against)), cmp.Compare(x.Machine.Type, y.Machine.Type))
	})
	return nil
}

// fits says whether a machine carries the measured work, and notes how full it
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
	if m.transfers && bandwidth > 0 && bandwidth < from.MemoryBandwidthGBps*fraction(m.from) && m.transfer > fullest*bandwidth {
		return false
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
	to, add := c.Machine, func(format string, args ...any) { c.Against = append(c.Against, fmt.Sprintf(format, args...)) }
	if c.GPUs < m.used {
		add("the work of %d GPUs shares %d", m.used, c.GPUs)
	}
	if c.GPUs > m.used {
		add("%d of its %d GPUs would rest", c.GPUs-m.used, c.GPUs)
	}
	if to.AcceleratorMilli < 1000 {
		add("it has a fraction of a GPU, which needs a driver of its own")
	}
	if from.Precision == "bf16" && c.Accelerator.Precision != "bf16" {
		add("%s does not compute in bfloat16", c.Accelerator.Name)
	}
	if from.FP8TFLOPS > 0 && c.Accelerator.FP8TFLOPS == 0 {
		add("%s does not compute in 8-bit floats", c.Accelerator.Name)
	}
	now, then := from.BF16TFLOPS*fraction(m.from), c.Accelerator.BF16TFLOPS*fraction(to)
	if then < now {
		add("its GPU computes %s TFLOP/s instead of %s: what runs at full speed takes longer", usage.Number(then, 0), usage.Number(now, 0))
	}
	wide, narrow := from.MemoryBandwidthGBps*fraction(m.from), c.Accelerator.MemoryBandwidthGBps*fraction(to)
	switch {
	case narrow > 0 && narrow < wide && !m.transfers:
		add("its memory bandwidth is %s GB/s instead of %s, and nobody measured what is used", usage.Number(narrow, 0), usage.Number(wide, 0))
	case narrow == 0:
		add("its memory bandwidth is not known")
	}
	if m.hostCPUPeak > float64(to.VCPUs) {
		add("CPU peaks of %s vCPUs exceed its %d", usage.Number(m.hostCPUPeak, 0), to.VCPUs)
	}
	if to.NetworkMbps > 0 && m.from.NetworkMbps > to.NetworkMbps && !m.networkKnown {
		add("its network carries %s Gbit/s instead of %s, and nobody measured what is used", usage.Number(float64(to.NetworkMbps)/1e3, 1),
			usage.Number(float64(m.from.NetworkMbps)/1e3, 1))
	}
	if to.InstanceStorageGB < m.from.InstanceStorageGB {
		add("it has %d GB of local disk instead of %d", to.InstanceStorageGB, m.from.InstanceStorageGB)
	}
}
