package commit

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// sizedKeys are three sizes of one family, from the smallest on, and one of a family without
// flexible sizes. Factors are those of the user guide, in large.
var sizedKeys = []struct {
	key    string
	factor float64
}{{"m5.large/r", 1}, {"m5.xlarge/r", 2}, {"m5.4xlarge/r", 8}, {"g5.xlarge/r", 0}}

// sized is a market with sizes in plain floats; nothing here knows the program's model.
type sized struct {
	need  [][]float64 // by key and hour
	rate  []float64
	offer []Offer
	held  []Existing
}

func (in sized) usage() []Usage {
	var out []Usage
	for k, need := range in.need {
		for t, q := range need {
			hour := start.Add(time.Duration(t) * time.Hour)
			out = append(out, Usage{
				Hour: hour, Key: sizedKeys[k].key, Quantity: Quantity(q * 1e6), OnDemand: dollars(in.rate[k]),
			})
		}
	}
	return out
}

// reserve takes n machines of an offer off what runs in an hour, the smallest size first.
func reserve(left []float64, o Offer, n float64) {
	for k, own := range sizedKeys {
		if own.key != o.Key {
			continue
		}
		if o.OneSize || own.factor == 0 {
			left[k] = max(0, left[k]-n)
			return
		}
		units := n * own.factor
		for j, other := range sizedKeys {
			if other.factor > 0 {
				take := min(left[j], units/other.factor)
				left[j] -= take
				units -= take * other.factor
			}
		}
	}
}

// left returns the use in an hour that no reserved machine covers; those of one size come first.
func (in sized) left(levels []float64, t int) []float64 {
	left := make([]float64, len(in.need))
	for k := range left {
		left[k] = in.need[k][t]
	}
	for _, oneSize := range []bool{true, false} {
		for _, e := range in.held {
			if e.OneSize == oneSize {
				reserve(left, e.Offer, float64(e.Machines))
			}
		}
		for i, o := range in.offer {
			if o.Kind == Reserved && o.OneSize == oneSize {
				reserve(left, o, levels[i])
			}
		}
	}
	return left
}

// planUse is dollars at on-demand prices that a plan for a pattern could cover in an hour.
func (in sized) planUse(pattern string, left []float64) (sum float64) {
	for k, n := range left {
		if strings.HasPrefix(sizedKeys[k].key, strings.TrimSuffix(pattern, "*")) {
			sum += n * in.rate[k]
		}
	}
	return sum
}

// cheapest tries every number of machines, and of a savings plan each level that one of the
// hours just uses up.
func (in sized) cheapest(most float64) float64 {
	best := math.Inf(1)
	hours := len(in.need[0])
	levels := make([]float64, len(in.offer))
	var try func(i int)
	try = func(i int) {
		if i < len(in.offer) && in.offer[i].Kind == Reserved {
			for n := 0.0; n <= most; n++ {
				levels[i] = n
				try(i + 1)
			}
			return
		}
		fixed := 0.0
		for j, o := range in.offer {
			if o.Kind == Reserved {
				fixed += levels[j] * usd(o.Hourly) * float64(hours)
			}
		}
		for _, e := range in.held {
			fixed += float64(e.Machines) * usd(e.Hourly) * float64(hours)
		}
		uses, all := []float64{0}, make([][2]float64, hours)
		for t := range hours {
			left := in.left(levels, t)
			all[t] = [2]float64{0, in.planUse("*", left)}
			if i < len(in.offer) {
				all[t][0] = in.planUse(in.offer[i].Key, left)
				uses = append(uses, all[t][0])
			}
		}
		for _, use := range uses {
			total := fixed
			for _, a := range all {
				total += a[1] - min(a[0], use)
				if i < len(in.offer) {
					total += use * (1 - in.offer[i].Discount.Share())
				}
			}
			best = min(best, total)
		}
	}
	try(0)
	return best
}

// drawSized draws a market; prices a unit are those of AWS, the same for each size, or not.
func drawSized(t *rapid.T, samePrices bool) (in sized, most float64) {
	hours := rapid.IntRange(1, 4).Draw(t, "hours")
	unit := float64(rapid.IntRange(4, 40).Draw(t, "cents")) / 100
	for k, s := range sizedKeys {
		rate := unit * max(1, s.factor)
		if !samePrices {
			rate *= float64(rapid.IntRange(50, 150).Draw(t, "of the usual price")) / 100
		}
		in.rate = append(in.rate, math.Round(rate*1e4)/1e4)
		in.need = append(in.need, nil)
		for range hours {
			n := float64(rapid.IntRange(0, 6).Draw(t, "halves")) / 2
			if k == 2 {
				n = float64(rapid.IntRange(0, 2).Draw(t, "of the largest")) / 2
			}
			in.need[k] = append(in.need[k], n)
			most = max(most, 3+6+8)
		}
	}
	share := float64(rapid.IntRange(20, 99).Draw(t, "share")) / 100
	for _, k := range rapid.SampledFrom([][]int{{}, {0}, {1}, {2, 3}, {1, 3}, {1, 2}}).Draw(t, "reserved") {
		o := Offer{Key: sizedKeys[k].key, Kind: Reserved, TermMonths: 12, Payment: NoUpfront}
		o.OneSize = rapid.IntRange(0, 5).Draw(t, "one size") == 0
		o.Hourly = dollars(math.Round(unit*max(1, sizedKeys[k].factor)*share*1e4) / 1e4)
		in.offer = append(in.offer, o)
	}
	if pattern := rapid.SampledFrom([]string{"", "m5.*", "*", "m5.xlarge*"}).Draw(t, "plan"); pattern != "" {
		o := Offer{Key: pattern, Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront}
		o.Discount = Discount(rapid.IntRange(5, 70).Draw(t, "discount")) * 1e7
		in.offer = append(in.offer, o)
	}
	if rapid.Bool().Draw(t, "held") {
		o := Offer{Key: sizedKeys[rapid.IntRange(0, 3).Draw(t, "of")].key, Kind: Reserved, Hourly: money.Cent}
		o.OneSize = rapid.Bool().Draw(t, "held one size")
		n := rapid.Int64Range(1, 3).Draw(t, "machines")
		in.held = append(in.held, Existing{Offer: o, Machines: n, Expires: start.AddDate(1, 0, 0)})
	}
	return in, most
}

// TestFamilySizesMatchBruteForce compares plans with flexible sizes, sizes of their own, excluded
// families, savings plans and existing reservations with every other choice. Where the provider's
// order of sizes is not the cheapest one, the bound has to hold all the same.
func TestFamilySizesMatchBruteForce(t *testing.T) {
	bought := 0
	rapid.Check(t, func(rt *rapid.T) {
		samePrices := rapid.Bool().Draw(rt, "same prices")
		in, most := drawSized(rt, samePrices)
		r, err := Plan(in.usage(), in.offer, in.held, Options{})
		if err != nil {
			rt.Fatal(err)
		}
		want := in.cheapest(most)
		got, bound := usd(r.PlannedUSD), usd(r.LowerBoundUSD)
		if bound > want+1e-6*max(1, want) {
			rt.Fatalf("bound %.9f, brute force %.9f\n%+v", bound, want, in)
		}
		if got < want-1e-6*max(1, want) {
			rt.Fatalf("planned %.9f costs less than brute force %.9f\n%+v", got, want, in)
		}
		if r.Optimal && got > want+1e-6*max(1, want) {
			rt.Fatalf("planned %.9f as optimal, brute force %.9f: %+v\n%+v", got, want, r.Commitments, in)
		}
		relaxed := func(o Offer) bool { return o.OneSize || o.Key == "m5.xlarge*" }
		if samePrices && !slices.ContainsFunc(in.offer, relaxed) && !r.Optimal {
			rt.Fatalf("planned %.9f, bound %.9f: not known to be optimal\n%+v", got, bound, in)
		}
		if len(r.Commitments) > 0 {
			bought++
		}
	})
	if bought < 20 {
		t.Errorf("only %d plans buy anything", bought)
	}
}

// TestReservationCoversItsFamily: 2 m5.xlarge are 4 m5.large or half of an m5.4xlarge, and one
// of g5 is itself.
func TestReservationCoversItsFamily(t *testing.T) {
	for _, tc := range []struct {
		name, reserved string
		oneSize        bool
		run            string
		want           string // on demand and covered
	}{
		{"smaller size", "m5.xlarge/r", false, "m5.large/r", "4.00 2.00"},
		{"larger size", "m5.xlarge/r", false, "m5.2xlarge/r", "4.00 1.00"},
		{"own size", "m5.xlarge/r", false, "m5.xlarge/r", "4.00 2.00"},
		{"half of two large", "m5.large/r", false, "m5.2xlarge/r", "4.00 0.50"},
		{"one size", "m5.xlarge/r", true, "m5.large/r", "4.00 0.00"},
		{"excluded family", "g5.xlarge/r", false, "g5.2xlarge/r", "4.00 0.00"},
		{"other family", "m5.xlarge/r", false, "m5a.large/r", "4.00 0.00"},
		{"other region", "m5.xlarge/r", false, "m5.large/q", "4.00 0.00"},
		{"no region", "m5.xlarge", false, "m5.large", "4.00 2.00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := int64(2)
			if tc.run == "m5.large/r" || tc.run == "m5.large" {
				n = 1 // covers two
			}
			o := Offer{Key: tc.reserved, Kind: Reserved, Hourly: money.Cent, OneSize: tc.oneSize}
			held := []Existing{{Offer: o, Machines: n, Expires: start.AddDate(1, 0, 0)}}
			r := best(t, steady(tc.run, 1, 4), nil, held, Options{})
			if got := r.OnDemandUSD.String() + " " + r.Existing[0].CoveredUSD.String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestSizesColumn checks that a reservation of one size is said in the files, and nonsense has its
// place.
func TestSizesColumn(t *testing.T) {
	head := "key,kind,term_months,payment,hourly_rate,upfront,discount,sizes\n"
	row := "m5.large/r,reserved,12,no-upfront,0.06,,,"
	offers, err := ReadOffers("o.csv", strings.NewReader(head+row+"one\n"+row+"family\n"+row+"\n"))
	if err != nil || len(offers) != 3 || !offers[0].OneSize || offers[1].OneSize || offers[2].OneSize {
		t.Errorf("got %+v, %v", offers, err)
	}
	for row, want := range map[string]string{
		"m5.large/r,reserved,12,no-upfront,0.06,,,all":        `o.csv:2:42: sizes "all": expected family or one`,
		"g5.xlarge/r,reserved,12,no-upfront,0.06,,,family":    `covers its own size only`,
		"m5.metal/r,reserved,12,no-upfront,0.06,,,family":     `covers its own size only`,
		"m5.*,savings-plan,12,no-upfront,,,0.3,one":           `a savings plan covers every size`,
		"m9.20xlarge/r,reserved,12,no-upfront,0.06,,,family":  `covers its own size only`,
		"ml.m5.large/r,reserved,12,no-upfront,0.06,,,family":  `covers its own size only`,
		"compute/us-east-1,reserved,12,no-upfront,1,,,family": `covers its own size only`,
	} {
		_, err := ReadOffers("o.csv", strings.NewReader(head+row+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", row, err, want)
		}
	}
}
