package costs

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/test/data"
)

// openbPod is a pod of Alibaba's trace of shared GPUs: it holds GPUs, or thousandths of one, for
// some seconds.
type openbPod struct {
	name        string
	gpus, milli int64
	from, to    int64
}

// openb reads the pods that ran within the last days of the trace.
func openb(t *testing.T, since, until int64) []openbPod {
	f, err := os.Open(data.Path(t, "alibaba-openb-2023/pods.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	var out []openbPod
	for _, row := range rows[1:] {
		number := func(name string) int64 {
			n, err := strconv.ParseInt(row[column(name)], 10, 64)
			if err != nil {
				return -1
			}
			return n
		}
		p := openbPod{
			row[column("name")], number("num_gpu"), number("gpu_milli"), max(number("scheduled_time"), since),
			min(number("deletion_time"), until),
		}
		if row[column("scheduled_time")] != "" && p.gpus > 0 && p.to > p.from {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b openbPod) int { return int(a.from - b.from) })
	return out
}

// TestTenancyOfRealCluster places the pods of a real cluster, most of which request part of a GPU,
// on machines with eight GPUs, first fit. Each pod must pay for its GPU time by the hour, and free
// GPUs are unallocated.
func TestTenancyOfRealCluster(t *testing.T) {
	const (
		hour  = 3600
		until = 12_902_400 / hour * hour
		since = until - 5*24*hour
		gpus  = 8
		price = 24 * money.USD // an hour of a machine
	)
	pods := openb(t, since, until)
	type gpu struct{ free map[int64]int64 } // allocated thousandths, by the second at which they are freed
	var machines [][gpus]gpu
	taken := func(g gpu, at int64) (milli int64) {
		for end, m := range g.free {
			if end > at {
				milli += m
			} else {
				delete(g.free, end)
			}
		}
		return milli
	}
	type slotted struct {
		machine int
		hour    int64
	}
	held := map[slotted]map[int][]Held{}
	paid, wholly := map[string]*big.Rat{}, new(big.Rat)
	shared := 0
	requests := map[string]int64{}
	place := func(p openbPod) {
		need := p.milli
		if p.gpus > 1 {
			need = 1000
		} else if p.milli < 1000 {
			shared++
		}
		for m := 0; ; m++ {
			if m == len(machines) {
				var fresh [gpus]gpu
				for i := range fresh {
					fresh[i].free = map[int64]int64{}
				}
				machines = append(machines, fresh)
			}
			var fits []int
			for i := range machines[m] {
				if taken(machines[m][i], p.from)+need <= 1000 && len(fits) < int(p.gpus) {
					fits = append(fits, i)
				}
			}
			if len(fits) < int(p.gpus) {
				continue
			}
			for _, i := range fits {
				machines[m][i].free[p.to] += need
				for at := p.from / hour * hour; at < p.to; at += hour {
					k := slotted{m, at}
					if held[k] == nil {
						held[k] = map[int][]Held{}
					}
					present := (min(at+hour, p.to) - max(at, p.from)) * million / hour
					held[k][i] = append(held[k][i], Held{pod(p.name), present, -1, -1})
				}
			}
			break
		}
		requests[p.name] = p.gpus * need * (WholeGPU / 1000)
		dollars := big.NewRat(int64(price), 1)
		paid[p.name] = new(big.Rat).Mul(dollars, big.NewRat(p.gpus*need*(p.to-p.from), gpus*1000*hour))
		wholly.Add(wholly, new(big.Rat).Mul(dollars, big.NewRat(p.gpus*(p.to-p.from), gpus*hour)))
	}
	for _, p := range pods {
		place(p)
	}
	tenancy := Tenancy{GPUs: map[string]int{}}
	var charged []MachineHour
	for m := range machines {
		id := fmt.Sprint("node-", m)
		tenancy.GPUs[id] = gpus
		for at := int64(since); at < until; at += hour {
			o := Occupancy{Machine: id, From: time.Unix(at, 0).UTC(), Length: time.Hour, Told: true, Listed: true}
			asked := map[string]bool{}
			for i := range gpus {
				g := OccupiedGPU{fmt.Sprint("GPU-", i), WholeGPU, million, -1, held[slotted{m, at}][i]}
				o.GPUs = append(o.GPUs, g)
				for _, h := range g.Tenants {
					if name := h.Tenant.Pod; !asked[name] {
						asked[name] = true
						o.Requests = append(o.Requests, Requested{h.Tenant, requests[name], h.Present})
					}
				}
			}
			tenancy.Add(o)
			charged = append(charged, MachineHour{Resource: id, Hour: o.From, Amount: price, Seconds: hour})
		}
	}
	d, err := tenancy.Divide(time.Unix(since, 0), time.Unix(until, 0), charged)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Group("pod"); err != nil {
		t.Fatal(err)
	}
	var total, free, sum money.Amount
	for _, m := range d.Machines {
		total, free = total+m.Amount, free+m.Unallocated
		if m.Over != "" || m.Unknown != 0 {
			t.Errorf("%s: %q, %s unknown", m.Resource, m.Over, m.Unknown)
		}
	}
	worst := 0.0
	for _, w := range d.Totals {
		sum += w.Amount
		want, _ := paid[w.Tenant.Pod].Float64()
		off := float64(w.Amount) - want
		if off < 0 {
			off = -off
		}
		// Presence is counted in millionths of an hour, and dollars are rounded hourly.
		if worst = max(worst, off); off > 1e-6*float64(price)*120 {
			t.Errorf("%s pays %s, want %s", w.Workload, w.Amount, money.Amount(want))
		}
	}
	if sum+free != total || len(d.Totals) != len(paid) || shared == 0 {
		t.Errorf("%s and %s unallocated of %s; %d of %d pods, %d of them share", sum, free, total,
			len(d.Totals), len(paid),
			shared)
	}
	whole, _ := wholly.Float64()
	t.Logf(
		"%d pods, %d of them on a part of a GPU, %d machines: %s of %s allocated; by whole GPUs it would be %s; the "+
			"worst is %.0f nano-dollars off",
		len(paid), shared, len(machines), sum.Dollars(), total.Dollars(), money.Amount(whole).Dollars(), worst)
}
