package finding

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// servingGroup adds an Auto Scaling group of machines with a load.
func servingGroup(f *fixture, n int, load func(at time.Time) float64) {
	f.judge = true
	g := &inventory.AutoScalingGroup{Min: 1, Max: 8, Desired: int64(n)}
	for i := range n {
		r := f.running(fmt.Sprintf("i-%d", i), "g5.xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
			r.Purpose = inventory.Inference
			r.Manager = inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: "embed"}
		})
		w := f.window(r, 14*day)
		series(w, "0", usage.GPUUtil, load)
		series(w, "", usage.CPUUtil, always(30))
		series(w, "", usage.NetBytes, always(1e6))
		g.Instances = append(g.Instances, r.ID)
	}
	f.add(inventory.Resource{
		ID: "embed", Kind: inventory.KindAutoScalingGroup, State: inventory.StateAvailable,
		CreatedAt: ago(60 * day), Detail: g,
	})
}

// byDay is a load in percent that is high in one half of each day and low in the other.
func byDay(high, low float64) func(time.Time) float64 {
	return func(at time.Time) float64 {
		if at.UTC().Hour() < 12 {
			return high
		}
		return low
	}
}

// TestPolicyOfAnOverprovisionedGroup replays the load of a group against the sizes that it asks for by
// hand: of five machines at 42% half of the day, three are needed then, and one at 2%.
func TestPolicyOfAnOverprovisionedGroup(t *testing.T) {
	f := newFixture(t)
	servingGroup(f, 5, byDay(42, 2))
	d := only(t, f.evaluate(), "inference-overprovisioned")
	p := d.Fix.Policy
	if p == nil || p.Text != "{name: follow-asg-embed, then: [{do: scale, fleet: asg/embed, min: 1, max: 8, target: 0.7}]}" {
		t.Fatalf("policy %+v", p)
	}
	// Half of the buckets of 6 hours hold 42%, and each of them is of one load.
	if p.Why != "" || p.Window != 14*day || math.Abs(p.MeanReplicas-2.0) > 0.15 || p.ShortShare > 0.05 {
		t.Errorf("got %+v, want about 2 replicas on average", p)
	}
	month := f.chargesOf(t, "i-0")
	saved, err := month.Mul(int64((5-p.MeanReplicas)*1e6), 1e6)
	if err != nil {
		t.Fatal(err)
	}
	if diff := float64(p.Savings - saved); !p.Priced || math.Abs(diff) > 0.001*float64(saved) {
		t.Errorf("saves %s, want %s", p.Savings, saved)
	}
}

// chargesOf returns the compute of a machine a month.
func (f *fixture) chargesOf(t *testing.T, id string) (sum money.Amount) {
	t.Helper()
	for ref, charges := range f.Charges {
		if ref.ID != id {
			continue
		}
		for _, c := range charges {
			if c.Category == ledger.Compute {
				sum += c.ListCost
			}
		}
	}
	return sum
}

// TestPolicyOfUnmeasuredFleets prints the policy without a saving where a part of the load is unknown.
func TestPolicyOfUnmeasuredFleets(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(f *fixture)
		want   string
	}{
		{"a machine without samples", func(f *fixture) {
			f.Windows[f.Resources[1].Ref()] = nil
			f.is(f.Resources[0], duty.Idle)
		}, "i-1 was not measured"},
		{"three days of samples", func(f *fixture) {
			for _, r := range f.Resources[:3] {
				w := f.window(r, 14*day)
				series(w, "0", usage.GPUUtil, func(at time.Time) float64 {
					if at.Before(ago(3 * day)) {
						return -1
					}
					return 0
				})
				f.is(r, duty.Idle)
			}
		}, "less than 7 days"},
		{"a machine that was not read", func(f *fixture) {
			f.group().Instances = append(f.group().Instances, "i-gone")
			f.is(f.Resources[0], duty.Idle)
		}, "i-gone was not read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			servingGroup(f, 3, always(0))
			tc.change(f)
			d := only(t, f.evaluate(), "autoscaling-sticky")
			if p := d.Fix.Policy; p == nil || !strings.Contains(p.Why, tc.want) || p.Savings != 0 ||
				!strings.Contains(p.Text, "fleet: asg/embed") {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func (f *fixture) group() *inventory.AutoScalingGroup {
	return f.Resources[len(f.Resources)-1].Detail.(*inventory.AutoScalingGroup)
}

// TestPolicyOfMachinesOfDifferentAge replays the time in which all members ran.
func TestPolicyOfMachinesOfDifferentAge(t *testing.T) {
	f := newFixture(t)
	servingGroup(f, 4, always(30))
	for _, r := range f.Resources[:2] {
		w := f.window(r, 9*day)
		series(w, "0", usage.GPUUtil, always(30))
		series(w, "", usage.CPUUtil, always(30))
		series(w, "", usage.NetBytes, always(1e6))
	}
	p := only(t, f.evaluate(), "inference-overprovisioned").Fix.Policy
	if p == nil || p.Why != "" || p.Window < 9*day-time.Hour || p.Window > 9*day || math.Abs(p.MeanReplicas-2) > 0.1 {
		t.Errorf("got %+v, want two replicas for nine days", p)
	}
}

// TestNamesThatNeedQuotesHaveNoPolicy leaves the policy out where its line would be read as another one.
func TestNamesThatNeedQuotesHaveNoPolicy(t *testing.T) {
	f := newFixture(t)
	servingGroup(f, 3, always(0))
	f.is(f.Resources[0], duty.Idle)
	f.Resources[len(f.Resources)-1].ID = "embed}], do: [x"
	if p := only(t, f.evaluate(), "autoscaling-sticky").Fix.Policy; p != nil {
		t.Errorf("got %+v", p)
	}
}
