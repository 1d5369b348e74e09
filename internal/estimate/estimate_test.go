package estimate

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// ownPrices are the prices of the tests, so that the embedded book may change. There is
// no g5.xlarge on spot in eu-west-1, and nothing in eu-south-2.
const ownPrices = `cloud,service,name,region,term,above,usd,unit,accelerator,accelerators,source,as_of
aws,compute,p4d.24xlarge,us-east-1,on-demand,,22,hour,,,test,2026-11-01
aws,compute,p4d.24xlarge,us-east-1,spot,,8,hour,,,test,2026-11-01
aws,compute,p4d.24xlarge,us-west-2,on-demand,,21,hour,,,test,2026-11-01
aws,compute,p4d.24xlarge,us-west-2,spot,,9,hour,,,test,2026-11-01
aws,compute,g5.xlarge,us-east-1,on-demand,,1,hour,,,test,2026-11-01
aws,compute,g5.xlarge,us-east-1,spot,,0.4,hour,,,test,2026-11-01
aws,rate,ebs:gp3,us-east-1,on-demand,,0.073,GiB-month,,,test,2026-11-01
aws,rate,ebs:gp3,us-west-2,on-demand,,0.073,GiB-month,,,test,2026-11-01
aws,rate,egress:region,us-east-1,on-demand,,0.02,GiB,,,test,2026-11-01
aws,rate,egress:region,us-west-2,on-demand,,0.02,GiB,,,test,2026-11-01
aws,rate,s3:STANDARD,us-east-1,on-demand,,0.02,GiB-month,,,test,2026-11-01
`

func testBook(t interface {
	Helper()
	Fatal(...any)
}) *price.Book {
	t.Helper()
	b, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Load(strings.NewReader(ownPrices)); err != nil {
		t.Fatal(err)
	}
	return b
}

// parse reads a job that needs no more than is given.
func parse(t interface {
	Helper()
	Fatal(...any)
}, keys string) *spec.Spec {
	t.Helper()
	src := "apiVersion: curfew.job/v1\nname: job\nrun: x\n" + keys
	if strings.Contains(keys, "lease:") {
		src = "apiVersion: curfew.session/v1\nname: job\n" + keys
	}
	s, err := spec.Parse("job.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// p4d is a job on one p4d.24xlarge in us-east-1.
const p4d = "resources: {instance_type: p4d.24xlarge}\nregions: us-east-1\n"

func golden(t *testing.T, name string, e *Estimate) {
	t.Helper()
	got, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-update writes it):\n%s", name, diff)
	}
}

func TestGoldenJob(t *testing.T) {
	src, err := os.ReadFile("testdata/resnet50.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("resnet50.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(s, testBook(t), Params{
		Now: now, DataRegions: map[string]string{"datasets": "us-west-2", "bucket": "us-east-1"},
		DataBytes: map[string]int64{"s3://datasets/imagenet": 150 * gib}})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/resnet50.json", e)
}

// TestChargedAmounts compares charges with sums by hand.
func TestChargedAmounts(t *testing.T) {
	// One p4d.24xlarge with 100 GiB: 100 × 0.073/730 = 0.01 an hour of disk.
	for _, tc := range []struct {
		name, keys, p50, p95, hourly string
		params                       Params
	}{
		{"capped", p4d + "max_runtime: 10h\n", "220.10", "220.10", "22.01", Params{}},
		{"deadline", p4d + "max_runtime: 10h\ndeadline: 5h\n", "110.05", "110.05", "22.01", Params{}},
		{"a session", p4d + "lease: 2h\n", "44.02", "44.02", "22.01", Params{}},
		{
			"nodes", strings.Replace(p4d, "{", "{nodes: 3, ", 1) + "max_runtime: 10h\n", "660.30", "660.30", "66.03",
			Params{},
		},
		{"disk", p4d + "max_runtime: 10h\ndisk: 1000GiB\n", "221.00", "221.00", "22.10", Params{}},
		{"declared", p4d + "duration: 4h\n", "88.04", "88.04", "22.01", Params{}},
		{"declared and capped", p4d + "duration: 4h\nmax_runtime: 10h\n", "88.04", "220.10", "22.01", Params{}},
		{"declared beyond its cap", p4d + "duration: 20h\nmax_runtime: 10h\n", "220.10", "220.10", "22.01", Params{}},
		{"max_cost alone", p4d + "max_cost: 22.01\n", "22.01", "22.01", "22.01", Params{}},
		{"spot, capped", p4d + "capacity: spot\nmax_runtime: 10h\n", "80.10", "80.10", "8.01", Params{}},
		{
			"auto: at the worst on demand", p4d + "capacity: auto\nmax_runtime: 10h\n", "80.10", "220.10", "22.01",
			Params{},
		},
		{"learned", p4d, "66.03", "110.05", "22.01", Params{History: runs(20, 3*time.Hour, 5*time.Hour)}},
		{
			"few runs do not carry a p95", p4d + "max_runtime: 10h\n", "66.03", "220.10", "22.01",
			Params{History: runs(4, 3*time.Hour, 5*time.Hour)},
		},
		{
			"data from afar", p4d + "max_runtime: 10h\ndata: [{uri: s3://far/x, size: 50GiB}]\n",
			"221.10", "221.10", "22.01",
			Params{DataRegions: map[string]string{"far": "us-west-2"}},
		},
		{
			"data nearby", p4d + "max_runtime: 10h\ndata: [{uri: s3://near/x, size: 50GiB}]\n",
			"220.10", "220.10", "22.01",
			Params{DataRegions: map[string]string{"near": "us-east-1"}},
		},
		{
			"checkpoints", p4d + "max_runtime: 10h\ncheckpoint: {dir: /c, to: s3://near/x, every: 1h, size: 5GiB}\n",
			"220.40", "220.40", "22.01", Params{DataRegions: map[string]string{"near": "us-east-1"}},
		},
		{
			"checkpoints to afar",
			p4d + "max_runtime: 10h\ncheckpoint: {dir: /c, to: s3://far/x, every: 1h, keep: 1}\n",
			"221.215", "221.215", "22.01",
			Params{DataRegions: map[string]string{"far": "us-west-2"}, CheckpointBytes: 5 * gib},
		},
	} {
		tc.params.Now = now
		e, err := New(parse(t, tc.keys), testBook(t), tc.params)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got := []string{
			e.P50.String(), e.P95.String(), e.Hourly.String(),
		}; !slices.Equal(got, []string{tc.p50, tc.p95, tc.hourly}) {
			t.Errorf("%s: p50, p95 and hourly are %v, want %s %s %s\n%+v", tc.name, got, tc.p50,
				tc.p95, tc.hourly, e.Lines)
		}
	}
}

// runs are completed runs, one in ten of them long.
func runs(n int, usual, long time.Duration) (out []Run) {
	for i := range n {
		r := Run{
			Name: "job", Finished: now.Add(-time.Duration(i) * time.Hour), Completed: true, Work: usual,
			Machine: "p4d.24xlarge", Machines: 1,
		}
		if i%10 == 1 {
			r.Work = long
		}
		out = append(out, r)
	}
	return out
}

// TestUnpriced checks that a price that is unknown never gives a number.
func TestUnpriced(t *testing.T) {
	for _, tc := range []struct{ name, keys, want string }{
		{
			"a region without the type",
			"resources: {instance_type: p5.48xlarge}\ncapacity: spot\nregions: eu-south-2\nmax_runtime: 1h\n",
			"price of p5.48xlarge on spot in eu-south-2 is not known: run `curfew price update`",
		},
		{
			"a type of its own", "resources: {instance_type: x9.large}\nregions: us-east-1\nmax_runtime: 1h\n",
			"price of x9.large on demand in us-east-1 is not known",
		},
		{
			"no type of a GPU", "resources: {gpus: A10G}\nregions: eu-south-2\nmax_runtime: 1h\n",
			"on demand in eu-south-2 is not known",
		},
		{
			"auto needs the fallback",
			"resources: {instance_type: x9.large}\ncapacity: auto\nregions: us-east-1\nmax_runtime: 1h\n",
			"price of x9.large on demand in us-east-1",
		},
	} {
		e, err := New(parse(t, tc.keys), testBook(t), Params{Now: now})
		if e != nil || !errors.Is(err, price.ErrUnpriced) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %+v, %v; want %q", tc.name, e, err, tc.want)
		}
	}
	// The disk has no price: the machine alone is not the cost.
	p := Params{Now: now, Defaults: Defaults{Disk: "ebs:new"}}
	if e, err := New(parse(t, p4d+"max_runtime: 1h\n"), testBook(t), p); e != nil ||
		!errors.Is(err, price.ErrUnpriced) {
		t.Errorf("a disk without a price: %+v, %v", e, err)
	}
}

// TestUnknownRegion checks that a region without a price is named where another is used.
func TestUnknownRegion(t *testing.T) {
	e, err := New(parse(t, "resources: {instance_type: p4d.24xlarge}\ncapacity: spot\nregions: [eu-south-2, "+
		"us-west-2]\nmax_runtime: 1h\n"), testBook(t), Params{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if e.Region != "us-west-2" || len(e.Unknown) != 1 ||
		!strings.Contains(e.Unknown[0], "p4d.24xlarge on spot in eu-south-2 is not known") {
		t.Errorf("%s, unknown %q", e.Region, e.Unknown)
	}
}

func TestRejectsInvalidSpecs(t *testing.T) {
	for _, tc := range []struct{ name, keys, want string }{
		{"nothing bounds it", p4d, "nothing says how long it runs: add max_runtime"},
		{"no region", "resources: {gpus: A10G}\nmax_runtime: 1h\n", "no region is allowed: add regions"},
		{
			"an unknown GPU", "resources: {gpus: Z900}\nregions: us-east-1\nmax_runtime: 1h\n",
			`GPU "Z900" is not in the price book`,
		},
		{
			"too many GPUs", "resources: {gpus: \"A100:16\"}\nregions: us-east-1\nmax_runtime: 1h\n",
			`no machine has 16 A100-40GB, the most is 8: write gpus: "A100-40GB:8" and more nodes`,
		},
		{
			"a GPU of another cloud", "resources: {gpus: TPU-v3}\nregions: us-east-1\nmax_runtime: 1h\n",
			"no machine type in the price book has a TPU-v3",
		},
		{"max_cost", p4d + "max_cost: 0.001\n", "max_cost of $0.001 does not pay for a second"},
	} {
		if e, err := New(parse(t, tc.keys), testBook(t), Params{Now: now}); e != nil || err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestChoosesMachineAndRegion checks which machine and region are taken.
func TestChoosesMachineAndRegion(t *testing.T) {
	gpus := func(what string) string {
		return "resources: {gpus: " + what + "}\nregions: [us-east-1, us-west-2]\nmax_runtime: 10h\n"
	}
	for _, tc := range []struct {
		name, keys, machine, region string
		count                       int
		params                      Params
	}{
		{"on demand", gpus(`"A100:8"`), "p4d.24xlarge", "us-west-2", 1, Params{}},
		{"on spot", gpus(`"A100:8"`) + "capacity: spot\n", "p4d.24xlarge", "us-east-1", 1, Params{}},
		{"the fewest GPUs above", gpus(`"A100:3"`) + "capacity: spot\n", "p4d.24xlarge", "us-east-1", 1, Params{}},
		{"not a fraction of a GPU", gpus("L4"), "g6.xlarge", "us-east-1", 1, Params{}},
		{
			"near data of unknown size", gpus(`"A100:8"`) + "capacity: spot\ndata: [s3://far/x]\n", "p4d.24xlarge",
			"us-west-2", 1, Params{DataRegions: map[string]string{"far": "us-west-2"}},
		},
		{
			"near large data", gpus(`"A100:8"`) + "capacity: spot\ndata: [{uri: s3://far/x, size: 1TiB}]\n",
			"p4d.24xlarge",
			"us-west-2", 1, Params{DataRegions: map[string]string{"far": "us-west-2"}},
		},
		{
			"far from small data", gpus(`"A100:8"`) + "capacity: spot\ndata: [{uri: s3://far/x, size: 1GiB}]\n",
			"p4d.24xlarge", "us-east-1", 1, Params{DataRegions: map[string]string{"far": "us-west-2"}},
		},
		{"the most work for max_cost", gpus(`"A100:8"`) + "max_cost: 50\n", "p4d.24xlarge", "us-west-2", 1, Params{}},
		{
			"the most work for max_cost alone",
			strings.Replace(gpus(`"A100:8"`), "max_runtime: 10h", "max_cost: 50", 1),
			"p4d.24xlarge", "us-west-2", 1, Params{},
		},
		{
			"regions of the defaults", "resources: {gpus: A10G}\nmax_runtime: 1h\n", "g5.xlarge", "us-east-1", 1,
			Params{Defaults: Defaults{Regions: []string{"us-east-1"}}},
		},
	} {
		tc.params.Now = now
		e, err := New(parse(t, tc.keys), testBook(t), tc.params)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if e.Machine.Type != tc.machine || e.Region != tc.region || e.Machines != tc.count {
			t.Errorf("%s: %d × %s in %s, want %d × %s in %s", tc.name, e.Machines, e.Machine.Type, e.Region, tc.count,
				tc.machine, tc.region)
		}
	}
}

// TestPodsShareMachines checks that pods share a machine, and that nodes do not.
func TestPodsShareMachines(t *testing.T) {
	pods := func(selector string) *spec.Spec {
		t.Helper()
		specs, err := spec.Read("m.yaml", []byte("apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: "+
			"{parallelism: 5, completions: 5, activeDeadlineSeconds: 3600, template: {spec: {nodeSelector: {"+
			selector+"}, containers: [{resources: {limits: {nvidia.com/gpu: 3}}}]}}}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return specs[0]
	}
	p := Params{Now: now, Defaults: Defaults{Regions: []string{"us-east-1"}}}
	for _, selector := range []string{
		"node.kubernetes.io/instance-type: p4d.24xlarge", "nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB",
	} {
		e, err := New(pods(selector), testBook(t), p)
		if err != nil || e.Machines != 3 || e.GPUs["A100-40GB"] != 24 {
			t.Errorf("%s: 5 pods of 3 GPUs need 3 machines of 8: %+v, %v", selector, e, err)
		}
	}
	if _, err := New(pods("node.kubernetes.io/instance-type: g5.xlarge"), testBook(t), p); err == nil ||
		!strings.Contains(err.Error(), "a node needs 3 GPUs and g5.xlarge has 1") {
		t.Errorf("a machine that is too small: %v", err)
	}
	if _, err := New(pods("a: b"), testBook(t), p); err == nil || !strings.Contains(err.Error(), "name the GPU") {
		t.Errorf("no machine is named: %v", err)
	}
}

// TestUnknownQuantities checks that a priced meter without a quantity is listed, with the price,
// and not taken for zero.
func TestUnknownQuantities(t *testing.T) {
	e, err := New(parse(t, p4d+"max_runtime: 1h\ndata: [s3://far/x, s3://lost/x, gs://other/x, "+
		"https://x.org/y]\ncheckpoint: {dir: /c, to: s3://near/x}\nartifacts: {dir: /o, to: s3://far/o}\n"),
		testBook(t), Params{Now: now, DataRegions: map[string]string{"far": "us-west-2", "near": "us-east-1"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"reading s3://far/x from us-west-2 to us-east-1: its size is not known; it is charged by the GiB each time, at " +
			"$0.02 a GiB",
		"reading s3://lost/x: the region of the bucket is not known",
		"reading gs://other/x: what its provider charges",
		"keeping checkpoints in s3://near/x: their size is not known; a GiB costs $0.02 a month",
		"writing s3://far/o from us-east-1 to us-west-2: its size is not known",
		"keeping artifacts in s3://far/o",
	} {
		if i >= len(e.Unknown) || !strings.HasPrefix(e.Unknown[i], want) {
			t.Errorf("unknown %d: got %q, want %q", i, e.Unknown, want)
		}
	}
	if len(e.Unknown) != 6 || len(e.Lines) != 2 {
		t.Errorf("unknown %q\nlines %+v", e.Unknown, e.Lines)
	}
}

func TestLearned(t *testing.T) {
	history := runs(20, 3*time.Hour, 5*time.Hour)
	for i, r := range []Run{
		{Name: "other", Finished: now, Completed: true, Work: time.Minute, Machine: "p4d.24xlarge", Machines: 1},
		{Name: "job", Finished: now, Work: time.Minute, Machine: "p4d.24xlarge", Machines: 1},
		{
			Name: "job", Finished: now.Add(time.Hour), Completed: true, Work: time.Minute, Machine: "p4d.24xlarge",
			Machines: 1,
		},
		{Name: "job", Finished: now, Completed: true, Work: time.Minute, Machine: "g5.xlarge", Machines: 1},
	} {
		// Twenty of them would be the median, if they counted.
		e, err := New(parse(t, p4d), testBook(t), Params{
			Now: now, History: append(slices.Repeat([]Run{r}, 30), history...),
		})
		if err != nil || e.Duration.P50 != "3h" || e.Duration.P95 != "5h" || e.Duration.Runs != 20 {
			t.Errorf("runs of kind %d count: %+v, %v", i, e.Duration, err)
		}
	}
	old := slices.Clone(history)
	for i := range old {
		old[i].Finished, old[i].Work = now.Add(-4*halfLife), 40*time.Hour
	}
	e, err := New(parse(t, p4d), testBook(t), Params{Now: now, History: append(old, history...)})
	if err != nil || e.Duration.P50 != "3h" || e.Duration.Runs != 40 {
		t.Errorf("old runs count as much as new ones: %+v, %v", e.Duration, err)
	}
}

func TestLearnsSpotInterruptions(t *testing.T) {
	s := parse(t, p4d+"capacity: spot\nduration: 100h\ncheckpoint: {dir: /c, to: s3://b/c, every: 1h}\nretries: "+
		"{interruptions: 1000}\n")
	restarts := func(p Params) int {
		t.Helper()
		p.Now = now
		e, err := New(s, testBook(t), p)
		if err != nil {
			t.Fatal(err)
		}
		return e.Duration.RestartsP50
	}
	usual := restarts(Params{})
	calm := restarts(Params{History: []Run{{Name: "job", Finished: now, SpotTime: 10_000 * time.Hour, Machines: 1}}})
	rough := restarts(Params{
		History: []Run{{Name: "job", Finished: now, SpotTime: 1000 * time.Hour, Machines: 1, Interruptions: 3000}},
	})
	if !(calm < usual && usual < rough) {
		t.Errorf("%d restarts after calm runs, %d without, %d after rough ones", calm, usual, rough)
	}
	if usual < 25 || usual > 60 { // 0.33 an hour over 100 h and the lost work
		t.Errorf("%d restarts in 100 h", usual)
	}
}

// TestLinesAddUp holds, for any job, that the lines are the totals, that the p95 is
// never below the p50, and that a longer cap never costs less.
func TestLinesAddUp(t *testing.T) {
	b := testBook(t)
	rapid.Check(t, func(t *rapid.T) {
		s := &spec.Spec{
			Kind: spec.Job, Name: "job",
			Capacity: rapid.SampledFrom([]spec.Capacity{spec.Spot, spec.OnDemand, spec.Auto}).Draw(
				t, "capacity"),
			Regions: []string{rapid.SampledFrom([]string{"us-east-1", "us-west-2"}).Draw(t, "region")},
			Resources: spec.Resources{
				InstanceType: rapid.SampledFrom([]string{"p4d.24xlarge", "g5.xlarge"}).Draw(t, "type"),
				Nodes:        rapid.IntRange(1, 50).Draw(t, "nodes"),
			},
			Duration: time.Duration(rapid.Int64Range(0, 200*3600).Draw(t, "duration")) * time.Second,
			MaxCost:  money.Amount(rapid.SampledFrom([]int64{0, 5e11, 123456789012}).Draw(t, "max cost")),
			DiskGiB:  rapid.Int64Range(0, 5000).Draw(t, "disk"), Retries: spec.Retries{
				Interruptions: rapid.IntRange(0, 50).Draw(t, "retries"),
			},
			Data: []spec.Dataset{{URI: "s3://far/x", SizeBytes: rapid.Int64Range(0, 1<<40).Draw(t, "bytes")}}}
		if rapid.Bool().Draw(t, "checkpoint") {
			s.Checkpoint = &spec.Checkpoint{
				Dir: "/c", To: "s3://near/c", Keep: 2,
				Every:     time.Duration(rapid.Int64Range(0, 7200).Draw(t, "every")) * time.Second,
				SizeBytes: rapid.Int64Range(0, 1<<36).Draw(t, "size"),
			}
		}
		p := Params{
			Now: now, DataRegions: map[string]string{"far": "eu-west-1", "near": "us-east-1"},
			History: runs(rapid.IntRange(0, 30).Draw(t, "runs"), 3*time.Hour, 9*time.Hour),
		}
		var before *Estimate
		limits := rapid.SliceOfN(rapid.Int64Range(60, 300*3600), 2, 4).Draw(t, "caps")
		slices.Sort(limits)
		for _, limit := range limits {
			s.MaxRuntime = time.Duration(limit) * time.Second
			e, err := New(s, b, p)
			if err != nil {
				if s.MaxCost > 0 && strings.Contains(err.Error(), "max_cost") {
					return
				}
				t.Fatal(err)
			}
			p50, p95, err := sum(e.Lines)
			if err != nil || p50 != e.P50 || p95 != e.P95 {
				t.Fatalf("the lines add up to %s and %s, not to %s and %s", p50, p95, e.P50, e.P95)
			}
			if e.P95 < e.P50 || e.P50 <= 0 || e.Duration.p95 < e.Duration.p50 &&
				s.Capacity != spec.Auto && s.MaxCost == 0 {
				t.Fatalf("p50 %s, p95 %s, %+v", e.P50, e.P95, e.Duration)
			}
			if s.MaxCost > 0 && e.P95 > s.MaxCost {
				t.Fatalf("p95 %s is over max_cost %s", e.P95, s.MaxCost)
			}
			// What max_cost ends is cut at a whole second, and before a checkpoint that it
			// does not pay for.
			cut := money.Amount(0)
			if s.MaxCost > 0 {
				cut = e.Hourly/3600 + 1 + 2*money.USD
			}
			if before != nil && (e.P50 < before.P50-cut || e.P95 < before.P95-cut) {
				t.Fatalf("a cap of %s costs %s and %s, a shorter one %s and %s", s.MaxRuntime,
					e.P50, e.P95, before.P50,
					before.P95)
			}
			before = e
		}
	})
}

// TestChargesCheckpointReads: from another region each interruption pays for the transfer
// of one checkpoint, and from the same region none does.
func TestChargesCheckpointReads(t *testing.T) {
	for region, want := range map[string]bool{"us-west-2": true, "us-east-1": false} {
		s := parse(t, "resources: {instance_type: g5.xlarge}\nregions: [us-east-1]\ncapacity: spot\nmax_runtime: "+
			"20h\ncheckpoint: {dir: /c, to: s3://b/c, every: 1h, size: 10GiB}\n")
		e, err := New(s, testBook(t), Params{Now: now, DataRegions: map[string]string{"b": region}})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(e.Lines, func(l Line) bool { return strings.HasPrefix(l.What, "reading s3://b/c") })
		if i < 0 {
			if want {
				t.Errorf("nothing is read from %s: %+v", region, e.Lines)
			}
			continue
		}
		read, err := (20 * money.USD / 1000).Mul(int64(10*e.Duration.RestartsP95), 1) // $0.02 a GiB
		if l := e.Lines[i]; !want || err != nil || e.Duration.RestartsP95 == 0 || l.P95 != read {
			t.Errorf("from %s %d restarts read %+v, want %s", region, e.Duration.RestartsP95, l, read)
		}
	}
}

// TestUnlimitedDurationIsOpen checks that a duration that is only declared, or that of a few runs,
// is no bound; a run that nothing ends needs an approval.
func TestUnlimitedDurationIsOpen(t *testing.T) {
	for _, tc := range []struct {
		name, src string
		past      int
		want      string
	}{
		{"declared", "duration: 1m", 0, "how long it runs: 1m are declared and nothing ends it then"},
		{"declared and bounded", "duration: 1m\nmax_runtime: 1h", 0, ""},
		{"declared and paid for", "duration: 1m\nmax_cost: 10", 0, ""},
		{"paid for", "max_cost: 10", 0, ""},
		{"of a few runs and paid for", "max_cost: 10", 3, ""},
		{"bounded", "max_runtime: 1h", 0, ""},
		{"of a few runs", "duration: 1m", 3, "how long it runs: 3 past runs say"},
		{"of many runs", "duration: 1m", 40, ""},
	} {
		s := parse(t, "resources: {instance_type: g5.xlarge}\nregions: [us-east-1]\n"+tc.src+"\n")
		e, err := New(s, testBook(t), Params{Now: now, History: runs(tc.past, 3*time.Hour, 9*time.Hour)})
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if got := strings.Join(e.Unknown, "\n"); !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s: unknown %q, want %q", tc.name, got, tc.want)
		}
		if ends := e.Duration.limit > 0; ends != (tc.past != 40 && tc.want == "") {
			t.Errorf("%s: something ends it: %v", tc.name, ends)
		}
		// All that max_cost pays for may be spent, to the second.
		if missing := s.MaxCost - e.P95; s.MaxCost > 0 && (missing < 0 || missing > money.USD/1000 ||
			e.Duration.CapBy != "max_cost") {
			t.Errorf("%s: at most %s of max_cost %s; %+v", tc.name, e.P95, s.MaxCost, e.Duration)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	book := testBook(b)
	s := parse(b, "resources: {gpus: \"A10G:1\"}\ncapacity: auto\nmax_runtime: 40h\nmax_cost: 30\ncheckpoint: {dir: "+
		"/c, to: s3://b/c, size: 5GiB}\ndata: [{uri: s3://far/x, size: 50GiB}]\n"+
		"regions: [us-east-1, us-east-2, us-west-2, eu-west-1, eu-central-1, eu-north-1]\n")
	p := Params{
		Now: now, History: runs(1000, 3*time.Hour, 9*time.Hour), DataRegions: map[string]string{"far": "us-west-2"},
	}
	for b.Loop() {
		if _, err := New(s, book, p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTerraform(b *testing.B) {
	book := testBook(b)
	change := `{"address":"aws_instance.a[%d]","mode":"managed","type":"aws_instance","name":"a","change":{"actions":["create"],"before":null,` +
		`"after":{"instance_type":"g5.xlarge","region":"us-east-1","root_block_device":[{"volume_size":100,"volume_type":"gp3"}]},"after_unknown":{"id":true}}}`
	var changes []string
	for i := range 2000 {
		changes = append(changes, fmt.Sprintf(change, i))
	}
	src := `{"format_version":"1.2","resource_changes":[` + strings.Join(changes, ",") + `]}`
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		if _, err := FromTerraform(strings.NewReader(src), "plan.json", book, Params{Now: now}); err != nil {
			b.Fatal(err)
		}
	}
}
