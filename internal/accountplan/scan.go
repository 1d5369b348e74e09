package accountplan

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
)

// ErrUnmeasured is returned when no running machine was measured.
var ErrUnmeasured = errors.New("no running machine was measured")

// Rightsize right-sizes every running machine of a scan: GPU machines by their GPUs, others by their
// CPUs where a move saves at least a share of the price. It returns [ErrUnmeasured] if no machine was
// measured.
func Rightsize(r *round.Result, book *price.Book, o rightsize.Options, leastSaving float64) (
	rightsize.Report, error) {
	var machines []rightsize.Measured
	for _, res := range r.Resources {
		w := r.Windows[res.Ref()]
		if res.Kind != inventory.KindInstance || res.State != inventory.StateRunning || w == nil {
			continue
		}
		m := rightsize.Measured{
			Name: cmp.Or(res.Name, res.ID), Type: res.Type, Region: res.Region, Purpose: res.Purpose, Window: w,
			Host: !res.Size.Accelerated(),
		}
		if d, ok := res.Detail.(*inventory.Instance); ok {
			m.Spot = d.Market == inventory.Spot
		}
		if v, judged := r.Duty(res); !judged || v.State != duty.Busy { // as in the findings of right-sizing
			m.Rest, m.RestWhy = v.State.String(), v.Why
		}
		machines = append(machines, m)
	}
	if len(machines) == 0 {
		return rightsize.Report{}, fmt.Errorf("right-size the account: %w", ErrUnmeasured)
	}
	return rightsize.FromWindows("the account", machines, book, rightsize.Params{
		Options: o, LeastSaving: leastSaving,
	})
}

// Fleets is the plan of an account's serving fleets, in JSON form.
type Fleets struct {
	Schema string  `json:"schema"`
	Target float64 `json:"target"`
	// Fleets are the serving fleets.
	Fleets []Fleet `json:"fleets"`
	// Assumptions are the assumptions behind the numbers.
	Assumptions []string `json:"assumptions"`
}

// Fleet is the plan of one serving fleet.
type Fleet struct {
	Team     string `json:"team,omitempty"`
	Project  string `json:"project,omitempty"`
	Resource string `json:"resource"` // one of its machines
	Type     string `json:"type"`
	Region   string `json:"region"`
	// Machines is the number of machines.
	Machines int `json:"machines"`
	// Load is the sum of the p95 utilization, in machines.
	Load float64 `json:"load_machines"`
	// Utilization is the share of capacity in use.
	Utilization float64 `json:"utilization"`
	// Replicas is the number of machines that carry the load at the target.
	Replicas int `json:"replicas"`
	// UtilizationAfter is the utilization with the planned machines.
	UtilizationAfter float64 `json:"utilization_after"`
	// CostUSDPerHour is the hourly cost in dollars; null without a price.
	CostUSDPerHour money.Dollars `json:"cost_usd_per_hour"`
	// Note is a warning: less than a week of samples, or a load that stays over 85%.
	Note string `json:"note,omitempty"`
	// SavingUSD is the monthly cost of unneeded machines, negative for additional ones; null
	// without a price.
	SavingUSD money.Dollars `json:"monthly_saving_usd"`
}

// Capacity plans the machines of every serving fleet of a scan for a target utilization, over
// 0 and below 1.
func Capacity(r *round.Result, book *price.Book, t finding.Thresholds, target float64, now time.Time) (Fleets, error) {
	out := Fleets{capacity.Schema, target, []Fleet{}, []string{
		"running machines with purpose inference, of one owner, type and region, are one fleet; its load is the sum of " +
			"the p95 GPU utilization of its machines",
		"a fleet with an unmeasured machine is left out; idle machines are not counted",
		"a fleet at 60% to 80% utilization stays as it is, unless --headroom is given",
		"the remaining machines have enough GPU memory for all work, with 20% headroom; in production at least two remain",
	}}
	fleets, err := finding.Fleets(&finding.Account{
		Now: now, Resources: r.Resources, Windows: r.Windows, Verdicts: r.Verdicts, Prices: book,
	}, t)
	if err != nil {
		return out, fmt.Errorf("find serving fleets: %w", err)
	}
	for _, f := range fleets {
		p, err := plan(f, r.Charges[f.Resource.Ref()], target)
		if err != nil {
			return out, err
		}
		out.Fleets = append(out.Fleets, p)
	}
	return out, nil
}

// plan plans one fleet by the rule of its finding. Charges are those of one machine.
func plan(f finding.Fleet, charges []ledger.Charge, target float64) (Fleet, error) {
	res := f.Resource
	p := Fleet{
		Team: res.Owner.Team, Project: res.Owner.Project, Resource: res.ID, Type: res.Type, Region: res.Region,
		Machines: f.Machines, Load: f.Load,
		Utilization: f.Load / float64(f.Machines), Replicas: f.Needed(target)}
	p.UtilizationAfter = f.Load / float64(p.Replicas)
	switch {
	case p.UtilizationAfter > capacity.CrowdedAbove:
		p.Note = fmt.Sprintf("%s utilization is over %s: no room for a rise, latency grows fast",
			plain.Share(p.UtilizationAfter, 1), plain.Share(capacity.CrowdedAbove, 0))
	case p.Replicas == p.Machines && p.Machines > 1 && p.UtilizationAfter < capacity.BandLow:
		p.Note = "GPU memory, or two machines in production, keep its machines"
	case f.Short && p.Replicas < p.Machines:
		p.Note = "under 7 days of samples: load follows the days of the week, so wait before machines are taken out"
	}
	var month money.Amount
	for _, c := range charges {
		if c.Category != ledger.Compute {
			continue
		}
		var err error
		if month, err = month.Add(c.ListCost); err != nil || c.Unpriced != "" {
			return p, err // without a price the dollars are null
		}
	}
	if month == 0 {
		return p, nil
	}
	cost, err := month.Mul(int64(p.Replicas), money.HoursPerMonth)
	saved, errSaved := month.Mul(int64(f.Machines-p.Replicas), 1)
	if err != nil || errSaved != nil {
		return p, fmt.Errorf("price the fleet of %s: %w", res.ID, money.ErrOverflow)
	}
	p.CostUSDPerHour, p.SavingUSD = money.Known(cost), money.Known(saved)
	return p, nil
}
