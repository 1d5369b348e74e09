package rightsize

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// recorded is a file of recorded usage with columns of its own.
type recorded struct {
	columns string
	rows    []string
}

func columns(names string) *recorded { return &recorded{columns: "resource,time,gpu," + names} }

// add records n minutes of a GPU, or with an empty gpu of the machine.
func (f *recorded) add(resource, gpu string, minutes int, row func(minute int) string) *recorded {
	for i := range minutes {
		if text := row(i); text != "" {
			f.rows = append(f.rows,
				fmt.Sprintf("%s,%s,%s,%s", resource,
					from.Add(time.Duration(i)*time.Minute).Format(time.RFC3339), gpu, text))
		}
	}
	return f
}

func (f *recorded) flat(resource, gpu string, minutes int, row string) *recorded {
	return f.add(resource, gpu, minutes, func(int) string { return row })
}

func (f *recorded) String() string { return f.columns + "\n" + strings.Join(f.rows, "\n") + "\n" }

func fromText(book *price.Book, text, machine string, p Params) (Report, error) {
	return FromUsage(context.Background(), strings.NewReader(text), usage.Format{Name: "u.csv"}, machine, book, p)
}

func report(t *testing.T, f *recorded, machine string, p Params) Report {
	t.Helper()
	r, err := fromText(embedded(t), f.String(), machine, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFromUsage(t *testing.T) {
	const memory = 10 << 30
	f := columns("gpu_util,mem_used_bytes,cpu_util,host_mem_used")
	f.add("job", "0", 600, func(i int) string { return fmt.Sprintf("%d,%d,10,20", i%50, memory) })
	for _, g := range []string{"1", "2", "3"} {
		f.flat("job", g, 600, "0,0,10,20")
	}
	r := report(t, f, "p3.8xlarge", Params{})
	if r.Schema != Schema || r.Verdict != "overprovisioned" || r.Samples != 2400 || r.Coverage != 1 || r.GPUs != 4 ||
		r.GPUsUsedMax != 1 {
		t.Errorf("%s, %d samples, coverage %v, %d of %d GPUs; want overprovisioned, 2400, 1, 1 of 4", r.Verdict,
			r.Samples,
			r.Coverage, r.GPUsUsedMax, r.GPUs)
	}
	// Of 2,400 samples 1,812 are 0; the 2,280th is the 480th of GPU 0's 600.
	if *r.UtilP50 != 0 || *r.UtilP95 != 39 || math.Abs(*r.UtilMean-6.125) > 1e-9 {
		t.Errorf("utilization p50 %v, p95 %v, mean %v; want 0, 39, 6.125", *r.UtilP50, *r.UtilP95, *r.UtilMean)
	}
	if *r.MemoryPeakGiB != 10 || math.Abs(*r.MemoryP95GiB-10) > 0.1 {
		t.Errorf("memory peak %v, p95 %v GiB; want 10 and 10 to 1%%", *r.MemoryPeakGiB, *r.MemoryP95GiB)
	}
	if len(r.Fits) == 0 || len(r.Fits) > 5 || r.Fitting < len(r.Fits) {
		t.Fatalf("%d of %d types are listed", len(r.Fits), r.Fitting)
	}
	own, priced := r.HourlyUSD.Get()
	if !priced {
		t.Fatal("there is no price")
	}
	for _, c := range r.Fits {
		saving, err := (own - c.HourlyUSD).Monthly()
		if err != nil || c.SavingUSD != money.Known(saving) || c.Source == "" || len(c.AsOf) != len(time.DateOnly) {
			t.Errorf("%+v saves %s, source %q of %s", c, c.SavingUSD, c.Source, c.AsOf)
		}
		if c.MemoryGiB < 12 || c.VCPUs < 4 || *c.MemoryShare > 1/1.2 {
			t.Errorf("%s does not hold 10 GiB and a fifth, or a tenth of 32 vCPUs", c.Type)
		}
	}
	if r.SavingUSD != r.Fits[0].SavingUSD {
		t.Errorf("saves %s, want the first's %s", r.SavingUSD, r.Fits[0].SavingUSD)
	}
	devices := r.Resources[0].Devices
	if len(devices) != 4 || !devices[0].Used || devices[1].Used || *devices[0].UtilMean != 24.5 ||
		*devices[0].UtilP50 != 24 || *devices[0].UtilP95 != 47 ||
		*devices[0].MemoryPeakGiB != 10 || *devices[3].UtilMean != 0 || devices[3].Samples != 600 ||
		devices[3].Coverage != 1 {
		t.Errorf("GPU by GPU: %+v", devices)
	}
	if len(r.Assumptions) == 0 || len(r.CoverageNotes) == 0 || len(r.Changes) == 0 ||
		!slices.ContainsFunc(r.CoverageNotes, func(s string) bool { return strings.Contains(s, "less than a day") }) {
		t.Errorf("it rests on %q, covers %q, changes with %q", r.Assumptions, r.CoverageNotes, r.Changes)
	}
}

// TestUnknownIsNotIdle: what was not measured is null, and has no verdict.
func TestUnknownIsNotIdle(t *testing.T) {
	idle := "0,0"
	for _, tc := range []struct {
		name, why string
		f         *recorded
	}{
		{
			"a GPU of four misses", "samples for 3 of 4 GPUs only",
			columns("gpu_util,mem_used_bytes").flat("j", "0", 60, idle).flat("j", "1", 60,
				idle).flat("j", "2", 60, idle),
		},
		{
			"a GPU has gaps", "samples cover", columns("gpu_util,mem_used_bytes").flat("j", "0", 60,
				idle).flat("j", "1", 60,
				idle).flat("j", "2", 60, idle).
				add("j", "3", 60, func(i int) string {
					if i%3 == 0 {
						return ""
					}
					return idle
				})},
		{
			"more GPUs than it has", "has 4", columns("gpu_util,mem_used_bytes").flat("j", "0", 60,
				idle).flat("j", "1", 60,
				idle).flat("j", "2", 60, idle).
				flat("j", "3", 60, idle).flat("j", "4", 60, idle)},
		{"which GPU is not said", "for several GPUs", columns("gpu_util,mem_used_bytes").flat("j", "", 60, idle)},
		{"utilization was not measured", "no GPU samples", columns("cpu_util").flat("j", "", 60, "3")},
		{
			"one sample", "one sample",
			columns("gpu_util,mem_used_bytes").flat("j", "0", 1, idle).flat("other", "0", 60, idle),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := report(t, tc.f, "p3.8xlarge", Params{})
			it := r.Resources[0]
			if it.Verdict != "unknown" || !strings.Contains(it.Why, tc.why) || len(it.Fits) > 0 ||
				it.ComputeTFLOPS != nil ||
				len(it.Reasons) > 0 {
				t.Errorf("%+v; want unknown because %q, and nothing that fits", it, tc.why)
			}
			if r.Verdict != "unknown" || r.Unknown != len(r.Resources) || r.SavingUSD.Known() || len(r.Fits) > 0 {
				t.Errorf("together %s, %d unknown, saving %v", r.Verdict, r.Unknown, r.SavingUSD)
			}
		})
	}
	r := report(t, columns("cpu_util").flat("j", "", 60, "3"), "p3.2xlarge", Params{})
	if r.UtilMean != nil || r.UtilP95 != nil || r.MemoryPeakGiB != nil || r.Samples != 0 {
		t.Errorf("what was not measured is a figure: %+v", r.Figures)
	}
}

func TestSeveralResources(t *testing.T) {
	f := columns("gpu_util,mem_used_bytes,cpu_util,host_mem_used,type")
	f.flat("a", "0", 60, "10,1073741824,5,5,").flat("b", "0", 60, "30,4294967296,5,5,g5.xlarge").flat("gap", "0", 10,
		",,5,5,")
	r := report(t, f, "p3.2xlarge", Params{Most: 100})
	if r.Judged != 2 || r.Unknown != 1 || r.Verdict != "overprovisioned" || *r.UtilMean != 20 || r.GPUsUsedMax != 1 ||
		r.GPUs != 2 || *r.MemoryPeakGiB != 4 {
		t.Errorf("together %+v; want 2 judged, 1 unknown, 20%% of 2 GPUs", r.Figures)
	}
	a, b := r.Resources[0], r.Resources[1]
	if a.Type != "p3.2xlarge" || b.Type != "g5.xlarge" || a.Verdict != "overprovisioned" ||
		b.Verdict != "underutilised" {
		t.Errorf("%s is a %s, %s is a %s; the file's own type counts", a.Name, a.Type, b.Name, b.Type)
	}
	for _, c := range r.Fits {
		both := 0
		var sum money.Amount
		for _, it := range []Resource{a, b} {
			if i := slices.IndexFunc(it.Fits, func(x Fit) bool { return x.Type == c.Type }); i >= 0 {
				both++
				sum += it.Fits[i].SavingUSD.Or(0)
			}
		}
		if got := c.SavingUSD.Or(0); both != 2 || (got-sum).Cents() != "0.00" && got-sum > money.Cent {
			t.Errorf("%s fits %d of 2 and saves %s, not %s", c.Type, both, got, sum)
		}
	}
	if len(r.Fits) == 0 || len(r.Fits) > min(len(a.Fits), len(b.Fits)) {
		t.Errorf("%d types fit both, %d and %d each", len(r.Fits), len(a.Fits), len(b.Fits))
	}
}

func TestOtherClouds(t *testing.T) {
	const list = "cloud,service,name,region,term,above,usd,unit,accelerator,accelerators,source,as_of\n" +
		"lambda,compute,gpu_1x_a10,here,on-demand,,0.10,hour,A10G,1,Lambda price page,2026-10-01\n" +
		"lambda,compute,gpu_1x_a10,there,on-demand,,0.05,hour,A10G,1,Lambda price page,2026-10-01\n" +
		"lambda,compute,gpu_1x_m60,here,on-demand,,0.01,hour,M60,1,Lambda price page,2026-10-01\n"
	book := embedded(t)
	if err := book.Load(strings.NewReader(list)); err != nil {
		t.Fatal(err)
	}
	f := columns("gpu_util,mem_used_bytes").flat("a", "0", 60, "20,10737418240")
	r, err := fromText(book, f.String(), "p3.2xlarge", Params{})
	if err != nil {
		t.Fatal(err)
	}
	c := r.Fits[0]
	if c.Cloud != "lambda" || c.Type != "gpu_1x_a10" || c.Region != "there" || c.HourlyUSD != 5*money.Cent ||
		c.Source != "Lambda price page" {
		t.Errorf("first is %+v; want the A10 of the other cloud at its lowest price, and not the M60 of 8 GiB", c)
	}
	for _, want := range []string{"another cloud", "not in the price book"} {
		if !slices.ContainsFunc(c.Against, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("nothing says %q against it: %q", want, c.Against)
		}
	}
	w := observed().gpus(0, 1, 20, 10).host(5, 5).w
	a, err := Advise(w, machine(t, book, "p3.2xlarge"), region, book, Options{})
	if err != nil || slices.ContainsFunc(a.Candidates, func(c Candidate) bool { return c.Machine.Cloud != "aws" }) {
		t.Errorf("without the option other clouds are advised: %v", err)
	}
}

// TestTensorActivity stands for compute only where it can.
func TestTensorActivity(t *testing.T) {
	for _, tc := range []struct {
		name, columns, row string
		basis              string
		tflops             float64 // 0: not looked at
	}{
		{"multiprocessors first", "gpu_util,sm_active,tensor_active,dram_active", "90,0.5,0.1,0.2", "sm_active", 156},
		{"tensor and memory activity", "gpu_util,tensor_active,dram_active", "90,0.3,0.2", "tensor_active", 156},
		{"the fullest a tensor pipe gets", "gpu_util,tensor_active,dram_active", "90,0.9,0.2", "tensor_active", 312},
		{"work outside the tensor pipes", "gpu_util,tensor_active,dram_active", "90,0.01,0.2", "gpu_util", 280.8},
		{"memory activity is missing", "gpu_util,tensor_active", "90,0.3", "gpu_util", 280.8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := columns(tc.columns)
			for g := range 8 {
				f.flat("j", fmt.Sprint(g), 60, tc.row)
			}
			r := report(t, f, "p4d.24xlarge", Params{})
			if r.Basis != tc.basis || math.Abs(*r.ComputeTFLOPS-tc.tflops) > 0.5 {
				t.Errorf("%v TFLOP/s by %s, want %v by %s", *r.ComputeTFLOPS, r.Basis, tc.tflops, tc.basis)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	const all = "gpu_util,sm_active,dram_active,cpu_util,net_bytes,requests"
	for _, tc := range []struct {
		name, columns, row string
		want               map[string]string
	}{
		{"small batches", all, "45,0.1,0.1,3,0,", map[string]string{"small-batches": "false"}}, // the engine waits
		{
			"small kernels all the time", all, "95,0.1,0.1,3,0,",
			map[string]string{
				"small-batches": "true", "memory-bandwidth": "false", "cpu-bound-input": "false",
				"concurrency-limit": "unknown",
			},
		},
		{
			"memory-bound", all, "95,0.2,0.7,3,0,",
			map[string]string{"memory-bandwidth": "true", "small-batches": "false"},
		},
		{
			"the CPUs are full", all, "20,0.2,0.1,97,0,",
			map[string]string{"cpu-bound-input": "true", "small-batches": "false"},
		},
		{"one full core would not show", all, "20,0.2,0.1,30,0,", map[string]string{"cpu-bound-input": "unknown"}},
		// p3.8xlarge has 10 Gbit/s: 60 s of 9 Gbit/s.
		{"the network is full", all, "20,0.2,0.1,3,67500000000,", map[string]string{"transfers": "true"}},
		{"the bus was not measured", all, "20,0.2,0.1,3,1000,", map[string]string{"transfers": "unknown"}},
		{"requests at their limit", all, "20,0.2,0.1,3,0,100", map[string]string{"concurrency-limit": "true"}},
		{
			"only utilization", "gpu_util", "20",
			map[string]string{
				"small-batches": "false", "memory-bandwidth": "unknown",
				"cpu-bound-input": "unknown", "transfers": "unknown",
				"concurrency-limit": "unknown",
			},
		},
		{"well used", all, "80,0.8,0.3,3,0,", nil},
		{"idle", all, "0,0,0,3,0,", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := columns(tc.columns)
			for g := range 4 {
				f.flat("j", fmt.Sprint(g), 60, tc.row)
			}
			got := map[string]string{}
			for _, x := range report(t, f, "p3.8xlarge", Params{}).Resources[0].Reasons {
				got[x.Name] = x.Answer
				if x.Why == "" {
					t.Errorf("%s says %s without a why", x.Name, x.Answer)
				}
			}
			if len(tc.want) == 0 && len(got) > 0 || len(tc.want) > 0 && len(got) != 5 {
				t.Errorf("%d reasons: %v", len(got), got)
			}
			for name, want := range tc.want {
				if got[name] != want {
					t.Errorf("%s: %s, want %s", name, got[name], want)
				}
			}
		})
	}
	gaps := columns("gpu_util,dram_active").add("j", "0", 60, func(i int) string {
		return []string{"20,0.7", "20,"}[i%2]
	})
	for _, x := range report(t, gaps, "p3.2xlarge", Params{}).Resources[0].Reasons {
		if x.Answer == "true" {
			t.Errorf("%s is told from half of the samples", x.Name)
		}
	}
	varied := columns("gpu_util,requests").add("j", "0", 60, func(i int) string { return fmt.Sprintf("20,%d", i) })
	for _, x := range report(t, varied, "p3.2xlarge", Params{}).Resources[0].Reasons {
		if x.Name == "concurrency-limit" && x.Answer != "false" {
			t.Errorf("requests that vary: %s, want false", x.Answer)
		}
	}
}

func TestBadUsage(t *testing.T) {
	good := columns("gpu_util").flat("j", "0", 5, "10").String()
	for _, tc := range []struct {
		name, text, machine, want string
		file                      bool
	}{
		{
			"not a number", "resource,time,gpu,gpu_util\nj,2026-11-01T00:00:00Z,0,ten\n", "p3.2xlarge", "u.csv:2:4",
			true,
		},
		{"no samples", "resource,time,gpu,gpu_util\n", "p3.2xlarge", "no samples", true},
		{"one sample", columns("gpu_util").flat("j", "0", 1, "10").String(), "p3.2xlarge", "--step", true},
		{"no type", good, "", "give --type", false},
		{"an unknown type", good, "p9.huge", `"p9.huge" is not in the price book`, false},
		{"a type without GPUs", good, "m5.large", "no known accelerator", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := fromText(embedded(t), tc.text, tc.machine, Params{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%v, want %q", err, tc.want)
			}
			if file := (*usage.FileError)(nil); errors.As(err, &file) != tc.file {
				t.Errorf("%v is of the file: %v", err, !tc.file)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	long := columns("gpu_util").flat("j", "0", 20_000, "10").String()
	if _, err := FromUsage(ctx, strings.NewReader(long), usage.Format{}, "p3.2xlarge",
		embedded(t), Params{}); !errors.Is(
		err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestInference(t *testing.T) {
	f := columns("gpu_util").flat("j", "0", 60, "95")
	if r := report(t, f, "g5.xlarge", Params{
		Options: Options{Purpose: inventory.Inference},
	}); r.Verdict != "scale-out" {
		t.Errorf("inference at 95%%: %s", r.Verdict)
	}
	if r := report(t, f, "g5.xlarge", Params{Region: "xx-nowhere-1"}); r.HourlyUSD.Known() || r.SavingUSD.Known() ||
		len(r.Resources[0].Warnings) == 0 {
		t.Errorf("without a price: %v, saving %v", r.HourlyUSD, r.SavingUSD)
	}
}

// TestOrderOfRows: rows in any order give the same figures.
func TestOrderOfRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := columns("gpu_util,mem_used_bytes")
		util := rapid.SliceOfN(rapid.IntRange(0, 100), 4, 30).Draw(t, "utilization")
		for g := range 4 {
			f.add("j", fmt.Sprint(g), len(util), func(i int) string {
				return fmt.Sprintf("%d,%d", util[i]/(g+1), (util[i]+1)<<26)
			})
		}
		book := embedded(t)
		want, err := fromText(book, f.String(), "p3.8xlarge", Params{})
		if err != nil {
			t.Fatal(err)
		}
		f.rows = rapid.Permutation(f.rows).Draw(t, "order")
		// The step is of neighbors in the file: give it.
		got, err := FromUsage(context.Background(), strings.NewReader(f.String()), usage.Format{Step: time.Minute},
			"p3.8xlarge", book, Params{})
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if !bytes.Equal(a, b) {
			t.Fatalf("\n%s\n%s", a, b)
		}
	})
}

func FuzzFromUsage(f *testing.F) {
	book := embedded(f)
	f.Add(columns("gpu_util,mem_used_bytes").flat("j", "0", 5, "10,1000").String())
	f.Add(columns("gpu_util,sm_active,type").flat("j", "1", 5, "10,0.5,g5.xlarge").String())
	f.Add("resource,time\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := fromText(book, text, "p3.8xlarge", Params{})
		if err != nil {
			return
		}
		for _, it := range r.Resources {
			if it.Coverage < 0 || it.Coverage > 1 || it.GPUsUsedMax > it.GPUs {
				t.Fatalf("coverage %v, %d of %d GPUs", it.Coverage, it.GPUsUsedMax, it.GPUs)
			}
			if it.UtilP50 != nil && (*it.UtilP50 > *it.UtilP95 || *it.UtilP95 > 100 || *it.UtilMean < 0) {
				t.Fatalf("p50 %v, p95 %v, mean %v", *it.UtilP50, *it.UtilP95, *it.UtilMean)
			}
			if it.Verdict == "unknown" && len(it.Fits) > 0 {
				t.Fatal("something fits what is unknown")
			}
		}
	})
}

// BenchmarkFromUsage is a day of ten machines with eight GPUs, a sample a minute.
func BenchmarkFromUsage(b *testing.B) {
	f := columns("gpu_util,mem_used_bytes")
	for m := range 10 {
		for g := range 8 {
			f.add(fmt.Sprintf("m%d", m), fmt.Sprint(g), 24*60, func(i int) string {
				return fmt.Sprintf("%d,%d", i*g%100, i<<20)
			})
		}
	}
	text, book := f.String(), embedded(b)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if r, err := fromText(book, text, "p4d.24xlarge", Params{}); err != nil || len(r.Resources) != 10 {
			b.Fatal(err)
		}
	}
}

// TestMemoryWithoutUtilization: device memory is known where it was reported, also of GPUs
// whose utilization is not, and unknown, not 0, where it never was.
func TestMemoryWithoutUtilization(t *testing.T) {
	const header = "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
	for _, tc := range []struct {
		name, values string
		peak         float64 // negative for unknown
	}{
		{"MIG mode", "[N/A], 10240 MiB, 40960 MiB", 10},
		{"never reported", "35 %, [N/A], [N/A]", -1},
		{"neither", "[N/A], [N/A], [N/A]", -1},
		{"both", "35 %, 5120 MiB, 40960 MiB", 5},
		{"at rest", "0 %, 512 MiB, 40960 MiB", 0.5},
	} {
		text := header
		for i := range 120 {
			text += fmt.Sprintf("2026/06/02 %02d:%02d:00.000, 0, %s\n", i/60, i%60, tc.values)
		}
		r, err := FromUsage(context.Background(), strings.NewReader(text), usage.Format{Resource: "n"}, "p3.2xlarge",
			embedded(t), Params{})
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if got := r.MemoryPeakGiB; (got == nil) != (tc.peak < 0) || got != nil && *got != tc.peak {
			t.Errorf("%s: the peak is %v, want %v", tc.name, got, tc.peak)
		}
	}
}
