package cli

import (
	"encoding/csv"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
)

// billTotals adds up a column of a CSV bill by another, in rationals.
func billTotals(t *testing.T, text, cost string, key func(row map[string]string) string) map[string]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]*big.Rat{}
	for _, r := range rows[1:] {
		row := map[string]string{}
		for i, name := range rows[0] {
			row[name] = r[i]
		}
		k := key(row)
		if sums[k] == nil {
			sums[k] = new(big.Rat)
		}
		v, ok := new(big.Rat).SetString(row[cost])
		if !ok {
			t.Fatalf("%s %q is no number", cost, row[cost])
		}
		sums[k].Add(sums[k], v)
	}
	out := map[string]string{}
	for k, v := range sums {
		if v.Sign() != 0 {
			out[k] = v.FloatString(2)
		}
	}
	return out
}

// TestPostedBillEqualsItsRows imports a month, posts it, restates it, posts it again and posts it
// on the other basis. Each time `bill show --by X` and `costs --by X` agree for every X, and both
// equal the sum of the file's rows.
func TestPostedBillEqualsItsRows(t *testing.T) {
	const head = "BilledCost,EffectiveCost,ListCost,BillingAccountId,SubAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart," +
		"ChargeCategory,ChargeClass,ServiceCategory,ServiceName,ProviderName,ResourceId,RegionId,PricingCategory,Tags\n"
	line := func(billed, effective, day, kind, class, category, service, resource, pricing, team string) string {
		tags := ""
		if team != "" {
			tags = fmt.Sprintf(`"{""team"": ""%s""}"`, team)
		}
		return strings.Join([]string{
			billed, effective, billed, "payer", "222", "USD", "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z",
			"2026-10-" + day + "T00:00:00Z",
			kind, class, category, service, "AWS", resource, "eu-west-1", pricing, tags}, ",") + "\n"
	}
	first := head +
		line("410.25", "300", "03", "Usage", "", "Compute", "Amazon EC2", "i-7", "Standard", "vision") +
		line("89.75", "80", "03", "Usage", "", "Compute", "Amazon EC2", "i-7", "Standard", "speech") +
		line("12.5", "12.5", "03", "Usage", "", "Storage", "Amazon S3", "", "Standard", "vision") +
		line("7", "7", "03", "Usage", "", "Management and Governance", "AWS CloudTrail", "", "Standard", "") +
		line("1900", "0", "01", "Purchase", "", "Compute", "Savings Plans", "", "", "platform") +
		line("33.1", "33.1", "31", "Tax", "", "Other", "Tax", "", "", "")
	restated := head +
		line("410.25", "300", "03", "Usage", "", "Compute", "Amazon EC2", "i-7", "Committed", "vision") +
		line("-165.6", "-165.6", "03", "Usage", "Correction", "Compute", "Amazon EC2", "", "Standard", "vision") +
		line("7", "7", "03", "Usage", "", "Management and Governance", "AWS CloudTrail", "", "Standard", "") +
		line("28.4", "28.4", "31", "Tax", "", "Other", "Tax", "", "", "")
	d := newDesktop(t)
	run := func(args ...string) {
		t.Helper()
		var done struct{}
		d.document(&done, args...)
	}
	period := []string{"--since", "2026-10-01", "--until", "2026-11-01"}
	for _, step := range []struct{ text, basis, cost string }{
		{first, "billed", "BilledCost"}, {first, "effective", "EffectiveCost"},
		{restated, "effective", "EffectiveCost"},
		{restated, "billed", "BilledCost"}, {first, "billed", "BilledCost"},
	} {
		d.write("focus.csv", step.text)
		run("bill", "import", "focus.csv")
		run(append([]string{"bill", "reconcile", "--post", "--basis", step.basis}, period...)...)
		shown := func(by string) map[string]string {
			out := d.shownBy(by, step.basis, period)
			maps.DeleteFunc(out, func(_, v string) bool { return v == "0.00" })
			return out
		}
		ledger := func(by string) map[string]string { return d.costsBy(by, period) }
		for _, by := range strings.Split(
			"team,project,user,environment,cost-center,purpose,resource,kind,type,region,account,category,duty,pricing,lifetime,service", ",") {
			if bill, costs := shown(by), ledger(by); !maps.Equal(bill, costs) {
				t.Errorf("%s cost by %s: bill show has %v, costs %v", step.basis, by, bill, costs)
			}
		}
		cents := func(of map[string]string) map[string]string {
			for k, v := range of {
				of[k] = amount(t, v).Cents()
			}
			return of
		}
		for by, key := range map[string]func(map[string]string) string{
			"service": func(r map[string]string) string { return r["ServiceName"] },
			"pricing": func(r map[string]string) string { return r["PricingCategory"] },
			"team": func(r map[string]string) string {
				for _, team := range []string{"vision", "speech", "platform"} {
					if strings.Contains(r["Tags"], team) {
						return team
					}
				}
				return ""
			},
		} {
			if got, want := cents(ledger(by)), billTotals(t, step.text, step.cost, key); !maps.Equal(got, want) {
				t.Errorf("%s cost by %s: got %v, the rows say %v", step.basis, by, got, want)
			}
		}
	}
	_, text, _ := d.run(append([]string{"bill", "show", "--by", "service", "-o", "csv", "-q"}, period...)...)
	rows := strings.Split(strings.TrimSpace(text), "\n")
	if !slices.Contains(rows, "Amazon EC2,billed,500.00,500.00,0.00") ||
		rows[0] != "service,basis,total_usd,direct_usd,shared_usd" {
		t.Errorf("the CSV is %q", rows)
	}
}
