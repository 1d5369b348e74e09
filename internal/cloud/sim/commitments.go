package sim

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// reservations adds reserved capacity, which machines then run in.
func (a *account) reservations() {
	for _, x := range []struct {
		name, machineType, region string
		owner                     owner
		age                       float64
		total, used               int64
		planted                   Planted
	}{
		{"support-serve", "g5.12xlarge", east, dmitri.production(), 70, 1, 1, honest("in use")},
		{
			"retrieval-demo", "g5.2xlarge", west, fatima, 24, 3, 1,
			waste("reserved for a demonstration, two of three unused", "reservation-unused"),
		},
	} {
		z := zone(x.region, x.name)
		e := a.add(inventory.Resource{
			Name: x.name, Kind: inventory.KindCapacityReservation, Region: x.region, Zone: z, Type: x.machineType,
			State: inventory.StateAvailable, CreatedAt: a.ago(days(x.age)),
			Detail: &inventory.CapacityReservation{
				Total: x.total, Available: x.total - x.used, Platform: inventory.LinuxPlatform,
				Tenancy: inventory.SharedTenancy},
		}, "cr-", 17, x.owner, x.planted)
		e.counted = usage.Capacity
		used := float64(x.used)
		e.count = func(time.Time) (float64, bool) { return used, true }
	}
}

// commitments adds the commitments. The savings plan is small against the machines that would still
// run without the waste, so that it is used whatever is stopped; no wasted machine has a type of
// the reserved machines.
func (a *account) commitments() {
	for _, x := range []struct {
		name, machineType string
		region            string
		kind              inventory.CommitmentType
		count             int64
		hourly            money.Amount
		age               float64
		planted           Planted
	}{
		{"compute-plan", "", east, inventory.ComputeSavingsPlan, 0, 6000 * millidollar, 150, honest("used in full")},
		{
			"console-reserved", "m6i.large", east, inventory.ReservedInstances, 3, 181 * millidollar, 150,
			honest("used in full"),
		},
		{
			"sync-reserved", "g4dn.2xlarge", west, inventory.ReservedInstances, 3, 1422 * millidollar, 220,
			waste("three reserved, one runs", "commitment-unused"),
		},
	} {
		starts := a.ago(days(x.age)).Truncate(time.Hour)
		d := &inventory.Commitment{
			CommitmentType: x.kind, Count: x.count, Hourly: inventory.Known(x.hourly), StartsAt: starts,
			EndsAt: starts.AddDate(1, 0, 0),
		}
		if x.kind == inventory.ReservedInstances {
			d.Platform = inventory.LinuxPlatform
		}
		k := newKey(a.seed, "commitment/"+x.name)
		h := k.hex(32)
		a.add(inventory.Resource{
			ID: h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32], Name: x.name,
			Kind:   inventory.KindCommitment,
			Region: x.region, Type: x.machineType, State: inventory.StateRunning, CreatedAt: starts, Detail: d,
		}, "", 0, ops.production(), x.planted)
	}
}

const millidollar = 1_000_000 * money.NanoUSD
