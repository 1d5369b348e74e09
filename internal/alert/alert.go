// Package alert finds what costs money and is for a person to decide: budgets that will not last,
// people, projects and teams that spend far more than usual, storage that grows ever faster, accounts
// that are no longer read, and machines that policies would end if they were not at work. Each condition
// becomes a proposal to notify, so that the ladder of package action tells people once, again each day
// and each time the dollars have doubled, and when it is over.
package alert

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Cloud and Account are those of the subjects of alerts, which no provider has.
const (
	Cloud   = "curfew"
	Account = "installation"
	region  = "global"
)

// LadderAccount is the account of the ladder that alerts climb.
const LadderAccount = Cloud + "/" + Account

// The sources of alerts.
const (
	BudgetBurn    = "budget-burn"
	SpendJump     = "spend-jump"
	StorageGrowth = "storage-growth"
	BlindAccount  = "blind-account"
	RefusedAsBusy = "refused-as-busy"
)

// Sources are all of them.
var Sources = []string{BudgetBurn, SpendJump, StorageGrowth, BlindAccount, RefusedAsBusy}

// The kinds of subjects.
const (
	KindBudget  inventory.Kind = "budget"
	KindPerson  inventory.Kind = "person"
	KindProject inventory.Kind = "project"
	KindTeam    inventory.Kind = "team"
	KindStorage inventory.Kind = "storage"
	KindAccount inventory.Kind = "account"
	KindMachine inventory.Kind = "machine"
)

// IsSubject reports whether alerts can be about a resource.
func IsSubject(ref inventory.Ref) bool {
	switch ref.Kind {
	case KindBudget, KindPerson, KindProject, KindTeam, KindStorage, KindAccount, KindMachine:
		return ref.Cloud == Cloud && ref.Account == Account && ref.Region == region && ref.ID != ""
	}
	return false
}

// Facts are the inputs of Find.
type Facts struct {
	Now time.Time
	// LedgerEnd is the end time of the newest charge in the ledger; zero if it is empty.
	LedgerEnd time.Time
	Budgets   []Burn
	// Spenders are people, projects and teams with their spend, and Storage the teams with the cost
	// of what they store.
	Spenders, Storage []Series
	Reach             []Reach
	// Refused are the machines that were at work when policies would have ended them, by the newest round
	// of each account. Judged are the accounts whose newest round is recent and knows all.
	Refused []Refused
	Judged  []string
}

// Conditions are the results of Find.
type Conditions struct {
	// Proposals notify the people concerned.
	Proposals []action.Proposal
	// Unknown holds the sources of which nothing can be told now, with the reason.
	Unknown map[string]string
	facts   Facts
}

// IsUnknown reports whether it is unknown if a condition of a source holds for a subject.
func (c Conditions) IsUnknown(source string, subject inventory.Ref) bool {
	return c.Unknown[source] != "" || source == RefusedAsBusy && c.facts.unjudged(subject)
}

// staleAfter is the age of the ledger's end from which on spend is unknown.
const staleAfter = 3 * time.Hour

// Find returns the conditions that hold. What depends on the ledger is unknown while the ledger is
// empty or ends more than three hours ago.
func Find(f Facts) Conditions {
	c := Conditions{Unknown: map[string]string{}, facts: f}
	if why := f.stale(); why != "" {
		c.Unknown[BudgetBurn], c.Unknown[SpendJump], c.Unknown[StorageGrowth] = why, why, why
	} else {
		c.Proposals = append(c.Proposals, f.burning()...)
		c.Proposals = append(c.Proposals, f.jumps()...)
		c.Proposals = append(c.Proposals, f.growing()...)
	}
	c.Proposals = append(c.Proposals, f.blind()...)
	c.Proposals = append(c.Proposals, f.refusedAsBusy()...)
	return c
}

func (f Facts) stale() string {
	switch {
	case f.LedgerEnd.IsZero():
		return "the ledger is empty"
	case f.Now.Sub(f.LedgerEnd) > staleAfter:
		return "the ledger ends at " + f.LedgerEnd.UTC().Format(time.RFC3339)
	}
	return ""
}

// subject is the person, group, budget or account of an alert.
type subject struct {
	kind inventory.Kind
	id   string
	// machine is the machine of the alert; nil for others.
	machine *inventory.Resource
	owner   inventory.Owner
	// notify is a recipient: owner or team.
	notify string
	hourly inventory.Fact[money.Amount]
}

// propose returns the proposal to notify those whom a subject concerns. Spent makes the ladder notify
// again once it has doubled.
func (f Facts) propose(source string, s subject, spent inventory.Fact[money.Amount],
	why string) action.Proposal {
	about := &inventory.Resource{
		Cloud: Cloud, Account: Account, Region: region, Kind: s.kind, ID: s.id, Name: s.id,
		Tags: map[string]string{}, Owner: s.owner,
	}
	if s.machine != nil {
		about.Name, about.Type = s.machine.Name, s.machine.Type
	}
	return action.Proposal{
		Source: source, Resource: about,
		Do: policy.Do{Verb: policy.Notify}, Mode: policy.Enforce, Notify: []string{s.notify},
		Hourly: s.hourly, Spent: spent, Condition: usage.True, Because: why, Class: policy.ClassBudget,
		ReadAt: f.Now,
	}
}

// Next is the command that shows more about an alert's subject.
func Next(ref inventory.Ref) string {
	switch ref.Kind {
	case KindBudget:
		return "curfew budget"
	case KindPerson:
		return "curfew costs --since 8d --by user,resource"
	case KindProject:
		return "curfew costs --since 8d --by project,resource"
	case KindTeam:
		return "curfew costs --since 8d --by team,resource"
	case KindStorage:
		return "curfew costs --since 40d --by team,kind"
	case KindAccount:
		return "curfew doctor state"
	case KindMachine:
		return explain(ref.ID)
	}
	return fmt.Sprintf("curfew keep %s --for 24h --reason TEXT", ref)
}
