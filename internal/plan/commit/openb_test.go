package commit

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/test/data"
)

// openb is the GPUs that pods of the trace held at each full hour, fractions counted, at
// a dollar an hour.
func openb(t testing.TB) []Usage {
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
	number := func(row []string, column string) int64 {
		v, err := strconv.ParseInt(row[slices.Index(rows[0], column)], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	held := make([]Quantity, 3585)
	for _, row := range rows[1:] {
		if row[slices.Index(rows[0], "scheduled_time")] == "" {
			continue
		}
		gpus := Quantity(number(row, "num_gpu")*number(row, "gpu_milli")) * Machine / 1000
		for h := (number(row, "scheduled_time") + 3599) / 3600; h < int64(len(held)) &&
			h*3600 < number(row, "deletion_time"); h++ {
			held[h] += gpus
		}
	}
	var out []Usage
	for h, q := range held {
		out = append(out, Usage{
			Hour: start.Add(time.Duration(h) * time.Hour), Key: "gpu", Quantity: q, OnDemand: money.USD,
		})
	}
	return out
}

// TestConstantLevelOnOpenb compares the best constant level of a recorded trace with the known
// figures, 0.905 of on demand at a unit price of 0.6 and 0.776 at 0.4. Those are of a level that
// need not be whole, as savings plans have it (7.38 GPUs at 0.4); whole machines are held against
// every whole level.
func TestConstantLevelOnOpenb(t *testing.T) {
	usage := openb(t)
	for _, tc := range []struct{ price, level float64 }{{0.6, 0.905}, {0.4, 0.776}} {
		hourly := dollars(tc.price)
		whole := wholeLevel(usage, tc.price)
		for _, o := range []struct {
			Offer
			want float64
		}{
			{Offer{Key: "gpu", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: hourly}, whole},
			{
				Offer{Key: "gpu", Kind: Reserved, TermMonths: 36, Payment: AllUpfront, Upfront: hourly * 36 * 730},
				whole,
			},
			{
				Offer{
					Key: "*", Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront,
					Discount: fullDiscount - Discount(hourly),
				},
				tc.level,
			},
		} {
			t.Run(fmt.Sprint(tc.price, " ", o.Kind, " ", o.Payment), func(t *testing.T) {
				r, err := Plan(usage, []Offer{o.Offer}, nil, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if got := usd(r.PlannedUSD) / usd(r.OnDemandUSD); math.Abs(got-o.want) > 0.0005 ||
					!r.Optimal || r.Hours != 3585 {
					t.Errorf("%d hours cost %.4f of on demand, want 3585 hours at %.4f", r.Hours, got, o.want)
				}
				online, err := Online(usage, []Offer{o.Offer}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if online.Ratio > 2-tc.price || math.Abs(online.Bound-(2-tc.price)) > 1e-9 || online.Ratio < 1 {
					t.Errorf("online: %.3f times the best plan, bound %.3f", online.Ratio, online.Bound)
				}
			})
		}
	}
}

// wholeLevel tries every whole level.
func wholeLevel(usage []Usage, price float64) float64 {
	best, onDemand := math.Inf(1), 0.0
	for _, u := range usage {
		onDemand += float64(u.Quantity) / 1e6
	}
	for level := range 50 {
		cost := float64(level*len(usage)) * price
		for _, u := range usage {
			cost += max(0, float64(u.Quantity)/1e6-float64(level))
		}
		best = min(best, cost/onDemand)
	}
	return best
}
