package rightsize

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

const region = "us-east-1"

var from = time.Date(2026, 11, 7, 0, 0, 0, 0, time.UTC)

func embedded(tb interface{ Fatal(...any) }) *price.Book {
	b, err := price.Embedded()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func machine(tb interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, book *price.Book, t string) price.Machine {
	m, ok := book.Machine(t)
	if !ok {
		tb.Fatalf("the price book does not know %s", t)
	}
	return m
}

// work is fourteen days of hourly points.
type work struct{ w *usage.Window }

func observed() work {
	return work{usage.NewWindow(from, from.AddDate(0, 0, 14), time.Hour, "cloudwatch", nil)}
}

func (k work) series(gpu string, s usage.Signal, value func(hour int) float64) work {
	for h := range 14 * 24 {
		if v := value(h); v >= 0 {
			k.w.Add(gpu, s, usage.Point{Time: from.Add(time.Duration(h) * time.Hour), Mean: v, Max: v})
		}
	}
	return k
}

func (k work) flat(gpu string, s usage.Signal, v float64) work {
	return k.series(gpu, s, func(int) float64 { return v })
}

// gpus adds n GPUs from the first-th on.
func (k work) gpus(first, n int, util, memoryGiB float64) work {
	for i := range n {
		g := fmt.Sprint(first + i)
		k.flat(g, usage.GPUUtil, util).flat(g, usage.MemUsed, memoryGiB*gib)
	}
	return k
}

func (k work) host(cpu, memory float64) work {
	return k.flat("", usage.CPUUtil, cpu).flat("", usage.HostMemUsed, memory)
}

func TestVerdict(t *testing.T) {
	book := embedded(t)
	for _, tc := range []struct {
		name, machine string
		w             *usage.Window
		purpose       inventory.Purpose
		want          Verdict
		why           string
	}{
		{"nothing measured", "p3.8xlarge", nil, "", Unknown, "nothing was measured"},
		{"no GPU telemetry", "p3.8xlarge", observed().host(5, 5).w, "", Unknown, "no GPU samples"},
		{
			"three of four GPUs", "p3.8xlarge", observed().gpus(0, 3, 10, 1).w, "", Unknown,
			"samples for 3 of 4 GPUs only",
		},
		{
			"half the window", "p3.2xlarge",
			observed().series("0", usage.GPUUtil, func(h int) float64 { return float64(h%2)*11 - 1 }).w, "", Unknown,
			"cover 50%",
		},
		{
			"an unknown GPU of four", "p3.8xlarge",
			observed().gpus(0, 0, 0, 0).flat("", usage.GPUUtil, 10).w, "", Unknown,
			"for several GPUs",
		},
		{
			"24.9%", "p3.8xlarge", observed().gpus(0, 4, 24.9, 1).w, "", Overprovisioned,
			"24.9% mean GPU utilization, 4 of 4 GPUs used",
		},
		{"25%", "p3.8xlarge", observed().gpus(0, 4, 25, 1).w, "", Underutilized, ""},
		{"60%", "p3.8xlarge", observed().gpus(0, 4, 60, 1).w, "", WellUsed, ""},
		{
			"one GPU of eight at full speed", "p4d.24xlarge", observed().gpus(0, 1, 100, 30).gpus(1, 7, 0, 0).w, "",
			Overprovisioned, "12.5% mean GPU utilization, 1 of 8",
		},
		{"training at 95%", "p3.8xlarge", observed().gpus(0, 4, 95, 1).w, inventory.Training, WellUsed, ""},
		{"inference at 70%", "g5.xlarge", observed().gpus(0, 1, 70, 10).w, inventory.Inference, WellUsed, ""},
		{"inference at 95%", "g5.xlarge", observed().gpus(0, 1, 95, 10).w, inventory.Inference, ScaleOut, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Advise(tc.w, machine(t, book, tc.machine), region, book, Options{Purpose: tc.purpose})
			if err != nil || got.Verdict != tc.want || !strings.Contains(got.Why, tc.why) {
				t.Errorf("got %s because %q, %v; want %s because %q", got.Verdict, got.Why, err, tc.want, tc.why)
			}
			if got.Verdict == Unknown && len(got.Candidates) > 0 {
				t.Errorf("an unknown verdict has candidates")
			}
			if got.Verdict.String() == "" {
				t.Error("the verdict has no name")
			}
		})
	}
}

func TestFigures(t *testing.T) {
	book := embedded(t)
	w := observed().
		series("0", usage.GPUUtil, func(h int) float64 { return float64(h % 20) }).
		series("1", usage.GPUUtil, func(int) float64 { return 0 }).
		series("0", usage.MemUsed, func(h int) float64 { return float64(h%100+1) / 10 * gib }).
		flat("1", usage.MemUsed, 0).w
	m := machine(t, book, "p3.8xlarge")
	m.AcceleratorMilli = 2000
	got, err := Advise(w, m, region, book, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Samples != 672 || got.Coverage != 1 || got.GPUs != 2 || got.GPUsUsed != 1 {
		t.Errorf("%d samples, coverage %v, %d of %d GPUs; want 672, 1, 1 of 2", got.Samples,
			got.Coverage, got.GPUsUsed,
			got.GPUs)
	}
	if got.UtilP50 != 0 || got.UtilP95 != 17 || got.UtilMax != 19 || got.UtilMean < 4.6 || got.UtilMean > 4.8 {
		t.Errorf("utilization mean %v, p50 %v, p95 %v, maximum %v; want about 4.7, 0, 17, 19",
			got.UtilMean, got.UtilP50,
			got.UtilP95, got.UtilMax)
	}
	if !got.MemoryKnown || got.MemoryPeakGiB != 10 || got.MemoryP95GiB < 9.4 || got.MemoryP95GiB > 9.7 {
		t.Errorf("memory peak %v GiB, p95 %v GiB; want 10 and 9.5 within 1%%", got.MemoryPeakGiB, got.MemoryP95GiB)
	}
	if got.Basis != usage.GPUUtil || got.ComputeTFLOPS < 22 || got.ComputeTFLOPS > 24 {
		t.Errorf("needs %v TFLOP/s by %s; want 18%% of 125 by gpu_util", got.ComputeTFLOPS, got.Basis)
	}
}

func TestCandidates(t *testing.T) {
	book := embedded(t)
	for _, tc := range []struct {
		name, machine string
		w             *usage.Window
		holds         func(Candidate) bool
		all           bool // of every candidate, otherwise of one at least
		against       string
	}{
		{name: "one of eight A100 in use: one GPU is enough", machine: "p4d.24xlarge",
			w:     observed().gpus(0, 1, 90, 30).gpus(1, 7, 0, 0).host(3, 4).w,
			holds: func(c Candidate) bool { return c.GPUs == 1 && c.Accelerator.BF16TFLOPS >= 312 }},
		{
			name: "full speed keeps its speed", machine: "p4d.24xlarge",
			w: observed().gpus(0, 1, 100, 30).gpus(1, 7, 0, 0).host(3, 4).w, all: true,
			holds: func(c Candidate) bool { return c.Accelerator.BF16TFLOPS >= 312 }},
		{name: "an A10G at 20% fits on a T4", machine: "g5.xlarge", w: observed().gpus(0, 1, 20, 6).host(10, 20).w,
			holds: func(c Candidate) bool { return c.Accelerator.Name == "T4" }, against: "has no bfloat16"},
		{
			name: "multiprocessor activity beats utilization", machine: "p5.4xlarge",
			w:     observed().gpus(0, 1, 100, 10).flat("0", usage.SMActive, 0.03).host(3, 4).w,
			holds: func(c Candidate) bool { return c.Accelerator.BF16TFLOPS < 200 }, against: "takes longer"},
		{
			name: "memory and headroom must fit", machine: "g6e.xlarge",
			w:     observed().gpus(0, 1, 5, 20).host(10, 10).w,
			all:   true,
			holds: func(c Candidate) bool { return c.Machine.AcceleratorMemoryMiB >= 24*1024 }},
		{
			name: "unmeasured memory is kept", machine: "p3.2xlarge",
			w:     observed().flat("0", usage.GPUUtil, 5).host(5, 5).w,
			all:   true,
			holds: func(c Candidate) bool { return c.Machine.AcceleratorMemoryMiB >= 16384 }},
		{name: "unmeasured host memory is kept", machine: "p3.2xlarge", w: observed().gpus(0, 1, 5, 2).w, all: true,
			holds: func(c Candidate) bool { return c.Machine.MemoryMiB >= 62464 && c.Machine.VCPUs >= 8 }},
		{name: "busy CPUs are kept", machine: "g5.8xlarge", w: observed().gpus(0, 1, 10, 2).host(70, 5).w, all: true,
			holds: func(c Candidate) bool { return c.Machine.VCPUs >= 27 }},
		{
			name: "memory held by a GPU that rests counts", machine: "p3.8xlarge",
			w: observed().gpus(0, 1, 5, 12).gpus(1, 3, 0, 12).host(5, 5).w, all: true,
			holds: func(c Candidate) bool {
				return float64(c.GPUs)*float64(c.Machine.AcceleratorMemoryMiB) >= 48*1024*1.2
			}},
		{name: "used memory bandwidth is kept", machine: "p4d.24xlarge",
			w: observed().gpus(0, 1, 10, 5).gpus(1, 7, 0, 0).flat("0", usage.DRAMActive, 0.7).host(3, 4).w, all: true,
			holds: func(c Candidate) bool { return c.Accelerator.MemoryBandwidthGBps >= 1555*0.7/0.85 }},
		{
			name: "only a maximum over the GPUs", machine: "p3.8xlarge",
			w: maxima(observed().flat("", usage.GPUUtil, 10).flat("", usage.MemUsed, 10*gib).host(5, 5)), all: true,
			holds: func(c Candidate) bool {
				return float64(c.GPUs)*float64(c.Machine.AcceleratorMemoryMiB) >= 40*1024*1.2
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := machine(t, book, tc.machine)
			got, err := Advise(tc.w, m, region, book, Options{})
			if err != nil {
				t.Fatal(err)
			}
			own, ok := got.Hourly.Get()
			if !ok {
				t.Fatalf("%s has no price: %s", tc.machine, got.Unpriced)
			}
			any, noted := false, tc.against == ""
			for i, c := range got.Candidates {
				p, err := book.OnDemand(c.Machine.Type, region)
				hourly, _ := p.Hourly()
				saving, known := c.Saving.Get()
				want, _ := (own - hourly).Monthly()
				if err != nil || c.Hourly != hourly || hourly >= own || !known || saving != want || saving <= 0 {
					t.Errorf("%s at %s an hour saves %s a month on %s: %v", c.Machine.Type, c.Hourly, saving, own, err)
				}
				if i > 0 && c.Hourly < got.Candidates[i-1].Hourly && len(c.Lacks) <= len(got.Candidates[i-1].Lacks) {
					t.Errorf("%s comes after a more expensive type", c.Machine.Type)
				}
				if c.Accelerator.Vendor != "NVIDIA" || c.Machine.Arch != m.Arch || c.Machine.Type == m.Type {
					t.Errorf("%s is no candidate for %s", c.Machine.Type, m.Type)
				}
				if holds := tc.holds(c); holds {
					any = true
					noted = noted || slices.ContainsFunc(c.Against, func(s string) bool {
						return strings.Contains(s, tc.against)
					})
				} else if tc.all {
					t.Errorf("%s does not fit", c.Machine.Type)
				}
			}
			if !tc.all && !any {
				t.Errorf("none of %d candidates is as expected", len(got.Candidates))
			}
			if !noted {
				t.Errorf("nothing says %q against a candidate", tc.against)
			}
		})
	}
}

func maxima(k work) *usage.Window {
	k.w.Aggregated = true
	return k.w
}

func TestNoCandidatesForIdleGPUs(t *testing.T) {
	book := embedded(t)
	got, err := Advise(observed().gpus(0, 4, 0, 0).host(1, 1).w, machine(t, book, "p3.8xlarge"),
		region, book, Options{})
	if err != nil || len(got.Candidates) > 0 || got.GPUsUsed != 0 || got.Verdict != Overprovisioned {
		t.Errorf("GPUs that never compute: %d candidates, %d used, %s, %v; want none: they are idle",
			len(got.Candidates),
			got.GPUsUsed, got.Verdict, err)
	}
}

func TestUnpriced(t *testing.T) {
	book := embedded(t)
	got, err := Advise(observed().gpus(0, 1, 5, 2).host(5, 5).w, machine(t, book, "p3.2xlarge"), "xx-nowhere-1", book,
		Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, known := got.Hourly.Get(); known || got.Unpriced == "" || len(got.Candidates) > 0 ||
		got.Verdict != Overprovisioned {
		t.Errorf("without prices: %+v; want a verdict, the reason, no price and no candidates", got)
	}
	if _, err := Advise(nil, machine(t, book, "m5.large"), region, book,
		Options{}); !errors.Is(err, ErrNoAccelerator) {
		t.Errorf("a machine without GPUs: %v, want ErrNoAccelerator", err)
	}
	if _, err := Advise(nil, machine(t, book, "p3.2xlarge"), region, &price.Book{}, Options{}); !errors.Is(err,
		ErrNoAccelerator) {
		t.Errorf("an empty book: %v, want ErrNoAccelerator", err)
	}
}

// TestMoreUseNeverAddsCandidates: what fits heavier use fits lighter use too.
func TestMoreUseNeverAddsCandidates(t *testing.T) {
	book := embedded(t)
	types := []string{"p3.2xlarge", "p3.8xlarge", "p4d.24xlarge", "g5.12xlarge", "g6e.xlarge", "p5.48xlarge"}
	rapid.Check(t, func(t *rapid.T) {
		m := machine(t, book, rapid.SampledFrom(types).Draw(t, "type"))
		util := rapid.Float64Range(1, 100).Draw(t, "utilization")
		memory := rapid.Float64Range(0, float64(m.AcceleratorMemoryMiB)/1024).Draw(t, "memory")
		cpu, host := rapid.Float64Range(0, 100).Draw(t, "cpu"), rapid.Float64Range(0, 100).Draw(t, "host memory")
		less := rapid.Float64Range(0, 1).Draw(t, "part")
		active := rapid.IntRange(1, m.GPUs()).Draw(t, "active")
		advise := func(part float64) []string {
			w := observed().gpus(0, active, max(1, util*part), memory*part).gpus(active,
				m.GPUs()-active, 0, 0).host(cpu*part,
				host*part).w
			a, err := Advise(w, m, region, book, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, c := range a.Candidates {
				out = append(out, c.Machine.Type)
				if share := c.MemoryShare; share*1.2 > 1.0001 {
					t.Fatalf("%s would be %v full", c.Machine.Type, share)
				}
			}
			return out
		}
		light := advise(less)
		for _, heavy := range advise(1) {
			if !slices.Contains(light, heavy) {
				t.Fatalf("%s fits full use and not %v of it, which fits %v", heavy, less, light)
			}
		}
	})
}

// TestSharedOffersEqualFullSearch: judging many machines by the same offers answers as pricing
// every machine of the book again for each of them, and First as a search of all candidates.
func TestSharedOffersEqualFullSearch(t *testing.T) {
	book := embedded(t)
	types := []string{"p3.2xlarge", "p3.16xlarge", "p4d.24xlarge", "g5g.16xlarge", "g6.12xlarge", "g6e.xlarge"}
	regions := []string{region, "us-west-2", "eu-central-1", "xx-nowhere-1"}
	offers := NewOffers(book)
	rapid.Check(t, func(t *rapid.T) {
		from := machine(t, book, rapid.SampledFrom(types).Draw(t, "type"))
		where := rapid.SampledFrom(regions).Draw(t, "region")
		active := rapid.IntRange(1, from.GPUs()).Draw(t, "active")
		w := observed().
			gpus(0, active, rapid.Float64Range(1, 100).Draw(t, "utilization"),
				rapid.Float64Range(0, float64(from.AcceleratorMemoryMiB)/1024).Draw(t, "memory")).
			gpus(active, from.GPUs()-active, 0, 0).
			host(rapid.Float64Range(0, 100).Draw(t, "cpu"), rapid.Float64Range(0, 100).Draw(t, "host memory")).w
		s, err := offers.Size(w, from, where, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want, whole := fullSearch(t, &s, from, where, book)
		var got []string
		for c := range s.candidates {
			got = append(got, fmt.Sprint(c))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s in %s: got\n%s\nwant\n%s", from.Type, where, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
		skip := rapid.IntRange(0, 3).Draw(t, "skip")
		left := skip
		first, ok := s.First(func(Candidate) bool { left--; return left < 0 })
		if ok != (skip < len(whole)) || ok && fmt.Sprint(first) != whole[skip] {
			t.Fatalf("first after %d: %v, %v of %d", skip, first, ok, len(whole))
		}
	})
}

// fullSearch prices and judges every machine of the book, then sorts those that fit, and those of
// them that lack nothing.
func fullSearch(t *rapid.T, s *Sizing, from price.Machine, where string, book *price.Book) (list, whole []string) {
	var all []Candidate
	own, priced := s.Hourly.Get()
	for _, to := range book.Machines() {
		acc, known := book.Accelerator(to.Accelerator)
		p, err := book.OnDemand(to.Type, where)
		if to.Type == from.Type || to.Cloud != from.Cloud || to.Arch != from.Arch || !known || err != nil ||
			acc.Vendor != s.Accelerator.Vendor {
			continue
		}
		c := Candidate{Machine: to, Accelerator: acc, GPUs: to.GPUs(), Region: where, Price: p}
		if c.Hourly, err = p.Hourly(); err != nil {
			t.Fatal(err)
		}
		if !s.m.fits(&c, s.Accelerator, s.options) || priced && c.Hourly >= own {
			continue
		}
		if priced {
			monthly, err := (own - c.Hourly).Monthly()
			if err != nil {
				t.Fatal(err)
			}
			c.Saving = inventory.Known(monthly)
		}
		_, c.Lacks = s.m.lacks(&c, s.Accelerator, s.options)
		s.m.against(&c, s.Accelerator)
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y Candidate) int {
		return cmp.Or(cmp.Compare(x.Hourly, y.Hourly), cmp.Compare(len(x.Against), len(y.Against)),
			cmp.Compare(x.Machine.Type, y.Machine.Type))
	})
	for _, c := range all {
		list = append(list, fmt.Sprint(c))
		if len(c.Lacks) == 0 {
			whole = append(whole, fmt.Sprint(c))
		}
	}
	return list, whole
}
