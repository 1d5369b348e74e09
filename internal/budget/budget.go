// Package budget manages budgets and quotas for owners and periods, and the amounts reserved of
// them for admitted work that is not charged yet.
//
// A [Set] holds the budgets and quotas of an installation. A [Desk] reserves against them: admitted
// work has a [Hold], decided in one transaction with all other holds and charges, so that two
// launches cannot spend the same remainder. The committed amount is the charges of the ledger plus,
// for each hold, what its own charges have not used up.
package budget

import (
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Match selects the spend that a budget or quota covers. All given fields have to match, ignoring
// case; empty fields match everything, including unowned resources.
type Match struct {
	Team        string `json:"team,omitempty"`
	Project     string `json:"project,omitempty"`
	User        string `json:"user,omitempty"`
	Environment string `json:"environment,omitempty"`
	// Purposes lists the covered purposes; empty covers all, including unknown ones.
	Purposes []inventory.Purpose `json:"purposes,omitempty"`
}

// Covers reports whether spend of an owner and purpose matches. An unknown owner field matches no
// given field.
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

// Budget is an amount for an owner and a period. A child budget is a part of its parent, and its
// spend counts once at every level.
type Budget struct {
	// ID identifies the budget: "vision/training".
	ID string
	// Parent is the id of the parent budget; empty if there is none.
	Parent string
	Match
	// Shared lets all purposes draw on the budget. Otherwise it or an ancestor names its purposes,
	// because training, evaluation, experimentation and inference are separate by default.
	Shared bool
	Period Period
	// Amount is the limit per period.
	Amount money.Amount
	// PerHour is the limit per hour; zero sets none.
	PerHour    money.Amount
	Thresholds Thresholds
	// CountUnknown counts the upper bound of unpriced charges as spent.
	CountUnknown bool
}

// Thresholds are percentages of the amount. A zero field takes its default.
type Thresholds struct {
	// Warn is the share from which the state is warn, Gate the share from which new work needs an
	// approval, and Deny the limit of spent and held amounts.
	Warn, Gate, Deny int
}

// DefaultThresholds returns 80%, 90% and 100%.
func DefaultThresholds() Thresholds { return Thresholds{Warn: 80, Gate: 90, Deny: 100} }

func (t Thresholds) withDefaults() Thresholds {
	d := DefaultThresholds()
	for _, f := range []struct{ v, d *int }{{&t.Warn, &d.Warn}, {&t.Gate, &d.Gate}, {&t.Deny, &d.Deny}} {
		if *f.v == 0 {
			*f.v = *f.d
		}
	}
	return t
}

// Quota limits concurrent capacity.
type Quota struct {
	ID string
	Match
	// GPUs limits accelerators by type; a type without hyphen covers all its variants. Missing
	// types are unlimited.
	GPUs map[string]int
	// Machines limits machines; nil is unlimited.
	Machines *int
}

// State is the state of a budget.
type State string

// The states by the share of the amount that is spent and held.
const (
	OK   State = "ok"
	Warn State = "warn" // people are warned
	Gate State = "gate" // new work needs an approval
	Over State = "over" // nothing more is admitted
)

// level returns the severity of a state.
func (s State) level() int { return slices.Index([]State{OK, Warn, Gate, Over}, s) }
