package aws

import (
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
	"github.com/curfew-dev/curfew/internal/usage"
)

// The performance of gp2 by size (Amazon EBS User Guide, "General Purpose SSD volumes").
const (
	gp2IOPSPerGiB  = 3
	gp2LeastIOPS   = 100
	gp2MostIOPS    = 16_000
	gp2FullGiB     = 334 // from this size on 250 MiB/s at any time
	gp2FullMiBps   = 250
	gp2ToGP3Caveat = "done while it is in use; a volume can be changed again after 6 hours"
)

// gp2Performance returns the performance of a gp2 volume beyond gp3's included one. Under 334 GiB
// gp2 exceeds 128 MiB/s only on burst credits; gp3's included 125 MiB/s count as equivalent.
func gp2Performance(gib int64) (iops, mibps int64) {
	iops = max(0, min(max(gp2IOPSPerGiB*gib, gp2LeastIOPS), gp2MostIOPS)-aws.GP3FreeIOPS)
	if gib >= gp2FullGiB {
		mibps = gp2FullMiBps - aws.GP3FreeMiBps
	}
	return iops, mibps
}

// volumeGP2 finds gp2 volumes that cost less as gp3 at the same performance, including the
// performance to buy for that.
func volumeGP2(x *finding.Index, s *finding.Subject) *finding.Draft {
	v, ok := s.Detail.(*inventory.Volume)
	if !ok || s.Type != "gp2" || v.SizeGiB <= 0 {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    "gp2: gp3 costs less at the same performance",
		Fix: finding.Fix{
			Change: change.Change{Verb: change.ModifyVolume}, Risk: finding.Low,
			Undo: finding.UndoFull, Note: gp2ToGP3Caveat,
		},
	}}
	iops, mibps := gp2Performance(v.SizeGiB)
	d.Fix.Change.Arguments = gp3Arguments(iops, mibps)
	d.Evidence = []usage.Evidence{
		finding.Fact(s, "type", "gp2"), finding.Fact(s, "size_gib", plain.Decimal(float64(v.SizeGiB), 0)),
		finding.Fact(s, "gp3_extra_iops", plain.Decimal(float64(iops), 0)),
		finding.Fact(s, "gp3_extra_mibps", plain.Decimal(float64(mibps), 0))}
	now, unpriced := x.Cost(s, ledger.Storage)
	after, err := gp3Cost(x, v.SizeGiB, iops, mibps, s.Region)
	if err != nil || unpriced != "" {
		if unpriced == "" {
			unpriced = err.Error()
		}
		d.Savings, d.Stands = finding.Saving{
			Why: "no price for " + finding.Describe(s.Resource) + ": " + unpriced,
		}, true
		return d
	}
	if after >= now {
		return nil
	}
	d.Evidence = append(d.Evidence, finding.Priced("gp3_monthly_usd", after, "price book"))
	d.ClaimShare(s, ledger.Storage, int64(now-after), int64(now), finding.SavingsOnly)
	return d
}

// gp3Arguments returns the change to gp3 with the performance beyond the included one.
func gp3Arguments(iops, mibps int64) change.Arguments {
	a := change.Arguments{Type: "gp3"}
	if iops > 0 {
		a.IOPS = aws.GP3FreeIOPS + iops
	}
	if mibps > 0 {
		a.ThroughputMiBps = aws.GP3FreeMiBps + mibps
	}
	return a
}

// gp3Cost returns the monthly cost of a gp3 volume.
func gp3Cost(x *finding.Index, gib, iops, mibps int64, region string) (money.Amount, error) {
	var total money.Amount
	for _, part := range []struct {
		item price.Item
		n    int64
	}{{price.Item("ebs:gp3"), gib}, {price.ItemGP3IOPS, iops}, {price.ItemGP3Throughput, mibps}} {
		if part.n == 0 {
			continue
		}
		p, err := x.Rate(part.item, region)
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
