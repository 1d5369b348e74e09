package finding

import (
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
	"github.com/curfew-dev/curfew/internal/usage"
)

// volumeUnattached finds volumes that have been attached to nothing for a week.
// Providers do not say when a volume was detached; its I/O does, because it is
// published only while the volume is attached: any sample within the week says
// that it was in use.
func volumeUnattached(x *index, s *subject) *draft {
	v, ok := s.Detail.(*inventory.Volume)
	if !ok || s.State != inventory.StateAvailable || len(v.AttachedTo) > 0 {
		return nil
	}
	age, known := x.age(s)
	if !known || age < x.t.VolumeUnattached {
		return nil
	}
	d := &draft{Finding: Finding{
		Confidence: High,
		Evidence:   []usage.Evidence{fact(s, "state", "available"), aged(s, "age", age)},
		Fix: Fix{Action: "snapshot-then-delete", Risk: Low, Undo: UndoPartial,
			Note: "a volume can be made again from the snapshot, which costs at most the snapshot price of its size while it is kept"},
	}}
	if detached, known := x.since(s); known {
		if detached < x.t.VolumeUnattached {
			return nil
		}
		d.Because = "attached to nothing for " + usage.Span(detached)
		d.Evidence = append(d.Evidence, aged(s, "unattached", detached))
	}
	if s.window != nil {
		for _, sig := range []usage.Signal{usage.DiskOps, usage.DiskBytes} {
			if st := s.window.Machine.Stats(sig); st != nil && x.now.Sub(st.Last) < x.t.VolumeUnattached {
				return nil
			}
		}
		if d.Because == "" {
			if !spans(s.window, x.t.VolumeUnattached) {
				return nil
			}
			d.Because = "attached to nothing, no I/O for " + usage.Span(x.t.VolumeUnattached)
		}
		d.Evidence = append(d.Evidence, usage.Evidence{Signal: "disk_ops", Value: "0", Window: x.t.VolumeUnattached,
			Coverage: usage.NoCoverage, Source: s.window.Source})
	} else if d.Because == "" {
		// Without its metrics its I/O is unknown: it may have been detached a minute
		// ago, whatever was read of others.
		return nil
	}
	if s.Lifetime == inventory.Persistent {
		d.Fix.Risk = Medium
	}
	d.claimShare(s, "", 1, 1, wasteAndSavings)
	return d
}

// What gp2 gives for its size (Amazon EBS User Guide, "General Purpose SSD volumes").
const (
	gp2IOPSPerGiB  = 3
	gp2LeastIOPS   = 100
	gp2MostIOPS    = 16_000
	gp2FullGiB     = 334 // from this size on 250 MiB/s at any time
	gp2FullMiBps   = 250
	gp2ToGP3Caveat = "done while it is in use; a volume can be changed again after 6 hours"
)

// gp2Performance is what a gp2 volume sustains beyond what gp3 gives for nothing.
// Under 334 GiB gp2 goes past 128 MiB/s only on burst credits, which gp3's own 125
// MiB/s stand for.
func gp2Performance(gib int64) (iops, mibps int64) {
	iops = max(0, min(max(gp2IOPSPerGiB*gib, gp2LeastIOPS), gp2MostIOPS)-aws.GP3FreeIOPS)
	if gib >= gp2FullGiB {
		mibps = gp2FullMiBps - aws.GP3FreeMiBps
	}
	return iops, mibps
}

// volumeGP2 finds gp2 volumes that cost less as gp3 at the same performance, what
// must be bought for that counted.
func volumeGP2(x *index, s *subject) *draft {
	v, ok := s.Detail.(*inventory.Volume)
	if !ok || s.Type != "gp2" || v.SizeGiB <= 0 {
		return nil
	}
	d := &draft{Finding: Finding{
		Confidence: High,
		Because:    "gp2: gp3 costs less at the same performance",
		Fix:        Fix{Action: "modify-volume", Risk: Low, Undo: UndoFull, Note: gp2ToGP3Caveat},
	}}
	iops, mibps := gp2Performance(v.SizeGiB)
	d.Evidence = []usage.Evidence{fact(s, "type", "gp2"), fact(s, "size_gib", usage.Number(float64(v.SizeGiB), 0)),
		fact(s, "gp3_extra_iops", usage.Number(float64(iops), 0)), fact(s, "gp3_extra_mibps", usage.Number(float64(mibps), 0))}
	now, unpriced := x.cost(s, ledger.Storage)
	after, err := x.gp3Cost(v.SizeGiB, iops, mibps, s.Region)
	if err != nil || unpriced != "" {
		if unpriced == "" {
			unpriced = err.Error()
		}
		d.Savings, d.advice = Saving{Why: "no price for " + describe(s.Resource) + ": " + unpriced}, true
		return d
	}
	if after >= now {
		return nil
	}
	d.Evidence = append(d.Evidence, priced("gp3_monthly_usd", after, "price book"))
	d.claimShare(s, ledger.Storage, int64(now-after), int64(now), savingsOnly)
	return d
}

// gp3Cost is what a gp3 volume costs a month.
func (x *index) gp3Cost(gib, iops, mibps int64, region string) (money.Amount, error) {
	var total money.Amount
	for _, part := range []struct {
		item price.Item
		n    int64
	}{{price.Item("ebs:gp3"), gib}, {price.ItemGP3IOPS, iops}, {price.ItemGP3Throughput, mibps}} {
		if part.n == 0 {
			continue
		}
		p, err := x.rate(part.item, region)
		if err != nil {
			return 0, err
		}
		cost, err := p.Cost(part.n, 1)
		if err != nil {
			return 0, err
		}
		if total, err = total.Add(cost); err != nil {
			return 0, err
		}
	}
	return total, nil
}
