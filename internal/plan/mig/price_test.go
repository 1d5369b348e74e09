package mig

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// TestChargeAddsUpGPUs compares the dollars of random plans with the sum over their GPUs.
func TestChargeAddsUpGPUs(t *testing.T) {
	cents := map[string]int64{"A100-40GB": 273, "A30": 120} // H100-80GB has no price
	rapid.Check(t, func(rt *rapid.T) {
		var r Report
		hour, apart, known := int64(0), int64(0), true
		for i := range rapid.IntRange(0, 6).Draw(rt, "gpus") {
			model := rapid.SampledFrom([]string{"A100-40GB", "A30", "H100-80GB"}).Draw(rt, "model")
			n := rapid.IntRange(1, 7).Draw(rt, "placements")
			r.GPUs = append(r.GPUs, GPU{GPU: fmt.Sprint(i), Model: model, Placements: make([]Placement, n)})
			hour, apart = hour+cents[model], apart+cents[model]*int64(n)
			known = known && cents[model] > 0
		}
		var before map[string]int
		was := apart * 730
		if rapid.Bool().Draw(rt, "current") {
			before = map[string]int{"A30": rapid.IntRange(0, 9).Draw(rt, "before")}
			was = int64(before["A30"]) * 120 * 730
		}
		if err := r.Charge(func(model string) (GPUPrice, error) {
			p := GPUPrice{Model: model}
			if c := cents[model]; c > 0 {
				p.HourUSD = money.Known(money.Amount(c) * money.Cent)
			}
			return p, nil
		}, before); err != nil {
			rt.Fatal(err)
		}
		got, ok := r.Cost.HourUSD.Get()
		saving, saves := r.Cost.SavingUSD.Get()
		if ok != known || saves != known {
			rt.Fatalf("cost known: %v, saving known: %v, want %v", ok, saves, known)
		}
		if known && (got != money.Amount(hour)*money.Cent || saving != money.Amount(was-hour*730)*money.Cent) {
			rt.Fatalf("%s an hour saving %s a month, want %d and %d cents", got, saving, hour, was-hour*730)
		}
	})
}

// TestPriceOfGPU checks that the price of a GPU is that of the cheapest machine for each of its
// whole GPUs.
func TestPriceOfGPU(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	p, err := PriceOf(book, "A100-40GB", "us-east-1", 0)
	if err != nil {
		t.Fatal(err)
	}
	machine, _ := book.OnDemand("p4d.24xlarge", "us-east-1")
	eighth, err := machine.Cost(1, 8)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := p.HourUSD.Get(); !ok || v != eighth || p.Machine != "p4d.24xlarge" || p.AsOf == "" {
		t.Errorf("%+v, want %s", p, eighth)
	}
	if p, err = PriceOf(book, "A30", "us-east-1", 0); err != nil || p.HourUSD.Known() || p.Why == "" {
		t.Errorf("a GPU that is not for sale: %+v, %v", p, err)
	}
	if p, err = PriceOf(book, "A30", "us-east-1", money.USD); err != nil || p.HourUSD != money.Known(money.USD) {
		t.Errorf("a given price: %+v, %v", p, err)
	}
}

// TestGPUsOfCurrentPlacements counts each GPU once, under the name of its model.
func TestGPUsOfCurrentPlacements(t *testing.T) {
	fleet, err := ParseFleet("A100-80GB:4,A30")
	if err != nil {
		t.Fatal(err)
	}
	got := GPUsOf(fleet, []Placed{{GPU: "0"}, {GPU: "0"}, {GPU: "1"}, {GPU: "2", Model: "A30"}})
	if got["A100-80GB"] != 2 || got["A30-24GB"] != 1 || len(got) != 2 {
		t.Errorf("%v", got)
	}
}
