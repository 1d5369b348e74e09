package billfile

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/bill"
)

// The fields of CUR 2.0 that are read.
const (
	curPayer = iota
	curPeriodStart
	curPeriodEnd
	curAccount
	curStart
	curType
	curProduct
	curResource
	curUsageType
	curDescription
	curCurrency
	curUnblended
	curAmount
	curUnit
	curList
	curRegion
	curFrom
	curTo
	curReservation
	curReservationCost
	curReservationUpfront
	curReservationRecurring
	curPlan
	curPlanCost
	curPlanCommitted
	curPlanUsed
	curTags
	curMachine
	curCapacityStatus
)

// cur is the AWS Cost and Usage Report 2.0 (AWS Data Exports User Guide, "Cost and
// Usage Report (CUR) 2.0"), told in the words of FOCUS. The legacy report has the same columns
// under other names, and a column for each tag (AWS Cost and Usage Reports User Guide, "Data
// dictionary").
var cur = schema{
	name: "CUR 2.0",
	columns: []column{
		curPayer:           {names: []string{"bill_payer_account_id"}},
		curPeriodStart:     {names: []string{"bill_billing_period_start_date"}, kind: instant, needed: true},
		curPeriodEnd:       {names: []string{"bill_billing_period_end_date"}, kind: instant},
		curAccount:         {names: []string{"line_item_usage_account_id"}},
		curStart:           {names: []string{"line_item_usage_start_date"}, kind: instant, needed: true},
		curType:            {names: []string{"line_item_line_item_type"}, needed: true},
		curProduct:         {names: []string{"line_item_product_code"}},
		curResource:        {names: []string{"line_item_resource_id"}},
		curUsageType:       {names: []string{"line_item_usage_type"}},
		curDescription:     {names: []string{"line_item_line_item_description"}},
		curCurrency:        {names: []string{"line_item_currency_code"}},
		curUnblended:       {names: []string{"line_item_unblended_cost"}, kind: number, needed: true},
		curAmount:          {names: []string{"line_item_usage_amount"}, kind: number},
		curUnit:            {names: []string{"pricing_unit"}},
		curList:            {names: []string{"pricing_public_on_demand_cost"}, kind: number, money: true},
		curRegion:          {names: []string{"product_region_code", "product_region"}},
		curFrom:            {names: []string{"product_from_region_code"}, extra: true},
		curTo:              {names: []string{"product_to_region_code"}, extra: true},
		curReservation:     {names: []string{"reservation_reservation_a_r_n"}},
		curReservationCost: {names: []string{"reservation_effective_cost"}, kind: number, money: true},
		curReservationUpfront: {
			names: []string{"reservation_unused_amortized_upfront_fee_for_billing_period"}, kind: number, money: true,
		},
		curReservationRecurring: {names: []string{"reservation_unused_recurring_fee"}, kind: number, money: true},
		curPlan:                 {names: []string{"savings_plan_savings_plan_a_r_n"}},
		curPlanCost: {
			names: []string{"savings_plan_savings_plan_effective_cost"}, kind: number, money: true,
		},
		curPlanCommitted:  {names: []string{"savings_plan_total_commitment_to_date"}, kind: number, money: true},
		curPlanUsed:       {names: []string{"savings_plan_used_commitment"}, kind: number, money: true},
		curTags:           {names: []string{"resource_tags"}, kind: tags},
		curMachine:        {names: []string{"product_instance_type"}, extra: true},
		curCapacityStatus: {names: []string{"capacity_reservation_capacity_reservation_status"}, extra: true},
	},
	known:   func(has func(string) bool) bool { return has("line_item_unblended_cost") },
	version: func(func(string) bool) string { return "CUR 2.0" },
	lines:   curLines,
}

// curLines tells a row in FOCUS terms. What each line item type costs in effect is from
// the AWS Data Exports User Guide ("Line item columns", "Savings Plans columns",
// "Reservation columns"): usage under a commitment at its effective cost, fees only with
// the part that lay unused. BilledCost adds up to the unblended cost of the bill.
func curLines(r *record, emit func(*bill.Line) error) error {
	unblended, known := r.cost(curUnblended)
	if !known {
		r.fail(curUnblended, "is empty: a cost that is not known is not zero")
	}
	l := &r.line
	*l = bill.Line{
		BillingAccountID: r.text(curPayer), SubAccountID: r.text(curAccount), BillingCurrency: r.text(curCurrency),
		BillingPeriodStart: r.time(curPeriodStart), BillingPeriodEnd: r.time(curPeriodEnd),
		ChargePeriodStart: r.time(curStart),
		ChargeCategory:    bill.Usage, ChargeDescription: r.text(curDescription), ServiceProviderName: "AWS",
		ServiceName: r.text(curProduct),
		ResourceID:  r.text(curResource), RegionID: r.text(curRegion), PricingCategory: bill.Standard,
		ConsumedUnit: r.text(curUnit),
		UsageType:    r.text(curUsageType), FromRegion: r.text(curFrom),
		ToRegion: r.text(curTo), Tags: r.text(curTags),
		MachineType: r.text(curMachine), CapacityStatus: r.one(curCapacityStatus, statuses, nil),
		BilledCost: unblended, EffectiveCost: unblended, Unknown: bill.ContractedCost,
	}
	if len(r.layout.tagKeys) > 0 {
		l.Tags = r.tagText(curTags)
	}
	l.ConsumedQuantity, _ = r.cost(curAmount)
	if l.ListCost, known = r.cost(curList); !known {
		l.Unknown |= bill.ListCost
	}
	var unused bill.Decimal
	kind := r.text(curType)
	switch kind {
	case "Usage":
		if strings.Contains(l.UsageType, "SpotUsage") {
			l.PricingCategory = bill.Dynamic
		}
	case "SavingsPlanCoveredUsage":
		// Listed at the on-demand price, and taken back by a negation.
		l.BilledCost, l.Withheld = bill.Decimal{}, unblended
		covered(l, r.text(curPlan))
		r.effective(curPlanCost)
	case "SavingsPlanNegation":
		l.BilledCost, l.EffectiveCost, l.Withheld = bill.Decimal{}, bill.Decimal{}, unblended
		l.ListCost, l.Unknown = bill.Decimal{}, l.Unknown&^bill.ListCost // the covered usage has it
		covered(l, r.text(curPlan))
	case "DiscountedUsage":
		covered(l, r.text(curReservation))
		r.effective(curReservationCost)
	case "SavingsPlanRecurringFee":
		bought(l, r.text(curPlan))
		committed, is := r.cost(curPlanCommitted)
		used, are := r.cost(curPlanUsed)
		if unused = committed.Sub(used); !is || !are {
			l.Unknown |= bill.EffectiveCost
		}
	case "RIFee":
		bought(l, r.text(curReservation))
		upfront, _ := r.cost(curReservationUpfront)
		recurring, is := r.cost(curReservationRecurring)
		if unused = upfront.Add(recurring); !is {
			l.Unknown |= bill.EffectiveCost
		}
	case "SavingsPlanUpfrontFee":
		bought(l, r.text(curPlan))
	case "Fee":
		if arn := r.text(curReservation); arn != "" {
			bought(l, arn)
		} else {
			l.ChargeCategory = bill.Purchase
		}
	case "Tax":
		l.ChargeCategory = bill.Tax
	case "Credit", "BundledDiscount", "Discount", "EdpDiscount", "PrivateRateDiscount",
		"RiVolumeDiscount", "SppDiscount",
		"DistributorDiscount":
		l.ChargeCategory = bill.Credit
	case "Refund":
		// A credit on a fee takes effect with the usage, as the fee does.
		if arn := cmp.Or(r.text(curPlan), r.text(curReservation)); arn != "" {
			bought(l, arn)
			l.ChargeClass = bill.Correction
		} else {
			l.ChargeCategory, l.ChargeClass = bill.Credit, bill.Correction
		}
	default:
		l.ChargeCategory = bill.Adjustment
		r.notes[fmt.Sprintf("line_item_line_item_type %.60q is not known: its rows are adjustments", kind)] = true
	}
	if l.ChargeCategory != bill.Usage {
		l.PricingCategory = ""
	}
	if r.err != nil {
		return r.err
	}
	if err := emit(l); err != nil || unused.Sign() == 0 {
		return err
	}
	l.Derived = true
	l.ChargeCategory, l.PricingCategory, l.CommitmentStatus = bill.Usage, bill.Committed, bill.Unused
	l.BilledCost, l.EffectiveCost, l.ListCost, l.Unknown = bill.Decimal{}, unused, bill.Decimal{}, bill.ContractedCost|
		bill.ListCost
	return emit(l)
}

// covered marks usage that a commitment pays for.
func covered(l *bill.Line, commitment string) {
	l.PricingCategory, l.CommitmentID, l.CommitmentStatus = bill.Committed, commitment, bill.Used
}

// bought marks the purchase of a commitment, whose cost takes effect with the usage.
func bought(l *bill.Line, commitment string) {
	l.ChargeCategory, l.CommitmentID, l.EffectiveCost = bill.Purchase, commitment, bill.Decimal{}
}

// effective sets the line's effective cost to that of a column.
func (r *record) effective(field int) {
	var known bool
	if r.line.EffectiveCost, known = r.cost(field); !known {
		r.line.Unknown |= bill.EffectiveCost
	}
}
