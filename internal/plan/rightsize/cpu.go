package rightsize

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// UnderutilizedCPUBelow is the 95th percentile of CPU utilization, in percent, under which a machine
// without accelerators is larger than its work: with the usual headroom, three quarters of it do.
const UnderutilizedCPUBelow = UnderutilizedBelow

// restingCPU is the 95th percentile, in percent, of a machine that mostly rests: the percentile does not
// see a batch in under 5% of the hours, so that the peak stands for the work.
const restingCPU = 5

// ARM is the architecture of Graviton machines.
const ARM = "arm64"

// CPUSizing is the right-sizing result for a machine without accelerators.
type CPUSizing struct {
	// Why is the reason for no advice; empty if the machine is larger than its work.
	Why string
	// UtilMean, UtilP95 and UtilMax are CPU utilization in percent of all CPUs, Coverage the share of
	// the window that was measured.
	UtilMean, UtilP95, UtilMax, Coverage float64
	// VCPUs is the demand at the 95th percentile, or of a machine that mostly rests at the peak, with
	// headroom.
	VCPUs float64
	// MemoryKnown reports whether memory was measured; MemoryGiB is its peak with headroom then, else
	// the memory of the machine.
	MemoryKnown bool
	MemoryGiB   float64
	// Hourly is the machine's own price; unknown with the reason in Unpriced.
	Hourly   inventory.Fact[money.Amount]
	Unpriced string

	m       *measured
	offers  []offer
	options Options
}

// CPUCandidate is a machine type without accelerators that fits the measured work.
type CPUCandidate struct {
	Machine price.Machine
	Price   price.Price
	Hourly  money.Amount
	// Baseline is the share of its CPUs that a burstable machine sustains, 0 for others.
	Baseline float64
	// Drawbacks are reasons against it.
	Drawbacks []string
}

// baselines are the shares of each vCPU that burstable machines sustain, by size; families of the
// first generation, with other shares, are not candidates. Source: AWS EC2 User Guide, "Key concepts
// for burstable performance instances".
var baselines = map[string]float64{
	"nano": 0.05, "micro": 0.1, "small": 0.2, "medium": 0.2, "large": 0.3, "xlarge": 0.4, "2xlarge": 0.4,
}

// creditHours is the time after which a burstable machine that does nothing earns no more credits.
const creditHours = 24

// Baseline returns the share of its CPUs that a burstable machine type sustains, and false for types
// that are not burstable.
func Baseline(machineType string) (float64, bool) {
	family, size, _ := strings.Cut(machineType, ".")
	if !slices.Contains([]string{"t3", "t3a", "t4g"}, family) {
		return 0, false
	}
	share, ok := baselines[size]
	return share, ok
}

// SizeCPU judges the usage of a machine without accelerators.
func (f *Offers) SizeCPU(w *usage.Window, from price.Machine, region string, o Options) (CPUSizing, error) {
	o.Headroom, o.MinCoverage = cmp.Or(o.Headroom, defaultHeadroom), cmp.Or(o.MinCoverage, defaultCoverage)
	s := CPUSizing{options: o}
	if w == nil {
		s.Why = "nothing was measured"
		return s, nil
	}
	st := w.Machine.Stats(usage.CPUUtil)
	s.m = &measured{w: w, from: from, minCoverage: o.MinCoverage}
	s.m.hostOf(o)
	s.Coverage = w.MeasuredCoverage(st)
	if s.m.hostCPU == 0 || !hostKnown(from) {
		s.Why = fmt.Sprintf("CPU samples cover %s of the window", plain.Share(s.Coverage, 0))
		return s, nil
	}
	s.UtilMean, _ = st.Mean()
	s.UtilP95, _ = st.Quantile(usage.CPUUtil, 0.95)
	s.UtilMax, s.VCPUs = st.Max, s.m.hostCPU
	if s.UtilP95 < restingCPU {
		s.VCPUs = max(1, s.m.hostCPUPeak*(1+o.Headroom))
	}
	s.MemoryKnown, s.MemoryGiB = s.m.hostMemory > 0, cmp.Or(s.m.hostMemory, float64(from.MemoryMiB))/1024
	if share, ok := Baseline(from.Type); ok && s.UtilP95 > 100*share {
		s.Why = "it may have run out of credits: its samples do not show what it needs"
		return s, nil
	}
	if s.UtilP95 >= UnderutilizedCPUBelow {
		s.Why = "p95 CPU utilization " + plain.Percent(s.UtilP95, 0)
		return s, nil
	}
	p, err := f.book.OnDemand(from.Type, region)
	switch {
	case errors.Is(err, price.ErrUnpriced):
		s.Unpriced = err.Error()
	case err == nil:
		var hourly money.Amount
		if hourly, err = p.Hourly(); err == nil {
			s.Hourly = inventory.Known(hourly)
		}
	}
	if err != nil && s.Unpriced == "" {
		return s, fmt.Errorf("right-size %s: %w", from.Type, err)
	}
	if s.offers, err = f.hosts(from.Cloud, region); err != nil {
		return s, fmt.Errorf("right-size %s: %w", from.Type, err)
	}
	return s, nil
}

// hosts returns the machines without accelerators that a region sells, cheapest first.
func (f *Offers) hosts(cloud, region string) ([]offer, error) {
	k := offerKey{cloud: cloud, region: region, hosts: true}
	if offers, ok := f.byList[k]; ok {
		return offers, nil
	}
	var offers []offer
	for _, m := range f.book.Machines() {
		if m.GPUs() > 0 || m.Cloud != cloud || !hostKnown(m) || strings.Contains(m.Type, ".metal") {
			continue
		}
		p, err := f.book.OnDemand(m.Type, region)
		if errors.Is(err, price.ErrUnpriced) {
			continue
		}
		if err != nil {
			return nil, err
		}
		hourly, err := p.Hourly()
		if err != nil {
			return nil, err
		}
		offers = append(offers, offer{machine: m, region: region, price: p, hourly: hourly})
	}
	slices.SortStableFunc(offers, func(x, y offer) int {
		return cmp.Or(cmp.Compare(x.hourly, y.hourly), cmp.Compare(x.machine.Type, y.machine.Type))
	})
	f.byList[k] = offers
	return offers, nil
}

// First returns the cheapest machine of an architecture that fits, costs less where the own price is
// known, and for which accept is true.
func (s *CPUSizing) First(arch string, accept func(CPUCandidate) bool) (CPUCandidate, bool) {
	own, priced := s.Hourly.Get()
	for _, o := range s.offers {
		if priced && o.hourly >= own {
			break
		}
		if o.machine.Arch != arch {
			continue
		}
		if c, ok := s.consider(o); ok && (accept == nil || accept(c)) {
			return c, true
		}
	}
	return CPUCandidate{}, false
}

// consider returns the candidate of an offer, and whether it fits: CPUs for the 95th percentile and
// memory for the peak with headroom, and disks; smaller, of a generation that is not older, or burstable.
func (s *CPUSizing) consider(o offer) (CPUCandidate, bool) {
	to, from := o.machine, s.m.from
	c := CPUCandidate{Machine: to, Price: o.price, Hourly: o.hourly}
	if to.Type == from.Type || float64(to.VCPUs) < s.VCPUs || float64(to.MemoryMiB) < 1024*s.MemoryGiB ||
		to.InstanceStorageGB < from.InstanceStorageGB ||
		to.NetworkMbps > 0 && s.m.network > fullest*float64(to.NetworkMbps) {
		return c, false
	}
	share, burstable := Baseline(to.Type)
	switch {
	case to.VCPUs >= from.VCPUs && to.MemoryMiB >= from.MemoryMiB && !burstable,
		!burstable && (generation(to.Type) < generation(from.Type) || strings.HasPrefix(to.Type, "t")),
		burstable && !s.lasts(share, to.VCPUs):
		return c, false
	case burstable:
		c.Baseline = share
		c.Drawbacks = append(c.Drawbacks, "burstable: it sustains "+plain.Share(share, 0)+" of its CPUs")
	}
	if s.m.hostCPUPeak > float64(to.VCPUs) {
		c.Drawbacks = append(c.Drawbacks, fmt.Sprintf("peak CPU use of %s vCPUs exceeds its %d",
			plain.Number(s.m.hostCPUPeak, 0), to.VCPUs))
	}
	if to.NetworkMbps > 0 && from.NetworkMbps > to.NetworkMbps && !s.m.networkKnown {
		c.Drawbacks = append(c.Drawbacks, fmt.Sprintf("network %s Gbit/s instead of %s; use of it is unmeasured",
			plain.Number(float64(to.NetworkMbps)/1e3, 1), plain.Number(float64(from.NetworkMbps)/1e3, 1)))
	}
	return c, true
}

// generation returns the number in the family of a machine type: 6 of "m6i.large", 0 without one.
func generation(machineType string) int {
	family, _, _ := strings.Cut(machineType, ".")
	n := 0
	for _, r := range strings.TrimLeft(family, "abcdefghijklmnopqrstuvwxyz") {
		if r < '0' || r > '9' {
			break
		}
		n = 10*n + int(r-'0')
	}
	return n
}

// lasts reports whether the credits of a burstable machine last for the measured work, without paying
// for more: each part of the window counts at its highest point, and an unmeasured part at that of the
// whole. The machine begins without credits.
func (s *CPUSizing) lasts(share float64, vcpus int) bool {
	st := s.m.w.Machine.Stats(usage.CPUUtil)
	part := s.m.w.To.Sub(s.m.w.From) / usage.Buckets
	earned := share * float64(vcpus) // vCPUs
	balance := 0.0                   // vCPU-hours
	for i := range usage.Buckets {
		peak, ok := st.Bucket(i)
		if !ok {
			peak = st.Max
		}
		needed := peak / 100 * float64(s.m.from.VCPUs) * (1 + s.options.Headroom)
		balance += (earned - needed) * float64(part) / float64(time.Hour)
		if balance < 0 {
			return false
		}
		balance = min(balance, creditHours*earned)
	}
	return true
}
