package price

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

var november = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)

// readAll reads a catalog to its end.
func readAll(in string, o Origin) ([]Entry, error) {
	var all []Entry
	for e, err := range ReadCatalog(strings.NewReader(in), o) {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

func TestReadCatalog(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		origin   Origin
		want     []string
	}{
		{
			"machines by region",
			"instance_type,region,on_demand_usd_per_hour,spot_usd_per_hour_median_over_zones,zones,vcpus,memory_gib,accelerator,accelerator_count,accelerator_memory_mib,source_commit\n" +
				"g4dn.xlarge,us-east-1,0.526,0.2039,5,4,16,T4,1,16384,00148f2af3672e22\n" +
				"p5e.48xlarge,us-west-2,,19.5387,1,192,2048,H200,8,144384,00148f2af3672e22\n" +
				"trn1.32xlarge,ap-southeast-2,,,2,128,512,Trainium,16,32768,00148f2af3672e22\n" +
				"c5.xlarge,us-east-1,0.17,,,4,8,,,,00148f2af3672e22\n",
			Origin{Source: "skypilot", AsOf: november},
			[]string{
				"2 aws g4dn.xlarge in us-east-1, on-demand 0.526 hour 1000 T4 skypilot @00148f2a 2026-11-21",
				"2 aws g4dn.xlarge in us-east-1, spot 0.2039 hour 1000 T4 skypilot @00148f2a 2026-11-21",
				"3 aws p5e.48xlarge in us-west-2, spot 19.5387 hour 8000 H200 skypilot @00148f2a 2026-11-21",
				"5 aws c5.xlarge in us-east-1, on-demand 0.17 hour 0  skypilot @00148f2a 2026-11-21",
			},
		},
		{
			"dated machines after a byte order mark",
			"\ufeffprovider,region,instance_type,term,usd_per_hour,as_of\naws,us-east-1,g3s.xlarge,on-demand,0.750000,2026-07-06T14:20:29Z\n",
			Origin{Source: "karpenter"},
			[]string{"2 aws g3s.xlarge in us-east-1, on-demand 0.75 hour 0  karpenter 2026-07-06"},
		},
		{
			"chips",
			"tpu,region,on_demand_usd_per_chip_hour,spot_usd_per_chip_hour\nTPU v5e,us-central1,1.2,0.63\n",
			Origin{Source: "skypilot", AsOf: november},
			[]string{
				"2 gcp TPU v5e in us-central1, on-demand 1.20 hour 1000 TPU v5e skypilot 2026-11-21",
				"2 gcp TPU v5e in us-central1, spot 0.63 hour 1000 TPU v5e skypilot 2026-11-21",
			},
		},
		{
			"reserved",
			"instance_type,region,usd_per_hour\ng3.16xlarge,eu-central-1,2.932953\n",
			Origin{Source: "opencost", AsOf: november},
			[]string{"2 aws g3.16xlarge in eu-central-1, reserved 2.932953 hour 0  opencost 2026-11-21"},
		},
		{
			"several clouds, whole and halves",
			"provider,region_or_zone,instance_type,gpu,gpu_count,term,usd_per_hour,part,source_file,source_commit\n" +
				"lambda,us-east-1,gpu_8x_v100,V100,8,on-demand,6.32,whole VM,lambda.csv,0f4070387edc\n" +
				"gcp,us-central1-a,a2-highgpu-1g,A100,1,spot,0.36975,VM without GPU,gcp.csv,006059e0f18a\n" +
				"gcp,us-central1-a,,A100,1,spot,1.4341,GPU alone,gcp.csv,006059e0f18a\n",
			Origin{AsOf: november},
			[]string{
				"2 lambda gpu_8x_v100 in us-east-1, on-demand 6.32 hour 8000 V100 lambda.csv @0f407038 2026-11-21",
				"3 gcp a2-highgpu-1g (VM without GPU) in us-central1-a, spot 0.36975 hour 1000 A100 gcp.csv " +
					"@006059e0 2026-11-21",
				"4 gcp 1×A100 (GPU alone) in us-central1-a, spot 1.4341 hour 1000 A100 gcp.csv @006059e0 2026-11-21",
			},
		},
		{
			"the book's own form",
			ownHeader + "aws,compute,g6.xlarge,us-east-1,on-demand,,0.8,hour,,,x,2026-01-02\n",
			Origin{},
			[]string{"2 aws g6.xlarge in us-east-1, on-demand 0.80 hour 0  x 2026-01-02"},
		},
		{
			"a cloud's default rates",
			` {"description": "x", "CPU": "0.039", "RAM": 0.001917, "GPU": "0.0428925", "spotGPU": "", "zoneNetworkEgress": "0.01"}`,
			Origin{Source: "opencost", AsOf: november, Cloud: "azure"},
			[]string{
				"0 azure default:vcpu, on-demand 0.039 hour 0  opencost 2026-11-21",
				"0 azure default:memory, on-demand 0.001917 GiB-hour 0  opencost 2026-11-21",
				"0 azure default:gpu, on-demand 0.0428925 hour 0  opencost 2026-11-21",
				"0 azure default:egress:zone, on-demand 0.01 GiB 0  opencost 2026-11-21",
			},
		},
		{
			"prices printed from binary floats",
			"provider,region,instance_type,term,usd_per_hour\nx,y,z,spot,0.30000000000000004\n",
			Origin{Source: "s", AsOf: november},
			[]string{"2 x z in y, spot 0.30 hour 0  s 2026-11-21"},
		},
	} {
		entries, err := readAll(tc.in, tc.origin)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var got []string
		for _, e := range entries {
			got = append(got, fmt.Sprintf("%d %s %s %s %d %s %s %s", e.Line, e, e.Price.Rate,
				e.Price.Unit, e.AcceleratorMilli,
				e.Accelerator, e.Price.Source, e.Price.AsOf.Format(time.DateOnly)))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}

func TestReadCatalogErrors(t *testing.T) {
	const dated = "provider,region,instance_type,term,usd_per_hour,as_of\n"
	const halves = "provider,region_or_zone,instance_type,gpu,gpu_count,term,usd_per_hour,part\n"
	for _, tc := range []struct{ name, in, says string }{
		{"empty", "", "the file is empty"},
		{"no catalog", "a,b,c\n1,2,3\n", `columns "a,b,c" are of no catalog known`},
		{"not a price", dated + "aws,r,t,spot,1,2026-01-01\naws,r,t,spot,1e3,2026-01-01\n", "line 3: usd_per_hour"},
		{"no price", dated + "aws,r,t,spot,,2026-01-01\n", "line 2: usd_per_hour is empty"},
		{"no type", dated + "aws,r,,spot,1,2026-01-01\n", "line 2: instance_type is empty"},
		{"an unknown term", dated + "aws,r,t,weekly,1,2026-01-01\n", `line 2: term "weekly"`},
		{"not a date", dated + "aws,r,t,spot,1,yesterday\n", "line 2: as_of"},
		{"a field too many", dated + "aws,r,t,spot,1,2026-01-01,x\n", "line 2"},
		{"an open quote", dated + "\"aws,r,t,spot,1,2026-01-01\n", "line 2"},
		{"an unknown part", halves + "gcp,r,t,A100,1,spot,1,door\n", `line 2: part "door"`},
		{"a machine without a type", halves + "gcp,r,,A100,1,spot,1,whole VM\n", "line 2: instance_type is empty"},
		{"a count that is none", halves + "gcp,r,t,A100,many,spot,1,whole VM\n", "line 2: gpu_count"},
		{"JSON that breaks off", "{\n\"CPU\": \n", "read catalog"},
		{"JSON with a comma too many", "{\n\"CPU\": \"1\",\n}", "line 3"},
		{"JSON of something else", `{"a": 1}`, "none of the default rates"},
		{"JSON with a price that is none", `{"CPU": "cheap"}`, `CPU "cheap"`},
		{"two JSON objects", `{"CPU": "1"} {"CPU": "2"}`, "more than one JSON object"},
	} {
		_, err := readAll(tc.in, Origin{Source: "s", AsOf: november, Cloud: "c"})
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want an error with %q", tc.name, err, tc.says)
		}
	}
	if _, err := readAll(`{"CPU": "1"}`, Origin{}); err == nil ||
		!strings.Contains(err.Error(), "the cloud must be given") {
		t.Errorf("defaults of no cloud: got %v", err)
	}
	broken := errors.New("the disk is gone")
	for _, err := range ReadCatalog(io.MultiReader(strings.NewReader(dated), iotest.ErrReader(broken)), Origin{}) {
		if !errors.Is(err, broken) {
			t.Errorf("a reader that fails: got %v", err)
		}
	}
}

func TestReadCatalogStops(t *testing.T) {
	in := "instance_type,region,usd_per_hour\n" + strings.Repeat("a,b,1\n", 10)
	n := 0
	for range ReadCatalog(strings.NewReader(in), Origin{}) {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("%d rows were read after the third", n)
	}
}

// FuzzReadCatalog checks that every accepted price is positive and survives a round trip through
// Save.
func FuzzReadCatalog(f *testing.F) {
	f.Add(
		"instance_type,region,on_demand_usd_per_hour,spot_usd_per_hour,accelerator,accelerator_count\ng4dn.xlarge,us-east-1,0.526,0.2039,T4,1\n")
	f.Add(
		"provider,region_or_zone,instance_type,gpu,gpu_count,term,usd_per_hour,part\ngcp,us-central1-a,,A100,1,spot,1.4341,GPU alone\ngcp,us-central1-a,x,A100,1,spot,1.4341,VM without GPU\n")
	f.Add("tpu,region,on_demand_usd_per_chip_hour,spot_usd_per_chip_hour\nTPU v5e,us-central1,700.0,\n")
	f.Add(`{"CPU": "0.031611", "GPU": "0.95"}`)
	// Without prices, so that an execution's time depends only on the input.
	full := book(f)
	b := &Book{machines: full.machines, accelerators: full.accelerators}
	f.Fuzz(func(t *testing.T, in string) {
		entries, _ := readAll(in, Origin{Source: "fuzz", AsOf: november, Cloud: "cloud"})
		next, accepted, refused := b.Update(slices.Values(entries))
		for _, r := range refused {
			if r.Reason == "" {
				t.Fatalf("%s is refused for no reason", r.Entry)
			}
		}
		for _, c := range accepted {
			if reason := Check(c.New); reason != "" {
				t.Fatalf("%s is accepted although: %s", c.New, reason)
			}
		}
		roundTrip(t, next)
	})
}
