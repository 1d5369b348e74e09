package finding

import (
	"fmt"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// reserve adds reserved instances of a type.
func (f *fixture) reserve(machineType string, n int64, change ...func(*inventory.Resource, *inventory.Commitment)) {
	d := &inventory.Commitment{
		CommitmentType: inventory.ReservedInstances, Count: n, Platform: inventory.LinuxPlatform,
		Hourly: inventory.Known(50 * money.Cent), EndsAt: now.Add(100 * day)}
	r := inventory.Resource{
		ID: "ri-" + machineType, Kind: inventory.KindCommitment, Type: machineType, State: inventory.StateRunning,
		Detail: d,
	}
	for _, c := range change {
		c(&r, d)
	}
	f.add(r)
}

func zonal(zone string) func(*inventory.Resource, *inventory.Commitment) {
	return func(r *inventory.Resource, d *inventory.Commitment) { r.Zone, d.Zonal = zone, true }
}

// plan adds a savings plan of a number of cents an hour.
func (f *fixture) plan(kind inventory.CommitmentType, cents money.Amount, fam string) {
	f.add(inventory.Resource{ID: "sp-1", Kind: inventory.KindCommitment, State: inventory.StateRunning,
		Detail: &inventory.Commitment{CommitmentType: kind, Hourly: inventory.Known(cents * money.Cent), Family: fam}})
}

func (f *fixture) machines(machineType string, idle, busy int,
	change ...func(*inventory.Resource, *inventory.Instance)) {
	for i := range idle {
		f.is(f.running(fmt.Sprintf("i-idle%d", i), machineType, change...), duty.Idle)
	}
	for i := range busy {
		f.is(f.running(fmt.Sprintf("i-busy%d", i), machineType, change...), duty.Busy)
	}
}

func TestReservedInstances(t *testing.T) {
	runScenarios(t, []scenario{
		{
			name:  "two of three machines are reserved, one idle: the reservation moves to the others",
			build: func(f *fixture) { f.reserve("g6.2xlarge", 2); f.machines("g6.2xlarge", 1, 2) },
			want:  []string{"gpu-instance-idle i-idle0 713.65"},
		},
		{
			name:  "all are reserved: ending one saves nothing",
			build: func(f *fixture) { f.reserve("g6.2xlarge", 3); f.machines("g6.2xlarge", 1, 2) },
			want:  []string{"gpu-instance-idle i-idle0 0.00 wasting 713.65"},
		},
		{
			name: "two idle of three, two reserved: the first one saves",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 2)
				f.machines("g6.2xlarge", 2, 1)
				f.Verdicts[f.Resources[1].Ref()] = f.Verdicts[f.Resources[2].Ref()]
			},
			want: []string{"gpu-instance-idle i-idle0 0.00 wasting 713.65", "gpu-instance-idle i-idle1 713.65"},
		},
		{
			name: "a machine on dedicated hardware leaves the reservation to the idle one",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 1)
				f.machines("g6.2xlarge", 1, 0)
				f.is(f.running("i-alone", "g6.2xlarge", func(_ *inventory.Resource, d *inventory.Instance) {
					d.Tenancy = "dedicated"
				}), duty.Busy)
			},
			want: []string{"gpu-instance-idle i-idle0 0.00 wasting 713.65"},
		},
		{
			name: "a zonal reservation covers its zone only",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 1, zonal("us-east-1b"))
				f.machines("g6.2xlarge", 1, 0)
			},
			want: []string{
				"gpu-instance-idle i-idle0 713.65", "commitment-unused ri-g6.2xlarge <=365.00 wasting 365.00",
			},
		},
		{
			name: "a zonal reservation in the machine's zone",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 1, zonal("us-east-1a"))
				f.machines("g6.2xlarge", 1, 0)
			},
			want: []string{"gpu-instance-idle i-idle0 0.00 wasting 713.65"},
		},
		{
			name:  "another size of a family that covers any size: unknown",
			build: func(f *fixture) { f.reserve("m5.xlarge", 1); f.machines("m5.large", 1, 1) },
			want:  []string{"instance-idle i-idle0 <=70.08 wasting 70.08"},
		},
		{
			name: "another size of a family that covers any size, for another platform",
			build: func(f *fixture) {
				f.reserve("m5.xlarge", 1)
				f.machines("m5.large", 1, 0)
				f.priced()
				f.Resources[1].Detail.(*inventory.Instance).Platform = "windows"
			},
			want: []string{"instance-idle i-idle0 70.08", "commitment-unused ri-m5.xlarge <=365.00 wasting 365.00"},
		},
		{
			name: "unused capacity of another platform than what is reserved",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 1)
				f.machines("g6.2xlarge", 0, 1)
				d := &inventory.CapacityReservation{
					Total: 2, Available: 1, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy,
				}
				f.add(inventory.Resource{
					ID: "cr-1", Kind: inventory.KindCapacityReservation, Type: "g6.2xlarge",
					CreatedAt: ago(60 * day), Detail: d,
				})
				f.priced()
				d.Platform = "rhel"
				f.Resources[1].Account = "444455556666" // it shares only reservations that fit
				f.Resources[0].Account = f.Resources[1].Account
				f.is(f.Resources[1], duty.Busy)
			},
			want: []string{"reservation-unused cr-1 713.65"},
		},
		{
			name: "an idle machine's addresses end with it",
			build: func(f *fixture) {
				f.machines("m5.large", 1, 0, func(_ *inventory.Resource, d *inventory.Instance) {
					d.PublicAddresses = 2
				})
			},
			want: []string{"instance-idle i-idle0 77.38"}, // 70.08 and two addresses of 3.65
		},
		{
			name:  "another size of a family that covers one size only",
			build: func(f *fixture) { f.reserve("g6.xlarge", 1); f.machines("g6.2xlarge", 1, 0) },
			want: []string{
				"gpu-instance-idle i-idle0 713.65", "commitment-unused ri-g6.xlarge <=365.00 wasting 365.00",
			},
		},
		{
			name: "reserved instances of an unknown platform",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 1, func(_ *inventory.Resource, d *inventory.Commitment) { d.Platform = "" })
				f.machines("g6.2xlarge", 1, 0)
			},
			want: []string{"gpu-instance-idle i-idle0 <=713.65 wasting 713.65"},
		},
		{
			name: "an ended reservation covers nothing",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 1, func(_ *inventory.Resource, d *inventory.Commitment) {
					d.EndsAt = ago(day)
				})
				f.machines("g6.2xlarge", 1, 0)
			},
			want: []string{"gpu-instance-idle i-idle0 713.65"},
		},
		{
			name: "spot machines are not covered",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 1)
				f.machines("g6.2xlarge", 1, 0, func(_ *inventory.Resource, d *inventory.Instance) {
					d.Market = inventory.Spot
				})
			},
			want: []string{
				"gpu-instance-idle i-idle0 " + spotMonth(t, "g6.2xlarge"),
				"commitment-unused ri-g6.2xlarge <=365.00 wasting 365.00",
			},
		},
		{
			name: "another account's reservations may be shared",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 1, func(r *inventory.Resource, _ *inventory.Commitment) {
					r.Cloud, r.Account = "aws", "210987654321"
				})
				f.machines("g6.2xlarge", 1, 0)
			},
			want: []string{"gpu-instance-idle i-idle0 <=713.65 wasting 713.65"},
		},
		{
			name: "where another account's machines could not be listed nothing is known to be unused",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 1)
				f.Unread = map[string]bool{"210987654321/us-east-1/instance": true}
			},
		},
		{
			name: "of three reserved at most one covers another account's machine",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 3, func(r *inventory.Resource, _ *inventory.Commitment) {
					r.Cloud, r.Account = "aws", "210987654321"
				})
				f.machines("g6.2xlarge", 0, 1)
			},
			want: []string{"commitment-unused ri-g6.2xlarge <=243.33 wasting 243.33"},
		},
		{
			name: "another account's machines of the family may use units up",
			build: func(f *fixture) {
				f.reserve("m5.xlarge", 2, func(r *inventory.Resource, _ *inventory.Commitment) {
					r.Cloud, r.Account = "aws", "210987654321"
				})
				f.machines("m5.large", 0, 2)
			},
			want: []string{"commitment-unused ri-m5.xlarge <=182.50 wasting 182.50"},
		},
		{
			name: "an unused zonal reservation and a regional one in full use",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 2, zonal("us-east-1b"))
				f.reserve("g6.2xlarge", 2, func(r *inventory.Resource, _ *inventory.Commitment) {
					r.ID = "ri-regional"
				})
				f.machines("g6.2xlarge", 0, 2)
			},
			want: []string{"commitment-unused ri-g6.2xlarge <=365.00 wasting 365.00"},
		},
		{
			name: "half of a family's units are unused",
			build: func(f *fixture) {
				f.reserve("m5.xlarge", 2)
				f.machines("m5.large", 0, 2)
			},
			want: []string{"commitment-unused ri-m5.xlarge <=182.50 wasting 182.50"},
		},
	})
	f := newFixture(t)
	f.reserve("g6.2xlarge", 1)
	f.machines("g6.2xlarge", 1, 0)
	if got := only(t, f.evaluate(), "gpu-instance-idle"); !strings.Contains(got.Fix.Note,
		"covered by a reserved instance that is still charged") {
		t.Errorf("note %q does not say that the reserved instance goes on costing", got.Fix.Note)
	}
}

func TestSavingsPlans(t *testing.T) {
	runScenarios(t, []scenario{
		{
			// Nine busy machines cost 8.80 an hour at list price and at least 2.46 at
			// the largest discount.
			name:  "what goes on running uses the plan in full",
			build: func(f *fixture) { f.plan(inventory.ComputeSavingsPlan, 246, ""); f.machines("g6.2xlarge", 1, 9) },
			want:  []string{"gpu-instance-idle i-idle0 713.65"},
		},
		{
			name:  "a cent more and the result is unknown",
			build: func(f *fixture) { f.plan(inventory.ComputeSavingsPlan, 247, ""); f.machines("g6.2xlarge", 1, 9) },
			want:  []string{"gpu-instance-idle i-idle0 <=713.65 wasting 713.65"},
		},
		{
			name: "an instance plan of another family does not apply",
			build: func(f *fixture) {
				f.plan(inventory.InstanceSavingsPlan, 10, "g5")
				f.machines("g6.2xlarge", 1, 0)
			},
			want: []string{"gpu-instance-idle i-idle0 713.65", "commitment-unused sp-1 <=73.00 wasting 73.00"},
		},
		{
			name: "an instance plan of the family",
			build: func(f *fixture) {
				f.plan(inventory.InstanceSavingsPlan, 10, "g6")
				f.machines("g6.2xlarge", 1, 0)
			},
			want: []string{"gpu-instance-idle i-idle0 <=713.65 wasting 713.65"},
		},
		{
			name:  "a SageMaker plan does not apply to machines",
			build: func(f *fixture) { f.plan(inventory.MachineLearningPlan, 10, ""); f.machines("g6.2xlarge", 1, 0) },
			want:  []string{"gpu-instance-idle i-idle0 713.65", "commitment-unused sp-1 <=73.00 wasting 73.00"},
		},
		{
			// The two machines cost 1.96 an hour; on spot the plan does not apply, whatever they
			// cost.
			name: "what moves to spot no longer uses the plan",
			build: func(f *fixture) {
				f.plan(inventory.ComputeSavingsPlan, 10, "")
				f.machines("g6.2xlarge", 0, 2, training, fresh)
			},
			want: []string{
				"training-on-demand i-busy0 <=" + spotSaving(t, "g6.2xlarge"),
				"training-on-demand i-busy1 <=" + spotSaving(t, "g6.2xlarge"),
			},
		},
		{
			name: "what changes to another family no longer uses the plan of its own",
			build: func(f *fixture) {
				f.plan(inventory.InstanceSavingsPlan, 10, "p3")
				f.machines("p3.2xlarge", 0, 1)
			},
			want: []string{"generation-old i-busy0 <=" + successorSaving(t, "p3.2xlarge")},
		},
		{
			name: "reserved machines do not use the plan up",
			build: func(f *fixture) {
				f.reserve("g6.2xlarge", 9)
				f.plan(inventory.ComputeSavingsPlan, 100, "")
				f.machines("g6.2xlarge", 1, 9)
			},
			want: []string{"gpu-instance-idle i-idle0 <=713.65 wasting 713.65"},
		},
	})
}

// spotSaving returns the monthly saving of moving one machine to spot without a plan.
func spotSaving(t *testing.T, machineType string) string {
	t.Helper()
	f := newFixture(t)
	f.is(f.running("i-1", machineType, training, fresh), duty.Busy)
	return only(t, f.evaluate(), "training-on-demand").Savings.Amount.Cents()
}

// successorSaving returns the monthly saving of the newer type without a plan, or its upper bound
// if its host is smaller.
func successorSaving(t *testing.T, machineType string) string {
	t.Helper()
	f := newFixture(t)
	f.is(f.running("i-1", machineType), duty.Busy)
	s := only(t, f.evaluate(), "generation-old").Savings
	return max(s.Amount, s.UpperBound).Cents()
}
