package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// withRates prices a machine with 4 L4 at $0.50, 8 CPUs at $0.02 and 64 GiB at $0.005 an hour.
func withRates(o *ProviderOptions) {
	o.Machines = Machines{{Name: testName, GPU: "L4", GPUs: 4, VCPUs: 8, MemoryGiB: 64}}
	o.Rates = Rates{
		GPUHour: map[string]string{"L4": "0.50"}, VCPUHour: "0.02", MemoryGiBHour: "0.005", Source: "finance",
		AsOf: "2026-01-01",
	}
	o.GPUs = []ConfiguredGPU{{"L4", 4}}
}

func TestPools(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	cpus := func(n int) *spec.Spec { return &spec.Spec{Resources: spec.Resources{CPUs: n, Nodes: 1}} }
	spot := l4(1, 1)
	spot.Capacity = spec.Spot
	typed := &spec.Spec{Resources: spec.Resources{InstanceType: "g6.2xlarge", Nodes: 1}}
	driver := noHardware{
		[]GPU{{ID: "GPU-a", Model: "NVIDIA A100-SXM4-80GB"}, {ID: "GPU-b", Model: "NVIDIA A100-SXM4-80GB"}},
	}
	a100 := &spec.Spec{Resources: spec.Resources{GPU: "A100-80GB", GPUs: 1, Nodes: 1}}
	for _, tc := range []struct {
		name   string
		spec   *spec.Spec
		change func(*ProviderOptions)
		pool   string
		rate   string // hourly; "" if unpriced
		never  bool
	}{
		// 0.50 + 2 × 0.02 + 16 × 0.005
		{
			name: "a GPU with its part of the CPUs and memory", spec: l4(1, 1),
			change: withRates, pool: "1xL4 in lab-1",
			rate: "0.62",
		},
		{name: "all GPUs", spec: l4(4, 1), change: withRates, pool: "4xL4 in lab-1", rate: "2.48"},
		{name: "some CPUs", spec: cpus(2), change: withRates, pool: "2xCPU in lab-1", rate: "0.12"},
		{name: "all CPUs", spec: cpus(0), change: withRates, pool: "8xCPU in lab-1", rate: "0.48"},
		{name: "no rates", spec: l4(1, 1), change: func(o *ProviderOptions) {
			o.GPUs = []ConfiguredGPU{{"L4", 1}}
		}, pool: "1xL4 in lab-1"},
		{name: "a rate of another GPU", spec: l4(1, 1), pool: "1xL4 in lab-1", change: func(o *ProviderOptions) {
			withRates(o)
			o.Rates.GPUHour = map[string]string{"H100": "2"}
		}},
		{
			name: "a price of GPUs alone prices no CPUs", spec: cpus(2), pool: "2xCPU in lab-1",
			change: func(o *ProviderOptions) {
				withRates(o)
				o.Rates.VCPUHour, o.Rates.MemoryGiBHour = "", ""
			}},
		{
			name: "the driver's name", spec: a100, pool: "1xA100-80GB in lab-1", rate: "1.50",
			change: func(o *ProviderOptions) {
				o.Hardware, o.Prices = driver, book
				o.Rates = Rates{GPUHour: map[string]string{"A100-80GB": "1.5"}, Source: "finance", AsOf: "2026-01-01"}
			}},
		{name: "more GPUs than there are", spec: l4(5, 1), change: withRates, never: true},
		{name: "more GPUs on all nodes than there are", spec: l4(2, 3), change: withRates, never: true},
		{name: "another GPU", spec: a100, change: withRates, never: true},
		{name: "more CPUs than there are", spec: cpus(9), change: withRates, never: true},
		{name: "spot", spec: spot, change: withRates, never: true},
		{name: "a cloud's type", spec: typed, change: withRates, never: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pools, err := newWorld(t, tc.change).p.Pools(t.Context(), tc.spec)
			if tc.never {
				if !errors.Is(err, session.ErrUnsupported) {
					t.Errorf("%v, %v; want ErrUnsupported", pools, err)
				}
				return
			}
			if err != nil || len(pools) != 1 || pools[0].String() != tc.pool {
				t.Fatalf("%v, %v; want %s", pools, err, tc.pool)
			}
			if rate := pools[0].Rate; (rate == nil) != (tc.rate == "") || rate != nil && rate.String() != tc.rate {
				t.Errorf("an hour costs %v, want %q", rate, tc.rate)
			}
		})
	}
}

// TestRefusesMoreThanCapacity checks that CPUs and memory are assigned once: each session pays
// for its share, and together they pay at most the machine's cost.
func TestRefusesMoreThanCapacity(t *testing.T) {
	w := newWorld(t, func(o *ProviderOptions) {
		o.Machines = Machines{{Name: testName, VCPUs: 4, MemoryGiB: 64}}
	})
	first := launch(cpu(1))
	w.start(first)
	w.start(launch(cpu(2)))
	for _, more := range []int{2, 4} {
		if machines, err := w.p.Launch(t.Context(), launch(cpu(more))); !errors.Is(err, session.ErrCapacity) {
			t.Errorf("%d more CPUs of the last one: %v, %v; want ErrCapacity", more, machines, err)
		}
	}
	w.start(launch(cpu(1)))
	if machines, err := w.p.Launch(t.Context(), launch(cpu(1))); !errors.Is(err, session.ErrCapacity) {
		t.Errorf("a fifth CPU of four: %v, %v; want ErrCapacity", machines, err)
	}
	if _, err := w.p.Launch(t.Context(), first); err != nil {
		t.Errorf("the launch of one that runs, given again: %v", err)
	}
}

// TestSkipsUsedGPUs checks that GPUs in use by foreign processes are not given, and none twice.
func TestSkipsUsedGPUs(t *testing.T) {
	hardware := noHardware{
		[]GPU{
			{ID: "GPU-a", Model: "L4", Device: &Device{195, 0}},
			{ID: "GPU-b", Model: "L4", Users: []int{1}, Device: &Device{195, 1}},
			{ID: "GPU-c", Model: "L4", Device: &Device{195, 2}},
		},
	}
	w := newWorld(t, func(o *ProviderOptions) {
		o.Hardware = hardware
		o.Machines = Machines{{Name: testName, GPU: "L4", GPUs: 3, VCPUs: 8, MemoryGiB: 64}}
	})
	var ids []string
	for _, want := range []string{"GPU-a", "GPU-c"} {
		l := launch(l4(1, 1), func(l *session.Launch) {
			l.Host.Setup = `echo "$CUDA_VISIBLE_DEVICES" > ` + filepath.Join(t.TempDir(), "seen")
		})
		machines := w.start(l)
		m, err := openMachine(filepath.Join(w.dir, "machines", machines[0].ID))
		if err != nil || !slices.Equal(m.GPUs, []string{want}) || len(m.Deny) != 2 {
			t.Errorf("it has %v and is denied %v (%v), want %s", m.GPUs, m.Deny, err, want)
		}
		_, seen, _ := strings.Cut(l.Host.Setup, "> ")
		eventually(t, "the session sees its GPU alone", func() bool {
			b, _ := os.ReadFile(seen)
			return string(b) == want+"\n"
		})
		ids = append(ids, machines[0].ID)
	}
	if machines, err := w.p.Launch(t.Context(), launch(l4(1, 1))); !errors.Is(err, session.ErrCapacity) {
		t.Errorf("%v, %v; want ErrCapacity", machines, err)
	}
	seen := filepath.Join(t.TempDir(), "seen")
	l := launch(cpu(1), func(l *session.Launch) { l.Host.Setup = `echo "[$CUDA_VISIBLE_DEVICES]" > ` + seen })
	w.start(l)
	eventually(t, "a session without GPUs sees none", func() bool {
		b, _ := os.ReadFile(seen)
		return string(b) == "[]\n"
	})
	notes, err := w.p.Notes(l.Session.ID)
	all, listed := w.p.machines()
	i := slices.IndexFunc(all, func(m *machine) bool { return m.Session == l.Session.ID })
	if listed != nil || i < 0 {
		t.Fatalf("machines: %v, %v", all, listed)
	}
	advisory := slices.ContainsFunc(notes, func(n string) bool {
		return strings.HasPrefix(n, "node 0: the choice of GPUs")
	})
	if c, opened := OpenCage(all[i].dir); err != nil || opened != nil || advisory == c.file.Enforced {
		t.Errorf("notes: %q, %v, %v", notes, err, opened)
	}
	_ = ids
}

func TestListsSessionMachines(t *testing.T) {
	w := newWorld(t, withRates)
	a, b := launch(l4(2, 1)), launch(cpu(2))
	w.start(a)
	machines := w.start(b)
	w.waitRunning(a)
	w.waitRunning(b)
	now := time.Now().UTC().Add(time.Second)
	var holds []inventory.Ref
	for _, m := range machines {
		holds = append(holds, inventory.Ref{
			Cloud: CloudName, Account: testName, Region: Site, Kind: inventory.KindInstance, ID: m.ID,
		})
	}
	cloudtest.Run(t, cloudtest.Case{
		New: func(testing.TB) cloudtest.Cloud {
			return w.open(withRates)
		}, Query: round.Query{Now: now}, Tags: inventory.DefaultTagMapping(),
		Holds: holds, Kinds: []inventory.Kind{inventory.KindInstance},
	})
	obs, err := w.p.List(t.Context(), round.Query{Now: now, Only: map[inventory.Ref]bool{holds[0]: true}})
	if err != nil || len(obs.Resources) != 1 {
		t.Fatalf("%+v, %v", obs, err)
	}
	r := obs.Resources[0]
	if r.State != inventory.StateRunning || !r.Managed || r.Lifetime != inventory.Ephemeral ||
		r.Owner.Team != "vision" ||
		!r.LeaseUntil.Equal(b.Session.LeaseUntil) || r.Name != "demo" ||
		r.Type != "1xCPU" || r.Size.MilliCPUs.Or(0) != 1000 || len(r.Meters) != 1 ||
		r.Meters[0].UnpricedReason != "" ||
		r.Meters[0].Price.Rate.String() != "0.06" {
		t.Errorf("%+v", r)
	}
	if _, err := w.p.List(t.Context(), round.Query{
		Now: now, Only: map[inventory.Ref]bool{{Cloud: "aws"}: true},
	}); err ==
		nil {
		t.Error("a machine of another cloud is read")
	}
	// The keeper's order extends the lease.
	m, err := openMachine(filepath.Join(w.dir, "machines", machines[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	later := b.Session.LeaseUntil.Add(time.Hour)
	if err := errors.Join(os.MkdirAll(w.p.ordersDir(), 0o700),
		writeJSON(w.p.orderPath(m.Session), session.Order{Session: m.Session, LeaseUntil: later})); err != nil {
		t.Fatal(err)
	}
	if obs, err = w.p.List(t.Context(), round.Query{Now: now, Only: map[inventory.Ref]bool{holds[0]: true}}); err !=
		nil || !obs.Resources[0].LeaseUntil.Equal(later) {
		t.Errorf("%+v, %v; want a lease until %s", obs, err, later)
	}
}

// TestChargesSession checks that the ledger charges seconds times rate.
func TestChargesSession(t *testing.T) {
	w := newWorld(t, withRates)
	l := launch(l4(2, 1))
	machines := w.start(l)
	w.waitRunning(l)
	books := &ledger.Memory{}
	post := func() {
		t.Helper()
		if _, err := round.New(round.Setting{
			Lister: w.p, Prices: &price.Book{}, Books: ledger.Journal{Store: books}, Source: "test", Clock: time.Now,
			Policies: &policy.Set{},
		}).Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	post()
	time.Sleep(2 * time.Second)
	post()
	if err := w.p.End(t.Context(), l.Session.ID, idsOf(machines)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone", func() bool { return len(w.find(l.Session.ID)) == 0 })
	time.Sleep(2 * time.Second) // after the end it costs nothing
	post()
	var over ended
	if there, err := readJSON(filepath.Join(w.dir, "machines", machines[0].ID, endedFile), &over); err != nil ||
		!there {
		t.Fatal(err)
	}
	began := machines[0].LaunchedAt
	var total money.Amount
	for e := range books.Entries(began.Truncate(time.Hour), over.At.Add(time.Hour)) {
		var err error
		if total, err = total.Add(e.Amount); err != nil {
			t.Fatal(err)
		}
	}
	// 2 × 0.50 + 4 × 0.02 + 32 × 0.005 = $1.24 an hour; the ledger counts whole seconds.
	ran := over.At.Sub(began)
	least, err := (124 * money.Cent).Mul(int64(ran/time.Second)-1, 3600)
	most, err2 := (124 * money.Cent).Mul(int64(ran/time.Second)+2, 3600)
	if errors.Join(err, err2) != nil || ran < 2*time.Second || total < least || total > most {
		t.Errorf("%s cost %s, want from %s to %s", ran, total, least, most)
	}
}

// TestSubtractsSessionCharges checks that charges of sessions are subtracted from the listed machine
// that they run on.
func TestSubtractsSessionCharges(t *testing.T) {
	w := newWorld(t, withRates)
	o := FleetOptions{Machines: w.p.options.Machines, Rates: w.p.options.Rates, Sessions: w.p}
	o.Machines = append(slices.Clone(o.Machines), Machine{Name: "other", GPU: "L4", GPUs: 4, VCPUs: 8, MemoryGiB: 64})
	hourly := func(l round.Lister) (total money.Amount) {
		t.Helper()
		obs, err := l.List(t.Context(), round.Query{Now: time.Now().Add(time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range obs.Resources {
			for _, m := range r.Meters {
				month, err := m.Price.Rate.For(m.Quantity, m.Per)
				if err != nil || m.UnpricedReason != "" {
					t.Fatalf("%+v, %v", m, err)
				}
				hour, err := month.Mul(1, money.HoursPerMonth)
				if err != nil {
					t.Fatal(err)
				}
				total += hour
			}
		}
		return total
	}
	fleet, err := NewFleet(o)
	if err != nil {
		t.Fatal(err)
	}
	const whole = 2 * 248 * money.Cent // 4 × 0.50 + 8 × 0.02 + 64 × 0.005, twice
	for i, l := range []session.Launch{
		{}, launch(l4(1, 1)), launch(l4(2, 1)), launch(cpu(1)), launch(cpu(1)),
	} {
		if l.Token != "" {
			w.start(l)
		}
		own, listed := hourly(w.p), hourly(fleet)
		want := max(whole/2-own, 0) + whole/2
		if listed != want || i < 5 && own+listed != whole {
			t.Errorf("with %d sessions they cost %s and the listed machines %s, want %s in all",
				i, own, listed, want+own)
		}
	}
}

// TestLadderEndsSession checks that the ladder ends a machine through its session, once, and finds
// the call by its key.
func TestLadderEndsSession(t *testing.T) {
	w := newWorld(t)
	l, other := launch(cpu(1)), launch(cpu(1))
	w.start(l)
	w.start(other)
	w.waitRunning(l)
	obs, err := w.p.List(t.Context(), round.Query{Now: time.Now().Add(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(obs.Resources, func(r *inventory.Resource) bool {
		return r.Tags[inventory.TagSession] == l.Session.ID
	})
	r := obs.Resources[i]
	var ended []string
	a := w.p.Actions(func(_ context.Context, session, _ string) error { ended = append(ended, session); return nil })
	for _, verb := range []policy.Verb{policy.Stop, policy.Hibernate, policy.Delete, policy.Tag, policy.Scale} {
		var refused *action.Refusal
		if _, err := a.Plan(t.Context(), r, policy.Do{Verb: verb}); !errors.As(err, &refused) ||
			refused.Rule != "no-such-verb" {
			t.Errorf("%s: %v", verb, err)
		}
	}
	do := policy.Do{Verb: policy.Terminate}
	steps, err := a.Plan(t.Context(), r, do)
	if err != nil || len(steps) != 1 {
		t.Fatalf("%v, %v", steps, err)
	}
	steps[0].Key = "k-1"
	task := action.Task{Ref: r.Ref(), Identity: action.Identity(r), Do: do, Step: steps[0]}
	expect := func(want action.Progress) {
		t.Helper()
		if got, _, err := a.Look(t.Context(), task); err != nil || got != want {
			t.Errorf("look: %s, %v; want %s", got, err, want)
		}
	}
	expect(action.NotDone)
	if _, err := a.Do(t.Context(), action.Task{
		Ref: r.Ref(), Identity: "another", Do: do, Step: steps[0],
	}); err == nil ||
		len(ended) > 0 {
		t.Errorf("another machine under the name: %v, %v", err, ended)
	}
	if _, err := a.Do(t.Context(), task); err != nil || !slices.Equal(ended, []string{l.Session.ID}) {
		t.Errorf("%v, %v", err, ended)
	}
	expect(action.InProgress)
	w.endAndCheck(l, []string{r.ID})
	expect(action.Complete)
	if _, err := a.Do(t.Context(), task); err != nil || len(ended) != 1 {
		t.Errorf("once it is gone: %v, %v", err, ended)
	}
	var refused *action.Refusal
	if _, err := a.Plan(t.Context(), r, do); !errors.As(err, &refused) || refused.Rule != "gone" {
		t.Errorf("plan: %v", err)
	}
	if err := a.Undo(t.Context(), task); err == nil {
		t.Error("it is undone")
	}
	if found := w.find(other.Session.ID); len(found) != 1 {
		t.Errorf("the other session: %v", found)
	}
}

// TestKeepsUnsavedFiles checks that the files of a machine without a last snapshot are preserved.
func TestKeepsUnsavedFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		phase session.Phase
		asked bool
		kept  bool
	}{
		"all was killed": {kept: true}, "killed while it saved": {phase: session.HostSaving, kept: true},
		"it had saved": {phase: session.HostEnding}, "it was released": {asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			l := launch(cpu(1))
			machines := w.start(l)
			w.waitRunning(l)
			m, err := openMachine(filepath.Join(w.dir, "machines", machines[0].ID))
			if err != nil {
				t.Fatal(err)
			}
			home := m.path(HomeDir)
			if err := errors.Join(os.MkdirAll(home, 0o700),
				os.WriteFile(filepath.Join(home, "work.py"), []byte("x"), 0o600),
				os.MkdirAll(m.path(controlName), 0o700)); err != nil {
				t.Fatal(err)
			}
			if tc.phase != "" {
				if err := writeJSON(filepath.Join(m.path(controlName), "status-0.json"),
					session.Status{Session: m.Session, Phase: tc.phase}); err != nil {
					t.Fatal(err)
				}
			}
			if !tc.asked {
				s, err := m.readState()
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range []Process{s.Watcher, s.Agent} {
					err := p.Signal(9)
					if errors.Is(err, errProcessEnded) { // an agent may end with its watcher
						err = nil
					}
					if err := errors.Join(err, p.wait(t.Context())); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.endAndCheck(l, idsOf(machines))
			b, err := os.ReadFile(filepath.Join(w.dir, "unsaved", m.ID, "work.py"))
			if tc.kept != (err == nil && string(b) == "x") {
				t.Errorf("kept: %q, %v; want %v", b, err, tc.kept)
			}
		})
	}
}

func TestParsesSMI(t *testing.T) {
	const listed = "GPU-a, NVIDIA L4, 00000000:31:00.0\nGPU-b, Tesla T4, 00000000:B1:00.0\n"
	minors := func(bus string) *Device {
		if bus == "00000000:B1:00.0" {
			return &Device{195, 1}
		}
		return nil
	}
	got, err := parseSMI([]byte(listed), []byte("GPU-b, 4711\nGPU-b, 4712\n"), minors)
	if err != nil || len(got) != 2 || got[0].ID != "GPU-a" || got[0].Device != nil || len(got[0].Users) != 0 ||
		got[1].Model != "Tesla T4" || !slices.Equal(got[1].Users, []int{4711, 4712}) ||
		*got[1].Device != (Device{195, 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, used := range map[string]string{
		"another GPU": "GPU-x, 1\n", "no number": "GPU-a, [N/A]\n", "no columns": "No running processes found\n",
	} {
		if got, err := parseSMI([]byte(listed), []byte(used), minors); err == nil {
			t.Errorf("%s: %+v: who uses a GPU is not known, and it would be given away", name, got)
		}
	}
}

func FuzzSMI(f *testing.F) {
	f.Add([]byte("GPU-a, NVIDIA L4, 00000000:31:00.0\n"), []byte("GPU-a, 4711\n"))
	f.Add([]byte("\"\n"), []byte(","))
	f.Fuzz(func(t *testing.T, listed, used []byte) {
		got, err := parseSMI(listed, used, func(string) *Device { return nil })
		if err != nil {
			return
		}
		users := 0
		for _, g := range got {
			users += len(g.Users)
		}
		rows, err := table(used, 2)
		if err != nil || users != len(rows) {
			t.Errorf("%d users of %d: one that uses a GPU is forgotten", users, len(rows))
		}
	})
}
