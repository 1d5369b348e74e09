package rightsize_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// cpuWindow is two weeks of hourly samples of CPU and, from 0 on, memory in percent.
func cpuWindow(cpu []float64, memory float64) *usage.Window {
	to := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	w := usage.NewWindow(to.Add(-time.Duration(len(cpu))*time.Hour), to, time.Hour, "test", nil)
	for i, v := range cpu {
		at := w.From.Add(time.Duration(i) * time.Hour)
		w.Add("", usage.CPUUtil, usage.Point{Time: at, Mean: v, Max: v})
		if memory >= 0 {
			w.Add("", usage.HostMemUsed, usage.Point{Time: at, Mean: memory, Max: memory})
		}
	}
	return w
}

func every(v float64) []float64 { return slices.Repeat([]float64{v}, 14*24) }

// TestCPUMachineIsSizedByItsPercentile checks that the cheapest type that carries the 95th
// percentile of CPU and the peak of memory with headroom; burstable only where its credits last.
func TestCPUMachineIsSizedByItsPercentile(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	batch := every(2) // a night of full work, in under 5% of the hours
	for h := range 14 {
		batch[30+h] = 100
	}
	for name, tc := range map[string]struct {
		machine string
		cpu     []float64
		memory  float64
		vcpus   int
		memGiB  int64
		why     string
	}{
		"a quarter used":              {"m6i.4xlarge", every(25), 20, 8, 16, ""},
		"memory unmeasured":           {"m6i.4xlarge", every(20), -1, 4, 64, ""},
		"memory full":                 {"m6i.4xlarge", every(20), 80, 4, 64, ""},
		"hardly used, burstable":      {"m6i.large", every(2), 10, 2, 1, ""},
		"peaks that outlast credits":  {"m6i.large", batch, 10, 0, 0, ""},
		"well used":                   {"m6i.4xlarge", every(75), 20, 0, 0, "p95 CPU utilization 75%"},
		"burstable over its baseline": {"t3.large", every(31), 20, 0, 0, "credits"},
	} {
		t.Run(name, func(t *testing.T) {
			from, ok := book.Machine(tc.machine)
			if !ok {
				t.Fatal("no such machine")
			}
			s, err := rightsize.NewOffers(book).SizeCPU(cpuWindow(tc.cpu, tc.memory), from, "us-east-1",
				rightsize.Options{})
			if err != nil || !strings.Contains(s.Why, tc.why) || tc.why == "" && s.Why != "" {
				t.Fatalf("%q, %v", s.Why, err)
			}
			c, ok := s.First(from.Arch, nil)
			_, burstable := rightsize.Baseline(c.Machine.Type)
			if ok != (tc.vcpus > 0) || c.Machine.VCPUs < tc.vcpus || c.Machine.MemoryMiB < tc.memGiB<<10 {
				t.Errorf("%+v", c)
			}
			if want := strings.HasPrefix(name, "hardly"); want != burstable {
				t.Errorf("%s is burstable: %v", c.Machine.Type, burstable)
			}
		})
	}
}

// TestCheapestFittingCPUMachine compares the advice with every type of the book, hour by hour: work is
// carried within the credits, and nothing that is cheaper and not burstable would do.
func TestCheapestFittingCPUMachine(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	offers := rightsize.NewOffers(book)
	rapid.Check(t, func(rt *rapid.T) {
		from, _ := book.Machine(rapid.SampledFrom([]string{
			"m6i.xlarge", "m5.4xlarge", "c7i.2xlarge", "r6i.8xlarge", "m7g.2xlarge", "t3.2xlarge",
		}).Draw(rt, "type"))
		base, peak := rapid.Float64Range(0.5, 30).Draw(rt, "base"), rapid.Float64Range(1, 100).Draw(rt, "peak")
		length, memory := rapid.IntRange(0, 20).Draw(rt, "hours"), rapid.Float64Range(1, 70).Draw(rt, "memory")
		cpu := every(base)
		for i := range cpu {
			if i%168 < length {
				cpu[i] = peak
			}
		}
		s, err := offers.SizeCPU(cpuWindow(cpu, memory), from, "us-east-1", rightsize.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		if s.Why != "" {
			return
		}
		c, ok := s.First(from.Arch, nil)
		sorted := slices.Sorted(slices.Values(cpu))
		p95 := sorted[len(sorted)*95/100-1] / 100 * float64(from.VCPUs)
		if s.UtilP95 < 5 { // it mostly rests: the peak is its work
			p95 = sorted[len(sorted)-1] / 100 * float64(from.VCPUs)
		}
		if share, burstable := rightsize.Baseline(c.Machine.Type); ok && burstable {
			balance := 0.0
			for _, v := range cpu {
				balance = min(balance+share*float64(c.Machine.VCPUs)-v/100*float64(from.VCPUs),
					24*share*float64(c.Machine.VCPUs))
				if balance < 0 {
					rt.Fatalf("%s runs out of credits", c.Machine.Type)
				}
			}
		}
		if ok && (float64(c.Machine.VCPUs) < p95 ||
			float64(c.Machine.MemoryMiB) < memory/100*float64(from.MemoryMiB)) {
			rt.Fatalf("%s does not carry %.2f vCPUs", c.Machine.Type, p95)
		}
		for _, m := range book.Machines() {
			if m.Arch != from.Arch || m.GPUs() > 0 || m.Cloud != "aws" || strings.HasPrefix(m.Type, "t") ||
				strings.Contains(m.Type, "metal") || m.Type[1] < from.Type[1] ||
				m.VCPUs >= from.VCPUs && m.MemoryMiB >= from.MemoryMiB || m.Type == from.Type ||
				float64(m.VCPUs) < max(1, 1.25*p95) || m.InstanceStorageGB < from.InstanceStorageGB ||
				float64(m.MemoryMiB) < 1.25*memory/100*float64(from.MemoryMiB) {
				continue
			}
			p, err := book.OnDemand(m.Type, "us-east-1")
			if err != nil {
				continue
			}
			hourly, err := p.Hourly()
			if own, _ := s.Hourly.Get(); err == nil && hourly < own && (!ok || hourly < c.Hourly) {
				rt.Fatalf("%s at %s is cheaper than %s at %s", m.Type, hourly, c.Machine.Type, c.Hourly)
			}
		}
	})
}
