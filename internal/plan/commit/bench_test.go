package commit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// market is machine types over some hours, with days, weeks and growth in them, and
// offers for each: two reserved, a savings plan by family and one for everything.
func market(keys, hours int) ([]Usage, []Offer) {
	random := rand.New(rand.NewPCG(1, 2))
	var usage []Usage
	var offers []Offer
	for k := range keys {
		name, rate := fmt.Sprintf("f%d.%d", k%4, k), 1+20*random.Float64()
		base, swing := 5+50*random.Float64(), 20*random.Float64()
		for t := range hours {
			q := base + swing*math.Sin(float64(t)/24*2*math.Pi+float64(k)) + base*float64(t)/float64(hours)/2 +
				3*random.NormFloat64()
			usage = append(usage, Usage{
				Hour: start.Add(time.Duration(t) * time.Hour), Key: name, Quantity: Quantity(max(0, q) * 1e6),
				OnDemand: dollars(rate),
			})
		}
		offers = append(offers, Offer{
			Key: name, Kind: Reserved, TermMonths: 12, Payment: NoUpfront,
			Hourly: dollars(rate * (0.55 + 0.15*random.Float64())),
		},
			Offer{
				Key: name, Kind: Reserved, TermMonths: 36, Payment: AllUpfront,
				Upfront: dollars(rate * 36 * 730 * (0.5 + 0.15*random.Float64())),
			})
	}
	for f := range 4 {
		offers = append(offers, Offer{
			Key: fmt.Sprintf("f%d.*", f), Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront,
			Discount: Discount(350+10*f) * 1e6,
		})
	}
	return usage, append(offers, Offer{
		Key: "*", Kind: SavingsPlan, TermMonths: 36, Payment: NoUpfront, Discount: 320 * 1e6,
	})
}

// BenchmarkPlan is a year of two machine types, and ten times as many rows: 20 types, 45
// offers in one search.
func BenchmarkPlan(b *testing.B) {
	for _, keys := range []int{2, 20} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			usage, offers := market(keys, 8760)
			b.ReportAllocs()
			var r Report
			for b.Loop() {
				var err error
				if r, err = Plan(usage, offers, nil, Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(1-usd(r.LowerBoundUSD)/usd(r.PlannedUSD), "gap")
		})
	}
}

// BenchmarkOnline replays ten years of 20 machine types.
func BenchmarkOnline(b *testing.B) {
	usage, offers := market(20, 87_600)
	for b.Loop() {
		if _, err := Online(usage, offers, nil); err != nil {
			b.Fatal(err)
		}
	}
}
