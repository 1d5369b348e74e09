package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger/costs"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// transferAdvice is the advice for each kind of transfer.
var transferAdvice = map[bill.Transfer]struct{ rule, because, note string }{
	bill.CrossRegion: {
		"egress-cross-region", "is sent to another region",
		"run it in the region of its data, or copy the data once and read it there",
	},
	bill.CrossZone: {
		"egress-cross-zone", "is sent between zones",
		"keep what talks to each other in one zone; a training run gains nothing from several",
	},
	bill.Internet: {
		"egress-internet", "is sent to the Internet",
		"serve it from a cache near its readers, compress it, or read it inside the region",
	},
	bill.NATData: {
		"nat-data", "passes a NAT gateway",
		"a gateway endpoint carries S3 and DynamoDB without a charge; interface endpoints carry registries and logs for less",
	},
}

// billed runs the rules about a bill. Its dollars are not in charges of the inventory, so they
// cannot overlap with other findings; the avoidable part is not on the bill.
func (x *Index) billed(b *Bill) {
	hours := int64(b.To.Sub(b.From) / time.Hour)
	if hours <= 0 {
		return
	}
	x.transfers(b, hours)
	x.commitmentsBilled(b, hours)
}

// monthly scales an amount of some hours to a month.
func (x *Index) monthly(v money.Amount, hours int64) money.Amount {
	out, err := v.Mul(money.HoursPerMonth, hours)
	if err != nil && x.err == nil {
		x.err = fmt.Errorf("bring the bill to a month: %w", err)
	}
	return out
}

// moved is the traffic of one resource in one direction.
type moved struct {
	flows  []bill.Flow
	billed money.Amount
	bytes  int64
}

// transfers finds the costs of data transfer, by resource and direction.
func (x *Index) transfers(b *Bill, hours int64) {
	type key struct {
		ref  inventory.Ref
		kind bill.Transfer
	}
	sums := map[key]*moved{}
	at := map[inventory.Ref]*Subject{}
	for _, f := range b.Flows {
		s := x.billedResource(b.Cloud, cmp.Or(f.SubAccount, f.Account), f.Region, f.Resource, f.Service)
		k := key{s.ref, f.Transfer}
		m := sums[k]
		if m == nil {
			m = &moved{}
			sums[k], at[s.ref] = m, s
		}
		var err error
		if m.billed, err = m.billed.Add(f.Billed); err != nil && x.err == nil {
			x.err = fmt.Errorf("add up the transfers of %s: %w", s.ID, err)
		}
		m.flows, m.bytes = append(m.flows, f), m.bytes+f.Bytes
	}
	keys := make([]key, 0, len(sums))
	for k := range sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(p, q key) int {
		return cmp.Or(inventory.CompareRefs(p.ref, q.ref), cmp.Compare(p.kind, q.kind))
	})
	for _, k := range keys {
		x.transfer(b, at[k.ref], k.kind, sums[k], hours)
	}
}

// transfer returns the finding that a resource sends much data.
func (x *Index) transfer(b *Bill, s *Subject, kind bill.Transfer, m *moved, hours int64) {
	advice, known := transferAdvice[kind]
	month := x.monthly(m.billed, hours)
	if !known || month < money.Amount(x.Thresholds.Transfer)*money.USD {
		return
	}
	span := time.Duration(hours) * time.Hour
	d := &Draft{Stands: true, Finding: Finding{
		Cost: month, Confidence: Medium,
		Savings: Saving{UpperBound: month, Bounded: true, Why: "how much of it can be avoided is not on the bill"},
		Because: transferred(m, hours) + " " + advice.because + destinations(m.flows),
		Evidence: []usage.Evidence{
			{Signal: "transfer_billed_usd", Value: m.billed.String(), Window: span, Source: b.Source},
			{Signal: "transfer_gb", Value: plain.Number(float64(m.bytes)/1e9, 1), Window: span, Source: b.Source}},
		Fix: Fix{Change: change.Change{Verb: change.Reroute}, Risk: Medium, Undo: UndoFull, Note: advice.note},
	}}
	rule := advice.rule
	if times, ok := x.downloads(s, kind, m.bytes, hours); ok {
		rule = "download-repeated"
		d.Because = fmt.Sprintf("what it holds %s %s times a month", advice.because, plain.Number(times, 1))
		d.Fix.Note = "keep a copy where it is read: a cache near the machines, or a replica in their region"
	}
	x.add(rule, StepEgress, s, d)
}

// downloads returns how often a bucket's content is sent in a month, and whether that shows
// repeated downloads.
func (x *Index) downloads(s *Subject, kind bill.Transfer, bytes, hours int64) (float64, bool) {
	held, ok := s.Detail.(*inventory.Bucket)
	if !ok || kind == bill.NATData {
		return 0, false
	}
	sizes, known := held.Sizes.Get()
	var total int64
	for _, n := range sizes {
		total += n
	}
	if !known || total <= 0 {
		return 0, false
	}
	times := float64(bytes) / float64(total) * money.HoursPerMonth / float64(hours)
	return times, times >= x.Thresholds.Downloads
}

func transferred(m *moved, hours int64) string {
	if m.bytes == 0 {
		return "data"
	}
	return plain.Number(float64(m.bytes)/1e9*money.HoursPerMonth/float64(hours), 0) + " GB a month"
}

// destinations lists the destinations of flows as far as the bill names them.
func destinations(flows []bill.Flow) string {
	var to []string
	for _, f := range flows {
		if f.ToRegion != "" && !slices.Contains(to, f.ToRegion) {
			to = append(to, f.ToRegion)
		}
	}
	if len(to) == 0 {
		return ""
	}
	slices.Sort(to)
	return " (" + strings.Join(to, ", ") + ")"
}

// billedResource returns the resource that a bill names, or the service if it names none in the
// inventory.
func (x *Index) billedResource(cloud, account, region, resource, service string) *Subject {
	id := costs.BillID(resource)
	if id != "" {
		if x.byID == nil {
			x.byID = map[scoped][]int32{}
			for i := range x.subjects {
				s := &x.subjects[i]
				k := scoped{cloud: s.Cloud, id: s.ID}
				x.byID[k] = append(x.byID[k], s.at)
			}
		}
		for _, at := range x.byID[scoped{cloud: cloud, id: id}] {
			s := &x.subjects[at]
			if s.Account == account || len(x.byID[scoped{cloud: cloud, id: id}]) == 1 {
				return s
			}
		}
	}
	r := &inventory.Resource{
		Cloud: cloud, Account: account, Region: region, Kind: inventory.KindService, ID: cmp.Or(id, service),
		Name: resource, Type: service,
	}
	return &Subject{Resource: r, ref: r.Ref(), at: -1}
}

// commitmentsBilled finds the cost of unused commitments, and on-demand compute that commitments
// may cover.
func (x *Index) commitmentsBilled(b *Bill, hours int64) {
	found := map[inventory.Ref]bool{}
	for _, d := range x.drafts {
		if d.Rule == "commitment-unused" {
			found[d.Resource.Ref()] = true
		}
	}
	for _, c := range b.Commitments.Commitments {
		month := x.monthly(c.Unused, hours)
		s := x.billedResource(b.Cloud, "", "", c.ID, "commitment")
		if month <= 0 || found[s.ref] {
			continue
		}
		d := &Draft{Stands: true, Finding: Finding{
			Cost: month, Confidence: High,
			Savings: Saving{
				UpperBound: month, Bounded: true,
				Why: "a commitment is paid until it ends; it is worth what it can be made to cover",
			},
			Because: "the bill shows " + month.Dollars() + " a month of it unused",
			Evidence: []usage.Evidence{
				{
					Signal: "unused_effective_usd", Value: c.Unused.String(), Window: time.Duration(hours) * time.Hour,
					Source: b.Source,
				},
			},
			Fix: Fix{
				Change: change.Change{Verb: change.Use}, Risk: Low, Undo: UndoFull,
				Note: "move work that it covers onto it, or sell it on where the provider has a marketplace",
			},
		}}
		x.add("commitment-unused", StepCommit, s, d)
	}
	for _, o := range b.Commitments.OnDemand {
		month := x.monthly(o.Billed, hours)
		if month < money.Amount(x.Thresholds.CommitmentGap)*money.USD {
			continue
		}
		s := x.billedResource(b.Cloud, "", o.Region, "", o.Service)
		d := &Draft{Stands: true, Finding: Finding{
			Cost: month, Confidence: Low,
			Savings: Saving{Why: "what of it is steady, and worth committing to, takes its use by the hour"},
			Because: month.Dollars() + " a month of compute is bought on demand",
			Evidence: []usage.Evidence{
				{
					Signal: "on_demand_billed_usd", Value: o.Billed.String(), Window: time.Duration(hours) * time.Hour,
					Source: b.Source,
				},
			},
			Fix: Fix{
				Change: change.Change{
					Verb: change.Plan,
				}, Command: "curfew plan commit --usage hourly.csv --offers offers.csv",
				Risk: Low, Undo: UndoNone,
				Note: "take idle machines off first: a commitment on waste locks the waste in",
			},
		}}
		x.add("commitment-gap", StepCommit, s, d)
	}
}
