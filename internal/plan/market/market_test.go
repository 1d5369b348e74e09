package market

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

const region = "us-east-1"

type fataler interface{ Fatal(...any) }

func embedded(tb fataler) *price.Book {
	b, err := price.Embedded()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// with returns the embedded book with prices of the user's own over it.
func with(tb fataler, rows ...string) *price.Book {
	b := embedded(tb)
	const header = "cloud,service,name,region,term,above,usd,unit,accelerator,accelerators,source,as_of\n"
	if err := b.Load(strings.NewReader(header + strings.Join(rows, "\n") + "\n")); err != nil {
		tb.Fatal(err)
	}
	return b
}

func rank(t *testing.T, b *price.Book, f For, p Params) Report {
	t.Helper()
	r, err := Rank(b, f, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func find(t *testing.T, r Report, machine string, option price.Term) Offer {
	t.Helper()
	i := slices.IndexFunc(r.Offers, func(o Offer) bool { return o.Machine == machine && o.Option == option })
	if i < 0 {
		t.Fatalf("%s is not offered %s", machine, option)
	}
	return r.Offers[i]
}

// TestWorkPerDollar: worked by hand from the data sheets and the list prices.
func TestWorkPerDollar(t *testing.T) {
	for _, tc := range []struct {
		name    string
		f       For
		machine string
		work    float64
	}{
		{"eight V100", Compute, "p3.16xlarge", 8 * 125},
		{"eight A100", Compute, "p4d.24xlarge", 8 * 312},
		{"an eighth of an L4", Compute, "g6f.large", 121.0 / 8},
		{"the memory of an eighth", Memory, "g6f.large", 2861.0 / 1024},
		{"four T4", Memory, "g4dn.12xlarge", 64},
		{"eight A100 by bandwidth", Bandwidth, "p4d.24xlarge", 8 * 1555},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := embedded(t)
			o := find(t, rank(t, b, tc.f, Params{Region: region}), tc.machine, price.OnDemand)
			p, err := b.OnDemand(tc.machine, region)
			if err != nil {
				t.Fatal(err)
			}
			hourly, _ := p.Hourly()
			dollars := float64(hourly) / float64(money.USD)
			if o.Work != tc.work || math.Abs(o.PerDollar-tc.work/dollars) > 1e-9*o.PerDollar || o.HourlyUSD != hourly {
				t.Errorf("%v for $%s, %v a dollar; want %v for $%s", o.Work, o.HourlyUSD, o.PerDollar, tc.work, hourly)
			}
			if o.Source != p.Source || o.AsOf != p.AsOf.Format(time.DateOnly) ||
				o.SpecSource == "" || o.Region != region {
				t.Errorf("source %q of %s, %q, in %s; want %q of %s", o.Source, o.AsOf,
					o.SpecSource, o.Region, p.Source,
					p.AsOf.Format(time.DateOnly))
			}
		})
	}
}

func TestWhatIsUnknownIsNotRanked(t *testing.T) {
	for _, tc := range []struct {
		name, machine, why string
		f                  For
		p                  Params
	}{
		{
			"no price anywhere", "p5.4xlarge", "no price in the price book in any region, spot", Compute,
			Params{Options: []price.Term{price.Spot}},
		},
		{
			"no price in the region", "p4d.24xlarge", "no price in the price book in xx-nowhere-1", Compute,
			Params{Region: "xx-nowhere-1"},
		},
		{"no bandwidth of the accelerator", "g5g.xlarge", "no published figure", Bandwidth, Params{}},
		{"nothing to estimate tokens from", "g5g.xlarge", "no published throughput", Tokens, Params{}},
		{"an accelerator the book does not know", "x.huge", "has no data for its accelerator", Compute, Params{}},
		{"a price that rounds to nothing", "x.free", "below $0.000000001", Compute, Params{}},
		{
			"a model that does not fit", "g4dn.xlarge", "the model needs", Tokens,
			Params{Model: Model{Parameters: 70e9}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := with(t, "other,compute,x.huge,mars,on-demand,,1,hour,Z9000,8,a list,2026-01-01",
				"other,compute,x.free,mars,on-demand,,0.0000000001,hour,L4,8,a list,2026-01-01")
			r := rank(t, b, tc.f, tc.p)
			i := slices.IndexFunc(r.Unranked, func(u Unranked) bool { return u.Machine == tc.machine })
			if i < 0 || !strings.Contains(r.Unranked[i].Why, tc.why) {
				t.Errorf("%s is unranked as %+v, want %q", tc.machine, r.Unranked, tc.why)
			}
			if slices.ContainsFunc(r.Offers, func(o Offer) bool { return o.Machine == tc.machine }) {
				t.Errorf("%s is ranked", tc.machine)
			}
		})
	}
}

func TestScope(t *testing.T) {
	b := with(t,
		"lambda,compute,gpu_8x_h100_sxm5,us-east-1,on-demand,,23.92,hour,H100-80GB,8,Lambda price page,2026-10-01",
		"aws,compute,p5.48xlarge,us-east-1,reserved,,30,hour,,,a contract,2026-10-01")
	for _, tc := range []struct {
		name string
		p    Params
		in   func(Offer) bool
	}{
		{"all", Params{}, func(Offer) bool { return true }},
		{"one region", Params{Region: "eu-central-1"}, func(o Offer) bool { return o.Region == "eu-central-1" }},
		{"spot", Params{Options: []price.Term{price.Spot}}, func(o Offer) bool { return o.Option == price.Spot }},
		{"an accelerator by another name", Params{Accelerator: "H100"}, func(o Offer) bool {
			return o.Accelerator == "H100-80GB"
		}},
		{"a vendor", Params{Vendor: "nvidia"}, func(o Offer) bool {
			return !strings.Contains(o.Accelerator, "Trainium") && !strings.Contains(o.Note, "CUDA")
		}},
		{"another cloud", Params{Cloud: "lambda"}, func(o Offer) bool {
			return o.Cloud == "lambda" && o.Work == 8*989.4
		}},
		{"reserved", Params{Options: []price.Term{price.Reserved}}, func(o Offer) bool {
			return *o.Discount > 0 && strings.Contains(o.Note, "upfront")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rank(t, b, Compute, tc.p)
			if len(r.Offers) == 0 {
				t.Fatal("nothing is offered")
			}
			once := map[string]bool{}
			for _, o := range r.Offers {
				k := o.Cloud + o.Machine + string(o.Option)
				if once[k] {
					t.Errorf("%s stands twice", k)
				}
				once[k] = true
				if !tc.in(o) {
					t.Errorf("%+v is out of scope", o)
				}
			}
			if len(r.Assumptions) == 0 || len(r.CoverageNotes) == 0 {
				t.Error("it does not say what it rests on")
			}
		})
	}
}

func TestTheLowestRegionCounts(t *testing.T) {
	b := with(t, "aws,compute,p4d.24xlarge,nowhere,on-demand,,1.5,hour,,,a list,2026-01-02")
	o := find(t, rank(t, b, Compute, Params{}), "p4d.24xlarge", price.OnDemand)
	if o.Region != "nowhere" || o.HourlyUSD != 150*money.Cent || o.AsOf != "2026-01-02" || o.Discount != nil {
		t.Errorf("%+v; want the price of nowhere, without a discount", o)
	}
}

func TestCapacityBlocksStandApart(t *testing.T) {
	b := with(t, "aws,compute,p5.48xlarge,us-east-1,on-demand,,60,hour,,,a list,2026-10-01",
		"aws,compute,p5.48xlarge,us-east-1,capacity-block,,30,hour,,,capacity blocks page,2026-10-01",
		"aws,compute,p4d.24xlarge,nowhere,capacity-block,,10,hour,,,capacity blocks page,2026-10-01")
	r := rank(t, b, Compute, Params{Block: 48 * time.Hour, Used: 0.5})
	if slices.ContainsFunc(r.Offers, func(o Offer) bool { return o.Option == price.CapacityBlock }) {
		t.Error("a capacity block is ranked among what is paid by the hour")
	}
	if len(r.Blocks) != 2 {
		t.Fatalf("%d capacity blocks, want 2", len(r.Blocks))
	}
	for _, x := range r.Blocks {
		switch x.Machine {
		case "p5.48xlarge":
			if x.UpfrontUSD != 1440*money.USD || x.Hours != 48 || x.BreakEvenUse == nil || *x.BreakEvenUse != 0.5 ||
				math.Abs(x.PerDollar-8*989.4/60) > 1e-9 {
				t.Errorf("%+v; want 48 h for $1440, even at half use, half of the work for a dollar", x)
			}
		case "p4d.24xlarge":
			if x.BreakEvenUse != nil || x.UpfrontUSD != 480*money.USD {
				t.Errorf("%+v; want no break-even without a price on demand there", x)
			}
		}
	}
}

func TestChoices(t *testing.T) {
	for name, p := range map[string]Params{
		"an unknown accelerator": {Accelerator: "Z9000"},
		"an unknown vendor":      {Vendor: "Z"},
		"an unknown option":      {Options: []price.Term{"rent"}},
		"a block of minutes":     {Block: 90 * time.Minute},
		"a block used too much":  {Used: 1.5},
		"a block never used":     {Used: -1},
		"no number":              {Used: math.NaN()},
		"a model of nothing":     {Model: Model{Parameters: -1}},
		"more active than all":   {Model: Model{Parameters: 1e9, Active: 2e9}},
		"weights of no bytes":    {Model: Model{WeightBytes: math.NaN()}},
		"over the vendor's":      {Model: Model{ComputeShare: 2}},
		"half a sequence":        {Model: Model{Batch: 0.5}},
		"no answer":              {Model: Model{Answer: -1}},
		"no cache":               {Model: Model{CacheBytes: -1}},
	} {
		if r, err := Rank(embedded(t), Tokens, p); err == nil {
			t.Errorf("%s: %d offers", name, len(r.Offers))
		}
	}
	if _, err := Rank(embedded(t), "happiness", Params{}); err == nil ||
		!strings.Contains(err.Error(), "bf16-tflops, memory-gib, memory-bandwidth, tokens") {
		t.Errorf("an unknown kind of work: %v", err)
	}
}

// TestTokens checks that the roofline by hand, for a device of 100 TFLOP/s, 1000 GB/s and 80 GiB.
func TestTokens(t *testing.T) {
	acc := price.Accelerator{
		Name: "A", MemoryMiB: 80 * 1024, MemoryBandwidthGBps: 1000, BF16TFLOPS: 100, FP8TFLOPS: 200,
	}
	base := Model{
		Parameters: 10e9, CacheBytes: 1e5, Prompt: 1000, Answer: 100, Batch: 1, ComputeShare: 0.5, BandwidthShare: 0.8,
	}
	for _, tc := range []struct {
		name    string
		change  func(*Model)
		devices float64
		seconds float64 // of a request
	}{
		// 1000 × 2e10 / 5e13 = 0.4 s; a step reads 2e10 + 1050e5 bytes at 8e11 a second.
		{"decoding alone is bound by bandwidth", func(*Model) {}, 1, 0.4 + 100*(2e10+1050e5)/8e11},
		{"two devices in one copy or two", func(*Model) {}, 2, (0.4 + 100*(2e10+1050e5)/8e11) / 2},
		{"half a device", func(m *Model) {
			m.Parameters, m.Active = 5e9, 5e9
		}, 0.5, 2 * (0.2 + 100*(1e10+1050e5)/8e11)},
		// 2 × 1e10 × 256 / 5e13 = 0.1024 s for a step, more than the 0.0586 s of reading.
		{"a large batch is bound by compute", func(m *Model) { m.Batch = 256 }, 1, 0.4 + 100*0.1024/256},
		{"8 bits", func(m *Model) { m.WeightBytes = 1 }, 1, 0.2 + 100*(1e10+1050e5)/8e11},
		{"a mixture of experts computes less and reads all", func(m *Model) {
			m.Active = 1e9
		}, 1, 0.04 + 100*(2e10+1050e5)/8e11},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := base
			tc.change(&m)
			m, err := m.settled()
			if err != nil {
				t.Fatal(err)
			}
			got, why := m.rate(acc, tc.devices)
			if want := 1100 / tc.seconds; why != "" || math.Abs(got-want) > 1e-6*want {
				t.Errorf("%v tokens a second (%s), want %v", got, why, want)
			}
		})
	}
}

func TestPriceOfAMillionTokens(t *testing.T) {
	r := rank(t, embedded(t), Tokens, Params{Region: region})
	for _, o := range r.Offers {
		million, priced := o.MillionUSD.Get()
		want := float64(o.HourlyUSD) / (o.Work * 3600) * 1e6
		if !priced || math.Abs(float64(million)-want) > 1e-6*want {
			t.Errorf("%s: $%s for a million tokens, want %v nano-dollars", o.Machine, million, want)
		}
	}
	if o := rank(t, embedded(t), Memory, Params{}).Offers[0]; o.MillionUSD.Known() {
		t.Error("memory has a price of tokens")
	}
}

// TestCheaperRanksHigher checks that of one machine at two prices the lower one comes first, and
// ranks follow the work for a dollar.
func TestCheaperRanksHigher(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(works).Draw(t, "for")
		cents := rapid.IntRange(1, 100_000).Draw(t, "cents")
		b := with(t, "z,compute,z8,mars,on-demand,,"+money.Amount(cents*int(money.Cent)).String()+
			",hour,H100-80GB,8,a list,2026-01-01")
		r, err := Rank(b, f, Params{})
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range r.Offers {
			if o.PerDollar <= 0 || math.IsInf(o.PerDollar, 0) || math.IsNaN(o.PerDollar) {
				t.Fatalf("%s gives %v for a dollar", o.Machine, o.PerDollar)
			}
			if i > 0 && (o.PerDollar > r.Offers[i-1].PerDollar ||
				(o.PerDollar < r.Offers[i-1].PerDollar) != (o.Rank == i+1)) {
				t.Fatalf("rank %d has %v after %v", o.Rank, o.PerDollar, r.Offers[i-1].PerDollar)
			}
			if o.Accelerator == "H100-80GB" && o.Devices == 8 && o.Cloud != "z" {
				theirs := o.HourlyUSD
				z := slices.IndexFunc(r.Offers, func(x Offer) bool { return x.Cloud == "z" })
				if mine := money.Amount(cents) * money.Cent; (mine < theirs) != (z < i) && mine != theirs {
					t.Fatalf("$%s at %d, $%s at %d", mine, z, theirs, i)
				}
			}
		}
	})
}

// TestLessModelServesMore: fewer bytes and fewer parameters never serve fewer tokens.
func TestLessModelServesMore(t *testing.T) {
	b := embedded(t)
	rapid.Check(t, func(t *rapid.T) {
		acc := rapid.SampledFrom(b.Accelerators()).Draw(t, "accelerator")
		devices := float64(rapid.IntRange(1, 16).Draw(t, "devices"))
		large := Model{
			Parameters: rapid.Float64Range(1e8, 1e12).Draw(t, "parameters"),
			CacheBytes: rapid.Float64Range(1e3, 1e6).Draw(t,
				"cache"),
			Batch: float64(rapid.IntRange(1, 64).Draw(t, "batch"))}
		small := large
		small.Parameters *= rapid.Float64Range(0.01, 1).Draw(t, "part")
		small.CacheBytes *= rapid.Float64Range(0.01, 1).Draw(t, "cache part")
		if small.Parameters < 1e6 {
			return
		}
		rate := func(m Model) float64 {
			m, err := m.settled()
			if err != nil {
				t.Fatal(err)
			}
			v, _ := m.rate(acc, devices)
			return v
		}
		if l, s := rate(large), rate(small); s < l*(1-1e-9) {
			t.Fatalf("%v tokens a second, and %v with a smaller model", l, s)
		}
	})
}

func TestReport(t *testing.T) {
	for _, f := range works {
		r := rank(t, with(t, "a&b,compute,<z>,mars,on-demand,,0.01,hour,H100-80GB,8,<script>,2026-01-01"), f, Params{})
		doc, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`"schema":"curfew.plan.market/v1"`, `"work_per_dollar"`, `"as_of":"2026-01-01"`, `"capacity_blocks":[]`,
		} {
			if !strings.Contains(string(doc), want) {
				t.Errorf("the document of %s lacks %s", f, want)
			}
		}
		seen := map[string]bool{}
		for _, o := range r.Accelerators {
			k := o.Accelerator + string(o.Option)
			if seen[k] {
				t.Errorf("%s stands twice among the accelerators", k)
			}
			seen[k] = true
			for _, x := range r.Offers {
				if x.Accelerator == o.Accelerator && x.Option == o.Option && x.PerDollar > o.PerDollar {
					t.Errorf("%s gives more for a dollar than the best %s", x.Machine, o.Accelerator)
				}
			}
		}
	}
	empty := rank(t, &price.Book{}, Compute, Params{})
	if len(empty.Offers) != 0 || len(empty.Changes) == 0 {
		t.Errorf("an empty book: %+v", empty)
	}
}

func FuzzParseFor(f *testing.F) {
	for _, s := range []string{"tokens", " bf16-tflops", "", "TOKENS", "memory-gib\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseFor(s)
		if err == nil != slices.Contains(works, v) {
			t.Fatalf("ParseFor(%q) = %q, %v", s, v, err)
		}
	})
}

func BenchmarkRank(b *testing.B) {
	book := embedded(b)
	for _, f := range []For{Compute, Tokens} {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := Rank(book, f, Params{}); err != nil || len(r.Offers) < 50 {
					b.Fatalf("%d offers, %v", len(r.Offers), err)
				}
			}
		})
	}
}
