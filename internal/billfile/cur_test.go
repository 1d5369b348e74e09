package billfile

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/bill"
)

const curHead = "bill_payer_account_id,bill_billing_period_start_date,bill_billing_period_end_date,line_item_usage_account_id,line_item_usage_start_date," +
	"line_item_line_item_type,line_item_product_code,line_item_resource_id,line_item_usage_type,line_item_line_item_description,line_item_currency_code," +
	"line_item_unblended_cost,line_item_usage_amount,pricing_unit,pricing_public_on_demand_cost,product_region_code,reservation_reservation_a_r_n," +
	"reservation_effective_cost,reservation_unused_amortized_upfront_fee_for_billing_period,reservation_unused_recurring_fee,savings_plan_savings_plan_a_r_n," +
	"savings_plan_savings_plan_effective_cost,savings_plan_total_commitment_to_date,savings_plan_used_commitment,resource_tags"

// curRow returns a row of curHead: kind, product, usage type, unblended cost and list
// cost, and from there on as the columns from reservation_reservation_a_r_n.
func curRow(kind, product, usage, unblended, list string, rest ...string) string {
	fields := []string{
		"111", "2024-09-01T00:00:00.000Z", "2024-10-01T00:00:00.000Z", "222",
		"2024-09-02T05:00:00.000Z", kind, product,
		"i-1", usage, "", "USD",
		unblended, "10", "GB", list, "us-east-1", "", "", "", "", "", "", "", "", `"{""user_team"":""vision""}"`}
	copy(fields[16:], rest)
	return strings.Join(fields, ",") + "\n"
}

// TestLineItemTypes maps each line item type of CUR 2.0 to FOCUS.
func TestLineItemTypes(t *testing.T) {
	sp, ri := "arn:sp", "arn:ri"
	for _, tc := range []struct {
		name, text              string
		billed, effective, list string
		category                bill.Category
		charge, pricing, status string
	}{
		{
			"usage", curRow("Usage", "AmazonEC2", "BoxUsage:p4d.24xlarge", "3", "3"), "3.00",
			"3.00", "3.00", bill.Compute,
			bill.Usage, bill.Standard, "",
		},
		{
			"spot", curRow("Usage", "AmazonEC2", "SpotUsage:p4d.24xlarge", "1", "3"), "1.00",
			"1.00", "3.00", bill.Compute,
			bill.Usage, bill.Dynamic, "",
		},
		{
			"volume", curRow("Usage", "AmazonEC2", "EBS:VolumeUsage.gp3", "3", "3"), "3.00",
			"3.00", "3.00", bill.Storage,
			bill.Usage, bill.Standard, "",
		},
		{
			"transfer", curRow("Usage", "AmazonEC2", "USW2-AWS-Out-Bytes", "3", "3"), "3.00",
			"3.00", "3.00", bill.Egress,
			bill.Usage, bill.Standard, "",
		},
		{
			"covered usage",
			curRow("SavingsPlanCoveredUsage", "AmazonEC2", "BoxUsage", "3", "3", "", "", "", "",
				sp, "2", "", ""), "0.00",
			"2.00", "3.00", bill.Compute, bill.Usage, bill.Committed, bill.Used,
		},
		{
			"negation", curRow("SavingsPlanNegation", "AmazonEC2", "BoxUsage", "-3", "0", "", "",
				"", "", sp, "0", "", ""),
			"0.00", "0.00", "0.00", bill.Compute, bill.Usage, bill.Committed, bill.Used,
		},
		{
			"reserved usage", curRow("DiscountedUsage", "AmazonEC2", "BoxUsage", "0", "3", ri,
				"1.5"), "0.00", "1.50", "3.00",
			bill.Compute, bill.Usage, bill.Committed, bill.Used,
		},
		{
			"upfront fee", curRow("Fee", "AmazonEC2", "HeavyUsage", "100", "0", ri), "100.00",
			"0.00", "0.00", bill.Compute,
			bill.Purchase, "", "",
		},
		{
			"other fee", curRow("Fee", "AWSSupportBusiness", "Dollar", "100", "0"), "100.00",
			"100.00", "0.00", bill.Overhead,
			bill.Purchase, "", "",
		},
		{"tax", curRow("Tax", "AmazonEC2", "", "7", ""), "7.00", "7.00", "unknown", bill.Overhead, bill.Tax, "", ""},
		{
			"credit", curRow("Credit", "AmazonS3", "", "-7", ""), "-7.00", "-7.00", "unknown",
			bill.Storage, bill.Credit, "",
			"",
		},
		{
			"refund of a fee", curRow("Refund", "AmazonEC2", "HeavyUsage", "-100", "0", ri), "-100.00", "0.00", "0.00",
			bill.Compute, bill.Purchase, "", "",
		},
		{
			"refund of a plan", curRow("Refund", "ComputeSavingsPlans", "ComputeSP", "-40", "0", "", "", "", "", sp),
			"-40.00", "0.00", "0.00", bill.Compute, bill.Purchase, "", "",
		},
		{
			"discount", curRow("EdpDiscount", "AmazonEC2", "BoxUsage", "-2", "0"), "-2.00",
			"-2.00", "0.00", bill.Compute,
			bill.Credit, "", "",
		},
		{
			"unused reserved capacity", curRow("Usage", "AmazonEC2", "UnusedBox:p4d.24xlarge",
				"9", "9"), "9.00", "9.00",
			"9.00", bill.Compute, bill.Usage, bill.Standard, "",
		},
		{
			"refund", curRow("Refund", "AmazonS3", "", "-7", ""), "-7.00", "-7.00", "unknown",
			bill.Storage, bill.Credit, "",
			"",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := read(t, filepath.Join(put(t, map[string]string{"b.csv": curHead + "\n" + tc.text}), "b.csv"),
				Options{})
			d := bill.Summarize(b, nil)
			list := "unknown"
			if d.ListCost != nil {
				list = *d.ListCost
			}
			if d.BilledCost != tc.billed || *d.EffectiveCost != tc.effective || list != tc.list {
				t.Errorf("billed %s, effective %s, list %s; want %s, %s, %s", d.BilledCost,
					*d.EffectiveCost, list, tc.billed,
					tc.effective, tc.list)
			}
			for r := range b.Rows() {
				if r.Category != tc.category || r.ChargeCategory != tc.charge || r.PricingCategory != tc.pricing ||
					r.Status != tc.status || r.Owner.Team != "vision" {
					t.Errorf("the row is %+v", r)
				}
			}
		})
	}
}

// TestUnusedCommitments checks that the unused part of fees becomes unused usage, and that it is
// one row of the file all the same.
func TestUnusedCommitments(t *testing.T) {
	text := curHead + "\n" +
		curRow("SavingsPlanRecurringFee", "ComputeSavingsPlans", "ComputeSP", "10", "", "", "",
			"", "", "arn:sp", "", "10",
			"7.5") +
		curRow("RIFee", "AmazonEC2", "HeavyUsage", "4", "", "arn:ri", "", "0.25", "0.5") +
		curRow("SavingsPlanCoveredUsage", "AmazonEC2", "BoxUsage", "9", "9", "", "", "", "", "arn:sp", "7.5", "", "") +
		curRow("SavingsPlanNegation", "AmazonEC2", "BoxUsage", "-9", "0", "", "", "", "", "arn:sp", "0", "", "")
	b := read(t, filepath.Join(put(t, map[string]string{"b.csv": text}), "b.csv"), Options{})
	d := bill.Summarize(b, nil)
	if d.Rows != 4 || d.BilledCost != "14.00" || *d.EffectiveCost != "10.75" || d.Written != "CUR 2.0" {
		t.Errorf("the document is %+v", d)
	}
	use, err := bill.CommitmentUse(b.Rows())
	if err != nil || len(use.Commitments) != 2 {
		t.Fatalf("the use of commitments is %+v, %v", use, err)
	}
	if c := use.Commitments[0]; c.ID != "arn:sp" || c.Unused.String() != "2.50" || c.Used.String() != "7.50" ||
		c.Purchased.String() != "10.00" {
		t.Errorf("the savings plan: %+v", c)
	}
	if c := use.Commitments[1]; c.ID != "arn:ri" || c.Unused.String() != "0.75" || c.Purchased.String() != "4.00" {
		t.Errorf("the reservation: %+v", c)
	}
	for _, n := range b.Notes {
		if strings.Contains(n, "negation") {
			t.Errorf("covered usage and its negation are said to differ: %s", n)
		}
	}
	half := read(t,
		filepath.Join(put(t, map[string]string{"b.csv": text[:strings.LastIndex(text[:len(text)-1], "\n")+1]}),
			"b.csv"),
		Options{})
	if !strings.Contains(strings.Join(half.Notes, "\n"), "differ by 9 USD") {
		t.Errorf("the missing negation is not told: %q", half.Notes)
	}
}
