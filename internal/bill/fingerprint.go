package bill

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
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
	text(l.ChargeCategory, l.ChargeClass, l.ChargeDescription, l.ServiceName, l.RegionID, l.PricingCategory,
		l.CommitmentID, l.CommitmentStatus, l.UsageType, l.ConsumedUnit, l.FromRegion, l.ToRegion)
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

// Repetition is the overlap of two files.
type Repetition struct {
	// One and Other are the places of the files.
	One, Other int
	// Same lines are equal, Restated ones differ in their costs alone. A group counts where all
	// its lines are in both.
	Same, Restated int64
}

// Repetitions returns the overlaps of files, in the order of their places. Pairs that apart
// excludes are left out.
func Repetitions(files []*Fingerprints, apart func(one, other int) bool) []Repetition {
	const several = -1
	first := map[uint64]int{} // groups without their costs, by the file or as of several
	for i, f := range files {
		for key, g := range f.groups {
			if j, ok := first[g.id(key)]; ok && j != i {
				first[g.id(key)] = several
			} else if !ok {
				first[g.id(key)] = i
			}
		}
	}
	type held struct {
		file  int
		lines int64
		whole uint64
	}
	shared := map[uint64][]held{}
	for i, f := range files {
		for key, g := range f.groups {
			if first[g.id(key)] == several {
				shared[g.id(key)] = append(shared[g.id(key)], held{i, g.lines, g.whole})
			}
		}
	}
	pairs := map[[2]int]*Repetition{}
	for _, all := range shared {
		for i, one := range all {
			for _, other := range all[i+1:] {
				if apart(one.file, other.file) {
					continue
				}
				r := pairs[[2]int{one.file, other.file}]
				if r == nil {
					r = &Repetition{One: one.file, Other: other.file}
					pairs[[2]int{one.file, other.file}] = r
				}
				if one.whole == other.whole {
					r.Same += one.lines
				} else {
					r.Restated += one.lines
				}
			}
		}
	}
	out := make([]Repetition, 0, len(pairs))
	for _, r := range pairs {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(x, y Repetition) int {
		return cmp.Or(cmp.Compare(x.One, y.One), cmp.Compare(x.Other, y.Other))
	})
	return out
}

// id identifies a group apart from the costs of its lines.
func (g fingerprint) id(key uint64) uint64 {
	const odd = 0x9E3779B97F4A7C15
	return (key*odd^g.uncost)*odd ^ uint64(g.lines)
}

// Lines is how many lines were added.
func (f *Fingerprints) Lines() int64 { return f.lines }
