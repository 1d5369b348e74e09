package aws

import (
	"math"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// advised returns a fix that people carry out.
func advised(risk finding.Level, note string) finding.Fix {
	return finding.Fix{Change: change.Change{Verb: change.Advise}, Risk: risk, Undo: finding.UndoPartial, Note: note}
}

// claimCompute claims the cost of the machines of a managed service; its storage still costs.
func claimCompute(d *finding.Draft, s *finding.Subject) {
	for i := range s.Charges {
		c := &s.Charges[i]
		if c.Meter == "compute" && c.Unpriced == "" &&
			d.ClaimAmount(s, "compute", c.ListCost, finding.WasteAndSavings) {
			return
		}
	}
	d.NoPrice(s, nil)
}

// databaseIdle finds databases and warehouses without a connection for 7 days.
func databaseIdle(x *finding.Index, s *finding.Subject) *finding.Draft {
	w := s.Window
	if _, ok := s.Detail.(*inventory.Database); !ok || s.State != inventory.StateRunning ||
		!finding.Spans(w, x.Thresholds.DatabaseIdle) {
		return nil
	}
	st := w.Machine.Stats(usage.Sessions)
	if age, known := x.Age(s); (known && age < x.Thresholds.DatabaseIdle) ||
		!x.Covered(w, st) || !w.Fresh(st, x.Now) ||
		st.Max > 0 {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    "no connection for " + plain.Duration(w.To.Sub(w.From)),
		Evidence:   []usage.Evidence{finding.Sampled("connections_max", "0", w, st)},
		Fix: advised(finding.Medium,
			"stop it (RDS starts it again after 7 days) or delete it after a snapshot; its storage is still charged"),
	}}
	if s.Kind == inventory.KindWarehouse {
		d.Fix.Note = "pause it, or delete it after a snapshot; its storage is still charged"
	}
	level, note := finding.Risk(s.Resource, finding.Medium)
	d.Fix.Risk, d.Fix.Note = level, finding.Sentence(note, d.Fix.Note)
	claimCompute(d, s)
	return d
}

// cacheIdle finds caches without a request for 7 days. Connections are no evidence, because
// ElastiCache keeps some of its own. The CPU metric shows that the cache was measured.
func cacheIdle(x *finding.Index, s *finding.Subject) *finding.Draft {
	w := s.Window
	if s.State != inventory.StateRunning || !finding.Spans(w, x.Thresholds.DatabaseIdle) {
		return nil
	}
	requests := w.Machine.Stats(usage.Requests)
	_, proof := x.Alive(w, usage.CPUUtil)
	if age, known := x.Age(s); (known && age < x.Thresholds.DatabaseIdle) || proof == nil ||
		(requests != nil && requests.Max > 0) {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    "no hit, miss or write for " + plain.Duration(w.To.Sub(w.From)),
		Evidence: []usage.Evidence{
			{Signal: "requests", Value: "0", Window: w.To.Sub(w.From), Coverage: w.Coverage(proof), Source: w.Source},
			finding.Sampled("cpu_util_max_pct", plain.Decimal(proof.Max, 1), w, proof)},
		Fix: advised(finding.Medium,
			"delete it, after a backup if its engine supports one; its content is lost otherwise"),
	}}
	level, note := finding.Risk(s.Resource, finding.Medium)
	d.Fix.Risk, d.Fix.Note = level, finding.Sentence(note, d.Fix.Note)
	claimCompute(d, s)
	return d
}

// halves maps sizes to the next smaller one, with half the vCPUs and memory.
var halves = map[string]string{
	"2xlarge": "xlarge", "4xlarge": "2xlarge", "8xlarge": "4xlarge", "16xlarge": "8xlarge", "24xlarge": "12xlarge",
	"xlarge": "large",
}

// databaseOversized finds databases whose CPU never passed half the capacity of the next smaller
// size. Their memory is not measured, so the saving is a bound.
func databaseOversized(x *finding.Index, s *finding.Subject) *finding.Draft {
	db, ok := s.Detail.(*inventory.Database)
	w := s.Window
	if !ok || s.State != inventory.StateRunning || !finding.Spans(w, x.Thresholds.DatabaseIdle) {
		return nil
	}
	cpu, sessions := w.Machine.Stats(usage.CPUUtil), w.Machine.Stats(usage.Sessions)
	if !x.Covered(w, cpu) || !w.Fresh(cpu, x.Now) || cpu.Max >= x.Thresholds.DatabaseCPU || sessions == nil ||
		sessions.Max == 0 {
		return nil
	}
	family, size, _ := cutLast(s.Type)
	smaller := halves[size]
	now, unpriced := x.Cost(s, "")
	if smaller == "" || unpriced != "" || now == 0 {
		return nil
	}
	smaller = family + "." + smaller
	p, err := x.Managed("rds:"+db.Engine, smaller, s.Region)
	if err != nil {
		return nil
	}
	copies := max(db.Count, 1)
	if db.MultiAZ {
		copies *= 2
	}
	after, err := p.Cost(copies*money.HoursPerMonth, 1)
	if err != nil {
		return nil
	}
	d := &finding.Draft{Unknown: "how much memory it needs is not measured", Finding: finding.Finding{
		Confidence: finding.Medium,
		Because:    "CPU never over " + plain.Percent(cpu.Max, 0) + ": " + smaller + " may do",
		Evidence: []usage.Evidence{finding.Sampled("cpu_util_max_pct", plain.Decimal(cpu.Max, 1), w, cpu),
			finding.Sampled("connections_max", plain.Decimal(sessions.Max, 0), w, sessions),
			usage.Fact("fits", smaller, p.Source)},
		Fix: advised(finding.Medium,
			"check FreeableMemory and the read I/O first; the change restarts it, in the maintenance window or at once"),
	}}
	d.Fix.Change.Arguments.Type = smaller
	for i := range s.Charges {
		if c := &s.Charges[i]; c.Meter == "compute" && c.ListCost > after {
			d.ClaimAmount(s, "compute", c.ListCost-after, finding.SavingsOnly)
			return d
		}
	}
	return nil
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// clusterExtendedSupport finds control planes whose version is past its standard support
// and costs the surcharge of extended support.
func clusterExtendedSupport(x *finding.Index, s *finding.Subject) *finding.Draft {
	c, ok := s.Detail.(*inventory.Cluster)
	if !ok || s.State != inventory.StateRunning {
		return nil
	}
	if c.ExtendedSince.IsZero() {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    "Kubernetes " + c.Version + " is in extended support, which costs more",
		Evidence: []usage.Evidence{
			finding.Fact(s, "version", c.Version),
			finding.Fact(s, "standard_support_ended", c.ExtendedSince.Format(time.DateOnly)),
		},
		Fix: advised(finding.High, "upgrade it version by version; a control plane cannot go back"),
	}}
	d.Fix.Undo = finding.UndoNone
	now, err := x.Rate(price.ItemClusterExtended, s.Region)
	if err == nil {
		var after price.Price
		if after, err = x.Rate(price.ItemCluster, s.Region); err == nil && after.Rate < now.Rate {
			d.ClaimShare(s, ledger.Overhead, int64(now.Rate-after.Rate), int64(now.Rate), finding.WasteAndSavings)
			return d
		}
	}
	d.NoPrice(s, err)
	return d
}

// tableIdle finds tables with provisioned capacity of which nothing was consumed for 14 days. The
// metric of provisioned capacity shows that the table was measured.
func tableIdle(x *finding.Index, s *finding.Subject) *finding.Draft {
	t, ok := s.Detail.(*inventory.Table)
	w := s.Window
	if !ok || s.State != inventory.StateRunning || t.OnDemand || t.ReadUnits+t.WriteUnits == 0 ||
		!finding.Spans(w, x.Thresholds.TableIdle) {
		return nil
	}
	used, proof := w.Machine.Stats(usage.Requests), w.Machine.Stats(usage.Capacity)
	if age, known := x.Age(s); (known && age < x.Thresholds.TableIdle) || !x.Covered(w, proof) ||
		!w.Fresh(proof, x.Now) || (used != nil && used.Max > 0) {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    "provisioned capacity of which nothing is used for " + plain.Duration(w.To.Sub(w.From)),
		Evidence: []usage.Evidence{
			{
				Signal: "consumed_units", Value: "0", Window: w.To.Sub(w.From), Coverage: w.Coverage(proof),
				Source: w.Source,
			},
			finding.Fact(s, "read_units", plain.Decimal(float64(t.ReadUnits), 0)),
			finding.Fact(s, "write_units", plain.Decimal(float64(t.WriteUnits), 0))},
		Fix: advised(finding.Low, "switch it to on-demand, which charges only for use; its data stays"),
	}}
	d.Fix.Undo = finding.UndoFull
	d.ClaimShare(s, "", 1, 1, finding.WasteAndSavings)
	return d
}

// tableOverprovisioned finds tables whose consumption never exceeded a small part of the
// provisioned capacity. Reads and writes are measured together and short bursts are invisible, so
// the saving is a bound: it assumes that the peak was reads only, which cost less. Capacity that
// changed in the window is autoscaled and left out.
func tableOverprovisioned(x *finding.Index, s *finding.Subject) *finding.Draft {
	t, ok := s.Detail.(*inventory.Table)
	w := s.Window
	if !ok || s.State != inventory.StateRunning || t.OnDemand || t.ReadUnits+t.WriteUnits == 0 ||
		!finding.Spans(w, x.Thresholds.TableIdle) {
		return nil
	}
	used, capacity := w.Machine.Stats(usage.Requests), w.Machine.Stats(usage.Capacity)
	if age, known := x.Age(s); (known && age < x.Thresholds.TableIdle) || !x.Covered(w, capacity) ||
		!w.Fresh(capacity, x.Now) ||
		capacity.Min < capacity.Max || used == nil || used.Max == 0 {
		return nil
	}
	peak := used.Max / w.StepOf(used).Seconds()
	all := float64(t.ReadUnits + t.WriteUnits)
	if peak*100 >= x.Thresholds.TableUsed*all {
		return nil
	}
	needed := int64(math.Ceil(peak))
	d := &finding.Draft{
		Unknown: "reads and writes are not distinguished, nor are bursts within " + plain.Duration(w.StepOf(used)),
		Finding: finding.Finding{
			Confidence: finding.Medium,
			Because:    "at most " + plain.Percent(peak*100/all, 1) + " of its provisioned capacity is consumed",
			Evidence: []usage.Evidence{
				{
					Signal: "consumed_units_max", Value: plain.Number(peak, 1), Window: w.To.Sub(w.From),
					Coverage: w.Coverage(capacity), Source: w.Source,
				},
				finding.Fact(s, "read_units", plain.Decimal(float64(t.ReadUnits), 0)),
				finding.Fact(s, "write_units", plain.Decimal(float64(t.WriteUnits), 0))},
			Fix: advised(finding.Medium,
				"lower its capacity to the peak of reads and of writes with some to spare, or let "+
					"it scale by itself, or switch it to on-demand"),
		}}
	d.Fix.Undo = finding.UndoFull
	for _, m := range []struct {
		meter         string
		units, needed int64
	}{{"reads", t.ReadUnits, needed}, {"writes", t.WriteUnits, needed - t.ReadUnits}} {
		for i := range s.Charges {
			c := &s.Charges[i]
			if c.Meter != m.meter || c.Unpriced != "" || m.units == 0 {
				continue
			}
			over := m.units - min(max(m.needed, 1), m.units)
			amount, err := c.ListCost.Mul(over, m.units)
			if err != nil {
				d.NoPrice(s, err)
				return d
			}
			d.ClaimAmount(s, m.meter, amount, finding.SavingsOnly)
		}
	}
	return d
}

// vpcEndpointIdle finds interface endpoints that carried no byte for 30 days.
func vpcEndpointIdle(x *finding.Index, s *finding.Subject) *finding.Draft {
	e, ok := s.Detail.(*inventory.VPCEndpoint)
	w := s.Window
	if !ok || s.State != inventory.StateAvailable || !finding.Spans(w, x.Thresholds.NATWindow) {
		return nil
	}
	traffic := w.Machine.Stats(usage.NetBytes)
	if !x.Covered(w, traffic) || !w.Fresh(traffic, x.Now) || traffic.Sum > 0 {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    "0 bytes in " + plain.Duration(w.To.Sub(w.From)),
		Evidence: []usage.Evidence{finding.Sampled("bytes", "0", w, traffic), finding.Fact(s, "service", e.Service),
			finding.Fact(s, "zones", plain.Decimal(float64(e.Zones), 0))},
		Fix: advised(finding.Medium,
			"delete it; requests then leave by the Internet or a NAT gateway, so look for such uses first"),
	}}
	d.ClaimShare(s, "", 1, 1, finding.WasteAndSavings)
	return d
}
