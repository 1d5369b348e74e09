package local

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// rates price an H100, CPUs and memory; no other GPU.
var rates = Rates{
	GPUHour: map[string]string{"H100": "2.10"}, VCPUHour: "0.01", MemoryGiBHour: "$0.0025", Source: "finance",
	AsOf: "2026-01-01",
}

func embedded(t testing.TB) *price.Book {
	t.Helper()
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return book
}

// fleet lists machines, by default with 64 CPUs and 512 GiB.
func fleet(t testing.TB, machines ...Machine) *Fleet {
	t.Helper()
	machines = slices.Clone(machines)
	for i := range machines {
		machines[i].VCPUs, machines[i].MemoryGiB = cmp.Or(machines[i].VCPUs, 64), cmp.Or(machines[i].MemoryGiB, 512)
	}
	f, err := NewFleet(FleetOptions{
		Machines: machines, Rates: rates, Tags: inventory.DefaultTagMapping(), Prices: embedded(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ref(site, id string) inventory.Ref {
	return inventory.Ref{Cloud: OnPremises, Account: Account, Region: site, Kind: inventory.KindInstance, ID: id}
}

func TestConformance(t *testing.T) {
	machines := []Machine{
		{
			Name: "dgx", GPU: "H100", GPUs: 8, Count: 3, Site: "fra-1", Since: "2026-01-15",
			Tags: map[string]string{"team": "vision", "lifetime": "ephemeral"},
		},
		{Name: "node", VCPUs: 64, MemoryGiB: 256},
		{Name: "ordered", GPU: "B200", GPUs: 8, Since: "2027-01-01"},
	}
	c := cloudtest.Case{
		New:   func(tb testing.TB) cloudtest.Cloud { return fleet(tb, machines...) },
		Query: round.Query{Now: now},
		Tags:  inventory.DefaultTagMapping(),
		Holds: []inventory.Ref{ref("fra-1", "dgx-1"), ref("fra-1", "dgx-3"), ref("onprem", "node")},
		Lacks: []inventory.Ref{ref("fra-1", "dgx"), ref("fra-1", "dgx-4"), ref("onprem", "ordered")},
		Kinds: []inventory.Kind{inventory.KindInstance},
	}
	t.Run("machines", func(t *testing.T) { cloudtest.Run(t, c) })
	machines = append(machines, Machine{Name: "kept", VCPUs: 1, Tags: map[string]string{"curfew:keep-until": "soon"}})
	c.Unreadable = true
	t.Run("with a tag that cannot be read", func(t *testing.T) { cloudtest.Run(t, c) })
}

func TestRejectsInvalidMachines(t *testing.T) {
	good := Machine{Name: "a", GPU: "H100", GPUs: 8}
	with := func(change func(*Machine)) Machines {
		m := good
		change(&m)
		return Machines{good, m}
	}
	for _, tc := range []struct {
		name     string
		machines Machines
		rates    Rates
		field    string
		says     string
	}{
		{name: "twice the same name", machines: Machines{good, good}, field: "[1].name", says: "already"},
		{
			name: "the name of one of several", machines: Machines{
				{Name: "a", VCPUs: 1, Count: 2}, {Name: "a-2", VCPUs: 1},
			},
			field: "[1].name", says: "already",
		},
		{name: "no name", machines: with(func(m *Machine) { m.Name = "" }), field: "[1].name", says: "host name"},
		{
			name: "a name with a slash", machines: with(func(m *Machine) { m.Name = "a/b" }), field: "[1].name",
			says: "host name",
		},
		{
			name: "a site with a space", machines: with(func(m *Machine) { m.Site = "new york" }), field: "[1].site",
			says: "new york",
		},
		{
			name: "GPUs without a name", machines: with(func(m *Machine) { m.GPU = "" }), field: "[1].gpu",
			says: "8 GPUs",
		},
		{
			name: "a GPU without a number", machines: with(func(m *Machine) { m.GPUs = 0 }), field: "[1].gpu",
			says: "0 GPUs",
		},
		{name: "nothing in it", machines: Machines{{Name: "a"}}, field: "[0].name", says: "neither"},
		{name: "fewer than none", machines: with(func(m *Machine) { m.GPUs = -8 }), field: "[1].gpus", says: "-8"},
		{name: "too many GPUs", machines: with(func(m *Machine) { m.GPUs = 1025 }), field: "[1].gpus", says: "1024"},
		{
			name: "too many machines", machines: with(func(m *Machine) { m.Count = 10_001 }), field: "[1].count",
			says: "10000",
		},
		{
			name: "no date", machines: with(func(m *Machine) { m.Since = "January" }), field: "[1].since",
			says: "2026-01-31",
		},
		{
			name: "CPUs that are priced and not listed", machines: Machines{good},
			rates: Rates{VCPUHour: "1", Source: "x", AsOf: "2026-01-01"}, field: "[0].vcpus", says: "rates.vcpu_hour",
		},
		{
			name: "memory that is priced and not listed", machines: Machines{good},
			rates: Rates{MemoryGiBHour: "1", Source: "x", AsOf: "2026-01-01"}, field: "[0].memory_gib",
			says: "rates.memory_gib_hour",
		},
		{
			name: "a price of nothing", rates: Rates{GPUHour: map[string]string{"H100": "0"}}, field: ".gpu_hour",
			says: "above zero",
		},
		{name: "a negative price", rates: Rates{VCPUHour: "-1"}, field: ".vcpu_hour", says: "above zero"},
		{name: "no amount", rates: Rates{MemoryGiBHour: "cheap"}, field: ".memory_gib_hour", says: "cheap"},
		{
			name: "a price without a source", rates: Rates{VCPUHour: "1", AsOf: "2026-01-01"}, field: ".source",
			says: "missing",
		},
		{
			name: "a price without a date", rates: Rates{VCPUHour: "1", Source: "finance"}, field: ".as_of",
			says: "date",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var field *FieldError
			if err := errors.Join(tc.machines.Validate(tc.rates), tc.rates.Validate()); !errors.As(err, &field) ||
				field.Field != tc.field || !strings.Contains(field.Message, tc.says) {
				t.Errorf("got %v, want %s with %q", err, tc.field, tc.says)
			}
			if _, err := NewFleet(FleetOptions{Machines: tc.machines, Rates: tc.rates}); !errors.As(err, &field) {
				t.Errorf("New: got %v, want a *FieldError", err)
			}
		})
	}
	if _, err := NewFleet(FleetOptions{
		Rates:  Rates{GPUHour: map[string]string{"H100": "2", "H100-80GB": "3"}, Source: "x", AsOf: "2026-01-01"},
		Prices: embedded(t),
	}); err == nil {
		t.Error("one GPU has two prices under two of its names")
	}
}

// TestObservesAcceptedMachines lists random machines: each list is rejected, or each machine is
// observed once with its size.
func TestObservesAcceptedMachines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := Machines(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Machine {
			return Machine{
				Name:  rapid.SampledFrom([]string{"a", "a-1", "b", "c.d", ""}).Draw(t, "name"),
				Count: rapid.IntRange(-1, 4).Draw(t, "count"),
				GPU:   rapid.SampledFrom([]string{"", "H100", "my own"}).Draw(t, "gpu"),
				GPUs:  rapid.Int64Range(-1, 2).Draw(t, "gpus"),
				VCPUs: rapid.Int64Range(0, 1<<16).Draw(t, "vcpus"),
				Site: rapid.SampledFrom([]string{"", "s", "t"}).Draw(t,
					"site"),
			}
		}), 0, 4).Draw(t, "machines"))
		f, err := NewFleet(FleetOptions{Machines: list})
		if refused := list.Validate(Rates{}); (err == nil) != (refused == nil) {
			t.Fatalf("NewFleet: %v, Validate: %v", err, refused)
		}
		if err != nil {
			return
		}
		want := 0
		for _, m := range list {
			want += max(m.Count, 1)
		}
		o, err := cloudtest.Observe(context.Background(), f, round.Query{Now: now})
		if err != nil || len(o.Resources) != want {
			t.Fatalf("%d machines are observed (%v), want %d", len(o.Resources), err, want)
		}
		for _, r := range o.Resources {
			if gpus, known := r.Size.GPUs.Get(); !known || gpus == 0 &&
				r.Size.MilliCPUs.Or(0) == 0 || len(r.Meters) != 1 {
				t.Fatalf("%s has size %+v and meters %+v", r.ID, r.Size, r.Meters)
			}
		}
	})
}

// recordedUsage is per-minute usage of machines over two days.
type recordedUsage map[string]func(gpu int) map[usage.Signal]float64

func (recordedUsage) Name() string { return "tape.csv" }

func (l recordedUsage) Collect(_ context.Context, resolve func(string, time.Duration) usage.Sink) (usage.Summary,
	error) {
	const step = time.Minute
	for name, values := range l {
		w := resolve(name, step)
		for g := range 2 {
			for s, v := range values(g) {
				for at := now.Add(-48 * time.Hour); at.Before(now); at = at.Add(step) {
					if s.PerGPU() || g == 0 {
						w.Add(string(rune('0'+g)), s, usage.Point{Time: at, Mean: v, Max: v})
					}
				}
			}
		}
	}
	return usage.Summary{}, nil
}

// gpus returns the usage of two equal GPUs on a machine with idle CPUs.
func gpus(util, memory float64) func(int) map[usage.Signal]float64 {
	return func(int) map[usage.Signal]float64 {
		return map[usage.Signal]float64{
			usage.GPUUtil: util, usage.MemUsed: memory, usage.CPUUtil: 1, usage.NetBytes: 0,
		}
	}
}

func audit(t *testing.T, f *Fleet, l recordedUsage) *round.Result {
	t.Helper()
	a, err := round.New(round.Setting{
		Lister: f, Sources: []usage.Source{round.RecordedSource(l)}, Query: round.Query{Window: 48 * time.Hour},
		Prices: embedded(t).With(f.Prices()...),
		Audit:  &round.Audit{Thresholds: finding.DefaultThresholds()}, Duty: duty.DefaultThresholds(),
		Clock: func() time.Time { return now },
	}).Round(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestFindings(t *testing.T) {
	two := func(name string, change ...func(*Machine)) Machine {
		m := Machine{Name: name, GPU: "H100-80GB", GPUs: 2}
		for _, c := range change {
			c(&m)
		}
		return m
	}
	// 2 × $2.10 + 64 × $0.01 + 512 × $0.0025 = $6.12 an hour.
	const month = 612 * money.Cent * money.HoursPerMonth
	for _, tc := range []struct {
		name    string
		machine Machine
		usage   func(int) map[usage.Signal]float64
		state   duty.State
		rules   []string
		waste   money.Amount
		atMost  money.Amount
	}{
		{
			name: "idle", machine: two("m"), usage: gpus(0, 0), state: duty.Idle, rules: []string{"gpu-instance-idle"},
			waste: month,
		},
		{
			name: "held by the memory that the book says", machine: two("m"), usage: gpus(0, 60e9), state: duty.Held,
			rules: []string{"gpu-held"}, waste: month,
		},
		{
			name: "idle under another name of its GPU", machine: two("m", func(m *Machine) { m.GPU = "H100" }),
			usage: gpus(0, 0), state: duty.Idle, rules: []string{"gpu-instance-idle"}, waste: month,
		},
		{name: "busy", machine: two("m"), usage: gpus(90, 60e9), state: duty.Busy},
		{
			name: "half of it busy", machine: two("m"), state: duty.Busy, rules: []string{"gpu-count-over"},
			atMost: 210 * money.Cent * money.HoursPerMonth,
			usage:  func(g int) map[usage.Signal]float64 { return gpus(float64(90*g), 60e9)(g) }},
		{
			name: "more GPUs than were measured", machine: two("m", func(m *Machine) {
				m.GPUs = 8
			}), usage: gpus(0, 0),
			rules: []string{"telemetry-missing"},
		},
		{name: "only its CPU measured", machine: two("m"), rules: []string{"telemetry-missing"},
			usage: func(int) map[usage.Signal]float64 {
				return map[usage.Signal]float64{usage.CPUUtil: 0, usage.NetBytes: 0}
			}},
		{
			name: "idle at no price", machine: two("m", func(m *Machine) { m.GPU = "V100-32GB" }), usage: gpus(0, 0),
			state: duty.Idle, rules: []string{"gpu-instance-idle"},
		},
		{
			name:    "idle and kept",
			machine: two("m", func(m *Machine) { m.Tags = map[string]string{inventory.TagKeepUntil: "2027-01-01"} }),
			usage:   gpus(0, 0), state: duty.Idle,
		},
		{
			name: "idle and new", machine: two("m", func(m *Machine) { m.Since = "2026-11-21" }), usage: gpus(0, 0),
			state: duty.Idle,
		},
		{name: "transient training on a machine of years", state: duty.Busy, usage: gpus(90, 60e9),
			machine: two("m", func(m *Machine) {
				m.Since, m.Tags = "2024-01-01", map[string]string{"purpose": "training", "lifetime": "ephemeral"}
			})},
		{
			name: "a machine without GPUs", machine: Machine{Name: "m", VCPUs: 64, MemoryGiB: 256}, state: duty.Idle,
			rules: []string{"instance-idle"}, waste: 128 * money.Cent * money.HoursPerMonth,
			usage: func(int) map[usage.Signal]float64 {
				return map[usage.Signal]float64{usage.CPUUtil: 1, usage.NetBytes: 0}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := audit(t, fleet(t, tc.machine), recordedUsage{"m": tc.usage})
			if got := a.Verdicts[ref("onprem", "m")]; got.State != tc.state {
				t.Errorf("its duty is %s (%s), want %s", got.State, got.Why, tc.state)
			}
			var rules []string
			for _, f := range a.Findings {
				rules = append(rules, f.Rule)
				if f.Fix.Change.Verb != change.Advise && f.Fix.Change.Verb != change.Measure {
					t.Errorf("%s: the fix is %q, which curfew could carry out", f.Rule, f.Fix.Change.Verb)
				}
				if strings.Contains(f.Fix.Note+f.Because, "p5.") || strings.Contains(f.Fix.Note, "disk") {
					t.Errorf("%s speaks of a cloud: %s; %s", f.Rule, f.Because, f.Fix.Note)
				}
				if f.Waste != tc.waste || f.Savings.UpperBound != tc.atMost {
					t.Errorf("%s wastes %s and saves at most %s, want %s and %s", f.Rule, f.Waste,
						f.Savings.UpperBound, tc.waste,
						tc.atMost)
				}
			}
			for _, f := range a.Findings {
				if unpriced := a.Totals.Unpriced > 0; f.Savings.Known != (tc.waste > 0) ||
					unpriced != strings.Contains(f.Savings.Why, "no rate of a GPU-hour") {
					t.Errorf("%s saves %+v", f.Rule, f.Savings)
				}
			}
			if !slices.Equal(rules, tc.rules) {
				t.Errorf("found %q, want %q", rules, tc.rules)
			}
			if a.Totals.Now.Wasted != tc.waste || a.Totals.Now.Wasted > a.Totals.Now.Running {
				t.Errorf("waste is %s of %s, want %s", a.Totals.Now.Wasted, a.Totals.Now.Running, tc.waste)
			}
		})
	}
}

// TestMissingRateIsUnpriced removes each rate: what it priced becomes unpriced and never costs
// zero.
func TestMissingRateIsUnpriced(t *testing.T) {
	for _, m := range []Machine{{Name: "m", GPU: "A100-80GB", GPUs: 8}, {Name: "m", VCPUs: 64, MemoryGiB: 1}} {
		f, err := NewFleet(FleetOptions{
			Machines: Machines{m},
			Rates:    Rates{GPUHour: map[string]string{"H100-80GB": "1"}, Source: "x", AsOf: "2026-01-01"},
		})
		if err != nil {
			t.Fatal(err)
		}
		a := audit(t, f, nil)
		if c := a.Charges[ref("onprem", "m")]; len(c) != 1 || !strings.Contains(c[0].Unpriced, "no rate") ||
			a.Totals.Unpriced != 1 {
			t.Errorf("%s is charged %+v", m.typeName(), c)
		}
	}
}

func TestHourlyRate(t *testing.T) {
	r := tariff{gpu: map[string]money.Amount{"A100": 2 * money.USD}, vcpu: inventory.Known(money.Cent)}
	size := func(gpus int, gpu string, milliCPUs, memoryMiB int64) inventory.Size {
		return inventory.Size{
			GPUs: inventory.Known(gpus), GPU: gpu, MilliCPUs: inventory.Known(milliCPUs),
			MemoryMiB: inventory.Known(memoryMiB),
		}
	}
	for _, tc := range []struct {
		name string
		size inventory.Size
		want string
	}{
		{"GPUs and CPUs; memory is in the GPU's price", size(8, "A100", 96_000, 1<<20), "16.96"},
		{"a GPU without a rate", size(1, "H900", 0, 0), `no rate of a GPU-hour of "H900" is configured`},
		{
			"memory without a rate and without GPUs", size(0, "", 4000, 1024),
			"no rate of a GiB-hour of memory is configured",
		},
	} {
		m := r.meter(OnPremises, tc.size)
		got := m.UnpricedReason
		if got == "" {
			got = m.Price.Rate.String()
		}
		if got != tc.want || m.Quantity != 730*m.Per {
			t.Errorf("%s: %s, want %s; %+v", tc.name, got, tc.want, m)
		}
	}
}

// TestIdleMachineOfBusyGang checks that an idle machine of a gang has the duty of the gang, and
// that an unmeasured GPU makes the duty unknown.
func TestIdleMachineOfBusyGang(t *testing.T) {
	gang := map[string]string{"curfew:gang": "run"}
	f := fleet(t, Machine{
		Name: "a", GPU: "H100", GPUs: 2, Tags: gang,
	}, Machine{Name: "b", GPU: "H100", GPUs: 2, Tags: gang},
		Machine{Name: "c", GPU: "H100", GPUs: 2}, Machine{Name: "d", GPU: "H100", GPUs: 3})
	a := audit(t, f, recordedUsage{"a": gpus(0, 0), "b": gpus(90, 60e9), "c": gpus(0, 0), "d": gpus(0, 0)})
	got := map[inventory.Ref]*duty.Verdict{}
	for _, facts := range a.Facts {
		got[facts.Resource.Ref()] = facts.Duty
	}
	for id, want := range map[string]duty.State{"a": duty.Busy, "b": duty.Busy, "c": duty.Idle, "d": duty.Unknown} {
		if v := got[ref("onprem", id)]; v.State != want {
			t.Errorf("%s is %s (%s), want %s", id, v.State, v.Why, want)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	f := fleet(b, Machine{Name: "dgx", GPU: "H100", GPUs: 8, Count: 10_000, Tags: map[string]string{"team": "vision"}})
	for b.Loop() {
		if _, err := cloudtest.Observe(b.Context(), f, round.Query{Now: now}); err != nil {
			b.Fatal(err)
		}
	}
}
