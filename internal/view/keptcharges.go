package view

import (
	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
)

// ScanKept divides the figures of a kept audit for `curfew why`.
type ScanKept struct {
	// Charges are the meters of the audit, in the order of its resources.
	Charges []ScanCharge `json:"charges"`
	// Claims are the claims of findings on charges, in the order of findings.
	Claims []ScanClaim `json:"claims"`
	// WindowTeams divide the window by team.
	WindowTeams []ScanWindowTeam `json:"window_teams"`
	// Plan is the plan of the account by the audit; absent where none was made, for the reason in
	// PlanUnavailable.
	Plan            *accountplan.Account `json:"plan,omitempty"`
	PlanUnavailable string               `json:"plan_unavailable,omitempty"`
}

// ScanCharge is one meter of a resource at the rate of the audit, in dollars a month. Used, wasted,
// unmeasured and other add up to running.
type ScanCharge struct {
	Resource string `json:"resource"`
	Name     string `json:"name,omitempty"`
	Kind     string `json:"kind"`
	Type     string `json:"type,omitempty"`
	Region   string `json:"region,omitempty"`
	Team     string `json:"team,omitempty"`
	// Meter names it within the resource.
	Meter    string          `json:"meter"`
	Category ledger.Category `json:"category"`
	// Quantity, Unit and UnitPrice are the factors of the cost.
	Quantity  string `json:"quantity,omitempty"`
	Unit      string `json:"unit,omitempty"`
	UnitPrice string `json:"unit_price,omitempty"`
	// Source and AsOf are those of the price; AsOf is a date.
	Source string `json:"source,omitempty"`
	AsOf   string `json:"as_of,omitempty"`
	// Estimate states the assumption behind an inexact quantity.
	Estimate string `json:"estimate,omitempty"`
	// Unpriced is the reason for a missing price; all amounts are zero then.
	Unpriced string `json:"unpriced,omitempty"`

	RunningUSD    money.Amount `json:"running_usd,omitempty"`
	UsedUSD       money.Amount `json:"used_usd,omitempty"`
	WastedUSD     money.Amount `json:"wasted_usd,omitempty"`
	UnmeasuredUSD money.Amount `json:"unmeasured_usd,omitempty"`
	OtherUSD      money.Amount `json:"other_usd,omitempty"`
}

// ScanClaim is the part of a charge that a finding counts as waste, and the part that its fix saves.
type ScanClaim struct {
	Finding  string       `json:"finding"`
	Resource string       `json:"resource"`
	Meter    string       `json:"meter,omitempty"`
	WasteUSD money.Amount `json:"waste_usd,omitempty"`
	SavesUSD money.Amount `json:"saves_usd,omitempty"`
}

// ScanWindowTeam is the part of one team of [ScanWindow].
type ScanWindowTeam struct {
	Team          string       `json:"team"`
	UsedUSD       money.Amount `json:"used_usd"`
	WastedUSD     money.Amount `json:"wasted_usd"`
	UnmeasuredUSD money.Amount `json:"unmeasured_usd"`
	OtherUSD      money.Amount `json:"other_usd"`
	TotalUSD      money.Amount `json:"total_usd"`
}

// newKept divides the figures of an audit; nil if its sums overflow.
func newKept(a *round.Result) *ScanKept {
	parts, err := round.Parts(a)
	if err != nil {
		return nil
	}
	k := &ScanKept{
		Charges: []ScanCharge{}, Claims: []ScanClaim{}, WindowTeams: []ScanWindowTeam{},
	}
	for c, part := range parts {
		k.Charges = append(k.Charges, newCharge(c, part))
	}
	for _, f := range a.Findings {
		for _, c := range f.Claims {
			k.Claims = append(k.Claims, newClaim(&f, c))
		}
	}
	if a.Window != nil {
		for _, r := range a.Window.Rows {
			k.WindowTeams = append(k.WindowTeams, newWindowTeam(r))
		}
	}
	return k
}

func newCharge(c *ledger.Charge, part round.RunRate) ScanCharge {
	r := c.Resource
	return ScanCharge{
		Resource: valid(r.ID), Name: valid(r.Name), Kind: valid(string(r.Kind)), Type: valid(r.Type),
		Region: valid(r.Region), Team: valid(r.Owner.Team), Meter: valid(c.Meter), Category: c.Category,
		Quantity: valid(c.Quantity), Unit: valid(c.Unit), UnitPrice: valid(c.UnitPrice), Source: valid(c.Source),
		Estimate: valid(c.Estimate), Unpriced: valid(c.Unpriced),
		RunningUSD: part.Running, UsedUSD: part.Used, WastedUSD: part.Wasted, UnmeasuredUSD: part.Unmeasured,
		OtherUSD: part.Other, AsOf: day(c.AsOf),
	}
}

func newClaim(f *finding.Finding, c finding.Claim) ScanClaim {
	return ScanClaim{
		Finding: valid(f.ID), Resource: valid(c.Resource.ID), Meter: valid(c.Meter), WasteUSD: c.Waste,
		SavesUSD: c.Savings,
	}
}

func newWindowTeam(r costs.Cost) ScanWindowTeam {
	return ScanWindowTeam{
		Team: valid(r.Key[0]), UsedUSD: r.Used, WastedUSD: r.Wasted, UnmeasuredUSD: r.CannotJudge,
		OtherUSD: r.Other, TotalUSD: r.Amount,
	}
}
