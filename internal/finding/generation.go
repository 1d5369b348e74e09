package finding

import (
	"cmp"
	"errors"
	"slices"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// minBandwidthShare is the minimum share of the memory bandwidth that a newer machine must offer, so
// that memory-bound work does not slow down. A tenth less is within the difference between stated
// and achieved bandwidth.
const minBandwidthShare = 0.9

// device is a machine with the combined specifications of its accelerators.
type device struct {
	price.Machine
	accelerator       price.Accelerator
	memoryMiB         int64
	tflops, bandwidth float64
}

func (x *Index) device(m price.Machine) (device, bool) {
	a, ok := x.account.Prices.Accelerator(m.Accelerator)
	if !ok || a.BF16TFLOPS <= 0 || m.AcceleratorMilli <= 0 {
		return device{}, false
	}
	n := float64(m.AcceleratorMilli) / 1000
	return device{Machine: m, accelerator: a, memoryMiB: m.AcceleratorMemoryMiB * int64(m.GPUs()),
		tflops: n * a.BF16TFLOPS, bandwidth: n * a.MemoryBandwidthGBps}, true
}

// successor is a newer machine type that does the same work for less.
type successor struct {
	device
	from         device
	list, hourly money.Amount
	// smallerHost is true if the machine has fewer CPUs or less host memory.
	smallerHost bool
	found       bool
}

// successorOf returns the cheapest newer machine of the same cloud and kind of accelerator in a
// region with at least the throughput and memory of the accelerators, each and in total, nearly
// their bandwidth, and a price at least a tenth lower. One with a smaller host is returned only if
// there is no other.
func (x *Index) successorOf(machineType, region string) successor {
	key := [2]string{machineType, region}
	if s, ok := x.successors[key]; ok {
		return s
	}
	s := x.findSuccessor(machineType, region)
	if x.successors == nil {
		x.successors = map[[2]string]successor{}
	}
	x.successors[key] = s
	return s
}

func (x *Index) findSuccessor(machineType, region string) (best successor) {
	m, ok := x.machine(machineType)
	if !ok || m.ReleaseYear == 0 || m.GPUs() == 0 {
		return best
	}
	from, ok := x.device(m)
	if !ok {
		return best
	}
	list, err := x.onDemandPrice(machineType, region)
	if err != nil {
		return best
	}
	limit, err := list.Mul(1000-int64(x.Thresholds.RightsizeSaving*1000), 1000)
	if err != nil {
		x.fail(err)
		return best
	}
	for _, c := range x.devices() {
		if c.Cloud != from.Cloud || !alike(c.accelerator, from.accelerator) || c.ReleaseYear <= from.ReleaseYear ||
			c.Arch != from.Arch ||
			c.tflops < from.tflops || c.memoryMiB < from.memoryMiB ||
			c.AcceleratorMemoryMiB < from.AcceleratorMemoryMiB ||
			c.bandwidth < minBandwidthShare*from.bandwidth {
			continue
		}
		hourly, err := x.onDemandPrice(c.Type, region)
		if err != nil || hourly > limit {
			continue
		}
		next := successor{device: c, from: from, list: list, hourly: hourly, found: true,
			smallerHost: c.VCPUs < from.VCPUs || c.MemoryMiB < from.MemoryMiB}
		if !best.found || (best.smallerHost && !next.smallerHost) ||
			(best.smallerHost == next.smallerHost && next.hourly < best.hourly) {
			best = next
		}
	}
	return best
}

// devices returns the machine types with accelerators in a fixed order.
func (x *Index) devices() []device {
	if x.accelerated == nil && x.account.Prices != nil {
		x.accelerated = []device{}
		for _, m := range x.account.Prices.Machines() {
			if d, ok := x.device(m); ok {
				x.accelerated = append(x.accelerated, d)
			}
		}
		slices.SortFunc(x.accelerated, func(a, b device) int { return cmp.Compare(a.Type, b.Type) })
	}
	return x.accelerated
}

// onDemandPrice returns a machine type's hourly price; price.ErrUnpriced if the book lacks it.
func (x *Index) onDemandPrice(machineType, region string) (money.Amount, error) {
	hourly, err := x.hourly(func(b *price.Book) (price.Price, error) { return b.OnDemand(machineType, region) })
	if err != nil && !errors.Is(err, price.ErrUnpriced) {
		x.fail(err)
	}
	return hourly, err
}

// generationOld finds machines whose successors do the same work for less.
func generationOld(x *Index, s *Subject) *Draft {
	i, ok := onDemand(s)
	if !ok || i.CapacityReservationID != "" {
		return nil
	}
	n := x.successorOf(s.Type, s.Region)
	if !n.found {
		return nil
	}
	ratio := n.tflops / float64(n.hourly) / (n.from.tflops / float64(n.list))
	d := &Draft{Finding: Finding{
		Confidence: Medium,
		Because:    n.Type + ": " + plain.Number(ratio, 1) + "× the work per dollar",
		Evidence: []usage.Evidence{
			Fact(s, "type", s.Type), usage.Fact("successor", n.Type, n.Source),
			usage.Fact("bf16_tflops", plain.Decimal(n.from.tflops, 0)+" to "+plain.Decimal(n.tflops, 0), "price book"),
			usage.Fact("accelerator_memory_gib", plain.Decimal(float64(n.from.memoryMiB)/1024, 0)+" to "+plain.Decimal(
				float64(n.memoryMiB)/1024, 0), "price book"),
			usage.Fact("memory_bandwidth_gbps",
				plain.Decimal(n.from.bandwidth, 0)+" to "+plain.Decimal(n.bandwidth, 0),
				"price book"),
			Priced("usd_per_hour", n.list, "price book"), Priced("successor_usd_per_hour", n.hourly, "price book"),
		},
		Fix: Fix{
			Change: change.Change{Verb: change.ChangeType, Arguments: change.Arguments{Type: n.Type}}, Undo: UndoFull,
			Note: "drivers and libraries must know the newer accelerator; it is stopped for the change",
		},
	}}
	losesLocalDisks(&d.Fix, s.Size)
	if n.smallerHost {
		d.Confidence = Low
		d.Unknown = "its host is smaller (" + plain.Count(n.VCPUs, "CPU") + ", " + plain.Number(
			float64(n.MemoryMiB)/1024,
			0) + " GiB); whether that suffices is not measured"
	}
	var note string
	d.Fix.Risk, note = Risk(s.Resource, Medium)
	d.Fix.Note = Sentence(note, d.Fix.Note)
	if s.Lifetime == inventory.Ephemeral && d.Fix.Risk == Medium {
		d.Fix.Risk = Low
	}
	d.ClaimShare(s, ledger.Compute, int64(n.list-n.hourly), int64(n.list), SavingsOnly)
	for i := range d.claims {
		d.claims[i].instead = true // the machine is changed to one type, not two
	}
	return d
}
