package rightsize

import (
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// lightWork is a day in which so many GPUs of a machine do little with 2 GiB of memory.
func lightWork(gpus int) *usage.Window {
	from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	w := usage.NewWindow(from, from.Add(24*time.Hour), time.Hour, "test", nil)
	for h := range 24 {
		at := from.Add(time.Duration(h) * time.Hour)
		for g := range gpus {
			name := string(rune('0' + g))
			w.Add(name, usage.GPUUtil, usage.Point{Time: at, Mean: 8, Max: 8})
			w.Add(name, usage.SMActive, usage.Point{Time: at, Mean: 0.05, Max: 0.05})
			w.Add(name, usage.MemUsed, usage.Point{Time: at, Mean: 2 << 30, Max: 2 << 30})
		}
		w.Add("", usage.CPUUtil, usage.Point{Time: at, Mean: 5, Max: 5})
		w.Add("", usage.HostMemUsed, usage.Point{Time: at, Mean: 5, Max: 5})
	}
	return w
}

// TestNeverHeadsWithGPUThatLacksFeatures compares every type of the book: what heads the list has all
// that the work may use, or that it was said to use.
func TestNeverHeadsWithGPUThatLacksFeatures(t *testing.T) {
	book := embedded(t)
	tested := 0
	for _, from := range book.Machines() {
		acc, ok := book.Accelerator(from.Accelerator)
		if !ok || from.Cloud != "aws" || from.GPUs() == 0 || from.GPUs() > 8 || from.AcceleratorMilli < 1000 {
			continue
		}
		for name, o := range map[string]Options{
			"unknown": {}, "none": {NeedsKnown: true}, "bf16": {Needs: []Feature{BF16}, NeedsKnown: true},
			"nvlink": {Needs: []Feature{NVLink}, NeedsKnown: true}, "fp8": {Needs: []Feature{FP8}, NeedsKnown: true},
		} {
			a, err := Advise(lightWork(from.GPUs()), from, "us-east-1", book, o)
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Candidates) == 0 {
				continue
			}
			tested++
			c := a.Candidates[0]
			noBF16 := c.Accelerator.Precision != "bf16"
			slowLinks := c.GPUs > 1 && from.GPUs() > 1 && !c.Accelerator.NVLink()
			switch {
			case name == "none":
				if len(c.Lacks) > 0 {
					t.Errorf("%s: %s lacks %v, which the work does not use", from.Type, c.Machine.Type, c.Lacks)
				}
			case name == "bf16" && noBF16, name == "nvlink" && slowLinks,
				name == "fp8" && c.Accelerator.FP8TFLOPS == 0:
				t.Errorf("%s, needs %s: %s is advised", from.Type, name, c.Machine.Type)
			case name == "unknown" && len(c.Lacks) == 0 &&
				(noBF16 && acc.Precision == "bf16" || slowLinks && acc.NVLink()):
				t.Errorf("%s: %s is advised", from.Type, c.Machine.Type)
			case name == "unknown" && len(c.Lacks) > 0 &&
				slices.ContainsFunc(a.Candidates, func(x Candidate) bool { return len(x.Lacks) == 0 }):
				t.Errorf("%s: %s lacks %v and stands before others", from.Type, c.Machine.Type, c.Lacks)
			}
		}
	}
	if tested < 20 {
		t.Errorf("%d comparisons were made", tested)
	}
}

func TestAdvisedTypeLacksNothing(t *testing.T) {
	f := Figures{Fits: []Fit{{Type: "g4dn.xlarge", Lacks: []string{"bf16"}}}}
	if got, ok := f.Advised(); ok {
		t.Errorf("%s is advised", got.Type)
	}
	f.Fits[0].Lacks = nil
	if _, ok := f.Advised(); !ok {
		t.Error("nothing is advised")
	}
}

func TestReasonsNameWhatToMeasure(t *testing.T) {
	for name := range nextSteps {
		if reason(name, usage.Unknown, "").Next == "" || reason(name, usage.True, "").Next == "" ||
			reason(name, usage.False, "").Next != "" {
			t.Errorf("%s: what comes next is not told", name)
		}
	}
	m := measure(lightWork(1), price.Machine{Type: "x", AcceleratorMilli: 1000, VCPUs: 8}, price.Accelerator{},
		Options{
			MinCoverage: 0.9, Headroom: 0.2,
		})
	got := m.reasons(Overprovisioned)
	if len(got) != 5 {
		t.Fatalf("%d causes: %+v", len(got), got)
	}
	for _, r := range got {
		if _, ok := nextSteps[r.Name]; !ok || r.Answer != usage.False.String() && r.Next == "" || r.Why == "" {
			t.Errorf("cause %+v", r)
		}
	}
}
