package accountplan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/round"
)

// AccountSchema names the JSON form of an [Account].
const AccountSchema = "curfew.plan.account/v1"

// Account is one plan for an account: all changes in order, each computed on the result of the
// previous ones, from today's bill to the bill afterwards. Amounts are dollars a month at list
// price.
type Account struct {
	Schema string `json:"schema"`
	// At is the time of the audit.
	At    time.Time `json:"at"`
	Cloud string    `json:"cloud"`
	// BeforeUSD is the monthly cost of running resources, AfterUSD that after all steps, SavingUSD
	// the difference, and SavingShare its share of BeforeUSD.
	BeforeUSD   money.Amount `json:"before_monthly_usd"`
	AfterUSD    money.Amount `json:"after_monthly_usd"`
	SavingUSD   money.Amount `json:"monthly_saving_usd"`
	SavingShare float64      `json:"saving_share"`
	// PerhapsUSD is the additional saving of findings with only an upper bound.
	PerhapsUSD money.Amount `json:"perhaps_monthly_usd"`
	// Unpriced counts resources without a price, which no amount includes.
	Unpriced int `json:"unpriced_resources"`
	// PersonDays is the effort of all steps.
	PersonDays float64 `json:"person_days"`
	Steps      []Step  `json:"steps"`
	// Teams are the amounts of each team; the empty team is unallocated, and commitments belong to
	// no team.
	Teams []Party `json:"teams"`
	// Risks divide the saving by the risk of the changes.
	Risks []Risk `json:"risks"`
	// Commitments is the plan of the last step; null without recorded hours.
	Commitments *commit.Report `json:"commitments"`
	// Assumptions are the assumptions behind the amounts, CoverageNotes the omissions.
	Assumptions   []string `json:"assumptions"`
	CoverageNotes []string `json:"coverage_notes"`
}

// Step is one kind of change.
type Step struct {
	Number int    `json:"step"`
	Name   string `json:"name"`
	// SavingUSD is the saving beyond the previous steps, AfterUSD the bill after this one.
	SavingUSD  money.Amount `json:"monthly_saving_usd"`
	AfterUSD   money.Amount `json:"after_monthly_usd"`
	PerhapsUSD money.Amount `json:"perhaps_monthly_usd"`
	PersonDays float64      `json:"person_days"`
	Risk       string       `json:"risk"`
	Items      []Item       `json:"items"`
}

// Item is one change of a step.
type Item struct {
	// Finding is the ID of its finding; empty for a commitment.
	Finding  string `json:"finding,omitempty"`
	Rule     string `json:"rule"`
	Resource string `json:"resource"`
	Type     string `json:"type,omitempty"`
	Region   string `json:"region,omitempty"`
	Team     string `json:"team,omitempty"`
	Because  string `json:"because"`
	// SavingUSD is null if only an upper bound is known, PerhapsUSD.
	SavingUSD  money.Dollars `json:"monthly_saving_usd"`
	PerhapsUSD money.Amount  `json:"perhaps_monthly_usd"`
	Risk       string        `json:"risk"`
	PersonDays float64       `json:"person_days"`
	// Command shows and applies the change; empty for a finding that is not stored.
	Command string `json:"command"`
}

// Party is the amounts of one team.
type Party struct {
	Team      string       `json:"team"`
	BeforeUSD money.Amount `json:"before_monthly_usd"`
	AfterUSD  money.Amount `json:"after_monthly_usd"`
}

// Risk is the saving of the changes with one level of risk.
type Risk struct {
	Risk      string       `json:"risk"`
	SavingUSD money.Amount `json:"monthly_saving_usd"`
	Changes   int          `json:"changes"`
}

// AccountInput is an audit and the recorded hours of the ledger.
type AccountInput struct {
	At        time.Time
	Cloud     string
	Resources []*inventory.Resource
	Findings  []finding.Finding
	// Totals are the audit's totals of running resources, by team.
	Totals round.Totals
	// Kept reports that the findings are stored, so that curfew fix finds their IDs.
	Kept bool
	// Commitments is the plan for the hours that remain after the findings, nil without hours.
	// CommitCommand shows it.
	Commitments   *commit.Report
	CommitCommand string
	// Notes list omissions of the hours.
	Notes []string
}

// stepOrder is the order of the steps, with the finding steps that each includes.
var stepOrder = []struct {
	name  string
	steps []finding.Step
}{
	{"idle", []finding.Step{finding.StepMeasure, finding.StepIdle}},
	{"storage", []finding.Step{finding.StepStorage}},
	{"egress", []finding.Step{finding.StepEgress}},
	{"spot", []finding.Step{finding.StepSpot}},
	{"right-size and share", []finding.Step{finding.StepRightsize, finding.StepModel}},
	{"commitments", []finding.Step{finding.StepCommit}},
}

// computeCategories are the categories of an audit that hold compute and unused commitments.
var computeCategories = []string{round.CategoryIdle, round.CategoryActive, round.CategoryUnknown}

// stepOf returns the step of a finding. Machines of an old generation are resized before
// commitments to the remaining ones are bought.
func stepOf(f *finding.Finding) finding.Step {
	if f.Step == finding.StepCommit && f.Fix.Change.Verb == change.ChangeType {
		return finding.StepRightsize
	}
	return f.Step
}

// daysOf returns the assumed effort of one change in person-days, for lack of data from a tracker.
// Spot needs checkpoints to resume from, another machine type a test run.
func daysOf(v change.Verb) float64 {
	switch v {
	case change.UseSpot, change.Move, change.Reroute:
		return 2
	case change.ChangeType, change.Advise, change.Plan:
		return 1
	case change.PutLifecycle, change.PutRetention, change.Schedule, change.Scale, change.ModifyVolume,
		change.UseCommitment, change.ModifyReservation:
		return 0.25
	}
	return 0.1
}

// NewAccount combines the findings of an audit into one plan. Each finding counts only what earlier
// ones leave, see [finding.Evaluate], and commitments are planned on the remaining hours, so that
// the savings add up and no dollar is saved twice. It returns an error for sums out of range.
func NewAccount(in AccountInput) (Account, error) {
	a := Account{Schema: AccountSchema, At: in.At, Cloud: in.Cloud, Steps: []Step{}, Teams: []Party{}, Risks: []Risk{},
		Commitments: in.Commitments, CoverageNotes: append([]string{}, in.Notes...), Assumptions: []string{
			"what runs now runs on for a month of 730 hours, at list price",
			"a step saves on what the steps before it leave",
			"person-days: 0.1 a change, 0.25 for a rule, a schedule or a purchase, 1 for another type or a fleet, 2 for " +
				"spot or a move",
		}}
	w := accumulator{account: &a, before: map[string]money.Amount{}, saved: map[string]money.Amount{},
		owner: map[inventory.Ref]string{}, kept: in.Kept, commitCommand: in.CommitCommand}
	for _, category := range computeCategories {
		w.compute += in.Totals.ByCategory[category]
	}
	for _, r := range in.Resources {
		w.owner[r.Ref()] = r.Owner.Team
	}
	for _, o := range in.Totals.ByOwner {
		w.before[o.Team] = o.Now.Running
	}
	a.BeforeUSD, a.AfterUSD, a.Unpriced = in.Totals.Now.Running, in.Totals.Now.Running, in.Totals.Unpriced
	for i, order := range stepOrder {
		s := Step{Number: i + 1, Name: order.name, Items: []Item{}, Risk: string(finding.None)}
		for _, f := range in.Findings {
			if !slices.Contains(order.steps, stepOf(&f)) {
				continue
			}
			if err := w.find(&s, &f); err != nil {
				return a, err
			}
		}
		if i == len(stepOrder)-1 && in.Commitments != nil {
			if err := w.commit(&s, in.Commitments); err != nil {
				return a, err
			}
		}
		slices.SortStableFunc(s.Items, func(x, y Item) int {
			return cmp.Or(cmp.Compare(y.SavingUSD.Or(0), x.SavingUSD.Or(0)), cmp.Compare(y.PerhapsUSD, x.PerhapsUSD))
		})
		a.AfterUSD -= s.SavingUSD
		s.AfterUSD = a.AfterUSD
		a.PerhapsUSD += s.PerhapsUSD
		a.PersonDays += s.PersonDays
		a.Steps = append(a.Steps, s)
	}
	a.SavingUSD = a.BeforeUSD - a.AfterUSD
	if a.BeforeUSD > 0 {
		a.SavingShare = money.Ratio(a.SavingUSD, a.BeforeUSD)
	}
	w.close()
	return a, nil
}

// accumulator accumulates an account while its steps are applied.
type accumulator struct {
	account       *Account
	before, saved map[string]money.Amount // by team
	owner         map[inventory.Ref]string
	risks         map[string]*Risk
	compute       money.Amount // compute cost that remains after the findings so far
	kept          bool
	commitCommand string
}

// find adds a finding to a step.
func (w *accumulator) find(s *Step, f *finding.Finding) error {
	it := Item{
		Finding: f.ID, Rule: f.Rule, Resource: cmp.Or(f.Resource.Name, f.Resource.ID), Type: f.Resource.Type,
		Region: f.Resource.Region, Team: f.Resource.Owner.Team, Because: f.Because, Risk: string(f.Fix.Risk),
		PersonDays: daysOf(f.Fix.Change.Verb),
	}
	if w.kept {
		it.Command = "curfew fix " + f.ID
	}
	switch {
	case f.Savings.Known && f.Savings.Amount > 0:
		it.SavingUSD = money.Known(f.Savings.Amount)
		left := f.Savings.Amount
		for _, c := range f.Claims { // of several resources, such as the machines of a fleet
			part := min(c.Savings, left)
			w.saved[w.owner[c.Resource]] += part
			left -= part
			if c.Category == ledger.Compute || c.Category == ledger.Committed {
				w.compute -= part
			}
		}
		w.saved[it.Team] += left
	case f.Savings.Bounded && f.Savings.UpperBound > 0:
		it.PerhapsUSD = f.Savings.UpperBound
	default:
		return nil // without a known saving it is not part of a plan in dollars
	}
	return w.add(s, it)
}

// add adds a change to a step.
func (w *accumulator) add(s *Step, it Item) error {
	s.Items = append(s.Items, it)
	s.PersonDays += it.PersonDays
	var err error
	saving := it.SavingUSD.Or(0)
	if s.SavingUSD, err = s.SavingUSD.Add(saving); err == nil {
		s.PerhapsUSD, err = s.PerhapsUSD.Add(it.PerhapsUSD)
	}
	if err != nil {
		return fmt.Errorf("add up step %s: %w", s.Name, err)
	}
	s.Risk = riskier(s.Risk, it.Risk)
	if saving > 0 {
		if w.risks == nil {
			w.risks = map[string]*Risk{}
		}
		if w.risks[it.Risk] == nil {
			w.risks[it.Risk] = &Risk{Risk: it.Risk}
		}
		w.risks[it.Risk].SavingUSD += saving
		w.risks[it.Risk].Changes++
	}
	return nil
}

// levels are the risks in rising order.
var levels = []string{string(finding.None), string(finding.Low), string(finding.Medium), string(finding.High)}

func riskier(a, b string) string {
	if slices.Index(levels, b) > slices.Index(levels, a) {
		return b
	}
	return a
}

// commit adds the advised commitments, up to the remaining compute cost: hours of machines that no
// longer run save nothing of the present bill. The saving from the replay of the remaining hours is
// divided among the commitments by the cost that each covers.
func (w *accumulator) commit(s *Step, r *commit.Report) error {
	total, err := r.YearlyUSD.Mul(1, 12)
	if err != nil {
		return fmt.Errorf("scale a saving to a month: %w", err)
	}
	if left := max(0, w.compute); total > left {
		w.account.CoverageNotes = append(w.account.CoverageNotes, "the hours of the ledger would save "+
			total.Dollars()+" by commitments, more than compute costs after the other steps: the plan counts what it costs")
		total = left
	}
	var weights []int64
	var advised []commit.Commitment
	for _, c := range r.Commitments {
		if c.Advised && c.YearlyUSD > 0 {
			advised, weights = append(advised, c), append(weights, int64(c.YearlyUSD))
		}
	}
	if len(advised) == 0 && len(r.Commitments) > 0 {
		w.account.CoverageNotes = append(w.account.CoverageNotes, "no commitment is advised: "+r.Commitments[0].Why)
	}
	if len(advised) == 0 || total <= 0 {
		return nil
	}
	parts, err := money.Split(total, weights)
	if err != nil {
		return fmt.Errorf("divide the saving of commitments: %w", err)
	}
	for i, c := range advised {
		amount := fmt.Sprintf("%d reserved", c.Quantity)
		if c.Kind == commit.SavingsPlan {
			amount = "savings plan of $" + c.DollarsPerHour + "/h"
		}
		if err := w.add(s, Item{
			Rule: "commitment", Resource: c.Key, Because: fmt.Sprintf("%s for %d months", amount, c.TermMonths),
			SavingUSD: money.Known(parts[i]), Risk: string(finding.Medium), PersonDays: daysOf(change.UseCommitment),
			Command: w.commitCommand,
		}); err != nil {
			return err
		}
	}
	return nil
}

// close sets the teams and the risks. Savings of commitments belong to no team.
func (w *accumulator) close() {
	a := w.account
	for team, before := range w.before {
		a.Teams = append(a.Teams, Party{Team: team, BeforeUSD: before, AfterUSD: before - w.saved[team]})
	}
	slices.SortFunc(a.Teams, func(x, y Party) int {
		return cmp.Or(cmp.Compare(y.BeforeUSD, x.BeforeUSD), cmp.Compare(x.Team, y.Team))
	})
	for _, level := range levels {
		if r := w.risks[level]; r != nil {
			a.Risks = append(a.Risks, *r)
		}
	}
}
