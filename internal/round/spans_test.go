package round

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// timetable is a source of the load of each machine's GPU in every hour before now, by its
// id. It hands the meters over one after another, the resources in turn.
type timetable struct {
	hours map[string][]float64
	// backward hands the last meter over first.
	backward bool
}

func (timetable) Name() string { return "timetable" }

func (s timetable) Measure(_ context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	meters := []struct {
		gpu    string
		signal usage.Signal
		value  func(load float64) float64
	}{
		{"0", usage.GPUUtil, func(load float64) float64 { return load }},
		{"0", usage.MemUsed, func(float64) float64 { return 1 << 20 }},
		{"0", usage.MemTotal, func(float64) float64 { return 24 << 30 }},
		{"", usage.CPUUtil, func(load float64) float64 { return load / 20 }},
		{"", usage.NetBytes, func(float64) float64 { return 100 }},
	}
	sinks := map[string]usage.Sink{}
	for i := range meters {
		m := meters[i]
		if s.backward {
			m = meters[len(meters)-1-i]
		}
		for _, r := range resources {
			if sinks[r.ID] == nil {
				sinks[r.ID] = open(r, usage.SourceInfo{Step: time.Hour, Source: "timetable"})
			}
			for h, load := range s.hours[r.ID] {
				at := iv.To.Add(-time.Duration(len(s.hours[r.ID])-h) * time.Hour)
				if !at.Before(iv.From) {
					sinks[r.ID].Add(m.gpu, m.signal, usage.Point{Time: at, Mean: m.value(load), Max: m.value(load)})
				}
			}
		}
	}
	return usage.MeasureResult{}, nil
}

// TestWasteOfIdleMachines compares the waste of an audit with adding up, hour by hour, what
// machines cost whose GPU did nothing in that hour; of machines of a gang, when none of them did
// anything.
func TestWasteOfIdleMachines(t *testing.T) {
	base := setting(t, Observation{})
	const hours = 14 * 24
	rapid.Check(t, func(t *rapid.T) {
		o := Observation{}
		table := timetable{hours: map[string][]float64{}, backward: rapid.Bool().Draw(t, "backward")}
		gangs := map[string][]string{}
		for i := range rapid.IntRange(1, 5).Draw(t, "machines") {
			r := machine(fmt.Sprint("i-", i),
				rapid.SampledFrom([]string{"g6.2xlarge", "g5.xlarge"}).Draw(t, "type"), 30*days)
			if rapid.Bool().Draw(t, "in a gang") {
				r.Gang = "run"
			}
			o.Resources = append(o.Resources, r)
			gangs[r.Gang] = append(gangs[r.Gang], r.ID)
			for len(table.hours[r.ID]) < hours {
				load := rapid.SampledFrom([]float64{0, 95}).Draw(t, "load")
				for range min(rapid.IntRange(1, 60).Draw(t, "for"), hours-len(table.hours[r.ID])) {
					table.hours[r.ID] = append(table.hours[r.ID], load)
				}
			}
		}
		p := base
		p.Lister, p.Sources = account{observation: o}, []usage.Source{table}
		a, err := New(p).Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var wasted, used money.Amount
		for _, r := range o.Resources {
			hourly, err := a.Charges[r.Ref()][0].ListCost.Mul(1, 730)
			if err != nil {
				t.Fatal(err)
			}
			for h := range hours {
				busy := table.hours[r.ID][h] > 0
				if r.Gang != "" {
					for _, other := range gangs[r.Gang] {
						busy = busy || table.hours[other][h] > 0
					}
				}
				if busy {
					used += hourly
				} else {
					wasted += hourly
				}
			}
		}
		if got := a.Window.Total; got.Wasted != wasted || got.Used != used || got.UnknownSeconds != 0 {
			t.Fatalf("wasted %s, used %s, %d seconds unknown; hour by hour it is %s and %s",
				got.Wasted, got.Used, got.UnknownSeconds, wasted, used)
		}
		month, err := wasted.Mul(730, hours)
		if err != nil || a.Totals.Waste != month {
			t.Fatalf("a month wastes %s, want %s (%v)", a.Totals.Waste, month, err)
		}
	})
}

// TestCostsMatchAudit checks that an audit and the ledger agree on the audit's window if the
// account was listed at its start.
func TestCostsMatchAudit(t *testing.T) {
	o := Observation{CommitmentsKnown: true}
	table := timetable{hours: map[string][]float64{}}
	for i := range 6 {
		r := machine(fmt.Sprint("i-", i), "g6.2xlarge", time.Duration(i*5)*days+90*time.Minute)
		r.Owner.Team = []string{"", "vision"}[i%2]
		o.Resources = append(o.Resources, r)
		for h := range min(14*24, int(now.Sub(r.CreatedAt)/time.Hour)) {
			table.hours[r.ID] = append(table.hours[r.ID], float64(95*((h/(7+i))%2)))
		}
		o.Resources = append(o.Resources, &inventory.Resource{
			ID: "vol-" + r.ID, Kind: inventory.KindVolume, Cloud: "aws", Account: "1",
			Region: "us-east-1", Type: "gp3",
			CreatedAt: now.Add(-60 * days), State: inventory.StateAvailable, Tags: map[string]string{}, Owner: r.Owner,
			Detail: &inventory.Volume{SizeGiB: 100}})
	}
	p := setting(t, Observation{})
	kept := ledgertest.NewStore()
	books := ledger.Journal{Store: kept}
	p.Lister, p.Sources, p.Books, p.Source = account{observation: o}, []usage.Source{table}, books, "scan"
	ctx, since := context.Background(), now.Add(-14*days)
	if err := books.Post(ctx, ledger.Seen{
		Account: ledger.Account{Cloud: "aws", ID: "1"}, At: since, Source: "scan", Regions: []string{"us-east-1"},
	}); err != nil {
		t.Fatal(err)
	}
	a, err := New(p).Round(ctx)
	if err != nil || len(a.Unposted) > 0 {
		t.Fatal(err, a.Unposted)
	}
	c, err := costs.Spent(ctx, kept, costs.Query{By: []ledger.Dimension{ledger.ByTeam}, Since: since, Until: now})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Rows, a.Window.Rows); diff != "" {
		t.Errorf("the ledger and the audit differ by team (-ledger +audit):\n%s", diff)
	}
	if diff := cmp.Diff(c.Total, a.Window.Total); diff != "" || c.Total.Wasted == 0 || c.Total.Used == 0 {
		t.Errorf("the ledger and the audit differ (-ledger +audit):\n%s", diff)
	}
	byDuty, err := costs.Spent(ctx, kept, costs.Query{By: []ledger.Dimension{ledger.ByDuty}, Since: since, Until: now})
	if err != nil || !slices.ContainsFunc(byDuty.Rows, func(r costs.Cost) bool {
		return r.Key[0] == ledger.Unused && r.Wasted > 0
	}) {
		t.Errorf("volumes without a point of input or output are not unused: %+v (%v)", byDuty.Rows, err)
	}
}
