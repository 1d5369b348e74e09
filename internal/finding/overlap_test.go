package finding

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/spot"
)

// TestSpotAndSmallerTypeDoNotOverlap compares the sum of both findings about one machine with
// the cost of the final machine: the smaller type on spot, restarts included.
func TestSpotAndSmallerTypeDoNotOverlap(t *testing.T) {
	f := newFixture(t)
	r := f.running("i-1", "p4d.24xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
		r.Purpose, r.Lifetime = inventory.Training, inventory.Ephemeral
	})
	f.eight(r, 1, 70, 10<<30)
	f.judge = true
	found := f.evaluate()
	toSpot, smaller := only(t, found, "training-on-demand"), only(t, found, "gpu-count-over")
	to := smaller.Fix.Change.Arguments.Type
	monthly := func(spotPrice bool, machine string) money.Amount {
		p, err := f.Prices.OnDemand(machine, "us-east-1")
		if spotPrice {
			p, err = f.Prices.Spot(machine, "us-east-1")
		}
		if err != nil {
			t.Fatalf("price %s: %v", machine, err)
		}
		m, err := p.Cost(money.HoursPerMonth, 1)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	over := 1 + spot.Overhead(0.33, spot.CheckpointEvery, spot.Restart)
	before, after := monthly(false, "p4d.24xlarge"), money.Amount(float64(monthly(true, to))*over)
	if got, want := toSpot.Savings.Amount+smaller.Savings.Amount, before-after; max(got-want, want-got) > money.Cent {
		t.Errorf("together they save %s of %s; %s on spot leaves %s", got, before, to, after)
	}
	if !toSpot.Savings.Known || !smaller.Savings.Known || smaller.Savings.Amount >= before-monthly(false, to) {
		t.Errorf("spot %+v, the smaller type %+v", toSpot.Savings, smaller.Savings)
	}
}
