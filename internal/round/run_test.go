package round

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	rules "github.com/curfew-dev/curfew/internal/finding/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
	"github.com/curfew-dev/curfew/internal/usage"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// account is a lister of what it was given, and a source of what was measured of it.
type account struct {
	observation Observation
	err         error
	loads       map[string]float64 // of the GPU of a machine, by its id
}

func (a account) List(ctx context.Context, _ Query) (*Observation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := a.observation
	o.Cloud, o.Accounts, o.Regions = "aws", []string{"1"}, []string{"us-east-1"}
	aws.Attach(o.Resources)
	return &o, a.err
}

func (a account) Name() string { return "test" }

func (a account) Measure(_ context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	for _, r := range resources {
		load, ok := a.loads[r.ID]
		if !ok {
			continue
		}
		w := open(r, usage.SourceInfo{Step: time.Hour, Source: "test"})
		for at := iv.From; at.Before(iv.To); at = at.Add(time.Hour) {
			w.Add("0", usage.GPUUtil, usage.Point{Time: at, Mean: load, Max: load})
			w.Add("0", usage.MemUsed, usage.Point{Time: at, Mean: 1 << 20, Max: 1 << 20})
			w.Add("0", usage.MemTotal, usage.Point{Time: at, Mean: 24 << 30, Max: 24 << 30})
			w.Add("", usage.CPUUtil, usage.Point{Time: at, Mean: load / 20, Max: load / 20})
			w.Add("", usage.NetBytes, usage.Point{Time: at, Mean: 100, Max: 100})
		}
	}
	return usage.MeasureResult{}, nil
}

// tape is a recording made in memory.
type tape struct {
	resource string
	gpu      string
	values   map[usage.Signal]float64
	hours    int
	every    int // one sample every so many hours, 0 for each hour
}

func (tape) Name() string { return "tape.csv" }

func (r tape) Collect(_ context.Context, resolve func(string, time.Duration) usage.Sink) (usage.Summary, error) {
	w := resolve(r.resource, time.Hour)
	if w == nil {
		return usage.Summary{}, nil
	}
	for h := 0; h < r.hours; h += max(1, r.every) {
		for s, v := range r.values {
			w.Add(r.gpu, s, usage.Point{Time: now.Add(-time.Duration(r.hours-h) * time.Hour), Mean: v, Max: v})
		}
	}
	return usage.Summary{}, nil
}

func machine(id, typ string, age time.Duration) *inventory.Resource {
	return &inventory.Resource{
		ID: id, Name: "name-" + id, Kind: inventory.KindInstance, Cloud: "aws", Account: "1",
		Region: "us-east-1", Type: typ,
		State: inventory.StateRunning, CreatedAt: now.Add(-age), Tags: map[string]string{},
		Detail: &inventory.Instance{
			Market: inventory.OnDemand, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy,
		}}
}

func setting(t testing.TB, o Observation, recordings ...Recording) Setting {
	t.Helper()
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	out := Setting{
		Lister: account{observation: o}, Query: Query{Window: 14 * 24 * time.Hour}, Prices: book,
		Audit: &Audit{Thresholds: finding.DefaultThresholds(), Rules: rules.Rules()}, Duty: duty.DefaultThresholds(),
		Clock: func() time.Time { return now },
	}
	for _, r := range recordings {
		out.Sources = append(out.Sources, RecordedSource(r))
	}
	return out
}

func rulesOf(a *Result) string {
	var out []string
	for _, f := range a.Findings {
		out = append(out, f.Rule+" "+f.Resource.ID)
	}
	return strings.Join(out, ", ")
}

const days = 24 * time.Hour

func TestUnmeasuredMachineIsNotWaste(t *testing.T) {
	r := machine("i-1", "g6.2xlarge", 30*days)
	a, err := New(setting(t, Observation{
		Inventory: inventory.Inventory{Resources: []*inventory.Resource{r}}, CommitmentsKnown: true,
	})).Round(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := rulesOf(a); got != "telemetry-missing i-1" {
		t.Errorf("findings: %s", got)
	}
	if a.Totals.Waste != 0 || a.Totals.Now.Running.Cents() != "713.65" ||
		a.Totals.Now.Unmeasured != a.Totals.Now.Running {
		t.Errorf("cost %s, waste %s, unmeasured %s; want 713.65, nothing, all of it",
			a.Totals.Now.Running, a.Totals.Waste,
			a.Totals.Now.Unmeasured)
	}
}

func TestUnknownGPUTypeIsNotJudgedByCPU(t *testing.T) {
	quiet := tape{
		resource: "i-1", hours: 14 * 24, values: map[usage.Signal]float64{usage.CPUUtil: 1, usage.NetBytes: 10},
	}
	group := &inventory.Resource{
		ID: "fleet", Kind: inventory.KindAutoScalingGroup, Cloud: "aws", Account: "1", Region: "us-east-1",
		Tags:   map[string]string{},
		Detail: &inventory.AutoScalingGroup{Min: 0, Max: 2, Desired: 1, Instances: []string{"i-1"}}}
	a, err := New(setting(t, Observation{CommitmentsKnown: true,
		Inventory: inventory.Inventory{
			Resources: []*inventory.Resource{machine("i-1", "p99.48xlarge", 30*days), group},
		}},
		quiet)).Round(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := rulesOf(a); got != "telemetry-missing i-1" {
		t.Errorf("findings: %s", got)
	}
	if v := a.Verdicts[a.Resources[1].Ref()]; v.State != duty.Unknown {
		t.Errorf("verdict: %+v", v)
	}
}

func TestWasteStaysWithinCost(t *testing.T) {
	reserved := &inventory.Resource{
		ID: "ri-1", Kind: inventory.KindCommitment, Cloud: "aws", Account: "1",
		Region: "us-east-1", Type: "g6.2xlarge",
		State: inventory.StateRunning, Tags: map[string]string{}, Detail: &inventory.Commitment{
			CommitmentType: inventory.ReservedInstances, Count: 2,
			Platform: inventory.LinuxPlatform, Hourly: inventory.Known(money.USD)}}
	a, err := New(setting(t, Observation{CommitmentsKnown: true,
		Inventory: inventory.Inventory{
			Resources: []*inventory.Resource{machine("i-1", "g6.2xlarge", 30*days), reserved},
		}})).Round(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	// The machine costs 713.65 and is unmeasured; one of two reserved ones, at
	// 365.00 each, covers nothing, which only a finding can know.
	got := a.Totals
	if got.Now.Wasted.Cents() != "365.00" || got.Waste != 0 || got.Now.Running.Cents() != "1078.65" ||
		got.Committed.Cents() != "365.00" || got.ByCategory[CategoryIdle] != got.Now.Wasted ||
		got.Now.Unmeasured.Cents() != "713.65" {
		t.Errorf("waste %s and %s, cost %s, committed %s, idle %s, unmeasured %s",
			got.Now.Wasted, got.Waste, got.Now.Running,
			got.Committed, got.ByCategory[CategoryIdle], got.Now.Unmeasured)
	}
	if o := got.ByOwner[0]; o.Waste != got.Waste || o.Now.Running != got.Now.Running {
		t.Errorf("owner %+v", o)
	}
}

func TestRecordedUsageDecides(t *testing.T) {
	const gpuMemory = 24 << 30
	for _, tc := range []struct {
		name, rule string
		tape       tape
		waste      string
	}{
		{name: "idle by id", rule: "gpu-instance-idle i-1", waste: "713.65",
			tape: tape{
				resource: "i-1", gpu: "0", hours: 14 * 24,
				values: map[usage.Signal]float64{
					usage.GPUUtil: 0, usage.MemUsed: 1 << 20, usage.MemTotal: gpuMemory,
					usage.CPUUtil: 1, usage.NetBytes: 10,
				},
			}},
		{name: "held by name", rule: "gpu-held i-1", waste: "713.65",
			tape: tape{
				resource: "name-i-1", gpu: "0", hours: 14 * 24,
				values: map[usage.Signal]float64{
					usage.GPUUtil: 0, usage.MemUsed: 22 << 30, usage.MemTotal: gpuMemory,
					usage.CPUUtil: 1, usage.NetBytes: 10,
				},
			}},
		{name: "busy", rule: "", waste: "0.00",
			tape: tape{
				resource: "i-1", gpu: "0", hours: 14 * 24,
				values: map[usage.Signal]float64{
					usage.GPUUtil: 95, usage.MemUsed: 22 << 30, usage.MemTotal: gpuMemory,
					usage.CPUUtil: 2, usage.NetBytes: 10,
				},
			}},
		{
			name: "measured for the second half of the window",
			rule: "gpu-instance-idle i-1", waste: "356.82",
			tape: tape{
				resource: "i-1", gpu: "0", hours: 7 * 24,
				values: map[usage.Signal]float64{usage.GPUUtil: 0, usage.MemUsed: 1 << 20, usage.MemTotal: gpuMemory},
			}},
		{
			name: "measured every sixth hour, of which three are known",
			rule: "telemetry-missing i-1", waste: "356.82",
			tape: tape{every: 6,
				resource: "i-1", gpu: "0", hours: 14 * 24,
				values: map[usage.Signal]float64{usage.GPUUtil: 0, usage.MemUsed: 1 << 20, usage.MemTotal: gpuMemory},
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := machine("i-1", "g6.2xlarge", 30*days)
			a, err := New(setting(t, Observation{
				Inventory: inventory.Inventory{Resources: []*inventory.Resource{r}}, CommitmentsKnown: true,
			}, tc.tape)).Round(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if got := rulesOf(a); got != tc.rule {
				t.Errorf("findings: %q, want %q (duty %+v)", got, tc.rule, a.Verdicts[r.Ref()])
			}
			if a.Totals.Waste.Cents() != tc.waste {
				t.Errorf("waste %s, want %s", a.Totals.Waste.Cents(), tc.waste)
			}
		})
	}
}

func TestRecordedUsageOfUnknownResource(t *testing.T) {
	a, b := machine("i-1", "g6.2xlarge", 30*days), machine("i-2", "g6.2xlarge", 30*days)
	b.Name = a.Name
	for _, name := range []string{"i-9", a.Name} {
		audit, err := New(setting(t, Observation{
			Inventory: inventory.Inventory{Resources: []*inventory.Resource{a, b}},
		},
			tape{
				resource: name, hours: 400, values: map[usage.Signal]float64{usage.GPUUtil: 0},
			})).Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if len(audit.BlindSpots) != 1 || !strings.Contains(audit.BlindSpots[0].Why, name) || audit.Totals.Waste != 0 {
			t.Errorf("samples of %q: blind spots %+v, waste %s; want one that names it and no waste", name,
				audit.BlindSpots,
				audit.Totals.Waste)
		}
	}
}

func TestFailedListingIsAnError(t *testing.T) {
	p := setting(t, Observation{})
	p.Lister = account{err: inventory.ErrUnauthenticated}
	if _, err := New(p).Round(context.Background()); !errors.Is(err, inventory.ErrUnauthenticated) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := New(setting(t, Observation{})).Round(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v", err)
	}
}

// TestTotalsAddUp checks that the categories, the owners and the charges are the same dollars, and
// waste and savings never exceed them.
func TestTotalsAddUp(t *testing.T) {
	base := setting(t, Observation{})
	types := []string{"g6.2xlarge", "p4d.24xlarge", "m5.xlarge", "t3.large", "unknown.large"}
	rapid.Check(t, func(t *rapid.T) {
		o := Observation{CommitmentsKnown: rapid.Bool().Draw(t, "commitments")}
		loads := map[string]float64{}
		for i := range rapid.IntRange(0, 12).Draw(t, "machines") {
			r := machine("i-"+string(rune('a'+i)), rapid.SampledFrom(types).Draw(t, "type"), 30*days)
			r.Owner.Team = rapid.SampledFrom([]string{"", "vision", "language"}).Draw(t, "team")
			o.Resources = append(o.Resources, r)
			if rapid.Bool().Draw(t, "measured") {
				loads[r.ID] = rapid.SampledFrom([]float64{0, 0.4, 30, 95}).Draw(t, "load")
			}
			v := &inventory.Resource{
				ID: "vol-" + r.ID, Kind: inventory.KindVolume, Cloud: "aws", Account: "1",
				Region: "us-east-1", Type: "gp2",
				CreatedAt: now.Add(-60 * days),
				State: rapid.SampledFrom([]inventory.State{
					inventory.StateAvailable, inventory.StateInUse,
				}).Draw(t, "volume"),
				Tags: map[string]string{}, Owner: r.Owner, Detail: &inventory.Volume{SizeGiB: 100}}
			o.Resources = append(o.Resources, v)
		}
		p := base
		all := account{observation: o, loads: loads}
		p.Lister, p.Sources = all, []usage.Source{all}
		a, err := New(p).Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var byCategory, byOwner, wasteByOwner, savings money.Amount
		for _, v := range a.Totals.ByCategory {
			byCategory += v
		}
		for _, o := range a.Totals.ByOwner {
			byOwner += o.Now.Running
			wasteByOwner += o.Waste
		}
		for _, f := range a.Findings {
			savings += f.Savings.Amount
		}
		if byCategory != a.Totals.Now.Running || byOwner != a.Totals.Now.Running {
			t.Fatalf("categories add up to %s and owners to %s, the cost is %s", byCategory,
				byOwner, a.Totals.Now.Running)
		}
		if found := a.Totals.Now.Wasted; found > a.Totals.Now.Running || savings > a.Totals.Now.Running ||
			a.Totals.ByCategory[CategoryIdle] > found {
			t.Fatalf("cost %s, waste %s, savings %s, idle %s", a.Totals.Now.Running, found, savings,
				a.Totals.ByCategory[CategoryIdle])
		}
		// Every hour and every team is rounded.
		const rounding = 1000
		if a.Totals.Waste > a.Totals.Now.Running+100*rounding ||
			max(wasteByOwner-a.Totals.Waste, a.Totals.Waste-wasteByOwner) > rounding {
			t.Fatalf("cost %s, waste over the window %s, of the teams %s", a.Totals.Now.Running,
				a.Totals.Waste, wasteByOwner)
		}
	})
}
