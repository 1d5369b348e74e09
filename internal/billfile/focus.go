package billfile

import (
	"github.com/curfew-dev/curfew/internal/bill"
)

// The fields of FOCUS that are read.
const (
	focusBillingAccount = iota
	focusSubAccount
	focusCurrency
	focusPeriodStart
	focusPeriodEnd
	focusChargeStart
	focusChargeCategory
	focusChargeClass
	focusDescription
	focusProvider
	focusServiceCategory
	focusService
	focusResource
	focusRegion
	focusRegionName
	focusPricingCategory
	focusCommitment
	focusCommitmentStatus
	focusQuantity
	focusUnit
	focusBilled
	focusEffective
	focusList
	focusContracted
	focusTags
	focusUsageType
	focusMeter
	focusCapacityStatus
)

// focus is FOCUS 1.0 to 1.3 (https://focus.finops.org/focus-specification/). What 1.3
// renames is read under both names.
var focus = schema{
	name: "FOCUS",
	columns: []column{
		focusBillingAccount:   {names: []string{"BillingAccountId"}},
		focusSubAccount:       {names: []string{"SubAccountId"}},
		focusCurrency:         {names: []string{"BillingCurrency"}},
		focusPeriodStart:      {names: []string{"BillingPeriodStart"}, kind: instant, needed: true},
		focusPeriodEnd:        {names: []string{"BillingPeriodEnd"}, kind: instant},
		focusChargeStart:      {names: []string{"ChargePeriodStart"}, kind: instant, needed: true},
		focusChargeCategory:   {names: []string{"ChargeCategory"}},
		focusChargeClass:      {names: []string{"ChargeClass"}},
		focusDescription:      {names: []string{"ChargeDescription"}},
		focusProvider:         {names: []string{"ServiceProviderName", "ProviderName"}},
		focusServiceCategory:  {names: []string{"ServiceCategory"}},
		focusService:          {names: []string{"ServiceName"}},
		focusResource:         {names: []string{"ResourceId"}},
		focusRegion:           {names: []string{"RegionId"}},
		focusRegionName:       {names: []string{"RegionName"}, extra: true},
		focusPricingCategory:  {names: []string{"PricingCategory"}},
		focusCommitment:       {names: []string{"CommitmentDiscountId"}},
		focusCommitmentStatus: {names: []string{"CommitmentDiscountStatus"}},
		focusQuantity:         {names: []string{"ConsumedQuantity"}, kind: number},
		focusUnit:             {names: []string{"ConsumedUnit"}},
		focusBilled:           {names: []string{"BilledCost"}, kind: number, needed: true},
		focusEffective:        {names: []string{"EffectiveCost"}, kind: number, money: true},
		focusList:             {names: []string{"ListCost"}, kind: number, money: true},
		focusContracted:       {names: []string{"ContractedCost"}, kind: number, money: true},
		focusTags:             {names: []string{"Tags"}, kind: tags},
		focusUsageType:        {names: []string{"x_UsageType"}, extra: true},
		focusMeter:            {names: []string{"SkuMeter"}, extra: true},
		focusCapacityStatus:   {names: []string{"CapacityReservationStatus"}, extra: true},
	},
	known:   func(has func(string) bool) bool { return has("BilledCost") },
	version: focusVersion,
	lines:   focusLines,
}

// focusVersion tells the version by the columns that it brought.
func focusVersion(has func(string) bool) string {
	for _, v := range []struct {
		version string
		columns []string
	}{
		{"FOCUS 1.3", []string{"ServiceProviderName", "HostProviderName", "AllocatedMethodId"}},
		{"FOCUS 1.2", []string{"BillingAccountType", "SubAccountType", "InvoiceId", "PricingCurrency"}},
		{
			"FOCUS 1.1",
			[]string{
				"CapacityReservationId", "CommitmentDiscountQuantity", "ServiceSubcategory",
				"SkuMeter", "SkuPriceDetails",
			},
		},
	} {
		for _, c := range v.columns {
			if has(c) {
				return v.version
			}
		}
	}
	return "FOCUS 1.0"
}

// The values that FOCUS allows, which exporters write in any case.
var (
	chargeCategories  = []string{bill.Usage, bill.Purchase, bill.Tax, bill.Credit, bill.Adjustment}
	chargeClasses     = []string{bill.Correction}
	pricingCategories = []string{bill.Standard, bill.Dynamic, bill.Committed, "Other"}
	statuses          = []string{bill.Used, bill.Unused}
	// earlierPricing are the values of FOCUS 1.0-preview for those of 1.0.
	earlierPricing = map[string]string{
		"on-demand": bill.Standard, "on demand": bill.Standard, "commitment-based": bill.Committed,
		"commitment discount": bill.Committed,
	}
)

func focusLines(r *record, emit func(*bill.Line) error) error {
	l := &r.line
	*l = bill.Line{
		BillingAccountID: r.text(focusBillingAccount), SubAccountID: r.text(focusSubAccount),
		BillingCurrency:    r.text(focusCurrency),
		BillingPeriodStart: r.time(focusPeriodStart), BillingPeriodEnd: r.time(focusPeriodEnd),
		ChargePeriodStart: r.time(focusChargeStart),
		ChargeCategory:    r.one(focusChargeCategory, chargeCategories, nil),
		ChargeClass:       r.one(focusChargeClass, chargeClasses, nil),
		ChargeDescription: r.text(focusDescription), CapacityStatus: r.one(focusCapacityStatus, statuses, nil),
		ServiceProviderName: r.text(focusProvider), ServiceCategory: r.text(focusServiceCategory),
		ServiceName: r.text(focusService),
		ResourceID:  r.text(focusResource), RegionID: r.text(focusRegion),
		PricingCategory:  r.one(focusPricingCategory, pricingCategories, earlierPricing),
		CommitmentID:     r.text(focusCommitment),
		CommitmentStatus: r.one(focusCommitmentStatus, statuses, nil), ConsumedUnit: r.text(focusUnit),
		Tags: r.text(focusTags), UsageType: r.text(focusUsageType),
	}
	if l.RegionID == "" {
		l.RegionID = r.text(focusRegionName)
	}
	if l.UsageType == "" {
		l.UsageType = r.text(focusMeter)
	}
	var known bool
	if l.BilledCost, known = r.cost(focusBilled); !known {
		r.fail(focusBilled, "is empty: a cost that is not known is not zero")
	}
	l.ConsumedQuantity, _ = r.cost(focusQuantity)
	l.EffectiveCost, known = r.cost(focusEffective)
	l.Unknown |= unless(known, bill.EffectiveCost)
	l.ListCost, known = r.cost(focusList)
	l.Unknown |= unless(known, bill.ListCost)
	l.ContractedCost, known = r.cost(focusContracted)
	l.Unknown |= unless(known, bill.ContractedCost)
	if r.err != nil {
		return r.err
	}
	return emit(l)
}

func unless(known bool, c bill.Costs) bill.Costs {
	if known {
		return 0
	}
	return c
}
