package bill

import (
	"encoding/binary"
	"hash/maphash"
	"time"
)

// Fingerprints tell whether two files of a bill hold the same lines, as a month that an
// export delivers again does. Lines are compared by groups: those of one provider, accounts,
// billing period, resource and day.
type Fingerprints struct {
	seed   maphash.Seed
	groups map[uint64]fingerprint
	lines  int64
	buffer []byte
}

// fingerprint is a group of lines: sums of their hashes, with and without their costs.
type fingerprint struct {
	lines         int64
	whole, uncost uint64
}

// NewFingerprints returns empty fingerprints. Only those of one seed can be compared.
func NewFingerprints(seed maphash.Seed) *Fingerprints {
	return &Fingerprints{seed: seed, groups: map[uint64]fingerprint{}}
}

// Add adds a line of the file; one that is derived is none.
func (f *Fingerprints) Add(l *Line) {
	if l.Derived {
		return
	}
	b := f.buffer[:0]
	text := func(all ...string) {
		for _, s := range all {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	at := func(t time.Time) { b = binary.AppendVarint(b, t.Unix()) }
	text(l.ServiceProviderName, l.BillingAccountID, l.SubAccountID, l.ResourceID)
	at(l.BillingPeriodStart)
	b = binary.AppendVarint(b, floorDay(l.ChargePeriodStart.Unix()))
	key := maphash.Bytes(f.seed, b)
	at(l.ChargePeriodStart)
	text(l.ChargeCategory, l.ChargeClass, l.ChargeDescription, l.ServiceName, l.RegionID, l.PricingCategory, l.CommitmentID, l.CommitmentStatus,
		l.UsageType, l.ConsumedUnit, l.FromRegion, l.ToRegion)
	g := f.groups[key]
	g.uncost += maphash.Bytes(f.seed, b)
	for _, d := range [...]Decimal{l.ConsumedQuantity, l.BilledCost, l.EffectiveCost, l.ListCost, l.ContractedCost} {
		text(d.String())
	}
	g.whole += maphash.Bytes(f.seed, b)
	g.lines++
	f.groups[key] = g
	f.lines++
	f.buffer = b
}

// Merge adds fingerprints of another part of the file.
func (f *Fingerprints) Merge(o *Fingerprints) {
	for key, g := range o.groups {
		sum := f.groups[key]
		sum.lines, sum.whole, sum.uncost = sum.lines+g.lines, sum.whole+g.whole, sum.uncost+g.uncost
		f.groups[key] = sum
	}
	f.lines += o.lines
}

// Repeated counts the lines of f that o has too: same are equal, restated differ in their
// costs alone. A group counts where all its lines are in both.
func (f *Fingerprints) Repeated(o *Fingerprints) (same, restated int64) {
	small, large := f.groups, o.groups
	if len(small) > len(large) {
		small, large = large, small
	}
	for key, g := range small {
		switch h, ok := large[key]; {
		case !ok || g.lines != h.lines || g.uncost != h.uncost:
		case g.whole == h.whole:
			same += g.lines
		default:
			restated += g.lines
		}
	}
	return same, restated
}

// Lines is how many lines were added.
func (f *Fingerprints) Lines() int64 { return f.lines }
