package price

import (
	"math"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// mib is the unit of the memory of machines and accelerators, in bytes.
const mib = 1 << 20

// Size returns the known size of a machine type. A type that the book does not hold is unknown,
// whatever its name suggests.
func (b *Book) Size(machineType string) inventory.Size {
	m, ok := b.machines[machineType]
	if !ok {
		return inventory.Size{}
	}
	s := inventory.Size{
		GPUs: inventory.Known(m.GPUs()), GPU: m.Accelerator, GPUPower: b.power(m.Accelerator),
		InstanceStorageGB: inventory.Known(m.InstanceStorageGB),
	}
	if m.AcceleratorMemoryMiB > 0 {
		s.GPUMemory = inventory.Known(m.AcceleratorMemoryMiB * mib)
	}
	if m.VCPUs > 0 {
		s.MilliCPUs = inventory.Known(int64(m.VCPUs) * 1000)
	}
	if m.MemoryMiB > 0 {
		s.MemoryMiB = inventory.Known(m.MemoryMiB)
	}
	return s
}

// Fill sets unknown parts of a resource's size from the book, and normalizes the name of its GPUs.
// Facts from the adapter stay.
func (b *Book) Fill(r *inventory.Resource) {
	from := b.Size(r.Type)
	if e, ok := r.Detail.(*inventory.Endpoint); ok {
		from = b.endpoint(e)
	}
	s := &r.Size
	if n, known := s.GPUs.Get(); !known {
		s.GPUs, s.GPU, s.GPUMemory = from.GPUs, from.GPU, from.GPUMemory
	} else if n > 0 && n == from.GPUs.Or(0) {
		s.GPU = from.GPU
		s.GPUMemory = or(s.GPUMemory, from.GPUMemory)
	} else if a, ok := b.device(s.GPU, s.GPUMemory.Or(0)); ok {
		s.GPU = a.Name
		s.GPUMemory = or(s.GPUMemory, inventory.Known(a.MemoryMiB*mib))
	}
	s.GPUPower = or(s.GPUPower, b.power(s.GPU))
	s.MilliCPUs = or(s.MilliCPUs, from.MilliCPUs)
	s.MemoryMiB = or(s.MemoryMiB, from.MemoryMiB)
	s.InstanceStorageGB = or(s.InstanceStorageGB, from.InstanceStorageGB)
}

// power returns the TDP of a model in watts.
func (b *Book) power(model string) inventory.Fact[int64] {
	if a, ok := b.Accelerator(model); ok && a.TDPWatts > 0 {
		return inventory.Known(int64(a.TDPWatts))
	}
	return inventory.Fact[int64]{}
}

func or(a, b inventory.Fact[int64]) inventory.Fact[int64] {
	if a.Known() {
		return a
	}
	return b
}

// endpoint sums one machine for each variant of an endpoint. Serverless variants have no
// accelerators (SageMaker AI guide, "Serverless Inference: feature exclusions").
func (b *Book) endpoint(e *inventory.Endpoint) inventory.Size {
	if len(e.Variants) == 0 {
		return inventory.Size{}
	}
	sum := inventory.Size{GPUs: inventory.Known(0)}
	for i, v := range e.Variants {
		one := b.Size(v.Type)
		if v.Serverless {
			one = inventory.Size{GPUs: inventory.Known(0)}
		}
		have, known := sum.GPUs.Get()
		n, also := one.GPUs.Get()
		switch {
		case !known || !also:
			sum.GPUs, sum.GPU, sum.GPUMemory = inventory.Fact[int]{}, "", inventory.Fact[int64]{}
		case n == 0: // no machine to add
		case have == 0:
			sum.GPUs, sum.GPU, sum.GPUMemory = one.GPUs, one.GPU, one.GPUMemory
		default:
			sum.GPUs = inventory.Known(have + n)
			if one.GPU != sum.GPU {
				sum.GPU, sum.GPUMemory = "", inventory.Fact[int64]{} // mixed models
			}
		}
		if i == 0 {
			sum.MilliCPUs, sum.MemoryMiB, sum.InstanceStorageGB = one.MilliCPUs, one.MemoryMiB, one.InstanceStorageGB
			continue
		}
		sum.MilliCPUs = plus(sum.MilliCPUs, one.MilliCPUs)
		sum.MemoryMiB = plus(sum.MemoryMiB, one.MemoryMiB)
		sum.InstanceStorageGB = plus(sum.InstanceStorageGB, one.InstanceStorageGB)
	}
	return sum
}

func plus(a, b inventory.Fact[int64]) inventory.Fact[int64] {
	x, ok := a.Get()
	y, also := b.Get()
	if !ok || !also {
		return inventory.Fact[int64]{}
	}
	return inventory.Known(x + y)
}

// device returns the accelerator for a provider's name; if it is sold with several memory sizes,
// the one within a tenth of memory.
func (b *Book) device(name string, memory int64) (Accelerator, bool) {
	best, off := Accelerator{}, int64(math.MaxInt64)
	for _, a := range b.Accelerators() {
		rest, ok := strings.CutPrefix(canonical(a.Name), canonical(name)+"-")
		if d := max(a.MemoryMiB*mib-memory, memory-a.MemoryMiB*mib); ok && strings.HasSuffix(rest, "gb") &&
			d <= a.MemoryMiB*mib/10 && d < off {
			best, off = a, d
		}
	}
	if best.Name != "" {
		return best, true
	}
	return b.Accelerator(name)
}

// TypeSize is like Size, with false if the book does not hold the type.
func (b *Book) TypeSize(machineType string) (inventory.Size, bool) {
	_, ok := b.machines[machineType]
	return b.Size(machineType), ok
}
