package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

const (
	// oneDay is how long policies act in `enforce --demo -o json`, and the time before it
	// that it is compared with.
	oneDay = 24 * time.Hour
	// demoLeast and demoMost bound the time between two passes of that day.
	demoLeast = 15 * time.Minute
	demoMost  = time.Hour
	// demoWatch is the time between two passes of the day before, in which nothing acts.
	demoWatch = 4 * time.Hour
)

// demoDay is a simulated day of passes.
type demoDay struct {
	set     *policy.Set
	seed    uint64
	cloud   *sim.Cloud
	clock   *demoClock
	setting round.Setting
	store   *store.Store
}

// demoDoc is what a simulated day came to.
type demoDoc struct {
	Schema string `json:"schema"`
	Seed   uint64 `json:"seed"`
	// From and Until bound the day in which the policies act. Before is the day before it,
	// After is that day.
	From     time.Time     `json:"from"`
	Until    time.Time     `json:"until"`
	Passes   int           `json:"passes"`
	Policies []string      `json:"policies"`
	Machines []demoMachine `json:"machines"`
	// Ephemeral is all machines that may end together.
	Ephemeral demoDollars `json:"ephemeral"`
	// ActedOnWork counts actions on machines that worked when they were acted on.
	ActedOnWork int `json:"acted_on_work"`
}

// demoDollars is dollars by duty; what has no duty is under "none".
type demoDollars struct {
	Before   map[string]costs.Dollars `json:"before_usd"`
	After    map[string]costs.Dollars `json:"after_usd"`
	LastHour map[string]costs.Dollars `json:"last_hour_usd"`
	// UnknownHours are hours of meters without a price, which are in none of the dollars.
	UnknownHours float64 `json:"unknown_hours"`
}

// spending is dollars of one resource by duty, and hours that have no price.
type spending struct {
	usd     map[string]costs.Dollars
	unknown float64
}

// demoMachine is one machine: what it truly did, what that cost, and what was done to it.
type demoMachine struct {
	Resource string `json:"resource"`
	Name     string `json:"name"`
	Type     string `json:"type"`
	Team     string `json:"team,omitempty"`
	User     string `json:"user,omitempty"`
	Lifetime string `json:"lifetime,omitempty"`
	Purpose  string `json:"purpose,omitempty"`
	TrueWork struct {
		Before demoWork `json:"before"`
		After  demoWork `json:"after"`
	} `json:"true_work"`
	demoDollars
	Done []demoDone `json:"done"`
}

// demoWork is hours that the simulation made a machine work, and rest, whatever was done
// to it.
type demoWork struct {
	WorkedHours float64 `json:"worked_hours"`
	RestedHours float64 `json:"rested_hours"`
}

// demoDone is something that was done, and whether the machine truly worked then.
type demoDone struct {
	At     time.Time `json:"at"`
	Policy string    `json:"policy"`
	Verb   string    `json:"verb"`
	Result string    `json:"result"`
	Why    string    `json:"why"`
	Worked bool      `json:"worked"`
}

// run keeps the books for a day, and then lets the policies act for another.
func (d *demoDay) run(ctx context.Context) (*demoDoc, error) {
	d.setting.Books = ledger.Journal{Store: d.store.Ledger()}
	from := d.clock.now().Add(oneDay)
	until := from.Add(oneDay)
	watch := d.setting
	watch.Policies, watch.Ladder = nil, nil
	for d.clock.now().Before(from) {
		if _, err := pass(ctx, watch); err != nil {
			return nil, err
		}
		d.clock.jump(d.clock.now().Add(demoWatch))
	}
	doc := &demoDoc{Schema: "curfew.demo/v1", Seed: d.seed, From: from, Until: until, Policies: []string{}, Machines: []demoMachine{}}
	for _, p := range d.set.Policies {
		doc.Policies = append(doc.Policies, p.Name)
	}
	machines := map[inventory.Ref]*demoMachine{}
	work := [2]map[inventory.Ref]sim.Work{d.cloud.Work(from.Add(-oneDay), from), d.cloud.Work(from, until)}
	for {
		now := d.clock.now()
		pass, err := pass(ctx, d.setting)
		if err != nil {
			return nil, err
		}
		doc.Passes++
		for _, r := range pass.Resources {
			if _, simulated := work[0][r.Ref()]; simulated && machines[r.Ref()] == nil {
				machines[r.Ref()] = demoMachineOf(r, work[0][r.Ref()], work[1][r.Ref()])
			}
		}
		for _, l := range pass.Lines() {
			m := machines[l.Resource]
			if m == nil || !l.Verb.Destructive() || l.Result != action.ResultActed && l.Result != action.ResultConfirmed && l.Result != action.ResultFailed {
				continue
			}
			state, _ := d.cloud.At(l.Resource, now)
			done := demoDone{At: now, Policy: l.Source, Verb: string(l.Verb), Result: string(l.Result), Why: l.Why, Worked: state.Works}
			if l.Result == action.ResultActed && state.Works {
				doc.ActedOnWork++
			}
			m.Done = append(m.Done, done)
		}
		if !now.Before(until) {
			break
		}
		next := pass.NextAt()
		if next.IsZero() || next.After(now.Add(demoMost)) {
			next = now.Add(demoMost)
		}
		if least := now.Add(demoLeast); next.Before(least) {
			next = least
		}
		if next.After(until) {
			next = until
		}
		d.clock.jump(next)
	}
	before, err := d.spent(ctx, from.Add(-oneDay), from)
	if err != nil {
		return nil, err
	}
	after, err := d.spent(ctx, from, until)
	if err != nil {
		return nil, err
	}
	last, err := d.spent(ctx, until.Add(-time.Hour), until)
	if err != nil {
		return nil, err
	}
	doc.Ephemeral = demoDollars{Before: map[string]costs.Dollars{}, After: map[string]costs.Dollars{}, LastHour: map[string]costs.Dollars{}}
	for _, m := range machines {
		m.demoDollars = demoDollars{Before: before.of(m.Resource).usd, After: after.of(m.Resource).usd, LastHour: last.of(m.Resource).usd,
			UnknownHours: before.of(m.Resource).unknown + after.of(m.Resource).unknown}
		if m.Lifetime == string(inventory.Ephemeral) {
			doc.Ephemeral.UnknownHours += m.UnknownHours
			if err := errors.Join(add(doc.Ephemeral.Before, m.Before), add(doc.Ephemeral.After, m.After), add(doc.Ephemeral.LastHour, m.LastHour)); err != nil {
				return nil, err
			}
		}
		doc.Machines = append(doc.Machines, *m)
	}
	slices.SortFunc(doc.Machines, func(x, y demoMachine) int { return strings.Compare(x.Resource, y.Resource) })
	return doc, nil
}

func demoMachineOf(r *inventory.Resource, before, after sim.Work) *demoMachine {
	m := &demoMachine{Resource: r.Ref().String(), Name: r.Name, Type: r.Type, Team: r.Owner.Team, User: r.Owner.User,
		Lifetime: string(r.Lifetime), Purpose: string(r.Purpose), Done: []demoDone{}}
	m.TrueWork.Before = demoWork{before.Worked.Hours(), before.Rested.Hours()}
	m.TrueWork.After = demoWork{after.Worked.Hours(), after.Rested.Hours()}
	return m
}

// pass makes one pass, whose charges have to be kept.
func pass(ctx context.Context, s round.Setting) (*round.Result, error) {
	r, err := round.New(s).Round(ctx)
	if err != nil {
		return nil, err
	}
	for account, err := range r.Unposted {
		return nil, fmt.Errorf("charge %s: %w", account, err)
	}
	return r, nil
}

// spent is what was charged between two times.
func (d *demoDay) spent(ctx context.Context, since, until time.Time) (accounts, error) {
	costs, err := costs.Spent(ctx, d.store.Ledger(), costs.Query{By: []ledger.Dimension{ledger.ByResource, ledger.ByDuty}, Since: since, Until: until})
	if err != nil {
		return nil, err
	}
	return byResource(costs)
}

// accounts are what resources cost.
type accounts map[string]*spending

// of returns what a resource cost; nothing where nothing was charged.
func (a accounts) of(resource string) *spending {
	if s := a[resource]; s != nil {
		return s
	}
	return &spending{usd: map[string]costs.Dollars{}}
}

// byResource are the rows of costs by resource, then by duty.
func byResource(c *costs.Costs) (accounts, error) {
	out := accounts{}
	for _, row := range c.Rows {
		s := out.of(row.Key[0])
		out[row.Key[0]] = s
		s.unknown += row.UnknownHours()
		if row.Amount == 0 {
			continue // without a price, or free
		}
		if err := add(s.usd, map[string]costs.Dollars{first(row.Key[1], "none"): row.Amount}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// add adds dollars by duty to others.
func add(to, more map[string]costs.Dollars) error {
	for duty, dollars := range more {
		sum, err := money.Amount(to[duty]).Add(money.Amount(dollars))
		if err != nil {
			return err
		}
		to[duty] = costs.Dollars(sum)
	}
	return nil
}
