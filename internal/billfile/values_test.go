package billfile

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/curfew-dev/curfew/internal/bill"
)

// TestValuesCompareWithoutCase checks that a bill in lower or upper case says the same, to its
// digest, and that values FOCUS does not define are named.
func TestValuesCompareWithoutCase(t *testing.T) {
	const columns = "BilledCost,EffectiveCost,BillingCurrency,BillingPeriodStart,ChargePeriodStart,ChargeCategory,ChargeClass,PricingCategory," +
		"CommitmentDiscountId,CommitmentDiscountStatus,CapacityReservationStatus,ServiceCategory\n"
	rows := []string{
		"1,1,USD,2024-09-01,2024-09-02,Usage,,Standard,,,,Compute\n",
		"2,2,USD,2024-09-01,2024-09-02,Usage,Correction,Committed,c-1,Used,,Storage\n",
		"3,3,USD,2024-09-01,2024-09-02,Tax,,,,,,Other\n", "4,0,USD,2024-09-01,2024-09-02,Purchase,,,c-1,,,Compute\n",
		"5,5,USD,2024-09-01,2024-09-02,Usage,,Dynamic,,,Unused,AI and Machine Learning\n",
		"6,6,USD,2024-09-01,2024-09-02,Credit,,,c-2,Unused,,Compute\n",
	}
	digest := func(change func(string) string) string {
		text := columns
		for _, r := range rows {
			cost, rest, _ := strings.Cut(r, ",")
			text += cost + "," + change(rest)
		}
		b := read(t, filepath.Join(put(t, map[string]string{"b.csv": text}), "b.csv"), Options{})
		for _, n := range b.Notes {
			if strings.Contains(n, "no value of") {
				t.Errorf("a value of FOCUS is named: %s", n)
			}
		}
		if len(b.Periods) != 1 {
			t.Fatalf("%d periods", len(b.Periods))
		}
		return b.Periods[0].Digest
	}
	keep := strings.NewReplacer("C-1", "c-1", "C-2", "c-2")
	want := digest(func(s string) string { return s })
	if lower := digest(strings.ToLower); lower != want {
		t.Error("in lower case it is another bill")
	}
	if upper := digest(func(s string) string { return keep.Replace(strings.ToUpper(s)) }); upper != want {
		t.Error("in upper case it is another bill")
	}
	odd := read(t, put(t, map[string]string{"b.csv": columns + strings.Replace(rows[0], "Usage", "Refunds", 1)}),
		Options{})
	if notes := strings.Join(odd.Notes, "\n"); !strings.Contains(notes,
		`ChargeCategory "Refunds" is no value of FOCUS 1.0`) {
		t.Errorf("the notes are %q", notes)
	}
}

// TestColumnsOfOtherTypes checks that labels in lists are read, that other columns of another type
// are named, and that only those of money stop the import.
func TestColumnsOfOtherTypes(t *testing.T) {
	type label struct {
		Key       string `parquet:"key"`
		Value     string `parquet:"value"`
		Inherited bool   `parquet:"inherited"`
	}
	start := time.Date(2024, 9, 1, 0, 0, 0, 0, time.UTC)
	type labeled struct {
		Billed   float64   `parquet:"BilledCost"`
		Start    time.Time `parquet:"BillingPeriodStart,timestamp(millisecond)"`
		Charge   time.Time `parquet:"ChargePeriodStart,timestamp(millisecond)"`
		Tags     []label   `parquet:"Tags,list"`
		Region   []string  `parquet:"RegionId,list"`
		Quantity bool      `parquet:"ConsumedQuantity"`
	}
	path := filepath.Join(t.TempDir(), "b.parquet")
	if err := parquet.WriteFile(path, []labeled{
		{2.5, start, start, []label{{"env", "dev", true}, {"team", "vision", false}}, []string{"us"}, true},
		{1, start, start, nil, nil, false}, {4, start, start, []label{{"team", "speech", false}}, nil, false},
	}); err != nil {
		t.Fatal(err)
	}
	b := read(t, path, Options{})
	teams := map[string]string{}
	for r := range b.Rows() {
		teams[r.Owner.Team+" "+r.Owner.Environment] = r.Cost.Billed.String()
	}
	if len(teams) != 3 || teams["vision dev"] != "2.50" || teams["speech "] != "4.00" || teams[" "] != "1.00" {
		t.Errorf("the teams are %v", teams)
	}
	notes := strings.Join(b.Notes, "\n")
	for _, want := range []string{
		"RegionId is stored as a list or a structure, which cannot be read as a text: it is left out",
		"ConsumedQuantity is stored as BOOLEAN, which cannot be read as a number: it is left out"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in %q", want, notes)
		}
	}
	type unpaid struct {
		Billed    string    `parquet:"BilledCost"`
		Effective []string  `parquet:"EffectiveCost,list"`
		Start     time.Time `parquet:"BillingPeriodStart,timestamp(millisecond)"`
		Charge    time.Time `parquet:"ChargePeriodStart,timestamp(millisecond)"`
	}
	if err := parquet.WriteFile(path, []unpaid{{"1", []string{"1"}, start, start}}); err != nil {
		t.Fatal(err)
	}
	if _, err := tryRead(path, Options{}); err == nil ||
		!strings.Contains(err.Error(), "EffectiveCost is stored as a list or a structure") {
		t.Errorf("costs in a list: %v", err)
	}
	text := strings.Replace(head, "ServiceName", "ConsumedQuantity", 1) + row("ServiceName", "a lot")
	b = read(t, put(t, map[string]string{"b.csv": text}), Options{})
	if notes := strings.Join(b.Notes, "\n"); b.Lines != 1 ||
		!strings.Contains(notes, "ConsumedQuantity has values that cannot be read") {
		t.Errorf("%d rows, notes %q", b.Lines, notes)
	}
}

// TestLegacyReport checks that the legacy Cost and Usage Report is read in both of its spellings as
// CUR 2.0 is, with a column for each tag.
func TestLegacyReport(t *testing.T) {
	names := strings.Split(curHead, ",")
	slashed := map[string]string{
		"bill_payer_account_id":          "bill/PayerAccountId",
		"bill_billing_period_start_date": "bill/BillingPeriodStartDate",
		"bill_billing_period_end_date":   "bill/BillingPeriodEndDate",
		"line_item_usage_account_id":     "lineItem/UsageAccountId",
		"line_item_usage_start_date":     "lineItem/UsageStartDate",
		"line_item_line_item_type":       "lineItem/LineItemType",
		"line_item_product_code":         "lineItem/ProductCode", "line_item_resource_id": "lineItem/ResourceId",
		"line_item_usage_type":            "lineItem/UsageType",
		"line_item_line_item_description": "lineItem/LineItemDescription",
		"line_item_currency_code":         "lineItem/CurrencyCode",
		"line_item_unblended_cost":        "lineItem/UnblendedCost",
		"line_item_usage_amount":          "lineItem/UsageAmount", "pricing_unit": "pricing/unit",
		"pricing_public_on_demand_cost":                               "pricing/publicOnDemandCost",
		"product_region_code":                                         "product/regionCode",
		"reservation_reservation_a_r_n":                               "reservation/ReservationARN",
		"reservation_effective_cost":                                  "reservation/EffectiveCost",
		"reservation_unused_amortized_upfront_fee_for_billing_period": "reservation/UnusedAmortizedUpfrontFeeForBillingPeriod",
		"reservation_unused_recurring_fee":                            "reservation/UnusedRecurringFee",
		"savings_plan_savings_plan_a_r_n":                             "savingsPlan/SavingsPlanARN",
		"savings_plan_savings_plan_effective_cost":                    "savingsPlan/SavingsPlanEffectiveCost",
		"savings_plan_total_commitment_to_date":                       "savingsPlan/TotalCommitmentToDate",
		"savings_plan_used_commitment":                                "savingsPlan/UsedCommitment",
	}
	rows := []string{
		curRow("Usage", "AmazonEC2", "BoxUsage:g5.xlarge", "3", "3"),
		curRow("SavingsPlanCoveredUsage", "AmazonEC2", "BoxUsage", "3", "3", "", "", "", "", "arn:sp", "2", "", ""),
		curRow("SavingsPlanNegation", "AmazonEC2", "BoxUsage", "-3", "0", "", "", "", "", "arn:sp", "0", "", ""),
		curRow("RIFee", "AmazonEC2", "HeavyUsage", "4", "", "arn:ri", "", "0.25", "0.5"),
	}
	whole := read(t,
		filepath.Join(put(t, map[string]string{"b.csv": curHead + "\n" + strings.Join(rows, "")}), "b.csv"),
		Options{})
	for _, spelling := range []string{"slashes", "underscores"} {
		header, tags := "", "resourceTags/user:Team,resourceTags/user:team,resourceTags/aws:createdBy"
		for _, n := range names[:len(names)-1] {
			if spelling == "slashes" {
				n = slashed[n]
			}
			header += n + ","
		}
		if spelling == "underscores" {
			tags = "resource_tags_user_team,resource_tags_user_cost_center,resource_tags_aws_created_by"
		}
		text := header + tags + "\n"
		for _, r := range rows {
			cut := strings.LastIndex(r, `,"{`)
			text += r[:cut] + ",vision,,root\n"
		}
		b := read(t, filepath.Join(put(t, map[string]string{"b.csv": text}), "b.csv"), Options{})
		if b.Schema != "legacy Cost and Usage Report" || len(b.Missing) > 0 {
			t.Errorf("%s: it is %s and lacks %v", spelling, b.Schema, b.Missing)
		}
		for i, p := range b.Periods {
			if want := whole.Periods[i]; p.Exact != want.Exact || p.Lines != want.Lines || p.Digest != want.Digest {
				t.Errorf("%s: %+v, want %+v", spelling, p.Period, want.Period)
			}
		}
		if d, want := bill.Summarize(b, nil), bill.Summarize(whole, nil); *d.EffectiveCost != *want.EffectiveCost {
			t.Errorf("%s: the effective cost is %s, want %s", spelling, *d.EffectiveCost, *want.EffectiveCost)
		}
	}
}
