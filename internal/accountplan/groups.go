package accountplan

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
)

// Groups is the required number of machines of each group, in JSON form.
type Groups struct {
	Schema string    `json:"schema"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Groups []Group   `json:"groups"`
	// Assumptions are the assumptions behind the numbers.
	Assumptions []string `json:"assumptions"`
}

// Group is the machines of one owner, purpose, type and region in the ledger.
type Group struct {
	Team    string `json:"team,omitempty"`
	Project string `json:"project,omitempty"`
	Purpose string `json:"purpose,omitempty"`
	Type    string `json:"type"`
	Region  string `json:"region"`
	// Machines and Working are the maximum numbers that ran and worked in one hour.
	Machines int `json:"machines"`
	Working  int `json:"working_machines"`
	// Needed is the required number, at most Machines.
	Needed int `json:"needed_machines"`
	// UnknownShare is the share of time with unknown duty, which counts as work.
	UnknownShare float64 `json:"unknown_duty_share"`
	// SavingUSD is the monthly cost of machine-hours beyond Needed.
	SavingUSD money.Amount `json:"monthly_saving_usd"`
}

// machineHour is the use of one machine in one hour.
type machineHour struct {
	group    [5]string
	hour     time.Time
	resource string
}

// groups counts the machines that ran and those that worked in each hour. A machine that
// worked for a part of an hour counts for that hour, and unknown duty counts as work.
func groups(ctx context.Context, s sums, since, until time.Time, purpose inventory.Purpose, target float64) ([]Group,
	error) {
	filter := ledger.Filter{
		{By: ledger.ByCategory, Values: []string{string(ledger.Compute)}},
		{By: ledger.ByKind, Values: []string{string(inventory.KindInstance)}},
	}
	if purpose != "" {
		filter = append(filter, ledger.Match{By: ledger.ByPurpose, Values: []string{string(purpose)}})
	}
	all, err := s.Sums(ctx, ledger.SumQuery{Since: since, Until: until, Granularity: ledger.Hourly, Filter: filter,
		By: []ledger.Dimension{
			ledger.ByTeam, ledger.ByProject, ledger.ByPurpose, ledger.ByType, ledger.ByRegion, ledger.ByResource,
			ledger.ByDuty,
		}})
	if err != nil {
		return nil, fmt.Errorf("read the hours of machines: %w", err)
	}
	type total struct {
		seconds, unknown int64
		amount           money.Amount
		running          map[time.Time]int64 // seconds of machines
		ran, worked      map[time.Time]int
	}
	totals, ran, worked := map[[5]string]*total{}, map[machineHour]bool{}, map[machineHour]bool{}
	for _, sum := range all {
		if sum.Key[3] == "" || sum.Sums.Seconds <= 0 {
			continue // charged by the day, or without a price
		}
		h := machineHour{[5]string(sum.Key[:5]), sum.Period.UTC(), sum.Key[5]}
		t := totals[h.group]
		if t == nil {
			t = &total{running: map[time.Time]int64{}, ran: map[time.Time]int{}, worked: map[time.Time]int{}}
			totals[h.group] = t
		}
		t.seconds += sum.Sums.Seconds
		t.running[h.hour] += sum.Sums.Seconds
		if t.amount, err = t.amount.Add(sum.Sums.Amount); err != nil {
			return nil, fmt.Errorf("add up the hours of %s: %w", sum.Key[3], err)
		}
		if !ran[h] {
			ran[h] = true
			t.ran[h.hour]++
		}
		switch sum.Key[6] {
		case string(duty.Idle), string(duty.Held), string(duty.Stalled):
			continue
		case duty.Unknown.String(), "":
			t.unknown += sum.Sums.Seconds
		}
		if !worked[h] {
			worked[h] = true
			t.worked[h.hour]++
		}
	}
	var out []Group
	for k, t := range totals {
		g := Group{
			Team: k[0], Project: k[1], Purpose: k[2], Type: k[3], Region: k[4],
			UnknownShare: float64(t.unknown) / float64(t.seconds),
		}
		for hour, n := range t.ran {
			g.Machines, g.Working = max(g.Machines, n), max(g.Working, t.worked[hour])
		}
		g.Needed = min(g.Machines, int(math.Ceil(float64(g.Working)/target)))
		over := int64(0)
		for _, seconds := range t.running {
			over += max(0, seconds-int64(g.Needed)*3600)
		}
		saved, err := t.amount.Mul(over, t.seconds)
		if err == nil {
			saved, err = saved.Mul(money.HoursPerMonth, max(1, int64(until.Sub(since)/time.Hour)))
		}
		if err != nil {
			return nil, fmt.Errorf("price the hours of %s: %w", g.Type, err)
		}
		g.SavingUSD = saved
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Machines-b.Needed, a.Machines-a.Needed), cmp.Compare(a.Team, b.Team),
			cmp.Compare(a.Project, b.Project),
			cmp.Compare(a.Purpose, b.Purpose), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Region, b.Region))
	})
	return out, nil
}

// FromLedger returns the required number of machines of each group, by the duty in the ledger
// between since and until, for one purpose or for all if it is empty. Target is the maximum share
// of the required machines that may work at once, over 0 and at most 1. Schema is that of the
// calling planner.
func FromLedger(ctx context.Context, s sums, schema string, since, until time.Time, purpose inventory.Purpose,
	target float64) (Groups, error) {
	all, err := groups(ctx, s, since, until, purpose, target)
	if err != nil {
		return Groups{}, err
	}
	out := Groups{schema, since, until, all, []string{
		"machines of one owner, purpose, type and region are interchangeable",
		"a machine that worked for a part of an hour counts for the hour; unknown duty counts as work",
		"the ledger has the duty of machines, not their utilization: it shows how many are too many, but not which " +
			"smaller type fits or where more are needed; use --from scan for that",
		"savings are the machine hours above the needed number, at the charged price, scaled to a month; hours without a " +
			"price or an observation are excluded",
	}}
	if target < 1 {
		out.Assumptions = append(out.Assumptions,
			"at most "+plain.Share(target, 1)+" of the remaining machines work at the same time")
	}
	if purpose == inventory.Inference && target > capacity.CrowdedAbove {
		out.Assumptions = append(out.Assumptions, fmt.Sprintf("%s is over %s of capacity: no room is left for a rise "+
			"or a machine that fails", plain.Share(target, 1), plain.Share(capacity.CrowdedAbove, 0)))
	}
	return out, nil
}
