// Package budget holds amounts of money for owners and periods, and what is reserved of
// them for work that was admitted and is not charged yet.
//
// A [Set] is the budgets and quotas of an installation. A [Desk] reserves against them:
// whatever is admitted has a [Hold], decided in one transaction with everything else
// that is held and charged, so that no two launches spend one remainder. What is
// committed is the charges of the ledger and, of each hold, what its own charges have
// not used up; nothing counts twice.
package budget

import (
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Match says which spend a budget or quota is about. All that is given has to match; an
// empty field matches everything, unowned resources included. Names are compared without
// regard to case.
type Match struct {
	Team        string `json:"team,omitempty"`
	Project     string `json:"project,omitempty"`
	User        string `json:"user,omitempty"`
	Environment string `json:"environment,omitempty"`
	// Purposes are those that share it; empty is any, an unknown one among them.
	Purposes []inventory.Purpose `json:"purposes,omitempty"`
}

// Covers says whether spend of that owner and purpose counts. What is not known of the
// owner matches no field that is given.
func (m Match) Covers(o inventory.Owner, p inventory.Purpose) bool {
	for _, field := range [...][2]string{
		{m.Team, o.Team}, {m.Project, o.Project}, {m.User, o.User}, {m.Environment, o.Environment},
	} {
		if field[0] != "" && !strings.EqualFold(field[0], field[1]) {
			return false
		}
	}
	return len(m.Purposes) == 0 || slices.Contains(m.Purposes, p)
}

// Budget is an amount for an owner and a period. Budgets nest: a child is a part of its
// parent, narrowed by what it gives itself, so whatever counts against it counts against
// every ancestor, once at each level.
type Budget struct {
	// ID names it: "vision/training".
	ID string
	// Parent is the id of the budget that it is a part of; empty is none.
	Parent string
	Match
	// Shared says that all purposes draw on it. Without it a budget names its purposes,
	// or its ancestors do, because training, evaluation, experimentation and inference
	// are separate unless the budget says otherwise.
	Shared bool
	Period Period
	// Amount is what may be spent in one period.
	Amount money.Amount
	// PerHour is what may be spent in one hour; zero is no such limit.
	PerHour    money.Amount
	Thresholds Thresholds
	// CountUnknown counts what unpriced charges may be at most as spent.
	CountUnknown bool
}

// Thresholds are shares of the amount in percent. A zero field takes its default.
type Thresholds struct {
	// Warn is where the state becomes warn, Gate where new work needs an approval, and
	// Deny how much may be spent and held at all.
	Warn, Gate, Deny int
}

// DefaultThresholds warn at 80%, ask at 90% and end at 100%.
func DefaultThresholds() Thresholds { return Thresholds{Warn: 80, Gate: 90, Deny: 100} }

func (t Thresholds) orDefault() Thresholds {
	d := DefaultThresholds()
	for _, f := range []struct{ v, d *int }{{&t.Warn, &d.Warn}, {&t.Gate, &d.Gate}, {&t.Deny, &d.Deny}} {
		if *f.v == 0 {
			*f.v = *f.d
		}
	}
	return t
}

// Quota is how much capacity may be held at once.
type Quota struct {
	ID string
	Match
	// GPUs are the most accelerators of a type, a type without what follows a hyphen
	// being all its variants; a type that is not there is not limited.
	GPUs map[string]int
	// Machines is the most machines; nil is not limited.
	Machines *int
}

// State is where a budget stands.
type State string

// The states, by the share of the amount that is spent and held.
const (
	OK   State = "ok"
	Warn State = "warn" // people are told
	Gate State = "gate" // new work needs an approval
	Over State = "over" // nothing more is admitted
)

// level orders the states.
func (s State) level() int { return slices.Index([]State{OK, Warn, Gate, Over}, s) }
