package price

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// usd parses dollars.
func usd(t testing.TB, s string) money.Rate {
	t.Helper()
	r, err := money.ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCostByTier(t *testing.T) {
	const tib = 1 << 40
	standard := Price{
		Unit: "GiB-month", Rate: usd(t, "0.023"), Tiers: []Tier{{51_200, usd(t, "0.022")}, {512_000, usd(t, "0.021")}},
	}
	for _, tc := range []struct {
		name string
		n, d int64
		want string
	}{
		{"nothing", 0, 1, "0.00"},
		{"a byte", 1, 1 << 30, "0.00"},
		{"half a GiB", 1 << 29, 1 << 30, "0.0115"},
		{"all of the first tier", 50 * tib, 1 << 30, "1177.60"},
		{"a GiB into the second tier", 51_201, 1, "1177.622"},
		{"all of the second tier", 500 * tib, 1 << 30, "11315.20"},
		{"a PiB", 1024 * tib, 1 << 30, "22583.296"},
	} {
		got, err := standard.Cost(tc.n, tc.d)
		if err != nil || got.String() != tc.want {
			t.Errorf("%s: got %s, %v; want %s", tc.name, got, err, tc.want)
		}
	}
	if _, err := standard.Cost(-1, 1); err == nil {
		t.Error("a negative quantity has a cost")
	}
	if _, err := standard.Cost(1, 0); err == nil {
		t.Error("a quantity over zero has a cost")
	}
	if _, err := (Price{Rate: math.MaxInt64}).Cost(math.MaxInt64, 1); !errors.Is(err, money.ErrOverflow) {
		t.Errorf("a cost out of range: got %v, want ErrOverflow", err)
	}
}

// TestCostAgainstRationals compares with exact arithmetic: each tier is rounded once, so the error
// is at most half a nano-dollar per tier.
func TestCostAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Price{Rate: money.Rate(rapid.Int64Range(1, 1e12).Draw(t, "rate"))}
		above := int64(0)
		for range rapid.IntRange(0, 4).Draw(t, "tiers") {
			above += rapid.Int64Range(1, 1e5).Draw(t, "above")
			p.Tiers = append(p.Tiers, Tier{above, money.Rate(rapid.Int64Range(1, 1e12).Draw(t, "rate"))})
		}
		d := rapid.SampledFrom([]int64{1, 3, 1000, 1 << 30}).Draw(t, "d")
		n := rapid.Int64Range(0, 1e6).Draw(t, "units")*d/7 + rapid.Int64Range(0, 1<<30).Draw(t, "parts")

		exact, from, rate := new(big.Rat), new(big.Rat), p.Rate
		quantity := big.NewRat(n, d)
		for i := 0; i <= len(p.Tiers); i++ {
			to := quantity
			if i < len(p.Tiers) {
				if end := big.NewRat(p.Tiers[i].Above, 1); end.Cmp(quantity) < 0 {
					to = end
				}
			}
			part := new(big.Rat).Sub(to, from)
			exact.Add(exact, part.Mul(part, big.NewRat(int64(rate), 1000)))
			if from = to; i < len(p.Tiers) {
				rate = p.Tiers[i].Rate
			}
		}
		got, err := p.Cost(n, d)
		if err != nil {
			t.Fatal(err)
		}
		off := new(big.Rat).Sub(exact, new(big.Rat).SetInt64(int64(got)))
		if off.Abs(off).Cmp(big.NewRat(int64(len(p.Tiers)+1), 2)) > 0 {
			t.Fatalf("%d/%d units cost %s, %s nano-dollars from exact", n, d, got, off.FloatString(2))
		}
	})
}

func TestUnits(t *testing.T) {
	for _, tc := range []struct {
		item Item
		want string
	}{
		{ItemGP2, "GiB-month"}, {ItemGP3IOPS, "IOPS-month"}, {ItemGP3Throughput, "MiBps-month"},
		{ItemSnapshotArchive, "GiB-month"}, {ItemAddress, "hour"}, {ItemNATData, "GiB"}, {ItemLBGateway, "hour"},
		{ItemS3Standard, "GiB-month"}, {"s3:ANOTHER_CLASS", "GiB-month"}, {ItemS3ToGlacier, "request"},
		{ItemS3FromGlacier, "GiB"},
		{ItemS3List, "request"}, {ItemS3Monitoring, "object-month"}, {ItemLogsIngestInfrequent, "GiB"},
		{ItemLogsStorage, "GiB-month"},
		{"fsx:lustre:125:ssd", "GiB-month"}, {ItemSecret, "month"}, {ItemGetMetricData, "metric"},
		{ItemEgressZone, "GiB"},
		{ItemDefaultMemory, "GiB-hour"}, {ItemDefaultEgressZone, "GiB"},
		{"", ""}, {"ebs:", ""}, {"lb", ""}, {"gpu", ""}, {"unheard:of", ""},
	} {
		if got := tc.item.Unit(); got != tc.want {
			t.Errorf("%q is priced by the %q, want %q", tc.item, got, tc.want)
		}
	}
}

func TestGPUs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		milli int64
		want  int
	}{{"none", 0, 0}, {"an eighth", 125, 1}, {"one", 1000, 1}, {"eight", 8000, 8}} {
		if got := (Machine{AcceleratorMilli: tc.milli}).GPUs(); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
}
