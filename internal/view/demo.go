package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// DemoSchema is the shape of a [Demo] in JSON.
const DemoSchema = "curfew.demo/v1"

// Demo is the outcome of a simulated day.
type Demo struct {
	Schema string `json:"schema"`
	// Seed is the seed of the simulation.
	Seed uint64 `json:"seed"`
	// From and Until bound the day in which the policies act. Before is the day before it,
	// After is that day.
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// Passes is how many passes were made.
	Passes   int           `json:"passes"`
	Policies []string      `json:"policies"`
	Machines []DemoMachine `json:"machines"`
	// Ephemeral is all machines that may end together.
	Ephemeral DemoCosts `json:"ephemeral"`
	// ActedOnWork counts actions on machines that worked when they were acted on.
	ActedOnWork int `json:"acted_on_work"`

	index map[string]int // of machines, by resource
}

// DemoPass is a pass of a demonstration: its decisions, the fuses that blew and were confirmed, and
// the number of messages sent.
type DemoPass struct {
	At time.Time
	Enforce
	Fuses []string
	Sent  int
}

// DemoCosts is dollars by duty; costs without a duty are under "none".
type DemoCosts struct {
	// Before is the cost of the day before.
	Before map[string]money.Amount `json:"before_usd"`
	// After is the cost of the day itself.
	After map[string]money.Amount `json:"after_usd"`
	// LastHour is the cost of the last hour.
	LastHour map[string]money.Amount `json:"last_hour_usd"`
	// UnknownHours are hours of meters without a price; no dollars contain them.
	UnknownHours float64 `json:"unknown_hours"`
}

// DemoMachine is one machine: its true work, its costs, and the actions on it.
type DemoMachine struct {
	Resource string `json:"resource"`
	Name     string `json:"name"`
	Type     string `json:"type"`
	Team     string `json:"team,omitempty"`
	User     string `json:"user,omitempty"`
	Lifetime string `json:"lifetime,omitempty"`
	Purpose  string `json:"purpose,omitempty"`
	TrueWork struct {
		Before DemoWork `json:"before"`
		After  DemoWork `json:"after"`
	} `json:"true_work"`
	DemoCosts
	Done []DemoDone `json:"done"`
}

// DemoWork is the hours of simulated work and idle time of a machine, regardless of actions on it.
type DemoWork struct {
	// WorkedHours is the hours of work.
	WorkedHours float64 `json:"worked_hours"`
	// RestedHours is the hours without work.
	RestedHours float64 `json:"rested_hours"`
}

// DemoDone is an action, with the machine's true activity at that time.
type DemoDone struct {
	At     time.Time `json:"at"`
	Policy string    `json:"policy"`
	Verb   string    `json:"verb"`
	Result string    `json:"result"`
	Why    string    `json:"why"`
	Worked bool      `json:"worked"`
}

// NewDemo returns the document of a day in which policies act, without machines.
func NewDemo(seed uint64, from, until time.Time, set *policy.Set) *Demo {
	d := &Demo{
		Schema: DemoSchema, Seed: seed, From: from, Until: until, Policies: []string{}, Machines: []DemoMachine{},
		index: map[string]int{},
	}
	for _, p := range set.Policies {
		d.Policies = append(d.Policies, p.Name)
	}
	return d
}

// NewDemoWork returns the work of a machine.
func NewDemoWork(worked, rested time.Duration) DemoWork {
	return DemoWork{worked.Hours(), rested.Hours()}
}

// Machine adds a machine with its work in the day before and in the day; a known one stays.
func (d *Demo) Machine(r *inventory.Resource, before, after DemoWork) {
	ref := r.Ref().String()
	if _, known := d.index[ref]; known {
		return
	}
	m := DemoMachine{Resource: ref, Name: r.Name, Type: r.Type, Team: r.Owner.Team, User: r.Owner.User,
		Lifetime: string(r.Lifetime), Purpose: string(r.Purpose), DemoCosts: newDemoCosts(), Done: []DemoDone{}}
	m.TrueWork.Before, m.TrueWork.After = before, after
	d.index[ref] = len(d.Machines)
	d.Machines = append(d.Machines, m)
}

// Act adds an action on a machine, if the document contains the machine. acted is true if the
// provider has just carried it out.
func (d *Demo) Act(ref inventory.Ref, done DemoDone, acted bool) {
	i, known := d.index[ref.String()]
	if !known {
		return
	}
	d.Machines[i].Done = append(d.Machines[i].Done, done)
	if acted && done.Worked {
		d.ActedOnWork++
	}
}

// Charge adds the costs of the day before, of the day and of its last hour, each by resource
// and duty, and puts the machines in the order of their references.
func (d *Demo) Charge(before, after, lastHour *costs.Costs) error {
	d.Ephemeral = newDemoCosts()
	for _, part := range []struct {
		table *costs.Costs
		of    func(*DemoCosts) map[string]money.Amount
		hours bool
	}{
		{before, func(x *DemoCosts) map[string]money.Amount { return x.Before }, true},
		{after, func(x *DemoCosts) map[string]money.Amount { return x.After }, true},
		{lastHour, func(x *DemoCosts) map[string]money.Amount { return x.LastHour }, false},
	} {
		for _, row := range part.table.Rows {
			i, known := d.index[row.Key[0]]
			if !known {
				continue
			}
			m := &d.Machines[i]
			sums := []*DemoCosts{&m.DemoCosts}
			if m.Lifetime == string(inventory.Ephemeral) {
				sums = append(sums, &d.Ephemeral)
			}
			for _, sum := range sums {
				if part.hours {
					sum.UnknownHours += row.UnknownHours()
				}
				if row.Amount == 0 {
					continue // without a price, or free
				}
				duty, to := cmp.Or(row.Key[1], "none"), part.of(sum)
				dollars, err := to[duty].Add(row.Amount)
				if err != nil {
					return err
				}
				to[duty] = dollars
			}
		}
	}
	slices.SortFunc(d.Machines, func(x, y DemoMachine) int { return cmp.Compare(x.Resource, y.Resource) })
	return nil
}

func newDemoCosts() DemoCosts {
	return DemoCosts{
		Before: map[string]money.Amount{}, After: map[string]money.Amount{}, LastHour: map[string]money.Amount{},
	}
}
