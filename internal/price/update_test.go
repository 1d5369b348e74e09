package price

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// row returns a machine's price: cloud, type, region, term, dollars, and accelerators.
func row(t testing.TB, cloud, name, where string, term Term, dollars, device string, devices int64) Entry {
	e := machine(cloud, name, where, term, usd(t, dollars))
	e.Accelerator, e.AcceleratorMilli = device, devices*perDevice
	e.Price.Source, e.Price.AsOf = "test", day(november)
	return e
}

// gcp returns a part of a GCP price; the GPU's if name is empty.
func gcp(t testing.TB, name, zone string, term Term, dollars, device string, devices int64) Entry {
	e := row(t, "gcp", name, zone[:len(zone)-2], term, dollars, device, devices)
	e.Zone, e.Part = zone, WithoutGPU
	if name == "" {
		e.Part = GPUAlone
	}
	return e
}

// defaults returns a cloud's default rate.
func defaults(t testing.TB, cloud string, item Item, dollars string) Entry {
	return Entry{Cloud: cloud, Service: Rates, Item: item, Term: OnDemand,
		Price: Price{Unit: item.Unit(), Rate: usd(t, dollars), Source: "test", AsOf: day(november)}}
}

// TestQuarantine updates the book with right and wrong rows as catalogs publish them. The prices
// are from skypilot-catalog (v8 gcp @006059e0, v8 lambda @0f407038, v8 nebius @0082b043, v6 azure
// @098741e7), OpenCost @5f653330 and gpuhunt issue 36.
func TestQuarantine(t *testing.T) {
	for _, tc := range []struct {
		name string
		rows []Entry
		// accepted and refused are names of entries, with a part of the reason after a refused one.
		accepted []string
		refused  [][2]string
	}{
		{
			name: "GCP's A100-80GB below its own spot price is a commitment's",
			rows: []Entry{
				gcp(t, "a2-ultragpu-1g", "us-central1-a", OnDemand, "1.09962", "A100-80GB", 1),
				gcp(t, "", "us-central1-a", OnDemand, "1.8462", "A100-80GB", 1),
				gcp(t, "", "us-central1-a", Spot, "1.964", "A100-80GB", 1),
			},
			refused: [][2]string{
				{"gcp 1×A100-80GB (GPU alone) in us-central1, on-demand", "below spot, 1.964"},
				{"gcp 1×A100-80GB (GPU alone) in us-central1, spot", "above on-demand, 1.8462"},
				{"gcp a2-ultragpu-1g (VM without GPU) in us-central1, on-demand", "half a price"},
			},
		},
		{
			name: "GCP's H100 differs between regions by 2.3",
			rows: []Entry{
				gcp(t, "", "us-central1-a", OnDemand, "4.20076", "H100", 1),
				gcp(t, "", "us-east4-a", OnDemand, "9.79655", "H100", 1),
			},
			refused: [][2]string{
				{
					"gcp 1×H100-80GB (GPU alone) in us-central1, on-demand",
					"more than 2 times off its price in other regions, 9.79655",
				},
				{
					"gcp 1×H100-80GB (GPU alone) in us-east4, on-demand",
					"more than 2 times off its price in other regions, 4.20076",
				},
			},
		},
		{
			name: "one region of three is odd",
			rows: []Entry{
				row(t, "x", "h", "one", OnDemand, "9.8", "H100", 1),
				row(t, "x", "h", "two", OnDemand, "10.1", "H100", 1),
				row(t, "x", "h", "three", OnDemand, "4.2", "H100", 1),
			},
			accepted: []string{"x h in one, on-demand", "x h in two, on-demand"},
			refused:  [][2]string{{"x h in three, on-demand", "other regions"}},
		},
		{
			name: "halves are added",
			rows: []Entry{
				gcp(t, "", "us-central1-a", OnDemand, "2.93391", "A100", 1),
				gcp(t, "a2-highgpu-1g", "us-central1-a", Spot, "0.36975", "A100", 1),
				gcp(t, "a2-highgpu-1g", "us-central1-a", OnDemand, "0.73948", "A100", 1),
				gcp(t, "", "us-central1-a", Spot, "1.4341", "A100", 1),
				gcp(t, "", "us-central1-a", OnDemand, "23.47126", "A100", 8),
			},
			accepted: []string{
				"gcp a2-highgpu-1g in us-central1, on-demand", "gcp a2-highgpu-1g in us-central1, spot",
			},
			refused: [][2]string{{"gcp 8×A100-40GB (GPU alone) in us-central1, on-demand", "half a price"}},
		},
		{
			name: "Azure's H100 spot equals on-demand",
			rows: []Entry{
				row(t, "azure", "Standard_NC40ads_H100_v5", "eastus", OnDemand, "6.98", "H100", 1),
				row(t, "azure", "Standard_NC40ads_H100_v5", "eastus", Spot, "6.98", "H100", 1),
			},
			accepted: []string{"azure Standard_NC40ads_H100_v5 in eastus, on-demand"},
			refused:  [][2]string{{"azure Standard_NC40ads_H100_v5 in eastus, spot", "no discount"}},
		},
		{
			name: "AWS's rounded spot price equals on-demand",
			rows: []Entry{row(t, AWS, "p4d.24xlarge", "eu-central-1", Spot, "27.433", "", 0)},
			refused: [][2]string{
				{"aws p4d.24xlarge in eu-central-1, spot", "no discount: spot equals on-demand, 27.43298"},
			},
		},
		{
			name: "Azure's promotions",
			rows: []Entry{
				row(t, "azure", "Standard_NC6", "eastus", OnDemand, "0.90", "K80", 1),
				row(t, "azure", "Standard_NC6_Promo", "eastus", OnDemand, "0.18", "K80", 1),
			},
			accepted: []string{"azure Standard_NC6 in eastus, on-demand"},
			refused:  [][2]string{{"azure Standard_NC6_Promo in eastus, on-demand", "promotion"}},
		},
		{
			name: "the placeholder of TPUs, alone",
			rows: []Entry{
				row(t, "gcp", "TPU v6e", "us-east1", OnDemand, "2.7", "TPU v6e", 1),
				row(t, "gcp", "TPU v5p", "us-east1", OnDemand, "700.0", "TPU v5p", 1),
			},
			accepted: []string{"gcp TPU v6e in us-east1, on-demand"},
			refused:  [][2]string{{"gcp TPU v5p in us-east1, on-demand", "placeholder"}},
		},
		{
			name: "nines",
			rows: []Entry{
				row(t, "x", "a", "r", OnDemand, "999.99", "", 0), row(t, "x", "b", "r", OnDemand, "9999", "", 0),
				row(t, "x", "c", "r", OnDemand, "99.90", "", 0),
				row(t, "x", "d", "r", OnDemand, "9.99", "", 0), row(t, "x", "e", "r", OnDemand, "113.9328", "", 0),
			},
			accepted: []string{"x d in r, on-demand", "x e in r, on-demand"},
			refused: [][2]string{
				{"x a in r, on-demand", "placeholder"}, {"x b in r, on-demand", "placeholder"},
				{"x c in r, on-demand", "placeholder"},
			},
		},
		{
			name: "one price for unrelated accelerators",
			rows: []Entry{
				row(t, "x", "a", "r", OnDemand, "3.33", "T4", 1), row(t, "x", "b", "r", OnDemand, "3.33", "H100", 1),
				row(t, "x", "c", "r", OnDemand, "3.33", "L40S", 1),
				row(t, "x", "d", "r", OnDemand, "3.33", "", 0), row(t, "y", "a", "r", OnDemand, "3.33", "V100", 1),
				row(t, "x", "e", "r", Spot, "3.33", "A100", 1),
			},
			accepted: []string{"x d in r, on-demand", "x e in r, spot", "y a in r, on-demand"},
			refused: [][2]string{
				{"x a in r, on-demand", "3 unrelated"}, {"x b in r, on-demand", "3 unrelated"},
				{"x c in r, on-demand", "3 unrelated"},
			},
		},
		{
			name: "capacity blocks and zeros",
			rows: []Entry{
				row(t, AWS, "p5.48xlarge", "us-east-1", CapacityBlock, "0", "H100", 8),
				row(t, AWS, "p5.48xlarge", "us-east-2", CapacityBlock, "31.464", "H100", 8),
				row(t, AWS, "g6.xlarge", "us-east-1", OnDemand, "0", "", 0),
				row(t, AWS, "g6.xlarge", "us-east-2", OnDemand, "-0.8", "", 0),
				row(t, AWS, "g3.4xlarge", "us-east-2", Reserved, "0.50567", "", 0),
			},
			refused: [][2]string{
				{"aws g3.4xlarge in us-east-2, reserved", "term and upfront part"},
				{
					"aws g6.xlarge in us-east-1, on-demand", "zero",
				}, {"aws g6.xlarge in us-east-2, on-demand", "below zero"},
				{
					"aws p5.48xlarge in us-east-1, capacity-block", "zero",
				}, {"aws p5.48xlarge in us-east-2, capacity-block", "capacity block"},
			},
		},
		{
			name: "OpenCost's Azure GPU",
			rows: []Entry{
				defaults(t, "aws", ItemDefaultGPU, "0.95"), defaults(t, "gcp", ItemDefaultGPU, "0.95"),
				defaults(t, "oracle", ItemDefaultGPU, "2.00"), defaults(t, "azure", ItemDefaultGPU, "0.0428925"),
				defaults(t, "azure", ItemDefaultVCPU, "0.039"), defaults(t, "aws", ItemDefaultVCPU, "0.031611"),
				defaults(t, "oracle", ItemDefaultVCPU, "0.015"),
				defaults(t, "oracle", ItemDefaultEgressInternet, "0.0085"),
				defaults(t, "aws", ItemDefaultEgressInternet, "0.143"),
			},
			accepted: []string{
				"aws default:egress:internet, on-demand", "aws default:gpu, on-demand", "aws default:vcpu, on-demand",
				"azure default:vcpu, on-demand",
				"gcp default:gpu, on-demand", "oracle default:egress:internet, on-demand",
				"oracle default:gpu, on-demand",
				"oracle default:vcpu, on-demand",
			},
			refused: [][2]string{
				{"azure default:gpu, on-demand", "more than 5 times off other clouds' default, 0.95"},
			},
		},
		{
			name:    "OpenCost's Azure GPU without the others",
			rows:    []Entry{defaults(t, "azure", ItemDefaultGPU, "0.0428925")},
			refused: [][2]string{{"azure default:gpu, on-demand", "below the cheapest device known"}},
		},
		{
			name: "off the price held",
			rows: []Entry{
				row(t, AWS, "m5.xlarge", "us-east-1", OnDemand, "0.0192", "", 0),
				row(t, AWS, "m5.xlarge", "us-east-2", OnDemand, "0.16", "", 0),
				row(t, AWS, "g3.4xlarge", "us-east-1", OnDemand, "0.30", "", 0),
				row(t, AWS, "g3.8xlarge", "us-east-1", OnDemand,
					"7", "", 0),
			},
			accepted: []string{"aws m5.xlarge in us-east-2, on-demand"},
			refused: [][2]string{
				{"aws g3.4xlarge in us-east-1, on-demand", "more than 3 times off the price held, 1.14 of 2026-07-06"},
				{"aws g3.8xlarge in us-east-1, on-demand", "more than 3 times off the price held, 2.28 of 2026-07-06"},
				{"aws m5.xlarge in us-east-1, on-demand", "other regions"},
			},
		},
		{
			name:     "AWS's cut of P5 is none of these",
			rows:     []Entry{row(t, AWS, "p5.48xlarge", "us-east-1", OnDemand, "98.32", "", 0)},
			accepted: []string{"aws p5.48xlarge in us-east-1, on-demand"},
		},
		{
			name:    "spot above the on-demand price held",
			rows:    []Entry{row(t, AWS, "g5.xlarge", "us-east-1", Spot, "1.2", "", 0)},
			refused: [][2]string{{"aws g5.xlarge in us-east-1, spot", "above on-demand, 1.006"}},
		},
		{
			name:    "on-demand below the spot price held",
			rows:    []Entry{row(t, AWS, "g5.xlarge", "us-east-1", OnDemand, "0.4", "", 0)},
			refused: [][2]string{{"aws g5.xlarge in us-east-1, on-demand", "below spot, 0.436"}},
		},
		{
			name: "off others with the same accelerator",
			rows: []Entry{
				row(t, "x", "a", "r", OnDemand, "0.30", "H100", 1),
				row(t, "x", "b", "r", OnDemand, "0.31", "H100-80GB", 1),
				row(t, "lambda", "gpu_8x_h100_sxm5", "us-east-1", OnDemand, "31.92", "H100", 8),
				row(t, "nebius", "gpu-h100-sxm", "eu-north1", OnDemand, "2.95", "H100", 1),
				row(t, "nebius", "gpu-h100-sxm", "eu-north1", Spot, "1.25", "H100", 1),
			},
			accepted: []string{
				"lambda gpu_8x_h100_sxm5 in us-east-1, on-demand", "nebius gpu-h100-sxm in eu-north1, on-demand",
				"nebius gpu-h100-sxm in eu-north1, spot",
			},
			refused: [][2]string{
				{"x a in r, on-demand", "one H100-80GB is more than 6 times off"},
				{"x b in r, on-demand", "one H100-80GB is more than 6 times off"},
			},
		},
		{
			name: "off similar accelerators by TFLOP/s and GiB",
			rows: []Entry{
				row(t, "x", "a", "r", OnDemand, "0.15", "GH200", 1), row(t, "x", "b", "r", OnDemand, "95", "A6000", 1),
				row(t, "lambda", "gpu_1x_gh200", "us-east-1", OnDemand, "2.29", "GH200", 1),
			},
			accepted: []string{"lambda gpu_1x_gh200 in us-east-1, on-demand"},
			refused:  [][2]string{{"x a in r, on-demand", "by TFLOP/s"}, {"x b in r, on-demand", "by TFLOP/s"}},
		},
		{
			name: "cheap clouds and old machines",
			rows: []Entry{
				row(t, "lambda", "gpu_8x_v100", "us-east-1", OnDemand, "6.32", "V100", 8),
				row(t, "lambda", "gpu_1x_a6000", "us-east-1", OnDemand, "1.09", "A6000", 1),
				row(t, "lambda", "gpu_8x_b200_sxm6", "us-east-1", OnDemand, "53.52", "B200", 8),
				row(t, "azure", "Standard_NC64as_T4_v3", "eastus", OnDemand, "4.352", "T4", 4),
				row(t, "azure", "Standard_NC4as_T4_v3", "eastus", Spot, "0.062699", "T4", 1),
				row(t, "nebius", "l40s", "eu-north1", OnDemand, "1.5484", "L40S", 1),
			},
			accepted: []string{
				"azure Standard_NC4as_T4_v3 in eastus, spot", "azure Standard_NC64as_T4_v3 in eastus, on-demand",
				"lambda gpu_1x_a6000 in us-east-1, on-demand",
				"lambda gpu_8x_b200_sxm6 in us-east-1, on-demand", "lambda gpu_8x_v100 in us-east-1, on-demand",
				"nebius l40s in eu-north1, on-demand",
			},
		},
		{
			name: "two prices for one thing",
			rows: []Entry{
				row(t, "x", "a", "r", OnDemand, "1.0", "", 0), row(t, "x", "a", "r", OnDemand, "1.1", "", 0),
				row(t, "x", "b", "r", OnDemand, "2.0", "", 0), row(t, "x", "b", "r", OnDemand, "2.0", "", 0),
			},
			accepted: []string{"x b in r, on-demand"},
			refused: [][2]string{
				{"x a in r, on-demand", "two different prices or accelerators"},
				{"x a in r, on-demand", "two different prices or accelerators"},
			},
		},
		{
			name: "managed machines",
			rows: []Entry{
				{
					Cloud: AWS, Service: "sagemaker", Type: "m5.xlarge", Region: "us-east-1", Term: OnDemand,
					Price: Price{Unit: "hour", Rate: usd(t, "0.672"), Source: "test", AsOf: november},
				},
				{
					Cloud: AWS, Service: "sagemaker", Type: "g6.xlarge", Region: "us-east-1", Term: OnDemand,
					Price: Price{Unit: "hour", Rate: usd(t, "1.127"), Source: "test", AsOf: november},
				},
				{
					Cloud: AWS, Service: "sagemaker", Type: "c6i.xlarge", Region: "us-east-1", Term: OnDemand,
					Price: Price{Unit: "hour", Rate: usd(t, "0.9"), Source: "test", AsOf: november},
				},
			},
			accepted: []string{"aws sagemaker g6.xlarge in us-east-1, on-demand"},
			refused: [][2]string{
				{"aws sagemaker c6i.xlarge in us-east-1, on-demand", "off the machine without the service, 0.17"},
				{"aws sagemaker m5.xlarge in us-east-1, on-demand", "other regions"},
			},
		},
		{
			name: "halves without a whole",
			rows: []Entry{
				{
					Cloud: AWS, Service: Compute, Type: "m5.xlarge", Region: "",
					Price: Price{Unit: "hour", Rate: 1, Source: "s", AsOf: november},
				},
			},
			refused: [][2]string{{"aws m5.xlarge, on-demand", "no region"}},
		},
	} {
		b := book(t)
		for _, order := range []string{"as given", "reversed"} {
			rows := slices.Clone(tc.rows)
			if order == "reversed" {
				slices.Reverse(rows)
			}
			_, accepted, refused := b.Update(slices.Values(rows))
			var got []string
			for _, c := range accepted {
				got = append(got, c.New.String())
			}
			if !slices.Equal(got, tc.accepted) {
				t.Errorf("%s, %s: accepted\n%s\nwant\n%s", tc.name, order, strings.Join(got, "\n"),
					strings.Join(tc.accepted, "\n"))
			}
			slices.SortFunc(refused, func(x, y Refusal) int { return cmp.Compare(x.Entry.String(), y.Entry.String()) })
			for i, r := range refused {
				if i >= len(tc.refused) || r.Entry.String() != tc.refused[i][0] ||
					!strings.Contains(r.Reason, tc.refused[i][1]) {
					t.Errorf("%s, %s: refused %s: %s; want %v", tc.name, order, r.Entry, r.Reason, tc.refused)
				}
			}
			if len(refused) < len(tc.refused) {
				t.Errorf("%s, %s: %d rows were refused, want %d", tc.name, order, len(refused), len(tc.refused))
			}
		}
	}
}

func TestUpdateKeepsOldPrices(t *testing.T) {
	b := book(t)
	next, accepted, refused := b.Update(slices.Values([]Entry{
		row(t, AWS, "g6.2xlarge", "us-east-1", OnDemand, "0", "", 0),
		row(t, AWS, "g6.xlarge", "us-east-1", OnDemand, "0.79", "", 0),
		row(t, AWS, "g5.xlarge", "us-east-1", OnDemand, "1.006", "", 0),
		row(t, AWS, "p5e.48xlarge", "us-east-2", OnDemand, "59", "", 0),
	}))
	if len(accepted) != 3 || len(refused) != 1 {
		t.Fatalf("%d were accepted and %d refused", len(accepted), len(refused))
	}
	for _, tc := range []struct {
		in            *Book
		machine, want string
	}{
		{b, "g6.2xlarge", "0.9776"}, {next, "g6.2xlarge", "0.9776"}, {b, "g6.xlarge", "0.8048"},
		{next, "g6.xlarge", "0.79"},
	} {
		if p, err := tc.in.OnDemand(tc.machine, "us-east-1"); err != nil || p.Rate.String() != tc.want {
			t.Errorf("%s costs %s, %v; want %s", tc.machine, p.Rate, err, tc.want)
		}
	}
	for _, c := range accepted {
		switch c.New.Type {
		case "g5.xlarge":
			if !c.Same() {
				t.Error("an equal price is a change")
			}
		case "g6.xlarge":
			if c.Same() || c.Old.Price.Rate.String() != "0.8048" || !next.Own(c.New) || b.Own(c.New) {
				t.Errorf("got %+v", c)
			}
		case "p5e.48xlarge":
			if c.Same() || c.Old.Cloud != "" {
				t.Errorf("a new price has an old one: %+v", c.Old)
			}
		}
	}
	roundTrip(t, next)
}

func TestZonesMergeToMedian(t *testing.T) {
	zone := func(name, region, zone, dollars string) Entry {
		e, err := SpotEntry(name, region, zone, dollars, november)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	next, accepted, refused := book(t).Update(slices.Values([]Entry{
		zone("g5.xlarge", "us-east-1", "us-east-1a", "0.40"), zone("g5.xlarge", "us-east-1", "us-east-1b", "0.60"),
		zone("g5.xlarge", "us-east-1", "us-east-1c", "0.41"),
		zone("g6.xlarge", "us-east-1", "us-east-1a", "0.30"), zone("g6.xlarge", "us-east-1", "us-east-1b", "0.40"),
		zone("p5e.48xlarge", "us-east-2", "us-east-2a", "62.9957"),
		zone("p5e.48xlarge", "us-east-2", "us-east-2c", "18.7359"),
		zone("trn1.2xlarge", "us-east-2", "us-east-2b", "0.134375"),
		zone("p5e.48xlarge", "us-west-2", "us-west-2a", "19.5387"),
	}))
	if len(refused) != 2 || !strings.Contains(refused[0].Reason, "two zones are more than 3 times apart") {
		t.Errorf("refused %v, want the two far zones of p5e", refused)
	}
	for machine, want := range map[string]string{"g5.xlarge": "0.41", "g6.xlarge": "0.35"} {
		if p, err := next.Spot(machine, "us-east-1"); err != nil || p.Rate.String() != want {
			t.Errorf("spot of %s is %s, %v; want the median %s", machine, p.Rate, err, want)
		}
	}
	for _, c := range accepted {
		if c.New.Zone != "" {
			t.Errorf("%s still has its zone", c.New)
		}
		switch c.New.Type {
		case "trn1.2xlarge":
			if !strings.Contains(c.Note, "a tenth of on-demand") {
				t.Errorf("%s: note %q, want the floor", c.New, c.Note)
			}
		case "p5e.48xlarge":
			if !strings.Contains(c.Note, "no on-demand price") {
				t.Errorf("%s: note %q", c.New, c.Note)
			}
		}
	}
}

// TestUpdateInAnyOrder checks that the order of rows does not matter and that every row is
// accepted, merged or refused.
func TestUpdateInAnyOrder(t *testing.T) {
	b := book(t)
	rapid.Check(t, func(t *rapid.T) {
		var rows []Entry
		for range rapid.IntRange(0, 12).Draw(t, "rows") {
			e := machine(rapid.SampledFrom([]string{AWS, "x"}).Draw(t, "cloud"),
				rapid.SampledFrom([]string{"g6.xlarge", "p5.48xlarge", "a", "b"}).Draw(t, "type"),
				rapid.SampledFrom([]string{"us-east-1", "us-west-2", "r"}).Draw(t, "region"),
				rapid.SampledFrom([]Term{OnDemand, Spot}).Draw(t, "term"),
				money.Rate(rapid.Int64Range(0, 60).Draw(t, "dollars"))*money.USDPerUnit/4)
			e.Price.Source, e.Price.AsOf = "test", day(november)
			if rapid.Bool().Draw(t, "zoned") {
				e.Zone = e.Region + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "zone")
			}
			e.Accelerator = rapid.SampledFrom([]string{"", "T4", "H100", "unheard-of"}).Draw(t, "accelerator")
			e.AcceleratorMilli = rapid.Int64Range(0, 8).Draw(t, "devices") * perDevice
			rows = append(rows, e)
		}
		one, accepted, refused := b.Update(slices.Values(rows))
		if len(accepted)+len(refused) > len(rows) {
			t.Fatalf("%d rows made %d prices and %d refusals", len(rows), len(accepted), len(refused))
		}
		shuffled := rapid.Permutation(rows).Draw(t, "shuffled")
		other, again, _ := b.Update(slices.Values(shuffled))
		if len(again) != len(accepted) {
			t.Fatalf("in another order %d were accepted, not %d", len(again), len(accepted))
		}
		for _, c := range accepted {
			x, _ := one.find(c.New.key())
			y, ok := other.find(c.New.key())
			if !ok || x.Rate != y.Rate || x.Rate <= 0 {
				t.Fatalf("%s costs %s, in another order %s", c.New, x.Rate, y.Rate)
			}
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	held, err := Embedded()
	if err != nil {
		b.Fatal(err)
	}
	entries := held.Entries()
	for b.Loop() {
		held.Update(slices.Values(entries))
	}
}
