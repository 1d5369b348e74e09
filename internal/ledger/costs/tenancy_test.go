package costs

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func pod(name string) Tenant { return Tenant{Namespace: "ml", Pod: name} }

// on returns a tenant on a GPU for the whole slot.
func on(name string, utilization int64) Held { return Held{pod(name), million, utilization, -1} }

// wants returns a request for the whole slot.
func wants(name string, parts int64) Requested { return Requested{pod(name), parts, million} }

// whole returns a GPU observed for the whole slot.
func whole(name string, utilization int64, tenants ...Held) OccupiedGPU {
	return OccupiedGPU{name, WholeGPU, million, utilization, tenants}
}

// TestTenancy divides one hour of a machine at $36 an hour by observations of its GPUs.
func TestTenancy(t *testing.T) {
	const none = -1
	for _, tc := range []struct {
		name    string
		gpus    int
		seconds int64
		seen    []Occupancy // each covers an equal part of the hour
		want    string      // pod=by request(used/idle/unmeasured),by use … free, unknown; unused, dark
	}{
		{
			"one pod, one GPU", 1, 3600, []Occupancy{
				{Told: true, GPUs: []OccupiedGPU{whole("A", 250_000, on("a", 250_000))}},
			},
			"ml/a=36.00(9.00/27.00/0.00)9.00 free=0.00 unknown=0.00; unused=27.00 dark=0.00"},
		{
			"half of the GPUs", 2, 3600, []Occupancy{
				{Told: true, GPUs: []OccupiedGPU{whole("A", million, on("a", million)), whole("B", 0)}},
			},
			"ml/a=18.00(18.00/0.00/0.00)18.00 free=18.00 unknown=0.00; unused=18.00 dark=0.00"},
		{
			"a GPU that nothing was seen of", 2, 3600, []Occupancy{
				{Told: true, GPUs: []OccupiedGPU{whole("A", million, on("a", million))}},
			},
			"ml/a=18.00(18.00/0.00/0.00)18.00 free=18.00 unknown=18.00; unused=0.00 dark=18.00"},
		{
			"a GPU that works for no known pod", 1, 3600, []Occupancy{
				{Told: true, Listed: true, GPUs: []OccupiedGPU{whole("A", 500_000)}},
			},
			"free=36.00 unknown=36.00; unused=0.00 dark=36.00"},
		{"an exporter that knows no pods", 1, 3600, []Occupancy{{GPUs: []OccupiedGPU{whole("A", 0)}}},
			"free=36.00 unknown=36.00; unused=0.00 dark=36.00"},
		{"nothing was seen", 1, 3600, nil, "free=36.00 unknown=36.00; unused=0.00 dark=36.00"},
		{
			"time slices: the GPU's utilization is divided by request", 1, 3600,
			[]Occupancy{{Told: true, Requests: []Requested{wants("a", WholeGPU/4), wants("b", WholeGPU/2)},
				GPUs: []OccupiedGPU{whole("A", 300_000, on("a", 300_000), on("b", 300_000))}}},
			"ml/b=18.00(7.20/10.80/0.00)7.20 ml/a=9.00(3.60/5.40/0.00)3.60 free=9.00 unknown=0.00; unused=25.20 dark=0.00"},
		{
			"time slices, one pod uses more than its request", 1, 3600, []Occupancy{
				{Told: true, Requests: []Requested{wants("a", WholeGPU/4)},
					GPUs: []OccupiedGPU{whole("A", 800_000, on("a", 800_000))}}},
			"ml/a=9.00(9.00/0.00/0.00)28.80 free=27.00 unknown=0.00; unused=7.20 dark=0.00"},
		{
			"time slices without requests: even parts", 1, 3600, []Occupancy{
				{
					Told: true,
					GPUs: []OccupiedGPU{whole("A", 600_000, on("a", 600_000), on("b", 600_000), on("c", 600_000))},
				},
			},
			"ml/a=12.00(7.20/4.80/0.00)7.20 ml/b=12.00(7.20/4.80/0.00)7.20 ml/c=12.00(7.20/4.80/0.00)7.20 free=0.00 " +
				"unknown=0.00; unused=14.40 dark=0.00"},
		{
			"one request is not known: it has what is left", 1, 3600, []Occupancy{
				{Told: true, Requests: []Requested{wants("a", WholeGPU/4)},
					GPUs: []OccupiedGPU{whole("A", none, on("a", none), on("b", none))}}},
			"ml/b=27.00(0.00/0.00/27.00)0.00 ml/a=9.00(0.00/0.00/9.00)0.00 free=0.00 unknown=0.00; unused=0.00 dark=36.00"},
		{
			"processes that are measured", 1, 3600, []Occupancy{
				{Told: true, Requests: []Requested{wants("a", WholeGPU/2), wants("b", WholeGPU/2)},
					GPUs: []OccupiedGPU{
						whole("A", 900_000, Held{pod("a"), million, 900_000, 750_000},
							Held{pod("b"), million, 900_000, 100_000}),
					}}},
			"ml/a=18.00(18.00/0.00/0.00)27.00 ml/b=18.00(3.60/14.40/0.00)3.60 free=0.00 unknown=0.00; unused=5.40 dark=0.00"},
		{
			"requests alone, on one GPU", 1, 3600, []Occupancy{
				{
					Told: true, Listed: true, Requests: []Requested{wants("a", WholeGPU/4), wants("b", WholeGPU/4)},
					GPUs: []OccupiedGPU{whole("A", 400_000)},
				},
			},
			"ml/a=9.00(7.20/1.80/0.00)7.20 ml/b=9.00(7.20/1.80/0.00)7.20 free=18.00 unknown=0.00; unused=21.60 dark=0.00"},
		{
			"requests alone, on one of two GPUs", 2, 3600, []Occupancy{
				{Told: true, Listed: true, Requests: []Requested{wants("a", WholeGPU/2)}},
			},
			"ml/a=9.00(0.00/0.00/9.00)0.00 free=27.00 unknown=0.00; unused=27.00 dark=9.00"},
		{
			"an exporter that names one of two pods that share", 2, 3600, []Occupancy{
				{Told: true, Listed: true, Requests: []Requested{wants("a", WholeGPU/2), wants("b", WholeGPU/2)},
					GPUs: []OccupiedGPU{whole("A", 900_000, on("a", 900_000)), whole("B", 0)}}},
			"ml/a=9.00(0.00/0.00/9.00)0.00 ml/b=9.00(0.00/0.00/9.00)0.00 free=18.00 unknown=0.00; unused=18.00 dark=18.00"},
		{"MIG instances", 1, 3600, []Occupancy{{Told: true, GPUs: []OccupiedGPU{
			{"A:1", WholeGPU / 7 * 3, million, 500_000, []Held{on("a", 500_000)}},
			{"A:2", WholeGPU / 7, million, 0, []Held{on("b", 0)}}, {"A:3", WholeGPU / 7, million, 0, nil}}}},
			"ml/a=15.428571428(7.714285714/7.714285714/0.00)7.714285714 ml/b=5.142857143(0.00/5.142857143/0.00)0.00 " +
				"free=15.428571429 unknown=10.285714286; unused=18.00 dark=10.285714286"},
		{"one pod after another", 1, 3600, []Occupancy{
			{Told: true, GPUs: []OccupiedGPU{whole("A", million, on("a", million))}},
			{
				Told: true,
				GPUs: []OccupiedGPU{
					whole("A", 500_000, Held{pod("a"), 250_000, million, none}, Held{pod("b"), 750_000, 0, none}),
				},
			}},
			"ml/a=22.50(22.50/0.00/0.00)22.50 ml/b=13.50(0.00/13.50/0.00)0.00 free=0.00 unknown=0.00; unused=13.50 dark=0.00"},
		{
			"more is requested than there is", 1, 3600, []Occupancy{
				{
					Told: true, Requests: []Requested{wants("a", WholeGPU), wants("b", WholeGPU)},
					GPUs: []OccupiedGPU{whole("A", 500_000, on("a", 500_000), on("b", 500_000))},
				},
			},
			"ml/a=18.00(9.00/9.00/0.00)9.00 ml/b=18.00(9.00/9.00/0.00)9.00 free=0.00 unknown=0.00; unused=18.00 " +
				"dark=0.00 over"},
		{
			"a machine that ran for half of the hour", 1, 1800, []Occupancy{
				{Told: true, GPUs: []OccupiedGPU{whole("A", 0, on("a", 0))}}, {},
			},
			"ml/a=36.00(0.00/36.00/0.00)0.00 free=0.00 unknown=0.00; unused=36.00 dark=0.00"},
		{
			"samples of half of the hour", 1, 3600, []Occupancy{
				{Told: true, GPUs: []OccupiedGPU{whole("A", 0, on("a", 0))}}, {},
			},
			"ml/a=18.00(0.00/18.00/0.00)0.00 free=18.00 unknown=18.00; unused=18.00 dark=18.00"},
		{
			"a pod of two containers", 1, 3600, []Occupancy{
				{Told: true, Listed: true, Requests: []Requested{wants("a", WholeGPU/4), wants("a", WholeGPU/4)}},
			},
			"ml/a=18.00(0.00/0.00/18.00)0.00 free=18.00 unknown=0.00; unused=18.00 dark=18.00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tenancy := Tenancy{GPUs: map[string]int{"i-1": tc.gpus}}
			for i, o := range tc.seen {
				o.Machine, o.Length = "i-1", time.Hour/time.Duration(len(tc.seen))
				o.From = noon.Add(time.Duration(i) * o.Length)
				tenancy.Add(o)
			}
			d, err := tenancy.Divide(noon, noon.Add(time.Hour), []MachineHour{
				{Resource: "i-1", Hour: noon, Amount: 36 * money.USD, Seconds: tc.seconds},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(d.Machines[0]); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func shown(m DividedMachine) string {
	var b strings.Builder
	for _, w := range m.Workloads {
		fmt.Fprintf(&b, "%s=%s(%s/%s/%s)%s ", w.Workload, w.Amount, w.Used, w.Idle, w.CannotJudge, w.ByUse)
	}
	fmt.Fprintf(&b, "free=%s unknown=%s; unused=%s dark=%s", m.Unallocated, m.Unknown, m.IdleUse, m.UnknownUse)
	if m.Over != "" {
		b.WriteString(" over")
	}
	return b.String()
}

// TestTenancyMatchesFractions compares hours with exact fractions, within a nano-dollar an hour.
func TestTenancyMatchesFractions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := rapid.IntRange(1, 4).Draw(t, "GPUs")
		tenancy := Tenancy{GPUs: map[string]int{"i-1": gpus}}
		naive := exact{gpus: gpus, had: map[string]*big.Rat{}, used: map[string]*big.Rat{}}
		const slots = 4
		for i := range slots {
			o := Occupancy{
				Machine: "i-1", From: noon.Add(time.Duration(i) * time.Hour / slots),
				Length: time.Hour / slots, Told: true,
			}
			for g := range gpus {
				u := rapid.Int64Range(0, million).Draw(t, "utilization")
				x := whole(fmt.Sprint("GPU-", g), u)
				for n := range rapid.IntRange(0, 3).Draw(t, "pods") {
					x.Tenants = append(x.Tenants, on(fmt.Sprint("p", g, "-", n), u))
				}
				o.GPUs = append(o.GPUs, x)
				replicas := rapid.Int64Range(1, 10).Draw(t, "replicas")
				for _, h := range x.Tenants {
					if rapid.Bool().Draw(t, "requests are known") {
						o.Requests = append(o.Requests, Requested{h.Tenant, WholeGPU / replicas, million})
					}
				}
			}
			tenancy.Add(o)
			naive.add(o, slots)
		}
		amount := money.Amount(rapid.Int64Range(0, 1e15).Draw(t, "amount"))
		d, err := tenancy.Divide(noon, noon.Add(time.Hour), []MachineHour{
			{Resource: "i-1", Hour: noon, Amount: amount, Seconds: 3600},
		})
		if err != nil {
			t.Fatal(err)
		}
		m := d.Machines[0]
		sum, byUse := m.Unallocated, m.IdleUse+m.UnknownUse
		for _, w := range m.Workloads {
			if w.Used < 0 || w.Idle < 0 || w.CannotJudge < 0 || w.Used+w.Idle+w.CannotJudge != w.Amount {
				t.Fatalf("%+v", w)
			}
			sum, byUse = sum+w.Amount, byUse+w.ByUse
			for what, x := range map[string]struct {
				got  money.Amount
				want *big.Rat
			}{"request": {w.Amount, naive.had[w.Workload]}, "use": {w.ByUse, naive.used[w.Workload]}} {
				exactly, _ := new(big.Rat).Mul(x.want, new(big.Rat).SetInt64(int64(amount))).Float64()
				// Shares are counted in parts of a GPU, and in millionths of a slot.
				if off := float64(x.got) - exactly; off > 2+float64(amount)/1e10 || off < -2-float64(amount)/1e10 {
					t.Fatalf("%s by %s: %d, want %f", w.Workload, what, x.got, exactly)
				}
			}
		}
		if sum != amount || byUse != amount || m.Amount != amount || m.Unknown < 0 || m.Unknown > m.Unallocated {
			t.Fatalf("parts of %d add up to %d and %d, %d of %d unallocated is unknown", amount, sum, byUse, m.Unknown,
				m.Unallocated)
		}
	})
}

// exact holds allocated and used shares of a machine as fractions.
type exact struct {
	gpus      int
	had, used map[string]*big.Rat
}

func (e *exact) add(o Occupancy, slots int64) {
	requests := map[string]*big.Rat{}
	for _, r := range o.Requests {
		requests[r.Tenant.Name()] = big.NewRat(r.Parts, WholeGPU)
	}
	one := big.NewRat(1, 1)
	for _, g := range o.GPUs {
		left, unknown := big.NewRat(1, 1), int64(0)
		for _, h := range g.Tenants {
			if r := requests[h.Tenant.Name()]; r != nil {
				left.Sub(left, r)
			} else {
				unknown++
			}
		}
		if left.Sign() < 0 {
			left = new(big.Rat)
		}
		asks, sum := map[string]*big.Rat{}, new(big.Rat)
		for _, h := range g.Tenants {
			ask := requests[h.Tenant.Name()]
			if ask == nil {
				ask = new(big.Rat).Mul(left, big.NewRat(1, unknown))
			}
			asks[h.Tenant.Name()] = ask
			sum.Add(sum, ask)
		}
		for name, ask := range asks {
			if sum.Sign() == 0 {
				continue
			}
			had := new(big.Rat).Set(ask)
			if sum.Cmp(one) > 0 {
				had.Quo(ask, sum)
			}
			used := new(big.Rat).Mul(new(big.Rat).Quo(ask, sum), big.NewRat(g.Utilization, million))
			for to, v := range map[*map[string]*big.Rat]*big.Rat{&e.had: had, &e.used: used} {
				if (*to)[name] == nil {
					(*to)[name] = new(big.Rat)
				}
				(*to)[name].Add((*to)[name], v.Quo(v, big.NewRat(int64(e.gpus)*slots, 1)))
			}
		}
	}
}
